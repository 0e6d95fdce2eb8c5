"""`dlbench report threads`: the thread count to use, the cost of others, and the evidence.

For every row of a matrix on a CPU: T(p) with its interval, speed-up T(1) / T(p), efficiency, Karp
and Flatt's serial fraction, the best p, and the penalty T(p) / T(best) of every other. Rows bound
to p CPUs (or, where a row was not measured so, its points up to the effective CPUs) get scaling
laws; the others get comparisons, adjusted for their number over the whole report. The comparisons
are fixed before the times are seen, so their number is known. For rows that are not bound they are:

- T(p) / T(fastest) at the machine's capacities (physical cores, logical CPUs), at twice those, at
  `MANY` threads, and at every measured p past the physical cores;
- past the physical cores, and past the effective CPUs: T(p) / the fastest within them.

The best p is the smallest whose time is within 2 % of the fastest (`statistics.WORSE`) and not
clearly longer: fewer threads for the same time leave CPUs to other programs. Where noise leaves two
counts open the faster estimate is the best, and the advice says that it is open. A p above the
effective CPUs is best only if it is clearly faster than every p up to them. A p whose cell failed
parity, or whose framework used more threads than asked, takes no part; nor does one disturbed by
other programs, unless every count up to the effective CPUs was disturbed: past them a launch's own
waiting hides the disturbance, which must not give such a count an advantage.

A CPU quota of the cells counts like CPUs: under a quota of 1.5 a row has two effective CPUs.

Cells of several workers are left out: their threads also wait for the exchange of gradients, which
no law of threads describes; `scaling` reports on them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import BOUND, Cell, Status
from dlbench.reports.columns import Column, attributes, table
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    CurvePoint,
    Curves,
    adjust_together,
    along,
    cell_columns,
    computes_nothing,
    curve_columns,
    curve_objects,
    curve_rows,
    estimate_fields,
    filled,
    finding_column,
    finding_columns,
    points_of,
    usable,
)
from dlbench.reports.curve.fits import (
    POINTS_NEEDED,
    Fit,
    Fits,
    fit_scaling,
    karp_flatt,
    said_probability,
)
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.formats.layout import BEST, WIDENED, Entry, Page, Table, why_hole
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report, ReportOptions
from dlbench.reports.results import flag_kinds
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.disturbance import THROTTLED_SHARE
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import differ, grouped, work_of
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import (
    counted,
    extra_of_place,
    row_name,
    threads_name,
    work_name,
)
from dlbench.reports.results.networks import FIRST
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.statistics import (
    ENOUGH_LAUNCHES,
    MOST_LAUNCHES,
    SIGNIFICANCE,
    WORSE,
    Contrast,
    Estimate,
    RatioVerdict,
    Summary,
    contrast,
    launches_to_decide,
)
from dlbench.reports.results.thread_evidence import Observed

MANY = 32
"""The largest thread count of the 2016 paper's Table 4."""
NOTHING = "Nothing was measured on a CPU in one process yet."
PAST_CORES, PAST_CPUS = "past_physical_cores", "past_effective_cpus"
CountPair = tuple[int, int]
Compare = Callable[[int, int], Contrast]


class RowFindings(NamedTuple):
    """The findings about a row."""

    default_threads: int | None
    """Of the framework; None where it is not known."""
    best_threads: int | None = None
    fits: Fits | None = None


class ThreadFindings(NamedTuple):
    """The findings about a thread count. All are None for a missing cell."""

    speedup: float | None = None
    efficiency: float | None = None
    serial_fraction: float | None = None
    penalty: Contrast | None = None
    """Against the best count."""
    past_physical_cores: Contrast | None = None
    """Against the fastest count within them."""
    past_effective_cpus: Contrast | None = None


ThreadPoint = CurvePoint[int, ThreadFindings]
ThreadCurve = Curve[int, ThreadFindings, RowFindings]
ThreadCurves = Curves[int, ThreadFindings, RowFindings, None]


def threads(matrix: Matrix) -> ThreadCurves:
    """Return the curve of every row with a CPU cell, machine by machine in the matrix's order."""

    def machine_order(cell: CellResult) -> int:
        return matrix.machines.index(cell.column.machine)

    cells_on_cpu = []
    for place, cell in matrix.cells.items():
        if place.on_cpu and place.world_size == 1:
            cells_on_cpu.append(cell)
    cells_on_cpu.sort(key=machine_order)
    rows = []
    for place, cells in along(cells_on_cpu, "threads").items():
        if any(cell.column.threads for cell in cells):
            host = matrix.hosts[place.machine].under(place.cell.cpu_quota)
            rows.append(_row(host, place.cell, cells))
    compared = _compare_rows(rows)
    measured_bound = {_unbound(row) for row in rows if bound(row) and row.timed}
    curves = []
    for row, contrasts in zip(rows, compared, strict=True):
        fitted = bound(row) or _unbound(row) not in measured_bound
        curves.append(_curve(row, contrasts, fitted))
    return Curves(tuple(curves), (*_describe_omitted(matrix), *matrix.notes), None)


def _compare_rows(rows: Sequence[ThreadCurve]) -> list[dict[CountPair, Contrast]]:
    """Return the comparisons of each row, adjusted for their number.

    Comparisons of frameworks that compute nothing are a family of their own: made-up times must not
    cost real ones their significance.
    """
    compared: list[dict[CountPair, Contrast]] = [{} for _ in rows]
    for computing in (True, False):
        places = []
        comparisons = []
        for place, row in enumerate(rows):
            if computes(row) is computing:
                places.append(place)
                comparisons.append(_comparisons(row))
        for place, contrasts in zip(places, adjust_together(comparisons), strict=True):
            compared[place] = contrasts
    return compared


def bound(curve: ThreadCurve) -> bool:
    """Return whether p threads had p CPUs to themselves, rather than all there are."""
    return curve.cell.affinity == BOUND


