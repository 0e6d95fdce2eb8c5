"""Progress from the oldest framework to the newest, for every exporter (``reports/SCHEMA.md`` describes every key)."""

import re
from collections.abc import Iterable
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import NO_THREADS, Build, Group, Place, values
from dlbench.reports.flags import CONTENDED, FlagKind
from dlbench.reports.formats import csv, json, layout
from dlbench.reports.matrix.data import of_cell, of_place
from dlbench.reports.naming import WORKERS_LEGEND, condition_name, group_name, head_of, row_name
from dlbench.reports.progress.analysis import Overall, Progress, Ranking, Standing

NOTHING = "Nothing was measured yet."
MEAN = (
    "Geometric mean over the networks that more than one framework has a number for, of the newest over the oldest "
    "that has a number for each of them."
)
UNKNOWN = "?"
"""Stands for a date that nobody told."""

_OF_THE_WORK = tuple(axis.name for axis in axes.of_role(axes.GROUP))
_NOT_OF_A_PLACE = (*_OF_THE_WORK, "framework", "mode")
_COLUMNS = (
    "machine",
    "machine_name",
    *_OF_THE_WORK,
    *(name for name in axes.NAMES if name not in _NOT_OF_A_PLACE),
    "framework",
    "adapter",
    "mode",
    "modes",
    "version",
    "released",
    "oldest",
    "status",
    "reason",
    *csv.parts("seconds_per_minibatch", *csv.MEDIAN),
    *csv.parts("speedup", *csv.VALUE),
    "ceiling_fraction",
    "flags",
)


def progress_page(found: Progress) -> layout.Page:
    """Return progress as words and tables: for each machine one of all networks, and one of what they come to."""
    if not found.rankings:
        return layout.Page((NOTHING,), ())
    tables = []
    common = layout.common_flags(s.cell for each in found.rankings for s in each.standings if s.cell.timed is not None)
    for machine in dict.fromkeys(ranking.place.machine for ranking in found.rankings):
        rankings = [ranking for ranking in found.rankings if ranking.place.machine == machine]
        tables.append(_table(found, rankings, common))
        tables.append(_summary(found, [overall for overall in found.overall if overall.place.machine == machine]))
    return layout.Page((), tuple(tables), tuple(_legend(found, common)))


def progress_data(found: Progress) -> dict[str, Any]:
    """Return a JSON object: a list of rankings, each with its frameworks, and the summaries over networks."""
    return {
        "all_modes": found.all_modes,
        "rankings": [
            {**_where(found, ranking.place, ranking.group), "frameworks": list(map(_standing, ranking.standings))}
            for ranking in found.rankings
        ],
        "summary": [_overall(found, overall) for overall in found.overall],
        "notes": [*_undated(found), *found.notes],
    }


def progress_rows(found: Progress) -> csv.Rows:
    """Return a line for each framework of each ranking, holes included."""
    lines = [
        {**_where(found, ranking.place, ranking.group), **_standing(standing)}
        for ranking in found.rankings
        for standing in ranking.standings
    ]
    return csv.Rows(_COLUMNS, lines)


def version_name(build: Build) -> str:
    """Return a version for a table: without its local label, and without the date that a nightly one is released on."""
    public = build.version.partition("+")[0]
    return re.sub(r"(dev)20\d{6}$", r"\1", public) or UNKNOWN


def build_name(standing: Standing) -> str:
    """Return a framework with its version."""
    return f"{standing.cell.row.framework} {version_name(standing.build)}"


def _table(found: Progress, rankings: list[Ranking], common: set[FlagKind]) -> layout.Table:
    rows: list[tuple[layout.Entry, ...]] = []
    group = None
    holes: list[tuple[str, str, str]] = []
    for ranking in rankings:
        if ranking.group != group:
            group = ranking.group
            rows.append((layout.Entry(group_name(group)),))
        count = _count(ranking.place)
        for standing in ranking.standings:
            rows.append(_row(standing, count, common))
            if standing.cell.timed is None:
                where = f"{group.network} {row_name(standing.cell.row)}"
                holes.append((layout.why_hole(standing.cell), where, _count(ranking.place)))
            count = ""
    title = f"Oldest to newest, on {found.hosts[rankings[0].place.machine].name}"
    head = ("", "p", "version", "released", "s/batch", "speed-up", "ceil")
    return layout.Table(title, head, tuple(rows), tuple(layout.reasons(holes)), keys=2)


def _count(place: Place) -> str:
    return head_of(place.cell if place.on_cpu else place.cell._replace(threads=NO_THREADS))


