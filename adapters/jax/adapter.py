"""JAX: the training step is one jitted function of the parameters, which returns them updated."""

import os
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from ..base import ONE_PROCESS, SAMPLING, EveryFamily, factors
from ..families import LEARNING_RATE
from ..launch.batches import Batch, Block, RmsProp, by_example
from ..launch.evidence import read_file
from ..launch.feeds import Feed, ahead
from ..libraries.gpus import Probe
from ..libraries.walks import Functions
from ..networks import Network
from ..protocol import ASYNC, COPIED
from . import devices
from .devices import Differentiated
from .networks import CONVOLUTIONS, JaxFunctions, canonical, forward_pass, held, mean_loss, place
from .sampling import JaxSampler


def _scaled(gradients: Dict[str, Any], clip: float) -> Any:
    """Return the factor that scales gradients whose common norm is beyond ``clip`` down to it."""
    norm = jnp.sqrt(sum(jnp.vdot(gradient, gradient) for gradient in gradients.values()))
    return jnp.minimum(1.0, clip / norm)


def training_step(
    differentiated: Differentiated, clip: float
) -> Callable[[Any, Any, Any, Any], Any]:
    """Return the function of one training step.

    It takes (parameters, rate, inputs, labels) and returns (updated parameters, loss).
    """

    def step(parameters: Any, rate: Any, inputs: Any, labels: Any) -> Any:
        value, gradients = differentiated(parameters, inputs, labels)
        if clip:
            rate = rate * _scaled(gradients, clip)
        return {name: parameters[name] - rate * gradients[name] for name in parameters}, value

    return step


def training_losses(
    differentiated: Differentiated,
    parameters: Dict[str, Any],
    place: Callable[[Batch], Any],
    blocks: Iterable[Block],
    update: RmsProp,
) -> Iterator[List[float]]:
    """Train from these parameters; yield each block's losses.

    ``place`` puts a mini-batch on the device.
    """

    def train(parameters: Any, squares: Any, rate: Any, inputs: Any, labels: Any) -> Any:
        loss, gradients = differentiated(parameters, inputs, labels)
        scale = _scaled(gradients, update.clip)
        new = {}
        means = {}
        for name, value in parameters.items():
            gradient = gradients[name] * scale
            means[name] = update.decay * squares[name] + (1.0 - update.decay) * gradient * gradient
            new[name] = value - rate * gradient / (jnp.sqrt(means[name]) + update.epsilon)
        return new, means, loss

    step = jax.jit(train, donate_argnums=(0, 1))
    squares = {name: jnp.zeros_like(value) for name, value in parameters.items()}
    for block in blocks:
        losses = []
        for batch in block.batches:
            parameters, squares, loss = step(parameters, squares, block.rate, *place(batch))
            losses.append(loss)
        yield [float(loss) for loss in jax.device_get(losses)]


POOL_NAME = "tf_XLAEigen"  # of XLA's threads that compute on the CPU


