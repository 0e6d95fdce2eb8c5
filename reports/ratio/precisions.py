"""`dlbench report precisions`: each row in other precisions, next to the same cell in float32.

The parity check of another precision has a wider tolerance (`adapters/families`), so equal results
are not implied.
"""

from typing import Any

from dlbench.adapters.protocol import PRECISIONS, UNKNOWN
from dlbench.reports.columns import Column, axis_columns, csv_rows, objects, table
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.formats.layout import Entry, Page
from dlbench.reports.left_out import left_out
from dlbench.reports.ratio.pairs import Pair, pair_of, seconds_column, with_verdicts
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import Place, differ
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import place_heading, row_name, work_name
from dlbench.reports.results.number_text import times
from dlbench.reports.results.statistics import RatioVerdict

_REFERENCE = PRECISIONS[0]
NOTHING = (
    "No row has times in two precisions: `dlbench run SUITE --precisions NAMES` measures several."
)
_LEGEND = (
    (
        f"Ratio: the time in this precision over that in {_REFERENCE} of the same row, with the 95 "
        "% interval. Below 1 it is faster."
    ),
    (
        "slower, faster: noise does not explain it (Welch's t, Holm-adjusted for the number of "
        "cells; with fewer than 3 launches the interval, widened by the deviation between "
        "launches). same: the whole interval lies within 2 % of 1."
    ),
)

Precisions = Compared[Pair]


def precisions(matrix: Matrix) -> Precisions:
    """Compare each cell with the same one in float32, in the order of the matrix."""
    pairs = []
    for cell in matrix.cells.values():
        if cell.cell.precision in (_REFERENCE, UNKNOWN):
            continue
        reference = matrix.cells.get(Place(cell.machine, cell.cell._replace(precision=_REFERENCE)))
        pair = pair_of(cell, reference)
        if pair is not None:
            pairs.append(pair)
    return Compared(matrix, tuple(with_verdicts(pairs)))


def _verdict(pair: Pair) -> Entry:
    return Entry(
        pair.verdict or "",
        hole=pair.verdict is RatioVerdict.SLOWER,
        best=pair.verdict is RatioVerdict.FASTER,
    )


_COLUMNS: tuple[Column[Pair], ...] = (
    Column("machine", None, lambda pair: pair.cell.machine),
    *axis_columns(lambda pair: pair.cell.cell),
    Column("", "", lambda pair: row_name(pair.cell.row)),
    Column("", "p", lambda pair: place_heading(pair.cell.cell)),
    seconds_column(lambda pair: pair.cell),
    seconds_column(lambda pair: pair.other, key="seconds_against", heading=_REFERENCE),
    Column("ratio", "ratio", lambda pair: pair.ratio, lambda pair: times(pair.ratio), VALUE),
    Column("p_adjusted", None, lambda pair: pair.p_value),
    Column("verdict", "verdict", lambda pair: pair.verdict, _verdict),
)


def _page(analysis: Precisions) -> Page:
    """Return one table with a heading for each work and machine."""
    if not analysis.rows:
        return Page((NOTHING, *analysis.matrix.notes), ())
    several_machines = len(analysis.matrix.machines) > 1

    def heading(pair: Pair) -> str:
        work = work_name(pair.cell.work)
        if several_machines:
            return f"{work}, on {analysis.name(pair.cell.machine)}"
        return work

    shown = table(
        _COLUMNS, analysis.rows, f"Precisions against {_REFERENCE}", key="cells", section=heading
    )
    unused = left_out(_cells_without_partner(analysis))
    return Page((), (shown,), (*_LEGEND, *unused, *analysis.matrix.notes))


def _cells_without_partner(analysis: Precisions) -> list[CellResult]:
    """Return the cells in another precision that have no partner with a time."""
    compared = {(pair.cell.machine, pair.cell.cell) for pair in analysis.rows}
    cells = []
    for cell in analysis.matrix.cells.values():
        is_compared = (cell.machine, cell.cell) in compared
        if not is_compared and cell.cell.precision not in (_REFERENCE, UNKNOWN):
            cells.append(cell)
    return cells


def _data(analysis: Precisions) -> dict[str, Any]:
    page = _page(analysis)
    return {"cells": objects(_COLUMNS, analysis.rows), "notes": [*page.before, *page.after]}


REPORT = Report(
    name="precisions",
    summary="Other precisions beside float32: which rows gain, how much.",
    examples=("dlbench report precisions", "dlbench report precisions --networks resnet50 --json"),
    analyse=lambda source: precisions(source.matrix()),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=lambda analysis: csv_rows(_COLUMNS, analysis.rows),
    suggestion="what other precisions gain over float32",
    applies=lambda cells: differ(cells, "precision"),
    options=frozenset({ALL_RUNS}),
    heading="Precisions",
    place=45,
)
