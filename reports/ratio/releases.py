"""`dlbench report releases`: the releases of a framework in their order, and where it became slower
or faster.

Each release is compared with the one before it that has a number. A search for change points as in
`dlbench history` needs five nights on either side of a change and has one number a night; here
every release has launches of its own, interleaved with those of all others, so each step is tested
by itself: Welch's t on the launches' log-medians, adjusted by Holm's procedure for all steps of the
report. A slow drift of many small steps is seen in the last column, the ratio to the first release.
What else changed at a step is taken from the records: packages, libraries, interpreter.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.columns import (
    VALUE,
    Column,
    attributes,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.compare.operators import difference_data
from dlbench.reports.formats.layout import (
    Entry,
    Page,
    Table,
    common_flags,
    flag_lines,
    multiple,
    why_hole,
)
from dlbench.reports.ratio.pairs import (
    FASTER,
    SAME,
    SLOWER,
    Pair,
    draw,
    pair_of,
    seconds_column,
    with_verdicts,
)
from dlbench.reports.report import Report, Source
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.differences import (
    MOST_SHOWN,
    Difference,
    difference_words,
    differences,
)
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.losses import (
    FirstLosses,
    LossDifference,
    first_losses,
    loss_difference,
)
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import group_name, place_name, row_name
from dlbench.reports.results.networks import is_own_step
from dlbench.reports.results.number_text import times
from dlbench.reports.results.operators import StepDifference, step_differences
from dlbench.reports.results.record import RELEASED, RELEASES, Record, Run
from dlbench.reports.results.statistics import WORSE, Ratio

NOTHING = (
    "No releases were measured side by side; `dlbench releases FRAMEWORK --network NAME` does."
)
_LEGEND = (
    "s/step: with its 95 % interval; to the one before: time relative to the previous release that "
    "has a number; to the first: relative to the first. slower, faster: by more than 2 %, and "
    "noise does not explain it (Welch's t over launches, at least 3, Holm-adjusted over all steps "
    "here). different: it computes something else, as the first losses of your own step differ "
    "from those of the one before by more than --loss-tolerance."
)
_LEFT_OUT = ("environment", "python", RELEASED, "tunable", "adapter_digest", "default_threads")


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
    before: str | None = None
    """The name of the last one before it that has a number."""
    pair: Pair | None = None
    """It and that one; None where it has no number itself."""
    to_first: Ratio | None = None
    also_changed: tuple[Difference, ...] = ()
    """Since that one, beside the framework itself."""
    loss_difference: LossDifference | None = None
    """From that one, of the first losses of a user's own step: it computes something else."""
    operators: StepDifference | None = None
    """Which operators account for the difference from that one, where both were profiled."""

    @property
    def ratio(self) -> Ratio | None:
        """Its time over that of the one before."""
        return None if self.pair is None else self.pair.ratio

    @property
    def change(self) -> str:
        """Slower, faster or different from the one before.

        Empty where noise explains it, and from too few launches to test.
        """
        if self.loss_difference is not None:
            return DIFFERENT
        if (
            self.pair is None
            or self.pair.p_value is None
            or self.pair.verdict not in (SLOWER, FASTER)
        ):
            return ""
        return self.pair.verdict

    @property
    def size(self) -> float:
        """How much it differs from the one before, in either direction: 0 without a ratio."""
        return 0.0 if self.ratio is None else abs(math.log(self.ratio.value))


Releases = Compared[Point]
DIFFERENT = "different"
"""The change of a release that computes something else than the one before it."""
_Losses = Mapping[tuple[str, Place], FirstLosses | None]
"""First losses by run and place."""


def releases(
    matrix: Matrix, records: Iterable[Record], runs: Iterable[Run], profiles: Sequence[Record] = ()
) -> Releases:
    """Return the releases of each run of releases, in the order of its plan, the newest run first.

    ``profiles`` are the records of profiled launches of slower ones.
    """
    records = list(records)
    newest = {
        Place(each.machine, axes.project(each.cell, axes.NAMES)): each
        for each in sorted(
            records, key=lambda each: (each.outcome.status is Status.OK, each.started)
        )
    }
    launches = grouped(
        records, lambda each: (each.run, Place(each.machine, axes.project(each.cell, axes.NAMES)))
    )
    losses = {key: first_losses(of_cell) for key, of_cell in launches.items()}
    points: list[Point] = []
    for run in sorted(
        (each for each in runs if each.purpose == RELEASES),
        key=lambda each: each.started,
        reverse=True,
    ):
        order = list(dict.fromkeys(cell.framework for cell in run.plan))
        cells = [
            each
            for each in matrix.cells.values()
            if each.run == run.id and each.row.framework in order
        ]
        cells.sort(key=lambda each: order.index(each.row.framework))
        for series in grouped(
            cells, lambda each: (each.machine, axes.without(each.cell, "framework"))
        ).values():
            if len(series) > 1:  # of an older run there may be one left that a newer one lacks
                points += _points(series, newest, losses)
    explained = {
        (run, axes.project(found.cell, axes.NAMES)): found
        for run, of_run in grouped(profiles, lambda each: each.run).items()
        for found in step_differences(of_run)
    }
    points = [
        replace(each, operators=explained.get((each.cell.run, each.cell.cell))) for each in points
    ]
    judged = iter(with_verdicts([each.pair for each in points if each.pair]))
    return Compared(
        matrix, tuple(replace(each, pair=next(judged)) if each.pair else each for each in points)
    )


