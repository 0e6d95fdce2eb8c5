"""Builds the networks' specifications as Gluon blocks that end in the mean loss.

Every block is hybridised with its loss inside, so that forward, loss and backward are one static graph. MXNet's own
layouts are the canonical ones (dense (outputs, inputs), convolution OIHW, LSTM gates input, forget, cell, output), so
parameters pass unchanged; only recurrent data are turned to time-major, which the fused LSTM wants.
"""

from functools import partial
from typing import Any, Dict, Iterable, Mapping, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.gluon import nn, rnn

from ..families import (
    Attention,
    Bottleneck,
    Chain,
    Convolution,
    Dense,
    Elman,
    Family,
    Flatten,
    Layer,
    MaxPool,
    Recurrent,
    Residual,
)
from ..families.residual import NormalisedConvolution

HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero
_GELU, _CUBE = float(np.sqrt(2.0 / np.pi)), 0.044715


class TransformerBlock(mx.gluon.HybridBlock):
    """Tokens (batch, steps) to logits (batch * steps, vocabulary)."""

    def __init__(self, spec: Attention) -> None:
        super().__init__()
        self.spec = spec
        self.embedding = nn.Embedding(spec.vocabulary, spec.width)
        self.position = self.params.get("position", shape=(spec.steps, spec.width))
        mask = np.triu(np.full((1, spec.steps, spec.steps), HIDDEN, np.float32), 1)
        self.mask = self.params.get_constant("mask", mask)
        self.parts: Dict[str, Any] = {}
        for number in range(1, spec.layers + 1):
            name = "layer%d." % number
            self._norm(name + "norm1")
            self._dense(name + "qkv", 3 * spec.width, spec.width)
            self._dense(name + "project", spec.width, spec.width)
            self._norm(name + "norm2")
            self._dense(name + "upper", spec.feedforward, spec.width)
            self._dense(name + "lower", spec.width, spec.feedforward)
        self._norm("norm")
        self._dense("fc", spec.vocabulary, spec.width)

    def _norm(self, name: str) -> None:
        self._keep(name, nn.LayerNorm(epsilon=self.spec.epsilon, in_channels=self.spec.width))

    def _dense(self, name: str, outputs: int, inputs: int) -> None:
        self._keep(name, nn.Dense(outputs, flatten=False, in_units=inputs))

    def _keep(self, name: str, block: Any) -> None:
        self.parts[name] = block
        self.register_child(block)

    def trainable(self) -> Dict[str, Any]:
        """Return the parameters by canonical name."""
        found = {"embedding.weight": self.embedding.weight, "position.weight": self.position}
        for name, part in self.parts.items():
            kinds = ("gamma", "beta") if isinstance(part, nn.LayerNorm) else ("weight", "bias")
            found.update(("%s.%s" % (name, kind), getattr(part, kind)) for kind in kinds)
        return found

    def hybrid_forward(self, F: Any, tokens: Any, position: Any, mask: Any) -> Any:  # noqa: N803 - Gluon's own name
        """Return the logits of every step."""
        values = F.broadcast_add(self.embedding(tokens), F.expand_dims(position, 0))
        for number in range(1, self.spec.layers + 1):
            name = "layer%d." % number
            raised = self.parts[name + "qkv"](self.parts[name + "norm1"](values))
            values = values + self.parts[name + "project"](self._attended(F, raised, mask))
            raised = self.parts[name + "upper"](self.parts[name + "norm2"](values))
            raised = 0.5 * raised * (1.0 + F.tanh(_GELU * (raised + _CUBE * raised * raised * raised)))
            values = values + self.parts[name + "lower"](raised)
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


class Built(NamedTuple):
    """A network in MXNet: what computes the loss, and its parameters by canonical name."""

    block: Any  # HybridBlock: (inputs, labels) -> mean loss, shape (1,)
    trainable: Dict[str, Any]  # gluon Parameter by canonical name


class LossBlock(mx.gluon.HybridBlock):
    """A body that ends in rows of logits or outputs, and their loss, a mean over all of them."""

    def __init__(self, body: Any, loss: str) -> None:
        super().__init__()
        self.body = body
        self.kind = loss

    def hybrid_forward(self, F: Any, inputs: Any, labels: Any) -> Any:  # noqa: N803 - Gluon's own name
        """Return the mean loss."""
        if self.kind == "squares":
            return F.mean(F.square(self.body(inputs) - labels))
        scores = F.log_softmax(self.body(inputs), axis=-1)
        return F.mean(F.negative(F.pick(scores, labels, axis=-1)))


