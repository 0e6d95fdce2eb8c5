"""What is known of a launch on a GPU beside its time, and the flags that it raises.

Two clocks. The framework's events on the device tell how long each sample took by the GPU's clock. Where they tell more
than the wall clock, the fence did not wait and the number is too small; where they tell less, something was timed that
is not the device's work. What an event and a fence cost themselves, tens of microseconds, is not held against a launch.

Host-bound. The device's operators and copies of a step, from the profile after the timed steps, over the step's median:
below `BUSY_SHARE` the number is at least in part the host's, and a faster GPU would not help it. Without a profile
NVML's utilisation stands in, the share of time in which some kernel ran; copies are not in it, so only for a resident
mini-batch. Where it is known what starting an operator costs the host at least (`device_ceilings`), the flag tells how
much of a step the starts of all its operators are: from `LAUNCH_BOUND_SHARE` on the step is launch-bound, and larger
mini-batches, fused operators or a captured graph would help it; below, look for the host's time elsewhere. It is an
estimate: operators started from within the framework's own code may cost less than one started by itself.

Throttled. A reason that slows the GPU because something is wrong (`gpu_telemetry.SLOWING`), in more than
`THROTTLED_SHARE` of the samples and in two at least: one alone may be a change of clocks. It is the machine's state and
not others' doing, so such a launch is not repeated: it would be hotter still.

Shared. Whoever holds the GPU too can take any part of it at any time; nothing tells reliably that they did not. Such a
launch is contended, and repeated.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any, TypeVar

from dlbench.adapters.protocol import Cell, Outcome
from dlbench.reports.evidence import gpu_telemetry
from dlbench.reports.evidence.flag_kinds import CONTENDED, DEVICE_THROTTLED, DEVICE_TIME, ECC_ERRORS, HOST_BOUND, Flag
from dlbench.reports.evidence.gpu_telemetry import SHORTEST_REGION, SLOWING, Spread
from dlbench.reports.storage.record import Record

_T = TypeVar("_T")

DEVICE_TIME_SHARE = 0.02
"""Events and wall time disagree by more than this share ..."""
DEVICE_TIME_SLACK = 50e-6
"""... and by more than so many seconds a sample: what a mark, the fence and waking up cost."""
BUSY_SHARE = 0.80
"""Host-bound: the device worked for less than this share of a step."""
LAUNCH_BOUND_SHARE = 0.50
"""Launch-bound: host-bound, and starting its operators would take this share of a step or more."""
THROTTLED_SHARE = 0.05
"""Throttled: more than this share of the samples had a slowing reason, and two of them at least."""


@dataclass(frozen=True)
class DeviceObserved:
    """What was observed of the GPU in the timed region; None where nobody told.

    Of a cell: medians over its launches, of a range its ends, of errors and other processes the most.
    """

    name: str | None = None
    event_per_wall: float | None = None
    """Time of the timed samples by the device's events over that by the wall clock."""
    busy_share: float | None = None
    """Of a step, in which the device worked."""
    busy_source: str | None = None
    """"profile" or "utilisation"."""
    launches_per_step: float | None = None
    joules_per_minibatch: float | None = None
    energy_method: str | None = None
    sm_mhz: Spread | None = None
    memory_mhz: Spread | None = None
    temperature: Spread | None = None
    watts: Spread | None = None
    utilisation: Spread | None = None
    """Per cent."""
    sent_bytes_per_second: float | None = None
    """By the GPU over PCIe."""
    received_bytes_per_second: float | None = None
    power_limit_watts: float | None = None
    peak_memory_bytes: int | None = None
    """Of the framework's allocator on the device."""
    used_memory_bytes: int | None = None
    """Of the whole GPU, as the driver counts."""
    clock_reasons: Mapping[str, float] | None = None
    """Why clocks were lower than they could be, in words, with the share of samples that had it."""
    slowed_share: float | None = None
    """Of samples with a reason that says something is wrong."""
    other_processes: int | None = None
    corrected_errors: int | None = None
    """ECC errors during the launch."""
    uncorrected_errors: int | None = None
    part_of_gpu: bool | None = None
    """Whether the launch had a MIG device; clocks, temperature and power are then those of the whole GPU."""
    samples: int | None = None
    """Of telemetry, in the region."""
    notes: tuple[str, ...] = ()


