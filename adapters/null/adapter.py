"""A framework that computes nothing: its steps last known times, on the CPU or on a pretended GPU.

For tests, for measuring the harness itself, and for trying out a suite. `SETTINGS` lists its
settings and their defaults. Several workers share a step equally. They wait for one another when
they return a loss, and to meet. The pretended GPU has work of known length in a queue of its own.
"""

import math
import os
import signal
import time
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import numpy as np

from ..base import PROCESSES, EveryFamily, Unsupported
from ..families import FAMILIES
from ..launch.batches import Batch, Block, RmsProp
from ..libraries import gpus, profiles
from ..libraries.gpus import Probe
from ..networks import Network
from ..protocol import Cell, Profile

SETTINGS: Dict[str, Any] = {
    "step_seconds": 0.001,  # T(1), a step at one thread
    # Amdahl's serial share: T(p) = T(1) * (serial + (1 - serial) / min(p, cores))
    "serial_fraction": 0.1,
    "cores": None,  # more threads than these do not help; None: the CPUs this process may use
    # T is multiplied by 1 + penalty * (p - cores) / cores beyond them
    "oversubscription_penalty": 0.25,
    "noise": 0.0,  # relative standard deviation of a step's time, log-normal
    "noise_seed": None,  # of the noise; None: the process id
    # "crash", "exit", "hang", "stubborn" (hangs and ignores SIGTERM), "memory" (MemoryError),
    # "error" (an exception), "lost" (the GPU falls off the bus), "unsupported", "nan" (the loss
    # after it)
    "fault": "",
    "fault_step": 1,  # the step of the fault
    "fault_worker": 0,  # the worker of the fault
    "memory_bytes": None,  # held from the first step on
    "first_loss": 4.5,  # of a training on a text
    "least_loss": 2.0,  # to which it falls ...
    "loss_steps": 200,  # ... by all but 1/e of the way in this many steps
    "nan_from": None,  # the step of a training from which on the loss is not finite
    "training_seconds": 0.0,  # a step of a training
    "device_step_seconds": 0.001,  # how long a step keeps the device busy
    # the host's, to start a step; above the device's the step is host-bound
    "device_host_seconds": 0.0001,
    "device_speedup": {},  # by precision, how many times as fast as float32 a step is
    # of a mini-batch from pinned memory; pageable: twice that, and the host takes part
    "device_copy_seconds": 0.0005,
    "device_memory_bytes": None,  # of the device; None: unlimited
    "device_memory_bytes_per_example": 1000000,  # of the mini-batch
    # a copy on the device, read and written; None: no such probe
    "device_memory_bytes_per_second": None,
    # from pinned memory; pageable: half of it; None: no such probes
    "device_link_bytes_per_second": None,
    # the host's, to start the smallest operator; half of the device's, to end it
    "device_operator_seconds": None,
    "event_error": 0.0,  # relative, of the device's clock: events that disagree with the wall clock
    "cpu_only_build": False,  # pretend to be a build without code for GPUs
}


ERRORS = {
    "memory": MemoryError("the null framework was set to run out of memory"),
    "error": RuntimeError("the null framework was set to fail"),
    "lost": RuntimeError(
        "CUDA error: unspecified launch failure (the null framework's GPU fell off the bus)"
    ),
}


def spin(until: float) -> None:
    """Keep the CPU busy until this moment of ``time.perf_counter``; sleeping is too coarse."""
    while time.perf_counter() < until:
        pass


