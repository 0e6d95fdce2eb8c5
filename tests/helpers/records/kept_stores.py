"""The kept stores as files, and the data of a report page."""

import base64
import gzip
import json
import lzma
import re
from pathlib import Path
from typing import Any

from hostile_texts import STORES

from dlbench.reports.storage.store import Store


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
    found = re.search(text, page, re.DOTALL)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[2])) if found[1] else found[2])
