"""Stores packed by `xz`: read as a copy in memory, never written. Examples keep theirs so, at a tenth of the size."""

import lzma
import sqlite3
from pathlib import Path

from dlbench.reports.errors import StoreError

SUFFIX = ".xz"
_HEADER = b"SQLite format 3\0"
_JOURNAL_MODES = slice(18, 20)
"""Where a SQLite file says how it is written: 2 for a write-ahead log, which a copy in memory cannot have."""


def copy_of(path: Path, largest: int) -> bytes:
    """Return a packed store as SQLite takes it; raises StoreError for what is none, or has more bytes than that."""
    try:
        with lzma.open(path) as file:
            content = bytearray(file.read(largest + 1))
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise StoreError(f"{path} cannot be unpacked ({error}); choose another file with --store.") from error
    if len(content) > largest:
        raise StoreError(f"{path} is too large to be read packed; unpack it first: xz --decompress {path}")
    if not content.startswith(_HEADER):
        raise StoreError(f"{path} holds no result store; choose another file with --store.")
    content[_JOURNAL_MODES] = b"\1\1"
    return bytes(content)


def connection(content: bytes) -> sqlite3.Connection:
    """Return a connection to such a copy."""
    found = sqlite3.connect(":memory:", check_same_thread=False)
    found.deserialize(content)
    return found
