"""`dlbench report frameworks`: the time of each row relative to a reference row.

Ratios are means over the networks that both rows have. The reference of a machine is the row with
the most times, of several the fastest. The same cells are compared as in the matrix.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import (
    PLACE,
    ROW,
    WORK,
    Column,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.formats.csv import VALUE, Rows
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.left_out import left_out
from dlbench.reports.ratio.pairs import Mean, Pair, draw, mean_of, pair_of
from dlbench.reports.report import ALL_RUNS, QUANTITY, REFERENCE, Report
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.keys import Place, RowKey, WorkKey, differ, grouped
from dlbench.reports.results.matrix import Compared, Matrix, not_compared
from dlbench.reports.results.naming import counted, place_heading, row_name
from dlbench.reports.results.number_text import deviation, number, times
from dlbench.reports.results.quantities import COMPARED, QUANTITIES, SECONDS, in_quantity, legend
from dlbench.reports.results.statistics import Estimate, RatioVerdict, judge_ratio

NOTHING = (
    "No two frameworks, or modes of one, have a time for the same network at the same place; "
    "nothing to compare."
)
_OF_SECONDS = (
    "Seconds of the row over those of the reference (the row with the most times, of several the "
    "fastest): below 1 it is faster."
)
_LEGEND = (
    (
        "Geometric means over the networks that both have a time for; (n): their number, with each "
        "mini-batch counted separately."
    ),
    (
        "Means over different networks are not comparable: rows with only some of the reference's "
        "times are listed separately. ± is the wider side of the 95 % interval, which holds for "
        "these networks only."
    ),
    (
        "wins, losses: networks at places where the row is clearly better, or clearly worse, than "
        "the reference; without a real difference, about 1 comparison in 20 still shows one."
    ),
)
_FEW = (
    "Some times are of fewer than 3 launches: their intervals cover variation within a launch, "
    "widened by the deviation between launches that other cells of the machine show (5 % where "
    "these are too few)."
)
_WHOLE, _PART = "over all of them", "over some of them"
_ITSELF = Estimate(1.0, 1.0, 1.0, "the reference itself")
Frameworks = Compared[list[Mean]]
"""A list for each machine with two rows to compare: the mean of each row over all places, the
reference among them.

