"""Curves: times of cells that differ in numeric axes alone (threads, mini-batch, workers, units).

Each report on curves defines which cells make a curve, its findings about a curve and its points
(`Curve.findings` and `CurvePoint.findings`, with a field for each JSON key), and the way to show
them.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

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
from dlbench.reports.formats.csv import MEDIAN, VALUE, Rows
from dlbench.reports.formats.layout import MISSING, Entry
from dlbench.reports.left_out import left_out
from dlbench.reports.results import flag_kinds
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Key, Place, grouped
from dlbench.reports.results.networks import is_own_step
from dlbench.reports.results.number_text import number
from dlbench.reports.results.statistics import Contrast, Summary, holm

Value = TypeVar("Value")
At = TypeVar("At", bound=Hashable)
"""A value of the axis."""
PointFindings = TypeVar("PointFindings")
CurveFindings = TypeVar("CurveFindings")
Conclusions = TypeVar("Conclusions")


class CurvePoint(NamedTuple, Generic[At, PointFindings]):
    """One cell of a curve; a missing one has a status and no seconds."""

    at: At
    """Its value of the axis."""
    cell: CellResult
    seconds: Summary | None
    """None for a missing cell, and for a number that cannot be used."""
    findings: PointFindings
    """The report's findings about it: an object with a field for each JSON key, or None."""
    takes_part: bool = True
    """Whether it counts for findings."""


class Curve(NamedTuple, Generic[At, PointFindings, CurveFindings]):
    """The cells of one machine that differ in the axes of a report alone."""

    host: Host
    cell: Cell
    """The axes that the points share."""
    points: tuple[CurvePoint[At, PointFindings], ...]
    findings: CurveFindings
    """The report's findings about it: an object with a field for each JSON key, or None."""

    @property
    def timed(self) -> list[CurvePoint[At, PointFindings]]:
        """The points with a number that can be used."""
        return [point for point in self.points if point.seconds is not None]

    @property
    def taking_part(self) -> list[CurvePoint[At, PointFindings]]:
        """The points with a number that counts."""
        return [point for point in self.timed if point.takes_part]

    @property
    def times(self) -> dict[At, Summary]:
        """The times that can be used, by the axis."""
        return {point.at: point.seconds for point in self.points if point.seconds is not None}

    @property
    def place(self) -> Place:
        """The machine, and the axes that the points share."""
        return Place(self.host.fingerprint, self.cell)


class Curves(NamedTuple, Generic[At, PointFindings, CurveFindings, Conclusions]):
    """The content of a report."""

    curves: tuple[Curve[At, PointFindings, CurveFindings], ...]
    notes: tuple[str, ...]
    conclusions: Conclusions
    """Its findings about several curves together, in an object of the report's own, or None."""


AnyPoint = CurvePoint[Any, Any]
AnyCurve = Curve[Any, Any, Any]
SomePoint = TypeVar("SomePoint", bound=AnyPoint)
SomeCurve = TypeVar("SomeCurve", bound=AnyCurve)


def find_knee(
    values: Mapping[int, Value], *tests: Callable[[Value], bool]
) -> tuple[int | None, ...]:
    """Return the value of the axis from which something holds, then the earliest and latest.

    The tests say, in this order, whether it holds by the medians, may hold by the intervals, and is
    proven by them; None stands for no value.
    """
    firsts = []
    for test in tests:
        firsts.append(next((at for at, value in values.items() if test(value)), None))
    return tuple(firsts)


def along(cells: Iterable[CellResult], *names: str) -> dict[Place, list[CellResult]]:
    """Group cells that differ in these axes alone. Cells and groups keep their order."""

    def shared_place(cell: CellResult) -> Place:
        return Place(cell.column.machine, axes.without(cell.cell, *names))

    return grouped(cells, shared_place)


def by_machine(curves: Iterable[SomeCurve]) -> list[list[SomeCurve]]:
    """Group curves by their machines. Curves and groups keep their order."""
    return list(grouped(curves, lambda curve: curve.host.fingerprint).values())


def points_of(
    curves: Iterable[Curve[At, PointFindings, CurveFindings]],
) -> list[CurvePoint[At, PointFindings]]:
    """Return the points of all curves."""
    points: list[CurvePoint[At, PointFindings]] = []
    for curve in curves:
        points += curve.points
    return points


def best_times(curves: Iterable[Curve[At, PointFindings, CurveFindings]]) -> dict[At, Summary]:
    """Return the fastest of the curves' times at each point."""
    best: dict[At, Summary] = {}
    for curve in curves:
        for at, seconds in curve.times.items():
            if at not in best or seconds.median < best[at].median:
                best[at] = seconds
    return best


def usable(cell: CellResult) -> Summary | None:
    """Return the time of a cell with correct mathematics and no extra threads, else None."""
    if cell.has(flag_kinds.THREADS_EXCEEDED):
        return None
    return cell.timed


def left_out_points(points: Iterable[AnyPoint]) -> list[str]:
    """Return a sentence for each reason why numbers that a table shows are not used."""
    return left_out(
        point.cell for point in points if point.seconds is None and point.cell.timed is not None
    )