class PretendedGpu:
    """A pretended GPU: it computes after the call that starts a step has returned."""

    def __init__(self, cell: Cell, settings: Dict[str, Any]) -> None:
        self.given = settings = dict(SETTINGS, **settings)
        speedup = float(settings["device_speedup"].get(cell.precision, 1))
        self.seconds = float(settings["device_step_seconds"]) / speedup
        self.host_seconds = float(settings["device_host_seconds"])
        self.host_copies = cell.placement == "pageable"
        self.copy_seconds = 0.0
        if cell.placement != "resident":
            factor = 2.0 if self.host_copies else 1.0
            self.copy_seconds = float(settings["device_copy_seconds"]) * factor
        self.needed = cell.known_batch_size * int(settings["device_memory_bytes_per_example"])
        self.idle_from = 0.0  # when all that was started will be done

    def allocate(self) -> None:
        capacity = self.given["device_memory_bytes"]
        if capacity is not None and self.needed > capacity:
            words = "CUDA out of memory: tried to allocate %d bytes, the null device has %d"
            raise RuntimeError(words % (self.needed, capacity))

    def start_step(self, seconds: float) -> None:
        """Queue a step that takes so long; returns when the host has done its part."""
        now = time.perf_counter()
        begins = max(self.idle_from, now) + self.copy_seconds
        started = (begins if self.host_copies else now) + self.host_seconds
        spin(started)
        # The device does not finish before the host has started everything.
        self.idle_from = max(begins + seconds, started)

    def synchronize(self) -> None:
        spin(self.idle_from)

    def event(self) -> float:
        """Return when the device reaches a mark that is queued now."""
        return max(self.idle_from, time.perf_counter())

    def event_nanoseconds(self, earlier: float, later: float) -> int:
        return max(0, round((later - earlier) * (1.0 + float(self.given["event_error"])) * 1e9))

    def device_peak_memory(self) -> int:
        return self.needed

    def device_probe(self, name: str, size: int) -> Optional[Probe]:
        """Return work of the length that this name and size mean; None without a setting for it."""
        if name == gpus.OPERATOR:
            starting = self.given["device_operator_seconds"]
            if starting is None:
                return None
            return Probe(partial(self._start, starting, 2.0 * starting), self.synchronize)
        on_device = name == gpus.COPY
        setting = "device_memory_bytes_per_second" if on_device else "device_link_bytes_per_second"
        rate = self.given[setting]
        if rate is None:
            return None
        pageable = name in (gpus.TO_DEVICE_PAGEABLE, gpus.FROM_DEVICE_PAGEABLE)
        passes = 2.0 if on_device or pageable else 1.0
        seconds = size * passes / float(rate)
        return Probe(partial(self._start, 0.0, seconds), self.synchronize)

    def _start(self, host_seconds: float, device_seconds: float) -> None:
        started = time.perf_counter() + host_seconds
        spin(started)
        self.idle_from = max(self.idle_from, started) + device_seconds

    def calls(self, steps: int, seconds: float) -> List[profiles.Calls]:
        """Return these steps as a profiler would see them.

        Two thirds are a matrix product, the rest elementwise.
        """
        calls = [
            profiles.Calls("null_gemm_kernel", True, steps * seconds * 2 / 3, 2.0 * steps),
            profiles.Calls("null_elementwise_kernel", True, steps * seconds / 3, 4.0 * steps),
            profiles.Calls("null_launch", False, steps * self.host_seconds, 6.0 * steps),
        ]
        if self.copy_seconds:
            copy_seconds = steps * self.copy_seconds
            copies = profiles.Calls("null_memcpy_host_to_device", True, copy_seconds, 1.0 * steps)
            calls.append(copies)
        return calls


def step_seconds(settings: Dict[str, Any], threads: int, available: int) -> float:
    """Return the known time of a step with this many threads (0: the default) on ``available``
    CPUs.
    """
    settings = dict(SETTINGS, **settings)
    serial = float(settings["serial_fraction"])
    cores = int(settings["cores"] or available)
    threads = threads or cores  # the default: as many as help
    seconds = float(settings["step_seconds"]) * (serial + (1.0 - serial) / min(threads, cores))
    penalty = float(settings["oversubscription_penalty"])
    return seconds * (1.0 + penalty * max(0, threads - cores) / float(cores))


#: The methods of an adapter that the pretended GPU provides.
_METHODS_OF_DEVICE = (
    "event",
    "event_nanoseconds",
    "device_probe",
    "device_peak_memory",
    "synchronize",
)


