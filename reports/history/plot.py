"""The history as a picture: one panel for each series."""

import itertools
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlbench.reports.formats.pictures import GREY, dated, figure_of, plain_frame, write_pages
from dlbench.reports.history.analysis import CellHistory, ChangePoint, History
from dlbench.reports.history.series import ABSOLUTE, RATIO
from dlbench.reports.naming import name_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    _Dates = np.ndarray[tuple[int], np.dtype[np.object_]]

PANELS = 24
"""On a page, at most."""

_BLUE, _SKY, _VERMILLION, _GREEN = "#0072B2", "#56B4E9", "#D55E00", "#009E73"
_COLUMNS = 3
_MARKED = 120  # nights up to which each gets a dot of its own
_NAMED = 3  # environments of a panel that are named
_UNITS = {RATIO: "candidate / baseline", ABSOLUTE: "seconds per mini-batch"}


def history_to_picture(history: History, path: Path) -> list[Path]:
    """Write the history to this path and return the files written.

    The series with changes come first, newest change first. A page holds `PANELS` of them; of ``everything``
    further pages follow as NAME-2.png and so on. A file is whole or not there. Raises ReportError.
    """
    cells = _in_order(history)
    pages = [cells[start : start + PANELS] for start in range(0, len(cells), PANELS)]
    return write_pages((_figure(history, page) for page in (pages if history.everything else pages[:1])), path)


def _in_order(history: History) -> list[CellHistory]:
    newest = {id(cell): place for place, (cell, _) in reversed(list(enumerate(history.changes)))}
    return sorted(history.cells, key=lambda cell: newest.get(id(cell), math.inf))


def _figure(history: History, cells: Sequence[CellHistory]) -> "Figure":
    figure, axes = figure_of(len(cells), _COLUMNS, panel=(4.2, 2.5), beside=(0.0, 0.9), least=(6.4, 0.0))
    with np.errstate(invalid="ignore"):
        for panel, cell in zip(axes.flat, cells, strict=False):
            _panel(panel, cell, history)
    _, first, last = history.nights()
    machines = dict.fromkeys(cell.series.machine for cell in cells)
    where = ", ".join(history.machines.get(machine, machine[:12]) for machine in machines)
    figure.suptitle(f"{where}: {first[:10]} to {last[:10]}", fontsize=10)
    figure.supxlabel(
        "night (UTC)\nband: 95 % interval over the night's launches; black: level between changes; hollow: disturbed, "
        "not searched; mark at the foot: another environment",
        fontsize=8,
    )
    return figure


def _panel(panel: "Axes", cell: CellHistory, history: History) -> None:
    series = cell.series
    dates = np.array([datetime.fromisoformat(started) for started in series.started], dtype=object)
    values = np.exp(series.logs)
    searched = series.searched
    low, high = np.exp(series.logs - series.halves), np.exp(series.logs + series.halves)
    panel.fill_between(dates, low, high, where=np.isfinite(low), color=_SKY, alpha=0.35, linewidth=0)
    few = len(series) <= _MARKED
    panel.plot(dates[searched], values[searched], color=_BLUE, linewidth=0.8, marker="." if few else "", markersize=3)
    panel.plot(dates[~searched], values[~searched], "o", mfc="none", mec=GREY, markersize=4, markeredgewidth=0.8)
    if series.kind == RATIO:
        panel.axhline(1.0, color=GREY, linewidth=0.6)
    _environments(panel, cell, dates)
    _levels(panel, cell, dates)
    _limit(panel, cell, values, low, high)
    for row, change in enumerate(cell.changes):
        _mark(panel, cell, change, dates, row)
    several = len(history.machines) > 1
    panel.set_title(name_of(series.cell) + (f" [{series.machine[:6]}]" if several else ""), fontsize=8, loc="left")
    panel.set_ylabel(_UNITS[series.kind], fontsize=7)
    if len(dates) == 1:
        # One night has no width: without limits of ours the axis would span years.
        panel.set_xlim(dates[0] - timedelta(days=1), dates[0] + timedelta(days=1))
    dated(panel, 3, 6)
    panel.xaxis.get_offset_text().set_fontsize(7)
    panel.yaxis.get_major_formatter().set_useOffset(False)  # type: ignore[attr-defined]
    plain_frame(panel)


def _limit(panel: "Axes", cell: CellHistory, *curves: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> None:
    """Let the axis follow the bulk of the nights, with room for labels: a few wild intervals must not flatten it."""
    searched = cell.series.searched if cell.series.searched.any() else np.ones(len(cell.series), dtype=bool)
    values = curves[0][searched]
    ends = np.concatenate([curve[searched & np.isfinite(curve)] for curve in curves])
    low = min(float(values.min()), float(np.quantile(ends, 0.02)))
    high = max(float(values.max()), float(np.quantile(ends, 0.98)))
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.025 * middle)
    panel.set_ylim(middle - 1.1 * half, middle + (1.6 if cell.changes else 1.1) * half)


def _environments(panel: "Axes", cell: CellHistory, dates: "_Dates") -> None:
    """Mark the nights with another environment at the foot, and name it where that leaves room."""
    for row, event in enumerate(cell.events):
        panel.axvline(dates[event.place], ymax=0.07, color=GREY, linewidth=1.2)
        if len(cell.events) <= _NAMED:
            panel.annotate(
                f"{event.side} {event.after[:7]}".strip(),
                (dates[event.place], 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(2, 7 * row),
                textcoords="offset points",
                fontsize=5.5,
                color=GREY,
            )


def _levels(panel: "Axes", cell: CellHistory, dates: "_Dates") -> None:
    ends = [0, *(change.place for change in cell.changes), len(cell.series)]
    for start, end in itertools.pairwise(ends):
        inside = cell.series.searched[start:end]
        if cell.changes and inside.any():
            level = math.exp(float(cell.series.logs[start:end][inside].mean()))
            panel.plot([dates[start], dates[end - 1]], [level, level], color="black", linewidth=1.2)


def _mark(panel: "Axes", cell: CellHistory, change: ChangePoint, dates: "_Dates", row: int) -> None:
    colour = _VERMILLION if change.slower else _GREEN
    style = "--" if change.pending else "-"
    panel.axvline(dates[change.place], color=colour, linewidth=1.1, linestyle=style)
    late = change.place > len(cell.series) / 2
    arrow = "▲" if change.slower else "▼"
    state = " pending" if change.pending else ""
    panel.annotate(
        f"{arrow} {change.percent[0]:+.1f} % {change.night.started[:10]}{state}",
        (dates[change.place], 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if late else 3, -9 * (row % 4)),
        textcoords="offset points",
        ha="right" if late else "left",
        va="top",
        fontsize=7,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
    )
