"""Progress of the software on one machine: the same network, the frameworks from oldest to newest.

Pure functions. The same machine measured all of them, so its hardware is not in the ratio; what is in it is what each
release's authors and the authors of its libraries made of this machine, old ones of one they never saw. Order is by
the release date of the version that was measured. A framework stands with its fastest mode, unless all are asked for.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from dlbench.adapters import axes
from dlbench.adapters.protocol import INSTALLED, TUNED
from dlbench.reports.cells import Build, Builds, CellResult, Group, Matrix, Place, fastest_mode
from dlbench.reports.flags import CONTENDED
from dlbench.reports.statistics import Ratio, mean_of_pairs, ratio
from dlbench.reports.storage.hosts import Host
from dlbench.reports.threads.curve import computes_nothing

_NOT_OF_A_PLACE = ("framework", "mode", *(axis.name for axis in axes.of_role(axes.GROUP)))
"""What may differ between numbers that are compared, and what they are of."""


@dataclass(frozen=True)
class Standing:
    """One framework, or one mode of it, among the others."""

    cell: CellResult
    build: Build
    oldest: bool
    """Whether the others are held against it."""
    speedup: Ratio | None
    """Seconds of the oldest over its own; None for a hole, for the oldest itself, and where nothing is computed."""
    modes: int
    """Modes of the framework measured at this place, of which it is the fastest unless all are shown."""


@dataclass(frozen=True)
class Ranking:
    """The frameworks on one network at one place, the oldest first, those without a date last."""

    group: Group
    place: Place
    standings: tuple[Standing, ...]


@dataclass(frozen=True)
class Overall:
    """The newest over the oldest of those frameworks that have a number for every network at a place."""

    place: Place
    groups: tuple[Group, ...]
    """Those that two dated builds have a number for."""
    oldest: tuple[str, Build] | None
    """Row name and build; None where fewer than two dated builds have them all."""
    newest: tuple[str, Build] | None
    speedup: Ratio | None
    """Geometric mean over the networks."""
    disturbed: tuple[Group, ...] = ()
    """Those of them where other programs disturbed one of the two."""


@dataclass(frozen=True)
class Progress:
    """All rankings of a matrix."""

    hosts: dict[str, Host]
    rankings: tuple[Ranking, ...]
    overall: tuple[Overall, ...]
    all_modes: bool
    notes: tuple[str, ...]


def progress(matrix: Matrix, builds: Builds, all_modes: bool = False) -> Progress:
    """Return the frameworks of a matrix from oldest to newest, by network and place."""
    found: dict[tuple[Place, Group], list[CellResult]] = {}
    for (group, _, column), cell in matrix.cells.items():
        place = Place(column.machine, axes.without(cell.cell, *_NOT_OF_A_PLACE))
        found.setdefault((place, group), []).append(cell)
    for (place, group), cells in list(found.items()):
        if place.cell.tuning == INSTALLED:
            tuned = place._replace(cell=place.cell._replace(tuning=TUNED)), group
            there = found.get(tuned, [])
            cells += (both := [cell for cell in there if builds.is_as_installed_too(cell)])
            if both and len(both) == len(there):
                del found[tuned]  # nothing in it is tuned
    machines, groups = list(matrix.machines), list(matrix.rows)
    order = sorted(found, key=lambda key: (machines.index(key[0].machine), groups.index(key[1]), _rank(key[0])))
    rankings = tuple(_ranking(group, place, found[place, group], builds, all_modes) for place, group in order)
    places = sorted({place for place, _ in found}, key=lambda place: (machines.index(place.machine), _rank(place)))
    best = {key: _best(cells) for key, cells in found.items()}
    overall = tuple(_overall(place, {g: best[p, g] for p, g in order if p == place}, builds) for place in places)
    return Progress(dict(matrix.hosts), rankings, overall, all_modes, matrix.notes)


def _rank(place: Place) -> tuple[object, ...]:
    return not place.on_cpu, place.device, axes.sort_key(axes.without(place.cell, "threads")), place.threads or 0


def _best(cells: Iterable[CellResult]) -> dict[str, CellResult]:
    """Return the cell of each framework's fastest mode, by the row's name."""
    by_name: dict[str, list[CellResult]] = {}
    for cell in cells:
        by_name.setdefault(cell.row.framework, []).append(cell)
    return {name: fastest_mode(modes) for name, modes in by_name.items()}


def _ranking(group: Group, place: Place, cells: Sequence[CellResult], builds: Builds, all_modes: bool) -> Ranking:
    best = _best(cells)
    shown = sorted(cells if all_modes else best.values(), key=lambda cell: _age(builds.of(cell), cell))
    candidates = [cell for cell in best.values() if _counts(cell) and builds.of(cell).released is not None]
    oldest = min(candidates, key=lambda cell: _age(builds.of(cell), cell), default=None)
    modes = {name: sum(cell.row.framework == name for cell in cells) for name in best}
    standings = (
        Standing(cell, builds.of(cell), cell is oldest, _speedup(oldest, cell), modes[cell.row.framework])
        for cell in shown
    )
    return Ranking(group, place, tuple(standings))


def _age(build: Build, cell: CellResult) -> tuple[bool, date, str, str]:
    return build.released is None, build.released or date.max, cell.row.framework, cell.row.mode


def _counts(cell: CellResult) -> bool:
    return cell.timed is not None and not computes_nothing(cell)


def _speedup(oldest: CellResult | None, cell: CellResult) -> Ratio | None:
    """Return how many times faster a cell is than the oldest one; None where that cannot be said."""
    if oldest is None or oldest.timed is None or cell.timed is None or cell is oldest or not _counts(cell):
        return None
    return ratio(oldest.timed, cell.timed)


def _overall(place: Place, best: dict[Group, dict[str, CellResult]], builds: Builds) -> Overall:
    """Compare the newest with the oldest build that has a number in every group that two of them have at all."""
    by_build: dict[tuple[str, Build], dict[Group, CellResult]] = {}
    for group, cells in best.items():
        for name, cell in cells.items():
            if _counts(cell) and builds.of(cell).released is not None:
                by_build.setdefault((name, builds.of(cell)), {})[group] = cell
    groups = tuple(group for group in best if sum(group in cells for cells in by_build.values()) > 1)
    whole = (key for key, cells in by_build.items() if groups and all(group in cells for group in groups))
    dated = [(build.released, name, build) for name, build in whole if build.released is not None]
    complete = sorted(dated, key=lambda each: each[:2])
    if len(complete) < 2 or complete[0][0] == complete[-1][0]:
        return Overall(place, groups, None, None, None)
    oldest, newest = complete[0][1:], complete[-1][1:]
    of_both = {group: (by_build[oldest][group], by_build[newest][group]) for group in groups}
    pairs = [(old.timed, new.timed) for old, new in of_both.values() if old.timed is not None and new.timed is not None]
    disturbed = tuple(group for group, both in of_both.items() if any(c.has(CONTENDED) for c in both))
    return Overall(place, groups, oldest, newest, mean_of_pairs(pairs), disturbed)
