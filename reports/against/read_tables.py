"""Reads the published tables that come with dlbench (``reports/data``)."""

import csv
from importlib import resources


def lines_of(name: str) -> list[dict[str, str]]:
    """Return the lines of a file of ``reports/data``, by its head."""
    text = resources.files("dlbench.reports").joinpath(f"data/{name}").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
