"""The GPU's part of a launch: its own clock and memory around the timed steps, its ceilings and a profile after them.

The wall clock remains the measure, from an idle device to an idle device. In addition come the device's own clock
(events in its queue around each sample, see ``Adapter.event``), the peak of the framework's allocator there, and after
the timed steps the device's ceilings (``libraries/gpus.py``) and a short profile. None of this happens on the CPU.
"""

import math
from typing import Any, Callable, List, Optional, Tuple

from ..base import Adapter
from ..libraries import gpus
from ..protocol import DeviceEvidence, Launch, Outcome
from . import timing
from .contract import ask

#: Order of the matrix product that is timed: on a fast GPU one of the CPU's 1536 takes less time than its start.
SENTINEL_SIZE = 8192
#: Steps of the profile that shows how long the device was busy: few, since their traces are long.
PROFILED_STEPS = 3
#: A profiler keeps every call of every operator until its end.
MOST_PROFILED_STEPS = 500


class Watch:
    """Watches the timed samples of a launch on a GPU; on the CPU it does nothing and costs nothing."""

    def __init__(self, adapter: Adapter, on_cpu: bool) -> None:
        self.adapter = adapter
        self.on_cpu = on_cpu
        self.marks: List[Tuple[Any, Any]] = []
        self.event_ns: Optional[List[int]] = None
        self.peak_memory_bytes: Optional[int] = None

    def around(self, sample: Callable[[], None]) -> Callable[[], None]:
        """Return the sample with an event in the device's queue before and after it, where there are events.

        They are read after the timed loop: reading one waits for the device.
        """
        if self.on_cpu or self.adapter.event() is None:
            return sample
        event, keep = self.adapter.event, self.marks.append

        def marked() -> None:
            earlier = event()
            sample()
            keep((earlier, event()))

        return marked

    def begin(self) -> None:
        """Forget the peak of what came before the timed samples, and every mark."""
        del self.marks[:]
        if not self.on_cpu:
            self.adapter.reset_device_peak_memory()

    def end(self) -> None:
        if self.on_cpu:
            return
        peak = ask(self.adapter, "device_peak_memory")
        self.peak_memory_bytes = None if peak is None else int(peak)
        if self.marks:
            self.event_ns = [int(ask(self.adapter, "event_nanoseconds", *pair)) for pair in self.marks]

    def evidence(self, left_out: int) -> Optional[DeviceEvidence]:
        """Return what the instruments showed of all samples but the first ``left_out``; None on the CPU."""
        if self.on_cpu:
            return None
        events = None if self.event_ns is None else self.event_ns[left_out:]
        name = ask(self.adapter, "device_name")
        return DeviceEvidence(name, event_ns=events, peak_memory_bytes=self.peak_memory_bytes)


def gemm_rate(adapter: Adapter, on_cpu: bool, size: int) -> Optional[float]:
    """Return the FLOP/s of the framework's own matrix product, of order ``size`` on the CPU and a larger one on a GPU.

    None where the framework offers none, or where the measurement has left too little GPU memory.
    """
    size = size if on_cpu else SENTINEL_SIZE
    try:
        multiply = adapter.multiply(size)
        return None if multiply is None else timing.gemm_rate(multiply, size)
    except Exception as error:
        if on_cpu or not adapter.is_out_of_memory(error):
            raise
        return None


def _steps_to_profile(outcome: Outcome, launch: Launch) -> int:
    steps, seconds = launch.profiled_steps or PROFILED_STEPS, outcome.median_seconds()
    if not launch.profiled_seconds or not seconds:
        return steps
    return max(steps, min(MOST_PROFILED_STEPS, math.ceil(launch.profiled_seconds / seconds)))


def with_profile(outcome: Outcome, launch: Launch, adapter: Adapter) -> Outcome:
    """Return the outcome with a GPU's ceilings and a profile.

    A failure of one of them is noted, and costs that one alone. The ceilings come first: a profiler may leave
    something behind that slows down operator launches.
    """
    software = dict(outcome.software)
    outcome = outcome._replace(software=software)
    if outcome.device is not None:
        ceilings, failures = gpus.measure_ceilings(
            lambda name, size: ask(adapter, "device_probe", name, size), adapter.is_out_of_memory
        )
        if failures:
            software["ceilings_failed"] = "; ".join(failures)
        outcome = outcome._replace(device=outcome.device._replace(ceilings=ceilings))
    try:
        profile = ask(adapter, "profile", _steps_to_profile(outcome, launch))
    except Exception as error:
        software["profile_failed"] = gpus.noted(error)
        return outcome
    if profile is None:
        return outcome
    there = [operator for operator in profile.operators if operator.on_device]
    if outcome.device is not None and there:
        # Operators that ran side by side count in full: busy is an upper bound then.
        busy, launches = sum(each.seconds for each in there), sum(each.calls for each in there)
        outcome = outcome._replace(device=outcome.device._replace(busy_seconds=busy, launches=launches))
    return outcome._replace(profile=profile) if launch.profiled_steps > 0 else outcome
