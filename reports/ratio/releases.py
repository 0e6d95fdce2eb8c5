"""`dlbench report releases`: a framework's releases, and where it became slower or faster.

Each release is compared with the one before it that has a number. A search for change points as in
`dlbench history` needs five nights on either side of a change and has one number a night. In this
report every release has launches of its own, interleaved with those of all others, so each step is
tested by itself: Welch's t on the launches' log-medians, adjusted by Holm's procedure for all steps
of the report. A slow drift of many small steps is seen in the last column, the ratio to the first
release. The other changes at a step are taken from the records: packages, libraries, interpreter.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

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
from dlbench.reports.ratio.pairs import Pair, draw, pair_of, seconds_column, with_verdicts
from dlbench.reports.report import Report, ReportSource
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.conclusion import Conclusion
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
from dlbench.reports.results.naming import place_name, row_name, work_name
from dlbench.reports.results.networks import is_own_step
from dlbench.reports.results.number_text import times
from dlbench.reports.results.operators import StepDifference, step_differences
from dlbench.reports.results.record import RELEASES, Record, Run
from dlbench.reports.results.statistics import WORSE, Estimate, RatioVerdict

NOTHING = (
    "No releases were measured side by side; `dlbench releases FRAMEWORK --network NAME` does."
)
_LEGEND = (
    "s/step: with its 95 % interval; to the one before: time relative to the previous release that "
    "has a number; to the first: relative to the first. slower, faster: by more than 2 %, and "
    "noise does not explain it (Welch's t over launches, at least 3, Holm-adjusted over all steps "
    "of the report). different: it computes something else, as the first losses of your own step "
    "differ from those of the one before by more than --loss-tolerance."
)
_LEFT_OUT = ("environment", "python", "released", "tunable", "adapter_digest", "default_threads")


@dataclass(frozen=True)
class ReleasePoint:
    """A release on one network at one place."""

    series: str
    """Network, framework and place, for a heading: "lstm32, mini-batch 128: jax jit, 1 thread"."""
    name: str
    """The version, or the name that the user gave to its interpreter."""
    cell: CellResult
    released: str | None
    """When it was uploaded to the package index (ISO 8601)."""
    before: str | None = None
    """The name of the last one before it that has a number."""
    pair: Pair | None = None
    """This release and that one; None where this one has no number itself."""
    to_first: Estimate | None = None
    also_changed: tuple[Difference, ...] = ()
    """Since that one, besides the framework itself."""
    loss_difference: LossDifference | None = None
    """From that one, of the first losses of a user's own step: it computes something else."""
    operators: StepDifference | None = None
    """Which operators account for the difference from that one, where both were profiled."""

    @property
    def ratio(self) -> Estimate | None:
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
            or self.pair.verdict not in (RatioVerdict.SLOWER, RatioVerdict.FASTER)
        ):
            return ""
        return self.pair.verdict

    @property
    def size(self) -> float:
        """How much it differs from the one before, in either direction: 0 without a ratio."""
        if self.ratio is None:
            return 0.0
        return abs(math.log(self.ratio.value))


Releases = Compared[ReleasePoint]
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
    newest: dict[Place, Record] = {}
    for record in sorted(records, key=_good_and_new_last):
        newest[record.place] = record
    launches = grouped(records, lambda record: (record.run, record.place))
    losses = {key: first_losses(records_of_cell) for key, records_of_cell in launches.items()}
    runs_of_releases = [run for run in runs if run.purpose == RELEASES]
    points: list[ReleasePoint] = []
    for run in sorted(runs_of_releases, key=lambda run: run.started, reverse=True):
        for series in _cells_by_series(matrix, run):
            points += _points(series, newest, losses)
    operators = {}
    for run_id, profiles_of_run in grouped(profiles, lambda profile: profile.run).items():
        for difference in step_differences(profiles_of_run):
            operators[run_id, axes.without(difference.cell)] = difference
    compared = [point.pair for point in points if point.pair]
    judged = iter(with_verdicts(compared))
    rows = []
    for point in points:
        pair = next(judged) if point.pair else None
        difference_of_point = operators.get((point.cell.run, point.cell.cell))
        rows.append(replace(point, pair=pair, operators=difference_of_point))
    return Compared(matrix, tuple(rows))


