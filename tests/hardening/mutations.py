"""Damages real inputs: bytes, lines, the words of a command line, and trees of JSON."""

import copy
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

NUMBERS = (
    *("0", "-1", "1e999", "nan", "inf", "-inf", "1e-320", "99999999999999999999999999", "-0.0", "0x10", "1_000", "٣"),
    *("2147483648", "9223372036854775808", "1" * 5000, "1e308", "1.7976931348623157e308", "true", "1979-05-27"),
)
TEXTS = (
    *("", " ", "\x00", "\x1b[31mred\x1b[0m", "\r\n", "a" * 20_000, "ü\u202e", "\ud800", "'\"", "{}", "{0}", "%s"),
    *("../x", "$(id)", "*", "[", "](http://x)", "\\", "a,b", "-", "--", "=", ":", "~nobody-at-all", "\ufeff", "null"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, -(10**30), 1.5, 1e308, 5e-324, float("nan")),
    *(float("inf"), float("-inf"), "", "x", "\x00", "\x1b[31m", "\n", "a" * 10_000, "\ud800", "nan", "1e5", "💥"),
    *([], [[]], {}, [None], {"": None}, {"a": {"a": {"a": []}}}, [1, 2, 3], ["x"], {"x": 1}),
)


def of_bytes(content: bytes, random: Random) -> bytes:
    """Return a file's content with bits flipped, pieces lost, doubled, moved or overwritten, or cut off."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        random.choice(_OF_BYTES)(damaged, random)
    return bytes(damaged)


def _place(content: bytearray, random: Random, longest: int = 60) -> tuple[int, int]:
    begin = random.randrange(len(content) + 1)
    return begin, min(len(content), begin + random.randint(1, longest))


def _flip(content: bytearray, random: Random) -> None:
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _lose(content: bytearray, random: Random) -> None:
    begin, end = _place(content, random)
    del content[begin:end]


def _double(content: bytearray, random: Random) -> None:
    begin, end = _place(content, random)
    content[begin:begin] = content[begin:end] * random.choice((1, 1, 1, 300))


def _overwrite(content: bytearray, random: Random) -> None:
    begin, end = _place(content, random)
    content[begin:end] = random.choice((random.randbytes(end - begin), bytes(end - begin), b"\xff" * (end - begin)))


def _cut(content: bytearray, random: Random) -> None:
    if random.random() < 0.2:
        del content[random.randrange(len(content) + 1) :]


def _insert(content: bytearray, random: Random) -> None:
    begin, _ = _place(content, random)
    content[begin:begin] = random.choice((*NUMBERS, *TEXTS)).encode("utf-8", errors="surrogatepass")


_OF_BYTES: Sequence[Callable[[bytearray, Random], None]] = (_flip, _lose, _double, _overwrite, _cut, _insert)


def of_lines(content: bytes, random: Random) -> bytes:
    """Return a text with lines lost, doubled, swapped or indented, a value exchanged, or another encoding."""
    text = content.decode("utf-8", errors="replace")
    lines = text.splitlines()
    for _ in range(random.choice((1, 1, 2, 3))):
        if not lines:
            break
        place, other = random.randrange(len(lines)), random.randrange(len(lines))
        kind = random.randrange(6)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(other, lines[place])
        elif kind == 2:
            lines[place], lines[other] = lines[other], lines[place]
        elif kind == 3:
            lines[place] = _other_value(lines[place], random)
        elif kind == 4:
            key = lines[place].partition("=")[0].strip()
            lines.insert(other, f"{key}{random.choice(('x', '.a', ''))} = {_toml(random)}")
        else:
            depth = random.choice((5, 60, 2000))
            lines[place] = f"{lines[place].partition('=')[0]}= {'[' * depth}1{']' * depth}"
    encoding = random.choice(("utf-8",) * 12 + ("utf-16", "utf-8-sig", "latin-1"))
    return "\n".join([*lines, ""]).encode(encoding, errors="replace")


def _other_value(line: str, random: Random) -> str:
    for separator in random.sample(("=", ":"), 2):
        key, found, value = line.partition(separator)
        if found:
            comma = "," if value.endswith(",") else ""
            return f"{key}{separator} {_toml(random)}{comma}"
    return line + _toml(random)


def _toml(random: Random) -> str:
    """Return a value as TOML writes it, or nearly so."""
    number, text = random.choice(NUMBERS), random.choice(TEXTS)
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    choices = (number, quoted, f"[{number}]", f"[{quoted}, {number}]", f"{{ a = {number} }}", "[]", "{}", '"""')
    return random.choice(choices)


