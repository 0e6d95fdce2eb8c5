"""Damaged inputs of every kind: each ends with a few printable lines and a documented exit code."""

import contextlib
import copy
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
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from properties import examples

from dlbench.reports.results.safe_text import LINE
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
        *re.findall(
            r'"((?:report|history|compare|export) [^"{]+)"',
            (GOLDENS / "test_goldens.py").read_text(),
        ),
        *(
            "list --json",
            "env list",
            "plan quick",
            "plan table4 --frameworks torch --threads 1,2,4-8",
        ),
        *(
            "plan threads --threads 1..4*cpus --json",
            "import foreign-a1.json --one-run --store made.sqlite",
        ),
    )
]
REPORTS = (
    "matrix",
    "threads",
    "scaling",
    "progress",
    "figure1",
    "tables",
    "ceilings",
    "runs",
    "claims",
    "rnn",
)


NUMBERS = (
    *(
        "0",
        "-1",
        "1e999",
        "nan",
        "-inf",
        "1e-320",
        "99999999999999999999999999",
        "0x10",
        "1_000",
        "٣",
    ),
    *("2147483648", "9223372036854775808", "1" * 5000, "1e308", "true", "1979-05-27"),
)
TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "\x1b[31mred\x1b[0m",
        "\r\n",
        "a" * 20_000,
        "ü\u202e",
        "\ud800",
        "'\"",
        "{}",
        "{0}",
        "%s",
    ),
    *(
        "../x",
        "$(id)",
        "*",
        "[",
        "](http://x)",
        "\\",
        "a,b",
        "-",
        "--",
        "=",
        ":",
        "~nobody-at-all",
        "\ufeff",
        "null",
    ),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        2**31,
        2**63,
        10**30,
        -(10**30),
        1.5,
        1e308,
        5e-324,
        float("nan"),
        float("-inf"),
    ),
    *("", "x", "\x00", "\x1b[31m", "\n", "a" * 10_000, "\ud800", "nan", "💥"),
    *([], [[]], {}, [None], {"": None}, {"a": {"a": {"a": []}}}, [1, 2, 3], ["x"], {"x": 1}),
)


def of_bytes(content: bytes, random: Random) -> bytes:
    """Return content with bits flipped, and pieces lost, doubled, overwritten or inserted."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        begin = random.randrange(len(damaged) + 1)
        end = min(len(damaged), begin + random.randint(1, 60))
        inserted = random.choice((*NUMBERS, *TEXTS)).encode("utf-8", errors="surrogatepass")
        piece = bytes(damaged[begin:end])
        damaged[begin:end] = random.choice(
            (
                b"",
                piece * 2,
                piece * 300,
                random.randbytes(end - begin),
                bytes(end - begin),
                piece + inserted,
            )
        )
        if damaged:
            damaged[random.randrange(len(damaged))] ^= random.choice(
                (0, 0, 1 << random.randrange(8))
            )
    if random.random() < 0.1:
        damaged = damaged[: random.randrange(len(damaged) + 1)]
    return bytes(damaged)


def of_lines(content: bytes, random: Random) -> bytes:
    """Return a text with lines lost, doubled or swapped, a value exchanged, or in another
    encoding."""
    lines = content.decode("utf-8", errors="replace").splitlines() or [""]
    for _ in range(random.choice((1, 1, 2, 3))):
        place, other_place = random.randrange(len(lines)), random.randrange(len(lines))
        key = lines[place].partition("=")[0].strip()
        depth = random.choice((5, 60, 2000))
        new = random.choice(
            (f"{key} = {_toml(random)}", f"{key}x = {_toml(random)}", f"{key} = {'[' * depth}1")
        )
        lines[place : place + 1] = random.choice(
            ([], [lines[place]] * 2, [lines[other_place]], [new], [new, lines[place]])
        )
        lines = lines or [""]
    encoding = random.choice(("utf-8",) * 12 + ("utf-16", "utf-8-sig", "latin-1"))
    return "\n".join([*lines, ""]).encode(encoding, errors="replace")


def _toml(random: Random) -> str:
    number, text = random.choice(NUMBERS), random.choice(TEXTS)
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return random.choice(
        (number, quoted, f"[{number}]", f"[{quoted}, {number}]", f"{{ a = {number} }}", "[]", '"""')
    )


