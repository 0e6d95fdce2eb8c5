"""The HTML file: a template with its style and script, and a policy that forbids the rest."""

import base64
import gzip
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from dlbench.adapters.protocol import UNKNOWN
from dlbench.reports.formats.csv import csv_text
from dlbench.reports.formats.json import json_text
from dlbench.reports.formats.layout import Page
from dlbench.reports.formats.markup import page_to_html, page_to_latex, page_to_markdown, rendered
from dlbench.reports.matrix import machine_names, matrix_notes, matrix_page, matrix_rows
from dlbench.reports.page.cells import MOST_DOTS, cell_html, facts_html
from dlbench.reports.page.data import inert, page_data, software_of, thinning
from dlbench.reports.page.document import Document
from dlbench.reports.page.matrix import page_matrix
from dlbench.reports.page.overview import (
    MOST_NETWORKS,
    findings,
    overview_column,
    overview_place,
    overview_table,
    panels,
    rankings,
)
from dlbench.reports.page.provenance import provenance, provenance_tables
from dlbench.reports.page.sections import sections
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.record import Record
from dlbench.reports.results.safe_text import visible_lines

PLAIN_UP_TO = 200_000
"""A longer JSON text is compressed on the page."""


def page_to_file_text(document: Document) -> str:
    """Return the page as the text of one HTML file that needs no other."""
    style = asset("style.css")
    script = asset("page.js")
    all_sections = sections(document)
    matrix = page_matrix(document.matrix)
    notes: Markup | str = ""
    if matrix["addresses"]:
        notes = page_to_html(Page((), (), tuple(matrix_notes(document.matrix))))
    records = [launch.record for launch in document.all_launches()]
    headlines = [section["headline"] for section in all_sections]
    return rendered(
        "page.html.j2",
        document=document,
        policy=policy(style, script),
        style=Markup(style),  # our own file
        script=Markup(script),  # our own file
        **_overview(document.matrix),
        findings=findings(document.matrix, headlines),
        note=note_to_html(document.note),
        matrix=matrix,
        matrix_notes=notes,
        sections=all_sections,
        provenance=page_to_html(Page((), tuple(provenance_tables(document)))),
        thinned=thinning(document),
        trains=not only_imported(document.matrix),
        span=_time_span(records),
        machines=machine_names(document.matrix),
        suites=sorted({record.suite for record in records}),
        made=f"{document.made:%Y-%m-%d %H:%M} UTC",
        blocks=[
            _block("data", page_data(document)),
            _block("provenance-data", provenance(document)),
            _block("view", _view(document, matrix)),
        ],
    )


def _overview(matrix: Matrix) -> dict[str, Any]:
    """Return the values of the template for the head of the page."""
    column = overview_column(matrix)
    if column is None:
        return {"panels": [], "more_networks": 0, "place": "", "ranking": ""}
    ranked = rankings(matrix, column)
    ranking: Markup | str = ""
    if ranked:
        ranking = page_to_html(Page((), (overview_table(matrix, column, ranked),)))
    return {
        "panels": panels(matrix, column, ranked),
        "more_networks": max(0, len(ranked) - MOST_NETWORKS),
        "place": overview_place(matrix, column),
        "ranking": ranking,
    }


def _time_span(records: Sequence[Record]) -> str:
    """Return the days of the first and the last record: "2026-11-28 to 2026-11-30"."""
    if not records:
        return "nothing was measured"
    times = [record.started for record in records]
    first = f"{min(times):%Y-%m-%d}"
    last = f"{max(times):%Y-%m-%d}"
    if first == last:
        return first
    return f"{first} to {last}"


def only_imported(matrix: Matrix) -> bool:
    """Tell whether every cell is a benchmark that another program measured."""
    return bool(matrix.cells) and all(cell.cell.device == UNKNOWN for cell in matrix.cells.values())


def _view(document: Document, matrix: dict[str, Any]) -> dict[str, Any]:
    """Return the content for the script: texts of fields, opened cells, and files to be saved."""
    software: dict[str, int] = {}
    opened = []
    thinned = thinning(document, MOST_DOTS)
    for cell in document.matrix.cells.values():
        place = None
        launches = document.launches_of(cell)
        if launches:
            facts = str(facts_html(software_of(launches[-1]).items()))
            place = software.setdefault(facts, len(software))
        opened.append(str(cell_html(document, cell, place, thinned)))
    page = matrix_page(document.matrix)
    rows = matrix_rows(document.matrix)
    indices_by_filter = [filter_["of"] for filter_ in matrix["filters"]]
    views = []
    for view in matrix["views"]:
        views.append({"caption": inert(view["caption"]), "fields": inert(view["fields"])})
    return {
        "keys": inert(matrix["addresses"]),
        "filters": list(zip(*indices_by_filter, strict=True)),
        "views": views,
        "cells": opened,
        "software": list(software),
        "files": {
            "cells.csv": csv_text(rows._replace(lines=inert(rows.lines))),
            "matrix.md": page_to_markdown(page),
            "matrix.tex": page_to_latex(page),
        },
    }


def asset(name: str) -> str:
    """Return the style or the script of our pages."""
    path = resources.files("dlbench.reports") / "page" / "assets" / name
    return path.read_text(encoding="utf-8")


def policy(style: str, script: str = "") -> str:
    """Return the Content-Security-Policy: this style, this script if any, and no requests."""
    allowed = f"style-src {_hash(style)}; "
    if script:
        allowed += f"script-src {_hash(script)}; "
    return f"default-src 'none'; {allowed}img-src data:; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def note_to_html(text: str) -> Markup:
    """Return a publisher's note as HTML.

    HTML in it is shown as text, and an image as the words of its link.
    """
    parser = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .disable(["image", "html_block", "html_inline"])
    )
    tokens = parser.parse(visible_lines(text))
    for token in tokens:
        token.attrs.pop("style", None)  # of aligned columns: the page's policy forbids it
    # The parser escapes, and allows safe links only.
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _block(name: str, content: Any) -> Markup:
    r"""Return a JSON block that no text can end: ``<`` is written as ``\u003c``.

    A long block is compressed.
    """
    text = json_text(content, indent=None)
    if len(text) > PLAIN_UP_TO:
        packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        compressed = '<script type="text/plain" id="{}" data-encoding="gzip base64">{}</script>'
        return Markup(compressed).format(name, packed)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # No character of the text is markup any more.
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))