def computes(curve: ThreadCurve) -> bool:
    """Return whether anything was computed.

    A framework that only waits scales as its author chose.
    """
    return not any(computes_nothing(point.cell) for point in curve.points)


def curve_name(curve: ThreadCurve) -> str:
    """Return the row in words."""
    cell = curve.cell
    if cell.mode == "2016":
        cell = cell._replace(mode="")
    return row_name(cell)


def _default(cells: Sequence[CellResult]) -> int | None:
    """Return a row's default thread count.

    It is that of the first cell without a set count, else the last one reported without a quota.
    """
    reported = None
    for cell in cells:
        if cell.observed and not cell.column.threads and cell.observed.taken_threads is not None:
            return cell.observed.taken_threads
        if cell.default_threads is not None and not cell.cell.cpu_quota:
            reported = cell.default_threads
    return reported


def _unbound(curve: ThreadCurve) -> tuple[str, Cell]:
    return curve.host.fingerprint, axes.without(curve.cell, "affinity")


def _describe_omitted(matrix: Matrix) -> Iterator[str]:
    """Yield a sentence about the CPU cells without a curve."""
    shown = set()
    several_workers = 0
    without_count = []
    for place in matrix.cells:
        if not place.on_cpu:
            continue
        if place.threads:
            shown.add(axes.without(place.cell, "threads"))
        if place.world_size > 1:
            several_workers += 1
        elif not place.threads:
            without_count.append(axes.without(place.cell, "threads"))
    if several_workers:
        yield (
            f"Not shown: {counted(several_workers, 'cell')} of several workers, which threads "
            "alone do not explain; `dlbench report scaling` shows them."
        )
    unset = sum(cell not in shown for cell in without_count)
    if unset:
        yield f"Not shown: {counted(unset, 'cell')} for which no thread count was set."


def _row(host: Host, shared: Cell, cells: Sequence[CellResult]) -> ThreadCurve:
    """Return the curve of a row.

    Undisturbed points take part, or all if every count that can show it was disturbed.
    """
    by_count = {cell.column.threads: cell for cell in cells if cell.column.threads}
    by_count = dict(sorted(by_count.items()))
    timed = {}
    disturbed = set()
    for count, cell in by_count.items():
        seconds = usable(cell)
        if seconds is not None:
            timed[count] = seconds
        if cell.has(flag_kinds.CONTENDED):
            disturbed.add(count)
    limit = host.effective_cpus
    showing = [count for count in timed if limit is None or count <= limit] or list(timed)
    calm = set(timed)
    if not disturbed.issuperset(showing):
        calm -= disturbed
    points = []
    for count, cell in by_count.items():
        takes_part = count in calm
        points.append(CurvePoint(count, cell, timed.get(count), ThreadFindings(), takes_part))
    return Curve(host, shared, tuple(points), RowFindings(_default(cells)))


def _calm(curve: ThreadCurve) -> dict[int, Summary]:
    """Return the times that take part."""
    times = curve.times
    return {point.at: times[point.at] for point in curve.taking_part}


def _comparisons(row: ThreadCurve) -> dict[CountPair, Contrast]:
    """Return the comparisons to test, one for each pair of counts."""
    calm = _calm(row)
    if bound(row) or not calm:
        return {}
    fastest = _fastest(calm)
    cores, logical = row.host.physical_cores, row.host.logical_cpus
    pairs = set()
    for limit in (cores, row.host.effective_cpus):
        if limit is None:
            continue
        within = _fastest(calm, limit)
        if within:
            pairs |= {(count, within) for count in calm if count > limit}
    wanted = {MANY}
    for capacity in (cores, logical):
        if capacity is not None:
            wanted |= {capacity, 2 * capacity}
    if cores is not None:
        wanted |= {count for count in calm if count > cores}
    for count in calm:
        if count in wanted and count != fastest and (fastest, count) not in pairs:
            pairs.add((count, fastest))
    comparisons = {}
    for count, against in sorted(pairs):
        comparisons[count, against] = contrast(count, against, calm[count], calm[against])
    return comparisons


def _fastest(times: Mapping[int, Summary], limit: int | None = None) -> int:
    """Return the fastest count up to a limit, or 0 if there is none."""

    def time_and_count(count: int) -> tuple[float, int]:
        return times[count].median, count

    within = [count for count in times if limit is None or count <= limit]
    return min(within, key=time_and_count, default=0)


def _best(times: Mapping[int, Summary], limit: int | None, compare: Compare) -> int | None:
    """Return the smallest count that is about as fast as the fastest, or None if no count is.

    A count above ``limit`` is returned only if it is clearly faster than the fastest count up to
    the limit.
    """
    fastest = _fastest(times)
    within = _fastest(times, limit)

    def shares_cpus(count: int) -> bool:
        return limit is not None and count > limit and within > 0

    if shares_cpus(fastest) and compare(fastest, within).verdict is not RatioVerdict.FASTER:
        fastest = within

    def will_do(count: int) -> bool:
        if count == fastest:
            return True
        if shares_cpus(count) and compare(count, within).verdict is not RatioVerdict.FASTER:
            return False
        compared = compare(count, fastest)
        return compared.verdict is not RatioVerdict.SLOWER and compared.value <= WORSE

    return min(filter(will_do, times), default=None)


