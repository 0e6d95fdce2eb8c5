"""Networks as Gluon blocks that end in the mean loss.

Every block is hybridised with its loss inside, so that forward, loss and backward are one static graph. MXNet's own
layouts are the canonical ones (dense (outputs, inputs), convolution OIHW, LSTM gates input, forget, cell, output), so
parameters pass unchanged; only recurrent data are turned to time-major, which the fused LSTM wants.
"""

from functools import partial
from typing import Any, Dict, Mapping, Tuple

import mxnet as mx
import numpy as np
from mxnet.gluon import nn, rnn

from ..families import Attention, Elman, Family, Layer
from ..libraries.walks import HIDDEN, LayerFunctions, gelu_by_tanh

CELLS = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn": partial(rnn.RNN, activation="tanh")}
RECURRENT_PARTS = ("l%d_i2h_weight", "l%d_h2h_weight", "l%d_i2h_bias", "l%d_h2h_bias")


class GluonNetwork(LayerFunctions, mx.gluon.HybridBlock):
    """A network of Gluon's layers and its loss: inputs and labels to the mean loss, of shape (1,).

    ``F``, Gluon's own name, is MXNet's module of symbols; ``fused`` joins a batch normalisation and the ReLU behind it
    in one operator.
    """

    def __init__(self, family: Any, fused: bool) -> None:
        mx.gluon.HybridBlock.__init__(self)
        inner = [spec.norm for block in family.bottlenecks for spec in block.body[:-1]] if family.normalises else []
        self.fused = [family.stem.norm, *inner] if fused and family.normalises else []
        LayerFunctions.__init__(self, family)
        if family.kind == "recurrent":
            self.stack = _stack(family)
            for second_bias in self.hold_stack(
                lambda layer, place: getattr(self.stack, RECURRENT_PARTS[place] % layer)
            ):
                second_bias.grad_req = "null"
        if isinstance(family, Attention):
            # Gluon has no layer for attention, nor a block with the vectors of positions alone.
            mask = np.triu(np.full((1, family.steps, family.steps), HIDDEN, np.float32), 1)
            self.mask = self.params.get_constant("mask", mask)
            self.position = self.w["position.weight"] = self.layers["position"].weight

    def keep(self, name: str, layer: Any) -> None:
        self.register_child(layer, name)

    def hybrid_forward(self, F: Any, inputs: Any, labels: Any, **parameters: Any) -> Any:  # noqa: N803
        self.F, self.given = F, parameters
        scores = self.scores(inputs)
        if self.family.loss == "squares":
            return F.mean(F.square(scores - labels))
        return F.mean(F.negative(F.pick(F.log_softmax(scores, axis=-1), labels, axis=-1)))

    def make_dense(self, inputs: int, outputs: int) -> Any:
        return nn.Dense(outputs, flatten=False, in_units=inputs)

    def make_convolution(self, spec: Layer) -> Any:
        sizes = spec.outputs, spec.kernel, spec.stride, spec.padding
        return nn.Conv2D(*sizes, use_bias=not spec.norm, in_channels=spec.inputs)

    def make_batch_norm(self, name: str, channels: int) -> Any:
        kind = nn.BatchNormReLU if name in self.fused else nn.BatchNorm
        return kind(epsilon=self.family.epsilon, in_channels=channels)

    def make_layer_norm(self, width: int) -> Any:
        return nn.LayerNorm(epsilon=self.family.epsilon, in_channels=width)

    def make_embedding(self, symbols: int, width: int) -> Any:
        return nn.Embedding(symbols, width)

    def activated(self, values: Any, activation: str) -> Any:
        return values if activation == "none" else self.F.Activation(values, act_type=activation)

    def unit_with_relu(self, spec: Layer, values: Any) -> Any:
        values = self.unit(spec, values)
        return values if self.fused else self.activated(values, "relu")

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        sizes = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (padding,) * 2}
        return self.F.Pooling(values, pool_type="max", **sizes)

    def flatten(self, values: Any) -> Any:
        return self.F.flatten(values)

    def pixel_mean(self, values: Any) -> Any:
        return self.F.flatten(self.F.Pooling(values, pool_type="avg", global_pool=True))

    def rows(self, values: Any) -> Any:
        return self.F.reshape(values, shape=(-3, 0))

    def stacked(self, values: Any) -> Any:
        return self.stack(values)

    def positioned(self, tokens: Any) -> Any:
        return self.F.broadcast_add(self.embedded("embedding", tokens), self.F.expand_dims(self.given["position"], 0))

    def attended(self, name: str, values: Any) -> Any:
        F, heads, steps = self.F, self.family.heads, self.family.steps  # noqa: N806 - as Gluon has it
        width = self.family.width // heads
        parts = F.reshape(self.dense(name + "qkv", values), shape=(0, 0, 3, heads, -1))
        parts = F.reshape(F.transpose(parts, axes=(2, 0, 3, 1, 4)), shape=(3, -1, steps, width))
        query, key, value = F.split(parts, num_outputs=3, axis=0, squeeze_axis=True)
        scores = F.batch_dot(query, key, transpose_b=True) * width**-0.5
        mixed = F.batch_dot(F.softmax(F.broadcast_add(scores, self.given["mask"]), axis=-1), value)
        return F.reshape(
            F.transpose(F.reshape(mixed, shape=(-1, heads, steps, width)), axes=(0, 2, 1, 3)), shape=(0, 0, -1)
        )

    def gelu(self, values: Any) -> Any:
        return gelu_by_tanh(values, self.F.tanh)


def _stack(family: Any) -> Any:
    """Return the recurrent layers, from a zero state."""
    if isinstance(family, Elman):
        return rnn.RNN(family.hidden, activation=family.activation, layout="TNC", input_size=family.inputs)
    return CELLS[family.cell](family.hidden, family.layers, layout="TNC", input_size=family.width)


def build(
    family: Family, weights: Dict[str, np.ndarray], context: Any, fused_norm: bool = True
) -> Tuple[Any, Dict[str, Any]]:
    """Build the network with copies of these weights on this context; return it, and its parameters by name."""
    block = GluonNetwork(family, fused_norm)
    # Zero: the frozen LSTM biases; BatchNorm sets its own running statistics.
    block.initialize(mx.init.Zero(), ctx=context)
    load(block.w, weights)
    return block, block.w


def load(trainable: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters' own arrays."""
    for name, parameter in trainable.items():
        parameter.set_data(weights[name])