First rows that have all of its times, then others; the fastest first.
"""


def frameworks(matrix: Matrix) -> Frameworks:
    """Compare the rows of each machine of a matrix."""
    rows = []
    for machine in matrix.machines:
        means = _compare_rows(matrix, machine)
        if len(means) > 1:
            rows.append(means)
    return Compared(matrix, tuple(rows))


def _cells_by_row(
    matrix: Matrix, machine: str
) -> dict[RowKey, dict[tuple[Place, WorkKey], CellResult]]:
    """Return the cells of a machine that are compared, by row, and by place and network."""
    measured = [cell for cell in matrix.cells.values() if cell.machine == machine]
    rows: dict[RowKey, dict[tuple[Place, WorkKey], CellResult]] = {}
    for key, cells in grouped(measured, lambda cell: (cell.column, cell.work)).items():
        for cell, _ in in_the_running(cells):
            rows.setdefault(cell.row, {})[key] = cell
    return rows


def _compare_rows(matrix: Matrix, machine: str) -> list[Mean]:
    """Return the mean of each row of a machine over the reference."""
    rows = _cells_by_row(matrix, machine)
    if not rows:
        return []
    most = max(map(len, rows.values()))
    candidates = [row for row, cells in rows.items() if len(cells) == most]
    common = set(rows[candidates[0]])
    for row in candidates[1:]:
        common &= rows[row].keys()

    def rank(row: RowKey) -> tuple[float, str]:
        logarithms = []
        for key in common:
            summary = rows[row][key].timed
            if summary:
                logarithms.append(math.log(summary.median))
        return math.fsum(logarithms), row_name(row)

    reference = rows[min(candidates, key=rank)]
    means = []
    for cells in rows.values():
        pairs = []
        for key, cell in cells.items():
            pair = pair_of(cell, reference.get(key))
            if pair is not None:
                pairs.append(pair)
        if pairs:
            means.append(_mean(pairs))
    return sorted(means, key=lambda mean: (len(mean.pairs) < most, mean.ratio.value))


def _mean(pairs: Sequence[Pair]) -> Mean:
    mean = mean_of(pairs)
    if _is_reference(mean):
        return replace(mean, ratio=_ITSELF)
    return mean


def _is_reference(mean: Mean) -> bool:
    return mean.row == mean.other_row


def _means_by_place(mean: Mean) -> dict[Place, Mean]:
    pairs_by_place = grouped(mean.pairs, lambda pair: pair.cell.column)
    return {place: _mean(pairs) for place, pairs in pairs_by_place.items()}


def _machine(means: Sequence[Mean]) -> str:
    return means[0].pairs[0].cell.machine


def _places(analysis: Frameworks, means: Sequence[Mean]) -> list[Place]:
    """Return the columns in which anything is compared."""
    used = set()
    for mean in means:
        if not _is_reference(mean):
            used |= {pair.cell.column for pair in mean.pairs}
    return [place for place in analysis.matrix.columns_of(_machine(means)) if place in used]


def _unrelated_rows(analysis: Frameworks, means: Sequence[Mean]) -> list[Cell]:
    """Return the rows that have nothing in common with the reference."""
    compared = {mean.row for mean in means}
    rows = _cells_by_row(analysis.matrix, _machine(means))
    return [row for row in rows if row not in compared]


def _is_complete(mean: Mean, means: Sequence[Mean]) -> bool:
    """Return whether a row has all times of the reference."""
    return len(mean.pairs) == max(len(other.pairs) for other in means)


def _page(analysis: Frameworks) -> Page:
    """Return a table for each machine: rows down, threads and devices across."""
    quantity = analysis.matrix.quantity
    after = [*left_out(not_compared(analysis.matrix)), *analysis.matrix.notes]
    if not analysis.rows:
        nothing = NOTHING
        if quantity != SECONDS:
            nothing = NOTHING.replace("a time", "this quantity")
        return Page((nothing, *after), ())
    tables = []
    cells: list[Cell] = []
    few_launches = False
    for means in analysis.rows:
        tables.append(_table(analysis, means))
        cells += [place.cell for place in _places(analysis, means)]
        for mean in means:
            for pair in mean.pairs:
                if not all(side.covers_launches for side in pair.times):
                    few_launches = True
    meaning = _OF_SECONDS
    if quantity != SECONDS:
        explanation = ""
        if legend(quantity):
            explanation = f" ({legend(quantity)})"
        meaning = (
            f"{QUANTITIES[quantity].title}{explanation}: the row's over the reference's; below 1 "
            "the row has less."
        )
    lines = [f"{meaning} {_LEGEND[0]}", *_LEGEND[1:]]
    if few_launches:
        lines.append(_FEW)
    lines += axes.legends(cells)
    return Page((), tuple(tables), (*lines, *after))


def _table(analysis: Frameworks, means: Sequence[Mean]) -> Table:
    def extent(mean: Mean) -> str:
        return _WHOLE if _is_complete(mean, means) else _PART

    columns: list[Column[Mean]] = [Column("", "", lambda mean: row_name(mean.row))]
    columns += [_place_column(place) for place in _places(analysis, means)]
    columns += [
        _count_column("wins", RatioVerdict.FASTER),
        _count_column("losses", RatioVerdict.SLOWER),
    ]
    notes = []
    unrelated = [row_name(row) for row in _unrelated_rows(analysis, means)]
    if unrelated:
        notes.append(f"Nothing in common with the reference: {', '.join(unrelated)}.")
    # The reference, at least, is complete.
    is_grouped = not all(_is_complete(mean, means) for mean in means)
    section = extent if is_grouped else None
    return table(
        columns,
        means,
        f"{_ratio_title(analysis, means)}, on {analysis.name(_machine(means))}",
        section=section,
        notes=notes,
    )


def _place_column(place: Place) -> Column[Mean]:
    """Return the column of the means at one place."""

    def text(mean: Mean) -> Entry:
        at_place = _means_by_place(mean).get(place)
        if at_place is None and _is_reference(mean):
            return Entry("")
        if at_place is None:
            return Entry(MISSING)
        count = f" ({len(at_place.works)})"
        if _is_reference(mean):
            return Entry("1", marks=count)
        ratio = at_place.ratio
        return Entry(number(ratio.value), deviation(ratio.value, ratio.low, ratio.high), count)

    return Column("", place_heading(place.cell), text)


def _count_column(heading: str, verdict: RatioVerdict) -> Column[Mean]:
    """Return the column of the numbers of ratios with this verdict."""

    def count(mean: Mean) -> str | int:
        return "" if _is_reference(mean) else mean.count(verdict)

    return Column("", heading, count)


def _ratio_title(analysis: Frameworks, means: Sequence[Mean]) -> str:
    """Describe the ratios: "Times as long as torch eager"."""
    reference = row_name(means[0].other_row)
    quantity = analysis.matrix.quantity
    if quantity == SECONDS:
        return f"Times as long as {reference}"
    return f"{QUANTITIES[quantity].title}: times as much as {reference}"


def headline(analysis: Frameworks) -> list[str]:
    """Return the lead of each machine's fastest row, where noise does not explain it."""
    lines = []
    for means in analysis.rows:
        ahead = []
        behind = []
        is_ahead_of_all = True
        for mean in means:
            if _is_reference(mean) or not _is_complete(mean, means):
                continue
            outcome = judge_ratio(mean.ratio)
            if outcome is RatioVerdict.FASTER:
                ahead.append(mean)
            if outcome is RatioVerdict.SLOWER:
                behind.append(mean)
            else:
                is_ahead_of_all = False
        reference = row_name(means[0].other_row)
        if ahead:
            first = ahead[0]
            lead = f"{row_name(first.row)} takes {times(first.ratio)} the time of {reference}"
        elif behind and is_ahead_of_all:
            first = behind[0]
            row = row_name(first.row)
            lead = f"{reference} is the fastest; {row} takes {times(first.ratio)} its time"
        else:
            continue
        extent = counted(len(first.works), "network")
        if len(first.pairs) > len(first.works):
            places = counted(len(_means_by_place(first)), "place")
            extent = f"{len(first.pairs)} pairs: {extent} at {places}"
        name = analysis.name(_machine(means))
        lines.append(f"{name}: over all networks and places, {lead} (geometric mean of {extent}).")
    return lines


