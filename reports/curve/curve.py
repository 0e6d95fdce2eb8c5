"""Curves: the times of cells that differ in numeric axes alone (threads, mini-batch size, workers, units); pictures.

The reports of curves are presets: each says which cells make a curve, what it finds of a curve and of its points
(`Curve.found` and `Point.found`, by the keys of JSON), and how that is shown.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.families.own import Own
from dlbench.adapters.protocol import Cell
from dlbench.reports import flags
from dlbench.reports.cells import CellResult, Place
from dlbench.reports.columns import Column, attributes, axis_columns, csv_rows, objects, within
from dlbench.reports.formats.csv import MEDIAN, Rows
from dlbench.reports.formats.layout import MISSING, Entry
from dlbench.reports.formats.pictures import (
    COLOURS,
    GREY,
    MARKS,
    MOST_PANELS,
    Interval,
    bars,
    figure_of,
    gridded,
    plain_frame,
    write_pages,
)
from dlbench.reports.statistics import CONFIDENCE, Contrast, Summary, adjust
from dlbench.reports.storage.hosts import Host

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")
Row = TypeVar("Row")


class Point(NamedTuple):
    """One cell of a curve; a missing one has a status and no seconds."""

    at: Any
    """Its value of the axis."""
    cell: CellResult
    seconds: Summary | None
    """None for a missing cell, and for a number that cannot be used."""
    takes_part: bool = True
    """Whether it counts for findings."""
    found: Mapping[str, Any] = {}


class Curve(NamedTuple):
    """The cells of one machine that differ in the axes of a report alone."""

    host: Host
    cell: Cell
    """The axes that the points share."""
    points: tuple[Point, ...]
    found: Mapping[str, Any] = {}

    @property
    def timed(self) -> list[Point]:
        """The points with a number that can be used."""
        return [point for point in self.points if point.seconds is not None]

    @property
    def taking_part(self) -> list[Point]:
        """The points with a number that counts."""
        return [point for point in self.timed if point.takes_part]

    @property
    def times(self) -> dict[Any, Summary]:
        """The times that can be used, by the axis."""
        return {point.at: point.seconds for point in self.points if point.seconds is not None}

    @property
    def place(self) -> Place:
        """The machine, and the axes that the points share."""
        return Place(self.host.fingerprint, self.cell)


class Curves(NamedTuple):
    """The content of a report."""

    curves: tuple[Curve, ...]
    notes: tuple[str, ...]
    left_out: tuple[Curve, ...] = ()


def find_knee(axis: str, found: Mapping[int, Found], *tests: Callable[[Found], bool]) -> dict[str, int | None]:
    """Return the value of the axis from which something holds, and the earliest and the latest that it may be.

    The tests say in this order whether it holds by the medians, may hold by the intervals, and is shown by them; None
    stands for no value.
    """
    firsts = (next((at for at, each in found.items() if test(each)), None) for test in tests)
    return dict(zip((axis, "earliest", "latest"), firsts, strict=True))


def along(cells: Iterable[CellResult], *names: str) -> dict[Place, list[CellResult]]:
    """Group cells that differ in these axes alone; cells and groups keep their order."""
    found: dict[Place, list[CellResult]] = {}
    for cell in cells:
        found.setdefault(Place(cell.column.machine, axes.without(cell.cell, *names)), []).append(cell)
    return found


def by_machine(curves: Iterable[Curve]) -> list[list[Curve]]:
    """Group curves by their machines; curves and groups keep their order."""
    found: dict[str, list[Curve]] = {}
    for curve in curves:
        found.setdefault(curve.host.fingerprint, []).append(curve)
    return list(found.values())


def usable(cell: CellResult) -> Summary | None:
    """Return the time of a cell with correct mathematics and no more threads than requested; else None."""
    return None if cell.has(flags.THREADS_EXCEEDED) else cell.timed


def adjust_together(several: Iterable[Mapping[Key, Contrast]]) -> list[dict[Key, Contrast]]:
    """Return the comparisons of several rows, adjusted for the number of all."""
    rows = list(several)
    adjusted = iter(adjust([each for row in rows for each in row.values()]))
    return [{key: next(adjusted) for key in row} for row in rows]


def computes_nothing(cell: CellResult) -> bool:
    """Return whether a timed cell's framework has no mathematics: no parameters, hence no rate, and no parity.

    A published cell has no parity either, but not the verdict "unchecked". Only its author knows what an own step does.
    """
    if cell.group.network == Own.name:
        return False
    unchecked = cell.parity is not None and cell.parity.verdict == "unchecked"
    return cell.seconds is not None and unchecked and cell.gflops is None


# Tables, JSON and CSV.


def grid(entries: Mapping[tuple[Any, Key], Entry], columns: Iterable[Key]) -> list[tuple[Entry, ...]]:
    """Return a row for the first part of each key, by rising numbers, with the entries of the second parts."""
    columns = list(columns)
    rows = sorted(dict.fromkeys(row for row, _ in entries), key=lambda row: row if isinstance(row, int) else 0)
    return [(Entry(str(row)), *(entries.get((row, each), Entry(MISSING)) for each in columns)) for row in rows]


def curve_columns(*left_out: str) -> tuple[Column[Curve], ...]:
    """Return the columns of a curve's machine and of its axes but those left out."""
    return (
        Column("machine", None, lambda curve: curve.host.fingerprint),
        Column("machine_name", None, lambda curve: curve.host.name),
        *axis_columns(lambda curve: curve.cell, [name for name in axes.NAMES if name not in left_out]),
    )


