"""The layers that chains of layers are made of, and the parameters of any network.

Canonical layouts, which every adapter converts from and back to: dense weight (outputs, inputs), convolution weight
(outputs, inputs, height, width), images (batch, channels, height, width), tokens (batch, steps), LSTM weights
(4 x hidden, inputs) with the gates in the order input, forget, cell, output.
"""

import math
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union


class Dense(NamedTuple):
    """A fully connected layer with bias: ``activation(inputs @ weight.T + bias)``."""

    name: str
    inputs: int
    outputs: int
    activation: str  # one of `ACTIVATIONS`, or "none"


class Convolution(NamedTuple):
    """A square convolution with bias and symmetric zero padding."""

    name: str
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    padding: int
    activation: str  # one of `ACTIVATIONS`, or "none"


class MaxPool(NamedTuple):
    """Max pooling over square windows; sizes round down."""

    kernel: int
    stride: int
    padding: int


class Flatten(NamedTuple):
    """(batch, channels, height, width) to (batch, channels * height * width)."""


Layer = Union[Dense, Convolution, MaxPool, Flatten]

ACTIVATIONS = ("relu", "sigmoid", "tanh")


class Parameter(NamedTuple):
    """A trainable tensor: uniform in [-bound, bound] at the start, or constant where ``constant`` is given."""

    name: str
    shape: Tuple[int, ...]
    bound: float
    constant: Optional[float] = None


def output_side(side: int, kernel: int, stride: int, padding: int) -> int:
    """Return the side of a convolution's or pool's output, rounding down."""
    return (side + 2 * padding - kernel) // stride + 1


def convolution_weight(name: str, outputs: int, inputs: int, kernel: int) -> Parameter:
    """Return a convolution's weight: He et al. 2015, arXiv 1502.01852, eq. 10, as a uniform distribution."""
    return Parameter(name + ".weight", (outputs, inputs, kernel, kernel), math.sqrt(6.0 / (inputs * kernel**2)))


def chain_parameters(layers: Sequence[Layer]) -> List[Parameter]:
    """Return every trainable tensor of a chain of layers, in forward order."""
    found = []
    for layer in layers:
        if isinstance(layer, Convolution):
            found.append(convolution_weight(layer.name, layer.out_channels, layer.in_channels, layer.kernel))
            found.append(Parameter(layer.name + ".bias", (layer.out_channels,), 0.01))
        elif isinstance(layer, Dense):
            # ReLU layers after He et al. 2015, the others after Glorot and Bengio 2010, eq. 16.
            if layer.activation == "relu":
                bound = math.sqrt(6.0 / layer.inputs)
            else:
                bound = math.sqrt(6.0 / (layer.inputs + layer.outputs))
            found.append(Parameter(layer.name + ".weight", (layer.outputs, layer.inputs), bound))
            found.append(Parameter(layer.name + ".bias", (layer.outputs,), 0.01))
    return found


def chain_multiply_adds(layers: Sequence[Layer], side: int = 1) -> List[int]:
    """Return the multiply-adds of each layer for one example, forward; ``side`` is that of its image."""
    products = []
    for layer in layers:
        if isinstance(layer, (Convolution, MaxPool)):
            side = output_side(side, layer.kernel, layer.stride, layer.padding)
        if isinstance(layer, Convolution):
            products.append(layer.out_channels * layer.in_channels * layer.kernel**2 * side**2)
        elif isinstance(layer, Dense):
            products.append(layer.inputs * layer.outputs)
    return products


def has_kinks(layers: Sequence[Layer]) -> bool:
    """Tell whether rounding can turn a unit of the chain from one side to the other: ReLUs and maxima."""
    return any(isinstance(layer, MaxPool) or getattr(layer, "activation", "") == "relu" for layer in layers)


def chain_words(layers: Sequence[Layer]) -> str:
    """Return how many layers of each kind a chain has, in words."""
    kinds = (("conv", Convolution), ("pool", MaxPool), ("dense", Dense))
    counts = [(sum(isinstance(layer, kind) for layer in layers), word) for word, kind in kinds]
    return ", ".join("%d %s" % (count, word) for count, word in counts if count)
