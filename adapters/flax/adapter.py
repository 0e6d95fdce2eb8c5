"""Flax NNX: its layers in JAX's one jitted step."""

from typing import Any, Callable, Dict, Iterator, Tuple

import flax
import numpy as np

from ..base import Adapter
from ..families import Elman
from ..jax.adapter import JaxAdapter
from ..libraries.walks import Functions
from ..networks import Network
from .networks import CELLS, FlaxFunctions, canonical, held


class FlaxAdapter(JaxAdapter):
    """Trains as `JaxAdapter` does, with networks of Flax's layers; on the CPU.

    Settings: ``donate`` and ``keep_programs`` of `JaxAdapter`.
    """

    families = (*Adapter.families, "elman", "attention")
    cells = tuple(CELLS)
    data_parallel = ""
    refuses_gpu = Adapter.refuses_gpu
    refuses_training = Adapter.refuses_training
    train_on_text = Adapter.train_on_text

    def refuses(self, network: Network) -> str:
        if isinstance(network.family, Elman) and network.family.alpha != 1.0:
            return "alpha %g: Flax's SimpleCell has no leaky units" % network.family.alpha
        return super().refuses(network)

    def _functions(self) -> Callable[..., Functions]:
        return FlaxFunctions

    def _held(self, name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
        return {name: held(name, value)}

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self._parameters.items():
            yield name, canonical(name, value)

    def describe(self) -> Dict[str, Any]:
        described = super().describe()
        del described["pointwise_convolutions"]
        described.update(
            framework="flax", version=flax.__version__, jax=described["version"], recurrence="nnx.RNN, a scan"
        )
        return described


ADAPTER = FlaxAdapter
