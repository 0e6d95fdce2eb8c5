"""Who is fastest as words and a table for each machine."""

from collections import Counter
from collections.abc import Sequence

from dlbench.reports.cells import NO_THREADS
from dlbench.reports.fastest.analysis import Fastest, Leader
from dlbench.reports.flags import FlagKind
from dlbench.reports.formats.layout import (
    MISSING,
    QUANTITIES,
    Entry,
    Page,
    Table,
    common_flags,
    entry,
    flag_lines,
    times,
)
from dlbench.reports.naming import WORKERS_LEGEND, group_name, head_of, row_name
from dlbench.reports.storage.hosts import name_among

NOTHING = "Nothing was measured yet."
ALONE = "Nowhere do two frameworks, or two modes of one, have a time for the same work; there is nothing to compare."
_LEGEND = (
    "p: threads; next: the fastest that is clearly slower, or the second where none is; times as slow: its time over "
    "the fastest's, with the 95 % interval; clear: noise does not explain the lead over any other.",
    "Each comparison misses in one case of twenty: of many lines a few seem clear by chance.",
)
_APART = (
    "A lead over a cell of another run is not called clear: the machine may have shifted between the two, and the "
    "intervals do not cover that."
)
_NAMED = 3
"""Rows are named up to so many, ..."""
_TIES = 12
"""... and ties described up to so many."""


def fastest_page(found: Fastest) -> Page:
    """Return a table for each machine: a line for each column of each network."""
    if not found.leaders:
        return Page((NOTHING, *found.matrix.notes), ())
    compared = [each for each in found.leaders if each.next is not None]
    if not compared:
        return Page((ALONE, *found.matrix.notes), ())
    shown = [cell for each in compared for cell in each.compared]
    common = common_flags(shown)
    tables = [_table(found, machine, compared, common) for machine in found.matrix.machines]
    lines = [*_LEGEND, *flag_lines(shown, common)]
    lines += [_APART] if any(each.next.run != each.first.run for each in compared if each.next is not None) else []
    lines += [WORKERS_LEGEND] if any(each.column.world_size > 1 for each in compared) else []
    if (alone := len(found.leaders) - len(compared)) > 0:
        lines.append(f"Not shown: {alone} place{'s' if alone > 1 else ''} of networks with one row alone.")
    return Page(tuple(headline(found)), tuple(table for table in tables if table.rows), (*lines, *found.matrix.notes))


def headline(found: Fastest) -> list[str]:
    """Return for each machine how often a row is clearly the fastest, in one sentence."""
    lines = []
    for machine in found.matrix.machines:
        here = [each for each in found.leaders if each.column.machine == machine and each.next is not None]
        if not here:
            continue
        wins = Counter(row_name(each.first.row) for each in here if each.certain or not (each.ties or _measured(each)))
        named = wins.most_common(_NAMED)
        told = ", ".join(f"{name} in {count}" for name, count in named)
        told += f", others in {rest}" if (rest := wins.total() - sum(count for _, count in named)) else ""
        how = "clearly the fastest" if any(map(_measured, here)) else "by the published value the fastest"
        ties = len(here) - wins.total()
        parts = [f"{how}: {told}"] if wins else []
        parts += [f"in {ties} noise may explain who is ahead"] if ties else []
        races = f"{len(here)} comparisons (a network at a thread count)" if len(here) > 1 else "one comparison"
        lines.append(f"{name_among(found.matrix.hosts, machine)}, {races}: {'; '.join(parts)}.")
    return lines


def _measured(leader: Leader) -> bool:
    return leader.ratio is not None and leader.ratio.low is not None


def _table(found: Fastest, machine: str, compared: Sequence[Leader], common: set[FlagKind]) -> Table:
    rows: list[tuple[Entry, ...]] = []
    group = None
    here = [each for each in compared if each.column.machine == machine]
    for leader in here:
        if leader.group != group:
            group = leader.group
            rows.append((Entry(group_name(group)),))
        rows.append(_row(leader, common))
    ties = [_tie(each) for each in here if each.ties]
    if len(ties) > _TIES:
        ties = [*ties[:_TIES], f"... and {len(ties) - _TIES} more; --json shows all"]
    title = f"Who is fastest, on {name_among(found.matrix.hosts, machine)}"
    return Table(title, ("fastest", "p", "s/batch", "next", "times as slow", "clear"), tuple(rows), tuple(ties), keys=2)


def _row(leader: Leader, common: set[FlagKind]) -> tuple[Entry, ...]:
    following = leader.next
    return (
        Entry(row_name(leader.first.row)),
        Entry(_place(leader)),
        entry(leader.first, QUANTITIES["seconds"], common)._replace(best=False),
        Entry(MISSING if following is None else row_name(following.row)),
        Entry(times(leader.ratio) or MISSING),
        Entry("yes" if leader.certain else "no" if _measured(leader) else "?", best=False),
    )


def _place(leader: Leader) -> str:
    cell = leader.column.cell
    return head_of(cell if leader.column.on_cpu else cell._replace(threads=NO_THREADS))


def _tie(leader: Leader) -> str:
    """Return which rows cannot be told from the fastest."""
    names = [row_name(each.row) for each in leader.ties]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    which = f"{group_name(leader.group)} at {_place(leader)}: {row_name(leader.first.row)}"
    return f"{which} cannot be told from {', '.join(names[:_NAMED])}{more}."
