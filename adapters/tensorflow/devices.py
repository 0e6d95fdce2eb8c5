"""TensorFlow on CUDA GPUs: refusals, precision, instruments, and several workers.

A launch sees as many GPUs as it has workers. A single one is always TensorFlow's GPU 0, where
TensorFlow puts everything that it has GPU kernels for. With several workers it is the first
worker's, and the instruments show that one.
"""

import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow as tf

from ..base import Adapter, slope_found
from ..launch.batches import Batch
from ..launch.team import part_of
from ..libraries import gpus, profiles
from ..libraries.gpus import Probe
from ..networks import Network
from ..protocol import Cell, Profile
from .networks import TensorFlowNetwork, clipped, place, update

DEVICE = "GPU:0"
PRECISIONS = ("float32", "tf32")


def capabilities() -> Dict[str, Tuple[bool, str]]:
    """Return what this build of TensorFlow can do: see `Adapter.capabilities`."""
    value = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        square = value * value
    workers = hasattr(tf.distribute, "MultiWorkerMirroredStrategy")
    built = tf.sysconfig.get_build_info()
    toolkits = built.get("is_cuda_build"), built.get("is_rocm_build")
    return {
        "gpu": (any(toolkits), "build info: CUDA %s, ROCm %s" % toolkits),
        "automatic_gradients": slope_found(float(tape.gradient(square, value))),
        "several_processes": (
            workers,
            "MultiWorkerMirroredStrategy is %s" % ("there" if workers else "missing"),
        ),
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether this exception of TensorFlow means that memory ran out."""
    return isinstance(error, (MemoryError, tf.errors.ResourceExhaustedError))


def refusal(adapter: Adapter) -> str:
    """Return why this build of TensorFlow cannot run the cell on a GPU; empty where it can."""
    cell = adapter.cell
    version = "TensorFlow %s" % tf.version.VERSION
    reason = gpus.refusal(cell, "TensorFlow", PRECISIONS)
    if reason:
        return reason
    built = tf.sysconfig.get_build_info()
    if not built.get("is_cuda_build"):
        return "%s: this build has no CUDA code: %s" % (version, gpus.advice(cell))
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        words = (
            "%s, built for CUDA %s, sees no GPU: its CUDA libraries or the driver are missing or "
            "too old"
        )
        return words % (version, built.get("cuda_version", "(unknown)"))
    if len(devices) < cell.world_size:
        words = "world size %d: each worker needs its own GPU, and %s sees %d"
        return words % (cell.world_size, version, len(devices))
    architectures = list(built.get("cuda_compute_capabilities") or [])
    for capability in map(compute_capability, devices[: cell.world_size]):
        if capability is not None and not reason:
            reason = gpus.refusal_of_build(cell, version, architectures, capability)
    return reason


def compute_capability(device: Any) -> Optional[Tuple[int, int]]:
    """Return a GPU's compute capability; None where TensorFlow does not know it."""
    capability = tf.config.experimental.get_device_details(device).get("compute_capability")
    return None if capability is None else (int(capability[0]), int(capability[1]))


def set_up(precision: str) -> None:
    """Take memory as it is needed and not all at once, and switch TF32 on or off.

    Float32 products and convolutions use it at the precision tf32.
    """
    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)
    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")


def placed(tensor: Any, device: str = DEVICE) -> Any:
    """Return the tensor on this GPU.

    Whole numbers in 32 bits would stay on the host, and be copied in each step.
    """
    with tf.device(device):
        return tf.cast(tensor, tf.int64) if tensor.dtype.is_integer else tf.identity(tensor)


def constant(array: Any) -> Any:
    """Return an array as a tensor on the GPU."""
    return placed(tf.constant(array))


def synchronize() -> None:
    """Wait until the GPU is idle."""
    with tf.device(DEVICE):
        tf.raw_ops.SyncDevice()


def synchronize_all() -> None:
    """Wait until all GPUs are idle."""
    for device in tf.config.list_logical_devices("GPU"):
        with tf.device(device.name):
            tf.raw_ops.SyncDevice()


def probe(name: str, size: int) -> Optional[Probe]:
    """Return the probe `gpus.COPY`; None for any other name.

    TensorFlow does not document whether its copies from and to the host go through page-locked
    memory, and the operators of a step, which is one graph, are not started one by one.
    """
    if name != gpus.COPY:
        return None
    with tf.device(DEVICE):
        # A type for which DeepCopy has a kernel on GPUs.
        source = tf.fill([size // 4], tf.constant(1.0, tf.float32))
    copied(source)  # raises where there is no kernel for it
    return Probe(lambda: copied(source), synchronize)


def copied(source: Any) -> Any:
    """Return a copy.

    Raises RuntimeError where TensorFlow silently put it, or the source, elsewhere.
    """
    with tf.device(DEVICE):
        copy = tf.raw_ops.DeepCopy(x=source)
    for tensor in (source, copy):
        if not tensor.device.endswith(DEVICE):
            raise RuntimeError("the copy is of %s, not of %s" % (tensor.device, DEVICE))
    return copy


def peak_memory_bytes() -> int:
    """Return the peak of TensorFlow's allocator on the GPU since the last reset."""
    return int(tf.config.experimental.get_memory_info(DEVICE)["peak"])


def reset_peak_memory() -> None:
    """Let TensorFlow's allocator forget its peak."""
    tf.config.experimental.reset_memory_stats(DEVICE)


def name() -> str:
    """Return the GPU's model."""
    device = tf.config.list_physical_devices("GPU")[0]
    return str(tf.config.experimental.get_device_details(device).get("device_name", device.name))


def describe_gpu() -> Dict[str, Any]:
    """Return the GPU as TensorFlow sees it, and the libraries that drive it."""
    built = tf.sysconfig.get_build_info()
    capability = compute_capability(tf.config.list_physical_devices("GPU")[0])
    return {
        "device": name(),
        "compute_capability": None if capability is None else "%d.%d" % capability,
        "cuda": built.get("cuda_version"),
        "cudnn": built.get("cudnn_version"),
        "architectures": list(built.get("cuda_compute_capabilities") or []),
        "tf32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
    }


# Data-parallel training with TensorFlow's own engine, MirroredStrategy, which drives all workers
# from one process.
#
# A worker is a GPU, or on the CPU one of several logical CPU devices that TensorFlow makes of it.
# Each holds a copy of every variable and its own part of the mini-batch. Batch normalisation uses
# each worker's own part, the strategy's default.


def set_up_cpu(workers: int) -> None:
    """Make this many logical devices of the CPU, each with its own intra-op pool.

    Call it before TensorFlow's first use. With the one pool that devices share otherwise, the
    operations of all workers would queue for one worker's threads. Were that pool as large as all
    of them together, each operation would be split for all threads, and compete with as many
    others.
    """
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration() for _ in range(workers)],
    )