def adjust_together(several: Iterable[Mapping[Key, Contrast]]) -> list[dict[Key, Contrast]]:
    """Return the comparisons of several rows with p-values adjusted for the number of all.

    Comparisons without a p-value stay as they are.
    """
    rows = list(several)
    p_values = []
    for row in rows:
        for compared in row.values():
            if compared.p_value is not None:
                p_values.append(compared.p_value)
    adjusted_values = iter(holm(p_values))
    adjusted_rows = []
    for row in rows:
        adjusted_row = {}
        for key, compared in row.items():
            adjusted = compared
            if compared.p_value is not None:
                p_adjusted = next(adjusted_values)
                adjusted = replace(compared, p_adjusted=p_adjusted, family=len(p_values))
            adjusted_row[key] = adjusted
        adjusted_rows.append(adjusted_row)
    return adjusted_rows


def computes_nothing(cell: CellResult) -> bool:
    """Return whether a timed cell's framework computes nothing.

    Such a framework has no parameters, hence no rate, and no parity. A published cell has no parity
    either, but not the verdict "unchecked". A user's own step may compute anything.
    """
    if is_own_step(cell.cell):
        return False
    unchecked = cell.parity is not None and cell.parity.verdict == "unchecked"
    return cell.seconds is not None and unchecked and cell.gflops is None


# Tables, JSON and CSV.


def grid(
    entries: Mapping[tuple[Any, Key], Entry], columns: Iterable[Key]
) -> list[tuple[Entry, ...]]:
    """Return the lines of a table whose entries have a row and a column as their key.

    Rows that are numbers rise; others keep their order.
    """
    columns = list(columns)
    rows = dict.fromkeys(row for row, _ in entries)
    lines = []
    for row in sorted(rows, key=_number_or_zero):
        fields = [entries.get((row, column), Entry(MISSING)) for column in columns]
        lines.append((Entry(str(row)), *fields))
    return lines


def _number_or_zero(row: Any) -> int:
    return row if isinstance(row, int) else 0


def curve_columns(*left_out: str) -> tuple[Column[AnyCurve], ...]:
    """Return the columns of a curve's machine and of its axes but those left out."""
    names = [name for name in axes.NAMES if name not in left_out]
    return (*host_columns(lambda curve: curve.host), *axis_columns(lambda curve: curve.cell, names))


def cell_columns(*names: str) -> tuple[Column[AnyPoint], ...]:
    """Return columns of these attributes of a point's cell."""
    columns: tuple[Column[AnyPoint], ...] = attributes(
        lambda point: point.cell, *names, seconds=MEDIAN
    )
    renamed = []
    for column in columns:
        if column.key == "seconds":
            column = replace(column, key="seconds_per_minibatch")
        renamed.append(column)
    return tuple(renamed)


def finding_columns(*names: str, **fields: Any) -> tuple[Column[Any], ...]:
    """Return columns of the findings about curves, or points; ``fields`` as for `attributes`."""
    return attributes(lambda row: row.findings, *names, **fields)


def finding_column(
    name: str, heading: str, written: Callable[[Any], str] = number
) -> Column[AnyPoint]:
    """Return a column of a finding about points. Its field is empty where that is None."""

    def finding(point: AnyPoint) -> Any:
        return getattr(point.findings, name)

    def text(point: AnyPoint) -> str:
        value = finding(point)
        if value is None:
            return ""
        return written(value)

    return Column(name, heading, finding, text)


def estimate_fields(names: Iterable[str]) -> list[str]:
    """Return the CSV fields of estimates: the value of each and the ends of its interval."""
    fields = []
    for name in names:
        fields += [f"{name}.{part}" for part in VALUE]
    return fields


def filled(
    columns: Iterable[Column[SomePoint]], points: Sequence[SomePoint]
) -> list[Column[SomePoint]]:
    """Return the columns of a table that have something in them."""
    columns_with_text = []
    for column in columns:
        if column.heading is not None and any(_has_text(column, point) for point in points):
            columns_with_text.append(column)
    return columns_with_text


def _has_text(column: Column[SomePoint], point: SomePoint) -> bool:
    return column.entry(point).text not in ("", MISSING)


def curve_objects(
    curves: Sequence[AnyCurve],
    columns_of_curve: Sequence[Column[AnyCurve]],
    columns_of_point: Sequence[Column[AnyPoint]],
    key: str = "points",
) -> list[dict[str, Any]]:
    """Return a JSON object for each curve, with the list of its points under this key."""
    described = []
    for curve, fields in zip(curves, objects(columns_of_curve, curves), strict=True):
        described.append({**fields, key: objects(columns_of_point, curve.points)})
    return described


def curve_rows(
    curves: Sequence[AnyCurve],
    columns_of_curve: Sequence[Column[AnyCurve]],
    columns_of_point: Sequence[Column[AnyPoint]],
) -> Rows:
    """Return a CSV line for each point."""
    pairs = []
    for curve in curves:
        pairs += [(curve, point) for point in curve.points]
    columns = (*within(columns_of_curve, itemgetter(0)), *within(columns_of_point, itemgetter(1)))
    return csv_rows(columns, pairs)
