"""Networks as MindSpore cells that end in logits.

MindSpore's layouts are the canonical ones (dense weights (outputs, inputs), convolutions OIHW, images NCHW, LSTM gates
input, forget, cell, output). Recurrent networks' tokens and labels are time-major. ``construct`` is compiled from its
source: use only the Python that MindSpore's compiler supports.
"""

import math
from typing import Any, Dict, List, Mapping, Tuple

import mindspore
import numpy as np
from mindspore import nn, ops

from ..families import CELLS, Attention, Bottleneck, Elman, Recurrent
from ..libraries.walks import Layers
from ..networks import Network


class AttentionCell(nn.Cell):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, spec: Attention, name: str, layers: Any) -> None:
        super().__init__()
        self.shape = (-1, spec.steps, 3, spec.heads, spec.width // spec.heads)
        self.scale = 1.0 / math.sqrt(spec.width // spec.heads)
        hidden = np.triu(np.full((spec.steps, spec.steps), -1e9, np.float32), 1)
        self.hides_later = mindspore.Tensor(hidden)
        for part, layer in layers.attention(spec, name).items():
            setattr(self, part, layer)

    def construct(self, values: Any) -> Any:
        parts = self.qkv(self.norm1(values)).reshape(self.shape).transpose((2, 0, 3, 1, 4))
        query, key, value = ops.unbind(parts)
        scores = ops.matmul(query, key.swapaxes(2, 3)) * self.scale + self.hides_later
        mixed = ops.matmul(ops.softmax(scores, -1), value).transpose((0, 2, 1, 3))
        values = values + self.project(mixed.reshape(values.shape))
        return values + self.lower(ops.gelu(self.upper(self.norm2(values)), "tanh"))


class Transformer(nn.Cell):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention, layers: Any) -> None:
        super().__init__()
        self.width = spec.width
        self.embedding = layers.embedding("embedding", spec.vocabulary, spec.width)
        self.position = layers.free("position.weight", spec.steps, spec.width)
        names = ["layer%d." % number for number in range(1, spec.layers + 1)]
        self.body = nn.SequentialCell(*[AttentionCell(spec, name, layers) for name in names])
        self.norm = layers.layer_norm("norm", spec)
        self.dense = layers.dense("fc", spec.width, spec.vocabulary)

    def construct(self, tokens: Any) -> Any:
        values = self.body(self.embedding(tokens) + self.position)
        return self.dense(self.norm(values).reshape((-1, self.width)))


# Recurrent layers: MindSpore's own LSTM; the others as loops over the steps, which its compiler unrolls.
#
# MindSpore's GRU and RNN layers also loop, and multiply the inputs in each step.

ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh}
MOST_STEPS = 100  # of all layers together that are unrolled: longer graphs take minutes to compile


def reason_against(layers: int, steps: int) -> str:
    """Return why so many layers of so many steps are not unrolled; empty where they are."""
    if layers * steps <= MOST_STEPS:
        return ""
    text = "%d layers of %d steps: MindSpore unrolls them, and its graph of more than %d takes minutes to compile"
    return text % (layers, steps, MOST_STEPS)


class Gru(nn.Cell):
    """A GRU from a zero state, reset after the product; (steps, batch, inputs) to (steps, batch, hidden)."""

    def __init__(self, spec: Recurrent, weights: Tuple[Any, ...]) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.input_weight, self.hidden_weight, self.bias, self.hidden_bias = weights

    def construct(self, values: Any) -> Any:
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
        self.activation = ACTIVATIONS[activation]()
        self.input_weight, self.hidden_weight, self.bias = weights

    def construct(self, values: Any) -> Any:
        shares = ops.dense(values, self.input_weight, self.bias)
        state = ops.zeros((values.shape[1], self.hidden), mindspore.float32)
        states = []
        for share in ops.unbind(shares):
            new = self.activation(share + ops.dense(state, self.hidden_weight))
            state = new if self.alpha == 1.0 else state + self.alpha * (new - state)
            states.append(state)
        return ops.stack(states)


class Lstm(nn.Cell):
    """MindSpore's own layers, whose second bias of each gate stays zero: it is not trained."""

    def __init__(self, spec: Recurrent, layers: Any) -> None:
        super().__init__()
        self.layers = nn.LSTM(spec.width, spec.hidden, spec.layers)
        held = self.layers.w_ih_list, self.layers.w_hh_list, self.layers.b_ih_list, self.layers.b_hh_list
        for second_bias in layers.note_recurrent(spec, lambda layer, place: held[place][layer]):
            second_bias.set_data(mindspore.Tensor(np.zeros(second_bias.shape, np.float32)))
            second_bias.requires_grad = False

    def construct(self, values: Any) -> Any:
        return self.layers(values)[0]


def _stack(spec: Recurrent, layers: Any) -> Any:
    if spec.cell == "lstm":
        return Lstm(spec, layers)
    made, inputs, rows = [], spec.width, CELLS[spec.cell] * spec.hidden
    for name in spec.layer_names():
        shapes = [(rows, inputs), (rows, spec.hidden)] + [(rows,)] * len(spec.biases)
        weights = tuple(layers.free("%s.%s" % (name, part), *shape) for part, shape in zip(spec.parts, shapes))
        made.append(Gru(spec, weights) if spec.cell == "gru" else Simple(spec, weights, "tanh", 1.0))
        inputs = spec.hidden
    return nn.SequentialCell(*made)