def cell_columns(*names: str) -> tuple[Column[Point], ...]:
    """Return columns of these attributes of a point's cell."""
    columns: tuple[Column[Point], ...] = attributes(lambda point: point.cell, *names, seconds=MEDIAN)
    return tuple(replace(each, key="seconds_per_minibatch") if each.key == "seconds" else each for each in columns)


def items(of: Callable[[Row], Mapping[str, Any]], *names: str, **fields: Any) -> tuple[Column[Row], ...]:
    """Return columns of these items for JSON and CSV; ``fields`` are the parts of those that are objects."""

    def column(name: str) -> Column[Row]:
        return Column(name, None, lambda row: of(row).get(name), fields=fields.get(name, ()))

    return tuple(column(name) for name in names)


def found_columns(*names: str, **fields: Any) -> tuple[Column[Any], ...]:
    """Return columns of what was found of curves, or of points; ``fields`` as for `items`."""
    return items(lambda each: each.found, *names, **fields)


def curve_objects(
    curves: Sequence[Curve], of_curve: Sequence[Column[Curve]], of_point: Sequence[Column[Point]], key: str = "points"
) -> list[dict[str, Any]]:
    """Return a JSON object for each curve, with the list of its points under this key."""
    return [
        {**each, key: objects(of_point, curve.points)}
        for curve, each in zip(curves, objects(of_curve, curves), strict=True)
    ]


def curve_rows(curves: Sequence[Curve], of_curve: Sequence[Column[Curve]], of_point: Sequence[Column[Point]]) -> Rows:
    """Return a CSV line for each point."""
    pairs = [(curve, point) for curve in curves for point in curve.points]
    return csv_rows((*within(of_curve, itemgetter(0)), *within(of_point, itemgetter(1))), pairs)


# Pictures: a panel for each network, the axis across, times, speed-ups or losses up.

