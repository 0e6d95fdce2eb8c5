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
from dlbench.reports.results.statistics import (
    NO_INTERVAL,
    POWER,
    UNKNOWN_SPREAD,
    CommonSpread,
    Estimate,
)

Floats = NDArray[np.float64]

Tails = tuple[Sequence[float], Sequence[float]]
"""(baseline, candidate): seconds that nine steps in ten take at most, of launches side by side."""
NO_TAILS: Tails = ((), ())
Pairs = tuple[Sequence[float], Sequence[float]]
"""(baseline, candidate): seconds per step of launches side by side."""
EARLY_LOOK = 3
"""Pairs of the first look."""
EARLY_BOUND = 0.005
"""How often the upper end of an early look's interval may be too low."""
SHARED_PART = 1 / 3
"""The share of their degrees of freedom that the cells of a gate add to those of one cell ..."""
SHARED_FREEDOM = 6.0
"""... and the most that they add."""
FEWEST_LAUNCHES = 3
"""On each side, for a standard error that means something."""
_SIGNED_RANKS = "signed ranks over"


class Verdict(StrEnum):
    """The verdict on a candidate against its baseline, the gravest first."""

    REGRESSION = "REGRESSION"
    """The estimate exceeds ``1 + threshold``, and identical code looks as slow with probability
    ``p_value`` at most."""
    BROKEN = "BROKEN"
    """The candidate fails where the baseline does not."""
    DIFFERENT = "DIFFERENT"
    """The candidate computes something else: the times of both sides are those of different work.
    """
    IMPROVEMENT = "IMPROVEMENT"
    """The mirror image, at the same ``p_value``."""
    INCONCLUSIVE = "INCONCLUSIVE"
    CONTENDED = "CONTENDED"
    COMPARISON = "COMPARISON"
    """The sides are of different machines: a ratio, and no verdict on a change of code."""
    NO_REGRESSION = "NO_REGRESSION"
    """The interval ends below ``1 + tolerance``."""
    HOLE = "HOLE"
    """A side was not measured, or the baseline fails too."""


@dataclass(frozen=True)
class Look:
    """A number of pairs after which a gate looks at a cell, and the levels of its verdicts.

    Levels are one-sided.
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
    """The spread of the first pairs of a gate's cells: log ratios of usual steps and of tails."""

    steps: CommonSpread = UNKNOWN_SPREAD
    tails: CommonSpread = UNKNOWN_SPREAD


NO_SPREADS = Spreads()


@dataclass(frozen=True)
class Rule:
    """The thresholds of verdicts, and the looks of a gate; see the module's docstring."""

    threshold: float = 0.025
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
            self, looks=looks, threshold=threshold, tolerance=2 * threshold, words=_OF_AMOUNTS
        )

    @property
    def false_alarms(self) -> float:
        """The largest probability that a gate calls a cell of identical code slower.

        That of calling it faster is the same.
        """
        return sum(look.slower + look.slower_tail for look in self.looks)

    @property
    def confidence_of_looks(self) -> float:
        """The smallest probability that one end of a gate's interval holds, whenever it ends."""
        return 1 - sum(look.bound for look in self.looks)


_OF_AMOUNTS = ("more", "less", "a rise")
DEFAULT = Rule()


@lru_cache(maxsize=64)
def shared_looks(looks: tuple[Look, ...], quantities: int) -> tuple[Look, ...]:
    """Return the looks of one of so many quantities; all their levels together are those given."""
    if quantities == 1:
        return looks
    more = math.ceil(math.log2(quantities))
    first_proof = next((look for look in looks if look.slower), None)
    shared = []
    for look in looks:
        part = replace(
            look, slower=look.slower / quantities, slower_tail=look.slower_tail / quantities
        )
        if look is first_proof:
            part = replace(part, pairs=look.pairs + more, slower=look.slower / 2**more)
        shared.append(part)
    return tuple(shared)


_OPTIONS = ("threshold", "tolerance")
"""The limits of a rule that a user can choose."""
_FORMER_NAMES = {"magnitude": "threshold"}
"""Names in older stores."""
_ALLOW_DIFFERENT = "allow_different"
_JUDGES = "judges "
"""Beginning of the name of a quantity's threshold."""