def _row(standing: Standing, count: str, common: set[FlagKind]) -> tuple[layout.Entry, ...]:
    cell, build = standing.cell, standing.build
    return (
        layout.Entry(row_name(cell.row)),
        layout.Entry(count),
        layout.Entry(version_name(build)),
        layout.Entry(UNKNOWN if build.released is None else f"{build.released:%Y-%m}"),
        layout.entry(cell, layout.QUANTITIES["seconds"], common)._replace(best=False),
        layout.Entry("oldest" if standing.oldest else layout.times(standing.speedup)),
        layout.Entry("" if cell.ceiling_fraction is None or cell.timed is None else f"{cell.ceiling_fraction:.0%}"),
    )


def _summary(found: Progress, overall: list[Overall]) -> layout.Table:
    """Return the means over networks of one machine."""
    rows = []
    for each in overall:
        if each.oldest is None or each.newest is None:
            continue
        names = (f"{name} {version_name(build)}" for name, build in (each.newest, each.oldest))
        mark = CONTENDED.symbol if each.disturbed else ""
        speedup = layout.times(each.speedup) + mark
        rows.append(layout.entries(condition_name(each.place.cell), *names, str(len(each.groups)), speedup))
    notes = [MEAN] if rows else []
    notes += [
        f"{CONTENDED.symbol} at {condition_name(each.place.cell)}: disturbed on "
        f"{', '.join(group_name(group) for group in each.disturbed)}"
        for each in overall
        if each.disturbed
    ]
    if without := [condition_name(each.place.cell) for each in overall if each.oldest is None]:
        notes.append(f"No two frameworks of different dates have a number for every network at {'; '.join(without)}.")
    head = ("", "newest", "over oldest", "networks", "speed-up") if rows else ()
    return layout.Table("Newest over oldest", head, tuple(rows), tuple(notes))


def _legend(found: Progress, common: set[FlagKind]) -> list[str]:
    lines = [
        "p threads; speed-up seconds of the oldest framework that has a number there / its own, with its interval "
        "(95 % where both sides have 3 launches or more; with fewer the medians' own, widened by an assumed 2 %; never "
        "the choice of a fastest mode): one machine, so no hardware is in it, but an old build may leave unused what a "
        "newer CPU can do; ceil share of the machine's measured ceiling at no more than p threads."
    ]
    lines += [WORKERS_LEGEND] if any(ranking.place.world_size > 1 for ranking in found.rankings) else []
    standings = [standing for ranking in found.rankings for standing in ranking.standings]
    if any(standing.modes > 1 for standing in standings) and not found.all_modes:
        lines.append(
            "Of each framework the fastest mode there, which favours a little one with more modes; all: --all-modes."
        )
    lines += layout.flag_lines((standing.cell for standing in standings), common)
    return [*lines, *_undated(found), *found.notes]


def undated(rankings: Iterable[Ranking]) -> str:
    """Return the names of the builds without a date."""
    standings = (standing for ranking in rankings for standing in ranking.standings)
    return ", ".join(dict.fromkeys(build_name(each) for each in standings if each.build.released is None))


def _undated(found: Progress) -> list[str]:
    names = undated(found.rankings)
    return [f"Release date not known, so listed last, and never the oldest or the newest: {names}."] if names else []


def _where(found: Progress, place: Place, group: Group) -> dict[str, Any]:
    of_work = {name: value for name, value in values(group).items() if name in _OF_THE_WORK}
    return of_place(found.hosts, place, *_NOT_OF_A_PLACE, **of_work)


def _standing(standing: Standing) -> dict[str, Any]:
    cell, build = standing.cell, standing.build
    return {
        "framework": cell.row.framework,
        "adapter": build.adapter or None,
        "mode": cell.row.mode,
        "modes": standing.modes,
        **_build(build),
        "oldest": standing.oldest,
        **of_cell(cell, "status", "reason", "seconds"),
        "speedup": json.plain(standing.speedup),
        **of_cell(cell, "ceiling_fraction", "flags"),
    }


def _build(build: Build) -> dict[str, Any]:
    return {"version": build.version or None, "released": json.plain(build.released)}


def _overall(found: Progress, overall: Overall) -> dict[str, Any]:
    return {
        **of_place(found.hosts, overall.place, *_NOT_OF_A_PLACE),
        "networks": [group.network for group in overall.groups],
        "disturbed_networks": [group.network for group in overall.disturbed],
        **{name: _named(getattr(overall, name)) for name in ("oldest", "newest")},
        "speedup": json.plain(overall.speedup),
    }


def _named(found: tuple[str, Build] | None) -> dict[str, Any] | None:
    return None if found is None else {"framework": found[0], **_build(found[1])}
