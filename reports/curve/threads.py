"""`dlbench report threads`: the thread count to use, the cost of every other, and the comparisons
behind both.

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
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import BOUND, Cell, Status
from dlbench.reports.columns import Column, attributes, table
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    Curves,
    Point,
    adjust_together,
    along,
    cell_columns,
    computes_nothing,
    curve_columns,
    curve_objects,
    curve_rows,
    filled,
    found_column,
    found_columns,
    usable,
)
from dlbench.reports.curve.fits import (
    POINTS_NEEDED,
    Estimate,
    Fit,
    Fits,
    fit_scaling,
    karp_flatt,
    said_probability,
)
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.formats.layout import BEST, WIDENED, Entry, Page, Table, why_hole
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report
from dlbench.reports.results import flags
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.disturbance import THROTTLED_SHARE
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import differ, group_of, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import (
    counted,
    extra_of_place,
    group_name,
    row_name,
    threads_name,
)
from dlbench.reports.results.networks import FIRST
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.statistics import (
    ENOUGH_LAUNCHES,
    MOST_LAUNCHES,
    SIGNIFICANCE,
    WORSE,
    Contrast,
    Ratio,
    Summary,
    contrast,
    launches_to_decide,
)

MANY = 32
"""The largest thread count of the 2016 paper's Table 4."""
NOTHING = "Nothing was measured on a CPU in one process yet."
PAST_CORES, PAST_CPUS = "past_physical_cores", "past_effective_cpus"
Pair = tuple[int, int]
Compare = Callable[[int, int], Contrast]


def threads(matrix: Matrix) -> Curves:
    """Return the curve of every row with a CPU cell, machine by machine in the matrix's order."""
    on_cpu = [cell for at, cell in matrix.cells.items() if at.on_cpu and at.world_size == 1]
    of_rows = along(
        sorted(on_cpu, key=lambda cell: matrix.machines.index(cell.column.machine)), "threads"
    )
    rows = [
        _row(matrix.hosts[place.machine].under(place.cell.cpu_quota), place.cell, cells)
        for place, cells in of_rows.items()
        if any(cell.column.threads for cell in cells)
    ]
    compared: dict[int, dict[Pair, Contrast]] = {}
    # Comparisons of frameworks that compute nothing are a family of their own: made-up times must
    # not cost real ones their significance.
    for family in grouped(range(len(rows)), lambda place: computes(rows[place])).values():
        compared |= zip(
            family, adjust_together(_comparisons(rows[place]) for place in family), strict=True
        )
    measured_bound = {_unbound(row) for row in rows if bound(row) and row.timed}
    curves = [
        _curve(row, compared[place], fitted=bound(row) or _unbound(row) not in measured_bound)
        for place, row in enumerate(rows)
    ]
    return Curves(tuple(curves), (*_left_out(matrix), *matrix.notes))


def bound(curve: Curve) -> bool:
    """Return whether p threads had p CPUs to themselves, rather than all there are."""
    return curve.cell.affinity == BOUND


def computes(curve: Curve) -> bool:
    """Return whether anything was computed: a framework that only waits scales as its author
    chose.
    """
    return not any(computes_nothing(point.cell) for point in curve.points)


def name_of(curve: Curve) -> str:
    """Return the row in words."""
    return row_name(curve.cell._replace(mode="") if curve.cell.mode == "2016" else curve.cell)


def _default(cells: Sequence[CellResult]) -> int | None:
    """Return a row's default thread count: from a cell without a set count, else as reported
    without a quota.
    """
    taken = [
        each.observed.taken_threads for each in cells if each.observed and not each.column.threads
    ]
    known = [
        each.default_threads
        for each in cells
        if each.default_threads is not None and not each.cell.cpu_quota
    ]
    return next((each for each in (*taken, *known[-1:]) if each is not None), None)


def _unbound(curve: Curve) -> tuple[str, Cell]:
    return curve.host.fingerprint, axes.without(curve.cell, "affinity")


def _left_out(matrix: Matrix) -> Iterator[str]:
    """Yield a sentence about the CPU cells without a curve."""
    on_cpu = [place for place in matrix.cells if place.on_cpu]
    if workers := sum(column.world_size > 1 for column in on_cpu):
        yield (
            f"Not shown: {counted(workers, 'cell')} of several workers, which threads alone do not "
            "explain; `dlbench report scaling` shows them."
        )
    shown = {axes.without(column.cell, "threads") for column in on_cpu if column.threads}
    own = (column for column in on_cpu if column.world_size == 1 and not column.threads)
    if unset := sum(axes.without(column.cell, "threads") not in shown for column in own):
        yield f"Not shown: {counted(unset, 'cell')} for which no thread count was set."


