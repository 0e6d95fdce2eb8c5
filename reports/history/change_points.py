"""Where a series of nights changed its level: located by ruptures, then each location is put to a
test.

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

`reports/VERDICTS.md` has the error rates and the power.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

ENOUGH_NIGHTS = 5
"""Nights on both sides that a change needs to be confirmed."""
MAGNITUDE = 0.025
"""Smallest change that is reported, relative."""
FALSE_DISCOVERY_RATE = 0.05
"""Average share of the reported changes that may be false."""
CONFIDENCE = 0.95
LEAST_NOISE = 1e-4
"""Log units: what a clock and rounding leave even of a made-up time."""

_NEIGHBOURS = 5  # on either side of a night that is judged odd
_ODD = 4.0  # deviations of the noise from both medians of its neighbours
_SLOPE_FROM = 8  # nights that a slope beside a step needs


@dataclass(frozen=True)
class Step:
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
) -> list[tuple[Step, ...]]:
    """Return for each series (log seconds or log ratios, in order of time, no NaN) its steps, the
    oldest first.

    ``magnitude`` is relative: 0.025 keeps steps of 2.5 % and more. ``drifting`` says which series
    are of absolute times; none where it is left out. A series needs ``2 * ENOUGH_NIGHTS`` values
    for a confirmed step, ``ENOUGH_NIGHTS + 1`` for a pending one.
    """
    kinds = drifting or [False] * len(series)
    return judged_steps(
        [steps_of(values, drifts) for values, drifts in zip(series, kinds, strict=True)], magnitude
    )


def judged_steps(
    candidates: Sequence[tuple[Step, ...]], magnitude: float
) -> list[tuple[Step, ...]]:
    """Return of the steps of each series those that hold over all series and are large enough."""
    from scipy.stats import false_discovery_control

    tests = [step.p for steps in candidates for step in steps]
    if not tests:
        return [()] * len(candidates)
    silent = sum(1 for steps in candidates if not steps)
    adjusted = iter(false_discovery_control([*tests, *[1.0] * silent]).tolist())
    judged = [[replace(step, adjusted_p=next(adjusted)) for step in steps] for steps in candidates]
    return [
        tuple(
            s
            for s in steps
            if s.adjusted_p <= FALSE_DISCOVERY_RATE and abs(math.expm1(s.size)) >= magnitude
        )
        for steps in judged
    ]


def steps_of(values: Values, drifting: bool = False) -> tuple[Step, ...]:
    """Return the steps of one series that hold within it, without regard to other series or to
    their size.
    """
    count = len(values)
    if count <= ENOUGH_NIGHTS:
        return ()
    noise = noise_of(values)
    calm = pulled_in(values, noise)
    # A segmentation may put its steps at any night, and beside them segments of any scale.
    tried = count * max(1.0, math.log2(count / ENOUGH_NIGHTS))
    steps: list[Step] = []
    places = _candidates(calm, noise)
    correlation = _correlation(calm, places, drifting)
    test = partial(_step, drifting=drifting, correlation=correlation)
    while places:
        beside = _beside(places, count)
        steps = [test(calm[start:end], start, place, tried=tried) for start, place, end in beside]
        weakest = max(steps, key=lambda step: step.p)
        if weakest.p <= FALSE_DISCOVERY_RATE:
            break
        places.remove(weakest.position)
        steps = []
    edges = _past_the_ends(calm, places)
    steps = [step for step in steps if step.position not in edges]
    # The last nights' departure from the level before them, on the nights as they are.
    start = steps[-1].position if steps else 0
    late = [
        test(values[start:], start, count - after, tried=ENOUGH_NIGHTS - 1)
        for after in range(1, ENOUGH_NIGHTS)
        if count - after - start >= ENOUGH_NIGHTS
    ]
    best = min(late, key=lambda step: step.p, default=None)
    return (*steps, *([best] if best is not None and best.p <= FALSE_DISCOVERY_RATE else []))


def noise_of(values: Values) -> float:
    """Return the deviation of a night, by the median of neighbours' differences, so that few steps
    matter.
    """
    return max(float(np.median(np.abs(np.diff(values)))) / (0.6745 * math.sqrt(2)), LEAST_NOISE)


def _correlation(values: Values, places: Sequence[int], drifting: bool) -> float:
    """Return the lag-one correlation of nights around the levels of these segments, from 0 to
    0.9.
    """
    left = np.concatenate([part - part.mean() for part in np.split(values, places)])
    found = float(left[1:] @ left[:-1]) / max(float(left @ left), LEAST_NOISE**2)
    if drifting:
        # Where correlation is to be expected, a segment's own mean must not hide it (Kendall 1954).
        found += (1 + 4 * found) * (len(places) + 1) / len(values)
    return min(max(found, 0.0), 0.9)


def _step(
    values: Values, start: int, place: int, drifting: bool, correlation: float, tried: float
) -> Step:
    """Test a step at ``place`` of these values, which begin at ``start``; as many tests were
    ``tried``.

    Its p-value may exceed 1, so that many weak steps can still be ranked.
    """
    from scipy.special import stdtr, stdtrit

    count, before = len(values), place - start
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
        segments = (part for part in (values[:before], values[before:]) if len(part) > 1)
        own = math.sqrt(worth * sum(float(part.var(ddof=1)) / len(part) for part in segments))
    error = math.sqrt(variance * float(inverse[1, 1]))
    size = float(solution[1])
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(size) / max(error, own))) * tried
    return Step(place, size, size - half, size + half, p, before, count - before)


def pulled_in(values: Values, noise: float) -> Values:
    """Return the series with no night far from both the median of the nights before it and that of
    those after it.

    Two medians, since a single one over both sides would move the nights beside a step.
    """
    import pandas as pd

    def medians_before(nights: Values) -> Values:
        medians = pd.Series(nights).rolling(_NEIGHBOURS, min_periods=1).median().shift(1)
        return np.asarray(
            medians.fillna(float(np.median(nights[1 : _NEIGHBOURS + 1])))
        )  # the first has none before it

    earlier, later = medians_before(values), medians_before(values[::-1])[::-1]
    low, high = np.minimum(earlier, later), np.maximum(earlier, later)
    pulled: Values = np.clip(values, low - _ODD * noise, high + _ODD * noise)
    return pulled


def _candidates(values: Values, noise: float) -> list[int]:
    """Return the starts of the segments that PELT finds, but the first."""
    from ruptures import KernelCPD

    if len(values) < 2 * ENOUGH_NIGHTS:
        return []
    search = KernelCPD(kernel="linear", min_size=ENOUGH_NIGHTS).fit(values[:, np.newaxis])
    return [int(end) for end in search.predict(pen=2 * noise**2 * math.log(len(values)))[:-1]]


def _gain(values: Values, start: int, place: int, end: int) -> float:
    before, after = place - start, end - place
    difference = float(values[start:place].mean() - values[place:end].mean())
    return before * after / (before + after) * difference**2


def _beside(places: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Return for each place the start of the segment before it, itself, and the end of the segment
    after it.
    """
    ends = [0, *places, count]
    return list(zip(ends, ends[1:], ends[2:], strict=False))


def _past_the_ends(values: Values, places: list[int]) -> set[int]:
    """Return which of the first and last steps fit the nights better with fewer than
    `ENOUGH_NIGHTS` at the end.

    The search must leave five nights, so it places such a step too far inside, among nights of the
    other level. A change in the last nights is pending; one in the first nights is not reported.
    """
    count, few = len(values), range(1, ENOUGH_NIGHTS)
    found = set()
    for start, place, end in _beside(places, count):
        gain = _gain(values, start, place, end)
        early = start == 0 and any(_gain(values, 0, before, end) > gain for before in few)
        late = end == count and any(
            _gain(values, start, count - after, count) > gain for after in few
        )
        if early or late:
            found.add(place)
    return found
