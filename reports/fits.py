"""Scaling laws fitted to T(p), and loudly rejected where they do not describe it.

Both laws are sums of three parts of a step with weights that are not negative, so their bounds come by themselves:

    T(p) = parallel * 1/p + serial * 1 + crosstalk * (p - 1)

Amdahl's law (Amdahl 1967) has no crosstalk: S(p) = 1 / (s + (1 - s) / p) with s = serial / T(1). The Universal
Scalability Law (Gunther, Guerrilla Capacity Planning, 2007, chapter 4) is C(p) = p / (1 + sigma (p - 1) + kappa p
(p - 1)) with sigma = serial / T(1) and kappa = crosstalk / T(1). T(1) = parallel + serial is fitted like the others: a
curve scaled by its first point would carry that point's noise everywhere.

Least squares of log T, so that each point counts by its relative error, weighted by its launches. The law with the
smaller AICc is chosen (Hurvich and Tsai 1989) among those not rejected.

Intervals are parametric bootstrap percentiles (Efron and Tibshirani 1993): launches drawn about the fitted curve with
the deviation that the launches of all points show together, or, where Bartlett's test tells the points' deviations
apart, each point's own. The observed variance is itself drawn (chi-squared), as in Student's t, since a few launches
give it badly. Resampling the launches themselves would not do: of three, it shows only two thirds of their variance.
Own simulation, nominal 95 %: all points alike 93-98 %; one of six points four times as noisy 94-97 % of five launches,
89 % of three (with the common deviation alone 82 %).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dlbench.reports.statistics import CONFIDENCE, ENOUGH_LAUNCHES, Summary

POINTS_NEEDED = 6
"""With fewer thread counts a law with three parameters is hardly put to the test."""
REPLICATES = 999
SEED = 20160825
"""Any fixed number: the same records give the same intervals."""
MISFIT_SIGNIFICANCE = 0.01
"""A law is rejected when launches that follow it would deviate from it as much as these with this probability ..."""
MISFIT_TOLERATED = 0.03
"""... and it misses a point by more than this share: precise launches would disprove any law."""
MISFIT_UNTESTED = 0.10
"""Without launches to tell the noise, a law is rejected where it misses a point by more than this share."""
ALIKE_SIGNIFICANCE = 0.2
"""The launches of all points are taken to deviate alike unless Bartlett's test says otherwise at this level."""
_LEAST_ERROR = 1e-6
"""No time is known better than this share."""

_Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Estimate:
    """A parameter with its interval; None where there is none, an infinite end where nothing bounds it."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Fit:
    """One law fitted to one curve."""

    law: str
    """"amdahl" or "usl"."""
    seconds_at_one: Estimate
    """T(1), fitted."""
    serial: Estimate
    """Amdahl's s, the Universal Scalability Law's sigma; 0 to 1."""
    crosstalk: Estimate | None
    """Kappa; None for Amdahl's law, which has none."""
    best_threads: Estimate | None
    """p* = sqrt((1 - sigma) / kappa), where T is least; None where more threads always help."""
    aicc: float
    largest_miss: float
    """The largest |T(p) / fitted T(p) - 1| of any point, as a share."""
    rejected: tuple[str, ...]
    """Why it does not describe the curve, a sentence each; empty where it may."""

    def seconds(self, threads: float) -> float:
        """Return the fitted T(p)."""
        kappa = self.crosstalk.value if self.crosstalk else 0.0
        waiting = 1 + self.serial.value * (threads - 1) + kappa * threads * (threads - 1)
        return self.seconds_at_one.value * waiting / threads


@dataclass(frozen=True)
class Fits:
    """All laws tried on a curve."""

    threads: tuple[int, ...]
    """The thread counts fitted."""
    laws: tuple[Fit, ...]
    """Empty where none was tried."""
    chosen: Fit | None
    """The one of least AICc among those not rejected."""
    intervals: str
    """How the intervals were made, or why there are none."""
    rejected: str = ""
    """Why no law was tried; empty where they were."""


@dataclass(frozen=True)
class _Data:
    """What is fitted: one mean of log seconds a point, and what its launches tell."""

    threads: _Array
    logs: _Array
    weights: _Array
    """Observations behind each mean."""
    launches: tuple[_Array, ...]
    """Logarithms of each point's launch medians; empty where a point has too few to tell noise from misfit."""

    @property
    def tested(self) -> bool:
        """Whether every point has launches enough to tell noise from misfit."""
        return bool(self.launches)

    @property
    def variances(self) -> _Array:
        """Variance of the launches at each point; zeros where there are too few."""
        return (
            np.array([float(each.var(ddof=1)) for each in self.launches]) if self.tested else np.zeros(len(self.logs))
        )

    @property
    def observations(self) -> int:
        return round(float(self.weights.sum()))

    @property
    def spread(self) -> float:
        """Sum of squares of the launches about their point's mean."""
        return float(np.sum(self.variances * (self.weights - 1)))

    @property
    def freedom(self) -> int:
        """Degrees of freedom of `spread`."""
        return self.observations - len(self.logs)


