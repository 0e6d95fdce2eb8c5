"""Recurrent layers: MindSpore's own LSTM; the others as loops over the steps, which its compiler unrolls.

MindSpore's GRU and RNN layers also loop, and multiply the inputs in each step.
"""

from typing import Any, Dict, Tuple

import mindspore
import numpy as np
from mindspore import nn, ops

from ..families import CELLS, Elman, Recurrent

MOST_STEPS = 100  # of all layers together that are unrolled: longer graphs take minutes to compile


def reason_against(layers: int, steps: int) -> str:
    """Return why so many layers of so many steps are not unrolled; empty where they are."""
    if layers * steps <= MOST_STEPS:
        return ""
    text = (
        "%d layers of %d steps: MindSpore unrolls such layers, and its graph of more than %d takes minutes to compile"
    )
    return text % (layers, steps, MOST_STEPS)


class Gru(nn.Cell):
    """A GRU from a zero state, reset after the product; (steps, batch, inputs) to (steps, batch, hidden)."""

    def __init__(self, spec: Recurrent, weights: Tuple[Any, ...]) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.input_weight, self.hidden_weight, self.bias, self.hidden_bias = weights

    def construct(self, values: Any) -> Any:
        """Return the state after each step."""
        shares = ops.dense(values, self.input_weight, self.bias)
        state = ops.zeros((values.shape[1], self.hidden), mindspore.float32)
        states = []
        for share in ops.unbind(shares):  # a slice's gradient would be an array of all steps
            ours = ops.split(share, self.hidden, 1)
            theirs = ops.split(ops.dense(state, self.hidden_weight, self.hidden_bias), self.hidden, 1)
            reset = ops.sigmoid(ours[0] + theirs[0])
            update = ops.sigmoid(ours[1] + theirs[1])
            new = ops.tanh(ours[2] + reset * theirs[2])
            state = new + update * (state - new)
            states.append(state)
        return ops.stack(states)


class Simple(nn.Cell):
    """The recurrence h = (1 - alpha) h + alpha phi(W x + U h + b) from a zero state."""

    def __init__(self, spec: Any, weights: Tuple[Any, ...], activation: str, alpha: float) -> None:
        super().__init__()
        self.hidden, self.alpha = spec.hidden, alpha
        self.activation = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh}[activation]()
        self.input_weight, self.hidden_weight, self.bias = weights

    def construct(self, values: Any) -> Any:
        """Return the state after each step."""
        shares = ops.dense(values, self.input_weight, self.bias)
        state = ops.zeros((values.shape[1], self.hidden), mindspore.float32)
        states = []
        for share in ops.unbind(shares):
            new = self.activation(share + ops.dense(state, self.hidden_weight))
            state = new if self.alpha == 1.0 else state + self.alpha * (new - state)
            states.append(state)
        return ops.stack(states)


class Lstm(nn.Cell):
    """MindSpore's own layers; it has two biases a gate, of which the second stays zero: it is not trained."""

    def __init__(self, spec: Recurrent, naming: Any) -> None:
        super().__init__()
        self.layers = nn.LSTM(spec.width, spec.hidden, spec.layers)
        theirs = (self.layers.w_ih_list, self.layers.w_hh_list, self.layers.b_ih_list)
        for layer, name in enumerate(spec.layer_names()):
            for part, held in zip(spec.parts, theirs):
                naming.parameters["%s.%s" % (name, part)] = held[layer]
            second = self.layers.b_hh_list[layer]
            second.set_data(mindspore.Tensor(np.zeros(second.shape, np.float32)))
            second.requires_grad = False

    def construct(self, values: Any) -> Any:
        """Return the outputs of every step."""
        return self.layers(values)[0]


def _parameters(naming: Any, name: str, shapes: Dict[str, Tuple[int, ...]]) -> Tuple[Any, ...]:
    return tuple(naming.free("%s.%s" % (name, part), *shape) for part, shape in shapes.items())


def _stack(spec: Recurrent, naming: Any) -> Any:
    if spec.cell == "lstm":
        return Lstm(spec, naming)
    made, inputs, rows = [], spec.width, CELLS[spec.cell].gates * spec.hidden
    for name in spec.layer_names():
        shapes: Dict[str, Tuple[int, ...]] = dict.fromkeys(spec.parts, (rows,))
        shapes.update(input_weight=(rows, inputs), hidden_weight=(rows, spec.hidden))
        weights = _parameters(naming, name, shapes)
        made.append(Gru(spec, weights) if spec.cell == "gru" else Simple(spec, weights, "tanh", 1.0))
        inputs = spec.hidden
    return nn.SequentialCell(*made)


class LanguageModel(nn.Cell):
    """Stacked recurrent layers from a zero state, dense; to logits (steps * batch, classes).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, classes).
    """

    def __init__(self, spec: Recurrent, naming: Any) -> None:
        super().__init__()
        self.hidden, self.looks_up = spec.hidden, spec.embedding > 0
        if spec.embedding:
            self.embedding = naming.embedding("embedding", spec.vocabulary, spec.embedding)
        self.layers = _stack(spec, naming)
        self.dense = naming.dense("fc", spec.hidden, spec.vocabulary)

    def construct(self, symbols: Any) -> Any:
        """Return the logits of every step, time-major."""
        values = self.embedding(symbols) if self.looks_up else symbols
        return self.dense(self.layers(values).reshape((-1, self.hidden)))


class ElmanNetwork(nn.Cell):
    """A simple recurrent layer, dense; (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, spec: Elman, naming: Any) -> None:
        super().__init__()
        self.hidden = spec.hidden
        sizes = {"input_weight": (spec.hidden, spec.inputs), "hidden_weight": (spec.hidden, spec.hidden)}
        weights = _parameters(naming, "rnn", dict(sizes, bias=(spec.hidden,)))
        self.layer = Simple(spec, weights, spec.activation, spec.alpha)
        self.dense = naming.dense("out", spec.hidden, spec.outputs)

    def construct(self, inputs: Any) -> Any:
        """Return the outputs of every step, time-major."""
        return self.dense(self.layer(inputs).reshape((-1, self.hidden)))
