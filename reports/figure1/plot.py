"""Time against mini-batch size as a picture: a panel for each network, both axes logarithmic, as in the 2016 paper.

A row has a colour and a mark of its own, a place (device, precision) a kind of line.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.reports.cells import Place, Row
from dlbench.reports.figure1.analysis import PAYS, Figure1, Line
from dlbench.reports.figure1.tables import NOTHING, QUANTITIES, shown_value
from dlbench.reports.figure1.words import place_names
from dlbench.reports.formats.pictures import COLOURS, GREY, MARKS, bars, figure_of, gridded, write_pages
from dlbench.reports.naming import row_name
from dlbench.reports.statistics import CONFIDENCE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_DASHES: tuple[tuple[int, tuple[float, ...] | None], ...] = (
    (0, None),
    (0, (5, 2)),
    (0, (1, 1.4)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (9, 3)),
    (0, (3, 1, 1, 1, 1, 1)),
)
"""Of the places of a page; more of them follow on further pages."""
_ROW = 0.06
"""Of a panel's height: what a row of words at its foot takes."""
_TICKS = 9
"""Mini-batch sizes written under a panel, at most."""


class _Style(NamedTuple):
    colour: str
    mark: str
    dashes: tuple[int, tuple[float, ...] | None]


class _Key(NamedTuple):
    """What is drawn how on a page."""

    rows: tuple[Row, ...]
    places: tuple[Place, ...]
    points_only: bool
    """Whether no line has a second point: then dashes cannot tell places apart, and marks do."""

    def style(self, line: Line) -> _Style:
        """Return how a line is drawn; those of a single row have their places' colours and marks."""
        place = self.places.index(line.place)
        number = self.rows.index(line.row) if len(self.rows) > 1 else place
        mark = place if self.points_only else number
        return _Style(COLOURS[number % len(COLOURS)], MARKS[mark % len(MARKS)], _DASHES[place])


def figure1_to_picture(found: Figure1, path: Path, quantity: str = "seconds") -> list[Path]:
    """Write the picture to this path and return the files written.

    A page holds six places; further ones have pages of their own, NAME-2.png and so on. A file is whole or not there.
    Raises ReportError.
    """
    places = found.places
    pages = [places[start : start + len(_DASHES)] for start in range(0, len(places), len(_DASHES))] or [()]
    return write_pages((_figure(found, page, quantity) for page in pages), path)


def _figure(found: Figure1, places: Sequence[Place], quantity: str) -> "Figure":
    of_panels = {p.network: [line for line in p.lines if line.timed and line.place in places] for p in found.panels}
    panels = [(network, lines) for network, lines in of_panels.items() if lines]
    drawn = [line for _, lines in panels for line in lines]
    key = _Key(
        tuple(sorted({line.row for line in drawn})),
        tuple(place for place in places if any(line.place == place for line in drawn)),
        len(places) > 1 and all(len(line.timed) < 2 for line in drawn),
    )
    handles, labels = _legend(found, key, drawn)
    figure, axes = figure_of(
        len(panels), _COLUMNS, (3.7, 3.0), beside=(2.4, 0.9), least=(0.0, 0.17 * len(labels) + 0.9)
    )
    for panel, (network, lines) in zip(axes.flat, panels, strict=False):
        _panel(panel, network, lines, key, quantity)
    for row in axes:
        row[0].set_ylabel(QUANTITIES[quantity], fontsize=8)
    figure.suptitle(_title(found, key, quantity), fontsize=10)
    if panels:
        figure.supxlabel(f"mini-batch size; bars: {_coverage(drawn)} interval of the median", fontsize=8)
        figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False, handlelength=3.2)
    return figure


def _coverage(lines: Sequence[Line]) -> str:
    """Return what the intervals of these lines cover: from few steps less than others."""
    told = [p.seconds.coverage for line in lines for p in line.timed if p.seconds is not None]
    known = [coverage for coverage in told if coverage is not None]
    low, high = (f"{100 * end:.0f}" for end in (min(known, default=CONFIDENCE), max(known, default=CONFIDENCE)))
    return f"{high} %" if low == high else f"{low} to {high} %"


def _title(found: Figure1, key: _Key, quantity: str) -> str:
    what = QUANTITIES[quantity].capitalize()
    if not key.places:
        return f"{what}: {NOTHING}"
    machines = dict.fromkeys(place.machine for place in key.places)
    if len(machines) > 1:
        return f"{what}, on {len(machines)} machines"
    if len(key.places) == 1:
        return f"{what}, on {place_names(found)[key.places[0]]}"
    return f"{what}, on {found.hosts[next(iter(machines))].name}"


def _legend(found: Figure1, key: _Key, drawn: Sequence[Line]) -> "tuple[list[Artist], list[str]]":
    """Return what stands beside the panels: rows, places, and the marks that there are."""
    from matplotlib.lines import Line2D

    handles: list[Artist] = []
    labels: list[str] = []

    def say(label: str, **style: Any) -> None:
        handles.append(Line2D([], [], **{"linestyle": "", **style}))
        labels.append(label)

    names = place_names(found, machine=False)
    if len(key.rows) > 1:
        for number, row in enumerate(key.rows):
            colour, mark = COLOURS[number % len(COLOURS)], "" if key.points_only else MARKS[number % len(MARKS)]
            say(row_name(row), color=colour, marker=mark, markersize=4.5, linestyle="-", linewidth=1.2)
    for number, place in enumerate(key.places if len(key.places) > 1 else ()):
        alone = len(key.rows) == 1
        colour = COLOURS[number % len(COLOURS)] if alone else "black"
        mark = MARKS[number % len(MARKS)] if alone or key.points_only else ""
        say(_folded(names[place]), color=colour, marker=mark, markersize=4.5, linestyle=_DASHES[number], linewidth=1.2)
    if any(line.best is not None and len(line.timed) > 1 for line in drawn):
        say("best mini-batch: the smallest\nnot told from the fastest", **_BEST, markerfacecolor=GREY)
    if any(line.knee is not None and line.knee.batch_size is not None for line in drawn):
        say(f"knee: from it on no doubling\ngains {PAYS:.0%}", **_KNEE, markeredgecolor=GREY)
    if any(not point.takes_part for line in drawn for point in line.timed):
        say("does not count", marker="o", markersize=4.5, markerfacecolor="white", markeredgecolor=GREY)
    if any(line.memory_ends is not None for line in drawn):
        say("memory ended there", marker="x", markersize=5, color=GREY)
    return handles, labels


