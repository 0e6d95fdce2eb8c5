"""Fully connected layers whose matrix products are oneDNN's instead of MKL's.

PyTorch hands float32 matrix products to MKL. On the AMD processor tried, oneDNN, which PyTorch carries along for
convolutions, multiplies twice as fast. No public switch exchanges the two, so this layer
calls the operator that PyTorch's own compiler emits for frozen inference, and adds the gradient that it lacks. It is a
mode of its own, because it is not what a program gets that only says ``nn.Linear``.
"""

from typing import Any, Optional, Tuple

import torch
from torch import nn


def refusal() -> str:
    """Return why this build of PyTorch does not have oneDNN's product; empty where it has."""
    if not torch.backends.mkldnn.is_available():
        return "this build of PyTorch has no oneDNN"
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "this version of PyTorch has no operator mkldnn::_linear_pointwise"
    return ""


def product(left: torch.Tensor, right: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Return ``left @ right.T + bias`` for left (m, k), right (n, k) of any strides, bias (n,)."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    """``inputs @ weight.T + bias`` and its gradients, each one product of oneDNN."""

    @staticmethod
    def forward(context: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(inputs, weight)
        return product(inputs, weight, bias)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Tuple[Optional[torch.Tensor], torch.Tensor, torch.Tensor]:
        inputs, weight = context.saved_tensors
        by_inputs = product(gradient, weight.t()) if context.needs_input_grad[0] else None
        return by_inputs, product(gradient.t(), inputs.t()), gradient.sum(0)


class Dense(nn.Linear):
    """A fully connected layer computed by oneDNN."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (batch, inputs), or more dimensions before the last, to as many with the outputs in the last."""
        if inputs.dim() == 2:
            return _Linear.apply(inputs, self.weight, self.bias)
        found = _Linear.apply(inputs.reshape(-1, inputs.shape[-1]), self.weight, self.bias)
        return found.reshape(inputs.shape[:-1] + found.shape[-1:])


def onednn_dense(inputs: int, outputs: int) -> nn.Linear:
    """Return a fully connected layer computed by oneDNN, its weights not yet set."""
    return nn.utils.skip_init(Dense, inputs, outputs)
