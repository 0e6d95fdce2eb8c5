"""The history of a store as tables, JSON and a picture (``reports/SCHEMA.md`` describes every key)."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlbench.reports import columns
from dlbench.reports.columns import Column, attributes, axis_columns, csv_rows, objects, within
from dlbench.reports.differences import difference_words
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import NOTHING, Page, Table, number
from dlbench.reports.formats.pictures import GREY, dated, figure_of, plain_frame, write_pages
from dlbench.reports.history.change_points import ENOUGH_NIGHTS, FALSE_DISCOVERY_RATE
from dlbench.reports.history.nights import (
    ABSOLUTE,
    CAVEATS,
    RATIO,
    SIDES,
    UNSEEN,
    ChangePoint,
    Floats,
    History,
    Objects,
    Series,
)
from dlbench.reports.naming import counted, group_name, name_of, rest_of
from dlbench.reports.report import Report
from dlbench.reports.storage.networks import in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Change = tuple[Series, ChangePoint]

_MOST_CHANGES = 20


def changes_page(history: History) -> Page:
    """Return the changes, newest first, and the pending ones; with ``everything`` all series and environments too."""
    if not history.cells:
        return Page((NOTHING,), ())
    settled, pending = ([each for each in history.changes if each[1].pending is state] for state in (False, True))
    least = f"{100 * history.magnitude:g} %"
    some, none = f"Change points of {least} and more, newest first", f"No change point of {least}."
    lately = f"Recent nights show a change: pending, fewer than {ENOUGH_NIGHTS} nights"
    tables = []
    for found, title in (
        (settled, some if settled else none),
        (pending, lately if pending else "Recent nights show no change."),
    ):
        shown = found if history.everything else found[:_MOST_CHANGES]
        left = (f"... and {len(found) - len(shown)} more; --all shows them",) if len(shown) < len(found) else ()
        made = columns.table(_changes(history), shown, title, notes=left, words=True)
        tables.append(made if shown else made._replace(head=()))
    if history.everything:
        tables += [_cells_table(history), *_environments_table(history)]
    count, first, last = history.nights()
    span = first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"
    on = f"{counted(len(history.cells), 'series', 'series')} on {_names(history, history.cells)}"
    head = f"{counted(count, 'night')} ({span}), {on}."
    return Page((head,), tuple(tables), tuple(_notes(history)))


def history_data(history: History) -> dict[str, Any]:
    """Return a JSON object: the options, and the cells with a change, or all of them."""
    nights, first, last = history.nights()
    return {
        "magnitude": history.magnitude,
        "false_discovery_rate": FALSE_DISCOVERY_RATE,
        "nights_to_confirm": ENOUGH_NIGHTS,
        "nights": nights,
        "first": first,
        "last": last,
        "series_searched": len(history.cells),
        "cells": objects(_series(history), [each for each in history.cells if history.everything or each.changes]),
        "notes": _notes(history),
    }


def history_rows(history: History) -> Rows:
    """Return a line for each change."""
    whole: tuple[Column[_Change], ...] = within(_series(history), lambda pair: pair[0])
    return csv_rows((*whole, *_changes(history)), [(cell, change) for cell in history.cells for change in cell.changes])


def _series(history: History) -> tuple[Column[Series], ...]:
    return (
        Column("machine", None, lambda series: series.machine),
        Column("machine_name", None, lambda series: history.machines.get(series.machine)),
        *axis_columns(lambda series: series.cell),
        Column("adapter", None, lambda series: series.cell.adapter, fields=None),
        Column("kind", None, lambda series: series.kind),
        Column("meaning", None, lambda series: CAVEATS[series.kind], fields=None),
        Column("level", None, lambda series: series.level, fields=None),
        Column("nights", None, _nights, fields=None),
        Column(
            "changes",
            None,
            lambda series: objects(_changes(history), [(series, each) for each in series.changes]),
            fields=None,
        ),
        Column(
            "environment_changes",
            None,
            lambda series: [
                {
                    "run": str(series.runs[place]),
                    "started": str(series.started[place]),
                    **{name: getattr(event, name) for name in ("side", "before", "after")},
                }
                for place, event in series.events
            ],
            fields=None,
        ),
    )


def _nights(series: Series) -> list[dict[str, Any]]:
    found = map(series.night, range(len(series)))
    return [{**n._asdict(), "environments": dict(zip(SIDES[series.kind], n.environments, strict=True))} for n in found]


def _changes(history: History) -> tuple[Column[_Change], ...]:
    def where(found: _Change) -> str:
        series, change = found
        return f"{day(change.night.started)} {name_of(series.cell)}{_machine(history, series)}, run {change.night.run}"

    def in_words(found: _Change) -> str:
        series, change = found
        _, low, high = change.percent
        kind = "" if series.kind == RATIO else ", absolute"
        nights = counted(change.nights_after, "night")
        held = f"{nights} since" if change is series.changes[-1] else f"held for {nights}"
        return f"{size(change)} ({low:+.1f} to {high:+.1f} %){kind}, {significance(change)}, {held}"

    return (
        Column("", "night and cell", where),
        Column("", "change (95 % interval)", in_words),
        Column("", "what else changed", lambda found: what_else(*found)),
        *attributes(lambda found: found[1].night, "run", "started"),
        Column("run_before", None, lambda found: found[1].night_before.run, fields=None),
        Column("started_before", None, lambda found: found[1].night_before.started, fields=None),
        *attributes(lambda found: found[1], "ratio", "low", "high"),
        Column("direction", None, lambda found: "slower" if found[1].slower else "faster"),
        *attributes(lambda found: found[1], "adjusted_p", "nights_before", "nights_after"),
        Column("state", None, lambda found: "pending" if found[1].pending else "confirmed"),
        Column("differences", None, lambda found: found[1].differences, fields=None),
    )


def _names(history: History, cells: Sequence[Series]) -> str:
    return ", ".join(history.machines.get(each, each[:12]) for each in dict.fromkeys(one.machine for one in cells))


def _machine(history: History, series: Series) -> str:
    several = len({each.machine for each in history.cells}) > 1
    return f", on {history.machines.get(series.machine, '')} {series.machine[:12]}" if several else ""


def _cells_table(history: History) -> Table:
    shown: tuple[Column[Series], ...] = (
        Column("", "", lambda series: rest_of(series.cell)),
        Column("", "nights", lambda series: int(series.searched.sum())),
        Column("", "level", level),
        Column(
            "",
            "changes",
            lambda series: (
                "pending" if series.changes and series.changes[-1].pending else str(len(series.changes) or "")
            ),
        ),
    )
    cells = sorted(history.cells, key=lambda series: in_order(series.cell.network))
    return columns.table(
        shown, cells, "All series", group=lambda each: group_name(each.cell) + _machine(history, each), words=True
    )


def _environments_table(history: History) -> list[Table]:
    """Return the nights on which an environment changed, newest first; empty if none did."""
    found = Counter(
        (str(series.started[place]), event.side or "-", str(event.before)[:12], str(event.after)[:12])
        for series in history.cells
        for place, event in series.events
    )
    newest = sorted(found.items(), reverse=True)
    left = len(newest) - _MOST_CHANGES
    notes = (f"... and {left} more; --format json --all shows them",) if left > 0 else ()
    shown: tuple[Column[tuple[tuple[str, ...], int]], ...] = (
        Column("", "night", lambda each: day(each[0][0])),
        Column("", "side", lambda each: each[0][1]),
        Column("", "before", lambda each: each[0][2]),
        Column("", "after", lambda each: each[0][3]),
        Column("", "series", lambda each: each[1]),
    )
    made = columns.table(shown, newest[:_MOST_CHANGES], "Environments that changed", notes=notes, words=True)
    return [made] if found else []


def _notes(history: History) -> list[str]:
    kinds = dict.fromkeys(series.kind for series in history.cells)
    lines = []
    if RATIO in kinds:
        lines.append(f"x: {CAVEATS[RATIO]}, candidate over baseline; above 1 the candidate is slower.")
    lines += [f"s: {CAVEATS[kind]}." for kind in kinds if kind != RATIO]
    lines.append(
        f"A change is confirmed with {ENOUGH_NIGHTS} nights on each side; p-values are adjusted over all series, and "
        f"those up to {FALSE_DISCOVERY_RATE:g} are reported."
    )
    disturbed = sum(int((~series.searched).sum()) for series in history.cells)
    if disturbed:
        lines.append(
            f"Not searched, since other programs disturbed every launch: {counted(disturbed, 'night')} of some series."
        )
    short = sum(1 for series in history.cells if int(series.searched.sum()) < 2 * ENOUGH_NIGHTS)
    if short:
        lines.append(
            f"With fewer than {2 * ENOUGH_NIGHTS} nights no change can be confirmed: "
            f"{counted(short, 'series', 'series')}."
        )
    if any(change.differences is not None for _, change in history.changes):
        lines.append(UNSEEN)
    return lines


_MOST_DIFFERENCES = 6
CLOSE = 2
"""Nights by which a change may be misplaced."""


def day(started: str) -> str:
    """Return the date and the minute of an ISO 8601 time."""
    return started[:16].replace("T", " ")


def size(change: ChangePoint) -> str:
    """Return a change in words: "5.1 % slower"."""
    return f"{abs(change.percent[0]):.1f} % {'slower' if change.slower else 'faster'}"


def significance(change: ChangePoint) -> str:
    """Return the adjusted p-value in words."""
    return f"adjusted p {change.adjusted_p:.1g}" if change.adjusted_p >= 1e-12 else "adjusted p < 1e-12"


def what_else(series: Series, change: ChangePoint) -> str:
    """Return the other differences of that night, and environments that changed close by if there is none."""
    if change.differences:
        words = [difference_words(each) for each in change.differences]
        more = len(words) - _MOST_DIFFERENCES
        return "; ".join(words[:_MOST_DIFFERENCES]) + (f"; and {more} more (--format json)" if more > 0 else "")
    words = ["nothing else that the records show: same packages, settings, dlbench and protocol"]
    if change.differences is None:
        words = ["no record says what else changed"]
    for place, event in series.events:
        if 0 < abs(place - change.place) <= CLOSE:
            side = f"{event.side} " if event.side else ""
            when = str(series.started[place])[:10]
            words.append(f"close by: {when} {side}environment {str(event.before)[:12]} -> {str(event.after)[:12]}")
    return "; ".join(words)


def level(cell: Series) -> str:
    """Return a cell's level with its unit, "1.020 x" or "0.314 s"."""
    value = cell.level
    if value is None:
        return "-"
    return f"{value:.3f} x" if cell.kind == RATIO else f"{number(value)} s"


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


