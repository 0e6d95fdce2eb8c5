"""Stores for tests: recorded ones as files, with some records, empty ones; and the data of a report
page."""

import base64
import gzip
import json
import lzma
import os
import re
from pathlib import Path
from typing import Any

import factory_of_records as make
import sqlalchemy as sa
from hostile import STORES

from dlbench.reports.results.storage import schema
from dlbench.reports.results.storage.store import Store

URL = os.environ.get("DLBENCH_TEST_STORE_URL", "")


def fill(path: Path, count: int, run: str = "run-1") -> None:
    with Store.open(path) as store:
        for launch in range(count):
            store.append(make.record(launch=launch, run=run))


def empty_store() -> Store:
    """Open an empty store: in memory, or at the database URL in ``DLBENCH_TEST_STORE_URL``, which
    is emptied first."""
    if not URL:
        return Store.open("sqlite://")
    engine = sa.create_engine(URL)
    schema.TABLES.drop_all(engine)
    engine.dispose()
    return Store.open(URL)


def kept_store(folder: Path, name: str) -> Path:
    """Write one of the kept stores to a folder."""
    path = folder / f"{name}.sqlite"
    path.write_bytes(lzma.decompress((STORES / f"{name}.sqlite.xz").read_bytes()))
    with Store.open(path):
        pass
    return path


def block(page: str, name: str = "data") -> Any:
    """Return the JSON of a block of a page."""
    text = rf'<script type="[^"]*" id="{name}"( data-encoding="gzip base64")?>(.*?)</script>'
    match = re.search(text, page, re.DOTALL)
    assert match is not None
    return json.loads(gzip.decompress(base64.b64decode(match[2])) if match[1] else match[2])


EXAMPLE = STORES / "tuning.sqlite.xz"


def cell_of(path: Path, **changed_values: Any) -> Any:
    """Return the cell with these values in the data of a page, e.g. ``network="fcn5"``; usually of
    torch, tuned."""
    values = {
        "framework": "torch",
        "mode": "eager",
        "tuning": "tuned",
        "network": "fcn5",
        **changed_values,
    }
    data = block(path.read_text(encoding="utf-8"))
    fits = [cell for cell in data["cells"] if values.items() <= cell.items()]
    assert len(fits) == 1, values
    return fits[0]


def saved(page: Any, name: str) -> str:
    """Press the button of this name, and return the file that it saves."""
    with page.expect_download() as coming:
        page.get_by_role("button", name=name, exact=True).click()
    return Path(coming.value.path()).read_text(encoding="utf-8")
