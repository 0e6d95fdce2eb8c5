"""The sections of a page: the text, tables and pictures of every report with a heading.

Matplotlib draws the pictures as inline SVG, as for a report's PNG files: an SVG needs no
JavaScript, and its text can be searched.
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
"""Rows of tables in a section, cut only between headings; the command shows all."""
MOST_CELLS_DRAWN = 1000
"""A page with more cells has no plots: they would be unreadable, and most of the page."""

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_INK = {"#000000": "currentColor", "black": "currentColor", "#666666": "currentColor"}
"""Colours that follow the page, so that they can be seen on dark too."""
_GRID = "#dddddd"
_GROUP = f"{{{_SVG}}}g"
_DEFINITIONS = f"{{{_SVG}}}defs"
_DROPPED = (f"{{{_SVG}}}metadata", f"{{{_SVG}}}title", f"{{{_SVG}}}style")


def sections(document: Document) -> list[dict[str, Any]]:
    """Return the sections with something to show of these results, in the order of their places.

    For the template: name, heading, pictures, body (HTML), headline (findings for the head of the
    page).
    """
    cells = {cell.cell for cell in document.matrix.cells.values() if cell.timed is not None}
    family_names = set()
    for record in document.results.records:
        family = family_of_record(record)
        if family is not None:
            family_names.add(family.name)
    has_pictures = len(document.matrix.cells) <= MOST_CELLS_DRAWN
    candidates = [report for report in reports().values() if report.heading and report.of_stores]
    candidates.sort(key=lambda report: (report.place, report.name))
    shown = []
    for report in candidates:
        if not report.applies(cells):
            continue
        if report.families and not report.families & family_names:
            continue
        quantity = report.section_quantity or next(iter(report.quantities), "seconds")
        options = ReportOptions(quantity=quantity)
        try:
            content = report.analyse(document.source)
        except ReportError:
            continue  # It has nothing to show of these results.
        if report.has_section(content):
            page = shortened(report.page(content, options), report.name)
            drawn = []
            if has_pictures:
                drawn = pictures(report, content, options)
            shown.append(
                {
                    "name": report.name,
                    "heading": report.heading,
                    "pictures": drawn,
                    "body": page_to_html(page),
                    "headline": report.headline(content),
                }
            )
    return shown


def shortened(page: Page, name: str) -> Page:
    """Return a page with about `MOST_ROWS` rows in whole sections, and a line on the others."""
    tables = []
    used = 0
    left_out = 0
    for table in page.tables:
        group_starts = [place for place, row in enumerate(table.rows) if len(row) == 1] or [0]
        end = len(table.rows)
        for start in group_starts:
            if used + start >= MOST_ROWS:
                end = start
                break
        if end:
            tables.append(table._replace(rows=table.rows[:end]))
        used += end
        left_out += len(table.rows) - end
    if not left_out:
        return page
    line = f"{left_out} further rows are not on this page; `dlbench report {name}` shows them."
    return page._replace(tables=tuple(tables), after=(*page.after, line))


def pictures(report: Report[Any], content: Any, options: ReportOptions) -> list[Markup]:
    """Return a report's picture as inline SVG elements; empty where it has none."""
    if report.draw is None or not report.drawable(content):
        return []
    with tempfile.TemporaryDirectory() as folder:
        files = report.draw(content, Path(folder) / f"{report.name}.svg", options)
        label = f"Plot of {report.heading}; the tables beneath have its numbers"
        elements = []
        for place, file in enumerate(files, start=1):
            text = file.read_text(encoding="utf-8")
            elements.append(inline(text, f"{report.name}{place}-", label))
    return elements


def inline(text: str, prefix: str, label: str) -> Markup:
    """Return an SVG file as an element of a page, without styles and with prefixed ids."""
    root = ElementTree.fromstring(text)
    # Short names for matplotlib's long ids, where something refers to them.
    references = re.findall(r'(?:url\(#|href="#)([^")]+)', text)
    short_ids = {name: f"{prefix}{place:x}" for place, name in enumerate(references)}
    for element in root.iter():
        if element.get("id") not in short_ids:
            element.attrib.pop("id", None)
        _plain_attributes(element, short_ids)
    _unwrap(root)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text = (element.text or "").strip()
        element.tail = ""
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    # A third more than its points: text of 8 points is then as large as the page's smallest.
    width = float(root.get("viewBox", "0 0 700 500").split()[2])
    root.attrib |= {
        "role": "img",
        "aria-label": label,
        "class": "plot",
        "width": f"{width * 4 / 3:.0f}",
    }
    # The text is written out again from its elements.
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _unwrap(parent: ElementTree.Element) -> None:
    """Replace groups without attributes by their children, and drop elements that show nothing."""
    children: list[ElementTree.Element] = []
    for child in parent:
        _unwrap(child)
        is_empty_group = child.tag in (_GROUP, _DEFINITIONS) and not len(child)
        if child.tag in _DROPPED or is_empty_group:
            continue
        if child.tag == _GROUP and not child.attrib:
            children += list(child)
        else:
            children.append(child)
    parent[:] = children


def _plain_attributes(element: ElementTree.Element, short_ids: dict[str, str]) -> None:
    """Replace an element's styles by attributes, with short ids, few digits and our colours."""
    _style_to_attributes(element)
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    if _XLINK in element.attrib:
        element.set("href", element.attrib.pop(_XLINK))
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, short_ids[value])
        elif name == "href" and value.startswith("#"):
            element.set(name, f"#{short_ids[value[1:]]}")
        elif value.startswith("url(#"):
            element.set(name, f"url(#{short_ids[value[5:-1]]})")
        elif name in ("fill", "stroke"):
            element.set(name, _INK.get(value.lower(), value))
        elif name in ("d", "points", "x", "y", "width", "height", "transform"):
            element.set(name, _shorten_numbers(value))
    if element.tag == f"{{{_SVG}}}text" and "fill" not in element.attrib:
        element.set("fill", "currentColor")
    if element.get("stroke", "").lower() == _GRID:
        element.attrib |= {"stroke": "currentColor", "stroke-opacity": "0.15"}
    # The background of figure and panels is the page's.
    if element.get("fill", "").lower() in ("#ffffff", "white"):
        element.set("fill", "none")


def _style_to_attributes(element: ElementTree.Element) -> None:
    """Replace the style of an element by attributes, without a family of fonts."""
    for part in element.attrib.pop("style", "").split(";"):
        name, _, value = part.partition(":")
        if name.strip() == "font":
            # Short for size and family. The page has its own family.
            size = re.search(r"([\d.]+)px", value)
            if size:
                element.set("font-size", size[1])
        elif value:
            element.set(name.strip(), value.strip())
    element.attrib.pop("font-family", None)


def _shorten_numbers(value: str) -> str:
    """Return coordinates with one decimal and as few blanks as possible."""

    def round_number(match: re.Match[str]) -> str:
        return f"{float(match[0]):.1f}".removesuffix(".0")

    rounded = re.sub(r"-?\d+\.\d{2,}", round_number, value)
    return re.sub(r" ?([A-Za-z,]) ", r"\1", re.sub(r"\s+", " ", rounded)).strip()
