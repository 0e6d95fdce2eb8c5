"""What `dlbench history` shows."""

from dlbench.reports.formats.latex import page_to_latex
from dlbench.reports.formats.markdown import page_to_markdown
from dlbench.reports.history.plot import history_to_picture
from dlbench.reports.history.tables import history_data, history_page, history_rows, tables_page
from dlbench.reports.report import Report

REPORT = Report(
    name="history",
    summary="Which cells became slower or faster, on which night, and what else changed then.",
    examples=("dlbench history --plot history.png",),
    page=lambda found, options: history_page(found),
    data=history_data,
    rows=history_rows,
    own_formats={
        "markdown": lambda found: page_to_markdown(tables_page(found)),
        "latex": lambda found: page_to_latex(tables_page(found)),
    },
    draw=lambda found, path, options: history_to_picture(found, path),
    drawable=lambda found: bool(found.cells),
)
