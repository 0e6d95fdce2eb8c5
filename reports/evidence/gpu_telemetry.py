"""What the samples of a GPU say of the timed region. Pure functions over `hardware_probe.telemetry`'s plain JSON.

It is read with leniency: what is missing or of another form is None, and never an error.

Energy. The counter of Volta and later GPUs is read where it grew often enough in the region, its value at the region's
ends interpolated between samples. Else power is integrated by the trapezoidal rule. Power is a mean over the second
before it on most GPUs since Ampere, and on some (A100, H100) the sensor looks only a quarter of the time (Yang, Adamek
and Armour 2024, "Part-time Power Measurements"): the integral wants a steady load, which timed steps are. Neither is
told of a region shorter than a second.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters.protocol import Outcome

SHORTEST_REGION = 1.0
"""Seconds: utilisation and power are means over up to a second, so that less tells of what was before."""
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
    told = outcome.timed_between
    if told is None or len(told) != 2 or not all(isinstance(each, int | float) for each in told):
        return None
    return Region(*told) if told[0] < told[1] else None


def read(telemetry: Mapping[str, Any] | None) -> Telemetry | None:
    """Read telemetry; None where there is none, or none that can be understood."""
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


def others(telemetry: Telemetry, region: Region) -> int | None:
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
