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

Arrays have any leading axes, so that a simulation updates thousands of searches at once.
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
    """(..., sizes), logarithms; those below 0 count for nothing."""
    scales: Floats
    """(..., scales)."""


class Posterior(NamedTuple):
    """What pairs say of one change or none."""

    places: Floats
    """(..., candidates): the probability that the slowdown began with each."""
    absent: Floats
    """(...): that nothing changed."""
    sizes: Floats
    """(..., sizes): of each size, where something changed."""
    log_evidence: Floats
    """(...): logarithm of the marginal likelihood."""


def grid_of(ratios: Floats) -> Grid:
    """Return the grid around the log ratios of the bad end's pairs, (..., pairs)."""
    centre = np.median(ratios, axis=-1, keepdims=True)
    spread = _NORMAL * np.median(np.abs(ratios - centre), axis=-1, keepdims=True)
    scale = np.maximum(spread, _LEAST_SCALE)
    error = scale * math.sqrt(math.pi / 2 / ratios.shape[-1])  # of a median
    sizes = centre + error * np.linspace(-_WIDTH, _WIDTH, _SIZES)
    return Grid(sizes, scale * np.geomspace(1 / _FACTOR, _FACTOR, _SCALES))


def log_student(residuals: Floats, scales: Floats) -> Floats:
    """Return the logarithm of Student's density, but for a constant."""
    return -(FREEDOM + 1) / 2 * np.log1p((residuals / scales) ** 2 / FREEDOM) - np.log(scales)


def likelihoods(ratios: Floats, grid: Grid) -> tuple[Floats, Floats]:
    """Return the log likelihoods of a pair each, (...): of a candidate before the change, and of one behind it.

    Their last axes are (scales) and (sizes, scales).
    """
    before = log_student(ratios[..., None], grid.scales)
    behind = ratios[..., None, None] - grid.sizes[..., :, None]
    return before, log_student(behind, grid.scales[..., None, :])


def posterior(before: Floats, after: Floats, grid: Grid, weights: Floats) -> Posterior:
    """Return what pairs say: sums of `likelihoods` by candidate, (..., candidates, [sizes,] scales).

    ``weights`` are the candidates' probabilities beforehand, (candidates).
    """
    # The sum over all candidates as if behind the change, less what those before a place lose by that.
    lost = after - before[..., None, :]
    joint = after.sum(axis=-3, keepdims=True) - np.cumsum(lost, axis=-3) + lost
    with np.errstate(divide="ignore"):  # a probability of 0
        prior = _log_prior(grid)[..., None, :, None] + np.log((1 - ABSENT) * weights)[:, None, None]
    joint += prior
    none = before.sum(axis=-2) + math.log(ABSENT)
    peak = np.maximum(joint.max(axis=(-3, -2, -1)), none.max(axis=-1))
    joint -= peak[..., None, None, None]
    np.exp(joint, out=joint)
    places, sizes = joint.sum(axis=(-2, -1)), joint.sum(axis=(-3, -1))
    absent = np.exp(none - peak[..., None]).sum(axis=-1)
    total = places.sum(axis=-1) + absent
    return Posterior(
        places / total[..., None],
        absent / total,
        sizes / sizes.sum(axis=-1, keepdims=True),
        peak + np.log(total) - math.log(grid.scales.shape[-1]),
    )


def _log_prior(grid: Grid) -> Floats:
    """Return the log probability beforehand of each size, (..., sizes): alike for all that are a slowdown."""
    slower = grid.sizes > 0
    return np.where(slower, -np.log(np.maximum(1, slower.sum(axis=-1, keepdims=True))), -np.inf)


def sums(evidence: Evidence, candidates: Sequence[int], grid: Grid) -> tuple[Floats, Floats]:
    """Return the sums of `likelihoods` of these candidates, in their order; 0 for those without a pair."""
    before = np.zeros((len(candidates), *grid.scales.shape))
    after = np.zeros((len(candidates), *grid.sizes.shape, *grid.scales.shape))
    for row, candidate in enumerate(candidates):
        if evidence.get(candidate):
            found = likelihoods(np.asarray(evidence[candidate], dtype=float), grid)
            before[row], after[row] = (each.sum(axis=0) for each in found)
    return before, after


