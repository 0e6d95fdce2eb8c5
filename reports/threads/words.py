"""The threads report as tables and lines, for every exporter of tables."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlbench.adapters.protocol import Status
from dlbench.reports.flags import FEW_LAUNCHES, KINDS, PARITY_UNCHECKED
from dlbench.reports.formats.layout import BEST, HOLES, Entry, Page, Table, interval, number, times
from dlbench.reports.naming import extra_of_place, group_name, row_name
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Contrast
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.analysis import Threads
from dlbench.reports.threads.curve import Curve, Point
from dlbench.reports.threads.fits import POINTS_NEEDED, Estimate, Fit, Fits, said_probability
from dlbench.reports.threads.oversubscription import capacities, wait_policies


class Field(NamedTuple):
    """A column of a threads table."""

    head: str
    width: int
    legend: str
    text: Callable[[Point], str]
    least: bool = True
    """Whether it is shown in tables where none of its fields says anything."""
    bound: bool | None = None
    """Whether it is only of rows bound to their CPUs, or only of others; None: of all."""


def _form(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _observed(name: str, form: str) -> Callable[[Point], str]:
    def text(point: Point) -> str:
        seen = point.cell.observed
        return "" if seen is None else _form(getattr(seen, name), form)

    return text


def _seconds(point: Point) -> str:
    seconds = point.cell.seconds
    if seconds is None:
        return ""
    marks = "".join(flag.kind.symbol for flag in point.cell.flags if flag.kind not in _OF_NO_MATTER_TO_THREADS)
    return number(seconds.median) + interval(seconds) + marks


def _cpu_seconds(point: Point) -> str:
    return "" if point.cell.observed is None else number(point.cell.observed.cpu_seconds_per_step)


def _throttled(point: Point) -> str:
    share = point.cell.observed.throttled_share if point.cell.observed else None
    return f"{share:.0%}" if share is not None and share > 0.001 else ""


def _penalty(point: Point) -> str:
    return times(point.penalty.ratio) if point.penalty else ""


_waiting, _running = _observed("waiting_per_wall", ".2f"), _observed("cpu_per_wall", ".2f")
_switches = _observed("involuntary_switches_per_step", ".1f")
_SERIAL = "serial Karp and Flatt's serial fraction (constant: a serial part; rising: overhead grows with p)"
_CEILING = "ceil share of the machine's measured ceiling at no more than p threads"
_FIELDS = (
    Field("s/batch", 10, "", _seconds),
    Field("speed-up", 8, "", lambda point: _form(point.speedup, ".2f")),
    Field("eff.", 4, "eff. speed-up / p", lambda point: _form(point.efficiency, ".2f")),
    Field("serial", 6, _SERIAL, lambda point: _form(point.serial_fraction, ".3f"), bound=True),
    Field("vs best", 15, "vs best T(p)/T(best) with its 95 % interval, {best} the p to use", _penalty),
    Field("wait", 4, "wait threads waiting for a CPU, on average (run-queue delay)", _waiting, False),
    Field("busy", 4, "busy threads running, on average", _running, False),
    Field("CPU s", 5, "CPU s CPU seconds a step", _cpu_seconds, False),
    Field("switches", 8, "switches involuntary ones a step", _switches, False, bound=False),
    Field("quota", 5, "quota share of the time that the CPU quota throttled it", _throttled, False),
    Field("ceil", 4, _CEILING, lambda point: _form(point.cell.ceiling_fraction, ".0%"), False),
)

NOTHING = "Nothing was measured on a CPU in one process yet."
FEW_LAUNCHES_LEGEND = (
    f"Fewer than {ENOUGH_LAUNCHES} launches: their steps say nothing of how launches differ, so each interval vs best "
    f"is widened by an assumed deviation of {LAUNCH_DEVIATION:.0%} between launches, and such a count has no p-value."
)
WAIT_LEGEND = (
    "Wait policy: what was set that decides whether waiting threads spin or sleep; the libraries' defaults where "
    "nothing is said."
)
LAWS_LEGEND = (
    "Scaling laws, of p threads on p CPUs: Amdahl S(p) = 1/(s + (1-s)/p); USL (Universal Scalability Law) "
    "C(p) = p/(1 + sigma(p-1) + kappa p(p-1)), fastest at p* = sqrt((1-sigma)/kappa); T(1) is fitted too; the smaller "
    "AICc is taken."
)
_OF_NO_MATTER_TO_THREADS = (FEW_LAUNCHES, PARITY_UNCHECKED)


def capacity_lines(curves: Sequence[Curve]) -> list[str]:
    """Return a line for each machine with its three capacities, and what they are."""
    hosts = {curve.host.fingerprint: curve.host for curve in curves}
    lines = []
    for host in hosts.values():
        told = (f"{name} {'unknown' if count is None else count}" for name, count in capacities(host))
        lines.append(f"{host.name}: {', '.join(told)}.")
    return [*lines, "Effective CPUs: affinity mask or quota, the smaller."]


def threads_page(found: Threads) -> Page:
    """Return the oversubscription analysis: a table for each curve with its advice, then what follows from all."""
    if not found.curves:
        return Page((NOTHING,), (), tuple(found.left_out))
    said = findings(found.curves)
    after = (*threads_legend(found.curves), *found.left_out, *(["", *said] if said else []))
    return Page(tuple(capacity_lines(found.curves)), tuple(map(_curve_table, found.curves)), after)


def threads_legend(curves: Sequence[Curve]) -> list[str]:
    """Return the lines that explain the columns and marks of the threads tables, and what all of them share."""
    raised = {flag.kind for curve in curves for point in curve.points for flag in point.cell.flags}
    used = [kind for kind in KINDS if kind in raised and kind not in _OF_NO_MATTER_TO_THREADS]
    fields = dict.fromkeys(field for curve in curves for field in _fields(curve))
    columns = "; ".join(field.legend.format(best=BEST) for field in fields if field.legend)
    lines = [f"p threads asked{' (bound: on p CPUs of their own)' if any(c.bound for c in curves) else ''}; {columns}."]
    lines += [FEW_LAUNCHES_LEGEND] if FEW_LAUNCHES in raised else []
    told = [p.cell.observed.wait_policy for c in curves for p in c.points if p.cell.observed is not None]
    lines += [WAIT_LEGEND] if any(policy is not None for policy in told) else []
    lines += _laws_legend(curves)
    return [*lines, *(f"{kind.symbol} {kind.legend}" for kind in used)]


def _laws_legend(curves: Sequence[Curve]) -> list[str]:
    lines = [LAWS_LEGEND] if any(curve.fits and curve.fits.laws for curve in curves) else []
    ways = dict.fromkeys(c.fits.intervals for c in curves if c.fits and c.fits.chosen and _has_intervals(c.fits))
    lines += [f"Intervals of the laws: {way}." for way in ways]
    untried = [curve.fits for curve in curves if curve.fits is not None and curve.fits.rejected]
    if untried:
        sizes = ", ".join(map(str, sorted({len(fits.threads) for fits in untried})))
        lines.append(
            f"No scaling law fitted to {len(untried)} of {len(curves)} rows: {sizes} thread counts to fit, "
            f"{POINTS_NEEDED} needed (counts past the effective CPUs do not count)."
        )
    return lines


def _curve_table(curve: Curve) -> Table:
    fields = _fields(curve)
    notes = [curve.advice + "."]
    if tested := _tested(curve):
        notes.append(tested)
    if curve.mechanism:
        notes.append(f"Why: {curve.mechanism}.")
    if policy := wait_policies(curve.points):
        notes.append(f"Wait policy: {policy}.")
    notes += fit_lines(curve.fits)
    return Table(
        f"{group_name(curve.group)}: {row_name(curve.row)}{extra_of_place(curve.cell)}, on {curve.host.name}",
        ("p", *(field.head for field in fields)),
        tuple(_point_row(point, curve.best, fields) for point in curve.points),
        tuple(notes),
        (3, *(field.width for field in fields)),
    )


def _fields(curve: Curve) -> list[Field]:
    every = [field for field in _FIELDS if field.bound in (None, curve.bound)]
    return [field for field in every if field.least or any(field.text(point) for point in curve.points)]


def _point_row(point: Point, best: int | None, fields: Sequence[Field]) -> tuple[Entry, ...]:
    threads = Entry(str(point.threads), best=point.threads == best)
    if point.cell.status is not Status.OK or point.cell.seconds is None:
        return (threads, Entry(HOLES[point.cell.status], hole=True), *[Entry("")] * (len(fields) - 1))
    return (threads, *(Entry(field.text(point)) for field in fields))


def _tested(curve: Curve) -> str:
    """Return the adjusted p-values of the penalties, one for each thread count tested."""
    found: list[tuple[Contrast, float]] = [
        (point.penalty, point.penalty.p_adjusted)
        for point in curve.points
        if point.penalty is not None and point.penalty.p_adjusted is not None
    ]
    if not found:
        return ""
    family = found[0][0].family
    over = f"Holm-adjusted over {family} comparisons" if family > 1 else "the only comparison"
    said = ", ".join(f"{each.threads} p {said_probability(value)}" for each, value in found)
    return f"Against {found[0][0].against} ({over}): {said}."


def fit_lines(fits: Fits | None) -> list[str]:
    """Return what the fits of a curve say, one line for each law tried; empty where none was tried."""
    if fits is None or not fits.laws:
        return []
    lines = [] if fits.chosen else ["No scaling law describes this curve:"]
    for fit in sorted(fits.laws, key=lambda fit: fit is not fits.chosen):
        name = {"amdahl": "Amdahl", "usl": "USL"}[fit.law]
        if fit is fits.chosen:
            lines.append(f"Scaling law: {name}, {_parameters(fit, fits)}; AICc {fit.aicc:.1f}.")
        elif fit.rejected:
            lines.append(f"{name} rejected: {'; '.join(fit.rejected)}.")
        else:
            lines.append(f"{name} fits less well: AICc {fit.aicc:.1f}.")
    return lines


def _parameters(fit: Fit, fits: Fits) -> str:
    words = [f"{'s' if fit.crosstalk is None else 'sigma'} {_estimate(fit.serial)}"]
    if fit.crosstalk is not None:
        words.append(f"kappa {_estimate(fit.crosstalk)}")
    words.append(f"T(1) {_estimate(fit.seconds_at_one)} s")
    if fit.best_threads is not None:
        beyond = fit.best_threads.value > max(fits.threads)
        words.append(f"p* {_estimate(fit.best_threads)}" + (", beyond what was measured" if beyond else ""))
    return ", ".join(words) + ("" if _has_intervals(fits) else f" ({fits.intervals})")


def _has_intervals(fits: Fits) -> bool:
    return fits.chosen is not None and fits.chosen.serial.low is not None


def _estimate(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    low, high = number(estimate.low), number(estimate.high)
    ends = f"{low} up" if math.isinf(estimate.high) else f"{low}-{high}"
    return f"{number(estimate.value)} ({ends})"
