"""`dlbench report threads`."""

from collections.abc import Collection

from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import differ
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.threads.analysis import threads
from dlbench.reports.threads.data import threads_data, threads_rows
from dlbench.reports.threads.headline import headline
from dlbench.reports.threads.plot import drawn_curves, threads_to_picture
from dlbench.reports.threads.words import threads_page


def _tells(cells: Collection[Cell]) -> bool:
    return differ((each for each in cells if each.on_cpu and each.threads and each.world_size == 1), "threads")


REPORT = Report(
    name="threads",
    summary="How many threads to give each framework, and what more of them cost, with the evidence why.",
    examples=(
        "dlbench report threads",
        "dlbench report threads --reference shi2016",
        "dlbench report threads --plot threads.png",
    ),
    analyse=lambda source: threads(source.matrix()),
    page=lambda found, options: threads_page(found),
    data=threads_data,
    rows=threads_rows,
    draw=lambda found, path, options: threads_to_picture(found.curves, path),
    drawable=lambda found: bool(drawn_curves(found.curves)),
    suggestion="how many threads to give, and what more of them cost",
    applies=_tells,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Threads: how many to use, and what more of them cost",
    place=30,
    headline=lambda found: headline(found.curves),
)
