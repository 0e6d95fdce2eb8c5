"""Mixed precision: weights and their update in float32, products in a data type of 16 bits, chosen by autocast."""

from typing import Any, Dict

import torch
from torch import nn

from .eager import EagerStep, Task


class Narrowed(nn.Module):
    """A module whose operators run in the data type that autocast gives each of them; its logits are float32."""

    def __init__(self, module: nn.Module, device_type: str, dtype: torch.dtype, kept: bool = True) -> None:
        """``kept``: a weight is cast once a step. Not inside a CUDA graph, whose casts must all be in the graph."""
        super().__init__()
        self.module = module
        self.device_type = device_type
        self.dtype = dtype
        self.kept = kept

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits of the module."""
        with torch.autocast(self.device_type, dtype=self.dtype, cache_enabled=self.kept):
            logits = self.module(inputs)
        return logits.float()


class ScaledStep(EagerStep):
    """Eager mode's step in float16: the loss is scaled up, lest small gradients become zero.

    Where a scaled gradient overflows, the step changes nothing and the scale is halved; both stay on the device.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.scaler = torch.amp.GradScaler(task.inputs.device.type)
        self.first_scale = self.scaler.state_dict()

    def __call__(self) -> torch.Tensor:
        """Carry out one step; return its loss, a scalar still on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        self.scaler.scale(loss).backward()
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.trainable, self.clip, foreach=True)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def forget(self) -> None:
        """Scale the loss as at the start."""
        self.scaler.load_state_dict(self.first_scale)

    def describe(self) -> Dict[str, Any]:
        """Name what was chosen, and what the scale has become: below 65536, steps were left out."""
        described = super().describe()
        described.update(loss_scaling="torch.amp.GradScaler", loss_scale=float(self.scaler.get_scale()))
        return described
