"""Scaling laws, straight lines and crossings of curves, each with its interval.

Both scaling laws are sums of three parts of a step with weights that are not negative:

    T(p) = parallel * 1/p + serial * 1 + crosstalk * (p - 1)

Amdahl's law (Amdahl 1967) has no crosstalk: S(p) = 1 / (s + (1 - s) / p) with s = serial / T(1).
The Universal Scalability Law (Gunther, Guerrilla Capacity Planning, 2007) is C(p) = p / (1 + sigma
(p - 1) + kappa p (p - 1)) with sigma = serial / T(1) and kappa = crosstalk / T(1). T(1) = parallel
+ serial is fitted like the others: a curve scaled by its first point would carry that point's noise
everywhere.

The fit is least squares of log T, so that each point counts by its relative error, weighted by its
launches. Of the laws not rejected, the one with the smaller AICc is chosen (Hurvich and Tsai 1989).
Its intervals are parametric bootstrap percentiles (Efron and Tibshirani 1993): launches are drawn
about the fitted curve with the deviation of all launches together or, if Bartlett's test separates
them, of each point. The observed variance is drawn too (chi-squared), as in Student's t. Resampling
three launches would show only two thirds of their variance. Simulated coverage of nominal 95 %: all
points alike 93-98 %; one of six points four times as noisy 94-97 % with five launches, 89 % with
three.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from dlbench.reports.results.naming import counted, threads_name
from dlbench.reports.results.number_text import number
from dlbench.reports.results.statistics import (
    CONFIDENCE,
    ENOUGH_LAUNCHES,
    NO_INTERVAL,
    PUBLISHED,
    Estimate,
    Summary,
    variance_of_launches,
)

POINTS_NEEDED = 6
"""Fewer thread counts hardly test a law with three parameters."""
MISFIT_SIGNIFICANCE = 0.01
"""A law is rejected if launches that follow it would deviate this much with less than this
probability ..."""
MISFIT_TOLERATED = 0.03
"""... and it misses a point by more than this share: precise launches would disprove any law."""
MISFIT_UNTESTED = 0.10
"""Without enough launches to measure noise, a law is rejected where it misses a point by more than
this share."""
REPLICATES = 999
ROUNDS = 60
"""Of a fit that may start far off; if a law holds, ten are enough."""
DRAWS = 1000
SEED = 20160825
"""Any fixed number: the same records give the same intervals."""
CROSSING_SEED = 20170413
ALIKE_SIGNIFICANCE = 0.2
"""The launches of all points are assumed to deviate alike unless Bartlett's test rejects that at
this level."""
LEAST_ERROR = 1e-6
"""Smallest relative error of any time."""
BOOTSTRAP_METHOD = f"{CONFIDENCE:.0%} quantiles of fits to drawn times"
STUDENT_METHOD = f"{CONFIDENCE:.0%} Student t of weighted least squares"
_TAIL = (1 - CONFIDENCE) / 2

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Fit(NamedTuple):
    """One law fitted to one curve."""

    law: str
    """"amdahl" or "usl"."""
    seconds_at_one: Estimate
    """T(1), fitted."""
    serial: Estimate
    """Amdahl's s, the Universal Scalability Law's sigma; 0 to 1."""
    crosstalk: Estimate | None
    """Kappa; None for Amdahl's law."""
    fastest_threads: Estimate | None
    """p* = sqrt((1 - sigma) / kappa), where T is least; None where more threads always help."""
    aicc: float
    largest_miss: float
    """The largest |T(p) / fitted T(p) - 1| of any point, as a share."""
    rejected: tuple[str, ...]
    """Why it does not describe the curve, a sentence each; empty where it may."""


