"""JAX's devices: refusals, memory, probes, several workers, and profiles."""

import importlib.metadata
import os
import tempfile
from typing import Any, Callable, Dict, List, Optional, Tuple

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..base import Adapter, slope_found
from ..families import Family
from ..launch.batches import Batch
from ..launch.team import part_of
from ..libraries import gpus, profiles
from ..libraries.gpus import Probe
from ..protocol import PLACEMENTS, Cell, Profile
from .networks import place

#: The value of jax_default_matmul_precision for each precision of a cell. It applies to products
#: and convolutions. On a GPU XLA takes TF32 for float32 unless "highest" forbids it.
MATMUL_PRECISIONS = {"float32": "highest", "tf32": "tensorfloat32", "bfloat16": "default"}


def find_devices(name: str) -> List[Any]:
    """Return JAX's devices for a cell's "cpu" or "PLATFORM:INDEX".

    JAX does not start any other platform. The index is the host's: a launch sees only the GPUs of
    its workers, and those are JAX's, in order.
    """
    platform = name.partition(":")[0]
    jax.config.update("jax_platforms", platform)
    return list(jax.devices(platform))


def gpu_plugins() -> List[str]:
    """Return the names of the GPU plugins that this interpreter's JAX would load."""
    entries = importlib.metadata.entry_points(group="jax_plugins")
    return sorted(entry.name for entry in entries if "cuda" in entry.name or "rocm" in entry.name)


