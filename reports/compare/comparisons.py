"""`dlbench report comparisons`: the runs of two sides (compare, gate) of a store, judged again from their launches."""

from collections.abc import Sequence
from dataclasses import replace

from dlbench.adapters import axes
from dlbench.reports.compare.comparison import Comparison, compare_sides_of_run
from dlbench.reports.compare.report import finding, gate_outcome, heading, headline, table
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import Page, Table, entries
from dlbench.reports.report import Report, Source
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Run

Compared = tuple[Run, Comparison]


def compared(source: Source) -> Sequence[Compared]:
    """Return all that are asked for, the newest first; a run without a launch of either side is left out."""
    found = []
    for run, _ in sorted(source.runs(), key=lambda pair: pair[0].started, reverse=True):
        if not run.sides or not source.narrowing.takes(run):
            continue
        part = tuple(cell for cell in run.plan if source.narrowing.has(cell))
        results = source.narrowing.of(source.of_run(run.id))
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        records = [each for each in results.records if each.run == run.id]
        if any(each.side for each in records):
            found.append((run, compare_sides_of_run(replace(run, plan=part), records, host)))
    return found


WHOLE = 3
"""So many of the newest are shown cell by cell; `dlbench gate` and `compare` show any when they are made."""


def comparisons_page(found: Sequence[Compared]) -> Page:
    """Return a line for each comparison, and the cells of the newest."""
    if not found:
        return Page(("No comparison and no gate is stored here.",), ())
    rows = tuple(
        entries(f"{run.started:%Y-%m-%d %H:%M}", run.purpose, heading(comparison), outcome((run, comparison)))
        for run, comparison in found
    )
    overview = Table("Comparisons and gates", ("started (UTC)", "what", "candidate against baseline", "outcome"), rows)
    whole = [
        table(comparison.cells)._replace(title=f"{heading(comparison)}, {run.started:%Y-%m-%d %H:%M}")
        for run, comparison in found[:WHOLE]
        if comparison.cells
    ]
    return Page((), (overview._replace(words=True), *whole))


def outcome(found: Compared) -> str:
    """Return how a comparison ended, in words."""
    run, comparison = found
    return gate_outcome(comparison).line if run.purpose == "gate" else headline(comparison)


def newest(found: Sequence[Compared]) -> list[str]:
    """Return the newest one in a sentence, for the head of a page."""
    return [
        f"{heading(comparison)} ({run.started:%Y-%m-%d}): {outcome((run, comparison))}."
        for run, comparison in found[:1]
    ]


def comparisons_data(found: Sequence[Compared]) -> list[dict[str, object]]:
    """Return all of them, cell by cell, as plain JSON types."""
    return [
        {
            "run": run.id,
            "started": run.started.isoformat(),
            "purpose": run.purpose,
            "baseline": comparison.baseline,
            "candidate": comparison.candidate,
            "outcome": outcome((run, comparison)),
            "findings": [
                {"cell": axes.values(entry.cell), "finding": finding(entry).value} for entry in comparison.cells
            ],
        }
        for run, comparison in found
    ]


_COLUMNS = ("run", "started", "purpose", "baseline", "candidate", "outcome")
REPORT = Report(
    name="comparisons",
    summary="Every comparison and gate that a store holds, with its outcome; the newest cell by cell.",
    examples=("dlbench report comparisons", "dlbench report comparisons --run 20261122"),
    analyse=compared,
    page=lambda found, options: comparisons_page(found),
    data=comparisons_data,
    rows=lambda found: Rows(_COLUMNS, comparisons_data(found)),
    applies=lambda cells: True,
    heading="Comparisons and gates",
    place=20,
    headline=newest,
    has_section=bool,
)
