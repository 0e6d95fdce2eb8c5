"""JAX: the training step is one jitted function, given the parameters' buffers, that returns them updated."""

import os
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import jax
import jaxlib
import numpy as np

from ..base import Adapter
from ..batches import Batch
from ..networks import LEARNING_RATE, Network
from ..protocol import Cell, Profile
from . import devices, profile
from .networks import CONVOLUTIONS, canonical, held, mean_loss, place

POOL_NAME = "tf_XLAEigen"  # what XLA names the threads that compute on the CPU


class JaxAdapter(Adapter):
    """Trains with jax.jit. ``step`` dispatches the program; the arrays it returns are promises.

    Settings: ``keep_programs`` (default true) keeps compiled programs in the adapter's cache directory; ``pointwise``
    says how 1x1 convolutions are written, a key of ``networks.CONVOLUTIONS``: "convolution" (default) or "product".
    """

    def __init__(self, cell, settings, cache_directory):
        # type: (Cell, Dict[str, Any], str) -> None
        super(JaxAdapter, self).__init__(cell, settings, cache_directory)
        self._device = None  # type: Any
        self._pointwise = str(settings.get("pointwise", "convolution"))
        if self._pointwise not in CONVOLUTIONS:
            known = ", ".join(sorted(CONVOLUTIONS))
            raise ValueError("the setting pointwise is %r; JAX's are %s" % (self._pointwise, known))
        # The CPU has float32 only; where a cell asks it for another, supports() refuses.
        jax.config.update("jax_default_matmul_precision", devices.MATMUL_PRECISIONS.get(cell.precision, "highest"))
        if settings.get("keep_programs", True):
            programs = "programs-%d" % _threads_at_start() if cell.on_cpu else "programs-gpu"
            _keep_programs(os.path.join(cache_directory, programs))

    def supports(self, network):
        # type: (Network) -> Tuple[bool, str]
        """Decline, on a GPU, what this build or this GPU cannot do."""
        if self.cell.on_cpu:
            return super(JaxAdapter, self).supports(network)
        reason = devices.refusal(self.cell)
        return not reason, reason

    def prepare(self, network, weights, batch):
        # type: (Network, Dict[str, np.ndarray], Batch) -> None
        """Put copies of the weights and the mini-batch on the device; JAX compiles at the first step."""
        self._device = devices.find_device(self.cell.device)
        self._parameters = {name: self._put(held(value)) for name, value in weights.items()}
        inputs, labels = place(batch)
        if self.cell.placement == "resident":
            self._batch = self._put(inputs), self._put(labels)
        else:
            self._leave_on_host(inputs, labels)
        self.set_learning_rate(LEARNING_RATE)
        self._loss = None  # type: Any
        narrow = jax.numpy.bfloat16 if self.cell.precision == "bfloat16" else None
        loss = mean_loss(network, CONVOLUTIONS[self._pointwise], narrow)
        self._step = jax.jit(training_step(loss), donate_argnums=0)

    def _leave_on_host(self, *batch):
        # type: (np.ndarray) -> None
        """Keep the mini-batch in the host's memory, pinned or not, and copy it in each step from now on."""
        self._on_host = batch  # type: Any
        if self.cell.placement == "pinned":
            self._on_host = jax.device_put(batch, devices.in_memory(self._device, "pinned_host"))
        self._on_device = devices.in_memory(self._device, "device")
        self.step = self._step_with_copy  # type: ignore[method-assign]

    def step(self):
        # type: () -> None
        """Dispatch the program once."""
        self._parameters, self._loss = self._step(self._parameters, self._rate, *self._batch)

    def _step_with_copy(self):
        # type: () -> None
        batch = jax.device_put(self._on_host, self._on_device)
        self._parameters, self._loss = self._step(self._parameters, self._rate, *batch)

    def synchronize(self):
        # type: () -> None
        """Wait for the loss and for every parameter."""
        jax.block_until_ready((self._parameters, self._loss))

    def set_learning_rate(self, rate):
        # type: (float) -> None
        """Put the rate, an argument of the program, on the device."""
        self._rate = self._put(np.float32(rate))

    def _put(self, value):
        # type: (Any) -> Any
        """Copy a NumPy value into a buffer that JAX owns (device_put alone may share NumPy's), bound to the device."""
        with jax.default_device(self._device):
            return jax.device_put(jax.numpy.array(value, copy=True), self._device)

    def last_loss(self):
        # type: () -> float
        """Return the loss that the last run of the program gave back."""
        return float(self._loss)

    def parameters(self):
        # type: () -> Iterator[Tuple[str, np.ndarray]]
        """Yield the parameters in canonical layout."""
        for name, value in self._parameters.items():
            yield name, canonical(value)

    def describe(self):
        # type: () -> Dict[str, Any]
        """Name JAX's and XLA's versions, the flags in force and how the step is run."""
        device = self._device or devices.find_device(self.cell.device)
        return {
            "framework": "jax",
            "version": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "platform": device.platform,
            "device_kind": device.device_kind,
            "platform_version": device.client.platform_version,
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "matmul_precision": str(jax.config.jax_default_matmul_precision),
            "float64_enabled": bool(jax.config.jax_enable_x64),
            "execution": "one jitted step, parameters' buffers donated",
            "recurrence": "lax.scan",
            "image_layout": "NHWC",
            "pointwise_convolutions": self._pointwise,
            "kept_programs": jax.config.jax_compilation_cache_dir,
            "pool_threads": _pool_threads(),
        }

    def capabilities(self):
        # type: () -> Dict[str, Tuple[bool, str]]
        """Ask JAX for its plugins, for a gradient and for its own start of several processes."""
        plugins = devices.gpu_plugins()
        slope = float(jax.grad(lambda value: value * value)(3.0))
        joins = callable(getattr(jax.distributed, "initialize", None))
        return {
            "gpu": (bool(plugins), "plugins found: " + (", ".join(plugins) or "none, so the CPU only")),
            "automatic_gradients": (slope == 6.0, "jax.grad of x * x at 3 gave %g" % slope),
            "several_processes": (joins, "jax.distributed.initialize is %s" % ("there" if joins else "missing")),
        }

    def multiply(self, size):
        # type: (int) -> Optional[Callable[[], object]]
        """Return a jitted matrix product that waits for its result."""
        random = np.random.RandomState(0)
        left, right = (self._put(random.uniform(-1, 1, (size, size)).astype(np.float32)) for _ in range(2))
        if self.cell.precision == "bfloat16":
            left, right = left.astype(jax.numpy.bfloat16), right.astype(jax.numpy.bfloat16)
        product = jax.jit(jax.numpy.matmul)
        return lambda: product(left, right).block_until_ready()

    def device_name(self):
        # type: () -> str
        """Return the GPU's name as XLA has it."""
        return str(self._device.device_kind)

    def device_peak_memory(self):
        # type: () -> Optional[int]
        """Return what XLA's allocator gave out at most since the process began: JAX cannot reset it."""
        return devices.peak_memory_bytes(self._device)

    def profile(self, steps):
        # type: (int) -> Optional[Profile]
        """Run so many steps under jax.profiler."""
        return profile.take(self, steps)

    def is_out_of_memory(self, error):
        # type: (BaseException) -> bool
        """Recognise XLA's failed allocations by their status code."""
        if isinstance(error, MemoryError):
            return True
        return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


def training_step(loss):
    # type: (Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any, Any], Any]
    """Return the function of one training step: (parameters, rate, inputs, labels) to (updated parameters, loss)."""

    def step(parameters, rate, inputs, labels):
        # type: (Any, Any, Any, Any) -> Any
        value, gradients = jax.value_and_grad(loss)(parameters, inputs, labels)
        updated = {name: parameters[name] - rate * gradients[name] for name in parameters}
        return updated, value

    return step


def _keep_programs(folder):
    # type: (str) -> None
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _threads_at_start():
    # type: () -> int
    """Return how many threads XLA will start: it splits loops for them when it compiles, so programs are kept apart."""
    return int(os.environ.get("NPROC") or len(os.sched_getaffinity(0)))


def _pool_threads():
    # type: () -> Optional[int]
    """Return how many threads XLA's pool on the CPU has; None where this system does not tell."""
    try:
        names = os.listdir("/proc/self/task")
        count = 0
        for name in names:
            with open("/proc/self/task/%s/comm" % name) as file:
                count += file.read().strip() == POOL_NAME
    except OSError:
        return None
    return count


ADAPTER = JaxAdapter
