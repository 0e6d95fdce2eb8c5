"""Verdicts on whether a candidate is slower than a baseline, by launches.

A verdict rests on a number of launches, never of steps (`reports.results.statistics` says why).
There are three methods:

- a gate's launches, measured in pairs until a look decides (`judge_looks`): signed ranks with exact
  bounds over all looks together, and before those Student's t over the first three and four pairs,
  which only excludes a slowdown;
- a fixed number of launches measured in pairs, side by side (`judge_pairs`): signed ranks;
- launches not measured in pairs (`judge`): Welch's t on the logarithms of the launches' medians
  (Welch 1947). If the sides come from different sessions the machine itself may have shifted
  between them, which more launches do not average out; `Rule.session_deviation` is then added to
  the standard error for each session.

A gate judges two times of each launch: that of its usual steps, and its tail, the time that nine
steps in ten take at most. A slowdown of either is a regression, and one bound holds for both
together.

A gate looks more than once. Where noise falls on both sides of a pair alike, each sign is a fair
coin whatever the sizes, so at each look the signed-rank sum has its exact distribution; the
probability of a false alarm at any look is at most the sum of the looks' levels (Bonferroni's
bound, as in group sequential trials with alpha spending: Lan and DeMets 1983). Its interval is the
repeated confidence interval that belongs to these tests (Jennison and Turnbull 1989): it may be
read at whatever look the measurement ended. By simulation (`tests/benchmarks/decision_rules.py`)
this needs fewer pairs than confirming a suspect on fresh pairs does, which throws the first ones
away.

Three or four pairs have too few signs for any proof. The early looks therefore assume normal
deviations, and shrink a cell's variance towards that of all cells of the gate (`spreads_of`). They
never call a cell slower or faster, so the bound on false alarms stays exact. The upper end of each
is too low in 0.1 to 0.5 % of simulated cells whose deviations differ by half either way, with
normal or heavy tails, as `EARLY_BOUND` says; for a cell that deviates four times as much as the
seven others of its gate, in 3 %.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from dlbench.reports.results.judged import JUDGED, TIME
from dlbench.reports.results.number_text import change_in_words, percent, signed_change
from dlbench.reports.results.record import HISTORY_PAIRS
from dlbench.reports.results.statistics import UNKNOWN_SPREAD, Spread

Floats = NDArray[np.float64]

Tails = tuple[Sequence[float], Sequence[float]]
"""(baseline, candidate): seconds that nine steps in ten take at most, of launches side by side."""
NO_TAILS: Tails = ((), ())
Pairs = tuple[Sequence[float], Sequence[float]]
"""(baseline, candidate): seconds per step of launches side by side."""
EARLY_LOOK, EARLY_BOUND = 3, 0.005
"""Pairs of the first look, and how often the upper end of an early look's interval may be too
low."""
SHARED_FREEDOM, SHARED_PART = 6.0, 1 / 3
"""The cells of a gate add this part of their degrees of freedom to those of one cell, and at most
so many."""
FEWEST_LAUNCHES = 3
"""On each side, for a standard error that means something."""
_SIGNED_RANKS = "signed ranks over"
POWER = 0.80
"""The smallest effect is the one that would have been called a regression with this probability."""


class Verdict(StrEnum):
    """The verdict on a candidate against its baseline, the gravest first."""

    REGRESSION = "REGRESSION"
    """The estimate exceeds ``1 + magnitude``, and identical code looks as slow with probability
    ``p_value`` at most."""
    BROKEN = "BROKEN"
    """The candidate fails where the baseline does not."""
    DIFFERENT = "DIFFERENT"
    """The candidate computes something else than the baseline: their times are those of different
    work."""
    IMPROVEMENT = "IMPROVEMENT"
    """The mirror image, at the same ``p_value``."""
    INCONCLUSIVE = "INCONCLUSIVE"
    CONTENDED = "CONTENDED"
    COMPARISON = "COMPARISON"
    """Of different machines: a ratio, and no verdict on a change of code."""
    NO_REGRESSION = "NO_REGRESSION"
    """The interval ends below ``1 + tolerance``."""
    HOLE = "HOLE"
    """A side was not measured, or the baseline fails too."""


@dataclass(frozen=True)
class Look:
    """A number of pairs after which a gate looks at a cell, and the one-sided levels of its
    possible verdicts.
    """

    pairs: int
    bound: float
    """Of each end of the interval: a cell whose upper end is below ``1 + tolerance`` is clear."""
    slower: float = 0.0
    """Of a regression."""
    suspect: float = 1.0
    """A cell whose p-value of being slower is larger is not measured any further."""
    slower_tail: float = 0.0
    """Of a regression of the tail alone."""
    suspect_tail: float = 0.02
    """A cell whose tail looks slower with this p-value is measured on, though its usual steps are
    known."""
    assumes_normal: bool = False
    """Whether its interval is Student's t with the deviation that cells share, and not that of
    signed ranks."""


class Spreads(NamedTuple):
    """How the first pairs of a gate's cells deviate: logarithms of the ratios of usual steps, and
    of tails.
    """

    steps: Spread = UNKNOWN_SPREAD
    tails: Spread = UNKNOWN_SPREAD


NO_SPREADS = Spreads()


@dataclass(frozen=True)
class Rule:
    """The thresholds of verdicts, and the looks of a gate; see the module's docstring."""

    magnitude: float = 0.025
    """A smaller slowdown is never called a regression."""
    tolerance: float = 0.05
    """The verdict "no regression" requires that a slowdown of this size is excluded."""
    p_value: float = 0.01
    confidence: float = 0.95
    session_deviation: float = 0.025
    """Standard deviation of the logarithm that a machine's own shift from session to session adds,
    per session."""
    looks: tuple[Look, ...] = (
        Look(EARLY_LOOK, EARLY_BOUND, suspect_tail=0.1, assumes_normal=True),
        Look(4, EARLY_BOUND, suspect_tail=0.1, assumes_normal=True),
        Look(HISTORY_PAIRS, 0.0157),
        Look(12, 0.0106, 0.000245),
        Look(16, 0.0107, 0.00003, suspect=0.05, slower_tail=0.00003),
        Look(24, 0.0015, 0.00004, suspect=0.05, slower_tail=0.00004),
        Look(40, 0.0015, 0.000065, suspect=0.0, slower_tail=0.00005),
    )
    """Of a gate. Twelve pairs of one sign have p = 1 / 4096: fewer pairs cannot meet a level this
    strict."""
    spare: float = 1.0
    """Pairs disturbed by other programs are measured again, up to this share of the pairs
    wanted."""
    false_discovery_rate: float = 0.05
    """Over all cells of a comparison other than a gate (Benjamini and Hochberg 1995)."""
    allow_different: bool = False
    """Whether sides that compute different things are judged by their times all the same."""
    judges_time: bool = True
    further: tuple[tuple[str, float], ...] = ()
    """Other quantities that are judged (`judged.JUDGED`), each with the smallest rise that is
    called a regression."""
    words: tuple[str, str, str] = ("slower", "faster", "a slowdown")
    """How a larger value, a smaller one and a rise are called."""

    @property
    def judged(self) -> tuple[str, ...]:
        """The quantities that are judged, one at least."""
        further = tuple(name for name, _ in self.further)
        return (TIME, *further) if self.judges_time or not further else further

    def of_quantity(self, quantity: str) -> "Rule":
        """Return the rule for one of the quantities that are judged.

        All of them share the bound on false alarms, so each look has its part of the level. The
        first look that can prove anything needs a pair more for each time that the part is halved.
        """
        looks = shared_looks(self.looks, len(self.judged))
        if quantity == TIME:
            return replace(self, looks=looks)
        threshold = dict(self.further)[quantity]
        return replace(
            self, looks=looks, magnitude=threshold, tolerance=2 * threshold, words=_OF_AMOUNTS
        )

    @property
    def false_alarms(self) -> float:
        """The largest probability that a gate calls a cell of identical code slower; the same of
        calling it faster.
        """
        return sum(look.slower + look.slower_tail for look in self.looks)

    @property
    def confidence_of_looks(self) -> float:
        """The smallest probability that one end of a gate's interval holds, whenever the
        measurement ends.
        """
        return 1 - sum(look.bound for look in self.looks)


