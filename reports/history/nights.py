"""The series that a history is made of: for each cell its nights, the oldest first.

A night is a run. One that measured both sides of a cell (baseline and candidate, interleaved on the same machine) gives
the ratio candidate / baseline: what shifts the machine from night to night shifts both, and falls out. A night of a
plain run gives absolute seconds, in a series of its own, where the machine's shifts stay in. No series holds two
machines: a cell's number is of one.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters.protocol import Cell
from dlbench.reports.history.change_points import CONFIDENCE, MAGNITUDE, Step, find_steps
from dlbench.reports.storage.record import Record

if TYPE_CHECKING:
    import pandas as pd


RATIO, ABSOLUTE = "ratio", "absolute"
CAVEATS = {
    RATIO: "ratio to the same night's baseline",
    ABSOLUTE: "absolute: the machine's own shifts cannot be told from the code's",
}
PLAIN, BASELINE, CANDIDATE = "", "baseline", "candidate"
SIDES = {RATIO: (CANDIDATE, BASELINE), ABSOLUTE: (PLAIN,)}
"""The sides of the records of each kind of series, the one that may have changed first."""

NIGHTLY = ("suite", "gate")
"""Purposes of the runs that a history is made of. A comparison by hand is no night: each compares other things."""

Floats = NDArray[np.float64]


class Night(NamedTuple):
    """One point of a series."""

    run: str
    started: str
    """ISO 8601 in UTC."""
    value: float
    """Ratio, or seconds per mini-batch."""
    low: float | None
    """Lower end of the 95 % interval over the night's launches; None where they are too few for one."""
    high: float | None
    searched: bool
    """Whether it takes part in the search for changes: not where every launch was disturbed by others."""
    environments: tuple[str, ...]
    """Digest of the framework's environment on each of the series' `SIDES`."""


@dataclass(frozen=True, eq=False)
class Series:
    """The nights of one cell on one machine, the oldest first; arrays of one length."""

    machine: str
    cell: Cell
    number: int
    """The cell's number in its store."""
    kind: str
    """`RATIO` or `ABSOLUTE`."""
    runs: NDArray[np.object_]
    started: NDArray[np.object_]
    logs: Floats
    """Natural logarithms of ratios or seconds."""
    halves: Floats
    """Half-widths of the nights' 95 % intervals, log units; NaN if unknown."""
    searched: NDArray[np.bool_]
    environments: tuple[NDArray[np.object_], ...]

    def __len__(self) -> int:
        return len(self.logs)

    def night(self, place: int) -> Night:
        """Return one night."""
        log, half = float(self.logs[place]), float(self.halves[place])
        known = not math.isnan(half)
        return Night(
            str(self.runs[place]),
            str(self.started[place]),
            math.exp(log),
            math.exp(log - half) if known else None,
            math.exp(log + half) if known else None,
            bool(self.searched[place]),
            tuple(str(each[place]) for each in self.environments),
        )