def _curve(row: ThreadCurve, compared: Mapping[CountPair, Contrast], fitted: bool) -> ThreadCurve:
    """Return a row with the findings about its points and the whole."""
    timed = row.times
    calm = _calm(row)
    limit = None if bound(row) else row.host.effective_cpus

    def compare(count: int, against: int) -> Contrast:
        """Compare two counts by the whole report's tests, else by the ratio's interval."""
        if (count, against) in compared:
            return compared[count, against]
        if (against, count) in compared:
            return compared[against, count].swapped
        return contrast(count, against, timed[count], calm[against], test=False)

    best = _best(calm, limit, compare)
    if len(calm) == 1 and (_unused(row) or len(timed) > 1):
        best = None  # nothing to compare it with: the one that is left over need not be the best
    points = []
    for point in row.points:
        if point.seconds is not None:
            point = point._replace(findings=_find(point.at, row, best, compare))
        points.append(point)
    fits = None
    if fitted and timed:
        within = {count: time for count, time in calm.items() if limit is None or count <= limit}
        fits = fit_scaling(within)
    findings = row.findings._replace(best_threads=best, fits=fits)
    return row._replace(points=tuple(points), findings=findings)


def _find(count: int, row: ThreadCurve, best: int | None, compare: Compare) -> ThreadFindings:
    """Return the findings about a thread count with a time."""
    host, times = row.host, row.times
    speedup = efficiency = serial_fraction = None
    if 1 in times:
        speedup = times[1].median / times[count].median
        efficiency = speedup / count
        if host.effective_cpus is None or count <= host.effective_cpus:
            serial_fraction = karp_flatt(speedup, count)
    if best is None or count == best:
        penalty = Contrast(count, count, Estimate(1.0, None, None, "itself"))
    else:
        penalty = compare(count, best)

    def past(limit: int | None) -> Contrast | None:
        """Compare it with the fastest count up to a limit that it exceeds."""
        if limit is None or count <= limit or bound(row):
            return None
        within = _fastest(_calm(row), limit)
        if not within:
            return None
        return compare(count, within)

    past_cores = past(host.physical_cores)
    past_cpus = past(host.effective_cpus)
    return ThreadFindings(speedup, efficiency, serial_fraction, penalty, past_cores, past_cpus)


# Advice: the count to use, the cost of others, and why more are slower.


# A cause is named if, compared with the best p, the share of waiting threads grows by this much, or
# the CPU seconds or context switches of a step grow by this factor.
MORE_WAITING, MORE_CPU, MORE_SWITCHES = 0.1, 1.2, 10.0
_FAILED = (Status.IMPLAUSIBLE, Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY)


def advice(curve: ThreadCurve) -> str:
    """Return one sentence: the count to use, the cost of one thread or more, and any doubt."""
    best = curve.findings.best_threads
    if best is None:
        return f"no advice: {_why_none(curve)}"
    timed = curve.timed
    unused = _unused(curve)
    stake = _stake(curve, best)
    others = _alternatives(curve, best)
    dearer = []
    unsure = []
    for point in others:
        penalty = _measured_penalty(point)
        if not stake or penalty.value >= 1 / WORSE:
            dearer.append((point.at, penalty.value))
        if penalty.value > WORSE and not penalty.verdict.clear:
            unsure.append(str(point.at))
    if not others and len(curve.taking_part) == 1:
        words = [f"only {threads_name(best)} timed: nothing to compare"]
    elif len(curve.taking_part) == len(timed):
        words = [f"use {threads_name(best)}"]
    else:
        words = [f"use {threads_name(best)}, the best of those not disturbed"]
    if dearer:
        words.append(f"a step takes {', '.join(_costs(dearer))}")
    if unsure:
        words.append(f"noise may explain the cost of {' and '.join(unsure)}")
    if unused:
        words.append(f"{_counts_text(unused)} {_WITHOUT}")
    if stake:
        words.append(stake)
    disturbance = _disturbance(timed)
    if disturbance:
        words.append(disturbance)
    if curve.findings.default_threads is not None:
        words.append(f"the framework's default is {curve.findings.default_threads}")
    return "; ".join(words)


def _alternatives(curve: ThreadCurve, best: int) -> list[ThreadPoint]:
    """Return the other counts that advice names: one thread, more than the best, or as good."""
    alternatives = []
    for point in curve.taking_part:
        if point.at == best:
            continue
        as_good = _measured_penalty(point).verdict is not RatioVerdict.SLOWER
        if point.at > best or point.at == 1 or as_good:
            alternatives.append(point)
    return alternatives


_WITHOUT = (
    f"left out: more threads worked than were asked for ({flag_kinds.THREADS_EXCEEDED.symbol})"
)


def _unused(curve: ThreadCurve) -> list[ThreadPoint]:
    """Return the points with a time that is not used: more threads worked than were asked for."""
    return [
        point for point in curve.points if point.seconds is None and point.cell.timed is not None
    ]


def _counts_text(points: Iterable[ThreadPoint]) -> str:
    """Return the thread counts of points: "1 and 2 threads"."""
    counts = [str(point.at) for point in points]
    if counts == ["1"]:
        return "1 thread"
    text = counts[-1]
    if len(counts) > 1:
        text = f"{', '.join(counts[:-1])} and {text}"
    return f"{text} threads"


def _why_none(curve: ThreadCurve) -> str:
    """Return why no thread count can be recommended."""
    unused = _unused(curve)
    failed = [point for point in curve.points if point.cell.timed is None]
    reasons = []
    if unused:
        reasons.append(f"{_counts_text(unused)} {_WITHOUT}")
    if failed:
        reasons.append(f"{_counts_text(failed)} without a number")
    disturbed = [point for point in curve.timed if not point.takes_part]
    if disturbed:
        return (
            f"only {_counts_text(curve.taking_part)} timed undisturbed, and other programs "
            f"disturbed {_counts_text(disturbed)}: measure again on a quiet machine"
        )
    if curve.timed:
        return f"only {_counts_text(curve.timed)} can be used; {'; '.join(reasons)}"
    return "; ".join(reasons)


def _measured_penalty(point: ThreadPoint) -> Contrast:
    """Return the penalty of a point with a time."""
    assert point.findings.penalty is not None
    return point.findings.penalty


