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
"""Columns of the narrowest terminal that tables are made for."""
_Writer = Callable[[Report[Any], Any, ReportOptions], str]

FORMATS: dict[str, _Writer] = {
    "terminal": lambda report, content, options: page_to_terminal(report.page(content, options)),
    "markdown": lambda report, content, options: page_to_markdown(report.page(content, options)),
    "latex": lambda report, content, options: page_to_latex(report.page(content, options)),
    # These two hold every quantity of a cell at once.
    "csv": lambda report, content, options: csv_text(report.as_rows(content)),
    "json": lambda report, content, options: json_text(report.as_data(content)),
}


def formats_of(report: Report[Any]) -> tuple[str, ...]:
    """Return the names of the formats that a report can be shown in."""
    return tuple(dict.fromkeys([*FORMATS, *report.own_formats]))


def export(report: Report[Any], content: Any, options: ReportOptions, form: str) -> str:
    """Return the content of a report in the format of this name."""
    if form in report.own_formats:
        return report.own_formats[form](content)
    return FORMATS[form](report, content, options)


def to_stdout(report: Report[Any], content: Any, options: ReportOptions, form: str) -> str:
    """Return the same for standard output, in its encoding.

    On a terminal it is COLUMNS wide, and coloured without NO_COLOR.
    """
    if form != "terminal" or form in report.own_formats:
        return export(report, content, options, form)
    columns = os.environ.get("COLUMNS", "")
    width = WIDTH
    if columns.isdecimal() and int(columns):
        width = max(NARROWEST, int(columns))
    colour = os.isatty(1) and "NO_COLOR" not in os.environ
    encoding = sys.stdout.encoding or "utf-8"
    return page_to_terminal(report.page(content, options), width, colour, encoding)
