"""The head of a page: a picture of who is fastest on each network, the same as a table, and the
findings.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from markupsafe import Markup

from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, table
from dlbench.reports.formats.layout import NOTHING, Table
from dlbench.reports.formats.markup import rendered
from dlbench.reports.results import flags
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import Place
from dlbench.reports.results.leaders import Leader, fastest
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import group_name, listed, place_name, row_names
from dlbench.reports.results.number_text import interval, number
from dlbench.reports.results.safe_text import one_line
from dlbench.reports.results.statistics import Summary, clearly_slower

MOST_NETWORKS = 6
MOST_ROWS = 10
"""Rows of one network in the picture; the matrix has the others."""
MOST_FINDINGS = 6

Ranking = list[tuple[CellResult, Summary]]
"""Rows of one group in one column with their times, the fastest first."""


def overview_column(matrix: Matrix) -> Place | None:
    """Return the column with most cells that have a time; of equal ones the last without more
    threads than cores.
    """
    counts = Counter(cell.column for cell in matrix.cells.values() if cell.timed is not None)

    def preference(column: Place) -> tuple[int, bool]:
        cores = matrix.hosts[column.machine].own_cores
        return counts[column], not (
            column.on_cpu and cores and column.threads and column.threads > cores
        )

    return max(reversed(matrix.columns), key=preference, default=None)


def rankings(matrix: Matrix, column: Place) -> dict[Cell, Ranking]:
    """Return by group the rankings of several rows; of each network's groups the one with most
    rows.
    """
    of_network: dict[tuple[str, str], tuple[Cell, Ranking]] = {}
    for group, rows in matrix.rows.items():
        cells = [cell for row in rows if (cell := matrix.at(group, row, column))]
        ranking = in_the_running(cells)
        network = group.network, group.specification
        if len(ranking) > max(1, len(of_network.get(network, (group, []))[1])):
            of_network[network] = group, ranking
    return dict(of_network.values())


def _names(matrix: Matrix, column: Place) -> tuple[Callable[[Cell], str], str]:
    return row_names(cell.row for cell in matrix.cells.values() if cell.column == column)


def overview_place(matrix: Matrix, column: Place) -> str:
    """Return where the overview was measured: "2 threads, on AMD EPYC, as installed"."""
    condition = _names(matrix, column)[1]
    where = f"on {name_among(matrix.hosts, column.machine)}{condition}"
    return ", ".join(filter(None, (place_name(column.cell), where)))


def overview_table(matrix: Matrix, column: Place, groups: Iterable[Cell]) -> Table:
    """Return a line for each of these groups: its fastest row and whether that is certain, as the
    report `fastest`.
    """
    leaders = {each.first.group: each for each in fastest(replace(matrix, columns=(column,))).rows}
    name = _names(matrix, column)[0]
    columns: tuple[Column[Leader], ...] = (
        Column("", "network", lambda leader: group_name(leader.first.group)),
        Column("", "fastest", lambda leader: name(leader.first.row)),
        Column("", "s/step", lambda leader: leader.first.seconds),
        Column(
            "",
            "may be as fast",
            lambda leader: listed([name(each.row) for each in leader.ties], 1) or "none",
        ),
        Column("", "next", lambda leader: leader.next and name(leader.next.row)),
        Column("", "times as slow", lambda leader: leader.ratio),
        Column("", "outcome", lambda leader: leader.outcome),
    )
    return table(columns, [leaders[group] for group in groups][:MOST_NETWORKS], words=True)


def panels(
    matrix: Matrix, column: Place, ranked: dict[Cell, Ranking]
) -> list[tuple[str, Markup, int]]:
    """Return name, picture and number of rows left out of each network."""
    shown, name = list(ranked.items())[:MOST_NETWORKS], _names(matrix, column)[0]
    return [
        (group_name(group), _panel_svg(group, of, name), max(0, len(of) - MOST_ROWS))
        for group, of in shown
    ]


def _panel_svg(group: Cell, ranking: Ranking, name: Callable[[Cell], str]) -> Markup:
    """Return one network's rows by their time, with intervals, ties shaded."""
    shown = ranking[:MOST_ROWS]
    line, left, right, top = 18, 148, 290, 6
    longest = max(timed.high or timed.median for _, timed in shown)
    tied = [not clearly_slower(timed, ranking[0][1]) for _, timed in ranking]

    def across(seconds: float) -> float:
        return round(left + (right - left) * seconds / longest, 1)

    rows = [
        {
            "y": top + line * place + line / 2,
            "tied": tied[place],
            "name": one_line(name(cell.row), 24),
            "low": across(timed.low or timed.median),
            "median": across(timed.median),
            "high": across(timed.high or timed.median),
            "value": f"{number(timed.median)} {interval(timed)}",
        }
        for place, (cell, timed) in enumerate(shown)
    ]
    words = ", ".join(f"{name(cell.row)} {number(timed.median)} s" for cell, timed in shown)
    label = f"{group_name(group)}, seconds of a step, fastest first, {sum(tied)} tied: {words}"
    size = {
        "line": line,
        "left": left,
        "top": top,
        "width": 380,
        "height": top + line * len(shown) + 8,
    }
    return rendered("panel.svg.j2", one_line, label=label, rows=rows, **size)


def findings(matrix: Matrix, headlines: Sequence[Sequence[str]]) -> list[str]:
    """Return at most `MOST_FINDINGS` sentences: the first one of each report before any second,
    then the failures.
    """
    last = _failures(list(matrix.cells.values()))
    first = [line for lines in headlines for line in lines[:1]] + [
        line for lines in headlines for line in lines[1:]
    ]
    return [*first[: MOST_FINDINGS - len(last)], *last]


def _failures(cells: Sequence[CellResult]) -> list[str]:
    if not cells:
        return [NOTHING]
    failed = Counter(cell.status.value.replace("_", " ") for cell in cells if not cell.shown)
    kinds = [f"{count} {word}" for word, count in failed.most_common()]
    wrong = Counter(cell.has(flags.PARITY) for cell in cells if cell.shown and cell.timed is None)
    kinds += [f"{wrong[True]} computed something other than the reference"] * (wrong[True] > 0)
    kinds += [f"{wrong[False]} had a loss that is not finite"] * (wrong[False] > 0)
    timed = [cell for cell in cells if cell.timed is not None]
    few = sum(cell.has(flags.FEW_LAUNCHES) for cell in timed)
    lines = [
        f"{len(timed)} of {len(cells)} cells have a time that counts"
        + "; ".join(["", *kinds])
        + "."
    ]
    if few:
        lines.append(
            f"{few} of them rest on fewer than 3 launches: their intervals do not cover other "
            "launches."
        )
    return lines
