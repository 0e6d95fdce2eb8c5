"""From how many units on one device, or thread count, is faster than another.

The crossing is where the times of both are equal: linear in the logarithms between the two sizes about it. Of several
the last counts, beyond which the second is faster at every size. Its interval is of `DRAWS` drawn sets of launch means:
Student's t about the mean of enough launches; of fewer a normal deviation within the launch, and between launches what
is assumed of them elsewhere. Drawing launches again would show too little: of three, two thirds of their variance.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dlbench.reports.statistics import CONFIDENCE, PUBLISHED, Summary, variance_of_launches

DRAWS = 1000
SEED = 20170413
"""Any fixed number: the same records give the same intervals."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Crossing:
    """Where the second begins to be faster: units; 0 below the smallest measured, infinite above the largest."""

    units: float
    low: float | None
    """None where nothing tells the spread."""
    high: float | None
    smallest: int
    largest: int
    told: bool = True
    """Whether the times differ clearly at any size: else there may be no crossing at all, or any."""


def crossing(first: Mapping[int, Summary], second: Mapping[int, Summary]) -> Crossing | None:
    """Return where the second begins to be faster than the first; None of fewer than two shared sizes."""
    units = [each for each in sorted(first) if each in second]
    if len(units) < 2:
        return None
    at = np.log(np.array(units, dtype=float))
    means = [np.array([math.log(of[each].median) for each in units]) for of in (first, second)]
    (found,) = _last_change(at, (means[0] - means[1])[None, :])
    sides = [[of[each] for each in units] for of in (first, second)]
    if any(each.method == PUBLISHED for side in sides for each in side):
        return Crossing(float(found), None, None, units[0], units[-1])
    random = np.random.default_rng(SEED)
    drawn = [mean + _deviations(side, random) for mean, side in zip(means, sides, strict=True)]
    tail = (1 - CONFIDENCE) / 2
    # Ends that are drawn values: between a number and what is beyond all sizes nothing can be interpolated.
    gains = drawn[0] - drawn[1]
    low, high = np.quantile(_last_change(at, gains), [tail, 1 - tail], method="inverted_cdf")
    faster = (gains > 0).mean(axis=0)
    told = bool(np.any(np.minimum(faster, 1 - faster) <= tail / len(units)))
    return Crossing(float(found), float(low), float(high), units[0], units[-1], told)


def _deviations(side: list[Summary], random: np.random.Generator) -> Array:
    """Return by how much the mean logarithm of each cell's launches may deviate, a row for each draw."""
    columns = []
    for each in side:
        deviation = math.sqrt(variance_of_launches(each) / each.launches)
        drawn = random.standard_t(each.launches - 1, DRAWS) if each.covers_launches else random.standard_normal(DRAWS)
        columns.append(deviation * drawn)
    return np.column_stack(columns)


def _last_change(at: Array, gains: Array) -> Array:
    """Return for each row of log (first / second) the units from which on all of them are above 0."""
    count = gains.shape[1]
    behind = gains <= 0
    last = np.where(behind.any(axis=1), count - 1 - np.argmax(behind[:, ::-1], axis=1), -1)
    inner = np.clip(last, 0, count - 2)
    rows = np.arange(len(gains))
    before, after = gains[rows, inner], gains[rows, inner + 1]
    share = np.clip(-before / np.where(after > before, after - before, 1.0), 0.0, 1.0)
    between = np.exp(at[inner] + share * (at[inner + 1] - at[inner]))
    found: Array = np.where(last < 0, 0.0, np.where(last == count - 1, np.inf, between))
    return found
