"""Where a slowdown began: a binary search whose comparisons are noisy.

Candidates (releases, commits, builds) follow a good one in order, and the last of them is bad. A
pair of launches, the good one and a candidate side by side, gives the logarithm of a ratio of
times. Its distribution is Student's with `FREEDOM` degrees, so that a disturbed launch proves
little, around 0 before the change and around the size of the change from there on.

A posterior over the place of the change, or its absence, is updated with each pair, and the next
candidate is the one that splits it most evenly: Horstein 1963, "Sequential transmission using
noiseless feedback" (IEEE Transactions on Information Theory 9, 136-143); Waeber, Frazier and
Henderson 2013, "Bisection search with noisy responses" (SIAM Journal on Control and Optimization
51, 2261-2279). They assume a known probability of a wrong answer. In this search it follows from
the pairs, since size and deviation are unknown and integrated over, on a grid around the estimates
from the bad end's pairs. All candidates have the same noise, so the most even split is also the
most informative one.

The third hypothesis (`several_changes`) is two changes with a level between them that differs from
both ends. Its evidence is a ratio of marginal likelihoods, which optional stopping does not bias.
It covers only what the search happens to measure; a slowdown that was undone within an unmeasured
part stays unknown.

Pairs of one candidate are assumed to deviate from its true ratio by chance only. Two builds of the
same source may permanently differ by a per cent or so, which counts as deviation.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dlbench.reports.results.statistics import NORMAL_PER_MEDIAN

Floats = NDArray[np.float64]
Evidence = Mapping[int, Sequence[float]]
"""Logarithms of the pairs' ratios, candidate over good, by the candidate's place: 1 is the first
after the good one."""

FREEDOM = 10.0
"""Degrees of freedom of the pairs' distribution."""
CONFIDENCE = 0.95
ABSENT = 0.5
"""Prior probability that nothing changed."""
SEVERAL = 0.1
"""Prior probability of two changes, if anything changed."""
DOUBT = 0.1
"""With at least this probability of two changes no place is named, and the pairs that show it are
repeated."""
MOST_PAIRS = 400
"""A search that needs more, as on a machine that is never quiet, is abandoned."""
BUILT = 0.8
"""A candidate that is already built is preferred if it is at least this informative, relative to
the best one."""

_SIZES, _SCALES, _LEVELS = 11, 7, 33
_WIDTH = 4.0
"""Half-width of the grid of sizes, in standard errors."""
_FACTOR = 2.2
"""The grid of scales reaches from 1 / this to this times the scale of the bad end's pairs."""
_LEAST_SCALE = 5e-4
"""Of pairs: a smaller one is rounding."""
_APART = 0.25
"""Least distance of a level between two changes from both ends, relative to the whole change."""


class Grid(NamedTuple):
    """The sizes of the change, and the scales of pairs around it, that are integrated over."""

    sizes: Floats
    """Logarithms; those below 0 count for nothing."""
    scales: Floats


class Posterior(NamedTuple):
    """The posterior of one change or none."""

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
    return NORMAL_PER_MEDIAN * float(np.median(np.abs(residuals)))


def likelihoods(ratios: Sequence[float], sizes: Floats, scales: Floats) -> Floats:
    """Return the log likelihood of all these ratios around each size at each scale.

    A constant is left out.
    """
    residuals = np.asarray(ratios, dtype=float)[:, None, None] - sizes[:, None]
    density = -(FREEDOM + 1) / 2 * np.log1p((residuals / scales) ** 2 / FREEDOM) - np.log(scales)
    total: Floats = density.sum(axis=0)
    return total


def sums(evidence: Evidence, candidates: Sequence[int], grid: Grid) -> tuple[Floats, Floats]:
    """Return the log likelihoods of these candidates' pairs before the change and after it.

    Their axes are (candidates, scales) and (candidates, sizes, scales). Without any pair they are
    0.
    """
    before = np.zeros((len(candidates), len(grid.scales)))
    after = np.zeros((len(candidates), len(grid.sizes), len(grid.scales)))
    for row, candidate in enumerate(candidates):
        pairs = evidence.get(candidate)
        if pairs:
            before[row] = likelihoods(pairs, np.zeros(1), grid.scales)[0]
            after[row] = likelihoods(pairs, grid.sizes, grid.scales)
    return before, after


