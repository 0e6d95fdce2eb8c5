"""Pictures of curves: a panel for each network, the axis across, times, speed-ups or losses up."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.reports.curve.curve import AnyPoint
from dlbench.reports.formats import pictures
from dlbench.reports.formats.pictures import Interval
from dlbench.reports.results.statistics import CONFIDENCE, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES: tuple[tuple[int, tuple[float, ...] | None], ...] = (
    (0, None),
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (9, 3)),
    (0, (3, 1, 1, 1, 1, 1)),
)
SOLID, BROKEN, DOTTED = DASHES[:3]
GREY = pictures.GREY
_COLUMNS = 3
_TICKS = 9
"""Values written under a panel, at most."""
_ASIDE = 0.006
"""How far neighbouring lines are moved aside so that none hides another, as a share of a panel's
width."""
_MARKS: Mapping[str, Mapping[str, Any]] = {
    "best": {
        "marker": "*",
        "markersize": 9,
        "markeredgecolor": "black",
        "markeredgewidth": 0.6,
        "zorder": 4,
    },
    "knee": {
        "marker": "o",
        "markersize": 10,
        "markerfacecolor": "none",
        "markeredgewidth": 1.1,
        "zorder": 3,
    },
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
    """Where it has marks, by their names: best, knee, apart (does not count), ended (memory
    did)."""


class CurvePanel(NamedTuple):
    """One panel. Both axes are logarithmic unless ``linear`` makes the horizontal one linear."""

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
    """One file of panels. More panels than a page holds continue on further files."""

    title: str
    panels: Sequence[CurvePanel]
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
    """Return the style of numbers of a colour, a mark and a kind of line.

    No meaning rests on one of them alone.
    """
    return {
        "color": pictures.COLOURS[colour % len(pictures.COLOURS)],
        "marker": pictures.MARKS[mark % len(pictures.MARKS)],
        "linestyle": DASHES[dashes % len(DASHES)],
    }


def marks_of(lines: Iterable[Line], **meanings: str) -> list[tuple[str, Style]]:
    """Return the legend of those marks that these lines have, with their meanings."""
    used: set[str] = set()
    for line in lines:
        used.update(name for name, places in line.marks.items() if places)
    look = {"color": GREY, "linestyle": "", "marker": "o"}
    meanings = {**meanings, "apart": "does not count", "ended": "memory ended there"}
    legend: list[tuple[str, Style]] = []
    for name, meaning in meanings.items():
        if name in used:
            legend.append((meaning, {**look, **_MARKS[name]}))
    return legend


def ends(seconds: Summary) -> Interval:
    """Return a time with the ends of its interval."""
    return seconds.median, seconds.low, seconds.high


def coverage(points: Iterable[AnyPoint]) -> str:
    """Return the coverage of the intervals of these times: "75 to 95 %".

    With few steps it is less than 95 %.
    """
    coverages = []
    for point in points:
        if point.seconds is not None and point.seconds.coverage is not None:
            coverages.append(point.seconds.coverage)
    low = f"{100 * min(coverages, default=CONFIDENCE):.0f}"
    high = f"{100 * max(coverages, default=CONFIDENCE):.0f}"
    if low == high:
        return f"{low} %"
    return f"{low} to {high} %"


def draw(pages: Iterable[Picture], path: Path) -> list[Path]:
    """Write the pictures to this path, NAME-2.png and so on, and return the files.

    Raises ReportError.
    """
    return pictures.write_pages(_figures(pages), path)


def _figures(pages: Iterable[Picture]) -> "Iterator[Figure]":
    """Yield a figure for each page, and further ones for panels that it cannot hold."""
    most = pictures.MOST_PANELS
    for page in pages:
        for start in range(0, max(1, len(page.panels)), most):
            yield _figure(page, page.panels[start : start + most])


def _figure(picture: Picture, panels: Sequence[CurvePanel]) -> "Figure":
    from matplotlib.lines import Line2D

    handles = []
    labels = []
    lines_of_legend = 0
    for label, look in picture.legend:
        handles.append(Line2D([], [], **{"markersize": 4.5, "linewidth": 1.2, **look}))
        labels.append(label)
        lines_of_legend += 1 + label.count("\n")
    least = (0.0, 0.17 * lines_of_legend + 0.9)
    figure, axes = pictures.figure_of(
        len(panels), _COLUMNS, (3.7, 3.0), beside=(2.6, 0.9), least=least
    )
    for drawn, panel in zip(axes.flat, panels, strict=False):
        _panel(drawn, panel, picture)
    for row in axes:
        row[0].set_ylabel(picture.up, fontsize=8)
    figure.suptitle(picture.title, fontsize=10)
    if panels:
        figure.supxlabel(picture.across, fontsize=8)
        figure.legend(
            handles,
            labels,
            loc="outside right center",
            fontsize=7.5,
            frameon=False,
            handlelength=3.2,
        )
    return figure


def _panel(drawn: "Axes", panel: CurvePanel, picture: Picture) -> None:
    drawn.set_xscale(_scale(panel.linear))
    drawn.set_yscale(_scale(picture.linear))
    if panel.ideal:
        drawn.plot(*zip(*panel.ideal, strict=True), color=GREY, linestyle=DOTTED, linewidth=1.0)
    if panel.limit is not None:
        drawn.axvline(panel.limit, color="black", linewidth=0.8)
    for level, dashes in zip(panel.levels, (SOLID, BROKEN), strict=False):
        drawn.axhline(level, color=GREY, linewidth=0.9, linestyle=dashes)
    aside = 1.0
    if panel.ticks:
        aside = (panel.ticks[-1] / panel.ticks[0]) ** _ASIDE
    for place, line in enumerate(panel.lines):
        _line(drawn, line, aside ** (place - (len(panel.lines) - 1) / 2))
    every = math.ceil(len(panel.ticks) / _TICKS) or 1
    pictures.gridded(drawn, panel.title, panel.ticks[::every])
    drawn.set_xlabel(panel.across, fontsize=8)
    if panel.linear:
        drawn.set_xlim(left=0)
    elif not panel.ticks:
        pictures.log_ticks(drawn.xaxis, *drawn.get_xlim())
    _vertical_ticks(drawn, picture)


def _scale(linear: bool) -> str:
    """Return Matplotlib's name of the scale of an axis."""
    return "linear" if linear else "log"


