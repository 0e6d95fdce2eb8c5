"""Networks as Gluon blocks that end in the mean loss.

Every block is hybridised with its loss inside, so that forward, loss and backward are one static graph. MXNet's own
layouts are the canonical ones (dense (outputs, inputs), convolution OIHW, LSTM gates input, forget, cell, output), so
parameters pass unchanged; only recurrent data are turned to time-major, which the fused LSTM wants.
"""

from functools import partial
from typing import Any, Dict, List, Mapping, Tuple

import mxnet as mx
import numpy as np
from mxnet.gluon import nn, rnn

from ..families import Attention, Bottleneck, Elman, Family, Recurrent
from ..libraries.walks import HIDDEN, Layers, gelu_by_tanh

CELLS = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn": partial(rnn.RNN, activation="tanh")}


class GluonLayers(Layers):
    """Gluon's layers; ``fused`` joins a batch normalisation and the ReLU behind it in one operator."""

    title = "MXNet"
    activations = {name: partial(nn.Activation, name) for name in ("relu", "sigmoid", "tanh")}
    flatten = nn.Flatten
    average = (nn.GlobalAvgPool2D, nn.Flatten)

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def dense(self, name: str, inputs: int, outputs: int) -> Any:
        return self.noted(name, nn.Dense(outputs, flatten=False, in_units=inputs))

    def convolution(self, spec: Any, bias: bool) -> Any:
        sizes = spec.outputs, spec.kernel, spec.stride, spec.padding
        return self.noted(spec.name, nn.Conv2D(*sizes, use_bias=bias, in_channels=spec.inputs))

    def norm(self, name: str, channels: int, epsilon: float, relu: bool = False) -> Any:
        kind = nn.BatchNormReLU if relu else nn.BatchNorm
        return self.noted(name, kind(epsilon=epsilon, in_channels=channels), gamma="gamma", beta="beta")

    def with_relu(self, spec: Any, epsilon: float) -> List[Any]:
        if self.fused:
            return [self.convolution(spec, False), self.norm(spec.norm, spec.outputs, epsilon, relu=True)]
        return super().with_relu(spec, epsilon)

    def pool(self, kernel: int, stride: int, padding: int) -> Any:
        return nn.MaxPool2D(kernel, stride, padding)

    def embedding(self, name: str, symbols: int, width: int) -> Any:
        return self.noted(name, nn.Embedding(symbols, width), weight="weight")

    def layer_norm(self, name: str, spec: Attention) -> Any:
        return self.noted(name, nn.LayerNorm(epsilon=spec.epsilon, in_channels=spec.width), gamma="gamma", beta="beta")

    def row(self, layers: List[Any]) -> Any:
        return in_a_row(layers)

    def block(self, spec: Bottleneck, epsilon: float) -> Any:
        return BottleneckBlock(spec, epsilon, self)


def in_a_row(blocks: List[Any]) -> Any:
    """Return blocks one after another as one."""
    body = nn.HybridSequential()
    body.add(*blocks)
    return body


class LossBlock(mx.gluon.HybridBlock):
    """A body that ends in rows of logits or outputs, and their loss, a mean over all of them."""

    def __init__(self, body: Any, loss: str) -> None:
        super().__init__()
        self.body = body
        self.kind = loss

    def hybrid_forward(self, F: Any, inputs: Any, labels: Any) -> Any:  # noqa: N803 - Gluon's own name
        if self.kind == "squares":
            return F.mean(F.square(self.body(inputs) - labels))
        scores = F.log_softmax(self.body(inputs), axis=-1)
        return F.mean(F.negative(F.pick(scores, labels, axis=-1)))


class BottleneckBlock(mx.gluon.HybridBlock):
    """One residual block: 1x1 with the stride, 3x3, 1x1, each normalised; ReLU after the addition."""

    def __init__(self, spec: Bottleneck, epsilon: float, layers: GluonLayers) -> None:
        super().__init__()
        self.body = in_a_row(layers.body(spec, epsilon))
        self.project = None
        if spec.shortcut is not None:
            self.project = in_a_row(layers.normalised(spec.shortcut, epsilon))

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:  # noqa: N803
        shortcut = inputs if self.project is None else self.project(inputs)
        return F.Activation(self.body(inputs) + shortcut, act_type="relu")


class RecurrentBlock(mx.gluon.HybridBlock):
    """Stacked recurrent layers from a zero state, dense; time-major, to logits (steps * batch, classes).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, classes).
    """

    def __init__(self, spec: Recurrent, layers: GluonLayers) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.embedding: Any = None
        if spec.embedding:
            self.embedding = layers.embedding("embedding", spec.vocabulary, spec.embedding)
        self.layers = CELLS[spec.cell](spec.hidden, spec.layers, layout="TNC", input_size=spec.width)
        named = "i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias"
        for second_bias in layers.note_recurrent(
            spec, lambda layer, place: getattr(self.layers, "l%d_%s" % (layer, named[place]))
        ):
            second_bias.grad_req = "null"
        self.dense = layers.dense("fc", spec.hidden, spec.vocabulary)

    def hybrid_forward(self, F: Any, symbols: Any) -> Any:  # noqa: N803
        outputs = self.layers(symbols if self.embedding is None else self.embedding(symbols))
        return self.dense(F.reshape(outputs, shape=(-1, self.hidden)))


