"""Figure 1 of the 2016 paper: time against mini-batch size, the best size, and where larger ones stop paying.

A line is one row of the matrix at one place (machine, device, threads, precision, placement, workers) over the
mini-batch sizes of a network; where several workers share a mini-batch the size is the whole one's. Throughput X(b) is
b / T(b): examples a second, for the recurrent networks sequences.

The best mini-batch is the smallest whose throughput is not clearly lower than the highest (`clearly_slower`):
the same speed for less memory.

The knee is the smallest mini-batch from which no larger one pays: throughput grows to none of them by `PAYS` or more
for each doubling, X(c) / X(b) < (1 + PAYS) ** log2(c / b) for every c > b. So one slow size in the middle makes no
knee, and the largest size is never one. The medians say where the knee is; the intervals of those ratios (each of one
comparison, not of all together) say how early and how late it may be.

A size whose cell failed parity, or used more threads than asked, takes no part; nor does one of another environment
than its row's newest, without a proof of its mathematics, disturbed by other programs, or whose GPU was throttled, had
memory errors or a clock that disagrees with the wall clock, unless that is so of all.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Matrix, Place, column_of, differ, group_of, row_of
from dlbench.reports.columns import Column, attributes
from dlbench.reports.curve.curve import (
    CurveColumns,
    Knee,
    along,
    cell_columns,
    coverage,
    find_knee,
    line_columns,
    usable_times,
)
from dlbench.reports.curve.plot import DASHES, Picture, Style, draw, marks_of
from dlbench.reports.curve.plot import Line as Drawn
from dlbench.reports.curve.plot import Panel as DrawnPanel
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import VALUE
from dlbench.reports.naming import WORKERS_LEGEND, place_name, row_name
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report
from dlbench.reports.statistics import Ratio, Summary, clearly_slower, ratio
from dlbench.reports.storage.hosts import Host

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
NOTHING = "Nothing was measured yet."
QUANTITIES = {"seconds": "seconds per mini-batch", "items": "items per second"}
_KNEE = "k"
_NOT_OF_A_PLACE = ("network", *(axis.name for axis in axes.of_role(axes.ROW)))


@dataclass(frozen=True)
class Point:
    """One mini-batch size of a line; a missing cell has a status and no seconds."""

    batch_size: int
    cell: CellResult
    seconds: Summary | None
    """Per mini-batch; None for a missing cell, and for a number that cannot be used."""
    takes_part: bool
    """Whether it is among those that the best and the knee are chosen from."""
    growth: Ratio | None
    """Throughput here over that of the next smaller size that takes part, for each doubling; 1.1 is 10 % more."""

    def shown(self, quantity: str) -> tuple[float, float | None, float | None] | None:
        """Return the value of a quantity with the ends of its interval; None for a missing cell."""
        seconds = self.cell.seconds
        if seconds is None or not self.cell.shown:
            return None
        if quantity == "seconds":
            return seconds.median, seconds.low, seconds.high
        low, high = (None if end is None else self.batch_size / end for end in (seconds.high, seconds.low))
        return self.batch_size / seconds.median, low, high


@dataclass(frozen=True)
class Line:
    """One row of the matrix at one place, over its mini-batch sizes."""

    host: Host
    place: Place
    """The axes that the points share, without network and row."""
    points: tuple[Point, ...]
    """By rising mini-batch size."""
    best: int | None
    """The mini-batch to use; None where nothing was timed."""
    as_fast: tuple[int, ...]
    """Larger ones that are not clearly slower than the fastest either."""
    knee: Knee | None
    """None where fewer than two sizes take part."""

    @property
    def network(self) -> str:
        """The network."""
        return self.points[0].cell.group.network

    @property
    def row(self) -> Cell:
        """The row of the matrix."""
        return self.points[0].cell.row

    @property
    def timed(self) -> tuple[Point, ...]:
        """The points with a number that can be used."""
        return tuple(point for point in self.points if point.seconds is not None)

    @property
    def memory_ends(self) -> int | None:
        """The smallest size that memory did not suffice for, where no larger one has a number; else None."""
        largest = max((point.batch_size for point in self.points if point.cell.seconds is not None), default=0)
        ended = (p.batch_size for p in self.points if p.cell.status is Status.OUT_OF_MEMORY and p.batch_size > largest)
        return min(ended, default=None)


class Figure1(NamedTuple):
    """The lines of a matrix, network by network."""

    lines: tuple[Line, ...]
    left_out: tuple[Line, ...]
    """Lines of a single size beside others of several: no curve, but another suite in the same store."""
    notes: tuple[str, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """All places, network by network in the order of the matrix's columns."""
        return tuple(dict.fromkeys(line.place for line in self.lines))

    def panels(self) -> dict[str, list[Line]]:
        """Return the lines of each network."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.network, []).append(line)
        return found


def figure1(matrix: Matrix) -> Figure1:
    """Return the lines of a matrix over the mini-batch sizes."""
    columns = {column: n for n, column in enumerate(matrix.columns)}
    networks = list(dict.fromkeys(group.network for group in matrix.rows))

    def order(key: Place) -> tuple[object, ...]:
        # The precision that parity is proved at comes first.
        column = columns[column_of(key.machine, key.cell)]
        return networks.index(key.cell.network), column, axes.sort_key(group_of(key.cell)), row_of(key.cell)

    found = along(matrix.cells.values(), "batch_size")
    lines = [_line(matrix.hosts[key.machine], key, found[key]) for key in sorted(found, key=order)]
    shown = [line for line in lines if len(line.points) > 1] or lines
    return Figure1(tuple(shown), tuple(line for line in lines if line not in shown), matrix.notes)


def _line(host: Host, key: Place, cells: Iterable[CellResult]) -> Line:
    by_size = {cell.group.batch_size: cell for cell in sorted(cells, key=lambda cell: cell.group.batch_size)}
    usable = usable_times(by_size)
    kept = list(usable)
    for doubt in _DOUBTS:
        kept = [size for size in kept if not by_size[size].has(doubt)] or kept
    times = {size: usable[size] for size in kept}
    fastest = fastest_sizes(times)
    grown = {size: growth(smaller, size, times) for smaller, size in pairwise(kept)}
    points = tuple(
        Point(size, cell, usable.get(size), size in times, grown.get(size)) for size, cell in by_size.items()
    )
    place = Place(key.machine, axes.without(key.cell, *_NOT_OF_A_PLACE))
    return Line(host, place, points, fastest[0] if fastest else None, fastest[1:], knee_of(times))


def per_item(batch_size: int, seconds: Summary) -> Summary:
    """Return the seconds of one example of a mini-batch."""
    low, high = (None if end is None else end / batch_size for end in (seconds.low, seconds.high))
    launches = tuple(each / batch_size for each in seconds.launch_medians)
    return replace(seconds, median=seconds.median / batch_size, low=low, high=high, launch_medians=launches)


def fastest_sizes(times: Mapping[int, Summary]) -> tuple[int, ...]:
    """Return the rising mini-batch sizes whose throughput is not clearly lower than the highest."""
    each = {size: per_item(size, seconds) for size, seconds in times.items()}
    fastest = min(each.values(), key=lambda summary: summary.median, default=None)
    return tuple(sorted(size for size, of in each.items() if fastest is not None and not clearly_slower(of, fastest)))


def knee_of(times: Mapping[int, Summary]) -> Knee | None:
    """Return the knee of these seconds per mini-batch, by size; None with fewer than two sizes."""
    sizes = sorted(times)
    if len(sizes) < 2:
        return None
    growths = {size: [growth(size, c, times) for c in sizes if c > size] for size in sizes[:-1]}
    limit = 1 + PAYS
    return find_knee(
        growths,
        lambda found: all(each.value < limit for each in found),
        lambda found: all(each.low is None or each.low < limit for each in found),
        lambda found: all(each.high is not None and each.high < limit for each in found),
    )


def growth(size: int, larger: int, times: Mapping[int, Summary]) -> Ratio:
    """Return throughput at the larger size over that at the smaller, for each doubling between them."""
    found = ratio(per_item(size, times[size]), per_item(larger, times[larger]))
    power = 1 / math.log2(larger / size)
    return found.changed(lambda value: value**power, f"{found.method}, for each doubling")


def figure1_page(found: Figure1, quantity: str = "seconds") -> layout.Page:
    """Return a table for each network and place: mini-batches down, rows across."""
    if not found.lines:
        return layout.Page((NOTHING,), ())
    names, several = _place_names(found), len({place.machine for place in found.places}) > 1
    common = layout.common_flags(point.cell for line in found.lines for point in line.timed)
    tables = []
    for network, lines in found.panels().items():
        for place in dict.fromkeys(line.place for line in lines):
            of_place = [line for line in lines if line.place == place]
            on = "" if several else f", on {of_place[0].host.name}"
            tables.append(_table(f"{network}, {names[place]}{on}", of_place, quantity, common))
    before = (f"{QUANTITIES[quantity].capitalize()} against mini-batch size.",)
    return layout.Page(before, tuple(tables), tuple(_legend(found, common, quantity)))


def _table(title: str, lines: Sequence[Line], quantity: str, common: set[flags.FlagKind]) -> layout.Table:
    """Return the table of one network at one place; a row without any number has words beneath, and no column."""
    columns = [line for line in lines if any(point.shown(quantity) for point in line.points)]
    by_size = [{point.batch_size: point for point in line.points} for line in columns]
    rows = tuple(
        (
            layout.Entry(str(size)),
            *(_entry(points.get(size), line, quantity, common) for line, points in zip(columns, by_size, strict=True)),
        )
        for size in sorted({size for points in by_size for size in points})
    )
    missing = [
        (layout.why_hole(point.cell), row_name(line.row), str(point.batch_size))
        for line in lines
        for point in line.points
        if not point.cell.shown
    ]
    notes = (*(f"{row_name(line.row)}: {sentence(line)}." for line in columns), *layout.reasons(missing))
    head = ("mini-batch", *(row_name(line.row) for line in columns)) if columns else ()
    return layout.Table(title, head, rows, notes)


def _entry(point: Point | None, line: Line, quantity: str, common: set[flags.FlagKind]) -> layout.Entry:
    if point is None:
        return layout.Entry(layout.MISSING)
    entry = layout.entry(point.cell, layout.QUANTITIES[quantity], common)
    if (value := point.shown(quantity)) is None:
        return entry
    knee = _KNEE if line.knee is not None and line.knee.at == point.batch_size else ""
    best = point.batch_size == line.best
    return entry._replace(interval=layout.deviation(*value), marks=entry.marks + knee, best=best)


def _legend(found: Figure1, common: set[flags.FlagKind], quantity: str) -> list[str]:
    points = [point for line in found.lines for point in line.points]
    lines = []
    if any(line.knee is not None for line in found.lines):
        lines.append(
            f"{layout.BEST} the best mini-batch: the smallest whose throughput is not clearly below the highest; "
            f"{_KNEE} the knee: from it on no larger one raises throughput by {PAYS:.0%} or more for each doubling, in "
            "brackets where the intervals leave room for another."
        )
    if any(value is not None and value[1] is not None for value in (point.shown(quantity) for point in points)):
        lines.append("± half-width of the 95 % interval (the wider side)")
    if any(point.seconds is not None and not point.takes_part for point in points):
        lines.append(
            "Sizes of an older environment, without a parity check, or disturbed by other programs or a slowed GPU, do "
            "not count for best and knee."
        )
    lines += layout.flag_lines((point.cell for point in points), common)
    lines += [WORKERS_LEGEND] if any(place.world_size > 1 for place in found.places) else []
    if found.left_out:
        networks, count = ", ".join(dict.fromkeys(line.network for line in found.left_out)), len(found.left_out)
        lines.append(
            f"Not shown: {count} row{'s' if count != 1 else ''} measured at one mini-batch size only ({networks})."
        )
    return [*lines, *found.notes]


def sentence(line: Line) -> str:
    """Return a line in words: the best mini-batch, the knee, and where memory ended."""
    taking_part = [point for point in line.timed if point.takes_part]
    if not taking_part:
        words = ["no number that can be used"]
    elif len(taking_part) == 1:
        which = "could be used" if len(line.points) > 1 else "was measured"
        words = [f"only {taking_part[0].batch_size} {which}: nothing to compare"]
    else:
        words = [_best(line), _knee_words(line)]
    memory = "" if line.memory_ends is None else f"out of memory from {line.memory_ends}"
    return "; ".join(filter(None, [*words, memory]))


def _best(line: Line) -> str:
    (items,) = (point.shown("items") for point in line.timed if point.batch_size == line.best)
    partly = "" if all(point.takes_part for point in line.timed) else " of those that count"
    text = f"best{partly} at {line.best}, {layout.number(items[0] if items else 0.0)} items/s"
    if line.as_fast:
        return f"{text} ({', '.join(map(str, line.as_fast))} not clearly faster)"
    if line.best == max(point.batch_size for point in line.timed):
        text += ", the largest that memory held" if line.memory_ends else ", the largest measured"
    return text


def _knee_words(line: Line) -> str:
    knee = line.knee
    if knee is None:
        return ""
    if knee.at is None:
        size, last = [(point.batch_size, point.growth) for point in line.points if point.growth is not None][-1]
        text = f"no knee: {size} still gains {last.value - 1:.0%} for a doubling"
        return text + (f" (at {knee.earliest} noise may hide one)" if knee.earliest is not None else "")
    if knee.latest is None:
        return f"knee at {knee.at}" + (f" ({knee.earliest} or later)" if knee.earliest != knee.at else " or later")
    return f"knee at {knee.at}" + (f" ({knee.earliest} to {knee.latest})" if knee.earliest != knee.latest else "")


def _place_names(found: Figure1) -> dict[Place, str]:
    """Return each place in words: threads or device, and axes of the work and machines that differ or are unusual."""
    places = found.places
    differing = [
        axis
        for axis in axes.of_role(axes.GROUP)
        # A usual value is named where others stand beside it.
        if axis.usual is not None and {getattr(place.cell, axis.name) for place in places} != {axis.usual}
    ]
    several = len({place.machine for place in places}) > 1
    return {
        line.place: ", ".join(
            [
                place_name(line.place.cell),
                *(axis.long.format(getattr(line.place.cell, axis.name)) for axis in differing),
                *([line.host.name] if several else []),
            ]
        )
        for line in found.lines
    }


_PLACE: tuple[Column[Line], ...] = line_columns(
    lambda line: line.host, lambda line: line.points[0].cell.cell, "batch_size"
)
COLUMNS: CurveColumns[Line, Point] = CurveColumns(
    (
        *_PLACE,
        Column("best_batch_size", None, lambda line: line.best),
        Column("as_fast", None, lambda line: line.as_fast, fields=None),
        Column(
            "knee",
            None,
            lambda line: (
                line.knee and dict(zip(("batch_size", "earliest", "latest"), vars(line.knee).values(), strict=True))
            ),
            fields=("batch_size", "earliest", "latest"),
        ),
        Column("memory_ends_at", None, lambda line: line.memory_ends),
        Column("summary", None, sentence, fields=None),
    ),
    (
        *attributes(lambda point: point, "batch_size"),
        *cell_columns(lambda point: point.cell, "status", "reason", "seconds", "items_per_second"),
        *attributes(lambda point: point, "takes_part"),
        Column("growth_per_doubling", None, lambda point: point.growth, fields=VALUE),
        *cell_columns(lambda point: point.cell, "flags"),
    ),
    lambda line: line.points,
)


def figure1_data(found: Figure1) -> dict[str, Any]:
    """Return a JSON object: the panels, each a list of lines with their points."""
    panels = [{"network": network, "lines": COLUMNS.data(lines)} for network, lines in found.panels().items()]
    left_out = CurveColumns(_PLACE, (), lambda line: ()).data(found.left_out)
    return {
        "pays": PAYS,
        "panels": panels,
        "left_out": [{key: value for key, value in line.items() if key != "points"} for line in left_out],
        "notes": list(found.notes),
    }


def figure1_to_picture(found: Figure1, path: Path, quantity: str = "seconds") -> list[Path]:
    """Draw the figure with six places on a page, and return the files written; raises ReportError."""
    places = found.places
    pages = [places[start : start + len(DASHES)] for start in range(0, len(places), len(DASHES))] or [()]
    return draw((_picture(found, page, quantity) for page in pages), path)


def _picture(found: Figure1, places: Sequence[Place], quantity: str) -> Picture:
    """Return a page: a row has a colour and a mark, a place a kind of line; of a single row places have all three."""
    names = _place_names(found)
    drawn = [line for line in found.lines if line.timed and line.place in places]
    rows = sorted({line.row for line in drawn})
    places = [place for place in places if any(line.place == place for line in drawn)]
    styles = {
        (row, place): Style(number, number, kind) if len(rows) > 1 else Style.numbered(kind)
        for number, row in enumerate(rows)
        for kind, place in enumerate(places)
    }

    def curve(line: Line) -> Drawn:
        return Drawn(
            [(point.batch_size, value) for point in line.timed if (value := point.shown(quantity)) is not None],
            styles[line.row, line.place],
            line.best if len(line.timed) > 1 else None,
            None if line.knee is None else line.knee.at,
            [point.batch_size for point in line.timed if not point.takes_part],
            line.memory_ends,
        )

    panels = []
    for network in dict.fromkeys(line.network for line in drawn):
        here = [line for line in drawn if line.network == network]
        ended = {line.memory_ends for line in here if line.memory_ends is not None}
        sizes = sorted(ended | {point.batch_size for line in here for point in line.timed})
        powers = [size for size in sizes if size & (size - 1) == 0]
        panels.append(DrawnPanel(network, list(map(curve, here)), powers if len(sizes) > 9 and powers else sizes))
    legend: list[tuple[str, Any]] = []
    if len(rows) > 1:
        legend += [(row_name(row), styles[row, places[0]]) for row in rows]
    if len(places) > 1:
        look = {"color": "black", "marker": ""} if len(rows) > 1 else {}
        legend += [(names[place], {**styles[rows[0], place].look, **look}) for place in places]
    legend += marks_of(
        (each for panel in panels for each in panel.lines),
        "best mini-batch: the smallest\nnot clearly slower than the fastest",
        f"knee: from it on no doubling\ngains {PAYS:.0%}",
    )
    hosts = dict.fromkeys(line.host.name for line in drawn)
    on = f"on {' and '.join(hosts)}" if drawn else NOTHING
    shown = [point.seconds for line in drawn for point in line.timed if point.seconds is not None]
    return Picture(
        f"{QUANTITIES[quantity].capitalize()}, {on}",
        panels,
        legend,
        f"mini-batch size; bars: {coverage(shown)} interval of the median",
        QUANTITIES[quantity],
        "s" if quantity == "seconds" else "",
    )


REPORT = Report(
    name="figure1",
    summary="Time against mini-batch size, as in the paper's Figure 1: the best, and where larger ones stop paying.",
    examples=("dlbench report figure1 --plot figure1.png", "dlbench report figure1 --quantity items --suite figure1"),
    analyse=lambda source: figure1(source.matrix()),
    page=lambda found, options: figure1_page(found, options.quantity),
    data=figure1_data,
    rows=lambda found: COLUMNS.rows(found.lines),
    draw=lambda found, path, options: figure1_to_picture(found, path, options.quantity),
    drawable=lambda found: bool(found.lines),
    suggestion="time against mini-batch size: the best, and where larger ones stop paying",
    applies=lambda cells: differ(cells, "batch_size"),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    heading="Mini-batch sizes",
    place=40,
    has_section=lambda found: bool(found.lines),
)
