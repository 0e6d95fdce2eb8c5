"""The framework that is none: it computes nothing and its steps last known times.

For tests, for measuring the harness itself, and for trying a suite out. Settings (all optional):

``step_seconds``  time of a step at one thread (default 0.001)
``serial_fraction``  Amdahl's serial share: T(p) = T(1) * (serial + (1 - serial) / min(p, cores))  (default 0.1)
``cores``  threads beyond this many do not help (default: the CPUs this process may use)
``oversubscription_penalty``  T is multiplied by 1 + penalty * (p - cores) / cores beyond them (default 0.25)
``noise``  relative standard deviation of a step's time, log-normal, seeded by ``noise_seed`` (default 0)
``fault``  what goes wrong at step ``fault_step``: "crash", "exit", "hang", "stubborn" (hangs and ignores
    SIGTERM), "memory" (MemoryError), "error" (an exception), "unsupported", "nan" (the loss after it)
``memory_bytes``  bytes held from the first step on
"""

import math
import os
import signal
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import numpy as np

from ..base import Adapter, Unsupported
from ..batches import Batch
from ..networks import Network
from ..protocol import Cell


def step_seconds(settings, threads, available):
    # type: (Dict[str, Any], int, int) -> float
    """Return the known time of a step at this many threads (0: its default) on this many available CPUs."""
    base = float(settings.get("step_seconds", 0.001))
    serial = float(settings.get("serial_fraction", 0.1))
    cores = int(settings.get("cores", available))
    threads = threads or cores  # nothing asked for: as many as help
    useful = min(threads, cores)
    seconds = base * (serial + (1.0 - serial) / useful)
    penalty = float(settings.get("oversubscription_penalty", 0.25))
    return seconds * (1.0 + penalty * max(0, threads - cores) / float(cores))


class NullAdapter(Adapter):
    """Waits, on the CPU, for as long as it is told."""

    computes = False
    parity_reason = "the null framework computes nothing"

    def __init__(self, cell, settings, cache_directory):
        # type: (Cell, Dict[str, Any], str) -> None
        super(NullAdapter, self).__init__(cell, settings, cache_directory)
        self.seconds = step_seconds(settings, cell.threads, len(os.sched_getaffinity(0)))
        self.noise = float(settings.get("noise", 0.0))
        self.random = np.random.RandomState(int(settings.get("noise_seed", 0)) + os.getpid())
        if "noise_seed" in settings:
            self.random = np.random.RandomState(int(settings["noise_seed"]))
        self.fault = str(settings.get("fault", ""))
        self.fault_step = int(settings.get("fault_step", 1))
        self.done = 0
        self.loss = 1.0
        self.held = b""

    def prepare(self, network, weights, batch):
        # type: (Network, Dict[str, np.ndarray], Batch) -> None
        """Build nothing."""
        if self.fault == "unsupported":
            raise Unsupported("the null framework was told not to support this cell")

    def step(self):
        # type: () -> None
        """Spin until the step's time is over (sleeping is too coarse for known times)."""
        seconds = self.seconds
        if self.noise:
            seconds *= math.exp(self.noise * self.random.standard_normal())
        until = time.perf_counter() + seconds
        self.done += 1
        if self.done == 1 and "memory_bytes" in self.settings:
            self.held = b"\1" * int(self.settings["memory_bytes"])
        if self.fault and self.done == self.fault_step:
            self._fail()
        while time.perf_counter() < until:
            pass

    def _fail(self):
        # type: () -> None
        if self.fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self.fault == "exit":
            os._exit(3)
        elif self.fault == "memory":
            raise MemoryError("the null framework was told to run out of memory")
        elif self.fault == "error":
            raise RuntimeError("the null framework was told to fail")
        elif self.fault == "nan":
            self.loss = float("nan")
        elif self.fault in ("hang", "stubborn"):
            if self.fault == "stubborn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(60)

    def set_learning_rate(self, rate):
        # type: (float) -> None
        """Learn nothing at any rate."""

    def last_loss(self):
        # type: () -> float
        """Return 1, or what the fault says."""
        return self.loss

    def parameters(self):
        # type: () -> Iterator[Tuple[str, np.ndarray]]
        """Yield nothing: there are none."""
        return iter(())

    def multiply(self, size):
        # type: (int) -> Optional[Callable[[], object]]
        """Give a call that spins for this many microseconds: extra work of known length, no product."""

        def spin():
            # type: () -> None
            until = time.perf_counter() + size * 1e-6
            while time.perf_counter() < until:
                pass

        return spin

    def describe(self):
        # type: () -> Dict[str, Any]
        """Name itself."""
        return {"framework": "null", "version": "1", "step_seconds": self.seconds}


ADAPTER = NullAdapter
