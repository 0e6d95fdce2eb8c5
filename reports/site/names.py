"""File names of a site: safe on every file system, and the same from call to call."""

import hashlib
import re

from dlbench.adapters.protocol import Cell
from dlbench.reports.naming import slug

_MOST = 80


def run_file(run: str) -> str:
    """Return the file of a run's page, within the site: an id of dlbench's own stays as it is."""
    return f"runs/{run if re.fullmatch(r'[0-9]{8}T[0-9]{6}-[0-9a-f]+', run) else _safe(run)}.html"


def history_file(machine: str, suite: str) -> str:
    """Return the file of the history of a suite on a machine, within the site."""
    return f"history/{_safe(suite, machine)}.html"


def key_of(machine: str, cell: Cell) -> str:
    """Return a short name that no other cell of any machine has."""
    return _digest(machine, slug(cell))


def _safe(*words: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", "-".join(words))[:_MOST].strip("-")
    return f"{readable}-{_digest(*words)}".lstrip("-")


def _digest(*words: str) -> str:
    text = "\0".join(words)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
