"""`dlbench report fastest`."""

from collections.abc import Collection

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import differ
from dlbench.reports.fastest.analysis import fastest
from dlbench.reports.fastest.data import fastest_data, fastest_rows
from dlbench.reports.fastest.words import fastest_page, headline
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report


def _tells(cells: Collection[Cell]) -> bool:
    # The same row tuned otherwise is no rival.
    return differ({cell._replace(tuning="") for cell in cells}, *(axis.name for axis in axes.of_role(axes.ROW)))


REPORT = Report(
    name="fastest",
    summary="Who is fastest on each network at each thread count or device, who ties, and how far behind the next is.",
    examples=("dlbench report fastest", "dlbench report fastest --networks lstm* --threads 2"),
    analyse=lambda source: fastest(source.matrix()),
    page=lambda found, options: fastest_page(found),
    data=fastest_data,
    rows=fastest_rows,
    suggestion="who is fastest, and whether noise may explain it",
    applies=_tells,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Who is fastest",
    place=10,
    headline=headline,
    has_section=lambda found: any(each.next is not None for each in found.leaders),
)
