"""Losses as a picture: for each text a panel against steps, and one for each place against seconds.

A cell has a colour, the number of layers a kind of line, a size a mark. Floor and target are grey lines.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlbench.reports.formats.pictures import COLOURS, GREY, MARKS, figure_of, plain_frame, write_pages
from dlbench.reports.recurrent_cells.analysis import CellStudy, Line
from dlbench.reports.recurrent_cells.curves import Net, cell_order
from dlbench.reports.recurrent_cells.findings import line_name
from dlbench.reports.recurrent_cells.learnt import Learnt, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_STYLES = ("-", "--", ":", "-.")
_CELLS = ("rnn", "gru", "lstm")
_MARKS = 6
"""On a line, at most."""


def curves_to_picture(found: CellStudy, path: Path) -> list[Path]:
    """Write the picture, a page for each text, and return the files written; raises ReportError."""
    return write_pages((_figure(found, learnt) for learnt in found.learnt), path)


def _figure(found: CellStudy, learnt: Learnt) -> "Figure":
    from matplotlib.lines import Line2D

    lines = [line for line in found.lines if any(line.seconds(net) for net in learnt.nets)]
    nets = sorted(
        (net for net, each in learnt.nets.items() if each.curve.steps),
        key=lambda net: (net[3:], cell_order(net.cell), net.layers, net.size),
    )
    figure, axes = figure_of(
        1 + len(lines), _COLUMNS, (3.7, 3.0), beside=(1.6, 0.5), least=(0.0, 0.17 * len(nets) + 1.5)
    )
    panels: Sequence[Axes] = list(axes.flat)
    looks = {net: _look(net, nets) for net in nets}
    _panel(panels[0], "against steps", learnt, looks, None)
    for panel, line in zip(panels[1:], lines, strict=False):
        _panel(panel, line_name(line), learnt, looks, line)
    figure.suptitle(f"Loss on the {learnt.text.name} text {learnt.text.digest[:6]}, nats a symbol", fontsize=10)
    handles = [Line2D([], [], markersize=4, linewidth=1.1, **looks[net]) for net in nets]
    handles += [Line2D([], [], color=GREY, linestyle=style) for style in ("-", "--")]
    named = "floor" if learnt.text.floor is not None else "lowest"
    labels = [*map(words, nets), f"{named}, {learnt.floor:.3f}", f"{learnt.share:.0%} of the way, {learnt.target:.3f}"]
    figure.legend(handles, labels, loc="outside right center", fontsize=7.5, frameon=False, handlelength=3.2)
    return figure


def _look(net: Net, nets: Sequence[Net]) -> dict[str, Any]:
    number = cell_order(net.cell)[0]
    sizes = sorted({each.size for each in nets})
    style = _STYLES[(net.layers - 1) % len(_STYLES)]
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKS[sizes.index(net.size) % len(MARKS)],
        "linestyle": style,
    }


def _panel(panel: "Axes", title: str, learnt: Learnt, looks: dict[Net, dict[str, Any]], line: Line | None) -> None:
    """Draw the curves against steps, or against the time that a row takes for them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for net, look in looks.items():
        curve = learnt.nets[net].curve
        seconds = None if line is None else line.seconds(net)
        if line is not None and seconds is None:
            continue
        across = [step * (1.0 if seconds is None else seconds.median) for step in curve.middles]
        panel.plot(across, curve.losses, linewidth=1.1, markersize=4, markevery=max(1, len(across) // _MARKS), **look)
    panel.axhline(learnt.floor, color=GREY, linewidth=0.9)
    panel.axhline(learnt.target, color=GREY, linewidth=0.9, linestyle="--")
    panel.set_title(title, fontsize=9, loc="left")
    panel.set_xlabel("steps" if line is None else "seconds of updates (logarithmic)", fontsize=8)
    if line is None:
        panel.set_xlim(left=0)
    else:
        panel.set_xscale("log")  # updates of large networks take a hundred times as long as those of small ones
        # The usual labels of powers are formulas, and no text in a picture is one.
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.xaxis.set_minor_formatter(NullFormatter())
    panel.grid(color="#dddddd", linewidth=0.5)
    panel.set_axisbelow(True)
    plain_frame(panel)