class BottleneckBlock(mx.gluon.HybridBlock):
    """One residual block: 1x1 with the stride, 3x3, 1x1, each normalised; ReLU after the addition."""

    def __init__(self, spec: Bottleneck, epsilon: float, fused: bool) -> None:
        super().__init__()
        self.body = nn.HybridSequential()
        first, second, third = spec.body
        for each in (first, second):
            self.body.add(_convolution(each), *_norm_relu(each.outputs, epsilon, fused))
        self.body.add(_convolution(third), nn.BatchNorm(epsilon=epsilon, in_channels=third.outputs))
        self.project = None
        if spec.shortcut is not None:
            self.project = nn.HybridSequential()
            self.project.add(_convolution(spec.shortcut), nn.BatchNorm(epsilon=epsilon, in_channels=spec.out_channels))

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:  # noqa: N803
        """Return relu(body + shortcut), (batch, channels, height, width)."""
        shortcut = inputs if self.project is None else self.project(inputs)
        return F.Activation(self.body(inputs) + shortcut, act_type="relu")


CELLS = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn": partial(rnn.RNN, activation="tanh")}


class RecurrentBlock(mx.gluon.HybridBlock):
    """Stacked recurrent layers from a zero state, dense; to logits (steps * batch, classes).

    Symbols are tokens (steps, batch), to be looked up, or one-hot (steps, batch, classes).
    """

    def __init__(self, spec: Recurrent) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.embedding: Any = nn.Embedding(spec.vocabulary, spec.embedding) if spec.embedding else None
        self.layers = CELLS[spec.cell](spec.hidden, spec.layers, layout="TNC", input_size=spec.width)
        self.dense = nn.Dense(spec.vocabulary, flatten=False, in_units=spec.hidden)

    def hybrid_forward(self, F: Any, symbols: Any) -> Any:  # noqa: N803
        """Return the logits of every step, time-major."""
        outputs = self.layers(symbols if self.embedding is None else self.embedding(symbols))
        return self.dense(F.reshape(outputs, shape=(-1, self.hidden)))


class ElmanBlock(mx.gluon.HybridBlock):
    """A simple recurrent layer from a zero state, dense; (steps, batch, inputs) to (steps * batch, outputs)."""

    def __init__(self, spec: Elman) -> None:
        super().__init__()
        self.hidden = spec.hidden
        self.rnn = rnn.RNN(spec.hidden, activation=spec.activation, layout="TNC", input_size=spec.inputs)
        self.dense = nn.Dense(spec.outputs, flatten=False, in_units=spec.hidden)

    def hybrid_forward(self, F: Any, inputs: Any) -> Any:  # noqa: N803
        """Return the outputs of every step, time-major."""
        return self.dense(F.reshape(self.rnn(inputs), shape=(-1, self.hidden)))


def _convolution(spec: NormalisedConvolution) -> Any:
    sizes = spec.outputs, spec.kernel, spec.stride, spec.padding
    return nn.Conv2D(*sizes, use_bias=False, in_channels=spec.inputs)


def _norm_relu(channels: int, epsilon: float, fused: bool) -> Any:
    if fused:
        return (nn.BatchNormReLU(epsilon=epsilon, in_channels=channels),)
    return nn.BatchNorm(epsilon=epsilon, in_channels=channels), nn.Activation("relu")


def _layer(spec: Layer) -> Any:
    if isinstance(spec, Dense):
        activation = None if spec.activation == "none" else spec.activation
        return nn.Dense(spec.outputs, activation, flatten=False, in_units=spec.inputs)
    if isinstance(spec, Convolution):
        return nn.Conv2D(
            spec.out_channels,
            spec.kernel,
            spec.stride,
            spec.padding,
            activation=None if spec.activation == "none" else spec.activation,
            in_channels=spec.in_channels,
        )
    if isinstance(spec, MaxPool):
        return nn.MaxPool2D(spec.kernel, spec.stride, spec.padding)
    assert isinstance(spec, Flatten)
    return nn.Flatten()


