"""The head of a page: the fastest on each network as a picture and a table, and the findings."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from markupsafe import Markup

from dlbench.reports.columns import Column, table
from dlbench.reports.formats.layout import NOTHING, Table
from dlbench.reports.formats.markup import rendered
from dlbench.reports.results import flag_kinds
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import Place, RowKey, WorkKey
from dlbench.reports.results.leaders import Leader, fastest
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import listed, place_name, row_names, work_name
from dlbench.reports.results.number_text import interval, number
from dlbench.reports.results.safe_text import one_line
from dlbench.reports.results.statistics import Summary, clearly_slower

MOST_NETWORKS = 6
MOST_ROWS = 10
"""Rows of one network in the picture. The matrix has the others."""
MOST_FINDINGS = 6

Ranking = list[tuple[CellResult, Summary]]
"""Rows of one work in one column with their times, the fastest first."""


def overview_column(matrix: Matrix) -> Place | None:
    """Return the column with most times; of equal ones the last with no more threads than cores."""
    counts = Counter(cell.column for cell in matrix.cells.values() if cell.timed is not None)

    def preference(column: Place) -> tuple[int, bool]:
        cores = matrix.hosts[column.machine].own_cores
        exceeds_cores = bool(column.on_cpu and cores and column.threads and column.threads > cores)
        return counts[column], not exceeds_cores

    return max(reversed(matrix.columns), key=preference, default=None)


def rankings(matrix: Matrix, column: Place) -> dict[WorkKey, Ranking]:
    """Return the ranking of each network's work with most rows, by work.

    Rankings of a single row are left out.
    """
    work_by_network: dict[tuple[str, str], tuple[WorkKey, Ranking]] = {}
    for work, rows in matrix.rows.items():
        cells = []
        for row in rows:
            cell = matrix.at(work, row, column)
            if cell is not None:
                cells.append(cell)
        ranking = in_the_running(cells)
        if len(ranking) <= 1:
            continue
        network = (work.network, work.specification)
        if network in work_by_network:
            _, best_ranking = work_by_network[network]
            if len(ranking) <= len(best_ranking):
                continue
        work_by_network[network] = (work, ranking)
    return dict(work_by_network.values())


def _names(matrix: Matrix, column: Place) -> tuple[Callable[[RowKey], str], str]:
    """Return a function that names the rows of a column, and a condition common to them."""
    return row_names(cell.row for cell in matrix.cells.values() if cell.column == column)


def overview_place(matrix: Matrix, column: Place) -> str:
    """Return where the overview was measured: "2 threads, on AMD EPYC, as installed"."""
    _, condition = _names(matrix, column)
    where = f"on {name_among(matrix.hosts, column.machine)}{condition}"
    place = place_name(column.cell)
    return f"{place}, {where}" if place else where


def overview_table(matrix: Matrix, column: Place, works: Iterable[WorkKey]) -> Table:
    """Return the fastest row of each of these works and its certainty, as the report `fastest`."""
    leaders = fastest(replace(matrix, columns=(column,))).rows
    leader_by_work = {leader.first.work: leader for leader in leaders}
    rows = [leader_by_work[work] for work in works][:MOST_NETWORKS]
    name, _ = _names(matrix, column)

    def ties(leader: Leader) -> str:
        return listed([name(cell.row) for cell in leader.ties], 1) or "none"

    def next_name(leader: Leader) -> str | None:
        if leader.next is None:
            return None
        return name(leader.next.row)

    columns: tuple[Column[Leader], ...] = (
        Column("", "network", lambda leader: work_name(leader.first.work)),
        Column("", "fastest", lambda leader: name(leader.first.row)),
        Column("", "s/step", lambda leader: leader.first.seconds),
        Column("", "may be as fast", ties),
        Column("", "next", next_name),
        Column("", "times as slow", lambda leader: leader.ratio),
        Column("", "outcome", lambda leader: leader.outcome),
    )
    return table(columns, rows, words=True)


def panels(
    matrix: Matrix, column: Place, ranked: dict[WorkKey, Ranking]
) -> list[tuple[str, Markup, int]]:
    """Return name, picture and number of rows left out of each network."""
    name, _ = _names(matrix, column)
    shown = []
    for work, ranking in list(ranked.items())[:MOST_NETWORKS]:
        left_out = max(0, len(ranking) - MOST_ROWS)
        shown.append((work_name(work), _panel_svg(work, ranking, name), left_out))
    return shown


def _panel_svg(work: WorkKey, ranking: Ranking, name: Callable[[RowKey], str]) -> Markup:
    """Return one network's rows by their time, with intervals, ties shaded."""
    shown = ranking[:MOST_ROWS]
    line = 18
    left = 148
    right = 290
    top = 6
    longest = max(timed.high or timed.median for _, timed in shown)
    _, first_time = ranking[0]
    tied = [not clearly_slower(timed, first_time) for _, timed in ranking]

    def across(seconds: float) -> float:
        return round(left + (right - left) * seconds / longest, 1)

    rows = []
    words = []
    for place, (cell, timed) in enumerate(shown):
        row = name(cell.row)
        words.append(f"{row} {number(timed.median)} s")
        rows.append(
            {
                "y": top + line * place + line / 2,
                "tied": tied[place],
                "name": one_line(row, 24),
                "low": across(timed.low or timed.median),
                "median": across(timed.median),
                "high": across(timed.high or timed.median),
                "value": f"{number(timed.median)} {interval(timed)}",
            }
        )
    title = f"{work_name(work)}, seconds of a step, fastest first, {sum(tied)} tied"
    label = f"{title}: {', '.join(words)}"
    return rendered(
        "panel.svg.j2",
        one_line,
        label=label,
        rows=rows,
        line=line,
        left=left,
        top=top,
        width=380,
        height=top + line * len(shown) + 8,
    )


def findings(matrix: Matrix, headlines: Sequence[Sequence[str]]) -> list[str]:
    """Return at most `MOST_FINDINGS` sentences, with the failures at the end.

    The first one of each report comes before any second one.
    """
    failures = _failures(list(matrix.cells.values()))
    first: list[str] = []
    further: list[str] = []
    for lines in headlines:
        first += lines[:1]
        further += lines[1:]
    chosen = [*first, *further][: MOST_FINDINGS - len(failures)]
    return [*chosen, *failures]


def _failures(cells: Sequence[CellResult]) -> list[str]:
    if not cells:
        return [NOTHING]
    timed = few = wrong = not_finite = 0
    failed: Counter[str] = Counter()
    for cell in cells:
        if cell.timed is not None:
            timed += 1
            few += cell.has(flag_kinds.FEW_LAUNCHES)
        elif not cell.shown:
            failed[cell.status.value.replace("_", " ")] += 1
        elif cell.has(flag_kinds.PARITY):
            wrong += 1
        else:
            not_finite += 1
    parts = [f"{timed} of {len(cells)} cells have a time that counts"]
    for word, count in failed.most_common():
        parts.append(f"{count} {word}")
    if wrong:
        parts.append(f"{wrong} computed something other than the reference")
    if not_finite:
        parts.append(f"{not_finite} had a loss that is not finite")
    lines = [f"{'; '.join(parts)}."]
    if few:
        lines.append(
            f"{few} of them rest on fewer than 3 launches: their intervals do not cover other "
            "launches."
        )
    return lines
