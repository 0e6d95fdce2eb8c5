"""Progress as a picture: a panel for each network, release dates across, speed-up over the oldest up, on a log scale.

Points are not joined: between two frameworks there is no line of descent. Each thread count has a mark of its own.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlbench.adapters.protocol import INSTALLED, TUNED
from dlbench.reports.cells import Group, Place
from dlbench.reports.formats.labels import GAP, Box, Label, place_labels
from dlbench.reports.formats.pictures import GREY, dated, figure_of, plain_frame, write_pages
from dlbench.reports.naming import condition_name, group_name
from dlbench.reports.progress.analysis import Progress, Ranking, Standing
from dlbench.reports.progress.words import build_name, undated

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 2
_STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#56B4E9", "D"), ("#CC79A7", "v"), ("#000000", "x"))
"""Colour and mark of each place; a picture of more would not be read."""
_APART = 0.055
"""Of a panel's height: names closer than this to one another are pushed apart."""
_LETTER = 0.0112
"""Of a panel's width: what a letter of a name takes, about."""
_MARK = Box(-0.008, -0.018, 0.008, 0.018)
"""What a mark takes about its point, in shares of a panel."""
_ASIDE = 0.012
"""Of a panel's width: what lies between the marks of two places at one date."""
_LATE = 0.12
"""Of a panel's width: points this close to the last one are named in a column beside it."""


class _Point(NamedTuple):
    """One framework at one place of a panel."""

    when: float
    """Days, as matplotlib counts them."""
    speedup: float
    low: float | None
    high: float | None
    name: str


def progress_to_picture(found: Progress, path: Path) -> list[Path]:
    """Write the picture to this path and return the files written.

    Each further machine has a page of its own, NAME-2.png and so on. Shown are the thread counts that the machine has a
    core for, six at most; builds without a date are left out. A file is whole or not there. Raises ReportError.
    """
    machines = dict.fromkeys(ranking.place.machine for ranking in found.rankings) or {"": None}
    return write_pages((_figure(found, machine) for machine in machines), path)


def _places(found: Progress, machine: str) -> list[Place]:
    """Return the places to draw: those without shared cores, or all where every one has them."""
    places = list(dict.fromkeys(ranking.place for ranking in found.rankings if ranking.place.machine == machine))
    cores = found.hosts[machine].own_cores if machine in found.hosts else None
    own = [
        place
        for place in places
        if cores is None or place.device != "cpu" or (place.threads or 0) * place.world_size <= cores
    ]
    chosen = own or places
    if len(chosen) > len(_STYLES):  # a setting alone or left out is of few frameworks
        chosen = [place for place in chosen if place.cell.tuning in (INSTALLED, TUNED)] or chosen
    if len(chosen) <= len(_STYLES):
        return chosen
    return [chosen[round(n * (len(chosen) - 1) / (len(_STYLES) - 1))] for n in range(len(_STYLES))]


def _points(standings: Sequence[Standing]) -> list[_Point]:
    from matplotlib.dates import date2num

    points = []
    for standing in standings:
        when, speedup = standing.build.released, standing.speedup
        if when is None or not (standing.oldest or speedup is not None):
            continue
        name = build_name(standing)
        day = float(date2num(when))  # type: ignore[no-untyped-call]
        if speedup is None:
            points.append(_Point(day, 1.0, None, None, name))
        else:
            points.append(_Point(day, speedup.value, speedup.low, speedup.high, name))
    return points


def _figure(found: Progress, machine: str) -> "Figure":
    places = _places(found, machine)
    panels: dict[Group, dict[Place, list[_Point]]] = {}
    for ranking in found.rankings:
        if ranking.place in places and (points := _points(ranking.standings)):
            panels.setdefault(ranking.group, {})[ranking.place] = points
    figure, axes = figure_of(len(panels), _COLUMNS, panel=(5.2, 3.1), beside=(0.0, 1.0), least=(6.4, 0.0))
    span = _span([point.when for of_places in panels.values() for points in of_places.values() for point in points])
    for panel, (group, of_places) in zip(axes.flat, panels.items(), strict=False):
        _panel(panel, group, of_places, places, span)
    name = found.hosts[machine].name if machine in found.hosts else "nothing with a release date was measured"
    figure.suptitle(f"Speed-up over the oldest framework, on {name}" if panels else f"Progress: {name}", fontsize=10)
    figure.supxlabel(_caption(found, machine, places), fontsize=8)
    if panels:
        handles, labels = _legend(places, panels)
        figure.legend(handles, labels, loc="outside upper right", fontsize=8, frameon=False, ncols=len(labels))
    return figure


def _legend(
    places: Sequence[Place], panels: dict[Group, dict[Place, list[_Point]]]
) -> "tuple[list[Artist], list[str]]":
    from matplotlib.lines import Line2D

    drawn = [place for place in places if any(place in of_places for of_places in panels.values())]
    handles: list[Artist] = []
    for place in drawn:
        colour, mark = _STYLES[places.index(place)]
        handles.append(Line2D([], [], color=colour, marker=mark, linestyle="", markersize=5))
    return handles, [condition_name(place.cell) for place in drawn]