def posterior(before: Floats, after: Floats, grid: Grid, weights: Floats) -> Posterior:
    """Return the posterior from the pairs' `sums`, given the candidates' prior probabilities."""
    # The sum over all candidates as if after the change, less the excess of those before each
    # place.
    lost = after - before[:, None]
    joint = after.sum(axis=0) - lost.cumsum(axis=0) + lost
    joint += _log_prior(grid) + np.log((1 - ABSENT) * weights)[:, None, None]
    none = before.sum(axis=0) + math.log(ABSENT)
    peak = max(joint.max(), none.max())
    joint = np.exp(joint - peak)
    none = np.exp(none - peak)
    total = joint.sum() + none.sum()
    sizes = joint.sum(axis=(0, 2))
    return Posterior(
        places=joint.sum(axis=(1, 2)) / total,
        absent=float(none.sum() / total),
        sizes=sizes / sizes.sum(),
        log_evidence=float(peak + np.log(total)) - math.log(len(grid.scales)),
    )


def _log_prior(grid: Grid) -> Floats:
    """Return the log prior probability of each size, (sizes, 1): equal for all slowdowns."""
    slower = grid.sizes > 0
    return np.where(slower, -math.log(max(1, slower.sum())), -np.inf)[:, None]


def several_changes(
    evidence: Evidence, candidates: Sequence[int], grid: Grid, weights: Floats, threshold: float
) -> tuple[float, int | None]:
    """Return the log evidence of two changes, and the candidate that best shows a level between.

    Good, a level and bad follow one another, and at least one measured candidate has that level. It
    may lie between the ends, below or above both, but at least `_APART` of the whole change, or a
    slowdown of ``threshold``, from either. The evidence is -inf, and the candidate None, if no
    measured candidate is left for it.
    """
    tested = [place for place, candidate in enumerate(candidates) if evidence.get(candidate)]
    whole = float(np.median(grid.sizes))
    apart = max(_APART * whole, math.log1p(threshold))
    levels = np.linspace(-1.5 * whole, 2.5 * whole, _LEVELS)
    levels = levels[(np.abs(levels) >= apart) & (np.abs(levels - whole) >= apart)]
    if len(tested) < 2 or not len(levels):
        return -math.inf, None
    measured = [candidates[place] for place in tested]
    before, after = sums(evidence, measured, grid)
    between = np.array(
        [likelihoods(evidence[candidate], levels, grid.scales) for candidate in measured]
    )
    # A change between two measured candidates may be any of those between: the places'
    # probabilities add up.
    mass = np.log(np.diff(np.cumsum(weights)[tested], prepend=0.0))
    # Sums over the measured ones ahead of each, and from each on.
    ahead = before.cumsum(axis=0) - before
    ahead_between = between.cumsum(axis=0) - between
    onwards = after.sum(axis=0) - after.cumsum(axis=0) + after
    from_it = np.logaddexp.reduce(onwards + _log_prior(grid), axis=1)
    first, second = np.triu_indices(len(tested), 1)
    level = np.logaddexp.reduce(ahead_between[second] - ahead_between[first], axis=1)
    level -= math.log(len(levels))
    prior = mass[first] + mass[second] + math.log(2)
    joint = ahead[first] + level + from_it[second] + prior[:, None]
    evidences = np.logaddexp.reduce(joint, axis=1) - math.log(len(grid.scales))
    best = int(np.argmax(evidences))
    between_places = range(first[best], second[best])
    shown = max(between_places, key=lambda place: len(evidence[measured[place]]))
    return float(np.logaddexp.reduce(evidences)), measured[shown]


