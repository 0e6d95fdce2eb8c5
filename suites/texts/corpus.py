"""A text of the user's own, from a file: its 95 most frequent bytes, and one symbol for all others."""

from pathlib import Path

import numpy as np

from dlbench.adapters.families import ALPHABET

from ..errors import UsageError
from .text import Symbols, Text

LEAST = 100_000
"""Bytes: a tenth of them is kept to test with."""
MOST = 256 * 1024**2
"""Bytes that are read of a larger file."""
_CONTROL = [each for each in range(32) if each not in (9, 10, 12, 13, 27)]
_MOST_CONTROL = 0.01


def read(path: Path) -> Text:
    """Return the text of a file; raises UsageError where it is none that could be learnt from."""
    try:
        if not path.is_file():
            raise UsageError(f"--corpus: {path} is not a file. Name a text file.")
        size = path.stat().st_size
        with path.open("rb") as file:
            content = np.frombuffer(file.read(MOST), dtype=np.uint8)
    except (OSError, ValueError) as error:
        raise UsageError(f"--corpus: {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(content) < LEAST:
        raise UsageError(f"--corpus: {path} has {len(content)} bytes. Give a text of {LEAST} bytes or more.")
    counts = np.bincount(content, minlength=256)
    if counts[_CONTROL].sum() > _MOST_CONTROL * len(content):
        raise UsageError(f"--corpus: {path} is not a text but binary data. Give a text, in UTF-8 for example.")
    note = f"of {size} bytes the first {MOST} are read" if size > MOST else ""
    return Text("corpus", as_symbols(content), note=note)


def as_symbols(content: Symbols) -> Symbols:
    """Return each byte as a symbol: the most frequent one as 0 and so on, of equally frequent ones the smaller first.

    Where there are more than `ALPHABET`, those beyond the most frequent ones share the last symbol.
    """
    counts = np.bincount(content, minlength=256)
    ranks = np.empty(256, dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(256)
    return np.minimum(ranks, ALPHABET - 1).astype(np.uint8)[content]
