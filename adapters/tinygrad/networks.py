"""Builds the networks' specifications on tinygrad's tensors: a function from inputs to outputs, weights by name.

Everything is held in canonical layout, which is tinygrad's own; mini-batches of recurrent networks are turned to
time-major.
"""

from functools import partial
from typing import Callable, Dict, Tuple

from tinygrad import Tensor, nn

from ..base import Unsupported
from ..families import (
    Attention,
    Bottleneck,
    Chain,
    Convolution,
    Dense,
    Elman,
    Family,
    Flatten,
    MaxPool,
    Recurrent,
    Residual,
)
from ..families.residual import NormalisedConvolution
from . import attention, recurrent
from .layers import activated, dense

Weights = Dict[str, Tensor]


def _chain(family: Chain, w: Weights, values: Tensor) -> Tensor:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = activated(dense(w, layer.name, values), layer.activation)
        elif isinstance(layer, Convolution):
            weight, bias = w[layer.name + ".weight"], w[layer.name + ".bias"]
            values = values.conv2d(weight, bias, stride=layer.stride, padding=layer.padding)
            values = activated(values, layer.activation)
        elif isinstance(layer, MaxPool):
            values = values.max_pool2d((layer.kernel, layer.kernel), layer.stride, padding=layer.padding)
        elif isinstance(layer, Flatten):
            values = values.flatten(1)
        else:
            raise Unsupported("tinygrad: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _unit(w: Weights, spec: NormalisedConvolution, epsilon: float, values: Tensor) -> Tensor:
    """Return the convolution without bias and its batch normalisation, by the batch's own biased statistics."""
    values = values.conv2d(w[spec.name + ".weight"], stride=spec.stride, padding=spec.padding)
    layer = nn.BatchNorm(values.shape[1], epsilon, track_running_stats=False)
    layer.weight, layer.bias = w[spec.norm + ".gamma"], w[spec.norm + ".beta"]
    return layer(values)


def _bottleneck(block: Bottleneck, epsilon: float, w: Weights, values: Tensor) -> Tensor:
    first, second, third = block.body
    inner = _unit(w, first, epsilon, values).relu()
    inner = _unit(w, third, epsilon, _unit(w, second, epsilon, inner).relu())
    if block.shortcut is not None:
        values = _unit(w, block.shortcut, epsilon, values)
    return (inner + values).relu()


def _residual(family: Residual, w: Weights, values: Tensor) -> Tensor:
    values = _unit(w, family.stem, family.epsilon, values).relu()
    values = values.max_pool2d((3, 3), 2, padding=1)
    for block in family.bottlenecks:
        values = _bottleneck(block, family.epsilon, w, values)
    return dense(w, "fc", values.mean((2, 3)))


_BUILDERS: Tuple[Tuple[type, Callable[..., Tensor]], ...] = (
    (Chain, _chain),
    (Residual, _residual),
    (Attention, attention.logits),
)
_RECURRENT: Tuple[Tuple[type, Callable[..., Tensor]], ...] = ((Recurrent, recurrent.logits), (Elman, recurrent.outputs))


def build(family: Family, weights: Weights, gates: recurrent.Gates) -> Callable[[Tensor], Tensor]:
    """Return the function from inputs to logits, or to outputs where the loss is the squared error."""
    for kind, builder in _BUILDERS:
        if isinstance(family, kind):
            return partial(builder, family, weights)
    for kind, builder in _RECURRENT:
        if isinstance(family, kind):
            return partial(builder, family, weights, gates)
    raise Unsupported("tinygrad: no way to build a network of type %s" % type(family).__name__)


def mean_loss(family: Family, scores: Tensor, labels: Tensor) -> Tensor:
    """Return the family's mean loss."""
    if family.loss == "squares":
        return (scores - labels).square().mean()
    return scores.sparse_categorical_crossentropy(labels)