DASHES: tuple[tuple[int, tuple[float, ...] | None], ...] = (
    (0, None),
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (9, 3)),
    (0, (3, 1, 1, 1, 1, 1)),
)
SOLID, BROKEN, DOTTED = DASHES[:3]
_COLUMNS = 3
_TICKS = 9
"""Values written under a panel, at most."""
_ASIDE = 0.006
"""How far neighbouring lines are moved aside so that none hides another, as a share of a panel's width."""
_MARKS: Mapping[str, Mapping[str, Any]] = {
    "best": {"marker": "*", "markersize": 9, "markeredgecolor": "black", "markeredgewidth": 0.6, "zorder": 4},
    "knee": {"marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.1, "zorder": 3},
    "apart": {"markersize": 4, "markerfacecolor": "white", "zorder": 3},
    "ended": {"marker": "x", "markersize": 5},
}
Style = Mapping[str, Any]
"""Matplotlib's keywords of a line."""


class Line(NamedTuple):
    """One curve in a panel."""

    points: Sequence[tuple[float, Interval]]
    style: Style
    marks: Mapping[str, Sequence[float]] = {}
    """Where it has marks, by their names: best, knee, apart (does not count), ended (memory did)."""


class Panel(NamedTuple):
    """One panel; both axes are logarithmic unless ``linear`` says that the horizontal one is not."""

    title: str
    lines: Sequence[Line]
    ticks: Sequence[float] = ()
    """Values that may be written across; empty: as Matplotlib chooses."""
    ideal: Sequence[tuple[float, float]] = ()
    """Two points or more of a dotted grey line."""
    limit: float | None = None
    """Where a black vertical line stands."""
    levels: Sequence[float] = ()
    """Heights of grey horizontal lines: solid, then broken."""
    across: str = ""
    linear: bool = False


class Picture(NamedTuple):
    """One file of panels; more panels than a page holds continue on further files."""

    title: str
    panels: Sequence[Panel]
    legend: Sequence[tuple[str, Style]]
    across: str = ""
    up: str = ""
    unit: str = ""
    """Unit of the vertical axis, with prefixes: "s"."""
    binary: bool = False
    """Whether ticks of the vertical axis are powers of two."""
    linear: bool = False
    """Whether the vertical axis is linear."""


def style(colour: int, mark: int, dashes: int) -> Style:
    """Return the style of numbers of a colour, a mark and a kind of line; no meaning rests on one of them alone."""
    return {
        "color": COLOURS[colour % len(COLOURS)],
        "marker": MARKS[mark % len(MARKS)],
        "linestyle": DASHES[dashes % len(DASHES)],
    }


def marks_of(lines: Iterable[Line], **meanings: str) -> list[tuple[str, Style]]:
    """Return the legend of those marks that these lines have, with their meanings."""
    used = {name for line in lines for name, places in line.marks.items() if places}
    legend = {**meanings, "apart": "does not count", "ended": "memory ended there"}
    look = {"color": GREY, "linestyle": "", "marker": "o"}
    return [(meaning, {**look, **_MARKS[name]}) for name, meaning in legend.items() if name in used]


def ends(seconds: Summary) -> Interval:
    """Return a time with the ends of its interval."""
    return seconds.median, seconds.low, seconds.high


def coverage(points: Iterable[Point]) -> str:
    """Return the coverage of the intervals of these times, "75 to 95 %": from few steps less than 95 %."""
    known = [each.seconds.coverage for each in points if each.seconds and each.seconds.coverage is not None]
    low, high = (f"{100 * end:.0f}" for end in (min(known, default=CONFIDENCE), max(known, default=CONFIDENCE)))
    return f"{low} %" if low == high else f"{low} to {high} %"


def draw(pictures: Iterable[Picture], path: Path) -> list[Path]:
    """Write the pictures to this path, to NAME-2.png beside it and so on, and return the files; raises ReportError."""
    pages = (
        _figure(picture, picture.panels[start : start + MOST_PANELS])
        for picture in pictures
        for start in range(0, max(1, len(picture.panels)), MOST_PANELS)
    )
    return write_pages(pages, path)


def _figure(picture: Picture, panels: Sequence[Panel]) -> "Figure":
    from matplotlib.lines import Line2D

    least = (0.0, 0.17 * sum(1 + label.count("\n") for label, _ in picture.legend) + 0.9)
    figure, axes = figure_of(len(panels), _COLUMNS, (3.7, 3.0), beside=(2.6, 0.9), least=least)
    for drawn, panel in zip(axes.flat, panels, strict=False):
        _panel(drawn, panel, picture)
    for row in axes:
        row[0].set_ylabel(picture.up, fontsize=8)
    figure.suptitle(picture.title, fontsize=10)
    if panels:
        figure.supxlabel(picture.across, fontsize=8)
        handles = [Line2D([], [], **{"markersize": 4.5, "linewidth": 1.2, **look}) for _, look in picture.legend]
        labels = [label for label, _ in picture.legend]
        figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False, handlelength=3.2)
    return figure


