"""Evidence of a GPU in the timed region: device events, the profile, and telemetry. Pure functions.

Telemetry (`hardware_probe.telemetry`'s plain JSON) is read with leniency: anything missing or malformed is None.

Energy. The counter of Volta and later GPUs is read where it grew often enough in the region, its value at the region's
ends interpolated between samples. Else power is integrated by the trapezoidal rule. Power is a mean over the second
before it on most GPUs since Ampere, and on some (A100, H100) the sensor looks only a quarter of the time (Yang, Adamek
and Armour 2024, "Part-time Power Measurements"): the integral wants a steady load, which timed steps are. A region
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
from dlbench.reports.storage.record import Record

_T = TypeVar("_T")

SHORTEST_REGION = 1.0
"""Seconds: utilisation and power are means over up to a second, so that less of it is from before."""
ENOUGH_TICKS = 10
"""The energy counter is used where it grew this often in the region: what its ticks hide is a tenth at worst."""
LONGEST_GAP = 1.0
"""Seconds without a reading of the power, in which it is not guessed."""

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
"""The reasons that say something is wrong: heat, or the supply of power.

The power cap is not among them: a GPU that is worked hard reaches the limit that its maker set, on some cards all the
time, and its clocks follow the power that the work takes. Nor are settings that somebody chose.
"""

_LARGEST = 1e18


class Region(NamedTuple):
    """A stretch of time on the system's monotonic clock, in seconds."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.start


class Spread(NamedTuple):
    """What a quantity was in the region."""

    median: float
    low: float
    high: float


class Energy(NamedTuple):
    """What a region took."""

    joules: float
    method: str


@dataclass(frozen=True)
class Table:
    """Samples: their times on the system's monotonic clock, and columns of readings, None where there was none."""

    at: tuple[float, ...]
    columns: Mapping[str, tuple[float | None, ...]]

    def points(self, name: str) -> list[tuple[float, float]]:
        """Return the readings of a column with their times."""
        column = self.columns.get(name, ())
        return [(at, value) for at, value in zip(self.at, column, strict=False) if value is not None]

    def within(self, name: str, region: Region) -> list[float]:
        """Return the readings of a column in the region."""
        return [value for at, value in self.points(name) if region.start <= at <= region.end]

    def spread(self, name: str, region: Region) -> Spread | None:
        """Return median and range of a column in the region; None without a reading there."""
        found = self.within(name, region)
        return Spread(median(found), min(found), max(found)) if found else None

    def growth(self, name: str) -> int | None:
        """Return how much a counter grew from its first reading to its last; None without two, or where it fell."""
        found = [value for _, value in self.points(name)]
        return round(found[-1] - found[0]) if len(found) > 1 and found[-1] >= found[0] else None


class Process(NamedTuple):
    """A process that computed on the GPU, and when it was seen first and last."""

    whose: str  # "own", "other", "unknown"
    first: float
    last: float


@dataclass(frozen=True)
class Telemetry:
    """Telemetry as the reports use it."""

    fast: Table
    slow: Table
    processes: tuple[Process, ...] | None
    part: bool
    """Whether the launch had but a part of the GPU, so that clocks, power and temperature are not its own doing."""
    name: str | None
    power_limit_watts: float | None
    notes: tuple[str, ...]


def region_of(outcome: Outcome) -> Region | None:
    """Return the timed region; None where the launch does not tell it."""
    between = outcome.timed_between
    if between is None or len(between) != 2 or not all(isinstance(each, int | float) for each in between):
        return None
    return Region(*between) if between[0] < between[1] else None


