"""Evidence of a GPU in the timed region: device events, the profile, and telemetry. Pure functions.

Telemetry (`hardware_probe.telemetry`'s plain JSON) is read with leniency: anything missing or
malformed is None.

Energy comes from the counter of Volta and later GPUs if it grew often enough in the region, with
its value at the region's ends interpolated between samples. Otherwise power is integrated by the
trapezoidal rule. A power reading is a mean over the preceding second on most GPUs since Ampere, and
on some (A100, H100) the sensor samples only a quarter of the time (Yang, Adamek and Armour 2024,
"Part-time Power Measurements"): the integral needs a steady load, such as timed steps. A region
shorter than a second has neither.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters.protocol import Outcome
from dlbench.reports.results.record import Record

_T = TypeVar("_T")
Region = tuple[float, float]
"""Start and end of a stretch of time on the system's monotonic clock, in seconds."""
Points = Sequence[tuple[float, float]]
"""Readings of one quantity, as pairs of the time on that clock and the value."""

SHORTEST_REGION = 1.0
"""Seconds. Utilisation and power are means over up to a second: those of a shorter region include
time before it."""
ENOUGH_TICKS = 10
"""The energy counter is used if it grew this often in the region: its resolution is then a tenth at
worst."""
LONGEST_GAP = 1.0
"""Seconds. Over a longer gap between readings, power is not interpolated."""

REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown by the driver",
    0x40: "thermal slowdown by the hardware",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability voltage",
}
"""Why clocks are lower than they could be: NVML's bits, and words for them."""
SLOWING = 0x8 | 0x20 | 0x40 | 0x80
"""The reasons that mean something is wrong: heat, or the power supply.

The power cap is not among them: a busy GPU reaches the limit set by its vendor, on some cards all
the time, and its clocks follow the power that the work takes. Nor are chosen settings.
"""
_LARGEST = 1e18


class Spread(NamedTuple):
    """A quantity in the region."""

    median: float
    low: float
    high: float


def region_of(outcome: Outcome) -> Region | None:
    """Return the timed region; None where the launch does not say it."""
    between = outcome.timed_between
    if (
        between is None
        or len(between) != 2
        or not all(isinstance(each, int | float) for each in between)
    ):
        return None
    return (between[0], between[1]) if between[0] < between[1] else None


def points_of(samples: Any, origin: float) -> dict[str, Points]:
    """Return the readings of each column of samples, and of ``at`` itself; nothing where the times
    are malformed.
    """
    times = samples.get("at") if isinstance(samples, Mapping) else None
    if (
        not isinstance(times, list)
        or any(_number(at) is None for at in times)
        or times != sorted(times)
    ):
        return {}
    columns = {
        name: each if isinstance(each, list) else [each] * len(times)
        for name, each in samples.items()
    }
    return {
        name: [
            (origin + at, value)
            for at, each in zip(times, of, strict=True)
            if (value := _number(each)) is not None
        ]
        for name, of in columns.items()
        if len(of) == len(times)
    }


def within(points: Points, region: Region) -> list[float]:
    """Return the readings in a region."""
    return [value for at, value in points if region[0] <= at <= region[1]]


def growth(points: Points) -> int | None:
    """Return how much a counter grew from its first reading to its last; None without two, or where
    it fell.
    """
    grew = points[-1][1] - points[0][1] if len(points) > 1 else -1
    return round(grew) if grew >= 0 else None


def energy(samples: Mapping[str, Points], region: Region) -> tuple[float, str] | None:
    """Return the joules of a region and the method; None where it is too short or not spanned. See
    the module.
    """
    if region[1] - region[0] < SHORTEST_REGION:
        return None
    if (joules := counted_joules(samples.get("joules", ()), region)) is not None:
        return joules, "energy counter"
    joules = integrated_joules(samples.get("watts", ()), region)
    return None if joules is None else (joules, "integral of power")


def counted_joules(points: Points, region: Region) -> float | None:
    """Return how much an energy counter grew in the region; None where it did so too seldom, or
    fell.
    """
    if not _spans(points, region):
        return None
    readings = [
        value
        for (at, value), after in zip(
            points, [*(at for at, _ in points[1:]), math.inf], strict=True
        )
        if after >= region[0] and at <= region[1]
    ]
    steps = [later - earlier for earlier, later in pairwise(readings)]
    if any(step < 0 for step in steps) or sum(step > 0 for step in steps) < ENOUGH_TICKS:
        return None
    first, last = _interpolated(np.array(region), points)
    return float(last - first)