def chosen(rule: Rule) -> dict[str, float]:
    """Return the values of a rule that differ from the defaults, by name."""
    values: dict[str, float] = {}
    for name in _OPTIONS:
        if getattr(rule, name) != getattr(DEFAULT, name):
            values[name] = getattr(rule, name)
    if rule.allow_different:
        values[_ALLOW_DIFFERENT] = 1.0
    if rule.further and rule.judges_time:
        values[_JUDGES + TIME] = 1.0
    for name, threshold in rule.further:
        values[_JUDGES + name] = threshold
    return values


def rule_of(values: Mapping[str, float]) -> Rule:
    """Return the rule with these `chosen` values; other keys are ignored."""
    options: dict[str, Any] = {}
    judged = {}
    for key, value in values.items():
        name = _FORMER_NAMES.get(key, key)
        if name in _OPTIONS:
            options[name] = value
        if key.startswith(_JUDGES):
            judged[key.removeprefix(_JUDGES)] = value
    return replace(
        DEFAULT,
        allow_different=_ALLOW_DIFFERENT in values,
        judges_time=TIME in judged or not judged,
        further=tuple((name, value) for name, value in judged.items() if name in JUDGED),
        **options,
    )


@dataclass(frozen=True)
class PairedEstimate(Estimate):
    """The ratio candidate / baseline over launches.

    Too few pairs for an interval of the confidence asked for have none.
    """

    slower_p: float
    """One-sided: how often identical code would look at least this much slower."""
    faster_p: float
    pairs: int
    """0 for launches that were not measured in pairs."""


def estimate_data(estimate: PairedEstimate | None) -> dict[str, Any] | None:
    """Return an estimate as a JSON object; too few pairs have null for the ends of an interval."""
    if estimate is None:
        return None
    return {
        "ratio": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "pairs": estimate.pairs,
    }


@dataclass(frozen=True)
class Judgement:
    """A verdict and its evidence; ratios are candidate / baseline, above 1 slower."""

    verdict: Verdict
    sentence: str
    """The reason."""
    baseline_launches: int
    candidate_launches: int
    ratio: Estimate | None = None
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
    before, after = _logs(baseline, candidate)
    if min(len(before), len(after)) < FEWEST_LAUNCHES:
        return _too_few(before, after, FEWEST_LAUNCHES, "launches")
    session_deviation = 0.0
    method = "Welch t over launches"
    if not same_session:
        session_deviation = rule.session_deviation
        method += f", widened by {percent(session_deviation)} for each session"
    shift = float(np.mean(after) - np.mean(before))
    share = 0.5 + rule.confidence / 2
    # The most cautious of the standard errors decides each figure.
    half = slower_p = faster_p = 0.0
    effects = []
    for error, freedom in _standard_errors(before, after, session_deviation):
        half = max(half, float(stdtrit(freedom, share)) * error)
        slower_p = max(slower_p, float(stdtr(freedom, -shift / error)))
        faster_p = max(faster_p, float(stdtr(freedom, shift / error)))
        effects.append((_smallest(error, freedom, rule), error, freedom))
    estimate = PairedEstimate(
        value=math.exp(shift),
        low=math.exp(shift - half),
        high=math.exp(shift + half),
        method=method,
        slower_p=slower_p,
        faster_p=faster_p,
        pairs=0,
    )
    effect, error, freedom = max(effects)
    launches = len(before), len(after)
    return _decide(estimate, rule, effect, launches, error, freedom)


def _standard_errors(
    before: Floats, after: Floats, session_deviation: float
) -> list[tuple[float, float]]:
    """Return the standard error of the difference of two means, and its degrees of freedom.

    With a deviation of sessions there are two, without it and with it.
    """
    parts = float(np.var(before, ddof=1)) / len(before), float(np.var(after, ddof=1)) / len(after)
    squares = parts[0] ** 2 / (len(before) - 1) + parts[1] ** 2 / (len(after) - 1)
    freedom = sum(parts) ** 2 / squares if squares > 0 else float(len(before) + len(after) - 2)
    # The resolution of clocks: launches without any spread do not prove that a tiny difference is
    # real.
    variance = max(sum(parts), 1e-12)
    errors = [(math.sqrt(variance), freedom)]
    if session_deviation:
        # The shifts are assumed, not estimated: freedom grows with their share (Satterthwaite
        # 1946). With few launches that would outweigh the shifts themselves, so the more cautious
        # of the two half-widths counts.
        widened = variance + 2 * session_deviation**2
        errors.append((math.sqrt(widened), freedom * (widened / variance) ** 2))
    return [(error, max(1.0, min(freedom, 1e6))) for error, freedom in errors]


