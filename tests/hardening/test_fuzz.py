"""Some of the inputs of ``bootstrap.py fuzz``, the same in every run, and what it found once."""

import json
import os
import sqlite3
from pathlib import Path

import factory_of_records as make
import fuzz
import pytest

from dlbench.reports.errors import LONGEST_LINE, RecordError
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store

COUNT = 60
KINDS = ["suite", "network", "words"] * 4 + ["import", "framework", "store", "claim"]
"""The quick ones more often."""


def test_damaged_inputs_end_in_words_and_a_documented_code() -> None:
    ends = list(fuzz.fuzz(range(COUNT), 1, KINDS))
    assert [found for _, _, found in ends if found is not None] == []
    assert len(ends) == COUNT
    # Damaged a little, some can still be read.
    assert {0, 2, 4} <= {code for _, code, _ in ends}


@pytest.mark.parametrize(
    ("ended", "part"),
    [
        ((1, "", "Traceback (most recent call last):\n  x\nValueError: x\n"), "ValueError"),
        ((9, "", "dlbench: x\n"), "exit code 9"),
        ((2, "", ""), "without a word"),
        ((2, "", "dlbench: x\x1b[31m\n"), "control characters"),
        ((4, "", "dlbench: x\n" * 100), "100 lines"),
        ((0, "", "x.py:1: RuntimeWarning: overflow\n"), "warning"),
        ((0, "", "dlbench: it is left out\n"), ""),
    ],
)
def test_what_counts_as_a_defect(ended: tuple[int, str, str], part: str) -> None:
    said = fuzz.complaint(*ended)
    assert part in said
    assert bool(part) == bool(said)


@pytest.mark.parametrize("kind", ["pipe", "zero", "large"])
@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("mine.toml", ["plan", "mine.toml"], 2),
        ("mine.toml", ["report", "claims", "--claim", "mine.toml"], 2),
        ("mine/framework.toml", ["list", "--adapter", "mine=mine"], 2),
        ("x.sqlite", ["report", "matrix", "--store", "x.sqlite"], 4),
        ("x.json", ["import", "x.json"], 2),
    ],
)
def test_what_is_no_file_is_not_waited_for(command, tmp_path: Path, kind, name, words, code) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    (path.parent / "adapter.py").touch()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(600_000_000)
    found, out, errors = command(*words)
    assert (found, out) == (code, "")
    (line,) = errors.splitlines()
    assert line.startswith("dlbench: ")


@pytest.mark.parametrize(
    "words",
    [
        ["report", "a" * 20_000],
        ["report", "runs", "--store", "x," + "a" * 20_000],
        ["compare", "1" * 5000],
        ["report", "matrix", "--store", "\x1b[31mred\x1b[0m"],
        ["report", "matrix", "--store", "two\nlines"],
        ["report", "matrix", "--store", "~nobody-at-all"],
        ["report", "matrix", "--machine", "\udcff"],
        ["plan", "a" * 5000 + ".toml"],
    ],
    ids=lambda words: words[-1][:20].encode("ascii", errors="backslashreplace").decode(),
)
def test_a_strange_word_costs_one_line_that_fits_a_screen(command, words: list[str]) -> None:
    code, out, errors = command(*words)
    assert (code in (2, 4), out) == (True, "")
    (line,) = errors.splitlines()
    assert line.isprintable()
    assert len(line) < LONGEST_LINE + 100


def test_a_framework_nested_too_deeply_is_told(command, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "adapter.py").touch()
    (folder / "framework.toml").write_text(f"name = {'[' * 2000}{']' * 2000}\n")
    code, _, errors = command("list", "--adapter", "mine=mine")
    assert code == 2
    assert "framework.toml cannot be read" in errors


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cell", "framework"), {"a": 1}),
        (("cell", "threads"), [1]),
        (("cell", "threads"), 10**30),
        (("outcome", "threads"), 1.5),
        (("outcome", "samples_ns"), ["x"]),
        (("outcome", "samples_ns"), [-1]),
        (("outcome", "steps_per_sample"), 0),
        (("outcome", "\x1b[31m"), 1),
    ],
)
def test_a_record_with_rubbish_inside_is_damaged(tmp_path: Path, place: tuple[str, str], value: object) -> None:
    data = json.loads(json.dumps(make.record().to_dict()))
    data[place[0]][place[1]] = value
    with pytest.raises(RecordError) as refusal:
        Record.from_dict(data)
    assert str(refusal.value).isprintable()
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        store.append(make.record())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET content = ?", (json.dumps(data),))
    connection.close()
    with Store.open(path) as store, pytest.raises(RecordError, match=r"results\.sqlite"):
        store.records()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE cells SET threads = 'many'", ["history"]),
        ("UPDATE runs SET started = 'then'", ["history"]),
        ("UPDATE records SET product_rate = 'fast'", ["report", "matrix"]),
        ("UPDATE cells SET further = '[['", ["report", "matrix"]),
    ],
)
def test_a_column_with_rubbish_inside_is_damaged(command, tmp_path: Path, change: str, words: list[str]) -> None:
    with Store.open("results.sqlite") as store:
        store.begin_run(make.run())
        for launch in range(3):
            store.append(make.record(launch=launch))
    with sqlite3.connect("results.sqlite") as connection:
        connection.execute(change)
    connection.close()
    code, _, errors = command(*words, "--store", "results.sqlite")
    assert code == 4
    (line,) = errors.splitlines()
    assert "results.sqlite is damaged" in line


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF"])
def test_half_of_a_surrogate_pair_is_replaced(command, tmp_path: Path, half: str) -> None:
    path = tmp_path / "results.sqlite"
    with Store.open(path) as store:
        store.begin_run(make.run())
        store.append(make.record())
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE runs SET content = replace(content, '\"run-1\"', '\"{half}\\u00e9\"')")
    connection.close()
    with Store.open(path) as store:
        assert [run.id for run in store.runs()] == ["?é"]
    for words in (["export"], ["report", "matrix"]):
        code, _, errors = command(*words, "--store", str(path))
        assert code in (0, 2, 4), errors
        assert "Traceback" not in errors
