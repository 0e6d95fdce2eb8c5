"""Builds the networks' specifications in MLX: arrays by name, and the loss as a pure function.

Images are held as (batch, height, width, channels) and convolution weights as (outputs, height, width, inputs), the
only layout of MLX's convolutions. Everything else is held in canonical layout, but mini-batches of recurrent networks,
which are turned to time-major.
"""

from functools import partial
from typing import Any, Callable, Dict, Tuple

import mlx.core as mx
import numpy as np
from mlx import nn

from ..base import Unsupported
from ..families import Attention, Chain, Convolution, Dense, Elman, Family, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch, laid_out
from . import attention, recurrent
from .layers import activated, dense

HELD = (0, 2, 3, 1)  # canonical axes of images and convolution weights in the order they are held
CANONICAL = (0, 3, 1, 2)  # and back

Arrays = Dict[str, Any]


def held(value: np.ndarray) -> Any:
    """Return an array of MLX's own that holds a copy, images and convolution weights turned."""
    return mx.array(np.ascontiguousarray(value.transpose(HELD)) if value.ndim == 4 else value)


def canonical(value: Any) -> np.ndarray:
    """Return a held parameter as NumPy array in canonical layout."""
    array = np.array(value)
    return array.transpose(CANONICAL) if array.ndim == 4 else array


def _chain(family: Chain, w: Arrays, values: Any) -> Any:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = activated(dense(w, layer.name, values), layer.activation)
        elif isinstance(layer, Convolution):
            values = mx.conv2d(values, w[layer.name + ".weight"], layer.stride, layer.padding)
            values = activated(values + w[layer.name + ".bias"], layer.activation)
        elif isinstance(layer, MaxPool):
            values = nn.MaxPool2d(layer.kernel, layer.stride, layer.padding)(values)
        elif isinstance(layer, Flatten):
            values = values.transpose(CANONICAL).reshape(values.shape[0], -1)
        else:
            raise Unsupported("MLX: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _residual(family: Residual, w: Arrays, values: Any) -> Any:
    def unit(spec: NormalisedConvolution, values: Any) -> Any:
        """Return the convolution without bias and its batch normalisation, by the batch's own biased statistics."""
        values = mx.conv2d(values, w[spec.name + ".weight"], spec.stride, spec.padding)
        layer = nn.BatchNorm(values.shape[-1], family.epsilon, track_running_stats=False)
        layer.weight, layer.bias = w[spec.norm + ".gamma"], w[spec.norm + ".beta"]
        return layer(values)

    values = nn.MaxPool2d(3, 2, 1)(nn.relu(unit(family.stem, values)))
    for block in family.bottlenecks:
        first, second, third = block.body
        inner = unit(third, nn.relu(unit(second, nn.relu(unit(first, values)))))
        if block.shortcut is not None:
            values = unit(block.shortcut, values)
        values = nn.relu(inner + values)
    return dense(w, "fc", mx.mean(values, axis=(1, 2)))


_BUILDERS: Tuple[Tuple[type, Callable[..., Any]], ...] = (
    (Chain, _chain),
    (Residual, _residual),
    (Recurrent, recurrent.logits),
    (Elman, recurrent.outputs),
    (Attention, attention.logits),
)


def mean_loss(family: Family) -> Callable[[Arrays, Any, Any], Any]:
    """Return the family's mean loss of a mini-batch as a function of parameters, inputs and labels."""
    builder = next((each for kind, each in _BUILDERS if isinstance(family, kind)), None)
    if builder is None:
        raise Unsupported("MLX: no way to build a network of type %s" % type(family).__name__)
    scores = partial(builder, family)
    compared = nn.losses.mse_loss if family.loss == "squares" else nn.losses.cross_entropy
    return lambda w, inputs, labels: compared(scores(w, inputs), labels, reduction="mean")


def place(family: Family, batch: Batch) -> Tuple[Any, Any]:
    """Return a copy of the mini-batch as the losses read it: labels in rows, time-major where the family is so."""
    inputs, labels = laid_out(family, batch)
    return held(inputs), held(labels)
