"""Scaling over workers as a picture: a panel for each network, workers across, speed-up over one worker up.

Strong scaling is drawn with full lines, weak scaling with broken ones, the ideal with a dotted one. A row has a colour
and a mark of its own.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlbench.reports.formats.labels import place_labels
from dlbench.reports.formats.pictures import COLOURS, GREY, MARKS, bars, figure_of, gridded, write_pages
from dlbench.reports.scaling.analysis import Line, Workers
from dlbench.reports.scaling.words import NOTHING, line_name
from dlbench.reports.statistics import Ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_LETTER, _LINE = 0.018, 0.05
"""Of a panel's width and height: what a letter and a line of a name take, about."""


class _Curve(NamedTuple):
    """Speed-ups of one row, threads and mini-batch by workers."""

    name: str
    weak: bool
    batch: int
    """The whole mini-batch, or where it grows with the workers each one's."""
    speedups: dict[int, Ratio]


def workers_to_picture(found: Workers, path: Path) -> list[Path]:
    """Write the picture to this path and return the files written.

    Each further machine has a page of its own, NAME-2.png and so on. A file is whole or not there. Raises ReportError.
    """
    machines = dict.fromkeys(line.place.machine for line in found.lines) or {"": None}
    return write_pages((_figure(found, machine) for machine in machines), path)


def _curves(found: Workers, line: Line) -> list[_Curve]:
    several = len({point.threads for point in line.points}) > 1 or line.place.device == "cpu"
    curves: dict[tuple[str, bool, int], dict[int, Ratio]] = {}
    for point in line.teams:
        threads = (
            f", {point.threads} thread{'s' if point.threads != 1 else ''} each" if several and point.threads else ""
        )
        name = line_name(found, line, machine=False).partition(": ")[2] + threads
        for gain, weak, batch in (
            (point.strong, False, point.batch_size),
            (point.weak, True, point.batch_size // point.world_size),
        ):
            if gain is not None and gain.speedup is not None:
                curves.setdefault((name, weak, batch), {})[point.world_size] = gain.speedup
    return [_Curve(*key, speedups) for key, speedups in curves.items()]


def _figure(found: Workers, machine: str) -> "Figure":
    from matplotlib.lines import Line2D

    panels: dict[str, list[_Curve]] = {}
    for line in (each for each in found.lines if each.place.machine == machine):
        title = line_name(found, line, machine=False).partition(": ")[0]
        if curves := _curves(found, line):
            panels.setdefault(title, []).extend(curves)
    names = list(dict.fromkeys(curve.name for curves in panels.values() for curve in curves))
    figure, axes = figure_of(len(panels), _COLUMNS, (3.7, 3.0), beside=(2.6, 0.9), least=(0.0, 0.17 * len(names) + 1.5))
    for panel, (title, curves) in zip(axes.flat, panels.items(), strict=False):
        _panel(panel, title, curves, names)
    if not panels:
        figure.suptitle(
            NOTHING if not found.lines else "No cell of several workers has one worker beside it.", fontsize=9
        )
        return figure
    figure.suptitle(f"Speed-up over one worker, on {found.hosts[machine].name}", fontsize=10)
    figure.supxlabel("workers; bars: interval of the ratio", fontsize=8)
    looks = [(COLOURS[n % len(COLOURS)], MARKS[n % len(MARKS)]) for n in range(len(names))]
    handles = [Line2D([], [], color=colour, marker=mark, markersize=4.5, linestyle="") for colour, mark in looks]
    styles: tuple[tuple[Literal["-", "--", ":"], str], ...] = (
        ("-", "strong: the same mini-batch"),
        ("--", "weak: it grows with the workers"),
        (":", "ideal"),
    )
    handles += [Line2D([], [], color="black", linestyle=style) for style, _ in styles]
    labels = [*names, *(label for _, label in styles)]
    figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False, handlelength=3.2)
    return figure


def _panel(panel: "Axes", title: str, curves: Sequence[_Curve], names: Sequence[str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    counts = sorted({1, *(count for curve in curves for count in curve.speedups)})
    panel.plot(counts, counts, ":", color=GREY, linewidth=1.0)
    ends: list[tuple[int, float, str]] = []
    for curve in curves:
        number = names.index(curve.name)
        across, up = [1, *sorted(curve.speedups)], [Ratio(1.0, None, None, "itself")]
        up += [curve.speedups[count] for count in across[1:]]
        style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKS[number % len(MARKS)]}
        ends_of = [(each.value, each.low, each.high) for each in up]
        bars(panel, across, ends_of, linestyle="--" if curve.weak else "-", linewidth=1.1, **style)
        ends.append((across[-1], up[-1].value, f"{curve.batch} each" if curve.weak else str(curve.batch)))
    panel.set_xscale("log", base=2)
    panel.set_yscale("log", base=2)
    panel.set_xlim(0.9, 0.9 * (counts[-1] / 0.9) ** 1.25)
    _name_ends(panel, ends)
    low, high = panel.get_ylim()
    gridded(panel, title, counts)
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_locator(LogLocator(base=2, subs=(1.0, 1.5) if high < 8 * low else (1.0,)))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _name_ends(panel: "Axes", ends: Sequence[tuple[int, float, str]]) -> None:
    """Write the mini-batch beside the end of each line, no name over another."""
    (left, right), (bottom, top) = panel.get_xlim(), panel.get_ylim()
    anchors = [
        (math.log(x / left) / math.log(right / left), math.log(y / bottom) / math.log(top / bottom)) for x, y, _ in ends
    ]
    labels = place_labels(anchors, [_LETTER * len(name) for *_, name in ends], _LINE)
    for (x, y, name), label in zip(ends, labels, strict=True):
        label.write(panel, name, (x, y), 6)
