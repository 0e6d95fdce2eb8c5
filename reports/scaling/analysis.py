"""Scaling over workers: what several that train on parts of one mini-batch together gain over one.

Pure functions. Training is synchronous and data-parallel: each of w workers computes the gradients of its equal part of
the mini-batch, all average them, and each makes the same update; a step lasts until the slowest has. T(w, b) is the
seconds of a step of w workers on a mini-batch of b examples altogether, with all else the same: network, framework and
mode, machine, device, threads of each worker, precision, placement, affinity, and the environment (build).

- Strong scaling (Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
  capabilities"): the same work on more workers. Speed-up S = T(1, b) / T(w, b), efficiency S / w.
- Weak scaling (Gustafson 1988, "Reevaluating Amdahl's law"): the work grows with the workers. Speed-up is that of the
  throughput, (w b / T(w, w b)) / (b / T(1, b)) = w T(1, b) / T(w, w b), efficiency T(1, b) / T(w, w b).
- Against one process: on a CPU as many threads could also work in one process. T'(1, b) / T(w, b), where T' is of one
  worker with w times as many threads: above 1 the workers are faster. This is the fair rival there, since the
  speed-ups above hold more threads against fewer.

Intervals are those of `statistics.ratio`, multiplied by the same constants. A cell that failed parity, used more
threads than asked or was measured with another build is in no ratio; why stands in its place. On the CPU workers with
more threads altogether than the machine has CPUs share these, and then no speed-up can be expected.
"""

from dataclasses import dataclass
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.cells import CellResult, Matrix, Place, group_of, row_of
from dlbench.reports.flags import THREADS_EXCEEDED
from dlbench.reports.statistics import Ratio, ratio
from dlbench.reports.storage.hosts import Host


@dataclass(frozen=True)
class Gain:
    """What several workers gain over one: a speed-up, or the reason why there is none."""

    speedup: Ratio | None
    efficiency: Ratio | None
    """Speed-up / workers."""
    reason: str
    """Empty where there is a speed-up."""
    measured: bool = True
    """Whether there was one worker to be held against."""


@dataclass(frozen=True)
class Point:
    """One cell of a line; a hole has a cell with a status and no seconds."""

    threads: int | None
    """Of each worker; None: the device has none to choose."""
    world_size: int
    batch_size: int
    """Of the whole mini-batch."""
    cell: CellResult
    shares_cpus: bool
    """Whether the workers have more threads altogether than the machine has CPUs."""
    strong: Gain | None
    """Against one worker on the same mini-batch; None for one worker, as the next two."""
    weak: Gain | None
    """Against one worker on a mini-batch of as many examples as each of these gets."""
    one_process: Gain | None
    """Against as many threads in one process, an efficiency is not of it; None too where threads do not compute."""


@dataclass(frozen=True)
class Line:
    """Several workers and what they are held against: one row of the matrix on one network at one place."""

    place: Place
    points: tuple[Point, ...]
    """By threads, mini-batch and workers."""

    @property
    def teams(self) -> tuple[Point, ...]:
        """The points of several workers."""
        return tuple(point for point in self.points if point.world_size > 1)


@dataclass(frozen=True)
class Workers:
    """All lines of a matrix."""

    hosts: dict[str, Host]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


class _At(NamedTuple):
    """Where a cell stands in its line."""

    threads: int | None
    world_size: int
    batch_size: int


