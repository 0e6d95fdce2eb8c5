"""Inference: an adapter whose step is a forward pass of a trained network."""

from typing import Any, Dict, Mapping

import numpy as np

from ..base import Adapter
from ..networks import Network
from . import batches
from .batches import Batch


class Inference:
    """An adapter that computes outputs instead of training.

    Other attributes are the adapter's own.
    """

    has_loss = False

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        statistics = batches.statistics(network) if self._adapter.computes else {}
        self._adapter.prepare_inference(network, weights, statistics, batch)
        self.step = self._adapter.infer
        # An adapter profiles its own step.
        self._adapter.step = self.step  # type: ignore[method-assign]

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Show another mini-batch to the network, whose weights stay: nothing has changed them."""
        self._adapter.show(batch)

    def set_learning_rate(self, rate: float) -> None:
        """Ignore the rate: nothing is trained."""
