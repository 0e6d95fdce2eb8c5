"""Stores for pages that a browser opens, and what such a page holds."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

EXAMPLE = Path(__file__).parents[3] / "reports/examples/2026-11-23-what-tuning-is-worth/store.sqlite.xz"


def cell_of(data: Any, column: int = 0, **wanted: str) -> Any:
    """Return the cell of a page's data with these words, e.g. ``row="torch eager"``, in this column."""
    fits = [c for c in data["cells"] if c["column"] == column and all(c[name] == wanted[name] for name in wanted)]
    assert len(fits) == 1, wanted
    return fits[0]


def saved(page: Page, name: str) -> str:
    """Press the button of this name, and return the file that it saves."""
    with page.expect_download() as coming:
        page.get_by_role("button", name=name, exact=True).click()
    return Path(coming.value.path()).read_text(encoding="utf-8")
