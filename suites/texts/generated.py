"""The text that comes with dlbench: generated, the same bits everywhere, and of known entropy.

Lines of 64 symbols and a line break. A symbol within a line is, with probability `_BRACKET` each, one of four opening
brackets (while fewer than 8 are open) or the bracket that closes the last one opened (while one is open); else a
letter: one of 8 that may follow the two letters before it, the i-th with a weight of 1/i. Of the earlier of the two
only its class counts, one of `CLASSES`, so that a small network can learn the table; letters with a small number
follow more often.

Who knows the whole past knows the two letters, the brackets that are open and the column, and so how likely each next
symbol is: the mean entropy of that is the floor of the loss. Brackets and lines take a memory.
"""

import numpy as np
import numpy.typing as npt

from dlbench.adapters.families import ALPHABET

from .text import Symbols, Text

STREAMS, LENGTH = 1024, 8190
"""Stretches one behind the other, each of 126 whole lines; a bracket that is open at a seam is forgotten."""
LETTERS, KINDS, DEEPEST, LINE = 87, 4, 8, 64
OPENING, CLOSING, BREAK = LETTERS, LETTERS + KINDS, ALPHABET - 1
CLASSES = 2
FOLLOWERS = 8
_STEPS = 2**16
_BRACKET = 3277
"""Of `_STEPS`: 0.05."""
_SEED = 2016
Integers = npt.NDArray[np.int64]


def _cut() -> Integers:
    """Return the ends of the followers' shares of `_STEPS`."""
    weights = 1.0 / np.arange(1, FOLLOWERS + 1)
    ends: Integers = np.rint(np.cumsum(weights) / weights.sum() * _STEPS).astype(np.int64)
    return ends


def followers() -> Integers:
    """Return the letters that may follow, (class of the earlier letter, letter before, which), the likeliest first."""
    drawn = np.frombuffer(np.random.RandomState(_SEED).bytes(2 * CLASSES * LETTERS * LETTERS), dtype="<u2")
    keys = drawn.reshape(CLASSES, LETTERS, LETTERS).astype(np.int64) * np.arange(1, LETTERS + 1)
    found: Integers = np.argsort(keys, axis=-1, kind="stable")[:, :, :FOLLOWERS]
    return found


def entropy() -> float:
    """Return the mean entropy of a symbol, in nats, where the past is known.

    As many brackets open as close, at every depth alike, so each of the depths 0 to 8 comes equally often.
    """
    bracket = _BRACKET / _STEPS
    shares = np.diff(_cut(), prepend=0) / _STEPS
    letter, kind = float(-(shares * np.log(shares)).sum()), float(np.log(KINDS))

    def of(openings: float, closings: float) -> float:
        chances = [each for each in (openings, closings, 1.0 - openings - closings) if each]
        choice = -sum(each * float(np.log(each)) for each in chances)
        return choice + openings * kind + (1.0 - openings - closings) * letter

    between = (DEEPEST - 1) * of(bracket, bracket)
    return (of(bracket, 0.0) + between + of(0.0, bracket)) / (DEEPEST + 1) * LINE / (LINE + 1)


def symbols(streams: int = STREAMS, length: int = LENGTH) -> Symbols:
    """Return the text, or one of fewer and shorter stretches that are not parts of it."""
    random = np.random.RandomState(_SEED + 1)

    def draw() -> Integers:
        return np.frombuffer(random.bytes(2 * streams), dtype="<u2").astype(np.int64)

    table, cut, every = followers(), _cut(), np.arange(streams)
    depth = draw() % (DEEPEST + 1)
    stack = np.stack([draw() % KINDS for _ in range(DEEPEST)], axis=1)
    earlier, last = draw() % LETTERS, draw() % LETTERS
    found = np.empty((length, streams), dtype=np.uint8)
    for place in range(length):
        if place % (LINE + 1) == LINE:
            found[place] = BREAK
            continue
        choice, which = draw(), draw()
        opens = (choice < _BRACKET) & (depth < DEEPEST)
        closes = (choice >= _STEPS - _BRACKET) & (depth > 0)
        letter = table[earlier % CLASSES, last, np.searchsorted(cut, which, side="right")]
        kind, top = which % KINDS, stack[every, np.maximum(depth - 1, 0)]
        found[place] = np.where(opens, OPENING + kind, np.where(closes, CLOSING + top, letter))
        stack[every[opens], depth[opens]] = kind[opens]
        depth += opens.astype(np.int64) - closes
        earlier = np.where(opens | closes, earlier, last)
        last = np.where(opens | closes, last, letter)
    return np.ascontiguousarray(found.T).reshape(-1)


def text() -> Text:
    """Return the text."""
    return Text("generated", symbols(), entropy())
