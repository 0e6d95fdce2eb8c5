"""Data-parallel training with TensorFlow's own engine, MirroredStrategy, which drives all workers from one process.

A worker is a GPU, or on the CPU one of several logical CPU devices that TensorFlow makes of it. Each holds a copy of
every variable and its own part of the mini-batch. Batch normalisation uses each worker's own part, as the strategy
does unless told otherwise.
"""

import os
from typing import Any, Callable, Dict, List, Tuple

import tensorflow as tf

from ..launch.batches import Batch
from ..launch.team import part_of
from ..networks import Network
from ..protocol import Cell
from . import gpu
from .networks import Model, place
from .training import clipped, update


def set_up_cpu(workers: int) -> None:
    """Make so many logical devices of the CPU, each with an intra-op pool of its own; before TensorFlow's first use.

    With the one pool that devices share otherwise, the operations of all workers would queue for one worker's threads;
    were that pool as large as all of them together, each operation would be cut up for all, beside as many others.
    """
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration() for _ in range(workers)]
    )


def reduction(on_cpu: bool) -> Any:
    """Return what sums gradients over workers; None for the strategy's own choice."""
    # Between logical devices of the CPU a copy costs nothing: with one sum for all a step took two thirds of the CPU
    # time that it took with the strategy's choice there, a ring. On GPUs its choice is NCCL.
    return tf.distribute.ReductionToOneDevice() if on_cpu else None


def describe(on_cpu: bool) -> Dict[str, Any]:
    """Name the engine, and how it sums gradients over workers."""
    chosen = reduction(on_cpu)
    by = "CollectiveAllReduce over NCCL" if chosen is None else type(chosen).__name__
    return {"engine": "MirroredStrategy", "reduction": by}


class Workers:
    """The workers of a cell under one strategy."""

    def __init__(self, cell: Cell) -> None:
        self._on_cpu = cell.on_cpu
        self._devices = ["%s:%d" % ("CPU" if cell.on_cpu else "GPU", worker) for worker in range(cell.world_size)]
        self._strategy = tf.distribute.MirroredStrategy(self._devices, cross_device_ops=reduction(cell.on_cpu))

    def scope(self) -> Any:
        """Return the context in which every variable is made once for each worker."""
        return self._strategy.scope()

    def deal(self, network: Network, batch: Batch) -> Tuple[Any, Any]:
        """Return inputs and labels dealt out to the workers in equal parts, each resident on its worker's device."""
        workers = len(self._devices)
        parts = [
            [self._placed(tensor, device) for tensor in place(network, part_of(batch, worker, workers))]
            for worker, device in enumerate(self._devices)
        ]
        return self._together([inputs for inputs, _ in parts]), self._together([labels for _, labels in parts])

    def _placed(self, tensor: Any, device: str) -> Any:
        if not self._on_cpu:
            return gpu.placed(tensor, device)
        with tf.device(device):
            return tf.identity(tensor)

    def _together(self, tensors: List[Any]) -> Any:
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: tensors[context.replica_id_in_sync_group]
        )

    def training_step(self, model: Model, rate: Any, compiled: bool) -> Callable[[Any, Any], Any]:
        """Return the function of one training step with what ``deal`` returned.

        It returns each worker's share of the mean loss. All update with the sum of these shares' gradients: the mean
        gradient of the whole mini-batch. With ``compiled`` XLA compiles a worker's loss and gradients; it cannot
        compile what spans devices.
        """
        strategy, workers = self._strategy, len(self._devices)
        variables = model.variables.all()

        def gradients(inputs: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = model.loss(inputs, labels) / workers
            return loss, tape.gradient(loss, variables)

        if compiled:
            gradients = tf.function(gradients, jit_compile=True, autograph=False)

        def updated(strategy: Any, found: Any) -> None:
            summed = found
            if not model.clip:
                summed = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, list(zip(found, variables)))
            for variable, gradient in zip(variables, summed):
                strategy.extended.update(variable, update, args=(gradient, rate), group=False)

        def worker(inputs: Any, labels: Any) -> Any:
            loss, found = gradients(inputs, labels)
            if model.clip:  # what is clipped is the sum, so every worker needs all of it first
                found = clipped(model, tf.distribute.get_replica_context().all_reduce("SUM", found))
            tf.distribute.get_replica_context().merge_call(updated, args=(found,))
            return loss

        def step(inputs: Any, labels: Any) -> Any:
            return strategy.run(worker, args=(inputs, labels))

        return step

    def mean(self, shares: Any) -> float:
        """Return the mean loss from what a step returned."""
        return float(sum(float(share.numpy()) for share in self._strategy.experimental_local_results(shares)))
