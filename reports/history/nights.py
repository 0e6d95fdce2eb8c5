"""The series that a history is made of: for each cell its nights, the oldest first.

A night is a run. One that measured both sides of a cell (baseline and candidate, interleaved on the
same machine) gives the ratio candidate / baseline: shifts of the machine from night to night affect
both sides and cancel out. A night of a plain run gives absolute seconds, in a separate series that
includes the machine's shifts. A series never mixes machines: a cell's number belongs to one
machine. Nights whose machine is unknown may be of several, so they are shown and not searched.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.history.change_points import CONFIDENCE, ENOUGH_NIGHTS, MAGNITUDE, Step
from dlbench.reports.history.drifts import Changes, Ramp, find_changes
from dlbench.reports.results.differences import Difference, differences
from dlbench.reports.results.hosts import UNKNOWN_MACHINE
from dlbench.reports.results.record import Record

if TYPE_CHECKING:
    import pandas as pd


RATIO, ABSOLUTE = "ratio", "absolute"
CAVEATS = {
    RATIO: "ratio to the same night's baseline",
    ABSOLUTE: "absolute times: a shift of the machine looks like a change of the code",
}
SIDES = {RATIO: ("candidate", "baseline"), ABSOLUTE: ("",)}
"""The sides of the records of each kind of series, the one that may have changed first."""

NIGHTLY = ("suite", "gate")
"""Purposes of the runs that make a history. A manual comparison is not a night: each compares
different things."""

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
    """Whether it takes part in the search for changes: not if other programs disturbed every
    launch."""
    environments: tuple[str, ...]
    """Digest of the framework's environment on each of the series' `SIDES`."""


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


@dataclass(frozen=True)
class Drift:
    """Nights over which a cell became slowly faster or slower."""

    first: int
    """Index of the night it begins with in the series."""
    last: int
    """Index of the night up to which it goes."""
    first_night: Night
    last_night: Night
    ratio: float
    """Level at the last night over level at the first."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    adjusted_p: float
    nights: int
    """Searched nights, the first and the last included."""
    ongoing: bool
    """Whether too few nights follow to say that it has ended."""
    differences: tuple[Difference, ...] | None = None
    """Differences of the last night from the first; None where no record was read."""

    @property
    def slower(self) -> bool:
        """Whether steps last longer and longer."""
        return self.ratio > 1

    @property
    def percent(self) -> tuple[float, float, float]:
        """Size in all and ends of its interval, in per cent."""
        return 100 * (self.ratio - 1), 100 * (self.low - 1), 100 * (self.high - 1)

    @property
    def percent_a_night(self) -> float:
        """Size from one night to the next, in per cent."""
        return float(100 * (self.ratio ** (1 / (self.nights - 1)) - 1))