class ElmanBlock(mx.gluon.HybridBlock):
    """A simple recurrent layer from a zero state, dense; (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, spec: Elman, layers: GluonLayers) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.rnn = rnn.RNN(spec.hidden, activation=spec.activation, layout="TNC", input_size=spec.inputs)
        held = self.rnn.l0_i2h_weight, self.rnn.l0_h2h_weight, self.rnn.l0_i2h_bias
        layers.note("rnn", **dict(zip(("input_weight", "hidden_weight", "bias"), held)))
        self.rnn.l0_h2h_bias.grad_req = "null"  # the second bias, as the LSTM's
        self.dense = layers.dense("out", spec.hidden, spec.outputs)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:  # noqa: N803
        return self.dense(F.reshape(self.rnn(inputs), shape=(-1, self.hidden)))


class TransformerBlock(mx.gluon.HybridBlock):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary); Gluon has no layer for attention."""

    def __init__(self, spec: Attention, layers: GluonLayers) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = layers.embedding("embedding", spec.vocabulary, spec.width)
        self.position = self.params.get("position", shape=(spec.steps, spec.width))
        layers.note("position", weight=self.position)
        mask = np.triu(np.full((1, spec.steps, spec.steps), HIDDEN, np.float32), 1)
        self.mask = self.params.get_constant("mask", mask)
        self.parts: Dict[str, Any] = {}
        for number in range(1, spec.layers + 1):
            name = "layer%d." % number
            self.parts.update((name + part, layer) for part, layer in layers.attention(spec, name).items())
        self.parts["norm"] = layers.layer_norm("norm", spec)
        self.parts["fc"] = layers.dense("fc", spec.width, spec.vocabulary)
        for block in self.parts.values():
            self.register_child(block)

    def hybrid_forward(self, F: Any, tokens: Any, position: Any, mask: Any) -> Any:  # noqa: N803
        values = F.broadcast_add(self.embedding(tokens), F.expand_dims(position, 0))
        for number in range(1, self.spec.layers + 1):
            name = "layer%d." % number
            raised = self.parts[name + "qkv"](self.parts[name + "norm1"](values))
            values = values + self.parts[name + "project"](self._attended(F, raised, mask))
            raised = self.parts[name + "upper"](self.parts[name + "norm2"](values))
            values = values + self.parts[name + "lower"](gelu_by_tanh(raised, F.tanh))
        return F.reshape(self.parts["fc"](self.parts["norm"](values)), shape=(-1, self.spec.vocabulary))

    def _attended(self, F: Any, values: Any, mask: Any) -> Any:  # noqa: N803
        """Return what each step takes of the values, (batch, steps, width), from ``qkv``."""
        spec = self.spec
        parts = F.transpose(F.reshape(values, shape=(0, 0, 3, spec.heads, -1)), axes=(2, 0, 3, 1, 4))
        parts = F.reshape(parts, shape=(3, -1, spec.steps, spec.width // spec.heads))
        query, key, value = F.split(parts, num_outputs=3, axis=0, squeeze_axis=True)
        scores = F.batch_dot(query, key, transpose_b=True) * (spec.width // spec.heads) ** -0.5
        mixed = F.batch_dot(F.softmax(F.broadcast_add(scores, mask), axis=-1), value)
        mixed = F.reshape(mixed, shape=(-1, spec.heads, spec.steps, spec.width // spec.heads))
        return F.reshape(F.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -1))


GluonLayers.networks = {"recurrent": RecurrentBlock, "elman": ElmanBlock, "attention": TransformerBlock}


def build(
    spec: Family, weights: Dict[str, np.ndarray], context: Any, fused_norm: bool = True
) -> Tuple[Any, Dict[str, Any]]:
    """Build the network with copies of these weights on this context.

    Return the block, (inputs, labels) to the mean loss of shape (1,), and its parameters by canonical name.
    """
    layers = GluonLayers(fused_norm)
    block = LossBlock(layers.network(spec), spec.loss)
    # Zero: the frozen LSTM biases; BatchNorm sets its own running statistics.
    block.initialize(mx.init.Zero(), ctx=context)
    load(layers.parameters, weights)
    return block, layers.parameters


def load(trainable: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters' own arrays."""
    for name, parameter in trainable.items():
        parameter.set_data(weights[name])