class JaxAdapter(EveryFamily):
    """An adapter that trains with jax.jit.

    ``step`` dispatches the program. The arrays it returns are promises.

    Settings: ``donate`` (default false) gives the parameters' buffers to the updated ones.
    ``keep_programs`` (default true) keeps compiled programs in the adapter's cache directory.
    ``pointwise`` says how 1x1 convolutions are written, a key of ``networks.CONVOLUTIONS``:
    "convolution" (default) or "product".
    """

    families = (*EveryFamily.families, "lif", *SAMPLING)
    data_parallel = ONE_PROCESS
    further_axes: Tuple[str, ...] = ("sync", "task")
    feeds = True
    capabilities = staticmethod(devices.capabilities)
    is_out_of_memory = staticmethod(devices.is_out_of_memory)
    profile = devices.take_profile
    refuses_gpu = devices.refusal

    def set_up(self) -> None:
        self._devices: List[Any] = []
        self._workers: Optional[devices.ShardedWorkers] = None
        self._donated: Tuple[int, ...] = (0,) if self.settings.get("donate", False) else ()
        self._pointwise = self.chosen("pointwise", *CONVOLUTIONS)
        # The CPU has float32 only: supports() refuses cells of another precision there.
        precision = devices.MATMUL_PRECISIONS.get(self.cell.precision, "highest")
        jax.config.update("jax_default_matmul_precision", precision)
        if self.cell.world_size > 1 and not devices.workers_refusal():
            devices.start_workers(self.cell)
        # Early releases of 0.4 cannot be given a folder so: they compile in each launch.
        can_keep = hasattr(jax.config, "jax_compilation_cache_dir")
        if can_keep and self.settings.get("keep_programs", True):
            threads = int(os.environ.get("NPROC") or len(os.sched_getaffinity(0)))
            programs = "programs-%d" % threads if self.cell.on_cpu else "programs-gpu"
            folder = os.path.join(self.cache_directory, programs)
            jax.config.update("jax_compilation_cache_dir", folder)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    def refuses(self, network: Network) -> str:
        workers = self.cell.world_size
        if self.cell.sync == ASYNC:
            return "sync async: JAX arrays are immutable, so workers cannot share parameters"
        if workers == 1:
            return ""
        refused = devices.workers_refusal()
        if refused:
            return refused
        count = len(devices.find_devices(self.cell.device))
        if count < workers:
            words = "world size %d: each worker needs its own device, and JAX sees %d"
            return words % (workers, count)
        return ""

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        self._devices = devices.find_devices(self.cell.device)[: self.cell.world_size]
        if not network.family.trains:
            self._everywhere: Any = self._devices[0]
            put = partial(self._put, home=self._everywhere)
            sampler = JaxSampler(network.family, put, bool(self._donated))
            sampler.drive(self, weights, batch)
            return
        narrow = jax.numpy.bfloat16 if self.cell.precision == "bfloat16" else None
        differentiated = jax.value_and_grad(mean_loss(network, self._functions(), narrow))
        self._differentiated = differentiated
        if self.cell.world_size == 1:
            self._everywhere = self._devices[0]
            self._step = jax.jit(
                training_step(differentiated, network.family.clip), donate_argnums=self._donated
            )
        else:
            self._workers = devices.ShardedWorkers(self._devices, network.family)
            self._everywhere = self._workers.everywhere
            if self.cell.local_steps:
                step = self._workers.apart(training_step(differentiated, network.family.clip))
                self._step = jax.jit(step, donate_argnums=self._donated)
                self._average = jax.jit(self._workers.average, donate_argnums=self._donated)
            else:
                step = training_step(self._workers.share(differentiated), network.family.clip)
                self._step = jax.jit(
                    step, donate_argnums=self._donated, out_shardings=self._everywhere
                )
        if self.cell.placement in COPIED:
            self.step = self._step_with_copy  # type: ignore[method-assign]
        if self.cell.local_steps:
            self.step = self._averaging(self.step)  # type: ignore[method-assign]
        self._parameters: Dict[str, Any] = {}
        self._family = network.family
        self.reset(weights, batch)
        self.set_learning_rate(LEARNING_RATE)

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        self._devices = devices.find_devices(self.cell.device)[:1]
        self._everywhere = self._devices[0]
        narrow = jax.numpy.bfloat16 if self.cell.precision == "bfloat16" else None
        self._forward = jax.jit(forward_pass(network, self._functions(), narrow))
        if self.cell.placement in COPIED:
            self.infer = self._infer_with_copy  # type: ignore[method-assign]
        self._parameters = {}
        self._family = network.family
        self.result: Any = None
        self._statistics = {
            name: self._put(value, self._everywhere) for name, value in statistics.items()
        }
        self.reset(weights, batch)

    def infer(self) -> None:
        self.result = self._forward(self._parameters, self._statistics, self._batch[0])

    def _infer_with_copy(self) -> None:
        inputs = jax.device_put(self._on_host, self._on_device)[0]
        self.result = self._forward(self._parameters, self._statistics, inputs)

    def show(self, batch: Batch) -> None:
        self._place(batch)

    def outputs(self) -> np.ndarray:
        return by_example(self._family, np.asarray(self.result), self.cell.known_batch_size)

    def _functions(self) -> Callable[..., Functions]:
        return partial(JaxFunctions, convolve=CONVOLUTIONS[self._pointwise])

    def _held(self, name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
        return {name: held(value)}

    def _read(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return place(self._family, batch)

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Put copies of them on the devices: the program's arguments."""
        for name, value in weights.items():
            # One by one, so that no second set of parameters is held. The buffers of the old ones
            # are given back.
            for part, array in self._held(name, value).items():
                self._parameters[part] = self._put_parameter(array)
        self._place(batch)
        self.loss: Any = None
        self._taken = 0

    def _put_parameter(self, array: np.ndarray) -> Any:
        """Put a parameter on all devices.

        With local steps each worker has one of its own, along a further axis.
        """
        if self._workers is None or not self.cell.local_steps:
            return self._put(array, self._everywhere)
        several = np.broadcast_to(array, (self.cell.world_size,) + array.shape)
        return self._put(several, self._workers.one_each)

    def _place(self, batch: Batch) -> None:
        """Put a copy of the mini-batch where the cell's placement says.

        That is on the devices, or in the host's memory, pinned or not.
        """
        arrays: Any
        homes: Any
        if self._workers is None:
            arrays = self._read(batch)
            homes = (self._everywhere, self._everywhere)
        else:
            arrays = self._workers.parts(batch)
            homes = self._workers.split()
        if self.cell.placement not in COPIED:
            self._batch = tuple(self._put(value, home) for value, home in zip(arrays, homes))
            return
        self._on_host = arrays
        if self.cell.placement == "pinned":
            pinned = tuple(devices.in_memory(home, "pinned_host") for home in homes)
            self._on_host = jax.device_put(arrays, pinned)
        self._on_device = tuple(devices.in_memory(home, "device") for home in homes)

    def hand_over(self, batch: Batch) -> Any:
        return jax.device_put(self._read(batch), self._everywhere)

    def take(self, ready: Any) -> None:
        self._batch = ready

    def load(self, feed: Feed) -> Iterator[Any]:
        """Read, decode and put on the device in threads: JAX has no loader of its own."""
        workers = self.cell.loader_workers

        def load_one(number: int) -> Any:
            return self.hand_over(feed[number])

        return ahead(load_one, workers, 2 * workers)

    def step(self) -> None:
        self._parameters, self.loss = self._step(self._parameters, self._rate, *self._batch)

    def _step_with_copy(self) -> None:
        batch = jax.device_put(self._on_host, self._on_device)
        self._parameters, self.loss = self._step(self._parameters, self._rate, *batch)

    def _averaging(self, own_step: Callable[[], None]) -> Callable[[], None]:
        """Return the step of workers that average their parameters.

        They do after every ``cell.local_steps`` of their own.
        """

        def step() -> None:
            own_step()
            self._taken += 1
            if self._taken % self.cell.local_steps == 0:
                self._parameters = self._average(self._parameters)

        return step

    def last_loss(self) -> float:
        """Return the mean of the workers' losses.

        It is one number already where they share a step.
        """
        return float(np.mean(np.asarray(self.loss)))

    def synchronize(self) -> None:
        jax.block_until_ready((self._parameters, self.result if self.cell.infers else self.loss))

    def set_learning_rate(self, rate: float) -> None:
        self._rate = self._put(np.float32(rate), self._everywhere)

    def _put(self, value: Any, home: Any) -> Any:
        with jax.default_device(self._devices[0]):
            return jax.device_put(jax.numpy.array(value, copy=True), home)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self._parameters.items():
            # With local steps the first worker's own.
            own = value.addressable_shards[0].data[0] if self.cell.local_steps else value
            yield name, canonical(own)

    def refuses_training(self, network: Network) -> str:
        return ""

    def train_on_text(
        self, weights: Mapping[str, np.ndarray], blocks: Iterable[Block], update: RmsProp
    ) -> Iterator[List[float]]:
        parameters = {}
        for name, value in weights.items():
            parameters[name] = self._put(held(value), self._everywhere)
        return training_losses(self._differentiated, parameters, self.hand_over, blocks, update)

    def describe(self) -> Dict[str, Any]:
        device = self._devices[0] if self._devices else devices.find_devices(self.cell.device)[0]
        described = {
            "framework": "jax",
            "version": jax.__version__,
            "jaxlib": jaxlib.__version__,
            "platform": device.platform,
            "device_kind": device.device_kind,
            "platform_version": device.client.platform_version,
            "xla_flags": os.environ.get("XLA_FLAGS", ""),
            "matmul_precision": str(jax.config.jax_default_matmul_precision),
            "float64_enabled": bool(jax.config.jax_enable_x64),
            "execution": "one jitted step",
            "donated_buffers": bool(self._donated),
            "recurrence": "scan",
            "image_layout": "NHWC",
            "pointwise_convolutions": self._pointwise,
            "kept_programs": getattr(jax.config, "jax_compilation_cache_dir", None),
            "pool_threads": _pool_threads(),
        }
        if self._workers is not None:
            described["data_parallel"] = self._workers.describe()
            if self.cell.local_steps:
                described["data_parallel"]["split"] = (
                    "jax.shard_map, parameters by lax.pmean after local steps"
                )
        return described

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a jitted matrix product that waits for its result.

        With several workers all multiply at once, so that the time is one worker's while the others
        compute too.
        """
        pairs = [
            [self._put(factor, device) for factor in factors(size)] for device in self._devices
        ]
        if self.cell.precision == "bfloat16":
            pairs = [[factor.astype(jax.numpy.bfloat16) for factor in pair] for pair in pairs]
        product = jax.jit(jax.numpy.matmul)
        return lambda: jax.block_until_ready([product(left, right) for left, right in pairs])

    def device_name(self) -> str:
        return str(self._devices[0].device_kind)

    def device_peak_memory(self) -> Optional[int]:
        return devices.peak_memory_bytes(self._devices)

    def device_probe(self, name: str, size: int) -> Optional[Probe]:
        return devices.probe(name, size, self._devices[0])


def _pool_threads() -> Optional[int]:
    """Return the threads of XLA's pool on the CPU; None where this system does not show them."""
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return None
    names = [read_file("/proc/self/task/%s/comm" % thread) or "" for thread in threads]
    return sum(name.strip() == POOL_NAME for name in names)


ADAPTER = JaxAdapter