def _row(host: Host, shared: Cell, cells: Sequence[CellResult]) -> Curve:
    """Return the curve of a row; undisturbed points take part, or all if every count that can show
    it was disturbed.
    """
    by_count = {cell.column.threads: cell for cell in cells if cell.column.threads}
    timed = {
        count: time
        for count, cell in sorted(by_count.items())
        if (time := usable(cell)) is not None
    }
    disturbed = {count for count, cell in by_count.items() if cell.has(flags.CONTENDED)}
    showing = [
        count for count in timed if host.effective_cpus is None or count <= host.effective_cpus
    ] or timed
    calm = timed.keys() if disturbed.issuperset(showing) else timed.keys() - disturbed
    points = (
        Point(count, cell, timed.get(count), count in calm)
        for count, cell in sorted(by_count.items())
    )
    return Curve(host, shared, tuple(points), {"default_threads": _default(cells)})


def _calm(curve: Curve) -> dict[int, Summary]:
    """Return the times that take part."""
    return {point.at: curve.times[point.at] for point in curve.taking_part}


def _comparisons(row: Curve) -> dict[Pair, Contrast]:
    """Return the comparisons to test, one for each pair of counts."""
    calm = _calm(row)
    cores, cpus, logical = row.host.physical_cores, row.host.effective_cpus, row.host.logical_cpus
    if bound(row) or not calm:
        return {}
    fastest = _fastest(calm)
    pairs = {
        (count, within)
        for count in calm
        for limit in (cores, cpus)
        if limit is not None and count > limit and (within := _fastest(calm, limit))
    }
    known = {count for count in (cores, logical) if count is not None}
    wanted = {
        *known,
        *(2 * count for count in known),
        MANY,
        *(p for p in calm if cores is not None and p > cores),
    }
    pairs |= {
        (p, fastest) for p in calm if p in wanted and p != fastest and (fastest, p) not in pairs
    }
    return {(p, q): contrast(p, q, calm[p], calm[q]) for p, q in sorted(pairs)}


def _fastest(times: Mapping[int, Summary], limit: int | None = None) -> int:
    """Return the fastest count up to a limit; 0 where there is none."""
    within = [count for count in times if limit is None or count <= limit]
    return min(within, key=lambda count: (times[count].median, count), default=0)


def _best(times: Mapping[int, Summary], limit: int | None, compare: Compare) -> int | None:
    """Return the smallest count that is about as fast as the fastest, or None if no count is.

    A count above ``limit`` is returned only if it is clearly faster than the fastest count up to
    the limit.
    """
    fastest, within = _fastest(times), _fastest(times, limit)

    def shares_cpus(count: int) -> bool:
        return limit is not None and count > limit and within > 0

    if shares_cpus(fastest) and compare(fastest, within).verdict != "better":
        fastest = within

    def will_do(count: int) -> bool:
        if count == fastest:
            return True
        if shares_cpus(count) and compare(count, within).verdict != "better":
            return False
        found = compare(count, fastest)
        return found.verdict != "worse" and found.value <= WORSE

    return min(filter(will_do, times), default=None)


def _curve(row: Curve, compared: Mapping[Pair, Contrast], fitted: bool) -> Curve:
    """Return a row with the findings of its points and of the whole."""
    host, timed, calm = row.host, row.times, _calm(row)
    limit = None if bound(row) else host.effective_cpus

    def compare(count: int, against: int) -> Contrast:
        """Compare two counts by the whole report's tests, else by the ratio's interval."""
        if (count, against) in compared:
            return compared[count, against]
        if (against, count) in compared:
            return compared[against, count].swapped
        return contrast(count, against, timed[count], calm[against], test=False)

    def past(count: int, limit: int | None) -> Contrast | None:
        within = (
            _fastest(calm, limit) if limit is not None and count > limit and not bound(row) else 0
        )
        return compare(count, within) if within else None

    best = _best(calm, limit, compare)
    if len(calm) == 1 and _unused(row):
        best = None  # nothing to compare it with: the one that is left over need not be the best

    def of_point(count: int, seconds: Summary) -> dict[str, Any]:
        speedup = timed[1].median / seconds.median if 1 in timed else None
        within = host.effective_cpus is None or count <= host.effective_cpus
        itself = Contrast(count, count, Ratio(1.0, None, None, "itself"))
        return {
            "speedup": speedup,
            "efficiency": None if speedup is None else speedup / count,
            "serial_fraction": karp_flatt(speedup, count)
            if speedup is not None and within
            else None,
            "penalty": itself if count == best or best is None else compare(count, best),
            PAST_CORES: past(count, host.physical_cores),
            PAST_CPUS: past(count, host.effective_cpus),
        }

    points = (
        point._replace(found=of_point(point.at, point.seconds)) if point.seconds else point
        for point in row.points
    )
    fits = None
    if fitted and timed:
        fits = fit_scaling(
            {count: time for count, time in calm.items() if limit is None or count <= limit}
        )
    return row._replace(
        points=tuple(points), found={**row.found, "best_threads": best, "fits": fits}
    )