def _log_sum(values: Floats, axis: int | None = None) -> Floats:
    """Return the logarithm of a sum of exponentials; SciPy's takes ten times as long for so few numbers."""
    peak = values.max(axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        found: Floats = np.log(np.exp(values - peak).sum(axis=axis)) + peak.squeeze(axis=axis)
    return found


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
    before, after = sums(evidence, [candidates[place] for place in tested], grid)
    between = np.array(
        [
            log_student(
                np.asarray(evidence[candidates[place]], dtype=float)[:, None, None] - levels[:, None], grid.scales
            ).sum(axis=0)
            for place in tested
        ]
    )
    count = len(tested)
    # A change between two measured candidates may be any of those between: the places' probabilities add up.
    reached = np.concatenate([[0.0], np.cumsum(weights)[tested]])
    with np.errstate(divide="ignore"):
        mass = np.log(np.diff(reached))
    before_it = np.concatenate([np.zeros((1, *before.shape[1:])), np.cumsum(before, axis=0)])[:count]
    until = np.concatenate([np.zeros((1, *between.shape[1:])), np.cumsum(between, axis=0)])
    from_it = _log_sum(np.flip(np.cumsum(np.flip(after, axis=0), axis=0), axis=0) + _log_prior(grid)[:, None], axis=1)
    first, second = np.triu_indices(count, 1)
    level = _log_sum(until[second] - until[first], axis=1) - math.log(len(levels))
    joint = before_it[first] + level + from_it[second] + (mass[first] + mass[second] + math.log(2))[:, None]
    joint -= math.log(grid.scales.shape[-1])
    best = int(np.argmax(_log_sum(joint, axis=1)))
    shown = max(tested[first[best] : second[best]], key=lambda place: len(evidence[candidates[place]]))
    return float(_log_sum(joint)), candidates[shown]


def probability_of_several(several: float, one: float) -> float:
    """Return the probability of two changes by the log evidence of them, and that of one change or none."""
    beforehand = SEVERAL * (1 - ABSENT)
    return float(expit(math.log(beforehand / (1 - beforehand)) + several - one))


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

    @property
    def best(self) -> int:
        """The likeliest place, as an index of `candidates`."""
        return int(np.argmax(self.places))

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
    grid = grid_of(np.asarray(evidence[count], dtype=float))
    before, after = sums(evidence, candidates, grid)
    found = posterior(before, after, grid, weights)
    two, between = several_changes(evidence, candidates, grid, weights, magnitude)
    several = probability_of_several(two, float(found.log_evidence))
    reached = np.cumsum(found.sizes) - found.sizes / 2
    ends = (0.5, (1 - confidence) / 2, (1 + confidence) / 2)
    size, low, high = (math.exp(float(np.interp(end, reached, grid.sizes))) for end in ends)
    residuals = [np.asarray(each) - np.median(each) for each in evidence.values() if len(each) > 1]
    pooled = np.concatenate(residuals)
    return Assessment(
        tuple(candidates),
        tuple(float(each) for each in found.places),
        float(found.absent),
        several,
        between,
        size,
        low,
        high,
        max(_NORMAL * float(np.median(np.abs(pooled))), _LEAST_SCALE),
    )


def informative(places: Floats) -> Floats:
    """Return how much a pair of each candidate tells, as a share of what the best could: 4 p (1 - p).

    p is the probability that the change is not behind it; ``places`` are (..., candidates). For noisy pairs the
    information grows as this does. Nothing is to be learnt from the last candidate.
    """
    reached = np.cumsum(places, axis=-1)
    gain = 4 * reached * np.maximum(0.0, 1 - reached)
    gain[..., -1] = -1.0
    return gain


def following(places: Floats, measured: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the candidate to measure next, as an index of the last axis: the median of the posterior, or nearly.

    One that was ``measured`` before, and so needs no build, is taken where it tells nearly as much (`BUILT`).
    """
    gain = informative(places)
    best = gain.max(axis=-1, keepdims=True)
    built = np.where(measured, gain, -1.0)
    usable = built.max(axis=-1, keepdims=True) >= BUILT * best
    chosen: NDArray[np.intp] = np.where(usable, built, gain).argmax(axis=-1)
    return chosen


def pairs_left(assessment: Assessment, confidence: float = CONFIDENCE) -> int:
    """Return roughly how many pairs the search still takes; 0 where it is decided.

    The entropy of the places over what one pair tells at best: a channel of two equally likely levels under noise.
    """
    if assessment.decided(confidence) or len(assessment.places) == 1:
        return 0
    places = np.maximum(assessment.places, 1e-300)
    bits = -float(np.sum(places * np.log2(places)))
    gained = min(1.0, (math.log(assessment.size) / assessment.deviation) ** 2 / (8 * math.log(2)))
    return max(1, math.ceil(bits / max(gained, 1e-3)))
