"""Builds the specifications of ``adapters/networks.py`` as PaddlePaddle layers that end in logits.

PaddlePaddle's layouts are the canonical ones (convolution OIHW, images NCHW, LSTM gates input, forget, cell, output)
but for dense weights, which it holds as (inputs, outputs). Recurrent networks' tokens and labels are time-major.
"""

from functools import partial
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Set

import numpy as np
from paddle import nn
from paddle.nn import functional

from ..families import Attention, Bottleneck, Elman, Recurrent
from ..libraries.walks import Layers
from ..networks import Network


class AttentionLayer(nn.Layer):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, spec: Attention, name: str, naming: Any) -> None:
        super().__init__()
        self.heads = spec.heads
        self.norm1 = layer_norm(spec, name + "norm1", naming)
        self.qkv = naming.dense(name + "qkv", spec.width, 3 * spec.width)
        self.project = naming.dense(name + "project", spec.width, spec.width)
        self.norm2 = layer_norm(spec, name + "norm2", naming)
        self.upper = naming.dense(name + "upper", spec.width, spec.feedforward)
        self.lower = naming.dense(name + "lower", spec.feedforward, spec.width)

    def forward(self, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.qkv(self.norm1(values)).reshape([batch, steps, 3, self.heads, width // self.heads])
        query, key, value = parts.unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.project(mixed.reshape([batch, steps, width]))
        return values + self.lower(functional.gelu(self.upper(self.norm2(values)), approximate=True))


class Transformer(nn.Layer):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention, naming: Any) -> None:
        super().__init__()
        self.width = spec.width
        self.embedding = nn.Embedding(spec.vocabulary, spec.width)
        self.position = nn.Embedding(spec.steps, spec.width)
        naming.parameters["embedding.weight"] = self.embedding.weight
        naming.parameters["position.weight"] = self.position.weight
        names = ["layer%d." % number for number in range(1, spec.layers + 1)]
        self.body = nn.Sequential(*[AttentionLayer(spec, name, naming) for name in names])
        self.norm = layer_norm(spec, "norm", naming)
        self.dense = naming.dense("fc", spec.width, spec.vocabulary)

    def forward(self, tokens: Any) -> Any:
        values = self.body(self.embedding(tokens) + self.position.weight)
        return self.dense(self.norm(values).reshape([-1, self.width]))


def layer_norm(spec: Attention, name: str, naming: Any) -> Any:
    """Return a layer normalisation, and name its parameters."""
    layer = nn.LayerNorm(spec.width, spec.epsilon)
    naming.note(name, gamma=layer.weight, beta=layer.bias)
    return layer


class Built(NamedTuple):
    """A layer from inputs to logits, and its trainable parameters by canonical name."""

    layer: Any
    parameters: Dict[str, Any]
    transposed: FrozenSet[str]  # names of those held as (inputs, outputs)


class Naming(Layers):
    """PaddlePaddle's layers, and where each canonical parameter lies."""

    title = "PaddlePaddle"
    activations = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh}
    flatten = nn.Flatten
    average = (partial(nn.AdaptiveAvgPool2D, 1), nn.Flatten)

    def __init__(self) -> None:
        super().__init__()
        self.transposed: Set[str] = set()

    def dense(self, name: str, inputs: int, outputs: int) -> Any:
        made = nn.Linear(inputs, outputs)
        self.note(name, weight=made.weight, bias=made.bias)
        self.transposed.add(name + ".weight")
        return made

    def convolution(self, spec: Any, bias: bool) -> Any:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding
        made = nn.Conv2D(*sizes, bias_attr=None if bias else False)
        self.note(spec.name, weight=made.weight, **({"bias": made.bias} if bias else {}))
        return made

    def norm(self, name: str, channels: int, epsilon: float) -> Any:
        made = nn.BatchNorm2D(channels, epsilon=epsilon)
        self.note(name, gamma=made.weight, beta=made.bias)
        return made

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        return nn.MaxPool2D(kernel, stride, padding)

    def networks(self) -> Dict[str, Any]:
        return {"recurrent": LanguageModel, "elman": ElmanLayer, "attention": Transformer}

    def row(self, layers: List[Any]) -> Any:
        return nn.Sequential(*layers)

    def block(self, spec: Bottleneck, epsilon: float) -> Any:
        return BottleneckLayer(spec, epsilon, self)


class BottleneckLayer(nn.Layer):
    """One residual block: 1x1 with the stride, 3x3, 1x1, each normalised; ReLU after the addition."""

    def __init__(self, spec: Bottleneck, epsilon: float, naming: Naming) -> None:
        super().__init__()
        self.body = nn.Sequential(*naming.body(spec, epsilon))
        self.project = None
        if spec.shortcut is not None:
            self.project = nn.Sequential(*naming.normalised(spec.shortcut, epsilon))
        self.relu = nn.ReLU()

    def forward(self, inputs: Any) -> Any:
        shortcut = inputs if self.project is None else self.project(inputs)
        return self.relu(self.body(inputs) + shortcut)


CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.SimpleRNN}


