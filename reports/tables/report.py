"""`dlbench report tables`."""

from dlbench.reports.formats.csv import rows_of_tables
from dlbench.reports.formats.json import data_of_tables
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report
from dlbench.reports.tables.analysis import tables

REPORT = Report(
    name="tables",
    summary="Software, networks and hardware behind the numbers (Tables 1 to 3 of the paper).",
    examples=("dlbench report tables --format markdown",),
    analyse=lambda source: tables(source.results()),
    page=lambda found, options: Page((), tuple(found)),
    data=data_of_tables,
    rows=rows_of_tables,
    suggestion="software, networks and hardware behind the numbers",
)
