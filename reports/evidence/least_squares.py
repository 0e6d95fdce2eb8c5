"""Least squares of logarithms under bounds, what replicated observations tell of a fit, and its bootstrap.

Intervals are parametric bootstrap percentiles (Efron and Tibshirani 1993): launches drawn about the fitted curve with
the deviation that the launches of all points show together, or, where Bartlett's test tells the points' deviations
apart, each point's own. The observed variance is itself drawn (chi-squared), as in Student's t, since a few launches
give it badly. Resampling the launches themselves would not do: of three, it shows only two thirds of their variance.
Own simulation, nominal 95 %: all points alike 93-98 %; one of six points four times as noisy 94-97 % of five launches,
89 % of three (with the common deviation alone 82 %).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlbench.reports.statistics import ENOUGH_LAUNCHES, Summary

REPLICATES = 999
SEED = 20160825
"""Any fixed number: the same records give the same intervals."""
ALIKE_SIGNIFICANCE = 0.2
"""The launches of all points are taken to deviate alike unless Bartlett's test says otherwise at this level."""
_LINEAR_STEPS = 300
"""Far more than three columns need: a linear step that met scipy's own limit would raise."""
LEAST_ERROR = 1e-6
"""No time is known better than this share."""

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Observations:
    """What is fitted: one mean of log seconds a point, and what its launches tell."""

    threads: Array
    logs: Array
    weights: Array
    """Observations behind each mean."""
    launches: tuple[Array, ...]
    """Logarithms of each point's launch medians; empty where a point has too few to tell noise from misfit."""

    @property
    def tested(self) -> bool:
        """Whether every point has launches enough to tell noise from misfit."""
        return bool(self.launches)

    @property
    def variances(self) -> Array:
        """Variance of the launches at each point; zeros where there are too few."""
        return (
            np.array([float(each.var(ddof=1)) for each in self.launches]) if self.tested else np.zeros(len(self.logs))
        )

    @property
    def observations(self) -> int:
        """How many there are in all."""
        return round(float(self.weights.sum()))

    @property
    def spread(self) -> float:
        """Sum of squares of the launches about their point's mean."""
        return float(np.sum(self.variances * (self.weights - 1)))

    @property
    def freedom(self) -> int:
        """Degrees of freedom of `spread`."""
        return self.observations - len(self.logs)


def gather(times: Mapping[int, Summary]) -> Observations:
    """Return what is to be fitted: launches where every point has enough of them, else one median a point."""
    tested = all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values())
    threads = np.array(list(times), dtype=float)
    if not tested:
        logs = np.log([summary.median for summary in times.values()])
        return Observations(threads, logs, np.ones(len(times)), ())
    launches = tuple(np.log(summary.launch_medians) for summary in times.values())
    means = np.array([float(each.mean()) for each in launches])
    return Observations(threads, means, np.array([float(len(each)) for each in launches]), launches)


def solve(parts: Array, logs: Array, weights: Array, start: Array | None = None) -> Array:
    """Return the weights of the parts, none negative, that minimise the squares of log T.

    Gauss and Newton's iteration with each linear step solved under its bounds (`scipy.optimize.nnls`) and halved until
    it leads down. Without a start it begins at the least squares of T, which overrates the slow points, at those of
    1 - fit / T, which overrates the quick ones, and at equal parts, and returns the best end: times far from any law
    may have several valleys.
    """
    from scipy.optimize import nnls

    root = np.sqrt(weights)

    def step(about: Array, target: Array) -> Array:
        solved: Array = nnls(parts * (root / about)[:, None], target * root, maxiter=_LINEAR_STEPS)[0]
        return solved

    def cost(theta: Array) -> float:
        curve = parts @ theta
        return math.inf if np.any(curve <= 0) else float(np.sum(weights * (logs - np.log(curve)) ** 2))

    def descend(theta: Array) -> Array:
        least = cost(theta)
        for _ in range(50):
            curve = parts @ theta
            wanted = step(curve, 1 + logs - np.log(curve))
            share = 1.0
            while share > 1e-6 and cost(theta + share * (wanted - theta)) > least:
                share /= 2
            theta = theta + share * (wanted - theta)
            before, least = least, cost(theta)
            if before - least <= 1e-10 * before:
                break
        return theta

    if start is not None:
        return descend(start)
    times, ones = np.exp(logs), np.ones_like(logs)
    equal = np.full(parts.shape[1], math.exp(float(logs.mean())))
    starts = [equal, step(times, ones), step(ones, times)]
    return min((descend(theta) for theta in starts if math.isfinite(cost(theta))), key=cost)


def aicc(squares: float, observations: int, parameters: int) -> float:
    """Return AICc of a fit by least squares; the error's variance counts as a parameter (Burnham and Anderson 2002)."""
    k = parameters + 1
    squares = max(squares, observations * LEAST_ERROR**2)
    if observations <= k + 1:
        return math.inf
    return observations * math.log(squares / observations) + 2 * k + 2 * k * (k + 1) / (observations - k - 1)


def misfit_probability(misfit: float, parameters: int, data: Observations) -> float | None:
    """Return how probable such a misfit is if the law holds; None without launches to tell.

    The classical test of lack of fit against pure error (Draper and Smith, Applied Regression Analysis, section 2.1):
    F of the points' means about the fit over the launches about their means.
    """
    from scipy.stats import f

    if not data.tested:
        return None
    spare = len(data.logs) - parameters
    if data.spread <= 0:
        return 0.0 if misfit > data.observations * LEAST_ERROR**2 else 1.0
    return float(f.sf(misfit / spare / (data.spread / data.freedom), spare, data.freedom))


def replicate(parts: Array, theta: Array, least_variance: float, data: Observations) -> Array:
    """Return the weights of the parts fitted to launches simulated from this fit, a row for each replicate."""
    random = np.random.default_rng(SEED)
    fitted = np.log(parts @ theta)
    shape = REPLICATES, len(fitted)
    if _alike(data):
        drawn = data.spread / random.chisquare(data.freedom, (REPLICATES, 1))
    else:
        own = data.weights - 1
        drawn = data.variances * own / random.chisquare(own, shape)
    noise = random.standard_normal(shape) * np.sqrt(np.maximum(drawn, least_variance) / data.weights)
    return np.array([solve(parts, fitted + each, data.weights, theta) for each in noise])


def _alike(data: Observations) -> bool:
    """Tell whether the launches of all points may deviate alike."""
    return deviate_alike(data.launches)


def deviate_alike(launches: Sequence[Array]) -> bool:
    """Tell whether the launches of several groups (logarithms) may deviate alike, by Bartlett's test (1937)."""
    from scipy.stats import bartlett

    variances = [float(each.var(ddof=1)) for each in launches]
    if min(variances) <= 0:
        return max(variances) <= 0
    # Of equal variances scipy's p-value may be no number.
    return not float(bartlett(*launches).pvalue) < ALIKE_SIGNIFICANCE
