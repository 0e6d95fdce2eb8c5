"""`dlbench report runs`."""

from typing import Any

from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import Page, Table, entries
from dlbench.reports.report import Report, Source

_COLUMNS = ("id", "suite", "machine", "started", "finished", "cells", "records")
_SHOWN = ("id", "suite", "finished", "cells", "records")


def _analyse(source: Source) -> list[dict[str, Any]]:
    return [
        {
            "id": run.id,
            "suite": run.suite,
            "machine": run.machine,
            "started": f"{run.started:%Y-%m-%d %H:%M}",
            "finished": f"{run.finished:%Y-%m-%d %H:%M}" if run.finished else "unfinished",
            "cells": len(run.plan),
            "records": records,
        }
        for run, records in source.runs()
    ]


def _page(runs: list[dict[str, Any]]) -> Page:
    rows = tuple(entries(*(str(run[name]) for name in _SHOWN)) for run in runs)
    return Page((), (Table("Runs", _SHOWN, rows, words=True),))


REPORT = Report(
    name="runs",
    summary="List the runs of a store: id, suite, machine, start, end, records.",
    examples=("dlbench report runs --store results.sqlite",),
    analyse=_analyse,
    page=lambda runs, options: _page(runs),
    data=lambda runs: runs,
    rows=lambda runs: Rows(_COLUMNS, runs),
)