_OF_AMOUNTS = ("more", "less", "a rise")
DEFAULT = Rule()


@lru_cache(maxsize=64)
def shared_looks(looks: tuple[Look, ...], quantities: int) -> tuple[Look, ...]:
    """Return the looks of one of so many quantities, whose levels add up to those of the looks
    given.
    """
    if quantities == 1:
        return looks
    more = math.ceil(math.log2(quantities))
    found, first = [], True
    for look in looks:
        slower, pairs = look.slower / quantities, look.pairs
        if look.slower and first:
            first = False
            pairs += more
            slower = look.slower / 2**more
        found.append(
            replace(look, pairs=pairs, slower=slower, slower_tail=look.slower_tail / quantities)
        )
    return tuple(found)


_OPTIONS = ("magnitude", "tolerance")
"""The thresholds of a rule that a user can choose."""
_ALLOW_DIFFERENT = "allow_different"
_JUDGES = "judges "
"""Beginning of the name of a quantity's threshold."""


def chosen(rule: Rule) -> dict[str, float]:
    """Return the values of a rule that differ from the defaults, by name."""
    values = {
        name: getattr(rule, name)
        for name in _OPTIONS
        if getattr(rule, name) != getattr(DEFAULT, name)
    }
    if rule.allow_different:
        values[_ALLOW_DIFFERENT] = 1.0
    if rule.further and rule.judges_time:
        values[_JUDGES + TIME] = 1.0
    values |= {_JUDGES + name: threshold for name, threshold in rule.further}
    return values


