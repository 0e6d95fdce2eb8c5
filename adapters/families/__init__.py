"""Families of networks: a module holds all that is known of a family.

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


def _found() -> Dict[str, Type[Family]]:
    """Return the families of the modules in this folder, by the name that suites use."""
    found: Dict[str, Type[Family]] = {}
    files = sorted(os.listdir(os.path.dirname(os.path.abspath(__file__))))
    for module in [file[:-3] for file in files if file.endswith(".py") and file != "__init__.py"]:
        for each in vars(importlib.import_module("." + module, __name__)).values():
            if isinstance(each, type) and issubclass(each, Family) and each.name:
                found[each.name] = each
    return found


FAMILIES = _found()

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
