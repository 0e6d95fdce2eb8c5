"""The words of the history: names of cells, sizes, what else changed, and the line of bars."""

import math

from dlbench.reports.formats.layout import number
from dlbench.reports.history.analysis import CellHistory, ChangePoint, Difference, Event
from dlbench.reports.history.series import RATIO, Series

_BARS = "▁▂▃▄▅▆▇█"
_MOST_DIFFERENCES = 6
_CLOSE = 2
"""Nights by which a change may be misplaced."""


def day(started: str) -> str:
    """Return the date and the minute of an ISO 8601 time."""
    return started[:16].replace("T", " ")


def size(change: ChangePoint) -> str:
    """Return a change in words: "5.1 % slower"."""
    return f"{abs(change.percent[0]):.1f} % {'slower' if change.slower else 'faster'}"


def line_of(series: Series, width: int) -> str:
    """Return the nights as a line of bars of at most ``width`` characters, each the mean of as many nights.

    The lowest bar is the least, the highest the largest, unless they lie within 5 % of one another: noise does not fill
    the line. Nights that took no part in the search are left out, a stretch of nothing but such is a dot.
    """
    import numpy as np

    parts = np.array_split(np.arange(len(series)), min(width, len(series)))
    means = [float(series.logs[p][series.searched[p]].mean()) if series.searched[p].any() else None for p in parts]
    known = [mean for mean in means if mean is not None]
    if not known:
        return "." * len(means)
    middle = (max(known) + min(known)) / 2
    span = max(max(known) - min(known), math.log(1.05))
    steps = len(_BARS)
    return "".join(
        "." if mean is None else _BARS[min(steps - 1, max(0, int(((mean - middle) / span + 0.5) * steps)))]
        for mean in means
    )


def held(cell: CellHistory, change: ChangePoint) -> str:
    """Return for how long a change has held: until now, or until the next one."""
    nights = counted(change.nights_after, "night")
    return f"{nights} since" if change is cell.changes[-1] else f"held for {nights}"


def significance(change: ChangePoint) -> str:
    """Return the adjusted p-value in words."""
    return f"adjusted p {change.adjusted_p:.1g}" if change.adjusted_p >= 1e-12 else "adjusted p < 1e-12"


def what_else(cell: CellHistory, change: ChangePoint) -> str:
    """Return what else was otherwise that night, and where that says nothing an environment that changed close by."""
    if change.differences is None:
        told = "no record says what else changed"
    elif not change.differences:
        told = "nothing else that the records show: same packages, settings, dlbench and protocol"
    else:
        words = [_difference(each) for each in change.differences]
        more = len(words) - _MOST_DIFFERENCES
        return "; ".join(words[:_MOST_DIFFERENCES]) + (f"; and {more} more (--format json)" if more > 0 else "")
    close = [event for event in cell.events if 0 < abs(event.place - change.place) <= _CLOSE]
    return "; ".join([told, *(f"close by: {event_words(cell, event)}" for event in close)])


def event_words(cell: CellHistory, event: Event) -> str:
    """Return an environment's change in words: "2026-04-10 candidate environment abc -> def"."""
    side = f"{event.side} " if event.side else ""
    when = str(cell.series.started[event.place])[:10]
    return f"{when} {side}environment {event.before[:12]} -> {event.after[:12]}"


def _difference(found: Difference) -> str:
    side = f"{found.side}: " if found.side else ""
    if found.before is None:
        return f"{side}{found.what} {_short(found.after)} was added"
    if found.after is None:
        return f"{side}{found.what} {_short(found.before)} was removed"
    return f"{side}{found.what} {_short(found.before)} -> {_short(found.after)}"


def _short(text: str | None) -> str:
    text = text or "-"
    return text if len(text) <= 40 else text[:37] + "..."


def level(cell: CellHistory) -> str:
    """Return a cell's level with its unit, "1.020 x" or "0.314 s"."""
    value = cell.level
    if value is None:
        return "-"
    return f"{value:.3f} x" if cell.series.kind == RATIO else f"{number(value)} s"


def counted(count: int, noun: str) -> str:
    """Return "1 night", "2 nights"."""
    return f"{count} {noun}{'' if count == 1 or noun.endswith('s') else 's'}"
