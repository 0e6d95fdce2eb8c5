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
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dlbench.reports.results.outcome import SampleStatistics
from dlbench.reports.results.side_by_side import LEAST_VARIANCE, SideBySide

# Functions import what they need of SciPy themselves: its import takes a tenth of a second, and
# commands such as `dlbench list` need this module for a constant alone.

Values = NDArray[np.float64]

CONFIDENCE = 0.95
PUBLISHED = "published value, no interval"
SAMPLES_NOT_KEPT = "samples not kept, no interval"
ENOUGH_LAUNCHES = 3
"""From this many launches on an interval covers launch-to-launch variation."""
FEWEST_WITH_SPREAD = 2
"""With this many launches it does so where other cells contribute `FREEDOM_FOR_TWO`."""
FREEDOM_FOR_TWO = 5
"""Degrees of freedom of other cells."""
LAUNCH_DEVIATION = 0.05
"""Standard deviation (of the logarithm) assumed between launches of a cell with too few of them.

Shared 2-core virtual machines showed 3.1 to 7.2 % (rms, without the noise within launches,
heavy-tailed). If the machine's own cells show it, `deviation_of_launches` replaces it.
"""
LEAST_DEVIATION = 0.02
"""Lower limit of a machine's own deviation."""
CELLS_NEEDED = 10
"""Cells needed to estimate it."""
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
"""Probability of finding a real difference of the size in question.

`launches_to_decide` returns the launches that have it, and `Judgement` the smallest effect."""
NO_INTERVAL = "no interval"
"""The method of an estimate from too few launches, pairs or points."""
NORMAL_PER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
MOST_LAUNCHES = 100
"""More launches of one cell than are practical."""
NO_SPREAD = 1e-9
"""Launches, or means, whose logarithms are this close differ by rounding only."""

# Half of the estimated degrees of freedom count: with fewer than two a common variance is worth
# nothing.
_FREEDOMS = np.geomspace(2, 2 * MOST_FREEDOM, 50)


class RatioVerdict(StrEnum):
    """The verdict on a ratio of two times, such as of a cell over another one."""

    SLOWER = "slower"
    """Noise does not explain that the ratio is above 1, and it is above `WORSE`."""
    FASTER = "faster"
    """The mirror image."""
    SAME = "same"
    """The whole interval lies within `WORSE` of 1."""
    INCONCLUSIVE = "inconclusive"

    @property
    def clear(self) -> bool:
        """Whether the two times differ."""
        return self in (RatioVerdict.SLOWER, RatioVerdict.FASTER)


@dataclass(frozen=True)
class Summary:
    """Seconds per mini-batch of one cell."""

    median: float
    """Geometric mean of the launches' medians: launches count alike, however many steps they have.
    """
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
    relative: SideBySide | None = field(default=None, compare=False, repr=False)
    """Levels of the cells whose launches took turns with those of this one."""
    number: int = -1
    """Its own number among those cells."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval: a ratio of times (over 1: slower), or a fitted parameter."""

    value: float
    low: float | None
    """Lower end of the 95 % interval; None where it is unknown."""
    high: float | None
    """Infinite where it is unbounded."""
    method: str
    """The method of the interval, or the reason why there is none."""

    def is_below(self, limit: float) -> bool:
        """Tell whether the whole interval is below a limit."""
        return self.high is not None and self.high < limit

    def is_above(self, limit: float) -> bool:
        """Tell whether the whole interval is above a limit."""
        return self.low is not None and self.low > limit

    def changed(self, change: Callable[[float], float], method: str = "") -> "Estimate":
        """Return it with a rising function applied to its value and its ends."""
        low = high = None
        if self.low is not None:
            low = change(self.low)
        if self.high is not None:
            high = change(self.high)
        return Estimate(change(self.value), low, high, method or self.method)