def rule_of(values: Mapping[str, float]) -> Rule:
    """Return the rule with these `chosen` values; other keys are ignored."""
    known: dict[str, Any] = {name: values[name] for name in _OPTIONS if name in values}
    judged = {
        name.removeprefix(_JUDGES): value
        for name, value in values.items()
        if name.startswith(_JUDGES)
    }
    judges_time = TIME in judged or not judged
    further = tuple((name, value) for name, value in judged.items() if name in JUDGED)
    return replace(
        DEFAULT,
        allow_different=_ALLOW_DIFFERENT in values,
        judges_time=judges_time,
        further=further,
        **known,
    )


@dataclass(frozen=True)
class PairedEstimate:
    """The ratio candidate / baseline over launches, all on the natural scale."""

    ratio: float
    low: float
    """0 if there are too few pairs for an interval of this confidence."""
    high: float
    """Infinite if there are too few pairs."""
    slower_p: float
    """One-sided: how often identical code would look at least this much slower."""
    faster_p: float
    pairs: int
    """0 for launches that were not measured in pairs."""


def estimate_data(estimate: PairedEstimate | None) -> dict[str, Any] | None:
    """Return an estimate as a JSON object; too few pairs have null for the ends of an interval."""
    if estimate is None:
        return None
    low, high = (estimate.low, estimate.high) if estimate.low > 0 else (None, None)
    return {"ratio": estimate.ratio, "low": low, "high": high, "pairs": estimate.pairs}


@dataclass(frozen=True)
class Judgement:
    """A verdict and its evidence; ratios are candidate / baseline, above 1 slower."""

    verdict: Verdict
    sentence: str
    """The reason."""
    baseline_launches: int
    candidate_launches: int
    method: str = "no interval"
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """One-sided, of looking at least this much slower (or, below 1, faster) by chance."""
    adjusted_p: float | None = None
    """The same, adjusted for the number of cells; None where it was not."""
    smallest_effect: float | None = None
    """The smallest slowdown (0.03 is 3 %) that would have been found with probability `POWER`.

    None where so few launches find none.
    """
    standard_error: float | None = None
    """Of the logarithm of the ratio."""
    freedom: float | None = None
    """Degrees of freedom of that error."""
    tail: PairedEstimate | None = None
    """Where the verdict rests on the tail, how much slower that is."""


