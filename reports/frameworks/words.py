"""Framework against framework as words, a table for each machine, and a picture."""

from pathlib import Path

from dlbench.reports.cells import NO_THREADS, Column
from dlbench.reports.formats.dots import Dots, Panel, dots_to_picture
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table, deviation, number, times
from dlbench.reports.frameworks.analysis import Compared, Frameworks, Mean, Standing
from dlbench.reports.naming import WORKERS_LEGEND, head_of, row_name
from dlbench.reports.statistics import judge
from dlbench.reports.storage.hosts import name_among

NOTHING = "No two frameworks, or modes of one, have a time for the same network at the same place; nothing to compare."
_LEGEND = (
    "Seconds of the row over those of the reference, the row with the most times: below 1 it is faster. Geometric "
    "means over the networks that both have a time for there; (n): over how many, each mini-batch on its own.",
    "Means over different networks do not compare with one another. ± is the wider side of the 95 % interval: it holds "
    "for these very networks.",
    "wins, losses: networks at places where the row is clearly faster, or clearly slower, than the reference; each of "
    "them is by chance in one case of twenty.",
)
_FEW = (
    "Some times are of fewer than 3 launches: their intervals cover variation within a launch only, widened by an "
    "assumed 2 %."
)


def frameworks_page(found: Frameworks) -> Page:
    """Return a table for each machine: rows down, threads and devices across."""
    if not found.machines:
        return Page((NOTHING, *found.matrix.notes), ())
    few = any(standing.few_launches for each in found.machines for standing in each.standings)
    workers = any(column.world_size > 1 for each in found.machines for column in each.columns)
    after = (*_LEGEND, *((_FEW,) if few else ()), *((WORKERS_LEGEND,) if workers else ()), *found.matrix.notes)
    return Page((), tuple(_table(found, each) for each in found.machines), after)


def headline(found: Frameworks) -> list[str]:
    """Return for each machine how far the fastest row is ahead of the reference, where noise does not explain it."""
    lines = []
    for each in found.machines:
        most = max(standing.overall.pairs for standing in each.standings)
        whole = [standing for standing in each.standings if standing.overall.pairs == most]
        first = whole[0]
        if first.row == each.reference or judge(first.overall.ratio) != "better":
            continue
        lines.append(
            f"{name_among(found.matrix.hosts, each.machine)}: over all networks and places, {row_name(first.row)} "
            f"takes {times(first.overall.ratio)} the time of {row_name(each.reference)} (geometric mean of "
            f"{len(first.overall.networks)} network{'s' if len(first.overall.networks) > 1 else ''})."
        )
    return lines


def draw_frameworks(found: Frameworks, path: Path) -> list[Path]:
    """Draw a page for each machine: rows down, a mark for each place, intervals across. Raises ReportError."""
    return dots_to_picture([_dots(found, each) for each in found.machines], path, columns=1)


def _dots(found: Frameworks, compared: Compared) -> Dots:
    points = {
        (row_name(standing.row), _head(column)): (mean.ratio.value, mean.ratio.low, mean.ratio.high)
        for standing in compared.standings
        for column, mean in standing.means.items()
        if standing.row != compared.reference and column in compared.columns
    }
    names = tuple(row_name(standing.row) for standing in compared.standings)
    across = (
        f"times as long as {row_name(compared.reference)}, geometric mean over the networks of both; 95 % intervals"
    )
    title = f"Framework against framework, on {name_among(found.matrix.hosts, compared.machine)}"
    return Dots(title, across, (Panel("", names, points),), same=1.0)


def _table(found: Frameworks, compared: Compared) -> Table:
    name = name_among(found.matrix.hosts, compared.machine)
    head = ("", *map(_head, compared.columns), "wins", "losses")
    rows = tuple(_row(compared, standing) for standing in compared.standings)
    apart = ", ".join(row_name(row) for row in compared.apart)
    notes = (f"Nothing in common with the reference: {apart}.",) if apart else ()
    return Table(f"Times as long as {row_name(compared.reference)}, on {name}", head, rows, notes)


def _row(compared: Compared, standing: Standing) -> tuple[Entry, ...]:
    if standing.row == compared.reference:
        means = [
            Entry(f"1 ({len(standing.means[c].networks)})" if c in standing.means else "") for c in compared.columns
        ]
        return (Entry(row_name(standing.row)), *means, Entry(""), Entry(""))
    means = [_mean(standing.means.get(column)) for column in compared.columns]
    return (
        Entry(row_name(standing.row)),
        *means,
        Entry(str(standing.overall.wins)),
        Entry(str(standing.overall.losses)),
    )


def _mean(mean: Mean | None) -> Entry:
    if mean is None:
        return Entry(MISSING)
    spread = deviation(mean.ratio.value, mean.ratio.low, mean.ratio.high)
    return Entry(number(mean.ratio.value), spread, f" ({len(mean.networks)})")


def _head(column: Column) -> str:
    return head_of(column.cell if column.on_cpu else column.cell._replace(threads=NO_THREADS))
