"""The output formats: each takes any report."""

import os
import sys
from collections.abc import Callable
from typing import Any

from dlbench.reports.formats.csv import csv_text
from dlbench.reports.formats.json import json_text
from dlbench.reports.formats.markup import page_to_latex, page_to_markdown
from dlbench.reports.formats.terminal import WIDTH, page_to_terminal
from dlbench.reports.report import Report, ReportOptions

NARROWEST = 40
"""Columns of a terminal that tables are made for."""
_Writer = Callable[[Report[Any], Any, ReportOptions], str]

FORMATS: dict[str, _Writer] = {
    "terminal": lambda report, found, options: page_to_terminal(report.page(found, options)),
    "markdown": lambda report, found, options: page_to_markdown(report.page(found, options)),
    "latex": lambda report, found, options: page_to_latex(report.page(found, options)),
    # These two hold every quantity of a cell at once.
    "csv": lambda report, found, options: csv_text(report.as_rows(found)),
    "json": lambda report, found, options: json_text(report.as_data(found)),
}


def formats_of(report: Report[Any]) -> tuple[str, ...]:
    """Return the names of the formats that a report can be shown in."""
    return tuple(dict.fromkeys([*FORMATS, *report.own_formats]))


def export(report: Report[Any], found: Any, options: ReportOptions, form: str) -> str:
    """Return what a report found in the format of this name."""
    own = report.own_formats.get(form)
    return FORMATS[form](report, found, options) if own is None else own(found)


def to_stdout(report: Report[Any], found: Any, options: ReportOptions, form: str) -> str:
    """Return the same for standard output: coloured on a terminal without NO_COLOR, COLUMNS wide,
    in its encoding.
    """
    if form != "terminal" or form in report.own_formats:
        return export(report, found, options, form)
    columns = os.environ.get("COLUMNS", "")
    width = max(NARROWEST, int(columns)) if columns.isdecimal() and int(columns) else WIDTH
    colour = os.isatty(1) and "NO_COLOR" not in os.environ
    return page_to_terminal(
        report.page(found, options), width, colour, sys.stdout.encoding or "utf-8"
    )