def capabilities() -> Dict[str, Tuple[bool, str]]:
    """Return what this interpreter's JAX can do: see `Adapter.capabilities`."""
    plugins = gpu_plugins()
    joins = callable(getattr(jax.distributed, "initialize", None))
    return {
        "gpu": (bool(plugins), "plugins found: " + (", ".join(plugins) or "none, so the CPU only")),
        "automatic_gradients": slope_found(float(jax.grad(lambda value: value * value)(3.0))),
        "several_processes": (
            joins,
            "jax.distributed.initialize is %s" % ("there" if joins else "missing"),
        ),
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether this exception of JAX means that memory ran out."""
    exhausted = isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
    return exhausted or isinstance(error, MemoryError)


def refusal(adapter: Adapter) -> str:
    """Return why this interpreter's JAX cannot run the cell on a GPU; empty where it can."""
    cell = adapter.cell
    version = "JAX %s" % jax.__version__
    if cell.precision == "float16":
        return (
            "precision float16: JAX has no scaling of the loss, without which small gradients "
            "become zero"
        )
    reason = gpus.refusal(cell, "JAX", tuple(MATMUL_PRECISIONS), PLACEMENTS)
    if reason:
        return reason
    plugins = gpu_plugins()
    names = ", ".join(plugins) or "none"
    if "cuda" not in names:
        words = "%s: no plugin for CUDA is installed (found: %s): %s"
        return words % (version, names, gpus.advice(cell))
    try:
        device = find_devices(cell.device)[0]
    except (RuntimeError, AssertionError) as error:
        # A driver too old, or a GPU that does not answer.
        return "%s with %s cannot use the GPU: %s" % (version, names, gpus.first_line(error))
    capability = compute_capability(device)
    return "" if capability is None else gpus.refusal_of_build(cell, version, (), capability)


def compute_capability(device: Any) -> Optional[Tuple[int, int]]:
    """Return a GPU's compute capability; None where JAX does not know it."""
    major, _, minor = str(getattr(device, "compute_capability", "")).partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def peak_memory_bytes(devices: List[Any]) -> Optional[int]:
    """Return the peak of JAX's allocator since it started; None if it is unknown.

    It is that of the device where it is largest.
    """
    peaks = []
    for device in devices:
        peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
        if peak is not None:
            peaks.append(int(peak))
    return max(peaks) if peaks else None


def in_memory(place: Any, kind: str) -> Any:
    """Return the sharding of a device's memory, or of a sharding's: "device" or "pinned_host"."""
    if isinstance(place, jax.sharding.Sharding):
        return place.with_memory_kind(kind)
    return jax.sharding.SingleDeviceSharding(place, memory_kind=kind)


def probe(name: str, size: int, device: Any) -> Optional[Probe]:
    """Return JAX's probe of this name, for arrays of this many bytes, or None.

    Names: see ``libraries/gpus.py``. It has none of the smallest operator, since a step is one
    program whose operators XLA starts itself, nor of the copy back into ordinary memory, since an
    array keeps the copy that it was once read as. Every array is written to before: pages of the
    host that never were may all be one.
    """
    copy = _copies(size, device).get(name)
    if copy is None:
        return None
    copied = copy()
    # All since the last wait, as transfers may end in another order than they began.
    results: List[Any] = []

    def start() -> None:
        if name == gpus.COPY:
            # A program's runs end in their order, and the device need not hold all of their
            # results.
            del results[:]
        results.append(copied())

    def wait() -> None:
        jax.block_until_ready(results)
        del results[:]

    return Probe(start, wait)


def _copies(size: int, device: Any) -> Dict[str, Callable[[], Callable[[], Any]]]:
    """Return by name a call that makes the array to copy.

    It returns the call that copies the array once.
    """
    on_gpu = in_memory(device, "device")
    pinned = in_memory(device, "pinned_host")

    def between(source: Any, target: Any) -> Callable[[], Any]:
        # A copy, even where the device could read the host's memory in its place.
        return lambda: jax.device_put(source, target, may_alias=False)

    def on_device() -> Callable[[], Any]:
        copied = jax.jit(jax.numpy.copy)
        source = _filled(size, on_gpu)
        return lambda: copied(source)

    return {
        gpus.COPY: on_device,
        gpus.TO_DEVICE_PINNED: lambda: between(_filled(size, pinned), on_gpu),
        gpus.TO_DEVICE_PAGEABLE: lambda: between(np.full(size, 1, np.uint8), on_gpu),
        gpus.FROM_DEVICE_PINNED: lambda: between(_filled(size, on_gpu), pinned),
    }


def _filled(size: int, home: Any) -> Any:
    return jax.device_put(np.full(size, 1, np.uint8), home)


# Data-parallel training with JAX's own sharding: one jitted program over a mesh of devices, each of
# them a worker.
#
# Parameters are replicated, the mini-batch is split. Within the program `jax.shard_map` gives every
# worker the loss of its own part, and one all-reduce gives the mean of all gradients: a worker
# computes as it would alone. So batch normalisation uses each worker's own part of the mini-batch,
# the default of data-parallel engines. Were the split left to the compiler, every batch
# normalisation would wait for all workers, and where the steps and the rows of a recurrent network
# become one axis there would be none.

AXIS = "batch"  # the mesh's one axis, along which the mini-batch is split
#: By default XLA kills the process where a worker on the CPU arrives at a meeting a minute after
#: another. With fewer CPUs than workers that may be a slow step; for one that never arrives the
#: host has its own time limit.
PATIENCE = "--xla_cpu_collective_call_terminate_timeout_seconds"
PATIENCE_SECONDS = 3600

#: (parameters, inputs, labels) -> (loss, gradients)
Differentiated = Callable[[Any, Any, Any], Tuple[Any, Any]]


def workers_refusal() -> str:
    """Return why this version of JAX cannot train with several workers; empty where it can."""
    missing = []
    if not hasattr(jax, "shard_map"):
        missing.append("jax.shard_map")
    if "jax_num_cpu_devices" not in jax.config.values:
        missing.append("the setting jax_num_cpu_devices")
    if not missing:
        return ""
    return "JAX %s: its workers need %s" % (jax.__version__, " and ".join(missing))


def start_workers(cell: Cell) -> None:
    """Ask for the threads of all workers and, on the CPU, a device for each.

    Call it before JAX's first operation. All devices of the CPU compute on one pool of threads.
    """
    if cell.threads:
        os.environ["NPROC"] = str(cell.all_threads - cell.helpers)
    if cell.on_cpu:
        jax.config.update("jax_num_cpu_devices", cell.world_size)
        flags = os.environ.get("XLA_FLAGS", "")
        if PATIENCE not in flags:
            os.environ["XLA_FLAGS"] = ("%s %s=%d" % (flags, PATIENCE, PATIENCE_SECONDS)).strip()


class ShardedWorkers:
    """The devices that train together, and their shardings."""

    def __init__(self, devices: List[Any], family: Family) -> None:
        """Lay the devices out along the mini-batch of this family."""
        self._family = family
        self._count = len(devices)
        self._mesh = Mesh(np.array(devices), (AXIS,))
        #: Where each worker has all of a value.
        self.everywhere = NamedSharding(self._mesh, PartitionSpec())
        #: Where each worker has a value of its own: one place along the first axis.
        self.one_each = NamedSharding(self._mesh, PartitionSpec(AXIS))

    def parts(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        """Return copies of inputs and labels as `networks.place` lays them out, part by part.

        Where the steps come first the labels of a part are time-major and follow those of the part
        before: a worker's labels are contiguous, whose tokens are a slice of the second axis.
        """
        all_inputs = []
        all_labels = []
        for worker in range(self._count):
            inputs, labels = place(self._family, part_of(batch, worker, self._count))
            all_inputs.append(inputs)
            all_labels.append(labels)
        axis = 1 if self._family.time_major else 0
        return np.concatenate(all_inputs, axis=axis), np.concatenate(all_labels)

    def split(self) -> Tuple[Any, Any]:
        """Return the shardings of the inputs and the labels that ``parts`` returns."""
        inputs = PartitionSpec(None, AXIS) if self._family.time_major else PartitionSpec(AXIS)
        return NamedSharding(self._mesh, inputs), NamedSharding(self._mesh, PartitionSpec(AXIS))

    def share(self, differentiated: Differentiated) -> Differentiated:
        """Return the mean over all workers of a function of each one's part."""
        everywhere = self.everywhere.spec
        inputs, labels = self.split()

        def mean(parameters: Any, inputs: Any, labels: Any) -> Any:
            return lax.pmean(differentiated(parameters, inputs, labels), AXIS)

        return self._mapped(mean, (everywhere, inputs.spec, labels.spec), everywhere)

    def apart(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step that each worker takes on parameters of its own.

        It takes its part of the mini-batch. The step returns the parameters and the losses of all
        workers, and none waits for another.
        """
        own = self.one_each.spec
        inputs, labels = self.split()

        def worker_step(parameters: Any, rate: Any, inputs: Any, labels: Any) -> Any:
            own_parameters = {name: value[0] for name, value in parameters.items()}
            updated, loss = step(own_parameters, rate, inputs, labels)
            return {name: value[None] for name, value in updated.items()}, loss[None]

        places = (own, self.everywhere.spec, inputs.spec, labels.spec)
        return self._mapped(worker_step, places, (own, own))

    def average(self, parameters: Any) -> Any:
        """Return the parameters of all workers, each worker's the mean of theirs."""
        own = self.one_each.spec
        return self._mapped(lambda values: lax.pmean(values, AXIS), (own,), own)(parameters)

    def _mapped(self, function: Callable[..., Any], given: Any, returned: Any) -> Any:
        """Return the function of all workers from that of one.

        Its arguments and its results have these places.
        """
        # JAX cannot infer that a scan's zero state, the same everywhere, becomes a worker's own: no
        # check.
        return jax.shard_map(
            function, mesh=self._mesh, in_specs=given, out_specs=returned, check_vma=False
        )

    def describe(self) -> Dict[str, Any]:
        return {
            "engine": "jit over a mesh of %d devices" % self._count,
            "split": "jax.shard_map, gradients by lax.pmean",
            "devices": [str(device) for device in self._mesh.devices.flat],
            "batch_statistics": "each worker's own part",
        }


PROFILER = "jax.profiler"


def take_profile(adapter: Adapter, steps: int) -> Profile:
    """Run this many steps under the profiler."""
    with tempfile.TemporaryDirectory(prefix="jax-", dir=adapter.cache_directory) as directory:
        if hasattr(jax.profiler, "ProfileOptions"):
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0  # a step's Python is a few lines; tracing them slows it
            jax.profiler.start_trace(directory, profiler_options=options)
        else:
            jax.profiler.start_trace(directory)
        seconds = profiles.run(adapter.step, adapter.synchronize, steps)
        jax.profiler.stop_trace()
        lines = profiles.tsl_lines_in(directory)
    calls = profiles.tsl_calls(lines, adapter.cell.on_cpu)
    return profiles.profile(PROFILER, steps, seconds, calls)
