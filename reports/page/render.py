"""The HTML file: one template, its style and its script inside, and a policy that forbids
everything else.
"""

import base64
import gzip
import hashlib
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
from dlbench.reports.results.safe_text import visible_lines

PLAIN_UP_TO = 200_000
"""A longer JSON text stands compressed on the page."""


def page_to_file_text(document: Document) -> str:
    """Return the page as the text of one HTML file that needs no other."""
    style, script = asset("style.css"), asset("page.js")
    found, matrix, column = (
        sections(document),
        page_matrix(document.matrix),
        overview_column(document.matrix),
    )
    ranked = {} if column is None else rankings(document.matrix, column)
    records = [each.record for of in document.launches.values() for each in of]
    times = [record.started for record in records]
    days = dict.fromkeys(f"{time:%Y-%m-%d}" for time in (min(times), max(times))) if times else ()
    return rendered(
        "page.html.j2",
        document=document,
        policy=policy(style, script),
        style=Markup(style),  # our own file
        script=Markup(script),  # our own file
        panels=[] if column is None else panels(document.matrix, column, ranked),
        more_networks=max(0, len(ranked) - MOST_NETWORKS),
        place="" if column is None else overview_place(document.matrix, column),
        ranking=page_to_html(Page((), (overview_table(document.matrix, column, ranked),)))
        if column and ranked
        else "",
        findings=findings(document.matrix, [each["headline"] for each in found]),
        note=note_to_html(document.note),
        matrix=matrix,
        matrix_notes=page_to_html(Page((), (), tuple(matrix_notes(document.matrix))))
        if matrix["addresses"]
        else "",
        sections=found,
        provenance=page_to_html(Page((), tuple(provenance_tables(document)))),
        thinned=thinning(document),
        trains=not only_imported(document.matrix),
        span=" to ".join(days) or "nothing was measured",
        machines=machine_names(document.matrix),
        suites=sorted({record.suite for record in records}),
        made=f"{document.made:%Y-%m-%d %H:%M} UTC",
        blocks=[
            _block("data", page_data(document)),
            _block("provenance-data", provenance(document)),
            _block("view", _view(document, matrix)),
        ],
    )


def only_imported(matrix: Matrix) -> bool:
    """Tell whether every cell is a benchmark that another program measured."""
    return bool(matrix.cells) and all(cell.cell.device == UNKNOWN for cell in matrix.cells.values())


def _view(document: Document, matrix: dict[str, Any]) -> dict[str, Any]:
    """Return what the script shows: texts of fields, opened cells, and files to be saved."""
    software: dict[str, int] = {}
    opened, thinned = [], thinning(document, MOST_DOTS)
    for cell in document.matrix.cells.values():
        place = None
        if launches := document.launches_of(cell):
            place = software.setdefault(
                str(facts_html(software_of(launches[-1]).items())), len(software)
            )
        opened.append(str(cell_html(document, cell, place, thinned)))
    page, rows = matrix_page(document.matrix), matrix_rows(document.matrix)
    return {
        "keys": inert(matrix["addresses"]),
        "filters": list(zip(*(each["of"] for each in matrix["filters"]), strict=True)),
        "views": [
            {"caption": inert(each["caption"]), "fields": inert(each["fields"])}
            for each in matrix["views"]
        ],
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
    return (
        resources.files("dlbench.reports").joinpath("page/assets", name).read_text(encoding="utf-8")
    )


def policy(style: str, script: str = "") -> str:
    """Return the Content-Security-Policy: nothing but this style and, if any, this script; no
    request to anywhere.
    """
    allowed = f"style-src {_hash(style)}; " + (f"script-src {_hash(script)}; " if script else "")
    return f"default-src 'none'; {allowed}img-src data:; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def note_to_html(text: str) -> Markup:
    """Return a publisher's note as HTML; HTML in it is shown as text, and an image as its link's
    words.
    """
    parser = (
        MarkdownIt("commonmark", {"html": False})
        .enable("table")
        .disable(["image", "html_block", "html_inline"])
    )
    tokens = parser.parse(visible_lines(text))
    for token in tokens:
        token.attrs.pop("style", None)  # of aligned columns: the page's policy forbids it
    return Markup(
        parser.renderer.render(tokens, parser.options, {})
    )  # the parser escapes, and knows safe links only


def _block(name: str, content: Any) -> Markup:
    r"""Return a JSON block that no text can end: ``<`` is written as ``\u003c``, and a long one
    compressed.
    """
    text = json_text(content, indent=None)
    if len(text) > PLAIN_UP_TO:
        packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        return Markup(
            '<script type="text/plain" id="{}" data-encoding="gzip base64">{}</script>'
        ).format(name, packed)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup('<script type="application/json" id="{}">{}</script>').format(
        name, Markup(text)
    )  # see above
