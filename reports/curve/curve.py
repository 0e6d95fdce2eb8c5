"""Curves: the times of cells that differ in numeric axes alone (threads, mini-batch size, workers,
units).

Each report on curves defines which cells make a curve, its findings about a curve and its points
(`Curve.found` and `Point.found`, by their JSON keys), and how they are shown.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import (
    Column,
    attributes,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    within,
)
from dlbench.reports.formats.csv import MEDIAN, Rows
from dlbench.reports.formats.layout import MISSING, Entry
from dlbench.reports.left_out import left_out
from dlbench.reports.results import flags
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.networks import is_own_step
from dlbench.reports.results.number_text import number
from dlbench.reports.results.statistics import Contrast, Summary, holm

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


class Point(NamedTuple):
    """One cell of a curve; a missing one has a status and no seconds."""

    at: Any
    """Its value of the axis."""
    cell: CellResult
    seconds: Summary | None
    """None for a missing cell, and for a number that cannot be used."""
    takes_part: bool = True
    """Whether it counts for findings."""
    found: Mapping[str, Any] = {}


class Curve(NamedTuple):
    """The cells of one machine that differ in the axes of a report alone."""

    host: Host
    cell: Cell
    """The axes that the points share."""
    points: tuple[Point, ...]
    found: Mapping[str, Any] = {}

    @property
    def timed(self) -> list[Point]:
        """The points with a number that can be used."""
        return [point for point in self.points if point.seconds is not None]

    @property
    def taking_part(self) -> list[Point]:
        """The points with a number that counts."""
        return [point for point in self.timed if point.takes_part]

    @property
    def times(self) -> dict[Any, Summary]:
        """The times that can be used, by the axis."""
        return {point.at: point.seconds for point in self.points if point.seconds is not None}

    @property
    def place(self) -> Place:
        """The machine, and the axes that the points share."""
        return Place(self.host.fingerprint, self.cell)


class Curves(NamedTuple):
    """The content of a report."""

    curves: tuple[Curve, ...]
    notes: tuple[str, ...]
    conclusions: Mapping[str, Any] = {}
    """What it finds of several curves together, by the keys of JSON."""


def find_knee(
    axis: str, found: Mapping[int, Found], *tests: Callable[[Found], bool]
) -> dict[str, int | None]:
    """Return the value of the axis from which something holds, with its earliest and latest
    possible values.

    The tests say, in this order, whether it holds by the medians, may hold by the intervals, and is
    proven by them; None stands for no value.
    """
    firsts = (next((at for at, each in found.items() if test(each)), None) for test in tests)
    return dict(zip((axis, "earliest", "latest"), firsts, strict=True))


def along(cells: Iterable[CellResult], *names: str) -> dict[Place, list[CellResult]]:
    """Group cells that differ in these axes alone; cells and groups keep their order."""
    return grouped(cells, lambda cell: Place(cell.column.machine, axes.without(cell.cell, *names)))


def by_machine(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Group curves by their machines; curves and groups keep their order."""
    return list(grouped(curves, lambda curve: curve.host.fingerprint).values())


def best_times(curves: Iterable[Curve]) -> dict[Any, Summary]:
    """Return the fastest of the curves' times at each point."""
    best: dict[Any, Summary] = {}
    for at, seconds in (each for curve in curves for each in curve.times.items()):
        best[at] = min(best.get(at, seconds), seconds, key=lambda each: each.median)
    return best


def usable(cell: CellResult) -> Summary | None:
    """Return the time of a cell with correct mathematics and no more threads than requested; else
    None.
    """
    return None if cell.has(flags.THREADS_EXCEEDED) else cell.timed


def left_out_points(points: Iterable[Point]) -> list[str]:
    """Return a sentence for each reason why numbers that a table shows are not used."""
    return left_out(
        point.cell for point in points if point.seconds is None and point.cell.timed is not None
    )