def judge(
    baseline: Sequence[float],
    candidate: Sequence[float],
    rule: Rule = DEFAULT,
    same_session: bool = True,
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
    # The resolution of clocks: launches without any spread do not prove that a tiny difference is
    # real.
    variance = max(sum(parts), 1e-12)
    spreads = [(math.sqrt(variance), freedom)]
    if not same_session:
        # The shifts are assumed, not estimated: freedom grows with their share (Satterthwaite
        # 1946). With few launches that would outweigh the shifts themselves, so the more cautious
        # of the two half-widths counts.
        extra = 2 * rule.session_deviation**2
        spreads.append(
            (math.sqrt(variance + extra), freedom * ((variance + extra) / variance) ** 2)
        )
        method += f", widened by {percent(rule.session_deviation)} for each session"
    spreads = [(error, max(1.0, min(free, 1e6))) for error, free in spreads]
    half = max(float(stdtrit(free, 0.5 + rule.confidence / 2)) * error for error, free in spreads)
    effect, error, freedom = max((_smallest(*each, rule), *each) for each in spreads)
    slower_p, faster_p = (
        max(float(stdtr(free, way * shift / error)) for error, free in spreads) for way in (-1, 1)
    )
    ratio, low, high = (math.exp(each) for each in (shift, shift - half, shift + half))
    found = PairedEstimate(ratio, low, high, slower_p, faster_p, 0)
    return _decide(found, rule, effect, (len(a), len(b)), method, error, freedom)


def judge_pairs(
    baseline: Sequence[float], candidate: Sequence[float], rule: Rule = DEFAULT
) -> Judgement:
    """Judge launches measured in pairs, the i-th of one side beside the i-th of the other.

    Raises ValueError for series of different length and for times that are not positive and finite.
    """
    a, b = _logs(baseline, candidate)
    pairs = len(a)
    if pairs == len(b) < FEWEST_PAIRS:
        return _too_few(a, b, FEWEST_PAIRS, "pairs")
    found = estimate_pairs(baseline, candidate, rule.confidence)
    deviation = deviation_of(baseline, candidate)
    effect = smallest_effect_of_pairs(deviation, pairs, rule)
    method = f"{_SIGNED_RANKS} {pairs} interleaved pairs"
    return _decide(
        found, rule, effect, (pairs, pairs), method, deviation / math.sqrt(pairs), pairs - 1
    )


def adjust(judgements: Sequence[Judgement], rule: Rule = DEFAULT) -> list[Judgement]:
    """Return the judgements with p-values adjusted for their number (Benjamini and Hochberg 1995).

    A regression or an improvement that does not survive the adjustment becomes inconclusive.
    Comparisons of machines and of different work stay as they are.
    """
    from scipy.stats import false_discovery_control  # slow to import

    untested = (Verdict.COMPARISON, Verdict.DIFFERENT)
    places = [
        place
        for place, each in enumerate(judgements)
        if each.p is not None and each.verdict not in untested
    ]
    adjusted = list(judgements)
    if not places:
        return adjusted
    # Both directions were looked at: a one-sided p counts twice.
    doubled = [min(1.0, 2 * (judgements[place].p or 0.0)) for place in places]
    strict = replace(rule, p_value=min(rule.p_value, rule.false_discovery_rate / (2 * len(places))))
    for place, value in zip(places, false_discovery_control(doubled), strict=True):
        found = judgements[place]
        effect, pairs = found.smallest_effect, found.candidate_launches
        if effect is not None and found.standard_error is not None and found.freedom is not None:
            if found.method.startswith(_SIGNED_RANKS):
                deviation = found.standard_error * math.sqrt(pairs)
                effect = smallest_effect_of_pairs(deviation, pairs, strict)
            else:
                effect = _smallest(found.standard_error, found.freedom, strict)
            effect = effect if math.isfinite(effect) else None
        sentence = found.sentence.replace(
            _shows(found.smallest_effect, rule.words[2]), _shows(effect, rule.words[2])
        )
        each = replace(found, adjusted_p=float(value), smallest_effect=effect, sentence=sentence)
        if (
            each.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT)
            and value > rule.false_discovery_rate
        ):
            clear = each.high is not None and each.high < 1 + rule.tolerance
            verdict = Verdict.NO_REGRESSION if clear else Verdict.INCONCLUSIVE
            words = f"not significant among {len(places)} cells (adjusted p {value:.2g})"
            each = replace(each, verdict=verdict, sentence=f"{each.sentence}; {words}")
        adjusted[place] = each
    return adjusted


def fewest_pairs(cells: int, rule: Rule = DEFAULT) -> int:
    """Return the fewest pairs that can prove a slowdown among this many cells compared at once.

    ``n`` pairs of one sign have a one-sided p of ``2**-n``; it must pass the rule's limit, and
    doubled and adjusted for the number of cells (as if this one alone were slower) the false
    discovery rate.
    """
    limit = min(rule.p_value, rule.false_discovery_rate / (2 * max(1, cells)))
    return max(FEWEST_PAIRS, math.ceil(-math.log2(limit)))