def _in_order(history: History) -> list[Series]:
    newest = {id(cell): place for place, (cell, _) in reversed(list(enumerate(history.changes)))}
    return sorted(history.cells, key=lambda cell: newest.get(id(cell), math.inf))


def _figure(history: History, cells: Sequence[Series]) -> "Figure":
    figure, axes = figure_of(len(cells), _COLUMNS, panel=(4.2, 2.5), beside=(0.0, 0.9), least=(6.4, 0.0))
    with np.errstate(invalid="ignore"):
        for panel, cell in zip(axes.flat, cells, strict=False):
            _panel(panel, cell, history)
    _, first, last = history.nights()
    figure.suptitle(f"{_names(history, cells)}: {first[:10]} to {last[:10]}", fontsize=10)
    figure.supxlabel(
        "night (UTC)\nband: 95 % interval over the night's launches; black: level between changes; hollow: disturbed, "
        "not searched; mark at the foot: another environment",
        fontsize=8,
    )
    return figure


def _panel(panel: "Axes", series: Series, history: History) -> None:
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
    _environments(panel, series, dates)
    ends = [0, *(change.place for change in series.changes), len(series)]
    for start, end in itertools.pairwise(ends) if series.changes else ():
        if (inside := searched[start:end]).any():
            middle = math.exp(float(series.logs[start:end][inside].mean()))
            panel.plot([dates[start], dates[end - 1]], [middle, middle], color="black", linewidth=1.2)
    _limit(panel, series, values, low, high)
    for row, change in enumerate(series.changes):
        _mark(panel, series, change, dates, row)
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


