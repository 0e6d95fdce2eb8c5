"""Verdicts on whether a candidate is slower than a baseline, by launches.

A number of launches, never of steps, is what a verdict rests on (`reports.statistics` says why). Two ways of looking:

- launches measured in pairs, side by side (`judge_pairs`): signed ranks;
- launches that were not (`judge`): Welch's t on the logarithms of the launches' medians (Welch 1947). Where the two
  sides come from different sessions the machine itself may have shifted between them, which more launches do not
  average out; the standard error then gets `Rule.session_deviation` for each session on top.

REGRESSION: the estimate exceeds ``1 + magnitude``, and identical code would look slower at all, as much as this, with
probability ``p_value`` at most; the interval may reach below the magnitude.
IMPROVEMENT: the mirror image, at ``improvement_p_value``. NO_REGRESSION: the 95 % interval ends below
``1 + tolerance``. CONTENDED: others were in the way of too many launches. INCONCLUSIVE: none of these; the smallest
slowdown that this many launches would have shown is then said.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from dlbench.reports.storage.record import FIRST_LOOK

Floats = NDArray[np.float64]

FEWEST_LAUNCHES = 3
"""On each side, for a standard error that means something."""
_SIGNED_RANKS = "signed ranks over"
POWER = 0.80
"""The smallest effect is the one that would have been called a regression with this probability."""


class Verdict(StrEnum):
    """The verdict on a candidate against its baseline, the gravest first."""

    REGRESSION = "REGRESSION"
    BROKEN = "BROKEN"
    """The candidate fails where the baseline does not."""
    IMPROVEMENT = "IMPROVEMENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    CONTENDED = "CONTENDED"
    COMPARISON = "COMPARISON"
    """Of different machines: a ratio, and no verdict on a change of code."""
    NO_REGRESSION = "NO_REGRESSION"
    HOLE = "HOLE"
    """A side was not measured, or the baseline fails too."""


@dataclass(frozen=True)
class Rule:
    """The thresholds of verdicts and stages; see the module's docstring."""

    magnitude: float = 0.025
    """A smaller slowdown is never called a regression."""
    tolerance: float = 0.05
    """A slowdown of this size must be excluded before "no regression" is said."""
    p_value: float = 0.01
    improvement_p_value: float = 0.025
    """Larger, as an improvement alarms no one: six pairs, whose smallest p is 1/64, can show one."""
    confidence: float = 0.95
    session_deviation: float = 0.025
    """Standard deviation of the logarithm that a machine's own shift from session to session adds, per session."""
    # The two stages' numbers are the best of those tried at no more pairs a cell (tests/benchmarks/decision_rules.py).
    screen_looks: tuple[int, ...] = (FIRST_LOOK, 10, 14)
    """Numbers of pairs after which screening looks whether a cell is clear, suspect, or needs more."""
    screen_p_value: float = 0.05
    screen_magnitude: float = 0.025
    confirm_pairs: int = 24
    """Fresh pairs that alone decide over a suspect cell."""
    confirm_p_value: float = 0.005
    spare: float = 1.0
    """Pairs that others disturbed are measured again, up to this share of the pairs wanted."""
    false_discovery_rate: float = 0.05
    """Over all cells of a comparison without a confirming stage (Benjamini and Hochberg 1995)."""


DEFAULT = Rule()
_OPTIONS = ("magnitude", "screen_magnitude", "tolerance")
"""The parts of a rule that a user can choose."""


def chosen(rule: Rule) -> dict[str, float]:
    """Return the values of a rule that differ from the defaults, by name."""
    return {name: getattr(rule, name) for name in _OPTIONS if getattr(rule, name) != getattr(DEFAULT, name)}


def rule_of(values: Mapping[str, float]) -> Rule:
    """Return the rule with these `chosen` values; other keys are ignored."""
    told: dict[str, Any] = {name: values[name] for name in _OPTIONS if name in values}
    return replace(DEFAULT, **told)