def integrated_joules(points: Points, region: Region) -> float | None:
    """Return the integral over the region of watts given at times; None where readings are
    missing.
    """
    if not _spans(points, region):
        return None
    at = np.array([region[0], *(at for at, _ in points if region[0] < at < region[1]), region[1]])
    if np.diff(at).max() > LONGEST_GAP:
        return None
    watts = _interpolated(at, points)
    return float(np.sum(np.diff(at) * (watts[1:] + watts[:-1]) / 2))


def _interpolated(moments: NDArray[np.float64], points: Points) -> NDArray[np.float64]:
    """Return the values at these moments, linearly interpolated between the points."""
    return np.interp(moments, [at for at, _ in points], [value for _, value in points])


def _spans(points: Points, region: Region) -> bool:
    return bool(points) and points[0][0] <= region[0] and points[-1][0] >= region[1]


def other_processes(processes: Any, origin: float, region: Region) -> int | None:
    """Return how many processes of other programs held the GPU in the region; None if they could
    not be listed.

    If none is known to be the launch's own, one of the unknown ones is assumed to be.
    """
    if not isinstance(processes, list):
        return None
    seen = []
    for each in processes:
        first, last = (
            _number(each.get(key)) if isinstance(each, Mapping) else None
            for key in ("first", "last")
        )
        if first is not None and last is not None:
            seen.append((each.get("whose"), origin + first, origin + last))
    there = [whose for whose, first, last in seen if first <= region[1] and last >= region[0]]
    own_known = any(whose == "own" for whose, _, _ in seen)
    return there.count("other") + (0 if own_known else max(0, there.count("unknown") - 1))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None  # neither nan nor infinite


