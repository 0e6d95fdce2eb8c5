"""The reference: the training step in NumPy, differentiated by hand, in float64.

It shares no code with any framework, not even the walks through the families, and its derivatives
are written by hand, so that an agreement with it is one of two independent derivations. Settings:
``dtype``, "float64" (default) or "float32", the latter to see the effect of rounding alone on the
parity figures.

With local steps it is all workers of the cell in turn, each an adapter of its own for its part of
the mini-batch.
"""

from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Type

import numpy as np

from ..base import ONE_PROCESS, SAMPLING, EveryFamily
from ..families import (
    Attention,
    Convolutional,
    Elman,
    Family,
    Feedforward,
    Recurrent,
    Residual,
    Spiking,
)
from ..launch.batches import Batch, by_example
from ..launch.feeds import Feed, ahead
from ..launch.team import part_of
from ..networks import Network
from ..protocol import EVERY_STEP
from .networks import AttentionModel, ChainModel, ResidualModel
from .recurrent import ElmanModel, RecurrentModel, SpikingModel
from .sampling import MACHINES


class ReferenceAdapter(EveryFamily):
    """Plain NumPy; slow, and right."""

    further_axes = ("sync", "task")
    feeds = True
    #: The model of each family. A test of the parity check puts a wrong one in its place.
    models: Dict[Type[Family], Any] = {
        Feedforward: ChainModel,
        Convolutional: ChainModel,
        Recurrent: RecurrentModel,
        Residual: ResidualModel,
        Elman: ElmanModel,
        Attention: AttentionModel,
        Spiking: SpikingModel,
        **MACHINES,
    }
    families = (*EveryFamily.families, "lif", *SAMPLING)
    #: The workers of a cell with local steps. Without any this adapter computes the whole
    #: mini-batch itself.
    workers: "Tuple[ReferenceAdapter, ...]" = ()
    taken = 0  # steps of the workers since the last reset

    def set_up(self) -> None:
        self.dtype = np.dtype(self.settings.get("dtype", "float64"))
        self.rate = 0.0
        self.loss = float("nan")
        if self.cell.local_steps:
            self.data_parallel = ONE_PROCESS
            alone = self.cell._replace(world_size=1, sync=EVERY_STEP)
            workers = []
            for _ in range(self.cell.world_size):
                workers.append(type(self)(alone, self.settings, self.cache_directory))
            self.workers = tuple(workers)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        for number, worker in enumerate(self.workers):
            worker.prepare(network, weights, part_of(batch, number, len(self.workers)))
        if self.workers:
            return
        self.weights = {name: value.astype(self.dtype) for name, value in weights.items()}
        self.place(batch)
        self.model: Any = self.models[type(network.family)](network.family, self.weights)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Copy them into their place.

        The states of chains are the only ones that a step leaves to the next.
        """
        self.taken = 0
        for number, worker in enumerate(self.workers):
            worker.reset(weights, part_of(batch, number, len(self.workers)))
        if self.workers:
            return
        for name, value in weights.items():
            self.weights[name][...] = value
        self.place(batch)
        if not self.model.family.trains:
            self.model.start(self.labels.astype(self.dtype))

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self.prepare(network, weights, batch)
        self.model.statistics = {
            name: value.astype(self.dtype) for name, value in statistics.items()
        }

    def infer(self) -> None:
        self.result = self.model.outputs(self.inputs)

    def show(self, batch: Batch) -> None:
        self.place(batch)

    def outputs(self) -> np.ndarray:
        return by_example(self.model.family, self.result, len(self.inputs))

    def place(self, batch: Batch) -> None:
        """Copy the mini-batch; tokens and labels stay integers."""
        self.inputs, self.labels = [
            values.copy() if values.dtype.kind == "i" else np.array(values, self.dtype, order="C")
            for values in batch
        ]

    def hand_over(self, batch: Batch) -> Batch:
        return batch

    def take(self, ready: Batch) -> None:
        self.place(ready)

    def load(self, feed: Feed) -> Iterator[Batch]:
        workers = self.cell.loader_workers
        return ahead(feed.__getitem__, workers, 2 * workers)

    def step(self) -> None:
        if self.workers:
            self.step_of_workers()
            return
        self.loss = self.model.forward(self.inputs, self.labels)
        gradients = self.model.backward()
        for name, gradient in self.clip(gradients) if self.model.family.clip else gradients:
            self.update(name, gradient)

    def step_of_workers(self) -> None:
        """Let each worker take a step of its own; average their parameters where it is time."""
        for worker in self.workers:
            worker.step()
        self.loss = float(np.mean([worker.loss for worker in self.workers]))
        self.taken += 1
        if self.taken % self.cell.local_steps == 0:
            self.exchange()

    def exchange(self) -> None:
        """Give every worker the mean of all workers' parameters."""
        first, *others = self.workers
        for name, mean in first.weights.items():
            for worker in others:
                mean += worker.weights[name]
            mean /= len(self.workers)
            for worker in others:
                worker.weights[name][...] = mean

    def clip(self, gradients: Iterator[Tuple[str, np.ndarray]]) -> Iterator[Tuple[str, np.ndarray]]:
        """Scale all gradients down together where their norm is larger than the family allows.

        See Pascanu et al. 2013.
        """
        kept = dict(gradients)
        norm = np.sqrt(sum(float(np.sum(np.square(gradient))) for gradient in kept.values()))
        scale = self.dtype.type(min(1.0, self.model.family.clip / norm))
        for name, gradient in kept.items():
            yield name, gradient * scale

    def update(self, name: str, gradient: np.ndarray) -> None:
        """Move one parameter down its gradient, whose memory is used up."""
        gradient *= self.dtype.type(self.rate)
        self.weights[name] -= gradient

    def set_learning_rate(self, rate: float) -> None:
        self.rate = rate
        for worker in self.workers:
            worker.rate = rate

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        first = self.workers[0] if self.workers else self
        return iter(first.weights.items())

    def describe(self) -> Dict[str, Any]:
        return {"framework": "numpy", "version": np.__version__, "dtype": self.dtype.name}

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        left = np.ones((size, size), np.float32)
        right = np.ones((size, size), np.float32)
        out = np.ones((size, size), np.float32)
        return lambda: np.matmul(left, right, out=out)


ADAPTER = ReferenceAdapter
