"""Times by thread count: the count to use, the cost of every other, and the comparisons behind both.

For every row of a matrix on a CPU: T(p) with its interval, speed-up T(1) / T(p), efficiency, Karp and Flatt's serial
fraction, the best p, and the penalty T(p) / T(best) of every other. Rows bound to p CPUs (or, where a row was not
measured so, its points up to the effective CPUs) get scaling laws; the others get comparisons, adjusted for their
number over the whole report. The comparisons are fixed before the times are seen, so that their number is known. With
the CPUs not bound they are:

- T(p) / T(fastest) at the machine's capacities (physical cores, logical CPUs), at twice those, at `MANY` threads, and
  at every measured p past the physical cores;
- past the physical cores, and past the effective CPUs: T(p) / the fastest within them.

The best p is the smallest that is not clearly slower than the fastest (`statistics.judge`); fewer threads for the same
time leave the rest to others. More threads than effective CPUs are best only where that is clearly faster than any p up
to them. A p whose cell failed parity, or whose framework used more threads than
asked, takes no part; nor does one disturbed by other programs, unless every count up to the effective CPUs was
disturbed: past them a launch's own waiting hides that of others, and such a count must not win by that.

All of it is of one process: cells of several workers are left out (`left_out`), since their threads also wait for the
exchange of gradients, which no law of threads describes; `scaling` reports on them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import BOUND, Cell
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Matrix
from dlbench.reports.curve.curve import along, computes_nothing, usable
from dlbench.reports.curve.fits import Fits, fit_scaling, karp_flatt
from dlbench.reports.naming import row_name
from dlbench.reports.statistics import Contrast, Ratio, Summary, adjust, contrast
from dlbench.reports.storage.hosts import Host

MANY = 32
"""The largest thread count of the 2016 paper's Table 4."""


@dataclass(frozen=True)
class Point:
    """One thread count of a curve; a missing cell has a status and no seconds."""

    threads: int
    cell: CellResult
    seconds: Summary | None
    """None for a missing cell, and for a number that cannot be used."""
    takes_part: bool
    """Whether it counts for best, comparisons, findings and fits: it was undisturbed, or all were disturbed."""
    speedup: float | None = None
    """T(1) / T(p)."""
    serial_fraction: float | None = None
    """Karp and Flatt's, of this speed-up; for p from 2 to the effective CPUs."""
    penalty: Contrast | None = None
    """T(p) / T(best)."""
    past_cores: Contrast | None = None
    """For p beyond the physical cores, CPUs not bound: T(p) / the fastest within them."""
    past_cpus: Contrast | None = None
    """For p beyond the effective CPUs: T(p) / the fastest within them."""

    @property
    def efficiency(self) -> float | None:
        """Speed-up / p."""
        return None if self.speedup is None else self.speedup / self.threads


@dataclass(frozen=True)
class Curve:
    """One row of the matrix over the thread counts of one machine."""

    host: Host
    points: tuple[Point, ...]
    best: int | None
    """The thread count to use; None where nothing was timed."""
    fits: Fits | None
    """Scaling laws; None where the same row bound to its CPUs has them, or nothing was timed."""

    @property
    def group(self) -> Cell:
        """The work."""
        return self.points[0].cell.group

    @property
    def row(self) -> Cell:
        """The framework, its mode, and how its threads are bound."""
        return self.points[0].cell.row

    @property
    def name(self) -> str:
        """The row in words."""
        return row_name(self.row._replace(mode="") if self.row.mode == "2016" else self.row)

    @property
    def cell(self) -> Cell:
        """The axes that the points share: all but their threads."""
        return axes.without(self.points[0].cell.cell, "threads")

    @property
    def bound(self) -> bool:
        """Whether p threads had p CPUs to themselves, rather than all there are."""
        return self.row.affinity == BOUND

    @property
    def computes(self) -> bool:
        """Whether anything was computed: a framework that only waits scales as its author chose."""
        return not any(computes_nothing(point.cell) for point in self.points)

    @property
    def default(self) -> int | None:
        """The framework's own thread count, where its adapter reports it."""
        known = [point.cell.default_threads for point in self.points if point.cell.default_threads is not None]
        return known[-1] if known else None

    @property
    def taking_part(self) -> list[Point]:
        """The points with a time that counts."""
        return [point for point in self.points if point.seconds is not None and point.takes_part]