def observe_launch(outcome: Outcome, telemetry: Mapping[str, Any] | None, world_size: int = 1) -> DeviceObserved:
    """Return what one launch on a GPU shows; of several GPUs the first, whose energy is not that of a mini-batch."""
    device = outcome.device
    seen = DeviceObserved()
    if device is not None:
        seen = DeviceObserved(
            name=device.name,
            event_per_wall=_event_per_wall(outcome),
            launches_per_step=device.launches,
            peak_memory_bytes=device.peak_memory_bytes,
        )
    found = {**vars(seen), **_of_telemetry(outcome, telemetry)}
    # A framework that does not know the board calls it by the cell's device.
    found["name"] = seen.name if seen.name and ":" not in seen.name else found["name"] or seen.name
    if world_size > 1:
        # A kernel that waits for the other workers is at work in the driver's eyes.
        found |= dict.fromkeys(("joules_per_minibatch", "energy_method", "busy_share", "busy_source"))
    steps = outcome.step_seconds()
    if device is not None and device.busy_seconds is not None and steps:
        found |= {"busy_share": device.busy_seconds / median(steps), "busy_source": "profile"}
    return DeviceObserved(**found)


def observe_device(records: Sequence[Record]) -> DeviceObserved | None:
    """Return what the timed launches of one cell show together; None on the CPU and without any launch."""
    records = [record for record in records if not record.cell.on_cpu]
    if not records:
        return None
    seen = [observe_launch(record.outcome, record.telemetry, record.cell.world_size) for record in records]
    newest = seen[-1]

    def told(name: str) -> list[Any]:
        return [value for launch in seen if (value := getattr(launch, name)) is not None]

    reasons = told("clock_reasons")
    words = dict.fromkeys(word for each in reasons for word in each)
    busy = [each.busy_share for each in seen if each.busy_source == newest.busy_source]
    return replace(
        newest,
        **{name: _over(median, told(name)) for name in _MEDIANS},
        **{name: _over(max, told(name)) for name in _MOST},
        **{name: _over(_together, told(name)) for name in _SPREADS},
        busy_share=_over(median, busy),
        energy_method=next((each.energy_method for each in reversed(seen) if each.energy_method), None),
        clock_reasons={word: mean(each.get(word, 0.0) for each in reasons) for word in words} if reasons else None,
        samples=_over(sum, told("samples")),
        notes=tuple(dict.fromkeys(note for each in seen for note in each.notes)),
    )


_MEDIANS = (
    *("event_per_wall", "launches_per_step", "joules_per_minibatch", "slowed_share"),
    *("sent_bytes_per_second", "received_bytes_per_second"),
)
_MOST = ("peak_memory_bytes", "used_memory_bytes", "other_processes", "corrected_errors", "uncorrected_errors")
_SPREADS = ("sm_mhz", "memory_mhz", "temperature", "watts", "utilisation")
"""Of what is observed of several launches the median counts, the most, or the ends of all; else the newest."""


def _together(spreads: Sequence[Spread]) -> Spread:
    return Spread(median(s.median for s in spreads), min(s.low for s in spreads), max(s.high for s in spreads))


def device_flags(cell: Cell, outcome: Outcome, telemetry: Mapping[str, Any] | None) -> list[Flag]:
    """Return what a launch on a GPU raises of itself; nothing for one on the CPU."""
    if cell.on_cpu:
        return []
    seen = observe_launch(outcome, telemetry, cell.world_size)
    flags = []
    errors = [(seen.corrected_errors or 0, "corrected"), (seen.uncorrected_errors or 0, "uncorrected")]
    if any(count for count, _ in errors):
        words = " and ".join(f"{count} {kind}" for count, kind in errors if count)
        flags.append(Flag(ECC_ERRORS, f"{words} ECC errors of the GPU's memory during the launch"))
    if seen.other_processes:
        processes = f"{seen.other_processes} other process{'es' if seen.other_processes > 1 else ''}"
        flags.append(Flag(CONTENDED, f"{processes} held the GPU too; end them, or measure on another GPU"))
    slowed = (seen.slowed_share or 0.0) * (seen.samples or 0)
    if seen.slowed_share is not None and seen.slowed_share > THROTTLED_SHARE and round(slowed) > 1:
        slowing = {word for bit, word in gpu_telemetry.REASONS.items() if bit & SLOWING}
        why = " and ".join(word for word in seen.clock_reasons or {} if word in slowing)
        clock = f", at {seen.sm_mhz.median:.0f} MHz" if seen.sm_mhz else ""
        flags.append(Flag(DEVICE_THROTTLED, f"the GPU was slowed {seen.slowed_share:.0%} of the time: {why}{clock}"))
    return flags + _of_clocks(outcome, seen) + _of_host(cell, outcome, seen)