def _points(
    cells: Sequence[CellResult], records: Mapping[Place, Record], losses: _Losses
) -> list[Point]:
    names, framework = names_of([each.row.framework for each in cells])
    known = [records.get(Place(each.machine, each.cell)) for each in cells]
    head = cells[0]
    if not framework and is_own_step(head.cell):
        framework = head.cell.network
    framework = framework or next((each.cell.adapter for each in known if each is not None), "")
    series = (
        f"{group_name(head.group)}: {row_name(head.row._replace(framework=framework))}, "
        f"{place_name(head.cell)}"
    )
    found: list[Point] = []
    timed: list[tuple[Point, Record | None]] = []
    for name, cell, record in zip(names, cells, known, strict=True):
        released = record.outcome.software.get(RELEASED) if record else None
        point = Point(series, name, cell, released if isinstance(released, str) else None)
        if timed:
            before, earlier = timed[-1]
            changed = also_changed(earlier, record, before.name, name) if earlier and record else ()
            first = pair_of(cell, timed[0][0].cell)
            pair = pair_of(cell, before.cell)
            old = losses.get((before.cell.run, Place(before.cell.machine, before.cell.cell)))
            new = losses.get((cell.run, Place(cell.machine, cell.cell)))
            point = replace(
                point,
                before=before.name,
                pair=pair,
                to_first=first.ratio if first else None,
                also_changed=changed,
                loss_difference=loss_difference(old, new),
            )
        if cell.timed is not None:
            timed.append((point, record))
        found.append(point)
    return found


def names_of(rows: Sequence[str]) -> tuple[list[str], str]:
    """Return the names of releases without what all begin with, and that: "0.4.20", ... of "jax"
    for "jax-0.4.20".

    Rows of other names stay as they are.
    """
    parts = [row.rpartition("-") for row in rows]
    if len({start for start, _, _ in parts}) == 1 and all(
        dash and end[:1].isdigit() for _, dash, end in parts
    ):
        return [end for _, _, end in parts], parts[0][0]
    return list(rows), ""


def also_changed(before: Record, after: Record, old: str, new: str) -> tuple[Difference, ...]:
    """Return what differs between two records beside the framework's own version, the most
    suspicious first.
    """
    found = [each for each in differences(before, after) if each.what not in _LEFT_OUT]
    return tuple(each for each in found if (each.before, each.after) != (old, new))


# Tables.


def _columns(found: Releases, rows: Sequence[Point]) -> tuple[Column[Point], ...]:
    common = common_flags(each.cell for each in rows if each.cell.shown)

    def python(each: Point) -> str:
        return each.cell.interpreter.removeprefix("CPython ")

    return (
        *host_columns(lambda each: found.matrix.hosts[each.cell.machine]),
        *axis_columns(lambda each: each.cell.cell),
        Column("release", "release", lambda each: each.name),
        Column("released", "released", lambda each: each.released),
        Column("interpreter", "Python", lambda each: each.cell.interpreter or None, python),
        Column("environment", None, lambda each: each.cell.environment or None),
        *attributes(lambda each: each.cell, "run", "status", "reason"),
        seconds_column(lambda each: each.cell, common),
        Column("before", None, lambda each: each.before),
        Column(
            "ratio",
            "to the one before",
            lambda each: each.ratio,
            lambda each: _ratio(each.ratio),
            VALUE,
        ),
        Column("p_adjusted", None, lambda each: each.pair and each.pair.p_value),
        Column("change", "", lambda each: each.change or None, lambda each: each.change),
        Column(
            "ratio_to_first",
            "to the first",
            lambda each: each.to_first,
            lambda each: _ratio(each.to_first),
            VALUE,
        ),
        Column("flags", None, lambda each: each.cell.flags),
        Column("loss_difference", None, lambda each: each.loss_difference, fields=None),
        Column("also_changed", None, lambda each: each.also_changed, fields=None),
        Column(
            "operators",
            None,
            lambda each: each.operators and difference_data(each.operators),
            fields=None,
        ),
    )


def _ratio(found: Ratio | None) -> Entry:
    return Entry("") if found is None else multiple(found)


def series_of(found: Releases) -> list[list[Point]]:
    """Return the releases of each run, machine, network and place."""
    return list(
        grouped(found.rows, lambda each: (each.cell.run, each.cell.machine, each.series)).values()
    )


