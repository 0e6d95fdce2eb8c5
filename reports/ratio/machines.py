"""`dlbench report machines`: the same cell on two machines, and the mean of each row.

Each machine is compared with the one that has the most times. Only machines of the same kind get a
verdict: between others the ratio is the difference of the hardware.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import (
    ROW,
    Column,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
    within,
)
from dlbench.reports.formats.csv import MEDIAN, VALUE, Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.left_out import left_out
from dlbench.reports.ratio import pairs as compared
from dlbench.reports.ratio.pairs import Mean, Pair, mean_of, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, QUANTITY, REFERENCE, Report
from dlbench.reports.results.cells import CellResult, fair
from dlbench.reports.results.hosts import unlike
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, place_heading, row_name, work_name
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.quantities import COMPARED, QUANTITIES, SECONDS, in_quantity, legend
from dlbench.reports.results.statistics import RatioVerdict, judge_ratio

ONE = (
    "All results are from one machine, so there is nothing to compare; add the stores of others: "
    "--store here.sqlite --store there.sqlite. Machines of the same hardware count as one "
    "in this report: `dlbench compare` compares their runs."
)
_LEGEND = (
    "Ratio: the value on the machine over that on the other one, with the 95 % interval.",
    (
        "slower, faster (for other quantities: more, less): noise does not explain it (Welch's t, "
        "Holm-adjusted for the number of cells; with fewer than 3 launches the interval, widened "
        "by the deviation between launches). same: the whole interval lies within 2 % of 1."
    ),
)
_MEANS = (
    "mean: geometric mean over the cells that both machines have; its verdict follows from its own "
    "interval, without adjustment. cells: their number."
)


Machines = Compared[tuple[str, str, list[Pair]]]
"""For each machine but the one with the most times: the two machines, and their pairs.

