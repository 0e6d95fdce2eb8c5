"""Slow drifts: a series that rises or falls over many nights, by steps that are each too small to
be a change point.

1. Every stretch of at least `ENOUGH_NIGHTS_OF_DRIFT` nights is tried: level before it, a straight
   rise or fall within it, level after it. The one that leaves the least squares is kept. (A step is
   such a stretch of one night.)
2. The slope of the nights within it is tested with Student's t, corrected for nights that resemble
   the one before: the number of nights and the degrees of freedom are divided by ``(1 + r) / (1 -
   r)``, r being the lag-one correlation of what the line leaves (Santer et al. 2000, Statistical
   significance of trends, J. Geophys. Res. 105). For absolute times r is corrected for its bias
   (Marriott and Pope 1954). The p-value is multiplied by the number of stretches that do not
   overlap by more than half.
3. The hypothesis is not "no slope" but "at most the threshold in all" (a minimum-effect test,
   Murphy and Myors 1999). The threshold is the one of change points. Of absolute times it is at
   least `OF_A_MACHINE`, since machines drift too.
4. A drift must explain the series better than steps do, by Schwarz's criterion (1978): better than
   the steps that were found, and than any single one. Where it does, the steps are those of the
   series less its drift.
5. Over all series the p-values are adjusted for the false discovery rate, apart from those of the
   steps.

A series has at most one drift, the strongest. It is located to a fortieth of the series.

`reports/VERDICTS.md` has the error rates and the power.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.reports.history.change_points import (
    CONFIDENCE,
    FALSE_DISCOVERY_RATE,
    LEAST_NOISE,
    MAGNITUDE,
    Step,
    Values,
    judged_steps,
    noise_of,
    pulled_in,
    steps_of,
)

ENOUGH_NIGHTS_OF_DRIFT = 12
"""Nights that a drift takes at least. A faster change is a step."""
OF_A_MACHINE = 0.05
"""Drift of absolute times that may be the machine's own: its usual shift between sessions, 2.5 %,
at both ends."""

_PLACES = 40  # starts and ends that are tried
_ROUNDS = 3  # of finding the drift beside the steps, and the steps of the series less the drift
_NO_LENGTH = 1e-9  # of a ramp that the steps explain altogether
_MOST_CORRELATION = (
    0.7  # a drift that is no straight line leaves some too, and the calmer the nights, the more
)
_PARAMETERS = 3  # of a drift: start, end and size; a step has two


@dataclass(frozen=True)
class Ramp:
    """A level, a straight rise or fall, and another level; sizes in log units."""

    first: int
    """Index of the night it begins with, which still has the level before it."""
    last: int
    """Index of the first night with the level after it."""
    size: float
    """In all."""
    low: float
    """Lower end of the 95 % interval of the size."""
    high: float
    p: float
    """Of "at most the threshold in all", corrected for the search within its series."""
    adjusted_p: float = math.nan
    """Corrected for the search over all series too."""


class Changes(NamedTuple):
    """Everything that changed in a series."""

    steps: tuple[Step, ...]
    drift: Ramp | None


_Stretch = tuple[int, int]
"""The first and the last night."""


class _Reading(NamedTuple):
    """A drift, and the steps that the series has besides."""

    drift: Ramp
    steps: tuple[Step, ...]


def find_changes(
    series: Sequence[Values], magnitude: float = MAGNITUDE, drifting: Sequence[bool] = ()
) -> list[Changes]:
    """Return the steps and the drift of each series; the arguments are those of `find_steps`."""
    from scipy.stats import false_discovery_control

    if not series:
        return []
    kinds = drifting or [False] * len(series)
    steps = [steps_of(values, of_machine) for values, of_machine in zip(series, kinds, strict=True)]
    readings = [
        _drift_of(values, its_steps, magnitude, of_machine)
        for values, its_steps, of_machine in zip(series, steps, kinds, strict=True)
    ]
    tests = [1.0 if reading is None else min(reading.drift.p, 1.0) for reading in readings]
    drifts: list[Ramp | None] = [None] * len(series)
    for place, (reading, p) in enumerate(
        zip(readings, false_discovery_control(tests).tolist(), strict=True)
    ):
        if reading is not None and p <= FALSE_DISCOVERY_RATE:
            drifts[place] = replace(reading.drift, adjusted_p=p)
            steps[place] = reading.steps
    return [Changes(*pair) for pair in zip(judged_steps(steps, magnitude), drifts, strict=True)]


def _drift_of(
    values: Values, steps: tuple[Step, ...], magnitude: float, of_machine: bool
) -> _Reading | None:
    """Return the drift of a series that explains it better than these steps; None if there is
    none.
    """
    if len(values) < ENOUGH_NIGHTS_OF_DRIFT:
        return None
    calm = pulled_in(values, noise_of(values))
    least = math.log1p(max(magnitude, OF_A_MACHINE) if of_machine else magnitude)
    confirmed = tuple(step for step in steps if not step.pending)
    # Without a step in the series the drift must be one by itself.
    rounds = _ROUNDS if confirmed else 1
    # The drift may be what looked like steps, or there may be both: the search ends in different
    # places.
    starts = dict.fromkeys(((), confirmed))
    readings = [_read(values, calm, start, rounds, least, of_machine) for start in starts]
    significant = [reading for reading in readings if reading.drift.p <= FALSE_DISCOVERY_RATE]
    if not significant:
        return None
    best = min(significant, key=lambda reading: _criterion_of(calm, reading.steps, reading.drift))
    found = _criterion_of(calm, best.steps, best.drift)
    if steps:
        return best if found < _criterion_of(calm, steps) else None
    # Not a step either that is too weak to be found: both have a place and a size.
    return best if found - math.log(len(calm)) < _criterion(_less_a_step(calm), 2) else None


def _read(
    values: Values,
    calm: Values,
    steps: tuple[Step, ...],
    rounds: int,
    least: float,
    of_machine: bool,
) -> _Reading:
    """Return the drift beside steps, starting with these, and the steps of the series less that
    drift.
    """
    for _ in range(rounds):
        drift = _best_drift(calm, steps, least, of_machine)
        less = values - _ramp(len(values), drift.first, drift.last) * drift.size
        before = [step.position for step in steps]
        # A series that drifts has slopes: a step must stand out from them.
        steps = steps_of(less, drifting=True)
        if [step.position for step in steps] == before:
            break
    return _Reading(drift, steps)


def _best_drift(values: Values, steps: Sequence[Step], least: float, of_machine: bool) -> Ramp:
    """Return the drift that, with steps at these places, leaves the least squares, tested against
    ``least`` in all.
    """
    from scipy.special import stdtr, stdtrit

    levels = _level_columns(len(values), steps)
    best, longest = _best_stretches(values, levels)
    size, error, freedom = _slope(values, levels, best, of_machine)
    tried = max(2 * len(values) / ENOUGH_NIGHTS_OF_DRIFT - 1, 1.0)
    p = 2 * float(stdtr(freedom, (least - abs(size)) / error)) * tried
    size, error, freedom = _slope(values, levels, longest, of_machine)
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    return Ramp(*longest, size, size - half, size + half, p)


def _best_stretches(values: Values, levels: NDArray[np.float64]) -> tuple[_Stretch, _Stretch]:
    """Return the stretch that leaves the least squares beside these levels, and the longest that is
    as good.

    As good means within the noise of a night, which hides the ends of a drift.
    """
    stretches, ramps = _stretches(len(values))
    basis = np.linalg.qr(levels)[0]
    ramps = ramps - (ramps @ basis) @ basis.T
    rest = values - basis @ (basis.T @ values)
    lengths = np.einsum("ij,ij->i", ramps, ramps)
    gains = np.where(
        lengths > _NO_LENGTH, (ramps @ rest) ** 2 / np.maximum(lengths, _NO_LENGTH), 0.0
    )
    best = int(gains.argmax())
    noise = max(float(rest @ rest) - float(gains[best]), 0.0) / len(values)
    as_good = np.flatnonzero(gains >= gains[best] - noise)
    nights = np.array([last - first for first, last in stretches])[as_good]
    # Of several that are longest, the one that fits best.
    longest = as_good[np.lexsort((gains[as_good], nights))[-1]]
    return stretches[best], stretches[int(longest)]


def _slope(
    values: Values, levels: NDArray[np.float64], stretch: _Stretch, of_machine: bool
) -> tuple[float, float, float]:
    """Return the change over a stretch by its slope, its standard error, and the degrees of
    freedom.
    """
    count, (first, last) = len(values), stretch
    left = _left(values, np.column_stack([levels, _ramp(count, first, last)]))
    freedom = max(count - levels.shape[1] - _PARAMETERS, 1)

    inside = slice(first, last + 1)
    length = last - first
    nights = np.arange(length + 1) / length
    # A step outside the stretch would be a constant column.
    within = [column[inside] for column in levels.T if np.ptp(column[inside]) > 0]
    design = np.column_stack([nights, np.ones(length + 1), *within])
    inverse = np.linalg.inv(design.T @ design)
    solution = inverse @ (design.T @ values[inside])
    left_inside = values[inside] - design @ solution
    # The larger of two estimates: a stretch that was searched for may look calmer than the rest.
    freedom_inside = max(length + 1 - design.shape[1], 1)
    variance = max(
        float(left @ left) / freedom,
        float(left_inside @ left_inside) / freedom_inside,
        LEAST_NOISE**2,
    )
    # This many nights that resemble their neighbours carry as much information as one independent
    # night.
    correlation = _correlation(left, levels.shape[1] + 1, of_machine)
    worth = (1 + correlation) / (1 - correlation)
    error = math.sqrt(worth * variance * float(inverse[0, 0]))
    return float(solution[0]), error, max(freedom / worth, 1.0)


def _correlation(left: Values, columns: int, of_machine: bool) -> float:
    """Return the lag-one correlation of what a regression on so many columns leaves, from 0 to
    `_MOST_CORRELATION`.
    """
    correlation = float(left[1:] @ left[:-1]) / max(float(left @ left), LEAST_NOISE**2)
    if of_machine:
        # Where correlation is to be expected, the regression must not hide it.
        correlation += (1 + 4 * correlation) * columns / len(left)
    return min(max(correlation, 0.0), _MOST_CORRELATION)


def _ramp(count: int, first: int, last: int) -> Values:
    """Return 0 up to the first night, 1 from the last one on, and a straight line between them."""
    ramp: Values = np.clip((np.arange(count) - first) / (last - first), 0.0, 1.0)
    return ramp


@lru_cache(maxsize=8)
def _stretches(count: int) -> tuple[list[_Stretch], NDArray[np.float64]]:
    """Return the stretches that are tried of so many nights, and their ramps."""
    apart = max(1, count // _PLACES)
    length = ENOUGH_NIGHTS_OF_DRIFT - 1
    stretches = [
        (first, last)
        for first in range(0, count - length, apart)
        for last in sorted({*range(first + length, count, apart), count - 1})
    ]
    ramps = np.array([_ramp(count, first, last) for first, last in stretches])
    return stretches, ramps


def _level_columns(count: int, steps: Sequence[Step]) -> NDArray[np.float64]:
    """Return the columns of a regression on a level and these steps."""
    nights = np.arange(count)
    return np.column_stack(
        [np.ones(count), *[np.where(nights >= step.position, 1.0, 0.0) for step in steps]]
    )


def _left(values: Values, design: NDArray[np.float64]) -> Values:
    """Return what a regression on these columns leaves."""
    left: Values = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return left


def _less_a_step(values: Values) -> Values:
    """Return what the single step that fits best leaves, wherever it is."""
    count = len(values)
    places = np.arange(1, count)
    sums = np.cumsum(values - values.mean())[:-1]
    place = int(places[int((sums**2 / (places * (count - places))).argmax())])
    left = values.copy()
    left[:place] -= left[:place].mean()
    left[place:] -= left[place:].mean()
    return left


def _criterion_of(calm: Values, steps: Sequence[Step], drift: Ramp | None = None) -> float:
    design = _level_columns(len(calm), steps)
    if drift is not None:
        design = np.column_stack([design, _ramp(len(calm), drift.first, drift.last)])
    return _criterion(_left(calm, design), 2 * len(steps) + (0 if drift is None else _PARAMETERS))


def _criterion(left: Values, parameters: int) -> float:
    """Return Schwarz's criterion of a model with so many parameters that leaves this of the series;
    less is better.
    """
    count = len(left)
    variance = max(float(left.var()), LEAST_NOISE**2)
    return count * math.log(variance) + parameters * math.log(count)