def _stake(curve: ThreadCurve, best: int) -> str:
    """Return how much faster the fastest count may be, and how to settle it.

    Return an empty text if the recommended count is the fastest.
    """
    timed = _calm(curve)
    fastest = _fastest(timed)
    penalty = next(_measured_penalty(point) for point in curve.points if point.at == fastest)
    if penalty.value >= 1 / WORSE:
        return ""
    words = f"with {fastest} it took {_times(penalty.value)} as long"
    if penalty.ratio.low is not None:
        words += f" (at best {_times(penalty.ratio.low)})"
    count = launches_to_decide(timed[fastest], timed[best], penalty.family)
    launches = f"more than {MOST_LAUNCHES}" if count is None else f"about {count}"
    return f"{words}, within noise; {launches} launches of each would settle it"


def _disturbance(timed: Iterable[ThreadPoint]) -> str:
    """Return a sentence about the disturbed counts, or an empty text without any."""
    counts = []
    all_take_part = True
    for point in timed:
        if point.cell.has(flag_kinds.CONTENDED):
            counts.append(str(point.at))
            all_take_part = all_take_part and point.takes_part
    if not counts:
        return ""
    words = f"disturbed with {', '.join(counts)}"
    if not all_take_part:
        words += " (not counted)"
    return f"{words}: measure again on a quiet machine"


def _costs(values: Iterable[tuple[int, float]]) -> Iterator[str]:
    """Yield how many times as long a step takes with each count.

    The first says "2.0x as long with 1", others "1.60x with 4".
    """
    long = " as long"
    for count, value in values:
        if 1 / WORSE <= value <= WORSE:
            yield f"about as long with {count}"
        else:
            yield f"{_times(value)}{long} with {count}"
            long = ""


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 1.995 else f"{value:.1f}x"


def mechanism(curve: ThreadCurve) -> str:
    """Return why the slowest point beyond the best is slower, by the evidence. It may be empty."""
    best = curve.findings.best_threads
    if best is None:
        return ""
    beyond = []
    for point in curve.taking_part:
        if point.at > best and _measured_penalty(point).verdict is RatioVerdict.SLOWER:
            beyond.append(point)
    if not beyond:
        return ""
    (start,) = (point for point in curve.points if point.at == best)
    worst = max(beyond, key=_penalty_value)
    before, after = start.cell.observed, worst.cell.observed
    if before is None or after is None:
        return ""
    if start.cell.has(flag_kinds.CONTENDED) or worst.cell.has(flag_kinds.CONTENDED):
        return ""
    causes = list(_causes(before, after, worst.at))
    if not causes:
        return ""
    return f"at {worst.at} threads {'; '.join(causes)}"


def _penalty_value(point: ThreadPoint) -> float:
    return _measured_penalty(point).value


def _causes(before: Observed, after: Observed, count: int) -> Iterator[str]:
    """Yield the reasons why a step takes longer with this count than with the best."""
    throttled = after.throttled_share or 0.0
    if throttled - (before.throttled_share or 0.0) > THROTTLED_SHARE:
        yield f"the CPU quota throttles it {throttled:.0%} of the time"
    waiting = after.waiting_per_wall or 0.0
    if waiting - (before.waiting_per_wall or 0.0) > MORE_WAITING * count:
        yield f"{waiting:.1f} of {count} threads wait for a CPU at any moment"
    if before.cpu_seconds_per_step > 0:
        more = after.cpu_seconds_per_step / before.cpu_seconds_per_step
        if more > MORE_CPU:
            yield f"a step costs {more:.1f}x the CPU seconds (spinning, synchronising, cold caches)"
    switches = after.involuntary_switches_per_step
    usual_switches = max(1.0, before.involuntary_switches_per_step or 0.0)
    if switches is not None and switches > MORE_SWITCHES * usual_switches:
        yield f"{switches:.0f} involuntary switches a step"


def wait_policies(points: Iterable[ThreadPoint]) -> str:
    """Return the settings of how waiting threads wait, with their thread counts.

    The text is empty where nothing was set.
    """
    counts_by_policy: dict[str, list[str]] = {}
    for point in points:
        observed = point.cell.observed
        if observed and observed.wait_policy is not None:
            words = ", ".join(f"{name}={value}" for name, value in observed.wait_policy.items())
            counts_by_policy.setdefault(words, []).append(str(point.at))
    if len(counts_by_policy) == 1:
        return next(iter(counts_by_policy))
    parts = []
    for words, counts in counts_by_policy.items():
        parts.append(f"at {', '.join(counts)} {words or 'nothing set'}")
    return "; ".join(parts)


# Findings: which frameworks get worse past the cores and the CPUs of a machine.


def _group_by_capacity(curves: Iterable[ThreadCurve]) -> list[list[ThreadCurve]]:
    """Group curves by their machine and its CPU quota."""
    return list(grouped(curves, _machine_and_quota).values())


def _machine_and_quota(curve: ThreadCurve) -> tuple[str, float]:
    return curve.host.fingerprint, curve.cell.cpu_quota


def _machine(curve: ThreadCurve) -> str:
    return curve.host.name + extra_of_place(curve.cell)


def _contrasts_past(curve: ThreadCurve, past: str) -> list[Contrast]:
    """Return the comparisons of the counts past a capacity (`PAST_CORES` or `PAST_CPUS`)."""
    contrasts = []
    for point in curve.taking_part:
        compared = getattr(point.findings, past)
        if compared is not None:
            contrasts.append(compared)
    return contrasts


