"""`dlbench report fastest`: the fastest row of each column, its rivals, and its lead over the next.

Cells are selected and compared as for the stars of a matrix, with one difference: the fastest row with another tuning
has a star there if it is not clearly slower, but does not count as a rival here.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import CellResult, Matrix, differ, grouped, in_the_running
from dlbench.reports.columns import GROUP, PLACE, ROW, Column, axis_columns, csv_rows, host_columns, objects, table
from dlbench.reports.flags import FlagKind
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import MISSING, NOTHING, Page, Table, common_flags, flag_lines, times
from dlbench.reports.left_out import left_out, not_compared
from dlbench.reports.matrix import of_cell
from dlbench.reports.naming import counted, group_name, listed, place_heading, row_name
from dlbench.reports.ratio.pairs import Compared, seconds_column
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.statistics import (
    CONFIDENCE,
    Ratio,
    Summary,
    clearly_slower,
    launches_to_settle,
    may_exceed,
    ratio,
    tied,
)

ALONE = "No two frameworks, or modes of one, have a time for the same work; there is nothing to compare."
_LEGEND = (
    "p: threads; next: the fastest of the clearly slower rows, or else the second fastest; times as slow: its time "
    "over the fastest's, with the 95 % interval.",
    "clear: noise does not explain the lead over any other; tie: the fastest two are within 2 % of each other, and no "
    "other is faster by more (one-sided tests at 5 %); undecided: neither.",
    "At 95 % confidence about 1 interval in 20 is wrong: with many rows, expect a few false positives.",
)
_APART = (
    "A lead over a cell of another run is undecided: the machine may have shifted between the two, and the "
    "intervals do not cover that."
)
_MORE = (
    "More launches of undecided rows alone: repeat the run's command with --launches 2-20 --interval fastest --resume."
)
_NAMED, _TIES = 3, 12
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
    """Launches of each of the fastest two that would probably decide; None where more than 100, or decided."""


def fastest(matrix: Matrix, confidence: float = CONFIDENCE) -> Compared[Leader]:
    """Return the leader of each column within each group where any cell has a time that counts: machine by machine.

    ``confidence`` is that of its comparisons; its ratios have 95 % intervals whatever that is.
    """
    found = []
    for machine in matrix.machines:
        for group, rows in matrix.rows.items():
            for column in matrix.columns_of(machine):
                pool = in_the_running(cell for row in rows if (cell := matrix.at(group, row, column)))
                if pool:
                    found.append(_leader(pool, confidence))
    return Compared(matrix, tuple(found))


def _leader(ordered: Sequence[tuple[CellResult, Summary]], confidence: float) -> Leader:
    (first, least), *others = ordered
    others = [pair for pair in others if pair[0].row._replace(tuning="") != first.row._replace(tuning="")]
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


def _columns(found: Compared[Leader], common: Collection[FlagKind] = ()) -> tuple[Column[Leader], ...]:
    fields = (*ROW, *(f"seconds_per_minibatch.{part}" for part in (*MEDIAN, "launches")))
    return (
        *host_columns(lambda each: found.matrix.hosts[each.first.machine]),
        *axis_columns(lambda each: each.first.cell, (*GROUP, *PLACE)),
        Column("first", "fastest", lambda each: _standing(each.first), lambda each: row_name(each.first.row), fields),
        Column("", "p", lambda each: place_heading(each.first.cell)),
        seconds_column(lambda each: each.first, common, key=""),
        Column("ties", None, lambda each: list(map(_standing, each.ties)), csv=lambda each: "; ".join(_ties(each))),
        Column(
            "next",
            "next",
            lambda each: None if each.next is None else _standing(each.next),
            lambda each: MISSING if each.next is None else row_name(each.next.row),
            fields,
        ),
        Column("ratio", "times as slow", lambda each: each.ratio, lambda each: times(each.ratio) or MISSING, VALUE),
        Column(
            "outcome",
            "outcome",
            lambda each: each.outcome,
            lambda each: "?" if each.outcome == UNKNOWN else each.outcome,
        ),
        Column("launches_to_decide", None, lambda each: each.launches),
    )


def _standing(cell: CellResult) -> dict[str, object]:
    return {**{name: getattr(cell.row, name) for name in ROW}, **of_cell(cell, "seconds", "flags", "run")}


def _ties(leader: Leader) -> list[str]:
    return [row_name(each.row) for each in leader.ties]


def _page(found: Compared[Leader]) -> Page:
    """Return a table for each machine: a line for each column of each network."""
    compared = [each for each in found.rows if each.next is not None]
    if not compared:
        nothing = ALONE if found.rows else NOTHING
        return Page((nothing, *left_out(not_compared(found.matrix)), *found.matrix.notes), ())
    shown = [cell for each in compared for cell in (each.first, *each.ties[:1], each.next) if cell is not None]
    common = common_flags(shown)
    tables = [_table(found, *each, common) for each in grouped(compared, lambda each: each.first.machine).items()]
    lines = [*_LEGEND, *flag_lines(shown, common)]
    if any(each.launches for each in compared):
        lines.append(_MORE)
    lines += [_APART] if any(each.next.run != each.first.run for each in compared if each.next is not None) else []
    lines += axes.legends(each.first.cell for each in compared)
    if (alone := len(found.rows) - len(compared)) > 0:
        lines.append(f"Not shown: {counted(alone, 'place')} where a network has only one row.")
    lines += left_out(not_compared(found.matrix))
    return Page(tuple(headline(found)), tuple(tables), (*lines, *found.matrix.notes))


def _table(found: Compared[Leader], machine: str, here: Sequence[Leader], common: set[FlagKind]) -> Table:
    ties = [_in_words(each) for each in here if each.ties]
    if len(ties) > _TIES:
        ties = [*ties[:_TIES], f"... and {len(ties) - _TIES} more; --json shows all"]
    title = f"Who is fastest, on {found.name(machine)}"
    columns = _columns(found, common)
    return table(columns, here, title, "leaders", lambda each: group_name(each.first.group), ties, keys=2)


def _in_words(leader: Leader) -> str:
    place = f"{group_name(leader.first.group)} at {place_heading(leader.first.cell)}"
    name, rivals = row_name(leader.first.row), listed(_ties(leader), _NAMED)
    if leader.outcome == TIE:
        return f"{place}: {name} ties with {rivals}."
    if leader.outcome == UNKNOWN:
        return f"{place}: {rivals} may be as fast as {name}."
    more = f" About {leader.launches} launches of each would decide." if leader.launches else ""
    return f"{place}: undecided between {name} and {rivals}.{more}"


def headline(found: Compared[Leader]) -> list[str]:
    """Return for each machine how often a row is clearly the fastest, ties or neither, in one sentence."""
    lines = []
    compared = [each for each in found.rows if each.next is not None]
    for machine, here in grouped(compared, lambda each: each.first.machine).items():
        wins = [each for each in here if each.outcome == CLEAR or (each.outcome == UNKNOWN and not each.ties)]
        winners = Counter(row_name(each.first.row) for each in wins)
        named = winners.most_common(_NAMED)
        words = ", ".join(f"{name} in {count}" for name, count in named)
        words += f", others in {rest}" if (rest := winners.total() - sum(count for _, count in named)) else ""
        published = all(each.outcome == UNKNOWN for each in here)
        how = "by the published value the fastest" if published else "clearly the fastest"
        ties = sum(each.outcome == TIE for each in here)
        left = len(here) - len(wins) - ties
        parts = [f"{how}: {words}"] if wins else []
        parts += [f"a tie within 2 % in {ties}"] if ties else []
        parts += [f"undecided in {left}"] if left else []
        races = f"{len(here)} comparisons (a network at a thread count)" if len(here) > 1 else "one comparison"
        lines.append(f"{found.name(machine)}, {races}: {'; '.join(parts)}.")
    return lines


def leads(found: Compared[Leader]) -> list[str]:
    """Return a sentence for each comparison: who is fastest, who may be as fast, and by how much the next is behind."""
    lines = []
    compared = [leader for leader in found.rows if leader.next is not None]
    for leader in compared[:_TIES]:
        names = [row_name(leader.first.row)]
        for cell in leader.ties[:_NAMED]:
            names.append(f"{row_name(cell.row)} ({_behind(cell, leader.first)})")
        words = " or ".join(names)
        if leader.next is not None and leader.next not in leader.ties:
            words += f"; then {row_name(leader.next.row)} ({times(leader.ratio)})"
        lines.append(f"{group_name(leader.first.group)}, {_place_in_words(leader.first.cell)}: {words}")
    if len(compared) > _TIES:
        lines.append(f"... and {len(compared) - _TIES} more (report fastest)")
    return lines


def _place_in_words(cell: Cell) -> str:
    """Return where a cell computes: "2 threads", "cuda:0"."""
    one_process = cell.on_cpu and cell.threads > 0 and cell.world_size == cell.instances == 1
    return counted(cell.threads, "thread") if one_process else place_heading(cell)


def _behind(cell: CellResult, first: CellResult) -> str:
    assert cell.timed is not None
    assert first.timed is not None
    return times(ratio(cell.timed, first.timed))


REPORT = Report(
    name="fastest",
    summary="Who is fastest on each network at each thread count or device, who ties, and how far behind the next is.",
    examples=("dlbench report fastest", "dlbench report fastest --networks lstm* --threads 2"),
    analyse=lambda source: fastest(source.matrix()),
    page=lambda found, options: _page(found),
    data=lambda found: {"leaders": objects(_columns(found), found.rows), "notes": list(found.matrix.notes)},
    rows=lambda found: csv_rows(_columns(found), found.rows),
    suggestion="who is fastest, and whether it is clear, a tie or undecided",
    applies=lambda cells: differ({cell._replace(tuning="") for cell in cells}, *ROW),
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Who is fastest",
    place=10,
    headline=headline,
    has_section=lambda found: any(each.next is not None for each in found.rows),
)