_BEST: dict[str, Any] = {"marker": "*", "markersize": 11, "markeredgecolor": "black", "markeredgewidth": 0.6}
_KNEE: dict[str, Any] = {"marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.1}


def _folded(name: str) -> str:
    """Return a long name on two lines, broken before its last part."""
    head, comma, tail = name.rpartition(", ")
    return f"{head},\n{tail}" if comma and len(name) > 30 else name


def _panel(panel: "Axes", network: str, lines: Sequence[Line], key: _Key, quantity: str) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    ended: dict[int, list[Line]] = {}
    for line in lines:
        _curve(panel, line, key.style(line), quantity)
        if line.memory_ends is not None:
            ended.setdefault(line.memory_ends, []).append(line)
    sizes = sorted({*ended, *(point.batch_size for line in lines for point in line.timed)})
    panel.set_xlim(sizes[0] / 1.35, sizes[-1] * 1.35)
    _room(panel, len(ended))
    for place, (size, of_size) in enumerate(sorted(ended.items())):
        _end_of_memory(panel, size, place, [key.style(line) for line in of_size])
    gridded(panel, network, _size_ticks(sizes))
    low, high = panel.get_ylim()
    panel.yaxis.set_major_locator(LogLocator(subs=_subs(high / low)))
    panel.yaxis.set_major_formatter(EngFormatter(unit="s" if quantity == "seconds" else ""))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _curve(panel: "Axes", line: Line, style: _Style, quantity: str) -> None:
    """Draw one line: its points joined, with intervals, the best and the knee marked."""
    drawn = [(point, value) for point in line.timed if (value := shown_value(point, quantity)) is not None]
    sizes = [point.batch_size for point, _ in drawn]
    look = {"color": style.colour, "marker": style.mark, "linestyle": style.dashes}
    bars(panel, sizes, [value for _, value in drawn], linewidth=1.2, **look)
    by_size = {point.batch_size: value[0] for point, value in drawn}
    apart = [point.batch_size for point, _ in drawn if not point.takes_part]
    shape: dict[str, Any] = {"marker": style.mark, "linestyle": "", "markeredgecolor": style.colour}
    panel.plot(apart, [by_size[size] for size in apart], markersize=4, markerfacecolor="white", zorder=3, **shape)
    if line.knee is not None and line.knee.batch_size is not None:
        size = line.knee.batch_size
        panel.plot([size], [by_size[size]], linestyle="", zorder=3, markeredgecolor=style.colour, **_KNEE)
    if line.best is not None and len(line.timed) > 1:
        panel.plot([line.best], [by_size[line.best]], linestyle="", zorder=4, markerfacecolor=style.colour, **_BEST)


def _end_of_memory(panel: "Axes", size: int, row: int, styles: Sequence[_Style]) -> None:
    """Say in a row at the foot of the panel that memory ended at this size, with a mark for each such line."""
    from matplotlib.transforms import ScaledTranslation

    panel.axvline(size, color=GREY, linewidth=0.6, linestyle=":", zorder=0.5)
    at_foot = panel.get_xaxis_transform()
    height = _ROW * (row + 0.5)
    # Written towards the wider side.
    start, end = (math.log(limit) for limit in panel.get_xlim())
    left = (math.log(size) - start) / (end - start) > 0.5
    side = -1 if left else 1
    for number, style in enumerate(styles):
        aside = ScaledTranslation(side * number * 6 / 72, 0, panel.figure.dpi_scale_trans)  # 6 points each
        panel.plot([size], [height], "x", color=style.colour, markersize=4.5, transform=at_foot + aside)
    panel.annotate(
        f"out of memory from {size}",
        (size, height),
        xycoords=at_foot,
        xytext=(side * (6 * len(styles) - 1), 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=6,
        color=GREY,
    )


def _room(panel: "Axes", rows: int) -> None:
    """Widen the vertical axis to half a decade at least, with room at its foot for so many rows."""
    low, high = (math.log10(end) for end in panel.get_ylim())
    width = max(high - low, 0.5)
    middle = (low + high) / 2
    share = _ROW * rows
    panel.set_ylim(10 ** (middle - width / 2 - width * share / (1 - share)), 10 ** (middle + width / 2))


def _subs(span: float) -> tuple[float, ...]:
    """Return which multiples of the powers of ten are written on an axis whose ends have this quotient."""
    if span > 300:
        return (1.0,)
    return (1.0, 3.0) if span > 40 else (1.0, 2.0, 5.0)


def _size_ticks(sizes: Sequence[int]) -> list[int]:
    """Return the sizes written under the axis: all, or the powers of two, or every second of them and so on."""
    if len(sizes) <= _TICKS:
        return list(sizes)
    chosen = [size for size in sizes if size & (size - 1) == 0]
    chosen = chosen if len(chosen) > 1 else list(sizes)
    return chosen[:: math.ceil(len(chosen) / _TICKS)]