def judge_pairs(
    baseline: Sequence[float], candidate: Sequence[float], rule: Rule = DEFAULT
) -> Judgement:
    """Judge launches measured in pairs: each of one side with the one of the same index.

    Raises ValueError for series of different length and for times that are not positive and finite.
    """
    before, after = _logs(baseline, candidate)
    pairs = len(before)
    if pairs == len(after) < FEWEST_PAIRS:
        return _too_few(before, after, FEWEST_PAIRS, "pairs")
    estimate = estimate_pairs(baseline, candidate, rule.confidence)
    deviation = deviation_of(baseline, candidate)
    effect = smallest_effect_of_pairs(deviation, pairs, rule)
    error = deviation / math.sqrt(pairs)
    return _decide(estimate, rule, effect, (pairs, pairs), error, pairs - 1)


def adjust(judgements: Sequence[Judgement], rules: Sequence[Rule] | None = None) -> list[Judgement]:
    """Return the judgements with p-values adjusted for their number (Benjamini and Hochberg 1995).

    ``rules`` are those of the judgements, `DEFAULT` if not given. A regression or an improvement
    that does not survive the adjustment becomes inconclusive. Comparisons of machines and of
    different work stay as they are.
    """
    from scipy.stats import false_discovery_control  # slow to import

    places = []
    doubled = []
    for place, judgement in enumerate(judgements):
        tested = judgement.verdict not in (Verdict.COMPARISON, Verdict.DIFFERENT)
        if tested and judgement.p is not None:
            places.append(place)
            # Both directions were looked at: a one-sided p counts twice.
            doubled.append(min(1.0, 2 * judgement.p))
    adjusted = list(judgements)
    if not places:
        return adjusted
    for place, p_value in zip(places, false_discovery_control(doubled), strict=True):
        rule = DEFAULT if rules is None else rules[place]
        adjusted[place] = _adjust(judgements[place], float(p_value), len(places), rule)
    return adjusted


def _adjust(judgement: Judgement, p_value: float, cells: int, rule: Rule) -> Judgement:
    """Return one of the judgements on so many cells with its adjusted p-value."""
    strict = replace(rule, p_value=min(rule.p_value, rule.false_discovery_rate / (2 * cells)))
    effect = _smallest_effect(judgement, strict)
    rise = rule.words[2]
    sentence = judgement.sentence.replace(
        _shows(judgement.smallest_effect, rise), _shows(effect, rise)
    )
    adjusted = replace(judgement, adjusted_p=p_value, smallest_effect=effect, sentence=sentence)
    found_change = judgement.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT)
    if not found_change or p_value <= rule.false_discovery_rate:
        return adjusted
    verdict = Verdict.INCONCLUSIVE
    if judgement.ratio is not None and judgement.ratio.is_below(1 + rule.tolerance):
        verdict = Verdict.NO_REGRESSION
    sentence += f"; not significant among {cells} cells (adjusted p {p_value:.2g})"
    return replace(adjusted, verdict=verdict, sentence=sentence)


def _smallest_effect(judgement: Judgement, rule: Rule) -> float | None:
    """Return the smallest effect of a judgement under another rule; None where it finds none."""
    error = judgement.standard_error
    freedom = judgement.freedom
    if judgement.smallest_effect is None or error is None or freedom is None:
        return judgement.smallest_effect
    if judgement.ratio is not None and judgement.ratio.method.startswith(_SIGNED_RANKS):
        pairs = judgement.candidate_launches
        effect = smallest_effect_of_pairs(error * math.sqrt(pairs), pairs, rule)
    else:
        effect = _smallest(error, freedom, rule)
    return effect if math.isfinite(effect) else None


