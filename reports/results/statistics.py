"""Intervals, ratios and verdicts: the launch, not the step, is the sampling unit.

Steps of one process share its memory layout, thread placement and moment, so an interval over them
does not cover other launches (simulated with launch effects: 30-43 % instead of 95 %). With three
launches or more the interval is Student's t over the logarithms of the launches' medians. With
fewer it is the distribution-free interval of the median over the steps of a launch (order
statistics; Conover, Practical Nonparametric Statistics, section 3.2), and says so. Of two launches
it reaches from the lowest end to the highest: launches that disagree have a wide interval.

Three launches say little about the deviation between launches (Student's t is then 4.3, not 2), but
the launches of all cells of a machine together say much. So if enough cells of a machine are known,
the variance of each is shrunk towards the common one; the more alike the cells' variances are, the
more weight it has (`common_spread`).

`judge` is the one rule behind stars, advice and findings: one of two times is clearly longer if
their ratio is beyond `WORSE` and its interval excludes 1. A published ratio has no interval, so its
value decides. If a report makes many comparisons, a p-value (Welch's t on the launches'
log-medians) adjusted by Holm's procedure replaces the interval, so that its advice and findings
cannot contradict each other; without enough launches the interval decides.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dlbench.adapters.protocol import SampleStatistics
from dlbench.reports.results.side_by_side import SideBySide

# Functions import what they need of SciPy themselves: its import takes a tenth of a second, and
# commands such as `dlbench list` need this module for a constant alone.

Values = NDArray[np.float64]

CONFIDENCE = 0.95
PUBLISHED = "published value, no interval"
SAMPLES_NOT_KEPT = "samples not kept, no interval"
ENOUGH_LAUNCHES = 3
"""From this many launches on an interval covers launch-to-launch variation."""
FEWEST_LAUNCHES, FREEDOM_FOR_TWO = 2, 5
"""So many launches have an interval over launches too where other cells contribute so many degrees
of freedom."""
LAUNCH_DEVIATION = 0.05
"""Standard deviation (of the logarithm) assumed between launches of a cell with too few of them.

Shared 2-core virtual machines showed 3.1 to 7.2 % (rms, without the noise within launches,
heavy-tailed). If the machine's own cells show it, `deviation_of_launches` replaces it.
"""
LEAST_DEVIATION, CELLS_NEEDED = 0.02, 10
"""Lower limit of a machine's own deviation, and the number of cells needed to estimate it."""
MOST_FREEDOM = 20
"""Most degrees of freedom contributed by other cells' launches."""
MOST_FREEDOM_IN_GROUPS = 4
"""Most degrees of freedom that other cells contribute to the deviation of a cell within groups.

It is a fifth of those beyond six, where that is less. Simulated intervals of differences then cover
94 to 98 % for 2 to 12 cells in 2 to 4 groups whose deviations differ by half either way.
"""
WORSE = 1.02
"""Smaller ratios are not worth reporting."""
SIGNIFICANCE = 0.05
"""Adjusted p-values below this are called significant."""
POWER = 0.8
"""Probability that as many launches as `launches_to_decide` returns detect a real difference."""
MOST_LAUNCHES = 100
"""More launches of one cell than are practical."""
_NO_SPREAD = 1e-9
"""Launches whose logarithms are this close differ by rounding only."""

_LEAST_VARIANCE = 1e-8
"""Of log-medians: smaller ones are rounding."""
# Half of the estimated degrees of freedom count: with fewer than two a common variance is worth
# nothing.
_FREEDOMS = np.geomspace(2, 2 * MOST_FREEDOM, 50)

Verdict = Literal["worse", "better", "no clear difference"]


