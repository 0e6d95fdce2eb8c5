"""The oversubscription analysis: what each thread count costs, which one to use, and why more of them hurt.

For every row of a matrix on a CPU: T(p) with its interval, speed-up T(1) / T(p), efficiency, Karp and Flatt's serial
fraction, the best p, and the penalty T(p) / T(best) of every other. Rows bound to p CPUs (or, where a row was not
measured so, its points up to the effective CPUs) get scaling laws; the others get comparisons, adjusted for their
number over the whole report.

The best p is the smallest that is not clearly slower than the fastest (`contrasts.judge`); fewer threads for the same
time leave the rest to others. More threads than effective CPUs are best only where that is clearly faster than any p up
to them. A p whose cell failed parity, or whose framework used more threads than
asked, takes no part; nor does one where others were in the way, unless they were at every count up to the effective
CPUs: past them nobody can tell others' waiting from a launch's own, and what is not seen there must not win by that.

All of it is of one process: cells of several workers are left out (`left_out`), since their threads also wait for the
exchange of gradients, which no law of threads describes. `workers` is their report.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlbench.adapters import axes
from dlbench.adapters.protocol import BOUND
from dlbench.reports.cells import CellResult, Matrix
from dlbench.reports.flags import CONTENDED, THREADS_EXCEEDED
from dlbench.reports.statistics import Contrast, Ratio, Summary, adjust, contrast
from dlbench.reports.storage.hosts import Host
from dlbench.reports.threads.advice import advice
from dlbench.reports.threads.curve import Curve, Point, computes_nothing
from dlbench.reports.threads.fits import Fits, fit_scaling, karp_flatt
from dlbench.reports.threads.oversubscription import fastest_within, mechanism, penalties


@dataclass(frozen=True)
class _Draft:
    """A curve before the comparisons of the whole report are known."""

    host: Host
    cells: tuple[CellResult, ...]
    times: dict[int, Summary]
    """Those that can be used."""
    calm: dict[int, Summary]
    """Of them those that take part: see `_undisturbed`."""
    fastest: int | None
    comparisons: Mapping[tuple[int, int], Contrast]

    @property
    def bound(self) -> bool:
        return self.cells[0].row.affinity == BOUND

    @property
    def cpus(self) -> int | None:
        """More threads than this share CPUs; None where each has its own."""
        return None if self.bound else self.host.effective_cpus

    def compare(self, threads: int, against: int) -> Contrast:
        """Hold two counts against one another: as the whole report's tests tell it, else by the ratio's interval."""
        if (threads, against) in self.comparisons:
            return self.comparisons[threads, against]
        if (against, threads) in self.comparisons:
            return self.comparisons[against, threads].swapped
        return contrast(threads, against, self.times[threads], self.calm[against], test=False)


@dataclass(frozen=True)
class Threads:
    """All of a matrix that tells about threads."""

    curves: tuple[Curve, ...]
    left_out: tuple[str, ...]
    """A sentence about each kind of CPU cells that no curve is made of, then the matrix's own notes."""


def threads(matrix: Matrix) -> Threads:
    """Return the analysis of a matrix."""
    return Threads(tuple(curves(matrix)), (*left_out(matrix), *matrix.notes))


def curves(matrix: Matrix) -> list[Curve]:
    """Return the curve of every row with a CPU cell, machine by machine in the matrix's order."""
    drafts = []
    for machine in matrix.machines:
        columns = [c for c in matrix.columns_of(machine) if c.on_cpu and c.threads and c.world_size == 1]
        kinds = dict.fromkeys(axes.without(column.cell, "threads") for column in columns)
        for group, row, kind in (
            (group, row, kind) for group, rows in matrix.rows.items() for row in rows for kind in kinds
        ):
            of_kind = (column for column in columns if axes.without(column.cell, "threads") == kind)
            found = (matrix.cells.get((group, row, column)) for column in of_kind)
            if cells := tuple(cell for cell in found if cell is not None):
                drafts.append(_draft(matrix.hosts[machine], cells))
    bound = {_row_unbound(draft) for draft in drafts if draft.bound and draft.times}
    return [
        _finish(replace(draft, comparisons=comparisons), not draft.bound and _row_unbound(draft) in bound)
        for draft, comparisons in zip(drafts, _adjusted(drafts), strict=True)
    ]


def left_out(matrix: Matrix) -> list[str]:
    """Return a sentence about the CPU cells that no curve is made of; empty where there are none."""
    on_cpu = [column for _, _, column in matrix.cells if column.device == "cpu"]
    workers = sum(column.world_size > 1 for column in on_cpu)
    unknown = sum(column.world_size == 1 and not column.threads for column in on_cpu)
    lines = []
    if workers:
        lines.append(
            f"Not shown: {workers} cell{'s' if workers != 1 else ''} of several workers, which threads alone do not "
            "explain; `dlbench report scaling` shows them."
        )
    if unknown:
        lines.append(f"Not shown: {unknown} cell{'s' if unknown != 1 else ''} of which no thread count is known.")
    return lines