# Advice: the count to use, the cost of others, and why more are slower.


# A cause is named if, compared with the best p, the share of waiting threads grows by this much, or
# the CPU seconds or context switches of a step grow by this factor.
MORE_WAITING, MORE_CPU, MORE_SWITCHES = 0.1, 1.2, 10.0
_FAILED = (Status.IMPLAUSIBLE, Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY)


def advice(curve: Curve) -> str:
    """Return one sentence: the count to use, the cost of one thread or more, and any doubt."""
    best, timed, default = curve.found["best_threads"], curve.timed, curve.found["default_threads"]
    unused = _unused(curve)
    if best is None:
        return f"no advice: {_why_none(curve)}"
    partly = ", the best of those not disturbed" if len(curve.taking_part) < len(timed) else ""
    words = [f"use {threads_name(best)}{partly}"]
    stake = _stake(curve, best)
    others = [
        (point.at, point.found["penalty"])
        for point in curve.taking_part
        if point.at != best
        and (point.at > best or point.at == 1 or point.found["penalty"].verdict != "worse")
    ]
    dearer = [
        (count, found.value) for count, found in others if not stake or found.value >= 1 / WORSE
    ]
    if dearer:
        words.append(f"a step takes {', '.join(_costs(dearer))}")
    elif not others and len(curve.taking_part) == 1:
        words = [
            (
                f"only {threads_name(best)} timed{'' if len(timed) == 1 else ' undisturbed'}: "
                "nothing to compare"
            )
        ]
    unsure = [
        str(count)
        for count, found in others
        if found.value > WORSE and found.verdict == "no clear difference"
    ]
    if unsure:
        words.append(f"noise may explain the cost of {' and '.join(unsure)}")
    if unused:
        words.append(f"{_in_words(unused)} {_WITHOUT}")
    words += [
        *stake,
        *_disturbance(timed),
        *([] if default is None else [f"the framework's default is {default}"]),
    ]
    return "; ".join(words)


_WITHOUT = f"left out: more threads worked than were asked for ({flags.THREADS_EXCEEDED.symbol})"


def _unused(curve: Curve) -> list[Point]:
    """Return the points with a time that is not used: other threads than those asked for worked
    too.
    """
    return [
        point for point in curve.points if point.seconds is None and point.cell.timed is not None
    ]


def _in_words(points: Iterable[Point]) -> str:
    """Return the thread counts of points: "1 and 2 threads"."""
    *first, last = [str(point.at) for point in points]
    counts = f"{', '.join(first)} and {last}" if first else last
    return f"{counts} thread{'' if counts == '1' else 's'}"


def _why_none(curve: Curve) -> str:
    """Return why no thread count can be recommended."""
    unused = _unused(curve)
    failed = [point for point in curve.points if point.cell.timed is None]
    reasons = [f"{_in_words(unused)} {_WITHOUT}"] if unused else []
    reasons += [f"{_in_words(failed)} without a number"] if failed else []
    if curve.timed:
        return f"only {_in_words(curve.timed)} can be used; {'; '.join(reasons)}"
    return "; ".join(reasons)


