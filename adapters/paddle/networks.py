"""Networks as PaddlePaddle layers that end in logits.

PaddlePaddle's layouts are the canonical ones (convolution OIHW, images NCHW, LSTM gates input, forget, cell, output)
but for dense weights, which it holds as (inputs, outputs). Recurrent networks' tokens and labels are time-major.
"""

from functools import partial
from typing import Any, Dict, List, Mapping, Set, Tuple

import numpy as np
from paddle import nn
from paddle.nn import functional

from ..families import Attention, Bottleneck, Elman, Recurrent
from ..libraries.walks import Layers
from ..networks import Network


class AttentionLayer(nn.Layer):
    """Causal self-attention and a feedforward network, each normalised before and added."""

    def __init__(self, spec: Attention, name: str, layers: Any) -> None:
        super().__init__()
        self.heads = spec.heads
        for part, layer in layers.attention(spec, name).items():
            setattr(self, part, layer)

    def forward(self, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.qkv(self.norm1(values)).reshape([batch, steps, 3, self.heads, width // self.heads])
        query, key, value = parts.unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        values = values + self.project(mixed.reshape([batch, steps, width]))
        return values + self.lower(functional.gelu(self.upper(self.norm2(values)), approximate=True))


class Transformer(nn.Layer):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention, layers: Any) -> None:
        super().__init__()
        self.width = spec.width
        self.embedding = layers.embedding("embedding", spec.vocabulary, spec.width)
        self.position = layers.embedding("position", spec.steps, spec.width)
        names = ["layer%d." % number for number in range(1, spec.layers + 1)]
        self.body = nn.Sequential(*[AttentionLayer(spec, name, layers) for name in names])
        self.norm = layers.layer_norm("norm", spec)
        self.dense = layers.dense("fc", spec.width, spec.vocabulary)

    def forward(self, tokens: Any) -> Any:
        values = self.body(self.embedding(tokens) + self.position.weight)
        return self.dense(self.norm(values).reshape([-1, self.width]))


class BottleneckLayer(nn.Layer):
    """One residual block: 1x1 with the stride, 3x3, 1x1, each normalised; ReLU after the addition."""

    def __init__(self, spec: Bottleneck, epsilon: float, layers: Any) -> None:
        super().__init__()
        self.body = nn.Sequential(*layers.body(spec, epsilon))
        self.project = None
        if spec.shortcut is not None:
            self.project = nn.Sequential(*layers.normalised(spec.shortcut, epsilon))
        self.relu = nn.ReLU()

    def forward(self, inputs: Any) -> Any:
        shortcut = inputs if self.project is None else self.project(inputs)
        return self.relu(self.body(inputs) + shortcut)


CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.SimpleRNN}


class LanguageModel(nn.Layer):
    """Stacked recurrent layers from a zero state, dense; to logits (steps * batch, classes).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, classes).
    """

    def __init__(self, spec: Recurrent, layers: Any) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.embedding = None
        if spec.embedding:
            self.embedding = layers.embedding("embedding", spec.vocabulary, spec.embedding)
        self.layers = CELLS[spec.cell](spec.width, spec.hidden, spec.layers, time_major=True)
        named = "weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d"
        # The second biases stay zero by being left out of the update: the kernel cannot do without their gradients.
        for second_bias in layers.note_recurrent(spec, lambda layer, place: getattr(self.layers, named[place] % layer)):
            second_bias.set_value(np.zeros(second_bias.shape, np.float32))
        self.dense = layers.dense("fc", spec.hidden, spec.vocabulary)

    def forward(self, symbols: Any) -> Any:
        outputs, _ = self.layers(symbols if self.embedding is None else self.embedding(symbols))
        return self.dense(outputs.reshape([-1, self.hidden]))


class ElmanLayer(nn.Layer):
    """A simple recurrent layer from a zero state, dense; (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, spec: Elman, layers: Any) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.rnn = rnn = nn.SimpleRNN(spec.inputs, spec.hidden, time_major=True, activation=spec.activation)
        layers.note("rnn", input_weight=rnn.weight_ih_l0, hidden_weight=rnn.weight_hh_l0, bias=rnn.bias_ih_l0)
        rnn.bias_hh_l0.set_value(np.zeros(rnn.bias_hh_l0.shape, np.float32))  # stays zero, as above
        self.dense = layers.dense("out", spec.hidden, spec.outputs)

    def forward(self, inputs: Any) -> Any:
        states, _ = self.rnn(inputs)
        return self.dense(states.reshape([-1, self.hidden]))


class PaddleLayers(Layers):
    """PaddlePaddle's layers; ``transposed`` are the parameters held as (inputs, outputs)."""

    title = "PaddlePaddle"
    activations = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU, "tanh": nn.Tanh}
    flatten = nn.Flatten
    average = (partial(nn.AdaptiveAvgPool2D, 1), nn.Flatten)
    networks = {"recurrent": LanguageModel, "elman": ElmanLayer, "attention": Transformer}

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
        return self.noted(spec.name, nn.Conv2D(*sizes, bias_attr=None if bias else False))

    def norm(self, name: str, channels: int, epsilon: float) -> Any:
        return self.noted(name, nn.BatchNorm2D(channels, epsilon=epsilon), gamma="weight", beta="bias")

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        return nn.MaxPool2D(kernel, stride, padding)

    def embedding(self, name: str, symbols: int, width: int) -> Any:
        return self.noted(name, nn.Embedding(symbols, width), weight="weight")

    def layer_norm(self, name: str, spec: Attention) -> Any:
        return self.noted(name, nn.LayerNorm(spec.width, spec.epsilon), gamma="weight", beta="bias")

    def row(self, layers: List[Any]) -> Any:
        return nn.Sequential(*layers)

    def block(self, spec: Bottleneck, epsilon: float) -> Any:
        return BottleneckLayer(spec, epsilon, self)


def build(network: Network, weights: Dict[str, np.ndarray]) -> Tuple[Any, PaddleLayers]:
    """Build the network in training mode with copies of these weights; return it, and its layers."""
    layers = PaddleLayers()
    layer = layers.network(network.family)
    load(layers, weights)
    layer.train()
    return layer, layers


def load(layers: PaddleLayers, weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in layers.parameters.items():
        value = weights[name]
        parameter.set_value(np.ascontiguousarray(value.T) if name in layers.transposed else value)