class Fits(NamedTuple):
    """All laws tried on a curve."""

    fitted_threads: tuple[int, ...]
    chosen: str | None = None
    """The law of least AICc among those not rejected."""
    rejected: str = ""
    """Why no law was tried; empty where they were."""
    intervals: str = "no intervals"
    """How the intervals were made, or why there are none."""
    laws: tuple[Fit, ...] = ()

    @property
    def law(self) -> Fit | None:
        """The fit of the chosen law."""
        return next((fit for fit in self.laws if fit.law == self.chosen), None)

    @property
    def has_intervals(self) -> bool:
        """Whether the chosen law's parameters have intervals."""
        return self.law is not None and self.law.serial.low is not None

    @property
    def rejections(self) -> str:
        """Why laws do not describe the curve, or were not tried."""
        if self.rejected:
            return self.rejected
        reasons = []
        for fit in self.laws:
            reasons += [f"{fit.law}: {reason}" for reason in fit.rejected]
        return "; ".join(reasons)


def fit_scaling(times: Mapping[int, Summary]) -> Fits:
    """Fit both laws to seconds per step by thread count.

    The seconds must be those of p threads on p CPUs.
    """
    counts = tuple(sorted(times))
    if len(counts) < POINTS_NEEDED:
        reason = f"{counted(len(counts), 'thread count')} to fit, {POINTS_NEEDED} needed"
        return Fits(counts, rejected=reason)
    data = _observe({count: times[count] for count in counts})
    laws = (_fit("amdahl", data), _fit("usl", data))
    accepted = [fit for fit in laws if not fit.rejected]
    chosen = None
    if accepted:
        chosen = min(accepted, key=lambda fit: fit.aicc).law
    return Fits(counts, chosen, intervals=_describe_intervals(times), laws=laws)


def karp_flatt(speedup: float, threads: int) -> float | None:
    """Return the serial fraction that a speed-up at p threads shows, or None at one thread.

    e = (1 / S - 1 / p) / (1 - 1 / p) (Karp and Flatt, Measuring parallel processor performance,
    1990). Constant over p: a serial part; rising: overhead that grows with the threads; negative:
    better than linear.
    """
    if threads < 2:
        return None
    return (1 / speedup - 1 / threads) / (1 - 1 / threads)


def said_probability(probability: float) -> str:
    """Return a p-value with its sign of relation: "= 0.012", "< 0.001"."""
    if probability < 0.001:
        return "< 0.001"
    return f"= {probability:.2g}"


def deviate_alike(launches: Sequence[Array]) -> bool:
    """Return whether launches of several points (logarithms) may deviate alike.

    Bartlett's test (1937) decides.
    """
    from scipy.stats import bartlett

    variances = [float(logarithms.var(ddof=1)) for logarithms in launches]
    if min(variances) <= 0:
        return max(variances) <= 0
    # SciPy's p-value of equal variances may be NaN.
    return not float(bartlett(*launches).pvalue) < ALIKE_SIGNIFICANCE


class _Observations(NamedTuple):
    """One mean of log seconds a point, and the launches behind it."""

    threads: Array
    logs: Array
    weights: Array
    """Launches behind each mean."""
    launches: tuple[Array, ...]
    """Logarithms of each point's launch medians; empty where a point has too few to separate noise
    from misfit."""
    variances: Array
    """Of the launches at each point; zeros where there are too few."""
    total: int
    """All launches."""
    spread: float
    """Sum of squares of the launches about their point's mean, ..."""
    freedom: int
    """... and its degrees of freedom."""


def _observe(times: Mapping[int, Summary]) -> _Observations:
    enough = all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values())
    launches: list[Array] = []
    means = []
    counts = []
    variances_of_launches = []
    for summary in times.values():
        if enough:
            logarithms = np.log(summary.launch_medians)
            variance = float(np.var(logarithms, ddof=1))
        else:
            # A single value has no variance.
            logarithms = np.log([summary.median])
            variance = 0.0
        launches.append(logarithms)
        means.append(float(np.mean(logarithms)))
        counts.append(float(len(logarithms)))
        variances_of_launches.append(variance)
    weights = np.array(counts)
    variances = np.array(variances_of_launches)
    total = round(float(weights.sum()))
    return _Observations(
        threads=np.array(list(times), dtype=float),
        logs=np.array(means),
        weights=weights,
        launches=tuple(launches) if enough else (),
        variances=variances,
        total=total,
        spread=float(np.sum(variances * (weights - 1))),
        freedom=total - len(means),
    )


