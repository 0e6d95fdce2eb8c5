"""The nodes of several kinds on all their things, each against the others, with p-values adjusted together.

While nothing is told nothing is set aside (`numbers`), so that setting aside adds no false alarm to the first one,
which Holm's procedure bounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlbench.reports.evidence.one_of_several import Differences, Flags, Floats
from dlbench.reports.fleet.nodes import Kind
from dlbench.reports.fleet.numbers import Numbers
from dlbench.reports.statistics import CONFIDENCE, LAUNCH_DEVIATION, WORSE, Ratio, holm, judge

SLOW, FAST, LIKE, UNKNOWN = "slow", "fast", "like the others", "cannot be told"


@dataclass(frozen=True)
class Judged:
    """One node against the others, on one thing or in the mean of all of its things."""

    ratio: Ratio
    others: int
    """Nodes that it is held against."""
    p_adjusted: float | None
    """After Holm; None where too few launches were made."""
    verdict: str


Table = list[list[Judged | None]]
"""By node and thing; None where there is no such mean, or nothing to hold it against."""


def contrasts(kinds: Sequence[Kind]) -> list[tuple[Table, list[Judged | None]]]:
    """Return of each kind every node on every thing, and every node in the mean of its things."""
    numbers = [Numbers(kind) for kind in kinds]
    while True:
        both = [each.differences() for each in numbers]
        things = _judged([one for one, _ in both], [each.tested for each in numbers])
        nodes = _judged([mean for _, mean in both], [each.all_tested() for each in numbers])
        told = [tuple(_distances(each) for each in pair) for pair in zip(things, nodes, strict=True)]
        steps = [each.set_aside(*pair) for each, pair in zip(numbers, told, strict=True)]
        if not any(steps):
            break
    return [_tables(each, *pair) for each, pair in zip(numbers, zip(things, nodes, strict=True), strict=True)]


@dataclass(frozen=True)
class _Verdicts:
    """Differences with what they mean."""

    differences: Differences
    p_adjusted: Floats
    halves: Floats
    words: np.ndarray[tuple[int, ...], np.dtype[np.str_]]


def _judged(differences: Sequence[Differences], tested: Sequence[Flags]) -> list[_Verdicts]:
    """Return the verdicts of one family of tests, of all kinds together.

    Where launches are too few for a test the interval decides, of a confidence for as many tests (Bonferroni).
    """
    p_values = [np.where(flags, each.p_values(), np.nan) for each, flags in zip(differences, tested, strict=True)]
    adjusted = iter(holm([float(p) for each in p_values for p in each[~np.isnan(each)]]))
    count = sum(int((~np.isnan(each.values)).sum()) for each in differences)
    found = []
    for each, p_value in zip(differences, p_values, strict=True):
        p_value[~np.isnan(p_value)] = [next(adjusted) for _ in range(int((~np.isnan(p_value)).sum()))]
        halves, wide = (each.half_widths(1 - share) for share in (1 - CONFIDENCE, (1 - CONFIDENCE) / max(1, count)))
        words = np.full(each.values.shape, "", dtype="<U16")
        for at in zip(*np.nonzero(~np.isnan(each.values)), strict=True):
            p = None if np.isnan(p_value[at]) else float(p_value[at])
            words[at] = _verdict(_ratio(each.values[at], halves[at]), _ratio(each.values[at], wide[at]), p)
        found.append(_Verdicts(each, p_value, halves, words))
    return found


def _ratio(value: float, half: float, method: str = "") -> Ratio:
    return Ratio(math.exp(value), math.exp(value - half), math.exp(value + half), method)


def _verdict(shown: Ratio, wide: Ratio, p_adjusted: float | None) -> str:
    """Return what can be said: like the others is what lies within `WORSE` of 1 with its whole interval."""
    word = {"worse": SLOW, "better": FAST}.get(judge(shown if p_adjusted is not None else wide, p_adjusted))
    if word:
        return word
    within = shown.low is not None and shown.high is not None and shown.low >= 1 / WORSE and shown.high <= WORSE
    return LIKE if within else UNKNOWN


def _distances(found: _Verdicts) -> Floats:
    """Return how far out each is that is told, in logarithms; else 0."""
    told = (found.words == SLOW) | (found.words == FAST)
    distances: Floats = np.where(told, found.differences.values, 0.0)
    return distances


def _tables(numbers: Numbers, things: _Verdicts, nodes: _Verdicts) -> tuple[Table, list[Judged | None]]:
    others = numbers.others.sum(axis=0) - numbers.others
    table: Table = [
        [
            _shown(things, (row, column), int(others[row, column]), bool(numbers.tested[row, column]))
            for column in range(others.shape[1])
        ]
        for row in range(len(numbers.nodes))
    ]
    every = numbers.all_tested()
    most = np.where(numbers.means.present, others, 0).max(axis=1, initial=0)
    means = [_shown(nodes, (row,), int(most[row]), bool(every[row])) for row in range(len(numbers.nodes))]
    return table, means


def _shown(found: _Verdicts, at: tuple[int, ...], others: int, tested: bool) -> Judged | None:
    value = float(found.differences.values[at])
    if math.isnan(value):
        return None
    what = f"{CONFIDENCE:.0%} t over launch log-medians, against the mean of the others"
    if not tested:
        what += f"; where launches are too few they are taken to deviate by {LAUNCH_DEVIATION:.0%}"
    p_value = float(found.p_adjusted[at])
    ratio = _ratio(value, float(found.halves[at]), what)
    return Judged(ratio, others, None if math.isnan(p_value) else p_value, str(found.words[at]))