class NullAdapter(EveryFamily):
    """An adapter whose steps wait for known times."""

    computes = False
    parity_reason = "the null framework computes nothing"
    families = tuple(FAMILIES)
    data_parallel = PROCESSES
    further_axes = ("sync", "task")
    out_of_memory = ("CUDA out of memory",)  # as frameworks' own, a RuntimeError

    def set_up(self) -> None:
        given = self.given = dict(SETTINGS, **self.settings)
        self.seconds = step_seconds(self.settings, self.cell.threads, len(os.sched_getaffinity(0)))
        self.device: Any = None
        if not self.cell.on_cpu:
            self.device = PretendedGpu(self.cell, self.settings)
            self.seconds = self.device.seconds
            for method in _METHODS_OF_DEVICE:
                setattr(self, method, getattr(self.device, method))
        self.seconds /= self.cell.world_size
        self.worker = 0
        self.meeting = ""
        self.met = 0
        self.noise = float(given["noise"])
        seed = given["noise_seed"]
        self.random = np.random.RandomState(os.getpid() if seed is None else int(seed))
        self.fault = str(given["fault"])
        self.fault_step = int(given["fault_step"])
        self.done = 0
        self.loss = 1.0
        self.held = b""

    def refuses_gpu(self) -> str:
        if not self.given["cpu_only_build"]:
            return ""
        words = "device %s: this build of the null framework has no code for GPUs"
        return words % self.cell.device

    def join(self, worker: int, meeting: str) -> None:
        self.worker = worker
        self.meeting = meeting
        self.meet()

    def meet(self) -> None:
        """Wait until all workers have called this as often as this one."""
        self.met += 1
        names = [
            "%s-%d-%d" % (self.meeting, self.met, worker) for worker in range(self.cell.world_size)
        ]
        with open(names[self.worker], "w"):
            pass
        while not all(os.path.exists(name) for name in names):
            time.sleep(0.001)

    def prepare(self, network: Network, weights: Dict[str, np.ndarray], batch: Batch) -> None:
        if self.worker != int(self.given["fault_worker"]):
            self.fault = ""
        if self.fault == "unsupported":
            raise Unsupported("the null framework was set not to support this cell")
        if self.device is not None:
            self.device.allocate()

    def reset(self, weights: Mapping[str, np.ndarray], batch: Batch) -> None:
        """Keep nothing of them."""

    def prepare_inference(
        self,
        network: Network,
        weights: Dict[str, np.ndarray],
        statistics: Dict[str, np.ndarray],
        batch: Batch,
    ) -> None:
        """Prepare as for training: a step takes as long."""
        self.prepare(network, weights, batch)

    def infer(self) -> None:
        NullAdapter.step(self)

    def show(self, batch: Batch) -> None:
        """Keep nothing of it."""

    def step(self) -> None:
        longer = math.exp(self.noise * self.random.standard_normal()) if self.noise else 1.0
        until = time.perf_counter() + self.seconds * longer
        self.done += 1
        if self.done == 1 and self.given["memory_bytes"]:
            self.held = b"\1" * int(self.given["memory_bytes"])
        if self.fault and self.done == self.fault_step:
            self._fail()
        if self.device is None:
            spin(until)
        else:
            self.device.start_step(self.seconds * longer)

    def _fail(self) -> None:
        if self.fault in ERRORS:
            raise ERRORS[self.fault]
        if self.fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.fault == "exit":
            os._exit(3)
        elif self.fault == "nan":
            self.loss = float("nan")
        elif self.fault == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while self.fault in ("hang", "stubborn"):
            time.sleep(60)

    def set_learning_rate(self, rate: float) -> None:
        """Ignore the rate."""

    def last_loss(self) -> float:
        if self.meeting:
            self.meet()
        return self.loss

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        return iter(())

    def refuses_training(self, network: Network) -> str:
        return ""

    def train_on_text(
        self, weights: Mapping[str, np.ndarray], blocks: Iterable[Block], update: RmsProp
    ) -> Iterator[List[float]]:
        first = float(self.given["first_loss"])
        least = float(self.given["least_loss"])
        length = float(self.given["loss_steps"])
        seconds = float(self.given["training_seconds"])
        fails = self.given["nan_from"]
        done = 0
        for block in blocks:
            losses = []
            for _ in range(block.length):
                spin(time.perf_counter() + seconds)
                losses.append(least + (first - least) * math.exp(-done / length))
                done += 1
            if fails is not None and done >= int(fails):
                losses = [float("nan")] * block.length
            yield losses

    def multiply(self, size: int) -> Optional[Callable[[], object]]:
        """Return a call that spins for this many microseconds.

        It is extra work of known length, and no product.
        """
        return lambda: spin(time.perf_counter() + size * 1e-6)

    def device_name(self) -> str:
        return "null device"

    def profile(self, steps: int) -> Optional[Profile]:
        seconds = profiles.run(self.step, self.synchronize, steps)
        calls = [profiles.Calls("null_gemm", False, steps * self.seconds, 1.0 * steps)]
        if self.device is not None:
            calls = self.device.calls(steps, self.seconds)
        return profiles.profile("null profiler", steps, seconds, calls)

    def describe(self) -> Dict[str, Any]:
        return {"framework": "null", "version": "1", "step_seconds": self.seconds}


ADAPTER = NullAdapter
