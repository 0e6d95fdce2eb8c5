"""The page's matrix: its table, and the texts of its fields for each quantity and each row to compare with.

Every number is computed here; the page's script only puts one view's texts into the fields, filters and sorts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import CellResult, Matrix, Place, axis_value
from dlbench.reports.formats.layout import HOLES, MISSING, QUANTITIES, common_flags, deviation, number, why_hole
from dlbench.reports.naming import group_name, place_name, row_name, slug
from dlbench.reports.page.cells import ends
from dlbench.reports.page.data import numbers
from dlbench.reports.statistics import judge, mean_of_pairs, ratio
from dlbench.reports.storage.hosts import name_among

MOST_COMPARED = 8_000
"""Fields of all comparisons together: large pages compare with fewer rows, the usual ones with most cells first."""

Text = tuple[str, str, str]
"""What a field shows, its interval beside it, and its tip."""


class Field(NamedTuple):
    """One field of the table in its first view."""

    number: int
    """The place of its texts in each view."""
    key: str
    """The cell's name in addresses; empty: a mean."""
    text: Text
    kind: str
    """"best", "hole", "mean" or ""."""
    marks: str


@dataclass
class Block:
    """The rows of one group, or the means over all groups."""

    name: str
    rows: list[tuple[str, list[Field | None]]] = field(default_factory=list)
    means: bool = False


@dataclass
class View:
    """What the fields show: a quantity, or times as multiples of a row's or a machine's."""

    title: str
    caption: str
    family: str
    """Heading over it in the list of views."""
    fields: list[Text | int]
    """Of each field; 0: nothing, or the word that stands there in every view."""
    compares: bool = False


@dataclass
class Filter:
    """Values of one axis to show or to hide."""

    name: str
    title: str
    values: list[str]
    of: list[int]
    """Of each cell the place of its value."""


class PageMatrix(NamedTuple):
    """The matrix of a page."""

    columns: list[str]
    machines: list[tuple[str, int]]
    """Over so many neighbouring columns each; empty where there is but one."""
    blocks: list[Block]
    views: list[View]
    filters: list[Filter]
    keys: list[str]


def page_matrix(matrix: Matrix) -> PageMatrix:
    """Return the table of a matrix with its views and filters."""
    cells = list(matrix.cells.values())
    places = {place: count for count, place in enumerate(matrix.cells)}
    names = {name: name_among(matrix.hosts, name) for name in matrix.machines}
    several = len(matrix.machines) > 1
    keys = [f"{cell.column.machine[:8]}.{slug(cell.cell)}" if several else slug(cell.cell) for cell in cells]
    views = [view for name in QUANTITIES if (view := _quantity(name, cells)) is not None]
    common = common_flags(cell for cell in cells if cell.shown)
    shown = views[0].fields if views else [0] * len(cells)

    def of_cell(group: Cell, row: Cell, column: Place) -> Field | None:
        if (cell := matrix.at(group, row, column)) is None:
            return None
        count = places[Place(cell.machine, cell.cell)]
        if not cell.shown:
            return Field(count, keys[count], (HOLES[cell.status], "", why_hole(cell)), "hole", "")
        marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in common)
        text = shown[count] or (MISSING, "", "")
        assert not isinstance(text, int)
        return Field(count, keys[count], text, "best" if cell.best else "", marks)

    blocks = [
        Block(
            group_name(group),
            [(row_name(row), [of_cell(group, row, column) for column in matrix.columns]) for row in rows],
        )
        for group, rows in matrix.rows.items()
    ]
    compared = _Comparisons(matrix, cells, places)
    means = Block(f"Geometric mean of all {len(blocks)} groups", means=True)
    for count, row in enumerate(compared.rows):
        fields: list[Field | None] = [
            Field(len(cells) + count * len(matrix.columns) + place, "", ("", "", ""), "mean", "")
            for place in range(len(matrix.columns))
        ]
        means.rows.append((row_name(row), fields))
    views += compared.views(names)
    spans = [(names[name], len(list(of))) for name, of in groupby(each.machine for each in matrix.columns)]
    return PageMatrix(
        [place_name(column.cell) for column in matrix.columns],
        spans if several else [],
        [means, *blocks] if len(blocks) > 1 and any(view.compares for view in views) else blocks,
        views,
        list(_filters(matrix, cells, names)),
        keys,
    )


def _quantity(name: str, cells: Sequence[CellResult]) -> View | None:
    fields: list[Text | int] = []
    for cell in cells:
        found = numbers(cell).get(name)
        launches = 0 if cell.seconds is None else cell.seconds.launches
        said = f"{launches} launch{'es' if launches != 1 else ''}"
        fields.append(
            0
            if not cell.shown
            else (MISSING, "", "not known of it")
            if found is None
            else (number(found[0]), deviation(*found), f"{ends(found) or 'no interval'}; {said}")
        )
    if not any(text and text[0] != MISSING for text in fields if not isinstance(text, int)):
        return None
    title = QUANTITIES[name].title
    return View(title, title, "a quantity", fields)


