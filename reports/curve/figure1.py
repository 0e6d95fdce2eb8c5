"""Figure 1 of the 2016 paper: time against mini-batch size, the best size, and the knee.

A curve is one row of the matrix at one place (machine, device, threads, precision, placement,
workers) over the mini-batch sizes of a network; where several workers share a mini-batch the size
is the whole one's. Throughput X(b) is b / T(b): examples a second, for the recurrent networks
sequences.

The best mini-batch is the smallest whose throughput is not clearly lower than the highest
(`judge`): the same speed for less memory.

The knee is the smallest mini-batch beyond which no larger one pays: throughput never grows by
`PAYS` or more per doubling, X(c) / X(b) < (1 + PAYS) ** log2(c / b) for every c > b. So one slow
size in the middle makes no knee, and the largest size is never one. The medians give the knee; the
intervals of those ratios (for single comparisons, not for all together) give its earliest and
latest position.

A size whose cell failed parity, or used more threads than asked, takes no part. Nor does one with
another environment than its row's newest, without a parity check, disturbed by other programs, or
whose GPU was throttled, had memory errors or a clock that disagrees with the wall clock, unless
that is true of all sizes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.columns import Column, objects
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    CurvePoint,
    Curves,
    along,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    find_knee,
    finding_columns,
    grid,
    left_out_points,
    points_of,
    usable,
)
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report
from dlbench.reports.results import flag_kinds
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, RowKey, column_of, differ, grouped, row_of
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, network_name, place_name, row_name
from dlbench.reports.results.number_text import number
from dlbench.reports.results.quantities import OF_LAUNCHES, QUANTITIES, SECONDS, Numbers, legend
from dlbench.reports.results.statistics import Estimate, RatioVerdict, Summary, judge_ratio, ratio

PAYS = 0.10
"""A larger mini-batch pays where throughput grows by this share for each doubling."""
_WORTH = 1 + PAYS
_DOUBTS = (
    flag_kinds.OTHER_ENVIRONMENT,
    flag_kinds.PARITY_UNCHECKED,
    flag_kinds.ECC_ERRORS,
    flag_kinds.CONTENDED,
    flag_kinds.DEVICE_THROTTLED,
    flag_kinds.DEVICE_TIME,
)
"""A size with one of these takes no part as long as another is without it."""
SHOWN = (SECONDS, "items", *OF_LAUNCHES)
"""Quantities that it can show; best and knee are those of the throughput whatever is shown."""
_KNEE = "k"
_NOT_OF_A_PLACE = ("network", *(axis.name for axis in axes.with_role(axes.ROW)))


class BatchSizeKnee(NamedTuple):
    """The mini-batch beyond which no larger one pays, or None without one."""

    batch_size: int | None
    earliest: int | None
    latest: int | None


class BatchCurveFindings(NamedTuple):
    """The findings about a curve."""

    best_batch_size: int | None
    as_fast: tuple[int, ...]
    """Larger sizes that are not clearly slower."""
    knee: BatchSizeKnee | None
    """None with fewer than two sizes."""
    memory_ends_at: int | None
    """The smallest size for which memory was too small, above all with a number."""


class BatchSizeFindings(NamedTuple):
    """The findings about a mini-batch size."""

    growth_per_doubling: Estimate | None
    """Of the throughput, from the next smaller size that takes part."""


BatchPoint = CurvePoint[int, BatchSizeFindings]
BatchCurve = Curve[int, BatchSizeFindings, BatchCurveFindings]


class BatchSizeConclusions(NamedTuple):
    """The findings about several curves together."""

    left_out: list[BatchCurve]
    """Curves of a single size, where others have several."""


BatchCurves = Curves[int, BatchSizeFindings, BatchCurveFindings, BatchSizeConclusions]


def figure1(matrix: Matrix) -> BatchCurves:
    """Return the curves of a matrix over the mini-batch sizes, network by network.

    Curves of a single size are left out if others have several: they belong to another suite in the
    same store. Cells whose mini-batch size is not known have no place on a curve.
    """
    networks = list(dict.fromkeys(work.network for work in matrix.rows))

    def order(place: Place) -> tuple[int, int]:
        column = column_of(place.machine, place.cell)
        return networks.index(place.cell.network), matrix.columns.index(column)

    cells = [cell for cell in matrix.cells.values() if cell.cell.batch_size is not None]
    cells_by_place = along(cells, "batch_size")
    drawn = []
    left_out = []
    for place in sorted(cells_by_place, key=order):
        curve = _curve(matrix.hosts[place.machine], place, cells_by_place[place])
        if len(curve.points) > 1:
            drawn.append(curve)
        else:
            left_out.append(curve)
    if not drawn:
        drawn, left_out = left_out, []
    notes = list(matrix.notes)
    unknown = len(matrix.cells) - len(cells)
    if unknown:
        notes.append(f"Not shown: {counted(unknown, 'cell')} whose mini-batch size is not known.")
    return Curves(tuple(drawn), tuple(notes), BatchSizeConclusions(left_out))


def _curve(host: Host, place: Place, cells: Iterable[CellResult]) -> BatchCurve:
    by_size = {cell.cell.known_batch_size: cell for cell in cells}
    by_size = dict(sorted(by_size.items()))
    timed = {}
    for size, cell in by_size.items():
        seconds = usable(cell)
        if seconds is not None:
            timed[size] = seconds
    kept = list(timed)
    for doubt in _DOUBTS:
        undoubted = [size for size in kept if not by_size[size].has(doubt)]
        if undoubted:
            kept = undoubted
    times = {size: timed[size] for size in kept}
    growth_by_size = {}
    for smaller, size in pairwise(kept):
        growth_by_size[size] = growth(smaller, size, times)
    points = []
    for size, cell in by_size.items():
        findings = BatchSizeFindings(growth_by_size.get(size))
        points.append(CurvePoint(size, cell, timed.get(size), findings, size in times))
    best, *as_fast = fastest_sizes(times) or (None,)
    knee = knee_of(times)
    return Curve(
        host,
        place.cell,
        tuple(points),
        BatchCurveFindings(best, tuple(as_fast), knee, _memory_end(by_size)),
    )


def _memory_end(cells: Mapping[int, CellResult]) -> int | None:
    """Return the smallest size that memory was too small for, above all sizes with a number.

    The sizes rise.
    """
    end = None
    for size, cell in cells.items():
        if cell.seconds is not None:
            end = None
        elif cell.status is Status.OUT_OF_MEMORY and end is None:
            end = size
    return end


def curve_place(curve: BatchCurve) -> Place:
    """Return the axes that the points share, without network and row."""
    return Place(curve.host.fingerprint, axes.without(curve.cell, *_NOT_OF_A_PLACE))


def shown(point: BatchPoint, quantity: str) -> Numbers | None:
    """Return the value of a quantity with the ends of its interval, or None for a missing cell."""
    if not point.cell.shown:
        return None
    return QUANTITIES[quantity].value(point.cell)


def _gain(size: int, other: int, times: Mapping[int, Summary]) -> Estimate:
    """Return throughput at another size over that at a size."""

    def count_examples(value: float) -> float:
        return value * other / size

    return ratio(times[size], times[other]).changed(count_examples)


def fastest_sizes(times: Mapping[int, Summary]) -> tuple[int, ...]:
    """Return the rising mini-batch sizes whose throughput is not clearly lower than the highest."""

    def seconds_of_example(size: int) -> float:
        return times[size].median / size

    fastest = min(times, key=seconds_of_example, default=0)
    sizes = []
    for size in sorted(times):
        if judge_ratio(_gain(size, fastest, times)) is not RatioVerdict.SLOWER:
            sizes.append(size)
    return tuple(sizes)


def _pays_not(gains: Iterable[Estimate]) -> bool:
    return all(gain.value < _WORTH for gain in gains)


def _may_not_pay(gains: Iterable[Estimate]) -> bool:
    return all(gain.low is None or gain.low < _WORTH for gain in gains)


def _surely_pays_not(gains: Iterable[Estimate]) -> bool:
    return all(gain.high is not None and gain.high < _WORTH for gain in gains)


def knee_of(times: Mapping[int, Summary]) -> BatchSizeKnee | None:
    """Return the knee of these seconds per mini-batch, or None with fewer than two sizes."""
    sizes = sorted(times)
    if len(sizes) < 2:
        return None
    gains = {}
    for size in sizes[:-1]:
        gains[size] = [growth(size, larger, times) for larger in sizes if larger > size]
    return BatchSizeKnee(*find_knee(gains, _pays_not, _may_not_pay, _surely_pays_not))


def growth(size: int, larger: int, times: Mapping[int, Summary]) -> Estimate:
    """Return throughput at the larger size over that at the smaller, for each doubling between."""
    gain = _gain(size, larger, times)
    doublings = math.log2(larger / size)
    power = 1 / doublings

    def spread_over_doublings(value: float) -> float:
        return float(value**power)

    return gain.changed(spread_over_doublings, f"{gain.method}, for each doubling")


def figure1_page(content: BatchCurves, quantity: str = "seconds") -> layout.Page:
    """Return a table for each network and place: mini-batches down, rows across."""
    if not content.curves:
        # No measured cell has a place on a curve: the notes say why.
        return layout.Page(content.notes or (layout.NOTHING,), ())
    names = _place_names(content.curves)
    machines = set()
    timed_cells = []
    for curve in content.curves:
        machines.add(curve.host.fingerprint)
        timed_cells += [point.cell for point in curve.timed]
    common = layout.common_flags(timed_cells)
    tables = []
    for (network, place), curves in grouped(content.curves, _network_and_place).items():
        title = f"{network}, {names[place]}"
        if len(machines) == 1:
            title += f", on {curves[0].host.name}"
        tables.append(_table(title, curves, quantity, common))
    before = (f"{QUANTITIES[quantity].title} against mini-batch size.",)
    return layout.Page(before, tuple(tables), tuple(_legend(content, common, quantity)))


def _network_and_place(curve: BatchCurve) -> tuple[str, Place]:
    return curve.cell.network, curve_place(curve)


def _table(
    title: str, curves: Sequence[BatchCurve], quantity: str, common: set[flag_kinds.FlagKind]
) -> layout.Table:
    """Return the table of one network at one place.

    A row without any number gets a note instead of a column.
    """
    columns = {}
    entries = {}
    notes = []
    missing = []
    for curve in curves:
        name = row_name(curve.cell)
        for point in curve.points:
            if not point.cell.shown:
                missing.append((layout.why_hole(point.cell), name, str(point.at)))
        if any(shown(point, quantity) for point in curve.points):
            columns[name] = curve
    for name, curve in columns.items():
        notes.append(f"{name}: {sentence(curve)}.")
        for point in curve.points:
            entries[point.at, name] = _entry(point, curve, quantity, common)
    head = ("mini-batch", *columns) if columns else ()
    notes += layout.reasons(missing)
    return layout.Table(title, head, tuple(grid(entries, columns)), tuple(notes))


def _entry(
    point: BatchPoint, curve: BatchCurve, quantity: str, common: set[flag_kinds.FlagKind]
) -> layout.Entry:
    entry = layout.entry(point.cell, QUANTITIES[quantity], common)
    if shown(point, quantity) is None:
        return entry
    knee = curve.findings.knee
    if knee is not None and knee.batch_size == point.at:
        entry = entry._replace(marks=entry.marks + _KNEE)
    return entry._replace(best=point.at == curve.findings.best_batch_size)


def _legend(content: BatchCurves, common: set[flag_kinds.FlagKind], quantity: str) -> list[str]:
    points = points_of(content.curves)
    has_intervals = False
    has_doubts = False
    for point in points:
        value = shown(point, quantity)
        if value is not None and value[1] is not None:
            has_intervals = True
        if point.seconds is not None and not point.takes_part:
            has_doubts = True
    lines = []
    meaning = legend(quantity)
    if meaning:
        lines.append(f"{QUANTITIES[quantity].title}: {meaning}")
    if any(curve.findings.knee is not None for curve in content.curves):
        lines.append(
            f"{layout.BEST} the best mini-batch: the smallest whose throughput is not clearly "
            f"below the highest; {_KNEE} the knee: no larger mini-batch raises throughput by "
            f"{PAYS:.0%} or more per doubling; others that the intervals allow are in brackets."
        )
    if has_intervals:
        lines.append(layout.HALF_WIDTH)
    if has_doubts:
        lines.append(
            "Sizes measured with an older environment, without a parity check, or disturbed by "
            "other programs or a slowed GPU do not count for best and knee."
        )
    lines += layout.flag_lines((point.cell for point in points), common)
    lines += axes.legends(curve.cell for curve in content.curves)
    lines += left_out_points(points)
    left_out = content.conclusions.left_out
    if left_out:
        networks = dict.fromkeys(curve.cell.network for curve in left_out)
        lines.append(
            f"Not shown: {counted(len(left_out), 'row')} measured at one mini-batch size only "
            f"({', '.join(networks)})."
        )
    return [*lines, *content.notes]


def sentence(curve: BatchCurve) -> str:
    """Return a curve in words: the best mini-batch, the knee, and where memory ended."""
    if not curve.taking_part:
        words = ["no number that can be used"]
    elif len(curve.taking_part) == 1:
        which = "could be used" if len(curve.points) > 1 else "was measured"
        words = [f"only {curve.taking_part[0].at} {which}: nothing to compare"]
    else:
        words = [_best(curve), _knee_words(curve)]
    if curve.findings.memory_ends_at is not None:
        words.append(f"out of memory from {curve.findings.memory_ends_at}")
    return "; ".join(words)


def _best(curve: BatchCurve) -> str:
    """Return the best mini-batch in words."""
    best, as_fast = curve.findings.best_batch_size, curve.findings.as_fast
    (items,) = (point.cell.items_per_second for point in curve.timed if point.at == best)
    partly = "" if len(curve.taking_part) == len(curve.timed) else " of those that count"
    text = f"best{partly} at {best}, {number(items or 0.0)} items/s"
    if as_fast:
        return f"{text} ({', '.join(map(str, as_fast))} not clearly faster)"
    if best != curve.timed[-1].at:
        return text
    if curve.findings.memory_ends_at:
        return f"{text}, the largest that memory held"
    return f"{text}, the largest measured"


def _knee_words(curve: BatchCurve) -> str:
    """Return the knee in words, with the others that noise allows."""
    assert curve.findings.knee is not None
    at, earliest, latest = curve.findings.knee
    if at is None:
        last = curve.taking_part[-1]
        assert last.findings.growth_per_doubling is not None
        gain = last.findings.growth_per_doubling.value - 1
        text = f"no knee: {last.at} still gains {gain:.0%} for a doubling"
        if earliest is not None:
            text += f" (at {earliest} noise may hide one)"
        return text
    text = f"knee at {at}"
    if latest is None:
        if earliest == at:
            return f"{text} or later"
        return f"{text} ({earliest} or later)"
    if earliest == latest:
        return text
    return f"{text} ({earliest} to {latest})"


def _place_names(curves: Sequence[BatchCurve]) -> dict[Place, str]:
    """Return each place in words: threads or device, unusual axes of the work.

    Machines are named where there are several.
    """
    hosts = {curve_place(curve): curve.host for curve in curves}
    machines = {place.machine for place in hosts}
    names = {}
    for place, host in hosts.items():
        name = place_name(place.cell) + network_name(place.cell)
        if len(machines) > 1:
            name += f", {host.name}"
        names[place] = name
    return names


_KEYS = curve_columns("batch_size")
_CURVE: tuple[Column[BatchCurve], ...] = (
    *_KEYS,
    *finding_columns(*BatchCurveFindings._fields, as_fast=None, knee=BatchSizeKnee._fields),
    Column("summary", None, sentence, fields=None),
)
_POINT: tuple[Column[BatchPoint], ...] = (
    Column("batch_size", None, lambda point: point.at),
    *cell_columns("status", "reason", "seconds", "items_per_second"),
    Column("takes_part", None, lambda point: point.takes_part),
    *finding_columns("growth_per_doubling", growth_per_doubling=VALUE),
    *cell_columns("flags"),
)


def figure1_to_picture(content: BatchCurves, path: Path, quantity: str = "seconds") -> list[Path]:
    """Draw the figure with six places on a page, and return the files.

    Raises ReportError.
    """
    places = list(dict.fromkeys(map(curve_place, content.curves)))
    most = len(pictures.DASHES)
    pages = []
    for start in range(0, max(1, len(places)), most):
        pages.append(_picture(content, places[start : start + most], quantity))
    return pictures.draw(pages, path)


def _picture(content: BatchCurves, places: Sequence[Place], quantity: str) -> pictures.Picture:
    """Return a page: a row has a colour and a mark, a place a kind of line.

    With a single row, places have all three.
    """
    drawn = []
    drawn_rows = set()
    drawn_places = set()
    for curve in content.curves:
        place = curve_place(curve)
        if curve.timed and place in places:
            drawn.append(curve)
            drawn_rows.add(row_of(curve.cell))
            drawn_places.add(place)
    rows = sorted(drawn_rows)
    places = [place for place in places if place in drawn_places]
    styles = _styles(rows, places)
    panels = []
    lines = []
    for network, curves in groupby(drawn, lambda curve: curve.cell.network):
        lines_of_panel = []
        for curve in curves:
            line_style = styles[row_of(curve.cell), curve_place(curve)]
            lines_of_panel.append(_line(curve, quantity, line_style))
        panels.append(pictures.CurvePanel(network, lines_of_panel, _ticks(lines_of_panel)))
        lines += lines_of_panel
    legend = _style_legend(rows, places, styles, _place_names(content.curves))
    legend += pictures.marks_of(
        lines,
        best="best mini-batch: the smallest\nnot clearly slower than the fastest",
        knee=f"knee: from it on no doubling\ngains {PAYS:.0%}",
    )
    machines = dict.fromkeys(curve.host.name for curve in drawn)
    where = f"on {' and '.join(machines)}" if drawn else layout.NOTHING
    bars = pictures.coverage(points_of(drawn))
    title = QUANTITIES[quantity].title
    unit = "s" if "econds" in title else ""
    return pictures.Picture(
        f"{title}, {where}",
        panels,
        legend,
        f"mini-batch size; bars: {bars} interval of the median",
        f"{title[:1].lower()}{title[1:]}",
        unit,
    )


def _styles(
    rows: Sequence[RowKey], places: Sequence[Place]
) -> dict[tuple[RowKey, Place], pictures.Style]:
    """Return the style of each row at each place."""
    styles = {}
    for place_of_row, row in enumerate(rows):
        for kind, place in enumerate(places):
            look = place_of_row if len(rows) > 1 else kind
            styles[row, place] = pictures.style(look, look, kind)
    return styles


def _style_legend(
    rows: Sequence[RowKey],
    places: Sequence[Place],
    styles: Mapping[tuple[RowKey, Place], pictures.Style],
    names: Mapping[Place, str],
) -> list[tuple[str, pictures.Style]]:
    """Return the names of the rows and of the places, each where there are several."""
    legend: list[tuple[str, pictures.Style]] = []
    if len(rows) > 1:
        for row in rows:
            legend.append((row_name(row), styles[row, places[0]]))
    if len(places) > 1:
        for place in places:
            look = dict(styles[rows[0], place])
            if len(rows) > 1:
                look.update(color="black", marker="")
            legend.append((names[place], look))
    return legend


def _line(curve: BatchCurve, quantity: str, line_style: pictures.Style) -> pictures.Line:
    """Return a curve with its marks."""
    points = []
    marks: dict[str, list[int]] = {"apart": [], "knee": [], "best": [], "ended": []}
    for point in curve.timed:
        value = shown(point, quantity)
        if value is not None:
            points.append((point.at, value))
        if not point.takes_part:
            marks["apart"].append(point.at)
    findings: BatchCurveFindings = curve.findings
    if findings.knee is not None and findings.knee.batch_size is not None:
        marks["knee"].append(findings.knee.batch_size)
    if len(curve.timed) > 1 and findings.best_batch_size is not None:
        marks["best"].append(findings.best_batch_size)
    if findings.memory_ends_at is not None:
        marks["ended"].append(findings.memory_ends_at)
    return pictures.Line(points, line_style, marks)


def _ticks(lines: Iterable[pictures.Line]) -> list[float]:
    """Return the sizes to write under a panel: of many only the powers of two."""
    sizes: set[float] = set()
    for line in lines:
        sizes.update(size for size, _ in line.points)
        sizes.update(line.marks["ended"])
    rising = sorted(sizes)
    powers = [size for size in rising if int(size) & (int(size) - 1) == 0]
    if len(rising) > 9 and powers:
        return powers
    return rising


def _data(content: BatchCurves) -> dict[str, Any]:
    """Return a JSON object: the curves of each network."""
    panels = []
    for network, curves in groupby(content.curves, lambda curve: curve.cell.network):
        lines = curve_objects(list(curves), _CURVE, _POINT)
        panels.append({"network": network, "lines": lines})
    return {
        "pays": PAYS,
        "panels": panels,
        "left_out": objects(_KEYS, content.conclusions.left_out),
        "notes": list(content.notes),
    }


REPORT = Report(
    name="figure1",
    summary="Time against mini-batch size, as in the paper's Figure 1.",
    examples=(
        "dlbench report figure1 --plot figure1.png",
        "dlbench report figure1 --quantity items --suite figure1",
    ),
    analyse=lambda source: figure1(source.matrix()),
    page=lambda content, options: figure1_page(content, options.quantity),
    data=_data,
    rows=lambda content: curve_rows(content.curves, _CURVE, _POINT),
    draw=lambda content, path, options: figure1_to_picture(content, path, options.quantity),
    drawable=lambda content: bool(content.curves),
    suggestion="time against mini-batch size: the best, and where larger ones stop paying",
    applies=lambda cells: differ(cells, "batch_size"),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=SHOWN,
    heading="Mini-batch sizes",
    place=40,
    has_section=lambda content: bool(content.curves),
)