def summarise(
    launches: Iterable[Sequence[float]],
    without_samples: Sequence[SampleStatistics] = (),
    in_turns: Sequence[float | None] = (),
) -> Summary:
    """Summarise the timed steps of each launch of one cell: seconds, all of them above 0.

    Launches without any step are skipped. ``in_turns`` has the seconds of those launches that took
    turns with others: they count instead of their medians. Of launches whose samples were not kept
    only the medians count: from `ENOUGH_LAUNCHES` on the interval is the same, with fewer there is
    none. Raises ValueError where nothing was timed at all.
    """
    all_launches = list(launches)
    seconds_in_turns = list(in_turns) or [None] * len(all_launches)
    steps: list[Values] = []
    medians: list[float] = []
    noises: list[float] = []
    samples = 0
    for launch, seconds in zip(all_launches, seconds_in_turns, strict=True):
        if not len(launch):
            continue
        values = np.asarray(launch, dtype=float)
        steps.append(values)
        noises.append(_variance_of_median(np.log(values)))
        samples += len(values)
        if seconds is None:
            seconds = float(np.median(values))
        medians.append(seconds)
    if not steps and not without_samples:
        raise ValueError("there is no sample to summarise")
    for statistics in without_samples:
        samples += statistics.samples
        medians.append(statistics.median)
    noise = float(np.mean(noises)) if noises else 0.0
    if len(medians) >= ENOUGH_LAUNCHES:
        return _over_launches(medians, samples, noise)
    if without_samples:
        middle = math.exp(float(np.mean(np.log(medians))))
        return Summary(
            middle, None, None, samples, len(medians), SAMPLES_NOT_KEPT, False, tuple(medians)
        )
    return _within_launches(steps, medians, samples, noise)


def _over_launches(medians: Sequence[float], samples: int, noise: float) -> Summary:
    """Summarise launches that are enough for an interval of their medians."""
    logs = np.log(medians)
    variance = float(np.var(logs, ddof=1))
    freedom = float(len(logs) - 1)
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
        launch_medians=tuple(medians),
        coverage=CONFIDENCE,
        step_variance=noise,
        launch_variance=variance,
        launch_freedom=freedom,
    )


def _within_launches(
    steps: Sequence[Values], medians: Sequence[float], samples: int, noise: float
) -> Summary:
    """Summarise launches that are too few for that, by the intervals of their own medians."""
    middle = medians[0]
    where = "within one launch"
    if len(steps) > 1:
        middle = math.exp(float(np.mean(np.log(medians))))
        where = f"within {len(steps)} launches"
    low, high, coverage = _span_of_launches(steps)
    method = "a single step, no interval"
    if coverage is not None:
        method = f"{coverage:.0%} order statistics of the median"
    return Summary(
        median=middle,
        low=low,
        high=high,
        samples=samples,
        launches=len(steps),
        method=f"{method}, {where}",
        covers_launches=False,
        launch_medians=tuple(medians),
        coverage=coverage,
        step_variance=noise,
    )


def _span_of_launches(steps: Sequence[Values]) -> tuple[float | None, float | None, float | None]:
    """Return the ends of all launches' own intervals together, and their coverage.

    Launches count alike, however many steps each has. Where one has a single step the launches'
    medians are taken as a sample themselves: the interval spans them.
    """
    lows = []
    highs = []
    coverages = []
    for launch in steps:
        low, high, coverage = _order_statistics(np.sort(launch))
        if low is not None and high is not None and coverage is not None:
            lows.append(low)
            highs.append(high)
            coverages.append(coverage)
    if len(coverages) == len(steps):
        return min(lows), max(highs), min(coverages)
    if len(steps) == 1:
        return None, None, None
    medians = [float(np.median(launch)) for launch in steps]
    return min([*lows, *medians]), max([*highs, *medians]), 1 - 2 * 0.5 ** len(steps)


def published(seconds: float) -> Summary:
    """Return a summary of a published value without samples."""
    return Summary(seconds, None, None, 1, 1, PUBLISHED, False, (seconds,))


