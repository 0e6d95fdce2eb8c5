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
from dlbench.reports.results.keys import Place, RowKey, axis_value, row_order
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
    headings = [place_name(column.cell) or place_heading(column.cell) for column in columns]
    addresses = []
    for cell in cells:
        prefix = f"{cell.machine[:8]}." if has_machines else ""
        addresses.append(prefix + slug(cell.cell))
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
        title = f"Geometric mean of all {len(blocks)} groups"
        means_of_rows = _fields_of_means(rows_with_times, len(columns), len(cells))
        blocks.insert(0, {"name": title, "rows": means_of_rows, "means": True})
    spans = []
    if has_machines:
        for machine, columns_of_machine in groupby(columns, lambda column: column.machine):
            spans.append((names[machine], len(list(columns_of_machine))))
    return {
        "columns": headings,
        "machines": spans,
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
        marks = ""
        if cell.shown:
            text = views[0]["fields"][place] or (MISSING, "", "")
            kind = "best" if cell.best else ""
            for flag in cell.flags:
                if flag.kind not in common:
                    marks += flag.kind.symbol
        else:
            text = (HOLES[cell.status], "", why_hole(cell))
            kind = "hole"
        fields[id(cell)] = _field(place, address, text, kind, marks)
    return fields


def _fields_of_means(
    rows: Sequence[RowKey], column_count: int, first_place: int
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the empty fields of each row's means over all blocks, numbered from a place on."""
    place = first_place
    means_of_rows = []
    for row in rows:
        row_fields = []
        for _ in range(column_count):
            row_fields.append(_field(place, "", ("", "", ""), "mean", ""))
            place += 1
        means_of_rows.append((row_name(row), row_fields))
    return means_of_rows


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
        caption = title
        if meaning:
            caption += f" ({meaning})"
        views.append({"title": title, "caption": caption, "family": "a quantity", "fields": fields})
    return views


def _comparison_views(
    matrix: Matrix, cells: Sequence[CellResult], names: dict[str, str]
) -> tuple[list[RowKey], list[dict[str, Any]]]:
    """Return the rows with times, and views of times relative to each row and each machine."""
    counts = Counter(cell.row for cell in cells if cell.shown)
    rows = sorted(counts, key=row_order)
    views = []
    if len(rows) > 1:

        def usual_order(row: RowKey) -> tuple[int, int, RowKey]:
            return (len(axes.unusual(row)), -counts[row], row)

        usual_first = sorted(counts, key=usual_order)
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
    rows: Sequence[RowKey],
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
            if not row_pairs:
                fields.append(0)
            elif len(row_pairs) == len(matrix.rows):
                fields.append(_times(row_pairs))
            else:
                fields.append(_times(row_pairs, f" ({len(row_pairs)})"))
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
    is_reference = True
    timed = []
    for cell, reference in pairs:
        is_reference = is_reference and cell is reference
        if cell.seconds and reference.seconds:
            timed.append((cell.seconds, reference.seconds))
    if is_reference:
        return f"1{more}", "", "the reference itself"
    mean = ratio(*timed[0]) if len(timed) == 1 else mean_of_pairs(timed)
    text = f"{number(mean.value)}×{more}"  # noqa: RUF001
    if mean.low is None or not judge_ratio(mean).clear:
        text = f"≈ {text}"
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
        choices = []
        for value in values:
            choice = "none" if value == "" else axes.word(axis.name, value)
            choices.append(choice)
        yield _filter(axis.name, choices, values, cell_values)
    have_few_launches = []
    for cell in cells:
        has_few = cell.seconds is not None and not cell.seconds.covers_launches
        have_few_launches.append(has_few)
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
    size = 0 if isinstance(value, str) else value
    return place, axes.order_of(size)