class LanguageModel(nn.Cell):
    """Stacked recurrent layers from a zero state, dense; to logits (steps * batch, classes).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, classes).
    """

    def __init__(self, spec: Recurrent, layers: Any) -> None:
        super().__init__()
        self.hidden, self.looks_up = spec.hidden, spec.embedding > 0
        if spec.embedding:
            self.embedding = layers.embedding("embedding", spec.vocabulary, spec.embedding)
        self.layers = _stack(spec, layers)
        self.dense = layers.dense("fc", spec.hidden, spec.vocabulary)

    def construct(self, symbols: Any) -> Any:
        values = self.embedding(symbols) if self.looks_up else symbols
        return self.dense(self.layers(values).reshape((-1, self.hidden)))


class ElmanNetwork(nn.Cell):
    """A simple recurrent layer, dense; (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, spec: Elman, layers: Any) -> None:
        super().__init__()
        self.hidden = spec.hidden
        weights = (
            layers.free("rnn.input_weight", spec.hidden, spec.inputs),
            layers.free("rnn.hidden_weight", spec.hidden, spec.hidden),
            layers.free("rnn.bias", spec.hidden),
        )
        self.layer = Simple(spec, weights, spec.activation, spec.alpha)
        self.dense = layers.dense("out", spec.hidden, spec.outputs)

    def construct(self, inputs: Any) -> Any:
        return self.dense(self.layer(inputs).reshape((-1, self.hidden)))


class Average(nn.Cell):
    """The mean of each channel, (batch, channels)."""

    def construct(self, images: Any) -> Any:
        return ops.mean(images, (2, 3))


class MindSporeLayers(Layers):
    """MindSpore's layers."""

    title = "MindSpore"
    networks = {"recurrent": LanguageModel, "elman": ElmanNetwork, "attention": Transformer}
    activations = ACTIVATIONS
    flatten = nn.Flatten
    average = (Average,)

    def free(self, name: str, *shape: int) -> Any:
        """Return a parameter that belongs to no layer of MindSpore's."""
        made = mindspore.Parameter(mindspore.Tensor(np.zeros(shape, np.float32)), name=name)
        self.parameters[name] = made
        return made

    def dense(self, name: str, inputs: int, outputs: int) -> Any:
        return self.noted(name, nn.Dense(inputs, outputs))

    def embedding(self, name: str, symbols: int, width: int) -> Any:
        return self.noted(name, nn.Embedding(symbols, width), weight="embedding_table")

    def layer_norm(self, name: str, spec: Attention) -> Any:
        return self.noted(name, nn.LayerNorm((spec.width,), epsilon=spec.epsilon), gamma="gamma", beta="beta")

    def convolution(self, spec: Any, bias: bool) -> Any:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride
        made = nn.Conv2d(*sizes, pad_mode="pad", padding=spec.padding, has_bias=bias)
        self.note(spec.name, weight=made.weight, bias=made.bias if bias else None)
        return made

    def norm(self, name: str, channels: int, epsilon: float) -> Any:
        return self.noted(name, nn.BatchNorm2d(channels, eps=epsilon), gamma="gamma", beta="beta")

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        if padding:
            return nn.MaxPool2d(kernel, stride, pad_mode="pad", padding=padding)
        return nn.MaxPool2d(kernel, stride)  # "valid"

    def row(self, layers: List[Any]) -> Any:
        return nn.SequentialCell(*layers)

    def block(self, spec: Bottleneck, epsilon: float) -> Any:
        return BottleneckCell(spec, epsilon, self)


class BottleneckCell(nn.Cell):
    """One residual block: 1x1 with the stride, 3x3, 1x1, each normalised; ReLU after the addition."""

    def __init__(self, spec: Bottleneck, epsilon: float, layers: MindSporeLayers) -> None:
        super().__init__()
        self.body = nn.SequentialCell(*layers.body(spec, epsilon))
        self.projects = spec.shortcut is not None
        if spec.shortcut is not None:
            self.project = nn.SequentialCell(*layers.normalised(spec.shortcut, epsilon))

    def construct(self, inputs: Any) -> Any:
        shortcut = self.project(inputs) if self.projects else inputs
        return ops.relu(self.body(inputs) + shortcut)


def build(network: Network, weights: Mapping[str, np.ndarray]) -> Tuple[Any, Dict[str, Any]]:
    """Build the network in training mode with copies of these weights; return it, and its parameters by name."""
    layers = MindSporeLayers()
    cell = layers.network(network.family)
    cell.set_train()
    for name, parameter in layers.parameters.items():
        parameter.name = name  # layers made alike name theirs alike, which the graph does not take
    load(layers.parameters, weights)
    return cell, layers.parameters


def load(parameters: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in parameters.items():
        parameter.set_data(mindspore.Tensor(weights[name].copy()))
