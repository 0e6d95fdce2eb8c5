"""Simple recurrent networks: PyTorch's own layer, or a loop over the steps in Python."""

from typing import Callable, Dict, Tuple

import torch
from torch import nn

from ..families import Elman

#: What nn.RNN knows.
FUSED = ("tanh", "relu")
PHI = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
#: Beyond so many steps the graph of an unrolled loop takes minutes to compile.
MOST_COMPILED_STEPS = 50


def loops(family: Elman, asked: bool) -> bool:
    """Tell whether the recurrence is a loop in Python: because it is asked for, or nn.RNN has no such layer."""
    return asked or family.activation not in FUSED or family.alpha != 1.0


def refuses_to_compile(family: Elman) -> str:
    """Return why a loop over the steps is not compiled; empty where it is."""
    if family.steps <= MOST_COMPILED_STEPS:
        return ""
    return "torch.compile unrolls the loop over %d steps, and beyond %d that takes minutes" % (
        family.steps,
        MOST_COMPILED_STEPS,
    )


class Looped(nn.Module):
    """A recurrent layer step by step: (steps, batch, inputs) to (steps, batch, hidden) from a zero state."""

    def __init__(self, family: Elman) -> None:
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(family.hidden, family.inputs))
        self.hidden_weight = nn.Parameter(torch.empty(family.hidden, family.hidden))
        self.bias = nn.Parameter(torch.empty(family.hidden))
        self.phi = PHI[family.activation]
        self.alpha = family.alpha

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the states of all steps."""
        shares = nn.functional.linear(inputs, self.input_weight, self.bias)
        turned = self.hidden_weight.t()
        state = shares.new_zeros(shares.shape[1:])
        states = []
        for share in shares.unbind():
            found = self.phi(torch.addmm(share, state, turned))
            state = found if self.alpha == 1.0 else torch.lerp(state, found, self.alpha)
            states.append(state)
        return torch.stack(states)


class _Network(nn.Module):
    """A recurrent layer and dense outputs: (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, layer: nn.Module, dense: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.dense = dense

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        states = self.layer(inputs)
        return self.dense((states if isinstance(states, torch.Tensor) else states[0]).flatten(0, 1))


def make(
    family: Elman, dense: Callable[[int, int], nn.Linear], loop: bool
) -> Tuple[nn.Module, Dict[str, nn.Parameter]]:
    """Return the network and its parameters by canonical name."""
    layer: nn.Module
    if loops(family, loop):
        layer = Looped(family)
        found = [layer.input_weight, layer.hidden_weight, layer.bias]
    else:
        layer = nn.RNN(family.inputs, family.hidden, nonlinearity=family.activation)
        found = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0]
        # PyTorch has two biases; training both would double the bias's learning rate.
        layer.bias_hh_l0.requires_grad_(False).zero_()
    last = dense(family.hidden, family.outputs)
    names = ("rnn.input_weight", "rnn.hidden_weight", "rnn.bias", "out.weight", "out.bias")
    return _Network(layer, last), dict(zip(names, [*found, last.weight, last.bias]))
