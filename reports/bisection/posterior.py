"""Where a slowdown began: a binary search whose comparisons are noisy.

Candidates stand in order (releases, commits, builds) behind a good one, and the last of them is bad. A pair of
launches, of the good one and of a candidate side by side, gives the logarithm of a ratio of times. Its distribution is
Student's with `FREEDOM` degrees, so that a launch in somebody's way proves little, around 0 before the change and
around the size of the change from there on.

A posterior over the place of the change, and over there being none, is updated with each pair, and the next candidate
is the one that splits it most evenly: Horstein 1963, "Sequential transmission using noiseless feedback" (IEEE
Transactions on Information Theory 9, 136-143); Waeber, Frazier and Henderson 2013, "Bisection search with noisy
responses" (SIAM Journal on Control and Optimization 51, 2261-2279). They know the probability that an answer is wrong;
here it follows from the pairs, since size and deviation are unknown and integrated over, on a grid around what the
pairs of the bad end show. All such candidates are asked alike, so the most even split is also the most informative one.

The same pairs under two changes, with a level between them that is neither end's, are the third hypothesis
(`several_changes`): a ratio of marginal likelihoods, which optional stopping does not bias. It sees what the search
happens to measure; a slowdown that was undone in a part that was never measured stays unknown.

Pairs of one candidate are taken to deviate around its true ratio by chance alone. Two builds of the same source may
differ by a per cent or so for good, which counts as deviation here.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
Evidence = Mapping[int, Sequence[float]]
"""Logarithms of the pairs' ratios, candidate over good, by the candidate's place: 1 is the one behind the good one."""

FREEDOM = 10.0
"""Degrees of freedom of the pairs' distribution."""
CONFIDENCE = 0.95
ABSENT = 0.5
"""Probability beforehand that nothing changed."""
SEVERAL = 0.1
"""Probability beforehand of two changes, where anything changed."""
DOUBT = 0.1
"""With so large a probability of two changes no place is named, and the pairs that show it are repeated."""
MOST_PAIRS = 400
"""A search that needs more is given up, as on a machine that is never quiet."""
BUILT = 0.8
"""A candidate that was measured before is taken again if it is at least this informative, relative to the best one."""

_SIZES, _SCALES, _LEVELS = 11, 7, 33
_WIDTH = 4.0
"""Half-width of the grid of sizes, in standard errors."""
_FACTOR = 2.2
"""The grid of scales reaches from 1 / this to this times the scale that the bad end's pairs show."""
_LEAST_SCALE = 5e-4
"""Of pairs: a smaller one is rounding."""
_NORMAL = 1.4826
"""Standard deviations of a normal distribution in a median absolute deviation."""
_APART = 0.25
"""A level between two changes lies so far from both ends at least, in sizes of the whole change."""


class Grid(NamedTuple):
    """The sizes of the change, and the scales of pairs around it, that are integrated over."""

    sizes: Floats
    """Logarithms; those below 0 count for nothing."""
    scales: Floats


class Posterior(NamedTuple):
    """What pairs say of one change or none."""

    places: Floats
    """The probability that the slowdown began with each candidate."""
    absent: float
    """The probability that nothing changed."""
    sizes: Floats
    """The probability of each size, where something changed."""
    log_evidence: float
    """Logarithm of the marginal likelihood."""


def grid_of(ratios: Sequence[float]) -> Grid:
    """Return the grid around the log ratios of the bad end's pairs."""
    scale = max(_deviation(np.asarray(ratios) - np.median(ratios)), _LEAST_SCALE)
    error = scale * math.sqrt(math.pi / 2 / len(ratios))  # of a median
    sizes = np.median(ratios) + error * np.linspace(-_WIDTH, _WIDTH, _SIZES)
    return Grid(sizes, scale * np.geomspace(1 / _FACTOR, _FACTOR, _SCALES))


def _deviation(residuals: Floats) -> float:
    return _NORMAL * float(np.median(np.abs(residuals)))


def likelihoods(ratios: Sequence[float], sizes: Floats, scales: Floats) -> Floats:
    """Return the log likelihood of all these ratios around each size at each scale, but for a constant."""
    residuals = np.asarray(ratios, dtype=float)[:, None, None] - sizes[:, None]
    density = -(FREEDOM + 1) / 2 * np.log1p((residuals / scales) ** 2 / FREEDOM) - np.log(scales)
    found: Floats = density.sum(axis=0)
    return found


