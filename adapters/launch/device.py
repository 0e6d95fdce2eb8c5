"""The GPU's part of a launch.

Its own clock and memory are read around the timed steps, its ceilings and a profile after them.

The wall clock remains the measure, from an idle device to an idle device. In addition come the
device's own clock (events in its queue around each sample, see ``Adapter.event``), the peak of the
framework's allocator there, and after the timed steps the device's ceilings (``libraries/gpus.py``)
and a short profile. None of this happens on the CPU.
"""

from statistics import median
from typing import Any, Callable, List, Optional, Tuple

from ..base import Adapter
from ..libraries import gpus
from ..protocol import PROFILE, Answer, DeviceEvidence, Launch, Profile, too_short
from . import profiling, timing
from .contract import ask
from .parity import HostLine

#: Order of the matrix product that is timed: on a fast GPU one of the CPU's 1536 takes less time
#: than its start.
SENTINEL_SIZE = 8192
#: Steps of the profile that shows how long the device was busy: few, since their traces are long.
PROFILED_STEPS = 3


class Watch:
    """Watch over the timed samples of a launch on a GPU; on the CPU it does and costs nothing."""

    def __init__(self, adapter: Adapter, on_cpu: bool) -> None:
        self.adapter = adapter
        self.on_cpu = on_cpu
        self.marks: List[Tuple[Any, Any]] = []
        self.event_ns: Optional[List[int]] = None
        self.peak_memory_bytes: Optional[int] = None

    def around(self, sample: Callable[[], None]) -> Callable[[], None]:
        """Return the sample with an event in the device's queue before and after it.

        Without events it is the sample itself. They are read after the timed loop: reading one
        waits for the device.
        """
        if self.on_cpu or self.adapter.event() is None:
            return sample
        event = self.adapter.event
        keep = self.marks.append

        def marked() -> None:
            earlier = event()
            sample()
            keep((earlier, event()))

        return marked

    def begin(self) -> None:
        """Forget every mark, and the memory's peak before the timed samples."""
        del self.marks[:]
        if not self.on_cpu:
            self.adapter.reset_device_peak_memory()

    def end(self) -> None:
        if self.on_cpu:
            return
        peak = ask(self.adapter, "device_peak_memory")
        self.peak_memory_bytes = None if peak is None else int(peak)
        if self.marks:
            self.event_ns = []
            for earlier, later in self.marks:
                nanoseconds = ask(self.adapter, "event_nanoseconds", earlier, later)
                self.event_ns.append(int(nanoseconds))

    def evidence(self, left_out: int) -> Optional[DeviceEvidence]:
        """Return the instruments' readings of all samples but the first ``left_out``.

        It is None on the CPU.
        """
        if self.on_cpu:
            return None
        events = None if self.event_ns is None else self.event_ns[left_out:]
        name = ask(self.adapter, "device_name")
        return DeviceEvidence(name, event_ns=events, peak_memory_bytes=self.peak_memory_bytes)


def gemm_rate(adapter: Adapter, on_cpu: bool, size: int) -> Optional[float]:
    """Return the FLOP/s of the framework's own matrix product.

    Its order is ``size`` on the CPU and a larger one on a GPU. None where the framework offers
    none, or where the measurement has left too little GPU memory.
    """
    size = size if on_cpu else SENTINEL_SIZE
    try:
        multiply = adapter.multiply(size)
        return None if multiply is None else timing.gemm_rate(multiply, size)
    except Exception as error:
        if on_cpu or not adapter.is_out_of_memory(error):
            raise
        return None


def _take_profile(
    answer: Answer, launch: Launch, adapter: Adapter, host: HostLine
) -> Optional[Profile]:
    """Return the profile of the launch's steps, None where the framework has no profiler."""

    def take(steps: int) -> Optional[Profile]:
        profile: Optional[Profile] = ask(adapter, "profile", steps)
        return profile

    def wait_for_turn() -> None:
        if launch.in_turns:
            host.mark(PROFILE)

    least = launch.profiled_steps or PROFILED_STEPS
    if not launch.profiled_seconds or too_short(answer.samples_ns):
        return take(least)
    seconds = median(answer.step_seconds())
    return profiling.take_in_parts(take, wait_for_turn, seconds, launch.profiled_seconds, least)


def with_profile(answer: Answer, launch: Launch, adapter: Adapter, host: HostLine) -> Answer:
    """Return the answer with a GPU's ceilings and a profile.

    A failure of one of them is noted, and costs that one alone. The ceilings come first: a profiler
    may leave something behind that slows down operator launches.
    """
    software = dict(answer.software)
    answer = answer._replace(software=software)
    if answer.device is not None:

        def probe(name: str, size: int) -> Any:
            return ask(adapter, "device_probe", name, size)

        ceilings, failures = gpus.measure_ceilings(probe, adapter.is_out_of_memory)
        if failures:
            software["ceilings_failed"] = "; ".join(failures)
        answer = answer._replace(device=answer.device._replace(ceilings=ceilings))
    try:
        profile = _take_profile(answer, launch, adapter, host)
    except Exception as error:
        software["profile_failed"] = gpus.noted(error)
        return answer
    if profile is None:
        return answer
    operators = [operator for operator in profile.operators if operator.on_device]
    if answer.device is not None and operators:
        # Operators that ran side by side count in full: busy is an upper bound then.
        busy = sum(operator.seconds for operator in operators)
        launches = sum(operator.calls for operator in operators)
        device = answer.device._replace(busy_seconds=busy, launches=launches)
        answer = answer._replace(device=device)
    return answer._replace(profile=profile) if launch.profiled_steps > 0 else answer