@dataclass(frozen=True)
class Summary:
    """Seconds per mini-batch of one cell."""

    median: float
    """Geometric mean of the launches' medians: each launch counts once, however many steps it
    has."""
    low: float | None
    """Lower end of the interval; None where the spread is unknown."""
    high: float | None
    samples: int
    launches: int
    method: str
    covers_launches: bool
    launch_medians: tuple[float, ...]
    coverage: float | None = None
    """Actual coverage of the interval, 0.95 or, from few steps, less; None without an interval."""
    step_variance: float = 0.0
    """Variance of the logarithm of a launch's median, as far as its steps explain it; a mean over
    launches."""
    launch_deviation: float = LAUNCH_DEVIATION
    """Standard deviation of the logarithm assumed between launches if there are too few of them."""
    launch_variance: float = 0.0
    """Variance of the logarithms of the launches' medians, taking other cells into account
    (`with_common_spread`)."""
    launch_freedom: float = 0.0
    """Degrees of freedom of that variance; 0 with too few launches."""
    beside: SideBySide | None = field(default=None, compare=False, repr=False)
    """Of the cells whose launches took turns with those of this one."""
    place: int = -1
    """Its own place among those."""


@dataclass(frozen=True)
class Ratio:
    """How many times longer one cell takes than another, with its interval (None where it is
    unknown).
    """

    value: float
    low: float | None
    high: float | None
    method: str

    def changed(self, change: Callable[[float], float], method: str = "") -> "Ratio":
        """Return it with a rising function applied to its value and its ends."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return Ratio(change(self.value), low, high, method or self.method)


def summarise(
    launches: Iterable[Sequence[float]],
    without_samples: Sequence[SampleStatistics] = (),
    in_turns: Sequence[float | None] = (),
) -> Summary:
    """Summarise the timed steps (seconds, > 0) of each launch of one cell, skipping launches
    without samples.

    ``in_turns`` has the seconds of those launches that took turns with others: they count instead
    of their medians. Of launches whose samples were not kept only the medians count: from
    `ENOUGH_LAUNCHES` on the interval is the same, with fewer there is none. Raises ValueError where
    nothing was timed at all.
    """
    given = list(launches)
    of_turns = list(in_turns) or [None] * len(given)
    steps = [np.asarray(launch, dtype=float) for launch in given if len(launch)]
    if not steps and not without_samples:
        raise ValueError("there is no sample to summarise")
    seconds = [of_turns[place] for place, launch in enumerate(given) if len(launch)]
    medians = tuple(
        float(np.median(launch)) if known is None else known
        for launch, known in zip(steps, seconds, strict=True)
    )
    medians += tuple(statistics.median for statistics in without_samples)
    noises = [_variance_of_median(np.log(launch)) for launch in steps]
    noise = float(np.mean(noises)) if noises else 0.0
    samples = sum(len(launch) for launch in steps) + sum(
        statistics.samples for statistics in without_samples
    )
    if without_samples and len(medians) < ENOUGH_LAUNCHES:
        middle = math.exp(float(np.mean(np.log(medians))))
        return Summary(middle, None, None, samples, len(medians), SAMPLES_NOT_KEPT, False, medians)
    if len(medians) >= ENOUGH_LAUNCHES:
        logs = np.log(medians)
        variance, freedom = float(np.var(logs, ddof=1)), float(len(logs) - 1)
        half = student_half(len(logs), variance, freedom)
        centre = float(np.mean(logs))
        return Summary(
            median=math.exp(centre),
            low=math.exp(centre - half),
            high=math.exp(centre + half),
            samples=samples,
            launches=len(medians),
            method=f"{CONFIDENCE:.0%} Student t over {len(medians)} launch log-medians",
            covers_launches=True,
            launch_medians=medians,
            coverage=CONFIDENCE,
            step_variance=noise,
            launch_variance=variance,
            launch_freedom=freedom,
        )
    middle = math.exp(float(np.mean(np.log(medians)))) if len(steps) > 1 else medians[0]
    within = "within one launch" if len(steps) == 1 else f"within {len(steps)} launches"
    low, high, coverage = _span_of_launches(steps)
    method = (
        "a single step, no interval"
        if coverage is None
        else f"{coverage:.0%} order statistics of the median"
    )
    return Summary(
        middle,
        low,
        high,
        samples,
        len(steps),
        f"{method}, {within}",
        False,
        medians,
        coverage,
        noise,
    )


def _span_of_launches(steps: Sequence[Values]) -> tuple[float | None, float | None, float | None]:
    """Return the interval from the lowest to the highest end of the launches' own intervals, and
    its coverage.

    Launches count alike, however many steps each has. Where one has a single step the launches'
    medians are taken as a sample themselves: the interval spans them.
    """
    intervals = [_order_statistics(np.sort(launch)) for launch in steps]
    lows = [low for low, _, _ in intervals if low is not None]
    highs = [high for _, high, _ in intervals if high is not None]
    coverages = [coverage for _, _, coverage in intervals if coverage is not None]
    if len(coverages) == len(steps):
        return min(lows), max(highs), min(coverages)
    if len(steps) == 1:
        return None, None, None
    medians = [float(np.median(launch)) for launch in steps]
    return min([*lows, *medians]), max([*highs, *medians]), 1 - 2 * 0.5 ** len(steps)


def published(seconds: float) -> Summary:
    """Return a summary of a published value without samples."""
    return Summary(seconds, None, None, 1, 1, PUBLISHED, False, (seconds,))


def ratio(slower: Summary, faster: Summary, confidence: float = CONFIDENCE) -> Ratio:
    """Return ``slower / faster`` with an interval.

    Where launches of both took turns it is Student's t on the differences within their groups
    (`side_by_side`). With enough launches on both sides it is Welch's t on the launch log-medians
    (Welch 1947; degrees of freedom after Satterthwaite 1946). Otherwise it is MOVER's for a
    difference, here of logarithms (see `geometric_mean`), from both intervals; one that covers
    variation within launches only is widened by the deviation between launches
    (`Summary.launch_deviation`). A single step is both ends of its interval. Published values have
    no interval.
    """
    value = slower.median / faster.median
    if took_turns(slower, faster):
        value = math.exp(_log_ratio(slower, faster))
    if _tested(slower, faster):
        return _by_launches(value, [(slower, faster)], confidence)
    if PUBLISHED in (slower.method, faster.method):
        return Ratio(value, None, None, "no interval")
    (down, up), (other_down, other_up) = (_margins(side, confidence) for side in (slower, faster))
    assumed = max(side.launch_deviation for side in (slower, faster) if not side.covers_launches)
    method = f"MOVER from both intervals, widened for launches that deviate by {assumed:.1%}"
    low, high = (
        value * math.exp(-math.hypot(down, other_up)),
        value * math.exp(math.hypot(up, other_down)),
    )
    return Ratio(value, low, high, method)


def deviation_of_launches(summaries: Iterable[Summary]) -> float:
    """Return the standard deviation between launches that the cells of one machine show, without
    the noise of steps.

    It is the root of the mean square over the cells with enough launches, or `LAUNCH_DEVIATION` if
    fewer than `CELLS_NEEDED` have enough.
    """
    telling = [summary for summary in summaries if summary.covers_launches]
    if len(telling) < CELLS_NEEDED:
        return LAUNCH_DEVIATION
    freedoms = [summary.launches - 1 for summary in telling]
    variances = [variance_of_launches(summary) - summary.step_variance for summary in telling]
    return max(LEAST_DEVIATION, math.sqrt(max(0.0, float(np.average(variances, weights=freedoms)))))


@dataclass(frozen=True)
class Spread:
    """Deviation of other cells' launches: a variance of log-medians, and its degrees of freedom."""

    variance: float
    freedom: float

    def shrink(self, variance: float, freedom: float) -> tuple[float, float]:
        """Return a cell's own variance shrunk towards this one, and its degrees of freedom."""
        together = self.freedom + freedom
        return (self.freedom * self.variance + freedom * variance) / together, together


