"""Data-parallel training with JAX's own sharding: one jitted program over a mesh of devices, each of them a worker.

Parameters are replicated, the mini-batch is split. Within the program `jax.shard_map` gives every worker the loss of
its own part, and one all-reduce gives the mean of all gradients: a worker computes just what it would compute alone.
Batch normalisation so uses each worker's own part of the mini-batch, as data-parallel engines do unless told otherwise.
Were the split left to the compiler alone, every batch normalisation would wait for all workers, and where the steps and
the rows of a recurrent network become one axis there would be none.
"""

import os
from typing import Any, Callable, Dict, List, Tuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..families import Family
from ..launch.batches import Batch
from ..launch.team import part_of
from ..protocol import Cell
from .networks import place

AXIS = "batch"  # the mesh's one axis, along which the mini-batch is split
#: Unless told otherwise XLA kills the process where a worker on the CPU comes a minute after another to where they
#: meet. With fewer CPUs than workers that may be a slow step; for one that never comes the host has its own time limit.
PATIENCE = "--xla_cpu_collective_call_terminate_timeout_seconds"
PATIENCE_SECONDS = 3600

Differentiated = Callable[[Any, Any, Any], Tuple[Any, Any]]  # (parameters, inputs, labels) -> (loss, gradients)


def refusal() -> str:
    """Return why this version of JAX cannot train with several workers; empty where it can."""
    missing = [name for name, there in _needed().items() if not there]
    return "JAX %s: its workers need %s" % (jax.__version__, " and ".join(missing)) if missing else ""


def _needed() -> Dict[str, bool]:
    return {
        "jax.shard_map": hasattr(jax, "shard_map"),
        "the setting jax_num_cpu_devices": "jax_num_cpu_devices" in jax.config.values,
    }


def start(cell: Cell) -> None:
    """Ask for the threads of all workers and, on the CPU, a device for each; before JAX's first operation.

    All devices of the CPU compute on one pool of threads.
    """
    if cell.threads:
        os.environ["NPROC"] = str(cell.all_threads)
    if cell.on_cpu:
        jax.config.update("jax_num_cpu_devices", cell.world_size)
        flags = os.environ.get("XLA_FLAGS", "")
        if PATIENCE not in flags:
            os.environ["XLA_FLAGS"] = ("%s %s=%d" % (flags, PATIENCE, PATIENCE_SECONDS)).strip()


class Workers:
    """The devices that train together, and where they keep what."""

    def __init__(self, devices: List[Any], family: Family) -> None:
        """Lay the devices out along the mini-batch of this family."""
        self._family = family
        self._count = len(devices)
        self._mesh = Mesh(np.array(devices), (AXIS,))
        #: Where each worker has all of a value.
        self.everywhere = NamedSharding(self._mesh, PartitionSpec())

    def deal(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        """Return copies of inputs and labels as `networks.place` lays them out, part by part.

        Where the steps come first the labels of a part are time-major and follow those of the part before: a worker's
        labels are contiguous, whose tokens are a slice of the second axis.
        """
        parts = [place(self._family, part_of(batch, worker, self._count)) for worker in range(self._count)]
        axis = 1 if self._family.time_major else 0
        inputs = np.concatenate([each for each, _ in parts], axis=axis)
        return inputs, np.concatenate([each for _, each in parts])

    def split(self) -> Tuple[Any, Any]:
        """Return the shardings of the inputs and the labels that ``deal`` returns."""
        inputs = PartitionSpec(None, AXIS) if self._family.time_major else PartitionSpec(AXIS)
        return NamedSharding(self._mesh, inputs), NamedSharding(self._mesh, PartitionSpec(AXIS))

    def share(self, differentiated: Differentiated, along: Tuple[Any, Any]) -> Differentiated:
        """Return the mean over all workers of what a function says of each one's part, dealt out as `deal` did it."""

        def mean(parameters: Any, inputs: Any, labels: Any) -> Any:
            return lax.pmean(differentiated(parameters, inputs, labels), AXIS)

        everywhere, (inputs, labels) = PartitionSpec(), along
        # JAX cannot tell by itself that a scan's zero state, the same everywhere, becomes a worker's own: no check.
        return jax.shard_map(
            mean,
            mesh=self._mesh,
            in_specs=(everywhere, inputs.spec, labels.spec),
            out_specs=everywhere,
            check_vma=False,
        )

    def describe(self) -> Dict[str, Any]:
        """Name the engine and what it does with the mini-batch."""
        return {
            "engine": "jit over a mesh of %d devices" % self._count,
            "split": "jax.shard_map, gradients by lax.pmean",
            "devices": [str(device) for device in self._mesh.devices.flat],
            "batch_statistics": "each worker's own part",
        }
