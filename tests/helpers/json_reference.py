"""The keys of JSON that the documentation describes: `reports/docs/reference/json-keys.toml`."""

import tomllib
from pathlib import Path

from dlbench.adapters import axes
from dlbench.adapters.protocol import Parity

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = tomllib.loads((ROOT / "reports/docs/reference/json-keys.toml").read_text("utf-8"))
OF_EVERY_REPORT = ("matrix", "threads_evidence", "device_evidence")


def keys_of_chapter(chapter: str) -> set[str]:
    """Return the keys of a chapter; "points.used" are two."""
    return {key for keys in CHAPTERS[chapter] for key in keys.replace(".", " ").split()}


def documented_keys(report: str) -> set[str]:
    """Return the keys that the JSON of a report may have."""
    documented = {"", *axes.NAMES, *Parity._fields}
    for chapter in (*OF_EVERY_REPORT, report):
        documented |= keys_of_chapter(chapter)
    return documented