def read_telemetry(telemetry: Mapping[str, Any] | None) -> Telemetry | None:
    """Read telemetry; None without any that can be understood."""
    if not isinstance(telemetry, Mapping) or telemetry.get("schema") != 1:
        return None
    origin = _number(telemetry.get("origin"))
    if origin is None:
        return None
    gpu = telemetry.get("gpu")
    gpu = gpu if isinstance(gpu, Mapping) else {}
    name, notes = gpu.get("name"), telemetry.get("notes")
    return Telemetry(
        fast=_table(telemetry.get("samples"), origin),
        slow=_table(telemetry.get("slow_samples"), origin),
        processes=_processes(telemetry.get("processes"), origin),
        part=gpu.get("part") is True,
        name=name if isinstance(name, str) else None,
        power_limit_watts=_number(gpu.get("power_limit_watts")),
        notes=tuple(str(note) for note in notes) if isinstance(notes, list) else (),
    )


def energy(samples: Table, region: Region) -> Energy | None:
    """Return the energy of a region; None where it is too short or the samples do not span it. See the module."""
    if region.seconds < SHORTEST_REGION:
        return None
    joules = counted_joules(samples.points("joules"), region)
    if joules is not None:
        return Energy(joules, "energy counter")
    joules = integrated_joules(samples.points("watts"), region)
    return None if joules is None else Energy(joules, "integral of power")


def counted_joules(points: Sequence[tuple[float, float]], region: Region) -> float | None:
    """Return how much an energy counter grew in the region; None where it did so too seldom, or fell."""
    if not _spans(points, region):
        return None
    readings = [
        value
        for (at, value), after in zip(points, [*(at for at, _ in points[1:]), math.inf], strict=True)
        if after >= region.start and at <= region.end
    ]
    steps = [later - earlier for earlier, later in pairwise(readings)]
    if any(step < 0 for step in steps) or sum(step > 0 for step in steps) < ENOUGH_TICKS:
        return None
    first, last = _interpolated(region, points)
    return float(last - first)


def integrated_joules(points: Sequence[tuple[float, float]], region: Region) -> float | None:
    """Return the integral over the region of watts given at times; None where readings are missing."""
    if not _spans(points, region):
        return None
    inside = [at for at, _ in points if region.start < at < region.end]
    at = np.array([region.start, *inside, region.end])
    if np.diff(at).max() > LONGEST_GAP:
        return None
    watts = _interpolated(at, points)
    return float(np.sum(np.diff(at) * (watts[1:] + watts[:-1]) / 2))


def reason_shares(samples: Table, region: Region) -> dict[str, float]:
    """Return for each reason seen in the region, in words, the share of samples that had it."""
    masks = [int(value) for value in samples.within("reasons", region)]
    shares = {word: sum(1 for mask in masks if mask & bit) for bit, word in REASONS.items()}
    return {word: count / len(masks) for word, count in shares.items() if count}


def other_processes(telemetry: Telemetry, region: Region) -> int | None:
    """Return how many processes of others held the GPU in the region; None where they could not be listed.

    Where none is known to be the launch's own, one of the unknown ones is taken for it.
    """
    if telemetry.processes is None:
        return None
    there = [each for each in telemetry.processes if each.first <= region.end and each.last >= region.start]
    own_known = any(each.whose == "own" for each in telemetry.processes)
    unknown = 0 if own_known else sum(1 for each in there if each.whose == "unknown")
    return sum(1 for each in there if each.whose == "other") + max(0, unknown - 1)


def _interpolated(moments: Iterable[float], points: Sequence[tuple[float, float]]) -> NDArray[np.float64]:
    """Return what lies at these moments on the straight lines between the points."""
    found: NDArray[np.float64] = np.interp(
        np.fromiter(moments, float), [at for at, _ in points], [value for _, value in points]
    )
    return found


def _spans(points: Sequence[tuple[float, float]], region: Region) -> bool:
    return bool(points) and points[0][0] <= region.start and points[-1][0] >= region.end


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None  # neither nan nor infinite


def _table(content: Any, origin: float) -> Table:
    times = content.get("at") if isinstance(content, Mapping) else None
    if not isinstance(times, list) or any(_number(at) is None for at in times) or times != sorted(times):
        return Table((), {})
    columns = {
        name: tuple(map(_number, column)) if isinstance(column, list) else (_number(column),) * len(times)
        for name, column in content.items()
        if name != "at" and (not isinstance(column, list) or len(column) == len(times))
    }
    return Table(tuple(origin + at for at in times), columns)


