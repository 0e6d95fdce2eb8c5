"""How a step's time goes with the time steps of a small recurrent network: T = c + s n_steps.

Least squares weighted by 1 / T^2, T of the step count, so that each launch counts by its relative error. The interval
is Student's t, once over the launches about the line, and once over the step counts about it (what launches alone do
not show: that time is no line); the wider counts. From two step counts nothing tells whether it is a line, and of one
launch each there is no interval either. The bootstrap of `evidence.least_squares` would take a second for each of
some hundred.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dlbench.reports.rnn.lines import Times
from dlbench.reports.statistics import CONFIDENCE, ENOUGH_LAUNCHES, Ratio, Summary

METHOD = f"{CONFIDENCE:.0%} Student t of weighted least squares"


@dataclass(frozen=True)
class Fit:
    """The line of one network over its time steps."""

    hidden: int
    inputs: int
    activation: str
    steps: tuple[int, ...]
    """The step counts that it goes through."""
    fixed: Ratio
    """c: seconds of an update whatever its time steps."""
    per_step: Ratio
    """s: seconds of a time step."""
    largest_residual: float | None
    """The largest |T / fitted T - 1| of any step count; None of two, which every line meets."""


def fits(times: Times) -> list[Fit]:
    """Return the fit of each network with two step counts or more."""
    found: dict[tuple[str, int, int], dict[int, Summary]] = {}
    for size, seconds in times.items():
        found.setdefault((size.activation, size.inputs, size.hidden), {})[size.steps] = seconds
    return [
        fit_line(hidden, inputs, activation, dict(sorted(of.items())))
        for (activation, inputs, hidden), of in sorted(found.items())
        if len(of) > 1
    ]


def fit_line(hidden: int, inputs: int, activation: str, times: Mapping[int, Summary]) -> Fit:
    """Return the line through these seconds by step counts."""
    points = list(_observations(times))
    steps = np.array([each for each, _ in points], dtype=float)
    seconds = np.array([each for _, each in points])
    # A launch's own time as its weight would draw the line towards the quick ones.
    middle = np.array([times[each].median for each, _ in points])
    columns = np.column_stack([1 / middle, steps / middle])
    theta = np.linalg.lstsq(columns, seconds / middle, rcond=None)[0]
    misses = seconds / middle - columns @ theta
    of_point = [(float(misses[steps == each].mean()), int(np.sum(steps == each))) for each in times]
    deviation = _deviation(misses, of_point)
    halves = None if deviation is None else deviation * np.sqrt(np.diag(np.linalg.inv(columns.T @ columns)))
    estimates = [
        Ratio(float(value), None, None, "no interval: nothing tells the spread")
        if halves is None
        else Ratio(float(value), float(value - halves[place]), float(value + halves[place]), METHOD)
        for place, value in enumerate(theta)
    ]
    largest = None
    if len(times) > 2:
        fitted = {each: float(theta[0] + theta[1] * each) for each in times}
        largest = max(abs(times[each].median / fitted[each] - 1) for each in times)
    return Fit(hidden, inputs, activation, tuple(times), estimates[0], estimates[1], largest)


def _observations(times: Mapping[int, Summary]) -> Iterator[tuple[int, float]]:
    """Yield step counts and seconds: of launches where each step count has enough of them, else a median each."""
    launches = all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values())
    for steps, summary in times.items():
        for seconds in summary.launch_medians if launches else (summary.median,):
            yield steps, seconds


def _deviation(misses: np.ndarray[tuple[int], np.dtype[np.float64]], points: list[tuple[float, int]]) -> float | None:
    """Return by how much a relative miss may deviate with `CONFIDENCE`; None where nothing is left over to tell."""
    about_line = [(float(np.sum(misses**2)), len(misses) - 2)]
    about_line += [(math.fsum(count * miss**2 for miss, count in points), len(points) - 2)]
    return max(
        (
            float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * math.sqrt(squares / freedom)
            for squares, freedom in about_line
            if freedom > 0
        ),
        default=None,
    )