The pairs are in the order of the matrix.
"""


def machines(matrix: Matrix) -> Machines:
    """Compare each machine of a matrix with the one that has the most times."""
    cells: dict[str, dict[Cell, CellResult]] = {machine: {} for machine in matrix.machines}
    for cell in fair(matrix.cells.values()):
        cells[cell.machine][cell.cell] = cell
    most = max(cells, key=lambda machine: len(cells[machine]), default="")
    rows = []
    for machine in cells:
        if machine == most:
            continue
        pairs = []
        for cell in cells[most].values():
            pair = pair_of(cells[machine].get(cell.cell), cell)
            if pair is not None:
                pairs.append(pair)
        alike = not unlike(matrix.hosts[most], matrix.hosts[machine])
        judged = []
        for pair in with_verdicts(pairs):
            if alike and _has_same_gpu(pair):
                judged.append(pair)
            else:
                judged.append(replace(pair, verdict=None))
        rows.append((machine, most, judged))
    return Compared(matrix, tuple(rows))


def _has_same_gpu(pair: Pair) -> bool:
    """Return whether the two cells were not measured on GPUs of different names."""
    names = set()
    for cell in (pair.cell, pair.other):
        if cell.device_observed is not None:
            names.add(cell.device_observed.name)
    return len(names) < 2


def _verdict(mean: Mean) -> RatioVerdict | None:
    if not all(pair.verdict for pair in mean.pairs):
        return None
    return judge_ratio(mean.ratio)


def _verdict_entry(verdict: RatioVerdict | None) -> Entry:
    return Entry(
        verdict or "-", hole=verdict is RatioVerdict.SLOWER, best=verdict is RatioVerdict.FASTER
    )


_ROWS: tuple[Column[Mean], ...] = (
    *axis_columns(lambda mean: mean.row, ROW),
    Column("", "", lambda mean: row_name(mean.row)),
    Column("ratio", "mean", lambda mean: mean.ratio),
    Column("cells", "cells", lambda mean: len(mean.pairs)),
    Column(
        "verdict",
        "verdict",
        lambda mean: _verdict(mean) or None,
        lambda mean: _verdict_entry(_verdict(mean)),
    ),
)


def _cell_columns(analysis: Machines) -> tuple[Column[Pair], ...]:
    name = analysis.matrix.quantity
    key = name
    key_of_other = f"{name}_against"
    if name == SECONDS:
        key = "seconds_per_minibatch"
        key_of_other = "seconds_against"
    return (
        *axis_columns(lambda pair: pair.cell.cell),
        Column("", "", lambda pair: row_name(pair.cell.row)),
        Column("", "p", lambda pair: place_heading(pair.cell.cell)),
        Column(
            key,
            QUANTITIES[name].unit,
            lambda pair: pair.cell.seconds,
            lambda pair: _median(pair.cell),
            MEDIAN,
        ),
        Column(
            key_of_other,
            "other",
            lambda pair: pair.other.seconds,
            lambda pair: _median(pair.other),
            MEDIAN,
        ),
        Column("ratio", "ratio", lambda pair: pair.ratio, fields=VALUE),
        Column("p_adjusted", None, lambda pair: pair.p_value),
        Column(
            "verdict",
            "verdict",
            lambda pair: pair.verdict,
            lambda pair: _verdict_entry(pair.verdict),
        ),
        Column("same_environment", None, _has_same_environment),
    )


def _median(cell: CellResult) -> str:
    return number(cell.timed.median) if cell.timed else "-"


def _has_same_environment(pair: Pair) -> bool:
    return pair.cell.environment == pair.other.environment


def _means(pairs: Sequence[Pair]) -> list[Mean]:
    """Return the mean of each row, the least first."""
    pairs_by_row = grouped(pairs, lambda pair: pair.cell.row)
    means = [mean_of(pairs_of_row) for pairs_of_row in pairs_by_row.values()]
    return sorted(means, key=lambda mean: mean.ratio.value)


def _page(analysis: Machines) -> Page:
    """Return for each machine two tables: the mean of each row, and each cell."""
    if not analysis.rows:
        return Page((ONE, *analysis.matrix.notes), ())
    before = []
    tables = []
    cells: list[Cell] = []
    some_alike = False
    for machine, other, pairs in analysis.rows:
        some_alike = some_alike or not _differences(analysis, machine, other)
        cells += [pair.cell.cell for pair in pairs]
        name, other_name = analysis.name(machine), analysis.name(other)
        if not pairs:
            before.append(f"{name} and {other_name} have no cell with a time in common.")
            continue
        before.append(_summary(analysis, pairs))
        tables += _tables(analysis, f"{name} against {other_name}", pairs)
    after = []
    quantity = analysis.matrix.quantity
    if legend(quantity):
        after.append(f"{QUANTITIES[quantity].title}: {legend(quantity)}")
    after.append(_LEGEND[0])
    if some_alike:
        after += _LEGEND[1:]
    all_cells = analysis.matrix.cells.values()
    fair_cells = {(cell.machine, cell.cell) for cell in fair(all_cells)}
    unfair = []
    for result in all_cells:
        if (result.machine, result.cell) not in fair_cells:
            unfair.append(result)
    after += [_MEANS, *axes.legends(cells), *left_out(unfair)]
    return Page(tuple(before), tuple(tables), (*after, *analysis.matrix.notes))


def _tables(analysis: Machines, title: str, pairs: Sequence[Pair]) -> list[Table]:
    """Return the tables of one machine: the mean of each row, and each cell."""
    row_columns = list(_ROWS)
    cell_columns = list(_cell_columns(analysis))
    if not any(pair.verdict for pair in pairs):
        row_columns = [column for column in row_columns if column.key != "verdict"]
        cell_columns = [column for column in cell_columns if column.key != "verdict"]
    return [
        table(row_columns, _means(pairs), f"{title}: rows"),
        table(
            cell_columns,
            pairs,
            f"{title}: cells",
            section=lambda pair: work_name(pair.cell.work),
            keys=2,
        ),
    ]


def _differences(analysis: Machines, machine: str, other: str) -> list[str]:
    """Return the differences in kind of two machines."""
    return unlike(analysis.matrix.hosts[other], analysis.matrix.hosts[machine])


def _summary(analysis: Machines, pairs: Sequence[Pair]) -> str:
    """Return the mean over all cells of two machines in a sentence, with its limits."""
    machine, other = pairs[0].cell.machine, pairs[0].other.machine
    name, other_name = analysis.name(machine), analysis.name(other)
    ratio = times(mean_of(pairs).ratio)
    quantity = analysis.matrix.quantity
    line = f"{name} takes {ratio} the time of {other_name}"
    if quantity != SECONDS:
        line = f"{QUANTITIES[quantity].title}: {name} has {ratio} those of {other_name}"
    line += f" (geometric mean of {counted(len(pairs), 'cell')})."
    differences = _differences(analysis, machine, other)
    if differences:
        line += f" No verdict, since the machines are of different kinds: {'; '.join(differences)}."
    other_builds = sum(not _has_same_environment(pair) for pair in pairs)
    if other_builds:
        line += (
            f" In {other_builds} of {len(pairs)} the framework's build differs too, so the ratio "
            "includes software."
        )
    return line


def headline(analysis: Machines) -> list[str]:
    """Return each machine's difference from the other one, where noise does not explain it."""
    lines = []
    for _, _, pairs in analysis.rows:
        if pairs and judge_ratio(mean_of(pairs).ratio).clear:
            lines.append(_summary(analysis, pairs))
    return lines