def ratio(slower: Summary, faster: Summary, confidence: float = CONFIDENCE) -> Estimate:
    """Return ``slower / faster`` with an interval.

    Where launches of both took turns it is Student's t on the differences within their groups
    (`side_by_side`). With enough launches on both sides it is Welch's t on the launch log-medians
    (Welch 1947; degrees of freedom after Satterthwaite 1946). Otherwise it is MOVER's for a
    difference, of logarithms (see `geometric_mean`), from both intervals. One that covers variation
    within launches only is widened by the deviation between launches (`Summary.launch_deviation`).
    A single step is both ends of its interval. Published values have no interval.
    """
    value = slower.median / faster.median
    if took_turns(slower, faster):
        value = math.exp(_log_ratio(slower, faster))
    if _tested(slower, faster):
        return _by_launches(value, [(slower, faster)], confidence)
    if PUBLISHED in (slower.method, faster.method):
        return Estimate(value, None, None, "no interval")
    slower_down, slower_up = _margins(slower, confidence)
    faster_down, faster_up = _margins(faster, confidence)
    low = value * math.exp(-math.hypot(slower_down, faster_up))
    high = value * math.exp(math.hypot(slower_up, faster_down))
    assumed = max(side.launch_deviation for side in (slower, faster) if not side.covers_launches)
    method = f"MOVER from both intervals, widened for launches that deviate by {assumed:.1%}"
    return Estimate(value, low, high, method)


def deviation_of_launches(summaries: Iterable[Summary]) -> float:
    """Return the standard deviation between launches of one machine, without the noise of steps.

    It is the root of the mean square over the cells with enough launches, or `LAUNCH_DEVIATION` if
    fewer than `CELLS_NEEDED` have enough.
    """
    variances = []
    freedoms = []
    for summary in summaries:
        if summary.covers_launches:
            variances.append(variance_of_launches(summary) - summary.step_variance)
            freedoms.append(summary.launches - 1)
    if len(variances) < CELLS_NEEDED:
        return LAUNCH_DEVIATION
    mean = max(0.0, float(np.average(variances, weights=freedoms)))
    return max(LEAST_DEVIATION, math.sqrt(mean))


@dataclass(frozen=True)
class CommonSpread:
    """Deviation of other cells' launches: a variance of log-medians, and its degrees of freedom."""

    variance: float
    freedom: float

    def shrink(self, variance: float, freedom: float) -> tuple[float, float]:
        """Return a cell's own variance shrunk towards this one, and its degrees of freedom."""
        together = self.freedom + freedom
        return (self.freedom * self.variance + freedom * variance) / together, together


UNKNOWN_SPREAD = CommonSpread(0.0, 0.0)
"""Causes no shrinkage."""


def common_spread(variances: Sequence[float], freedoms: Sequence[float]) -> CommonSpread:
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
    logs = np.log(np.maximum(variances, LEAST_VARIANCE)) - digamma(halves) + np.log(halves)
    between = float(np.var(logs, ddof=1)) - float(np.mean(polygamma(1, halves)))
    if between > trigammas[0]:
        return UNKNOWN_SPREAD
    freedom = float(np.interp(-between, -trigammas, _FREEDOMS))
    variance = math.exp(float(np.mean(logs)) + float(digamma(freedom / 2)) - math.log(freedom / 2))
    return CommonSpread(variance, freedom / 2)


