"""A GPU that is none: work of known length in a queue of its own, beside the host's.

Settings (all optional):

``device_step_seconds``  how long a step keeps the device busy (default 0.001)
``device_host_seconds``  how long the host takes to start a step (default 0.0001); above the device's time the step is
    host-bound: the device waits
``device_speedup``  by precision, how many times as fast as float32 a step is (default: no faster)
``device_copy_seconds``  how long the copy of a mini-batch from pinned memory takes (default 0.0005); from pageable
    memory twice as long, and the host takes part in it
``device_memory_bytes``  what the device has (default: no end of it)
``device_memory_bytes_per_example``  what each example of the mini-batch takes of it (default 1000000)
``device_memory_bytes_per_second``  the rate of a copy on the device, read and written (default: no such probe)
``device_link_bytes_per_second``  the rate of a copy between host and device, from pinned memory; from pageable memory
    half of it (default: no such probes)
``device_operator_seconds``  how long the host takes to start the smallest operator, which the device then ends in twice
    that time (default: no such probe)
``event_error``  the relative error of the device's clock (default 0): events that disagree with the wall clock
``cpu_only_build``  true: play a build of the framework without code for GPUs
"""

import time
from typing import Any, Dict, List, Optional

from ..libraries import device_ceilings, profiles
from ..libraries.device_ceilings import Probe
from ..protocol import Cell


class OutOfDeviceMemoryError(RuntimeError):
    """As frameworks do: a type of its own, no MemoryError."""


def spin(until: float) -> None:
    """Keep the CPU busy until this moment of ``time.perf_counter``; sleeping is too coarse for known times."""
    while time.perf_counter() < until:
        pass


class Device:
    """Pretends to compute, later than it was told to."""

    def __init__(self, cell: Cell, settings: Dict[str, Any]) -> None:
        speedup: Dict[str, float] = settings.get("device_speedup", {})
        self.seconds = float(settings.get("device_step_seconds", 0.001)) / float(speedup.get(cell.precision, 1.0))
        self.host_seconds = float(settings.get("device_host_seconds", 0.0001))
        copy = float(settings.get("device_copy_seconds", 0.0005))
        self.host_copies = cell.placement == "pageable"
        self.copy_seconds = 0.0 if cell.placement == "resident" else copy * (2.0 if self.host_copies else 1.0)
        self.capacity = settings.get("device_memory_bytes")
        self.needed = cell.batch_size * int(settings.get("device_memory_bytes_per_example", 1000000))
        self.memory_rate = settings.get("device_memory_bytes_per_second")
        self.link_rate = settings.get("device_link_bytes_per_second")
        self.operator_seconds = settings.get("device_operator_seconds")
        self.event_error = float(settings.get("event_error", 0.0))
        self.idle_from = 0.0  # when all that was started will be done

    def allocate(self) -> None:
        """Take the mini-batch's memory; raises OutOfDeviceMemoryError where there is less."""
        if self.capacity is not None and self.needed > self.capacity:
            raise OutOfDeviceMemoryError(
                "CUDA out of memory: tried to allocate %d bytes, the null device has %d" % (self.needed, self.capacity)
            )

    def start_step(self, longer: float = 1.0) -> None:
        """Queue a step, ``longer`` times as long as usual; returns when the host has done its part."""
        now = time.perf_counter()
        begins = max(self.idle_from, now) + self.copy_seconds
        started = (begins if self.host_copies else now) + self.host_seconds
        spin(started)
        # What the host starts last, the device does not end before.
        self.idle_from = max(begins + self.seconds * longer, started)

    def wait(self) -> None:
        """Wait until the queue is empty."""
        spin(self.idle_from)

    def event(self) -> float:
        """Return when the device comes to a mark that is queued now."""
        return max(self.idle_from, time.perf_counter())

    def between(self, earlier: float, later: float) -> int:
        """Return the nanoseconds between two marks by the device's own clock."""
        return max(0, round((later - earlier) * (1.0 + self.event_error) * 1e9))

    def probe(self, name: str, size: int) -> Optional[Probe]:
        """Return work of the length that this name and size mean; None where no setting tells it."""
        if name == device_ceilings.OPERATOR:
            if self.operator_seconds is None:
                return None
            starting = float(self.operator_seconds)
            return Probe(lambda: self._start(starting, 2.0 * starting), self.wait)
        on_device = name == device_ceilings.COPY
        rate = self.memory_rate if on_device else self.link_rate
        if rate is None:
            return None
        pageable = name in (device_ceilings.TO_DEVICE_PAGEABLE, device_ceilings.FROM_DEVICE_PAGEABLE)
        seconds = size * (2.0 if on_device or pageable else 1.0) / float(rate)
        return Probe(lambda: self._start(0.0, seconds), self.wait)

    def _start(self, host_seconds: float, device_seconds: float) -> None:
        started = time.perf_counter() + host_seconds
        spin(started)
        self.idle_from = max(self.idle_from, started) + device_seconds

    def calls(self, steps: int) -> List[profiles.Calls]:
        """Return what a profiler would say of these steps: two thirds a matrix product, the rest elementwise."""
        found = [
            profiles.Calls("null_gemm_kernel", True, steps * self.seconds * 2 / 3, 2.0 * steps),
            profiles.Calls("null_elementwise_kernel", True, steps * self.seconds / 3, 4.0 * steps),
            profiles.Calls("null_launch", False, steps * self.host_seconds, 6.0 * steps),
        ]
        if self.copy_seconds:
            found.append(profiles.Calls("null_memcpy_host_to_device", True, steps * self.copy_seconds, 1.0 * steps))
        return found
