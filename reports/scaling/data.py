"""Scaling over workers for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import Place
from dlbench.reports.formats import csv, json
from dlbench.reports.matrix.data import of_cell, of_place
from dlbench.reports.scaling.analysis import Point, Workers

_OF_A_POINT = ("threads", "world_size", "batch_size")


def _columns(way: str, *ratios: str) -> list[str]:
    return [*(column for name in ratios for column in csv.parts(f"{way}.{name}", *csv.VALUE)), f"{way}.reason"]


_COLUMNS = (
    "machine",
    "machine_name",
    *(name for name in axes.NAMES if name not in _OF_A_POINT),
    *_OF_A_POINT,
    "status",
    "reason",
    *csv.parts("seconds_per_minibatch", *csv.MEDIAN),
    "items_per_second",
    *(column for way in ("strong", "weak") for column in _columns(way, "speedup", "efficiency")),
    *_columns("one_process", "speedup"),
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
    return of_place(found.hosts, place, *_OF_A_POINT, effective_cpus=found.hosts[place.machine].effective_cpus)


def _content(point: Point) -> dict[str, Any]:
    return {
        **{name: getattr(point, name) for name in _OF_A_POINT},
        **of_cell(point.cell, "status", "reason", "seconds", "items_per_second"),
        **{way: json.plain(getattr(point, way)) for way in ("strong", "weak", "one_process")},
        "shares_cpus": point.shares_cpus,
        **of_cell(point.cell, "flags"),
    }