def headline(curves: Iterable[ThreadCurve]) -> list[str]:
    """Return for each machine on how many rows more threads than cores cost time, and the worst.

    Under a CPU quota: more threads than CPUs that it gives, in whole ones.
    """
    lines = []
    for curves_of_machine in _group_by_capacity(filter(computes, curves)):
        first = curves_of_machine[0]
        if first.cell.cpu_quota:
            past = PAST_CPUS
            capacity = counted(first.host.effective_cpus or 0, "CPU")
        else:
            past = PAST_CORES
            capacity = f"its {first.host.physical_cores} cores"
        rows = 0
        hurt = set()
        most: Contrast | None = None
        slowest = first
        for curve in curves_of_machine:
            contrasts = _contrasts_past(curve, past)
            rows += bool(contrasts)
            for compared in contrasts:
                if compared.verdict is not RatioVerdict.SLOWER:
                    continue
                hurt.add(curve.cell)
                if most is None or compared.value > most.value:
                    most, slowest = compared, curve
        head = f"{_machine(first)}: more threads than {capacity}"
        if most is not None:
            lines.append(
                f"{head} cost time on {len(hurt)} of {rows} rows, most on "
                f"{work_name(slowest.cell)}: {curve_name(slowest)} takes {times(most.ratio)} with "
                f"{most.threads} threads."
            )
        elif rows:
            lines.append(f"{head} cause no significant slowdown on any of {rows} rows.")
    return lines


def findings(curves: Iterable[ThreadCurve]) -> list[str]:
    """State for each machine which frameworks get worse past the physical cores, and by how much.

    State the same past the effective CPUs, if their number differs and more threads were tried.
    """
    lines = []
    # The scaling of frameworks that compute nothing is made up, so findings leave it out.
    for curves_of_machine in _group_by_capacity(filter(computes, curves)):
        first = curves_of_machine[0]
        cores, cpus = first.host.physical_cores, first.host.effective_cpus
        limits = [(cores, PAST_CORES, "physical core")]
        if cpus != cores:
            limits.append((cpus, PAST_CPUS, "CPU it may use"))
        for limit, past, unit in limits:
            if limit is not None:
                head = f"{_machine(first)}: past {limit} threads, one for each {unit}"
                lines += _findings(head, curves_of_machine, past, limit)
    return lines


def _findings(head: str, curves: Sequence[ThreadCurve], past: str, limit: int) -> list[str]:
    """Return the lines about the rows of one machine past one limit, with the rule of the tests."""
    contrasts = []
    for curve in curves:
        contrasts += _contrasts_past(curve, past)
    tested = [compared for compared in contrasts if compared.tested]
    some_only = 0 < len(tested) < len(contrasts)
    sentences = []
    for curves_of_row in grouped(curves, curve_name).values():
        sentence = _finding(curves_of_row, past, some_only, limit)
        if sentence:
            sentences.append(f"  {sentence}")
    if not sentences:
        return []
    if tested:
        rule = f"Welch's t, Holm-adjusted for {tested[0].family} comparisons, p < {SIGNIFICANCE}"
        if some_only:
            rule += f"; untested: by the ratio's interval, fewer than {ENOUGH_LAUNCHES} launches"
    else:
        rule = f"by the ratio of times, untested: fewer than {ENOUGH_LAUNCHES} launches"
    return [f"{head} ({rule}),", *sentences]


def _finding(curves: Sequence[ThreadCurve], past: str, some_only: bool, limit: int) -> str:
    """Return on which networks a row gets worse, gains, shows no clear difference, and fails.

    The text is empty where there is nothing to say.
    """
    worse: list[str] = []
    gaining: list[str] = []
    unclear: list[str] = []
    failing: list[str] = []
    for curve in curves:
        contrasts = _contrasts_past(curve, past)
        if contrasts:
            decisive = _decisive(contrasts)
            finding = _network_finding(curve, decisive, some_only)
            if decisive is None:
                unclear.append(finding)
            elif decisive.verdict is RatioVerdict.SLOWER:
                worse.append(finding)
            else:
                gaining.append(finding)
        failed = _failed(curve, limit)
        if failed:
            failing.append(failed)
    networks = len(worse) + len(gaining) + len(unclear)
    heads = {
        f"gets worse on {len(worse)} of {networks} networks: ": worse,
        "gains on ": gaining,
        "shows no clear difference on ": unclear,
        "fails on ": failing,
    }
    parts = [head + ", ".join(names) for head, names in heads.items() if names]
    if not parts:
        return ""
    return f"{curve_name(curves[0])}: {'; '.join(parts)}"


def _decisive(contrasts: Iterable[Contrast]) -> Contrast | None:
    """Return the largest loss, else the largest gain, or None without either."""
    loss: Contrast | None = None
    gain: Contrast | None = None
    for compared in sorted(contrasts, key=lambda compared: compared.value):
        if compared.verdict is RatioVerdict.SLOWER:
            loss = compared
        elif compared.verdict is RatioVerdict.FASTER and gain is None:
            gain = compared
    return gain if loss is None else loss


def _network_finding(curve: ThreadCurve, decisive: Contrast | None, some_only: bool) -> str:
    """Return a network with the mark of a disturbance and its decisive comparison."""
    text = _workload(curve.cell)
    if any(point.cell.has(flag_kinds.CONTENDED) for point in curve.taking_part):
        text += flag_kinds.CONTENDED.symbol
    if decisive is None:
        return text
    text += f" {_times(decisive.value)} at {decisive.threads}"
    if some_only and not decisive.tested:
        text += " (untested)"
    return text


def _failed(curve: ThreadCurve, limit: int) -> str:
    """Return the counts beyond the limit at which a network that runs within it fails, and how.

    The text is empty where it does not.
    """
    if bound(curve) or not any(point.at <= limit for point in curve.timed):
        return ""
    counts_by_status: dict[Status, list[str]] = {}
    for point in curve.points:
        if point.at > limit and point.cell.status in _FAILED:
            counts_by_status.setdefault(point.cell.status, []).append(str(point.at))
    if not counts_by_status:
        return ""
    reasons = []
    for status, counts in counts_by_status.items():
        reasons.append(f"{status.value.replace('_', ' ')} at {' and '.join(counts)}")
    return f"{_workload(curve.cell)} ({', '.join(reasons)})"


