"""Pairs of launches: how many times longer the candidate takes than the baseline, by signed ranks.

The two launches of a pair are neighbours in time, in random order, so that whatever the machine does to both cancels in
the difference of their logarithms; under identical code that difference is symmetric about zero whatever its
distribution. Wilcoxon's signed-rank test needs no more than that (Wilcoxon 1945), the estimate is the Hodges-Lehmann
median of the pairwise means, and the interval is the one that inverts the test exactly (Hollander, Wolfe and Chicken,
Nonparametric Statistical Methods, 3rd edition, sections 3.1 to 3.3). One launch in a hundred that takes three times as
long hardly moves any of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri


def pairs_for(confidence: float) -> int:
    """Return from how many pairs on an exact two-sided interval of this confidence exists: 2 / 2**pairs is left out."""
    return math.ceil(math.log2(2 / (1 - confidence)))


FEWEST_PAIRS = pairs_for(0.95)
"""Six: 2 / 2**6 = 3 %."""

_SIMULATED_PAIRS = 40
_SIMULATIONS = 2000


@dataclass(frozen=True)
class PairedEstimate:
    """The ratio candidate / baseline over pairs, all on the natural scale."""

    ratio: float
    low: float
    """0 where so few pairs allow no interval of this confidence."""
    high: float
    """Infinite where so few pairs allow none."""
    slower_p: float
    """One-sided: how often identical code would look at least this much slower."""
    faster_p: float
    pairs: int


@lru_cache(maxsize=256)
def null_distribution(pairs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return P(signed-rank sum <= k), k = 0 ... n (n + 1) / 2, when every sign is a fair coin."""
    counts = np.zeros(pairs * (pairs + 1) // 2 + 1)
    counts[0] = 1.0
    for rank in range(1, pairs + 1):
        shifted = counts.copy()
        shifted[rank:] += counts[:-rank]
        counts = shifted / 2.0
    return np.cumsum(counts)


def estimate_pairs(baseline: Sequence[float], candidate: Sequence[float], confidence: float = 0.95) -> PairedEstimate:
    """Return the ratio of paired launches' seconds per step, the i-th of one beside the i-th of the other.

    Raises ValueError for series of different length, without pairs, or with times that are not positive and finite.
    """
    if len(baseline) != len(candidate) or len(baseline) == 0:
        raise ValueError(f"pairs need two series of one length, not of {len(baseline)} and {len(candidate)}")
    before, after = np.asarray(baseline, dtype=float), np.asarray(candidate, dtype=float)
    if not (np.isfinite(before).all() and np.isfinite(after).all() and (before > 0).all() and (after > 0).all()):
        raise ValueError("seconds per step must be positive and finite")
    differences = np.log(after) - np.log(before)
    pairs = len(differences)
    upper = np.triu_indices(pairs)
    walsh = np.sort((np.add.outer(differences, differences) / 2)[upper])
    below = null_distribution(pairs)
    # The signed-rank sum is the number of positive Walsh averages (Tukey); zeros count half.
    zeros = int(np.count_nonzero(walsh == 0.0))
    negative = int(np.count_nonzero(walsh < 0.0)) + (zeros + 1) // 2
    positive = len(walsh) - int(np.count_nonzero(walsh < 0.0)) - zeros + (zeros + 1) // 2
    cut = int(np.searchsorted(below, (1 - confidence) / 2, side="right"))
    low, high = (float(walsh[cut - 1]), float(walsh[-cut])) if cut > 0 else (-math.inf, math.inf)
    return PairedEstimate(
        ratio=math.exp(float(np.median(walsh))),
        low=math.exp(low),
        high=math.exp(high) if high < math.inf else math.inf,
        slower_p=float(below[min(negative, len(below) - 1)]),
        faster_p=float(below[min(positive, len(below) - 1)]),
        pairs=pairs,
    )


def smallest_shift(deviation: float, pairs: int, p_value: float, magnitude: float, power: float) -> float:
    """Return the relative slowdown that so many pairs find with probability ``power``; infinite where none can be.

    Found means: one-sided p of at most ``p_value`` and an estimate above ``1 + magnitude``, where the logarithms of the
    pairs' ratios are normal with standard deviation ``deviation``.
    """
    by_chance = _shift_that_shows(pairs, p_value, power) * deviation
    # The Hodges-Lehmann estimate has the asymptotic efficiency of the test, 3 / pi.
    large_enough = math.log1p(magnitude) + float(ndtri(power)) * math.sqrt(math.pi / 3 / pairs) * deviation
    return math.expm1(min(max(by_chance, large_enough), 700.0)) if by_chance < math.inf else math.inf


@lru_cache(maxsize=256)
def _shift_that_shows(pairs: int, p_value: float, power: float) -> float:
    """Return the shift, in standard deviations of a normal difference, that the test finds with this power.

    By simulation with a fixed seed, since the power of the exact test has no closed form; for many pairs by its
    asymptotic efficiency (Hollander, Wolfe and Chicken, section 3.1).
    """
    allowed = int(np.searchsorted(null_distribution(pairs), p_value, side="right"))
    if allowed == 0:
        return math.inf
    if pairs > _SIMULATED_PAIRS:
        return float(ndtri(1 - p_value) + ndtri(power)) * math.sqrt(math.pi / 3 / pairs)
    draws = np.random.default_rng(0).normal(size=(_SIMULATIONS, pairs))
    first, second = np.triu_indices(pairs)
    walsh = (draws[:, first] + draws[:, second]) / 2
    # Significant once fewer than ``allowed`` Walsh averages are negative: a shift that lifts this one to zero suffices.
    walsh.partition(allowed - 1, axis=1)
    return float(np.quantile(-walsh[:, allowed - 1], power))
