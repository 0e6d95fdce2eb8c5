"""Networks as PaddlePaddle layers that end in logits.

PaddlePaddle's layouts are the canonical ones (convolution OIHW, images NCHW, LSTM gates input, forget, cell, output)
but for dense weights, which it holds as (inputs, outputs). Recurrent networks' tokens and labels are time-major.
"""

from typing import Any, Dict, Mapping

import numpy as np
from paddle import nn
from paddle.nn import functional

from ..families import Elman, Family, Layer
from ..libraries.walks import LayerFunctions

CELLS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.SimpleRNN}
RECURRENT_PARTS = ("weight_ih_l%d", "weight_hh_l%d", "bias_ih_l%d", "bias_hh_l%d")


class PaddleNetwork(LayerFunctions, nn.Layer):
    """A network of PaddlePaddle's layers, to rows of logits or outputs."""

    attributes = {"gamma": "weight", "beta": "bias"}
    activations = {"sigmoid": functional.sigmoid, "relu": functional.relu, "tanh": functional.tanh}
    keep = nn.Layer.add_sublayer
    make_dense = staticmethod(nn.Linear)
    make_embedding = staticmethod(nn.Embedding)

    def __init__(self, family: Family) -> None:
        nn.Layer.__init__(self)
        LayerFunctions.__init__(self, family)
        if family.kind == "recurrent":
            self.stack = _stack(family)
            # The second biases stay zero by being left out of the update: the kernel needs their gradients.
            for second in self.hold_stack(lambda layer, place: getattr(self.stack, RECURRENT_PARTS[place] % layer)):
                second.set_value(np.zeros(second.shape, np.float32))

    def forward(self, inputs: Any) -> Any:
        return self.scores(inputs)

    def make_convolution(self, spec: Layer) -> Any:
        sizes = spec.inputs, spec.outputs, spec.kernel, spec.stride, spec.padding
        return nn.Conv2D(*sizes, bias_attr=False if spec.norm else None)

    def make_batch_norm(self, name: str, channels: int) -> Any:
        return nn.BatchNorm2D(channels, epsilon=self.family.epsilon)

    def make_layer_norm(self, width: int) -> Any:
        return nn.LayerNorm(width, self.family.epsilon)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return functional.max_pool2d(values, kernel, stride, padding)

    def flatten(self, values: Any) -> Any:
        return values.flatten(1)

    def pixel_mean(self, values: Any) -> Any:
        return functional.adaptive_avg_pool2d(values, 1).flatten(1)

    def rows(self, values: Any) -> Any:
        return values.reshape([-1, values.shape[-1]])

    def stacked(self, values: Any) -> Any:
        return self.stack(values)[0]

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.dense(name + "qkv", values).reshape([batch, steps, 3, self.family.heads, -1])
        mixed = functional.scaled_dot_product_attention(*parts.unbind(2), is_causal=True)
        return mixed.reshape([batch, steps, width])

    def gelu(self, values: Any) -> Any:
        return functional.gelu(values, approximate=True)


def _stack(family: Any) -> Any:
    """Return the recurrent layers, from a zero state."""
    if isinstance(family, Elman):
        return nn.SimpleRNN(family.inputs, family.hidden, time_major=True, activation=family.activation)
    return CELLS[family.cell](family.width, family.hidden, family.layers, time_major=True)


def is_turned(name: str, value: np.ndarray) -> bool:
    """Tell whether the parameter is a dense weight, which is held as (inputs, outputs)."""
    return value.ndim == 2 and name.endswith(".weight") and name not in ("embedding.weight", "position.weight")


def load(parameters: Dict[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Copy the weights into the parameters."""
    for name, parameter in parameters.items():
        value = weights[name]
        parameter.set_value(np.ascontiguousarray(value.T) if is_turned(name, value) else value)
