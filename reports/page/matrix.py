"""The page's matrix: its table, and the texts of its fields for each quantity and each row to
compare with.

Every number is computed here; the page's script only puts one view's texts into the fields, filters
and sorts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
    group_name,
    place_heading,
    place_name,
    row_name,
    slug,
)
from dlbench.reports.results.number_text import amount, deviation, number
from dlbench.reports.results.quantities import QUANTITIES, legend, title_of
from dlbench.reports.results.statistics import judge, mean_of_pairs, ratio

MOST_COMPARED = 8_000
"""Fields of all comparisons together: large pages compare with fewer rows, the usual ones with most
cells first."""

Text = tuple[str, str, str]
"""The text of a field, its interval beside it, and its tip."""


def page_matrix(matrix: Matrix) -> dict[str, Any]:
    """Return the table of a matrix with its views and filters, for the template.

    ``columns`` are headings, ``machines`` names with the number of columns below them; ``blocks``
    have a name and rows of fields; each of the ``views`` has a text for every field (0: nothing, or
    the same in every view); ``filters`` have the index of the value of every cell; ``addresses``
    name the cells.
    """
    cells, columns = list(matrix.cells.values()), matrix.columns
    several = len(matrix.machines) > 1
    names = {name: name_among(matrix.hosts, name) for name in matrix.machines}
    addresses = [
        f"{cell.machine[:8]}.{slug(cell.cell)}" if several else slug(cell.cell) for cell in cells
    ]
    views = _quantity_views(cells)
    common = common_flags(cell for cell in cells if cell.shown)
    fields = {}
    for place, (cell, address) in enumerate(zip(cells, addresses, strict=True)):
        marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in common)
        if cell.shown:
            text = views[0]["fields"][place] or (MISSING, "", "")
            fields[id(cell)] = _field(place, address, text, "best" * cell.best, marks)
        else:
            fields[id(cell)] = _field(
                place, address, (HOLES[cell.status], "", why_hole(cell)), "hole", ""
            )
    blocks: list[dict[str, Any]] = []
    for group, rows in matrix.rows.items():
        found = [
            (row_name(row), [fields.get(id(matrix.at(group, row, each))) for each in columns])
            for row in rows
        ]
        blocks.append({"name": group_name(group), "rows": found, "means": False})
    rows_with_times, comparisons = _comparison_views(matrix, cells, names)
    if len(blocks) > 1 and comparisons:
        means: dict[str, Any] = {
            "name": f"Geometric mean of all {len(blocks)} groups",
            "rows": [],
            "means": True,
        }
        for row in rows_with_times:
            first = len(cells) + len(means["rows"]) * len(columns)
            of_row = [
                _field(first + place, "", ("", "", ""), "mean", "") for place in range(len(columns))
            ]
            means["rows"].append((row_name(row), of_row))
        blocks.insert(0, means)
    spans = [
        (names[name], len(list(of))) for name, of in groupby(column.machine for column in columns)
    ]
    return {
        "columns": [place_name(column.cell) or place_heading(column.cell) for column in columns],
        "machines": spans if several else [],
        "blocks": blocks,
        "views": views + comparisons,
        "filters": list(_filters(matrix, cells, names)),
        "addresses": addresses,
    }


def _field(place: int, address: str, text: Text, kind: str, marks: str) -> dict[str, Any]:
    return {"number": place, "key": address, "text": text, "kind": kind, "marks": marks}


def _quantity_views(cells: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return a view of each quantity that any cell has."""
    quantities = [numbers(cell) for cell in cells]
    views = []
    for name in QUANTITIES:
        fields: list[Text | int] = []
        for cell, of_cell in zip(cells, quantities, strict=True):
            if cell.seconds is None or not cell.shown:
                fields.append(0)
            elif (found := of_cell.get(name)) is None:
                fields.append((MISSING, "", cell.unmeasured.get(name, "not known for this cell")))
            else:
                launches = counted(cell.seconds.launches, "launch", "launches")
                fields.append(
                    (
                        amount(found[0]),
                        deviation(*found),
                        f"{ends(found) or 'no interval'}; {launches}",
                    )
                )
        if any(name in of_cell for of_cell in quantities):
            title, meant = title_of(name, cells), legend(name)
            caption = f"{title} ({meant})" if meant else title
            views.append(
                {"title": title, "caption": caption, "family": "a quantity", "fields": fields}
            )
    return views


