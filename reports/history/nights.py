"""The series of a history: for each cell its nights, the oldest first.

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
from dlbench.reports.history.change_points import ENOUGH_NIGHTS, MAGNITUDE, LevelChange
from dlbench.reports.history.drifts import Changes, Ramp, find_changes
from dlbench.reports.results.differences import Difference, differences
from dlbench.reports.results.hosts import UNKNOWN_MACHINE
from dlbench.reports.results.judged import TIME
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import CONFIDENCE

if TYPE_CHECKING:
    import pandas as pd


RATIO = "ratio"
ABSOLUTE = "absolute"
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
    """Whether the search for changes uses it. If other programs disturbed every launch, not."""
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
    """Index of its first night in the series."""
    last: int
    """Index of its last night."""
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
    """The nights of one cell on one machine, with its changes and events.

    The nights are arrays of one length, the oldest first.
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
    quantity: str = TIME
    """`TIME`, or a name of `judged.JUDGED`."""

    def __len__(self) -> int:
        return len(self.logs)

    def night(self, place: int) -> Night:
        """Return one night."""
        log = float(self.logs[place])
        half = float(self.halves[place])
        low = high = None
        if not math.isnan(half):
            low = math.exp(log - half)
            high = math.exp(log + half)
        return Night(
            run=str(self.runs[place]),
            started=str(self.started[place]),
            value=math.exp(log),
            low=low,
            high=high,
            searched=bool(self.searched[place]),
            environments=tuple(str(digests[place]) for digests in self.environments),
        )

    @property
    def comparable(self) -> bool:
        """Whether its nights are known to be of one machine."""
        return self.machine != UNKNOWN_MACHINE

    @property
    def drifted(self) -> Floats:
        """The drift up to each night, in log units; 0 without a drift."""
        if self.drift is None:
            return np.zeros(len(self))
        nights = np.cumsum(self.searched)
        first = nights[self.drift.first]
        last = nights[self.drift.last]
        share: Floats = np.clip((nights - first) / (last - first), 0.0, 1.0)
        return share * math.log(self.drift.ratio)

    @property
    def level(self) -> float | None:
        """Geometric mean of the searched nights since the last change; None without any.

        Nights before the end of a drift count as if it had been over.
        """
        start = self.changes[-1].place if self.changes else 0
        drifted = self.drifted
        logs = (self.logs - drifted)[start:][self.searched[start:]]
        if not len(logs):
            return None
        return math.exp(float(logs.mean()) + float(drifted[-1]))

    @property
    def events(self) -> list[tuple[int, Difference]]:
        """The nights on which a framework's environment changed."""
        events = []
        for side, digests in zip(SIDES[self.kind], self.environments, strict=True):
            for place in np.flatnonzero(digests[1:] != digests[:-1]) + 1:
                before = str(digests[place - 1])
                after = str(digests[place])
                events.append((int(place), Difference(side, "environment", before, after)))
        return sorted(events)


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
    quantity: str = TIME
    """`TIME`, or a name of `judged.JUDGED`."""

    @property
    def drifts(self) -> list[tuple[Series, Drift]]:
        """Every drift with its series, the largest first."""
        drifts = [(cell, cell.drift) for cell in self.cells if cell.drift is not None]
        return sorted(drifts, key=_size_of_change, reverse=True)

    @property
    def changes(self) -> list[tuple[Series, ChangePoint]]:
        """Every change with its series, the newest first and then the largest."""
        changes = []
        for cell in self.cells:
            for change in cell.changes:
                changes.append((cell, change))
        changes.sort(key=_size_of_change, reverse=True)
        return sorted(changes, key=lambda pair: pair[1].night.started, reverse=True)

    def nights(self) -> tuple[int, str, str]:
        """Return the number of nights, and the starts of the first and the last.

        The starts are ISO 8601 in UTC, or "" without any night.
        """
        nights: set[tuple[object, object]] = set()
        for cell in self.cells:
            nights.update(zip(cell.runs, cell.started, strict=True))
        if not nights:
            return 0, "", ""
        starts = sorted(str(start) for _, start in nights)
        return len(nights), starts[0], starts[-1]


def _size_of_change(pair: tuple[Series, ChangePoint | Drift]) -> float:
    """Return how far a series' change or drift is from none, in log units."""
    return abs(math.log(pair[1].ratio))