def _fit(law: str, data: _Observations) -> Fit:
    usl = law == "usl"
    columns = [1 / data.threads, np.ones_like(data.threads)]
    if usl:
        columns.append(data.threads - 1)
    parts = np.column_stack(columns)
    theta = _solve(parts, data)
    misses = data.logs - _log(parts @ theta)
    misfit = float(np.sum(data.weights * misses**2))
    worst = int(np.argmax(np.abs(misses)))
    miss = math.exp(float(misses[worst])) - 1
    probability = _misfit_probability(misfit, len(theta), data)
    lacks = _lack_of_fit(miss, int(data.threads[worst]), probability, data)
    rejected = (*_parts_at_bound(theta), *lacks)
    replicates: Array | None = None
    if data.launches and not rejected:
        least_variance = 0.0
        if probability is not None and probability < MISFIT_SIGNIFICANCE:
            # The misfit is tolerated but exceeds the launches' own deviation: the intervals
            # include it.
            least_variance = misfit / (len(data.logs) - len(theta))
        replicates = _replicate(parts, theta, least_variance, data)
    crosstalk = fastest = None
    if usl:
        crosstalk = _estimate(theta, replicates, _crosstalk_share)
        if theta[2] > 0:
            fastest = _estimate(theta, replicates, _fastest_threads)
    return Fit(
        law,
        _estimate(theta, replicates, _seconds_at_one),
        _estimate(theta, replicates, _serial_share),
        crosstalk,
        fastest,
        _aicc(misfit + data.spread, data.total, len(theta)),
        abs(miss),
        rejected,
    )


def _solve(parts: Array, data: _Observations) -> Array:
    """Return the weights of the parts, none negative, that minimise the squares of log T.

    Times far from any law may have several valleys: it starts at equal parts and at the times
    themselves.
    """
    root = np.sqrt(data.weights)

    def squares(theta: Array) -> float:
        return float(np.sum((root * (data.logs - _log(parts @ theta))) ** 2))

    equal_parts = parts.sum(axis=1) * math.exp(float(data.logs.mean()))
    times = np.exp(data.logs)
    ends = [_descend(parts, data.logs, root, start, ROUNDS) for start in (equal_parts, times)]
    theta = min(ends, key=squares)
    # A part without a visible share of any step is absent.
    shares = parts * theta / (parts @ theta)[:, None]
    return np.where(shares.max(axis=0) < LEAST_ERROR, 0.0, theta)


def _descend(parts: Array, logs: Array, root: Array, curve: Array, rounds: int) -> Array:
    """Return the weights after this many Gauss-Newton steps from this curve, none negative.

    ``root`` holds the roots of the points' weights.
    """
    from scipy.optimize import nnls

    for _ in range(rounds):
        theta: Array = nnls(parts * (root / curve)[:, None], (1 + logs - np.log(curve)) * root)[0]
        curve = np.maximum(parts @ theta, LEAST_ERROR * curve)
    return theta


def _replicate(parts: Array, theta: Array, least_variance: float, data: _Observations) -> Array:
    """Return the weights of the parts fitted to launches simulated from this fit.

    Each replicate is a row.
    """
    random = np.random.default_rng(SEED)
    curve = parts @ theta
    shape = REPLICATES, len(curve)
    if deviate_alike(data.launches):
        drawn = data.spread / random.chisquare(data.freedom, (REPLICATES, 1))
    else:
        own = data.weights - 1
        drawn = data.variances * own / random.chisquare(own, shape)
    deviations = np.sqrt(np.maximum(drawn, least_variance) / data.weights)
    noise = random.standard_normal(shape) * deviations
    root = np.sqrt(data.weights)
    # From a start this close it converges to 1e-6 in five rounds.
    replicates = [_descend(parts, np.log(curve) + errors, root, curve, 5) for errors in noise]
    return np.array(replicates)