@dataclass(frozen=True)
class Judgement:
    """A verdict and its evidence; ratios are candidate / baseline, above 1 slower."""

    verdict: Verdict
    ratio: float | None
    low: float | None
    high: float | None
    p: float | None
    """One-sided, of looking at least this much slower (or, below 1, faster) by chance."""
    adjusted_p: float | None
    """The same, adjusted for the number of cells; None where it was not."""
    smallest_effect: float | None
    """The smallest slowdown (0.03 is 3 %) that would have been found with probability `POWER`.

    None where so few launches find none.
    """
    baseline_launches: int
    candidate_launches: int
    method: str
    sentence: str
    standard_error: float | None = None
    """Of the logarithm of the ratio."""
    freedom: float | None = None
    """Degrees of freedom of that error."""


def judge(
    baseline: Sequence[float], candidate: Sequence[float], rule: Rule = DEFAULT, same_session: bool = True
) -> Judgement:
    """Judge launches that were not measured in pairs: seconds per step, one number for each launch.

    Raises ValueError for times that are not positive and finite.
    """
    a, b = _logs(baseline, candidate)
    if min(len(a), len(b)) < FEWEST_LAUNCHES:
        return _too_few(a, b, FEWEST_LAUNCHES, "launches")
    shift = float(np.mean(b) - np.mean(a))
    parts = float(np.var(a, ddof=1)) / len(a), float(np.var(b, ddof=1)) / len(b)
    squares = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
    freedom = sum(parts) ** 2 / squares if squares > 0 else float(len(a) + len(b) - 2)
    method = "Welch t over launches"
    # Clocks resolve no better: launches without any spread are no proof of a difference of nothing.
    variance = max(sum(parts), 1e-12)
    spreads = [(math.sqrt(variance), freedom)]
    if not same_session:
        # The shifts are known by assumption, not estimated: freedom grows as their share does (Satterthwaite 1946). For
        # few launches that would outweigh the shifts themselves, so of both ways to see it the more cautious counts.
        extra = 2 * rule.session_deviation**2
        spreads.append((math.sqrt(variance + extra), freedom * ((variance + extra) / variance) ** 2))
        method += f", widened by {rule.session_deviation:.1%} for each session"
    spreads = [(error, max(1.0, min(free, 1e6))) for error, free in spreads]
    half = max(float(stdtrit(free, 0.5 + rule.confidence / 2)) * error for error, free in spreads)
    effect, error, freedom = max((_smallest(*each, rule.p_value, rule.magnitude), *each) for each in spreads)
    slower_p, faster_p = (max(float(stdtr(free, way * shift / error)) for error, free in spreads) for way in (-1, 1))
    ratio, low, high = (math.exp(each) for each in (shift, shift - half, shift + half))
    found = PairedEstimate(ratio, low, high, slower_p, faster_p, 0)
    return _decide(found, rule, effect, (len(a), len(b)), method, error, freedom)


def judge_pairs(
    baseline: Sequence[float],
    candidate: Sequence[float],
    rule: Rule = DEFAULT,
    p_value: float | None = None,
    smallest: Callable[[float], float] | None = None,
) -> Judgement:
    """Judge launches measured in pairs, the i-th of one side beside the i-th of the other.

    ``p_value`` stands in for the rule's. ``smallest`` gives the smallest effect for a standard deviation of the pairs'
    log-ratios, where it is not that of these pairs alone. Raises ValueError for series of different length and for
    times that are not positive and finite.
    """
    a, b = _logs(baseline, candidate)
    pairs = len(a)
    if pairs == len(b) < FEWEST_PAIRS:
        return _too_few(a, b, FEWEST_PAIRS, "pairs")
    limit = rule.p_value if p_value is None else p_value
    found = estimate_pairs(baseline, candidate, rule.confidence)
    deviation = max(float(np.std(b - a, ddof=1)), 1e-6)
    effect = smallest(deviation) if smallest else smallest_shift(deviation, pairs, limit, rule.magnitude, POWER)
    method = f"{_SIGNED_RANKS} {pairs} interleaved pairs"
    error = deviation / math.sqrt(pairs)
    return _decide(found, replace(rule, p_value=limit), effect, (pairs, pairs), method, error, pairs - 1)