def adjust_together(several: Iterable[Mapping[Key, Contrast]]) -> list[dict[Key, Contrast]]:
    """Return the comparisons of several rows, those with a p-value adjusted for the number of
    all.
    """
    rows = list(several)
    p_values = [each.p_value for row in rows for each in row.values() if each.p_value is not None]
    adjusted = iter(holm(p_values))

    def adjust(each: Contrast) -> Contrast:
        return (
            each
            if each.p_value is None
            else replace(each, p_adjusted=next(adjusted), family=len(p_values))
        )

    return [{key: adjust(each) for key, each in row.items()} for row in rows]


def computes_nothing(cell: CellResult) -> bool:
    """Return whether a timed cell's framework computes nothing: no parameters, hence no rate, and
    no parity.

    A published cell has no parity either, but not the verdict "unchecked". A user's own step may
    compute anything.
    """
    if is_own_step(cell.cell):
        return False
    unchecked = cell.parity is not None and cell.parity.verdict == "unchecked"
    return cell.seconds is not None and unchecked and cell.gflops is None


# Tables, JSON and CSV.


def grid(
    entries: Mapping[tuple[Any, Key], Entry], columns: Iterable[Key]
) -> list[tuple[Entry, ...]]:
    """Return a row for the first part of each key, by rising numbers, with the entries of the
    second parts.
    """
    columns = list(columns)
    rows = sorted(
        dict.fromkeys(row for row, _ in entries), key=lambda row: row if isinstance(row, int) else 0
    )
    return [
        (Entry(str(row)), *(entries.get((row, each), Entry(MISSING)) for each in columns))
        for row in rows
    ]


def curve_columns(*left_out: str) -> tuple[Column[Curve], ...]:
    """Return the columns of a curve's machine and of its axes but those left out."""
    return (
        *host_columns(lambda curve: curve.host),
        *axis_columns(
            lambda curve: curve.cell, [name for name in axes.NAMES if name not in left_out]
        ),
    )


def cell_columns(*names: str) -> tuple[Column[Point], ...]:
    """Return columns of these attributes of a point's cell."""
    columns: tuple[Column[Point], ...] = attributes(
        lambda point: point.cell, *names, seconds=MEDIAN
    )
    return tuple(
        replace(each, key="seconds_per_minibatch") if each.key == "seconds" else each
        for each in columns
    )


def found_columns(*names: str, **fields: Any) -> tuple[Column[Any], ...]:
    """Return columns of what was found of curves, or of points; ``fields`` as for `attributes`."""
    return attributes(lambda each: each.found, *names, **fields)


def found_column(name: str, heading: str, written: Callable[[Any], str] = number) -> Column[Point]:
    """Return a column of what was found of points, an empty field where that is nothing."""

    def text(point: Point) -> str:
        value = point.found.get(name)
        return "" if value is None else written(value)

    return Column(name, heading, lambda point: point.found.get(name), text)


def filled(columns: Iterable[Column[Point]], points: Sequence[Point]) -> list[Column[Point]]:
    """Return the columns of a table that have something in them."""
    shown = [each for each in columns if each.heading is not None]
    return [
        each
        for each in shown
        if any(each.entry(point).text not in ("", MISSING) for point in points)
    ]


def curve_objects(
    curves: Sequence[Curve],
    of_curve: Sequence[Column[Curve]],
    of_point: Sequence[Column[Point]],
    key: str = "points",
) -> list[dict[str, Any]]:
    """Return a JSON object for each curve, with the list of its points under this key."""
    return [
        {**each, key: objects(of_point, curve.points)}
        for curve, each in zip(curves, objects(of_curve, curves), strict=True)
    ]


def curve_rows(
    curves: Sequence[Curve], of_curve: Sequence[Column[Curve]], of_point: Sequence[Column[Point]]
) -> Rows:
    """Return a CSV line for each point."""
    pairs = [(curve, point) for curve in curves for point in curve.points]
    return csv_rows((*within(of_curve, itemgetter(0)), *within(of_point, itemgetter(1))), pairs)
