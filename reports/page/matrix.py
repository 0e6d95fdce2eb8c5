"""The page's matrix: its table, and the texts of its fields for each quantity and comparison.

Every number is computed in this module. The page's script only puts one view's texts into the
fields, filters and sorts.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.formats.layout import HOLES, MISSING, common_flags, why_hole
from dlbench.reports.page.data import ends, numbers
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import Place, axis_value, row_order
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import (
    counted,
    place_heading,
    place_name,
    row_name,
    slug,
    work_name,
)
from dlbench.reports.results.number_text import amount, deviation, number
from dlbench.reports.results.quantities import QUANTITIES, legend, title_of
from dlbench.reports.results.statistics import judge_ratio, mean_of_pairs, ratio

MOST_COMPARED = 8_000
"""Fields of all comparisons together.

Large pages compare with fewer rows, first the usual ones with most cells."""

Text = tuple[str, str, str]
"""The text of a field, its interval, and its tip."""


def page_matrix(matrix: Matrix) -> dict[str, Any]:
    """Return the table of a matrix with its views and filters, for the template.

    ``columns`` are headings, and ``machines`` names with the number of columns below them.
    ``blocks`` have a name and rows of fields. Each of the ``views`` has a text for every field (0:
    nothing, or the same in every view). ``filters`` have the index of the value of every cell.
    ``addresses`` name the cells.
    """
    cells = list(matrix.cells.values())
    columns = matrix.columns
    has_machines = len(matrix.machines) > 1
    names = {machine: name_among(matrix.hosts, machine) for machine in matrix.machines}
    addresses = [slug(cell.cell) for cell in cells]
    if has_machines:
        addresses = [f"{cell.machine[:8]}.{slug(cell.cell)}" for cell in cells]
    views = _quantity_views(cells)
    fields = _cell_fields(cells, addresses, views)
    blocks: list[dict[str, Any]] = []
    for work, rows in matrix.rows.items():
        fields_by_row = []
        for row in rows:
            row_fields = [fields.get(id(matrix.at(work, row, column))) for column in columns]
            fields_by_row.append((row_name(row), row_fields))
        blocks.append({"name": work_name(work), "rows": fields_by_row, "means": False})
    rows_with_times, comparisons = _comparison_views(matrix, cells, names)
    if len(blocks) > 1 and comparisons:
        means_of_rows = []
        place = len(cells)
        for row in rows_with_times:
            row_fields = []
            for _ in columns:
                row_fields.append(_field(place, "", ("", "", ""), "mean", ""))
                place += 1
            means_of_rows.append((row_name(row), row_fields))
        title = f"Geometric mean of all {len(blocks)} groups"
        blocks.insert(0, {"name": title, "rows": means_of_rows, "means": True})
    columns_by_machine = groupby(column.machine for column in columns)
    spans = [
        (names[machine], len(list(same_machine))) for machine, same_machine in columns_by_machine
    ]
    return {
        "columns": [place_name(column.cell) or place_heading(column.cell) for column in columns],
        "machines": spans if has_machines else [],
        "blocks": blocks,
        "views": views + comparisons,
        "filters": list(_filters(matrix, cells, names)),
        "addresses": addresses,
    }


def _cell_fields(
    cells: Sequence[CellResult], addresses: Sequence[str], views: Sequence[dict[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Return the field of each cell by the cell's id, with the text of the first view."""
    common = common_flags(cell for cell in cells if cell.shown)
    fields = {}
    for place, (cell, address) in enumerate(zip(cells, addresses, strict=True)):
        if cell.shown:
            text = views[0]["fields"][place] or (MISSING, "", "")
            kind = "best" if cell.best else ""
            marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in common)
        else:
            text = (HOLES[cell.status], "", why_hole(cell))
            kind = "hole"
            marks = ""
        fields[id(cell)] = _field(place, address, text, kind, marks)
    return fields


def _field(place: int, address: str, text: Text, kind: str, marks: str) -> dict[str, Any]:
    return {"number": place, "key": address, "text": text, "kind": kind, "marks": marks}