UNKNOWN_SPREAD = Spread(0.0, 0.0)
"""Causes no shrinkage."""


def common_spread(variances: Sequence[float], freedoms: Sequence[float]) -> Spread:
    """Return the common spread of cells, or `UNKNOWN_SPREAD` if they are too few or too different.

    Smyth 2004, "Linear models and empirical Bayes methods for assessing differential expression in
    microarray experiments" (limma's moderated t): the cells' true variances are assumed to be
    scaled inverse chi-squared, with the two parameters estimated from mean and variance of the
    logarithms of the cells' own variances. Half of the estimated degrees of freedom count, at most
    `MOST_FREEDOM`: they are estimated from some dozens of cells, and the true variances may have
    longer tails. Simulated for 24 cells, alike or not, intervals then cover 94.5 to 96.5 %.
    """
    from scipy.special import digamma, polygamma

    if len(variances) < CELLS_NEEDED:
        return UNKNOWN_SPREAD
    trigammas = polygamma(1, _FREEDOMS / 2)
    halves = np.asarray(freedoms, dtype=float) / 2
    logs = np.log(np.maximum(variances, _LEAST_VARIANCE)) - digamma(halves) + np.log(halves)
    between = float(np.var(logs, ddof=1)) - float(np.mean(polygamma(1, halves)))
    if between > trigammas[0]:
        return UNKNOWN_SPREAD
    freedom = float(np.interp(-between, -trigammas, _FREEDOMS))
    variance = math.exp(float(np.mean(logs)) + float(digamma(freedom / 2)) - math.log(freedom / 2))
    return Spread(variance, freedom / 2)