def of_tree(tree: Any, random: Random) -> Any:
    """Return a tree of JSON with some values exchanged, lost, doubled, nested or swapped."""
    changed = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        holder, key = _somewhere(changed, random)
        if holder is None:
            return random.choice(VALUES)
        kind = random.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(0, copy.deepcopy(holder[key]))
        elif kind == 1:
            holder[f"{key}{random.choice(TEXTS[:8])}"] = holder[key]
        elif kind == 2:
            other, place = _somewhere(changed, random)
            if other is not None:
                holder[key] = copy.deepcopy(other[place])
        elif kind == 3 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = random.choice((-holder[key], holder[key] * 1e30, holder[key] / 1e30, str(holder[key]), 0))
        elif kind == 4:
            for _ in range(random.choice((1, 70, 150))):
                holder[key] = [holder[key]]
        else:
            holder[key] = copy.deepcopy(random.choice(VALUES))
    return changed


def _somewhere(tree: Any, random: Random) -> tuple[Any, Any]:
    """Return a list or an object within the tree, and a place in it; (None, None) where there is none."""
    holder, key, inner = None, None, tree
    while isinstance(inner, dict | list) and inner and (holder is None or random.random() < 0.75):
        holder = inner
        key = random.choice(list(inner)) if isinstance(inner, dict) else random.randrange(len(inner))
        inner = holder[key]
    return holder, key


def of_words(words: Sequence[str], others: Sequence[Sequence[str]], random: Random) -> list[str]:
    """Return a command line with words lost, doubled, swapped, changed, or taken from other command lines."""
    changed = list(words)
    for _ in range(random.choice((1, 1, 2, 3))):
        place = random.randint(1, len(changed)) if changed else 0
        kind = random.randrange(6)
        if kind == 0:
            del changed[place : place + 1]
        elif kind == 1:
            changed[place:place] = changed[place : place + 2]
        elif kind == 2:
            other = random.choice(others)
            begin = random.randrange(len(other))
            changed[place:place] = other[begin : begin + random.randint(1, 2)]
        elif kind == 3 and place < len(changed):
            changed[place] = _word(random)
        elif kind == 4 and place < len(changed):
            word, at = changed[place], random.randrange(len(changed[place]) + 1)
            changed[place] = word[:at] + random.choice("0-=,:*.%[ x9") + word[at + random.randint(0, 2) :]
        elif place < len(changed):
            name, equals, value = changed[place].partition("=")
            changed[place] = f"{name}{equals or ','}{_word(random)}{value}"
    return changed


def _word(random: Random) -> str:
    # No terminal gives a zero byte; what is no UTF-8 comes as Python reads it.
    return random.choice((*NUMBERS, *TEXTS)).replace("\ud800", "\udcff").replace("\x00", "\x01")


def of_file(path: Path, random: Random) -> None:
    """Put something else in a file's place: nothing, a folder, a link to nowhere or to itself, a pipe, a device."""
    content = path.read_bytes()
    path.unlink()
    kind = random.randrange(8)
    if kind == 0:
        path.write_bytes(b"")
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to("nowhere-at-all")
    elif kind == 3:
        path.symlink_to(path.name)
    elif kind == 4:
        os.mkfifo(path)
    elif kind == 5:
        path.symlink_to("/dev/zero")
    elif kind == 6:
        path.symlink_to(random.choice(("/dev/null", "/proc/self/mem", "/proc/self/status", "/etc")))
    else:
        path.with_name("elsewhere").write_bytes(content)
        path.symlink_to("elsewhere")