def _stake(curve: Curve, best: int) -> list[str]:
    """Say how much faster the fastest count may be if it is not the recommended one, and how to
    settle it.
    """
    timed = _calm(curve)
    fastest = _fastest(timed)
    found = next(point.found["penalty"] for point in curve.points if point.at == fastest)
    if found.value >= 1 / WORSE:
        return []
    count = launches_to_decide(timed[fastest], timed[best], found.family)
    launches = f"more than {MOST_LAUNCHES}" if count is None else f"about {count}"
    most = "" if found.ratio.low is None else f" (at best {_times(found.ratio.low)})"
    took = f"with {fastest} it took {_times(found.value)} as long{most}"
    return [f"{took}, within noise; {launches} launches of each would settle it"]


def _disturbance(timed: Iterable[Point]) -> Iterator[str]:
    disturbed = [point for point in timed if point.cell.has(flags.CONTENDED)]
    if disturbed:
        counts = "" if all(point.takes_part for point in disturbed) else " (not counted)"
        where = ", ".join(str(point.at) for point in disturbed)
        yield f"disturbed with {where}{counts}: measure again on a quiet machine"


def _costs(values: Iterable[tuple[int, float]]) -> Iterator[str]:
    """Yield how many times as long a step takes with each count: "2.0x as long with 1", "1.60x with
    4".
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


def mechanism(curve: Curve) -> str:
    """Return why the slowest point beyond the best is slower, according to the evidence; may be
    empty.
    """
    best = curve.found["best_threads"]
    if best is None:
        return ""
    beyond = [p for p in curve.taking_part if p.at > best and p.found["penalty"].verdict == "worse"]
    if not beyond:
        return ""
    (start,) = (point for point in curve.points if point.at == best)
    worst = max(beyond, key=lambda point: point.found["penalty"].value)
    before, after, count = start.cell.observed, worst.cell.observed, worst.at
    if (
        before is None
        or after is None
        or any(point.cell.has(flags.CONTENDED) for point in (start, worst))
    ):
        return ""
    causes = []
    if (after.throttled_share or 0.0) - (before.throttled_share or 0.0) > THROTTLED_SHARE:
        causes.append(f"the CPU quota throttles it {after.throttled_share:.0%} of the time")
    if (after.waiting_per_wall or 0.0) - (before.waiting_per_wall or 0.0) > MORE_WAITING * count:
        causes.append(
            f"{after.waiting_per_wall:.1f} of {count} threads wait for a CPU at any moment"
        )
    more = (
        after.cpu_seconds_per_step / before.cpu_seconds_per_step
        if before.cpu_seconds_per_step > 0
        else 1.0
    )
    if more > MORE_CPU:
        causes.append(
            f"a step costs {more:.1f}x the CPU seconds (spinning, synchronising, cold caches)"
        )
    switches = after.involuntary_switches_per_step
    if switches is not None and switches > MORE_SWITCHES * max(
        1.0, before.involuntary_switches_per_step or 0.0
    ):
        causes.append(f"{switches:.0f} involuntary switches a step")
    return f"at {count} threads " + "; ".join(causes) if causes else ""


def wait_policies(points: Iterable[Point]) -> str:
    """Return the settings of how waiting threads wait, with their thread counts; empty where
    nothing was set.
    """
    places: dict[str, list[str]] = {}
    for point in points:
        if point.cell.observed and (policy := point.cell.observed.wait_policy) is not None:
            words = ", ".join(f"{name}={value}" for name, value in policy.items())
            places.setdefault(words, []).append(str(point.at))
    if len(places) == 1:
        return next(iter(places))
    return "; ".join(
        f"at {', '.join(counts)} {words or 'nothing set'}" for words, counts in places.items()
    )


# Findings: which frameworks get worse past the cores and the CPUs of a machine.


def _by_capacity(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Group curves by their machine and its CPU quota."""
    return list(
        grouped(curves, lambda curve: (curve.host.fingerprint, curve.cell.cpu_quota)).values()
    )


def _machine(curve: Curve) -> str:
    return curve.host.name + extra_of_place(curve.cell)


def _past(curve: Curve, past: str) -> list[Contrast]:
    return [found for point in curve.taking_part if (found := point.found[past]) is not None]


