"""The style and the script of every page of ours, and a policy that allows them and nothing else."""

import base64
import hashlib
from importlib import resources

ASSETS = "page/assets"
_PARTS = (
    *("elements", "words", "ratio", "means", "data", "state", "arrangement", "matrix", "controls"),
    *("plots", "launches", "nights", "cell", "formats", "copying", "start"),
)
"""The files of the script, each of one idea, in the order in which they need each other."""


def own_style() -> str:
    """Return the style."""
    return _asset("style.css")


def own_script() -> str:
    """Return the script: its files in one function, so that they share names and the page's own stay free."""
    parts = "\n".join(_asset(f"script/{name}.js") for name in _PARTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def policy(style: str, script: str = "") -> str:
    """Return the Content-Security-Policy: nothing but this style and, if any, this script; no request to anywhere."""
    allowed = f"style-src {_hash(style)}; " + (f"script-src {_hash(script)}; " if script else "")
    return f"default-src 'none'; {allowed}img-src data:; base-uri 'none'; form-action 'none'"


def _asset(name: str) -> str:
    return resources.files("dlbench.reports").joinpath(ASSETS, name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