def _log(curve: Array) -> Array:
    return np.asarray(np.log(np.maximum(curve, np.finfo(float).tiny)))


def _aicc(squares: float, observations: int, parameters: int) -> float:
    """Return AICc of a fit by least squares.

    The error's variance counts as a parameter (Burnham and Anderson 2002).
    """
    k = parameters + 1
    squares = max(squares, observations * LEAST_ERROR**2)
    if observations <= k + 1:
        return math.inf
    aic = observations * math.log(squares / observations) + 2 * k
    return aic + 2 * k * (k + 1) / (observations - k - 1)


def _misfit_probability(misfit: float, parameters: int, data: _Observations) -> float | None:
    """Return how probable such a misfit is if the law holds, or None without enough launches.

    The classical test of lack of fit against pure error (Draper and Smith, Applied Regression
    Analysis, section 2.1): F of the points' means about the fit over the launches about their
    means.
    """
    from scipy.stats import f

    if not data.launches:
        return None
    spare = len(data.logs) - parameters
    if data.spread <= 0:
        visible = misfit > data.total * LEAST_ERROR**2
        return 0.0 if visible else 1.0
    return float(f.sf(misfit / spare / (data.spread / data.freedom), spare, data.freedom))


def _share_of_first(theta: Array, part: int) -> float:
    """Return a part's weight over T(1), which data without p = 1 may leave at zero."""
    first = theta[0] + theta[1]
    return float(theta[part] / first) if first > 0 else math.inf


def _seconds_at_one(theta: Array) -> float:
    return float(theta[0] + theta[1])


def _serial_share(theta: Array) -> float:
    return _share_of_first(theta, 1)


def _crosstalk_share(theta: Array) -> float:
    return _share_of_first(theta, 2)


def _fastest_threads(theta: Array) -> float:
    return math.sqrt(theta[0] / theta[2]) if theta[2] > 0 else math.inf


def _parts_at_bound(theta: Array) -> list[str]:
    """Return a sentence for each part of a law that is absent."""
    serial = "sigma" if len(theta) == 3 else "the serial fraction"
    sentences = [
        f"{serial} is at its bound, 1: nothing scales",
        f"{serial} is at its bound, 0: the speed-up is linear or better",
        "kappa is at its bound, 0: nothing grows with the threads, which is Amdahl's law",
    ]
    return [sentence for sentence, weight in zip(sentences, theta, strict=False) if weight == 0]


def _lack_of_fit(
    miss: float, threads: int, probability: float | None, data: _Observations
) -> list[str]:
    """Return a sentence if the law misses a point by more than noise explains."""
    if miss >= 1:
        share = f"{miss + 1:.1f}x"
    elif miss > 0:
        share = f"{miss:.0%} more than"
    else:
        share = f"{-miss:.0%} less than"
    where = f"at {threads_name(threads)} a step takes {share} the fitted time"
    if probability is None:
        if abs(miss) <= MISFIT_UNTESTED:
            return []
        doubt = "too few launches to say whether noise explains that"
        return [f"{where} (over {MISFIT_UNTESTED:.0%}; {doubt})"]
    if probability >= MISFIT_SIGNIFICANCE or abs(miss) <= MISFIT_TOLERATED:
        return []
    deviation = math.sqrt(data.spread / data.freedom)
    chance = said_probability(probability)
    return [f"{where}, which launches that deviate by {deviation:.1%} do not explain (p {chance})"]


def _estimate(theta: Array, replicates: Array | None, value: Callable[[Array], float]) -> Estimate:
    if replicates is None:
        return Estimate(value(theta), None, None, NO_INTERVAL)
    values = np.array([value(replicate) for replicate in replicates])
    # Ends that are drawn values: between a finite and an infinite one nothing can be interpolated.
    low, high = np.quantile(values, [_TAIL, 1 - _TAIL], method="inverted_cdf")
    return Estimate(value(theta), float(low), float(high), BOOTSTRAP_METHOD)


