"""Damaged inputs of every kind: each ends with a few printable lines and a documented exit code."""

import json
import lzma
import os
import re
import shlex
import shutil
import signal
import sqlite3
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import damage
import factory_of_records as make
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples

from dlbench.reports.errors import LONGEST_LINE, RecordError
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store
from dlbench.suites.planning import framework

Call = Callable[..., tuple[Any, str, str]]

ROOT = Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests" / "goldens"
SECONDS, MOST_LINES, MOST_CHARACTERS = 30, 15, 6000
"""A command that takes longer does not end; one that says more says too much."""
SUITES = [path.read_bytes() for path in sorted((ROOT / "suites" / "definitions").glob("*.toml"))]
FRAMEWORKS = [path.read_bytes() for path in sorted((ROOT / "adapters").glob("*/framework.toml"))]
IMPORTS = [path.read_bytes() for path in sorted((GOLDENS / "inputs").glob("*.json"))]
LINES = [
    shlex.split(line)
    for line in (
        *re.findall(r'"((?:report|history|compare|export) [^"{]+)"', (GOLDENS / "test_goldens.py").read_text()),
        *("list --json", "env list", "plan quick", "plan table4 --frameworks torch --threads 1,2,4-8"),
        *("plan threads --threads 1..4*cpus --json", "import foreign-a1.json --one-run --store made.sqlite"),
    )
]
REPORTS = ("matrix", "threads", "scaling", "progress", "figure1", "tables", "ceilings", "runs", "claims", "rnn")


def suite(folder: Path, random: Random) -> list[str]:
    content = random.choice((damage.of_bytes, damage.of_lines))(random.choice(SUITES), random)
    (folder / "mine.toml").write_bytes(content)
    return ["plan", "mine.toml", *random.choice(((), ("--json",), ("--frameworks", "null")))]


def store(folder: Path, random: Random) -> list[str]:
    packed = random.choice(sorted((GOLDENS / "stores").iterdir()))
    content = lzma.decompress(packed.read_bytes())
    path = folder / "damaged.sqlite"
    path.write_bytes(damage.of_bytes(content, random) if random.random() < 0.3 else content)
    if random.random() < 0.7:
        path.write_bytes(content)
        damage.of_rows(path, random)
    reports = [["report", name, "--json"] for name in REPORTS]
    commands = [*reports, ["history"], ["export"], ["compare", "previous", "latest"], ["plan", "quick"]]
    return [*random.choice(commands), "--store", path.name]


def imported(folder: Path, random: Random) -> list[str]:
    content = random.choice(IMPORTS)
    damaged = damage.of_bytes(content, random)
    if random.random() < 0.7:
        damaged = json.dumps(damage.of_tree(json.loads(content), random)).encode()
    (folder / "given.json").write_bytes(damaged)
    return ["import", "given.json", "--store", "made.sqlite"]


def claim(folder: Path, random: Random) -> list[str]:
    way = random.choice((damage.of_bytes, damage.of_lines))
    (folder / "mine.toml").write_bytes(way((GOLDENS / "inputs" / "claim.toml").read_bytes(), random))
    return ["report", "claims", "--reference", "shi2016", "--claim", "mine.toml"]


def adapter(folder: Path, random: Random) -> list[str]:
    mine = folder / "adapter"
    mine.mkdir()
    (mine / "adapter.py").write_text("ADAPTER = None\n")
    (mine / "requirements.lock").write_text("mine==1.0\n")
    sound = re.sub(rb'^name *= *"[^"]*"', b'name = "mine"', random.choice(FRAMEWORKS), count=1, flags=re.MULTILINE)
    (mine / "framework.toml").write_bytes(random.choice((damage.of_bytes, damage.of_lines))(sound, random))
    commands = (["list"], ["list", "--json"], ["plan", "quick", "--frameworks", "mine:*"], ["env", "list"])
    return [*random.choice(commands), "--adapter", "mine=adapter"]


def words(folder: Path, random: Random) -> list[str]:
    line = random.choice(LINES)
    changed = damage.of_words(line, LINES, random)
    for name in {word.rpartition("=")[2] for word in changed}:
        if (GOLDENS / "stores" / f"{name}.xz").is_file() and name.endswith(".sqlite"):
            (folder / name).write_bytes(lzma.decompress((GOLDENS / "stores" / f"{name}.xz").read_bytes()))
        elif name.endswith(".json") and (GOLDENS / "inputs" / name).is_file():
            shutil.copy(GOLDENS / "inputs" / name, folder)
    # Words that could write outside the folder, measure or build are not given.
    return line if any("/" in word for word in changed) or "--now" in changed or changed[:1] != line[:1] else changed


def complaint(code: int, out: str, err: str) -> str:
    """Return the fault in how a command ended; empty where there is none."""
    lines = err.splitlines()
    if code not in range(7) or "Traceback" in err:
        return f"exit code {code}: {err[-3000:]}"
    if code in (2, 3, 4) and not ("Usage: " in out or (lines and lines[-1].startswith("dlbench: "))):
        return f"exit code {code} without a reason: {err[:500]}"
    if len(lines) > MOST_LINES or len(err) > MOST_CHARACTERS:
        return f"{len(lines)} lines, {len(err)} characters: {err[:300]}"
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", err):
        return f"control characters: {err[:500]!r}"
    return f"a warning of Python: {err[:500]}" if "Warning: " in err else ""


@pytest.mark.parametrize("kind", [suite, store, imported, claim, adapter, words])
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_damaged_input_ends_in_words_and_a_documented_code(
    kind: Callable[[Path, Random], list[str]], command: Call, tmp_path: Path, seed: int
) -> None:
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    framework._added.clear()
    given = kind(tmp_path, Random(seed))

    def too_long(number: int, frame: object) -> None:
        pytest.fail(f"{given} does not end: {''.join(traceback.format_stack()[-8:])}")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            fault = complaint(*command(*given))
    finally:
        signal.alarm(0)
    assert fault == "", given


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
        ("UPDATE runs SET started = 'then'", ["history"]),
        ("UPDATE records SET product_rate = 'fast'", ["report", "matrix"]),
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
