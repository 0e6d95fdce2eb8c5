"""The nights of a cell beside its number: what earlier runs of its store found, and where its level changed."""

from typing import Any

from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import CAVEATS, CellHistory, ChangePoint, Night

MOST_NIGHTS = 60
"""The newest; `dlbench history` has all."""


def nights_data(history: CellHistory) -> dict[str, Any]:
    """Return the newest nights of a cell and the changes within them, as plain JSON types."""
    series = history.series
    first = max(0, len(series) - MOST_NIGHTS)
    return {
        "kind": series.kind,
        "caveat": CAVEATS[series.kind],
        "enough": int(series.searched.sum()) > ENOUGH_NIGHTS,
        "nights": [_night(series.night(place)) for place in range(first, len(series))],
        "changes": [_change(change, first) for change in history.changes if change.place >= first],
    }


def _night(night: Night) -> dict[str, Any]:
    return {
        "run": night.run,
        "started": night.started,
        "numbers": [_short(night.value), _short(night.low), _short(night.high)],
        "searched": night.searched,
    }


def _change(change: ChangePoint, first: int) -> dict[str, Any]:
    numbers = [_short(each) for each in (change.ratio, change.low, change.high)]
    return {"place": change.place - first, "numbers": numbers, "pending": change.pending}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