def with_common_spread(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the summaries of one machine's cells with their common knowledge about launches.

    With enough launches the interval uses the variance shrunk towards the common one, and so it
    does with two, where the common one is known well. With fewer, `launch_deviation` is the
    machine's. The order stays.
    """
    deviation = deviation_of_launches(summaries)
    variance_of: dict[int, float] = {}
    variances = []
    freedoms = []
    for index, summary in enumerate(summaries):
        if summary.launches >= FEWEST_WITH_SPREAD and summary.low is not None:
            variance_of[index] = float(np.var(np.log(summary.launch_medians), ddof=1))
            variances.append(variance_of[index])
            freedoms.append(summary.launches - 1.0)
    spread = common_spread(variances, freedoms)
    relative = _with_spread_in_groups(summaries)
    result = []
    for index, summary in enumerate(summaries):
        variance = variance_of.get(index)
        needed = 0 if summary.covers_launches else FREEDOM_FOR_TWO
        if variance is not None and spread.freedom and spread.freedom >= needed:
            summary = _with_variance(summary, variance, spread, len(variances))
        in_turns = relative.get(id(summary.relative))
        result.append(replace(summary, launch_deviation=deviation, relative=in_turns))
    return result


def _with_variance(summary: Summary, own: float, spread: CommonSpread, cells: int) -> Summary:
    """Return a summary whose interval uses its variance shrunk towards that of so many cells."""
    variance, freedom = spread.shrink(own, summary.launches - 1)
    half = student_half(summary.launches, variance, freedom)
    method = f"{CONFIDENCE:.0%} Student t over {summary.launches} launch log-medians"
    return replace(
        summary,
        low=summary.median * math.exp(-half),
        high=summary.median * math.exp(half),
        coverage=CONFIDENCE,
        covers_launches=True,
        launch_variance=variance,
        launch_freedom=freedom,
        method=f"{method}, variance shrunk towards that of {cells} cells",
    )


def _with_spread_in_groups(summaries: Sequence[Summary]) -> dict[int, SideBySide]:
    """Return the levels of cells in turns with their variances shrunk, by the levels' identity."""
    levels = {}
    for summary in summaries:
        if summary.relative is not None:
            levels[id(summary.relative)] = summary.relative
    if not levels:
        return {}
    variances = np.concatenate([relative.variances for relative in levels.values()])
    freedoms = np.concatenate([relative.freedoms for relative in levels.values()])
    total = float(freedoms.sum())
    # Those of a few cells are their own already.
    freedom_of_others = max(0.0, min(MOST_FREEDOM_IN_GROUPS, (total - 6) / 5))
    common = CommonSpread(float(np.average(variances, weights=freedoms)), freedom_of_others)
    result = {}
    for key, relative in levels.items():
        shrunk_variances = []
        shrunk_freedoms = []
        for own, freedom in zip(relative.variances, relative.freedoms, strict=True):
            shrunk, together = common.shrink(own, freedom)
            shrunk_variances.append(shrunk)
            shrunk_freedoms.append(together)
        result[key] = relative.with_variances(shrunk_variances, shrunk_freedoms)
    return result


def student_half(launches: int, variance: float, freedom: float) -> float:
    """Return the half-width of Student's interval of a mean of so many logarithms."""
    return _student(freedom, CONFIDENCE) * math.sqrt(variance / launches)


def mean_of_pairs(pairs: Sequence[tuple[Summary, Summary]]) -> Estimate:
    """Return the geometric mean of ``slower / faster`` over one or more independent pairs.

    With enough launches on all sides the interval is Welch's t, else that of `geometric_mean`. It
    holds for these networks only.
    """
    mean = geometric_mean([ratio(slower, faster) for slower, faster in pairs])
    if not all(_tested(slower, faster) for slower, faster in pairs):
        return mean
    return _by_launches(mean.value, pairs, CONFIDENCE, f"{_mean_text(len(pairs))}, ")


def took_turns(one: Summary, other: Summary) -> bool:
    """Tell whether two times are known relative to one another, by launches that took turns."""
    return (
        one.relative is not None
        and one.relative is other.relative
        and one.relative.known(one.number, other.number)
    )


def _tested(one: Summary, other: Summary) -> bool:
    """Tell whether the interval of a ratio covers variation between launches."""
    return took_turns(one, other) or (one.covers_launches and other.covers_launches)


def _log_ratio(one: Summary, other: Summary) -> float:
    if one.relative is not None and took_turns(one, other):
        return one.relative.difference(one.number, other.number)
    return math.log(one.median / other.median)


def _by_launches(
    value: float, pairs: Sequence[tuple[Summary, Summary]], confidence: float, prefix: str = ""
) -> Estimate:
    """Return the mean ratio of pairs with enough launches; the method's text has a prefix.

    Degrees of freedom are Satterthwaite's over all parts.
    """
    variance, freedom = _variance_of_sum(pairs)
    half = 0.0
    method = "launches without any spread"
    if variance:
        half = _student(freedom, confidence) * math.sqrt(variance) / len(pairs)
        method = f"{confidence:.0%} Welch t over launch log-medians"
        if all(took_turns(one, other) for one, other in pairs):
            method = f"{confidence:.0%} Student t over launches that took turns"
    return Estimate(value, value * math.exp(-half), value * math.exp(half), prefix + method)


def _variance_of_sum(pairs: Sequence[tuple[Summary, Summary]]) -> tuple[float, float]:
    """Return the variance of the sum of these pairs' log ratios, and its degrees of freedom."""
    parts: list[tuple[float, float]] = []
    for slower, faster in pairs:
        if slower.relative is not None and took_turns(slower, faster):
            parts.append(slower.relative.variance(slower.number, faster.number))
        else:
            parts.append((slower.launch_variance / slower.launches, slower.launch_freedom))
            parts.append((faster.launch_variance / faster.launches, faster.launch_freedom))
    variance = math.fsum(part for part, _ in parts)
    squares = math.fsum(part**2 / freedom for part, freedom in parts)
    freedom = variance**2 / squares if squares else math.inf
    return variance, freedom


def geometric_mean(ratios: Sequence[Estimate]) -> Estimate:
    """Return the geometric mean of independent ratios, with an interval if each of them has one.

    The interval is MOVER's for a sum, of logarithms (method of variance estimates recovery; Zou and
    Donner 2008, Statistics in Medicine 27, 1693-1702): it takes each ratio's own interval as it is,
    even if asymmetric. For Student intervals from few launches its coverage is too high (simulated:
    99.6 % instead of 95 % from three launches each, 97.9 % from five).
    """
    count = len(ratios)
    mean = math.fsum(math.log(ratio.value) for ratio in ratios) / count
    down = []
    up = []
    for ratio in ratios:
        if ratio.low is None or ratio.high is None:
            return Estimate(math.exp(mean), None, None, f"{_mean_text(count)}, no interval")
        log = math.log(ratio.value)
        down.append(log - math.log(ratio.low))
        up.append(math.log(ratio.high) - log)
    return Estimate(
        math.exp(mean),
        math.exp(mean - math.hypot(*down) / count),
        math.exp(mean + math.hypot(*up) / count),
        f"{_mean_text(count)}, interval by MOVER from theirs",
    )


def summarise_launches(values: Sequence[float]) -> Summary | None:
    """Summarise a value that each launch of a cell has once, such as its memory.

    None without any launch. Fewer than `ENOUGH_LAUNCHES` have no interval.
    """
    if not values:
        return None
    # A clock may give 0 s for what does nothing; a logarithm needs more.
    summary = summarise([[max(value, 1e-9)] for value in values])
    if summary.covers_launches:
        return summary
    launches = "1 launch" if len(values) == 1 else f"{len(values)} launches"
    return replace(summary, low=None, high=None, coverage=None, method=f"{launches}, no interval")


def combination(*terms: tuple[float, Summary]) -> tuple[float, float, float]:
    """Return the sum of independent times, each with its factor, and the ends of its interval.

    The interval is MOVER's for a linear function (Zou and Donner 2008; see `geometric_mean`): it
    takes each time's own interval, widened by the deviation between launches if there are fewer
    than `ENOUGH_LAUNCHES`, as in `ratio`.
    """
    value = 0.0
    down = 0.0
    up = 0.0
    for factor, summary in terms:
        below, above = (abs(factor) * distance for distance in _distances(summary))
        value += factor * summary.median
        if factor > 0:
            down = math.hypot(down, below)
            up = math.hypot(up, above)
        else:
            down = math.hypot(down, above)
            up = math.hypot(up, below)
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
    """Return the number of steps after which a mode has made up for a start later than another's.

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
    summaries = (start, step, other_start, other_step)
    if not all(summary.covers_launches for summary in summaries):
        method += (
            f", from fewer than {ENOUGH_LAUNCHES} launches, widened for the deviation of launches"
        )
    # The smaller root of (later - n gain)^2 = (later - soonest)^2 + n^2 (most - gain)^2, written
    # without a division by 0; its counterpart with the other ends is the larger root.
    low: float | None = 1.0
    if soonest > 0:
        spread = later - soonest
        divisor = later * gain + _root(later, gain, spread, most - gain)
        low = 1 + soonest * (later + spread) / divisor if divisor > 0 else None
    if least <= 0:
        return BreakEven(None, low, None, f"{method}: its step is not clearly faster")
    spread = gain - least
    high = (later * gain + _root(later, gain, latest - later, spread)) / (least * (gain + spread))
    return BreakEven(1 + max(0.0, later / gain), low, 1 + max(0.0, high), method)


def _root(later: float, gain: float, start_spread: float, step_spread: float) -> float:
    """Return the square root in the solution of those quadratic equations."""
    return math.sqrt(
        (later * step_spread) ** 2 + (gain * start_spread) ** 2 - (start_spread * step_spread) ** 2
    )


def judge_ratio(
    ratio: Estimate, p_adjusted: float | None = None, margin: float = WORSE
) -> RatioVerdict:
    """Return the verdict on a ratio, by its adjusted p-value or else by its interval.

    A ratio within ``margin`` of 1 is neither slower nor faster.
    """
    if p_adjusted is None:
        longer = ratio.low is None or ratio.low > 1.0
        shorter = ratio.high is None or ratio.high < 1.0
    else:
        longer = shorter = p_adjusted < SIGNIFICANCE
    if ratio.value > margin and longer:
        return RatioVerdict.SLOWER
    if ratio.value < 1 / margin and shorter:
        return RatioVerdict.FASTER
    if ratio.low is None or ratio.high is None:
        return RatioVerdict.INCONCLUSIVE
    is_within = ratio.low >= 1 / margin and ratio.high <= margin
    return RatioVerdict.SAME if is_within else RatioVerdict.INCONCLUSIVE


def clearly_slower(one: Summary, other: Summary, confidence: float = CONFIDENCE) -> bool:
    """Tell whether one time is longer than another by more than noise may explain."""
    return judge_ratio(ratio(one, other, confidence)) is RatioVerdict.SLOWER


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
    """Tell whether one time may be more than `WORSE` times another, by a one-sided test."""
    high = ratio(slower, faster, 2 * confidence - 1).high
    return high is None or high > WORSE


def launches_to_settle(one: Summary, other: Summary) -> int | None:
    """Return the launches of each after which two times would be different or `tied`.

    None if `MOST_LAUNCHES` would not settle it. From this number on either result is found with
    probability `POWER` if the ratio is the observed one.
    """
    # Each of the two tests of a tie fails half as often as both together may.
    margin = math.log(WORSE) - abs(_log_ratio(one, other))
    equal = _fewest_launches(one, other, margin, 1 - 2 * SIGNIFICANCE, (1 + POWER) / 2)
    different = launches_to_decide(one, other)
    return min((count for count in (different, equal) if count is not None), default=None)


def launches_to_decide(one: Summary, other: Summary, comparisons: int = 1) -> int | None:
    """Return the launches of each that would distinguish these two times.

    None where `MOST_LAUNCHES` would not. From this number on Welch's t finds a difference as large
    as the one seen with probability `POWER`, adjusted for ``comparisons`` after Bonferroni, the
    worst case of Holm's procedure.
    """
    difference = abs(_log_ratio(one, other))
    return _fewest_launches(one, other, difference, 1 - SIGNIFICANCE / max(1, comparisons), POWER)


def _fewest_launches(
    one: Summary, other: Summary, margin: float, confidence: float, power: float
) -> int | None:
    """Return the fewest launches of each with which Student's t finds a log ratio of ``margin``."""
    from scipy.special import ndtri

    variance = variance_of_launches(one) + variance_of_launches(other)
    if one.relative is not None and took_turns(one, other):
        variance = one.relative.variance_in_a_group(one.number, other.number)
    freedom_of_others = 0.0
    for summary in (one, other):
        if summary.covers_launches:
            freedom_of_others += summary.launch_freedom - (summary.launches - 1)
    for launches in range(ENOUGH_LAUNCHES, MOST_LAUNCHES + 1):
        freedom = 2 * (launches - 1) + freedom_of_others
        errors = _student(freedom, confidence) + float(ndtri(power))
        if errors * math.sqrt(variance / launches) <= margin:
            return launches
    return None


def variance_of_launches(summary: Summary) -> float:
    """Return the variance of the logarithms of launches' medians, assumed if they are too few."""
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
    ratio: Estimate
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
    def verdict(self) -> RatioVerdict:
        """The verdict of `judge_ratio`."""
        return judge_ratio(self.ratio, self.p_adjusted)

    @property
    def swapped(self) -> "Contrast":
        """T(against) / T(threads), with the same evidence."""
        low = None if self.ratio.high is None else 1 / self.ratio.high
        high = None if self.ratio.low is None else 1 / self.ratio.low
        turned = Estimate(1 / self.value, low, high, self.ratio.method)
        return replace(self, threads=self.against, against=self.threads, ratio=turned)


def contrast(
    threads: int, against: int, slower: Summary, faster: Summary, test: bool = True
) -> Contrast:
    """Return the comparison of two thread counts' times, with a p-value if wanted and possible."""
    p_value = welch(slower, faster) if test else None
    return Contrast(threads, against, ratio(slower, faster), p_value)


def welch(one: Summary, other: Summary, times: float = 1.0) -> float | None:
    """Return the two-sided p-value of one time being so many ``times`` another, by their launches.

    It is that of Welch's t (1947), or of Student's where launches took turns. None where launches
    are too few.
    """
    if not _tested(one, other):
        return None
    return _p_value(_log_ratio(one, other) - math.log(times), [(one, other)])


def welch_of_pairs(pairs: Sequence[tuple[Summary, Summary]]) -> float | None:
    """Return the two-sided p-value of the mean of these pairs, as `mean_of_pairs` takes it."""
    if not all(_tested(one, other) for one, other in pairs):
        return None
    return _p_value(math.fsum(_log_ratio(one, other) for one, other in pairs), pairs)


def _p_value(sum_of_logs: float, pairs: Sequence[tuple[Summary, Summary]]) -> float:
    from scipy.special import stdtr

    variance, freedom = _variance_of_sum(pairs)
    if variance < NO_SPREAD**2:
        return 1.0 if abs(sum_of_logs) < NO_SPREAD else 0.0
    return 2 * float(stdtr(freedom, -abs(sum_of_logs) / math.sqrt(variance)))


def p_of_interval(ratio: Estimate) -> float | None:
    """Return the two-sided p-value of a ratio by its 95 % interval; None without one.

    The interval is taken for that of a normal logarithm. The end on the side of 1 counts, so that
    the value is below 5 % exactly if the interval lies on one side of 1.
    """
    from scipy.special import ndtr, ndtri

    if ratio.low is None or ratio.high is None:
        return None
    if ratio.value > 1.0:
        reach = math.log(ratio.value / ratio.low)
    else:
        reach = math.log(ratio.high / ratio.value)
    if reach == 0.0:
        return 1.0 if ratio.value == 1.0 else 0.0
    return 2 * float(ndtr(-abs(math.log(ratio.value)) / reach * ndtri(0.5 + CONFIDENCE / 2)))


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
    return [float(p_value) for p_value in adjusted]


def _mean_text(count: int) -> str:
    ratios = "ratio" if count == 1 else "ratios"
    return f"geometric mean of {count} {ratios}"


def _margins(summary: Summary, confidence: float) -> tuple[float, float]:
    """Return how far the interval of a time reaches down and up, in logarithms.

    Variation between launches is included.
    """
    from scipy.special import ndtri

    between = 0.0
    if not summary.covers_launches:
        quantile = float(ndtri(0.5 + confidence / 2))
        between = quantile * summary.launch_deviation / math.sqrt(summary.launches)
    down = math.log(summary.median / (summary.low or summary.median))
    up = math.log((summary.high or summary.median) / summary.median)
    return math.hypot(down, between), math.hypot(up, between)


def _distances(summary: Summary) -> tuple[float, float]:
    """Return how far the interval of a time reaches down and up, in seconds, as `_margins` does."""
    down, up = _margins(summary, CONFIDENCE)
    return summary.median * -math.expm1(-down), summary.median * math.expm1(up)


def _variance_of_median(logs: Values) -> float:
    """Return the variance of the median of normal values, from their median deviation."""
    deviation = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
    return math.pi / 2 * deviation**2 / len(logs)


def _student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def _order_statistics(ordered: Values) -> tuple[float | None, float | None, float | None]:
    """Return the narrowest symmetric order statistics that cover the median, and their coverage.

    The coverage is less than asked for where even the extremes of so few steps do not reach it.
    """
    from scipy.special import bdtr

    count = len(ordered)
    if count == 1:
        return None, None, None
    # The number of samples under the median is binomial(count, 1/2): the pair (rank-th smallest,
    # rank-th largest), rank from 0, misses it when that number is at most rank, or at least count -
    # rank.
    coverages = 1 - 2 * bdtr(np.arange((count + 1) // 2), count, 0.5)
    rank = max(0, int(np.count_nonzero(coverages >= CONFIDENCE)) - 1)
    return float(ordered[rank]), float(ordered[count - 1 - rank]), float(coverages[rank])