class _Comparisons:
    """Times of cells as multiples of those of a row in the same group and column, or of the same cell on a machine."""

    def __init__(self, matrix: Matrix, cells: Sequence[CellResult], places: dict[Place, int]) -> None:
        self._matrix, self._cells, self._places = matrix, cells, places
        counts: dict[Cell, int] = {}
        for cell in cells:
            if cell.shown:
                counts[cell.row] = counts.get(cell.row, 0) + 1
        self.rows: list[Cell] = sorted(counts)
        most = MOST_COMPARED // max(1, len(cells))
        kept = set(sorted(self.rows, key=lambda row: (len(axes.unusual(row)), -counts[row]))[:most])
        self._references = [row for row in self.rows if row in kept] if len(self.rows) > 1 else []

    def views(self, names: dict[str, str]) -> list[View]:
        """Return a view for each row, and for each of several machines."""
        found = []
        for reference in self._references:
            where = f"{row_name(reference)}, in the same group and column"
            found.append(self._view(row_name(reference), where, "compared with a row", self._beside(reference)))
        for machine in self._matrix.machines if len(self._matrix.machines) > 1 else ():
            where = f"the same cell on {names[machine]}"
            found.append(self._view(names[machine], where, "compared with a machine", self._on(machine)))
        return found

    def _beside(self, row: Cell) -> Callable[[CellResult], CellResult | None]:
        return lambda cell: self._matrix.at(cell.group, row, cell.column)

    def _on(self, machine: str) -> Callable[[CellResult], CellResult | None]:
        return lambda cell: self._matrix.cells.get(Place(machine, cell.cell))

    def _view(self, title: str, where: str, family: str, other: Callable[[CellResult], CellResult | None]) -> View:
        fields: list[Text | int] = []
        pairs: dict[tuple[Cell, Place], list[tuple[CellResult, CellResult]]] = {}
        for cell in self._cells:
            reference = other(cell)
            if not cell.shown:
                fields.append(0)
            elif reference is None or not reference.shown:
                fields.append((MISSING, "", "the reference has no number here"))
            else:
                pairs.setdefault((cell.row, cell.column), []).append((cell, reference))
                fields.append(_times([(cell, reference)]))
        groups = len(self._matrix.rows)
        for row in self.rows:
            for column in self._matrix.columns:
                of = pairs.get((row, column), [])
                fields.append(_times(of, "" if len(of) == groups else f" ({len(of)})") if of else 0)
        caption = (
            f"Seconds per mini-batch as a multiple of {where} (below 1× is faster; ≈ noise may explain the difference)"  # noqa: RUF001
        )
        return View(f"Compared with {title}", caption, family, fields, compares=True)


def _times(pairs: Sequence[tuple[CellResult, CellResult]], more: str = "") -> Text:
    if all(one is other for one, other in pairs):
        return f"1{more}", "", "the reference itself"
    timed = [(one.seconds, other.seconds) for one, other in pairs if one.seconds and other.seconds]
    found = ratio(*timed[0]) if len(timed) == 1 else mean_of_pairs(timed)
    sign = "≈ " if judge(found) == "no clear difference" or found.low is None else ""
    spread = "" if found.low is None or found.high is None else f"{number(found.low)} to {number(found.high)}"
    return f"{sign}{number(found.value)}×{more}", spread, ""  # noqa: RUF001


def _filters(matrix: Matrix, cells: Sequence[CellResult], names: dict[str, str]) -> Iterable[Filter]:
    machines = list(matrix.machines)
    if len(machines) > 1:
        of = [machines.index(cell.column.machine) for cell in cells]
        yield Filter("machine", "machine", [names[each] for each in machines], of)
    at = [{name: axis_value(cell.cell, name) for name in axes.NAMES} for cell in cells]
    for axis in axes.AXES:
        found = list(dict.fromkeys(each[axis.name] for each in at))
        if axis.goes_with or len(found) < 2:
            continue
        found.sort(key=lambda value: (_rank(axis.order, value), value if isinstance(value, int) else 0))
        titles = [str(value) if value not in (None, "") else "none" for value in found]
        yield Filter(axis.name, axis.name.replace("_", " "), titles, [found.index(each[axis.name]) for each in at])
    few = [int(cell.seconds is not None and not cell.seconds.covers_launches) for cell in cells]
    if len(set(few)) > 1:
        yield Filter("launches", "launches", ["3 or more", "fewer than 3"], few)


def _rank(order: Sequence[Any], value: Any) -> int:
    return order.index(value) if value in order else len(order)