def adjust(judgements: Sequence[Judgement], rule: Rule = DEFAULT) -> list[Judgement]:
    """Return the judgements with p-values adjusted for their number (Benjamini and Hochberg 1995).

    A regression or an improvement that does not survive the adjustment becomes inconclusive. Comparisons of machines
    stay as they are.
    """
    from scipy.stats import false_discovery_control  # slow to import

    places = [
        place for place, each in enumerate(judgements) if each.p is not None and each.verdict is not Verdict.COMPARISON
    ]
    adjusted = list(judgements)
    if not places:
        return adjusted
    # Both directions were looked at: a one-sided p counts twice.
    doubled = [min(1.0, 2 * (judgements[place].p or 0.0)) for place in places]
    limit = min(rule.p_value, rule.false_discovery_rate / (2 * len(places)))
    for place, value in zip(places, false_discovery_control(doubled), strict=True):
        found = judgements[place]
        effect, pairs = found.smallest_effect, found.candidate_launches
        if effect is not None and found.standard_error is not None and found.freedom is not None:
            if found.method.startswith(_SIGNED_RANKS):
                deviation = found.standard_error * math.sqrt(pairs)
                effect = smallest_shift(deviation, pairs, limit, rule.magnitude, POWER)
            else:
                effect = _smallest(found.standard_error, found.freedom, limit, rule.magnitude)
            effect = effect if math.isfinite(effect) else None
        sentence = found.sentence.replace(_shows(found.smallest_effect), _shows(effect))
        each = replace(found, adjusted_p=float(value), smallest_effect=effect, sentence=sentence)
        if each.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT) and value > rule.false_discovery_rate:
            clear = each.high is not None and each.high < 1 + rule.tolerance
            verdict = Verdict.NO_REGRESSION if clear else Verdict.INCONCLUSIVE
            words = f"not significant among {len(places)} cells (adjusted p {value:.2g})"
            each = replace(each, verdict=verdict, sentence=f"{each.sentence}; {words}")
        adjusted[place] = each
    return adjusted


def fewest_pairs(cells: int, rule: Rule = DEFAULT) -> int:
    """Return the fewest pairs that can prove a slowdown among this many cells compared in one stage.

    ``n`` pairs of one sign have a one-sided p of ``2**-n``; it must pass the rule's limit, and doubled and adjusted for
    the number of cells (as if this one alone were slower) the false discovery rate.
    """
    limit = min(rule.p_value, rule.false_discovery_rate / (2 * max(1, cells)))
    return max(FEWEST_PAIRS, math.ceil(-math.log2(limit)))


def without_interval(
    verdict: Verdict, why: str, baseline_launches: int, candidate_launches: int, ratio: float | None = None
) -> Judgement:
    """Return a judgement that rests on no interval, with the reason as its sentence."""
    return Judgement(
        verdict, ratio, None, None, None, None, None, baseline_launches, candidate_launches, "no interval", why
    )


def _decide(
    found: "PairedEstimate",
    rule: Rule,
    smallest: float,
    launches: tuple[int, int],
    method: str,
    error: float,
    freedom: float,
) -> Judgement:
    ratio, low, high, slower_p = found.ratio, found.low, found.high, found.slower_p
    change = f"{ratio - 1:+.1%} ({low - 1:+.1%} to {high - 1:+.1%})"
    effect = smallest if math.isfinite(smallest) else None
    verdict = Verdict.INCONCLUSIVE
    if ratio > 1 + rule.magnitude and slower_p <= rule.p_value:
        verdict, sentence = Verdict.REGRESSION, f"slower by {change}"
    elif ratio < 1 / (1 + rule.magnitude) and found.faster_p <= rule.improvement_p_value:
        verdict, sentence = Verdict.IMPROVEMENT, f"faster: {change}"
    elif high < 1 + rule.tolerance:
        verdict, sentence = Verdict.NO_REGRESSION, f"{change}: {rule.tolerance:.0%} slower is excluded"
    elif low > 1:
        sentence = f"{change}: slower, but {launches[1]} launches a side do not prove it (p {slower_p:.2g})"
    else:
        sentence = f"{change}: {rule.tolerance:.0%} slower is not excluded; {_shows(effect)}"
    p = slower_p if ratio >= 1 else found.faster_p
    return Judgement(verdict, ratio, low, high, p, None, effect, *launches, method, sentence, error, freedom)


