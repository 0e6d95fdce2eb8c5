"""Figure 1 of the 2016 paper: time against mini-batch size, the best size, and where larger ones
stop helping.

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

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.columns import Column, objects
from dlbench.reports.curve import pictures
from dlbench.reports.curve.curve import (
    Curve,
    Curves,
    Point,
    along,
    cell_columns,
    curve_columns,
    curve_objects,
    curve_rows,
    find_knee,
    found_columns,
    grid,
    left_out_points,
    usable,
)
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report
from dlbench.reports.results import flags
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, column_of, differ, grouped, row_of
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, place_name, row_name, work_name
from dlbench.reports.results.number_text import number
from dlbench.reports.results.quantities import OF_LAUNCHES, QUANTITIES, SECONDS, Numbers, legend
from dlbench.reports.results.statistics import Ratio, Summary, judge, ratio

PAYS = 0.10
"""A larger mini-batch pays where throughput grows by this share for each doubling."""
_DOUBTS = (
    flags.OTHER_ENVIRONMENT,
    flags.PARITY_UNCHECKED,
    flags.ECC_ERRORS,
    flags.CONTENDED,
    flags.DEVICE_THROTTLED,
    flags.DEVICE_TIME,
)
"""A size with one of these takes no part as long as another is without it."""
SHOWN = (SECONDS, "items", *OF_LAUNCHES)
"""Quantities that it can show; best and knee are those of the throughput whatever is shown."""
_KNEE = "k"
_KNEE_PARTS = ("batch_size", "earliest", "latest")
_NOT_OF_A_PLACE = ("network", *(axis.name for axis in axes.of_role(axes.ROW)))


def figure1(matrix: Matrix) -> Curves:
    """Return the curves of a matrix over the mini-batch sizes, network by network.

    Curves of a single size are left out if others have several: they belong to another suite in the
    same store. Cells whose mini-batch size is not known have no place on a curve.
    """
    networks = list(dict.fromkeys(group.network for group in matrix.rows))

    def order(key: Place) -> tuple[int, int]:
        return networks.index(key.cell.network), matrix.columns.index(
            column_of(key.machine, key.cell)
        )

    found = along(
        (cell for cell in matrix.cells.values() if cell.cell.batch_size is not None), "batch_size"
    )
    curves = [
        _curve(matrix.hosts[key.machine], key, found[key]) for key in sorted(found, key=order)
    ]
    shown = [curve for curve in curves if len(curve.points) > 1] or curves
    left_out = [curve for curve in curves if curve not in shown]
    notes = list(matrix.notes)
    unknown = [cell for cell in matrix.cells.values() if cell.cell.batch_size is None]
    if unknown:
        notes.append(
            f"Not shown: {counted(len(unknown), 'cell')} whose mini-batch size is not known."
        )
    return Curves(tuple(shown), tuple(notes), {"left_out": left_out})


def _curve(host: Host, key: Place, cells: Iterable[CellResult]) -> Curve:
    by_size = {cell.cell.known_batch_size: cell for cell in cells}
    by_size = dict(sorted(by_size.items()))
    timed = {
        size: seconds for size, cell in by_size.items() if (seconds := usable(cell)) is not None
    }
    kept = list(timed)
    for doubt in _DOUBTS:
        kept = [size for size in kept if not by_size[size].has(doubt)] or kept
    times = {size: timed[size] for size in kept}
    grown = {size: growth(smaller, size, times) for smaller, size in pairwise(kept)}
    best, *as_fast = fastest_sizes(times) or (None,)
    largest = max((size for size, cell in by_size.items() if cell.seconds is not None), default=0)
    ended = (
        size
        for size, cell in by_size.items()
        if cell.status is Status.OUT_OF_MEMORY and size > largest
    )
    return Curve(
        host,
        key.cell,
        tuple(
            Point(
                size, cell, timed.get(size), size in times, {"growth_per_doubling": grown.get(size)}
            )
            for size, cell in by_size.items()
        ),
        {
            "best_batch_size": best,
            "as_fast": tuple(as_fast),
            "knee": knee_of(times),
            "memory_ends_at": min(ended, default=None),
        },
    )


def place_of(curve: Curve) -> Place:
    """Return the axes that the points share, without network and row."""
    return Place(curve.host.fingerprint, axes.without(curve.cell, *_NOT_OF_A_PLACE))


def shown(point: Point, quantity: str) -> Numbers | None:
    """Return the value of a quantity with the ends of its interval; None for a missing cell."""
    return QUANTITIES[quantity].value(point.cell) if point.cell.shown else None


def _gain(size: int, other: int, times: Mapping[int, Summary]) -> Ratio:
    """Return throughput at another size over that at a size."""
    return ratio(times[size], times[other]).changed(lambda value: value * other / size)


def fastest_sizes(times: Mapping[int, Summary]) -> tuple[int, ...]:
    """Return the rising mini-batch sizes whose throughput is not clearly lower than the highest."""
    fastest = min(times, key=lambda size: times[size].median / size, default=0)
    return tuple(size for size in sorted(times) if judge(_gain(size, fastest, times)) != "worse")


def knee_of(times: Mapping[int, Summary]) -> dict[str, int | None] | None:
    """Return the knee of these seconds per mini-batch, by size; None with fewer than two sizes."""
    sizes = sorted(times)
    limit = 1 + PAYS
    if len(sizes) < 2:
        return None
    return find_knee(
        "batch_size",
        {
            size: [growth(size, larger, times) for larger in sizes if larger > size]
            for size in sizes[:-1]
        },
        lambda found: all(each.value < limit for each in found),
        lambda found: all(each.low is None or each.low < limit for each in found),
        lambda found: all(each.high is not None and each.high < limit for each in found),
    )


def growth(size: int, larger: int, times: Mapping[int, Summary]) -> Ratio:
    """Return throughput at the larger size over that at the smaller, for each doubling between
    them.
    """
    found, power = _gain(size, larger, times), 1 / math.log2(larger / size)
    return found.changed(lambda value: value**power, f"{found.method}, for each doubling")


def figure1_page(found: Curves, quantity: str = "seconds") -> layout.Page:
    """Return a table for each network and place: mini-batches down, rows across."""
    if not found.curves:
        # What was measured has no place on a curve: the notes say why.
        return layout.Page(found.notes or (layout.NOTHING,), ())
    names, several = (
        _place_names(found.curves),
        len({curve.host.fingerprint for curve in found.curves}) > 1,
    )
    common = layout.common_flags(point.cell for curve in found.curves for point in curve.timed)
    tables = [
        _table(
            f"{network}, {names[place]}{'' if several else f', on {of[0].host.name}'}",
            of,
            quantity,
            common,
        )
        for (network, place), of in grouped(
            found.curves, lambda each: (each.cell.network, place_of(each))
        ).items()
    ]
    before = (f"{QUANTITIES[quantity].title} against mini-batch size.",)
    return layout.Page(before, tuple(tables), tuple(_legend(found, common, quantity)))


def _table(
    title: str, curves: Sequence[Curve], quantity: str, common: set[flags.FlagKind]
) -> layout.Table:
    """Return the table of one network at one place; a row without any number gets a note instead of
    a column.
    """
    columns = {
        row_name(each.cell): each
        for each in curves
        if any(shown(point, quantity) for point in each.points)
    }
    entries = {
        (point.at, name): _entry(point, curve, quantity, common)
        for name, curve in columns.items()
        for point in curve.points
    }
    missing = [
        (layout.why_hole(point.cell), row_name(curve.cell), str(point.at))
        for curve in curves
        for point in curve.points
        if not point.cell.shown
    ]
    notes = (
        *(f"{name}: {sentence(curve)}." for name, curve in columns.items()),
        *layout.reasons(missing),
    )
    return layout.Table(
        title, ("mini-batch", *columns) if columns else (), tuple(grid(entries, columns)), notes
    )


def _entry(point: Point, curve: Curve, quantity: str, common: set[flags.FlagKind]) -> layout.Entry:
    entry = layout.entry(point.cell, QUANTITIES[quantity], common)
    if shown(point, quantity) is None:
        return entry
    knee = _KNEE if curve.found["knee"] and curve.found["knee"]["batch_size"] == point.at else ""
    best = point.at == curve.found["best_batch_size"]
    return entry._replace(marks=entry.marks + knee, best=best)


def _legend(found: Curves, common: set[flags.FlagKind], quantity: str) -> list[str]:
    points = [point for curve in found.curves for point in curve.points]
    lines = [f"{QUANTITIES[quantity].title}: {meant}"] if (meant := legend(quantity)) else []
    if any(curve.found["knee"] is not None for curve in found.curves):
        lines.append(
            f"{layout.BEST} the best mini-batch: the smallest whose throughput is not clearly "
            f"below the highest; {_KNEE} the knee: no larger mini-batch raises throughput by "
            f"{PAYS:.0%} or more per doubling; others that the intervals allow are in brackets."
        )
    if any(
        value is not None and value[1] is not None
        for value in (shown(point, quantity) for point in points)
    ):
        lines.append(layout.HALF_WIDTH)
    if any(point.seconds is not None and not point.takes_part for point in points):
        lines.append(
            "Sizes measured with an older environment, without a parity check, or disturbed by "
            "other programs or a slowed GPU do not count for best and knee."
        )
    lines += layout.flag_lines((point.cell for point in points), common)
    lines += axes.legends(curve.cell for curve in found.curves)
    lines += left_out_points(points)
    if left_out := found.conclusions["left_out"]:
        networks = ", ".join(dict.fromkeys(curve.cell.network for curve in left_out))
        lines.append(
            f"Not shown: {counted(len(left_out), 'row')} measured at one mini-batch size only "
            f"({networks})."
        )
    return [*lines, *found.notes]


def sentence(curve: Curve) -> str:
    """Return a curve in words: the best mini-batch, the knee, and where memory ended."""
    if not curve.taking_part:
        words = ["no number that can be used"]
    elif len(curve.taking_part) == 1:
        which = "could be used" if len(curve.points) > 1 else "was measured"
        words = [f"only {curve.taking_part[0].at} {which}: nothing to compare"]
    else:
        words = [_best(curve), _knee_words(curve)]
    ended = curve.found["memory_ends_at"]
    return "; ".join([*words, *([] if ended is None else [f"out of memory from {ended}"])])


def _best(curve: Curve) -> str:
    best, as_fast = curve.found["best_batch_size"], curve.found["as_fast"]
    (items,) = (point.cell.items_per_second for point in curve.timed if point.at == best)
    partly = "" if len(curve.taking_part) == len(curve.timed) else " of those that count"
    text = f"best{partly} at {best}, {number(items or 0.0)} items/s"
    if as_fast:
        return f"{text} ({', '.join(map(str, as_fast))} not clearly faster)"
    if best == curve.timed[-1].at:
        text += (
            ", the largest that memory held"
            if curve.found["memory_ends_at"]
            else ", the largest measured"
        )
    return text


def _knee_words(curve: Curve) -> str:
    at, earliest, latest = curve.found["knee"].values()
    if at is None:
        last = curve.taking_part[-1]
        gain = last.found["growth_per_doubling"].value - 1
        text = f"no knee: {last.at} still gains {gain:.0%} for a doubling"
        return text + (f" (at {earliest} noise may hide one)" if earliest is not None else "")
    if latest is None:
        return f"knee at {at}" + (f" ({earliest} or later)" if earliest != at else " or later")
    return f"knee at {at}" + (f" ({earliest} to {latest})" if earliest != latest else "")


def _place_names(curves: Sequence[Curve]) -> dict[Place, str]:
    """Return each place in words: threads or device, unusual axes of the work, and machines where
    there are several.
    """
    places = {place_of(curve): curve.host for curve in curves}
    several = len({place.machine for place in places}) > 1
    return {
        place: place_name(place.cell)
        + work_name(place.cell)
        + (f", {host.name}" if several else "")
        for place, host in places.items()
    }


_KEYS = curve_columns("batch_size")
_CURVE: tuple[Column[Curve], ...] = (
    *_KEYS,
    *found_columns(
        "best_batch_size", "as_fast", "knee", "memory_ends_at", as_fast=None, knee=_KNEE_PARTS
    ),
    Column("summary", None, sentence, fields=None),
)
_POINT: tuple[Column[Point], ...] = (
    Column("batch_size", None, lambda point: point.at),
    *cell_columns("status", "reason", "seconds", "items_per_second"),
    Column("takes_part", None, lambda point: point.takes_part),
    *found_columns("growth_per_doubling", growth_per_doubling=VALUE),
    *cell_columns("flags"),
)


def figure1_to_picture(found: Curves, path: Path, quantity: str = "seconds") -> list[Path]:
    """Draw the figure with six places on a page, and return the files written; raises
    ReportError.
    """
    places = list(dict.fromkeys(map(place_of, found.curves)))
    most = len(pictures.DASHES)
    pages = [places[start : start + most] for start in range(0, max(1, len(places)), most)]
    return pictures.draw((_picture(found, page, quantity) for page in pages), path)


def _picture(found: Curves, places: Sequence[Place], quantity: str) -> pictures.Picture:
    """Return a page: a row has a colour and a mark, a place a kind of line; of a single row places
    have all three.
    """
    names = _place_names(found.curves)
    drawn = [curve for curve in found.curves if curve.timed and place_of(curve) in places]
    rows = sorted({row_of(curve.cell) for curve in drawn})
    places = [place for place in places if any(place_of(curve) == place for curve in drawn)]
    styles = {
        (row, place): pictures.style(number, number, kind)
        if len(rows) > 1
        else pictures.style(kind, kind, kind)
        for number, row in enumerate(rows)
        for kind, place in enumerate(places)
    }

    def line(curve: Curve) -> pictures.Line:
        best, knee, ended = (
            curve.found[name] for name in ("best_batch_size", "knee", "memory_ends_at")
        )
        marks = {
            "apart": [point.at for point in curve.timed if not point.takes_part],
            "knee": [knee["batch_size"]] if knee and knee["batch_size"] else [],
            "best": [best] if len(curve.timed) > 1 else [],
            "ended": [] if ended is None else [ended],
        }
        points = [
            (point.at, value)
            for point in curve.timed
            if (value := shown(point, quantity)) is not None
        ]
        return pictures.Line(points, styles[row_of(curve.cell), place_of(curve)], marks)

    panels = []
    for network, group in groupby(drawn, lambda curve: curve.cell.network):
        lines = list(map(line, group))
        sizes = sorted(
            {
                size
                for each in lines
                for size in (*(x for x, _ in each.points), *each.marks["ended"])
            }
        )
        powers = [size for size in sizes if int(size) & (int(size) - 1) == 0]
        panels.append(
            pictures.Panel(network, lines, powers if len(sizes) > 9 and powers else sizes)
        )
    legend: list[tuple[str, pictures.Style]] = []
    if len(rows) > 1:
        legend += [(row_name(row), styles[row, places[0]]) for row in rows]
    if len(places) > 1:
        look = {"color": "black", "marker": ""} if len(rows) > 1 else {}
        legend += [(names[place], {**styles[rows[0], place], **look}) for place in places]
    legend += pictures.marks_of(
        (each for panel in panels for each in panel.lines),
        best="best mini-batch: the smallest\nnot clearly slower than the fastest",
        knee=f"knee: from it on no doubling\ngains {PAYS:.0%}",
    )
    on = (
        f"on {' and '.join(dict.fromkeys(curve.host.name for curve in drawn))}"
        if drawn
        else layout.NOTHING
    )
    bars = pictures.coverage(point for curve in drawn for point in curve.timed)
    title = QUANTITIES[quantity].title
    return pictures.Picture(
        f"{title}, {on}",
        panels,
        legend,
        f"mini-batch size; bars: {bars} interval of the median",
        f"{title[:1].lower()}{title[1:]}",
        "s" if "econds" in title else "",
    )


REPORT = Report(
    name="figure1",
    summary=(
        "Time against mini-batch size, as in the paper's Figure 1: the best, and where larger ones "
        "stop helping."
    ),
    examples=(
        "dlbench report figure1 --plot figure1.png",
        "dlbench report figure1 --quantity items --suite figure1",
    ),
    analyse=lambda source: figure1(source.matrix()),
    page=lambda found, options: figure1_page(found, options.quantity),
    data=lambda found: {
        "pays": PAYS,
        "panels": [
            {"network": network, "lines": curve_objects(list(curves), _CURVE, _POINT)}
            for network, curves in groupby(found.curves, lambda curve: curve.cell.network)
        ],
        "left_out": objects(_KEYS, found.conclusions["left_out"]),
        "notes": list(found.notes),
    },
    rows=lambda found: curve_rows(found.curves, _CURVE, _POINT),
    draw=lambda found, path, options: figure1_to_picture(found, path, options.quantity),
    drawable=lambda found: bool(found.curves),
    suggestion="time against mini-batch size: the best, and where larger ones stop paying",
    applies=lambda cells: differ(cells, "batch_size"),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=SHOWN,
    heading="Mini-batch sizes",
    place=40,
    has_section=lambda found: bool(found.curves),
)