def _networks_data(mean: Mean) -> list[dict[str, Any]]:
    return [_axes_data(work, WORK) for work in mean.works]


_MEAN: tuple[Column[Mean], ...] = (
    Column("ratio", None, lambda mean: mean.ratio, fields=VALUE),
    Column("networks", None, _networks_data, csv=lambda mean: len(mean.works)),
    Column("wins", "wins", lambda mean: mean.count(RatioVerdict.FASTER)),
    Column("losses", "losses", lambda mean: mean.count(RatioVerdict.SLOWER)),
)


def _axes_data(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    columns: tuple[Column[Cell], ...] = axis_columns(lambda row: row, names)
    return objects(columns, [cell])[0]


def _data(analysis: Frameworks) -> dict[str, Any]:
    machines = []
    for means in analysis.rows:
        host = analysis.matrix.hosts[_machine(means)]
        rows = [_mean_data(mean) for mean in means]
        unrelated = [_axes_data(row, ROW) for row in _unrelated_rows(analysis, means)]
        machines.append(
            {
                **objects(host_columns(lambda row: row), [host])[0],
                "against": _axes_data(means[0].other_row, ROW),
                "rows": rows,
                "apart": unrelated,
            }
        )
    return {
        "quantity": analysis.matrix.quantity,
        "machines": machines,
        "notes": [*left_out(not_compared(analysis.matrix)), *analysis.matrix.notes],
    }


def _mean_data(mean: Mean) -> dict[str, Any]:
    """Return a row with its mean over all places, and that at each place."""
    places = []
    for place, at_place in _means_by_place(mean).items():
        places.append({**_axes_data(place.cell, PLACE), **objects(_MEAN, [at_place])[0]})
    return {**_axes_data(mean.row, ROW), "overall": objects(_MEAN, [mean])[0], "places": places}


def _rows(analysis: Frameworks) -> Rows:
    """Return a line for each row at each place."""
    columns: tuple[Column[Mean], ...] = (
        *host_columns(lambda mean: analysis.matrix.hosts[mean.pairs[0].cell.machine]),
        *axis_columns(lambda mean: mean.pairs[0].cell.cell, PLACE),
        *axis_columns(lambda mean: mean.row, ROW),
        Column("against", None, lambda mean: _axes_data(mean.other_row, ROW), fields=ROW),
        *_MEAN,
    )
    at_places: list[Mean] = []
    for means in analysis.rows:
        for mean in means:
            at_places += _means_by_place(mean).values()
    return csv_rows(columns, at_places)


def _draw(analysis: Frameworks, path: Path) -> list[Path]:
    """Draw a page for each machine: rows down, a mark for each place, ratios across."""
    pages = []
    for means in analysis.rows:
        places = _places(analysis, means)
        points = []
        for mean in means:
            if _is_reference(mean):
                continue
            by_place = _means_by_place(mean)
            for place in places:
                if place in by_place:
                    heading = place_heading(place.cell)
                    points.append(("", row_name(mean.row), heading, by_place[place].ratio))
        multiple = _ratio_title(analysis, means)
        across = (
            f"{multiple[:1].lower()}{multiple[1:]}, geometric mean over the networks of both; 95 % "
            "intervals"
        )
        title = f"Framework against framework, on {analysis.name(_machine(means))}"
        pages.append((title, across, points))
    return draw(pages, path, columns=1)


def _applies(cells: Collection[Cell]) -> bool:
    works = {axes.project(cell, WORK) for cell in cells}
    return len(works) > 1 and differ(cells, *ROW)


REPORT = Report(
    name="frameworks",
    summary="Each framework's time relative to one, over common networks.",
    examples=(
        "dlbench report frameworks",
        "dlbench report frameworks --threads 1,2 --plot frameworks.png",
        "dlbench report frameworks --quantity memory",
    ),
    analyse=lambda source: frameworks(in_quantity(source.matrix(), source.options.quantity)),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=_rows,
    draw=lambda analysis, path, options: _draw(analysis, path),
    suggestion="framework against framework, over all networks",
    applies=_applies,
    options=frozenset({QUANTITY, REFERENCE, ALL_RUNS}),
    quantities=COMPARED,
    heading="Framework against framework",
    place=15,
    headline=headline,
)