def _feedforward(spec: Chain, found: Dict[str, Any]) -> Any:
    body = nn.HybridSequential()
    for layer in spec.layers:
        made = _layer(layer)
        body.add(made)
        if isinstance(layer, (Dense, Convolution)):
            found[layer.name + ".weight"] = made.weight
            found[layer.name + ".bias"] = made.bias
    return body


def _name_convolutions(sequence: Any, specs: Iterable[NormalisedConvolution], found: Dict[str, Any]) -> None:
    """Enter the weights of a sequence's convolutions and normalisations, which are in this order."""
    convolutions = [layer for layer in sequence if isinstance(layer, nn.Conv2D)]
    norms = [layer for layer in sequence if hasattr(layer, "gamma")]
    for spec, convolution, norm in zip(specs, convolutions, norms):
        found[spec.name + ".weight"] = convolution.weight
        found[spec.norm + ".gamma"], found[spec.norm + ".beta"] = norm.gamma, norm.beta


def _residual(spec: Residual, fused: bool, found: Dict[str, Any]) -> Any:
    body = nn.HybridSequential()
    body.add(_convolution(spec.stem), *_norm_relu(spec.stem_channels, spec.epsilon, fused))
    _name_convolutions(body, [spec.stem], found)
    body.add(nn.MaxPool2D(3, 2, 1))
    for block in spec.bottlenecks:
        made = BottleneckBlock(block, spec.epsilon, fused)
        body.add(made)
        _name_convolutions(made.body, block.body, found)
        if block.shortcut is not None:
            _name_convolutions(made.project, [block.shortcut], found)
    dense = nn.Dense(spec.classes, in_units=spec.features)
    body.add(nn.GlobalAvgPool2D(), dense)
    found["fc.weight"], found["fc.bias"] = dense.weight, dense.bias
    return body


def _recurrent(spec: Recurrent, found: Dict[str, Any]) -> Any:
    body = RecurrentBlock(spec)
    if spec.embedding:
        found["embedding.weight"] = body.embedding.weight
    theirs = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias")
    for layer, name in enumerate(spec.layer_names()):
        for part, their in zip(spec.parts, theirs):
            found["%s.%s" % (name, part)] = getattr(body.layers, "l%d_%s" % (layer, their))
        if len(spec.parts) < len(theirs):
            # MXNet has two biases per gate; training both would double the bias's learning rate.
            getattr(body.layers, "l%d_h2h_bias" % layer).grad_req = "null"
    found["fc.weight"], found["fc.bias"] = body.dense.weight, body.dense.bias
    return body


def _elman(spec: Elman, found: Dict[str, Any]) -> Any:
    body = ElmanBlock(spec)
    found["rnn.input_weight"], found["rnn.hidden_weight"] = body.rnn.l0_i2h_weight, body.rnn.l0_h2h_weight
    found["rnn.bias"] = body.rnn.l0_i2h_bias
    body.rnn.l0_h2h_bias.grad_req = "null"  # the second bias, as the LSTM's
    found["out.weight"], found["out.bias"] = body.dense.weight, body.dense.bias
    return body


def build(spec: Family, weights: Dict[str, np.ndarray], context: Any, fused_norm: bool = True) -> Built:
    """Return the network with copies of these weights on this context.

    ``fused_norm`` joins a batch normalisation and the ReLU behind it in one operator.
    """
    found: Dict[str, Any] = {}
    if isinstance(spec, Chain):
        body = _feedforward(spec, found)
    elif isinstance(spec, Residual):
        body = _residual(spec, fused_norm, found)
    elif isinstance(spec, Elman):
        body = _elman(spec, found)
    elif isinstance(spec, Attention):
        body = TransformerBlock(spec)
        found = body.trainable()
    else:
        assert isinstance(spec, Recurrent)
        body = _recurrent(spec, found)
    block = LossBlock(body, spec.loss)
    # Zero: the frozen LSTM biases; BatchNorm sets its own running statistics.
    block.initialize(mx.init.Zero(), ctx=context)
    load(found, weights)
    return Built(block, found)


def load(trainable: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters' own arrays."""
    for name, parameter in trainable.items():
        parameter.set_data(weights[name])
