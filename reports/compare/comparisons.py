"""`dlbench report comparisons`: the runs of two sides (compare, gate) of a store, judged again from
their launches.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dlbench.adapters import axes
from dlbench.reports import columns
from dlbench.reports.columns import Column, csv_rows, objects
from dlbench.reports.compare.operators import difference_data
from dlbench.reports.compare.report import (
    WORDS,
    gate_outcome,
    heading,
    headline,
    operators_in_words,
    table,
)
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report, Source
from dlbench.reports.results.comparison import CellComparison, Comparison, compare_sides
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.operators import step_differences
from dlbench.reports.results.record import BISECTING, Run

Compared = tuple[Run, Comparison]


def compared(source: Source) -> Sequence[Compared]:
    """Return all that are asked for, the newest first; a run without a launch of either side is
    left out.
    """
    found = []
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        if not run.sides or run.purpose == BISECTING or not source.narrowing.takes(run):
            continue
        part = tuple(cell for cell in run.plan if source.narrowing.has(cell))
        of_run = source.of_run(run.id)
        results = source.narrowing.of(of_run)
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        records = [each for each in results.records if each.run == run.id]
        if any(each.side for each in records):
            whole = [each for each in of_run.records if each.run == run.id]
            comparison = compare_sides(replace(run, plan=part), records, host, of_gate=whole)
            profiles = [each for each in of_run.profiles if source.narrowing.has(each.cell)]
            found.append((run, replace(comparison, operators=step_differences(profiles))))
    return found


WHOLE = 3
"""Number of the newest that are shown cell by cell; `dlbench gate` and `compare` show theirs when
they finish."""


def outcome(found: Compared) -> str:
    """Return how a comparison ended, in words."""
    run, comparison = found
    return gate_outcome(comparison).line if run.purpose == "gate" else headline(comparison)


def _finding(cell: CellComparison) -> dict[str, Any]:
    return {
        "cell": axes.values(cell.cell),
        "quantity": cell.quantity,
        "finding": WORDS[cell.verdict].word,
    }


_COLUMNS: tuple[Column[Compared], ...] = (
    Column("", "started (UTC)", lambda each: f"{each[0].started:%Y-%m-%d %H:%M}"),
    Column("run", None, lambda each: each[0].id),
    Column("started", None, lambda each: each[0].started.isoformat()),
    Column("purpose", "what", lambda each: each[0].purpose),
    Column("baseline", None, lambda each: each[1].baseline),
    Column(
        "candidate",
        "candidate against baseline",
        lambda each: each[1].candidate,
        lambda each: heading(each[1]),
    ),
    Column("outcome", "outcome", outcome),
    Column("findings", None, lambda each: [_finding(cell) for cell in each[1].cells], fields=None),
    Column(
        "operators", None, lambda each: list(map(difference_data, each[1].operators)), fields=None
    ),
)


def _page(found: Sequence[Compared]) -> Page:
    """Return a line for each comparison, and the cells of the newest."""
    if not found:
        return Page(("No comparison and no gate is stored here.",), ())
    whole = [
        table(comparison.cells, f"{heading(comparison)}, {run.started:%Y-%m-%d %H:%M}")
        for run, comparison in found[:WHOLE]
    ]
    operators = [line for _, comparison in found[:WHOLE] for line in operators_in_words(comparison)]
    return Page(
        (),
        (columns.table(_COLUMNS, found, "Comparisons and gates", words=True), *whole),
        tuple(operators),
    )


def newest(found: Sequence[Compared]) -> list[str]:
    """Return the newest one in a sentence, for the head of a page."""
    return [
        f"{heading(each[1])} ({each[0].started:%Y-%m-%d}): {outcome(each)}." for each in found[:1]
    ]


REPORT = Report(
    name="comparisons",
    summary=(
        "Every comparison and gate that a store holds, with its outcome; the newest cell by cell."
    ),
    examples=("dlbench report comparisons", "dlbench report comparisons --run 20261122"),
    analyse=compared,
    page=lambda found, options: _page(found),
    data=lambda found: objects(_COLUMNS, found),
    rows=lambda found: csv_rows(_COLUMNS, found),
    applies=lambda cells: True,
    heading="Comparisons and gates",
    place=20,
    headline=newest,
)
