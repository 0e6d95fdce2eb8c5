"""The history of a store as tables, JSON and a picture (``reports/SCHEMA.md`` describes every
key).
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlbench.adapters.protocol import Cell
from dlbench.reports import columns
from dlbench.reports.columns import Column, attributes, axis_columns, csv_rows, objects, within
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import NOTHING, Page, Table
from dlbench.reports.formats.pictures import GREY, dated, figure_of, plain_frame, write_pages
from dlbench.reports.history.change_points import ENOUGH_NIGHTS, FALSE_DISCOVERY_RATE
from dlbench.reports.history.drifts import ENOUGH_NIGHTS_OF_DRIFT, OF_A_MACHINE
from dlbench.reports.history.nights import (
    ABSOLUTE,
    CAVEATS,
    RATIO,
    SIDES,
    UNSEEN,
    ChangePoint,
    Drift,
    Floats,
    History,
    Objects,
    Series,
)
from dlbench.reports.report import Report
from dlbench.reports.results.differences import MOST_SHOWN, Difference, difference_words
from dlbench.reports.results.naming import counted, group_name, name_of, rest_of
from dlbench.reports.results.networks import in_order
from dlbench.reports.results.number_text import number
from dlbench.reports.results.record import IMPORTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Change = tuple[Series, ChangePoint]
_Drifting = tuple[Series, Drift]

_MOST_CHANGES = 20


def changes_page(history: History) -> Page:
    """Return the changes, newest first, the pending ones and the drifts.

    With ``everything`` all series and environments too.
    """
    if not history.cells:
        return Page((NOTHING,), ())
    tables = _tables_of_changes(history)
    if history.everything:
        tables += [_cells_table(history), *_environments_table(history)]
    count, first, last = history.nights()
    span = first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"
    on = f"{counted(len(history.cells), 'series', 'series')} on {_names(history, history.cells)}"
    head = f"{counted(count, 'night')} ({span}), {on}."
    return Page((head, *_nothing(history)), tuple(tables), tuple(_notes(history)))


def _nothing(history: History) -> list[str]:
    """Return a line that names the kinds of changes that were not found."""
    if not any(series.comparable for series in history.cells):
        return ["Not searched for changes: the machine is unknown."]
    pending = [change.pending for _, change in history.changes]
    words = []
    if False not in pending:
        words.append(f"No change point of {100 * history.magnitude:g} %.")
    if True not in pending:
        words.append("No change in the last nights.")
    if not history.drifts:
        words.append("No slow drift.")
    return [" ".join(words)] if words else []


def _tables_of_changes(history: History) -> list[Table]:
    """Return the confirmed changes, the pending ones, and the drifts."""
    settled, pending = (
        [each for each in history.changes if each[1].pending is state] for state in (False, True)
    )
    tables = []
    for found, title in (
        (settled, f"Change points of {100 * history.magnitude:g} % and more, newest first"),
        (
            pending,
            f"Changes in the last nights, not confirmed yet: fewer than {ENOUGH_NIGHTS} nights",
        ),
    ):
        shown = found if history.everything else found[:_MOST_CHANGES]
        left = (
            (f"... and {len(found) - len(shown)} more; --all shows them",)
            if len(shown) < len(found)
            else ()
        )
        if shown:
            tables.append(columns.table(_changes(history), shown, title, notes=left, words=True))
    return [*tables, *_drifts_table(history)]


def history_data(history: History) -> dict[str, Any]:
    """Return a JSON object: the options, and the cells with a change, or all of them."""
    nights, first, last = history.nights()
    return {
        "magnitude": history.magnitude,
        "false_discovery_rate": FALSE_DISCOVERY_RATE,
        "nights_to_confirm": ENOUGH_NIGHTS,
        "nights_of_a_drift": ENOUGH_NIGHTS_OF_DRIFT,
        "drift_of_a_machine": OF_A_MACHINE,
        "nights": nights,
        "first": first,
        "last": last,
        "series_searched": sum(series.comparable for series in history.cells),
        "cells": objects(
            _series(history),
            [each for each in history.cells if history.everything or _changed(each)],
        ),
        "notes": _notes(history),
    }


def _changed(series: Series) -> bool:
    return bool(series.changes) or series.drift is not None


def history_rows(history: History) -> Rows:
    """Return a line for each change and each drift; the fields that only one of the two has are
    empty in the other.
    """
    of_series: tuple[Column[Any], ...] = within(_series(history), lambda pair: pair[0])
    changes = csv_rows(
        (*of_series, *_changes(history)),
        [(cell, change) for cell in history.cells for change in cell.changes],
    )
    drifts = csv_rows((*of_series, *_drifts(history)), history.drifts)
    names = list(dict.fromkeys((*changes.columns, *drifts.columns)))
    empty = dict.fromkeys(names)
    return Rows(names, [{**empty, **line} for line in (*changes.lines, *drifts.lines)])


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
            "drift",
            None,
            lambda series: (
                None
                if series.drift is None
                else objects(_drifts(history), [(series, series.drift)])[0]
            ),
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
    return [
        {**n._asdict(), "environments": dict(zip(SIDES[series.kind], n.environments, strict=True))}
        for n in found
    ]


def _changes(history: History) -> tuple[Column[_Change], ...]:
    def where(found: _Change) -> str:
        series, change = found
        return (
            f"{day(change.night.started)} {name_of(series.cell)}{_machine(history, series)}, run "
            f"{change.night.run}"
        )

    def in_words(found: _Change) -> str:
        series, change = found
        _, low, high = change.percent
        kind = "" if series.kind == RATIO else ", absolute"
        nights = counted(change.nights_after, "night")
        held = (
            f"for the {nights} since"
            if change is series.changes[-1]
            else f"for {nights}, until the next"
        )
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


def _drifts_table(history: History) -> list[Table]:
    """Return the drifts, the largest first; empty if there are none."""
    drifts = history.drifts
    shown = drifts if history.everything else drifts[:_MOST_CHANGES]
    left = (
        (f"... and {len(drifts) - len(shown)} more; --all shows them",)
        if len(shown) < len(drifts)
        else ()
    )
    title = "Slow drifts: many small changes in one direction"
    return [columns.table(_drifts(history), shown, title, notes=left, words=True)] if shown else []


def _drifts(history: History) -> tuple[Column[_Drifting], ...]:
    def where(found: _Drifting) -> str:
        series, drift = found
        first, last = (night.started[:10] for night in (drift.first_night, drift.last_night))
        return (
            f"{first} to {last} {name_of(series.cell)}{_machine(history, series)}, "
            f"runs {drift.first_night.run} to {drift.last_night.run}"
        )

    def between(found: _Drifting) -> str:
        series, drift = found
        return _differences_in_words(drift.differences, series.cell)

    return (
        Column("", "nights and cell", where),
        Column("", "drift (95 % interval)", lambda found: drift_words(*found)),
        Column("", "what else changed between them", between),
        Column("run", None, lambda found: found[1].first_night.run),
        Column("started", None, lambda found: found[1].first_night.started),
        Column("run_last", None, lambda found: found[1].last_night.run),
        Column("started_last", None, lambda found: found[1].last_night.started),
        *attributes(lambda found: found[1], "ratio", "low", "high"),
        Column("direction", None, lambda found: "slower" if found[1].slower else "faster"),
        *attributes(lambda found: found[1], "percent_a_night", "adjusted_p", "nights"),
        Column("state", None, lambda found: "ongoing" if found[1].ongoing else "ended"),
        Column("differences", None, lambda found: found[1].differences, fields=None),
    )


def drift_words(series: Series, drift: Drift) -> str:
    """Return a drift in words: "slowly slower: +26.0 % (+20.1 to +32.2 %) over 24 nights, about 1.0
    % a night".
    """
    whole, low, high = drift.percent
    a_night = abs(drift.percent_a_night)
    return (
        f"slowly {'slower' if drift.slower else 'faster'}: {whole:+.1f} % ({low:+.1f} to "
        f"{high:+.1f} %) over {counted(drift.nights, 'night')}, about "
        f"{a_night:.{1 if a_night >= 0.1 else 2}f} % a "
        f"night{'' if series.kind == RATIO else ', absolute'}, {significance(drift)}, "
        f"{'ongoing' if drift.ongoing else 'ended'}"
    )


def _names(history: History, cells: Sequence[Series]) -> str:
    return ", ".join(
        history.machines.get(each, each[:12])
        for each in dict.fromkeys(one.machine for one in cells)
    )


def _machine(history: History, series: Series) -> str:
    several = len({each.machine for each in history.cells}) > 1
    return (
        f", on {history.machines.get(series.machine, '')} {series.machine[:12]}" if several else ""
    )


def _cells_table(history: History) -> Table:
    shown: tuple[Column[Series], ...] = (
        Column("", "", lambda series: rest_of(series.cell)),
        Column("", "nights", lambda series: int(series.searched.sum())),
        Column("", "level", level),
        Column("", "changes", _state),
    )
    cells = sorted(history.cells, key=lambda series: in_order(series.cell.network))
    return columns.table(
        shown,
        cells,
        "All series",
        group=lambda each: group_name(each.cell) + _machine(history, each),
        words=True,
    )


def _state(series: Series) -> str:
    """Return how many changes a series has, or that the last is pending, and whether it drifts."""
    if not series.comparable:
        return "not searched"
    pending = bool(series.changes) and series.changes[-1].pending
    changes = "pending" if pending else str(len(series.changes) or "")
    drift = "" if series.drift is None else "drift"
    return ", ".join(word for word in (changes, drift) if word)


def _environments_table(history: History) -> list[Table]:
    """Return the nights on which an environment changed, newest first; empty if none did."""
    found = Counter(
        (
            str(series.started[place]),
            event.side or "-",
            str(event.before)[:12],
            str(event.after)[:12],
        )
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
    made = columns.table(
        shown, newest[:_MOST_CHANGES], "Environments that changed", notes=notes, words=True
    )
    return [made] if found else []


def _notes(history: History) -> list[str]:
    kinds = dict.fromkeys(series.kind for series in history.cells)
    lines = []
    if RATIO in kinds:
        lines.append(
            "x: candidate over the same night's baseline. Above 1 the candidate is slower."
        )
    if ABSOLUTE in kinds:
        lines.append(
            "s: absolute times, in which a shift of the machine looks like a change of the code."
        )
    lines.append(
        f"A change is confirmed with {ENOUGH_NIGHTS} nights on each side; p-values are adjusted "
        f"over all series, and those up to {FALSE_DISCOVERY_RATE:g} are reported."
    )
    if any(len(series) >= ENOUGH_NIGHTS_OF_DRIFT for series in history.cells):
        least = [f"{100 * history.magnitude:g} %"] if RATIO in kinds else []
        if ABSOLUTE in kinds:
            of_machine = max(history.magnitude, OF_A_MACHINE)
            least.append(
                f"{100 * of_machine:g} % of absolute times, which drift with their machine"
            )
        lines.append(
            f"A drift takes {ENOUGH_NIGHTS_OF_DRIFT} nights or more, and in all is clearly more "
            f"than {', or '.join(least)}."
        )
    unknown = [series for series in history.cells if not series.comparable]
    if unknown:
        lines.append(
            f"Not searched: {counted(len(unknown), 'series', 'series')} of an unknown machine. The "
            "nights may be of several machines, and a change of the machine would look like a "
            "change of the code."
        )
    disturbed = sum(int((~series.searched).sum()) for series in history.cells)
    if disturbed:
        lines.append(
            f"Not searched: {counted(disturbed, 'night')} of some series, since other programs "
            "disturbed every launch."
        )
    short = sum(1 for series in history.cells if int(series.searched.sum()) < 2 * ENOUGH_NIGHTS)
    if short:
        lines.append(
            f"{counted(short, 'series', 'series')} with fewer than {2 * ENOUGH_NIGHTS} nights: too "
            "few to confirm a change."
        )
    if any(change.differences is not None for _, change in history.changes):
        lines.append(UNSEEN)
    return lines


CLOSE = 2
"""Nights by which a change may be misplaced."""


def day(started: str) -> str:
    """Return the date and the minute of an ISO 8601 time."""
    return started[:16].replace("T", " ")


def size(change: ChangePoint) -> str:
    """Return a change in words: "5.1 % slower"."""
    return f"{abs(change.percent[0]):.1f} % {'slower' if change.slower else 'faster'}"


def significance(change: ChangePoint | Drift) -> str:
    """Return the adjusted p-value in words."""
    return (
        f"adjusted p {change.adjusted_p:.1g}"
        if change.adjusted_p >= 1e-12
        else "adjusted p < 1e-12"
    )


def what_else(series: Series, change: ChangePoint) -> str:
    """Return the other differences of that night, and environments that changed close by if there
    is none.
    """
    words = _differences_in_words(change.differences, series.cell)
    if change.differences:
        return words
    close = []
    for place, event in series.events:
        if 0 < abs(place - change.place) <= CLOSE:
            side = f"{event.side} " if event.side else ""
            when = str(series.started[place])[:10]
            close.append(
                f"close by: {when} {side}environment {str(event.before)[:12]} -> "
                f"{str(event.after)[:12]}"
            )
    return "; ".join([words, *close])


def _differences_in_words(differences: Sequence[Difference] | None, cell: Cell) -> str:
    if differences is None:
        return "no record says what else changed"
    if not differences and cell.adapter == IMPORTED:
        return "nothing else that the files of pytest-benchmark say"
    if not differences:
        return "nothing else that the records show: same packages, settings, dlbench and protocol"
    words = [difference_words(each) for each in differences]
    more = len(words) - MOST_SHOWN
    return "; ".join(words[:MOST_SHOWN]) + (
        f"; and {more} more (--format json)" if more > 0 else ""
    )


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
_UNITS = {RATIO: "candidate / baseline", ABSOLUTE: "seconds"}


def history_to_picture(history: History, path: Path) -> list[Path]:
    """Write the history to this path and return the files written.

    The series with changes come first, newest change first, then those with a drift. A page holds
    `PANELS` of them. Of ``everything`` further pages follow as NAME-2.png and so on. A file is
    whole or not there. Raises ReportError.
    """
    cells = _in_order(history)
    pages = [cells[start : start + PANELS] for start in range(0, len(cells), PANELS)]
    return write_pages(
        (_figure(history, page) for page in (pages if history.everything else pages[:1])), path
    )


def _in_order(history: History) -> list[Series]:
    with_changes = [cell for cell, _ in history.changes] + [cell for cell, _ in history.drifts]
    places = {id(cell): place for place, cell in reversed(list(enumerate(with_changes)))}
    return sorted(history.cells, key=lambda cell: places.get(id(cell), math.inf))


def _figure(history: History, cells: Sequence[Series]) -> "Figure":
    figure, axes = figure_of(
        len(cells), _COLUMNS, panel=(4.2, 2.5), beside=(0.0, 0.9), least=(6.4, 0.0)
    )
    with np.errstate(invalid="ignore"):
        for panel, cell in zip(axes.flat, cells, strict=False):
            _panel(panel, cell, history)
    _, first, last = history.nights()
    figure.suptitle(f"{_names(history, cells)}: {first[:10]} to {last[:10]}", fontsize=10)
    figure.supxlabel(
        "night (UTC)\nband: 95 % interval over the night's launches; black: level between "
        "changes; shaded: slow drift\nhollow: disturbed, not searched; mark at the foot: another "
        "environment",
        fontsize=8,
    )
    return figure


def _panel(panel: "Axes", series: Series, history: History) -> None:
    dates = np.array([datetime.fromisoformat(started) for started in series.started], dtype=object)
    values = np.exp(series.logs)
    searched = series.searched
    low, high = np.exp(series.logs - series.halves), np.exp(series.logs + series.halves)
    panel.fill_between(
        dates, low, high, where=np.isfinite(low), color=_SKY, alpha=0.35, linewidth=0
    )
    few = len(series) <= _MARKED
    panel.plot(
        dates[searched],
        values[searched],
        color=_BLUE,
        linewidth=0.8,
        marker="." if few else "",
        markersize=3,
    )
    panel.plot(
        dates[~searched],
        values[~searched],
        "o",
        mfc="none",
        mec=GREY,
        markersize=4,
        markeredgewidth=0.8,
    )
    if series.kind == RATIO:
        panel.axhline(1.0, color=GREY, linewidth=0.6)
    _environments(panel, series, dates)
    _levels(panel, series, dates)
    _limit(panel, series, values, low, high)
    for row, change in enumerate(series.changes):
        _mark(panel, series, change, dates, row)
    if series.drift is not None:
        _mark_drift(panel, series.drift, dates, len(series.changes))
    several = len(history.machines) > 1
    panel.set_title(
        name_of(series.cell) + (f" [{series.machine[:6]}]" if several else ""),
        fontsize=8,
        loc="left",
    )
    panel.set_ylabel(_UNITS[series.kind], fontsize=7)
    if len(dates) == 1:
        # One night has no width: without limits of ours the axis would span years.
        panel.set_xlim(dates[0] - timedelta(days=1), dates[0] + timedelta(days=1))
    dated(panel, 3, 6)
    panel.xaxis.get_offset_text().set_fontsize(7)
    panel.yaxis.get_major_formatter().set_useOffset(False)  # type: ignore[attr-defined]
    plain_frame(panel)


def _levels(panel: "Axes", series: Series, dates: Objects) -> None:
    """Draw the level between changes, which rises or falls along a drift."""
    if not _changed(series):
        return
    drifted = series.drifted
    ends = [0, *(change.place for change in series.changes), len(series)]
    for start, end in itertools.pairwise(ends):
        inside = series.searched[start:end]
        if inside.any():
            rest = (series.logs - drifted)[start:end][inside]
            level = np.exp(float(rest.mean()) + drifted[start:end])
            panel.plot(dates[start:end], level, color="black", linewidth=1.2)


def _limit(panel: "Axes", cell: Series, *curves: Floats) -> None:
    """Let the axis follow the bulk of the nights, with room for labels: a few wild intervals must
    not flatten it.
    """
    searched = cell.searched if cell.searched.any() else np.ones(len(cell), dtype=bool)
    values = curves[0][searched]
    ends = np.concatenate([curve[searched & np.isfinite(curve)] for curve in curves])
    low = min(float(values.min()), float(np.quantile(ends, 0.02)))
    high = max(float(values.max()), float(np.quantile(ends, 0.98)))
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.025 * middle)
    panel.set_ylim(middle - 1.1 * half, middle + (1.6 if _changed(cell) else 1.1) * half)


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


def _mark_drift(panel: "Axes", drift: Drift, dates: Objects, row: int) -> None:
    colour = _VERMILLION if drift.slower else _GREEN
    panel.axvspan(dates[drift.first], dates[drift.last], color=colour, alpha=0.08, linewidth=0)
    arrow = "▲" if drift.slower else "▼"
    panel.annotate(
        f"{arrow} {drift.percent[0]:+.1f} % slowly, over {counted(drift.nights, 'night')}",
        (0.02, 0.98),
        xycoords="axes fraction",
        xytext=(0, -9 * (row % 4)),
        textcoords="offset points",
        va="top",
        fontsize=7,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
    )


REPORT = Report(
    name="history",
    summary=(
        "Which cells became slower or faster, on which night or slowly, and what else changed then."
    ),
    examples=("dlbench history --plot history.png",),
    page=lambda found, options: changes_page(found),
    data=history_data,
    rows=history_rows,
    draw=lambda found, path, options: history_to_picture(found, path),
    drawable=lambda found: bool(found.cells),
)
