"""What `dlbench explain` shows."""

from dlbench.reports.explained.words import explained_data, explained_page, explained_rows
from dlbench.reports.report import Report

REPORT = Report(
    name="explain",
    summary="Where the time of one cell's step goes, by kinds of operators.",
    examples=("dlbench explain torch/resnet50",),
    page=lambda found, options: explained_page(found, options.top),
    data=explained_data,
    rows=explained_rows,
)
