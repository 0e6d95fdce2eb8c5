"""`dlbench report runs`: the runs of a store."""

from dlbench.reports.columns import Column, csv_rows, objects, table
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report
from dlbench.reports.results.record import Run

_COLUMNS: tuple[Column[tuple[Run, int]], ...] = (
    Column("id", "id", lambda line: line[0].id),
    Column("suite", "suite", lambda line: line[0].suite),
    Column("machine", None, lambda line: line[0].machine),
    Column("started", None, lambda line: f"{line[0].started:%Y-%m-%d %H:%M}"),
    Column(
        "finished",
        "finished",
        lambda line: f"{end:%Y-%m-%d %H:%M}" if (end := line[0].finished) else "unfinished",
    ),
    Column("cells", "cells", lambda line: len(line[0].plan)),
    Column("records", "records", lambda line: line[1]),
)


REPORT = Report(
    name="runs",
    summary="List the runs of a store: id, suite, machine, start, end, records.",
    examples=("dlbench report runs --store results.sqlite",),
    analyse=lambda source: source.runs(),
    page=lambda runs, options: Page((), (table(_COLUMNS, runs, "Runs", words=True),)),
    data=lambda runs: objects(_COLUMNS, runs),
    rows=lambda runs: csv_rows(_COLUMNS, runs),
)