def _span(days: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the date axis, the same in each panel, with room for names on the right."""
    if not days:
        return 0.0, 1.0
    width = max(max(days) - min(days), 400.0)
    return min(days) - 0.08 * width, max(days) + 0.38 * width


def _panel(
    panel: "Axes",
    group: Group,
    of_places: dict[Place, list[_Point]],
    places: Sequence[Place],
    span: tuple[float, float],
) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    panel.set_yscale("log")
    panel.axhline(1.0, color=GREY, linewidth=0.6)
    ends: list[float] = [1.0]
    for place, points in of_places.items():
        colour, mark = _STYLES[places.index(place)]
        # A little aside of one another, lest one hide the other.
        aside = (places.index(place) - (len(places) - 1) / 2) * _ASIDE * (span[1] - span[0])
        for point in points:
            if point.low is not None and point.high is not None:
                panel.plot([point.when + aside] * 2, [point.low, point.high], color=colour, linewidth=1.0, alpha=0.7)
                ends += [point.low, point.high]
            ends.append(point.speedup)
        panel.plot([p.when + aside for p in points], [p.speedup for p in points], mark, color=colour, markersize=4.5)
    low, high = math.log2(min(ends)), math.log2(max(ends))
    room = 0.12 * max(high - low, 0.5)
    panel.set_ylim(2 ** (low - room), 2 ** (high + room))
    panel.set_xlim(*span)
    panel.xaxis_date()
    _names(panel, of_places, span, _ASIDE * (len(places) - 1) / 2)
    panel.set_title(group_name(group), fontsize=8, loc="left")
    panel.set_ylabel("times as fast as the oldest", fontsize=7)
    panel.yaxis.set_major_locator(FixedLocator(_ticks(2 ** (low - room), 2 ** (high + room))))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="y", which="minor", length=0)
    dated(panel, 4, 8)
    panel.xaxis.get_offset_text().set_visible(False)
    plain_frame(panel)


def _ticks(low: float, high: float) -> list[float]:
    """Return some three to seven round numbers within these ends."""
    from matplotlib.ticker import MaxNLocator

    if high < 2.5 * low:
        return [tick for tick in MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high) if low <= tick <= high]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside: list[float] = []
    for mantissas in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        # A product is rounded as it is written: 0.3, not 0.30000000000000004.
        ticks = [float(f"{mantissa * 10.0**decade:.3g}") for decade in decades for mantissa in mantissas]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 3:
            break
    return inside


def _names(panel: "Axes", of_places: dict[Place, list[_Point]], span: tuple[float, float], aside: float) -> None:
    """Write each framework's name once, beside its highest point, no name over another."""
    highest: dict[str, _Point] = {}
    for points in of_places.values():
        for point in points:
            if point.name not in highest or point.speedup > highest[point.name].speedup:
                highest[point.name] = point
    bottom, top = (math.log(end) for end in panel.get_ylim())

    def at(when: float, speedup: float) -> tuple[float, float]:
        return (when - span[0]) / (span[1] - span[0]), (math.log(speedup) - bottom) / (top - bottom)

    marks = []
    for points in of_places.values():
        for point in points:
            (x, y), half = at(point.when, point.speedup), aside + _MARK.right
            _, low = at(point.when, point.low or point.speedup)
            _, high = at(point.when, point.high or point.speedup)
            marks.append(Box(x - half, min(low, y + _MARK.bottom), x + half, max(high, y + _MARK.top)))
    last = max(point.when for point in highest.values())
    ordered = sorted(highest.values(), key=lambda point: point.speedup)
    # The latest stand close to one another: their names go into a column beside all points.
    late = [point for point in ordered if last - point.when <= _LATE * (span[1] - span[0]) and len(highest) > 1]
    others = [point for point in ordered if point not in late]
    heights = _apart([at(point.when, point.speedup)[1] for point in late])
    column = at(last, 1.0)[0] + GAP
    boxes = [
        Box(column, height - _APART / 2, column + _LETTER * len(point.name), height + _APART / 2)
        for point, height in zip(late, heights, strict=True)
    ]
    labels = [Label(column, height, "left", box) for height, box in zip(heights, boxes, strict=True)]
    anchors = [at(point.when, point.speedup) for point in others]
    labels += place_labels(anchors, [_LETTER * len(point.name) for point in others], _APART, boxes, marks)
    for point, label in zip([*late, *others], labels, strict=True):
        label.write(panel, point.name, (point.when, point.speedup), 6.5)


def _apart(heights: list[float]) -> list[float]:
    """Push ascending heights, in shares of a panel's, so far apart that names at them can be read."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + _APART) if placed else height)
    top = 1.0
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], top)
        top = placed[place] - _APART
    return placed


def _caption(found: Progress, machine: str, places: Sequence[Place]) -> str:
    rankings: list[Ranking] = [ranking for ranking in found.rankings if ranking.place.machine == machine]
    left = dict.fromkeys(condition_name(ranking.place.cell) for ranking in rankings if ranking.place not in places)
    lines = ["release date of the version measured (marks a little apart); bar: interval of the ratio; the oldest is 1"]
    if left:
        lines.append(f"not drawn: {', '.join(left)}")
    if names := undated(rankings):
        lines.append(f"without a known date: {names}")
    return "\n".join(lines)