def _workload(cell: Cell) -> str:
    """Return the network, with an unusual mini-batch."""
    network = FIRST.get(cell.network)
    if cell.batch_size is None or (network is not None and network.batch_size == cell.batch_size):
        return cell.network
    return f"{cell.network} b{cell.batch_size}"


# Tables, JSON and CSV.


_IRRELEVANT = {flag_kinds.FEW_LAUNCHES, flag_kinds.PARITY_UNCHECKED}
WAIT_LEGEND = (
    "Wait policy: settings that decide whether waiting threads spin or sleep; else the libraries' "
    "defaults."
)
LAWS_LEGEND = (
    "Scaling laws, of p threads on p CPUs: Amdahl S(p) = 1/(s + (1-s)/p); USL (Universal "
    "Scalability Law) C(p) = p/(1 + sigma(p-1) + kappa p(p-1)), fastest at p* = "
    "sqrt((1-sigma)/kappa); T(1) is fitted too; the smaller AICc is taken."
)
_LAW_NAMES = {"amdahl": "Amdahl", "usl": "USL"}
_LEGENDS = {
    "eff.": "eff.: speed-up / p",
    "serial": (
        "serial: Karp and Flatt's serial fraction (constant: a serial part; rising: overhead grows "
        "with p)"
    ),
    "vs best": f"vs best: T(p)/T(best) with its 95 % interval, {BEST} the p to use",
    "wait": "wait: threads waiting for a CPU, on average (run-queue delay)",
    "busy": "busy: threads running, on average",
    "CPU s": "CPU s: CPU seconds a step",
    "switches": "switches: involuntary context switches a step",
    "quota": "quota: share of the time that the CPU quota throttled it",
    "ceil": "ceil: share of the machine's measured ceiling at no more than p threads",
}
"""Meanings of columns, by their headings."""


def _evidence(name: str, heading: str, written: Callable[[float], str]) -> Column[ThreadPoint]:
    """Return a column of the threads' evidence, for tables alone."""

    def text(point: ThreadPoint) -> str:
        return _written(getattr(point.cell.observed, name, None), point, written)

    return Column("", heading, text)


def _written(value: float | None, point: ThreadPoint, written: Callable[[float], str]) -> str:
    if value is None or not point.cell.shown:
        return ""
    return written(value)


def _ceiling(point: ThreadPoint) -> str:
    return _written(point.cell.ceiling_fraction, point, "{:.0%}".format)


def _throttled(share: float) -> str:
    return f"{share:.0%}" if share > 0.001 else ""


def _count(point: ThreadPoint) -> Entry:
    penalty = point.findings.penalty
    return Entry(str(point.at), best=penalty is not None and penalty.against == point.at)


def _penalty(point: ThreadPoint) -> str:
    penalty = point.findings.penalty
    if penalty is None:
        return ""
    return times(penalty.ratio)


def _is_used(point: ThreadPoint) -> bool:
    return point.seconds is not None


def _comparison(name: str) -> Callable[[ThreadPoint], dict[str, Any] | None]:
    """Return the value of a column of comparisons."""

    def comparison(point: ThreadPoint) -> dict[str, Any] | None:
        compared: Contrast | None = getattr(point.findings, name)
        if compared is None:
            return None
        return {
            **vars(compared.ratio),
            "against": compared.against,
            "p_value": compared.p_value,
            "p_adjusted": compared.p_adjusted,
            "comparisons": compared.family or None,
            "verdict": compared.verdict,
        }

    return comparison


_PAST = ("value", "p_adjusted", "verdict")
_EVIDENCE = (
    "waiting_per_wall",
    "cpu_per_wall",
    "cpu_seconds_per_step",
    "involuntary_switches_per_step",
)
_POINT: tuple[Column[ThreadPoint], ...] = (
    Column("threads", "p", lambda point: point.at, _count),
    *cell_columns("status", "reason"),
    seconds_column(lambda point: point.cell, _IRRELEVANT),
    Column("used", None, _is_used),
    Column("takes_part", None, lambda point: point.takes_part),
    finding_column("speedup", "speed-up", "{:.2f}".format),
    finding_column("efficiency", "eff.", "{:.2f}".format),
    finding_column("serial_fraction", "serial", "{:.3f}".format),
    *cell_columns("ceiling_fraction"),
    Column(
        "penalty", "vs best", _comparison("penalty"), _penalty, (*VALUE, "p_adjusted", "verdict")
    ),
    Column(PAST_CORES, None, _comparison(PAST_CORES), fields=_PAST),
    Column(PAST_CPUS, None, _comparison(PAST_CPUS), fields=_PAST),
    Column(
        "threads_evidence",
        None,
        lambda point: point.cell.observed,
        fields=(*_EVIDENCE, "throttled_share", "wait_policy"),
    ),
    _evidence("waiting_per_wall", "wait", "{:.2f}".format),
    _evidence("cpu_per_wall", "busy", "{:.2f}".format),
    _evidence("cpu_seconds_per_step", "CPU s", number),
    _evidence("involuntary_switches_per_step", "switches", "{:.1f}".format),
    _evidence("throttled_share", "quota", _throttled),
    Column("", "ceil", _ceiling),
    *cell_columns("flags"),
)


def _law(curve: ThreadCurve) -> Fit | None:
    fits: Fits | None = curve.findings.fits
    return None if fits is None else fits.law


def _rejections(curve: ThreadCurve) -> str | None:
    fits: Fits | None = curve.findings.fits
    return None if fits is None else fits.rejections


_CURVE: tuple[Column[ThreadCurve], ...] = (
    *curve_columns("threads"),
    *attributes(lambda curve: curve.host, "physical_cores", "logical_cpus", "effective_cpus"),
    Column("computes", None, computes),
    *finding_columns("best_threads", "default_threads"),
    Column("advice", None, advice),
    Column("mechanism", None, mechanism),
)
_PARAMETERS = ("seconds_at_one", "serial", "crosstalk", "fastest_threads")
_LAW: tuple[Column[ThreadCurve], ...] = (
    Column("law", None, _law, fields=("law", *estimate_fields(_PARAMETERS))),
    Column("laws_rejected", None, _rejections),
)


