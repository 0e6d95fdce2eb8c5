"""`dlbench report fastest`: the fastest row of each column, its rivals, and its lead over the
next.
"""

from collections.abc import Collection, Sequence

from dlbench.adapters import axes
from dlbench.reports.columns import (
    GROUP,
    PLACE,
    ROW,
    Column,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import MISSING, NOTHING, Page, Table, common_flags, flag_lines
from dlbench.reports.left_out import left_out, not_compared
from dlbench.reports.matrix import of_cell
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flags import FlagKind
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
from dlbench.reports.results.matrix import Compared
from dlbench.reports.results.naming import counted, group_name, listed, place_heading, row_name
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
    found: Compared[Leader], common: Collection[FlagKind] = ()
) -> tuple[Column[Leader], ...]:
    fields = (*ROW, *(f"seconds_per_minibatch.{part}" for part in (*MEDIAN, "launches")))
    return (
        *host_columns(lambda each: found.matrix.hosts[each.first.machine]),
        *axis_columns(lambda each: each.first.cell, (*GROUP, *PLACE)),
        Column(
            "first",
            "fastest",
            lambda each: _standing(each.first),
            lambda each: row_name(each.first.row),
            fields,
        ),
        Column("", "p", lambda each: place_heading(each.first.cell)),
        seconds_column(lambda each: each.first, common, key=""),
        Column(
            "ties",
            None,
            lambda each: list(map(_standing, each.ties)),
            csv=lambda each: "; ".join(names_of_ties(each)),
        ),
        Column(
            "next",
            "next",
            lambda each: None if each.next is None else _standing(each.next),
            lambda each: MISSING if each.next is None else row_name(each.next.row),
            fields,
        ),
        Column(
            "ratio",
            "times as slow",
            lambda each: each.ratio,
            lambda each: times(each.ratio) or MISSING,
            VALUE,
        ),
        Column(
            "outcome",
            "outcome",
            lambda each: each.outcome,
            lambda each: "?" if each.outcome == UNKNOWN else each.outcome,
        ),
        Column("launches_to_decide", None, lambda each: each.launches),
    )


def _standing(cell: CellResult) -> dict[str, object]:
    return {
        **{name: getattr(cell.row, name) for name in ROW},
        **of_cell(cell, "seconds", "flags", "run"),
    }


def _page(found: Compared[Leader]) -> Page:
    """Return a table for each machine: a line for each column of each network."""
    compared = [each for each in found.rows if each.next is not None]
    if not compared:
        nothing = ALONE if found.rows else NOTHING
        return Page((nothing, *left_out(not_compared(found.matrix)), *found.matrix.notes), ())
    shown = [
        cell
        for each in compared
        for cell in (each.first, *each.ties[:1], each.next)
        if cell is not None
    ]
    common = common_flags(shown)
    tables = [
        _table(found, *each, common)
        for each in grouped(compared, lambda each: each.first.machine).items()
    ]
    lines = [*_LEGEND, *flag_lines(shown, common)]
    if any(each.launches for each in compared):
        lines.append(_MORE)
    lines += (
        [_APART]
        if any(each.next.run != each.first.run for each in compared if each.next is not None)
        else []
    )
    lines += axes.legends(each.first.cell for each in compared)
    if (alone := len(found.rows) - len(compared)) > 0:
        lines.append(f"Not shown: {counted(alone, 'place')} where a network has only one row.")
    lines += left_out(not_compared(found.matrix))
    return Page(tuple(headline(found)), tuple(tables), (*lines, *found.matrix.notes))


def _table(
    found: Compared[Leader], machine: str, here: Sequence[Leader], common: set[FlagKind]
) -> Table:
    ties = [_in_words(each) for each in here if each.ties]
    if len(ties) > MOST_DESCRIBED:
        ties = [
            *ties[:MOST_DESCRIBED],
            f"... and {len(ties) - MOST_DESCRIBED} more; --json shows all",
        ]
    title = f"Who is fastest, on {found.name(machine)}"
    columns = _columns(found, common)
    return table(
        columns, here, title, "leaders", lambda each: group_name(each.first.group), ties, keys=2
    )


def _in_words(leader: Leader) -> str:
    place = f"{group_name(leader.first.group)} at {place_heading(leader.first.cell)}"
    name, rivals = row_name(leader.first.row), listed(names_of_ties(leader), MOST_NAMED)
    if leader.outcome == TIE:
        return f"{place}: {name} ties with {rivals}."
    if leader.outcome == UNKNOWN:
        return f"{place}: {rivals} may be as fast as {name}."
    more = f" About {leader.launches} launches of each would decide." if leader.launches else ""
    return f"{place}: undecided between {name} and {rivals}.{more}"


REPORT = Report(
    name="fastest",
    summary=(
        "Who is fastest on each network at each thread count or device, who ties, and how far "
        "behind the next is."
    ),
    examples=("dlbench report fastest", "dlbench report fastest --networks lstm* --threads 2"),
    analyse=lambda source: fastest(source.matrix()),
    page=lambda found, options: _page(found),
    data=lambda found: {
        "leaders": objects(_columns(found), found.rows),
        "notes": list(found.matrix.notes),
    },
    rows=lambda found: csv_rows(_columns(found), found.rows),
    suggestion="who is fastest, and whether it is clear, a tie or undecided",
    applies=lambda cells: differ({cell._replace(tuning="") for cell in cells}, *ROW),
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Who is fastest",
    place=10,
    headline=headline,
    has_section=lambda found: any(each.next is not None for each in found.rows),
)
