"""Networks as PyTorch modules.

PyTorch's own layouts are the canonical ones (dense weight (outputs, inputs), convolution weight
(outputs, inputs, height, width), LSTM gates input, forget, cell, output): only names differ.
"""

from functools import partial
from typing import Any, Dict, Mapping, Optional, Tuple, Type

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..families import Elman, Family, Layer, Spiking
from ..libraries.walks import LayerFunctions, spike_slope
from ..networks import Network

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
FUSED = ("tanh", "relu")  # the activations of nn.RNN


# Fully connected layers whose matrix products are oneDNN's instead of MKL's. PyTorch hands float32
# matrix products to MKL. On the AMD processor tried, oneDNN, which PyTorch has for convolutions, is
# twice as fast. No public switch exchanges the two, so this calls the operator that PyTorch's own
# compiler emits for frozen inference, and adds the gradient that it lacks. It is a separate mode: a
# program that says ``nn.Linear`` gets MKL.


def onednn_refusal() -> str:
    """Return why this build of PyTorch lacks oneDNN's product; empty where it has it."""
    if not torch.backends.mkldnn.is_available():
        return "this build of PyTorch has no oneDNN"
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return "this version of PyTorch has no operator mkldnn::_linear_pointwise"
    return ""


def onednn_product(
    left: torch.Tensor, right: torch.Tensor, bias: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Return ``left @ right.T + bias`` for left (m, k), right (n, k) of any strides, bias (n,)."""
    return torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")


class _OneDnnProduct(torch.autograd.Function):
    """``inputs @ weight.T + bias`` and its gradients, each one product of oneDNN."""

    @staticmethod
    def forward(
        context: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        context.save_for_backward(inputs, weight)
        return onednn_product(inputs, weight, bias)

    @staticmethod
    def backward(
        context: Any, gradient: torch.Tensor
    ) -> Tuple[Optional[torch.Tensor], torch.Tensor, torch.Tensor]:
        inputs, weight = context.saved_tensors
        by_inputs = onednn_product(gradient, weight.t()) if context.needs_input_grad[0] else None
        return by_inputs, onednn_product(gradient.t(), inputs.t()), gradient.sum(0)


def loops(family: Elman, loop: bool) -> bool:
    """Return whether the recurrence is a loop in Python.

    It is where the mode says so, or nn.RNN has no such layer.
    """
    return loop or family.activation not in FUSED or family.alpha != 1.0


class _Spike(torch.autograd.Function):
    """1 where a unit fires, and 0 elsewhere."""

    @staticmethod
    def forward(context: Any, potential: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(potential)
        return (potential > 1.0).to(potential.dtype)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        (potential,) = context.saved_tensors
        return gradient * spike_slope(potential)


def without_values(kind: Type[nn.Module], *sizes: Any, **options: Any) -> nn.Module:
    """Return a layer whose parameters have no values yet.

    PyTorch's `skip_init` takes a second to import SymPy.
    """
    silent = type(kind.__name__, (kind,), {"reset_parameters": lambda self: None})
    layer: nn.Module = silent(*sizes, **options)
    layer.__class__ = kind
    return layer


class TorchNetwork(LayerFunctions, nn.Module):
    """A network of PyTorch's layers, to rows of logits or outputs.

    With ``onednn`` dense layers' products are oneDNN's. With ``loop`` simple recurrent layers are
    loops in Python.
    """

    # In place: a convolution's backward pass does not need its own output.
    activations = {
        "relu": partial(functional.relu, inplace=True),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
    }
    attributes = {"gamma": "weight", "beta": "bias"}
    stack_parts = ("weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d")
    keep = nn.Module.add_module
    pool = staticmethod(functional.max_pool2d)
    gelu = staticmethod(partial(functional.gelu, approximate="tanh"))

    def __init__(self, family: Family, onednn: bool, loop: bool) -> None:
        nn.Module.__init__(self)
        self.onednn = onednn
        self.loop = loop
        LayerFunctions.__init__(self, family)
        if family.kind == "recurrent":
            self._make_recurrent(self.family)

    def _make_recurrent(self, family: Any) -> None:
        if isinstance(family, Spiking) or (isinstance(family, Elman) and loops(family, self.loop)):
            for parameter in family.parameters()[:3]:
                tensor = nn.Parameter(torch.empty(parameter.shape))
                self.w[parameter.name] = tensor
                self.register_parameter(parameter.name.replace(".", "_"), tensor)
            return
        if isinstance(family, Elman):
            self.stack: Any = nn.RNN(family.inputs, family.hidden, nonlinearity=family.activation)
        else:
            self.stack = CELLS[family.cell](family.width, family.hidden, family.layers)
        for second_bias in self.hold_stack():
            second_bias.requires_grad_(False).zero_()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scores(inputs)

    def dense(self, name: str, values: torch.Tensor) -> torch.Tensor:
        layer = self.layers[name]
        if not self.onednn:
            return layer(values)
        outputs = _OneDnnProduct.apply(values.flatten(0, -2), layer.weight, layer.bias)
        return outputs.unflatten(0, values.shape[:-1]) if values.dim() > 2 else outputs

    def make_dense(self, inputs: int, outputs: int) -> nn.Module:
        return without_values(nn.Linear, inputs, outputs)

    def make_convolution(self, spec: Layer) -> nn.Module:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding
        return without_values(nn.Conv2d, *sizes, bias=not spec.norm)

    def make_batch_norm(self, name: str, channels: int) -> nn.Module:
        # It keeps running statistics, as any training does.
        return nn.BatchNorm2d(channels, eps=self.family.epsilon)

    def make_layer_norm(self, width: int) -> nn.Module:
        return nn.LayerNorm(width, self.family.epsilon)

    def make_embedding(self, symbols: int, width: int) -> nn.Module:
        return without_values(nn.Embedding, symbols, width)

    def flatten(self, values: torch.Tensor) -> torch.Tensor:
        return values.flatten(1)

    def pixel_mean(self, values: torch.Tensor) -> torch.Tensor:
        return functional.adaptive_avg_pool2d(values, 1).flatten(1)

    def added(self, inner: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        inner += values
        return inner

    def rows(self, values: torch.Tensor) -> torch.Tensor:
        return values.flatten(0, 1)

    def stacked(self, values: torch.Tensor) -> torch.Tensor:
        return self.stack(values)[0]

    def elman_layer(self, values: torch.Tensor) -> torch.Tensor:
        """Return the states of all steps; without an operator for the whole layer step by step."""
        family = self.family
        if not loops(family, self.loop):
            return self.stacked(values)
        shares = functional.linear(values, self.w["rnn.input_weight"], self.w["rnn.bias"])
        # Not in place: the operator behind keeps its output for the way back.
        turned = self.w["rnn.hidden_weight"].t()
        phi = getattr(torch, family.activation)
        state = shares.new_zeros(shares.shape[1:])
        states = []
        for share in shares.unbind():
            new = phi(torch.addmm(share, state, turned))
            state = new if family.alpha == 1.0 else torch.lerp(state, new, family.alpha)
            states.append(state)
        return torch.stack(states)

    def spiking_layer(self, values: torch.Tensor) -> torch.Tensor:
        shares = functional.linear(values, self.w["rnn.input_weight"], self.w["rnn.bias"])
        turned = self.w["rnn.hidden_weight"].t()
        beta = self.family.beta
        spikes = potential = shares.new_zeros(shares.shape[1:])
        spikes_of_steps = []
        for share in shares.unbind():
            kept = torch.addcmul(share, potential, 1.0 - spikes.detach(), value=beta)
            potential = torch.addmm(kept, spikes, turned)
            spikes = _Spike.apply(potential)
            spikes_of_steps.append(spikes)
        return torch.stack(spikes_of_steps)

    def mean_of_steps(self, values: torch.Tensor) -> torch.Tensor:
        return values.mean(0)

    def attended(self, name: str, values: torch.Tensor) -> torch.Tensor:
        parts = self.dense(name + "qkv", values).chunk(3, dim=-1)
        query, key, value = [
            part.unflatten(-1, (self.family.heads, -1)).transpose(1, 2) for part in parts
        ]
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


def build(
    network: Network, weights: Dict[str, np.ndarray], onednn: bool = False, loop: bool = False
) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    """Build the network in training mode with a copy of these weights.

    Return it, and its parameters by name.
    """
    module = TorchNetwork(network.family, onednn, loop)
    if set(module.w) != set(weights):
        raise ValueError("the network's parameters and the weights given differ in name")
    load(module.w, weights)
    module.train()
    return module, module.w


def load_statistics(module: nn.Module, statistics: Mapping[str, np.ndarray]) -> None:
    """Copy running means and variances into the module's batch normalisations."""
    buffers = {"mean": "running_mean", "variance": "running_var"}
    for name, value in statistics.items():
        layer, _, kind = name.rpartition(".")
        normalisation: Any = module
        getattr(normalisation.layers[layer], buffers[kind]).copy_(torch.from_numpy(value))


def fold_normalisations(module: Any) -> None:
    """Fold batch normalisations into the convolutions before them.

    PyTorch's own function for evaluation does it.
    """
    module.eval()
    for spec in module.family.convolutions():
        if spec.norm:
            folded = fuse_conv_bn_eval(module.layers[spec.name], module.layers[spec.norm])
            for name, layer in ((spec.name, folded), (spec.norm, nn.Identity())):
                module.layers[name] = layer
                module.keep("made_" + name.replace(".", "_"), layer)


def load(parameters: Dict[str, nn.Parameter], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters, wherever those lie and in whatever order in memory."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(weights[name]))
