"""A report in one of the formats, as the command prints it, of what its analysis found."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlbench.reports.catalogue import reports
from dlbench.reports.curve.curve import Curves
from dlbench.reports.formats.export import FORMATS, export
from dlbench.reports.formats.terminal import WIDTH, page_to_terminal
from dlbench.reports.report import ReportOptions


def exporter(name: str, form: str) -> Callable[..., str]:
    """Return the function that gives this report in this format."""
    report = reports()[name]

    def exported(content: Any, quantity: str = "", width: int = WIDTH, colour: bool = False) -> str:
        if name == "threads" and not isinstance(content, Curves):
            content = Curves(tuple(content), (), None)
        default = report.quantities[0] if report.quantities else ReportOptions().quantity
        options = ReportOptions(quantity=quantity or default)
        report.check(options)
        if width != WIDTH or colour:
            return page_to_terminal(report.page(content, options), width, colour)
        return export(report, content, options, form)

    return exported


def exporters(name: str) -> dict[str, Callable[..., str]]:
    """Return these functions by the names of the formats that every report has."""
    return {form: exporter(name, form) for form in FORMATS}


def texts(path: Path) -> list[str]:
    """Return every text of an SVG, in order."""
    return [
        "".join(element.itertext()).strip()
        for element in ElementTree.parse(path).iter()
        if element.tag.endswith("}text")
    ]
