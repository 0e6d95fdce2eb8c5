"""Families of networks: one module holds everything about a family.

A new family is a module here, which is found by itself; its model in ``adapters/reference`` (float64, differentiated by
hand), and its name in ``Adapter.families`` of each adapter that builds it: every other adapter refuses it.
Standard library only, and the syntax of Python 3.6: host and guest both import this.
"""

import importlib
import os
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


def _families() -> Dict[str, Type[Family]]:
    """Import the modules of this folder; return their families by the name that suites use."""
    files = sorted(os.listdir(os.path.dirname(os.path.abspath(__file__))))
    names = [file[:-3] for file in files if file.endswith(".py") and file != "__init__.py"]
    modules = [importlib.import_module("." + name, __name__) for name in names]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.name: kind for kind in kinds if issubclass(kind, Family) and kind.name}


FAMILIES = _families()

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
