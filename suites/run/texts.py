"""Texts to train character models on: the generated one, of known entropy, and a user's file."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlbench.adapters.families import ALPHABET

from ..environments.folders import home, make_folder, write_whole, written
from ..errors import UsageError

Symbols = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Text:
    """A text as symbols from 0."""

    name: str  # "generated" or "corpus"; a user's file has no name in a record
    symbols: Symbols
    floor: float | None = None  # nats for a symbol that no model can do better than, where known
    note: str = ""  # on how it was read

    @cached_property
    def digest(self) -> str:
        """The identifier of the text."""
        return hashlib.sha256(self.symbols.tobytes()).hexdigest()[:16]

    def described(self) -> dict[str, Any]:
        """Return the description that a record keeps."""
        return {
            "name": self.name,
            "digest": self.digest,
            "symbols": len(self.symbols),
            "floor": self.floor,
        }

    def file(self) -> Path:
        """Return the file that launches read, after writing it if it is missing or differs."""
        path = make_folder(home() / "texts") / f"{self.digest}.bin"
        content = self.symbols.tobytes()
        if not (path.is_file() and path.read_bytes() == content):
            with written(path.parent):
                write_whole(path, content)
        return path


LEAST_BYTES = 100_000
"""Fewest bytes of a text. A tenth of them is kept to test with."""
MOST_BYTES = 256 * 1024**2
"""Bytes that are read of a larger file."""
_CONTROL = [byte for byte in range(32) if byte not in (9, 10, 12, 13, 27)]
_MOST_CONTROL = 0.01
"""Share of control characters up to which a file is text."""


def read_corpus(path: Path) -> Text:
    """Return the text of a file. Raises UsageError for an unsuitable one."""
    try:
        if not path.is_file():
            raise UsageError(f"--corpus: {path} is not a file. Name a text file.")
        size = path.stat().st_size
        with path.open("rb") as file:
            content = np.frombuffer(file.read(MOST_BYTES), dtype=np.uint8)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--corpus: {path} cannot be read: {reason}.") from error
    if len(content) < LEAST_BYTES:
        raise UsageError(
            f"--corpus: {path} has {len(content)} bytes. Give a text of {LEAST_BYTES} bytes or "
            "more."
        )
    counts = np.bincount(content, minlength=256)
    if counts[_CONTROL].sum() > _MOST_CONTROL * len(content):
        raise UsageError(
            f"--corpus: {path} is binary data, not text. Give a text file, for example in UTF-8."
        )
    note = f"only the first {MOST_BYTES} of {size} bytes are read" if size > MOST_BYTES else ""
    return Text("corpus", as_symbols(content), note=note)


def as_symbols(content: Symbols) -> Symbols:
    """Return each byte as a symbol, numbered from the most frequent byte (0).

    On a tie the smaller byte comes first. If there are more than `ALPHABET`, the rarest bytes share
    the last symbol.
    """
    counts = np.bincount(content, minlength=256)
    ranks = np.empty(256, dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(256)
    return np.minimum(ranks, ALPHABET - 1).astype(np.uint8)[content]


STREAMS, LENGTH = 1024, 8190
"""Number and length of the stretches of the text, each of 126 whole lines.

A bracket that is open at a seam is forgotten."""
LETTERS, KINDS, DEEPEST, LINE = 87, 4, 8, 64
OPENING, CLOSING, BREAK = LETTERS, LETTERS + KINDS, ALPHABET - 1
CLASSES = 2
FOLLOWERS = 8
_STEPS = 2**16
_BRACKET = 3277
"""A share of 0.05 of `_STEPS`."""
_SEED = 2016
Integers = npt.NDArray[np.int64]


# The likelier followers have the larger shares of `_STEPS`. These are the ends of their shares.
_WEIGHTS = 1.0 / np.arange(1, FOLLOWERS + 1)
_CUT: Integers = np.rint(np.cumsum(_WEIGHTS) / _WEIGHTS.sum() * _STEPS).astype(np.int64)


def followers() -> Integers:
    """Return the letters that may follow others, the likeliest first.

    The axes are the class of the earlier letter, the letter before, and the rank.
    """
    drawn = np.frombuffer(
        np.random.RandomState(_SEED).bytes(2 * CLASSES * LETTERS * LETTERS), dtype="<u2"
    )
    keys = drawn.reshape(CLASSES, LETTERS, LETTERS).astype(np.int64) * np.arange(1, LETTERS + 1)
    letters: Integers = np.argsort(keys, axis=-1, kind="stable")[:, :, :FOLLOWERS]
    return letters


def entropy() -> float:
    """Return the mean entropy of a symbol, in nats, where the past is known.

    As many brackets open as close, at every depth alike, so each of the depths 0 to 8 comes equally
    often.
    """
    bracket = _BRACKET / _STEPS
    shares = np.diff(_CUT, prepend=0) / _STEPS
    letter = float(-(shares * np.log(shares)).sum())
    kind = float(np.log(KINDS))

    def entropy_with(openings: float, closings: float) -> float:
        letters = 1.0 - openings - closings
        chances = [chance for chance in (openings, closings, letters) if chance]
        choice = -sum(chance * float(np.log(chance)) for chance in chances)
        return choice + openings * kind + letters * letter

    lowest = entropy_with(bracket, 0.0)
    between = (DEEPEST - 1) * entropy_with(bracket, bracket)
    deepest = entropy_with(0.0, bracket)
    return (lowest + between + deepest) / (DEEPEST + 1) * LINE / (LINE + 1)


def symbols(streams: int = STREAMS, length: int = LENGTH) -> Symbols:
    """Return the generated text, or one of fewer and shorter stretches that are not parts of it."""
    random = np.random.RandomState(_SEED + 1)

    def draw() -> Integers:
        return np.frombuffer(random.bytes(2 * streams), dtype="<u2").astype(np.int64)

    table = followers()
    stream = np.arange(streams)
    depth = draw() % (DEEPEST + 1)
    stack = np.stack([draw() % KINDS for _ in range(DEEPEST)], axis=1)
    earlier = draw() % LETTERS
    last = draw() % LETTERS
    text = np.empty((length, streams), dtype=np.uint8)
    for place in range(length):
        if place % (LINE + 1) == LINE:
            text[place] = BREAK
            continue
        choice = draw()
        detail = draw()
        opens = (choice < _BRACKET) & (depth < DEEPEST)
        closes = (choice >= _STEPS - _BRACKET) & (depth > 0)
        letter = table[earlier % CLASSES, last, np.searchsorted(_CUT, detail, side="right")]
        kind = detail % KINDS
        top = stack[stream, np.maximum(depth - 1, 0)]
        closing_or_letter = np.where(closes, CLOSING + top, letter)
        text[place] = np.where(opens, OPENING + kind, closing_or_letter)
        stack[stream[opens], depth[opens]] = kind[opens]
        depth += opens.astype(np.int64) - closes
        earlier = np.where(opens | closes, earlier, last)
        last = np.where(opens | closes, last, letter)
    return np.ascontiguousarray(text.T).reshape(-1)


def generated_text() -> Text:
    """Return the generated text."""
    return Text("generated", symbols(), entropy())
