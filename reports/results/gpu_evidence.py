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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean, median
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dlbench.reports.results.outcome import Outcome
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


class RegionSpread(NamedTuple):
    """A quantity in the region."""

    median: float
    low: float
    high: float


def region_of(outcome: Outcome) -> Region | None:
    """Return the timed region; None where the launch does not say it."""
    between = outcome.timed_between
    if between is None or len(between) != 2:
        return None
    begin, end = between
    if not isinstance(begin, int | float) or not isinstance(end, int | float):
        return None
    return (begin, end) if begin < end else None


def points_of(samples: Any, origin: float) -> dict[str, Points]:
    """Return the readings of each column of samples, and of ``at`` itself.

    Nothing where the times are malformed.
    """
    if not isinstance(samples, Mapping):
        return {}
    times = samples.get("at")
    if not isinstance(times, list) or any(_number(at) is None for at in times):
        return {}
    if times != sorted(times):
        return {}
    columns: dict[str, Points] = {}
    for name, column in samples.items():
        values = column
        if not isinstance(column, list):
            values = [column] * len(times)
        if len(values) != len(times):
            continue
        points = []
        for at, value in zip(times, values, strict=True):
            number = _number(value)
            if number is not None:
                points.append((origin + at, number))
        columns[name] = points
    return columns


def within(points: Points, region: Region) -> list[float]:
    """Return the readings in a region."""
    return [value for at, value in points if region[0] <= at <= region[1]]


def growth(points: Points) -> int | None:
    """Return how much a counter grew from its first reading to its last.

    None without two readings, or where it fell.
    """
    if len(points) < 2:
        return None
    grew = points[-1][1] - points[0][1]
    return round(grew) if grew >= 0 else None


def energy(samples: Mapping[str, Points], region: Region) -> tuple[float, str] | None:
    """Return the joules of a region and the method (see the module).

    None where the region is too short, or the readings do not span it.
    """
    if region[1] - region[0] < SHORTEST_REGION:
        return None
    joules = counted_joules(samples.get("joules", ()), region)
    if joules is not None:
        return joules, "energy counter"
    joules = integrated_joules(samples.get("watts", ()), region)
    if joules is not None:
        return joules, "integral of power"
    return None


def counted_joules(points: Points, region: Region) -> float | None:
    """Return the growth of an energy counter in the region; None if it fell, or grew too seldom."""
    if not _spans(points, region):
        return None
    begin, end = region
    ticks = 0
    for (_, earlier), (at, later) in pairwise(points):
        if not begin <= at <= end:
            continue
        if later < earlier:
            return None
        if later > earlier:
            ticks += 1
    if ticks < ENOUGH_TICKS:
        return None
    first, last = _interpolated(np.array(region), points)
    return float(last - first)


def integrated_joules(points: Points, region: Region) -> float | None:
    """Return the integral of watts over the region; None where readings are missing."""
    if not _spans(points, region):
        return None
    begin, end = region
    moments = np.array([begin, *(at for at, _ in points if begin < at < end), end])
    if np.diff(moments).max() > LONGEST_GAP:
        return None
    watts = _interpolated(moments, points)
    return float(np.sum(np.diff(moments) * (watts[1:] + watts[:-1]) / 2))


def _interpolated(moments: NDArray[np.float64], points: Points) -> NDArray[np.float64]:
    """Return the values at these moments, linearly interpolated between the points."""
    times = [at for at, _ in points]
    values = [value for _, value in points]
    return np.interp(moments, times, values)


def _spans(points: Points, region: Region) -> bool:
    return bool(points) and points[0][0] <= region[0] and points[-1][0] >= region[1]


