"""Dot plots: names down, values with their intervals across, series told apart by colour and mark."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlbench.reports.formats.inert import visible
from dlbench.reports.formats.pictures import (
    COLOURS,
    GREY,
    MARKS,
    MOST_PANELS,
    Interval,
    figure_of,
    plain_frame,
    write_pages,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE = 0.21
"""Inches from name to name, ..."""
_AROUND = 0.7
"""... and what a panel takes besides."""
_SPREAD = 0.6
"""Of the way from name to name: what the series of one name take together."""


_MOST = 48
"""Characters of a name."""


class Panel(NamedTuple):
    """One panel: its title, the names from the top down, and the value of each name in each series."""

    title: str
    names: tuple[str, ...]
    points: dict[tuple[str, str], Interval]
    """By name and series; ends of an interval may be None."""


class Dots(NamedTuple):
    """A page of panels."""

    title: str
    across: str
    """What the values are."""
    panels: tuple[Panel, ...]
    series: str = "threads"
    """What the names of the series are."""
    same: float | None = None
    """Where a line stands, and the middle of a logarithmic axis: 1 for ratios."""


def dots_to_picture(pages: Iterable[Dots], path: Path, columns: int = 2) -> list[Path]:
    """Write each page, of at most `MOST_PANELS` panels, to a file (NAME-2.png and so on) and return them.

    Raises ReportError.
    """
    parts = (page._replace(panels=panels) for page in pages for panels in _parts(page.panels))
    return write_pages((_figure(page, columns) for page in parts), path)


def _parts(panels: Sequence[Panel]) -> Iterator[tuple[Panel, ...]]:
    for start in range(0, len(panels), MOST_PANELS):
        yield tuple(panels[start : start + MOST_PANELS])


def _figure(page: Dots, columns: int) -> "Figure":
    series = tuple(dict.fromkeys(of for panel in page.panels for _, of in panel.points))
    tallest = max((len(panel.names) for panel in page.panels), default=1)
    size = (5.2, _AROUND + _LINE * tallest)
    figure, axes = figure_of(len(page.panels), columns, panel=size, beside=(1.0, 0.9), least=(6.4, 2.4))
    for panel, content in zip(axes.flat, page.panels, strict=False):
        _panel(panel, content, series, page.same)
    if page.same is None:
        ends = [end for panel in page.panels for point in panel.points.values() for end in point if end is not None]
        for panel in axes.flat:
            panel.set_xlim(0.0, 1.05 * max(ends, default=1.0))
    figure.suptitle(page.title, fontsize=10)
    figure.supxlabel(page.across, fontsize=8)
    handles = [_mark(number) for number in range(len(series))]
    if handles:
        figure.legend(handles, series, loc="outside right center", fontsize=8, frameon=False, title=page.series)
    return figure


def _mark(number: int) -> "Artist":
    from matplotlib.lines import Line2D

    colour, mark = COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)]
    return Line2D([], [], color=colour, marker=mark, linestyle="", markersize=5)


def _panel(panel: "Axes", content: Panel, series: Sequence[str], same: float | None) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for number, of in enumerate(series):
        aside = 0.0 if len(series) == 1 else (number / (len(series) - 1) - 0.5) * _SPREAD
        found = [
            (place, content.points[name, of])
            for place, name in enumerate(content.names)
            if (name, of) in content.points
        ]
        below = [0.0 if low is None else max(0.0, value - low) for _, (value, low, _) in found]
        above = [0.0 if high is None else max(0.0, high - value) for _, (value, _, high) in found]
        panel.errorbar(
            [value for _, (value, _, _) in found],
            [place + aside for place, _ in found],
            xerr=[below, above],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKS[number % len(MARKS)],
            linestyle="",
            markersize=4,
            elinewidth=0.9,
        )
    if same is not None:
        panel.set_xscale("log")
        panel.axvline(same, color=GREY, linewidth=0.8)
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        _few_ticks(panel, content)
    # Written when it is drawn, behind what makes a figure's other texts inert.
    panel.set_yticks(range(len(content.names)), [visible(name, _MOST) for name in content.names])
    panel.set_ylim(len(content.names) - 0.4, -0.6)
    panel.set_title(content.title, fontsize=9, loc="left")
    panel.grid(axis="both", color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    plain_frame(panel)


def _few_ticks(panel: "Axes", content: Panel) -> None:
    """Write round numbers at a logarithmic axis, more of them where it is short."""
    from matplotlib.ticker import LogLocator

    ends = [end for point in content.points.values() for end in point if end is not None]
    wide = max(ends) / min(ends) if ends else 1.0
    steps = (
        (1.0,)
        if wide > 300
        else (1.0, 2.0, 5.0)
        if wide > 4
        else (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    )
    panel.xaxis.set_major_locator(LogLocator(subs=steps))