def of_tree(tree: Any, random: Random) -> Any:
    """Return a tree of JSON with some values exchanged, lost, nested or moved."""
    changed = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 2, 3))):
        holder, key, inner = None, None, changed
        while (
            isinstance(inner, dict | list) and inner and (holder is None or random.random() < 0.75)
        ):
            holder = inner
            if isinstance(holder, dict):
                key = random.choice(list(holder))
            else:
                key = random.randrange(len(holder))
            inner = holder[key]
        if holder is None:
            return random.choice(VALUES)
        nested: Any = inner
        for _ in range(random.choice((1, 70, 150))):
            nested = [nested]
        scaled = inner * 1e30 if type(inner) is int or isinstance(inner, float) else str(inner)
        holder[key] = copy.deepcopy(
            random.choice((*[random.choice(VALUES) for _ in range(4)], nested, scaled))
        )
        if random.random() < 0.15:
            del holder[key]
    return changed


def of_words(
    words: Sequence[str], other_lines: Sequence[Sequence[str]], random: Random
) -> list[str]:
    """Return a command line with words lost, doubled, changed, or taken from other command
    lines."""
    changed = list(words)
    for _ in range(random.choice((1, 1, 2, 3))):
        place, donor = random.randint(1, len(changed)), random.choice(other_lines)
        word = changed[place] if place < len(changed) else ""
        at = random.randrange(len(word) + 1)
        # No terminal gives a zero byte; bytes that are not UTF-8 arrive as Python reads them.
        strange = (
            random.choice((*NUMBERS, *TEXTS)).replace("\ud800", "\udcff").replace("\x00", "\x01")
        )
        changed[place : place + 1] = random.choice(
            (
                [],
                [word, word],
                [random.choice(donor)],
                [strange],
                [word[:at] + random.choice("0-=,:*.%[ x9") + word[at:]],
            )
        )
    return changed


