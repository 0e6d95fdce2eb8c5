"""Scaling laws fitted to T(p), and loudly rejected where they do not describe it.

Both laws are sums of three parts of a step with weights that are not negative, so their bounds come by themselves:

    T(p) = parallel * 1/p + serial * 1 + crosstalk * (p - 1)

Amdahl's law (Amdahl 1967) has no crosstalk: S(p) = 1 / (s + (1 - s) / p) with s = serial / T(1). The Universal
Scalability Law (Gunther, Guerrilla Capacity Planning, 2007) is C(p) = p / (1 + sigma (p - 1) + kappa p
(p - 1)) with sigma = serial / T(1) and kappa = crosstalk / T(1). T(1) = parallel + serial is fitted like the others: a
curve scaled by its first point would carry that point's noise everywhere.

Least squares of log T, so that each point counts by its relative error, weighted by its launches. The law with the
smaller AICc is chosen (Hurvich and Tsai 1989) among those not rejected. Intervals: see `least_squares`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dlbench.reports.evidence import least_squares
from dlbench.reports.evidence.least_squares import (
    LEAST_ERROR,
    Array,
    Observations,
    aicc,
    gather,
    misfit_probability,
    replicate,
    solve,
)
from dlbench.reports.statistics import CONFIDENCE, ENOUGH_LAUNCHES, Summary

POINTS_NEEDED = 6
"""With fewer thread counts a law with three parameters is hardly put to the test."""
MISFIT_SIGNIFICANCE = 0.01
"""A law is rejected when launches that follow it would deviate from it as much as these with this probability ..."""
MISFIT_TOLERATED = 0.03
"""... and it misses a point by more than this share: precise launches would disprove any law."""
MISFIT_UNTESTED = 0.10
"""Without launches to tell the noise, a law is rejected where it misses a point by more than this share."""


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


def fit_scaling(times: Mapping[int, Summary]) -> Fits:
    """Fit both laws to seconds per step by thread count.

    The times must be those of p threads on p CPUs: beyond the CPUs neither law says anything.
    """
    counts = tuple(sorted(times))
    if len(counts) < POINTS_NEEDED:
        found = f"{len(counts)} thread count{'s' if len(counts) != 1 else ''}"
        return Fits(counts, (), None, "no intervals", f"{found} to fit, {POINTS_NEEDED} needed")
    data = gather({p: times[p] for p in counts})
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


def _intervals_said(times: Mapping[int, Summary]) -> str:
    if all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values()):
        return (
            f"{CONFIDENCE:.0%} percentiles of {least_squares.REPLICATES} parametric bootstrap replicates "
            "(launches drawn about the fit, with the deviation that all show together, or, where they differ, each "
            "thread count with its own)"
        )
    if all(summary.low is None for summary in times.values()):
        return "no intervals: single values without any spread"
    few = [str(p) for p, summary in times.items() if summary.launches < ENOUGH_LAUNCHES]
    return f"no intervals: fewer than {ENOUGH_LAUNCHES} launches at {', '.join(few)}"


def _parts(law: str, threads: Array) -> Array:
    """Return the parts of a step at each thread count, a column each: parallel, serial, and crosstalk for the USL."""
    columns = [1 / threads, np.ones_like(threads), threads - 1]
    return np.column_stack(columns[: 2 if law == "amdahl" else 3])


def _fit(law: str, data: Observations) -> Fit:
    parts = _parts(law, data.threads)
    theta = solve(parts, data.logs, data.weights)
    misses = data.logs - np.log(parts @ theta)
    misfit = float(np.sum(data.weights * misses**2))
    worst = int(np.argmax(np.abs(misses)))
    miss = math.exp(float(misses[worst])) - 1
    at_bound = _at_bound(parts, theta)
    probability = misfit_probability(misfit, len(theta), data)
    rejected = tuple(at_bound) + tuple(_lack_of_fit(miss, int(data.threads[worst]), probability, data))
    replicates: Array | None = None
    if data.tested and not rejected:
        # A misfit small enough to be tolerated may be larger than the launches' own deviation: the intervals count it.
        misses_more = probability is not None and probability < MISFIT_SIGNIFICANCE
        least = misfit / (len(data.logs) - len(theta)) if misses_more else 0.0
        replicates = replicate(parts, theta, least, data)
    usl = law == "usl"
    return Fit(
        law,
        _estimate(theta, replicates, lambda found: found[0] + found[1]),
        _estimate(theta, replicates, lambda found: _of_first(found, 1)),
        _estimate(theta, replicates, lambda found: _of_first(found, 2)) if usl else None,
        _estimate(theta, replicates, _least_at) if usl and theta[2] > 0 else None,
        aicc(misfit + data.spread, data.observations, len(theta)),
        abs(miss),
        rejected,
    )


def _of_first(theta: Array, part: int) -> float:
    """Return a part's weight over T(1), which data without p = 1 may leave at nothing."""
    first = theta[0] + theta[1]
    return float(theta[part] / first) if first > 0 else math.inf


def _least_at(theta: Array) -> float:
    """Return p*; with sigma and kappa put in, sqrt(parallel / crosstalk)."""
    return math.sqrt(theta[0] / theta[2]) if theta[2] > 0 else math.inf


def _at_bound(parts: Array, theta: Array) -> list[str]:
    """Say which parameters are at a bound: their part is nowhere a share of a step that could be seen."""
    shares = parts * theta / (parts @ theta)[:, None]
    none = [bool(each) for each in shares.max(axis=0) < LEAST_ERROR]
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


def _lack_of_fit(miss: float, threads: int, probability: float | None, data: Observations) -> list[str]:
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


def _estimate(theta: Array, replicates: Array | None, value: Callable[[Array], float]) -> Estimate:
    if replicates is None:
        return Estimate(float(value(theta)))
    found = np.array([value(each) for each in replicates])
    tail = (1 - CONFIDENCE) / 2
    # Ends that are drawn values: between a finite and an infinite one nothing can be interpolated.
    low, high = np.quantile(found, [tail, 1 - tail], method="inverted_cdf")
    return Estimate(float(value(theta)), float(low), float(high))
