"""The series that a history is made of: for each cell its nights, the oldest first.

A night is a run. One that measured both sides of a cell (baseline and candidate, interleaved on the same machine) gives
the ratio candidate / baseline: shifts of the machine from night to night affect both sides and cancel out. A night of a
plain run gives absolute seconds, in a separate series that includes the machine's shifts. A series never mixes
machines: a cell's number belongs to one machine.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.history.change_points import CONFIDENCE, MAGNITUDE, Step, find_steps
from dlbench.reports.storage.record import Record

if TYPE_CHECKING:
    import pandas as pd


RATIO, ABSOLUTE = "ratio", "absolute"
CAVEATS = {
    RATIO: "ratio to the same night's baseline",
    ABSOLUTE: "absolute: the machine's own shifts look like changes of the code",
}
SIDES = {RATIO: ("candidate", "baseline"), ABSOLUTE: ("",)}
"""The sides of the records of each kind of series, the one that may have changed first."""

NIGHTLY = ("suite", "gate")
"""Purposes of the runs that make a history. A manual comparison is not a night: each compares different things."""

Floats = NDArray[np.float64]
Objects = NDArray[np.object_]


class Night(NamedTuple):
    """One point of a series."""

    run: str
    started: str
    """ISO 8601 in UTC."""
    value: float
    """Ratio, or seconds per mini-batch."""
    low: float | None
    """Lower end of the 95 % interval over the night's launches; None with too few launches."""
    high: float | None
    searched: bool
    """Whether it takes part in the search for changes: not if other programs disturbed every launch."""
    environments: tuple[str, ...]
    """Digest of the framework's environment on each of the series' `SIDES`."""


class Difference(NamedTuple):
    """Something that differed the night before."""

    side: str
    what: str
    before: str | None
    """None: it was not there."""
    after: str | None


@dataclass(frozen=True)
class ChangePoint:
    """A night from which on a cell is faster or slower."""

    place: int
    """Index of its first night in the series."""
    night: Night
    night_before: Night
    """The last one before it that took part in the search."""
    ratio: float
    """Level after over level before."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    adjusted_p: float
    nights_before: int
    """Back to the change before it, or the start."""
    nights_after: int
    pending: bool
    """Too few nights after it yet to confirm it."""
    differences: tuple[Difference, ...] | None = None
    """Differences from the night before; None where no record was read."""

    @property
    def slower(self) -> bool:
        """Whether steps last longer from that night on."""
        return self.ratio > 1

    @property
    def percent(self) -> tuple[float, float, float]:
        """Size and ends of its interval, in per cent."""
        return 100 * (self.ratio - 1), 100 * (self.low - 1), 100 * (self.high - 1)


@dataclass(frozen=True, eq=False)
class Series:
    """The nights of one cell on one machine, the oldest first, as arrays of one length; its changes and events."""

    machine: str
    cell: Cell
    number: int
    """The cell's number in its store."""
    kind: str
    """`RATIO` or `ABSOLUTE`."""
    runs: Objects
    started: Objects
    logs: Floats
    """Natural logarithms of ratios or seconds."""
    halves: Floats
    """Half-widths of the nights' 95 % intervals, log units; NaN if unknown."""
    searched: NDArray[np.bool_]
    environments: tuple[Objects, ...]
    changes: tuple[ChangePoint, ...] = ()
    """The oldest first; the last one may be pending."""

    def __len__(self) -> int:
        return len(self.logs)

    def night(self, place: int) -> Night:
        """Return one night."""
        log, half = float(self.logs[place]), float(self.halves[place])
        low, high = (None, None) if math.isnan(half) else (math.exp(log - half), math.exp(log + half))
        environments = tuple(str(each[place]) for each in self.environments)
        searched = bool(self.searched[place])
        return Night(str(self.runs[place]), str(self.started[place]), math.exp(log), low, high, searched, environments)

    @property
    def level(self) -> float | None:
        """Geometric mean of the nights since the last change; None where none took part in the search."""
        start = self.changes[-1].place if self.changes else 0
        inside = self.logs[start:][self.searched[start:]]
        return math.exp(float(inside.mean())) if len(inside) else None

    @property
    def events(self) -> list[tuple[int, Difference]]:
        """The nights on which a framework's environment changed."""
        return sorted(
            (int(place), Difference(side, "environment", str(digests[place - 1]), str(digests[place])))
            for side, digests in zip(SIDES[self.kind], self.environments, strict=True)
            for place in np.flatnonzero(digests[1:] != digests[:-1]) + 1
        )


