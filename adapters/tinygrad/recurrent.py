"""Recurrent layers, unrolled: tinygrad has no loop that a graph could hold, and no operator for a whole layer."""

from typing import Callable, Dict, List, Optional, Tuple

from tinygrad import Tensor

from ..families import Elman, Recurrent
from .layers import activated, dense, looked_up

Weights = Dict[str, Tensor]
State = Tuple[Tensor, ...]  # the layer's output first, each (batch, hidden)
Gates = Callable[[Tensor], Tensor]  # what is done with the sums of gates: `kept` or `fused`


def _lstm(state: State, share: Tensor, product: Tensor) -> State:
    """Gates input, forget, cell, output: the sums of tinygrad's ``nn.LSTMCell``."""
    given, forget, candidate, shown = (share + product).chunk(4, dim=1)
    memory = forget.sigmoid() * state[1] + given.sigmoid() * candidate.tanh()
    return shown.sigmoid() * memory.tanh(), memory


def _gru(state: State, share: Tensor, product: Tensor) -> State:
    """Gates reset, update, new; the reset gate weighs the state's product."""
    ours, theirs = share.chunk(3, dim=1), product.chunk(3, dim=1)
    reset, update = [(ours[gate] + theirs[gate]).sigmoid() for gate in (0, 1)]
    new = (ours[2] + reset * theirs[2]).tanh()
    return ((1.0 - update) * new + update * state[0],)


def _rnn(state: State, share: Tensor, product: Tensor) -> State:
    return ((share + product).tanh(),)


_TURNS: Dict[str, Callable[[State, Tensor, Tensor], State]] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def kept(value: Tensor) -> Tensor:
    """Have the value and its gradient put in memory; else tinygrad fuses how it is made into all that reads it."""
    return value.contiguous().contiguous_backward()


def fused(value: Tensor) -> Tensor:
    """Leave to tinygrad what it makes of the value."""
    return value


def _layer(cell: str, w: Weights, name: str, values: List[Tensor], gates: Gates) -> List[Tensor]:
    """Run a layer from a zero state, step by step: each (batch, inputs) gives (batch, hidden)."""
    weight, bias = w[name + ".hidden_weight"].T, w.get(name + ".hidden_bias")
    state: State = (Tensor.zeros(values[0].shape[0], weight.shape[0]),) * (2 if cell == "lstm" else 1)
    outputs = []
    for value in values:
        share = value.linear(w[name + ".input_weight"].T, w[name + ".bias"])
        state = _TURNS[cell](state, gates(share), gates(state[0].linear(weight, bias)))
        state = tuple(kept(each) for each in state)  # of earlier steps would be computed anew in each
        outputs.append(state[0])
    return outputs


def logits(family: Recurrent, w: Weights, gates: Gates, inputs: Tensor) -> Tensor:
    """Return the logits of all steps, (steps * batch, vocabulary), of time-major tokens or one-hot symbols."""
    # Made once: fused into each step's product, the search through the embedding would be made there anew.
    given = looked_up(w["embedding.weight"], inputs).contiguous() if family.embedding else inputs
    values = [given[step] for step in range(family.steps)]
    for name in family.layer_names():
        values = _layer(family.cell, w, name, values, gates)
    return dense(w, "fc", values[0].stack(*values[1:]).reshape(-1, family.hidden))


def outputs(family: Elman, w: Weights, gates: Gates, values: Tensor) -> Tensor:
    """Return the outputs of all steps, (steps * batch, outputs), of inputs (steps, batch, inputs)."""
    state: Optional[Tensor] = None
    states = []
    for step in range(family.steps):
        sums = values[step].linear(w["rnn.input_weight"].T, w["rnn.bias"])
        sums = gates(sums if state is None else sums + state.linear(w["rnn.hidden_weight"].T))
        found = activated(sums, family.activation)
        if family.alpha != 1.0:
            found = family.alpha * found if state is None else (1.0 - family.alpha) * state + family.alpha * found
        state = kept(found)
        states.append(state)
    return dense(w, "out", states[0].stack(*states[1:]).reshape(-1, family.hidden))