def _describe_intervals(times: Mapping[int, Summary]) -> str:
    few = [str(count) for count, summary in times.items() if summary.launches < ENOUGH_LAUNCHES]
    if not few:
        return (
            f"{CONFIDENCE:.0%} percentiles of {REPLICATES} parametric bootstrap replicates "
            "(launches drawn about the fit with their common deviation or, where deviations "
            "differ, that of each thread count)"
        )
    if all(summary.low is None for summary in times.values()):
        return "no intervals: single values without any spread"
    return f"no intervals: fewer than {ENOUGH_LAUNCHES} launches at {', '.join(few)}"


class StraightLine(NamedTuple):
    """A straight line T = fixed + per_step * x through times."""

    steps: tuple[int, ...]
    """The x fitted."""
    fixed: Estimate
    per_step: Estimate
    largest_residual: float | None
    """The largest |T / fitted T - 1| of any x; None with two, which a line always meets."""


def fit_line(times: Mapping[int, Summary]) -> StraightLine:
    """Return the straight line T = fixed + per_step * x through these seconds.

    Least squares are weighted by 1 / T^2, so that each launch counts by its relative error. The
    interval is the wider of two Student intervals: over the launches about the line, and over the
    points about it (which includes how far the curve deviates from a line). Two points with one
    launch each give no interval.
    """
    enough = all(summary.launches >= ENOUGH_LAUNCHES for summary in times.values())
    x_of_launches = []
    launches: list[float] = []
    medians = []
    for x, summary in times.items():
        launches_of_x = summary.launch_medians if enough else (summary.median,)
        launches += launches_of_x
        x_of_launches += [x] * len(launches_of_x)
        medians += [summary.median] * len(launches_of_x)
    across = np.array(x_of_launches, dtype=float)
    seconds = np.array(launches)
    # Weighting a launch by its own time would pull the line towards the fast ones.
    middle = np.array(medians)
    columns = np.column_stack([1 / middle, across / middle])
    theta = np.linalg.lstsq(columns, seconds / middle, rcond=None)[0]
    misses = seconds / middle - columns @ theta
    deviation = _line_deviation(misses, [misses[across == x] for x in times])
    fixed, slope = float(theta[0]), float(theta[1])
    if deviation is None:
        method = "no interval: too few points"
        estimates = [Estimate(value, None, None, method) for value in (fixed, slope)]
    else:
        estimates = []
        halves = deviation * np.sqrt(np.diag(np.linalg.inv(columns.T @ columns)))
        for value, half in zip((fixed, slope), halves, strict=True):
            low, high = float(value - half), float(value + half)
            estimates.append(Estimate(value, low, high, STUDENT_METHOD))
    largest_residual = None
    if len(times) > 2:
        residuals = [abs(summary.median / (fixed + slope * x) - 1) for x, summary in times.items()]
        largest_residual = max(residuals)
    return StraightLine(tuple(times), estimates[0], estimates[1], largest_residual)


def _line_deviation(misses: Array, misses_by_point: Sequence[Array]) -> float | None:
    """Return the wider deviation, by Student's t: of launches or of points about the line.

    Return None where too few of both are left.
    """
    squares_of_points = []
    for misses_of_point in misses_by_point:
        squares_of_points.append(len(misses_of_point) * float(misses_of_point.mean()) ** 2)
    sums = [
        (float(np.sum(misses**2)), len(misses) - 2),
        (math.fsum(squares_of_points), len(misses_by_point) - 2),
    ]
    deviations = []
    for squares, freedom in sums:
        if freedom > 0:
            student = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
            deviations.append(student * math.sqrt(squares / freedom))
    return max(deviations, default=None)