def series_of(nights: "pd.DataFrame", cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of these nights, ordered by machine, network, framework, workers and threads, ratios first."""
    sides = {side: nights[nights["side"] == side] for side in (PLAIN, BASELINE, CANDIDATE)}
    sides = {side: _once(frame) for side, frame in sides.items()}
    found = _of_kind(ABSOLUTE, [sides[PLAIN]], cells)
    if len(sides[CANDIDATE]) and len(sides[BASELINE]):
        both = sides[CANDIDATE].merge(sides[BASELINE][["run", "cell"]], on=["run", "cell"])[["run", "cell"]]
        pair = [both.merge(sides[side], on=["run", "cell"], how="left") for side in SIDES[RATIO]]
        found += _of_kind(RATIO, pair, cells)
    return sorted(found, key=lambda s: (s.machine, s.cell.network, *_row(s.cell), s.kind == ABSOLUTE))


def _row(cell: Cell) -> tuple[object, ...]:
    return cell.batch_size, cell.framework, cell.mode, cell.device, cell.world_size, cell.threads, cell


def _once(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return one row for each run and cell: of several environments the one with the most launches."""
    if not frame.duplicated(["run", "cell"]).any():
        return frame
    return frame.sort_values("launches", kind="stable").drop_duplicates(["run", "cell"], keep="last").sort_index()


def _of_kind(kind: str, frames: Sequence["pd.DataFrame"], cells: Mapping[int, Cell]) -> list[Series]:
    """Return the series of one kind from frames (one for each of its `SIDES`) whose rows correspond."""
    first = frames[0]
    if not len(first):
        return []
    means = [frame["log_mean"].to_numpy(dtype=float) for frame in frames]
    logs = means[0] - (means[1] if len(means) > 1 else 0.0)
    halves = _half_widths(frames)
    searched = np.all([frame["quiet"].to_numpy(dtype=bool) for frame in frames], axis=0) & np.isfinite(logs)
    environments = [frame["environment"].to_numpy(dtype=object) for frame in frames]
    numbers, started = first["cell"].to_numpy(), first["started"].to_numpy(dtype=object)
    runs, machines = first["run"].to_numpy(dtype=object), first["machine"].to_numpy(dtype=object)
    # The store gives the oldest run first; a stable sort by cell keeps that order within each.
    order = np.argsort(numbers, kind="stable")
    return [
        Series(
            str(machines[rows[0]]),
            cells[int(numbers[rows[0]])],
            int(numbers[rows[0]]),
            kind,
            runs[rows],
            started[rows],
            logs[rows],
            halves[rows],
            searched[rows],
            tuple(each[rows] for each in environments),
        )
        for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    ]


def _half_widths(sides: Sequence["pd.DataFrame"]) -> Floats:
    """Return the half-widths of the 95 % intervals of one mean log, or of the difference of two (Welch 1947)."""
    from scipy.special import stdtrit

    launches = [side["launches"].to_numpy(dtype=float) for side in sides]
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [side["log_variance"].to_numpy(dtype=float) / n for side, n in zip(sides, launches, strict=True)]
        variance = np.sum(parts, axis=0)
        spread = np.sum([part**2 / (n - 1) for part, n in zip(parts, launches, strict=True)], axis=0)
        # Without any spread the degrees of freedom do not matter.
        freedom = np.where(variance > 0, variance**2 / spread, 1.0)
        halves: Floats = stdtrit(freedom, 0.5 + CONFIDENCE / 2) * np.sqrt(variance)
    return halves


class Difference(NamedTuple):
    """Something that differed the night before."""

    side: str
    what: str
    before: str | None
    """None: it was not there."""
    after: str | None


class Event(NamedTuple):
    """A night from which on a framework's environment is another."""

    place: int
    side: str
    before: str
    after: str


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
class CellHistory:
    """A series with its changes and events."""

    series: Series
    changes: tuple[ChangePoint, ...] = ()
    """The oldest first; the last one may be pending."""
    events: tuple[Event, ...] = ()

    @property
    def level(self) -> float | None:
        """Geometric mean of the nights since the last change; None where none took part in the search."""
        start = self.changes[-1].place if self.changes else 0
        inside = self.series.logs[start:][self.series.searched[start:]]
        return math.exp(float(inside.mean())) if len(inside) else None

    @property
    def pending(self) -> bool:
        """Whether its latest change is pending."""
        return bool(self.changes) and self.changes[-1].pending


@dataclass(frozen=True, eq=False)
class History:
    """All cells of a store, and the options."""

    cells: tuple[CellHistory, ...]
    magnitude: float
    """Smallest change reported, relative."""
    machines: dict[str, str] = field(default_factory=dict)
    """Name for people by fingerprint."""
    everything: bool = False
    """Whether every series and change is shown, not only the newest changes."""

    @property
    def changes(self) -> list[tuple[CellHistory, ChangePoint]]:
        """Every change with its cell, the newest first and then the largest."""
        found = [(cell, change) for cell in self.cells for change in cell.changes]
        found.sort(key=lambda pair: abs(math.log(pair[1].ratio)), reverse=True)
        return sorted(found, key=lambda pair: pair[1].night.started, reverse=True)

    def nights(self) -> tuple[int, str, str]:
        """Return how many nights there are, and when the first and the last began (ISO 8601, UTC; "" without any)."""
        starts = {
            night
            for cell in self.cells
            for night in zip(cell.series.runs.tolist(), cell.series.started.tolist(), strict=True)
        }
        ordered = sorted(start for _, start in starts) or [""]
        return len(starts), ordered[0], ordered[-1]


def build_history(
    nights: "pd.DataFrame",
    cells: Mapping[int, Cell],
    magnitude: float = MAGNITUDE,
    machines: Mapping[str, str] | None = None,
    everything: bool = False,
) -> History:
    """Return the history of these nights (as `Store.nights` gives them) of these cells (`Store.cells`).

    ``machines`` gives names by fingerprint; ``everything`` is kept for whoever shows it. Nothing is read but these;
    `what_changed.explained` tells what changed.
    """
    found = series_of(nights, cells)
    steps = find_steps([each.logs[each.searched] for each in found], magnitude, [s.kind == ABSOLUTE for s in found])
    histories = (
        CellHistory(series, tuple(_change(series, step) for step in its), _events(series))
        for series, its in zip(found, steps, strict=True)
    )
    return History(tuple(histories), magnitude, dict(machines or {}), everything)


def _change(series: Series, step: Step) -> ChangePoint:
    places = np.flatnonzero(series.searched)
    place = int(places[step.position])
    return ChangePoint(
        place,
        series.night(place),
        series.night(int(places[step.position - 1])),
        math.exp(step.size),
        math.exp(step.low),
        math.exp(step.high),
        step.adjusted_p,
        step.before,
        step.after,
        step.pending,
    )


def _events(series: Series) -> tuple[Event, ...]:
    found = []
    for side, digests in zip(SIDES[series.kind], series.environments, strict=True):
        for place in np.flatnonzero(digests[1:] != digests[:-1]) + 1:
            found.append(Event(int(place), side, str(digests[place - 1]), str(digests[place])))
    return tuple(sorted(found))


UNSEEN = (
    "What changed is taken from the records. Of the machine the store keeps only the newest description: a kernel, "
    "driver or microcode upgraded that night is not shown."
)

Reader = Callable[[str, int, str], Record | None]
"""Gives one record of a run (its id), a cell (its number in the store) and a side, as `Store.example` does."""

_DISTRIBUTIONS = "distributions"


def explained(history: History, read: Reader, most: int | None = None) -> History:
    """Return the history with the `differences` of its newest ``most`` changes filled in; None: of all of them.

    Reads one record for each side of the two nights, so that the cost grows with the changes, not with the store.
    """
    wanted = {(id(cell), change.place) for cell, change in history.changes[:most]}
    known: dict[tuple[str, int, str], Record | None] = {}

    def once(run: str, number: int, side: str) -> Record | None:
        key = run, number, side
        if key not in known:
            known[key] = read(*key)
        return known[key]

    cells = []
    for cell in history.cells:
        changes = tuple(
            replace(change, differences=_of_change(cell, change, once))
            if (id(cell), change.place) in wanted
            else change
            for change in cell.changes
        )
        cells.append(replace(cell, changes=changes))
    return replace(history, cells=tuple(cells))


def _of_change(cell: CellHistory, change: ChangePoint, read: Reader) -> tuple[Difference, ...] | None:
    found: list[Difference] = []
    told = False
    for side in SIDES[cell.series.kind]:
        before = read(change.night_before.run, cell.series.number, side)
        after = read(change.night.run, cell.series.number, side)
        if before is not None and after is not None:
            told = True
            found += differences(before, after)
    return tuple(found) if told else None


def differences(before: Record, after: Record) -> tuple[Difference, ...]:
    """Return the differences of two records of one cell and side other than their measurements, packages first."""
    old, new = before.outcome.software, after.outcome.software
    packages = [*_each("", _mapping(old, _DISTRIBUTIONS), _mapping(new, _DISTRIBUTIONS))]
    versions = [(before, after) for _, before, after in packages]
    pairs = [
        *packages,
        # The framework's own word for its version says nothing beyond its package's.
        *(pair for pair in _each("", _settings(old), _settings(new)) if pair[1:] not in versions),
        ("interpreter", before.interpreter, after.interpreter),
        ("dlbench", before.version, after.version),
        *_each("protocol ", before.protocol._asdict(), after.protocol._asdict()),
        ("CPUs", before.outcome.cpus, after.outcome.cpus),
        ("CPU quota", before.quota_cpus, after.quota_cpus),
        ("environment", before.environment[:12], after.environment[:12]),
    ]
    side = after.side
    return tuple(Difference(side, what, _words(old), _words(new)) for what, old, new in pairs if old != new)


def _settings(software: Mapping[str, Any]) -> dict[str, Any]:
    """Return the framework's description of itself without its packages, one level deep."""
    flat: dict[str, Any] = {}
    for key, value in software.items():
        if key == _DISTRIBUTIONS:
            continue
        if isinstance(value, Mapping):
            flat |= {f"{key} {inner}": inside for inner, inside in value.items()}
        else:
            flat[key] = value
    return flat


def _mapping(software: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = software.get(key)
    return value if isinstance(value, Mapping) else {}


def _each(prefix: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        yield prefix + str(key), old.get(key), new.get(key)


def _words(value: object) -> str | None:
    return None if value is None else " ".join(str(value).split())
