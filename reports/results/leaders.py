"""Leaders: the fastest cell of each column for its work, its rivals, and its lead.

Cells are selected and compared as for the stars of a matrix, with one difference: the fastest row
with another tuning has a star there if it is not clearly slower, but it is not a rival.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.cells import CellResult, in_the_running
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, place_heading, row_name, work_name
from dlbench.reports.results.number_text import times
from dlbench.reports.results.statistics import (
    CONFIDENCE,
    Estimate,
    Summary,
    clearly_slower,
    launches_to_settle,
    may_exceed,
    ratio,
    tied,
)

MOST_NAMED = 3
"""Names in a list."""
MOST_DESCRIBED = 12
"""Comparisons described."""
CLEAR, TIE, UNDECIDED, UNKNOWN = "clear", "tie", "undecided", "unknown"
"""Outcomes of a comparison; unknown where times are published ones."""


@dataclass(frozen=True)
class Leader:
    """The fastest cell of a column for its work, and those that come next."""

    first: CellResult
    """The fastest of those that may be compared."""
    ties: tuple[CellResult, ...]
    """Others that are not clearly slower, the fastest first."""
    next: CellResult | None
    """The fastest that is clearly slower, else the second; None where it is alone."""
    ratio: Estimate | None
    """Seconds of the next over its own."""
    outcome: str = UNKNOWN
    """`CLEAR`, `TIE`, `UNDECIDED` or `UNKNOWN`."""
    launches: int | None = None
    """Launches of each of the fastest two that would probably decide; None where more than 100, or
    decided."""


def fastest(matrix: Matrix, confidence: float = CONFIDENCE) -> Compared[Leader]:
    """Return the leader of each column for each work that has any, machine by machine.

    A cell leads only with a time that counts. ``confidence`` is that of its comparisons; its ratios
    always have 95 % intervals.
    """
    leaders = []
    for machine in matrix.machines:
        for work, rows in matrix.rows.items():
            for column in matrix.columns_of(machine):
                places = [matrix.at(work, row, column) for row in rows]
                pool = in_the_running(cell for cell in places if cell is not None)
                if pool:
                    leaders.append(_leader(pool, confidence))
    return Compared(matrix, tuple(leaders))


def _leader(ordered: Sequence[tuple[CellResult, Summary]], confidence: float) -> Leader:
    """Return the first of these cells as the leader of the others."""
    first, least = ordered[0]
    own_row = first.row._replace(tuning="")
    others = [pair for pair in ordered[1:] if pair[0].row._replace(tuning="") != own_row]
    ties = []
    behind = []
    for cell, seconds in others:
        if clearly_slower(seconds, least, confidence):
            behind.append((cell, seconds))
        else:
            ties.append(cell)
    if not others:
        return Leader(first, (), None, None)
    second, seconds_of_second = others[0]
    following, seconds = behind[0] if behind else others[0]
    slower = ratio(seconds, least)
    close = tied(seconds_of_second, least, confidence)
    may_be_faster = any(may_exceed(least, seconds, confidence) for _, seconds in others)
    launches = None
    # Between runs a machine shifts by more than its launches in one run vary by.
    if slower.low is None:
        outcome = UNKNOWN
    elif behind and not ties and first.run == following.run:
        outcome = CLEAR
    elif first.run == second.run and close and not may_be_faster:
        outcome = TIE
    else:
        outcome = UNDECIDED
        launches = launches_to_settle(seconds_of_second, least)
    return Leader(first, tuple(ties), following, slower, outcome, launches)


def names_of_ties(leader: Leader) -> list[str]:
    """Return the names of the rows that are not clearly slower, the fastest first."""
    return [row_name(cell.row) for cell in leader.ties]


def headline(compared: Compared[Leader]) -> list[str]:
    """Return a sentence for each machine: how often a row is clearly the fastest, or ties."""
    leaders = [leader for leader in compared.rows if leader.next is not None]
    lines = []
    for machine, races in grouped(leaders, lambda leader: leader.first.machine).items():
        number = "one comparison"
        if len(races) > 1:
            number = f"{len(races)} comparisons (a network at a thread count)"
        lines.append(f"{compared.name(machine)}, {number}: {'; '.join(_results(races))}.")
    return lines


def _results(leaders: Sequence[Leader]) -> list[str]:
    """Return the results of comparisons of one machine: clear ones, ties and undecided ones."""
    winners: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for leader in leaders:
        outcomes[leader.outcome] += 1
        if _wins(leader):
            winners[row_name(leader.first.row)] += 1
    ties = outcomes[TIE]
    undecided = len(leaders) - winners.total() - ties
    results = []
    if winners:
        words = []
        others = winners.total()
        for name, count in winners.most_common(MOST_NAMED):
            words.append(f"{name} in {count}")
            others -= count
        if others:
            words.append(f"others in {others}")
        how = "clearly the fastest"
        if outcomes[UNKNOWN] == len(leaders):
            how = "by the published value the fastest"
        results.append(f"{how}: {', '.join(words)}")
    if ties:
        results.append(f"a tie within 2 % in {ties}")
    if undecided:
        results.append(f"undecided in {undecided}")
    return results


def _wins(leader: Leader) -> bool:
    return leader.outcome == CLEAR or (leader.outcome == UNKNOWN and not leader.ties)


def leads(compared: Compared[Leader]) -> list[str]:
    """Return a sentence for each comparison: the fastest, ties, and the ratio to the next."""
    leaders = [leader for leader in compared.rows if leader.next is not None]
    lines = []
    for leader in leaders[:MOST_DESCRIBED]:
        names = [row_name(leader.first.row)]
        for cell in leader.ties[:MOST_NAMED]:
            names.append(f"{row_name(cell.row)} ({_times(cell, leader.first)})")
        words = " or ".join(names)
        if leader.next is not None and leader.next not in leader.ties:
            words += f"; then {row_name(leader.next.row)} ({times(leader.ratio)})"
        first = leader.first
        lines.append(f"{work_name(first.work)}, {_place_in_words(first.cell)}: {words}")
    if len(leaders) > MOST_DESCRIBED:
        lines.append(f"... and {len(leaders) - MOST_DESCRIBED} more (report fastest)")
    return lines


def _place_in_words(cell: Cell) -> str:
    """Return where a cell computes: "2 threads", "cuda:0"."""
    if cell.on_cpu and cell.threads > 0 and cell.world_size == cell.instances == 1:
        return counted(cell.threads, "thread")
    return place_heading(cell)


def _times(cell: CellResult, first: CellResult) -> str:
    assert cell.timed is not None
    assert first.timed is not None
    return times(ratio(cell.timed, first.timed))
