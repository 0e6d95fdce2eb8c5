"""`dlbench report figure1`."""

from dlbench.reports.cells import differ
from dlbench.reports.figure1.analysis import figure1
from dlbench.reports.figure1.plot import figure1_to_picture
from dlbench.reports.figure1.tables import QUANTITIES, figure1_data, figure1_page, figure1_rows
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report

REPORT = Report(
    name="figure1",
    summary="Time against mini-batch size, as in the paper's Figure 1: the best, and where larger ones stop paying.",
    examples=("dlbench report figure1 --plot figure1.png", "dlbench report figure1 --quantity items --suite figure1"),
    analyse=lambda source: figure1(source.matrix()),
    page=lambda found, options: figure1_page(found, options.quantity),
    data=figure1_data,
    rows=figure1_rows,
    draw=lambda found, path, options: figure1_to_picture(found, path, options.quantity),
    drawable=lambda found: bool(found.panels),
    suggestion="time against mini-batch size: the best, and where larger ones stop paying",
    applies=lambda cells: differ(cells, "batch_size"),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    heading="Mini-batch sizes",
    place=40,
    has_section=lambda found: bool(found.panels),
)