def _good_and_new_last(record: Record) -> tuple[bool, datetime]:
    return record.outcome.status is Status.OK, record.started


def _cells_by_series(matrix: Matrix, run: Run) -> list[list[CellResult]]:
    """Return the cells of each series of a run, in the order of its plan."""
    order = list(dict.fromkeys(cell.framework for cell in run.plan))
    cells = []
    for cell in matrix.cells.values():
        if cell.run == run.id and cell.row.framework in order:
            cells.append(cell)
    cells.sort(key=lambda cell: order.index(cell.row.framework))
    by_place = grouped(cells, lambda cell: (cell.machine, axes.without(cell.cell, "framework")))
    # An older run may still have one release that a newer run lacks.
    return [series for series in by_place.values() if len(series) > 1]


def _points(
    cells: Sequence[CellResult], records: Mapping[Place, Record], losses: _Losses
) -> list[ReleasePoint]:
    """Return the releases of a series, each compared with the one before it."""
    names, framework = names_of([cell.row.framework for cell in cells])
    newest = [records.get(cell.place) for cell in cells]
    series = _series_name(cells[0], framework, newest)
    points: list[ReleasePoint] = []
    timed: list[tuple[ReleasePoint, Record | None]] = []
    for name, cell, record in zip(names, cells, newest, strict=True):
        released = None
        if record and isinstance(record.outcome.facts.released, str):
            released = record.outcome.facts.released
        point = ReleasePoint(series, name, cell, released)
        if timed:
            before, record_before = timed[-1]
            changed: tuple[Difference, ...] = ()
            if record_before and record:
                changed = also_changed(record_before, record, before.name, name)
            to_first = pair_of(cell, timed[0][0].cell)
            point = replace(
                point,
                before=before.name,
                pair=pair_of(cell, before.cell),
                to_first=to_first.ratio if to_first else None,
                also_changed=changed,
                loss_difference=loss_difference(
                    losses.get((before.cell.run, before.cell.place)),
                    losses.get((cell.run, cell.place)),
                ),
            )
        if cell.timed is not None:
            timed.append((point, record))
        points.append(point)
    return points


def _series_name(first: CellResult, framework: str, records: Iterable[Record | None]) -> str:
    """Return the network, framework and place of a series, for its heading."""
    if not framework and is_own_step(first.cell):
        framework = first.cell.network
    if not framework:
        for record in records:
            if record is not None:
                framework = record.cell.adapter
                break
    row = row_name(first.row._replace(framework=framework))
    return f"{work_name(first.work)}: {row}, {place_name(first.cell)}"


def names_of(rows: Sequence[str]) -> tuple[list[str], str]:
    """Return the names of releases without their common beginning, and that beginning.

    For "jax-0.4.20", ... these are "0.4.20", ... and "jax". Rows of other names stay as they are.
    """
    beginnings = set()
    ends = []
    for row in rows:
        beginning, dash, end = row.rpartition("-")
        if not dash or not end[:1].isdigit():
            return list(rows), ""
        beginnings.add(beginning)
        ends.append(end)
    if len(beginnings) == 1:
        return ends, beginnings.pop()
    return list(rows), ""


def also_changed(before: Record, after: Record, old: str, new: str) -> tuple[Difference, ...]:
    """Return the differences of two records besides the framework's version.

    The most suspicious is the first.
    """
    changed = []
    for difference in differences(before, after):
        values = (difference.before, difference.after)
        if difference.what not in _LEFT_OUT and values != (old, new):
            changed.append(difference)
    return tuple(changed)


# Tables.


