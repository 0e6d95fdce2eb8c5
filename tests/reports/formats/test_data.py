"""JSON and CSV of matrix and threads: the same numbers, each key described."""

import csv as csv_of_python
import io
import json as json_of_python
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
import records_of_claims
import records_of_figure1
import records_of_progress
import records_of_workers
from exported import exporter
from matrices_to_export import busy, laws
from records_of_published import TENSORFLOW, found_in, launches

import dlbench.reports
from dlbench.adapters.protocol import Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.curve.threads import threads

FOUND: dict[str, Callable[[], Any]] = {
    "against": lambda: found_in(*launches(0.5, **TENSORFLOW), make.hole(Status.CRASHED, "signal 11")),
    "figure1": records_of_figure1.busy,
    "matrix": lambda: build_matrix(busy()),
    "progress": records_of_progress.busy,
    "rnn": lambda: records_of_claims.found(records_of_claims.everything()),
    "scaling": records_of_workers.busy,
    "threads": lambda: threads(build_matrix(laws())),
}
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


@pytest.mark.parametrize("name", FOUND)
def test_csv_says_what_json_says_and_the_schema_describes_each_key(name: str) -> None:
    found = FOUND[name]()
    content = json_of_python.loads(exporter(name, "json")(found))
    rows = list(csv_of_python.DictReader(io.StringIO(exporter(name, "csv")(found))))
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