def _decide(
    found: PairedEstimate,
    rule: Rule,
    smallest: float,
    launches: tuple[int, int],
    method: str,
    error: float,
    freedom: float,
) -> Judgement:
    ratio, low, high, slower_p = found.ratio, found.low, found.high, found.slower_p
    change, tolerance = signed_change(ratio, low, high), percent(rule.tolerance)
    larger, smaller, rise = rule.words
    effect = smallest if math.isfinite(smallest) else None
    verdict = Verdict.INCONCLUSIVE
    if ratio > 1 + rule.magnitude and slower_p <= rule.p_value:
        verdict, sentence = Verdict.REGRESSION, change_in_words(ratio, low, high, larger, smaller)
    elif ratio < 1 / (1 + rule.magnitude) and found.faster_p <= rule.p_value:
        verdict, sentence = Verdict.IMPROVEMENT, change_in_words(ratio, low, high, larger, smaller)
    elif high < 1 + rule.tolerance:
        verdict, sentence = Verdict.NO_REGRESSION, f"{change}: {rise} of {tolerance} is excluded"
    elif low > 1:
        sentence = (
            f"{change}: {larger}, but {launches[1]} launches a side do not prove it (p "
            f"{slower_p:.2g})"
        )
    else:
        sentence = f"{change}: {rise} of {tolerance} is not excluded; {_shows(effect, rise)}"
    p = slower_p if ratio >= 1 else found.faster_p
    return Judgement(
        verdict, sentence, *launches, method, ratio, low, high, p, None, effect, error, freedom
    )


def _shows(effect: float | None, rise: str) -> str:
    if effect is None:
        return "too few launches to show one"
    return f"{rise} of {percent(effect)} would have been found"


def _smallest(error: float, freedom: float, rule: Rule) -> float:
    """Return the relative slowdown that passes both conditions of a regression with probability
    `POWER`.
    """
    spare = float(stdtrit(freedom, POWER)) * error
    by_chance = float(stdtrit(freedom, 1 - rule.p_value)) * error
    return math.expm1(max(by_chance, math.log1p(rule.magnitude)) + spare)


def _too_few(a: Floats, b: Floats, needed: int, what: str) -> Judgement:
    """Return the judgement of too few log-times; their plain ratio is shown."""
    why = f"too few {what}: {min(len(a), len(b))}, and {needed} are needed on each side"
    ratio = float(np.exp(np.mean(b) - np.mean(a))) if len(a) and len(b) else None
    return Judgement(Verdict.INCONCLUSIVE, why, len(a), len(b), ratio=ratio)


def _logs(*series: Sequence[float]) -> list[Floats]:
    """Return the logarithms of times; raises ValueError for any that is not positive and finite."""
    values = [np.asarray(each, dtype=float) for each in series]
    if not all(((each > 0) & np.isfinite(each)).all() for each in values):
        raise ValueError("seconds per step must be positive and finite")
    return [np.log(each) for each in values]


def pairs_for(confidence: float) -> int:
    """Return from how many pairs on an exact two-sided interval of this confidence exists: 2 /
    2**pairs is left out.
    """
    return math.ceil(math.log2(2 / (1 - confidence)))


FEWEST_PAIRS = pairs_for(0.95)
"""Six: 2 / 2**6 = 3 %."""

_SIMULATED_PAIRS = 40
_SIMULATIONS = 2000


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


def estimate_pairs(
    baseline: Sequence[float], candidate: Sequence[float], confidence: float = 0.95
) -> PairedEstimate:
    """Return the ratio of paired launches' seconds per step, the i-th of one beside the i-th of the
    other.

    Raises ValueError for series of different length, without pairs, or with times that are not
    positive and finite.
    """
    if len(baseline) != len(candidate) or len(baseline) == 0:
        raise ValueError(
            f"pairs need two series of one length, not of {len(baseline)} and {len(candidate)}"
        )
    before, after = _logs(baseline, candidate)
    differences = after - before
    pairs = len(differences)
    walsh = np.sort((np.add.outer(differences, differences) / 2)[np.triu_indices(pairs)])
    below = null_distribution(pairs)
    # The signed-rank sum is the number of positive Walsh averages (Tukey); zeros count half.
    zeros = int(np.count_nonzero(walsh == 0.0))
    negative, positive = (
        int(np.count_nonzero(side)) + (zeros + 1) // 2 for side in (walsh < 0.0, walsh > 0.0)
    )
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


