"""What `dlbench compare` and `dlbench gate` show."""

from dlbench.reports.comparison import layout
from dlbench.reports.comparison.compared import Comparison
from dlbench.reports.comparison.data import comparison_data, comparison_rows
from dlbench.reports.comparison.junit import comparison_to_junit
from dlbench.reports.comparison.markdown import comparison_to_markdown
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report

_MOST_REASONS = 8


def comparison_page(comparison: Comparison) -> Page:
    """Return the comparison as words and a table: each cell's ratio and verdict, then more of the striking ones.

    The counts stand at the end, where a terminal leaves the reader.
    """
    facts = [*layout.reasons(comparison.cells, _MOST_REASONS), *layout.details_of(comparison.cells)]
    end = [*layout.closing(comparison), layout.headline(comparison) + "."]
    if comparison.purpose == "gate":
        end.append(gate_outcome(comparison).line)
    after = [line for block in (facts, layout.legend(comparison), end) if block for line in ("", *block)]
    before = filter(None, (layout.heading(comparison), layout.machines(comparison)))
    return Page(tuple(before), (layout.table(comparison.cells),) if comparison.cells else (), tuple(after[1:]))


REPORT = Report(
    name="compare",
    summary="A candidate against a baseline, cell by cell, with a verdict.",
    examples=("dlbench compare previous latest",),
    page=lambda found, options: comparison_page(found),
    data=comparison_data,
    rows=comparison_rows,
    own_formats={"markdown": comparison_to_markdown, "junit": comparison_to_junit},
)
