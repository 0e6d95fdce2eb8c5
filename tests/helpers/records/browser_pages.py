"""Stores for pages that a browser opens, and what such a page holds."""

import base64
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

from hostile_texts import STORES
from playwright.sync_api import Page

from dlbench.reports.storage.store import Store

EXAMPLE = Path(__file__).parents[3] / "reports/examples/2026-11-23-what-tuning-is-worth/store.sqlite.xz"


def kept_store(folder: Path, name: str) -> Path:
    """Write one of the kept stores to a folder."""
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress((STORES / f"{name}.sqlite.xz").read_bytes()))
    with Store.open(path, upgrade=True):
        pass
    return path


def block(page: str, name: str = "data") -> Any:
    """Return the JSON of a block of a page."""
    text = rf'<script type="[^"]*" id="{name}"( data-encoding="gzip base64")?>(.*?)</script>'
    found = re.search(text, page, re.DOTALL)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[2])) if found[1] else found[2])


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


def shown_as(page: Page, kind: str) -> str:
    """Return the matrix as it is shown in this format."""
    page.locator("#choose-format").select_option(kind)
    return saved(page, "Download")