def headline(curves: Iterable[Curve]) -> list[str]:
    """Return for each machine on how many rows more threads than cores cost time, and where they
    cost most.

    Under a CPU quota: more threads than CPUs that it gives, in whole ones.
    """
    lines = []
    for here in _by_capacity(filter(computes, curves)):
        host, quota = here[0].host, here[0].cell.cpu_quota
        past = PAST_CPUS if quota else PAST_CORES
        rows = [each for each in here if _past(each, past)]
        worse = [
            (found, each)
            for each in rows
            for found in _past(each, past)
            if found.verdict == "worse"
        ]
        cpus = counted(host.effective_cpus or 0, "CPU")
        head = (
            f"{_machine(here[0])}: more threads than "
            f"{cpus if quota else f'its {host.physical_cores} cores'}"
        )
        if worse:
            most, curve = max(worse, key=lambda pair: pair[0].value)
            hurt = len({curve.cell for _, curve in worse})
            lines.append(
                f"{head} cost time on {hurt} of {len(rows)} rows, most on "
                f"{group_name(curve.cell)}: {name_of(curve)} takes {times(most.ratio)} with "
                f"{most.threads} threads."
            )
        elif rows:
            lines.append(f"{head} cause no significant slowdown on any of {len(rows)} rows.")
    return lines


def findings(curves: Iterable[Curve]) -> list[str]:
    """State, machine by machine, which frameworks get worse past the physical cores, on what, and
    by how much.

    State the same past the effective CPUs, if their number differs and more threads were tried.
    """
    lines = []
    # The scaling of frameworks that compute nothing is made up, so findings leave it out.
    for here in _by_capacity(filter(computes, curves)):
        cores, cpus = here[0].host.physical_cores, here[0].host.effective_cpus
        limits = [
            (cores, PAST_CORES, "physical core"),
            (cpus if cpus != cores else None, PAST_CPUS, "CPU it may use"),
        ]
        for limit, past, each in limits:
            if limit is not None:
                head = f"{_machine(here[0])}: past {limit} threads, one for each {each}"
                lines += _findings(head, here, past, limit)
    return lines


def _findings(head: str, here: Sequence[Curve], past: str, limit: int) -> list[str]:
    compared = [found for each in here for found in _past(each, past)]
    tested = [found for found in compared if found.tested]
    some_only = bool(tested) and len(tested) < len(compared)
    said = [_finding(of_one, past, some_only, limit) for of_one in grouped(here, name_of).values()]
    if not any(said):
        return []
    rule = f"by the ratio of times, untested: fewer than {ENOUGH_LAUNCHES} launches"
    if tested:
        rule = f"Welch's t, Holm-adjusted for {tested[0].family} comparisons, p < {SIGNIFICANCE}"
        rule += (
            f"; untested: by the ratio's interval, fewer than {ENOUGH_LAUNCHES} launches"
            if some_only
            else ""
        )
    return [f"{head} ({rule}),", *(f"  {text}" for text in said if text)]


def _finding(of_one: Sequence[Curve], past: str, some_only: bool, limit: int) -> str:
    """Return on which networks a row gets worse, gains, shows no clear difference, and fails; else
    an empty text.
    """
    groups: dict[str, list[str]] = {"worse": [], "better": [], "no clear difference": []}
    for curve in of_one:
        found = sorted(_past(curve, past), key=lambda one: one.value)
        disturbed = any(point.cell.has(flags.CONTENDED) for point in curve.taking_part)
        network = _workload(curve.cell) + (flags.CONTENDED.symbol if disturbed else "")
        verdicts = {one.verdict: one for one in found}  # the largest of each
        decisive = verdicts.get("worse") or next(
            (one for one in found if one.verdict == "better"), None
        )
        if decisive is not None:
            untested = " (untested)" if some_only and not decisive.tested else ""
            network += f" {_times(decisive.value)} at {decisive.threads}{untested}"
        if found:
            groups["no clear difference" if decisive is None else decisive.verdict].append(network)
    of = sum(map(len, groups.values()))
    heads = {
        f"gets worse on {len(groups['worse'])} of {of} networks: ": groups["worse"],
        "gains on ": groups["better"],
        "shows no clear difference on ": groups["no clear difference"],
        "fails on ": [text for each in of_one if (text := _failed(each, limit))],
    }
    parts = [head + ", ".join(networks) for head, networks in heads.items() if networks]
    return f"{name_of(of_one[0])}: " + "; ".join(parts) if parts else ""


def _failed(curve: Curve, limit: int) -> str:
    """Return the counts beyond the limit at which a network that runs within it fails, and how;
    else an empty text.
    """
    if bound(curve) or not any(point.at <= limit for point in curve.timed):
        return ""
    failed = (point for point in curve.points if point.at > limit and point.cell.status in _FAILED)
    by_status = grouped(failed, lambda point: point.cell.status.value.replace("_", " "))
    said = [
        f"{each} at {' and '.join(str(point.at) for point in of)}" for each, of in by_status.items()
    ]
    return f"{_workload(curve.cell)} ({', '.join(said)})" if said else ""