def _of_clocks(outcome: Outcome, seen: DeviceObserved) -> list[Flag]:
    ratio = seen.event_per_wall
    if ratio is None or abs(ratio - 1) <= DEVICE_TIME_SHARE:
        return []
    if abs(ratio - 1) * median(outcome.samples_ns) * 1e-9 <= DEVICE_TIME_SLACK:
        return []
    why = "the clock stopped before the GPU did" if ratio > 1 else "the rest was not the GPU's"
    return [Flag(DEVICE_TIME, f"the GPU's events tell {ratio:.1%} of the wall time: {why}")]


def starting_share(outcome: Outcome) -> float | None:
    """Return the share of a step that the host needs to start all its operators one by one; None where nobody told.

    Operators a step by the profile, times what the host takes to start the smallest one, over the median step.
    """
    device, steps = outcome.device, outcome.step_seconds()
    if device is None or device.ceilings is None or not steps:
        return None
    if device.launches is None or device.ceilings.operator_start_seconds is None:
        return None
    return device.launches * device.ceilings.operator_start_seconds / median(steps)


def starting_words(outcome: Outcome) -> str:
    """Return in a sentence what starting the operators takes of a step; empty where nobody told."""
    share, device = starting_share(outcome), outcome.device
    if share is None or device is None or device.ceilings is None:
        return ""
    micros = (device.ceilings.operator_start_seconds or 0.0) * 1e6
    each = f"{micros:.3g}" if micros < 100 else f"{micros:.0f}"
    bound = "launch-bound, since " if share >= LAUNCH_BOUND_SHARE else ""
    part = f"about {share:.0%} of a step" if share < 1 else "all of a step"
    return f"{bound}starting {device.launches:.0f} operators at {each} us each takes {part}"


def _of_host(cell: Cell, outcome: Outcome, seen: DeviceObserved) -> list[Flag]:
    profiled = seen.busy_source == "profile"
    told = profiled or cell.placement == "resident"
    if seen.busy_share is None or seen.busy_share >= BUSY_SHARE or not told:
        return []
    source = "" if profiled else ", by the driver's utilisation"
    words = starting_words(outcome)
    why = f": {words}" if words else ""
    return [Flag(HOST_BOUND, f"the GPU worked {seen.busy_share:.0%} of the time{source}; the host sets the pace{why}")]


def _event_per_wall(outcome: Outcome) -> float | None:
    """Return the median over the samples of event time over wall time."""
    events = None if outcome.device is None else outcome.device.event_ns
    if not events or len(events) != len(outcome.samples_ns):
        return None
    return median(event / max(wall, 1) for event, wall in zip(events, outcome.samples_ns, strict=True))


def _of_telemetry(outcome: Outcome, content: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that telemetry tells."""
    told = gpu_telemetry.read(content)
    if told is None:
        return {"name": None}
    found: dict[str, Any] = {
        "name": told.name,
        "power_limit_watts": told.power_limit_watts,
        "part_of_gpu": told.part,
        "notes": told.notes,
        "corrected_errors": told.slow.growth("corrected"),
        "uncorrected_errors": told.slow.growth("uncorrected"),
    }
    region = gpu_telemetry.region_of(outcome)
    if region is None:
        return found
    fast = told.fast
    found |= {name: fast.spread(name, region) for name in _SPREADS}
    for name in ("sent", "received"):
        found[f"{name}_bytes_per_second"] = _over(median, told.slow.within(name, region))
    found["used_memory_bytes"] = _over(max, fast.within("used_bytes", region))
    found["other_processes"] = gpu_telemetry.others(told, region)
    found["samples"] = sum(1 for at in fast.at if region.start <= at <= region.end)
    masks = fast.within("reasons", region)
    if masks:
        found["clock_reasons"] = gpu_telemetry.reason_shares(fast, region)
        found["slowed_share"] = sum(1 for mask in masks if int(mask) & SLOWING) / len(masks)
    spent = None if told.part else gpu_telemetry.energy(fast, region)
    seconds = outcome.step_seconds()
    if spent is not None and seconds:
        # Energy over steps; where more than the timed steps lies in the region, in proportion to their time.
        found["joules_per_minibatch"] = spent.joules / region.seconds * mean(seconds)
        found["energy_method"] = spent.method
    utilisation = found["utilisation"]
    if utilisation is not None and not told.part and region.seconds >= SHORTEST_REGION:
        found |= {"busy_share": utilisation.median / 100, "busy_source": "utilisation"}
    return found


def _over(combine: Callable[[list[_T]], _T], values: Iterable[_T | None]) -> _T | None:
    """Combine what there is; None where there is nothing."""
    found = [value for value in values if value is not None]
    return combine(found) if found else None
