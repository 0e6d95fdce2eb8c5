"""JSON and CSV of reports: the same numbers."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kept_stores import kept_store

pytestmark = pytest.mark.usefixtures("few_replicates")
INSIDE = {
    "against": ("machines", "cells"),
    "figure1": ("panels", "lines", "points"),
    "progress": ("rankings", "frameworks"),
    "rnn": ("lines", "sizes"),
    "scaling": ("lines", "points"),
    "threads": ("curves", "points"),
}
"""Under which keys of the JSON the lines of the CSV are; what stands above them is repeated on
each."""
ADDED = {"threads": {"law", "laws_rejected"}}


def lines_of(
    content: Any, keys: Sequence[str], above: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    if not keys:
        yield from ({**above, **item} for item in content)
        return
    items = content if isinstance(content, list) else [content]
    for item in items:
        yield from lines_of(item[keys[0]], keys[1:], {**above, **item})


@pytest.mark.parametrize(
    "name", ["against", "figure1", "matrix", "progress", "rnn", "scaling", "threads"]
)
def test_csv_says_what_json_says(
    name: str, command: Callable[..., tuple[Any, str, str]], tmp_path: Path
) -> None:
    store = "workers" if name == "scaling" else "cpu"
    kept_store(tmp_path, store)
    of_store = "--store", f"{store}.sqlite"
    chosen = {
        "against": ("matrix", "--against", "shi2016", *of_store),
        "rnn": ("rnn", "--reference", "brandfonbrener2017"),
    }
    words = ("report", *chosen.get(name, (name, *of_store)), "--format")
    content = json.loads(command(*words, "json")[1])
    rows = list(csv.DictReader(io.StringIO(command(*words, "csv")[1])))
    lines = list(lines_of(content, INSIDE.get(name, ()), {}))
    assert {column.partition(".")[0] for column in rows[0]} - set(lines[0]) == ADDED.get(
        name, set()
    )
    for row, line in zip(rows, lines, strict=True):
        assert row["flags"].split() == [flag["name"] for flag in line["flags"]]
        for column, text in row.items():
            if column == "variables":
                assert text == " ".join(f"{name}={value}" for name, value in line[column].items())
            elif (
                column.partition(".")[0] in line
                and column != "flags"
                and not column.endswith("wait_policy")
            ):
                value = line
                for key in column.split("."):
                    value = None if value is None else value[key]
                assert text == ("" if value is None else str(value)), column