def reduction(on_cpu: bool) -> Any:
    """Return the operation that sums gradients over workers; None for the strategy's own choice."""
    # Between logical devices of the CPU a copy costs nothing: with one sum for all a step took two
    # thirds of the CPU time that it took with the strategy's choice there, a ring. On GPUs its
    # choice is NCCL.
    return tf.distribute.ReductionToOneDevice() if on_cpu else None


def describe_workers(on_cpu: bool) -> Dict[str, Any]:
    """Return the engine, and how it sums gradients over workers."""
    operation = reduction(on_cpu)
    name = "CollectiveAllReduce over NCCL" if operation is None else type(operation).__name__
    return {"engine": "MirroredStrategy", "reduction": name}


class MirroredWorkers:
    """The workers of a cell under one strategy."""

    def __init__(self, cell: Cell) -> None:
        self._on_cpu = cell.on_cpu
        kind = "CPU" if cell.on_cpu else "GPU"
        self._devices = ["%s:%d" % (kind, worker) for worker in range(cell.world_size)]
        self._strategy = tf.distribute.MirroredStrategy(
            self._devices, cross_device_ops=reduction(cell.on_cpu)
        )

    def scope(self) -> Any:
        return self._strategy.scope()

    def split(self, network: Network, batch: Batch) -> Tuple[Any, Any]:
        """Return inputs and labels in equal parts, each resident on its worker's device."""
        workers = len(self._devices)
        all_inputs = []
        all_labels = []
        for worker, device in enumerate(self._devices):
            inputs, labels = place(network, part_of(batch, worker, workers))
            all_inputs.append(self._placed(inputs, device))
            all_labels.append(self._placed(labels, device))
        return self._together(all_inputs), self._together(all_labels)

    def _placed(self, tensor: Any, device: str) -> Any:
        if not self._on_cpu:
            return placed(tensor, device)
        with tf.device(device):
            return tf.identity(tensor)

    def _together(self, tensors: List[Any]) -> Any:
        return self._strategy.experimental_distribute_values_from_function(
            lambda context: tensors[context.replica_id_in_sync_group]
        )

    def training_step(
        self, model: TensorFlowNetwork, rate: Any, compiled: bool
    ) -> Callable[[Any, Any], Any]:
        """Return the function of one training step on what ``split`` returned.

        It returns each worker's share of the mean loss. All update with the sum of these shares'
        gradients: the mean gradient of the whole mini-batch. With ``compiled`` XLA compiles a
        worker's loss and gradients. It cannot compile functions that span devices.
        """
        strategy = self._strategy
        workers = len(self._devices)
        variables = list(model.w.values())

        def gradients(inputs: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = model.loss(inputs, labels) / workers
            return loss, tape.gradient(loss, variables)

        if compiled:
            gradients = tf.function(gradients, jit_compile=True, autograph=False)

        def update_all(strategy: Any, own: Any) -> None:
            summed = own
            if not model.family.clip:
                summed = strategy.extended.batch_reduce_to(
                    tf.distribute.ReduceOp.SUM, list(zip(own, variables))
                )
            for variable, gradient in zip(variables, summed):
                strategy.extended.update(variable, update, args=(gradient, rate), group=False)

        def worker(inputs: Any, labels: Any) -> Any:
            loss, own = gradients(inputs, labels)
            if model.family.clip:
                # The sum is clipped, so every worker needs all of it first.
                own = clipped(model, tf.distribute.get_replica_context().all_reduce("SUM", own))
            tf.distribute.get_replica_context().merge_call(update_all, args=(own,))
            return loss

        def step(inputs: Any, labels: Any) -> Any:
            return strategy.run(worker, args=(inputs, labels))

        return step

    def mean(self, shares: Any) -> float:
        results = self._strategy.experimental_local_results(shares)
        return float(sum(float(share.numpy()) for share in results))


PROFILER = "tf.profiler"


def take_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under the profiler."""
    with tempfile.TemporaryDirectory(
        prefix="tensorflow-", dir=adapter.cache_directory
    ) as directory:
        tf.profiler.experimental.start(directory)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        tf.profiler.experimental.stop()
        lines = profiles.tsl_lines_in(directory)
    calls = profiles.tsl_calls(lines, adapter.cell.on_cpu)
    return profiles.profile(PROFILER, steps, seconds, calls)