class LanguageModel(nn.Layer):
    """Stacked recurrent layers from a zero state, dense; to logits (steps * batch, classes).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, classes).
    """

    def __init__(self, spec: Recurrent, naming: Naming) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.embedding = nn.Embedding(spec.vocabulary, spec.embedding) if spec.embedding else None
        self.layers = CELLS[spec.cell](spec.width, spec.hidden, spec.layers, time_major=True)
        if self.embedding is not None:
            naming.parameters["embedding.weight"] = self.embedding.weight
        theirs = ("weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d")
        for layer, name in enumerate(spec.layer_names()):
            for part, their in zip(spec.parts, theirs):
                naming.parameters["%s.%s" % (name, part)] = getattr(self.layers, their % layer)
            if len(spec.parts) < len(theirs):
                # PaddlePaddle has two biases per gate; training both would double the bias's learning rate. The second
                # stays zero by being left out of the update: its kernel cannot do without that gradient.
                second = getattr(self.layers, theirs[-1] % layer)
                second.set_value(np.zeros(second.shape, np.float32))
        self.dense = naming.dense("fc", spec.hidden, spec.vocabulary)

    def forward(self, symbols: Any) -> Any:
        outputs, _ = self.layers(symbols if self.embedding is None else self.embedding(symbols))
        return self.dense(outputs.reshape([-1, self.hidden]))


class ElmanLayer(nn.Layer):
    """A simple recurrent layer from a zero state, dense; (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, spec: Elman, naming: Naming) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.rnn = nn.SimpleRNN(spec.inputs, spec.hidden, time_major=True, activation=spec.activation)
        naming.parameters["rnn.input_weight"] = self.rnn.weight_ih_l0
        naming.parameters["rnn.hidden_weight"] = self.rnn.weight_hh_l0
        naming.parameters["rnn.bias"] = self.rnn.bias_ih_l0
        # The second bias stays zero, as the LSTM's.
        self.rnn.bias_hh_l0.set_value(np.zeros(self.rnn.bias_hh_l0.shape, np.float32))
        self.dense = naming.dense("out", spec.hidden, spec.outputs)

    def forward(self, inputs: Any) -> Any:
        states, _ = self.rnn(inputs)
        return self.dense(states.reshape([-1, self.hidden]))


def build(network: Network, weights: Dict[str, np.ndarray]) -> Built:
    """Build the network in training mode with copies of these weights (canonical layouts)."""
    family, naming = network.family, Naming()
    layer = naming.network(family)
    built = Built(layer, naming.parameters, frozenset(naming.transposed))
    load(built, weights)
    layer.train()
    return built


def load(built: Built, weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in built.parameters.items():
        value = weights[name]
        parameter.set_value(np.ascontiguousarray(value.T) if name in built.transposed else value)