class Threads(NamedTuple):
    """The thread curves of a matrix."""

    curves: tuple[Curve, ...]
    left_out: tuple[str, ...]
    """A sentence about each kind of CPU cells without a curve, then the matrix's own notes."""


Pair = tuple[int, int]


@dataclass
class _Row:
    """One row before the comparisons of the whole report are adjusted."""

    host: Host
    cells: Sequence[CellResult]
    times: dict[int, Summary]
    calm: dict[int, Summary]
    """Those of `times` that take part."""
    comparisons: dict[Pair, Contrast] = field(default_factory=dict)

    @property
    def bound(self) -> bool:
        return self.cells[0].row.affinity == BOUND

    @property
    def unbound(self) -> tuple[object, ...]:
        """Key of the row whatever its affinity."""
        cell = self.cells[0]
        return cell.column.machine, axes.without(cell.cell, "threads", "affinity")

    def compare(self, threads: int, against: int) -> Contrast:
        """Compare two counts by the whole report's tests, else by the ratio's interval."""
        if (threads, against) in self.comparisons:
            return self.comparisons[threads, against]
        if (against, threads) in self.comparisons:
            return self.comparisons[against, threads].swapped
        return contrast(threads, against, self.times[threads], self.calm[against], test=False)


def threads(matrix: Matrix) -> Threads:
    """Return the analysis of a matrix."""
    return Threads(tuple(curves(matrix)), (*left_out(matrix), *matrix.notes))


def curves(matrix: Matrix) -> list[Curve]:
    """Return the curve of every row with a CPU cell, machine by machine in the matrix's order."""
    on_cpu = [cell for at, cell in matrix.cells.items() if at.on_cpu and at.threads and at.world_size == 1]
    of_rows = along(sorted(on_cpu, key=lambda cell: matrix.machines.index(cell.column.machine)), "threads")
    rows = [_row(matrix.hosts[place.machine], cells) for place, cells in of_rows.items()]
    # Comparisons of frameworks that compute nothing are a family of their own: made-up times must not cost real ones
    # their significance.
    for made_up in (False, True):
        family = [row for row in rows if any(map(computes_nothing, row.cells)) == made_up]
        adjusted = iter(adjust([each for row in family for each in row.comparisons.values()]))
        for row in family:
            row.comparisons = {pair: next(adjusted) for pair in row.comparisons}
    bound = {row.unbound for row in rows if row.bound and row.times}
    return [_curve(row, fitted=row.bound or row.unbound not in bound) for row in rows]


def left_out(matrix: Matrix) -> list[str]:
    """Return a sentence about the CPU cells without a curve; empty where there are none."""
    on_cpu = [place for place in matrix.cells if place.on_cpu]
    workers = sum(column.world_size > 1 for column in on_cpu)
    unknown = sum(column.world_size == 1 and not column.threads for column in on_cpu)
    lines = []
    if workers:
        lines.append(
            f"Not shown: {workers} cell{'s' if workers != 1 else ''} of several workers, which threads alone do not "
            "explain; `dlbench report scaling` shows them."
        )
    if unknown:
        lines.append(f"Not shown: {unknown} cell{'s' if unknown != 1 else ''} with an unknown thread count.")
    return lines


def best_threads(
    times: Mapping[int, Summary], cpus: int | None = None, compare: Callable[[int, int], Contrast] | None = None
) -> int | None:
    """Return the smallest thread count that is not clearly slower than the fastest; None where there is none.

    More threads than ``cpus`` are returned only where they are clearly faster than the fastest count up to it.
    ``compare`` compares two counts, by the interval of their ratio unless given.
    """
    if not times:
        return None
    hold = compare or (lambda p, q: contrast(p, q, times[p], times[q], test=False))
    fastest = _fastest(times)
    within = fastest_within(times, cpus)

    def will_do(count: int) -> bool:
        if count == fastest:
            return True
        shares_cpus = cpus is not None and within is not None and count > cpus
        if shares_cpus and hold(count, within or 0).verdict != "better":
            return False
        return hold(count, fastest).verdict != "worse"

    return min(filter(will_do, times))