def series_of(nights: "pd.DataFrame", cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of these nights, ordered by machine and cell, ratios first."""
    all_series: list[Series] = []
    # One row for each run and cell: of several environments the one with the most launches.
    rows = nights.sort_values("launches", kind="stable").drop_duplicates(
        ["run", "cell", "side"], keep="last"
    )
    for kind, sides in SIDES.items():
        frames = []
        for side in sides:
            rows_of_side = rows[rows["side"] == side].sort_index()
            frames.append(rows_of_side.set_index(["run", "cell"], drop=False))
        common = frames[0].index[frames[0].index.isin(frames[-1].index)]
        if len(common):
            all_series += _series_of_kind(kind, [frame.loc[common] for frame in frames], cells)
    return sorted(all_series, key=_series_order)


def _series_order(series: Series) -> tuple[object, ...]:
    cell = series.cell
    return (
        series.machine,
        cell.network,
        axes.order_of(cell.batch_size),
        cell.framework,
        cell.mode,
        cell.device,
        cell.world_size,
        cell.threads,
        cell,
        series.kind == ABSOLUTE,
    )


def _series_of_kind(
    kind: str, frames: list["pd.DataFrame"], cells: Mapping[int, Cell]
) -> list[Series]:
    """Return the series of one kind from frames, one for each of its `SIDES`.

    The rows of the frames correspond.
    """
    means = _side_values(frames, "log_mean")
    logs = means[0]
    if len(means) > 1:
        logs = means[0] - means[1]
    halves = _half_widths(_side_values(frames, "log_variance"), _side_values(frames, "launches"))
    quiet = np.all([frame["quiet"].to_numpy(dtype=bool) for frame in frames], axis=0)
    searched = quiet & np.isfinite(logs)
    environments = [frame["environment"].to_numpy(dtype=object) for frame in frames]
    first = frames[0].reset_index(drop=True)
    runs = first["run"].to_numpy(dtype=object)
    started = first["started"].to_numpy(dtype=object)
    all_series = []
    # The store gives the oldest run first, and groups keep that order.
    for key, rows in first.groupby("cell").indices.items():
        number = int(str(key))
        all_series.append(
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
                tuple(digests[rows] for digests in environments),
            )
        )
    return all_series


def _side_values(frames: list["pd.DataFrame"], name: str) -> Floats:
    """Return a column of numbers as one row for each frame."""
    return np.array([frame[name].to_numpy(dtype=float) for frame in frames])


def _half_widths(variances: Floats, launches: Floats) -> Floats:
    """Return half the 95 % interval of one mean log, or of the difference of two (Welch 1947)."""
    from scipy.special import stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        parts = variances / launches
        variance = parts.sum(axis=0)
        spread = (parts**2 / (launches - 1)).sum(axis=0)
        # Without any spread the degrees of freedom do not matter.
        freedom = np.where(variance > 0, variance**2 / spread, 1.0)
        halves: Floats = stdtrit(freedom, 0.5 + CONFIDENCE / 2) * np.sqrt(variance)
    return halves


def build_history(
    nights: "pd.DataFrame",
    cells: Mapping[int, Cell],
    magnitude: float = MAGNITUDE,
    machines: Mapping[str, str] | None = None,
    everything: bool = False,
    quantity: str = TIME,
) -> History:
    """Return the history of these nights (`Store.nights`) of these cells (`Store.cells`).

    ``machines`` gives names by fingerprint; ``everything`` is for the report; ``quantity`` is that
    of the nights. `explained` adds the other changes.
    """
    all_series = [replace(series, quantity=quantity) for series in series_of(nights, cells)]
    logs = []
    are_absolute = []
    for series in all_series:
        if series.comparable:
            logs.append(series.logs[series.searched])
            are_absolute.append(series.kind == ABSOLUTE)
    remaining_changes = iter(find_changes(logs, magnitude, are_absolute))
    with_changes = []
    for series in all_series:
        if series.comparable:
            series = _add_changes(series, next(remaining_changes))
        with_changes.append(series)
    return History(tuple(with_changes), magnitude, dict(machines or {}), everything, quantity)


def _add_changes(series: Series, changes: Changes) -> Series:
    steps = tuple(_change_point(series, step) for step in changes.steps)
    drift = None if changes.drift is None else _drift(series, changes.drift)
    return replace(series, changes=steps, drift=drift)


def _change_point(series: Series, step: LevelChange) -> ChangePoint:
    searched = np.flatnonzero(series.searched)
    place = int(searched[step.position])
    place_before = int(searched[step.position - 1])
    return ChangePoint(
        place=place,
        night=series.night(place),
        night_before=series.night(place_before),
        ratio=math.exp(step.size),
        low=math.exp(step.low),
        high=math.exp(step.high),
        adjusted_p=step.adjusted_p,
        nights_before=step.before,
        nights_after=step.after,
        pending=step.pending,
    )


def _drift(series: Series, ramp: Ramp) -> Drift:
    searched = np.flatnonzero(series.searched)
    first = int(searched[ramp.first])
    last = int(searched[ramp.last])
    return Drift(
        first=first,
        last=last,
        first_night=series.night(first),
        last_night=series.night(last),
        ratio=math.exp(ramp.size),
        low=math.exp(ramp.low),
        high=math.exp(ramp.high),
        adjusted_p=ramp.adjusted_p,
        nights=ramp.last - ramp.first + 1,
        ongoing=len(searched) - 1 - ramp.last < ENOUGH_NIGHTS,
    )


UNSEEN = (
    "What else changed is taken from the records. An upgrade of the kernel, a driver or the "
    "microcode is not shown, since the store keeps only the newest description of a machine."
)

Reader = Callable[[str, int, str], Record | None]
"""Returns a record of a run (its id), a cell (its number) and a side, as `Store.example` does."""


def add_differences(history: History, read: Reader, most: int | None = None) -> History:
    """Return the history with the `differences` of ``most`` drifts and ``most`` newest changes.

    None: of all of them. Reads one record for each side of the two nights, so that the cost grows
    with the changes, not with the store.
    """
    wanted = {id(change) for _, change in history.changes[:most]}
    wanted |= {id(drift) for _, drift in history.drifts[:most]}
    read_once = cache(read)

    def between(series: Series, before: Night, after: Night) -> tuple[Difference, ...] | None:
        all_differences: list[Difference] = []
        has_records = False
        for side in SIDES[series.kind]:
            old = read_once(before.run, series.number, side)
            new = read_once(after.run, series.number, side)
            if old is not None and new is not None:
                has_records = True
                all_differences.extend(differences(old, new))
        if not has_records:
            return None
        return tuple(all_differences)

    def explain(series: Series) -> Series:
        changes = []
        for change in series.changes:
            if id(change) in wanted:
                other_changes = between(series, change.night_before, change.night)
                change = replace(change, differences=other_changes)
            changes.append(change)
        drift = series.drift
        if drift is not None and id(drift) in wanted:
            drift = replace(drift, differences=between(series, drift.first_night, drift.last_night))
        return replace(series, changes=tuple(changes), drift=drift)

    return replace(history, cells=tuple(explain(series) for series in history.cells))
