"""Every report says the same of a store on a server as of the file that was copied there."""

import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgresql_server import Server

from dlbench.reports.catalogue import reports
from dlbench.reports.storage.servers.copying import copy
from dlbench.reports.storage.store import Store

STORES = Path(__file__).parents[3] / "goldens" / "stores"
COMMANDS = [*(("report", name) for name, each in reports().items() if each.of_stores), ("history",)]


def rounded(text: str) -> str:
    """Sums of nights come from the database: which of many numbers it adds first shows in the last digits."""
    return re.sub(r"\d\.\d{9,}(e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


OTHERS = sorted({path.name.partition(".")[0] for path in STORES.glob("*.sqlite.xz")} - {"workers"})
CASES = [("workers", "json", COMMANDS), ("gated-nights", "terminal", COMMANDS[-1:])]
SLOW = [
    ("workers", "terminal", COMMANDS),
    *((name, form, COMMANDS) for name in OTHERS for form in ("terminal", "json")),
]


@pytest.mark.parametrize(
    ("name", "form", "commands"), [*CASES, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_every_report_is_the_same(
    name: str,
    form: str,
    commands: list[tuple[str, ...]],
    command: Callable[..., tuple[Any, str, str]],
    postgresql: Server,
    database: str,
) -> None:
    file, url = f"{name}.sqlite", postgresql.url(database)
    Path(file).write_bytes(lzma.decompress((STORES / f"{file}.xz").read_bytes()))
    with Store.open(file) as source, Store.open(url) as target:
        assert copy(source, target).records > 0
    for words in commands:
        told = [command(*words, "--format", form, "--store", store) for store in (file, url)]
        (of_file, of_server) = (
            (code, rounded(out) if words == ("history",) else out, errors.replace(url, file))
            for code, out, errors in told
        )
        assert of_file == of_server, words
        assert told[0][0] in (0, 2)