def _table(found: Releases, series: Sequence[Point]) -> Table:
    holes = grouped(
        (each for each in series if each.cell.timed is None), lambda each: why_hole(each.cell)
    )
    missing = [f"{', '.join(each.name for each in of)}: {why}" for why, of in holes.items()]
    notes = [*missing, *(_change(each) for each in series if each.change)]
    title = f"{series[0].series}, on {found.name(series[0].cell.machine)}"
    return table(_columns(found, series), series, title, notes=notes)


def _change(each: Point) -> str:
    """Return one sentence: how much slower or faster a release is, and what else changed with
    it.
    """
    words = [difference_words(other) for other in each.also_changed[:MOST_SHOWN]]
    more = len(each.also_changed) - MOST_SHOWN
    words += [f"and {more} more (--format json)"] if more > 0 else []
    also = (
        f"also changed: {'; '.join(words)}"
        if words
        else "nothing else that the records show changed"
    )
    if each.loss_difference is not None:
        return f"{each.name} {_DIFFERS} {each.before} ({each.loss_difference.words}); {also}."
    operators = "" if each.operators is None else f" {each.operators.sentence}"
    return f"{each.name} takes {times(each.ratio)} the time of {each.before}; {also}.{operators}"


_DIFFERS = "computes something else than"


def _short(each: Point) -> str:
    """Return a change in a few words."""
    if each.loss_difference is not None:
        return f"{each.name} {_DIFFERS} {each.before}"
    return f"{each.name} is {each.change} ({times(each.ratio)})"


def undecided(series: Sequence[Point]) -> Point | None:
    """Return the release with the largest step that noise may or may not explain; None where a
    clear one is as large.

    Steps of less than 2 % do not count.
    """
    open_steps = [
        point
        for point in series
        if point.pair is not None
        and not point.change
        and point.pair.verdict != SAME
        and point.size > math.log(WORSE)
    ]
    largest = max(open_steps, key=lambda point: point.size, default=None)
    clear = max((point.size for point in series if point.change), default=0.0)
    return largest if largest is not None and largest.size > clear else None


def largest_undecided(found: Releases) -> list[Point]:
    """Return of each series the release that `undecided` names, where there is one."""
    points = [undecided(series) for series in series_of(found)]
    return [point for point in points if point is not None]


def headline(found: Releases) -> list[str]:
    """Return for each series its changes, and the whole of it: the last release over the first."""
    lines = []
    for series in series_of(found):
        changes = [_short(each) for each in series if each.change]
        timed = [each for each in series if each.cell.timed is not None]
        said = "; ".join(changes) or "no release differs clearly from the one before it"
        if (largest := undecided(series)) is not None:
            said += (
                f"; the largest step that is not decided: {largest.name} takes "
                f"{times(largest.ratio)} the time of {largest.before}"
            )
        # Between two releases the largest step is the whole of it.
        said_already = largest is not None and len(timed) == 2
        if timed[1:] and not said_already:
            said += (
                f"; {timed[-1].name} takes {times(timed[-1].to_first)} the time of {timed[0].name}"
            )
        said = said if timed[1:] else "fewer than two releases have a number"
        lines.append(f"{series[0].series} on {found.name(series[0].cell.machine)}: {said}.")
    return lines


def _page(found: Releases) -> Page:
    if not found.rows:
        return Page((NOTHING,), ())
    shown = [each.cell for each in found.rows if each.cell.shown]
    tables = tuple(_table(found, series) for series in series_of(found))
    return Page(tuple(headline(found)), tables, (_LEGEND, *flag_lines(shown, common_flags(shown))))


def _draw(found: Releases, path: Path) -> list[Path]:
    """Draw a panel for each series: releases down, the time over that of the first across, changes
    marked.
    """
    pages = []
    for machine, here in grouped(found.rows, lambda each: each.cell.machine).items():
        points = [
            (
                each.series,
                each.name,
                each.change or "neither, or noise",
                each.to_first or Ratio(1.0, None, None, ""),
            )
            for each in here
            if each.cell.timed is not None
        ]
        pages.append(
            (
                f"Releases, on {found.name(machine)}",
                "times as long as the first; bars: 95 % intervals",
                points,
            )
        )
    return draw([each for each in pages if each[2]], path, series="than the one before")


def _analyse(source: Source) -> Releases:
    runs = [run for run, _ in source.runs() if run.purpose == RELEASES]
    profiles = [record for run in runs for record in source.of_run(run.id).profiles]
    return releases(source.matrix(), source.results().records, runs, profiles)


REPORT = Report(
    name="releases",
    summary=(
        "The releases of a framework in order, and where it became slower or faster (`dlbench "
        "releases`)."
    ),
    examples=(
        "dlbench report releases",
        "dlbench report releases --networks lstm32 --plot releases.png",
    ),
    analyse=_analyse,
    page=lambda found, options: _page(found),
    data=lambda found: {
        "rows": objects(_columns(found, found.rows), found.rows),
        "notes": headline(found),
    },
    rows=lambda found: csv_rows(_columns(found, found.rows), found.rows),
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: any(each.cell.timed for each in found.rows),
    heading="Releases",
    place=65,
    headline=lambda found: headline(found) if any(each.change for each in found.rows) else [],
)
