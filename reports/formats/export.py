"""The output formats: each takes any report."""

from collections.abc import Callable
from typing import Any

from dlbench.reports.formats.csv import csv_text
from dlbench.reports.formats.json import json_text
from dlbench.reports.formats.latex import page_to_latex
from dlbench.reports.formats.markdown import page_to_markdown
from dlbench.reports.formats.terminal import page_to_terminal
from dlbench.reports.report import Choices, Report

_Writer = Callable[[Report[Any], Any, Choices], str]

FORMATS: dict[str, _Writer] = {
    "terminal": lambda report, found, choices: page_to_terminal(report.page(found, choices)),
    "markdown": lambda report, found, choices: page_to_markdown(report.page(found, choices)),
    "latex": lambda report, found, choices: page_to_latex(report.page(found, choices)),
    # These two hold every quantity of a cell at once.
    "csv": lambda report, found, choices: csv_text(report.rows(found)),
    "json": lambda report, found, choices: json_text(report.data(found)),
}


def export(report: Report[Any], found: Any, choices: Choices, form: str, colour: bool = False) -> str:
    """Return what a report found in the format of this name, coloured for a terminal where that is wanted."""
    if form == "terminal" and colour:
        return page_to_terminal(report.page(found, choices), colour=True)
    return FORMATS[form](report, found, choices)
