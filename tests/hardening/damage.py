"""Damage to real inputs: bytes, lines, trees of JSON, the words of a command line, and the rows of a store."""

import contextlib
import copy
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

NUMBERS = (
    *("0", "-1", "1e999", "nan", "-inf", "1e-320", "99999999999999999999999999", "0x10", "1_000", "٣"),
    *("2147483648", "9223372036854775808", "1" * 5000, "1e308", "true", "1979-05-27"),
)
TEXTS = (
    *("", " ", "\x00", "\x1b[31mred\x1b[0m", "\r\n", "a" * 20_000, "ü\u202e", "\ud800", "'\"", "{}", "{0}", "%s"),
    *("../x", "$(id)", "*", "[", "](http://x)", "\\", "a,b", "-", "--", "=", ":", "~nobody-at-all", "\ufeff", "null"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63, 10**30, -(10**30), 1.5, 1e308, 5e-324, float("nan"), float("-inf")),
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
        kept = bytes(damaged[begin:end])
        damaged[begin:end] = random.choice(
            (b"", kept * 2, kept * 300, random.randbytes(end - begin), bytes(end - begin), kept + inserted)
        )
        if damaged:
            damaged[random.randrange(len(damaged))] ^= random.choice((0, 0, 1 << random.randrange(8)))
    return bytes(damaged[: random.randrange(len(damaged) + 1)] if random.random() < 0.1 else damaged)


def of_lines(content: bytes, random: Random) -> bytes:
    """Return a text with lines lost, doubled or swapped, a value exchanged, or in another encoding."""
    lines = content.decode("utf-8", errors="replace").splitlines() or [""]
    for _ in range(random.choice((1, 1, 2, 3))):
        place, other = random.randrange(len(lines)), random.randrange(len(lines))
        key = lines[place].partition("=")[0].strip()
        depth = random.choice((5, 60, 2000))
        new = random.choice((f"{key} = {_toml(random)}", f"{key}x = {_toml(random)}", f"{key} = {'[' * depth}1"))
        lines[place : place + 1] = random.choice(([], [lines[place]] * 2, [lines[other]], [new], [new, lines[place]]))
        lines = lines or [""]
    encoding = random.choice(("utf-8",) * 12 + ("utf-16", "utf-8-sig", "latin-1"))
    return "\n".join([*lines, ""]).encode(encoding, errors="replace")


def _toml(random: Random) -> str:
    number, text = random.choice(NUMBERS), random.choice(TEXTS)
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return random.choice((number, quoted, f"[{number}]", f"[{quoted}, {number}]", f"{{ a = {number} }}", "[]", '"""'))


def of_tree(tree: Any, random: Random) -> Any:
    """Return a tree of JSON with some values exchanged, lost, nested or moved."""
    changed = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 2, 3))):
        holder, key, inner = None, None, changed
        while isinstance(inner, dict | list) and inner and (holder is None or random.random() < 0.75):
            holder, key = inner, random.choice(list(inner)) if isinstance(inner, dict) else random.randrange(len(inner))
            inner = holder[key]
        if holder is None:
            return random.choice(VALUES)
        nested: Any = inner
        for _ in range(random.choice((1, 70, 150))):
            nested = [nested]
        scaled = inner * 1e30 if type(inner) is int or isinstance(inner, float) else str(inner)
        holder[key] = copy.deepcopy(random.choice((*[random.choice(VALUES) for _ in range(4)], nested, scaled)))
        if random.random() < 0.15:
            del holder[key]
    return changed


def of_words(words: Sequence[str], others: Sequence[Sequence[str]], random: Random) -> list[str]:
    """Return a command line with words lost, doubled, changed, or taken from other command lines."""
    changed = list(words)
    for _ in range(random.choice((1, 1, 2, 3))):
        place, other = random.randint(1, len(changed)), random.choice(others)
        word = changed[place] if place < len(changed) else ""
        at = random.randrange(len(word) + 1)
        # No terminal gives a zero byte; bytes that are not UTF-8 arrive as Python reads them.
        strange = random.choice((*NUMBERS, *TEXTS)).replace("\ud800", "\udcff").replace("\x00", "\x01")
        changed[place : place + 1] = random.choice(
            (
                [],
                [word, word],
                [random.choice(other)],
                [strange],
                [word[:at] + random.choice("0-=,:*.%[ x9") + word[at:]],
            )
        )
    return changed


def of_rows(path: Path, random: Random) -> None:
    """Damage a store: rubbish inside a record, a column of another type, lost rows and tables."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = random.choice([each for each in tables if not each.startswith("sqlite_")] + ["records"] * 6)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = [row[0] for row in connection.execute(f"SELECT rowid FROM {table}")]
        texts = [each for each in columns if each in ("content", "description")]
        kind = random.random()
        with contextlib.suppress(sqlite3.Error, OverflowError, UnicodeError):  # SQLite refuses some values
            if kind < 0.06:
                connection.execute(f"DROP TABLE {table}" if kind < 0.03 else f"DELETE FROM {table}")
            elif rows and texts and kind < 0.8:
                row = random.choice(rows)
                (text,) = connection.execute(f"SELECT {texts[0]} FROM {table} WHERE rowid = ?", (row,)).fetchone()
                new = json.dumps(of_tree(json.loads(text), random))
                connection.execute(f"UPDATE {table} SET {texts[0]} = ? WHERE rowid = ?", (new, row))
            elif rows:
                value = random.choice(VALUES)
                value = value if isinstance(value, str | int | float | None) else json.dumps(value)
                row = random.choice(rows)
                connection.execute(f"UPDATE {table} SET {random.choice(columns)} = ? WHERE rowid = ?", (value, row))
