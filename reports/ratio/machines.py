"""`dlbench report machines`: the same cell on two machines, and the mean of each row.

Each machine is compared with the one that has the most times. Only machines of the same kind get a verdict: between
others the ratio is the difference of the hardware.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import CellResult, Matrix, fair
from dlbench.reports.columns import MEDIAN, ROW, VALUE, Column, axis_columns, csv_rows, objects, table, within
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, number, times
from dlbench.reports.naming import WORKERS_LEGEND, row_name
from dlbench.reports.ratio.pairs import (
    FASTER,
    SLOWER,
    Mean,
    Pair,
    counted,
    draw,
    heading_of,
    machine_columns,
    mean_of,
    pair_of,
    place_heading,
    verdict,
    with_verdicts,
)
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.statistics import judge
from dlbench.reports.storage.hosts import name_among, unlike

ONE = (
    "There are results of one machine only, nothing to compare; give the stores of others too: "
    "--store here.sqlite --store there.sqlite. Machines of the same hardware count as one here: `dlbench compare` "
    "compares their runs."
)
_LEGEND = (
    "Ratio: seconds on the machine over seconds on the other one, with the 95 % interval; above 1 it takes longer.",
    "slower, faster: noise does not explain it (Welch's t, adjusted after Holm for the number of cells; of fewer than "
    "3 launches the interval, widened by the deviation of launches). same: the whole interval lies within 2 % of 1.",
)
_MEANS = (
    "mean: geometric mean over the cells that both machines have; its verdict is by its own interval, not adjusted. "
    "cells: how many."
)


@dataclass(frozen=True)
class Against:
    """One machine against another one."""

    machine: str
    other: str
    unlike: tuple[str, ...]
    """Why they are not of the same kind; empty where they are."""
    pairs: tuple[Pair, ...]
    """In the order of the matrix."""
    rows: tuple[Mean, ...]
    """The mean of each row, the least first."""
    overall: Mean | None
    """Over all cells; None where they have none in common."""


@dataclass(frozen=True)
class Machines:
    """All machines of a matrix."""

    matrix: Matrix
    against: tuple[Against, ...]


def machines(matrix: Matrix) -> Machines:
    """Compare each machine of a matrix with the one that has the most times."""
    cells: dict[str, dict[Cell, CellResult]] = {machine: {} for machine in matrix.machines}
    for cell in fair(matrix.cells.values()):
        cells[cell.column.machine][cell.cell] = cell
    if len(cells) < 2:
        return Machines(matrix, ())
    most = max(cells, key=lambda machine: len(cells[machine]))
    return Machines(matrix, tuple(_against(matrix, each, most, cells) for each in cells if each != most))


def _against(matrix: Matrix, machine: str, other: str, cells: Mapping[str, Mapping[Cell, CellResult]]) -> Against:
    why = tuple(unlike(matrix.hosts[other], matrix.hosts[machine]))
    found = [pair for cell in cells[other] if (pair := pair_of(cells[machine].get(cell), cells[other][cell]))]
    pairs = with_verdicts(found, lambda pair: not why and _same_gpu(pair))
    by_row: dict[Cell, list[Pair]] = {}
    for pair in pairs:
        by_row.setdefault(pair.cell.row, []).append(pair)
    rows = sorted(map(mean_of, by_row.values()), key=lambda mean: mean.ratio.value)
    return Against(machine, other, why, tuple(pairs), tuple(rows), mean_of(pairs) if pairs else None)


def _same_gpu(pair: Pair) -> bool:
    return len({each.device_observed.name for each in (pair.cell, pair.other) if each.device_observed is not None}) < 2


def _verdict(mean: Mean) -> str:
    return verdict(mean.ratio) if all(pair.verdict for pair in mean.pairs) else ""


def _shown(word: str) -> Entry:
    return Entry(word or "-", hole=word == SLOWER, best=word == FASTER)


_ROWS: tuple[Column[Mean], ...] = (
    *axis_columns(lambda mean: mean.pairs[0].cell.cell, ROW),
    Column("", "", lambda mean: row_name(mean.pairs[0].cell.row)),
    Column("ratio", "mean", lambda mean: mean.ratio),
    Column("cells", "cells", lambda mean: len(mean.pairs)),
    Column("verdict", "verdict", lambda mean: _verdict(mean) or None, lambda mean: _shown(_verdict(mean))),
)
_CELLS: tuple[Column[Pair], ...] = (
    *axis_columns(lambda pair: pair.cell.cell),
    Column("", "", lambda pair: row_name(pair.cell.row)),
    Column("", "p", lambda pair: place_heading(pair.cell.cell)),
    Column("seconds_per_minibatch", "s/batch", lambda pair: pair.cell.seconds, lambda pair: _median(pair.cell), MEDIAN),
    Column("seconds_against", "other", lambda pair: pair.other.seconds, lambda pair: _median(pair.other), MEDIAN),
    Column("ratio", "ratio", lambda pair: pair.ratio, fields=VALUE),
    Column("p_adjusted", None, lambda pair: pair.p_value),
    Column("verdict", "verdict", lambda pair: pair.verdict or None, lambda pair: _shown(pair.verdict)),
    Column("same_environment", None, lambda pair: pair.cell.environment == pair.other.environment),
)


def _median(cell: CellResult) -> str:
    return number(cell.timed.median) if cell.timed else "-"


def _page(found: Machines) -> Page:
    """Return for each machine two tables: the mean of each row, and each cell."""
    if not found.against:
        return Page((ONE, *found.matrix.notes), ())
    before, tables = [], []
    for each in found.against:
        names = [name_among(found.matrix.hosts, name) for name in (each.machine, each.other)]
        if not each.pairs:
            before.append(f"{names[0]} and {names[1]} have no cell with a time in common.")
            continue
        before.append(_summary(found, each))
        judged = any(pair.verdict for pair in each.pairs)
        title = " against ".join(names)
        tables += [
            table([c for c in _ROWS if judged or c.key != "verdict"], each.rows, f"{title}: rows"),
            table(
                [c for c in _CELLS if judged or c.key != "verdict"],
                each.pairs,
                f"{title}: cells",
                group=lambda pair: heading_of(pair.cell),
                keys=2,
            ),
        ]
    workers = any(pair.cell.column.world_size > 1 for each in found.against for pair in each.pairs)
    after = (*_LEGEND[: 1 + any(not each.unlike for each in found.against)], _MEANS)
    return Page(tuple(before), tuple(tables), (*after, *((WORKERS_LEGEND,) if workers else ()), *found.matrix.notes))


def _summary(found: Machines, against: Against) -> str:
    assert against.overall is not None
    name, other = (name_among(found.matrix.hosts, each) for each in (against.machine, against.other))
    count = len(against.pairs)
    line = (
        f"{name} takes {times(against.overall.ratio)} the time of {other} (geometric mean of {counted(count, 'cell')})."
    )
    if against.unlike:
        line += f" No verdict, since the machines are of different kinds: {'; '.join(against.unlike)}."
    if others := sum(pair.cell.environment != pair.other.environment for pair in against.pairs):
        line += f" On {others} of {count} the framework is another build there: the ratio is of software too."
    return line


def headline(found: Machines) -> list[str]:
    """Return for each machine its difference from the other one, where noise does not explain it."""
    clear = [each for each in found.against if each.overall and judge(each.overall.ratio) != "no clear difference"]
    return [_summary(found, each) for each in clear]


def _data(found: Machines) -> dict[str, object]:
    return {
        "machines": [
            {
                **objects(_both(found), [each])[0],
                "different": list(each.unlike),
                "overall": plain(each.overall.ratio) if each.overall else None,
                "rows": objects(_ROWS, each.rows),
                "cells": objects(_CELLS, each.pairs),
            }
            for each in found.against
        ],
        "notes": list(found.matrix.notes),
    }


def _both(found: Machines) -> tuple[Column[Against], ...]:
    hosts = found.matrix.hosts
    return (
        *machine_columns(hosts, lambda each: each.machine),
        *machine_columns(hosts, lambda each: each.other, "against"),
    )


def _rows(found: Machines) -> Rows:
    columns: tuple[Column[tuple[Against, Pair]], ...] = (
        *within(_both(found), lambda row: row[0]),
        *within(_CELLS, lambda row: row[1]),
    )
    return csv_rows(columns, [(each, pair) for each in found.against for pair in each.pairs])


def _draw(found: Machines, path: Path) -> list[Path]:
    """Draw a page for each machine: a panel for each network, rows down, ratios across."""
    pages = []
    for each in found.against:
        name, other = (name_among(found.matrix.hosts, machine) for machine in (each.machine, each.other))
        points = [
            (heading_of(pair.cell), row_name(pair.cell.row), place_heading(pair.cell.cell), pair.ratio)
            for pair in each.pairs
        ]
        pages += (
            [(f"{name} against {other}", f"seconds over those on {other}; 95 % intervals", points)] if points else []
        )
    return draw(pages, path)


REPORT = Report(
    name="machines",
    summary="""The same cells on several machines: ratios with intervals, and the mean of each row.

Machines of the same kind (CPU, cores, memory) get a verdict, others their ratio alone.""",
    examples=(
        "dlbench report machines --store here.sqlite --store there.sqlite",
        "dlbench report machines --store here.sqlite --store there.sqlite --plot machines.png",
    ),
    analyse=lambda source: machines(source.matrix()),
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: any(each.pairs for each in found.against),
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Machine against machine",
    place=20,
    headline=headline,
    has_section=lambda found: any(each.pairs for each in found.against),
)
