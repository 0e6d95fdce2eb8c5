"""The series that a history is made of: for each cell its nights, the oldest first.

A night is a run. One that measured both sides of a cell (baseline and candidate, interleaved on the same machine) gives
the ratio candidate / baseline: what shifts the machine from night to night shifts both, and falls out. A night of a
plain run gives absolute seconds, in a series of its own, where the machine's shifts stay in. No series holds two
machines: a cell's number is of one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters.protocol import Cell
from dlbench.reports.history.change_points import CONFIDENCE

if TYPE_CHECKING:
    import pandas as pd

RATIO, ABSOLUTE = "ratio", "absolute"
CAVEATS = {
    RATIO: "ratio to the same night's baseline",
    ABSOLUTE: "absolute: the machine's own shifts cannot be told from the code's",
}
PLAIN, BASELINE, CANDIDATE = "", "baseline", "candidate"
SIDES = {RATIO: (CANDIDATE, BASELINE), ABSOLUTE: (PLAIN,)}
"""The sides of the records that a kind of series is made of, what may have changed first."""

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
    """Half-widths of the nights' 95 % intervals, log units; NaN where there is none."""
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
    columns = [_Columns.of(frame) for frame in frames]
    logs = columns[0].means - (columns[1].means if len(columns) > 1 else 0.0)
    halves = _half_widths(columns)
    searched = np.all([each.quiet for each in columns], axis=0) & np.isfinite(logs)
    numbers, started = first["cell"].to_numpy(), first["started"].to_numpy(dtype=object)
    runs, machines = first["run"].to_numpy(dtype=object), first["machine"].to_numpy(dtype=object)
    # The store gives the oldest run first; a stable sort by cell keeps that order within each.
    order = np.argsort(numbers, kind="stable")
    found = []
    for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
        number = int(numbers[rows[0]])
        found.append(
            Series(
                str(machines[rows[0]]),
                cells[number],
                number,
                kind,
                runs[rows],
                started[rows],
                logs[rows],
                halves[rows],
                searched[rows],
                tuple(each.environments[rows] for each in columns),
            )
        )
    return found


class _Columns(NamedTuple):
    """One side of many nights."""

    means: Floats
    variances: Floats
    """Of a launch."""
    launches: Floats
    quiet: NDArray[np.bool_]
    environments: NDArray[np.object_]

    @classmethod
    def of(cls, frame: "pd.DataFrame") -> "_Columns":
        launches = frame["launches"].to_numpy(dtype=float)
        return cls(
            frame["log_mean"].to_numpy(dtype=float),
            frame["log_variance"].to_numpy(dtype=float),
            launches,
            frame["quiet"].to_numpy(dtype=bool),
            frame["environment"].to_numpy(dtype=object),
        )


def _half_widths(sides: Sequence[_Columns]) -> Floats:
    """Return the half-widths of the 95 % intervals of one mean log, or of the difference of two (Welch 1947)."""
    from scipy.special import stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        parts = [side.variances / side.launches for side in sides]
        variance = np.sum(parts, axis=0)
        spread = np.sum([part**2 / (side.launches - 1) for part, side in zip(parts, sides, strict=True)], axis=0)
        # Without any spread the degrees of freedom are of no matter.
        freedom = np.where(variance > 0, variance**2 / spread, 1.0)
        halves: Floats = stdtrit(freedom, 0.5 + CONFIDENCE / 2) * np.sqrt(variance)
    return halves