def threads_page(content: ThreadCurves) -> Page:
    """Return a table for each curve with its advice, then the findings."""
    curves = content.curves
    if not curves:
        return Page((NOTHING,), (), content.notes)
    before = []
    for curves_of_machine in _group_by_capacity(curves):
        first = curves_of_machine[0]
        counts = {
            "physical cores": first.host.physical_cores,
            "logical CPUs": first.host.logical_cpus,
            "effective CPUs": first.host.effective_cpus,
        }
        words = []
        for name, count in counts.items():
            text = "unknown" if count is None else str(count)
            words.append(f"{name} {text}")
        capacity = first.host.capacity_cpus
        if capacity is not None and capacity != first.host.effective_cpus:
            words[-1] += f" ({capacity:g} rounded up)"
        before.append(f"{_machine(first)}: {', '.join(words)}.")
    before.append("Effective CPUs: the smaller of affinity mask and quota.")
    after = [*_legend(curves), *content.notes]
    sentences = findings(curves)
    if sentences:
        after += ["", *sentences]
    return Page(tuple(before), tuple(map(_curve_table, curves)), tuple(after))


def _legend(curves: Sequence[ThreadCurve]) -> list[str]:
    raised: set[flag_kinds.FlagKind] = set()
    has_wait_policy = False
    for point in points_of(curves):
        raised.update(flag.kind for flag in point.cell.flags)
        observed = point.cell.observed
        if observed and observed.wait_policy is not None:
            has_wait_policy = True
    meanings: dict[str, None] = {}
    for curve in curves:
        for column in _columns(curve):
            meaning = _LEGENDS.get(column.heading or "")
            if meaning:
                meanings[meaning] = None
    requested = "threads requested"
    if any(map(bound, curves)):
        requested += " (bound: on p CPUs of their own)"
    lines = [f"p: {requested}; {'; '.join(meanings)}."]
    if flag_kinds.FEW_LAUNCHES in raised:
        lines.append(f"{WIDENED} Such a count has no p-value.")
    if has_wait_policy:
        lines.append(WAIT_LEGEND)
    lines += _law_lines(curves)
    for kind in flag_kinds.KINDS:
        if kind in raised and kind not in _IRRELEVANT:
            lines.append(f"{kind.symbol} {kind.legend}")
    return lines


def _law_lines(curves: Sequence[ThreadCurve]) -> list[str]:
    """Return the lines of the legend about scaling laws."""
    has_laws = False
    methods: dict[str, None] = {}
    counts_of_untried = []
    for curve in curves:
        fits: Fits | None = curve.findings.fits
        if not fits:
            continue
        if fits.laws:
            has_laws = True
        if fits.has_intervals:
            methods[fits.intervals] = None
        if fits.rejected:
            counts_of_untried.append(len(fits.fitted_threads))
    lines = []
    if has_laws:
        lines.append(LAWS_LEGEND)
    for method in methods:
        lines.append(f"Intervals of the laws: {method}.")
    if counts_of_untried:
        most = max(counts_of_untried)
        lines.append(
            f"No scaling law fitted to {len(counts_of_untried)} of {len(curves)} rows: "
            f"{counted(most, 'thread count')} to fit at most, {POINTS_NEEDED} needed (counts past "
            "the effective CPUs do not count)."
        )
    return lines


def _columns(curve: ThreadCurve) -> list[Column[ThreadPoint]]:
    """Return the columns of a curve's table.

    Those that are empty, or that only rows of the other kind have, are left out.
    """
    other = "switches" if bound(curve) else "serial"
    return filled([column for column in _POINT if column.heading != other], curve.points)


def _curve_table(curve: ThreadCurve) -> Table:
    notes = [f"{advice(curve)}."]
    tested = _tested(curve)
    if tested:
        notes.append(tested)
    cause = mechanism(curve)
    if cause:
        notes.append(f"Why: {cause}.")
    policies = wait_policies(curve.points)
    if policies:
        notes.append(f"Wait policy: {policies}.")
    holes = [point for point in curve.points if not point.cell.shown or point.cell.timed is None]
    for why, points in grouped(holes, _why_hole).items():
        notes.append(f"{_counts_text(points)}: {why.rstrip('.')}.")
    for point in _unused(curve):
        notes.append(f"{_counts_text([point])}: {_threads_evidence(point)}.")
    notes += fit_lines(curve.findings.fits)
    title = f"{work_name(curve.cell)}: {row_name(curve.cell)}{extra_of_place(curve.cell)}"
    return table(_columns(curve), curve.points, f"{title}, on {curve.host.name}", notes=notes)


def _why_hole(point: ThreadPoint) -> str:
    return why_hole(point.cell)


def _threads_evidence(point: ThreadPoint) -> str:
    """Return the evidence for more threads than were asked for."""
    for flag in point.cell.flags:
        if flag.kind is flag_kinds.THREADS_EXCEEDED:
            return flag.sentence
    return flag_kinds.THREADS_EXCEEDED.legend


def _tested(curve: ThreadCurve) -> str:
    """Return the adjusted p-values of the penalties, one for each thread count tested."""
    tested = []
    values = []
    for point in curve.timed:
        penalty = _measured_penalty(point)
        if penalty.p_adjusted is not None:
            tested.append(penalty)
            values.append(f"{penalty.threads} p {said_probability(penalty.p_adjusted)}")
    if not tested:
        return ""
    family = tested[0].family
    over = f"Holm-adjusted over {family} comparisons" if family > 1 else "the only comparison"
    return f"Against {tested[0].against} ({over}): {', '.join(values)}."


