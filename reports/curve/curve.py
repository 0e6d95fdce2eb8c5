"""Curves: the times of cells that differ in numeric axes alone (threads, mini-batch size, workers, units)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.families.own import Own
from dlbench.adapters.protocol import Cell
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Place
from dlbench.reports.columns import Column, axis_columns, csv_rows, objects
from dlbench.reports.formats.csv import MEDIAN, Rows
from dlbench.reports.statistics import CONFIDENCE, Summary
from dlbench.reports.storage.hosts import Host

At = TypeVar("At")
Line = TypeVar("Line")
Point = TypeVar("Point")


@dataclass(frozen=True)
class Knee:
    """The point from which something holds: growth stops, or begins."""

    at: int | None
    """By the medians; None: at no measured point."""
    earliest: int | None
    """The first point at which the intervals allow it."""
    latest: int | None
    """The first point at which the intervals show it."""


def find_knee(
    found: Mapping[int, Point],
    holds: Callable[[Point], bool],
    may_hold: Callable[[Point], bool],
    is_shown: Callable[[Point], bool],
) -> Knee:
    """Return the first points at which each of three tests succeeds."""

    def first(test: Callable[[Point], bool]) -> int | None:
        return next((at for at, each in found.items() if test(each)), None)

    return Knee(first(holds), first(may_hold), first(is_shown))


def along(cells: Iterable[CellResult], *names: str) -> dict[Place, list[CellResult]]:
    """Group cells that differ in these axes alone; cells and groups keep their order."""
    found: dict[Place, list[CellResult]] = {}
    for cell in cells:
        found.setdefault(Place(cell.column.machine, axes.without(cell.cell, *names)), []).append(cell)
    return found


def usable(cell: CellResult) -> Summary | None:
    """Return the time of a cell with correct mathematics and no more threads than requested; else None."""
    return None if cell.has(flags.THREADS_EXCEEDED) else cell.timed


def usable_times(cells: Mapping[At, CellResult]) -> dict[At, Summary]:
    """Return the usable times, in the order of the cells."""
    return {at: timed for at, cell in cells.items() if (timed := usable(cell)) is not None}


def computes_nothing(cell: CellResult) -> bool:
    """Return whether a timed cell's framework has no mathematics: no parameters, hence no rate, and no parity.

    A published cell has no parity either, but not the verdict "unchecked". Only its author knows what an own step does.
    """
    if cell.group.network == Own.name:
        return False
    unchecked = cell.parity is not None and cell.parity.verdict == "unchecked"
    return cell.seconds is not None and unchecked and cell.gflops is None


def coverage(times: Iterable[Summary]) -> str:
    """Return the coverage of the intervals of these times, "75 to 95 %": from few steps less than 95 %."""
    known = [each.coverage for each in times if each.coverage is not None] or [CONFIDENCE]
    low, high = (f"{100 * end:.0f}" for end in (min(known), max(known)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def line_columns(
    host: Callable[[Line], Host], cell: Callable[[Line], Cell], *left_out: str
) -> tuple[Column[Line], ...]:
    """Return the columns of a line's machine and of its axes but those left out."""
    return (
        Column("machine", None, lambda line: host(line).fingerprint),
        Column("machine_name", None, lambda line: host(line).name),
        *axis_columns(cell, [name for name in axes.NAMES if name not in left_out]),
    )


def cell_columns(cell: Callable[[Point], CellResult], *names: str) -> tuple[Column[Point], ...]:
    """Return columns of these attributes of a point's cell."""

    def column(name: str) -> Column[Point]:
        key, fields = ("seconds_per_minibatch", MEDIAN) if name == "seconds" else (name, ())
        return Column(key, None, lambda point: getattr(cell(point), name), fields=fields)

    return tuple(column(name) for name in names)


@dataclass(frozen=True)
class CurveColumns(Generic[Line, Point]):
    """The columns of lines and of their points, for JSON and CSV."""

    line: Sequence[Column[Line]]
    point: Sequence[Column[Point]]
    points: Callable[[Line], Iterable[Point]]
    key: str = "points"
    """Of the points in a line's JSON object."""

    def data(self, lines: Sequence[Line]) -> list[dict[str, Any]]:
        """Return an object for each line, with a list of its points."""
        return [
            {**of_line, self.key: objects(self.point, self.points(line))}
            for line, of_line in zip(lines, objects(self.line, lines), strict=True)
        ]

    def rows(self, lines: Sequence[Line]) -> Rows:
        """Return a CSV line for each point."""
        of_lines, names = csv_rows(self.line, lines), csv_rows(self.point, ()).columns
        found = [
            {**of_line, **of_point}
            for line, of_line in zip(lines, of_lines.lines, strict=True)
            for of_point in csv_rows(self.point, self.points(line)).lines
        ]
        return Rows([*of_lines.columns, *names], found)