def with_common_spread(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the summaries of one machine's cells, in their order, with their common information
    about launches.

    With enough launches the interval uses the variance shrunk towards the common one, and so it
    does with two, where the common one is known well; with fewer, `launch_deviation` is the
    machine's.
    """
    deviation = deviation_of_launches(summaries)
    several = [
        each for each in summaries if each.launches >= FEWEST_LAUNCHES and each.low is not None
    ]
    own = {id(each): float(np.var(np.log(each.launch_medians), ddof=1)) for each in several}
    spread = common_spread(
        [own[id(each)] for each in several], [each.launches - 1.0 for each in several]
    )
    shared = f", variance shrunk towards that of {len(several)} cells"
    beside = _with_spread_in_groups(summaries)
    found = []
    for each in summaries:
        known = id(each) in own and spread.freedom >= (
            0 if each.covers_launches else FREEDOM_FOR_TWO
        )
        if known and spread.freedom:
            variance, freedom = spread.shrink(own[id(each)], each.launches - 1)
            half = student_half(each.launches, variance, freedom)
            each = replace(
                each,
                low=each.median * math.exp(-half),
                high=each.median * math.exp(half),
                coverage=CONFIDENCE,
                covers_launches=True,
                launch_variance=variance,
                launch_freedom=freedom,
                method=(
                    f"{CONFIDENCE:.0%} Student t over {each.launches} launch log-medians{shared}"
                ),
            )
        found.append(replace(each, launch_deviation=deviation, beside=beside.get(id(each.beside))))
    return found


def _with_spread_in_groups(summaries: Sequence[Summary]) -> dict[int, SideBySide]:
    """Return what is known of cells side by side, by identity, with their common information about
    launches.
    """
    known = {id(each.beside): each.beside for each in summaries if each.beside is not None}
    if not known:
        return {}
    variances = np.concatenate([each.variances for each in known.values()])
    freedoms = np.concatenate([each.freedoms for each in known.values()])
    total = float(freedoms.sum())
    # Those of a few cells are their own already.
    of_others = max(0.0, min(MOST_FREEDOM_IN_GROUPS, (total - 6) / 5))
    common = Spread(float(np.average(variances, weights=freedoms)), of_others)
    shrunk = {}
    for name, each in known.items():
        pairs = [common.shrink(*pair) for pair in zip(each.variances, each.freedoms, strict=True)]
        shrunk[name] = each.with_variances(
            [variance for variance, _ in pairs], [freedom for _, freedom in pairs]
        )
    return shrunk


def student_half(launches: int, variance: float, freedom: float) -> float:
    """Return the half-width of Student's interval of the mean of this many logarithms of this
    variance.
    """
    return _student(freedom, CONFIDENCE) * math.sqrt(variance / launches)


def mean_of_pairs(pairs: Sequence[tuple[Summary, Summary]]) -> Ratio:
    """Return the geometric mean of ``slower / faster`` over pairs with independent errors; at least
    one pair.

    With enough launches on all sides the interval is Welch's t, else that of `geometric_mean`. It
    holds for these networks only.
    """
    mean = geometric_mean([ratio(*pair) for pair in pairs])
    if not all(_tested(*pair) for pair in pairs):
        return mean
    return _by_launches(mean.value, pairs, CONFIDENCE, f"{_of_ratios(len(pairs))}, ")


def took_turns(one: Summary, other: Summary) -> bool:
    """Tell whether two times are known relative to one another, by launches that took turns."""
    return (
        one.beside is not None
        and one.beside is other.beside
        and one.beside.known(one.place, other.place)
    )


def _tested(one: Summary, other: Summary) -> bool:
    """Tell whether the ratio of two times has an interval that covers variation between
    launches.
    """
    return took_turns(one, other) or (one.covers_launches and other.covers_launches)


def _log_ratio(one: Summary, other: Summary) -> float:
    if one.beside is not None and took_turns(one, other):
        return one.beside.difference(one.place, other.place)
    return math.log(one.median / other.median)


def _by_launches(
    value: float, pairs: Sequence[tuple[Summary, Summary]], confidence: float, of: str = ""
) -> Ratio:
    """Return the mean ratio of pairs with enough launches; degrees of freedom are Satterthwaite's
    over all parts.
    """
    variance, freedom = _of_differences(pairs)
    half, method = 0.0, "launches without any spread"
    if variance:
        half = _student(freedom, confidence) * math.sqrt(variance) / len(pairs)
        method = f"{confidence:.0%} Welch t over launch log-medians"
        if all(took_turns(*pair) for pair in pairs):
            method = f"{confidence:.0%} Student t over launches that took turns"
    return Ratio(value, value * math.exp(-half), value * math.exp(half), of + method)


def _of_differences(pairs: Sequence[tuple[Summary, Summary]]) -> tuple[float, float]:
    """Return the variance of the sum of these pairs' log ratios, and its degrees of freedom."""
    parts: list[tuple[float, float]] = []
    for one, other in pairs:
        if one.beside is not None and took_turns(one, other):
            parts.append(one.beside.variance(one.place, other.place))
        else:
            parts += [
                (side.launch_variance / side.launches, side.launch_freedom) for side in (one, other)
            ]
    variance = math.fsum(part for part, _ in parts)
    squares = math.fsum(part**2 / freedom for part, freedom in parts)
    return variance, variance**2 / squares if squares else math.inf


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio:
    """Return the geometric mean of one ratio or more with independent errors, with an interval if
    each has one.

    The interval is MOVER's for a sum, here of logarithms (method of variance estimates recovery;
    Zou and Donner 2008, Statistics in Medicine 27, 1693-1702): it takes each ratio's own interval
    as it is, even if asymmetric. For Student intervals from few launches its coverage is too high
    (simulated: 99.6 % instead of 95 % from three launches each, 97.9 % from five).
    """
    count = len(ratios)
    logs = [math.log(each.value) for each in ratios]
    mean = math.fsum(logs) / count
    down, up = [], []
    for log, each in zip(logs, ratios, strict=True):
        if each.low is None or each.high is None:
            return Ratio(math.exp(mean), None, None, f"{_of_ratios(count)}, no interval")
        down.append(log - math.log(each.low))
        up.append(math.log(each.high) - log)
    low, high = mean - math.hypot(*down) / count, mean + math.hypot(*up) / count
    return Ratio(
        math.exp(mean),
        math.exp(low),
        math.exp(high),
        f"{_of_ratios(count)}, interval by MOVER from theirs",
    )


def of_launches(values: Sequence[float]) -> Summary | None:
    """Summarise a value that each launch of a cell has once, such as its memory; None without any
    launch.

    Fewer than `ENOUGH_LAUNCHES` have no interval.
    """
    if not values:
        return None
    # A clock may give 0 s for what does nothing; a logarithm needs more.
    found = summarise([[max(value, 1e-9)] for value in values])
    if found.covers_launches:
        return found
    count = f"{len(values)} launch{'es' * (len(values) > 1)}"
    return replace(found, low=None, high=None, coverage=None, method=f"{count}, no interval")


def combination(*terms: tuple[float, Summary]) -> tuple[float, float, float]:
    """Return the sum of independent times, each with its factor, and the ends of its interval.

    The interval is MOVER's for a linear function (Zou and Donner 2008; see `geometric_mean`): it
    takes each time's own interval, widened by the deviation between launches if there are fewer
    than `ENOUGH_LAUNCHES`, as in `ratio`.
    """
    value, down, up = 0.0, 0.0, 0.0
    for factor, each in terms:
        below, above = (abs(factor) * distance for distance in _distances(each))
        value += factor * each.median
        down = math.hypot(down, below if factor > 0 else above)
        up = math.hypot(up, above if factor > 0 else below)
    return value, value - down, value + up


@dataclass(frozen=True)
class BreakEven:
    """Number of steps after which one mode has taken less time than another, its start included."""

    steps: float | None
    """None: never, as far as the intervals show."""
    low: float | None
    """With fewer steps it clearly takes longer; None: with any number of steps."""
    high: float | None
    """With more steps it has clearly taken less time; None: with no number of steps."""
    method: str


def break_even(
    start: Summary, step: Summary, other_start: Summary, other_step: Summary
) -> BreakEven:
    """Return the number of steps after which a mode has made up for a start that is no earlier than
    another's.

    A start is the time to the end of the first step, so n steps take the start plus n - 1 times the
    step. The interval holds every n for which the interval of the difference of both times
    (`combination`) includes 0. Its ends are the roots of quadratic equations, as in Fieller's
    theorem (1954) and, for intervals that may be asymmetric, in Newcombe 2016, "MOVER-R confidence
    intervals for ratios and products of two independently estimated quantities" (Statistical
    Methods in Medical Research 25, 1774-1778). The result is never if the interval of the
    difference of the steps includes 0 or lies below it.
    """
    later, soonest, latest = combination((1, start), (-1, other_start))
    gain, least, most = combination((1, other_step), (-1, step))
    method = f"{CONFIDENCE:.0%} MOVER-R"
    if not all(each.covers_launches for each in (start, step, other_start, other_step)):
        method += (
            f", from fewer than {ENOUGH_LAUNCHES} launches, widened for the deviation of launches"
        )
    # The smaller root of (later - n gain)^2 = (later - soonest)^2 + n^2 (most - gain)^2, written
    # without a division by 0; its counterpart with the other ends is the larger root.
    low: float | None = 1.0
    if soonest > 0:
        start_spread, step_spread = later - soonest, most - gain
        constant = soonest * (later + start_spread)
        root = math.sqrt(
            (later * step_spread) ** 2
            + (gain * start_spread) ** 2
            - (start_spread * step_spread) ** 2
        )
        low = 1 + constant / (later * gain + root) if later * gain + root > 0 else None
    if least <= 0:
        return BreakEven(None, low, None, f"{method}: its step is not clearly faster")
    start_spread, step_spread = latest - later, gain - least
    inner = (
        (later * step_spread) ** 2 + (gain * start_spread) ** 2 - (start_spread * step_spread) ** 2
    )
    high = (later * gain + math.sqrt(inner)) / (least * (gain + step_spread))
    return BreakEven(1 + max(0.0, later / gain), low, 1 + max(0.0, high), method)


def judge(found: Ratio, p_adjusted: float | None = None, worse: float = WORSE) -> Verdict:
    """Say whether the first of two times is clearly longer ("worse"), clearly shorter, or neither.

    A ratio within ``worse`` of 1 is neither.
    """
    significant = None if p_adjusted is None else p_adjusted < SIGNIFICANCE
    if found.value > worse and (
        significant if significant is not None else found.low is None or found.low > 1.0
    ):
        return "worse"
    if found.value < 1 / worse and (
        significant if significant is not None else found.high is None or found.high < 1.0
    ):
        return "better"
    return "no clear difference"


def clearly_slower(one: Summary, other: Summary, confidence: float = CONFIDENCE) -> bool:
    """Tell whether one time is longer than another by more than noise may explain."""
    return judge(ratio(one, other, confidence)) == "worse"


def as_fast(one: Summary, fastest: Summary) -> bool:
    """Tell whether a time is within `WORSE` of the fastest, and not proven to be longer."""
    return ratio(one, fastest).value <= WORSE and not clearly_slower(one, fastest)


def tied(one: Summary, other: Summary, confidence: float = CONFIDENCE) -> bool:
    """Tell whether two times are equivalent: each proven less than `WORSE` times the other.

    Two one-sided tests, at 5 % unless another confidence is asked for (Schuirmann 1987): the 90 %
    interval of the ratio lies within these bounds.
    """
    return not may_exceed(one, other, confidence) and not may_exceed(other, one, confidence)


def may_exceed(slower: Summary, faster: Summary, confidence: float = CONFIDENCE) -> bool:
    """Tell whether, given the noise, one time may be more than `WORSE` times another (a one-sided
    test).
    """
    high = ratio(slower, faster, 2 * confidence - 1).high
    return high is None or high > WORSE


def launches_to_settle(one: Summary, other: Summary) -> int | None:
    """Return how many launches of each would show two times different or `tied`; None if
    `MOST_LAUNCHES` would not.

    From this number on either result is found with probability `POWER` if the ratio is the observed
    one.
    """
    # Each of the two tests of a tie fails half as often as both together may.
    margin = math.log(WORSE) - abs(_log_ratio(one, other))
    equal = _fewest_launches(one, other, margin, 1 - 2 * SIGNIFICANCE, (1 + POWER) / 2)
    return min(
        (each for each in (launches_to_decide(one, other), equal) if each is not None), default=None
    )


def launches_to_decide(one: Summary, other: Summary, comparisons: int = 1) -> int | None:
    """Return how many launches of each would distinguish these two times; None where
    `MOST_LAUNCHES` would not.

    From this number on Welch's t finds a difference as large as the one seen with probability
    `POWER`, adjusted for ``comparisons`` after Bonferroni, the worst case of Holm's procedure.
    """
    difference = abs(_log_ratio(one, other))
    return _fewest_launches(one, other, difference, 1 - SIGNIFICANCE / max(1, comparisons), POWER)


def _fewest_launches(
    one: Summary, other: Summary, margin: float, confidence: float, power: float
) -> int | None:
    """Return the fewest launches of each with which Student's t finds a difference of logarithms of
    ``margin``.
    """
    from scipy.special import ndtri

    variance = variance_of_launches(one) + variance_of_launches(other)
    if one.beside is not None and took_turns(one, other):
        variance = one.beside.variance_in_a_group(one.place, other.place)
    of_others = sum(
        each.launch_freedom - (each.launches - 1) for each in (one, other) if each.covers_launches
    )
    for launches in range(ENOUGH_LAUNCHES, MOST_LAUNCHES + 1):
        wanted = _student(2 * (launches - 1) + of_others, confidence) + float(ndtri(power))
        if wanted * math.sqrt(variance / launches) <= margin:
            return launches
    return None


def variance_of_launches(summary: Summary) -> float:
    """Return the variance of the logarithms of launches' medians, assumed where launches are too
    few.
    """
    from scipy.special import ndtri

    if summary.covers_launches:
        return summary.launch_variance
    within = 0.0
    if summary.low is not None and summary.high is not None and summary.coverage is not None:
        within = math.log(summary.high / summary.low) / 2 / float(ndtri(0.5 + summary.coverage / 2))
    return summary.launch_deviation**2 + within**2 * summary.launches


@dataclass(frozen=True)
class Contrast:
    """T(threads) / T(against)."""

    threads: int
    against: int
    ratio: Ratio
    p_value: float | None = None
    """Welch's t, two-sided; None where launches are too few, or nothing is to be tested."""
    p_adjusted: float | None = None
    """After Holm; None until the whole report's comparisons are known."""
    family: int = 0
    """Number of comparisons it was adjusted with, itself included."""

    @property
    def value(self) -> float:
        """How many times longer a step takes."""
        return self.ratio.value

    @property
    def tested(self) -> bool:
        """Whether an adjusted p-value decides rather than the ratio and its interval."""
        return self.p_adjusted is not None

    @property
    def verdict(self) -> Verdict:
        """The verdict of `judge`."""
        return judge(self.ratio, self.p_adjusted)

    @property
    def swapped(self) -> "Contrast":
        """T(against) / T(threads), with the same evidence."""
        low, high = (None if end is None else 1 / end for end in (self.ratio.high, self.ratio.low))
        turned = Ratio(1 / self.value, low, high, self.ratio.method)
        return replace(self, threads=self.against, against=self.threads, ratio=turned)


def contrast(
    threads: int, against: int, slower: Summary, faster: Summary, test: bool = True
) -> Contrast:
    """Return the comparison of two thread counts' times, with a p-value where there can be one and
    it is wanted.
    """
    return Contrast(
        threads, against, ratio(slower, faster), welch(slower, faster) if test else None
    )


def welch(one: Summary, other: Summary, times: float = 1.0) -> float | None:
    """Return the two-sided p-value of one time being so many ``times`` another, by their launches.

    It is that of Welch's t (1947), or of Student's where launches took turns; None where launches
    are too few.
    """
    if not _tested(one, other):
        return None
    return _p_of(_log_ratio(one, other) - math.log(times), [(one, other)])


def welch_of_pairs(pairs: Sequence[tuple[Summary, Summary]]) -> float | None:
    """Return the two-sided p-value of the mean of these pairs, as the interval of `mean_of_pairs`
    has it.
    """
    if not all(_tested(*pair) for pair in pairs):
        return None
    return _p_of(math.fsum(_log_ratio(*pair) for pair in pairs), pairs)


def _p_of(sum_of_logs: float, pairs: Sequence[tuple[Summary, Summary]]) -> float:
    from scipy.special import stdtr

    variance, freedom = _of_differences(pairs)
    if variance < _NO_SPREAD**2:
        return 1.0 if abs(sum_of_logs) < _NO_SPREAD else 0.0
    return 2 * float(stdtr(freedom, -abs(sum_of_logs) / math.sqrt(variance)))


def p_of_interval(found: Ratio) -> float | None:
    """Return the two-sided p-value of a ratio by its 95 % interval, taken for that of a normal
    logarithm; None without.

    The end on the side of 1 counts, so that the value is below 5 % exactly if the interval lies on
    one side of 1.
    """
    from scipy.special import ndtr, ndtri

    if found.low is None or found.high is None:
        return None
    reach = math.log(found.value / found.low if found.value > 1.0 else found.high / found.value)
    if reach == 0.0:
        return 1.0 if found.value == 1.0 else 0.0
    return 2 * float(ndtr(-abs(math.log(found.value)) / reach * ndtri(0.5 + CONFIDENCE / 2)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, in their order.

    Holm's step-down procedure (Holm, A simple sequentially rejective multiple test procedure,
    1979): it bounds the probability of any false positive, whatever the dependence between the
    tests. SciPy has no function for it.
    """
    order = np.argsort(p_values, kind="stable")
    stepped = np.arange(len(order), 0, -1) * np.asarray(p_values, dtype=float)[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, stepped))
    return [float(each) for each in adjusted]


def _of_ratios(count: int) -> str:
    return f"geometric mean of {count} ratio{'s' if count != 1 else ''}"


def _margins(summary: Summary, confidence: float) -> tuple[float, float]:
    """Return how far the interval of a time reaches down and up, in logarithms, variation of
    launches included.
    """
    from scipy.special import ndtri

    between = 0.0
    if not summary.covers_launches:
        between = (
            float(ndtri(0.5 + confidence / 2))
            * summary.launch_deviation
            / math.sqrt(summary.launches)
        )
    low, high = summary.low or summary.median, summary.high or summary.median
    return math.hypot(math.log(summary.median / low), between), math.hypot(
        math.log(high / summary.median), between
    )


def _distances(summary: Summary) -> tuple[float, float]:
    """Return how far the interval of a time reaches down and up, in seconds, variation of launches
    included.
    """
    down, up = _margins(summary, CONFIDENCE)
    return summary.median * -math.expm1(-down), summary.median * math.expm1(up)


def _variance_of_median(logs: Values) -> float:
    """Return the variance of the median of these values: that of a normal one, from their median
    deviation.
    """
    deviation = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
    return math.pi / 2 * deviation**2 / len(logs)


def _student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def _order_statistics(ordered: Values) -> tuple[float | None, float | None, float | None]:
    """Return the narrowest symmetric pair of order statistics that covers the median, and its
    coverage.

    The coverage is less than asked for where even the extremes of so few steps do not reach it.
    """
    from scipy.special import bdtr

    count = len(ordered)
    if count == 1:
        return None, None, None
    # The number of samples under the median is binomial(count, 1/2): the pair (k-th smallest, k-th
    # largest), k from 0, misses it when that number is at most k, or at least count - k.
    coverages = 1 - 2 * bdtr(np.arange((count + 1) // 2), count, 0.5)
    k = max(0, int(np.count_nonzero(coverages >= CONFIDENCE)) - 1)
    return float(ordered[k]), float(ordered[count - 1 - k]), float(coverages[k])