def fewest_pairs(cells: int, rule: Rule = DEFAULT) -> int:
    """Return the fewest pairs that can prove a slowdown among this many cells compared at once.

    ``n`` pairs of one sign have a one-sided p of ``2**-n``; it must pass the rule's limit, and
    doubled and adjusted for the number of cells (as if this one alone were slower) the false
    discovery rate.
    """
    limit = min(rule.p_value, rule.false_discovery_rate / (2 * max(1, cells)))
    return max(FEWEST_PAIRS, math.ceil(-math.log2(limit)))


def _decide(
    estimate: PairedEstimate,
    rule: Rule,
    smallest: float,
    launches: tuple[int, int],
    error: float,
    freedom: float,
) -> Judgement:
    """Return the verdict that an estimate and a rule give, with its evidence."""
    ratio = estimate.value
    low, high = estimate.low, estimate.high
    change = signed_change(ratio, low, high)
    tolerance = percent(rule.tolerance)
    larger, smaller, rise = rule.words
    effect = smallest if math.isfinite(smallest) else None
    p_value = estimate.slower_p if ratio >= 1 else estimate.faster_p
    verdict = Verdict.INCONCLUSIVE
    if ratio > 1 + rule.threshold and estimate.slower_p <= rule.p_value:
        verdict = Verdict.REGRESSION
        sentence = change_in_words(ratio, low, high, larger, smaller)
    elif ratio < 1 / (1 + rule.threshold) and estimate.faster_p <= rule.p_value:
        verdict = Verdict.IMPROVEMENT
        sentence = change_in_words(ratio, low, high, larger, smaller)
    elif estimate.is_below(1 + rule.tolerance):
        verdict = Verdict.NO_REGRESSION
        sentence = f"{change}: {rise} of {tolerance} is excluded"
    elif estimate.is_above(1):
        sentence = (
            f"{change}: {larger}, but {launches[1]} launches a side do not prove it (p "
            f"{estimate.slower_p:.2g})"
        )
    else:
        sentence = f"{change}: {rise} of {tolerance} is not excluded; {_shows(effect, rise)}"
    return Judgement(
        verdict,
        sentence,
        baseline_launches=launches[0],
        candidate_launches=launches[1],
        ratio=Estimate(ratio, low, high, estimate.method),
        p=p_value,
        smallest_effect=effect,
        standard_error=error,
        freedom=freedom,
    )


def _shows(effect: float | None, rise: str) -> str:
    if effect is None:
        return "too few launches to show one"
    return f"{rise} of {percent(effect)} would have been found"


def _smallest(error: float, freedom: float, rule: Rule) -> float:
    """Return the slowdown that passes both conditions of a regression with probability `POWER`."""
    spare = float(stdtrit(freedom, POWER)) * error
    by_chance = float(stdtrit(freedom, 1 - rule.p_value)) * error
    return math.expm1(max(by_chance, math.log1p(rule.threshold)) + spare)


def _too_few(before: Floats, after: Floats, needed: int, units: str) -> Judgement:
    """Return the judgement of too few log-times; their plain ratio is shown."""
    fewer = min(len(before), len(after))
    reason = f"too few {units}: {fewer}, and {needed} are needed on each side"
    ratio = None
    if fewer:
        value = float(np.exp(np.mean(after) - np.mean(before)))
        ratio = Estimate(value, None, None, NO_INTERVAL)
    return Judgement(Verdict.INCONCLUSIVE, reason, len(before), len(after), ratio)


def _logs(*series: Sequence[float]) -> list[Floats]:
    """Return the logarithms of times; raises ValueError for any that is not positive and finite."""
    logs = []
    for times in series:
        values = np.asarray(times, dtype=float)
        if not ((values > 0) & np.isfinite(values)).all():
            raise ValueError("seconds per step must be positive and finite")
        logs.append(np.log(values))
    return logs