class Crossing(NamedTuple):
    """The place from which the second of two curves is faster.

    It is 0 below the smallest x, and infinite above the largest.
    """

    units: float
    low: float | None
    """None where the spread is unknown."""
    high: float | None
    smallest: int
    largest: int
    clear: bool = True
    """Whether the times differ clearly at any x: else there may be no crossing at all, or any."""

    @property
    def words(self) -> str:
        """Its place in words: "96 (60 to 140)", "below 10", "above 500", "none"."""
        if not self.clear:
            return "none"
        if self.low is None or self.high is None or self.low == self.high:
            return self._place_name(self.units)
        ends = f"{self._place_name(self.low)} to {self._place_name(self.high)}"
        return f"{self._place_name(self.units)} ({ends})"

    def _place_name(self, units: float) -> str:
        if units == 0:
            return f"below {self.smallest}"
        if math.isinf(units):
            return f"above {self.largest}"
        return number(units)

    def data(self, axis: str) -> dict[str, Any]:
        """Return it for JSON, its place under the name of the axis."""
        place: float | None = None
        if self.units == 0:
            where = "below"
        elif math.isinf(self.units):
            where = "above"
        else:
            where = "between"
            place = self.units
        interval = None
        if self.low is not None and self.high is not None:
            interval = [self.low, self.high]
        return {
            "where": where,
            axis: place,
            "interval": interval,
            "clear": self.clear,
            "smallest": self.smallest,
            "largest": self.largest,
        }


def crossing(first: Mapping[int, Summary], second: Mapping[int, Summary]) -> Crossing | None:
    """Return the place from which the second is faster, or None with fewer than two points.

    The crossing is interpolated in logarithms between the two points around it. The last of several
    counts: beyond it the second is faster everywhere. Its interval comes from `DRAWS` drawn sets of
    launch means: Student's t with enough launches, else a normal deviation within the launch plus
    the assumed one between launches.
    """
    units = sorted(first.keys() & second.keys())
    if len(units) < 2:
        return None
    at = np.log(np.array(units, dtype=float))
    slow = [first[count] for count in units]
    fast = [second[count] for count in units]
    slow_logs = _log_medians(slow)
    fast_logs = _log_medians(fast)
    (place,) = _last_change(at, (slow_logs - fast_logs)[None, :])
    if any(summary.method == PUBLISHED for summary in (*slow, *fast)):
        return Crossing(float(place), None, None, units[0], units[-1])
    random = np.random.default_rng(CROSSING_SEED)
    slow_drawn = slow_logs + _deviations(slow, random)
    fast_drawn = fast_logs + _deviations(fast, random)
    gains = slow_drawn - fast_drawn
    # Ends that are drawn values: between a number and one beyond all points nothing can be
    # interpolated.
    low, high = np.quantile(_last_change(at, gains), [_TAIL, 1 - _TAIL], method="inverted_cdf")
    faster = (gains > 0).mean(axis=0)
    clear = bool(np.any(np.minimum(faster, 1 - faster) <= _TAIL / len(units)))
    return Crossing(float(place), float(low), float(high), units[0], units[-1], clear)


def _log_medians(side: Sequence[Summary]) -> Array:
    return np.array([math.log(summary.median) for summary in side])


def _deviations(side: Sequence[Summary], random: np.random.Generator) -> Array:
    """Return by how much the mean logarithm of each cell's launches may deviate.

    Each draw is a row.
    """
    columns = []
    for summary in side:
        deviation = math.sqrt(variance_of_launches(summary) / summary.launches)
        if summary.covers_launches:
            drawn = random.standard_t(summary.launch_freedom, DRAWS)
        else:
            drawn = random.standard_normal(DRAWS)
        columns.append(deviation * drawn)
    return np.column_stack(columns)


def _last_change(at: Array, gains: Array) -> Array:
    """Return for each row of log (first / second) the x from which on all of them are above 0."""
    count = gains.shape[1]
    behind = gains <= 0
    last = np.where(behind.any(axis=1), count - 1 - np.argmax(behind[:, ::-1], axis=1), -1)
    inner = np.clip(last, 0, count - 2)
    rows = np.arange(len(gains))
    before = gains[rows, inner]
    after = gains[rows, inner + 1]
    share = np.clip(-before / np.where(after > before, after - before, 1.0), 0.0, 1.0)
    between = np.exp(at[inner] + share * (at[inner + 1] - at[inner]))
    change: Array = np.where(last < 0, 0.0, np.where(last == count - 1, np.inf, between))
    return change
