"""Scaling over workers for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.formats import csv, json
from dlbench.reports.matrix.places import Place, values
from dlbench.reports.scaling.analysis import Gain, Point, Workers

_OF_A_POINT = ("threads", "world_size", "batch_size")
_COLUMNS = (
    "machine",
    "machine_name",
    *(name for name in axes.NAMES if name not in _OF_A_POINT),
    *_OF_A_POINT,
    "status",
    "reason",
    "seconds_per_minibatch.median",
    "seconds_per_minibatch.low",
    "seconds_per_minibatch.high",
    "items_per_second",
    "strong.speedup.value",
    "strong.speedup.low",
    "strong.speedup.high",
    "strong.efficiency.value",
    "strong.efficiency.low",
    "strong.efficiency.high",
    "strong.reason",
    "weak.speedup.value",
    "weak.speedup.low",
    "weak.speedup.high",
    "weak.efficiency.value",
    "weak.efficiency.low",
    "weak.efficiency.high",
    "weak.reason",
    "one_process.speedup.value",
    "one_process.speedup.low",
    "one_process.speedup.high",
    "one_process.reason",
    "shares_cpus",
    "flags",
)


def workers_data(found: Workers) -> dict[str, Any]:
    """Return a JSON object: a list of lines, each with its points."""
    return {
        "lines": [
            {**_where(found, line.place), "points": [_content(point) for point in line.points]} for line in found.lines
        ],
        "notes": list(found.notes),
    }


def workers_rows(found: Workers) -> csv.Rows:
    """Return a line for each point, holes included."""
    return csv.Rows(
        _COLUMNS, [{**_where(found, line.place), **_content(point)} for line in found.lines for point in line.points]
    )


def _where(found: Workers, place: Place) -> dict[str, Any]:
    return {
        "machine": place.machine,
        "machine_name": found.hosts[place.machine].name,
        "effective_cpus": found.hosts[place.machine].effective_cpus,
        **values(place.cell, *_OF_A_POINT),
    }


def _content(point: Point) -> dict[str, Any]:
    return {
        "threads": point.threads,
        "world_size": point.world_size,
        "batch_size": point.batch_size,
        "status": point.cell.status.value,
        "reason": point.cell.reason,
        "seconds_per_minibatch": json.summary_content(point.cell.seconds),
        "items_per_second": point.cell.items_per_second,
        "strong": _gain(point.strong),
        "weak": _gain(point.weak),
        "one_process": _gain(point.one_process),
        "shares_cpus": point.shares_cpus,
        "flags": [json.flag_content(flag) for flag in point.cell.flags],
    }


def _gain(gain: Gain | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    speedup, efficiency = (None if each is None else dict(vars(each)) for each in (gain.speedup, gain.efficiency))
    return {"speedup": speedup, "efficiency": efficiency, "reason": gain.reason, "measured": gain.measured}
