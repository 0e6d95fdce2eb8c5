"""What a site remembers of a gate and of a history."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from dlbench.reports.compare.comparison import Comparison
from dlbench.reports.compare.report import GRAVE, Finding, finding, sentence_of
from dlbench.reports.formats.inert import one_line
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import CellHistory, ChangePoint, History
from dlbench.reports.history.report import significance, size, what_else
from dlbench.reports.naming import name_of
from dlbench.reports.site.contents import Shift, Slower
from dlbench.reports.site.names import key_of

_CLEARED = (Finding.NO_REGRESSION, Finding.IMPROVEMENT)
_CLOSE = 2
"""Nights by which a change may be misplaced."""


def slower_of(comparison: Comparison) -> dict[str, Slower]:
    """Return the cells that a gate has found slower or broken, by key; none of a comparison that is no gate."""
    if comparison.purpose != "gate":
        return {}
    return {
        key_of(comparison.hosts[0].fingerprint, cell.cell): Slower(
            one_line(name_of(cell.cell)), finding(cell).name, one_line(sentence_of(cell)), cell.baseline.environment
        )
        for cell in comparison.cells
        if finding(cell) in GRAVE
    }


def cleared_of(comparison: Comparison) -> tuple[str, ...]:
    """Return the keys of the cells that a gate has shown not to be slower."""
    if comparison.purpose != "gate":
        return ()
    machine = comparison.hosts[0].fingerprint
    return tuple(sorted(key_of(machine, cell.cell) for cell in comparison.cells if finding(cell) in _CLEARED))


def shifts_of(history: History, before: Iterable[Shift]) -> tuple[Shift, ...]:
    """Return the confirmed changes for the worse, the oldest first.

    ``before`` are those that the site knew. One of them stays as it was published, though further nights change its
    size a little, and move it by no more than changes are misplaced by: what was told is not told again.
    """
    known = {(each.key, each.run): each for each in before}
    found = [
        _shift(cell, change, known)
        for cell, change in reversed(history.changes)
        if change.slower and not change.pending
    ]
    return tuple(found)


def _shift(cell: CellHistory, change: ChangePoint, known: dict[tuple[str, str], Shift]) -> Shift:
    series, place = cell.series, change.place
    key = key_of(series.machine, series.cell)
    runs = [str(run) for run in series.runs]
    close = runs[max(0, place - _CLOSE) : place + _CLOSE + 1]
    # Up to the night that confirmed it here: a gate may have needed some of them.
    near = tuple(runs[max(0, place - _CLOSE) : place + ENOUGH_NIGHTS + 1])
    if moved := next((known[key, run] for run in close if (key, run) in known), None):
        return replace(moved, near=near)
    _, low, high = change.percent
    words = (
        f"{size(change)} ({low:+.1f} to {high:+.1f} %), {significance(change)}; that night: {what_else(cell, change)}"
    )
    started = datetime.fromisoformat(change.night.started)
    return Shift(key, one_line(name_of(series.cell)), change.night.run, started, one_line(words), near)