def fit_scaling(times: Mapping[int, Summary]) -> Fits:
    """Fit both laws to seconds per step by thread count.

    The times must be those of p threads on p CPUs: beyond the CPUs neither law says anything.
    """
    counts = tuple(sorted(times))
    if len(counts) < POINTS_NEEDED:
        found = f"{len(counts)} thread count{'s' if len(counts) != 1 else ''}"
        return Fits(counts, (), None, "no intervals", f"{found} to fit, {POINTS_NEEDED} needed")
    data = _gather({p: times[p] for p in counts})
    laws = [_fit(law, data) for law in ("amdahl", "usl")]
    able = [fit for fit in laws if not fit.rejected]
    chosen = min(able, key=lambda fit: fit.aicc, default=None)
    return Fits(counts, tuple(laws), chosen, _intervals_said(times))


def karp_flatt(speedup: float, threads: int) -> float | None:
    """Return the serial fraction that a speed-up at p threads shows; None at one thread, where nothing shows.

    e = (1 / S - 1 / p) / (1 - 1 / p) (Karp and Flatt, Measuring parallel processor performance, 1990). Constant over p:
    a serial part; rising: overhead that grows with the threads; negative: better than linear.
    """
    return None if threads < 2 else (1 / speedup - 1 / threads) / (1 - 1 / threads)


def _gather(times: Mapping[int, Summary]) -> _Data:
    tested = all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values())
    threads = np.array(list(times), dtype=float)
    if not tested:
        logs = np.log([summary.median for summary in times.values()])
        return _Data(threads, logs, np.ones(len(times)), ())
    launches = tuple(np.log(summary.launch_medians) for summary in times.values())
    means = np.array([float(each.mean()) for each in launches])
    return _Data(threads, means, np.array([float(len(each)) for each in launches]), launches)


def _intervals_said(times: Mapping[int, Summary]) -> str:
    if all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values()):
        return (
            f"{CONFIDENCE:.0%} percentiles of {REPLICATES} parametric bootstrap replicates (launches drawn about the "
            "fit, with the deviation that all show together, or, where they differ, each thread count with its own)"
        )
    if all(summary.low is None for summary in times.values()):
        return "no intervals: single values without any spread"
    few = [str(p) for p, summary in times.items() if summary.launches < ENOUGH_LAUNCHES]
    return f"no intervals: fewer than {ENOUGH_LAUNCHES} launches at {', '.join(few)}"


def _parts(law: str, threads: _Array) -> _Array:
    """Return the parts of a step at each thread count, a column each: parallel, serial, and crosstalk for the USL."""
    columns = [1 / threads, np.ones_like(threads), threads - 1]
    return np.column_stack(columns[: 2 if law == "amdahl" else 3])


def _solve(parts: _Array, logs: _Array, weights: _Array, start: _Array | None = None) -> _Array:
    """Return the weights of the parts, none negative, that minimise the squares of log T.

    Gauss and Newton's iteration with each linear step solved under its bounds (`scipy.optimize.nnls`) and halved until
    it leads down. It starts from the least squares of relative errors, a convex problem, hence from no guess.
    """
    from scipy.optimize import nnls

    root = np.sqrt(weights)[:, None]

    def step(about: _Array, target: _Array) -> _Array:
        solved: _Array = nnls(parts / about[:, None] * root, target * root[:, 0])[0]
        return solved

    def cost(theta: _Array) -> float:
        curve = parts @ theta
        return math.inf if np.any(curve <= 0) else float(np.sum(weights * (logs - np.log(curve)) ** 2))

    theta = step(np.exp(logs), np.ones_like(logs)) if start is None else start
    if not math.isfinite(cost(theta)):
        theta = np.full(parts.shape[1], math.exp(float(logs.mean())))
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


def _fit(law: str, data: _Data) -> Fit:
    parts = _parts(law, data.threads)
    theta = _solve(parts, data.logs, data.weights)
    misses = data.logs - np.log(parts @ theta)
    misfit = float(np.sum(data.weights * misses**2))
    worst = int(np.argmax(np.abs(misses)))
    miss = math.exp(float(misses[worst])) - 1
    at_bound = _at_bound(parts, theta)
    probability = _misfit_probability(misfit, len(theta), data)
    rejected = tuple(at_bound) + tuple(_lack_of_fit(miss, int(data.threads[worst]), probability, data))
    replicates: _Array | None = None
    if data.tested and not rejected:
        # A misfit small enough to be tolerated may be larger than the launches' own deviation: the intervals count it.
        misses_more = probability is not None and probability < MISFIT_SIGNIFICANCE
        least = misfit / (len(data.logs) - len(theta)) if misses_more else 0.0
        replicates = _replicates(parts, theta, least, data)
    usl = law == "usl"
    return Fit(
        law,
        _estimate(theta, replicates, lambda found: found[0] + found[1]),
        _estimate(theta, replicates, lambda found: found[1] / (found[0] + found[1])),
        _estimate(theta, replicates, lambda found: found[2] / (found[0] + found[1])) if usl else None,
        _estimate(theta, replicates, _least_at) if usl and theta[2] > 0 else None,
        _aicc(misfit + data.spread, data.observations, len(theta)),
        abs(miss),
        rejected,
    )


