"""Slow drifts: a rise or fall over many nights, by steps too small to be change points.

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
   Murphy and Myors 1999). The threshold is the one of change points. For absolute times it is at
   least `MACHINE_DRIFT`, since machines drift too.
4. A drift must explain the series better than steps do, by Schwarz's criterion (1978): better than
   the steps that were found, and than any single one. Where it does, the steps are those of the
   series less its drift.
5. Over all series the p-values are adjusted for the false discovery rate, apart from those of the
   steps.

A series has at most one drift, the strongest. It is located to a fortieth of the series.

`reports/docs/explanation/verdicts.md` has the error rates and the power.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dlbench.reports.history.change_points import (
    FALSE_DISCOVERY_RATE,
    LEAST_NOISE,
    MAGNITUDE,
    LevelChange,
    Values,
    judged_steps,
    noise_of,
    pulled_in,
    steps_of,
)
from dlbench.reports.results.statistics import CONFIDENCE

ENOUGH_NIGHTS_OF_DRIFT = 12
"""The fewest nights of a drift. A faster change is a step."""
MACHINE_DRIFT = 0.05
"""Drift of absolute times that may be the machine's own: its usual shift between sessions, 2.5 %,
at both ends."""

_PLACES = 40  # starts and ends that are tried
_ROUNDS = 3  # of finding the drift beside the steps, and the steps of the series less the drift
_NO_LENGTH = 1e-9  # of a ramp that the steps explain altogether
# A drift that is no straight line leaves some too, and the calmer the nights, the more.
_MOST_CORRELATION = 0.7
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

    steps: tuple[LevelChange, ...]
    drift: Ramp | None


_Stretch = tuple[int, int]
"""The first and the last night."""


class _Reading(NamedTuple):
    """A drift, and the steps that the series has besides."""

    drift: Ramp
    steps: tuple[LevelChange, ...]


def find_changes(
    series: Sequence[Values], magnitude: float = MAGNITUDE, drifting: Sequence[bool] = ()
) -> list[Changes]:
    """Return the steps and the drift of each series; the arguments are those of `find_steps`."""
    from scipy.stats import false_discovery_control

    if not series:
        return []
    are_absolute = drifting or [False] * len(series)
    steps_by_series: list[tuple[LevelChange, ...]] = []
    readings: list[_Reading | None] = []
    tests = []
    for values, is_absolute in zip(series, are_absolute, strict=True):
        steps = steps_of(values, is_absolute)
        steps_by_series.append(steps)
        reading = _find_drift(values, steps, magnitude, is_absolute)
        readings.append(reading)
        if reading is None:
            tests.append(1.0)
        else:
            tests.append(min(reading.drift.p, 1.0))
    adjusted = false_discovery_control(tests).tolist()
    drifts: list[Ramp | None] = [None] * len(series)
    for index, reading in enumerate(readings):
        if reading is not None and adjusted[index] <= FALSE_DISCOVERY_RATE:
            drifts[index] = replace(reading.drift, adjusted_p=adjusted[index])
            steps_by_series[index] = reading.steps
    judged = judged_steps(steps_by_series, magnitude)
    return [Changes(steps, drift) for steps, drift in zip(judged, drifts, strict=True)]


def _find_drift(
    values: Values, steps: tuple[LevelChange, ...], magnitude: float, is_absolute: bool
) -> _Reading | None:
    """Return the drift that explains a series better than these steps; None if there is no such."""
    if len(values) < ENOUGH_NIGHTS_OF_DRIFT:
        return None
    calm = pulled_in(values, noise_of(values))
    smallest_drift = magnitude
    if is_absolute:
        smallest_drift = max(magnitude, MACHINE_DRIFT)
    least = math.log1p(smallest_drift)
    confirmed = tuple(step for step in steps if not step.pending)
    # Without a step in the series the drift must be one by itself.
    rounds = _ROUNDS if confirmed else 1
    # A drift may have looked like steps, or there may be both: the search ends in different places.
    significant = []
    for start in dict.fromkeys(((), confirmed)):
        reading = _read(values, calm, start, rounds, least, is_absolute)
        if reading.drift.p <= FALSE_DISCOVERY_RATE:
            significant.append(reading)
    if not significant:
        return None

    def criterion_of(reading: _Reading) -> float:
        return _model_criterion(calm, reading.steps, reading.drift)

    best = min(significant, key=criterion_of)
    criterion = criterion_of(best)
    if steps:
        criterion_of_steps = _model_criterion(calm, steps)
    else:
        # Not a step either that is too weak to be found: both have a place and a size.
        criterion -= math.log(len(calm))
        criterion_of_steps = _criterion(_best_step_residuals(calm), 2)
    if criterion < criterion_of_steps:
        return best
    return None


def _read(
    values: Values,
    calm: Values,
    steps: tuple[LevelChange, ...],
    rounds: int,
    least: float,
    is_absolute: bool,
) -> _Reading:
    """Return the drift of a series with steps, and the steps of the series less that drift.

    The search begins with these steps.
    """
    for _ in range(rounds):
        drift = _best_drift(calm, steps, least, is_absolute)
        less = values - _ramp(len(values), drift.first, drift.last) * drift.size
        before = [step.position for step in steps]
        # A series that drifts has slopes: a step must stand out from them.
        steps = steps_of(less, drifting=True)
        if [step.position for step in steps] == before:
            break
    return _Reading(drift, steps)


def _best_drift(
    values: Values, steps: Sequence[LevelChange], least: float, is_absolute: bool
) -> Ramp:
    """Return the drift that, with these steps, leaves the least squares.

    It is tested against ``least`` in all.
    """
    from scipy.special import stdtr, stdtrit

    levels = _level_columns(len(values), steps)
    best, longest = _best_stretches(values, levels)
    size, error, freedom = _slope(values, levels, best, is_absolute)
    tried = max(2 * len(values) / ENOUGH_NIGHTS_OF_DRIFT - 1, 1.0)
    p = 2 * float(stdtr(freedom, (least - abs(size)) / error)) * tried
    size, error, freedom = _slope(values, levels, longest, is_absolute)
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    return Ramp(*longest, size, size - half, size + half, p)


def _best_stretches(values: Values, levels: NDArray[np.float64]) -> tuple[_Stretch, _Stretch]:
    """Return the stretch with the least squares left beyond these levels, and the longest as good.

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
    values: Values, levels: NDArray[np.float64], stretch: _Stretch, is_absolute: bool
) -> tuple[float, float, float]:
    """Return the change over a stretch by its slope, its standard error and degrees of freedom."""
    count = len(values)
    first, last = stretch
    left = _residuals(values, np.column_stack([levels, _ramp(count, first, last)]))
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
    correlation = _correlation(left, levels.shape[1] + 1, is_absolute)
    worth = (1 + correlation) / (1 - correlation)
    error = math.sqrt(worth * variance * float(inverse[0, 0]))
    return float(solution[0]), error, max(freedom / worth, 1.0)


