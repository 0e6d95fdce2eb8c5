"""`dlbench report ceilings`."""

from dlbench.reports.ceilings.words import ceilings_data, ceilings_tables
from dlbench.reports.formats.csv import rows_of_tables
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import ALL_RUNS, Report

REPORT = Report(
    name="ceilings",
    summary="What CPUs and GPUs can do at best: matrix products, bandwidths, and what an operator costs to start.",
    examples=("dlbench report ceilings", "dlbench report ceilings --all-runs --json"),
    analyse=lambda source: source.results(),
    page=lambda results, options: Page((), tuple(ceilings_tables(results))),
    data=ceilings_data,
    rows=lambda results: rows_of_tables(ceilings_tables(results)),
    suggestion="what the GPU can do at best",
    applies=lambda cells: any(not each.on_cpu for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="What the devices can do at best",
    place=80,
)
