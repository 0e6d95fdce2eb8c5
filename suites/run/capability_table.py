"""The capabilities of this machine's builds, compared with Gurari 2021's table of platforms.

The lecture took its table from Wikipedia. Each column is asked of the build: of the framework
itself, of the libraries that its process has loaded, or of its distribution's metadata. Only the
dates of releases come from the catalogue.
"""

import csv
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Any

NAME = "gurari2021"
_FILE = "data/gurari2021_capabilities.csv"
_ACTIVE = timedelta(days=548)
"""18 months: a project with a newer release is actively developed."""
_FREE = re.compile(
    r"apache|bsd|mit\b|mit license|mozilla|mpl|gpl|isc|osi approved|zlib|unlicense", re.IGNORECASE
)
UNKNOWN = "-"
Answer = tuple[str, str]
"""A build's answer in a column ("yes", "no", a text, or "-"), and its source."""
Row = Mapping[str, Any]
"""A framework's entry in `dlbench list --capabilities --json`."""


def columns(row: Row) -> dict[str, Answer]:
    """Return the table's columns in its order, as the build shows them, without the name."""
    project = row["project"]
    licence = project.get("licence", "")
    open_source = (UNKNOWN, "unknown")
    if licence:
        open_source = (_yes_or_no(bool(_FREE.search(licence))), f"its licence: {licence}")

    def metadata(*keys: str) -> Answer:
        text = ", ".join(filter(None, (project.get(key) for key in keys)))
        return text or UNKNOWN, f"metadata of {project.get('distribution', 'no distribution')}"

    def answered(key: str) -> Answer:
        answer = row["answers"].get(key)
        if answer is None:
            return UNKNOWN, "not asked"
        return _yes_or_no(answer["answer"]), answer["how"]

    def built(kind: str) -> Answer:
        able = row["kinds"].get(kind)
        if able:
            return "yes", "its adapter builds them"
        reasons = (network["reason"] for network in row["networks"].values() if network["reason"])
        return UNKNOWN if able is None else "no", next(reasons, "not asked")

    return {
        "creator": metadata("creator"),
        "license": metadata("licence"),
        "open source": open_source,
        "platform": metadata("platform"),
        "written in": metadata("languages", "libraries"),
        "interface": ("Python", "its adapter uses this interface; others are not probed"),
        "OpenMP": answered("openmp"),
        "OpenCL": answered("opencl"),
        "CUDA": answered("gpu"),
        "automatic differentiation": answered("automatic_gradients"),
        "pretrained models": answered("pretrained_models"),
        "recurrent nets": built("recurrent"),
        "convolutional nets": built("convolutional"),
        "RBM/DBNs": answered("boltzmann_machines"),
        "parallel execution (multi node)": answered("several_processes"),
        "actively developed": _active(row["last_release"]),
    }


def _yes_or_no(holds: bool) -> str:
    return "yes" if holds else "no"


def _active(last: Mapping[str, str] | None) -> Answer:
    if last is None:
        return UNKNOWN, "no release is known"
    age = datetime.now(UTC).date() - date.fromisoformat(last["date"])
    return _yes_or_no(age < _ACTIVE), f"newest release known: {last['version']}, {last['date']}"


@cache
def published() -> Mapping[str, Mapping[str, str]]:
    """Return the rows of the table for dlbench's frameworks, by their name."""
    text = resources.files("dlbench.reports").joinpath(_FILE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["framework"]: row for row in rows if row["framework"]}


def differs(then: str, now: str) -> bool:
    """Return whether an answer differs from the table's.

    Unknown answers, and answers in words, do not.
    """
    published_answer = then.strip().lower()
    if published_answer in ("", "?") or now not in ("yes", "no"):
        return False
    return published_answer.split(",")[0] != now


def compare(row: Row) -> dict[str, Any]:
    """Return a framework's columns, and the differences between the table and this build.

    A column has the table's answer, this build's answer and its source.
    """
    published_row = published().get(row["name"], {})
    compared = {}
    differences = []
    for name, (now, how) in columns(row).items():
        then = published_row.get(name, "")
        compared[name] = {"then": then, "here": now, "how": how}
        if differs(then, now):
            differences.append(
                f"{row['title']}: {name}: {then!r} in 2021, on this machine {now}: {how}"
            )
    return {
        "name": row["name"],
        "title": row["title"],
        "software": published_row.get("software") or None,
        "columns": compared,
        "differences": differences,
    }
