"""The history of a store for a terminal, as Markdown and as JSON (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table, entries
from dlbench.reports.history.analysis import CellHistory, ChangePoint, History
from dlbench.reports.history.change_points import ENOUGH_NIGHTS, FALSE_DISCOVERY_RATE
from dlbench.reports.history.series import CAVEATS, RATIO, SIDES, Series
from dlbench.reports.history.what_changed import UNSEEN
from dlbench.reports.history.words import counted, day, held, level, line_of, significance, size, what_else
from dlbench.reports.naming import group_name, name_of, rest_of
from dlbench.reports.storage.networks import in_order

_Change = tuple[CellHistory, ChangePoint]

_MOST_CHANGES = 20
_NOTHING = "Nothing was measured yet."
_LINE_OF_CHANGE, _LINE_OF_CELL = 60, 22
_HEAD = ("night", "cell", "change", "95 % interval", "adjusted p", "held", "what else changed")
_OF_A_CHANGE = ("run", "started", "ratio", "low", "high", "direction", "adjusted_p", "nights_before", "nights_after")


def history_page(history: History) -> Page:
    """Return the changes, newest first, and the cells whose latest nights show a change; or of all cells."""
    if not history.cells:
        return Page((_NOTHING,), ())
    chapters = []
    for title, found in _chapters(history):
        shown = _shown(history, found)
        lines = [line for cell, change in shown for line in ("", *_sentences(history, cell, change))]
        chapters.append(Table(title, (), (), (*lines, *_left_out(found, shown))))
    notes = _notes(history, history.everything or bool(history.changes))
    return Page((_headline(history),), (*chapters, *_further(history)), tuple(notes))


def tables_page(history: History) -> Page:
    """Return the same as tables, one row for each change, with what changed that night in its last column."""
    if not history.cells:
        return Page((_NOTHING,), ())
    tables = []
    for title, found in _chapters(history):
        shown = _shown(history, found)
        rows = tuple(_row(history, cell, change) for cell, change in shown)
        tables.append(Table(title, _HEAD if rows else (), rows, tuple(_left_out(found, shown)), words=True))
    tables += _further(history)
    tables[-1] = tables[-1]._replace(notes=(*tables[-1].notes, *_notes(history, history.everything)))
    return Page((_headline(history),), tuple(tables))


def history_data(history: History) -> dict[str, Any]:
    """Return a JSON object: what was asked, and the cells with a change, or all of them."""
    shown = [cell for cell in history.cells if history.everything or cell.changes]
    nights, first, last = history.nights()
    return {
        "magnitude": history.magnitude,
        "false_discovery_rate": FALSE_DISCOVERY_RATE,
        "nights_to_confirm": ENOUGH_NIGHTS,
        "nights": nights,
        "first": first,
        "last": last,
        "series_searched": len(history.cells),
        "cells": [_cell(history, cell) for cell in shown],
        "notes": _notes(history),
    }


def history_rows(history: History) -> Rows:
    """Return a line for each change."""
    lines = [{**cell, **change} for cell in map(partial(_cell, history), history.cells) for change in cell["changes"]]
    return Rows(("machine", "machine_name", *axes.NAMES, "kind", *_OF_A_CHANGE, "state"), lines)


def _shown(history: History, found: Sequence[_Change]) -> Sequence[_Change]:
    return found if history.everything else found[:_MOST_CHANGES]


def _further(history: History) -> list[Table]:
    """Return what is shown beside the changes where everything is."""
    return [_cells_table(history), *_environments_table(history)] if history.everything else []


def _headline(history: History) -> str:
    nights, first, last = history.nights()
    span = first[:10] if first[:10] == last[:10] else f"{first[:10]} to {last[:10]}"
    machines = dict.fromkeys(cell.series.machine for cell in history.cells)
    where = ", ".join(history.machines.get(machine, machine[:12]) for machine in machines)
    return f"{counted(nights, 'night')} ({span}), {counted(len(history.cells), 'series')} on {where}."


def _chapters(history: History) -> list[tuple[str, list[_Change]]]:
    settled = [(cell, change) for cell, change in history.changes if not change.pending]
    pending = [(cell, change) for cell, change in history.changes if change.pending]
    least = f"{100 * history.magnitude:g} %"
    return [
        (f"Change points of {least} and more, newest first" if settled else f"No change point of {least}.", settled),
        (
            f"Recent nights show a change: pending, fewer than {ENOUGH_NIGHTS} nights"
            if pending
            else "Recent nights show no change.",
            pending,
        ),
    ]


def _sentences(history: History, cell: CellHistory, change: ChangePoint) -> list[str]:
    _, low, high = change.percent
    where = _machine(history, cell)
    lines = [
        f"{day(change.night.started)}  {name_of(cell.series.cell)}{where}",
        f"  {size(change)} ({low:+.1f} to {high:+.1f} %), {significance(change)}, "
        f"{held(cell, change)}, run {change.night.run}" + ("" if cell.series.kind == RATIO else ", absolute"),
    ]
    return [*lines, "  " + line_of(cell.series, _LINE_OF_CHANGE), f"  that night: {what_else(cell, change)}"]


def _row(history: History, cell: CellHistory, change: ChangePoint) -> tuple[Entry, ...]:
    _, low, high = change.percent
    kind = "" if cell.series.kind == RATIO else " (absolute)"
    return entries(
        f"{day(change.night.started)}, run {change.night.run}",
        name_of(cell.series.cell) + _machine(history, cell),
        size(change) + kind,
        f"{low:+.1f} to {high:+.1f} %",
        significance(change).removeprefix("adjusted p "),
        held(cell, change),
        what_else(cell, change),
    )


def _machine(history: History, cell: CellHistory) -> str:
    several = len({each.series.machine for each in history.cells}) > 1
    return f", on {history.machines.get(cell.series.machine, '')} {cell.series.machine[:12]}" if several else ""


def _cells_table(history: History) -> Table:
    cells = sorted(history.cells, key=lambda c: in_order(c.series.cell.network))
    rows: list[tuple[Entry, ...]] = []
    group = ""
    for cell in cells:
        over = group_name(cell.series.cell) + _machine(history, cell)
        if over != group:
            rows.append((Entry(over),))
            group = over
        nights, bars = str(int(cell.series.searched.sum())), line_of(cell.series, _LINE_OF_CELL)
        changes = "pending" if cell.pending else str(len(cell.changes) or "")
        rows.append(entries(rest_of(cell.series.cell), nights, level(cell), bars, changes))
    return Table("All series", ("", "nights", "level", "", "changes"), tuple(rows), words=True)


def _environments_table(history: History) -> list[Table]:
    """Return the nights from which on environments were others, newest first; none where that never happened."""
    found: dict[tuple[str, str, str, str], int] = {}
    for cell in history.cells:
        for event in cell.events:
            key = str(cell.series.started[event.place]), event.side or "-", event.before[:12], event.after[:12]
            found[key] = found.get(key, 0) + 1
    if not found:
        return []
    newest = sorted(found.items(), reverse=True)
    rows = [
        entries(day(started), side, before, after, str(series))
        for (started, side, before, after), series in newest[:_MOST_CHANGES]
    ]
    left = len(newest) - len(rows)
    notes = (f"... and {left} more; --format json --all shows them",) if left > 0 else ()
    head = ("night", "side", "before", "after", "series")
    return [Table("Environments that changed", head, tuple(rows), notes, words=True)]


def _notes(history: History, lined: bool = False) -> list[str]:
    kinds = dict.fromkeys(cell.series.kind for cell in history.cells)
    lines = []
    if RATIO in kinds:
        lines.append(f"x: {CAVEATS[RATIO]}, candidate over baseline; above 1 the candidate is slower.")
    lines += [f"s: {CAVEATS[kind]}." for kind in kinds if kind != RATIO]
    if lined:
        lines.append("Bars: the nights, oldest first; higher is slower; a dot is a night that was not searched.")
    lines.append(
        f"A change is confirmed with {ENOUGH_NIGHTS} nights on both sides; p is adjusted over all series, at most "
        f"{FALSE_DISCOVERY_RATE:g} is reported."
    )
    disturbed = sum(int((~cell.series.searched).sum()) for cell in history.cells)
    if disturbed:
        lines.append(
            f"Not searched, since other programs disturbed every launch: {counted(disturbed, 'night')} of some series."
        )
    short = sum(1 for cell in history.cells if int(cell.series.searched.sum()) < 2 * ENOUGH_NIGHTS)
    if short:
        lines.append(
            f"With fewer than {2 * ENOUGH_NIGHTS} nights no change can be confirmed: {counted(short, 'series')}."
        )
    if any(change.differences is not None for _, change in history.changes):
        lines.append(UNSEEN)
    return lines


def _left_out(found: Sequence[object], shown: Sequence[object]) -> list[str]:
    left = len(found) - len(shown)
    return [f"... and {left} more; --all shows them"] if left > 0 else []


def _cell(history: History, cell: CellHistory) -> dict[str, Any]:
    series = cell.series
    return {
        "machine": series.machine,
        "machine_name": history.machines.get(series.machine),
        **series.cell._asdict(),
        "kind": series.kind,
        "meaning": CAVEATS[series.kind],
        "level": cell.level,
        "nights": [_night(series, place) for place in range(len(series))],
        "changes": [_change(change) for change in cell.changes],
        "environment_changes": [
            {
                "run": str(series.runs[event.place]),
                "started": str(series.started[event.place]),
                **{name: value for name, value in event._asdict().items() if name != "place"},
            }
            for event in cell.events
        ],
    }


def _night(series: Series, place: int) -> dict[str, Any]:
    night = series.night(place)
    return {**night._asdict(), "environments": dict(zip(SIDES[series.kind], night.environments, strict=True))}


def _change(change: ChangePoint) -> dict[str, Any]:
    return {
        "run": change.night.run,
        "started": change.night.started,
        "run_before": change.night_before.run,
        "started_before": change.night_before.started,
        **{name: getattr(change, name) for name in ("ratio", "low", "high")},
        "direction": "slower" if change.slower else "faster",
        **{name: getattr(change, name) for name in ("adjusted_p", "nights_before", "nights_after")},
        "state": "pending" if change.pending else "confirmed",
        "differences": plain(change.differences),
    }
