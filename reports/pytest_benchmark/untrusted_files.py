"""Files of somebody else: read within limits, as strict JSON, with names that no terminal or database trips over."""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlbench.reports.errors import ReportError
from dlbench.reports.formats.inert import WHOLE, visible

LARGEST_FILE = 500_000_000
"""Bytes; a larger file is refused unread."""
DEEPEST = 60
"""Levels of nesting; no benchmark's own information needs more, and the store must be able to write it again."""
LONGEST_NAME = 128
"""Characters, as the store's columns have them."""


class FileError(ReportError):
    """A file that cannot be read as pytest-benchmark's."""


def read_bytes(name: str) -> bytes:
    """Return a file's bytes; raises FileError where it cannot be read or is larger than `LARGEST_FILE`."""
    try:
        # A shell's <(...) is a pipe too, which somebody writes.
        if Path(name).is_fifo() and not name.startswith(("/dev/", "/proc/")):
            raise FileError(f"{name} cannot be read: it is a pipe. Name a file.")
        with Path(name).open("rb") as stream:
            if os.fstat(stream.fileno()).st_size <= LARGEST_FILE:
                raw = stream.read(LARGEST_FILE + 1)
                if len(raw) <= LARGEST_FILE:
                    return raw
    except (OSError, ValueError) as error:
        raise FileError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    raise FileError(
        f"{name} is larger than {LARGEST_FILE // 10**6} MB, more than is read here. Save fewer benchmarks in a file."
    )


def parse_json(raw: bytes) -> Any:
    """Parse JSON; raises ValueError for what is not text, not JSON, not finite, or has a key twice."""

    def constant(text: str) -> Any:
        raise ValueError(f"{text} is not a number")

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:40]} is too large")
        return value

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            keys = [key for key, _ in found]
            twice = next(key for key in made if keys.count(key) > 1)
            raise ValueError(f"the key {twice[:60]!r} appears twice in an object")
        return made

    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not text in UTF-8") from error
    return json.loads(text, parse_constant=constant, parse_float=number, object_pairs_hook=pairs)


def deeper(value: Any, levels: int) -> bool:
    """Tell whether lists and objects are nested more than so many levels deep."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return levels == 0 or any(deeper(each, levels - 1) for each in value)


def sound_name(text: str) -> bool:
    """Tell whether a name is printable and no longer than `LONGEST_NAME`."""
    return len(text) <= LONGEST_NAME and text.isprintable()


def clean_name(text: str) -> str:
    """Return a name that every table and database takes: printable, at most `LONGEST_NAME` long, still its own."""
    clean = visible(text, WHOLE)
    if clean == text and len(text) <= LONGEST_NAME:
        return text
    return f"{clean[: LONGEST_NAME - 10]}~{hash_of(text)[:8]}"


def hash_of(text: str) -> str:
    """Return the SHA-256 of a text, hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def said(error: BaseException) -> str:
    """Return what an error says, in one line: of a validation where, and what is wrong there."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return clean_name(f"{where + ': ' if where else ''}{first['msg']}")
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON ({error.msg} at line {error.lineno})"
    return " ".join(str(error).split()).rstrip(".")