def pairs_for(confidence: float) -> int:
    """Return the fewest pairs that have an exact two-sided interval of this confidence.

    An interval of so many pairs leaves out 2 / 2**pairs.
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
    """Return the ratio of the seconds per step of launches in pairs, by signed ranks.

    Values of the same index are a pair. Raises ValueError for series of different length, without
    pairs, or with times that are not positive and finite.
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
    most = len(below) - 1
    # The signed-rank sum is the number of positive Walsh averages (Tukey); zeros count half.
    half_of_zeros = (int(np.count_nonzero(walsh == 0.0)) + 1) // 2
    negative = int(np.count_nonzero(walsh < 0.0)) + half_of_zeros
    positive = int(np.count_nonzero(walsh > 0.0)) + half_of_zeros
    cut = int(np.searchsorted(below, (1 - confidence) / 2, side="right"))
    low = high = None
    method = NO_INTERVAL
    if cut > 0:
        low = math.exp(float(walsh[cut - 1]))
        high = math.exp(float(walsh[-cut]))
        method = f"{_SIGNED_RANKS} {pairs} interleaved pairs"
    return PairedEstimate(
        value=math.exp(float(np.median(walsh))),
        low=low,
        high=high,
        method=method,
        slower_p=float(below[min(negative, most)]),
        faster_p=float(below[min(positive, most)]),
        pairs=pairs,
    )


def estimate_few_pairs(
    baseline: Sequence[float],
    candidate: Sequence[float],
    confidence: float,
    spread: CommonSpread = UNKNOWN_SPREAD,
) -> PairedEstimate:
    """Return the ratio of pairs that are too few for ranks, by Student's t over the log ratios.

    The pairs' variance is shrunk towards a common ``spread``, unless their own is larger: a cell
    that is noisier than the others must not pass for one of them. Raises ValueError for fewer than
    two pairs, and for times that are not positive and finite.
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
        value=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        method=f"Student's t over {pairs} interleaved pairs",
        slower_p=float(stdtr(freedom, -centre / error)),
        faster_p=float(stdtr(freedom, centre / error)),
        pairs=pairs,
    )


def spreads_of(cells: Iterable[tuple[Pairs, Tails]]) -> Spreads:
    """Return the common spread of the first pairs of a gate's cells, of usual steps and tails."""
    steps_of_cells = []
    tails_of_cells = []
    for steps, tails in cells:
        steps_of_cells.append(steps)
        tails_of_cells.append(tails)
    return Spreads(_shared_spread(steps_of_cells), _shared_spread(tails_of_cells))


def _shared_spread(cells: Iterable[Pairs]) -> CommonSpread:
    variances = []
    for before, after in cells:
        if len(before) >= EARLY_LOOK:
            variances.append(deviation_of(before[:EARLY_LOOK], after[:EARLY_LOOK]) ** 2)
    if len(variances) < 2:
        return UNKNOWN_SPREAD
    freedom_of_others = (EARLY_LOOK - 1) * (len(variances) - 1)
    freedom = min(SHARED_FREEDOM, SHARED_PART * freedom_of_others)
    return CommonSpread(float(np.mean(variances)), freedom)


def _estimate(look: Look, pairs: Pairs, spread: CommonSpread) -> PairedEstimate:
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
    """Return the look that ends the measurement of a cell; None where it needs more pairs.

    The sides are seconds per step of launches in pairs. A look ends the measurement that finds a
    regression, excludes one, or finds that the cell is not suspect enough to go on. A cell that
    looks faster goes on until the first look that can prove it: that is as strict as a proof of the
    contrary. One whose tail looks slower goes on until that is proved or no longer looks so.
    """
    first_proof = next((look.pairs for look in rule.looks if look.slower > 0), 0)
    for look in rule.looks:
        if len(baseline) < look.pairs:
            return None
        estimate = _estimate(look, (baseline, candidate), spreads.steps)
        looks_slower = estimate.value > 1 + rule.threshold
        proven = looks_slower and estimate.slower_p <= look.slower
        may_be_faster = _looks_faster(estimate, rule) and estimate.faster_p <= look.bound
        if looks_slower:
            ends = estimate.slower_p > look.suspect
        elif may_be_faster and look.pairs < first_proof:
            ends = False
        else:
            ends = estimate.is_below(1 + rule.tolerance) or look.suspect < 1
        if proven or (ends and not _tail_needs_more(look, rule, tails, spreads)):
            return look
    return None


