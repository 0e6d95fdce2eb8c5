"""Comparisons in words: one line each, and the newest whole."""

from collections.abc import Sequence

from dlbench.adapters import axes
from dlbench.reports.compare.report import finding, gate_outcome, heading, headline, table
from dlbench.reports.comparisons.analysis import Compared
from dlbench.reports.formats.layout import Page, Table, entries

WHOLE = 3
"""So many of the newest are shown cell by cell; `dlbench gate` and `compare` show any when they are made."""


def comparisons_page(found: Sequence[Compared]) -> Page:
    """Return a line for each comparison, and the cells of the newest."""
    if not found:
        return Page(("No comparison and no gate is stored here.",), ())
    rows = tuple(
        entries(f"{each.run.started:%Y-%m-%d %H:%M}", each.run.purpose, heading(each.comparison), outcome(each))
        for each in found
    )
    overview = Table("Comparisons and gates", ("started (UTC)", "what", "candidate against baseline", "outcome"), rows)
    whole = [
        table(each.comparison.cells)._replace(title=f"{heading(each.comparison)}, {each.run.started:%Y-%m-%d %H:%M}")
        for each in found[:WHOLE]
        if each.comparison.cells
    ]
    return Page((), (overview._replace(words=True), *whole))


def outcome(found: Compared) -> str:
    """Return how a comparison ended, in words."""
    if found.run.purpose == "gate":
        return gate_outcome(found.comparison).line
    return headline(found.comparison)


def newest(found: Sequence[Compared]) -> list[str]:
    """Return the newest one in a sentence, for the head of a page."""
    return [f"{heading(each.comparison)} ({each.run.started:%Y-%m-%d}): {outcome(each)}." for each in found[:1]]


def comparisons_data(found: Sequence[Compared]) -> list[dict[str, object]]:
    """Return all of them, cell by cell, as plain JSON types."""
    return [
        {
            "run": each.run.id,
            "started": each.run.started.isoformat(),
            "purpose": each.run.purpose,
            "baseline": each.comparison.baseline,
            "candidate": each.comparison.candidate,
            "outcome": outcome(each),
            "findings": [
                {"cell": axes.values(entry.cell), "finding": finding(entry).value} for entry in each.comparison.cells
            ],
        }
        for each in found
    ]
