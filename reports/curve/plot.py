"""The picture of curves: a panel for each network, the axis across, times, speed-ups or losses up."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    from matplotlib.artist import Artist
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
_COLUMNS = 3
_TICKS = 9
"""Values written under a panel, at most."""
_ASIDE = 0.006
"""How far neighbouring lines are moved aside so that none hides another, as a share of a panel's width."""
_BEST: dict[str, Any] = {"marker": "*", "markersize": 9, "markeredgecolor": "black", "markeredgewidth": 0.6}
_KNEE: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.1}
_APART: dict[str, Any] = {"markersize": 4, "markerfacecolor": "white", "zorder": 3}
_ENDED: dict[str, Any] = {"marker": "x", "markersize": 5}


class Style(NamedTuple):
    """Numbers of a colour, a mark and a kind of line; no meaning rests on one of them alone."""

    colour: int
    mark: int
    dashes: int = 0

    @property
    def look(self) -> dict[str, Any]:
        """The style as Matplotlib's keywords."""
        return {
            "color": COLOURS[self.colour % len(COLOURS)],
            "marker": MARKS[self.mark % len(MARKS)],
            "linestyle": DASHES[self.dashes % len(DASHES)],
        }

    @classmethod
    def numbered(cls, number: int) -> "Style":
        """Return a style in which colour, mark and kind of line all differ from its neighbours'."""
        return cls(number, number, number)


class Line(NamedTuple):
    """One curve in a panel."""

    points: Sequence[tuple[float, Interval]]
    style: Style
    best: float | None = None
    knee: float | None = None
    apart: Sequence[float] = ()
    """Where it has points that do not count."""
    ended: float | None = None
    """Where memory ended."""


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


@dataclass(frozen=True)
class Picture:
    """One file of panels; more panels than a page holds continue on further files."""

    title: str
    panels: Sequence[Panel]
    legend: Sequence[tuple[str, Style | dict[str, Any]]]
    across: str = ""
    up: str = ""
    unit: str = ""
    """Unit of the vertical axis, with prefixes: "s"."""
    binary: bool = False
    """Whether ticks of the vertical axis are powers of two."""
    linear: bool = False
    """Whether the vertical axis is linear."""


def named(names: Iterable[str]) -> list[tuple[str, Style | dict[str, Any]]]:
    """Return the legend of names that have numbered styles."""
    return [(name, Style.numbered(number)) for number, name in enumerate(names)]


def marks_of(lines: Iterable[Line], best: str, knee: str = "") -> list[tuple[str, Style | dict[str, Any]]]:
    """Return the legend of the marks that these lines have, with the meaning of the best point and of the knee."""
    lines = list(lines)
    found: list[tuple[str, Style | dict[str, Any]]] = []
    if any(line.best is not None for line in lines):
        found.append((best, {**_BEST, "markerfacecolor": GREY, "linestyle": ""}))
    if any(line.knee is not None for line in lines):
        found.append((knee, {**_KNEE, "markeredgecolor": GREY, "linestyle": ""}))
    if any(line.apart for line in lines):
        found.append(("does not count", {**_APART, "marker": "o", "markeredgecolor": GREY, "linestyle": ""}))
    if any(line.ended is not None for line in lines):
        found.append(("memory ended there", {**_ENDED, "color": GREY, "linestyle": ""}))
    return found


def draw(pictures: Iterable[Picture], path: Path) -> list[Path]:
    """Write the pictures to this path, to NAME-2.png beside it and so on, and return the files; raises ReportError."""
    return write_pages((_figure(picture, page) for picture in pictures for page in _pages(picture.panels)), path)


def _pages(panels: Sequence[Panel]) -> list[Sequence[Panel]]:
    return [panels[start : start + MOST_PANELS] for start in range(0, len(panels), MOST_PANELS)] or [()]


def _figure(picture: Picture, panels: Sequence[Panel]) -> "Figure":
    least = (0.0, 0.17 * sum(1 + label.count("\n") for label, _ in picture.legend) + 0.9)
    figure, axes = figure_of(len(panels), _COLUMNS, (3.7, 3.0), beside=(2.6, 0.9), least=least)
    for drawn, panel in zip(axes.flat, panels, strict=False):
        _panel(drawn, panel, picture)
    for row in axes:
        row[0].set_ylabel(picture.up, fontsize=8)
    figure.suptitle(picture.title, fontsize=10)
    if panels:
        figure.supxlabel(picture.across, fontsize=8)
        handles = [_handle(style) for _, style in picture.legend]
        labels = [label for label, _ in picture.legend]
        figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False, handlelength=3.2)
    return figure


def _handle(style: Style | dict[str, Any]) -> "Artist":
    from matplotlib.lines import Line2D

    look = style.look if isinstance(style, Style) else style
    return Line2D([], [], **{"markersize": 4.5, "linewidth": 1.2, **look})


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
    look = line.style.look
    colour = look["color"]
    across = [x * aside for x, _ in line.points]
    at = {x: value[0] for x, value in line.points}
    bars(
        drawn,
        across,
        [value for _, value in line.points],
        linewidth=1.1,
        capsize=2,
        markevery=max(1, len(at) // 8),
        **look,
    )
    if line.apart:
        hollow = {"marker": look["marker"], "markeredgecolor": colour, "linestyle": "", **_APART}
        drawn.plot([x * aside for x in line.apart], [at[x] for x in line.apart], **hollow)
    if line.knee is not None:
        drawn.plot([line.knee * aside], [at[line.knee]], linestyle="", markeredgecolor=colour, zorder=3, **_KNEE)
    if line.best is not None:
        drawn.plot([line.best * aside], [at[line.best]], linestyle="", markerfacecolor=colour, zorder=4, **_BEST)
    if line.ended is not None:
        drawn.axvline(line.ended, color=GREY, linewidth=0.6, linestyle=DOTTED, zorder=0.5)
        foot = drawn.get_xaxis_transform()
        drawn.plot([line.ended * aside], [0.03], color=colour, linestyle="", transform=foot, **_ENDED)


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
