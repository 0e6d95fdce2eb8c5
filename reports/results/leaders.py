"""Leaders: the fastest cell of each column within its group, its rivals, and its lead over the
next.

Cells are selected and compared as for the stars of a matrix, with one difference: the fastest row
with another tuning has a star there if it is not clearly slower, but does not count as a rival
here.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, group_name, place_heading, row_name
from dlbench.reports.results.number_text import times
from dlbench.reports.results.statistics import (
    CONFIDENCE,
    Ratio,
    Summary,
    clearly_slower,
    launches_to_settle,
    may_exceed,
    ratio,
    tied,
)

MOST_NAMED, MOST_DESCRIBED = 3, 12
"""Names in a list, and comparisons described."""
CLEAR, TIE, UNDECIDED, UNKNOWN = "clear", "tie", "undecided", "unknown"
"""Outcomes of a comparison; unknown where times are published ones."""


@dataclass(frozen=True)
class Leader:
    """The fastest cell of a column within its group, and those that come next."""

    first: CellResult
    """The fastest of those that may be compared."""
    ties: tuple[CellResult, ...]
    """Others that are not clearly slower, the fastest first."""
    next: CellResult | None
    """The fastest that is clearly slower, else the second; None where it is alone."""
    ratio: Ratio | None
    """Seconds of the next over its own."""
    outcome: str = UNKNOWN
    """`CLEAR`, `TIE`, `UNDECIDED` or `UNKNOWN`."""
    launches: int | None = None
    """Launches of each of the fastest two that would probably decide; None where more than 100, or
    decided."""


def fastest(matrix: Matrix, confidence: float = CONFIDENCE) -> Compared[Leader]:
    """Return the leader of each column within each group where any cell has a time that counts:
    machine by machine.

    ``confidence`` is that of its comparisons; its ratios have 95 % intervals whatever that is.
    """
    found = []
    for machine in matrix.machines:
        for group, rows in matrix.rows.items():
            for column in matrix.columns_of(machine):
                pool = in_the_running(
                    cell for row in rows if (cell := matrix.at(group, row, column))
                )
                if pool:
                    found.append(_leader(pool, confidence))
    return Compared(matrix, tuple(found))


def _leader(ordered: Sequence[tuple[CellResult, Summary]], confidence: float) -> Leader:
    (first, least), *others = ordered
    others = [
        pair for pair in others if pair[0].row._replace(tuning="") != first.row._replace(tuning="")
    ]
    ties = tuple(cell for cell, seconds in others if not clearly_slower(seconds, least, confidence))
    behind = [pair for pair in others if clearly_slower(pair[1], least, confidence)] or others
    if not behind:
        return Leader(first, ties, None, None)
    following, seconds = behind[0]
    slower = ratio(seconds, least)
    second, its = others[0]
    # Between runs a machine shifts by more than its launches in one run vary by.
    if slower.low is None:
        outcome = UNKNOWN
    elif first.run == following.run and not ties and clearly_slower(seconds, least, confidence):
        outcome = CLEAR
    elif (
        first.run == second.run
        and tied(its, least, confidence)
        and not any(may_exceed(least, each, confidence) for _, each in others)
    ):
        outcome = TIE
    else:
        outcome = UNDECIDED
    launches = launches_to_settle(its, least) if outcome == UNDECIDED else None
    return Leader(first, ties, following, slower, outcome, launches)


def names_of_ties(leader: Leader) -> list[str]:
    """Return the names of the rows that are not clearly slower, the fastest first."""
    return [row_name(each.row) for each in leader.ties]


def headline(found: Compared[Leader]) -> list[str]:
    """Return for each machine how often a row is clearly the fastest, ties or neither, in one
    sentence.
    """
    lines = []
    compared = [each for each in found.rows if each.next is not None]
    for machine, here in grouped(compared, lambda each: each.first.machine).items():
        wins = [
            each
            for each in here
            if each.outcome == CLEAR or (each.outcome == UNKNOWN and not each.ties)
        ]
        winners = Counter(row_name(each.first.row) for each in wins)
        named = winners.most_common(MOST_NAMED)
        words = ", ".join(f"{name} in {count}" for name, count in named)
        words += (
            f", others in {rest}"
            if (rest := winners.total() - sum(count for _, count in named))
            else ""
        )
        published = all(each.outcome == UNKNOWN for each in here)
        how = "by the published value the fastest" if published else "clearly the fastest"
        ties = sum(each.outcome == TIE for each in here)
        left = len(here) - len(wins) - ties
        parts = [f"{how}: {words}"] if wins else []
        parts += [f"a tie within 2 % in {ties}"] if ties else []
        parts += [f"undecided in {left}"] if left else []
        races = (
            f"{len(here)} comparisons (a network at a thread count)"
            if len(here) > 1
            else "one comparison"
        )
        lines.append(f"{found.name(machine)}, {races}: {'; '.join(parts)}.")
    return lines


def leads(found: Compared[Leader]) -> list[str]:
    """Return a sentence for each comparison: who is fastest, who may be as fast, and by how much
    the next is behind.
    """
    lines = []
    compared = [leader for leader in found.rows if leader.next is not None]
    for leader in compared[:MOST_DESCRIBED]:
        names = [row_name(leader.first.row)]
        for cell in leader.ties[:MOST_NAMED]:
            names.append(f"{row_name(cell.row)} ({_behind(cell, leader.first)})")
        words = " or ".join(names)
        if leader.next is not None and leader.next not in leader.ties:
            words += f"; then {row_name(leader.next.row)} ({times(leader.ratio)})"
        lines.append(
            f"{group_name(leader.first.group)}, {_place_in_words(leader.first.cell)}: {words}"
        )
    if len(compared) > MOST_DESCRIBED:
        lines.append(f"... and {len(compared) - MOST_DESCRIBED} more (report fastest)")
    return lines


def _place_in_words(cell: Cell) -> str:
    """Return where a cell computes: "2 threads", "cuda:0"."""
    one_process = cell.on_cpu and cell.threads > 0 and cell.world_size == cell.instances == 1
    return counted(cell.threads, "thread") if one_process else place_heading(cell)


def _behind(cell: CellResult, first: CellResult) -> str:
    assert cell.timed is not None
    assert first.timed is not None
    return times(ratio(cell.timed, first.timed))