def _workload(cell: Cell) -> str:
    if cell.batch_size is None:
        return cell.network
    known = FIRST.get(cell.network)
    usual = known is not None and known.batch_size == cell.batch_size
    return cell.network if usual else f"{cell.network} b{cell.batch_size}"


# Tables, JSON and CSV.


_IRRELEVANT = {flags.FEW_LAUNCHES, flags.PARITY_UNCHECKED}
WAIT_LEGEND = (
    "Wait policy: settings that decide whether waiting threads spin or sleep; else the libraries' "
    "defaults."
)
LAWS_LEGEND = (
    "Scaling laws, of p threads on p CPUs: Amdahl S(p) = 1/(s + (1-s)/p); USL (Universal "
    "Scalability Law) C(p) = p/(1 + sigma(p-1) + kappa p(p-1)), fastest at p* = "
    "sqrt((1-sigma)/kappa); T(1) is fitted too; the smaller AICc is taken."
)
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


def _evidence(
    name: str,
    heading: str,
    form: Callable[[float], str],
    of: Callable[[Point], Any] = lambda point: point.cell.observed,
) -> Column[Point]:
    def text(point: Point) -> str:
        value = getattr(of(point), name, None)
        return "" if value is None or not point.cell.shown else form(value)

    return Column("", heading, text)


def _count(point: Point) -> Entry:
    penalty = point.found.get("penalty")
    return Entry(str(point.at), best=penalty is not None and penalty.against == point.at)


def _comparison(name: str) -> Callable[[Point], dict[str, Any] | None]:
    def comparison(point: Point) -> dict[str, Any] | None:
        if (found := point.found.get(name)) is None:
            return None
        tests = {key: getattr(found, key) for key in ("against", "p_value", "p_adjusted")}
        return {
            **vars(found.ratio),
            **tests,
            "comparisons": found.family or None,
            "verdict": found.verdict,
        }

    return comparison


