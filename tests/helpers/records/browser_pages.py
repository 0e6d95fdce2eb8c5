"""Stores for pages that a browser opens, and what such a page holds."""

from pathlib import Path
from typing import Any

from kept_stores import block
from playwright.sync_api import Page

EXAMPLE = Path(__file__).parents[3] / "reports/examples/2026-11-23-what-tuning-is-worth/store.sqlite.xz"


def cell_of(path: Path, **wanted: Any) -> Any:
    """Return the cell with these values in the data of a page, e.g. ``network="fcn5"``; usually of torch, tuned."""
    usual = {"framework": "torch", "mode": "eager", "tuning": "tuned", "network": "fcn5", **wanted}
    data = block(path.read_text(encoding="utf-8"))
    fits = [cell for cell in data["cells"] if all(cell[name] == value for name, value in usual.items())]
    assert len(fits) == 1, usual
    return fits[0]


def saved(page: Page, name: str) -> str:
    """Press the button of this name, and return the file that it saves."""
    with page.expect_download() as coming:
        page.get_by_role("button", name=name, exact=True).click()
    return Path(coming.value.path()).read_text(encoding="utf-8")