def _line(drawn: "Axes", line: Line, aside: float) -> None:
    heights = {}
    across = []
    intervals = []
    for x, interval in line.points:
        heights[x] = interval[0]
        across.append(x * aside)
        intervals.append(interval)
    pictures.bars(
        drawn,
        across,
        intervals,
        linewidth=1.1,
        capsize=2,
        markevery=max(1, len(heights) // 8),
        **line.style,
    )
    for name, places in line.marks.items():
        look = {**line.style, **_MARKS[name], "linestyle": ""}
        for x in places:
            if name == "ended":
                drawn.axvline(x, color=GREY, linewidth=0.6, linestyle=DOTTED, zorder=0.5)
                drawn.plot([x * aside], [0.03], transform=drawn.get_xaxis_transform(), **look)
            else:
                drawn.plot([x * aside], [heights[x]], **look)


def _vertical_ticks(drawn: "Axes", picture: Picture) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    if picture.linear:
        return
    low, high = drawn.get_ylim()
    if high < 3 * low:  # at least half a decade
        middle = math.sqrt(low * high)
        low = middle / 10**0.25
        high = middle * 10**0.25
        drawn.set_ylim(low, high)
    pictures.log_ticks(drawn.yaxis, low, high)
    if picture.binary:
        steps = (1.0, 1.5) if high < 8 * low else (1.0,)
        drawn.yaxis.set_major_locator(LogLocator(base=2, subs=steps))
        drawn.yaxis.set_minor_locator(NullLocator())
    else:
        drawn.yaxis.set_major_formatter(EngFormatter(unit=picture.unit))
