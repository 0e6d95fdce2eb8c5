"""The history of a store as tables, JSON (keys: ``json-keys.toml``) and a picture."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlbench.adapters.protocol import Cell
from dlbench.reports import columns
from dlbench.reports.columns import Column, Row, attributes, axis_columns, csv_rows, objects, within
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import NOTHING, Page, Table
from dlbench.reports.formats.pictures import GREY, dated, figure_of, plain_frame, write_pages
from dlbench.reports.history.change_points import ENOUGH_NIGHTS, FALSE_DISCOVERY_RATE
from dlbench.reports.history.drifts import ENOUGH_NIGHTS_OF_DRIFT, MACHINE_DRIFT
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
from dlbench.reports.results.conclusion import Conclusion
from dlbench.reports.results.differences import MOST_SHOWN, Difference, difference_words
from dlbench.reports.results.judged import JUDGED, TIME, is_of_clock
from dlbench.reports.results.naming import counted, name_of, rest_of, work_name
from dlbench.reports.results.networks import in_order
from dlbench.reports.results.number_text import number
from dlbench.reports.results.record import IMPORTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Change = tuple[Series, ChangePoint]
_Drifting = tuple[Series, Drift]

_MOST_CHANGES = 20


class _EnvironmentChange(NamedTuple):
    """A change of an environment on one night; the digests are shortened."""

    started: str
    side: str
    before: str
    after: str


def changes_page(history: History) -> Page:
    """Return the changes, newest first, the pending ones and the drifts.

    With ``everything`` all series and environments too.
    """
    if not history.cells:
        return Page((NOTHING,), ())
    tables = _change_tables(history)
    if history.everything:
        tables += [_cells_table(history), *_environments_table(history)]
    count, first, last = history.nights()
    first_day = first[:10]
    last_day = last[:10]
    span = first_day if first_day == last_day else f"{first_day} to {last_day}"
    series = counted(len(history.cells), "series", "series")
    machines = _machine_names(history, history.cells)
    head = f"{counted(count, 'night')} ({span}), {series} on {machines}."
    if history.quantity != TIME:
        head = f"{JUDGED[history.quantity].words.capitalize()}: {head}"
    return Page((head, *_absent_changes(history)), tuple(tables), tuple(_notes(history)))


def _absent_changes(history: History) -> list[str]:
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
    if not words:
        return []
    return [" ".join(words)]


def _change_tables(history: History) -> list[Table]:
    """Return the confirmed changes, the pending ones, and the drifts, without empty tables."""
    confirmed = [change for change in history.changes if not change[1].pending]
    pending = [change for change in history.changes if change[1].pending]
    change_columns = _change_columns(history)
    return [
        *_table_of_first(
            history,
            change_columns,
            confirmed,
            f"Change points of {100 * history.magnitude:g} % and more, newest first",
        ),
        *_table_of_first(
            history,
            change_columns,
            pending,
            f"Changes in the last nights, not confirmed yet: fewer than {ENOUGH_NIGHTS} nights",
        ),
        *_table_of_first(
            history,
            _drift_columns(history),
            history.drifts,
            "Slow drifts: many small changes in one direction",
        ),
    ]


def _table_of_first(
    history: History, table_columns: Sequence[Column[Row]], rows: Sequence[Row], title: str
) -> list[Table]:
    """Return a table of the first rows, or of all with ``everything``. No rows: no table."""
    if not rows:
        return []
    shown = rows if history.everything else rows[:_MOST_CHANGES]
    notes = []
    if len(shown) < len(rows):
        notes.append(f"... and {len(rows) - len(shown)} more; --all shows them")
    return [columns.table(table_columns, shown, title, notes=notes, words=True)]


def history_data(history: History) -> dict[str, Any]:
    """Return a JSON object: the options, and the cells with a change, or all of them."""
    nights, first, last = history.nights()
    cells = [cell for cell in history.cells if history.everything or _has_changed(cell)]
    return {
        "quantity": history.quantity,
        "magnitude": history.magnitude,
        "false_discovery_rate": FALSE_DISCOVERY_RATE,
        "nights_to_confirm": ENOUGH_NIGHTS,
        "nights_of_a_drift": ENOUGH_NIGHTS_OF_DRIFT,
        "drift_of_a_machine": MACHINE_DRIFT,
        "nights": nights,
        "first": first,
        "last": last,
        "series_searched": sum(series.comparable for series in history.cells),
        "cells": objects(_series_columns(history), cells),
        "notes": _notes(history),
    }


def _has_changed(series: Series) -> bool:
    return bool(series.changes) or series.drift is not None


def history_rows(history: History) -> Rows:
    """Return a line for each change and each drift.

    The fields that only one of the two has are empty in the other.
    """
    series_columns: tuple[Column[Any], ...] = within(_series_columns(history), lambda pair: pair[0])
    pairs = []
    for series in history.cells:
        for change in series.changes:
            pairs.append((series, change))
    changes = csv_rows((*series_columns, *_change_columns(history)), pairs)
    drifts = csv_rows((*series_columns, *_drift_columns(history)), history.drifts)
    names = list(dict.fromkeys((*changes.columns, *drifts.columns)))
    empty = dict.fromkeys(names)
    return Rows(names, [{**empty, **line} for line in (*changes.lines, *drifts.lines)])


def _series_columns(history: History) -> tuple[Column[Series], ...]:
    def changes(series: Series) -> list[dict[str, Any]]:
        return objects(_change_columns(history), [(series, change) for change in series.changes])

    def drift(series: Series) -> dict[str, Any] | None:
        if series.drift is None:
            return None
        return objects(_drift_columns(history), [(series, series.drift)])[0]

    return (
        Column("machine", None, lambda series: series.machine),
        Column("machine_name", None, lambda series: history.machines.get(series.machine)),
        *axis_columns(lambda series: series.cell),
        Column("adapter", None, lambda series: series.cell.adapter, fields=None),
        Column("kind", None, lambda series: series.kind),
        Column("meaning", None, lambda series: CAVEATS[series.kind], fields=None),
        Column("level", None, lambda series: series.level, fields=None),
        Column("nights", None, _nights, fields=None),
        Column("changes", None, changes, fields=None),
        Column("drift", None, drift, fields=None),
        Column("environment_changes", None, _environment_changes, fields=None),
    )


def _nights(series: Series) -> list[dict[str, Any]]:
    nights = []
    for place in range(len(series)):
        night = series.night(place)
        environments = dict(zip(SIDES[series.kind], night.environments, strict=True))
        nights.append({**night._asdict(), "environments": environments})
    return nights


def _environment_changes(series: Series) -> list[dict[str, Any]]:
    changes = []
    for place, event in series.events:
        changes.append(
            {
                "run": str(series.runs[place]),
                "started": str(series.started[place]),
                "side": event.side,
                "before": event.before,
                "after": event.after,
            }
        )
    return changes


def _change_columns(history: History) -> tuple[Column[_Change], ...]:
    def night_and_cell(row: _Change) -> str:
        series, change = row
        return (
            f"{day(change.night.started)} {name_of(series.cell)}{_machine_text(history, series)}, "
            f"run {change.night.run}"
        )

    return (
        Column("", "night and cell", night_and_cell),
        Column("", "change (95 % interval)", _change_text),
        Column("", "what else changed", lambda row: what_else(*row)),
        *attributes(lambda row: row[1].night, "run", "started"),
        Column("run_before", None, lambda row: row[1].night_before.run, fields=None),
        Column("started_before", None, lambda row: row[1].night_before.started, fields=None),
        *attributes(lambda row: row[1], "ratio", "low", "high"),
        Column("direction", None, lambda row: _direction(*row)),
        *attributes(lambda row: row[1], "adjusted_p", "nights_before", "nights_after"),
        Column("state", None, _change_state),
        Column("differences", None, lambda row: row[1].differences, fields=None),
    )


def _change_text(row: _Change) -> str:
    """Return a change, such as "5.1 % slower (+4.2 to +6.0 %), ..., for the 9 nights since"."""
    series, change = row
    _, low, high = change.percent
    kind = "" if series.kind == RATIO else ", absolute"
    nights = counted(change.nights_after, "night")
    if change is series.changes[-1]:
        duration = f"for the {nights} since"
    else:
        duration = f"for {nights}, until the next"
    return (
        f"{size(series, change)} ({low:+.1f} to {high:+.1f} %){kind}, {significance(change)}, "
        f"{duration}"
    )


def _change_state(row: _Change) -> str:
    return "pending" if row[1].pending else "confirmed"


def _direction(series: Series, change: ChangePoint | Drift) -> str:
    if series.quantity == TIME:
        return "slower" if change.slower else "faster"
    return "more" if change.slower else "less"


def _drift_columns(history: History) -> tuple[Column[_Drifting], ...]:
    def nights_and_cell(row: _Drifting) -> str:
        series, drift = row
        first = drift.first_night
        last = drift.last_night
        return (
            f"{first.started[:10]} to {last.started[:10]} {name_of(series.cell)}"
            f"{_machine_text(history, series)}, runs {first.run} to {last.run}"
        )

    def what_else_changed(row: _Drifting) -> str:
        series, drift = row
        return _differences_text(drift.differences, series.cell)

    return (
        Column("", "nights and cell", nights_and_cell),
        Column("", "drift (95 % interval)", lambda row: drift_words(*row)),
        Column("", "what else changed between them", what_else_changed),
        Column("run", None, lambda row: row[1].first_night.run),
        Column("started", None, lambda row: row[1].first_night.started),
        Column("run_last", None, lambda row: row[1].last_night.run),
        Column("started_last", None, lambda row: row[1].last_night.started),
        *attributes(lambda row: row[1], "ratio", "low", "high"),
        Column("direction", None, lambda row: _direction(*row)),
        *attributes(lambda row: row[1], "percent_a_night", "adjusted_p", "nights"),
        Column("state", None, lambda row: _drift_state(row[1])),
        Column("differences", None, lambda row: row[1].differences, fields=None),
    )


def _drift_state(drift: Drift) -> str:
    return "ongoing" if drift.ongoing else "ended"


def drift_words(series: Series, drift: Drift) -> str:
    """Return a drift in words, such as "slowly slower: +26.0 % (+20.1 to +32.2 %)"."""
    whole, low, high = drift.percent
    a_night = abs(drift.percent_a_night)
    decimals = 1 if a_night >= 0.1 else 2
    kind = "" if series.kind == RATIO else ", absolute"
    return (
        f"slowly {_direction(series, drift)}: {whole:+.1f} % ({low:+.1f} to {high:+.1f} %) over "
        f"{counted(drift.nights, 'night')}, about {a_night:.{decimals}f} % a night{kind}, "
        f"{significance(drift)}, {_drift_state(drift)}"
    )


def _machine_names(history: History, cells: Sequence[Series]) -> str:
    names: dict[str, str] = {}
    for series in cells:
        names[series.machine] = history.machines.get(series.machine, series.machine[:12])
    return ", ".join(names.values())


def _machine_text(history: History, series: Series) -> str:
    """Return the machine of a series, as a part of its name, where there are several."""
    machines = {series.machine for series in history.cells}
    if len(machines) <= 1:
        return ""
    return f", on {history.machines.get(series.machine, '')} {series.machine[:12]}"


def _cells_table(history: History) -> Table:
    shown: tuple[Column[Series], ...] = (
        Column("", "", lambda series: rest_of(series.cell)),
        Column("", "nights", _searched_nights),
        Column("", "level", level),
        Column("", "changes", _state),
    )
    cells = sorted(history.cells, key=lambda series: in_order(series.cell.network))

    def section(series: Series) -> str:
        return work_name(series.cell) + _machine_text(history, series)

    return columns.table(shown, cells, "All series", section=section, words=True)


def _searched_nights(series: Series) -> int:
    return int(series.searched.sum())


def _state(series: Series) -> str:
    """Return how many changes a series has, or that the last is pending, and whether it drifts."""
    if not series.comparable:
        return "not searched"
    words = []
    if series.changes and series.changes[-1].pending:
        words.append("pending")
    elif series.changes:
        words.append(str(len(series.changes)))
    if series.drift is not None:
        words.append("drift")
    return ", ".join(words)


def _environments_table(history: History) -> list[Table]:
    """Return the nights on which an environment changed, newest first; empty if none did."""
    count_by_change: Counter[_EnvironmentChange] = Counter()
    for series in history.cells:
        for place, event in series.events:
            change = _EnvironmentChange(
                str(series.started[place]),
                event.side or "-",
                str(event.before)[:12],
                str(event.after)[:12],
            )
            count_by_change[change] += 1
    if not count_by_change:
        return []
    newest = sorted(count_by_change.items(), reverse=True)
    more = len(newest) - _MOST_CHANGES
    notes = []
    if more > 0:
        notes.append(f"... and {more} more; --format json --all shows them")
    shown: tuple[Column[tuple[_EnvironmentChange, int]], ...] = (
        Column("", "night", lambda row: day(row[0].started)),
        Column("", "side", lambda row: row[0].side),
        Column("", "before", lambda row: row[0].before),
        Column("", "after", lambda row: row[0].after),
        Column("", "series", lambda row: row[1]),
    )
    return [
        columns.table(
            shown, newest[:_MOST_CHANGES], "Environments that changed", notes=notes, words=True
        )
    ]


def _notes(history: History) -> list[str]:
    kinds = set()
    longest = 0
    unknown = 0
    disturbed = 0
    short = 0
    for series in history.cells:
        searched = _searched_nights(series)
        kinds.add(series.kind)
        longest = max(longest, len(series))
        unknown += not series.comparable
        disturbed += len(series) - searched
        short += searched < 2 * ENOUGH_NIGHTS
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
    if longest >= ENOUGH_NIGHTS_OF_DRIFT:
        least = []
        if RATIO in kinds:
            least.append(f"{100 * history.magnitude:g} %")
        if ABSOLUTE in kinds:
            magnitude = max(history.magnitude, MACHINE_DRIFT)
            least.append(f"{100 * magnitude:g} % of absolute times, which drift with their machine")
        lines.append(
            f"A drift takes {ENOUGH_NIGHTS_OF_DRIFT} nights or more, and in all is clearly more "
            f"than {', or '.join(least)}."
        )
    if unknown:
        lines.append(
            f"Not searched: {counted(unknown, 'series', 'series')} of an unknown machine. The "
            "nights may be of several machines, and a change of the machine would look like a "
            "change of the code."
        )
    if disturbed:
        lines.append(
            f"Not searched: {counted(disturbed, 'night')} of some series, since other programs "
            "disturbed every launch."
        )
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


def size(series: Series, change: ChangePoint) -> str:
    """Return a change in words: "5.1 % slower", or of another quantity "5.1 % more"."""
    return f"{abs(change.percent[0]):.1f} % {_direction(series, change)}"


def significance(change: ChangePoint | Drift) -> str:
    """Return the adjusted p-value in words."""
    if change.adjusted_p < 1e-12:
        return "adjusted p < 1e-12"
    return f"adjusted p {change.adjusted_p:.1g}"


def what_else(series: Series, change: ChangePoint) -> str:
    """Return the other differences of that night, or else environments that changed close by."""
    words = _differences_text(change.differences, series.cell)
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


def _differences_text(differences: Sequence[Difference] | None, cell: Cell) -> str:
    if differences is None:
        return "no record says what else changed"
    if not differences and cell.adapter == IMPORTED:
        return "nothing else that the files of pytest-benchmark say"
    if not differences:
        return "nothing else that the records show: same packages, settings, dlbench and protocol"
    words = [difference_words(difference) for difference in differences]
    more = len(words) - MOST_SHOWN
    if more > 0:
        words = [*words[:MOST_SHOWN], f"and {more} more (--format json)"]
    return "; ".join(words)


def level(cell: Series) -> str:
    """Return a cell's level with its unit, "1.020 x", "0.314 s" or "213 MiB"."""
    value = cell.level
    if value is None:
        return "-"
    if cell.kind == RATIO:
        return f"{value:.3f} x"
    if cell.quantity == "memory":
        return f"{number(value / 2**20)} MiB"
    if is_of_clock(cell.quantity):
        return f"{number(value)} s"
    return number(value)


