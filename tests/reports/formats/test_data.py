"""JSON and CSV of reports: the same numbers, each key described."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from kept_stores import kept_store

import dlbench.reports

pytestmark = pytest.mark.usefixtures("few_replicates")
INSIDE = {
    "against": ("machines", "cells"),
    "figure1": ("panels", "lines", "points"),
    "progress": ("rankings", "frameworks"),
    "rnn": ("lines", "sizes"),
    "scaling": ("lines", "points"),
    "threads": ("curves", "points"),
}
"""Under which keys of the JSON the lines of the CSV are; what stands above them is repeated on each."""
ADDED = {"threads": {"law", "laws_rejected"}}
CHAPTERS = {
    "against": "--against",
    **{name: f"report {name} --json" for name in ("figure1", "progress", "rnn", "scaling")},
}
ELSEWHERE = ("seconds_per_minibatch", "seconds_now", "flags", "stands", "ceiling_now", "not_compared", "common")
"""Keys whose values the schema describes elsewhere, or whose own keys are names."""


def lines_of(content: Any, keys: Sequence[str], above: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not keys:
        yield from ({**above, **each} for each in content)
        return
    for each in content if isinstance(content, list) else [content]:
        yield from lines_of(each[keys[0]], keys[1:], {**above, **each})


def keys_of(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        yield from content
        yield from (key for name, each in content.items() if name not in ELSEWHERE for key in keys_of(each))
    elif isinstance(content, list):
        yield from (key for each in content for key in keys_of(each))


@pytest.mark.parametrize("name", ["against", "figure1", "matrix", "progress", "rnn", "scaling", "threads"])
def test_csv_says_what_json_says_and_the_schema_describes_each_key(
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
    assert {column.partition(".")[0] for column in rows[0]} - set(lines[0]) == ADDED.get(name, set())
    for row, line in zip(rows, lines, strict=True):
        assert row["flags"].split() == [flag["name"] for flag in line["flags"]]
        for column, text in row.items():
            if column.partition(".")[0] in line and column != "flags" and not column.endswith("wait_policy"):
                value = reduce(lambda value, key: None if value is None else value[key], column.split("."), line)
                assert text == ("" if value is None else str(value)), column
    if name in CHAPTERS:
        schema = (Path(dlbench.reports.__path__[0]) / "SCHEMA.md").read_text()
        named = set(re.findall(r"`(\w+)`", schema.partition(CHAPTERS[name])[2].partition("\n## ")[0]))
        assert set(keys_of(content)) <= named