def _limit(panel: "Axes", cell: Series, *curves: Floats) -> None:
    """Let the axis follow the bulk of the nights, with room for labels: a few wild intervals must not flatten it."""
    searched = cell.searched if cell.searched.any() else np.ones(len(cell), dtype=bool)
    values = curves[0][searched]
    ends = np.concatenate([curve[searched & np.isfinite(curve)] for curve in curves])
    low = min(float(values.min()), float(np.quantile(ends, 0.02)))
    high = max(float(values.max()), float(np.quantile(ends, 0.98)))
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.025 * middle)
    panel.set_ylim(middle - 1.1 * half, middle + (1.6 if cell.changes else 1.1) * half)


def _environments(panel: "Axes", cell: Series, dates: Objects) -> None:
    """Mark the nights with another environment at the foot, and name it where that leaves room."""
    for row, (place, event) in enumerate(cell.events):
        panel.axvline(dates[place], ymax=0.07, color=GREY, linewidth=1.2)
        if len(cell.events) <= _NAMED:
            panel.annotate(
                f"{event.side} {str(event.after)[:7]}".strip(),
                (dates[place], 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(2, 7 * row),
                textcoords="offset points",
                fontsize=5.5,
                color=GREY,
            )


def _mark(panel: "Axes", cell: Series, change: ChangePoint, dates: Objects, row: int) -> None:
    colour = _VERMILLION if change.slower else _GREEN
    style = "--" if change.pending else "-"
    panel.axvline(dates[change.place], color=colour, linewidth=1.1, linestyle=style)
    late = change.place > len(cell) / 2
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


REPORT = Report(
    name="history",
    summary="Which cells became slower or faster, on which night, and what else changed then.",
    examples=("dlbench history --plot history.png",),
    page=lambda found, options: changes_page(found),
    data=history_data,
    rows=history_rows,
    draw=lambda found, path, options: history_to_picture(found, path),
    drawable=lambda found: bool(found.cells),
)
