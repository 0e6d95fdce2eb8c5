"""`dlbench report progress`: frameworks on one machine, from the oldest to the newest.

All are measured on the same machine, so the ratios do not include hardware, but how well each
release uses this machine, which may be newer than the release. Frameworks are ordered by the
release dates of the measured versions. Each is shown in its fastest mode, unless all modes are
requested.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from dlbench.adapters import axes, protocol
from dlbench.adapters.protocol import INSTALLED, TUNED, Cell
from dlbench.reports.builds import MeasuredBuild, MeasuredBuilds
from dlbench.reports.columns import (
    WORK,
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
from dlbench.reports.ratio.pairs import Mean, RatioPoint, draw, mean_of, pair_of, seconds_column
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult, fastest_mode
from dlbench.reports.results.flag_kinds import CONTENDED, FlagKind
from dlbench.reports.results.keys import Place, WorkKey, differ, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import condition_name, place_heading, row_name, work_name
from dlbench.reports.results.number_text import times
from dlbench.reports.results.statistics import Estimate

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
_PLACE = tuple(name for name in axes.NAMES if name not in (*WORK, "framework", "mode"))
"""The axes that all numbers of a ranking share."""


@dataclass(frozen=True)
class Standing:
    """One framework, or one mode of it, among the others of its network at one place."""

    place: Place
    cell: CellResult
    build: MeasuredBuild
    oldest: bool
    """Whether the others are compared with it."""
    speedup: Estimate | None
    """Seconds of the oldest over its own; None without a number, for the oldest, and where nothing
    is computed."""
    modes: int
    """Modes of the framework measured at this place."""


@dataclass(frozen=True)
class Overall:
    """The newest framework over the oldest, of those with a number for every network at a place."""

    place: Place
    works: tuple[WorkKey, ...]
    """Those that two dated builds have a number for."""
    oldest: tuple[str, MeasuredBuild] | None = None
    """Row name and build; None where fewer than two dated builds have them all."""
    newest: tuple[str, MeasuredBuild] | None = None
    mean: Mean | None = None
    """Over the networks."""

    @property
    def disturbed(self) -> list[Cell]:
        """The networks where other programs disturbed one of the two."""
        disturbed: list[Cell] = []
        if self.mean is None:
            return disturbed
        for pair in self.mean.pairs:
            if pair.cell.has(CONTENDED) or pair.other.has(CONTENDED):
                disturbed.append(pair.cell.work)
        return disturbed


@dataclass(frozen=True)
class Progress(Compared[Standing]):
    """All frameworks of a matrix by machine, network and place, from oldest to newest.

    Those without a date are the last.
    """

    overall: tuple[Overall, ...]
    all_modes: bool

    @property
    def rankings(self) -> list[list[Standing]]:
        """The standings on one network at one place, for each of these."""
        by_ranking = grouped(self.rows, lambda standing: (standing.place, standing.cell.work))
        return list(by_ranking.values())


_Cells = dict[tuple[Place, WorkKey], list[CellResult]]
"""Cells by place and network."""


def progress(matrix: Matrix, builds: MeasuredBuilds, all_modes: bool = False) -> Progress:
    """Return the frameworks of a matrix from oldest to newest, by network and place."""
    # A benchmark that another program measured is of no framework.
    measured = [cell for cell in matrix.cells.values() if cell.cell.device != protocol.UNKNOWN]
    cells = grouped(measured, lambda cell: (_place(cell), cell.work))
    _join_untunable(cells, builds)
    machines = list(matrix.machines)
    works = list(matrix.rows)

    def rank(place: Place) -> tuple[object, ...]:
        device = axes.sort_key(axes.without(place.cell, "threads"))
        return (
            machines.index(place.machine),
            not place.on_cpu,
            place.device,
            device,
            place.threads or 0,
        )

    def order(key: tuple[Place, WorkKey]) -> tuple[object, ...]:
        place, work = key
        return machines.index(place.machine), works.index(work), rank(place)

    keys = sorted(cells, key=order)
    standings: list[Standing] = []
    works_by_place: dict[Place, list[WorkKey]] = {}
    for place, work in keys:
        standings += _standings(place, cells[place, work], builds, all_modes)
        works_by_place.setdefault(place, []).append(work)
    overall = []
    for place in sorted(works_by_place, key=rank):
        best = {work: _best(cells[place, work]) for work in works_by_place[place]}
        overall.append(_overall(place, best, builds))
    return Progress(matrix, tuple(standings), tuple(overall), all_modes)


def _join_untunable(cells_by_ranking: _Cells, builds: MeasuredBuilds) -> None:
    """Add tuned cells that are as installed too to the ranking of the installed ones.

    A ranking of tuned cells that holds no others is removed, since nothing in it is tuned.
    """
    for (place, work), cells in list(cells_by_ranking.items()):
        if place.cell.tuning != INSTALLED:
            continue
        tuned = (place._replace(cell=place.cell._replace(tuning=TUNED)), work)
        tuned_cells = cells_by_ranking.get(tuned, [])
        untunable = [cell for cell in tuned_cells if builds.is_as_installed_too(cell)]
        cells += untunable
        if untunable and len(untunable) == len(tuned_cells):
            del cells_by_ranking[tuned]


def _place(cell: CellResult) -> Place:
    return Place(cell.machine, axes.project(cell.cell, _PLACE))


def _best(cells: Iterable[CellResult]) -> dict[str, CellResult]:
    """Return the cell of each framework's fastest mode, by the row's name."""
    modes_by_framework = grouped(cells, lambda cell: cell.row.framework)
    return {framework: fastest_mode(modes) for framework, modes in modes_by_framework.items()}


def _standings(
    place: Place, cells: Sequence[CellResult], builds: MeasuredBuilds, all_modes: bool
) -> Iterator[Standing]:
    def age(cell: CellResult) -> tuple[bool, date, str, str]:
        build = builds.of(cell)
        return build.released is None, build.released or date.max, cell.row.framework, cell.row.mode

    best = _best(cells)
    candidates = []
    for cell in best.values():
        if _counts(cell) and builds.of(cell).released is not None:
            candidates.append(cell)
    oldest = min(candidates, key=age, default=None)
    modes = Counter(cell.row.framework for cell in cells)
    shown: Iterable[CellResult] = cells if all_modes else best.values()
    for cell in sorted(shown, key=age):
        speedup = None
        if cell is not oldest and _counts(cell):
            pair = pair_of(oldest, cell)
            if pair is not None:
                speedup = pair.ratio
        yield Standing(
            place,
            cell,
            builds.of(cell),
            oldest=cell is oldest,
            speedup=speedup,
            modes=modes[cell.row.framework],
        )


def _counts(cell: CellResult) -> bool:
    return cell.timed is not None and not computes_nothing(cell)


def _overall(
    place: Place, best: dict[WorkKey, dict[str, CellResult]], builds: MeasuredBuilds
) -> Overall:
    """Compare the newest build with the oldest one.

    Both have a number for every work that at least two builds have a number for.
    """
    cells_by_build: dict[tuple[str, MeasuredBuild], dict[WorkKey, CellResult]] = {}
    for work, cells in best.items():
        for name, cell in cells.items():
            build = builds.of(cell)
            if _counts(cell) and build.released is not None:
                cells_by_build.setdefault((name, build), {})[work] = cell
    works = []
    for work in best:
        if sum(work in cells for cells in cells_by_build.values()) > 1:
            works.append(work)
    if not works:
        return Overall(place, ())
    complete = []
    for key, cells_of_build in cells_by_build.items():
        if all(work in cells_of_build for work in works):
            complete.append(key)
    complete.sort(key=_release_order)
    if len(complete) < 2 or complete[0][1].released == complete[-1][1].released:
        return Overall(place, tuple(works))
    oldest, newest = complete[0], complete[-1]
    pairs = []
    for work in works:
        pair = pair_of(cells_by_build[oldest][work], cells_by_build[newest][work])
        if pair is not None:
            pairs.append(pair)
    return Overall(place, tuple(works), oldest, newest, mean_of(pairs))


def _release_order(framework: tuple[str, MeasuredBuild]) -> tuple[date, str]:
    name, build = framework
    return build.released or date.max, name


def version_name(build: MeasuredBuild) -> str:
    """Return a version for a table, without its local label and the date of a nightly build."""
    public = build.version.partition("+")[0]
    return re.sub(r"(dev)20\d{6}$", r"\1", public) or UNKNOWN


def _build_name(standing: Standing) -> str:
    return f"{standing.cell.row.framework} {version_name(standing.build)}"


def _columns(common: Collection[FlagKind] = ()) -> tuple[Column[Standing], ...]:
    return (
        Column("framework", None, lambda standing: standing.cell.row.framework),
        Column("adapter", None, lambda standing: standing.build.adapter or None),
        Column("mode", None, lambda standing: standing.cell.row.mode),
        Column("modes", None, lambda standing: standing.modes),
        Column(
            "version",
            "version",
            lambda standing: standing.build.version or None,
            lambda standing: version_name(standing.build),
        ),
        Column(
            "released",
            "released",
            lambda standing: standing.build.released,
            lambda standing: _month(standing.build),
        ),
        Column("oldest", None, lambda standing: standing.oldest),
        Column("status", None, lambda standing: standing.cell.status),
        Column("reason", None, lambda standing: standing.cell.reason),
        seconds_column(lambda standing: standing.cell, common),
        Column("speedup", "speed-up", lambda standing: standing.speedup, _speedup_text, VALUE),
        Column(
            "ceiling_fraction",
            "ceil",
            lambda standing: standing.cell.ceiling_fraction,
            _ceiling_text,
        ),
        Column("flags", None, lambda standing: standing.cell.flags),
    )


def _speedup_text(standing: Standing) -> str:
    return "oldest" if standing.oldest else times(standing.speedup)


def _ceiling_text(standing: Standing) -> str:
    cell = standing.cell
    if cell.ceiling_fraction is None or cell.timed is None:
        return ""
    return f"{cell.ceiling_fraction:.0%}"


def _month(build: MeasuredBuild) -> str:
    return UNKNOWN if build.released is None else f"{build.released:%Y-%m}"


def _ranking_columns(analysis: Progress) -> tuple[Column[Standing], ...]:
    return (
        *host_columns(lambda standing: analysis.matrix.hosts[standing.place.machine]),
        *axis_columns(lambda standing: standing.cell.work, WORK),
        *axis_columns(lambda standing: standing.place.cell, _PLACE),
    )


def _summary_columns(analysis: Progress) -> tuple[Column[Overall], ...]:
    return (
        *host_columns(lambda overall: analysis.matrix.hosts[overall.place.machine]),
        *axis_columns(lambda overall: overall.place.cell, _PLACE),
        Column("", "", lambda overall: condition_name(overall.place.cell)),
        Column(
            "newest",
            "newest",
            lambda overall: _framework_data(overall.newest),
            lambda overall: _framework_text(overall.newest),
        ),
        Column(
            "oldest",
            "over oldest",
            lambda overall: _framework_data(overall.oldest),
            lambda overall: _framework_text(overall.oldest),
        ),
        Column("networks", None, lambda overall: _networks(overall.works)),
        Column("disturbed_networks", None, lambda overall: _networks(overall.disturbed)),
        Column("", "networks", lambda overall: len(overall.works)),
        Column("speedup", "speed-up", _mean_speedup, _mean_text),
    )


def _framework_data(framework: tuple[str, MeasuredBuild] | None) -> dict[str, Any] | None:
    if framework is None:
        return None
    name, build = framework
    return {"framework": name, "version": build.version or None, "released": build.released}


def _framework_text(framework: tuple[str, MeasuredBuild] | None) -> str:
    if framework is None:
        return ""
    name, build = framework
    return f"{name} {version_name(build)}"


def _networks(works: Iterable[WorkKey]) -> list[str]:
    return [work.network for work in works]


def _mean_speedup(overall: Overall) -> Estimate | None:
    return overall.mean.ratio if overall.mean else None


def _mean_text(overall: Overall) -> str:
    mark = CONTENDED.symbol if overall.disturbed else ""
    return times(_mean_speedup(overall)) + mark


def _page(analysis: Progress) -> Page:
    """Return for each machine a table of all networks, and one of the means over networks."""
    if not analysis.rows:
        return Page((NOTHING,), ())
    rows = analysis.rows
    cells = [row.cell for row in rows]
    common = layout.common_flags(cell for cell in cells if cell.timed is not None)
    overall = grouped(analysis.overall, lambda mean: mean.place.machine)
    tables = []
    for machine, standings in grouped(rows, lambda row: row.place.machine).items():
        tables.append(_table(analysis.name(machine), standings, common))
        tables.append(_mean_table(analysis, overall.get(machine, ())))
    lines = [_LEGEND, *axes.legends(row.place.cell for row in rows)]
    if not analysis.all_modes and any(row.modes > 1 for row in rows):
        lines.append(_MODES)
    lines += layout.flag_lines(cells, common)
    return Page((), tuple(tables), (*lines, *_undated(analysis), *analysis.matrix.notes))


def _table(machine: str, standings: Sequence[Standing], common: set[FlagKind]) -> Table:
    is_first = begins(standings, lambda standing: (standing.place, standing.cell.work))

    def place_text(standing: Standing) -> str:
        return _heading(standing) if is_first(standing) else ""

    missing = []
    for standing in standings:
        cell = standing.cell
        if cell.timed is None:
            name = f"{cell.work.network} {row_name(cell.row)}"
            missing.append((layout.why_hole(cell), name, _heading(standing)))
    columns: tuple[Column[Standing], ...] = (
        Column("", "", lambda standing: row_name(standing.cell.row)),
        Column("", "p", place_text),
        *_columns(common),
    )
    return table(
        columns,
        standings,
        f"Oldest to newest, on {machine}",
        section=lambda standing: work_name(standing.cell.work),
        notes=layout.reasons(missing),
        keys=2,
    )


def _heading(standing: Standing) -> str:
    return place_heading(standing.place.cell)


def _mean_table(analysis: Progress, overall: Sequence[Overall]) -> Table:
    """Return the table of the means over networks on one machine."""
    rows = []
    disturbed = []
    without = []
    for mean in overall:
        place = condition_name(mean.place.cell)
        if mean.oldest is None:
            without.append(place)
            continue
        rows.append(mean)
        if mean.disturbed:
            networks = [work_name(work) for work in mean.disturbed]
            disturbed.append(f"{CONTENDED.symbol} at {place}: disturbed on {', '.join(networks)}")
    notes = []
    if rows:
        notes = [MEAN, *disturbed]
    if without:
        notes.append(
            "No two frameworks of different dates have a number for every network at "
            f"{'; '.join(without)}."
        )
    columns = _summary_columns(analysis) if rows else ()
    return table(columns, rows, "Newest over oldest", notes=notes)


def _undated(analysis: Progress) -> list[str]:
    names = [_build_name(row) for row in analysis.rows if row.build.released is None]
    if not names:
        return []
    listed = ", ".join(dict.fromkeys(names))
    return [
        f"Release date not known, so listed last, and never the oldest or the newest: {listed}."
    ]


def _data(analysis: Progress) -> dict[str, Any]:
    rankings = []
    for standings in analysis.rankings:
        ranking = objects(_ranking_columns(analysis), standings[:1])[0]
        ranking["frameworks"] = objects(_columns(), standings)
        rankings.append(ranking)
    return {
        "all_modes": analysis.all_modes,
        "rankings": rankings,
        "summary": objects(_summary_columns(analysis), analysis.overall),
        "notes": [*_undated(analysis), *analysis.matrix.notes],
    }


def _rows(analysis: Progress) -> Rows:
    return csv_rows((*_ranking_columns(analysis), *_columns()), analysis.rows)


def _draw(analysis: Progress, path: Path) -> list[Path]:
    """Draw a page for each machine: frameworks from oldest to newest down, speed-ups across.

    Each place has its own mark. Places with more threads than the machine has cores are left out,
    where there are others.
    """
    pages = []
    by_machine = grouped(analysis.rows, lambda standing: standing.place.machine)
    for machine, standings in by_machine.items():
        cores = analysis.matrix.hosts[machine].own_cores
        with_own_cores = []
        for standing in standings:
            if cores is None or not _shares_cores(standing.place, cores):
                with_own_cores.append(standing)
        title = f"From the oldest framework to the newest, on {analysis.name(machine)}"
        across = "times as fast as the oldest framework; bars: intervals"
        pages.append((title, across, _points(with_own_cores or standings, analysis.all_modes)))
    return draw(pages, path, series="")


def _points(standings: Sequence[Standing], all_modes: bool) -> list[RatioPoint]:
    """Return a point for each number, by network and age."""
    points: list[RatioPoint] = []
    for standing in standings:
        if not standing.oldest and standing.speedup is None:
            continue
        name = f"{_month(standing.build)} {_build_name(standing)}"
        if all_modes:
            name += f" {standing.cell.row.mode}"
        speedup = standing.speedup or Estimate(1.0, None, None, "")
        place = condition_name(standing.place.cell)
        points.append((work_name(standing.cell.work), name, place, speedup))
    networks = [work_name(standing.cell.work) for standing in standings]

    def order(point: RatioPoint) -> tuple[int, bool, str]:
        # A framework may lack a number at the first place.
        network, name, _, _ = point
        return networks.index(network), name.startswith(UNKNOWN), name

    return sorted(points, key=order)


def _shares_cores(place: Place, cores: int) -> bool:
    return place.on_cpu and (place.threads or 0) * place.world_size > cores


def _applies(cells: Collection[Cell]) -> bool:
    frameworks = {cell.framework for cell in cells}
    return differ(cells, "framework", "mode") and len(frameworks) > 1


REPORT = Report(
    name="progress",
    summary="Frameworks from oldest to newest: what became faster.",
    examples=("dlbench report progress", "dlbench report progress --all-modes --plot progress.png"),
    analyse=lambda source: progress(source.matrix(), source.builds(), source.options.all_modes),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=_rows,
    draw=lambda analysis, path, options: _draw(analysis, path),
    suggestion="the frameworks from oldest to newest",
    applies=_applies,
    options=frozenset({ALL_MODES, ALL_RUNS}),
    heading="From the oldest framework to the newest",
    place=60,
)