def _tail_needs_more(look: Look, rule: Rule, tails: Tails, spreads: Spreads) -> bool:
    """Tell whether the tail looks slower at this look, and only a later one can prove it."""
    tail = _slower_tail(look, rule, tails, spreads)
    if tail is None or look is rule.looks[-1]:
        return False
    return look.slower_tail < tail.slower_p <= look.suspect_tail


def _slower_tail(look: Look, rule: Rule, tails: Tails, spreads: Spreads) -> PairedEstimate | None:
    """Return the ratio of the tails up to a look; None where they do not look slower."""
    if len(tails[0]) < look.pairs:
        return None
    tail = _estimate(look, tails, spreads.tails)
    return tail if tail.value > 1 + rule.threshold else None


def _looks_faster(estimate: PairedEstimate, rule: Rule) -> bool:
    return estimate.value < 1 / (1 + rule.threshold)


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
    reached = [look for look in rule.looks if look.pairs <= len(baseline)]
    missing = f"{len(baseline)} of at least {next_look(len(baseline), rule).pairs} pairs measured"
    if not reached:
        ratio = None
        if len(baseline):
            after, before = _logs(candidate, baseline)
            value = math.exp(float(np.median(after - before)))
            ratio = Estimate(value, None, None, NO_INTERVAL)
        return Judgement(Verdict.INCONCLUSIVE, missing, len(baseline), len(candidate), ratio)
    look = deciding or reached[-1]
    estimate = _estimate(look, (baseline, candidate), spreads.steps)
    judgement = _judge_look(look, estimate, (baseline, candidate), rule)
    tail = _slower_tail(look, rule, tails, spreads)
    tail_is_slower = tail is not None and tail.slower_p <= look.slower_tail
    if tail is not None and tail_is_slower and judgement.verdict is not Verdict.REGRESSION:
        words = change_in_words(tail.value, tail.low, tail.high)
        sentence = f"{judgement.sentence}, but the slowest tenth of the steps is {words}"
        return replace(judgement, verdict=Verdict.REGRESSION, sentence=sentence, tail=tail)
    if deciding is None:
        if _looks_faster(estimate, rule) and judgement.verdict is Verdict.NO_REGRESSION:
            return judgement  # that it is no slower is known, though not that it is faster
        sentence = f"{judgement.sentence}; {missing}"
        return replace(judgement, verdict=Verdict.INCONCLUSIVE, sentence=sentence)
    if judgement.verdict is Verdict.INCONCLUSIVE:
        sentence = f"{judgement.sentence}; {_why_no_more(look, estimate, rule)}"
        return replace(judgement, sentence=sentence)
    return judgement


def _judge_look(look: Look, estimate: PairedEstimate, pairs: Pairs, rule: Rule) -> Judgement:
    """Return the judgement on usual steps by the estimate of a look."""
    count = look.pairs
    before, after = pairs
    deviation = deviation_of(before[:count], after[:count])
    # So few pairs show no more digits, and fewer values are cached.
    effect = smallest_effect(float(f"{deviation:.2g}"), rule)
    confidence = f"{percent(rule.confidence_of_looks)} on each side over all looks"
    of_looks = replace(estimate, method=f"{estimate.method}, {confidence}")
    levels = replace(rule, p_value=look.slower)
    error = deviation / math.sqrt(count)
    return _decide(of_looks, levels, effect, (count, count), error, count - 1)


def _why_no_more(look: Look, estimate: PairedEstimate, rule: Rule) -> str:
    """Return why a cell that is still open gets no more pairs."""
    if look is rule.looks[-1]:
        return f"no more than {look.pairs} pairs are measured"
    larger = rule.words[0]
    return (
        f"it does not look {larger} either (p {estimate.slower_p:.2g}), so no more than "
        f"{look.pairs} pairs were measured"
    )


def deviation_of(baseline: Sequence[float], candidate: Sequence[float]) -> float:
    """Return the standard deviation of the logarithms of pairs' ratios."""
    before, after = _logs(baseline, candidate)
    return max(float(np.std(after - before, ddof=1)), 1e-6)