def _data(analysis: Machines) -> dict[str, object]:
    machines = []
    for machine, other, pairs in analysis.rows:
        overall = plain(mean_of(pairs).ratio) if pairs else None
        machines.append(
            {
                **objects(_host_columns(analysis), [(machine, other)])[0],
                "different": _differences(analysis, machine, other),
                "overall": overall,
                "rows": objects(_ROWS, _means(pairs)),
                "cells": objects(_cell_columns(analysis), pairs),
            }
        )
    return {
        "quantity": analysis.matrix.quantity,
        "machines": machines,
        "notes": list(analysis.matrix.notes),
    }


def _host_columns(analysis: Machines) -> tuple[Column[tuple[str, str]], ...]:
    """Return the columns of a machine and the other one."""
    hosts = analysis.matrix.hosts
    return (
        *host_columns(lambda machines: hosts[machines[0]]),
        *host_columns(lambda machines: hosts[machines[1]], "against"),
    )


def _rows(analysis: Machines) -> Rows:
    columns = (
        *within(_host_columns(analysis), lambda pair: (pair.cell.machine, pair.other.machine)),
        *_cell_columns(analysis),
    )
    all_pairs: list[Pair] = []
    for _, _, pairs in analysis.rows:
        all_pairs += pairs
    return csv_rows(columns, all_pairs)


def _draw(analysis: Machines, path: Path) -> list[Path]:
    """Draw a page for each machine: a panel for each network, rows down, ratios across."""
    pages = []
    for machine, other, pairs in analysis.rows:
        points = []
        for pair in pairs:
            points.append(
                (
                    work_name(pair.cell.work),
                    row_name(pair.cell.row),
                    place_heading(pair.cell.cell),
                    pair.ratio,
                )
            )
        title = f"{analysis.name(machine)} against {analysis.name(other)}"
        across = (
            f"{QUANTITIES[analysis.matrix.quantity].title} over those on {analysis.name(other)}; "
            "95 % intervals"
        )
        if points:
            pages.append((title, across, points))
    return compared.draw(pages, path)


def _has_pairs(analysis: Machines) -> bool:
    return any(pairs for _, _, pairs in analysis.rows)


REPORT = Report(
    name="machines",
    summary="""The same cells on several machines, with ratios.

Machines of the same kind (CPU, cores, memory) get a verdict, others their ratio alone.""",
    examples=("dlbench report machines --store here.sqlite --store there.sqlite",),
    analyse=lambda source: machines(in_quantity(source.matrix(), source.options.quantity)),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=_rows,
    draw=lambda analysis, path, options: _draw(analysis, path),
    drawable=_has_pairs,
    options=frozenset({QUANTITY, REFERENCE, ALL_RUNS}),
    quantities=COMPARED,
    heading="Machine against machine",
    place=20,
    headline=headline,
    has_section=_has_pairs,
)