def _comparison_views(
    matrix: Matrix, cells: Sequence[CellResult], names: dict[str, str]
) -> tuple[list[Cell], list[dict[str, Any]]]:
    """Return the rows with times, and views of times as multiples of those of each row and of each
    machine.
    """
    counts = Counter(cell.row for cell in cells if cell.shown)
    views = []
    if len(counts) > 1:
        usual = sorted(counts, key=lambda row: (len(axes.unusual(row)), -counts[row], row))
        for row in sorted(usual[: MOST_COMPARED // len(cells)], key=row_order):
            where = f"{row_name(row)}, in the same group and column"
            others = [matrix.at(cell.group, row, cell.column) for cell in cells]
            views.append(
                _comparison(matrix, counts, row_name(row), where, "compared with a row", others)
            )
    if len(matrix.machines) > 1:
        for machine in matrix.machines:
            where = f"the same cell on {names[machine]}"
            others = [matrix.cells.get(Place(machine, cell.cell)) for cell in cells]
            views.append(
                _comparison(
                    matrix, counts, names[machine], where, "compared with a machine", others
                )
            )
    return sorted(counts, key=row_order), views


def _comparison(
    matrix: Matrix,
    rows: Iterable[Cell],
    title: str,
    where: str,
    family: str,
    others: Sequence[CellResult | None],
) -> dict[str, Any]:
    fields: list[Text | int] = []
    pairs: dict[tuple[Cell, Place], list[tuple[CellResult, CellResult]]] = {}
    for cell, other in zip(matrix.cells.values(), others, strict=True):
        if not cell.shown:
            fields.append(0)
        elif other is None or not other.shown:
            fields.append((MISSING, "", "the reference has no number here"))
        else:
            pairs.setdefault((cell.row, cell.column), []).append((cell, other))
            fields.append(_times([(cell, other)]))
    for row in sorted(rows, key=row_order):
        for column in matrix.columns:
            of = pairs.get((row, column), [])
            fields.append(
                _times(of, "" if len(of) == len(matrix.rows) else f" ({len(of)})") if of else 0
            )
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
    found = ratio(*timed[0]) if len(timed) == 1 else mean_of_pairs(timed)
    sign = "≈ " if judge(found) == "no clear difference" or found.low is None else ""
    text = f"{sign}{number(found.value)}×{more}"  # noqa: RUF001
    return text, ends((found.value, found.low, found.high)), ""


def _filters(
    matrix: Matrix, cells: Sequence[CellResult], names: dict[str, str]
) -> Iterable[dict[str, Any]]:
    """Yield the axes, and machines and numbers of launches, in which these cells differ."""

    def filter_of(
        name: str, values: Sequence[Any], of_cell: Callable[[CellResult], Any], *titles: str
    ) -> Any:
        known = titles or [axes.word(name, value) if value != "" else "none" for value in values]
        places = [values.index(of_cell(cell)) for cell in cells]
        return {"name": name, "title": name.replace("_", " "), "choices": known, "of": places}

    if len(matrix.machines) > 1:
        yield filter_of("machine", matrix.machines, lambda cell: cell.machine, *names.values())
    for axis in axes.AXES:
        values = list(dict.fromkeys(axis_value(cell.cell, axis.name) for cell in cells))
        if not axis.goes_with and len(values) > 1:
            order = {value: place for place, value in enumerate(axis.order)}
            values.sort(
                key=lambda v: (
                    order.get(v, len(order)),
                    axes.order_of(0 if isinstance(v, str) else v),
                )
            )
            yield filter_of(
                axis.name, values, lambda cell, name=axis.name: axis_value(cell.cell, name)
            )  # type: ignore[misc]
    if len({_has_few_launches(cell) for cell in cells}) > 1:
        yield filter_of("launches", (False, True), _has_few_launches, "3 or more", "fewer than 3")


def _has_few_launches(cell: CellResult) -> bool:
    return cell.seconds is not None and not cell.seconds.covers_launches
