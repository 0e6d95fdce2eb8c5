"""`dlbench report releases`: the releases of a framework in their order, and where it became slower or faster.

Each release is compared with the one before it that has a number. A search for change points as in `dlbench history`
needs five nights on either side of a change and has one number a night; here every release has launches of its own,
interleaved with those of all others, so each step is tested by itself: Welch's t on the launches' log-medians, adjusted
by Holm's procedure for all steps of the report. A slow drift of many small steps is seen in the last column, the ratio
to the first release. What else changed at a step is taken from the records: packages, libraries, interpreter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.cells import CellResult, Matrix, Place, grouped
from dlbench.reports.columns import Column, axis_columns, csv_rows, host_columns, objects, table
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import (
    Entry,
    Page,
    Table,
    common_flags,
    deviation,
    entry,
    flag_lines,
    number,
    times,
    why_hole,
)
from dlbench.reports.formats.pictures import Dots, Panel, dots_to_picture
from dlbench.reports.history.nights import Difference, differences
from dlbench.reports.history.report import difference_words
from dlbench.reports.naming import group_name, place_name, row_name
from dlbench.reports.quantities import QUANTITIES
from dlbench.reports.ratio.pairs import FASTER, SLOWER, Compared, Pair, pair_of, with_verdicts
from dlbench.reports.report import Report
from dlbench.reports.statistics import Ratio, ratio
from dlbench.reports.storage.record import RELEASED, RELEASES, Record, Run

NOTHING = "No releases were measured side by side; `dlbench releases FRAMEWORK --network NAME` does."
_LEGEND = (
    "s/batch: with its 95 % interval; to the one before: time over that of the last release before it with a number; "
    "to the first: over that of the first. slower, faster: by more than 2 %, and noise does not explain it (Welch's t "
    "over launches, 3 at least, Holm-adjusted over all steps here)."
)
_FIRST = ("interpreter", "numpy", "onednn", "mkl", "openblas", "blas", "xla", "eigen", "openmp")
"""What is named first of all that changed."""
_LEFT_OUT = ("environment", "python", RELEASED, "tunable", "adapter_digest", "default_threads")
_SHOWN = 4
_CHANGES = (SLOWER, FASTER)


@dataclass(frozen=True)
class Point:
    """A release on one network at one place."""

    series: str
    """What the releases are of, for a heading: "lstm32, mini-batch 128: jax jit, 1 thread"."""
    name: str
    """The version, or the name that the user gave to its interpreter."""
    cell: CellResult
    released: str | None
    """When it was uploaded to the package index (ISO 8601)."""
    before: "Point | None" = None
    """The last one before it that has a number."""
    pair: Pair | None = None
    """It and that one; None where it has no number itself."""
    to_first: Ratio | None = None
    also_changed: tuple[Difference, ...] = ()
    """Since that one, beside the framework itself."""

    @property
    def change(self) -> str:
        """Slower or faster than the one before; empty where noise explains it, and from too few launches to test."""
        if self.pair is None or self.pair.p_value is None or self.pair.verdict not in _CHANGES:
            return ""
        return self.pair.verdict


Releases = Compared[Point]


def releases(matrix: Matrix, records: Iterable[Record], runs: Iterable[Run]) -> Releases:
    """Return the releases of each run of releases, in the order of its plan, the newest run first."""
    newest = {
        Place(each.machine, axes.project(each.cell, axes.NAMES)): each
        for each in sorted(records, key=lambda each: (each.outcome.status is Status.OK, each.started))
    }
    points: list[Point] = []
    for run in sorted((each for each in runs if each.purpose == RELEASES), key=lambda each: each.started, reverse=True):
        order = list(dict.fromkeys(cell.framework for cell in run.plan))
        cells = [each for each in matrix.cells.values() if each.run == run.id and each.row.framework in order]
        for series in grouped(cells, lambda each: (each.machine, axes.without(each.cell, "framework"))).values():
            if len(series) > 1:  # of an older run there may be one left that a newer one lacks
                points += _points(sorted(series, key=lambda each: order.index(each.row.framework)), newest)
    judged = iter(with_verdicts([each.pair for each in points if each.pair], lambda pair: True))
    return Compared(matrix, tuple(replace(each, pair=next(judged)) if each.pair else each for each in points))


def _points(cells: Sequence[CellResult], records: Mapping[Place, Record]) -> list[Point]:
    names, framework = names_of([each.row.framework for each in cells])
    of_cell = {id(each): records.get(Place(each.machine, each.cell)) for each in cells}
    if not framework:
        framework = next((each.cell.adapter for each in of_cell.values() if each is not None), "")
    head = cells[0]
    row = row_name(head.row._replace(framework=framework))
    series = f"{group_name(head.group)}: {row}, {place_name(head.cell)}"
    found: list[Point] = []
    first: Point | None = None
    before: Point | None = None
    for name, cell in zip(names, cells, strict=True):
        record = of_cell[id(cell)]
        software = record.outcome.software if record is not None else {}
        released = software.get(RELEASED)
        point = Point(series, name, cell, released if isinstance(released, str) else None)
        if before is not None:
            earlier = of_cell[id(before.cell)]
            changed = () if record is None or earlier is None else also_changed(earlier, record, before.name, name)
            point = replace(point, before=before, pair=pair_of(cell, before.cell), also_changed=changed)
        if first is not None and first.cell.timed is not None and cell.timed is not None:
            point = replace(point, to_first=ratio(cell.timed, first.cell.timed))
        if cell.timed is not None:
            first, before = first or point, point
        found.append(point)
    return found


def names_of(rows: Sequence[str]) -> tuple[list[str], str]:
    """Return the names of releases without what all begin with, and that: "0.4.20", ... of "jax" for "jax-0.4.20".

    Rows of other names stay as they are.
    """
    parts = [row.rpartition("-") for row in rows]
    if len({start for start, _, _ in parts}) == 1 and all(dash and end[:1].isdigit() for _, dash, end in parts):
        return [end for _, _, end in parts], parts[0][0]
    return list(rows), ""


def also_changed(before: Record, after: Record, old: str, new: str) -> tuple[Difference, ...]:
    """Return what differs between two records beside the framework's own version and its date.

    Libraries that compute come first.
    """

    def rank(each: Difference) -> int:
        what = each.what.lower()
        return next((place for place, word in enumerate(_FIRST) if word in what), len(_FIRST))

    found = [
        each
        for each in differences(before, after)
        if each.what not in _LEFT_OUT and (each.before, each.after) != (old, new)
    ]
    return tuple(sorted(found, key=rank))


# Tables.


def _columns(found: Releases, rows: Sequence[Point]) -> tuple[Column[Point], ...]:
    seconds, common = QUANTITIES["seconds"], set(common_flags(each.cell for each in rows if each.cell.shown))
    return (
        *host_columns(lambda each: found.matrix.hosts[each.cell.machine]),
        *axis_columns(lambda each: each.cell.cell),
        Column("release", "release", lambda each: each.name),
        Column("released", "released", lambda each: each.released),
        Column("interpreter", "Python", lambda each: each.cell.interpreter or None, _python),
        Column("environment", None, lambda each: each.cell.environment or None),
        Column("run", None, lambda each: each.cell.run),
        Column("status", None, lambda each: each.cell.status),
        Column("reason", None, lambda each: each.cell.reason),
        Column(
            "seconds_per_minibatch",
            "s/batch",
            lambda each: each.cell.seconds,
            lambda each: entry(each.cell, seconds, common)._replace(best=False),
            MEDIAN,
        ),
        Column("before", None, lambda each: None if each.before is None else each.before.name),
        Column(
            "ratio",
            "to the one before",
            lambda each: None if each.pair is None else each.pair.ratio,
            lambda each: _ratio(None if each.pair is None else each.pair.ratio),
            VALUE,
        ),
        Column("p_adjusted", None, lambda each: None if each.pair is None else each.pair.p_value),
        Column("change", "", lambda each: each.change or None, lambda each: each.change),
        Column("ratio_to_first", "to the first", lambda each: each.to_first, lambda each: _ratio(each.to_first), VALUE),
        Column("flags", None, lambda each: each.cell.flags),
        Column("also_changed", None, lambda each: each.also_changed, fields=None),
    )


def _ratio(found: Ratio | None) -> Entry:
    if found is None:
        return Entry("")
    return Entry(f"{number(found.value)}x", deviation(found.value, found.low, found.high))


def _python(each: Point) -> str:
    return each.cell.interpreter.removeprefix("CPython ")


def _series(found: Releases) -> list[list[Point]]:
    return list(grouped(found.rows, lambda each: (each.cell.run, each.cell.machine, each.series)).values())


def _table(found: Releases, series: Sequence[Point]) -> Table:
    holes = grouped((each for each in series if each.cell.timed is None), lambda each: why_hole(each.cell))
    missing = [f"{', '.join(each.name for each in of)}: {why}" for why, of in holes.items()]
    notes = [*missing, *(_change(each) for each in series if each.change)]
    title = f"{series[0].series}, on {found.name(series[0].cell.machine)}"
    return table(_columns(found, series), series, title, notes=notes)


def _change(each: Point) -> str:
    """Return one sentence: how much slower or faster a release is, and what else changed with it."""
    assert each.pair is not None
    assert each.before is not None
    words = [difference_words(other) for other in each.also_changed[:_SHOWN]]
    more = len(each.also_changed) - _SHOWN
    words += [f"and {more} more (--format json)"] if more > 0 else []
    also = f"also changed: {'; '.join(words)}" if words else "nothing else that the records show changed"
    return f"{each.name} takes {times(each.pair.ratio)} the time of {each.before.name}; {also}."


def headline(found: Releases) -> list[str]:
    """Return for each series its changes, and the whole of it: the last release over the first."""
    lines = []
    for series in _series(found):
        changed = [(each, each.pair) for each in series if each.pair is not None and each.change]
        words = [f"{each.name} is {each.change} ({times(pair.ratio)})" for each, pair in changed]
        timed = [each for each in series if each.cell.timed is not None]
        where = f"{series[0].series} on {found.name(series[0].cell.machine)}"
        said = "; ".join(words) or "no release differs clearly from the one before it"
        whole = ""
        if len(timed) < 2:
            said = "fewer than two releases have a number"
        else:
            whole = f"; {timed[-1].name} takes {times(timed[-1].to_first)} the time of {timed[0].name}"
        lines.append(f"{where}: {said}{whole}.")
    return lines


def _page(found: Releases) -> Page:
    if not found.rows:
        return Page((NOTHING,), ())
    tables = [_table(found, series) for series in _series(found)]
    shown = [each.cell for each in found.rows if each.cell.shown]
    return Page(tuple(headline(found)), tuple(tables), (_LEGEND, *flag_lines(shown, common_flags(shown))))


def _draw(found: Releases, path: Path) -> list[Path]:
    """Draw a panel for each series: releases down, the time over that of the first across, changes marked."""

    def panel(series: Sequence[Point]) -> Panel:
        timed = [(each, each.cell.timed) for each in series if each.cell.timed is not None]
        first = timed[0][1].median
        points = {
            (each.name, each.change or "neither, or noise"): (
                seconds.median / first,
                None if seconds.low is None else seconds.low / first,
                None if seconds.high is None else seconds.high / first,
            )
            for each, seconds in timed
        }
        return Panel(series[0].series, tuple(each.name for each in series), points)

    pages = []
    for machine, here in grouped(found.rows, lambda each: each.cell.machine).items():
        panels = [panel(of) for of in _series(replace(found, rows=tuple(here))) if any(each.cell.timed for each in of)]
        if panels:
            across = "times as long as the first release; bars: 95 % intervals of each"
            title = f"Releases, on {found.name(machine)}"
            pages.append(Dots(title, across, tuple(panels), "than the one before", same=1.0))
    return dots_to_picture(pages, path)


REPORT = Report(
    name="releases",
    summary="The releases of a framework in their order, and where it became slower or faster (`dlbench releases`).",
    examples=("dlbench report releases", "dlbench report releases --networks lstm32 --plot releases.png"),
    analyse=lambda source: releases(source.matrix(), source.results().records, [run for run, _ in source.runs()]),
    page=lambda found, options: _page(found),
    data=lambda found: {"rows": objects(_columns(found, found.rows), found.rows), "notes": headline(found)},
    rows=lambda found: csv_rows(_columns(found, found.rows), found.rows),
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: any(each.cell.timed for each in found.rows),
    heading="Releases",
    place=65,
    headline=lambda found: headline(found) if any(each.change for each in found.rows) else [],
    has_section=lambda found: bool(found.rows),
)
