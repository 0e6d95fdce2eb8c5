"""The oversubscription analysis: what each thread count costs, which one to use, and why more of them hurt.

For every row of a matrix on a CPU: T(p) with its interval, speed-up T(1) / T(p), efficiency speed-up / p, the best p,
and the penalty T(p) / T(best) of every other.

The best p is the smallest whose time cannot be told from the fastest (`statistics.indistinguishable`). Fewer threads
for the same time leave the rest to others. A p whose cell failed parity, or whose framework used more threads than
asked, takes no part.

Past the physical cores (and past the effective CPUs) each p is held against the fastest p within them; it is called
worse when the ratio's interval lies above 1 and the ratio exceeds `WORSE`, or, without intervals, by the ratio alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlbench.adapters.networks import NETWORKS
from dlbench.reports import evidence
from dlbench.reports.hosts import Host
from dlbench.reports.matrix import Group, Matrix, MatrixCell, Row
from dlbench.reports.statistics import INDISTINGUISHABLE, Ratio, Summary, indistinguishable, ratio

WORSE = 1.02
# A cause is named when, against the best p, this share more of the threads waits, a step costs so many times the CPU
# seconds, or is switched so many times as often.
MORE_WAITING = 0.1
MORE_CPU = 1.2
MORE_SWITCHES = 10.0


@dataclass(frozen=True)
class Point:
    """One thread count of a curve; a hole has a cell with a status and no seconds."""

    threads: int
    cell: MatrixCell
    seconds: Summary | None
    """None for a hole, and for a number that cannot be used."""
    speedup: float | None
    """T(1) / T(p)."""
    efficiency: float | None
    """Speed-up / p."""
    penalty: Ratio | None
    """T(p) / T(best)."""
    past_cores: Ratio | None
    """For p beyond the physical cores: T(p) / the fastest within them."""
    past_cpus: Ratio | None
    """For p beyond the effective CPUs: T(p) / the fastest within them."""


@dataclass(frozen=True)
class Curve:
    """How one row of the matrix goes with the number of threads on one machine."""

    host: Host
    group: Group
    row: Row
    points: tuple[Point, ...]
    best: int | None
    """The thread count to use; None where nothing was timed."""
    default: int | None
    """The framework's own thread count where nobody sets one; None where it is not known."""
    mechanism: str
    """Why the slowest point past the best is slower, as far as the evidence tells; may be empty."""
    advice: str
    """One plain sentence."""

    @property
    def name(self) -> str:
        """The row in words."""
        plain = self.row.mode in ("", "2016", self.row.framework)
        return self.row.framework if plain else f"{self.row.framework} {self.row.mode}"


def curves(matrix: Matrix) -> list[Curve]:
    """Return the curve of every row with a CPU cell, machine by machine in the matrix's order."""
    found = []
    for machine in matrix.machines:
        columns = [c for c in matrix.columns_of(machine) if c.device == "cpu" and c.threads is not None]
        for group, rows in matrix.rows.items():
            for row in rows:
                places = [(group, row, column) for column in columns]
                cells = [matrix.cells[place] for place in places if place in matrix.cells]
                if cells:
                    found.append(curve(matrix.hosts[machine], cells))
    return found


def curve(host: Host, cells: Sequence[MatrixCell]) -> Curve:
    """Return the curve of these cells of one row, group and machine, one for each thread count."""
    usable = {
        cell.column.threads or 0: cell.timed
        for cell in cells
        if cell.timed is not None and not cell.has(evidence.THREADS_EXCEEDED)
    }
    best = best_threads(usable)
    points = tuple(_point(cell, usable, best, host) for cell in cells)
    first = cells[0]
    default = _default(cells)
    mechanism = _mechanism(points, best)
    advice = _advice(points, best, default)
    return Curve(host, first.group, first.row, points, best, default, mechanism, advice)


def best_threads(times: dict[int, Summary]) -> int | None:
    """Return the smallest thread count whose time cannot be told from the fastest; None where there is none."""
    if not times:
        return None
    fastest = min(times.values(), key=lambda summary: summary.median)
    return min(threads for threads, summary in times.items() if indistinguishable(ratio(summary, fastest)))


def is_worse(found: Ratio | None) -> bool:
    """Tell whether a ratio of times is a slowdown that can be told from noise."""
    return found is not None and found.value > WORSE and (found.low is None or found.low > 1.0)


def _point(cell: MatrixCell, times: dict[int, Summary], best: int | None, host: Host) -> Point:
    threads = cell.column.threads or 0
    seconds = times.get(threads)
    if seconds is None or best is None:
        return Point(threads, cell, None, None, None, None, None, None)
    alone = times.get(1)
    speedup = alone.median / seconds.median if alone is not None else None
    return Point(
        threads,
        cell,
        seconds,
        speedup,
        None if speedup is None else speedup / threads,
        Ratio(1.0, None, None, "itself") if threads == best else ratio(seconds, times[best]),
        _past(threads, times, host.physical_cores),
        _past(threads, times, host.effective_cpus),
    )


def _past(threads: int, times: dict[int, Summary], limit: int | None) -> Ratio | None:
    if limit is None or threads <= limit:
        return None
    within = [summary for count, summary in times.items() if count <= limit]
    return ratio(times[threads], min(within, key=lambda summary: summary.median)) if within else None


def _default(cells: Iterable[MatrixCell]) -> int | None:
    known = [cell.default_threads for cell in cells if cell.default_threads is not None]
    return known[-1] if known else None