def outlook(deviation: float, slowdown: float, rule: Rule = DEFAULT) -> tuple[float, float]:
    """Return the probability that a gate finds a slowdown (0.05 is 5 %), and its mean pairs.

    By simulation with a fixed seed: the logarithms of the pairs' ratios are normal with standard
    deviation ``deviation``.
    """
    shift = math.log1p(slowdown)
    large = math.log1p(rule.threshold)
    tolerated = math.log1p(rule.tolerance)
    going_on = np.ones(_SIMULATIONS, dtype=bool)
    alarms = 0
    pairs = 0
    pairs_before = 0
    for look, centre, upper, slower, suspect in _simulated_looks(rule.looks):
        pairs += int(going_on.sum()) * (look.pairs - pairs_before)
        pairs_before = look.pairs
        is_large = shift + deviation * centre > large
        alarm = is_large & (shift + deviation * slower > 0)
        alarms += int((going_on & alarm).sum())
        clear = ~is_large & (shift + deviation * upper < tolerated)
        unsuspected = (look.suspect < 1) & ~(is_large & (shift + deviation * suspect > 0))
        going_on &= ~(alarm | clear | unsuspected)
    return alarms / _SIMULATIONS, pairs / _SIMULATIONS


@lru_cache(maxsize=64)
def _simulated_looks(looks: tuple[Look, ...]) -> list[tuple[Look, Floats, Floats, Floats, Floats]]:
    """Return what each look sees of simulated cells without a difference.

    Values are in standard deviations of a pair: the estimate, the upper end of the interval, and
    the Walsh averages that must be positive for the candidate to be slower, or suspect, at the
    look's levels. Adding a shift to all of them is adding it to the pairs. Each cell is alone in
    its gate.
    """
    draws = np.random.default_rng(0).normal(size=(_SIMULATIONS, looks[-1].pairs))
    return [_simulated_look(look, draws[:, : look.pairs]) for look in looks]


def _simulated_look(look: Look, draws: Floats) -> tuple[Look, Floats, Floats, Floats, Floats]:
    """Return what one look sees of these pairs; each row is a cell."""
    never = np.full(_SIMULATIONS, -math.inf)
    if look.assumes_normal:
        centre = draws.mean(axis=1)
        quantile = stdtrit(look.pairs - 1, 1 - look.bound)
        half = quantile * draws.std(axis=1, ddof=1) / math.sqrt(look.pairs)
        return look, centre, centre + half, never, never
    first, second = np.triu_indices(look.pairs)
    walsh = np.sort((draws[:, first] + draws[:, second]) / 2, axis=1)
    count = walsh.shape[1]
    centre = np.median(walsh[:, (count - 1) // 2 : count // 2 + 1], axis=1)
    below = null_distribution(look.pairs)
    levels = (look.bound, look.slower, min(look.suspect, 0.5))
    bound, slower, suspect = np.searchsorted(below, levels, side="right")
    averages_slower = never
    if slower:
        averages_slower = walsh[:, slower - 1]
    averages_suspect = never
    if suspect:
        averages_suspect = walsh[:, suspect - 1]
    return look, centre, walsh[:, -bound], averages_slower, averages_suspect


@lru_cache(maxsize=512)
def smallest_effect(deviation: float, rule: Rule = DEFAULT) -> float:
    """Return roughly the relative slowdown that a gate finds with probability `POWER`.

    ``deviation`` is the standard deviation of the logarithms of the pairs' ratios.
    """
    low = 0.0
    high = math.log1p(rule.threshold) + 10 * deviation
    for _ in range(16):
        middle = (low + high) / 2
        power, _ = outlook(deviation, math.expm1(middle), rule)
        if power >= POWER:
            high = middle
        else:
            low = middle
    return math.expm1(high)


def smallest_effect_of_pairs(deviation: float, pairs: int, rule: Rule = DEFAULT) -> float:
    """Return the smallest slowdown found by a single look after so many pairs.

    It is infinite if so many prove nothing. The look is at the rule's p-value. More pairs than can
    be simulated are taken as fewer ones that deviate as much less.
    """
    if null_distribution(pairs)[0] > rule.p_value:
        return math.inf
    simulated = min(pairs, _SIMULATED_PAIRS)
    look = Look(simulated, bound=0.5, slower=rule.p_value, suspect=0.0)
    return smallest_effect(deviation * math.sqrt(simulated / pairs), replace(rule, looks=(look,)))
