"""The matrix as it is shown, and all data, as texts that other programs read."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from browser_pages import saved, shown_as
from inertness import check_csv, check_markdown
from kept_stores import block
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.xdist_group("browser")
Show = Callable[..., Page]


def test_the_matrix_as_it_is_shown(show: Show, example: Path) -> None:
    page = show(example, permissions=["clipboard-read", "clipboard-write"])
    page.locator("#filters > summary").click()
    page.get_by_label("lstm32", exact=True).uncheck()
    markdown = shown_as(page, "markdown")
    check_markdown(markdown)
    assert "| torch eager, installed+fused\\_update | 0.714±45% |" in markdown
    assert "lstm32" not in markdown
    lines = list(csv.reader(io.StringIO(shown_as(page, "csv")), strict=True))
    assert lines[0] == ["group", "framework", *(f"2 threads{end}" for end in ("", ": low", ": high", ": warnings"))]
    assert len(lines) == 15
    assert all(float(low) < float(value) < float(high) for _, _, value, low, high, _ in lines[1:])
    latex = shown_as(page, "latex")
    assert r"torch eager, installed+fused\_update & 0.714\ensuremath{\pm}45\% \\" in latex
    page.locator("#copy-matrix").click()
    expect(page.locator("#copy-told")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == latex


def test_all_data_can_be_saved(show: Show, example: Path) -> None:
    page, text = show(example), example.read_text(encoding="utf-8")
    assert json.loads(saved(page, "All data (JSON)")) == block(text)
    assert json.loads(saved(page, "Provenance (JSON)")) == block(text, "provenance-data")
    cells = saved(page, "All cells (CSV)")
    check_csv(cells)
    lines = list(csv.DictReader(io.StringIO(cells), strict=True))
    assert [line["seconds"] for line in lines] == [repr(c["numbers"]["seconds"][0]) for c in block(text)["cells"]]
    assert {line["framework"] for line in lines} == {"jax", "mxnet", "onnxruntime", "tensorflow", "torch"}