def _processes(content: Any, origin: float) -> tuple[Process, ...] | None:
    if not isinstance(content, list):
        return None
    found = []
    for each in content:
        times = [_number(each.get(key)) if isinstance(each, Mapping) else None for key in ("first", "last")]
        if times[0] is not None and times[1] is not None:
            found.append(Process(str(each.get("whose")), origin + times[0], origin + times[1]))
    return tuple(found)


@dataclass(frozen=True)
class DeviceObserved:
    """What was observed of the GPU in the timed region; None where it is unknown.

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

    def known(name: str) -> list[Any]:
        return [value for launch in seen if (value := getattr(launch, name)) is not None]

    reasons = known("clock_reasons")
    words = dict.fromkeys(word for each in reasons for word in each)
    busy = [each.busy_share for each in seen if each.busy_source == newest.busy_source]
    return replace(
        newest,
        **{name: _over(median, known(name)) for name in _MEDIANS},
        **{name: _over(max, known(name)) for name in _MOST},
        **{name: _over(_together, known(name)) for name in _SPREADS},
        busy_share=_over(median, busy),
        energy_method=next((each.energy_method for each in reversed(seen) if each.energy_method), None),
        clock_reasons={word: mean(each.get(word, 0.0) for each in reasons) for word in words} if reasons else None,
        samples=_over(sum, known("samples")),
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


def _event_per_wall(outcome: Outcome) -> float | None:
    """Return the median over the samples of event time over wall time."""
    events = None if outcome.device is None else outcome.device.event_ns
    if not events or len(events) != len(outcome.samples_ns):
        return None
    return median(event / max(wall, 1) for event, wall in zip(events, outcome.samples_ns, strict=True))


def _of_telemetry(outcome: Outcome, content: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that follow from telemetry."""
    telemetry = read_telemetry(content)
    if telemetry is None:
        return {"name": None}
    found: dict[str, Any] = {
        "name": telemetry.name,
        "power_limit_watts": telemetry.power_limit_watts,
        "part_of_gpu": telemetry.part,
        "notes": telemetry.notes,
        "corrected_errors": telemetry.slow.growth("corrected"),
        "uncorrected_errors": telemetry.slow.growth("uncorrected"),
    }
    region = region_of(outcome)
    if region is None:
        return found
    fast = telemetry.fast
    found |= {name: fast.spread(name, region) for name in _SPREADS}
    for name in ("sent", "received"):
        found[f"{name}_bytes_per_second"] = _over(median, telemetry.slow.within(name, region))
    found["used_memory_bytes"] = _over(max, fast.within("used_bytes", region))
    found["other_processes"] = other_processes(telemetry, region)
    found["samples"] = sum(1 for at in fast.at if region.start <= at <= region.end)
    masks = fast.within("reasons", region)
    if masks:
        found["clock_reasons"] = reason_shares(fast, region)
        found["slowed_share"] = sum(1 for mask in masks if int(mask) & SLOWING) / len(masks)
    spent = None if telemetry.part else energy(fast, region)
    seconds = outcome.step_seconds()
    if spent is not None and seconds:
        # Energy over steps; where more than the timed steps lies in the region, in proportion to their time.
        found["joules_per_minibatch"] = spent.joules / region.seconds * mean(seconds)
        found["energy_method"] = spent.method
    utilisation = found["utilisation"]
    if utilisation is not None and not telemetry.part and region.seconds >= SHORTEST_REGION:
        found |= {"busy_share": utilisation.median / 100, "busy_source": "utilisation"}
    return found


def _over(combine: Callable[[list[_T]], _T], values: Iterable[_T | None]) -> _T | None:
    """Combine what there is; None where there is nothing."""
    found = [value for value in values if value is not None]
    return combine(found) if found else None
