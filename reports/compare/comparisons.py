"""`dlbench report comparisons`: the comparisons and gates of a store.

They are the runs of two sides, judged again from their launches.
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
    operator_lines,
    table,
)
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report, ReportSource
from dlbench.reports.results.comparison import Comparison, compare_sides
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.operators import step_differences
from dlbench.reports.results.record import BISECTING, Run

Compared = tuple[Run, Comparison]


def compared(source: ReportSource) -> Sequence[Compared]:
    """Return all that are asked for, the newest first.

    A run without a launch of either side is left out.
    """
    comparisons = []
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        if not run.sides or run.purpose == BISECTING or not source.narrowing.takes(run):
            continue
        results_of_run = source.of_run(run.id)
        results = source.narrowing.of(results_of_run)
        records = [record for record in results.records if record.run == run.id]
        if not any(record.side for record in records):
            continue
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        plan = tuple(filter(source.narrowing.has, run.plan))
        all_records = [record for record in results_of_run.records if record.run == run.id]
        comparison = compare_sides(replace(run, plan=plan), records, host, of_gate=all_records)
        profiles = []
        for profile in results_of_run.profiles:
            if source.narrowing.has(profile.cell):
                profiles.append(profile)
        comparisons.append((run, replace(comparison, operators=step_differences(profiles))))
    return comparisons


WHOLE = 3
"""Number of the newest that are shown cell by cell; `dlbench gate` and `compare` show theirs when
they finish."""


def outcome(pair: Compared) -> str:
    """Return the outcome of a comparison in a line."""
    run, comparison = pair
    if run.purpose == "gate":
        return gate_outcome(comparison).line
    return headline(comparison)


def _findings(pair: Compared) -> list[dict[str, Any]]:
    _, comparison = pair
    findings = []
    for cell in comparison.cells:
        findings.append(
            {
                "cell": axes.values(cell.cell),
                "quantity": cell.quantity,
                "finding": WORDS[cell.verdict].word,
            }
        )
    return findings


def _operators_data(pair: Compared) -> list[dict[str, Any]]:
    return [difference_data(difference) for difference in pair[1].operators]


_COLUMNS: tuple[Column[Compared], ...] = (
    Column("", "started (UTC)", lambda pair: f"{pair[0].started:%Y-%m-%d %H:%M}"),
    Column("run", None, lambda pair: pair[0].id),
    Column("started", None, lambda pair: pair[0].started.isoformat()),
    Column("purpose", "what", lambda pair: pair[0].purpose),
    Column("baseline", None, lambda pair: pair[1].baseline),
    Column(
        "candidate",
        "candidate against baseline",
        lambda pair: pair[1].candidate,
        lambda pair: heading(pair[1]),
    ),
    Column("outcome", "outcome", outcome),
    Column("findings", None, _findings, fields=None),
    Column("operators", None, _operators_data, fields=None),
)


def _page(comparisons: Sequence[Compared]) -> Page:
    """Return a line for each comparison, and the cells of the newest."""
    if not comparisons:
        return Page(("No comparison and no gate is in this store.",), ())
    tables = [columns.table(_COLUMNS, comparisons, "Comparisons and gates", words=True)]
    operators: list[str] = []
    for run, comparison in comparisons[:WHOLE]:
        title = f"{heading(comparison)}, {run.started:%Y-%m-%d %H:%M}"
        tables.append(table(comparison.cells, title))
        operators += operator_lines(comparison)
    return Page((), tuple(tables), tuple(operators))


def newest(comparisons: Sequence[Compared]) -> list[str]:
    """Return the newest one in a sentence, for the head of a page."""
    lines = []
    for run, comparison in comparisons[:1]:
        result = outcome((run, comparison))
        lines.append(f"{heading(comparison)} ({run.started:%Y-%m-%d}): {result}.")
    return lines


REPORT = Report(
    name="comparisons",
    summary="Every stored comparison and gate, the newest cell by cell.",
    examples=("dlbench report comparisons", "dlbench report comparisons --run 20261122"),
    analyse=compared,
    page=lambda comparisons, options: _page(comparisons),
    data=lambda comparisons: objects(_COLUMNS, comparisons),
    rows=lambda comparisons: csv_rows(_COLUMNS, comparisons),
    applies=lambda cells: True,
    heading="Comparisons and gates",
    place=20,
    headline=newest,
)
