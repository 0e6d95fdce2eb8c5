"""Time against threads as a picture: a panel for each network, both axes logarithmic, with the ideal line T(1)/p."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.reports.cells import Group
from dlbench.reports.formats.pictures import COLOURS, GREY, MARKS, MOST_PANELS, bars, figure_of, gridded, write_pages
from dlbench.reports.naming import group_name
from dlbench.reports.storage.hosts import Host
from dlbench.reports.threads.curve import Curve, Point

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_DASHES: tuple[tuple[int, tuple[float, ...] | None], ...] = ((0, None), (0, (5, 2)), (0, (5, 1.5, 1, 1.5)), (0, (9, 3)))
_TICKS = 9
"""Thread counts written under a panel, at most."""
_ASIDE = 0.006
"""Of a panel's width: how far neighbouring rows are moved aside of one another, lest one hide the other."""
_IDEAL: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 1.0}
_BEST: dict[str, Any] = {
    "marker": "o",
    "markersize": 11,
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
    "linestyle": "",
}


class _Style(NamedTuple):
    """Of a row: no meaning rests on one of them alone."""

    colour: str
    mark: str
    dashes: tuple[int, tuple[float, ...] | None]


class _Page(NamedTuple):
    host: Host
    groups: tuple[Group, ...]
    curves: tuple[Curve, ...]
    names: tuple[str, ...]
    """Of rows, in the order of their styles; the same on all pages of a machine."""


def drawn_curves(curves: Iterable[Curve]) -> list[Curve]:
    """Return the curves with times at two thread counts or more: others are no line."""
    return [curve for curve in curves if len(_timed(curve)) > 1]


def threads_to_picture(curves: Sequence[Curve], path: Path) -> list[Path]:
    """Draw the curves, each machine on pages of its own, and return the files. Raises ReportError."""
    drawn = drawn_curves(curves)
    pages = []
    for machine in dict.fromkeys(curve.host.fingerprint for curve in drawn):
        here = tuple(curve for curve in drawn if curve.host.fingerprint == machine)
        groups = tuple(dict.fromkeys(curve.group for curve in here))
        names = tuple(sorted({curve.name for curve in here}))
        for start in range(0, len(groups), MOST_PANELS):
            shown = groups[start : start + MOST_PANELS]
            of_page = tuple(curve for curve in here if curve.group in shown)
            pages.append(_Page(of_page[0].host, shown, of_page, names))
    return write_pages(map(_figure, pages), path)


def _timed(curve: Curve) -> list[Point]:
    return [point for point in curve.points if point.seconds is not None and point.threads > 0]


def _figure(page: _Page) -> "Figure":
    handles, labels = _legend(page)
    least = (0.0, 0.17 * len(labels) + 0.9)
    figure, axes = figure_of(len(page.groups), _COLUMNS, (3.7, 3.0), beside=(2.6, 0.9), least=least)
    for panel, group in zip(axes.flat, page.groups, strict=False):
        _panel(panel, group, page)
    for row in axes:
        row[0].set_ylabel("seconds per mini-batch", fontsize=8)
    figure.suptitle(f"Time against threads, on {page.host.name}", fontsize=10)
    figure.supxlabel("threads; bars: 95 % interval of the median", fontsize=8)
    figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False, handlelength=3.2)
    return figure


def _style(page: _Page, name: str) -> _Style:
    number = page.names.index(name)
    return _Style(COLOURS[number % len(COLOURS)], MARKS[number % len(MARKS)], _DASHES[number % len(_DASHES)])


def _legend(page: _Page) -> "tuple[list[Artist], list[str]]":
    from matplotlib.lines import Line2D

    handles: list[Artist] = []
    labels: list[str] = []

    def say(label: str, **style: Any) -> None:
        handles.append(Line2D([], [], **style))
        labels.append(label)

    for name in page.names:
        colour, mark, dashes = _style(page, name)
        say(name, color=colour, marker=mark, linestyle=dashes, markersize=4.5, linewidth=1.2)
    say("threads to use", color="black", **_BEST)
    say("T(1)/p of the fastest with one", color=GREY, **_IDEAL)
    if page.host.own_cores is not None:
        say(f"the machine's own cores: {page.host.own_cores}", color="black", linewidth=0.8)
    return handles, labels


def _panel(panel: "Axes", group: Group, page: _Page) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    curves = [curve for curve in page.curves if curve.group == group]
    panel.set_xscale("log")
    panel.set_yscale("log")
    counts = sorted({point.threads for curve in curves for point in _timed(curve)})
    if page.host.own_cores is not None and counts[0] <= page.host.own_cores <= counts[-1]:
        panel.axvline(page.host.own_cores, color="black", linewidth=0.8)
    _ideal(panel, curves, counts)
    aside = (counts[-1] / counts[0]) ** _ASIDE
    for place, curve in enumerate(curves):
        _curve(panel, curve, _style(page, curve.name), aside ** (place - (len(curves) - 1) / 2))
    step = -(-len(counts) // _TICKS)
    gridded(panel, group_name(group), counts[::step])
    low, high = panel.get_ylim()
    steps = (1.0,) if high > 300 * low else (1.0, 2.0, 5.0) if high > 4 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    panel.yaxis.set_major_locator(LogLocator(subs=steps))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def _ideal(panel: "Axes", curves: Sequence[Curve], counts: Sequence[int]) -> None:
    alone = [
        point.seconds.median for curve in curves for point in _timed(curve) if point.threads == 1 and point.seconds
    ]
    if alone:
        ends = [1, counts[-1]]
        panel.plot(ends, [min(alone) / p for p in ends], color=GREY, **_IDEAL)


def _curve(panel: "Axes", curve: Curve, style: _Style, aside: float) -> None:
    colour, mark, dashes = style
    timed = [(point.threads, point.seconds) for point in _timed(curve) if point.seconds is not None]
    up = [(seconds.median, seconds.low, seconds.high) for _, seconds in timed]
    across = [threads * aside for threads, _ in timed]
    bars(panel, across, up, color=colour, marker=mark, linestyle=dashes, linewidth=1.1)
    for threads, seconds in timed:
        if threads == curve.best:
            panel.plot([threads * aside], [seconds.median], color=colour, **_BEST)