@dataclass(frozen=True, eq=False)
class History:
    """All cells of a store, and the options."""

    cells: tuple[Series, ...]
    magnitude: float
    """Smallest change reported, relative."""
    machines: dict[str, str] = field(default_factory=dict)
    """Name for people by fingerprint."""
    everything: bool = False
    """Whether every series and change is shown, not only the newest changes."""

    @property
    def changes(self) -> list[tuple[Series, ChangePoint]]:
        """Every change with its series, the newest first and then the largest."""
        found = [(cell, change) for cell in self.cells for change in cell.changes]
        found.sort(key=lambda pair: abs(math.log(pair[1].ratio)), reverse=True)
        return sorted(found, key=lambda pair: pair[1].night.started, reverse=True)

    def nights(self) -> tuple[int, str, str]:
        """Return how many nights there are, and when the first and the last began (ISO 8601, UTC; "" without any)."""
        starts = {night for cell in self.cells for night in zip(cell.runs, cell.started, strict=True)}
        ordered = sorted(str(start) for _, start in starts) or [""]
        return len(starts), ordered[0], ordered[-1]


def series_of(nights: "pd.DataFrame", cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of these nights, ordered by machine, network, framework, workers and threads, ratios first."""
    found: list[Series] = []
    for kind, sides in SIDES.items():
        # One row for each run and cell: of several environments the one with the most launches.
        once = nights.sort_values("launches", kind="stable").drop_duplicates(["run", "cell", "side"], keep="last")
        of_side = (once[once["side"] == side].sort_index() for side in sides)
        frames = [frame.set_index(["run", "cell"], drop=False) for frame in of_side]
        both = frames[0].index[frames[0].index.isin(frames[-1].index)]
        if len(both):
            found += _of_kind(kind, [frame.loc[both] for frame in frames], cells)

    def row(of: Cell) -> tuple[object, ...]:
        return of.network, axes.order_of(of.batch_size), of.framework, of.mode, of.device, of.world_size, of.threads, of

    return sorted(found, key=lambda s: (s.machine, row(s.cell), s.kind == ABSOLUTE))


def _of_kind(kind: str, frames: list["pd.DataFrame"], cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of one kind from frames (one for each of its `SIDES`) whose rows correspond."""
    from scipy.special import stdtrit

    mean, variances, launches = (
        np.array([frame[name].to_numpy(dtype=float) for frame in frames])
        for name in ("log_mean", "log_variance", "launches")
    )
    logs = mean[0] - mean[1] if len(mean) > 1 else mean[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        # The 95 % interval of one mean log, or of the difference of two (Welch 1947).
        parts = variances / launches
        variance, spread = parts.sum(axis=0), (parts**2 / (launches - 1)).sum(axis=0)
        # Without any spread the degrees of freedom do not matter.
        freedom = np.where(variance > 0, variance**2 / spread, 1.0)
        halves: Floats = stdtrit(freedom, 0.5 + CONFIDENCE / 2) * np.sqrt(variance)
    searched = np.all([frame["quiet"].to_numpy(dtype=bool) for frame in frames], axis=0) & np.isfinite(logs)
    environments = [frame["environment"].to_numpy(dtype=object) for frame in frames]
    first = frames[0].reset_index(drop=True)
    runs, started = (first[name].to_numpy(dtype=object) for name in ("run", "started"))
    # The store gives the oldest run first, and groups keep that order.
    return [
        Series(
            str(first["machine"][rows[0]]),
            cells[number],
            number,
            kind,
            runs[rows],
            started[rows],
            logs[rows],
            halves[rows],
            searched[rows],
            tuple(each[rows] for each in environments),
        )
        for number, rows in ((int(str(number)), rows) for number, rows in first.groupby("cell").indices.items())
    ]


def build_history(
    nights: "pd.DataFrame",
    cells: Mapping[int, Cell],
    magnitude: float = MAGNITUDE,
    machines: Mapping[str, str] | None = None,
    everything: bool = False,
) -> History:
    """Return the history of these nights (as `Store.nights` gives them) of these cells (`Store.cells`).

    ``machines`` gives names by fingerprint; ``everything`` is for the report. `explained` adds what else changed.
    """
    found = series_of(nights, cells)
    steps = find_steps([each.logs[each.searched] for each in found], magnitude, [s.kind == ABSOLUTE for s in found])

    def change(series: Series, step: Step) -> ChangePoint:
        before, place = map(int, np.flatnonzero(series.searched)[step.position - 1 : step.position + 1])
        nights = series.night(place), series.night(before)
        ratio, low, high = map(math.exp, (step.size, step.low, step.high))
        return ChangePoint(place, *nights, ratio, low, high, step.adjusted_p, step.before, step.after, step.pending)

    changed = (
        replace(series, changes=tuple(change(series, step) for step in its))
        for series, its in zip(found, steps, strict=True)
    )
    return History(tuple(changed), magnitude, dict(machines or {}), everything)


UNSEEN = (
    "What else changed is taken from the records. The store keeps only the newest description of a machine: a kernel, "
    "driver or microcode upgrade that night is not shown."
)

Reader = Callable[[str, int, str], Record | None]
"""Gives one record of a run (its id), a cell (its number in the store) and a side, as `Store.example` does."""

_DISTRIBUTIONS = "distributions"


def explained(history: History, read: Reader, most: int | None = None) -> History:
    """Return the history with the `differences` of its newest ``most`` changes filled in; None: of all of them.

    Reads one record for each side of the two nights, so that the cost grows with the changes, not with the store.
    """
    wanted = {id(change) for _, change in history.changes[:most]}
    once = cache(read)

    def whole(series: Series, change: ChangePoint) -> ChangePoint:
        if id(change) not in wanted:
            return change
        nights = change.night_before.run, change.night.run
        found = [[once(run, series.number, side) for run in nights] for side in SIDES[series.kind]]
        pairs = [(before, after) for before, after in found if before is not None and after is not None]
        differing = tuple(each for pair in pairs for each in differences(*pair)) if pairs else None
        return replace(change, differences=differing)

    cells = (replace(each, changes=tuple(whole(each, change) for change in each.changes)) for each in history.cells)
    return replace(history, cells=tuple(cells))


def differences(before: Record, after: Record) -> tuple[Difference, ...]:
    """Return the differences of two records of one cell and side other than their measurements, packages first."""
    (old_packages, old), (new_packages, new) = (_software(each.outcome.software) for each in (before, after))
    packages = [*_each("", old_packages, new_packages)]
    versions = [(before, after) for _, before, after in packages]
    pairs = [
        *packages,
        # The framework's own word for its version says nothing beyond its package's.
        *(pair for pair in _each("", old, new) if pair[1:] not in versions),
        ("interpreter", before.interpreter, after.interpreter),
        ("dlbench", before.version, after.version),
        *_each("protocol ", before.protocol._asdict(), after.protocol._asdict()),
        ("CPUs", before.outcome.cpus, after.outcome.cpus),
        ("CPU quota", before.quota_cpus, after.quota_cpus),
        ("environment", before.environment[:12], after.environment[:12]),
    ]

    def words(value: object) -> str | None:
        return None if value is None else " ".join(str(value).split())

    return tuple(Difference(after.side, what, words(old), words(new)) for what, old, new in pairs if old != new)


def _software(software: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the packages of a framework's description of itself, and the rest of it, one level deep."""
    packages = software.get(_DISTRIBUTIONS)
    flat: dict[str, Any] = {}
    for key, value in software.items():
        if isinstance(value, Mapping) and key != _DISTRIBUTIONS:
            flat |= {f"{key} {inner}": inside for inner, inside in value.items()}
        elif key != _DISTRIBUTIONS:
            flat[key] = value
    return packages if isinstance(packages, Mapping) else {}, flat


def _each(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        yield prefix + str(key), old.get(key), new.get(key)
