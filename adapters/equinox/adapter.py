"""Equinox: its layers, mapped over the mini-batch, in JAX's one jitted step."""

from typing import Any, Dict, Tuple

import equinox
import numpy as np

from ..base import Adapter
from ..jax.adapter import JaxAdapter
from ..jax.networks import Loss
from ..launch.batches import Batch, laid_out
from ..networks import Network
from .networks import mean_loss


class EquinoxAdapter(JaxAdapter):
    """Trains as `JaxAdapter` does, whose settings it takes, with networks of Equinox's layers; on the CPU."""

    families = (*Adapter.families, "attention")
    cells = ("lstm",)
    data_parallel = ""
    refuses_gpu = Adapter.refuses_gpu
    refuses_training = Adapter.refuses_training
    train_on_text = Adapter.train_on_text

    def _mean_loss(self, network: Network) -> Loss:
        return mean_loss(network)

    def _held(self, name: str, value: np.ndarray) -> np.ndarray:
        return value

    def _canonical(self, name: str, value: Any) -> np.ndarray:
        return np.asarray(value)

    def _read(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return laid_out(self._family, batch)

    def describe(self) -> Dict[str, Any]:
        """Name Equinox's version beside what JAX's adapter tells."""
        described = super().describe()
        del described["pointwise_convolutions"]
        described.update(framework="equinox", version=equinox.__version__, jax=described["version"])
        described.update(recurrence="a scan of each example, mapped", image_layout="NCHW")
        return described


ADAPTER = EquinoxAdapter
