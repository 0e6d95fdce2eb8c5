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
from dlbench.reports.formats.layout import Entry, Page
from dlbench.reports.left_out import left_out
from dlbench.reports.ratio import pairs as compared
from dlbench.reports.ratio.pairs import FASTER, SLOWER, Mean, Pair, mean_of, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, QUANTITY, REFERENCE, Report
from dlbench.reports.results.cells import CellResult, fair
from dlbench.reports.results.hosts import unlike
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, group_name, place_heading, row_name
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.quantities import COMPARED, QUANTITIES, SECONDS, in_quantity, legend
from dlbench.reports.results.statistics import judge

ONE = (
    "All results are from one machine, so there is nothing to compare; add the stores of others: "
    "--store here.sqlite --store there.sqlite. Machines of the same hardware count as one here: "
    "`dlbench compare` compares their runs."
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
"""For each machine but the one with the most times: the two machines, and pairs in the order of the
matrix."""


def machines(matrix: Matrix) -> Machines:
    """Compare each machine of a matrix with the one that has the most times."""
    cells: dict[str, dict[Cell, CellResult]] = {machine: {} for machine in matrix.machines}
    for cell in fair(matrix.cells.values()):
        cells[cell.machine][cell.cell] = cell
    most = max(cells, key=lambda machine: len(cells[machine]), default="")
    found = []
    for machine in cells:
        if machine != most:
            pairs = [
                pair
                for cell in cells[most].values()
                if (pair := pair_of(cells[machine].get(cell.cell), cell))
            ]
            alike = not unlike(matrix.hosts[most], matrix.hosts[machine])
            judged = [
                each if alike and _same_gpu(each) else replace(each, verdict="")
                for each in with_verdicts(pairs)
            ]
            found.append((machine, most, judged))
    return Compared(matrix, tuple(found))


def _same_gpu(pair: Pair) -> bool:
    return (
        len(
            {
                each.device_observed.name
                for each in (pair.cell, pair.other)
                if each.device_observed is not None
            }
        )
        < 2
    )


def _verdict(mean: Mean) -> str:
    return compared.verdict(mean.ratio) if all(pair.verdict for pair in mean.pairs) else ""


def _shown(word: str) -> Entry:
    return Entry(word or "-", hole=word == SLOWER, best=word == FASTER)


_ROWS: tuple[Column[Mean], ...] = (
    *axis_columns(lambda mean: mean.row, ROW),
    Column("", "", lambda mean: row_name(mean.row)),
    Column("ratio", "mean", lambda mean: mean.ratio),
    Column("cells", "cells", lambda mean: len(mean.pairs)),
    Column(
        "verdict",
        "verdict",
        lambda mean: _verdict(mean) or None,
        lambda mean: _shown(_verdict(mean)),
    ),
)


def _cells(found: Machines) -> tuple[Column[Pair], ...]:
    name = found.matrix.quantity
    keys = (
        ("seconds_per_minibatch", "seconds_against")
        if name == SECONDS
        else (name, f"{name}_against")
    )
    unit = QUANTITIES[name].unit
    return (
        *axis_columns(lambda pair: pair.cell.cell),
        Column("", "", lambda pair: row_name(pair.cell.row)),
        Column("", "p", lambda pair: place_heading(pair.cell.cell)),
        Column(
            keys[0], unit, lambda pair: pair.cell.seconds, lambda pair: _median(pair.cell), MEDIAN
        ),
        Column(
            keys[1],
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
            lambda pair: pair.verdict or None,
            lambda pair: _shown(pair.verdict),
        ),
        Column(
            "same_environment", None, lambda pair: pair.cell.environment == pair.other.environment
        ),
    )


def _median(cell: CellResult) -> str:
    return number(cell.timed.median) if cell.timed else "-"


def _rows_of(pairs: Sequence[Pair]) -> list[Mean]:
    """Return the mean of each row, the least first."""
    return sorted(
        map(mean_of, grouped(pairs, lambda pair: pair.cell.row).values()),
        key=lambda mean: mean.ratio.value,
    )


def _page(found: Machines) -> Page:
    """Return for each machine two tables: the mean of each row, and each cell."""
    if not found.rows:
        return Page((ONE, *found.matrix.notes), ())
    before, tables = [], []
    for machine, other, pairs in found.rows:
        title = f"{found.name(machine)} against {found.name(other)}"
        if not pairs:
            before.append(
                f"{found.name(machine)} and {found.name(other)} have no cell with a time in common."
            )
            continue
        before.append(_summary(found, pairs))
        hidden = () if any(pair.verdict for pair in pairs) else ("verdict",)
        of_rows = [column for column in _ROWS if column.key not in hidden]
        of_cells = [column for column in _cells(found) if column.key not in hidden]
        tables += [
            table(of_rows, _rows_of(pairs), f"{title}: rows"),
            table(
                of_cells,
                pairs,
                f"{title}: cells",
                group=lambda pair: group_name(pair.cell.group),
                keys=2,
            ),
        ]
    legends = axes.legends(pair.cell.cell for _, _, pairs in found.rows for pair in pairs)
    some_alike = any(not _unlike(found, machine, other) for machine, other, _ in found.rows)
    quantity = found.matrix.quantity
    meant = [f"{QUANTITIES[quantity].title}: {legend(quantity)}"] if legend(quantity) else []
    kept = {(cell.machine, cell.cell) for cell in fair(found.matrix.cells.values())}
    apart = [cell for cell in found.matrix.cells.values() if (cell.machine, cell.cell) not in kept]
    after = (
        *meant,
        *_LEGEND[: 1 + some_alike],
        _MEANS,
        *legends,
        *left_out(apart),
        *found.matrix.notes,
    )
    return Page(tuple(before), tuple(tables), after)


def _unlike(found: Machines, machine: str, other: str) -> list[str]:
    return unlike(found.matrix.hosts[other], found.matrix.hosts[machine])


def _summary(found: Machines, pairs: Sequence[Pair]) -> str:
    machine, other, count = pairs[0].cell.machine, pairs[0].other.machine, len(pairs)
    ratio = times(mean_of(pairs).ratio)
    name, against = found.name(machine), found.name(other)
    quantity = found.matrix.quantity
    line = f"{name} takes {ratio} the time of {against}"
    if quantity != SECONDS:
        line = f"{QUANTITIES[quantity].title}: {name} has {ratio} those of {against}"
    line += f" (geometric mean of {counted(count, 'cell')})."
    if why := _unlike(found, machine, other):
        line += f" No verdict, since the machines are of different kinds: {'; '.join(why)}."
    if others := sum(pair.cell.environment != pair.other.environment for pair in pairs):
        line += (
            f" In {others} of {count} the framework's build differs too, so the ratio includes "
            "software."
        )
    return line


def headline(found: Machines) -> list[str]:
    """Return for each machine its difference from the other one, where noise does not explain
    it.
    """
    known = [pairs for _, _, pairs in found.rows if pairs]
    return [
        _summary(found, pairs)
        for pairs in known
        if judge(mean_of(pairs).ratio) != "no clear difference"
    ]


def _data(found: Machines) -> dict[str, object]:
    hosts = found.matrix.hosts
    return {
        "quantity": found.matrix.quantity,
        "machines": [
            {
                **objects(_both(found), [(machine, other)])[0],
                "different": unlike(hosts[other], hosts[machine]),
                "overall": plain(mean_of(pairs).ratio) if pairs else None,
                "rows": objects(_ROWS, _rows_of(pairs)),
                "cells": objects(_cells(found), pairs),
            }
            for machine, other, pairs in found.rows
        ],
        "notes": list(found.matrix.notes),
    }


def _both(found: Machines) -> tuple[Column[tuple[str, str]], ...]:
    hosts = found.matrix.hosts
    return (
        *host_columns(lambda both: hosts[both[0]]),
        *host_columns(lambda both: hosts[both[1]], "against"),
    )


def _rows(found: Machines) -> Rows:
    columns = (
        *within(_both(found), lambda pair: (pair.cell.machine, pair.other.machine)),
        *_cells(found),
    )
    return csv_rows(columns, [pair for _, _, pairs in found.rows for pair in pairs])


def _draw(found: Machines, path: Path) -> list[Path]:
    """Draw a page for each machine: a panel for each network, rows down, ratios across."""
    pages = []
    for machine, other, pairs in found.rows:
        points = [
            (
                group_name(each.cell.group),
                row_name(each.cell.row),
                place_heading(each.cell.cell),
                each.ratio,
            )
            for each in pairs
        ]
        title = f"{found.name(machine)} against {found.name(other)}"
        across = (
            f"{QUANTITIES[found.matrix.quantity].title} over those on {found.name(other)}; 95 % "
            "intervals"
        )
        pages += [(title, across, points)] if points else []
    return compared.draw(pages, path)


def _any(found: Machines) -> bool:
    return any(pairs for _, _, pairs in found.rows)


REPORT = Report(
    name="machines",
    summary="""The same cells on several machines: ratios with intervals, and the mean of each row.

Machines of the same kind (CPU, cores, memory) get a verdict, others their ratio alone.""",
    examples=(
        "dlbench report machines --store here.sqlite --store there.sqlite",
        "dlbench report machines --store here.sqlite --store there.sqlite --plot machines.png",
        "dlbench report machines --store here.sqlite --store there.sqlite --quantity cpu_joules",
    ),
    analyse=lambda source: machines(in_quantity(source.matrix(), source.options.quantity)),
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    draw=lambda found, path, options: _draw(found, path),
    drawable=_any,
    options=frozenset({QUANTITY, REFERENCE, ALL_RUNS}),
    quantities=COMPARED,
    heading="Machine against machine",
    place=20,
    headline=headline,
    has_section=_any,
)
