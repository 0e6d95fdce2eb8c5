"""The capabilities of builds here in the columns of Gurari 2021's table of platforms, and where the
two differ.

The lecture took its table from Wikipedia. Each column is asked of the build: of the framework
itself, of what its process has loaded, or of its distribution's metadata; only the dates of
releases come from the catalogue.
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
Found = tuple[str, str]
"""A build's answer in a column: "yes", "no", a text, or "-"; and how it was found out."""
Row = Mapping[str, Any]
"""A framework's entry in `dlbench list --capabilities --json`."""


def columns(row: Row) -> dict[str, Found]:
    """Return the columns of the table but the software's name, in its order, as the build shows
    them.
    """
    project = row["project"]
    licence = project.get("licence", "")

    def said(*keys: str) -> Found:
        text = ", ".join(filter(None, (project.get(key) for key in keys)))
        return text or UNKNOWN, f"metadata of {project.get('distribution', 'no distribution')}"

    def answered(key: str) -> Found:
        answer = row["answers"].get(key)
        return (UNKNOWN, "not asked") if answer is None else (_yes(answer["answer"]), answer["how"])

    def built(kind: str) -> Found:
        refused = (each["reason"] for each in row["networks"].values() if each["reason"])
        able = row["kinds"].get(kind)
        how = "its adapter builds them here" if able else next(refused, "not asked")
        return UNKNOWN if able is None else _yes(able), how

    return {
        "creator": said("creator"),
        "license": said("licence"),
        "open source": (_yes(bool(_FREE.search(licence))), f"its licence: {licence}")
        if licence
        else (UNKNOWN, "unknown"),
        "platform": said("platform"),
        "written in": said("languages", "libraries"),
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


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _active(last: Mapping[str, str] | None) -> Found:
    if last is None:
        return UNKNOWN, "no release is known"
    age = datetime.now(UTC).date() - date.fromisoformat(last["date"])
    return _yes(age < _ACTIVE), f"newest release known: {last['version']}, {last['date']}"


@cache
def published() -> Mapping[str, Mapping[str, str]]:
    """Return the rows of the table that stand for a framework here, by its name."""
    text = resources.files("dlbench.reports").joinpath(_FILE).read_text(encoding="utf-8")
    return {
        line["framework"]: line for line in csv.DictReader(text.splitlines()) if line["framework"]
    }


def differs(then: str, here: str) -> bool:
    """Tell whether an answer differs from the table's; unknown answers, and answers in words, do
    not.
    """
    first = then.strip().lower()
    return first not in ("", "?") and here in ("yes", "no") and first.split(",")[0] != here


def beside(row: Row) -> dict[str, Any]:
    """Return a framework's columns (the table's answer, the one here and its source), and the
    differences.
    """
    then = published().get(row["name"], {})
    found = {
        name: {"then": then.get(name, ""), "here": here, "how": how}
        for name, (here, how) in columns(row).items()
    }
    return {
        "name": row["name"],
        "title": row["title"],
        "software": then.get("software") or None,
        "columns": found,
        "differences": [
            f"{row['title']}: {name}: {each['then']!r} in 2021, here {each['here']}: {each['how']}"
            for name, each in found.items()
            if differs(each["then"], each["here"])
        ],
    }
