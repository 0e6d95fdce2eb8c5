"""Families of networks: a module for each, holding all that is known of it.

A new family is a module here, its class in `FAMILIES`, a model in ``adapters/reference`` (float64, differentiated by
hand), and its name in ``Adapter.families`` of each adapter that builds it; every other adapter refuses it.
Standard library only, and the syntax of Python 3.6: host and guest both import this.
"""

from typing import Dict, Type

from .attention import Attention
from .chains import Chain, Convolutional, Feedforward
from .elman import Elman
from .family import (
    ACTIVATIONS,
    ALPHABET,
    LEARNING_RATE,
    LOSSES,
    Convolution,
    Dense,
    Drawn,
    Family,
    Flatten,
    Layer,
    MaxPool,
    NumbersError,
    Parameter,
    ParityRecipe,
)
from .own import Own
from .recurrent import CELLS, Recurrent
from .residual import Bottleneck, Residual

#: By the name that suites use.
FAMILIES: Dict[str, Type[Family]] = {
    family.name: family for family in (Feedforward, Convolutional, Residual, Recurrent, Elman, Attention, Own)
}

__all__ = [
    "ACTIVATIONS",
    "ALPHABET",
    "CELLS",
    "FAMILIES",
    "LEARNING_RATE",
    "LOSSES",
    "Attention",
    "Bottleneck",
    "Chain",
    "Convolution",
    "Convolutional",
    "Dense",
    "Drawn",
    "Elman",
    "Family",
    "Feedforward",
    "Flatten",
    "Layer",
    "MaxPool",
    "NumbersError",
    "Own",
    "Parameter",
    "ParityRecipe",
    "Recurrent",
    "Residual",
]
