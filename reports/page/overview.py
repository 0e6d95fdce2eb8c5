"""The head of a page: a picture of who is fastest on each network, the same in six lines, and the findings."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dlbench.adapters.protocol import Cell
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Matrix, Place, in_the_running
from dlbench.reports.formats.inert import one_line
from dlbench.reports.formats.layout import MISSING, Table, deviation, entries, number, times
from dlbench.reports.naming import group_name, place_name, row_name
from dlbench.reports.page.document import Document
from dlbench.reports.statistics import Summary, clearly_slower, ratio
from dlbench.reports.storage.hosts import name_among

MOST_NETWORKS = 6
MOST_ROWS = 10
"""Rows of one network in the picture; the matrix has the others."""
MOST_FINDINGS = 6
_NAMED_TIES = 2


@dataclass(frozen=True)
class Ranking:
    """Rows of one group in one column by their time, the fastest first."""

    group: Cell
    rows: tuple[tuple[CellResult, Summary], ...]
    ties: int
    """Rows no slower than noise explains, the first included."""

    @property
    def behind(self) -> tuple[CellResult, Summary] | None:
        """The first row that is clearly slower."""
        return next((pair for pair in self.rows if clearly_slower(pair[1], self.rows[0][1])), None)


def overview_column(matrix: Matrix) -> Place | None:
    """Return the column with most cells that have a time; of equal ones the last."""
    counts = Counter(cell.column for cell in matrix.cells.values() if cell.timed is not None)
    return max(matrix.columns, key=lambda column: (counts[column], matrix.columns.index(column)), default=None)


def rankings(matrix: Matrix, column: Place) -> list[Ranking]:
    """Return for each network the ranking of its group with most rows, where several rows have a time."""
    found: dict[tuple[str, str], Ranking] = {}
    for group, rows in matrix.rows.items():
        cells = [cell for row in rows if (cell := matrix.at(group, row, column))]
        ordered = sorted(in_the_running(cells), key=lambda pair: pair[1].median)
        network = group.network, group.specification
        if len(ordered) < 2 or (network in found and len(found[network].rows) >= len(ordered)):
            continue
        ties = sum(not clearly_slower(timed, ordered[0][1]) for _, timed in ordered)
        found[network] = Ranking(group, tuple(ordered), ties)
    return list(found.values())


def overview_place(matrix: Matrix, column: Place) -> str:
    """Return where the overview was measured: "2 threads of AMD EPYC"."""
    return f"{place_name(column.cell)} of {name_among(matrix.hosts, column.machine)}"


def overview_table(found: Sequence[Ranking]) -> Table:
    """Return a line for each network: its fastest row, the ties, and the margin to the first that is clearly slower."""
    rows = []
    for each in found[:MOST_NETWORKS]:
        cell, least = each.rows[0]
        tied = [row_name(other.cell) for other, timed in each.rows[1:] if not clearly_slower(timed, least)]
        more = f" and {len(tied) - _NAMED_TIES} more" if len(tied) > _NAMED_TIES else ""
        behind = each.behind
        rows.append(
            entries(
                group_name(each.group),
                row_name(cell.cell),
                f"{number(least.median)} s{_spread(least)}",
                ", ".join(tied[:_NAMED_TIES]) + more if tied else "none",
                row_name(behind[0].cell) if behind else "none",
                times(ratio(behind[1], least)) if behind else MISSING,
            )
        )
    heads = ("network", "fastest", "a step", "ties with it", "first clearly slower", "takes")
    return Table("", heads, tuple(rows), words=True)


def _spread(timed: Summary) -> str:
    found = deviation(timed.median, timed.low, timed.high)
    return f" {found}" if found else ""


def panel_svg(ranking: Ranking) -> Markup:
    """Return one network's rows by their time, with intervals, ties shaded."""
    shown = ranking.rows[:MOST_ROWS]
    line, left, right, width, top = 18, 148, 300, 380, 6
    height = top + line * len(shown) + 8
    longest = max(timed.high or timed.median for _, timed in shown)

    def across(seconds: float) -> float:
        return round(left + (right - left) * seconds / longest, 1)

    marks = [Markup('<path class="axis" d="M{} {}V{}"/>').format(left, top, height - 6)]
    least = ranking.rows[0][1]
    for place, (cell, timed) in enumerate(shown):
        y = top + line * place + line / 2
        if not clearly_slower(timed, least):
            marks.append(Markup('<rect class="tie" x="0" y="{}" width="{}" height="{}"/>').format(y - 9, width, line))
        low, high = (timed.low or timed.median, timed.high or timed.median)
        marks.append(
            Markup(
                '<text x="{}" y="{}" text-anchor="end">{}</text><path class="whisker" d="M{} {}H{}"/>'
                '<circle cx="{}" cy="{}" r="3.5"/><text class="value" x="{}" y="{}" text-anchor="end">{}</text>'
            ).format(
                *(left - 6, y + 4, one_line(row_name(cell.cell), 24), across(low), y, across(high)),
                *(across(timed.median), y, width - 2, y + 4, f"{number(timed.median)}{_spread(timed)}"),
            )
        )
    words = ", ".join(f"{row_name(cell.cell)} {number(timed.median)} s" for cell, timed in shown)
    label = f"{group_name(ranking.group)}, seconds of a step, fastest first, {ranking.ties} tied: {words}"
    svg = '<svg class="panel" role="img" aria-label="{}" viewBox="0 0 {} {}">{}</svg>'
    return Markup(svg).format(one_line(label, 2000), width, height, Markup("").join(marks))


def panels(found: Sequence[Ranking]) -> list[tuple[str, Markup, int]]:
    """Return name, picture and rows left out of each network."""
    return [
        (group_name(each.group), panel_svg(each), max(0, len(each.rows) - MOST_ROWS)) for each in found[:MOST_NETWORKS]
    ]


def findings(document: Document, headlines: Sequence[Sequence[str]]) -> list[str]:
    """Return at most `MOST_FINDINGS` sentences: the first one of each report before any second, then the failures."""
    last = _failures(list(document.matrix.cells.values()))
    said = [line for lines in headlines for line in lines[:1]] + [line for lines in headlines for line in lines[1:]]
    return [*said[: MOST_FINDINGS - len(last)], *last]


def _failures(cells: Sequence[CellResult]) -> list[str]:
    if not cells:
        return ["Nothing was measured yet."]
    failed = Counter(cell.status.value.replace("_", " ") for cell in cells if not cell.shown)
    kinds = [f"{count} {word}" for word, count in failed.most_common()]
    wrong = [cell.has(flags.PARITY) for cell in cells if cell.shown and cell.timed is None]
    for count, words in (
        (sum(wrong), "computed something else than the reference"),
        (len(wrong) - sum(wrong), "had a loss that is not finite"),
    ):
        kinds += [f"{count} {words}"] if count else []
    timed = [cell for cell in cells if cell.timed is not None]
    few = sum(cell.has(flags.FEW_LAUNCHES) for cell in timed)
    lines = [f"{len(timed)} of {len(cells)} cells have a time that counts" + "; ".join(["", *kinds]) + "."]
    if few:
        lines.append(f"{few} of them rest on fewer than 3 launches: their intervals do not cover other launches.")
    return lines
