"""`dlbench report threads`: the tables, JSON and picture of times by thread count."""

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports import flags
from dlbench.reports.cells import differ
from dlbench.reports.columns import Column, attributes
from dlbench.reports.curve import advice
from dlbench.reports.curve.curve import CurveColumns, cell_columns, coverage, line_columns
from dlbench.reports.curve.fits import POINTS_NEEDED, Estimate, Fit, Fits, said_probability
from dlbench.reports.curve.plot import DOTTED, Line, Panel, Picture, Style, draw, marks_of, named
from dlbench.reports.curve.threads import Curve, Point, Threads, threads
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import BEST, HOLES, Entry, Page, Table, interval, number, times
from dlbench.reports.formats.pictures import GREY
from dlbench.reports.naming import extra_of_place, group_name, row_name
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Contrast

_IRRELEVANT = (flags.FEW_LAUNCHES, flags.PARITY_UNCHECKED)
NOTHING = "Nothing was measured on a CPU in one process yet."
FEW_LAUNCHES_LEGEND = (
    f"Fewer than {ENOUGH_LAUNCHES} launches: their steps do not show how launches differ, so each interval vs best "
    f"is widened by the deviation between launches that other cells of the machine show ({LAUNCH_DEVIATION:.0%} where "
    "they are too few), and such a count has no p-value."
)
WAIT_LEGEND = "Wait policy: settings that decide whether waiting threads spin or sleep; else the libraries' defaults."
LAWS_LEGEND = (
    "Scaling laws, of p threads on p CPUs: Amdahl S(p) = 1/(s + (1-s)/p); USL (Universal Scalability Law) "
    "C(p) = p/(1 + sigma(p-1) + kappa p(p-1)), fastest at p* = sqrt((1-sigma)/kappa); T(1) is fitted too; the smaller "
    "AICc is taken."
)


class Field(NamedTuple):
    """A column of a threads table."""

    head: str
    width: int
    legend: str
    text: Callable[[Point], str]
    always: bool = True
    """Whether it is shown in tables where all of its fields are empty."""
    bound: bool | None = None
    """Whether it belongs only to rows bound to their CPUs, or only to others; None: to all."""


