"""The generated text: the same bits everywhere, and as uncertain as its closed form says."""

import math
from collections import Counter

import numpy as np
import pytest

from dlbench.adapters.families import ALPHABET
from dlbench.suites.run import texts
from dlbench.suites.run.texts import BREAK, CLASSES, CLOSING, DEEPEST, KINDS, LETTERS, LINE, OPENING

STREAMS, LENGTH = 64, 1300
SYMBOLS = texts.symbols(STREAMS, LENGTH).reshape(STREAMS, LENGTH)


def parsed():
    """Yield for each symbol its kind, the depth before it, and the letters before it, as a reader of the text tells.

    Depth is known from the first time on that a reader is sure of it: never more than `DEEPEST` are open, nor less than
    none, so the span of all later depths tells it once it is as wide as it can be.
    """
    for stream in SYMBOLS:
        steps = [1 if OPENING <= each < CLOSING else -1 if CLOSING <= each < BREAK else 0 for each in stream]
        heights = np.concatenate([[0], np.cumsum(steps)])
        if heights.max() - heights.min() < DEEPEST:
            continue  # nobody can tell how many were open at first
        letters: list[int] = []
        for place, symbol in enumerate(stream):
            yield place, int(symbol), int(heights[place] - heights.min()), letters[-2:]
            if symbol < LETTERS:
                letters.append(int(symbol))


def test_its_bits_are_the_same_everywhere():
    text = texts.generated_text()
    assert text.digest == "32ffacef266fc754"
    assert len(text.symbols) == 1024 * 126 * 65
    assert (text.symbols.min(), text.symbols.max()) == (0, ALPHABET - 1)
    assert text.described()["floor"] == pytest.approx(2.0351, abs=1e-4)


def test_lines_and_brackets_are_as_they_should_be():
    seen = 0
    for place, symbol, depth, _ in parsed():
        seen += 1
        assert (symbol == BREAK) == (place % (LINE + 1) == LINE)
        assert 0 <= depth <= DEEPEST
    assert seen > 20 * LENGTH
    for stream in SYMBOLS:
        opened: list[int] = []
        for symbol in map(int, stream):
            if OPENING <= symbol < CLOSING:
                opened.append(symbol - OPENING)
            elif CLOSING <= symbol < BREAK and opened:
                assert opened.pop() == symbol - CLOSING


def test_its_entropy_is_that_of_a_model_who_knows_the_rules():
    """The mean surprise of the text, by chances written down here anew, lies about the closed form."""
    table = texts.followers()
    weights = [1 / rank / sum(1 / each for each in range(1, 9)) for rank in range(1, 9)]
    surprises = []
    for place, symbol, depth, letters in parsed():
        if place % (LINE + 1) == LINE:
            surprises.append(0.0)
            continue
        opens, closes = 0.05 * (depth < DEEPEST), 0.05 * (depth > 0)
        if symbol >= OPENING:
            chance = opens / KINDS if symbol < CLOSING else closes
        elif len(letters) < 2:
            continue
        else:
            rank = list(table[letters[0] % CLASSES, letters[1]]).index(symbol)
            chance = (1 - opens - closes) * weights[rank]
        surprises.append(-math.log(chance))
    error = float(np.std(surprises)) / math.sqrt(len(surprises))
    assert error < 0.01
    assert abs(float(np.mean(surprises)) - texts.entropy()) < 4 * error


def test_each_depth_comes_equally_often():
    """What the closed form takes for granted; depths last about ten symbols, so few of them are independent."""
    depths = Counter(depth for _, _, depth, _ in parsed())
    shares = np.array([depths[depth] for depth in range(DEEPEST + 1)]) / depths.total()
    assert np.abs(shares - 1 / (DEEPEST + 1)).max() < 0.04
