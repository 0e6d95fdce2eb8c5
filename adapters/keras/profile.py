"""The operators of some steps, as the profiler of Keras's backend tells them."""

import importlib
from typing import Optional

import keras

from ..base import Adapter
from ..protocol import Profile

_FOLDERS = {"tensorflow": "tensorflow", "jax": "jax", "torch": "pytorch"}


def take(adapter: Adapter, steps: int) -> Optional[Profile]:
    """Run so many steps under the backend's profiler."""
    module = importlib.import_module("..%s.profile" % _FOLDERS[keras.config.backend()], __package__)
    return module.take(adapter, steps)