def _mechanism(points: Sequence[Point], best: int | None) -> str:
    """Compare the slowest point beyond the best with the best."""
    beyond = [p for p in points if best is not None and p.threads > best and is_worse(p.penalty)]
    start = next((p for p in points if p.threads == best), None)
    if not beyond or start is None:
        return ""
    worst = max(beyond, key=lambda p: p.penalty.value if p.penalty else 0.0)
    before, after = start.cell.observed, worst.cell.observed
    disturbed = start.cell.has(evidence.CONTENDED) or worst.cell.has(evidence.CONTENDED)
    if before is None or after is None or disturbed:
        return ""
    causes = []
    throttled = (after.throttled_share or 0.0) - (before.throttled_share or 0.0)
    if throttled > evidence.THROTTLED_SHARE:
        causes.append(f"the CPU quota throttles it {after.throttled_share:.0%} of the time")
    waiting = (after.waiting_per_wall or 0.0) - (before.waiting_per_wall or 0.0)
    if waiting > MORE_WAITING * worst.threads:
        causes.append(f"{after.waiting_per_wall:.1f} of {worst.threads} threads wait for a CPU at any moment")
    more = after.cpu_seconds_per_step / before.cpu_seconds_per_step if before.cpu_seconds_per_step > 0 else 1.0
    if more > MORE_CPU:
        causes.append(f"a step costs {more:.1f}x the CPU seconds (spinning, synchronising, cold caches)")
    switches = after.involuntary_switches_per_step
    if switches is not None and switches > MORE_SWITCHES * max(1.0, before.involuntary_switches_per_step or 0.0):
        causes.append(f"{switches:.0f} involuntary switches a step")
    return f"at {worst.threads} threads " + "; ".join(causes) if causes else ""


def _advice(points: Sequence[Point], best: int | None, default: int | None) -> str:
    if best is None:
        return "nothing was timed"
    words = [f"use {best} thread{'s' if best != 1 else ''}"]
    others = [
        (p.threads, p.penalty.value)
        for p in points
        if p.threads != best and p.penalty is not None and (p.threads > best or p.threads == 1)
    ]
    if others:
        words.append(", ".join(_cost(threads, value) for threads, value in others))
    elif len([p for p in points if p.seconds]) == 1:
        words = [f"only {best} thread{'s' if best != 1 else ''} timed: nothing to compare"]
    unsure = [str(p.threads) for p in points if p.threads in dict(others) and _may_be_noise(p.penalty)]
    if unsure:
        words.append(f"noise may explain the cost of {' and '.join(unsure)}")
    disturbed = [str(p.threads) for p in points if p.seconds is not None and p.cell.has(evidence.CONTENDED)]
    if disturbed:
        words.append(f"others were in the way at {', '.join(disturbed)}: measure again on a quiet machine")
    if default is not None:
        words.append(f"the framework's default is {default}")
    return "; ".join(words)


def _may_be_noise(found: Ratio | None) -> bool:
    return found is not None and found.value > INDISTINGUISHABLE and found.low is not None and found.low <= 1.0


def _workload(group: Group) -> str:
    known = NETWORKS.get(group.network)
    usual = known is not None and known.batch_size == group.batch_size
    return group.network if usual else f"{group.network} b{group.batch_size}"


def _cost(threads: int, value: float) -> str:
    verb = "costs" if threads == 1 else "cost"
    if 1 / INDISTINGUISHABLE <= value <= INDISTINGUISHABLE:
        return f"{threads} {verb} the same"
    return f"{threads} {verb} {_times(value)}"


def _times(value: float) -> str:
    return f"{value:.2f}x" if value < 1.995 else f"{value:.1f}x"


def findings(curves_found: Sequence[Curve]) -> list[str]:
    """State, machine by machine, which frameworks get worse past the physical cores, on what, and by how much.

    And again past the effective CPUs, where these are more than the physical cores and more threads were tried.
    """
    lines = []
    for fingerprint in dict.fromkeys(each.host.fingerprint for each in curves_found):
        here = [each for each in curves_found if each.host.fingerprint == fingerprint]
        host = here[0].host
        if host.physical_cores is not None:
            said = _findings(here, lambda point: point.past_cores)
            if said:
                lines += [f"{host.name}: past {host.physical_cores} threads, one for each physical core,", *said]
        if host.effective_cpus is not None and host.effective_cpus != host.physical_cores:
            said = _findings(here, lambda point: point.past_cpus)
            if said:
                lines += [f"{host.name}: past {host.effective_cpus} threads, one for each CPU it may use,", *said]
    return lines


def _findings(here: Sequence[Curve], past: Callable[[Point], Ratio | None]) -> list[str]:
    names = list(dict.fromkeys(each.name for each in here))
    said = [_finding([each for each in here if each.name == name], past) for name in names]
    return [f"  {text}" for text in said if text]


def _finding(of_one: Sequence[Curve], ratio_past: Callable[[Point], Ratio | None]) -> str:
    worse, same, better, beyond = [], [], [], 0
    for each in of_one:
        past = [(point, found) for point in each.points if (found := ratio_past(point)) is not None]
        beyond += bool(past)
        network = _workload(each.group)
        bad = [(p, r) for p, r in past if is_worse(r)]
        if bad:
            point, found = max(bad, key=lambda pair: pair[1].value)
            worse.append(f"{network} {_times(found.value)} at {point.threads}")
        elif any(r.value < 1 / WORSE and (r.high is None or r.high < 1.0) for _, r in past):
            point, found = min(past, key=lambda pair: pair[1].value)
            better.append(f"{network} {_times(found.value)} at {point.threads}")
        elif past:
            same.append(network)
    if not beyond:
        return ""
    parts = []
    if worse:
        parts.append(f"gets worse on {len(worse)} of {beyond} networks: " + ", ".join(worse))
    if better:
        parts.append("gains on " + ", ".join(better))
    if same:
        parts.append("shows no clear difference on " + ", ".join(same))
    return f"{of_one[0].name}: " + "; ".join(parts)