def _columns(
    analysis: Releases, points: Sequence[ReleasePoint]
) -> tuple[Column[ReleasePoint], ...]:
    common = common_flags(point.cell for point in points if point.cell.shown)
    return (
        *host_columns(lambda point: analysis.matrix.hosts[point.cell.machine]),
        *axis_columns(lambda point: point.cell.cell),
        Column("release", "release", lambda point: point.name),
        Column("released", "released", lambda point: point.released),
        Column(
            "interpreter",
            "Python",
            lambda point: point.cell.interpreter or None,
            lambda point: point.cell.interpreter.removeprefix("CPython "),
        ),
        Column("environment", None, lambda point: point.cell.environment or None),
        *attributes(lambda point: point.cell, "run", "status", "reason"),
        seconds_column(lambda point: point.cell, common),
        Column("before", None, lambda point: point.before),
        Column(
            "ratio",
            "to the one before",
            lambda point: point.ratio,
            lambda point: _ratio_entry(point.ratio),
            VALUE,
        ),
        Column("p_adjusted", None, lambda point: point.pair and point.pair.p_value),
        Column("change", "", lambda point: point.change or None, lambda point: point.change),
        Column(
            "ratio_to_first",
            "to the first",
            lambda point: point.to_first,
            lambda point: _ratio_entry(point.to_first),
            VALUE,
        ),
        Column("flags", None, lambda point: point.cell.flags),
        Column("loss_difference", None, lambda point: point.loss_difference, fields=None),
        Column("also_changed", None, lambda point: point.also_changed, fields=None),
        Column("operators", None, _operators_data, fields=None),
    )


def _operators_data(point: ReleasePoint) -> dict[str, Any] | None:
    return None if point.operators is None else difference_data(point.operators)


def _ratio_entry(ratio: Estimate | None) -> Entry:
    return Entry("") if ratio is None else multiple(ratio)


def series_of(analysis: Releases) -> list[list[ReleasePoint]]:
    """Return the releases of each run, machine, network and place."""
    by_series = grouped(
        analysis.rows, lambda point: (point.cell.run, point.cell.machine, point.series)
    )
    return list(by_series.values())


def _table(analysis: Releases, series: Sequence[ReleasePoint]) -> Table:
    names_by_reason: dict[str, list[str]] = {}
    changes = []
    for point in series:
        if point.cell.timed is None:
            names_by_reason.setdefault(why_hole(point.cell), []).append(point.name)
        if point.change:
            changes.append(_change_sentence(point))
    notes = []
    for reason, names in names_by_reason.items():
        notes.append(f"{', '.join(names)}: {reason}")
    notes += changes
    title = f"{series[0].series}, on {analysis.name(series[0].cell.machine)}"
    return table(_columns(analysis, series), series, title, notes=notes)


def _change_sentence(point: ReleasePoint) -> str:
    """Return one sentence: how much slower or faster a release is, and its other changes."""
    changes = [difference_words(change) for change in point.also_changed[:MOST_SHOWN]]
    more = len(point.also_changed) - MOST_SHOWN
    if more > 0:
        changes.append(f"and {more} more (--format json)")
    also = "nothing else that the records show changed"
    if changes:
        also = f"also changed: {'; '.join(changes)}"
    if point.loss_difference is not None:
        return f"{point.name} {_DIFFERS} {point.before} ({point.loss_difference.words}); {also}."
    operators = "" if point.operators is None else f" {point.operators.sentence}"
    return f"{point.name} takes {times(point.ratio)} the time of {point.before}; {also}.{operators}"


_DIFFERS = "computes something else than"


def _change_text(point: ReleasePoint) -> str:
    """Return a change in a few words."""
    if point.loss_difference is not None:
        return f"{point.name} {_DIFFERS} {point.before}"
    return f"{point.name} is {point.change} ({times(point.ratio)})"


def undecided(series: Sequence[ReleasePoint]) -> ReleasePoint | None:
    """Return the release with the largest step that noise may or may not explain.

    None where a clear one is as large. Steps of less than 2 % do not count.
    """
    open_steps = []
    for point in series:
        if (
            point.pair is not None
            and not point.change
            and point.pair.verdict is not RatioVerdict.SAME
            and point.size > math.log(WORSE)
        ):
            open_steps.append(point)
    largest = max(open_steps, key=lambda point: point.size, default=None)
    clear = max((point.size for point in series if point.change), default=0.0)
    if largest is None or largest.size <= clear:
        return None
    return largest