def _correlation(left: Values, columns: int, is_absolute: bool) -> float:
    """Return the lag-one correlation of residuals, from 0 to `_MOST_CORRELATION`.

    ``columns`` is the number of columns of the regression.
    """
    correlation = float(left[1:] @ left[:-1]) / max(float(left @ left), LEAST_NOISE**2)
    if is_absolute:
        # Where correlation is to be expected, the regression must not hide it.
        correlation += (1 + 4 * correlation) * columns / len(left)
    return min(max(correlation, 0.0), _MOST_CORRELATION)


def _ramp(count: int, first: int, last: int) -> Values:
    """Return 0 up to the first night, 1 from the last one on, and a straight line between them."""
    ramp: Values = np.clip((np.arange(count) - first) / (last - first), 0.0, 1.0)
    return ramp


@lru_cache(maxsize=8)
def _stretches(count: int) -> tuple[list[_Stretch], NDArray[np.float64]]:
    """Return the stretches to try in this many nights, and their ramps."""
    apart = max(1, count // _PLACES)
    length = ENOUGH_NIGHTS_OF_DRIFT - 1
    stretches = []
    for first in range(0, count - length, apart):
        for last in sorted({*range(first + length, count, apart), count - 1}):
            stretches.append((first, last))
    ramps = np.array([_ramp(count, first, last) for first, last in stretches])
    return stretches, ramps


def _level_columns(count: int, steps: Sequence[LevelChange]) -> NDArray[np.float64]:
    """Return the columns of a regression on a level and these steps."""
    nights = np.arange(count)
    after_steps = [np.where(nights >= step.position, 1.0, 0.0) for step in steps]
    return np.column_stack([np.ones(count), *after_steps])


def _residuals(values: Values, design: NDArray[np.float64]) -> Values:
    """Return the residuals of a regression on these columns."""
    left: Values = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return left


def _best_step_residuals(values: Values) -> Values:
    """Return the residuals of the single step that fits best, wherever it is."""
    count = len(values)
    places = np.arange(1, count)
    sums = np.cumsum(values - values.mean())[:-1]
    place = int(places[int((sums**2 / (places * (count - places))).argmax())])
    left = values.copy()
    left[:place] -= left[:place].mean()
    left[place:] -= left[place:].mean()
    return left


def _model_criterion(
    calm: Values, steps: Sequence[LevelChange], drift: Ramp | None = None
) -> float:
    """Return Schwarz's criterion of a series with these steps, and a drift if there is one."""
    design = _level_columns(len(calm), steps)
    parameters = 2 * len(steps)
    if drift is not None:
        design = np.column_stack([design, _ramp(len(calm), drift.first, drift.last)])
        parameters += _PARAMETERS
    return _criterion(_residuals(calm, design), parameters)


def _criterion(left: Values, parameters: int) -> float:
    """Return Schwarz's criterion of a model by its residuals and parameters; less is better."""
    count = len(left)
    variance = max(float(left.var()), LEAST_NOISE**2)
    return count * math.log(variance) + parameters * math.log(count)