def _form(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"


def _observed(name: str, form: Callable[[Any], str]) -> Callable[[Point], str]:
    def text(point: Point) -> str:
        value = getattr(point.cell.observed, name, None)
        return "" if value is None else form(value)

    return text


def _seconds(point: Point) -> str:
    if (seconds := point.cell.seconds) is None:
        return ""
    marks = "".join(flag.kind.symbol for flag in point.cell.flags if flag.kind not in _IRRELEVANT)
    return number(seconds.median) + interval(seconds) + marks


_FIELDS = (
    Field("s/batch", 10, "", _seconds),
    Field("speed-up", 8, "", lambda point: _form(point.speedup, ".2f")),
    Field("eff.", 4, "eff. speed-up / p", lambda point: _form(point.efficiency, ".2f")),
    Field(
        "serial",
        6,
        "serial Karp and Flatt's serial fraction (constant: a serial part; rising: overhead grows with p)",
        lambda point: _form(point.serial_fraction, ".3f"),
        bound=True,
    ),
    Field(
        "vs best",
        15,
        "vs best T(p)/T(best) with its 95 % interval, {best} the p to use",
        lambda point: times(point.penalty.ratio) if point.penalty else "",
    ),
    Field(
        "wait",
        4,
        "wait threads waiting for a CPU, on average (run-queue delay)",
        _observed("waiting_per_wall", "{:.2f}".format),
        False,
    ),
    Field("busy", 4, "busy threads running, on average", _observed("cpu_per_wall", "{:.2f}".format), False),
    Field("CPU s", 5, "CPU s CPU seconds a step", _observed("cpu_seconds_per_step", number), False),
    Field(
        "switches",
        8,
        "switches involuntary ones a step",
        _observed("involuntary_switches_per_step", "{:.1f}".format),
        False,
        bound=False,
    ),
    Field(
        "quota",
        5,
        "quota share of the time that the CPU quota throttled it",
        _observed("throttled_share", lambda share: f"{share:.0%}" if share > 0.001 else ""),
        False,
    ),
    Field(
        "ceil",
        4,
        "ceil share of the machine's measured ceiling at no more than p threads",
        lambda point: _form(point.cell.ceiling_fraction, ".0%"),
        False,
    ),
)


def threads_page(found: Threads) -> Page:
    """Return a table for each curve with its advice, then the findings."""
    if not found.curves:
        return Page((NOTHING,), (), tuple(found.left_out))
    said = advice.findings(found.curves)
    after = (*_legend(found.curves), *found.left_out, *(["", *said] if said else []))
    return Page(tuple(_capacities(found.curves)), tuple(map(_curve_table, found.curves)), after)


def _capacities(curves: Sequence[Curve]) -> list[str]:
    lines = []
    for host in {curve.host.fingerprint: curve.host for curve in curves}.values():
        counts = {
            "physical cores": host.physical_cores,
            "logical CPUs": host.logical_cpus,
            "effective CPUs": host.effective_cpus,
        }
        shown = (f"{name} {'unknown' if count is None else count}" for name, count in counts.items())
        lines.append(f"{host.name}: {', '.join(shown)}.")
    return [*lines, "Effective CPUs: affinity mask or quota, the smaller."]


def _legend(curves: Sequence[Curve]) -> list[str]:
    points = [point for curve in curves for point in curve.points]
    raised = {flag.kind for point in points for flag in point.cell.flags}
    fields = dict.fromkeys(field for curve in curves for field in _fields(curve))
    columns = "; ".join(field.legend.format(best=BEST) for field in fields if field.legend)
    lines = [f"p threads asked{' (bound: on p CPUs of their own)' if any(c.bound for c in curves) else ''}; {columns}."]
    lines += [FEW_LAUNCHES_LEGEND] if flags.FEW_LAUNCHES in raised else []
    known = any(point.cell.observed and point.cell.observed.wait_policy is not None for point in points)
    lines += [WAIT_LEGEND] if known else []
    fits = [curve.fits for curve in curves if curve.fits]
    lines += [LAWS_LEGEND] if any(each.laws for each in fits) else []
    lines += [f"Intervals of the laws: {way}." for way in dict.fromkeys(e.intervals for e in fits if _has_intervals(e))]
    if untried := [each for each in fits if each.rejected]:
        sizes = ", ".join(map(str, sorted({len(each.threads) for each in untried})))
        lines.append(
            f"No scaling law fitted to {len(untried)} of {len(curves)} rows: {sizes} thread counts to fit, "
            f"{POINTS_NEEDED} needed (counts past the effective CPUs do not count)."
        )
    used = [kind for kind in flags.KINDS if kind in raised and kind not in _IRRELEVANT]
    return [*lines, *(f"{kind.symbol} {kind.legend}" for kind in used)]


def _curve_table(curve: Curve) -> Table:
    fields = _fields(curve)
    notes = [advice.advice(curve) + "."]
    if tested := _tested(curve):
        notes.append(tested)
    if why := advice.mechanism(curve):
        notes.append(f"Why: {why}.")
    if policy := advice.wait_policies(curve.points):
        notes.append(f"Wait policy: {policy}.")
    return Table(
        f"{group_name(curve.group)}: {row_name(curve.row)}{extra_of_place(curve.cell)}, on {curve.host.name}",
        ("p", *(field.head for field in fields)),
        tuple(_point_row(point, curve.best, fields) for point in curve.points),
        (*notes, *fit_lines(curve.fits)),
        (3, *(field.width for field in fields)),
    )


def _fields(curve: Curve) -> list[Field]:
    every = [field for field in _FIELDS if field.bound in (None, curve.bound)]
    return [field for field in every if field.always or any(field.text(point) for point in curve.points)]


def _point_row(point: Point, best: int | None, fields: Sequence[Field]) -> tuple[Entry, ...]:
    count = Entry(str(point.threads), best=point.threads == best)
    if point.cell.status is not Status.OK or point.cell.seconds is None:
        return (count, Entry(HOLES[point.cell.status], hole=True), *[Entry("")] * (len(fields) - 1))
    return (count, *(Entry(field.text(point)) for field in fields))


def _tested(curve: Curve) -> str:
    """Return the adjusted p-values of the penalties, one for each thread count tested."""
    penalties = [point.penalty for point in curve.points if point.penalty and point.penalty.tested]
    if not penalties:
        return ""
    family = penalties[0].family
    over = f"Holm-adjusted over {family} comparisons" if family > 1 else "the only comparison"
    said = ", ".join(f"{each.threads} p {said_probability(each.p_adjusted or 0.0)}" for each in penalties)
    return f"Against {penalties[0].against} ({over}): {said}."


def fit_lines(fits: Fits | None) -> list[str]:
    """Return the fits of a curve in words, one line for each law tried; empty where none was tried."""
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
    if fit.fastest_threads is not None:
        beyond = ", beyond what was measured" if fit.fastest_threads.value > max(fits.threads) else ""
        words.append(f"p* {_estimate(fit.fastest_threads)}{beyond}")
    return ", ".join(words) + ("" if _has_intervals(fits) else f" ({fits.intervals})")


def _has_intervals(fits: Fits) -> bool:
    return fits.chosen is not None and fits.chosen.serial.low is not None


def _estimate(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    low, high = number(estimate.low), number(estimate.high)
    return f"{number(estimate.value)} ({f'{low} up' if math.isinf(estimate.high) else f'{low}-{high}'})"


def _comparison(found: Contrast | None) -> dict[str, Any] | None:
    if found is None:
        return None
    tests = {name: getattr(found, name) for name in ("against", "p_value", "p_adjusted")}
    return {**vars(found.ratio), **tests, "comparisons": found.family or None, "verdict": found.verdict}


def _fits(fits: Fits | None) -> dict[str, Any] | None:
    if fits is None:
        return None
    return {
        "fitted_threads": list(fits.threads),
        "chosen": None if fits.chosen is None else fits.chosen.law,
        "rejected": fits.rejected,
        "intervals": fits.intervals,
        "laws": plain(fits.laws),
    }


def _rejections(curve: Curve) -> str:
    if curve.fits is None or curve.fits.rejected:
        return "" if curve.fits is None else curve.fits.rejected
    return "; ".join(f"{law.law}: {reason}" for law in curve.fits.laws for reason in law.rejected)


_OF_LAW = ("seconds_at_one", "serial", "crosstalk", "fastest_threads")
_LINE: tuple[Column[Curve], ...] = (
    *line_columns(lambda curve: curve.host, lambda curve: curve.cell, "threads"),
    *attributes(lambda curve: curve.host, "physical_cores", "logical_cpus", "effective_cpus"),
    *attributes(lambda curve: curve, "computes"),
    Column("best_threads", None, lambda curve: curve.best),
    Column("default_threads", None, lambda curve: curve.default),
    Column("advice", None, advice.advice),
    Column("mechanism", None, advice.mechanism),
)
_PAST = ("value", "p_adjusted", "verdict")
_EVIDENCE = ("waiting_per_wall", "cpu_per_wall", "cpu_seconds_per_step", "involuntary_switches_per_step")
COLUMNS: CurveColumns[Curve, Point] = CurveColumns(
    (*_LINE, Column("fits", None, lambda curve: _fits(curve.fits), fields=None)),
    (
        *attributes(lambda point: point, "threads"),
        *cell_columns(lambda point: point.cell, "status", "reason", "seconds"),
        Column("used", None, lambda point: point.seconds is not None),
        Column("takes_part", None, lambda point: point.seconds is not None and point.takes_part),
        *attributes(lambda point: point, "speedup", "efficiency", "serial_fraction"),
        *cell_columns(lambda point: point.cell, "ceiling_fraction"),
        Column("penalty", None, lambda point: _comparison(point.penalty), fields=(*VALUE, "p_adjusted", "verdict")),
        Column("past_physical_cores", None, lambda point: _comparison(point.past_cores), fields=_PAST),
        Column("past_effective_cpus", None, lambda point: _comparison(point.past_cpus), fields=_PAST),
        Column(
            "threads_evidence",
            None,
            lambda point: point.cell.observed,
            fields=(*_EVIDENCE, "throttled_share", "wait_policy"),
        ),
        *cell_columns(lambda point: point.cell, "flags"),
    ),
    lambda curve: curve.points,
)
_FOR_CSV: CurveColumns[Curve, Point] = CurveColumns(
    (
        *_LINE,
        Column(
            "law",
            None,
            lambda curve: curve.fits and curve.fits.chosen,
            fields=("law", *(f"{name}.{part}" for name in _OF_LAW for part in VALUE)),
        ),
        Column("laws_rejected", None, _rejections),
    ),
    COLUMNS.point,
    COLUMNS.points,
)


def drawn_curves(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves with times at two thread counts or more: others are no line."""
    return [curve for curve in curves if sum(point.seconds is not None for point in curve.points) > 1]


def threads_to_picture(curves: Sequence[Curve], path: Path) -> list[Path]:
    """Draw the curves, each machine on pages of its own, and return the files; raises ReportError."""
    drawn = drawn_curves(curves)
    machines = dict.fromkeys(curve.host.fingerprint for curve in drawn)
    pages = ([curve for curve in drawn if curve.host.fingerprint == machine] for machine in machines)
    return draw(map(_picture, pages), path)


def _picture(curves: Sequence[Curve]) -> Picture:
    host = curves[0].host
    names = sorted({curve.name for curve in curves})
    panels = [
        _panel([curve for curve in curves if curve.group == group], names)
        for group in dict.fromkeys(curve.group for curve in curves)
    ]
    legend = [
        *named(names),
        *marks_of((line for panel in panels for line in panel.lines), "threads to use"),
        ("T(1)/p of the fastest with one", {"color": GREY, "linestyle": DOTTED}),
    ]
    if host.own_cores is not None:
        legend.append((f"the machine's own cores: {host.own_cores}", {"color": "black", "linewidth": 0.8}))
    shown = [point.seconds for curve in curves for point in curve.points if point.seconds is not None]
    across = f"threads; bars: {coverage(shown)} interval of the median"
    return Picture(f"Time against threads, on {host.name}", panels, legend, across, "seconds per mini-batch", unit="s")


def _panel(curves: Sequence[Curve], names: Sequence[str]) -> Panel:
    lines = []
    for curve in curves:
        timed = [(point.threads, point.seconds) for point in curve.points if point.seconds is not None]
        points = [(count, (seconds.median, seconds.low, seconds.high)) for count, seconds in timed]
        lines.append(Line(points, Style.numbered(names.index(curve.name)), best=curve.best))
    counts = sorted({count for line in lines for count, _ in line.points})
    alone = [value[0] for line in lines for count, value in line.points if count == 1]
    cores = curves[0].host.own_cores
    return Panel(
        group_name(curves[0].group),
        lines,
        counts,
        [(count, min(alone) / count) for count in (1, counts[-1])] if alone else [],
        cores if cores is not None and counts[0] <= cores <= counts[-1] else None,
    )


def _applies(cells: Collection[Cell]) -> bool:
    return differ((each for each in cells if each.on_cpu and each.threads and each.world_size == 1), "threads")


REPORT = Report(
    name="threads",
    summary="How many threads to give each framework, and the cost of more, with the evidence why.",
    examples=(
        "dlbench report threads",
        "dlbench report threads --reference shi2016",
        "dlbench report threads --plot threads.png",
    ),
    analyse=lambda source: threads(source.matrix()),
    page=lambda found, options: threads_page(found),
    data=lambda found: {
        "curves": COLUMNS.data(found.curves),
        "findings": advice.findings(found.curves),
        "notes": list(found.left_out),
    },
    rows=lambda found: _FOR_CSV.rows(found.curves),
    draw=lambda found, path, options: threads_to_picture(found.curves, path),
    drawable=lambda found: bool(drawn_curves(found.curves)),
    suggestion="how many threads to give, and the cost of more",
    applies=_applies,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Threads: how many to use, and the cost of more",
    place=30,
    headline=lambda found: advice.headline(found.curves),
)
