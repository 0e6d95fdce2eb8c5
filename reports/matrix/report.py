"""`dlbench report matrix`."""

from dlbench.reports.formats.layout import QUANTITIES
from dlbench.reports.matrix.data import matrix_cells, matrix_rows
from dlbench.reports.matrix.plot import drawn_cells, matrix_to_picture
from dlbench.reports.matrix.words import matrix_page
from dlbench.reports.report import AGAINST, ALL_MODES, ALL_RUNS, QUANTITY, REFERENCE, Report

REPORT = Report(
    name="matrix",
    summary="""Networks and frameworks down, threads and devices across, machines side by side.

`--plot` draws the share of the measured ceiling. With `--against shi2016` it is `dlbench report against`.""",
    examples=(
        "dlbench report matrix",
        "dlbench report matrix --format latex --quantity items",
        "dlbench report matrix --store here.sqlite --store there.sqlite",
        "dlbench report matrix --against shi2016",
        "dlbench report matrix --plot ceiling.png",
    ),
    analyse=lambda source: source.matrix(),
    page=lambda matrix, options: matrix_page(matrix, options.quantity),
    data=matrix_cells,
    rows=matrix_rows,
    draw=lambda matrix, path, options: matrix_to_picture(matrix, path),
    drawable=lambda matrix: bool(drawn_cells(matrix)),
    options=frozenset({QUANTITY, REFERENCE, AGAINST, ALL_MODES, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    heading="Share of the measured ceiling",
    place=25,
    section_quantity="ceiling",
    has_section=lambda matrix: bool(drawn_cells(matrix)),
)
