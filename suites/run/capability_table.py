"""The capabilities of builds here in the columns of Gurari 2021's table of platforms, and where the two differ.

The lecture took its table from Wikipedia. Each column is asked of the build: of the framework itself, of what its
process has loaded, or of its distribution's metadata; only the dates of releases come from the catalogue.
"""

import csv
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

NAME = "gurari2021"
_FILE = "data/gurari2021_capabilities.csv"
_ACTIVE = timedelta(days=548)
"""A project whose newest release is younger, 18 months, is actively developed."""
_FREE = re.compile(r"apache|bsd|mit\b|mit license|mozilla|mpl|gpl|isc|osi approved|zlib|unlicense", re.IGNORECASE)


class Found(NamedTuple):
    """What a build shows in a column: "yes", "no", a text, or nothing ("-"), and how it was found out."""

    here: str
    how: str


UNKNOWN = "-"
Row = Mapping[str, Any]
"""What `dlbench list --capabilities --json` has of a framework."""


def _of(key: str) -> Callable[[Row], Found]:
    """Return the column of an answer of the build."""

    def column(row: Row) -> Found:
        answer = row["answers"].get(key)
        return Found(UNKNOWN, "not asked") if answer is None else Found(_yes(answer["answer"]), answer["how"])

    return column


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _text(key: str, further: str = "") -> Callable[[Row], Found]:
    """Return the column of what the distribution's metadata say."""

    def column(row: Row) -> Found:
        project = row["project"]
        said = ", ".join(filter(None, (project.get(key, ""), project.get(further, ""))))
        return Found(said or UNKNOWN, f"metadata of {project.get('distribution', 'no distribution')}")

    return column


def _open(row: Row) -> Found:
    licence = row["project"].get("licence", "")
    return Found(_yes(bool(_FREE.search(licence))), f"its licence: {licence}") if licence else Found(UNKNOWN, "unknown")


def _networks(kind: str) -> Callable[[Row], Found]:
    def column(row: Row) -> Found:
        able = row["kinds"].get(kind)
        refused = next((each["reason"] for each in row["networks"].values() if each["reason"]), "")
        how = "its adapter builds them here" if able else refused or "not asked"
        return Found(UNKNOWN if able is None else _yes(able), how)

    return column


def _active(row: Row, today: date) -> Found:
    last = row["last_release"]
    if last is None:
        return Found(UNKNOWN, "no release is known")
    is_young = today - date.fromisoformat(last["date"]) < _ACTIVE
    return Found(_yes(is_young), f"newest release known: {last['version']}, {last['date']}")


def _interface(row: Row) -> Found:
    return Found("Python", "this adapter drives it from there; other interfaces are not asked")


COLUMNS: dict[str, Callable[[Row], Found]] = {
    "creator": _text("creator"),
    "license": _text("licence"),
    "open source": _open,
    "platform": _text("platform"),
    "written in": _text("languages", "libraries"),
    "interface": _interface,
    "OpenMP": _of("openmp"),
    "OpenCL": _of("opencl"),
    "CUDA": _of("gpu"),
    "automatic differentiation": _of("automatic_gradients"),
    "pretrained models": _of("pretrained_models"),
    "recurrent nets": _networks("recurrent"),
    "convolutional nets": _networks("convolutional"),
    "RBM/DBNs": _of("boltzmann_machines"),
    "parallel execution (multi node)": _of("several_processes"),
    "actively developed": lambda row: _active(row, datetime.now(UTC).date()),
}
"""The columns of the table but the software's name, in its order."""


@cache
def published() -> Mapping[str, Mapping[str, str]]:
    """Return the rows of the table that stand for a framework here, by its name."""
    text = resources.files("dlbench.reports").joinpath(_FILE).read_text(encoding="utf-8")
    return {line["framework"]: line for line in csv.DictReader(text.splitlines()) if line["framework"]}


def differs(then: str, here: str) -> bool:
    """Tell whether an answer is another one than the table's; what either does not know, or says in words, is not."""
    first = then.strip().lower()
    known = first not in ("", "?") and here in ("yes", "no")
    return known and first.split(",")[0] != here


def beside(row: Row) -> dict[str, Any]:
    """Return a framework's columns, each as in the table, here and how it was found out, and the differences."""
    then = published().get(row["name"], {})
    columns = {name: (then.get(name, ""), *ask(row)) for name, ask in COLUMNS.items()}
    return {
        "name": row["name"],
        "title": row["title"],
        "software": then.get("software") or None,
        "columns": {name: dict(zip(("then", "here", "how"), found, strict=True)) for name, found in columns.items()},
        "differences": [
            f"{row['title']}: {name}: {said!r} in 2021, here {here}: {how}"
            for name, (said, here, how) in columns.items()
            if differs(said, here)
        ],
    }
