"""How many launches each cell gets, how many timed steps each of them has, and which come first: pure functions.

A launch gives one log-median, and a cell's interval is Student's t over those (`reports.statistics`); its relative
half-width is exp(half) - 1. A cell is done when that reaches the wanted precision, or at the most launches allowed.

Stopping at the first look that meets the precision would favour samples whose spread came out small by chance:
simulated coverage of the nominal 95 % interval then falls to 91.9 % where launches deviate by twice the precision. So
the spread that decides on stopping is a mean of the cell's own and of an assumed one (`DOUBT_DEVIATION` times the
precision, weighted as `DOUBT_FREEDOM` degrees of freedom), as a Bayesian estimate of a variance is; the interval itself
is not touched. With 5 to 20 launches coverage then is 93.4 to 95.1 % whatever the deviation, at a price of one or two
launches for quiet cells.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dlbench.reports.statistics import CONFIDENCE, ENOUGH_LAUNCHES, LAUNCH_DEVIATION, summarise
from dlbench.reports.storage.record import Record

DOUBT_DEVIATION = 1.5
"""Assumed deviation of launches, in multiples of the precision."""
DOUBT_FREEDOM = 3
SEARCHABLE = 3
"""Samples more than the fewest with which a search for the end of warm-up begins; see adapters/launch/warm_up.py."""
_QUARTILES_APART = 1.349  # standard deviations of a normal distribution
_MEDIAN_VARIANCE = math.pi / 2  # of the median of n normal values, times n / variance


@dataclass(frozen=True)
class LaunchStats:
    """One launch that gave a number: median seconds of a step, and wall seconds of a timed sample and of all the rest.

    ``log_variance`` is that of the logarithms of its samples, from their quartiles: a median does not mind spikes.
    """

    seconds: float
    log_variance: float
    samples: int
    sample_seconds: float
    startup_seconds: float
    warmup_samples: int = 0


def launch_stats(record: Record) -> LaunchStats | None:
    """Return what planning needs of a record; None where nothing was timed."""
    outcome = record.outcome
    if not outcome.samples_ns:
        return None
    steps = np.asarray(outcome.step_seconds())
    low, high = np.quantile(np.log(steps), [0.25, 0.75])
    timed = sum(outcome.samples_ns) * 1e-9
    return LaunchStats(
        seconds=float(np.median(steps)),
        log_variance=(float(high - low) / _QUARTILES_APART) ** 2,
        samples=len(steps),
        sample_seconds=max(timed / len(steps), 1e-9),
        startup_seconds=max(record.wall_seconds - timed, 0.0),
        warmup_samples=len(outcome.warmup_ns),
    )


def half_width(launches: Sequence[LaunchStats]) -> float | None:
    """Return the relative half-width of the interval over these launches; None with fewer than three."""
    if len(launches) < ENOUGH_LAUNCHES:
        return None
    summary = summarise([[launch.seconds] for launch in launches])
    assert summary.high is not None
    return summary.high / summary.median - 1


def reached(launches: Sequence[LaunchStats], precision: float) -> bool:
    """Return whether the interval is narrow enough, the doubt about its own spread included."""
    count, width = len(launches), half_width(launches)
    if width is None or width > precision:
        return False
    return _half(count, _doubted_variance(_log_variance(launches), count, precision)) <= precision


def launches_left(launches: Sequence[LaunchStats], precision: float, fewest: int, most: int) -> int:
    """Return how many more launches a cell is expected to need if they deviate as those so far did; 0: it is done."""
    made = len(launches)
    if made >= fewest and (made >= most or reached(launches, precision)):
        return 0
    variance = _expected_variance(launches)
    for count in range(max(made + 1, fewest, ENOUGH_LAUNCHES), most):
        if _half(count, max(variance, _doubted_variance(variance, count, precision))) <= precision:
            return count - made
    return most - made


def steps(launches: Sequence[LaunchStats], fewest: int, most: int, searching: bool = False) -> int:
    """Return how many samples the next launch should time, between ``fewest`` and ``most``.

    n = sqrt((cost of a launch / cost of a sample) * (variance within / variance between launches)): Kalibera and Jones
    2013, "Rigorous benchmarking in reasonable time". The variance between launches is that of the log-medians less the
    part that the samples' own spread adds; where nothing is left of it, the result is ``most``. With too few launches
    to estimate it the result is ``fewest``: a start usually costs more than its steps. With ``searching`` for the end
    of warm-up it includes as many samples as warm-up took so far, and at first those that a search needs.
    """
    if len(launches) < ENOUGH_LAUNCHES:
        return min(most, fewest + SEARCHABLE) if searching else fewest
    within = float(np.mean([launch.log_variance for launch in launches]))
    noise = float(np.mean([_MEDIAN_VARIANCE * launch.log_variance / launch.samples for launch in launches]))
    between = _log_variance(launches) - noise
    if between <= 0:
        return most
    startup = float(np.mean([launch.startup_seconds for launch in launches]))
    sample = float(np.mean([launch.sample_seconds for launch in launches]))
    least = fewest + (max(launch.warmup_samples for launch in launches) if searching else 0)
    best = math.sqrt(startup / sample * within / between)
    return min(most, max(least, math.ceil(min(best, most))))


def gain(launches: Sequence[LaunchStats], seconds: float, precision: float) -> float:
    """Return the half-width that one more launch is expected to take off, per second that it lasts.

    Below the precision nothing is gained; an interval where there was none is worth more than anything else.
    """
    count, seconds = len(launches), max(seconds, 1e-9)
    if count < ENOUGH_LAUNCHES:
        return (1e6 + count) / seconds
    variance = _expected_variance(launches)
    now, then = (max(_half(number, variance), precision) for number in (count, count + 1))
    return (now - then) / seconds


def _log_variance(launches: Sequence[LaunchStats]) -> float:
    return statistics.variance(math.log(launch.seconds) for launch in launches)


def _expected_variance(launches: Sequence[LaunchStats]) -> float:
    return _log_variance(launches) if len(launches) >= ENOUGH_LAUNCHES else LAUNCH_DEVIATION**2


def _doubted_variance(variance: float, count: int, precision: float) -> float:
    doubt = (DOUBT_DEVIATION * precision) ** 2
    return (DOUBT_FREEDOM * doubt + (count - 1) * variance) / (DOUBT_FREEDOM + count - 1)


def _half(count: int, variance: float) -> float:
    """Return the relative half-width of Student's interval over so many log-medians of this variance."""
    return math.expm1(float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * math.sqrt(variance / count))
