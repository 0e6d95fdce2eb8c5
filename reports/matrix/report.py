"""`dlbench report matrix`."""

from dlbench.reports.formats.layout import QUANTITIES
from dlbench.reports.matrix.data import matrix_cells, matrix_rows
from dlbench.reports.matrix.words import matrix_page
from dlbench.reports.report import AGAINST, ALL_MODES, ALL_RUNS, QUANTITY, REFERENCE, Report

REPORT = Report(
    name="matrix",
    summary="""Networks and frameworks down, threads and devices across, machines side by side.

With `--against shi2016` it is `dlbench report against`.""",
    examples=(
        "dlbench report matrix",
        "dlbench report matrix --format latex --quantity items",
        "dlbench report matrix --store here.sqlite --store there.sqlite",
        "dlbench report matrix --against shi2016",
    ),
    analyse=lambda source: source.matrix(),
    page=lambda matrix, choices: matrix_page(matrix, choices.quantity),
    data=matrix_cells,
    rows=matrix_rows,
    offers=frozenset({QUANTITY, REFERENCE, AGAINST, ALL_MODES, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
)
