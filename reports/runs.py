"""`dlbench report runs`: the runs of a store."""

from dlbench.reports.columns import Column, csv_rows, objects, table
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report
from dlbench.reports.results.record import Run


def _finished(row: tuple[Run, int]) -> str:
    run, _ = row
    if run.finished:
        return f"{run.finished:%Y-%m-%d %H:%M}"
    return "unfinished"


_COLUMNS: tuple[Column[tuple[Run, int]], ...] = (
    Column("id", "id", lambda row: row[0].id),
    Column("suite", "suite", lambda row: row[0].suite),
    Column("machine", None, lambda row: row[0].machine),
    Column("started", None, lambda row: f"{row[0].started:%Y-%m-%d %H:%M}"),
    Column("finished", "finished", _finished),
    Column("cells", "cells", lambda row: len(row[0].plan)),
    Column("records", "records", lambda row: row[1]),
)


REPORT = Report(
    name="runs",
    summary="The runs of a store, with the number of their records.",
    examples=("dlbench report runs --store results.sqlite",),
    analyse=lambda source: source.runs(),
    page=lambda runs, options: Page((), (table(_COLUMNS, runs, "Runs", words=True),)),
    data=lambda runs: objects(_COLUMNS, runs),
    rows=lambda runs: csv_rows(_COLUMNS, runs),
)