_PAST = ("value", "p_adjusted", "verdict")
_EVIDENCE = (
    "waiting_per_wall",
    "cpu_per_wall",
    "cpu_seconds_per_step",
    "involuntary_switches_per_step",
)
_POINT: tuple[Column[Point], ...] = (
    Column("threads", "p", lambda point: point.at, _count),
    *cell_columns("status", "reason"),
    seconds_column(lambda point: point.cell, _IRRELEVANT),
    Column("used", None, lambda point: point.seconds is not None),
    Column("takes_part", None, lambda point: point.takes_part),
    found_column("speedup", "speed-up", "{:.2f}".format),
    found_column("efficiency", "eff.", "{:.2f}".format),
    found_column("serial_fraction", "serial", "{:.3f}".format),
    *cell_columns("ceiling_fraction"),
    Column(
        "penalty",
        "vs best",
        _comparison("penalty"),
        lambda point: (
            times(point.found["penalty"].ratio) if point.found and point.found["penalty"] else ""
        ),
        (*VALUE, "p_adjusted", "verdict"),
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
    _evidence("throttled_share", "quota", lambda share: f"{share:.0%}" if share > 0.001 else ""),
    _evidence("ceiling_fraction", "ceil", "{:.0%}".format, lambda point: point.cell),
    *cell_columns("flags"),
)
_CURVE: tuple[Column[Curve], ...] = (
    *curve_columns("threads"),
    *attributes(lambda curve: curve.host, "physical_cores", "logical_cpus", "effective_cpus"),
    Column("computes", None, computes),
    *found_columns("best_threads", "default_threads"),
    Column("advice", None, advice),
    Column("mechanism", None, mechanism),
)
_OF_LAW = ("seconds_at_one", "serial", "crosstalk", "fastest_threads")
_LAW: tuple[Column[Curve], ...] = (
    Column(
        "law",
        None,
        lambda curve: curve.found["fits"] and curve.found["fits"].law,
        fields=("law", *(f"{name}.{part}" for name in _OF_LAW for part in VALUE)),
    ),
    Column(
        "laws_rejected", None, lambda curve: curve.found["fits"] and curve.found["fits"].rejections
    ),
)


def threads_page(found: Curves) -> Page:
    """Return a table for each curve with its advice, then the findings."""
    curves = found.curves
    if not curves:
        return Page((NOTHING,), (), found.notes)
    before = []
    for here in _by_capacity(curves):
        host = here[0].host
        counts = {"physical cores": host.physical_cores, "logical CPUs": host.logical_cpus}
        counts["effective CPUs"] = host.effective_cpus
        shown = (
            f"{name} {'unknown' if count is None else count}" for name, count in counts.items()
        )
        before.append(f"{_machine(here[0])}: {', '.join(shown)}.")
    before.append("Effective CPUs: the smaller of affinity mask and quota.")
    said = findings(curves)
    after = (*_legend(curves), *found.notes, *(["", *said] if said else []))
    return Page(tuple(before), tuple(map(_curve_table, curves)), after)


def _legend(curves: Sequence[Curve]) -> list[str]:
    points = [point for curve in curves for point in curve.points]
    raised = {flag.kind for point in points for flag in point.cell.flags}
    headings = dict.fromkeys(column.heading for curve in curves for column in _shown(curve))
    columns = "; ".join(legend for heading in headings if (legend := _LEGENDS.get(heading or "")))
    lines = [
        (
            f"p: threads requested{' (bound: on p CPUs of their own)' * any(map(bound, curves))}; "
            f"{columns}."
        )
    ]
    lines += [f"{WIDENED} Such a count has no p-value."] if flags.FEW_LAUNCHES in raised else []
    known = any(
        point.cell.observed and point.cell.observed.wait_policy is not None for point in points
    )
    lines += [WAIT_LEGEND] if known else []
    fits: list[Fits] = [curve.found["fits"] for curve in curves if curve.found["fits"]]
    lines += [LAWS_LEGEND] if any(each.laws for each in fits) else []
    lines += [
        f"Intervals of the laws: {how}."
        for how in dict.fromkeys(e.intervals for e in fits if e.has_intervals)
    ]
    if untried := [each for each in fits if each.rejected]:
        most = max(len(each.fitted_threads) for each in untried)
        lines.append(
            f"No scaling law fitted to {len(untried)} of {len(curves)} rows: "
            f"{counted(most, 'thread count')} to fit at most, {POINTS_NEEDED} needed (counts past "
            "the effective CPUs do not count)."
        )
    used = [kind for kind in flags.KINDS if kind in raised and kind not in _IRRELEVANT]
    return [*lines, *(f"{kind.symbol} {kind.legend}" for kind in used)]


def _shown(curve: Curve) -> list[Column[Point]]:
    """Return the columns of a curve's table: without those that are empty, or that only rows of the
    other kind have.
    """
    other = "switches" if bound(curve) else "serial"
    return filled((column for column in _POINT if column.heading != other), curve.points)


def _curve_table(curve: Curve) -> Table:
    evidence = {"Why": mechanism(curve), "Wait policy": wait_policies(curve.points)}
    notes = [
        f"{advice(curve)}.",
        _tested(curve),
        *(f"{head}: {text}." for head, text in evidence.items() if text),
    ]
    holes = grouped(
        (point for point in curve.points if not point.cell.shown or point.cell.timed is None),
        _why_hole,
    )
    notes += [f"{_in_words(points)}: {why.rstrip('.')}." for why, points in holes.items()]
    notes += [f"{_in_words([each])}: {_evidence_of(each)}." for each in _unused(curve)]
    return table(
        _shown(curve),
        curve.points,
        f"{group_name(curve.cell)}: {row_name(curve.cell)}{extra_of_place(curve.cell)}, on "
        f"{curve.host.name}",
        notes=(*filter(None, notes), *fit_lines(curve.found["fits"])),
    )


def _why_hole(point: Point) -> str:
    return why_hole(point.cell)


def _evidence_of(point: Point) -> str:
    """Return the evidence for more threads than were asked for."""
    said = [flag.sentence for flag in point.cell.flags if flag.kind is flags.THREADS_EXCEEDED]
    return said[0] if said else flags.THREADS_EXCEEDED.legend


def _tested(curve: Curve) -> str:
    """Return the adjusted p-values of the penalties, one for each thread count tested."""
    found = [point.found["penalty"] for point in curve.timed if point.found["penalty"] is not None]
    penalties = [each for each in found if each.tested]
    if not penalties:
        return ""
    family = penalties[0].family
    over = f"Holm-adjusted over {family} comparisons" if family > 1 else "the only comparison"
    said = ", ".join(f"{each.threads} p {said_probability(each.p_adjusted)}" for each in penalties)
    return f"Against {penalties[0].against} ({over}): {said}."


def fit_lines(fits: Fits | None) -> list[str]:
    """Return the fits of a curve in words, one line for each law tried; empty where none was
    tried.
    """
    if fits is None or not fits.laws:
        return []
    lines = [] if fits.law else ["No scaling law describes this curve:"]
    for fit in sorted(fits.laws, key=lambda fit: fit is not fits.law):
        name = {"amdahl": "Amdahl", "usl": "USL"}[fit.law]
        if fit is fits.law:
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
        beyond = (
            ", beyond what was measured"
            if fit.fastest_threads.value > max(fits.fitted_threads)
            else ""
        )
        words.append(f"p* {_estimate(fit.fastest_threads)}{beyond}")
    return ", ".join(words) + ("" if fits.has_intervals else f" ({fits.intervals})")


def _estimate(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    low, high = number(estimate.low), number(estimate.high)
    return (
        f"{number(estimate.value)} "
        f"({f'{low} up' if math.isinf(estimate.high) else f'{low}-{high}'})"
    )


# The picture.


def drawn_curves(curves: Iterable[Curve]) -> list[Curve]:
    """Return the curves with times at two thread counts or more: others are no line."""
    return [curve for curve in curves if len(curve.timed) > 1]


def _picture(curves: Sequence[Curve]) -> pictures.Picture:
    host, groups = curves[0].host, grouped(curves, lambda curve: group_of(curve.cell))
    names = sorted(set(map(name_of, curves)))
    styles = {name: pictures.style(place, place, place) for place, name in enumerate(names)}
    panels = []
    for group, of_group in groups.items():
        lines = [
            pictures.Line(
                [(count, pictures.ends(seconds)) for count, seconds in curve.times.items()],
                styles[name_of(curve)],
                {
                    "best": []
                    if curve.found["best_threads"] is None
                    else [curve.found["best_threads"]]
                },
            )
            for curve in of_group
        ]
        counts = sorted({count for line in lines for count, _ in line.points})
        alone = [value[0] for line in lines for count, value in line.points if count == 1]
        ideal = [(count, min(alone) / count) for count in (1, counts[-1])] if alone else []
        limit = (
            host.own_cores
            if host.own_cores is not None and counts[0] <= host.own_cores <= counts[-1]
            else None
        )
        panels.append(pictures.Panel(group_name(group), lines, counts, ideal, limit))
    legend = [
        *styles.items(),
        *pictures.marks_of(
            (line for panel in panels for line in panel.lines), best="threads to use"
        ),
        ("T(1)/p of the fastest with one", {"color": pictures.GREY, "linestyle": pictures.DOTTED}),
    ]
    if host.own_cores is not None:
        what = "CPUs of the quota" if curves[0].cell.cpu_quota else "the machine's own cores"
        legend.append((f"{what}: {host.own_cores}", {"color": "black", "linewidth": 0.8}))
    bars = pictures.coverage(point for curve in curves for point in curve.timed)
    across, up = f"threads; bars: {bars} interval of the median", "seconds per mini-batch"
    return pictures.Picture(
        f"Time against threads, on {_machine(curves[0])}", panels, legend, across, up, unit="s"
    )


REPORT = Report(
    name="threads",
    summary="How many threads to give each framework, the cost of using more, and the evidence.",
    examples=(
        "dlbench report threads",
        "dlbench report threads --reference shi2016",
        "dlbench report threads --plot threads.png",
    ),
    analyse=lambda source: threads(source.matrix()),
    page=lambda found, options: threads_page(found),
    data=lambda found: {
        "curves": curve_objects(found.curves, (*_CURVE, *found_columns("fits")), _POINT),
        "findings": findings(found.curves),
        "notes": list(found.notes),
    },
    rows=lambda found: curve_rows(found.curves, (*_CURVE, *_LAW), _POINT),
    draw=lambda found, path, options: pictures.draw(
        map(_picture, _by_capacity(drawn_curves(found.curves))), path
    ),
    drawable=lambda found: bool(drawn_curves(found.curves)),
    suggestion="how many threads to give, and the cost of more",
    applies=lambda cells: differ(
        (each for each in cells if each.on_cpu and each.threads and each.world_size == 1), "threads"
    ),
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Threads: how many to use, and the cost of more",
    place=30,
    headline=lambda found: headline(found.curves),
)