def named_counts(host: Host) -> frozenset[int]:
    """Return the thread counts whose penalty is always tested."""
    known = [count for count in (host.physical_cores, host.logical_cpus) if count is not None]
    return frozenset([*known, *(2 * count for count in known), MANY])


def fastest_within(times: Mapping[int, Summary], limit: int | None) -> int | None:
    """Return the fastest thread count up to a limit; None where there is none."""
    within = {p: timed for p, timed in times.items() if limit is not None and p <= limit}
    return _fastest(within) if within else None


def _fastest(times: Mapping[int, Summary]) -> int:
    return min(times, key=lambda count: (times[count].median, count))


def _row(host: Host, cells: Sequence[CellResult]) -> _Row:
    times = {cell.column.threads or 0: timed for cell in cells if (timed := usable(cell)) is not None}
    row = _Row(host, cells, times, _undisturbed(times, cells, host.effective_cpus))
    if row.calm and not row.bound:
        row.comparisons = {(p, q): contrast(p, q, times[p], times[q]) for p, q in sorted(_pairs(row.calm, host))}
    return row


def _pairs(times: Mapping[int, Summary], host: Host) -> set[Pair]:
    """Return the counts to be compared, each pair once."""
    cores, fastest = host.physical_cores, _fastest(times)
    found = set()
    for limit in (cores, host.effective_cpus):
        within = fastest_within(times, limit)
        if within is not None and limit is not None:
            found |= {(p, within) for p in times if p > limit}
    wanted = named_counts(host) | {p for p in times if cores is not None and p > cores}
    return found | {(p, fastest) for p in times if p in wanted and p != fastest and (fastest, p) not in found}


def _undisturbed(times: dict[int, Summary], cells: Iterable[CellResult], limit: int | None) -> dict[int, Summary]:
    """Return the times without disturbance; all where every count that can show it was disturbed."""
    disturbed = {cell.column.threads for cell in cells if cell.has(flags.CONTENDED)}
    showing = [count for count in times if limit is None or count <= limit] or list(times)
    if all(count in disturbed for count in showing):
        return times
    return {count: timed for count, timed in times.items() if count not in disturbed}


def _curve(row: _Row, fitted: bool) -> Curve:
    best = best_threads(row.calm, None if row.bound else row.host.effective_cpus, row.compare)
    points = tuple(_point(cell, row, best) for cell in sorted(row.cells, key=lambda cell: cell.column.threads or 0))
    fits = None
    if fitted and row.times:
        limit = None if row.bound else row.host.effective_cpus
        fits = fit_scaling({p: timed for p, timed in row.calm.items() if limit is None or p <= limit})
    return Curve(row.host, points, best, fits)


def _point(cell: CellResult, row: _Row, best: int | None) -> Point:
    count, host = cell.column.threads or 0, row.host
    seconds, takes_part = row.times.get(count), count in row.calm
    if seconds is None or best is None:
        return Point(count, cell, None, takes_part)

    def past(limit: int | None) -> Contrast | None:
        beyond = limit is not None and count > limit and not row.bound
        within = fastest_within(row.calm, limit) if beyond else None
        return None if within is None else row.compare(count, within)

    alone = row.times.get(1)
    speedup = alone.median / seconds.median if alone is not None else None
    within = host.effective_cpus is None or count <= host.effective_cpus
    return Point(
        count,
        cell,
        seconds,
        takes_part,
        speedup,
        karp_flatt(speedup, count) if speedup is not None and within else None,
        Contrast(count, count, Ratio(1.0, None, None, "itself")) if count == best else row.compare(count, best),
        past(host.physical_cores),
        past(host.effective_cpus),
    )
