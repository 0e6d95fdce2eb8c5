"""The HTML file: one template, its style and its script inside, and a policy that forbids everything else."""

import base64
import gzip
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dlbench.reports.formats.html import page_to_html
from dlbench.reports.formats.inert import visible
from dlbench.reports.formats.json import json_text
from dlbench.reports.formats.layout import Page
from dlbench.reports.matrix import matrix_page
from dlbench.reports.page.data import page_data, thinning
from dlbench.reports.page.document import Document
from dlbench.reports.page.findings import findings
from dlbench.reports.page.note import note_to_html
from dlbench.reports.page.policy import ASSETS, own_script, own_style, policy
from dlbench.reports.page.provenance import provenance, provenance_tables
from dlbench.reports.page.sections import sections

PLAIN_UP_TO = 200_000
"""A longer JSON text stands compressed on the page."""


def page_to_file_text(document: Document) -> str:
    """Return the page as the text of one HTML file that needs no other."""
    style, script = own_style(), own_script()
    environment = Environment(
        loader=PackageLoader("dlbench.reports", ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_seen,
        lstrip_blocks=True,
    )
    told = sections(document)
    times = sorted(each.record.started for of in document.launches.values() for each in of)
    days = list(dict.fromkeys(f"{time:%Y-%m-%d}" for time in times))
    return (
        environment.get_template("page.html.j2").render(
            document=document,
            policy=policy(style, script),
            style=Markup(style),  # our own file
            script=Markup(script),  # our own file
            findings=findings(document, told),
            note=note_to_html(document.note),
            matrix=page_to_html(matrix_page(document.matrix)),
            sections=told,
            provenance=page_to_html(Page((), tuple(provenance_tables(document)))),
            thinned=thinning(document),
            span=" to ".join(dict.fromkeys([days[0], days[-1]])) if days else "nothing was measured",
            suites=sorted({each.record.suite for of in document.launches.values() for each in of}),
            made=f"{document.made:%Y-%m-%d %H:%M} UTC",
            data=_block("data", page_data(document)),
            provenance_data=_block("provenance-data", provenance(document)),
        )
        + "\n"
    )


def _seen(value: Any) -> Any:
    """Return a text of anybody as `formats.inert` shows it; what is HTML already is made of such texts."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _block(name: str, content: Any) -> Markup:
    r"""Return a JSON block that no text can end: ``<`` is written as ``\u003c``, and a long one compressed."""
    text = json_text(content, indent=None)
    if len(text) > PLAIN_UP_TO:
        packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        return Markup('<script type="text/plain" id="{}" data-encoding="gzip base64">{}</script>').format(name, packed)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))  # see above