def estimate_few_pairs(
    baseline: Sequence[float],
    candidate: Sequence[float],
    confidence: float,
    spread: Spread = UNKNOWN_SPREAD,
) -> PairedEstimate:
    """Return the same as `estimate_pairs` of pairs that are too few for ranks, by Student's t over
    the log ratios.

    The pairs' variance is shrunk towards a common ``spread``, unless their own is larger: a cell
    that is noisier than the others must not pass for that. Raises ValueError for fewer than two
    pairs, and for times that are not positive and finite.
    """
    before, after = _logs(baseline, candidate)
    differences = after - before
    pairs = len(differences)
    if pairs < 2:
        raise ValueError("an interval needs two pairs at least")
    own = deviation_of(baseline, candidate) ** 2
    shrunk, freedom = spread.shrink(own, pairs - 1)
    error = math.sqrt(max(own, shrunk) / pairs)
    centre = float(differences.mean())
    half = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    return PairedEstimate(
        ratio=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        slower_p=float(stdtr(freedom, -centre / error)),
        faster_p=float(stdtr(freedom, centre / error)),
        pairs=pairs,
    )


def spreads_of(cells: Iterable[tuple[Pairs, Tails]]) -> Spreads:
    """Return the common spread of the first pairs of a gate's cells, given their usual steps and
    their tails.
    """
    usual, tails = [], []
    for of_steps, of_tails in cells:
        usual.append(of_steps)
        tails.append(of_tails)
    return Spreads(_shared_spread(usual), _shared_spread(tails))


def _shared_spread(cells: Iterable[Pairs]) -> Spread:
    variances = [
        deviation_of(before[:EARLY_LOOK], after[:EARLY_LOOK]) ** 2
        for before, after in cells
        if len(before) >= EARLY_LOOK
    ]
    if len(variances) < 2:
        return UNKNOWN_SPREAD
    of_others = (EARLY_LOOK - 1) * (len(variances) - 1)
    return Spread(float(np.mean(variances)), min(SHARED_FREEDOM, SHARED_PART * of_others))


def _estimate(look: Look, pairs: Pairs, spread: Spread) -> PairedEstimate:
    """Return the ratio over the pairs up to a look, with the look's interval."""
    before, after = pairs
    confidence = 1 - 2 * look.bound
    if look.assumes_normal:
        return estimate_few_pairs(before[: look.pairs], after[: look.pairs], confidence, spread)
    return estimate_pairs(before[: look.pairs], after[: look.pairs], confidence)


def deciding_look(
    baseline: Sequence[float],
    candidate: Sequence[float],
    rule: Rule = DEFAULT,
    tails: Tails = NO_TAILS,
    spreads: Spreads = NO_SPREADS,
) -> Look | None:
    """Return the look that ends the measurement of a cell; None: it needs more pairs (seconds per
    step, side by side).

    A look ends it that finds a regression, excludes one, or finds that the cell is not suspect
    enough to go on. A cell that looks faster goes on until the first look that can prove it: that
    is as strict as a proof of the contrary. One whose tail looks slower goes on until that is
    proved or no longer looks so.
    """
    first_proof = next((look.pairs for look in rule.looks if look.slower > 0), 0)
    for look in rule.looks:
        if len(baseline) < look.pairs:
            return None
        found = _estimate(look, (baseline, candidate), spreads.steps)
        if found.ratio > 1 + rule.magnitude:
            ends = found.slower_p <= look.slower or found.slower_p > look.suspect
        elif (
            _looks_faster(found, rule) and found.faster_p <= look.bound and look.pairs < first_proof
        ):
            ends = False
        else:
            ends = found.high < 1 + rule.tolerance or look.suspect < 1
        proven = found.ratio > 1 + rule.magnitude and found.slower_p <= look.slower
        if proven or (ends and not _tail_needs_more(look, rule, tails, spreads)):
            return look
    return None