def _panel(drawn: "Axes", panel: Panel, picture: Picture) -> None:
    drawn.set_xscale("linear" if panel.linear else "log")
    drawn.set_yscale("linear" if picture.linear else "log")
    if panel.ideal:
        drawn.plot(*zip(*panel.ideal, strict=True), color=GREY, linestyle=DOTTED, linewidth=1.0)
    if panel.limit is not None:
        drawn.axvline(panel.limit, color="black", linewidth=0.8)
    for level, dashes in zip(panel.levels, (SOLID, BROKEN), strict=False):
        drawn.axhline(level, color=GREY, linewidth=0.9, linestyle=dashes)
    aside = (panel.ticks[-1] / panel.ticks[0]) ** _ASIDE if panel.ticks else 1.0
    for place, line in enumerate(panel.lines):
        _line(drawn, line, aside ** (place - (len(panel.lines) - 1) / 2))
    if panel.ticks:
        gridded(drawn, panel.title, panel.ticks[:: math.ceil(len(panel.ticks) / _TICKS)])
    else:
        _few_ticks(drawn, panel)
    _vertical_ticks(drawn, picture)


def _line(drawn: "Axes", line: Line, aside: float) -> None:
    at = {x: value[0] for x, value in line.points}
    across = [x * aside for x in at]
    bars(
        drawn,
        across,
        [value for _, value in line.points],
        linewidth=1.1,
        capsize=2,
        markevery=max(1, len(at) // 8),
        **line.style,
    )
    for name, places in line.marks.items():
        look = {**line.style, **_MARKS[name], "linestyle": ""}
        for x in places:
            if name == "ended":
                drawn.axvline(x, color=GREY, linewidth=0.6, linestyle=DOTTED, zorder=0.5)
                drawn.plot([x * aside], [0.03], transform=drawn.get_xaxis_transform(), **look)
            else:
                drawn.plot([x * aside], [at[x]], **look)


def _few_ticks(drawn: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    drawn.set_title(panel.title, fontsize=9, loc="left")
    drawn.set_xlabel(panel.across, fontsize=8)
    if panel.linear:
        drawn.set_xlim(left=0)
    else:
        # The usual labels of powers are formulas, which pictures do not show.
        drawn.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        drawn.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        drawn.xaxis.set_minor_formatter(NullFormatter())
    drawn.grid(color="#dddddd", linewidth=0.5)
    drawn.set_axisbelow(True)
    plain_frame(drawn)


def _vertical_ticks(drawn: "Axes", picture: Picture) -> None:
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter, NullLocator

    if picture.linear:
        return
    low, high = drawn.get_ylim()
    if high < 3 * low:  # at least half a decade
        middle = math.sqrt(low * high)
        low, high = middle / 10**0.25, middle * 10**0.25
        drawn.set_ylim(low, high)
    span = high / low
    if picture.binary:
        drawn.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5) if span < 8 else (1.0,)))
        drawn.yaxis.set_minor_locator(NullLocator())
    else:
        subs = (1.0,) if span > 300 else (1.0, 3.0) if span > 40 else (1.0, 2.0, 5.0)
        drawn.yaxis.set_major_locator(LogLocator(subs=subs))
        drawn.yaxis.set_minor_formatter(NullFormatter())
    number = FuncFormatter(lambda value, _: f"{value:g}")
    drawn.yaxis.set_major_formatter(number if picture.binary else EngFormatter(unit=picture.unit))
