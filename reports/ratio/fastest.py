"""`dlbench report fastest`: the fastest row of each column, its rivals and its lead."""

from collections.abc import Collection, Sequence

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import (
    PLACE,
    ROW,
    WORK,
    Column,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import MISSING, NOTHING, Page, Table, common_flags, flag_lines
from dlbench.reports.left_out import left_out
from dlbench.reports.matrix import cell_attributes
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flag_kinds import FlagKind
from dlbench.reports.results.keys import differ, grouped
from dlbench.reports.results.leaders import (
    MOST_DESCRIBED,
    MOST_NAMED,
    TIE,
    UNKNOWN,
    Leader,
    fastest,
    headline,
    names_of_ties,
)
from dlbench.reports.results.matrix import Compared, not_compared
from dlbench.reports.results.naming import counted, listed, place_heading, row_name, work_name
from dlbench.reports.results.number_text import times

ALONE = (
    "No two frameworks, or modes of one, have a time for the same work; there is nothing to "
    "compare."
)
_LEGEND = (
    (
        "p: threads; next: the fastest of the clearly slower rows, or else the second fastest; "
        "times as slow: its time over the fastest's, with the 95 % interval."
    ),
    (
        "clear: noise does not explain the lead over any other; tie: the fastest two are within 2 "
        "% of each other, and no other is faster by more (one-sided tests at 5 %); undecided: "
        "neither."
    ),
    (
        "At 95 % confidence about 1 interval in 20 is wrong: with many rows, expect a few false "
        "positives."
    ),
)
_APART = (
    "A lead over a cell of another run is undecided: the machine may have shifted between the two, "
    "and the intervals do not cover that."
)
_MORE = (
    "More launches of undecided rows alone: repeat the run's command with --launches 2-20 "
    "--interval fastest --resume."
)


def _columns(
    analysis: Compared[Leader], common: Collection[FlagKind] = ()
) -> tuple[Column[Leader], ...]:
    seconds_fields = [f"seconds_per_minibatch.{part}" for part in (*MEDIAN, "launches")]
    fields = (*ROW, *seconds_fields)
    return (
        *host_columns(lambda leader: analysis.matrix.hosts[leader.first.machine]),
        *axis_columns(lambda leader: leader.first.cell, (*WORK, *PLACE)),
        Column(
            "first",
            "fastest",
            lambda leader: _standing(leader.first),
            lambda leader: row_name(leader.first.row),
            fields,
        ),
        Column("", "p", lambda leader: place_heading(leader.first.cell)),
        seconds_column(lambda leader: leader.first, common, key=""),
        Column("ties", None, _ties_data, csv=lambda leader: "; ".join(names_of_ties(leader))),
        Column("next", "next", _next_standing, _next_name, fields),
        Column(
            "ratio",
            "times as slow",
            lambda leader: leader.ratio,
            lambda leader: times(leader.ratio) or MISSING,
            VALUE,
        ),
        Column("outcome", "outcome", lambda leader: leader.outcome, _outcome_text),
        Column("launches_to_decide", None, lambda leader: leader.launches),
    )


def _standing(cell: CellResult) -> dict[str, object]:
    return {
        **{name: getattr(cell.row, name) for name in ROW},
        **cell_attributes(cell, "seconds", "flags", "run"),
    }


def _ties_data(leader: Leader) -> list[dict[str, object]]:
    return [_standing(tie) for tie in leader.ties]


def _next_standing(leader: Leader) -> dict[str, object] | None:
    return None if leader.next is None else _standing(leader.next)


def _next_name(leader: Leader) -> str:
    return MISSING if leader.next is None else row_name(leader.next.row)


def _outcome_text(leader: Leader) -> str:
    return "?" if leader.outcome == UNKNOWN else leader.outcome


def _page(analysis: Compared[Leader]) -> Page:
    """Return a table for each machine: a line for each column of each network."""
    unused = left_out(not_compared(analysis.matrix))
    compared = [leader for leader in analysis.rows if leader.next is not None]
    if not compared:
        nothing = ALONE if analysis.rows else NOTHING
        return Page((nothing, *unused, *analysis.matrix.notes), ())
    shown = []
    is_apart = False
    for leader in compared:
        shown += [leader.first, *leader.ties[:1]]
        if leader.next is not None:
            shown.append(leader.next)
            is_apart = is_apart or leader.next.run != leader.first.run
    common = common_flags(shown)
    tables = []
    for machine, leaders in grouped(compared, lambda leader: leader.first.machine).items():
        tables.append(_table(analysis, machine, leaders, common))
    lines = [*_LEGEND, *flag_lines(shown, common)]
    if any(leader.launches for leader in compared):
        lines.append(_MORE)
    if is_apart:
        lines.append(_APART)
    lines += axes.legends(leader.first.cell for leader in compared)
    alone = len(analysis.rows) - len(compared)
    if alone > 0:
        lines.append(f"Not shown: {counted(alone, 'place')} where a network has only one row.")
    return Page(tuple(headline(analysis)), tuple(tables), (*lines, *unused, *analysis.matrix.notes))


def _table(
    analysis: Compared[Leader], machine: str, leaders: Sequence[Leader], common: set[FlagKind]
) -> Table:
    notes = [_rivals_sentence(leader) for leader in leaders if leader.ties]
    more = len(notes) - MOST_DESCRIBED
    if more > 0:
        notes = [*notes[:MOST_DESCRIBED], f"... and {more} more; --json shows all"]
    return table(
        _columns(analysis, common),
        leaders,
        f"Who is fastest, on {analysis.name(machine)}",
        "leaders",
        section=lambda leader: work_name(leader.first.work),
        notes=notes,
        keys=2,
    )


def _rivals_sentence(leader: Leader) -> str:
    """Return a sentence on the rows that may be as fast as the leader."""
    place = f"{work_name(leader.first.work)} at {place_heading(leader.first.cell)}"
    name = row_name(leader.first.row)
    rivals = listed(names_of_ties(leader), MOST_NAMED)
    if leader.outcome == TIE:
        return f"{place}: {name} ties with {rivals}."
    if leader.outcome == UNKNOWN:
        return f"{place}: {rivals} may be as fast as {name}."
    more = ""
    if leader.launches:
        more = f" About {leader.launches} launches of each would decide."
    return f"{place}: undecided between {name} and {rivals}.{more}"


def _data(analysis: Compared[Leader]) -> dict[str, object]:
    return {
        "leaders": objects(_columns(analysis), analysis.rows),
        "notes": list(analysis.matrix.notes),
    }


def _applies(cells: Collection[Cell]) -> bool:
    rows = {cell._replace(tuning="") for cell in cells}
    return differ(rows, *ROW)


def _has_rivals(analysis: Compared[Leader]) -> bool:
    return any(leader.next is not None for leader in analysis.rows)


REPORT = Report(
    name="fastest",
    summary="Who is fastest, who ties, and how far behind the next is.",
    examples=("dlbench report fastest", "dlbench report fastest --networks lstm* --threads 2"),
    analyse=lambda source: fastest(source.matrix()),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=lambda analysis: csv_rows(_columns(analysis), analysis.rows),
    suggestion="who is fastest, and whether it is clear, a tie or undecided",
    applies=_applies,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Who is fastest",
    place=10,
    headline=headline,
    has_section=_has_rivals,
)