def best_threads(
    times: Mapping[int, Summary], cpus: int | None = None, compare: Callable[[int, int], Contrast] | None = None
) -> int | None:
    """Return the smallest thread count that is not clearly slower than the fastest; None where there is none.

    More threads than ``cpus`` are returned only where they are clearly faster than the fastest count up to it.
    ``compare`` holds two counts against one another, by the interval of their ratio unless given.
    """
    if not times:
        return None
    hold = compare or (lambda p, q: contrast(p, q, times[p], times[q], test=False))
    fastest = _fastest(times)
    within = fastest_within(times, cpus)

    def will_do(threads: int) -> bool:
        if threads == fastest:
            return True
        shares_for_nothing = (
            cpus is not None and within is not None and threads > cpus and hold(threads, within).verdict != "better"
        )
        return not shares_for_nothing and hold(threads, fastest).verdict != "worse"

    return min(filter(will_do, times))


def _fastest(times: Mapping[int, Summary]) -> int:
    return min(times, key=lambda threads: (times[threads].median, threads))


def _draft(host: Host, cells: tuple[CellResult, ...]) -> _Draft:
    usable = [(cell, cell.timed) for cell in cells if not cell.has(THREADS_EXCEEDED)]
    times = {cell.column.threads or 0: timed for cell, timed in usable if timed is not None}
    calm = _undisturbed(times, cells, host)
    fastest = _fastest(calm) if calm else None
    bound = cells[0].row.affinity == BOUND
    found = {} if fastest is None or bound else penalties(calm, fastest, host)
    return _Draft(host, cells, times, calm, fastest, found)


def _undisturbed(times: dict[int, Summary], cells: Iterable[CellResult], host: Host) -> dict[int, Summary]:
    """Return the times where nobody was in the way; all where somebody was wherever that can be told."""
    disturbed = {cell.column.threads for cell in cells if cell.has(CONTENDED)}
    limit = host.effective_cpus
    telling = [threads for threads in times if limit is None or threads <= limit] or list(times)
    if all(threads in disturbed for threads in telling):
        return times
    return {threads: timed for threads, timed in times.items() if threads not in disturbed}


def _row_unbound(draft: _Draft) -> tuple[object, ...]:
    cell = draft.cells[0]
    return cell.column.machine, axes.without(cell.cell, "threads", "affinity")


def _adjusted(drafts: Sequence[_Draft]) -> list[dict[tuple[int, int], Contrast]]:
    """Return each draft's comparisons, adjusted for the number of all.

    Those of frameworks that compute nothing are a family of their own: made-up times must not cost real ones their
    significance.
    """
    found: list[dict[tuple[int, int], Contrast]] = [{} for _ in drafts]
    for made_up in (False, True):
        keys = [
            (place, pair)
            for place, draft in enumerate(drafts)
            if any(computes_nothing(cell) for cell in draft.cells) == made_up
            for pair in draft.comparisons
        ]
        family = adjust([drafts[place].comparisons[pair] for place, pair in keys])
        for (place, pair), comparison in zip(keys, family, strict=True):
            found[place][pair] = comparison
    return found


def _finish(draft: _Draft, fitted_bound: bool) -> Curve:
    best = best_threads(draft.calm, draft.cpus, draft.compare)
    points = tuple(_point(cell, draft, best) for cell in draft.cells)
    first = draft.cells[0]
    known = [cell.default_threads for cell in draft.cells if cell.default_threads is not None]
    default = known[-1] if known else None
    return Curve(
        draft.host,
        first.group,
        first.row,
        points,
        best,
        default,
        None if fitted_bound or not draft.times else _fits(draft),
        mechanism(points, best),
        advice(points, best, default),
    )


def _fits(draft: _Draft) -> Fits:
    """Fit the laws to p threads on p CPUs: all points of a bound row, else those up to the effective CPUs."""
    limit = None if draft.bound else draft.host.effective_cpus
    return fit_scaling({p: timed for p, timed in draft.calm.items() if limit is None or p <= limit})


def _point(cell: CellResult, draft: _Draft, best: int | None) -> Point:
    threads, host = cell.column.threads or 0, draft.host
    seconds = draft.times.get(threads)
    calm = threads in draft.calm
    if seconds is None or best is None:
        return Point(threads, cell, None, calm, None, None, None, None, None, None)

    def past(limit: int | None) -> Contrast | None:
        beyond = limit is not None and threads > limit and not draft.bound
        within = fastest_within(draft.calm, limit) if beyond else None
        return None if within is None else draft.compare(threads, within)

    itself = Contrast(threads, threads, Ratio(1.0, None, None, "itself"))
    alone = draft.times.get(1)
    speedup = alone.median / seconds.median if alone is not None else None
    within = host.effective_cpus is None or threads <= host.effective_cpus
    return Point(
        threads,
        cell,
        seconds,
        calm,
        speedup,
        None if speedup is None else speedup / threads,
        karp_flatt(speedup, threads) if speedup is not None and within else None,
        itself if threads == best else draft.compare(threads, best),
        past(host.physical_cores),
        past(host.effective_cpus),
    )