def other_processes(processes: Any, origin: float, region: Region) -> int | None:
    """Return how many processes of other programs held the GPU in the region.

    None if they could not be listed. If none is known to be the launch's own, one of the unknown
    ones is assumed to be.
    """
    if not isinstance(processes, list):
        return None
    owners = []
    own_known = False
    for process in processes:
        if not isinstance(process, Mapping):
            continue
        first = _number(process.get("first"))
        last = _number(process.get("last"))
        if first is None or last is None:
            continue
        owner = process.get("whose")
        own_known = own_known or owner == "own"
        if origin + first <= region[1] and origin + last >= region[0]:
            owners.append(owner)
    unknown = 0 if own_known else max(0, owners.count("unknown") - 1)
    return owners.count("other") + unknown


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _LARGEST else None  # neither nan nor infinite


@dataclass(frozen=True)
class DeviceObserved:
    """Observations of the GPU in the timed region; None where they are unknown.

    Those of a cell are medians over its launches, the ends of a range, and the most errors and
    other processes.
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
    sm_mhz: RegionSpread | None = None
    memory_mhz: RegionSpread | None = None
    temperature: RegionSpread | None = None
    watts: RegionSpread | None = None
    utilisation: RegionSpread | None = None
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
    """Return the observations of one launch on a GPU.

    Of several GPUs they are of the first, whose energy is not that of a mini-batch.
    """
    observed = _observe_telemetry(outcome, telemetry)
    if world_size > 1:
        # The driver counts a kernel that waits for the other workers as busy.
        for name in ("joules_per_minibatch", "energy_method", "busy_share", "busy_source"):
            observed[name] = None
    device = outcome.device
    if device is None:
        return DeviceObserved(**observed)
    observed["launches_per_step"] = device.launches
    observed["peak_memory_bytes"] = device.peak_memory_bytes
    # A framework that does not know the board calls it by the cell's device.
    knows_board = device.name and ":" not in device.name
    if knows_board or not observed.get("name"):
        observed["name"] = device.name
    if device.event_ns and len(device.event_ns) == len(outcome.samples_ns):
        pairs = zip(device.event_ns, outcome.samples_ns, strict=True)
        observed["event_per_wall"] = median(event / max(wall, 1) for event, wall in pairs)
    steps = outcome.step_seconds()
    if device.busy_seconds is not None and steps:
        observed["busy_share"] = device.busy_seconds / median(steps)
        observed["busy_source"] = "profile"
    return DeviceObserved(**observed)


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
    """Return the observations of the timed launches of one cell; None without any on a GPU."""
    launches = []
    for record in records:
        if record.cell.on_gpu:
            launches.append(
                observe_launch(record.outcome, record.telemetry, record.cell.world_size)
            )
    if not launches:
        return None
    newest = launches[-1]
    energy_method = None
    busy_shares = []
    notes: dict[str, None] = {}
    for launch in launches:
        energy_method = launch.energy_method or energy_method
        if launch.busy_source == newest.busy_source:
            busy_shares.append(launch.busy_share)
        notes.update(dict.fromkeys(launch.notes))
    return replace(
        newest,
        **_combine(launches, median, _MEDIANS),
        **_combine(launches, max, _MOST),
        **_combine(launches, _span, _SPREADS),
        **_combine(launches, sum, ("samples",)),
        busy_share=_over(median, busy_shares),
        energy_method=energy_method,
        clock_reasons=_mean_reasons(launches),
        notes=tuple(notes),
    )


def _combine(
    launches: Sequence[DeviceObserved], combine: Callable[[list[Any]], Any], names: Sequence[str]
) -> dict[str, Any]:
    """Return these observations of all launches together, by name."""
    combined = {}
    for name in names:
        combined[name] = _over(combine, [getattr(launch, name) for launch in launches])
    return combined


def _mean_reasons(launches: Sequence[DeviceObserved]) -> dict[str, float] | None:
    """Return the mean share of each reason for lower clocks; None where no launch knows them."""
    shares_of_launches = []
    words: dict[str, None] = {}
    for launch in launches:
        if launch.clock_reasons is not None:
            shares_of_launches.append(launch.clock_reasons)
            words.update(dict.fromkeys(launch.clock_reasons))
    if not shares_of_launches:
        return None
    means = {}
    for word in words:
        means[word] = mean(shares.get(word, 0.0) for shares in shares_of_launches)
    return means


def _span(spreads: Sequence[RegionSpread]) -> RegionSpread:
    medians, lows, highs = zip(*spreads, strict=True)
    return RegionSpread(median(medians), min(lows), max(highs))


def _observe_telemetry(outcome: Outcome, telemetry: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of `DeviceObserved` that follow from telemetry."""
    if not isinstance(telemetry, Mapping) or telemetry.get("schema") != 1:
        return {}
    origin = _number(telemetry.get("origin"))
    if origin is None:
        return {}
    gpu = telemetry.get("gpu")
    if not isinstance(gpu, Mapping):
        gpu = {}
    name = gpu.get("name")
    if not isinstance(name, str):
        name = None
    notes = telemetry.get("notes")
    if not isinstance(notes, list):
        notes = []
    fast = points_of(telemetry.get("samples"), origin)
    slow = points_of(telemetry.get("slow_samples"), origin)
    observed: dict[str, Any] = {
        "name": name,
        "power_limit_watts": _number(gpu.get("power_limit_watts")),
        "part_of_gpu": gpu.get("part") is True,
        "notes": tuple(map(str, notes)),
        "corrected_errors": growth(slow.get("corrected", ())),
        "uncorrected_errors": growth(slow.get("uncorrected", ())),
    }
    region = region_of(outcome)
    if region is None:
        return observed
    inside = {column: within(points, region) for column, points in fast.items()}
    for column in _SPREADS:
        values = inside.get(column)
        if values:
            observed[column] = RegionSpread(median(values), min(values), max(values))
    for column in ("sent", "received"):
        rates = within(slow.get(column, ()), region)
        observed[f"{column}_bytes_per_second"] = _over(median, rates)
    observed["used_memory_bytes"] = _over(max, inside.get("used_bytes", ()))
    observed["other_processes"] = other_processes(telemetry.get("processes"), origin, region)
    observed["samples"] = len(inside.get("at", ()))
    observed |= _clock_reasons(inside.get("reasons", ()))
    if not observed["part_of_gpu"]:
        observed |= _work_of_gpu(outcome, fast, region, observed.get("utilisation"))
    return observed


