"""Families of networks: one module holds everything about a family.

A new family is a module of this folder, which needs no registration. It also needs its model in
``adapters/reference`` (float64, differentiated by hand), and its name in ``Adapter.families`` of
each adapter that builds it: every other adapter refuses it. Standard library only, and the syntax
of Python 3.6: host and guest both import this.
"""

import importlib
import os
from typing import Dict, Type

from .attention import Attention as Attention
from .chains import Chain as Chain
from .chains import Convolutional as Convolutional
from .chains import Feedforward as Feedforward
from .elman import Elman as Elman
from .family import ACTIVATIONS as ACTIVATIONS
from .family import ALPHABET as ALPHABET
from .family import LEARNING_RATE as LEARNING_RATE
from .family import LOSSES as LOSSES
from .family import Drawn as Drawn
from .family import Family as Family
from .family import Layer as Layer
from .family import NumbersError as NumbersError
from .family import Parameter as Parameter
from .family import ParityRecipe as ParityRecipe
from .own import Own as Own
from .recurrent import CELLS as CELLS
from .recurrent import Recurrent as Recurrent
from .residual import Bottleneck as Bottleneck
from .residual import Residual as Residual
from .sampling import Boltzmann as Boltzmann
from .sampling import McCullochPitts as McCullochPitts
from .sampling import SamplingMachine as SamplingMachine
from .spiking import Spiking as Spiking


def _families() -> Dict[str, Type[Family]]:
    """Import the modules of this folder; return their families by the name that suites use."""
    files = sorted(os.listdir(os.path.dirname(os.path.abspath(__file__))))
    names = [file[:-3] for file in files if file.endswith(".py") and file != "__init__.py"]
    families: Dict[str, Type[Family]] = {}
    for name in names:
        module = importlib.import_module("." + name, __name__)
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Family) and kind.name:
                families[kind.name] = kind
    return families


FAMILIES = _families()