def of_rows(path: Path, random: Random) -> None:
    """Damage a store: rubbish inside a record, a column of another type, lost rows and tables."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [
            row[0]
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        table = random.choice(
            [table for table in tables if not table.startswith("sqlite_")] + ["records"] * 6
        )
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        texts = [column for column in columns if column in ("content", "description")]
        kind = random.random()
        with contextlib.suppress(
            sqlite3.Error, OverflowError, UnicodeError
        ):  # SQLite refuses some values
            if kind < 0.06:
                connection.execute(f"DROP TABLE {table}" if kind < 0.03 else f"DELETE FROM {table}")
            elif rows and texts and kind < 0.8:
                row = random.choice(rows)
                (text,) = connection.execute(
                    f"SELECT {texts[0]} FROM {table} WHERE rowid = ?", (row,)
                ).fetchone()
                new = json.dumps(of_tree(json.loads(text), random))
                connection.execute(f"UPDATE {table} SET {texts[0]} = ? WHERE rowid = ?", (new, row))
            elif rows:
                value = random.choice(VALUES)
                value = value if isinstance(value, str | int | float | None) else json.dumps(value)
                row = random.choice(rows)
                connection.execute(
                    f"UPDATE {table} SET {random.choice(columns)} = ? WHERE rowid = ?", (value, row)
                )


# Kinds of input.


def suite(folder: Path, random: Random) -> list[str]:
    content = random.choice((of_bytes, of_lines))(random.choice(SUITES), random)
    (folder / "mine.toml").write_bytes(content)
    return ["plan", "mine.toml", *random.choice(((), ("--json",), ("--frameworks", "null")))]


def store(folder: Path, random: Random) -> list[str]:
    packed = random.choice(sorted((GOLDENS / "stores").iterdir()))
    content = lzma.decompress(packed.read_bytes())
    path = folder / "damaged.sqlite"
    path.write_bytes(of_bytes(content, random) if random.random() < 0.3 else content)
    if random.random() < 0.7:
        path.write_bytes(content)
        of_rows(path, random)
    reports = [["report", name, "--json"] for name in REPORTS]
    commands = [
        *reports,
        ["history"],
        ["export"],
        ["compare", "previous", "latest"],
        ["plan", "quick"],
    ]
    return [*random.choice(commands), "--store", path.name]


def imported(folder: Path, random: Random) -> list[str]:
    content = random.choice(IMPORTS)
    damaged = of_bytes(content, random)
    if random.random() < 0.7:
        damaged = json.dumps(of_tree(json.loads(content), random)).encode()
    (folder / "given.json").write_bytes(damaged)
    return ["import", "given.json", "--store", "made.sqlite"]


def claim(folder: Path, random: Random) -> list[str]:
    way = random.choice((of_bytes, of_lines))
    (folder / "mine.toml").write_bytes(
        way((GOLDENS / "inputs" / "claim.toml").read_bytes(), random)
    )
    return ["report", "claims", "--reference", "shi2016", "--claim", "mine.toml"]


def adapter(folder: Path, random: Random) -> list[str]:
    mine = folder / "adapter"
    mine.mkdir()
    (mine / "adapter.py").write_text("ADAPTER = None\n")
    (mine / "requirements.lock").write_text("mine==1.0\n")
    sound = re.sub(
        rb'^name *= *"[^"]*"',
        b'name = "mine"',
        random.choice(FRAMEWORKS),
        count=1,
        flags=re.MULTILINE,
    )
    (mine / "framework.toml").write_bytes(random.choice((of_bytes, of_lines))(sound, random))
    commands = (
        ["list"],
        ["list", "--json"],
        ["plan", "quick", "--frameworks", "mine:*"],
        ["env", "list"],
    )
    return [*random.choice(commands), "--adapter", "mine=adapter"]


def words(folder: Path, random: Random) -> list[str]:
    line = random.choice(LINES)
    changed = of_words(line, LINES, random)
    for name in {word.rpartition("=")[2] for word in changed}:
        if (GOLDENS / "stores" / f"{name}.xz").is_file() and name.endswith(".sqlite"):
            (folder / name).write_bytes(
                lzma.decompress((GOLDENS / "stores" / f"{name}.xz").read_bytes())
            )
        elif name.endswith(".json") and (GOLDENS / "inputs" / name).is_file():
            shutil.copy(GOLDENS / "inputs" / name, folder)
    # Words that could write outside the folder, measure or build are not given.
    return (
        line
        if any("/" in word for word in changed) or "--now" in changed or changed[:1] != line[:1]
        else changed
    )


def complaint(code: int, out: str, err: str) -> str:
    """Return the fault in how a command ended; empty where there is none."""
    lines = err.splitlines()
    if code not in range(7) or "Traceback" in err:
        return f"exit code {code}: {err[-3000:]}"
    if code in (2, 3, 4) and not (
        "Usage: " in out or (lines and lines[-1].startswith("dlbench: "))
    ):
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
    arguments = kind(tmp_path, Random(seed))

    def too_long(number: int, frame: object) -> None:
        pytest.fail(f"{arguments} does not end: {''.join(traceback.format_stack()[-8:])}")

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            fault = complaint(*command(*arguments))
    finally:
        signal.alarm(0)
    assert fault == "", arguments


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
def test_pipes_and_endless_files_are_refused_without_waiting(
    command, tmp_path: Path, kind, name, words, code
) -> None:
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
    exit_code, out, errors = command(*words)
    assert (exit_code, out) == (code, "")
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
    assert len(line) < LINE + 100
