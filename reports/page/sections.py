"""The sections of a page: of every report with a heading its text, tables and pictures, as inline
SVG.

Matplotlib draws the pictures, as for a report's PNG files: an SVG needs no JavaScript, and its text
can be searched.
"""

import re
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from dlbench.reports.catalogue import reports
from dlbench.reports.formats.layout import Page
from dlbench.reports.formats.markup import page_to_html
from dlbench.reports.page.document import Document
from dlbench.reports.report import Report, ReportOptions
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.networks import family_of_record

MOST_ROWS = 1500
"""Rows of tables in a section, cut only between groups; the command shows all."""
MOST_CELLS_DRAWN = 1000
"""A page with more cells has no plots: they would be unreadable, and most of the page."""

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_INK = {"#000000": "currentColor", "black": "currentColor", "#666666": "currentColor"}
"""Colours that follow the page, so that they can be seen on dark too."""
_GRID = "#dddddd"
_GROUPS = f"{{{_SVG}}}g", f"{{{_SVG}}}defs"
_DROPPED = (f"{{{_SVG}}}metadata", f"{{{_SVG}}}title", f"{{{_SVG}}}style")


def sections(document: Document) -> list[dict[str, Any]]:
    """Return the section of every report with something to show of these results, in the order of
    their places.

    For the template: name, heading, pictures, body (HTML), headline (findings for the head of the
    page).
    """
    found = []
    cells = {each.cell for each in document.matrix.cells.values() if each.timed is not None}
    families = {
        family.name
        for each in document.results.records
        if (family := family_of_record(each)) is not None
    }
    candidates = [report for report in reports().values() if report.heading and report.of_stores]
    for report in sorted(candidates, key=lambda report: (report.place, report.name)):
        if not report.applies(cells) or (report.families and not report.families & families):
            continue
        options = ReportOptions(
            quantity=report.section_quantity or next(iter(report.quantities), "seconds")
        )
        try:
            content = report.analyse(document.source)
        except ReportError:
            continue  # It has nothing to show of these results.
        if report.has_section(content):
            drawn = (
                pictures(report, content, options)
                if len(document.matrix.cells) <= MOST_CELLS_DRAWN
                else []
            )
            body = page_to_html(shortened(report.page(content, options), report.name))
            section = {
                "name": report.name,
                "heading": report.heading,
                "pictures": drawn,
                "body": body,
            }
            found.append({**section, "headline": report.headline(content)})
    return found


def shortened(page: Page, name: str) -> Page:
    """Return a report's page with about `MOST_ROWS` rows, whole groups of them, and a line on those
    left out.
    """
    tables, used = [], 0
    for table in page.tables:
        starts = [place for place, row in enumerate(table.rows) if len(row) == 1] or [0]
        last = next((start for start in starts if used + start >= MOST_ROWS), len(table.rows))
        tables.append(table._replace(rows=table.rows[:last]))
        used += last
    left_out = sum(len(table.rows) for table in page.tables) - used
    if not left_out:
        return page
    line = f"{left_out} further rows are not on this page; `dlbench report {name}` shows them."
    return page._replace(
        tables=tuple(table for table in tables if table.rows), after=(*page.after, line)
    )


def pictures(report: Report[Any], content: Any, options: ReportOptions) -> list[Markup]:
    """Return a report's picture as inline SVG elements; empty where it has none."""
    if report.draw is None or not report.drawable(content):
        return []
    with tempfile.TemporaryDirectory() as folder:
        files = report.draw(content, Path(folder) / f"{report.name}.svg", options)
        label = f"Plot of {report.heading}; the tables beneath have its numbers"
        texts = [file.read_text(encoding="utf-8") for file in files]
    return [
        inline(text, f"{report.name}{place}-", label) for place, text in enumerate(texts, start=1)
    ]


def inline(text: str, prefix: str, label: str) -> Markup:
    """Return an SVG file as an element of a page, without style attributes and with prefixed
    ids.
    """
    root = ElementTree.fromstring(text)
    # Short names for matplotlib's long ids, where something refers to them.
    used = {
        name: f"{prefix}{place:x}"
        for place, name in enumerate(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    }
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        _plain_attributes(element, used)
    _unwrap(root)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (element.text or "").strip(), ""
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    # A third more than its points: text of 8 points is then as large as the page's smallest.
    wide = float(root.get("viewBox", "0 0 700 500").split()[2])
    root.attrib |= {
        "role": "img",
        "aria-label": label,
        "class": "plot",
        "width": f"{wide * 4 / 3:.0f}",
    }
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # written out again


def _unwrap(parent: ElementTree.Element) -> None:
    """Put the children of groups that say nothing in their place, and drop what is not shown."""
    children: list[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        if child.tag in _DROPPED or (child.tag in _GROUPS and not len(child)):
            continue
        children += list(child) if child.tag == _GROUPS[0] and not child.attrib else [child]
    parent[:] = children


def _plain_attributes(element: ElementTree.Element, names: dict[str, str]) -> None:
    for part in element.attrib.pop("style", "").split(";"):
        name, _, value = part.partition(":")
        if name.strip() == "font":  # short for size and family; the page has its own family
            if size := re.search(r"([\d.]+)px", value):
                element.set("font-size", size[1])
        elif value:
            element.set(name.strip(), value.strip())
    element.attrib.pop("font-family", None)
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if _XLINK in element.attrib:
        element.set("href", element.attrib.pop(_XLINK))
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, names[value])
        elif name == "href" and value.startswith("#"):
            element.set(name, f"#{names[value[1:]]}")
        elif value.startswith("url(#"):
            element.set(name, f"url(#{names[value[5:-1]]})")
        elif name in ("fill", "stroke"):
            element.set(name, _INK.get(value.lower(), value))
        elif name in ("d", "points", "x", "y", "width", "height", "transform"):
            shorter = re.sub(
                r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), value
            )
            element.set(
                name, re.sub(r" ?([A-Za-z,]) ", r"\1", re.sub(r"\s+", " ", shorter)).strip()
            )
    if element.tag == f"{{{_SVG}}}text" and "fill" not in element.attrib:
        element.set("fill", "currentColor")
    if element.get("stroke", "").lower() == _GRID:
        element.attrib |= {"stroke": "currentColor", "stroke-opacity": "0.15"}
    # The background of figure and panels is the page's.
    if element.get("fill", "").lower() in ("#ffffff", "white"):
        element.set("fill", "none")
