"""`dlbench report progress`: the same network on one machine, the frameworks from the oldest to the
newest.

All are measured on the same machine, so the ratios do not include hardware, but how well each
release uses this machine, which may be newer than the release. Frameworks are ordered by the
release dates of the measured versions. Each is shown in its fastest mode, unless all modes are
requested.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from dlbench.adapters import axes, protocol
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell
from dlbench.reports.builds import Build, Builds
from dlbench.reports.columns import (
    GROUP,
    Column,
    axis_columns,
    begins,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE, Rows
from dlbench.reports.formats.layout import NOTHING, Page, Table
from dlbench.reports.ratio.pairs import Mean, draw, mean_of, pair_of, seconds_column
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult, fastest_mode
from dlbench.reports.results.flags import CONTENDED, FlagKind
from dlbench.reports.results.keys import Place, differ, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import condition_name, group_name, place_heading, row_name
from dlbench.reports.results.number_text import times
from dlbench.reports.results.statistics import Ratio

MEAN = (
    "Geometric mean over the networks that more than one framework has a number for: the newest "
    "framework that has them all over the oldest one."
)
_LEGEND = (
    "p: threads; speed-up: seconds of the oldest framework with a number there over its own, with "
    "its interval (95 % where both sides have 3 launches or more; with fewer, widened by the "
    "deviation between launches; it does not cover the choice of a fastest mode). All ran on one "
    "machine, so hardware plays no part, but an old build may not use all features of a newer CPU. "
    "ceil: share of the machine's measured ceiling at no more than p threads."
)
_MODES = (
    "Frameworks are shown in their fastest mode, which slightly favours those with more modes; "
    "all: --all-modes."
)
UNKNOWN = "?"
"""Stands for an unknown date."""
_PLACE = tuple(name for name in axes.NAMES if name not in (*GROUP, "framework", "mode"))
"""The axes that all numbers of a ranking share."""


@dataclass(frozen=True)
class Standing:
    """One framework, or one mode of it, among the others of its network at one place."""

    place: Place
    cell: CellResult
    build: Build
    oldest: bool
    """Whether the others are compared with it."""
    speedup: Ratio | None
    """Seconds of the oldest over its own; None without a number, for the oldest, and where nothing
    is computed."""
    modes: int
    """Modes of the framework measured at this place."""


@dataclass(frozen=True)
class Overall:
    """The newest over the oldest of those frameworks that have a number for every network at a
    place.
    """

    place: Place
    groups: tuple[Cell, ...]
    """Those that two dated builds have a number for."""
    oldest: tuple[str, Build] | None = None
    """Row name and build; None where fewer than two dated builds have them all."""
    newest: tuple[str, Build] | None = None
    mean: Mean | None = None
    """Over the networks."""

    @property
    def disturbed(self) -> list[Cell]:
        """The networks where other programs disturbed one of the two."""
        pairs = self.mean.pairs if self.mean else ()
        return [
            each.cell.group
            for each in pairs
            if each.cell.has(CONTENDED) or each.other.has(CONTENDED)
        ]


@dataclass(frozen=True)
class Progress(Compared[Standing]):
    """All frameworks of a matrix by machine, network and place, the oldest first, those without a
    date last.
    """

    overall: tuple[Overall, ...]
    all_modes: bool

    @property
    def rankings(self) -> list[list[Standing]]:
        """The standings on one network at one place, for each of these."""
        return list(grouped(self.rows, lambda each: (each.place, each.cell.group)).values())


def progress(matrix: Matrix, builds: Builds, all_modes: bool = False) -> Progress:
    """Return the frameworks of a matrix from oldest to newest, by network and place."""
    # A benchmark that another program measured is of no framework.
    measured = [cell for cell in matrix.cells.values() if cell.cell.device != protocol.UNKNOWN]
    found = grouped(measured, lambda cell: (_place(cell), cell.group))
    for (place, group), cells in list(found.items()):
        if place.cell.tuning == INSTALLED:
            tuned = place._replace(cell=place.cell._replace(tuning=TUNED)), group
            there = found.get(tuned, [])
            cells += (both := [cell for cell in there if builds.is_as_installed_too(cell)])
            if both and len(both) == len(there):
                del found[tuned]  # nothing in it is tuned
    machines, groups = list(matrix.machines), list(matrix.rows)

    def rank(place: Place) -> tuple[object, ...]:
        device = axes.sort_key(axes.without(place.cell, "threads"))
        return (
            machines.index(place.machine),
            not place.on_cpu,
            place.device,
            device,
            place.threads or 0,
        )

    order = sorted(
        found, key=lambda key: (machines.index(key[0].machine), groups.index(key[1]), rank(key[0]))
    )
    standings = [
        each
        for place, group in order
        for each in _standings(place, found[place, group], builds, all_modes)
    ]
    of_places = grouped(order, lambda key: key[0])
    overall = [
        _overall(
            place, {group: _best(found[place, group]) for _, group in of_places[place]}, builds
        )
        for place in sorted(of_places, key=rank)
    ]
    return Progress(matrix, tuple(standings), tuple(overall), all_modes)


def _place(cell: CellResult) -> Place:
    return Place(cell.machine, axes.project(cell.cell, _PLACE))


def _best(cells: Iterable[CellResult]) -> dict[str, CellResult]:
    """Return the cell of each framework's fastest mode, by the row's name."""
    return {
        name: fastest_mode(modes)
        for name, modes in grouped(cells, lambda cell: cell.row.framework).items()
    }


def _standings(
    place: Place, cells: Sequence[CellResult], builds: Builds, all_modes: bool
) -> Iterator[Standing]:
    def age(cell: CellResult) -> tuple[bool, date, str, str]:
        build = builds.of(cell)
        return build.released is None, build.released or date.max, cell.row.framework, cell.row.mode

    best = _best(cells)
    candidates = [
        cell for cell in best.values() if _counts(cell) and builds.of(cell).released is not None
    ]
    oldest = min(candidates, key=age, default=None)
    for cell in sorted(cells if all_modes else best.values(), key=age):
        pair = pair_of(oldest, cell) if cell is not oldest and _counts(cell) else None
        modes = sum(each.row.framework == cell.row.framework for each in cells)
        yield Standing(
            place, cell, builds.of(cell), cell is oldest, pair.ratio if pair else None, modes
        )


def _counts(cell: CellResult) -> bool:
    return cell.timed is not None and not computes_nothing(cell)


def _overall(place: Place, best: dict[Cell, dict[str, CellResult]], builds: Builds) -> Overall:
    """Compare the newest with the oldest build that has a number in every group that two of them
    have at all.
    """
    by_build: dict[tuple[str, Build], dict[Cell, CellResult]] = {}
    for group, cells in best.items():
        for name, cell in cells.items():
            if _counts(cell) and builds.of(cell).released is not None:
                by_build.setdefault((name, builds.of(cell)), {})[group] = cell
    groups = tuple(
        group for group in best if sum(group in cells for cells in by_build.values()) > 1
    )
    whole = (
        key for key, cells in by_build.items() if groups and all(group in cells for group in groups)
    )
    complete = sorted(whole, key=lambda key: (key[1].released or date.max, key[0]))
    if len(complete) < 2 or complete[0][1].released == complete[-1][1].released:
        return Overall(place, groups)
    oldest, newest = complete[0], complete[-1]
    pairs = [
        pair
        for group in groups
        if (pair := pair_of(by_build[oldest][group], by_build[newest][group]))
    ]
    return Overall(place, groups, oldest, newest, mean_of(pairs))


def version_name(build: Build) -> str:
    """Return a version for a table: without its local label, and without the date that a nightly
    one is released on.
    """
    public = build.version.partition("+")[0]
    return re.sub(r"(dev)20\d{6}$", r"\1", public) or UNKNOWN


def _build_name(standing: Standing) -> str:
    return f"{standing.cell.row.framework} {version_name(standing.build)}"


def _columns(common: Collection[FlagKind] = ()) -> tuple[Column[Standing], ...]:
    def ceiling(cell: CellResult) -> str:
        return (
            ""
            if cell.ceiling_fraction is None or cell.timed is None
            else f"{cell.ceiling_fraction:.0%}"
        )

    return (
        Column("framework", None, lambda each: each.cell.row.framework),
        Column("adapter", None, lambda each: each.build.adapter or None),
        Column("mode", None, lambda each: each.cell.row.mode),
        Column("modes", None, lambda each: each.modes),
        Column(
            "version",
            "version",
            lambda each: each.build.version or None,
            lambda each: version_name(each.build),
        ),
        Column(
            "released",
            "released",
            lambda each: each.build.released,
            lambda each: _month(each.build),
        ),
        Column("oldest", None, lambda each: each.oldest),
        Column("status", None, lambda each: each.cell.status),
        Column("reason", None, lambda each: each.cell.reason),
        seconds_column(lambda each: each.cell, common),
        Column(
            "speedup",
            "speed-up",
            lambda each: each.speedup,
            lambda each: "oldest" if each.oldest else times(each.speedup),
            VALUE,
        ),
        Column(
            "ceiling_fraction",
            "ceil",
            lambda each: each.cell.ceiling_fraction,
            lambda each: ceiling(each.cell),
        ),
        Column("flags", None, lambda each: each.cell.flags),
    )


def _month(build: Build) -> str:
    return UNKNOWN if build.released is None else f"{build.released:%Y-%m}"


def _where(found: Progress) -> tuple[Column[Standing], ...]:
    return (
        *host_columns(lambda each: found.matrix.hosts[each.place.machine]),
        *axis_columns(lambda each: each.cell.group, GROUP),
        *axis_columns(lambda each: each.place.cell, _PLACE),
    )


def _summary(found: Progress) -> tuple[Column[Overall], ...]:
    def name(of: tuple[str, Build] | None) -> dict[str, Any] | None:
        return of and {
            "framework": of[0],
            "version": of[1].version or None,
            "released": of[1].released,
        }

    def shown(of: tuple[str, Build] | None) -> str:
        return f"{of[0]} {version_name(of[1])}" if of else ""

    def mark(each: Overall) -> str:
        return CONTENDED.symbol if each.disturbed else ""

    return (
        *host_columns(lambda each: found.matrix.hosts[each.place.machine]),
        *axis_columns(lambda each: each.place.cell, _PLACE),
        Column("", "", lambda each: condition_name(each.place.cell)),
        Column("newest", "newest", lambda each: name(each.newest), lambda each: shown(each.newest)),
        Column(
            "oldest", "over oldest", lambda each: name(each.oldest), lambda each: shown(each.oldest)
        ),
        Column("networks", None, lambda each: [group.network for group in each.groups]),
        Column(
            "disturbed_networks", None, lambda each: [group.network for group in each.disturbed]
        ),
        Column("", "networks", lambda each: len(each.groups)),
        Column(
            "speedup",
            "speed-up",
            lambda each: each.mean.ratio if each.mean else None,
            lambda each: times(each.mean.ratio if each.mean else None) + mark(each),
        ),
    )


def _page(found: Progress) -> Page:
    """Return for each machine a table of all networks, and one of the means over networks."""
    if not found.rows:
        return Page((NOTHING,), ())
    tables = []
    common = layout.common_flags(each.cell for each in found.rows if each.cell.timed is not None)
    for machine, here in grouped(found.rows, lambda each: each.place.machine).items():
        tables.append(_table(found.name(machine), here, common))
        tables.append(
            _means(found, [each for each in found.overall if each.place.machine == machine])
        )
    lines = [_LEGEND, *axes.legends(each.place.cell for each in found.rows)]
    lines += [_MODES] if any(each.modes > 1 for each in found.rows) and not found.all_modes else []
    lines += layout.flag_lines((each.cell for each in found.rows), common)
    return Page((), tuple(tables), (*lines, *_undated(found), *found.matrix.notes))


def _table(machine: str, standings: Sequence[Standing], common: set[FlagKind]) -> Table:
    first = begins(standings, lambda each: (each.place, each.cell.group))
    missing = [
        (
            layout.why_hole(each.cell),
            f"{each.cell.group.network} {row_name(each.cell.row)}",
            _heading(each),
        )
        for each in standings
        if each.cell.timed is None
    ]
    columns: tuple[Column[Standing], ...] = (
        Column("", "", lambda each: row_name(each.cell.row)),
        Column("", "p", lambda each: _heading(each) if first(each) else ""),
        *_columns(common),
    )
    title, notes = f"Oldest to newest, on {machine}", layout.reasons(missing)
    return table(
        columns, standings, title, "", lambda each: group_name(each.cell.group), notes, keys=2
    )


def _heading(standing: Standing) -> str:
    return place_heading(standing.place.cell)


def _means(found: Progress, overall: Sequence[Overall]) -> Table:
    rows = [each for each in overall if each.oldest is not None]
    notes = [MEAN] if rows else []
    notes += [
        f"{CONTENDED.symbol} at {condition_name(each.place.cell)}: disturbed on "
        f"{', '.join(group_name(group) for group in each.disturbed)}"
        for each in rows
        if each.disturbed
    ]
    if without := [condition_name(each.place.cell) for each in overall if each.oldest is None]:
        notes.append(
            "No two frameworks of different dates have a number for every network at "
            f"{'; '.join(without)}."
        )
    return table(_summary(found) if rows else (), rows, "Newest over oldest", notes=notes)


def _undated(found: Progress) -> list[str]:
    names = ", ".join(
        dict.fromkeys(_build_name(each) for each in found.rows if each.build.released is None)
    )
    return (
        [f"Release date not known, so listed last, and never the oldest or the newest: {names}."]
        if names
        else []
    )


def _data(found: Progress) -> dict[str, Any]:
    return {
        "all_modes": found.all_modes,
        "rankings": [
            {**objects(_where(found), of[:1])[0], "frameworks": objects(_columns(), of)}
            for of in found.rankings
        ],
        "summary": objects(_summary(found), found.overall),
        "notes": [*_undated(found), *found.matrix.notes],
    }


def _rows(found: Progress) -> Rows:
    return csv_rows((*_where(found), *_columns()), found.rows)


def _draw(found: Progress, path: Path) -> list[Path]:
    """Draw a page for each machine: frameworks from oldest to newest down, speed-ups across, a mark
    for each place.

    Left out are places with more threads than the machine has cores, where there are others.
    """
    pages = []
    for machine, here in grouped(found.rows, lambda each: each.place.machine).items():
        cores = found.matrix.hosts[machine].own_cores
        own = [
            each for each in here if cores is None or not _shares_cores(each.place, cores)
        ] or here
        points = [
            (
                group_name(each.cell.group),
                f"{_month(each.build)} {_build_name(each)}"
                + (f" {each.cell.row.mode}" if found.all_modes else ""),
                condition_name(each.place.cell),
                each.speedup or Ratio(1.0, None, None, ""),
            )
            for each in own
            if each.oldest or each.speedup is not None
        ]
        # A framework may lack a number at the first place.
        points.sort(key=lambda point: (point[1].startswith(UNKNOWN), point[1]))
        points.sort(key=lambda point: [group_name(each.cell.group) for each in own].index(point[0]))
        across = "times as fast as the oldest framework; bars: intervals"
        pages.append(
            (f"From the oldest framework to the newest, on {found.name(machine)}", across, points)
        )
    return draw(pages, path, series="")


def _shares_cores(place: Place, cores: int) -> bool:
    return place.on_cpu and (place.threads or 0) * place.world_size > cores


REPORT = Report(
    name="progress",
    summary=(
        "The frameworks from oldest to newest, by release date: what became faster on one machine."
    ),
    examples=("dlbench report progress", "dlbench report progress --all-modes --plot progress.png"),
    analyse=lambda source: progress(source.matrix(), source.builds(), source.options.all_modes),
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    draw=lambda found, path, options: _draw(found, path),
    suggestion="the frameworks from oldest to newest",
    applies=lambda cells: (
        differ(cells, "framework", "mode") and len({each.framework for each in cells}) > 1
    ),
    options=frozenset({ALL_MODES, ALL_RUNS}),
    heading="From the oldest framework to the newest",
    place=60,
)