@dataclass(frozen=True, eq=False)
class Series:
    """The nights of one cell on one machine, the oldest first, as arrays of one length; its changes
    and events.
    """

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
    drift: Drift | None = None

    def __len__(self) -> int:
        return len(self.logs)

    def night(self, place: int) -> Night:
        """Return one night."""
        log, half = float(self.logs[place]), float(self.halves[place])
        low, high = (
            (None, None) if math.isnan(half) else (math.exp(log - half), math.exp(log + half))
        )
        environments = tuple(str(each[place]) for each in self.environments)
        searched = bool(self.searched[place])
        return Night(
            str(self.runs[place]),
            str(self.started[place]),
            math.exp(log),
            low,
            high,
            searched,
            environments,
        )

    @property
    def comparable(self) -> bool:
        """Whether its nights are known to be of one machine."""
        return self.machine != UNKNOWN_MACHINE

    @property
    def drifted(self) -> Floats:
        """How far the drift has come on each night, in log units; 0 without a drift."""
        if self.drift is None:
            return np.zeros(len(self))
        nights = np.cumsum(self.searched)
        first, last = nights[self.drift.first], nights[self.drift.last]
        share: Floats = np.clip((nights - first) / (last - first), 0.0, 1.0)
        return share * math.log(self.drift.ratio)

    @property
    def level(self) -> float | None:
        """Geometric mean of the nights since the last change; None where none took part in the
        search.

        Nights before the end of a drift count as if it had been over.
        """
        start = self.changes[-1].place if self.changes else 0
        inside = (self.logs - self.drifted)[start:][self.searched[start:]]
        return math.exp(float(inside.mean()) + float(self.drifted[-1])) if len(inside) else None

    @property
    def events(self) -> list[tuple[int, Difference]]:
        """The nights on which a framework's environment changed."""
        return sorted(
            (
                int(place),
                Difference(side, "environment", str(digests[place - 1]), str(digests[place])),
            )
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
    def drifts(self) -> list[tuple[Series, Drift]]:
        """Every drift with its series, the largest first."""
        found = [(cell, cell.drift) for cell in self.cells if cell.drift is not None]
        return sorted(found, key=lambda pair: abs(math.log(pair[1].ratio)), reverse=True)

    @property
    def changes(self) -> list[tuple[Series, ChangePoint]]:
        """Every change with its series, the newest first and then the largest."""
        found = [(cell, change) for cell in self.cells for change in cell.changes]
        found.sort(key=lambda pair: abs(math.log(pair[1].ratio)), reverse=True)
        return sorted(found, key=lambda pair: pair[1].night.started, reverse=True)

    def nights(self) -> tuple[int, str, str]:
        """Return how many nights there are, and when the first and the last began (ISO 8601, UTC;
        "" without any).
        """
        starts = {
            night for cell in self.cells for night in zip(cell.runs, cell.started, strict=True)
        }
        ordered = sorted(str(start) for _, start in starts) or [""]
        return len(starts), ordered[0], ordered[-1]


def series_of(nights: "pd.DataFrame", cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of these nights, ordered by machine, network, framework, workers and
    threads, ratios first.
    """
    found: list[Series] = []
    for kind, sides in SIDES.items():
        # One row for each run and cell: of several environments the one with the most launches.
        once = nights.sort_values("launches", kind="stable").drop_duplicates(
            ["run", "cell", "side"], keep="last"
        )
        of_side = (once[once["side"] == side].sort_index() for side in sides)
        frames = [frame.set_index(["run", "cell"], drop=False) for frame in of_side]
        both = frames[0].index[frames[0].index.isin(frames[-1].index)]
        if len(both):
            found += _of_kind(kind, [frame.loc[both] for frame in frames], cells)

    def row(of: Cell) -> tuple[object, ...]:
        return (
            of.network,
            axes.order_of(of.batch_size),
            of.framework,
            of.mode,
            of.device,
            of.world_size,
            of.threads,
            of,
        )

    return sorted(found, key=lambda s: (s.machine, row(s.cell), s.kind == ABSOLUTE))


def _of_kind(kind: str, frames: list["pd.DataFrame"], cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of one kind from frames (one for each of its `SIDES`) whose rows
    correspond.
    """
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
    searched = np.all(
        [frame["quiet"].to_numpy(dtype=bool) for frame in frames], axis=0
    ) & np.isfinite(logs)
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
        for number, rows in (
            (int(str(number)), rows) for number, rows in first.groupby("cell").indices.items()
        )
    ]


def build_history(
    nights: "pd.DataFrame",
    cells: Mapping[int, Cell],
    magnitude: float = MAGNITUDE,
    machines: Mapping[str, str] | None = None,
    everything: bool = False,
) -> History:
    """Return the history of these nights (as `Store.nights` gives them) of these cells
    (`Store.cells`).

    ``machines`` gives names by fingerprint; ``everything`` is for the report. `explained` adds what
    else changed.
    """
    found = series_of(nights, cells)
    compared = [series for series in found if series.comparable]
    changes = find_changes(
        [series.logs[series.searched] for series in compared],
        magnitude,
        [s.kind == ABSOLUTE for s in compared],
    )
    changed = {
        id(series): _changed(series, its) for series, its in zip(compared, changes, strict=True)
    }
    return History(
        tuple(changed.get(id(each), each) for each in found),
        magnitude,
        dict(machines or {}),
        everything,
    )


def _changed(series: Series, changes: Changes) -> Series:
    drift = None if changes.drift is None else _drift(series, changes.drift)
    return replace(
        series, changes=tuple(_change_point(series, step) for step in changes.steps), drift=drift
    )


def _change_point(series: Series, step: Step) -> ChangePoint:
    before, place = map(int, np.flatnonzero(series.searched)[step.position - 1 : step.position + 1])
    nights = series.night(place), series.night(before)
    ratio, low, high = map(math.exp, (step.size, step.low, step.high))
    return ChangePoint(
        place, *nights, ratio, low, high, step.adjusted_p, step.before, step.after, step.pending
    )


def _drift(series: Series, ramp: Ramp) -> Drift:
    searched = np.flatnonzero(series.searched)
    first, last = int(searched[ramp.first]), int(searched[ramp.last])
    ratio, low, high = map(math.exp, (ramp.size, ramp.low, ramp.high))
    return Drift(
        first,
        last,
        series.night(first),
        series.night(last),
        ratio,
        low,
        high,
        ramp.adjusted_p,
        nights=ramp.last - ramp.first + 1,
        ongoing=len(searched) - 1 - ramp.last < ENOUGH_NIGHTS,
    )


UNSEEN = (
    "What else changed is taken from the records. An upgrade of the kernel, a driver or the "
    "microcode is not shown, since the store keeps only the newest description of a machine."
)

Reader = Callable[[str, int, str], Record | None]
"""Gives one record of a run (its id), a cell (its number in the store) and a side, as
`Store.example` does."""


def explained(history: History, read: Reader, most: int | None = None) -> History:
    """Return the history with the `differences` of its drifts and newest changes filled in,
    ``most`` of each.

    None: of all of them. Reads one record for each side of the two nights, so that the cost grows
    with the changes, not with the store.
    """
    wanted = {id(change) for _, change in history.changes[:most]} | {
        id(drift) for _, drift in history.drifts[:most]
    }
    once = cache(read)

    def between(series: Series, before: Night, after: Night) -> tuple[Difference, ...] | None:
        records = [
            [once(night.run, series.number, side) for night in (before, after)]
            for side in SIDES[series.kind]
        ]
        pairs = [(old, new) for old, new in records if old is not None and new is not None]
        return tuple(each for pair in pairs for each in differences(*pair)) if pairs else None

    def whole(series: Series) -> Series:
        changes = tuple(
            replace(change, differences=between(series, change.night_before, change.night))
            if id(change) in wanted
            else change
            for change in series.changes
        )
        drift = series.drift
        if drift is not None and id(drift) in wanted:
            drift = replace(drift, differences=between(series, drift.first_night, drift.last_night))
        return replace(series, changes=changes, drift=drift)

    return replace(history, cells=tuple(whole(series) for series in history.cells))