def sums(evidence: Evidence, candidates: Sequence[int], grid: Grid) -> tuple[Floats, Floats]:
    """Return the log likelihoods of these candidates' pairs, 0 without any: before the change, and behind it.

    Their axes are (candidates, scales) and (candidates, sizes, scales).
    """
    before = np.zeros((len(candidates), len(grid.scales)))
    after = np.zeros((len(candidates), len(grid.sizes), len(grid.scales)))
    for row, candidate in enumerate(candidates):
        if pairs := evidence.get(candidate):
            before[row], after[row] = likelihoods(pairs, np.zeros(1), grid.scales)[0], likelihoods(pairs, *grid)
    return before, after


def posterior(before: Floats, after: Floats, grid: Grid, weights: Floats) -> Posterior:
    """Return what pairs say by their `sums`; ``weights`` are the candidates' probabilities beforehand."""
    # The sum over all candidates as if behind the change, less what those before a place lose by that.
    lost = after - before[:, None]
    joint = after.sum(axis=0) - lost.cumsum(axis=0) + lost
    joint += _log_prior(grid) + np.log((1 - ABSENT) * weights)[:, None, None]
    none = before.sum(axis=0) + math.log(ABSENT)
    peak = max(joint.max(), none.max())
    joint, none = np.exp(joint - peak), np.exp(none - peak)
    total = joint.sum() + none.sum()
    sizes = joint.sum(axis=(0, 2))
    log_evidence = float(peak + np.log(total)) - math.log(len(grid.scales))
    return Posterior(joint.sum(axis=(1, 2)) / total, float(none.sum() / total), sizes / sizes.sum(), log_evidence)


def _log_prior(grid: Grid) -> Floats:
    """Return the log probability beforehand of each size, (sizes, 1): alike for all that are a slowdown."""
    slower = grid.sizes > 0
    return np.where(slower, -math.log(max(1, slower.sum())), -np.inf)[:, None]


def several_changes(
    evidence: Evidence, candidates: Sequence[int], grid: Grid, weights: Floats, magnitude: float
) -> tuple[float, int | None]:
    """Return the log evidence of two changes, and the candidate that shows a level between them best.

    Good, a level and bad follow one another, and at least one measured candidate has that level. It may lie between
    the ends, below or above both, but by `_APART` of the whole change, or a slowdown of ``magnitude``, from either. The
    evidence is -inf, and the candidate None, where no measured candidate is left for it.
    """
    tested = [place for place, each in enumerate(candidates) if evidence.get(each)]
    whole = float(np.median(grid.sizes))
    apart = max(_APART * whole, math.log1p(magnitude))
    levels = np.linspace(-1.5 * whole, 2.5 * whole, _LEVELS)
    levels = levels[(np.abs(levels) >= apart) & (np.abs(levels - whole) >= apart)]
    if len(tested) < 2 or not len(levels):
        return -math.inf, None
    pairs = [evidence[candidates[place]] for place in tested]
    before, after = sums(evidence, [candidates[place] for place in tested], grid)
    between = np.array([likelihoods(each, levels, grid.scales) for each in pairs])
    # A change between two measured candidates may be any of those between: the places' probabilities add up.
    mass = np.log(np.diff(np.cumsum(weights)[tested], prepend=0.0))
    # Of the measured ones ahead of each, and from each on.
    ahead, ahead_between = (each.cumsum(axis=0) - each for each in (before, between))
    from_it = np.logaddexp.reduce(after.sum(axis=0) - after.cumsum(axis=0) + after + _log_prior(grid), axis=1)
    first, second = np.triu_indices(len(tested), 1)
    level = np.logaddexp.reduce(ahead_between[second] - ahead_between[first], axis=1) - math.log(len(levels))
    joint = ahead[first] + level + from_it[second] + (mass[first] + mass[second] + math.log(2))[:, None]
    of_both = np.logaddexp.reduce(joint, axis=1) - math.log(len(grid.scales))
    best = int(np.argmax(of_both))
    shown = max(range(first[best], second[best]), key=lambda each: len(pairs[each]))
    return float(np.logaddexp.reduce(of_both)), candidates[tested[shown]]


