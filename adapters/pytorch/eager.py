"""The training step run operation by operation."""

from typing import Any, Callable, Dict, List, NamedTuple

import torch
from torch import nn
from torch.nn import functional

#: By a family's ``loss``; each takes outputs and labels and is a mean over all of them.
LOSSES: Dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "squares": functional.mse_loss,
}


#: Of torch.optim.SGD; the usual one is what PyTorch chooses for the parameters' device.
IMPLEMENTATIONS: Dict[str, Dict[str, bool]] = {
    "usual": {},
    "fused": {"foreach": False, "fused": True},
    "foreach": {"foreach": True, "fused": False},
    "single": {"foreach": False, "fused": False},
}


class Task(NamedTuple):
    """What a step trains, and on what."""

    module: nn.Module
    trainable: List[nn.Parameter]
    inputs: torch.Tensor
    labels: torch.Tensor
    settings: Dict[str, Any]  # of the mode
    criterion: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = functional.cross_entropy
    clip: float = 0.0  # largest norm of all gradients together; 0: any


class EagerStep:
    """Forward, loss, backward and SGD of one resident mini-batch, as ordinary PyTorch."""

    def __init__(self, task: Task) -> None:
        kind = task.settings.get("optimizer", "usual")
        if kind not in IMPLEMENTATIONS:
            raise ValueError("optimizer %r is none of %s" % (kind, ", ".join(IMPLEMENTATIONS)))
        self.module = task.module
        self.inputs = task.inputs
        self.labels = task.labels
        self.criterion = task.criterion
        self.trainable = task.trainable
        self.clip = task.clip
        self.kind = kind
        self.optimizer = torch.optim.SGD(task.trainable, lr=0.0, **IMPLEMENTATIONS[kind])

    def loss(self) -> torch.Tensor:
        """Return the mini-batch's mean loss."""
        return self.criterion(self.module(self.inputs), self.labels)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute the gradients, and clip them where the family does; their norm is never read on the host."""
        loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.trainable, self.clip, foreach=True)

    def __call__(self) -> torch.Tensor:
        """Carry out one step; return its loss, a scalar still on the device."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        self.backward(loss)
        self.optimizer.step()
        return loss.detach()

    def forget(self) -> None:
        """Forget what earlier steps found out; gradients are made anew by each, and plain SGD keeps nothing."""

    def set_learning_rate(self, rate: float) -> None:
        """Use this rate from the next step on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def describe(self) -> Dict[str, Any]:
        """Name what was chosen."""
        return {"optimizer": "SGD (%s)" % self.kind}