def largest_undecided(analysis: Releases) -> list[ReleasePoint]:
    """Return of each series the release that `undecided` names, where there is one."""
    points = []
    for series in series_of(analysis):
        point = undecided(series)
        if point is not None:
            points.append(point)
    return points


def headline(analysis: Releases) -> list[str]:
    """Return for each series its changes, and the last release over the first."""
    lines = []
    for series in series_of(analysis):
        name = f"{series[0].series} on {analysis.name(series[0].cell.machine)}"
        timed = [point for point in series if point.cell.timed is not None]
        if len(timed) < 2:
            lines.append(f"{name}: fewer than two releases have a number.")
            continue
        changes = [_change_text(point) for point in series if point.change]
        clauses = changes or ["no release differs clearly from the one before it"]
        largest = undecided(series)
        if largest is not None:
            clauses.append(
                f"the largest step that is not decided: {largest.name} takes "
                f"{times(largest.ratio)} the time of {largest.before}"
            )
        # Between two releases the largest step is the whole change.
        if largest is None or len(timed) > 2:
            first, last = timed[0], timed[-1]
            clauses.append(f"{last.name} takes {times(last.to_first)} the time of {first.name}")
        lines.append(f"{name}: {'; '.join(clauses)}.")
    return lines


def _page(analysis: Releases) -> Page:
    if not analysis.rows:
        return Page((NOTHING,), ())
    shown = [point.cell for point in analysis.rows if point.cell.shown]
    tables = tuple(_table(analysis, series) for series in series_of(analysis))
    lines = (_LEGEND, *flag_lines(shown, common_flags(shown)))
    return Page(tuple(headline(analysis)), tables, lines)


def _draw(analysis: Releases, path: Path) -> list[Path]:
    """Draw a panel for each series: releases down, the time over that of the first across."""
    pages = []
    by_machine = grouped(analysis.rows, lambda point: point.cell.machine)
    for machine, releases_on_machine in by_machine.items():
        dots = []
        for release in releases_on_machine:
            if release.cell.timed is not None:
                change = release.change or "neither, or noise"
                ratio = release.to_first or Estimate(1.0, None, None, "")
                dots.append((release.series, release.name, change, ratio))
        if dots:
            title = f"Releases, on {analysis.name(machine)}"
            pages.append((title, "times as long as the first; bars: 95 % intervals", dots))
    return draw(pages, path, series="than the one before")


def _analyse(source: ReportSource) -> Releases:
    runs = []
    profiles: list[Record] = []
    for run, _ in source.runs():
        if run.purpose == RELEASES:
            runs.append(run)
            profiles += source.of_run(run.id).profiles
    return releases(source.matrix(), source.results().records, runs, profiles)


def _data(analysis: Releases) -> dict[str, Any]:
    return {
        "rows": objects(_columns(analysis, analysis.rows), analysis.rows),
        "notes": headline(analysis),
    }


def _is_drawable(analysis: Releases) -> bool:
    return any(point.cell.timed for point in analysis.rows)


def conclusion_of(analysis: Releases) -> Conclusion:
    """Return whether a release differs from the one before it, and the headline."""
    reason = " ".join(headline(analysis))
    if any(point.change for point in analysis.rows):
        return Conclusion("changed", reason)
    if any(point.cell.shown for point in analysis.rows):
        return Conclusion("unchanged", reason)
    return Conclusion("no number", reason)


def _headline_of_changes(analysis: Releases) -> list[str]:
    """Return the headline where a release differs from the one before it."""
    if any(point.change for point in analysis.rows):
        return headline(analysis)
    return []


REPORT = Report(
    name="releases",
    summary="A framework's releases, and where it became slower or faster.",
    examples=(
        "dlbench report releases",
        "dlbench report releases --networks lstm32 --plot releases.png",
    ),
    analyse=_analyse,
    page=lambda analysis, options: _page(analysis),
    conclusion=conclusion_of,
    data=_data,
    rows=lambda analysis: csv_rows(_columns(analysis, analysis.rows), analysis.rows),
    draw=lambda analysis, path, options: _draw(analysis, path),
    drawable=_is_drawable,
    heading="Releases",
    place=65,
    headline=_headline_of_changes,
)
