"""Intervals that mean what they say: the launch, not the step, is the sampling unit.

Steps of one process share its memory layout, thread placement and moment, so an interval over them does not cover what
another launch would give (own simulation with launch effects: 30-43 % instead of 95 %). With three launches or more the
interval is Student's t over the logarithms of the launches' medians; with fewer it is the distribution-free interval of
the median over the steps (order statistics; Conover, Practical Nonparametric Statistics, section 3.2), and says so.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, ndtri, stdtrit

CONFIDENCE = 0.95
PUBLISHED = "published value, no interval"
"""The method of a summary of which nobody told the samples."""
ENOUGH_LAUNCHES = 3
"""From this many launches on an interval covers launch-to-launch variation."""
LAUNCH_DEVIATION = 0.02
"""Standard deviation assumed between launches of one cell where too few were made to see it; pairs of launches on a
quiet 2-core virtual machine showed 0.3 to 1.7 %."""


@dataclass(frozen=True)
class Summary:
    """Seconds per mini-batch of one cell."""

    median: float
    """Geometric mean of the launches' medians from `ENOUGH_LAUNCHES` on, else the median of all steps."""
    low: float | None
    """Lower end of the interval; None where nothing tells the spread."""
    high: float | None
    samples: int
    """Timed steps in all."""
    launches: int
    method: str
    """How the interval was made, in words."""
    covers_launches: bool
    """Whether the interval covers launch-to-launch variation."""
    launch_medians: tuple[float, ...]
    coverage: float | None = None
    """What the interval covers by its construction, 0.95 or, from few steps, less; None without an interval."""


@dataclass(frozen=True)
class Ratio:
    """How many times longer one cell takes than another, with its interval (None where nothing tells it)."""

    value: float
    low: float | None
    high: float | None
    method: str

    def changed(self, change: Callable[[float], float], method: str = "") -> "Ratio":
        """Return it with a rising function of its value and of the ends that there are."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        return Ratio(change(self.value), low, high, method or self.method)


def summarise(launches: Iterable[Sequence[float]], confidence: float = CONFIDENCE) -> Summary:
    """Summarise the timed steps (seconds, > 0) of each launch of one cell.

    Raises ValueError where there is no sample at all; launches without samples are passed over.
    """
    steps = [np.asarray(launch, dtype=float) for launch in launches if len(launch)]
    if not steps:
        raise ValueError("there is no sample to summarise")
    medians = tuple(float(np.median(launch)) for launch in steps)
    samples = sum(len(launch) for launch in steps)
    if len(steps) >= ENOUGH_LAUNCHES:
        logs = np.log(medians)
        half = _student(len(logs) - 1, confidence) * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
        centre = float(np.mean(logs))
        ends = math.exp(centre - half), math.exp(centre + half)
        method = f"{confidence:.0%} Student t over {len(steps)} launch log-medians"
        return Summary(math.exp(centre), *ends, samples, len(steps), method, True, medians, confidence)
    pooled = np.sort(np.concatenate(steps))
    within = "within one launch" if len(steps) == 1 else f"within {len(steps)} launches"
    low, high, coverage = _order_statistics(pooled, confidence)
    method = "a single step, no interval" if coverage is None else f"{coverage:.0%} order statistics of the median"
    middle = float(np.median(pooled))
    return Summary(middle, low, high, samples, len(steps), f"{method}, {within}", False, medians, coverage)


def published(seconds: float) -> Summary:
    """Return a summary of a value that somebody published without its samples."""
    return Summary(seconds, None, None, 1, 1, PUBLISHED, False, (seconds,))


def ratio(slower: Summary, faster: Summary, confidence: float = CONFIDENCE) -> Ratio:
    """Return ``slower / faster`` with an interval.

    With enough launches on both sides: Welch's t on the launch log-medians (Welch 1947; degrees of freedom after
    Satterthwaite 1946). Else the quotients of the ends of both intervals, which cover variation within launches only,
    widened by what two launches of the same cell may differ by (`LAUNCH_DEVIATION`); a single step is both ends of its
    interval. Published values without intervals have none.
    """
    value = slower.median / faster.median
    if slower.covers_launches and faster.covers_launches:
        half = welch_half_width([(slower, faster)], confidence)
        if half == 0.0:
            return Ratio(value, value, value, "launches without any spread")
        method = f"{confidence:.0%} Welch t over launch log-medians"
        return Ratio(value, value * math.exp(-half), value * math.exp(half), method)
    if PUBLISHED in (slower.method, faster.method):
        return Ratio(value, None, None, "no interval")
    ends = [(side.low or side.median, side.high or side.median) for side in (slower, faster)]
    allowance = math.exp(math.sqrt(2) * float(ndtri(0.5 + confidence / 2)) * LAUNCH_DEVIATION)
    method = f"quotients of the intervals' ends, widened for launches that deviate by {LAUNCH_DEVIATION:.0%}"
    return Ratio(value, ends[0][0] / ends[1][1] / allowance, ends[0][1] / ends[1][0] * allowance, method)


def welch_half_width(pairs: Sequence[tuple[Summary, Summary]], confidence: float) -> float:
    """Return half the width, in logarithms, of the interval of the mean ratio of pairs with enough launches.

    Welch 1947, with the degrees of freedom after Satterthwaite 1946 over all sides; 0 where no launch deviates.
    """
    sides = [np.log(side.launch_medians) for pair in pairs for side in pair]
    parts = [float(np.var(logs, ddof=1)) / len(logs) / len(pairs) ** 2 for logs in sides]
    variance = math.fsum(parts)
    if variance == 0.0:
        return 0.0
    freedom = variance**2 / math.fsum(part**2 / (len(logs) - 1) for part, logs in zip(parts, sides, strict=True))
    return _student(freedom, confidence) * math.sqrt(variance)


def _student(freedom: float, confidence: float) -> float:
    return float(stdtrit(freedom, 0.5 + confidence / 2))


def _order_statistics(
    ordered: np.ndarray[tuple[int], np.dtype[np.float64]], confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Return the narrowest symmetric pair of order statistics that covers the median with this confidence.

    Third is what it covers: less than asked for where even the extremes of so few steps do not.
    """
    count = len(ordered)
    if count == 1:
        return None, None, None
    # The number of samples under the median is binomial(count, 1/2): the pair (k-th smallest, k-th largest), k from
    # 0, misses it when that number is at most k, or at least count - k.
    k = 0
    while 2 * (k + 1) < count and 1 - 2 * float(bdtr(k + 1, count, 0.5)) >= confidence:
        k += 1
    coverage = 1 - 2 * float(bdtr(k, count, 0.5))
    return float(ordered[k]), float(ordered[count - 1 - k]), coverage
