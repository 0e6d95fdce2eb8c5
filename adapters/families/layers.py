"""The layers that chains of layers are made of, and the parameters of any network.

Canonical layouts, which every adapter converts from and back to: dense weight (outputs, inputs), convolution weight
(outputs, inputs, height, width), images (batch, channels, height, width), tokens (batch, steps), LSTM weights
(4 x hidden, inputs) with the gates in the order input, forget, cell, output, GRU weights (3 x hidden, inputs) in the
order reset, update, new.
"""

import math
from typing import NamedTuple, Optional, Tuple, Union


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