@dataclass(frozen=True)
class Assessment:
    """What all pairs so far say."""

    candidates: tuple[int, ...]
    """Those that can be tested, in order; a place that cannot be counts for the next one that can."""
    places: tuple[float, ...]
    """The probability that the slowdown began with each, or one before it that cannot be tested, if with any one."""
    absent: float
    """The probability that nothing changed, unless several changes are likely."""
    several: float
    """The probability of two changes. Beside a place that is certain a small one means another change elsewhere."""
    between: int | None
    """The measured candidate that shows best that there are two."""
    size: float
    """Of the slowdown: median of its ratio, and the ends of its interval."""
    low: float
    high: float
    deviation: float
    """Of a pair's log ratio, about."""

    def decided(self, confidence: float = CONFIDENCE) -> bool:
        """Tell whether one answer is as probable as that: several changes or, if they are unlikely, a place or none."""
        return self.several >= confidence or (self.several < DOUBT and max(*self.places, self.absent) >= confidence)

    def range(self, confidence: float = CONFIDENCE) -> tuple[int, int]:
        """Return the fewest neighbours that are together as probable as that, by their first and last index."""
        reached = np.concatenate([[0.0], np.cumsum(self.places)])
        wanted = min(confidence, reached[-1]) - 1e-12
        spans = (
            (last - first, -(reached[last + 1] - reached[first]), first, last)
            for first in range(len(self.places))
            if (last := int(np.searchsorted(reached, reached[first] + wanted)) - 1) < len(self.places)
        )
        return min(spans)[2:]

    def following(self, measured: Collection[int]) -> int:
        """Return the candidate to measure next: the median of the posterior, or nearly; in doubt the one between.

        One that was ``measured`` before, and so needs no build, is taken where it tells nearly as much (`BUILT`). With
        the probability p that the change is not behind a candidate, noisy pairs of it tell in proportion to p (1 - p).
        """
        if self.between is not None and self.several >= DOUBT:
            return self.between
        reached = np.cumsum(self.places)
        gain = reached * np.maximum(0.0, 1 - reached)
        gain[-1] = -1.0  # nothing is to be learnt from the last one
        built = np.where([each in measured for each in self.candidates], gain, -1.0)
        return self.candidates[int(np.argmax(built if built.max() >= BUILT * gain.max() else gain))]

    def pairs_left(self, confidence: float = CONFIDENCE) -> int:
        """Return roughly how many pairs the search still takes, at least one; 0 where it is decided.

        The entropy of the places over what one pair tells at best: a channel of two equally likely levels under noise.
        """
        if self.decided(confidence):
            return 0
        places = np.maximum(self.places, 1e-300)
        bits = -float(np.sum(places * np.log2(places)))
        gained = min(1.0, (math.log(self.size) / self.deviation) ** 2 / (8 * math.log(2)))
        return max(1, math.ceil(bits / max(gained, 1e-3)))


def assess(
    evidence: Evidence,
    count: int,
    untestable: Collection[int] = (),
    magnitude: float = 0.025,
    confidence: float = CONFIDENCE,
) -> Assessment:
    """Return what the pairs say of ``count`` candidates, the last of which is bad and has two pairs at least.

    ``untestable`` ones, never the last, give no pair. Levels within a ratio of ``1 + magnitude`` are one.
    """
    candidates = [place for place in range(1, count + 1) if place not in untestable]
    weights = np.diff([0, *candidates]) / count
    grid = grid_of(evidence[count])
    found = posterior(*sums(evidence, candidates, grid), grid, weights)
    two, between = several_changes(evidence, candidates, grid, weights, magnitude)
    beforehand = SEVERAL * (1 - ABSENT)
    several = float(expit(math.log(beforehand / (1 - beforehand)) + two - found.log_evidence))
    reached = np.cumsum(found.sizes) - found.sizes / 2
    ends = (0.5, (1 - confidence) / 2, (1 + confidence) / 2)
    size, low, high = (math.exp(float(np.interp(end, reached, grid.sizes))) for end in ends)
    residuals = [np.asarray(each) - np.median(each) for each in evidence.values() if len(each) > 1]
    return Assessment(
        candidates=tuple(candidates),
        places=tuple(map(float, found.places)),
        absent=found.absent,
        several=several,
        between=between,
        size=size,
        low=low,
        high=high,
        deviation=max(_deviation(np.concatenate(residuals)), _LEAST_SCALE),
    )
