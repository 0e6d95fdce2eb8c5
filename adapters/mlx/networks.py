"""Networks in MLX: arrays by name, and the loss as a pure function.

Images are held as (batch, height, width, channels) and convolution weights as (outputs, height, width, inputs), the
only layout of MLX's convolutions. Everything else is held in canonical layout, but mini-batches of recurrent networks,
which are turned to time-major.
"""

from typing import Any, Callable, Dict, Tuple

import mlx.core as mx
import numpy as np
from mlx import nn

from ..families import Family, Layer
from ..launch.batches import Batch, laid_out
from ..libraries.walks import Functions, Turn

HELD = (0, 2, 3, 1)  # canonical axes of images and convolution weights in the order they are held
CANONICAL = (0, 3, 1, 2)  # and back


def held(value: np.ndarray) -> Any:
    """Return an array of MLX's own that holds a copy, images and convolution weights turned."""
    return mx.array(np.ascontiguousarray(value.transpose(HELD)) if value.ndim == 4 else value)


def canonical(value: Any) -> np.ndarray:
    """Return a held parameter as NumPy array in canonical layout."""
    array = np.array(value)
    return array.transpose(CANONICAL) if array.ndim == 4 else array


class MlxFunctions(Functions):
    """Networks by mlx.core and mlx.nn."""

    activations = {"sigmoid": mx.sigmoid, "relu": nn.relu, "tanh": mx.tanh}

    def dense(self, name: str, values: Any) -> Any:
        # As MLX's own ``Linear`` computes it.
        return mx.addmm(self.w[name + ".bias"], values, self.w[name + ".weight"].T)

    def convolution(self, spec: Layer, values: Any) -> Any:
        values = mx.conv2d(values, self.w[spec.name + ".weight"], spec.stride, spec.padding)
        return values if spec.norm else values + self.w[spec.name + ".bias"]

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return nn.MaxPool2d(kernel, stride, padding)(values)

    def flatten(self, values: Any) -> Any:
        return values.transpose(CANONICAL).reshape(values.shape[0], -1)

    def norm(self, name: str, values: Any) -> Any:
        layer = nn.BatchNorm(values.shape[-1], self.family.epsilon, track_running_stats=False)
        layer.weight, layer.bias = self.w[name + ".gamma"], self.w[name + ".beta"]
        return layer(values)

    def pixel_mean(self, values: Any) -> Any:
        return mx.mean(values, axis=(1, 2))

    def split(self, values: Any, count: int) -> Any:
        return mx.split(values, count, axis=-1)

    def product(self, name: str, output: Any) -> Any:
        return self.sums(name, self.w[name + ".hidden_bias"], output)

    def sums(self, name: str, share: Any, output: Any) -> Any:
        return mx.addmm(share, output, self.hidden_weight)

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        self.hidden_weight = self.w[name + ".hidden_weight"].T
        zero = mx.zeros((values.shape[1], self.family.hidden))
        shares = mx.addmm(self.w[name + ".bias"], values, self.w[name + ".input_weight"].T)
        split = (mx.squeeze(share, 0) for share in mx.split(shares, len(shares)))
        return mx.stack(self.step_by_step(turn, (zero,) * states, split))

    def layer_norm(self, name: str, values: Any) -> Any:
        return mx.fast.layer_norm(values, self.w[name + ".gamma"], self.w[name + ".beta"], self.family.epsilon)

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        heads = self.family.heads
        parts = mx.split(self.dense(name + "qkv", values), 3, axis=-1)
        query, key, value = [each.reshape(batch, steps, heads, -1).transpose(0, 2, 1, 3) for each in parts]
        scale = (width // heads) ** -0.5
        mixed = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask="causal")
        return mixed.transpose(0, 2, 1, 3).reshape(batch, steps, width)

    def gelu(self, values: Any) -> Any:
        return nn.gelu_approx(values)


def mean_loss(family: Family) -> Callable[[Dict[str, Any], Any, Any], Any]:
    """Return the family's mean loss of a mini-batch as a function of parameters, inputs and labels."""
    compared = nn.losses.mse_loss if family.loss == "squares" else nn.losses.cross_entropy
    return lambda w, inputs, labels: compared(MlxFunctions(family, w).scores(inputs), labels, reduction="mean")


def place(family: Family, batch: Batch) -> Tuple[Any, Any]:
    """Return a copy of the mini-batch as the losses read it: labels in rows, time-major where the family is so."""
    inputs, labels = laid_out(family, batch)
    return held(inputs), held(labels)