def _least_at(theta: _Array) -> float:
    """Return p*; with sigma and kappa put in, sqrt(parallel / crosstalk)."""
    return math.sqrt(theta[0] / theta[2]) if theta[2] > 0 else math.inf


def _aicc(squares: float, observations: int, parameters: int) -> float:
    """Return AICc of a fit by least squares; the error's variance counts as a parameter (Burnham and Anderson 2002)."""
    k = parameters + 1
    squares = max(squares, observations * _LEAST_ERROR**2)
    if observations <= k + 1:
        return math.inf
    return observations * math.log(squares / observations) + 2 * k + 2 * k * (k + 1) / (observations - k - 1)


def _at_bound(parts: _Array, theta: _Array) -> list[str]:
    """Say which parameters are at a bound: their part is nowhere a share of a step that could be seen."""
    shares = parts * theta / (parts @ theta)[:, None]
    none = [bool(each) for each in shares.max(axis=0) < _LEAST_ERROR]
    usl = len(theta) == 3
    serial = "sigma" if usl else "the serial fraction"
    said = []
    if none[0]:
        said.append(f"{serial} is at its bound, 1: nothing scales")
    if none[1]:
        said.append(f"{serial} is at its bound, 0: the speed-up is linear or better")
    if usl and none[2]:
        said.append("kappa is at its bound, 0: nothing grows with the threads, which is Amdahl's law")
    return said


def _misfit_probability(misfit: float, parameters: int, data: _Data) -> float | None:
    """Return how probable such a misfit is if the law holds; None without launches to tell.

    The classical test of lack of fit against pure error (Draper and Smith, Applied Regression Analysis, section 2.1):
    F of the points' means about the fit over the launches about their means.
    """
    from scipy.stats import f

    if not data.tested:
        return None
    spare = len(data.logs) - parameters
    if data.spread <= 0:
        return 0.0 if misfit > data.observations * _LEAST_ERROR**2 else 1.0
    return float(f.sf(misfit / spare / (data.spread / data.freedom), spare, data.freedom))


def _lack_of_fit(miss: float, threads: int, probability: float | None, data: _Data) -> list[str]:
    where = f"at {threads} thread{'s' if threads != 1 else ''} a step takes {_share(miss)} the fit says"
    if probability is None:
        if abs(miss) <= MISFIT_UNTESTED:
            return []
        return [f"{where} (over {MISFIT_UNTESTED:.0%}; too few launches to say whether noise explains that)"]
    if probability >= MISFIT_SIGNIFICANCE or abs(miss) <= MISFIT_TOLERATED:
        return []
    deviation = math.sqrt(data.spread / data.freedom)
    return [
        f"{where}, which launches that deviate by {deviation:.1%} do not explain (p {said_probability(probability)})"
    ]


def _share(miss: float) -> str:
    if miss >= 1:
        return f"{miss + 1:.1f}x what"
    return f"{abs(miss):.0%} {'more' if miss > 0 else 'less'} than"


def said_probability(probability: float) -> str:
    """Return a p-value with its sign of relation: "= 0.012", "< 0.001"."""
    return "< 0.001" if probability < 0.001 else f"= {probability:.2g}"


def _replicates(parts: _Array, theta: _Array, least_variance: float, data: _Data) -> _Array:
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
    return np.array([_solve(parts, fitted + each, data.weights, theta) for each in noise])


def _alike(data: _Data) -> bool:
    """Tell whether the launches of all points may deviate alike, by Bartlett's test (1937)."""
    from scipy.stats import bartlett

    if np.any(data.variances <= 0):
        return bool(np.all(data.variances <= 0))
    return float(bartlett(*data.launches).pvalue) >= ALIKE_SIGNIFICANCE


def _estimate(theta: _Array, replicates: _Array | None, value: Callable[[_Array], float]) -> Estimate:
    if replicates is None:
        return Estimate(float(value(theta)))
    found = np.array([value(each) for each in replicates])
    tail = (1 - CONFIDENCE) / 2
    # Ends that are drawn values: between a finite and an infinite one nothing can be interpolated.
    low, high = np.quantile(found, [tail, 1 - tail], method="inverted_cdf")
    return Estimate(float(value(theta)), float(low), float(high))