def _tail_needs_more(look: Look, rule: Rule, tails: Tails, spreads: Spreads) -> bool:
    """Tell whether the tail looks slower at this look, which does not prove it, and a later one
    can.
    """
    tail = _slower_tail(look, rule, tails, spreads)
    return (
        tail is not None
        and look is not rule.looks[-1]
        and look.slower_tail < tail.slower_p <= look.suspect_tail
    )


def _slower_tail(look: Look, rule: Rule, tails: Tails, spreads: Spreads) -> PairedEstimate | None:
    """Return how much slower the tail is over the pairs up to a look; None where it does not look
    slower.
    """
    if len(tails[0]) < look.pairs:
        return None
    tail = _estimate(look, tails, spreads.tails)
    return tail if tail.ratio > 1 + rule.magnitude else None


def _looks_faster(found: PairedEstimate, rule: Rule) -> bool:
    return found.ratio < 1 / (1 + rule.magnitude)


def next_look(pairs: int, rule: Rule = DEFAULT) -> Look:
    """Return the next look after this many pairs, or the last one."""
    return next((look for look in rule.looks if look.pairs > pairs), rule.looks[-1])


def judge_looks(
    baseline: Sequence[float],
    candidate: Sequence[float],
    rule: Rule = DEFAULT,
    tails: Tails = NO_TAILS,
    spreads: Spreads = NO_SPREADS,
) -> Judgement:
    """Return the verdict on a cell of a gate from its pairs so far, by the look that decides.

    ``tails`` are those of the same launches, ``spreads`` those of the whole gate. Pairs beyond that
    look do not count, or measuring on would be a second chance. Without such a look the cell is
    inconclusive, whatever it looks like so far, unless only the proof that it is faster is missing.
    """
    deciding = deciding_look(baseline, candidate, rule, tails, spreads)
    reached = [each for each in rule.looks if each.pairs <= len(baseline)]
    look = deciding or (reached[-1] if reached else None)
    missing = f"{len(baseline)} of at least {next_look(len(baseline), rule).pairs} pairs measured"
    if look is None:
        ratio = (
            math.exp(float(np.median(np.subtract(*_logs(candidate, baseline)))))
            if len(baseline)
            else None
        )
        return Judgement(Verdict.INCONCLUSIVE, missing, len(baseline), len(candidate), ratio=ratio)
    pairs, before, after = look.pairs, baseline[: look.pairs], candidate[: look.pairs]
    found = _estimate(look, (baseline, candidate), spreads.steps)
    deviation = deviation_of(before, after)
    levels = replace(rule, p_value=look.slower)
    confidence = f"{percent(rule.confidence_of_looks)} on each side over all looks"
    test = "Student's t over" if look.assumes_normal else _SIGNED_RANKS
    method = f"{test} {pairs} interleaved pairs, {confidence}"
    effect = smallest_effect(
        float(f"{deviation:.2g}"), rule
    )  # so few pairs show no more digits, and fewer are cached
    judged = _decide(
        found, levels, effect, (pairs, pairs), method, deviation / math.sqrt(pairs), pairs - 1
    )
    tail = _slower_tail(look, rule, tails, spreads)
    if (
        tail is not None
        and tail.slower_p <= look.slower_tail
        and judged.verdict is not Verdict.REGRESSION
    ):
        words = change_in_words(tail.ratio, tail.low, tail.high)
        sentence = f"{judged.sentence}, but the slowest tenth of the steps is {words}"
        return replace(judged, verdict=Verdict.REGRESSION, sentence=sentence, tail=tail)
    if deciding is not None and judged.verdict is Verdict.INCONCLUSIVE:
        return replace(judged, sentence=f"{judged.sentence}; {_why_no_more(look, found, rule)}")
    if deciding is not None or (
        _looks_faster(found, rule) and judged.verdict is Verdict.NO_REGRESSION
    ):
        return judged  # that it is no slower is known, though not that it is faster
    return replace(judged, verdict=Verdict.INCONCLUSIVE, sentence=f"{judged.sentence}; {missing}")


def _why_no_more(look: Look, found: PairedEstimate, rule: Rule) -> str:
    """Return why a cell that is still open gets no more pairs."""
    if look is rule.looks[-1]:
        return f"no more than {look.pairs} pairs are measured"
    larger = rule.words[0]
    return (
        f"it does not look {larger} either (p {found.slower_p:.2g}), so no more than {look.pairs} "
        "pairs were measured"
    )


