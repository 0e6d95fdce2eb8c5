"""Recurrent layers, unrolled as MLX's own are: the inputs' products of all steps at once, the state's one by one."""

from typing import Any, Callable, Dict, Iterator, Tuple

import mlx.core as mx

from ..families import Elman, Recurrent
from .layers import activated, dense

Arrays = Dict[str, Any]
State = Tuple[Any, ...]  # the layer's output first, each (batch, hidden)
#: (state, a step's share of the inputs, the hidden weight, its bias or None) -> the state after that step
Turn = Callable[[State, Any, Any, Any], State]


def _lstm(state: State, share: Any, weight: Any, bias: Any) -> State:
    """Gates input, forget, cell, output."""
    given, forget, candidate, shown = mx.split(mx.addmm(share, state[0], weight), 4, axis=-1)
    memory = mx.sigmoid(forget) * state[1] + mx.sigmoid(given) * mx.tanh(candidate)
    return mx.sigmoid(shown) * mx.tanh(memory), memory


def _gru(state: State, share: Any, weight: Any, bias: Any) -> State:
    """Gates reset, update, new; MLX's own has a second bias for the new state only."""
    ours, theirs = mx.split(share, 3, axis=-1), mx.split(mx.addmm(bias, state[0], weight), 3, axis=-1)
    reset, update = [mx.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = mx.tanh(ours[2] + reset * theirs[2])
    return ((1.0 - update) * new + update * state[0],)


def _rnn(state: State, share: Any, weight: Any, bias: Any) -> State:
    return (mx.tanh(mx.addmm(share, state[0], weight)),)


_TURNS: Dict[str, Turn] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def _shares(w: Arrays, name: str, values: Any) -> Iterator[Any]:
    """Yield the inputs' products of each step: split, since each slice's gradient is an array of all steps."""
    shares = mx.addmm(w[name + ".bias"], values, w[name + ".input_weight"].T)
    for share in mx.split(shares, len(shares)):
        yield mx.squeeze(share, 0)


def _layer(cell: str, w: Arrays, name: str, values: Any) -> Any:
    """Run a layer from a zero state: (steps, batch, inputs) to (steps, batch, hidden)."""
    weight, bias = w[name + ".hidden_weight"].T, w.get(name + ".hidden_bias")
    state: State = (mx.zeros((values.shape[1], weight.shape[0])),) * (2 if cell == "lstm" else 1)
    outputs = []
    for share in _shares(w, name, values):
        state = _TURNS[cell](state, share, weight, bias)
        outputs.append(state[0])
    return mx.stack(outputs)


def logits(family: Recurrent, w: Arrays, inputs: Any) -> Any:
    """Return the logits of all steps, (steps * batch, vocabulary), of time-major tokens or one-hot symbols."""
    values = w["embedding.weight"][inputs] if family.embedding else inputs
    for name in family.layer_names():
        values = _layer(family.cell, w, name, values)
    return dense(w, "fc", values.reshape(-1, family.hidden))


def outputs(family: Elman, w: Arrays, values: Any) -> Any:
    """Return the outputs of all steps, (steps * batch, outputs), of inputs (steps, batch, inputs)."""
    weight, state = w["rnn.hidden_weight"].T, mx.zeros((values.shape[1], family.hidden))
    states = []
    for share in _shares(w, "rnn", values):
        found = activated(mx.addmm(share, state, weight), family.activation)
        state = found if family.alpha == 1.0 else (1.0 - family.alpha) * state + family.alpha * found
        states.append(state)
    return dense(w, "out", mx.stack(states).reshape(-1, family.hidden))
