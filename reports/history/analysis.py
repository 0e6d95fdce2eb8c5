"""The history of a store: for each cell the series of its nights, and where that changed its level."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlbench.adapters.protocol import Cell
from dlbench.reports.history.change_points import MAGNITUDE, Step, find_steps
from dlbench.reports.history.series import ABSOLUTE, SIDES, Night, Series, series_of

if TYPE_CHECKING:
    import pandas as pd


class Difference(NamedTuple):
    """Something that was otherwise the night before."""

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
    """What was otherwise the night before; None where nobody looked, or no record tells."""

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
    """A series with what was found in it."""

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
        """Whether its latest nights are off."""
        return bool(self.changes) and self.changes[-1].pending


@dataclass(frozen=True, eq=False)
class History:
    """All cells of a store, and what was asked."""

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