def _clock_reasons(masks: Sequence[float]) -> dict[str, Any]:
    """Return the shares of samples with each reason for lower clocks, and with a slowing one."""
    if not masks:
        return {}
    shares = {}
    for bits in (*REASONS, SLOWING):
        shares[bits] = sum(1 for mask in masks if int(mask) & bits) / len(masks)
    reasons = {word: shares[bit] for bit, word in REASONS.items() if shares[bit]}
    return {"clock_reasons": reasons, "slowed_share": shares[SLOWING]}


def _work_of_gpu(
    outcome: Outcome,
    samples: Mapping[str, Points],
    region: Region,
    utilisation: RegionSpread | None,
) -> dict[str, Any]:
    """Return the energy of a step, and the share of it in which a whole GPU worked."""
    observed: dict[str, Any] = {}
    seconds = outcome.step_seconds()
    length = region[1] - region[0]
    spent = energy(samples, region)
    if spent is not None and seconds:
        joules, method = spent
        # Energy over steps; where more than the timed steps lies in the region, in proportion to
        # their time.
        observed["joules_per_minibatch"] = joules / length * mean(seconds)
        observed["energy_method"] = method
    if utilisation is not None and length >= SHORTEST_REGION:
        observed["busy_share"] = utilisation.median / 100
        observed["busy_source"] = "utilisation"
    return observed


def _over(combine: Callable[[list[_T]], _T], values: Iterable[_T | None]) -> _T | None:
    """Combine the values that are known; None where none is."""
    observed = [value for value in values if value is not None]
    return combine(observed) if observed else None