def deviation_of(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the standard deviation of the logarithms of pairs' ratios."""
    before, after = _logs(baseline, candidate)
    return max(float(np.std(after - before, ddof=1)), 1e-6)


def outlook(deviation: float, slowdown: float, rule: Rule = DEFAULT) -> tuple[float, float]:
    """Return with which probability a gate finds a slowdown (0.05 is 5 %), and the mean number of
    pairs.

    By simulation with a fixed seed: the logarithms of the pairs' ratios are normal with standard
    deviation ``deviation``.
    """
    shift, large, tolerated = (
        math.log1p(each) for each in (slowdown, rule.magnitude, rule.tolerance)
    )
    going_on, found, pairs, before = np.ones(_SIMULATIONS, dtype=bool), 0, 0, 0
    for look, centre, upper, slower, suspect in _simulated_looks(rule.looks):
        pairs += int(going_on.sum()) * (look.pairs - before)
        before = look.pairs
        is_large = shift + deviation * centre > large
        alarm = is_large & (shift + deviation * slower > 0)
        found += int((going_on & alarm).sum())
        clear = ~is_large & (shift + deviation * upper < tolerated)
        unsuspected = (look.suspect < 1) & ~(is_large & (shift + deviation * suspect > 0))
        going_on &= ~(alarm | clear | unsuspected)
    return found / _SIMULATIONS, pairs / _SIMULATIONS


@lru_cache(maxsize=64)
def _simulated_looks(looks: tuple[Look, ...]) -> list[tuple[Look, Floats, Floats, Floats, Floats]]:
    """Return what each look sees of simulated cells without a difference, in standard deviations of
    a pair.

    That is the estimate, the upper end of the interval, and the Walsh averages that must be
    positive for the candidate to be slower, or suspect, at the look's levels: adding a shift to all
    of them is adding it to the pairs. Each cell is alone in its gate.
    """
    draws, found = np.random.default_rng(0).normal(size=(_SIMULATIONS, looks[-1].pairs)), []
    for look in looks:
        first, second = np.triu_indices(look.pairs)
        walsh = np.sort((draws[:, first] + draws[:, second]) / 2, axis=1)
        centre = np.median(walsh[:, (walsh.shape[1] - 1) // 2 : walsh.shape[1] // 2 + 1], axis=1)
        never = np.full(_SIMULATIONS, -math.inf)
        if look.assumes_normal:
            so_far = draws[:, : look.pairs]
            half = (
                stdtrit(look.pairs - 1, 1 - look.bound)
                * so_far.std(axis=1, ddof=1)
                / math.sqrt(look.pairs)
            )
            found.append((look, so_far.mean(axis=1), so_far.mean(axis=1) + half, never, never))
            continue

        def cut(level: float, look: Look = look) -> int:
            return int(np.searchsorted(null_distribution(look.pairs), level, side="right"))

        slower, suspect = (
            walsh[:, cut(p) - 1] if cut(p) else never for p in (look.slower, min(look.suspect, 0.5))
        )
        found.append((look, centre, walsh[:, -cut(look.bound)], slower, suspect))
    return found


@lru_cache(maxsize=512)
def smallest_effect(deviation: float, rule: Rule = DEFAULT) -> float:
    """Return the relative slowdown that a gate finds with probability `POWER`, about.

    ``deviation`` is the standard deviation of the logarithms of the pairs' ratios.
    """
    low, high = 0.0, math.log1p(rule.magnitude) + 10 * deviation
    for _ in range(16):
        middle = (low + high) / 2
        enough = outlook(deviation, math.expm1(middle), rule)[0] >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return math.expm1(high)


def smallest_effect_of_pairs(deviation: float, pairs: int, rule: Rule = DEFAULT) -> float:
    """Return the same for a single look after this many pairs at the rule's p-value; infinite if
    they prove nothing.

    More pairs than can be simulated are taken as fewer ones that deviate as much less.
    """
    if null_distribution(pairs)[0] > rule.p_value:
        return math.inf
    simulated = min(pairs, _SIMULATED_PAIRS)
    look = Look(simulated, bound=0.5, slower=rule.p_value, suspect=0.0)
    return smallest_effect(deviation * math.sqrt(simulated / pairs), replace(rule, looks=(look,)))
