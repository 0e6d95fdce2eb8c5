"""The output formats: each takes any report, except those that a report brings itself."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.reports.formats.csv import csv_text
from dlbench.reports.formats.json import json_text
from dlbench.reports.formats.markup import page_to_latex, page_to_markdown
from dlbench.reports.formats.terminal import WIDTH, page_to_terminal
from dlbench.reports.report import Report, ReportOptions

NARROWEST = 40
"""Columns of the narrowest terminal that tables are made for."""
_Writer = Callable[[Report[Any], Any, ReportOptions], str]


class Format(NamedTuple):
    """One output format."""

    suffix: str
    """The end of the names of its files; empty if it is for standard output alone."""
    write: _Writer | None = None
    """None: only reports that bring a function of their own have it (`Report.own_formats`)."""


def _terminal(report: Report[Any], content: Any, options: ReportOptions) -> str:
    return page_to_terminal(report.page(content, options))


def _markdown(report: Report[Any], content: Any, options: ReportOptions) -> str:
    return page_to_markdown(report.page(content, options))


def _latex(report: Report[Any], content: Any, options: ReportOptions) -> str:
    return page_to_latex(report.page(content, options))


def _csv(report: Report[Any], content: Any, options: ReportOptions) -> str:
    return csv_text(report.as_rows(content))


def _json(report: Report[Any], content: Any, options: ReportOptions) -> str:
    return json_text(report.as_data(content))


_DECLARED = {
    "terminal": Format(".txt", _terminal),
    "markdown": Format(".md", _markdown),
    "latex": Format(".tex", _latex),
    # These two hold every quantity of a cell at once.
    "csv": Format(".csv", _csv),
    "json": Format(".json", _json),
    "junit": Format(".xml"),
    "github": Format(""),
}
FORMATS: dict[str, _Writer] = {
    name: form.write for name, form in _DECLARED.items() if form.write is not None
}
"""The formats that every report has."""


def formats_of(report: Report[Any]) -> tuple[str, ...]:
    """Return the names of the formats that a report can be shown in."""
    return tuple(name for name in _DECLARED if name in FORMATS or name in report.own_formats)


def suffixes_of(report: Report[Any]) -> dict[str, str]:
    """Return the format of the files that a report can be written to, by the end of their names."""
    format_by_suffix = {}
    for name in formats_of(report):
        suffix = _DECLARED[name].suffix
        if suffix:
            format_by_suffix[suffix] = name
    return format_by_suffix


def format_of_file(report: Report[Any], path: Path) -> str:
    """Return the format that the name of a file asks for; empty if the report has none for it."""
    return suffixes_of(report).get(path.suffix.lower(), "")


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
