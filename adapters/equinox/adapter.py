"""Equinox: its layers, mapped over the mini-batch, in JAX's one jitted step."""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import equinox
import numpy as np

from ..base import Adapter
from ..jax.adapter import JaxAdapter
from ..launch.batches import Batch, laid_out
from ..libraries.walks import Functions
from .networks import EquinoxFunctions, canonical, held


class EquinoxAdapter(JaxAdapter):
    """Trains as `JaxAdapter` does, with networks of Equinox's layers; on the CPU.

    Settings: ``donate`` and ``keep_programs`` of `JaxAdapter`; ``rows`` (default false) makes the logits of all steps
    of all examples by one product, outside what is mapped over the mini-batch.
    """

    families = (*Adapter.families, "attention")
    cells = ("lstm",)
    data_parallel = ""
    refuses_gpu = Adapter.refuses_gpu
    refuses_training = Adapter.refuses_training
    train_on_text = Adapter.train_on_text

    def _functions(self) -> Callable[..., Functions]:
        return partial(EquinoxFunctions, in_rows=bool(self.settings.get("rows", False)))

    def _held(self, name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
        return held(name, value)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        return canonical(self._parameters)

    def _read(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return laid_out(self._family, batch)

    def describe(self) -> Dict[str, Any]:
        described = super().describe()
        del described["pointwise_convolutions"]
        described.update(framework="equinox", version=equinox.__version__, jax=described["version"])
        described.update(recurrence="a scan of each example, mapped", image_layout="NCHW")
        described["logits"] = "one product" if self.settings.get("rows", False) else "mapped"
        return described


ADAPTER = EquinoxAdapter
