"""Pictures of reports as SVG inside a page: text stays text, colours follow the page, nothing needs a style attribute.

Matplotlib draws them, for the same `draw` of a report gives its PNG files, an SVG is there without JavaScript, and its
text can be searched. Vega needs 800 kB of JavaScript and `eval`, which a strict Content-Security-Policy forbids.
"""

import re
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from dlbench.reports.report import Report, ReportOptions

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_INK = {"#000000": "currentColor", "black": "currentColor", "#666666": "currentColor"}
"""Colours that follow the page, so that they can be seen on dark too."""
_GRID = "#dddddd"
_DROPPED = (f"{{{_SVG}}}metadata", f"{{{_SVG}}}title", f"{{{_SVG}}}style")


def pictures(report: Report[Any], found: Any, options: ReportOptions) -> list[Markup]:
    """Return a report's picture as inline SVG elements; empty where it has none."""
    if report.draw is None or not report.drawable(found):
        return []
    with tempfile.TemporaryDirectory() as folder:
        files = report.draw(found, Path(folder) / f"{report.name}.svg", options)
        return [
            inline(
                file.read_text(encoding="utf-8"),
                f"{report.name}{place}-",
                f"Plot of {report.heading}; the tables beneath have its numbers",
            )
            for place, file in enumerate(files, start=1)
        ]


def inline(text: str, prefix: str, label: str) -> Markup:
    """Return an SVG file as an element of a page, its ids behind a prefix of their own."""
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [each for each in parent if each.tag in _DROPPED]:
            parent.remove(child)
    for element in root.iter():
        _plain_attributes(element, prefix)
        element.tag = element.tag.rpartition("}")[2]
    width, height = (root.attrib.pop(name, "") for name in ("width", "height"))
    del width, height  # the viewBox tells the shape, the page the size
    root.attrib |= {"role": "img", "aria-label": label, "class": "plot"}
    root.attrib.pop("version", None)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # the parsed tree, written out again


def _plain_attributes(element: ElementTree.Element, prefix: str) -> None:
    style = element.attrib.pop("style", "")
    for part in style.split(";"):
        name, _, value = part.partition(":")
        if name.strip() == "font":  # short for size and family; the page has its own family
            size = re.search(r"([\d.]+)px", value)
            if size:
                element.set("font-size", size[1])
        elif value:
            element.set(name.strip(), value.strip())
    if _XLINK in element.attrib:
        element.set("href", element.attrib.pop(_XLINK))
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, prefix + value)
        elif name == "href" and value.startswith("#"):
            element.set(name, f"#{prefix}{value[1:]}")
        elif value.startswith("url(#"):
            element.set(name, f"url(#{prefix}{value[5:]}")
        elif name in ("fill", "stroke"):
            element.set(name, _INK.get(value.lower(), value))
    if element.tag == f"{{{_SVG}}}text" and "fill" not in element.attrib:
        element.set("fill", "currentColor")
    if element.get("stroke", "").lower() == _GRID:
        element.attrib |= {"stroke": "currentColor", "stroke-opacity": "0.15"}
    # The background of figure and panels is the page's.
    if element.get("fill", "").lower() in ("#ffffff", "white"):
        element.set("fill", "none")