@dataclass(frozen=True)
class Assessment:
    """The conclusions from all pairs so far."""

    candidates: tuple[int, ...]
    """The testable ones, in order; an untestable place counts for the next testable one."""
    places: tuple[float, ...]
    """The probability that the slowdown began with each, if with a single one.

    An untestable one before it is included."""
    absent: float
    """The probability that nothing changed, unless several changes are likely."""
    several: float
    """The probability of two changes. If a place is certain, a small one means another change
    elsewhere."""
    between: int | None
    """The measured candidate that best shows that there are two."""
    size: float
    """Of the slowdown: median of its ratio, and the ends of its interval."""
    low: float
    high: float
    deviation: float
    """Of a pair's log ratio, roughly."""

    def decided(self, confidence: float = CONFIDENCE) -> bool:
        """Tell whether one answer is this probable.

        It is several changes or, if they are unlikely, a place or none.
        """
        if self.several >= confidence:
            return True
        return self.several < DOUBT and max(*self.places, self.absent) >= confidence

    def range(self, confidence: float = CONFIDENCE) -> tuple[int, int]:
        """Return the first and last index of the shortest range of candidates this probable."""
        reached = np.concatenate([[0.0], np.cumsum(self.places)])
        wanted = min(confidence, reached[-1]) - 1e-12
        spans = []
        for first, before in enumerate(reached[:-1]):
            last = int(np.searchsorted(reached, before + wanted)) - 1
            if last < len(self.places):
                probability = reached[last + 1] - before
                spans.append((last - first, -probability, first, last))
        _, _, first, last = min(spans)
        return first, last

    def following(self, measured: Collection[int]) -> int:
        """Return the candidate to measure next: nearly the posterior's median, or the one between.

        One that was ``measured`` before, and so needs no build, is taken if it is nearly as
        informative (`BUILT`). With p the probability that the change is not after a candidate, the
        information of its pairs is proportional to p (1 - p).
        """
        if self.between is not None and self.several >= DOUBT:
            return self.between
        reached = np.cumsum(self.places)
        gain = reached * np.maximum(0.0, 1 - reached)
        gain[-1] = -1.0  # nothing is to be learnt from the last one
        is_built = [candidate in measured for candidate in self.candidates]
        gain_of_built = np.where(is_built, gain, -1.0)
        if gain_of_built.max() >= BUILT * gain.max():
            gain = gain_of_built
        return self.candidates[int(np.argmax(gain))]

    def pairs_left(self, confidence: float = CONFIDENCE) -> int:
        """Return roughly how many more pairs the search needs, at least one; 0 if it is decided.

        The entropy of the places over the most information a pair can give: two equally likely
        levels under noise.
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
    threshold: float = 0.025,
    confidence: float = CONFIDENCE,
) -> Assessment:
    """Return the assessment of ``count`` candidates, the last of which is bad.

    That one has at least two pairs. ``untestable`` ones, never the last, give no pairs. Levels
    within a ratio of ``1 + threshold`` are one.
    """
    candidates = [place for place in range(1, count + 1) if place not in untestable]
    weights = np.diff([0, *candidates]) / count
    grid = grid_of(evidence[count])
    before, after = sums(evidence, candidates, grid)
    single = posterior(before, after, grid, weights)
    evidence_of_two, between = several_changes(evidence, candidates, grid, weights, threshold)
    prior = SEVERAL * (1 - ABSENT)
    prior_log_odds = math.log(prior / (1 - prior))
    several = float(expit(prior_log_odds + evidence_of_two - single.log_evidence))
    reached = np.cumsum(single.sizes) - single.sizes / 2
    ends = (0.5, (1 - confidence) / 2, (1 + confidence) / 2)
    size, low, high = (math.exp(float(np.interp(end, reached, grid.sizes))) for end in ends)
    residuals = []
    for ratios in evidence.values():
        if len(ratios) > 1:
            residuals.append(np.asarray(ratios) - np.median(ratios))
    return Assessment(
        candidates=tuple(candidates),
        places=tuple(map(float, single.places)),
        absent=single.absent,
        several=several,
        between=between,
        size=size,
        low=low,
        high=high,
        deviation=max(_deviation(np.concatenate(residuals)), _LEAST_SCALE),
    )