def _shows(effect: float | None) -> str:
    return "so few launches cannot show one" if effect is None else f"a slowdown of {effect:.1%} would have shown"


def _smallest(error: float, freedom: float, p_value: float, magnitude: float) -> float:
    """Return the relative slowdown that passes both conditions of a regression with probability `POWER`."""
    spare = float(stdtrit(freedom, POWER)) * error
    by_chance = float(stdtrit(freedom, 1 - p_value)) * error
    return math.expm1(max(by_chance, math.log1p(magnitude)) + spare)


def _too_few(a: Floats, b: Floats, needed: int, what: str) -> Judgement:
    """Return the judgement of too few log-times; their plain ratio is shown."""
    why = f"too few {what}: {min(len(a), len(b))}, and {needed} are needed on each side"
    ratio = float(np.exp(np.mean(b) - np.mean(a))) if len(a) and len(b) else None
    return without_interval(Verdict.INCONCLUSIVE, why, len(a), len(b), ratio)


def _logs(*series: Sequence[float]) -> list[Floats]:
    """Return the logarithms of times; raises ValueError for any that is not positive and finite."""
    values = [np.asarray(each, dtype=float) for each in series]
    if not all(((each > 0) & np.isfinite(each)).all() for each in values):
        raise ValueError("seconds per step must be positive and finite")
    return [np.log(each) for each in values]


def pairs_for(confidence: float) -> int:
    """Return from how many pairs on an exact two-sided interval of this confidence exists: 2 / 2**pairs is left out."""
    return math.ceil(math.log2(2 / (1 - confidence)))


FEWEST_PAIRS = pairs_for(0.95)
"""Six: 2 / 2**6 = 3 %."""

_SIMULATED_PAIRS = 40
_SIMULATIONS = 2000


@dataclass(frozen=True)
class PairedEstimate:
    """The ratio candidate / baseline over launches, all on the natural scale."""

    ratio: float
    low: float
    """0 where so few pairs allow no interval of this confidence."""
    high: float
    """Infinite where so few pairs allow none."""
    slower_p: float
    """One-sided: how often identical code would look at least this much slower."""
    faster_p: float
    pairs: int
    """0 for launches that were not measured in pairs."""