@dataclass(frozen=True)
class DeviceObserved:
    """What was observed of the GPU in the timed region; None where it is unknown.

    Of a cell: medians over its launches, of a range its ends, of errors and other processes the
    most.
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
    """Whether the launch had a MIG device; clocks, temperature and power are then those of the
    whole GPU."""
    samples: int | None = None
    """Of telemetry, in the region."""
    notes: tuple[str, ...] = ()


def observe_launch(
    outcome: Outcome, telemetry: Mapping[str, Any] | None, world_size: int = 1
) -> DeviceObserved:
    """Return what one launch on a GPU shows; of several GPUs the first, whose energy is not that of
    a mini-batch.
    """
    device, steps = outcome.device, outcome.step_seconds()
    found = _of_telemetry(outcome, telemetry)
    if world_size > 1:
        # The driver counts a kernel that waits for the other workers as busy.
        found |= dict.fromkeys(
            ("joules_per_minibatch", "energy_method", "busy_share", "busy_source")
        )
    if device is not None:
        found |= {
            "launches_per_step": device.launches,
            "peak_memory_bytes": device.peak_memory_bytes,
        }
        # A framework that does not know the board calls it by the cell's device.
        found["name"] = (
            device.name
            if device.name and ":" not in device.name
            else found.get("name") or device.name
        )
        if device.event_ns and len(device.event_ns) == len(outcome.samples_ns):
            pairs = zip(device.event_ns, outcome.samples_ns, strict=True)
            found["event_per_wall"] = median(event / max(wall, 1) for event, wall in pairs)
        if device.busy_seconds is not None and steps:
            found |= {"busy_share": device.busy_seconds / median(steps), "busy_source": "profile"}
    return DeviceObserved(**found)


_MEDIANS = (
    *("event_per_wall", "launches_per_step", "joules_per_minibatch", "slowed_share"),
    *("sent_bytes_per_second", "received_bytes_per_second"),
)
_MOST = (
    "peak_memory_bytes",
    "used_memory_bytes",
    "other_processes",
    "corrected_errors",
    "uncorrected_errors",
)
_SPREADS = ("sm_mhz", "memory_mhz", "temperature", "watts", "utilisation")
"""How the observations of several launches are combined: the median, the most, the ends of all, or
else the newest."""


def observe_device(records: Sequence[Record]) -> DeviceObserved | None:
    """Return what the timed launches of one cell show together; None without any launch on a
    GPU.
    """
    on_gpu = [record for record in records if record.cell.on_gpu]
    if not on_gpu:
        return None
    seen = [
        observe_launch(record.outcome, record.telemetry, record.cell.world_size)
        for record in on_gpu
    ]
    newest = seen[-1]

    def of_all(combine: Callable[[list[Any]], Any], *names: str) -> dict[str, Any]:
        return {name: _over(combine, (getattr(launch, name) for launch in seen)) for name in names}

    reasons = [each.clock_reasons for each in seen if each.clock_reasons is not None]
    words = dict.fromkeys(word for each in reasons for word in each)
    busy = [each.busy_share for each in seen if each.busy_source == newest.busy_source]
    return replace(
        newest,
        **of_all(median, *_MEDIANS),
        **of_all(max, *_MOST),
        **of_all(_together, *_SPREADS),
        **of_all(sum, "samples"),
        busy_share=_over(median, busy),
        energy_method=next(
            (each.energy_method for each in reversed(seen) if each.energy_method), None
        ),
        clock_reasons={word: mean(each.get(word, 0.0) for each in reasons) for word in words}
        if reasons
        else None,
        notes=tuple(dict.fromkeys(note for each in seen for note in each.notes)),
    )


def _together(spreads: Sequence[Spread]) -> Spread:
    return Spread(
        median(s.median for s in spreads), min(s.low for s in spreads), max(s.high for s in spreads)
    )


def _of_telemetry(outcome: Outcome, telemetry: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that follow from telemetry."""
    content = telemetry if isinstance(telemetry, Mapping) and telemetry.get("schema") == 1 else {}
    origin = _number(content.get("origin"))
    if origin is None:
        return {}
    gpu, notes = content.get("gpu"), content.get("notes")
    gpu = gpu if isinstance(gpu, Mapping) else {}
    name, part = gpu.get("name"), gpu.get("part") is True
    fast, slow = (
        points_of(content.get(samples), origin) for samples in ("samples", "slow_samples")
    )
    found: dict[str, Any] = {
        "name": name if isinstance(name, str) else None,
        "power_limit_watts": _number(gpu.get("power_limit_watts")),
        "part_of_gpu": part,
        "notes": tuple(map(str, notes)) if isinstance(notes, list) else (),
        **{f"{kind}_errors": growth(slow.get(kind, ())) for kind in ("corrected", "uncorrected")},
    }
    region = region_of(outcome)
    if region is None:
        return found
    inside = {name: within(points, region) for name, points in fast.items()}
    found |= {
        name: Spread(median(v), min(v), max(v)) for name in _SPREADS if (v := inside.get(name))
    }
    for name in ("sent", "received"):
        found[f"{name}_bytes_per_second"] = _over(median, within(slow.get(name, ()), region))
    found["used_memory_bytes"] = _over(max, inside.get("used_bytes", ()))
    found["other_processes"] = other_processes(content.get("processes"), origin, region)
    found["samples"] = len(inside.get("at", ()))
    if masks := inside.get("reasons"):
        shares = {
            bits: sum(1 for mask in masks if int(mask) & bits) / len(masks)
            for bits in (*REASONS, SLOWING)
        }
        found["clock_reasons"] = {word: shares[bit] for bit, word in REASONS.items() if shares[bit]}
        found["slowed_share"] = shares[SLOWING]
    spent = None if part else energy(fast, region)
    seconds, length = outcome.step_seconds(), region[1] - region[0]
    if spent is not None and seconds:
        # Energy over steps; where more than the timed steps lies in the region, in proportion to
        # their time.
        found |= {
            "joules_per_minibatch": spent[0] / length * mean(seconds),
            "energy_method": spent[1],
        }
    if "utilisation" in found and not part and length >= SHORTEST_REGION:
        found |= {"busy_share": found["utilisation"].median / 100, "busy_source": "utilisation"}
    return found


def _over(combine: Callable[[list[_T]], _T], values: Iterable[_T | None]) -> _T | None:
    """Combine what there is; None where there is nothing."""
    found = [value for value in values if value is not None]
    return combine(found) if found else None