PANELS = 24
"""The most panels on a page."""

_BLUE = "#0072B2"
_SKY = "#56B4E9"
_VERMILLION = "#D55E00"
_GREEN = "#009E73"
_COLUMNS = 3
_MARKED = 120  # nights up to which each gets a dot of its own
_NAMED = 3  # environments of a panel that are named


def history_to_picture(history: History, path: Path) -> list[Path]:
    """Write the history to this path and return the files written.

    The series with changes come first, newest change first, then those with a drift. A page holds
    `PANELS` of them. With ``everything`` further pages follow as NAME-2.png and so on. A file is
    whole or not there. Raises ReportError.
    """
    cells = _sort_by_change(history)
    pages = [cells[start : start + PANELS] for start in range(0, len(cells), PANELS)]
    if not history.everything:
        pages = pages[:1]
    return write_pages((_figure(history, page) for page in pages), path)


def _sort_by_change(history: History) -> list[Series]:
    with_changes = [series for series, _ in history.changes]
    with_changes += [series for series, _ in history.drifts]
    positions: dict[int, int] = {}
    for position, series in enumerate(with_changes):
        positions.setdefault(id(series), position)
    return sorted(history.cells, key=lambda series: positions.get(id(series), math.inf))


def _figure(history: History, cells: Sequence[Series]) -> "Figure":
    figure, axes = figure_of(
        len(cells), _COLUMNS, panel=(4.2, 2.5), beside=(0.0, 0.9), least=(6.4, 0.0)
    )
    with np.errstate(invalid="ignore"):
        for panel, cell in zip(axes.flat, cells, strict=False):
            _panel(panel, cell, history)
    _, first, last = history.nights()
    machines = _machine_names(history, cells)
    figure.suptitle(f"{machines}: {first[:10]} to {last[:10]}", fontsize=10)
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
    low = np.exp(series.logs - series.halves)
    high = np.exp(series.logs + series.halves)
    panel.fill_between(
        dates, low, high, where=np.isfinite(low), color=_SKY, alpha=0.35, linewidth=0
    )
    marker = "." if len(series) <= _MARKED else ""
    panel.plot(
        dates[searched], values[searched], color=_BLUE, linewidth=0.8, marker=marker, markersize=3
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
    _mark_environments(panel, series, dates)
    _draw_levels(panel, series, dates)
    _set_limits(panel, series, values, low, high)
    for row, change in enumerate(series.changes):
        _mark_change(panel, series, change, dates, row)
    if series.drift is not None:
        _mark_drift(panel, series.drift, dates, len(series.changes))
    title = name_of(series.cell)
    if len(history.machines) > 1:
        title += f" [{series.machine[:6]}]"
    panel.set_title(title, fontsize=8, loc="left")
    panel.set_ylabel(_value_name(series), fontsize=7)
    if len(dates) == 1:
        # One night has no width: without limits of ours the axis would span years.
        panel.set_xlim(dates[0] - timedelta(days=1), dates[0] + timedelta(days=1))
    dated(panel, 3, 6)
    panel.xaxis.get_offset_text().set_fontsize(7)
    panel.yaxis.get_major_formatter().set_useOffset(False)  # type: ignore[attr-defined]
    plain_frame(panel)


def _value_name(series: Series) -> str:
    """Return the meaning of the values of a series."""
    if series.kind == RATIO:
        return "candidate / baseline"
    if series.quantity == "memory":
        return "bytes"
    if is_of_clock(series.quantity):
        return "seconds"
    return JUDGED[series.quantity].words


def _draw_levels(panel: "Axes", series: Series, dates: Objects) -> None:
    """Draw the level between changes, which rises or falls along a drift."""
    if not _has_changed(series):
        return
    drifted = series.drifted
    ends = [0, *(change.place for change in series.changes), len(series)]
    for start, end in itertools.pairwise(ends):
        inside = series.searched[start:end]
        if inside.any():
            rest = (series.logs - drifted)[start:end][inside]
            level = np.exp(float(rest.mean()) + drifted[start:end])
            panel.plot(dates[start:end], level, color="black", linewidth=1.2)


def _set_limits(panel: "Axes", series: Series, *curves: Floats) -> None:
    """Let the axis follow the bulk of the nights, with room for labels.

    A few wild intervals must not flatten the curve.
    """
    searched = series.searched
    if not searched.any():
        searched = np.ones(len(series), dtype=bool)
    values = curves[0][searched]
    ends = np.concatenate([curve[searched & np.isfinite(curve)] for curve in curves])
    low = min(float(values.min()), float(np.quantile(ends, 0.02)))
    high = max(float(values.max()), float(np.quantile(ends, 0.98)))
    middle = (low + high) / 2
    half = max((high - low) / 2, 0.025 * middle)
    room_above = 1.6 if _has_changed(series) else 1.1
    panel.set_ylim(middle - 1.1 * half, middle + room_above * half)


def _mark_environments(panel: "Axes", series: Series, dates: Objects) -> None:
    """Mark the nights with another environment at the foot, and name it where that leaves room."""
    for row, (place, event) in enumerate(series.events):
        panel.axvline(dates[place], ymax=0.07, color=GREY, linewidth=1.2)
        if len(series.events) <= _NAMED:
            panel.annotate(
                f"{event.side} {str(event.after)[:7]}".strip(),
                (dates[place], 0.02),
                xycoords=("data", "axes fraction"),
                xytext=(2, 7 * row),
                textcoords="offset points",
                fontsize=5.5,
                color=GREY,
            )


def _mark_change(
    panel: "Axes", series: Series, change: ChangePoint, dates: Objects, row: int
) -> None:
    colour, arrow = _colour_and_arrow(change.slower)
    style = "-"
    state = ""
    if change.pending:
        style = "--"
        state = " pending"
    panel.axvline(dates[change.place], color=colour, linewidth=1.1, linestyle=style)
    # The label stands on the side with more room.
    alignment = "left"
    offset = 3
    if change.place > len(series) / 2:
        alignment = "right"
        offset = -3
    panel.annotate(
        f"{arrow} {change.percent[0]:+.1f} % {change.night.started[:10]}{state}",
        (dates[change.place], 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(offset, -9 * (row % 4)),
        textcoords="offset points",
        ha=alignment,
        va="top",
        fontsize=7,
        color=colour,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
    )


def _colour_and_arrow(slower: bool) -> tuple[str, str]:
    if slower:
        return _VERMILLION, "▲"
    return _GREEN, "▼"


def _mark_drift(panel: "Axes", drift: Drift, dates: Objects, row: int) -> None:
    colour, arrow = _colour_and_arrow(drift.slower)
    panel.axvspan(dates[drift.first], dates[drift.last], color=colour, alpha=0.08, linewidth=0)
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


def conclusion_of(history: History) -> Conclusion:
    """Return whether a cell has changed over the nights, and the counts."""
    pending = sum(change.pending for _, change in history.changes)
    confirmed = len(history.changes) - pending + len(history.drifts)
    reason = f"{counted(confirmed, 'confirmed change')} and {pending} pending"
    if confirmed:
        return Conclusion("changed", reason)
    if pending:
        return Conclusion("pending", reason)
    return Conclusion("unchanged", reason)


REPORT = Report(
    name="history",
    summary=(
        "Which cells became slower or faster, on which night or slowly, and what else changed then."
    ),
    examples=("dlbench history --plot history.png",),
    page=lambda history, options: changes_page(history),
    conclusion=conclusion_of,
    data=history_data,
    rows=history_rows,
    draw=lambda history, path, options: history_to_picture(history, path),
    drawable=lambda history: bool(history.cells),
)