@lru_cache(maxsize=256)
def null_distribution(pairs: int) -> Floats:
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
    before, after = _logs(baseline, candidate)
    differences = after - before
    pairs = len(differences)
    walsh = np.sort((np.add.outer(differences, differences) / 2)[np.triu_indices(pairs)])
    below = null_distribution(pairs)
    # The signed-rank sum is the number of positive Walsh averages (Tukey); zeros count half.
    zeros = int(np.count_nonzero(walsh == 0.0))
    negative, positive = (int(np.count_nonzero(side)) + (zeros + 1) // 2 for side in (walsh < 0.0, walsh > 0.0))
    cut = int(np.searchsorted(below, (1 - confidence) / 2, side="right"))
    low, high = (float(walsh[cut - 1]), float(walsh[-cut])) if cut > 0 else (-math.inf, math.inf)
    return PairedEstimate(
        ratio=math.exp(float(np.median(walsh))),
        low=math.exp(low),
        high=math.exp(high),
        slower_p=float(below[min(negative, len(below) - 1)]),
        faster_p=float(below[min(positive, len(below) - 1)]),
        pairs=pairs,
    )


def smallest_shift(deviation: float, pairs: int, p_value: float, magnitude: float, power: float) -> float:
    """Return the relative slowdown that this many pairs find with probability ``power``; infinite if they find none.

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


class Screening(Enum):
    """The result of screening a cell."""

    MORE = "more"
    """More pairs are needed."""
    CLEAR = "clear"
    SUSPECT = "suspect"
    """It needs confirming pairs."""
    UNDECIDED = "undecided"
    """Not suspect, but after the last look a slowdown is not excluded either."""


def screen(baseline: Sequence[float], candidate: Sequence[float], rule: Rule = DEFAULT) -> Screening:
    """Return the state after these pairs (seconds per step, side by side); it changes at the rule's looks only."""
    looks = [look for look in rule.screen_looks if look <= len(baseline)]
    if not looks:
        return Screening.MORE
    for look in looks:
        found = estimate_pairs(baseline[:look], candidate[:look], rule.confidence)
        if found.ratio > 1 + rule.screen_magnitude and found.slower_p <= rule.screen_p_value:
            return Screening.SUSPECT
        if found.high < 1 + rule.tolerance:
            return Screening.CLEAR
    return Screening.UNDECIDED if looks[-1] == rule.screen_looks[-1] else Screening.MORE


def next_look(pairs: int, rule: Rule = DEFAULT) -> int:
    """Return how many pairs screening wants before it looks again."""
    return next((look for look in rule.screen_looks if look > pairs), rule.screen_looks[-1])


def judge_stages(
    screened: tuple[Sequence[float], Sequence[float]],
    confirmed: tuple[Sequence[float], Sequence[float]],
    rule: Rule = DEFAULT,
) -> Judgement:
    """Return the verdict on a cell from its screening pairs and, where there are any, its confirming ones.

    Each argument is (baseline, candidate), seconds per step of the pairs. A suspect cell whose confirming pairs are
    not complete is inconclusive, whatever they look like so far.
    """
    baseline, candidate = screened
    gate_effect = partial(smallest_effect, rule=rule)
    state = screen(baseline, candidate, rule)
    if state is Screening.SUSPECT:
        if len(confirmed[0]) >= rule.confirm_pairs:
            # Pairs beyond those asked for do not count, or measuring on would be a second chance.
            fresh = [side[: rule.confirm_pairs] for side in confirmed]
            return judge_pairs(fresh[0], fresh[1], rule, rule.confirm_p_value, gate_effect)
        found = judge_pairs(baseline, candidate, rule, smallest=gate_effect)
        why = f"suspect; {len(confirmed[0])} of {rule.confirm_pairs} confirming pairs measured"
        return replace(found, verdict=Verdict.INCONCLUSIVE, sentence=f"{found.sentence}; {why}")
    if len(baseline) < FEWEST_PAIRS:
        why = f"{len(baseline)} of {rule.screen_looks[0]} screening pairs measured"
        return without_interval(Verdict.INCONCLUSIVE, why, len(baseline), len(candidate))
    found = judge_pairs(baseline, candidate, rule, smallest=gate_effect)
    if found.verdict is Verdict.REGRESSION:  # not suspect at any look: a later pair made it so
        return replace(found, verdict=Verdict.INCONCLUSIVE, sentence=f"{found.sentence}; not confirmed by fresh pairs")
    return found


def smallest_effect(deviation: float, rule: Rule = DEFAULT) -> float:
    """Return the relative slowdown that both stages together find with probability `POWER`, about.

    ``deviation`` is the standard deviation of the logarithms of the pairs' ratios.
    """
    each = math.sqrt(POWER)
    looks = rule.screen_looks[-1], rule.screen_p_value, rule.screen_magnitude
    confirming = rule.confirm_pairs, rule.confirm_p_value, rule.magnitude
    return max(smallest_shift(deviation, *stage, each) for stage in (looks, confirming))