def _quantity_views(cells: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return a view of each quantity that any cell has."""
    numbers_of_cells = [numbers(cell) for cell in cells]
    views = []
    for name in QUANTITIES:
        if not any(name in cell_numbers for cell_numbers in numbers_of_cells):
            continue
        fields: list[Text | int] = []
        for cell, cell_numbers in zip(cells, numbers_of_cells, strict=True):
            if cell.seconds is None or not cell.shown:
                fields.append(0)
                continue
            quantity = cell_numbers.get(name)
            if quantity is None:
                fields.append((MISSING, "", cell.unmeasured.get(name, "not known for this cell")))
                continue
            launches = counted(cell.seconds.launches, "launch", "launches")
            tip = f"{ends(quantity) or 'no interval'}; {launches}"
            fields.append((amount(quantity[0]), deviation(*quantity), tip))
        title = title_of(name, cells)
        meaning = legend(name)
        caption = f"{title} ({meaning})" if meaning else title
        views.append({"title": title, "caption": caption, "family": "a quantity", "fields": fields})
    return views


def _comparison_views(
    matrix: Matrix, cells: Sequence[CellResult], names: dict[str, str]
) -> tuple[list[Cell], list[dict[str, Any]]]:
    """Return the rows with times, and views of times relative to each row and each machine."""
    counts = Counter(cell.row for cell in cells if cell.shown)
    rows = sorted(counts, key=row_order)
    views = []
    if len(rows) > 1:
        usual_first = sorted(counts, key=lambda row: (len(axes.unusual(row)), -counts[row], row))
        for row in sorted(usual_first[: MOST_COMPARED // len(cells)], key=row_order):
            where = f"{row_name(row)}, in the same group and column"
            others = [matrix.at(cell.work, row, cell.column) for cell in cells]
            views.append(
                _comparison(matrix, rows, row_name(row), where, "compared with a row", others)
            )
    if len(matrix.machines) > 1:
        for machine in matrix.machines:
            where = f"the same cell on {names[machine]}"
            others = [matrix.cells.get(Place(machine, cell.cell)) for cell in cells]
            views.append(
                _comparison(matrix, rows, names[machine], where, "compared with a machine", others)
            )
    return rows, views


def _comparison(
    matrix: Matrix,
    rows: Sequence[Cell],
    title: str,
    where: str,
    family: str,
    others: Sequence[CellResult | None],
) -> dict[str, Any]:
    """Return a view of each cell's time relative to its other, and of the means of ``rows``."""
    fields: list[Text | int] = []
    pairs: dict[tuple[Cell, Place], list[tuple[CellResult, CellResult]]] = {}
    for cell, other in zip(matrix.cells.values(), others, strict=True):
        if not cell.shown:
            fields.append(0)
        elif other is None or not other.shown:
            fields.append((MISSING, "", "the reference has no number for this cell"))
        else:
            pairs.setdefault((cell.row, cell.column), []).append((cell, other))
            fields.append(_times([(cell, other)]))
    for row in rows:
        for column in matrix.columns:
            row_pairs = pairs.get((row, column), [])
            if row_pairs:
                is_complete = len(row_pairs) == len(matrix.rows)
                count = "" if is_complete else f" ({len(row_pairs)})"
                fields.append(_times(row_pairs, count))
            else:
                fields.append(0)
    caption = (
        f"Time as a multiple of {where} "
        "(below 1× is faster; ≈ noise may explain the difference)"  # noqa: RUF001
    )
    return {
        "title": f"Compared with {title}",
        "caption": caption,
        "family": family,
        "fields": fields,
    }


def _times(pairs: Sequence[tuple[CellResult, CellResult]], more: str = "") -> Text:
    if all(one is other for one, other in pairs):
        return f"1{more}", "", "the reference itself"
    timed = [(one.seconds, other.seconds) for one, other in pairs if one.seconds and other.seconds]
    mean = ratio(*timed[0]) if len(timed) == 1 else mean_of_pairs(timed)
    sign = "" if judge_ratio(mean).clear and mean.low is not None else "≈ "
    text = f"{sign}{number(mean.value)}×{more}"  # noqa: RUF001
    return text, ends((mean.value, mean.low, mean.high)), ""


def _filters(
    matrix: Matrix, cells: Sequence[CellResult], names: dict[str, str]
) -> Iterable[dict[str, Any]]:
    """Yield the axes, and machines and numbers of launches, in which these cells differ."""
    if len(matrix.machines) > 1:
        machines = [cell.machine for cell in cells]
        yield _filter("machine", list(names.values()), matrix.machines, machines)
    for axis in axes.AXES:
        cell_values = [axis_value(cell.cell, axis.name) for cell in cells]
        values = list(dict.fromkeys(cell_values))
        if axis.goes_with or len(values) <= 1:
            continue
        values.sort(key=partial(_value_order, axis))
        choices = ["none" if value == "" else axes.word(axis.name, value) for value in values]
        yield _filter(axis.name, choices, values, cell_values)
    have_few_launches = [
        cell.seconds is not None and not cell.seconds.covers_launches for cell in cells
    ]
    if len(set(have_few_launches)) > 1:
        yield _filter("launches", ["3 or more", "fewer than 3"], (False, True), have_few_launches)


def _filter(
    name: str, choices: Sequence[str], values: Sequence[Any], cell_values: Sequence[Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "title": name.replace("_", " "),
        "choices": choices,
        "of": [values.index(value) for value in cell_values],
    }


def _value_order(axis: axes.Axis, value: Any) -> tuple[object, ...]:
    """Return a key that sorts the values of an axis: in the axis's own order, then by size."""
    order = list(axis.order)
    place = order.index(value) if value in order else len(order)
    return place, axes.order_of(0 if isinstance(value, str) else value)
