"""Changes of level in a series of nights: located by ruptures, then each location is tested.

1. Odd nights are pulled in towards their neighbours (Hampel 1974): none of them makes a step, and a
   few of them do not hide one. (With one night in twenty off by 30 % on average, a step of 5 % is
   found in 99 % of series, else in 24 %.)
2. PELT (Killick, Fearnhead and Eckley 2012; `ruptures.KernelCPD` with a linear kernel, which is
   least squares, in C) finds the best segmentation at a penalty of ``2 noise^2 log(nights)``. The
   noise is that of neighbours' differences, which steps and drift hardly affect. The penalty is
   lenient on purpose: the test decides.
3. Each location is tested with Student's t between the segments beside it, with nights as the
   units: with a common variance, since five nights after a change say little about their variance,
   but with a standard error no smaller than the segments' own variances give (Welch 1947). Nights
   that resemble the previous one carry less information: variances are inflated by ``(1 + r) / (1 -
   r)``, r being the lag-one correlation around the segments of the lenient search (with fewer
   segments, missed changes would look like correlation). The p-value is multiplied by the number of
   trials: nights times scales. The weakest location is removed and the rest tested again until all
   hold.
4. Over all series and locations p-values are adjusted for the false discovery rate (Benjamini and
   Hochberg 1995); a series without any location counts as a test that found nothing.

Absolute times drift with their machine. For such a series ("drifting") the test has a common slope
as a nuisance, and r is corrected for its bias.

A step needs `ENOUGH_NIGHTS` on both sides. One with fewer nights after it is pending: it compares
the last nights, with odd ones as they are, with the level before them.

`reports/docs/explanation/verdicts.md` has the error rates and the power.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dlbench.reports.results.statistics import CONFIDENCE

Values = NDArray[np.float64]

ENOUGH_NIGHTS = 5
"""Nights on both sides that a change needs to be confirmed."""
MAGNITUDE = 0.025
"""Smallest change that is reported, relative."""
FALSE_DISCOVERY_RATE = 0.05
"""Average share of the reported changes that may be false."""
LEAST_NOISE = 1e-4
"""Log units: what a clock and rounding leave even of a made-up time."""

_NEIGHBOURS = 5  # on either side of a night that is judged odd
_ODD = 4.0  # deviations of the noise from both medians of its neighbours
_SLOPE_FROM = 8  # nights that a slope beside a step needs


@dataclass(frozen=True)
class LevelChange:
    """A change of level between two nights of a series; sizes in log units."""

    position: int
    """Index of the first value after it."""
    size: float
    low: float
    """Lower end of the 95 % interval of the size."""
    high: float
    p: float
    """Corrected for the search within its series."""
    before: int
    """Values between the step before it, or the start, and this one."""
    after: int
    """Values from it to the next one, or the end."""
    adjusted_p: float = math.nan
    """Corrected for the search over all series too."""

    @property
    def pending(self) -> bool:
        """Whether there are too few nights after it to confirm it."""
        return self.after < ENOUGH_NIGHTS


def find_steps(
    series: Sequence[Values], magnitude: float = MAGNITUDE, drifting: Sequence[bool] = ()
) -> list[tuple[LevelChange, ...]]:
    """Return the steps of each series, the oldest first.

    A series has log seconds or log ratios in order of time, without NaN. ``magnitude`` is relative:
    0.025 keeps steps of 2.5 % and more. ``drifting`` says which series are of absolute times. By
    default none is. A series needs ``2 * ENOUGH_NIGHTS`` values for a confirmed step,
    ``ENOUGH_NIGHTS + 1`` for a pending one.
    """
    are_drifting = drifting or [False] * len(series)
    candidates = []
    for values, is_drifting in zip(series, are_drifting, strict=True):
        candidates.append(steps_of(values, is_drifting))
    return judged_steps(candidates, magnitude)


def judged_steps(
    candidates: Sequence[tuple[LevelChange, ...]], magnitude: float
) -> list[tuple[LevelChange, ...]]:
    """Return the steps of each series that hold over all series and are large enough."""
    from scipy.stats import false_discovery_control

    tests: list[float] = []
    without_steps = 0
    for steps in candidates:
        tests += [step.p for step in steps]
        if not steps:
            without_steps += 1
    if not tests:
        return [()] * len(candidates)
    remaining_p = iter(false_discovery_control([*tests, *[1.0] * without_steps]).tolist())
    judged = []
    for steps in candidates:
        kept = []
        for step in steps:
            adjusted_p = next(remaining_p)
            is_large = abs(math.expm1(step.size)) >= magnitude
            if adjusted_p <= FALSE_DISCOVERY_RATE and is_large:
                kept.append(replace(step, adjusted_p=adjusted_p))
        judged.append(tuple(kept))
    return judged


def steps_of(values: Values, drifting: bool = False) -> tuple[LevelChange, ...]:
    """Return the steps that hold within one series, of any size and without the other series."""
    count = len(values)
    if count <= ENOUGH_NIGHTS:
        return ()
    noise = noise_of(values)
    calm = pulled_in(values, noise)
    # A segmentation may put its steps at any night, and beside them segments of any scale.
    tried = count * max(1.0, math.log2(count / ENOUGH_NIGHTS))
    steps: list[LevelChange] = []
    places = _candidates(calm, noise)
    correlation = _correlation(calm, places, drifting)
    test = partial(_step, drifting=drifting, correlation=correlation)
    while places:
        segments = _neighbouring_segments(places, count)
        steps = [test(calm[start:end], start, place, tried=tried) for start, place, end in segments]
        weakest = max(steps, key=lambda step: step.p)
        if weakest.p <= FALSE_DISCOVERY_RATE:
            break
        places.remove(weakest.position)
        steps = []
    misplaced = _edge_places(calm, places)
    steps = [step for step in steps if step.position not in misplaced]
    # The last nights' departure from the level before them, on the nights as they are.
    start = steps[-1].position if steps else 0
    late = []
    for after in range(1, ENOUGH_NIGHTS):
        if count - after - start >= ENOUGH_NIGHTS:
            late.append(test(values[start:], start, count - after, tried=ENOUGH_NIGHTS - 1))
    if late:
        best = min(late, key=lambda step: step.p)
        if best.p <= FALSE_DISCOVERY_RATE:
            steps.append(best)
    return tuple(steps)


def noise_of(values: Values) -> float:
    """Return the deviation of a night, by the median of neighbours' differences.

    Few steps hardly affect that median.
    """
    median_difference = float(np.median(np.abs(np.diff(values))))
    return max(median_difference / (0.6745 * math.sqrt(2)), LEAST_NOISE)


def _correlation(values: Values, places: Sequence[int], drifting: bool) -> float:
    """Return the lag-one correlation of nights around the levels of segments, from 0 to 0.9."""
    left = np.concatenate([part - part.mean() for part in np.split(values, places)])
    correlation = float(left[1:] @ left[:-1]) / max(float(left @ left), LEAST_NOISE**2)
    if drifting:
        # Where correlation is to be expected, a segment's own mean must not hide it (Kendall 1954).
        correlation += (1 + 4 * correlation) * (len(places) + 1) / len(values)
    return min(max(correlation, 0.0), 0.9)


def _step(
    values: Values, start: int, place: int, drifting: bool, correlation: float, tried: float
) -> LevelChange:
    """Test a step at ``place`` of values that begin at ``start``.

    The p-value is multiplied by the number of tests ``tried``. It may exceed 1, so that many weak
    steps can still be ranked.
    """
    from scipy.special import stdtr, stdtrit

    count = len(values)
    before = place - start
    nights = np.arange(count, dtype=float)
    columns = [np.ones(count), np.where(nights >= before, 1.0, 0.0)]
    if drifting and count >= _SLOPE_FROM:
        columns.append(nights - (count - 1) / 2)
    design = np.column_stack(columns)
    inverse = np.linalg.inv(design.T @ design)
    solution = inverse @ (design.T @ values)
    left = values - design @ solution
    freedom = float(count - design.shape[1])
    # This many nights that resemble their neighbours carry as much information as one independent
    # night.
    worth = (1 + correlation) / (1 - correlation)
    variance = worth * max(float(left @ left) / freedom, LEAST_NOISE**2)
    freedom = max(freedom / worth, 1.0)
    own = 0.0
    if not drifting:
        # A segment of one night has no variance of its own.
        variance_of_means = 0.0
        for segment in (values[:before], values[before:]):
            if len(segment) > 1:
                variance_of_means += float(segment.var(ddof=1)) / len(segment)
        own = math.sqrt(worth * variance_of_means)
    error = math.sqrt(variance * float(inverse[1, 1]))
    size = float(solution[1])
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(size) / max(error, own))) * tried
    return LevelChange(place, size, size - half, size + half, p, before, count - before)


def pulled_in(values: Values, noise: float) -> Values:
    """Return the series with odd nights moved towards the medians of the nights before and after.

    There are two medians, since a single one over both sides would move the nights next to a step.
    """
    import pandas as pd

    def medians_before(nights: Values) -> Values:
        medians = pd.Series(nights).rolling(_NEIGHBOURS, min_periods=1).median().shift(1)
        # The first night has none before it.
        first = float(np.median(nights[1 : _NEIGHBOURS + 1]))
        return np.asarray(medians.fillna(first))

    earlier = medians_before(values)
    later = medians_before(values[::-1])[::-1]
    low = np.minimum(earlier, later)
    high = np.maximum(earlier, later)
    pulled: Values = np.clip(values, low - _ODD * noise, high + _ODD * noise)
    return pulled


def _candidates(values: Values, noise: float) -> list[int]:
    """Return the starts of the segments that PELT finds, without the first."""
    from ruptures import KernelCPD

    if len(values) < 2 * ENOUGH_NIGHTS:
        return []
    search = KernelCPD(kernel="linear", min_size=ENOUGH_NIGHTS).fit(values[:, np.newaxis])
    penalty = 2 * noise**2 * math.log(len(values))
    return [int(end) for end in search.predict(pen=penalty)[:-1]]


def _gain(values: Values, start: int, place: int, end: int) -> float:
    """Return the decrease of the sum of squares by a step at this place of a stretch."""
    before = place - start
    after = end - place
    difference = float(values[start:place].mean() - values[place:end].mean())
    return before * after / (before + after) * difference**2


def _neighbouring_segments(places: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Return each place between the start of the segment before it and the end of the next one."""
    ends = [0, *places, count]
    return list(zip(ends, ends[1:], ends[2:], strict=False))


def _edge_places(values: Values, places: list[int]) -> set[int]:
    """Return the first and last places that fit better with fewer than `ENOUGH_NIGHTS` at the end.

    The search must leave five nights, so it places such a step too far inside, among nights of the
    other level. A change in the last nights is pending; one in the first nights is not reported.
    """
    count = len(values)
    misplaced = set()
    for start, place, end in _neighbouring_segments(places, count):
        gain = _gain(values, start, place, end)
        gains = []
        for few in range(1, ENOUGH_NIGHTS):
            if start == 0:
                gains.append(_gain(values, 0, few, end))
            if end == count:
                gains.append(_gain(values, start, count - few, count))
        if any(edge_gain > gain for edge_gain in gains):
            misplaced.add(place)
    return misplaced