def fit_lines(fits: Fits | None) -> list[str]:
    """Return a line in words for each law tried."""
    if fits is None or not fits.laws:
        return []
    chosen = fits.law
    lines = []
    if chosen is None:
        lines.append("No scaling law describes this curve:")
    else:
        name = _LAW_NAMES[chosen.law]
        parameters = _parameters(chosen, fits)
        lines.append(f"Scaling law: {name}, {parameters}; AICc {chosen.aicc:.1f}.")
    for fit in fits.laws:
        name = _LAW_NAMES[fit.law]
        if fit is chosen:
            continue
        if fit.rejected:
            lines.append(f"{name} rejected: {'; '.join(fit.rejected)}.")
        else:
            lines.append(f"{name} fits less well: AICc {fit.aicc:.1f}.")
    return lines


def _parameters(fit: Fit, fits: Fits) -> str:
    """Return the parameters of the chosen law in words."""
    words = []
    if fit.crosstalk is None:
        words.append(f"s {_estimate(fit.serial)}")
    else:
        words.append(f"sigma {_estimate(fit.serial)}")
        words.append(f"kappa {_estimate(fit.crosstalk)}")
    words.append(f"T(1) {_estimate(fit.seconds_at_one)} s")
    fastest = fit.fastest_threads
    if fastest is not None:
        text = f"p* {_estimate(fastest)}"
        if fastest.value > max(fits.fitted_threads):
            text += ", beyond what was measured"
        words.append(text)
    parameters = ", ".join(words)
    if fits.has_intervals:
        return parameters
    return f"{parameters} ({fits.intervals})"


def _estimate(estimate: Estimate) -> str:
    value = number(estimate.value)
    if estimate.low is None or estimate.high is None:
        return value
    low, high = number(estimate.low), number(estimate.high)
    if math.isinf(estimate.high):
        return f"{value} ({low} up)"
    return f"{value} ({low}-{high})"


# The picture.


def drawn_curves(curves: Iterable[ThreadCurve]) -> list[ThreadCurve]:
    """Return the curves with times at two thread counts or more: others are no line."""
    return [curve for curve in curves if len(curve.timed) > 1]


def _picture(curves: Sequence[ThreadCurve]) -> pictures.Picture:
    """Return the page of one machine: a panel for each work."""
    host = curves[0].host
    styles = {}
    for place, name in enumerate(sorted(set(map(curve_name, curves)))):
        styles[name] = pictures.style(place, place, place)
    panels = []
    lines: list[pictures.Line] = []
    for work, curves_of_work in grouped(curves, lambda curve: work_of(curve.cell)).items():
        panel = _panel(work_name(work), curves_of_work, styles)
        panels.append(panel)
        lines += panel.lines
    legend = [
        *styles.items(),
        *pictures.marks_of(lines, best="threads to use"),
        ("T(1)/p of the fastest with one", {"color": pictures.GREY, "linestyle": pictures.DOTTED}),
    ]
    if host.own_cores is not None:
        cores = "CPUs of the quota" if curves[0].cell.cpu_quota else "the machine's own cores"
        legend.append((f"{cores}: {host.own_cores}", {"color": "black", "linewidth": 0.8}))
    bars = pictures.coverage(points_of(curves))
    return pictures.Picture(
        f"Time against threads, on {_machine(curves[0])}",
        panels,
        legend,
        f"threads; bars: {bars} interval of the median",
        "seconds per mini-batch",
        unit="s",
    )


def _panel(
    title: str, curves: Sequence[ThreadCurve], styles: Mapping[str, pictures.Style]
) -> pictures.CurvePanel:
    """Return the panel of one work on a machine."""
    lines = []
    counts: set[int] = set()
    alone = []
    for curve in curves:
        points = [(count, pictures.ends(seconds)) for count, seconds in curve.times.items()]
        marks: dict[str, list[int]] = {"best": []}
        if curve.findings.best_threads is not None:
            marks["best"].append(curve.findings.best_threads)
        lines.append(pictures.Line(points, styles[curve_name(curve)], marks))
        counts |= curve.times.keys()
        if 1 in curve.times:
            alone.append(curve.times[1].median)
    ticks = sorted(counts)
    ideal: list[tuple[int, float]] = []
    if alone:
        last = ticks[-1]
        ideal = [(1, min(alone)), (last, min(alone) / last)]
    limit = curves[0].host.own_cores
    if limit is not None and not ticks[0] <= limit <= ticks[-1]:
        limit = None
    return pictures.CurvePanel(title, lines, ticks, ideal, limit)


def _data(content: ThreadCurves) -> dict[str, Any]:
    """Return a JSON object: the curves with their fits, and the findings."""
    return {
        "curves": curve_objects(content.curves, (*_CURVE, *finding_columns("fits")), _POINT),
        "findings": findings(content.curves),
        "notes": list(content.notes),
    }


def _draw(content: ThreadCurves, path: Path, options: ReportOptions) -> list[Path]:
    return pictures.draw(map(_picture, _group_by_capacity(drawn_curves(content.curves))), path)


def _applies(cells: Iterable[Cell]) -> bool:
    single = [cell for cell in cells if cell.on_cpu and cell.threads and cell.world_size == 1]
    return differ(single, "threads")


REPORT = Report(
    name="threads",
    summary="How many threads to give each framework, and the cost of more.",
    examples=(
        "dlbench report threads",
        "dlbench report threads --reference shi2016",
        "dlbench report threads --plot threads.png",
    ),
    analyse=lambda source: threads(source.matrix()),
    page=lambda content, options: threads_page(content),
    data=_data,
    rows=lambda content: curve_rows(content.curves, (*_CURVE, *_LAW), _POINT),
    draw=_draw,
    drawable=lambda content: bool(drawn_curves(content.curves)),
    suggestion="how many threads to give, and the cost of more",
    applies=_applies,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Threads: how many to use, and the cost of more",
    place=30,
    headline=lambda content: headline(content.curves),
)