def workers(matrix: Matrix) -> Workers:
    """Return a line for each row, network and place that was measured with several workers, in the matrix's order."""
    found: dict[Place, dict[_At, CellResult]] = {}
    for (group, _, column), cell in matrix.cells.items():
        # What the cells of a line have in common: all but threads, workers and mini-batch.
        place = Place(column.machine, axes.without(cell.cell, "threads", "world_size", "batch_size"))
        found.setdefault(place, {})[_At(column.threads, column.world_size, group.batch_size)] = cell
    networks = list(dict.fromkeys(group.network for group in matrix.rows))
    machines = list(matrix.machines)
    devices = list(dict.fromkeys((column.machine, column.device) for column in matrix.columns))

    def order(place: Place) -> tuple[object, ...]:
        where = machines.index(place.machine), devices.index((place.machine, place.device))
        # The precision that parity is proved at comes first.
        in_order = axes.sort_key(group_of(place.cell)), row_of(place.cell)
        return (*where, networks.index(place.cell.network), *in_order)

    lines = (
        _line(place, found[place], matrix.hosts[place.machine])
        for place in sorted(found, key=order)
        if any(at.world_size > 1 for at in found[place])
    )
    return Workers(dict(matrix.hosts), tuple(lines), matrix.notes)


def _line(place: Place, cells: dict[_At, CellResult], host: Host) -> Line:
    teams = [at for at in cells if at.world_size > 1]
    shown = {*teams, *(rival for at in teams for rival in _rivals(at, place.device) if rival in cells)}
    in_order = sorted(shown, key=lambda at: (at.threads or 0, at.batch_size, at.world_size))
    points = (_point(at, cells, place.device, host) for at in in_order)
    return Line(place, tuple(points))


def _rivals(at: _At, device: str) -> list[_At]:
    """Return the single workers that a team is held against: of strong and weak scaling, and in one process."""
    alone = [at._replace(world_size=1), at._replace(batch_size=at.batch_size // at.world_size, world_size=1)]
    if device != "cpu" or not at.threads:
        return alone
    return [*alone, _At(at.threads * at.world_size, 1, at.batch_size)]


def _point(at: _At, cells: dict[_At, CellResult], device: str, host: Host) -> Point:
    cell, workers_here = cells[at], at.world_size
    cpus, threads = host.effective_cpus, (at.threads or 0) * workers_here
    shares = device == "cpu" and workers_here > 1 and cpus is not None and threads > cpus
    if workers_here == 1:
        return Point(*at, cell, shares, None, None, None)
    rivals = _rivals(at, device)
    strong, weak, *rest = (_against(cells.get(rival), cell, rival, device) for rival in rivals)
    return Point(
        *at,
        cell,
        shares,
        _gain(strong, 1.0, workers_here),
        _gain(weak, float(workers_here), workers_here),
        # Both sides have as many threads: nothing to divide by.
        _gain(rest[0], 1.0, None) if rest else None,
    )


def _gain(found: Ratio | Gain, factor: float, workers_here: int | None) -> Gain:
    if isinstance(found, Gain):
        return found
    speedup = found.changed(lambda value: value * factor)
    efficiency = None if workers_here is None else speedup.changed(lambda value: value * (1 / workers_here))
    return Gain(speedup, efficiency, "")


def _against(alone: CellResult | None, team: CellResult, at: _At, device: str) -> Ratio | Gain:
    """Return the seconds of one worker over those of several, or a gain that says why there is no such ratio."""
    if (doubt := _doubt(team)) is not None:
        return Gain(None, None, doubt, alone is not None)
    threads = f" of {at.threads} thread{'s' if at.threads != 1 else ''}" if at.threads and device == "cpu" else ""
    which = f"one worker{threads} at mini-batch {at.batch_size}"
    if alone is None:
        return Gain(None, None, f"{which} was not measured", False)
    if (doubt := _doubt(alone)) is not None:
        return Gain(None, None, f"{which}: {doubt}")
    if alone.environment != team.environment:
        return Gain(None, None, f"{which} was measured with another build")
    assert alone.timed is not None
    assert team.timed is not None
    return ratio(alone.timed, team.timed)


def _doubt(cell: CellResult) -> str | None:
    """Return why a cell is in no ratio; None where it may be."""
    if cell.timed is None:
        wrong = cell.status is Status.OK and cell.seconds is not None
        return cell.reason or ("it computed something else than the reference" if wrong else cell.status.value)
    if cell.has(THREADS_EXCEEDED):
        return "more threads worked than were asked for"
    return None
