"""A launch on a GPU: what is done for its sake around the timed steps, and what its own instruments tell of them.

The wall clock stays the measure, from an idle device to an idle device. Beside it stand the device's own clock (marks
in its queue around each sample, see ``Adapter.event``), the peak of the framework's allocator there, and after the
timed steps the device's ceilings (``device_ceilings``) and a short profile. On the CPU nothing of this is done.
"""

import sys
import traceback
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from ..base import Adapter
from ..libraries import gpus
from ..protocol import DeviceEvidence, Launch, Outcome, Profile
from . import contract, timing

#: A GPU that rests lowers its clocks, and takes tenths of a second of work to raise them again; libraries try out their
#: kernels, and allocators grow, in the first steps. After a second both have passed; what changes later (heat, a power
#: limit) is for the search for a steady state and for the telemetry to find.
WARM_UP_SECONDS = 1.0
#: Order of the matrix product that is timed: on a fast GPU one of the CPU's 1536 takes less time than its start.
SENTINEL_SIZE = 8192
#: Steps of the profile that tells how long the device was busy: few, since their traces are long.
PROFILED_STEPS = 3


class Timed(NamedTuple):
    """What the device's instruments told of the timed samples."""

    event_ns: Optional[List[int]]
    peak_memory_bytes: Optional[int]


class Watch:
    """Watches the timed samples of a launch on a GPU; on the CPU it does nothing and costs nothing."""

    def __init__(self, adapter: Adapter, on_cpu: bool) -> None:
        self.adapter = adapter
        self.on_cpu = on_cpu
        self.marks: List[Tuple[Any, Any]] = []

    def around(self, sample: Callable[[], None]) -> Callable[[], None]:
        """Return the sample with a mark in the device's queue before and after it, where there are such marks.

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

    def end(self) -> Optional[Timed]:
        """Read the instruments once the device is idle; None on the CPU."""
        if self.on_cpu:
            return None
        peak = contract.device_peak_memory(self.adapter)
        return Timed(contract.event_nanoseconds(self.adapter, self.marks) if self.marks else None, peak)


def evidence(adapter: Adapter, timed: Optional[Timed], left_out: int) -> Optional[DeviceEvidence]:
    """Return what the instruments told of the samples kept: all but the first ``left_out``, which were warm-up."""
    if timed is None:
        return None
    events = None if timed.event_ns is None else timed.event_ns[left_out:]
    return DeviceEvidence(contract.device_name(adapter), event_ns=events, peak_memory_bytes=timed.peak_memory_bytes)


def gemm_rate(adapter: Adapter, on_cpu: bool, size: int) -> Optional[float]:
    """Return the FLOP/s of the framework's own matrix product, of order ``size`` on the CPU and a larger one on a GPU.

    None where the framework offers none, or where a GPU's memory is full of what was just measured.
    """
    size = size if on_cpu else SENTINEL_SIZE
    try:
        multiply = adapter.multiply(size)
        return None if multiply is None else timing.gemm_rate(multiply, size)
    except Exception as error:
        if on_cpu or not adapter.is_out_of_memory(error):
            raise
        return None


def wants_profile(launch: Launch) -> bool:
    """Tell whether steps are profiled after the timed ones: where that was asked for, and on every GPU."""
    return launch.profiled_steps > 0 or not launch.cell.on_cpu


def with_profile(outcome: Outcome, launch: Launch, adapter: Adapter) -> Outcome:
    """Return the outcome with a GPU's ceilings and with what a profile tells.

    What goes wrong in one of them is noted, and costs that one alone. The ceilings come first: a profiler may leave
    something behind that slows the start of operators.
    """
    outcome = _with_ceilings(outcome, adapter)
    try:
        found = contract.profile(adapter, launch.profiled_steps or PROFILED_STEPS)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        software: Dict[str, Any] = dict(outcome.software)
        software["profile_failed"] = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:300])
        return outcome._replace(software=software)
    if found is None:
        return outcome
    if outcome.device is not None:
        outcome = outcome._replace(device=_with_shares(outcome.device, found))
    return outcome._replace(profile=found) if launch.profiled_steps > 0 else outcome


def _with_ceilings(outcome: Outcome, adapter: Adapter) -> Outcome:
    if outcome.device is None:
        return outcome
    found, failures = gpus.measure_ceilings(
        lambda name, size: contract.device_probe(adapter, name, size), adapter.is_out_of_memory
    )
    software: Dict[str, Any] = dict(outcome.software)
    if failures:
        software["ceilings_failed"] = "; ".join(failures)
    return outcome._replace(software=software, device=outcome.device._replace(ceilings=found))


def _with_shares(told: DeviceEvidence, profile: Profile) -> DeviceEvidence:
    """Add how long the device was busy, and how many operators it was given; a step's.

    Operators that ran side by side on the device count in full, so that busy is then an upper bound.
    """
    there = [operator for operator in profile.operators if operator.on_device]
    if not there:
        return told
    busy, launches = sum(each.seconds for each in there), sum(each.calls for each in there)
    return told._replace(busy_seconds=busy, launches=launches)
