"""Who is fastest for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import CellResult, values
from dlbench.reports.fastest.analysis import Fastest, Leader
from dlbench.reports.formats import csv, json
from dlbench.reports.matrix.data import of_cell, of_place
from dlbench.reports.naming import row_name

_GROUP, _ROW = (tuple(axis.name for axis in axes.of_role(role)) for role in (axes.GROUP, axes.ROW))
_PLACE = tuple(axis.name for axis in axes.of_role(axes.COLUMN))
_STANDING = (*_ROW, *csv.parts("seconds_per_minibatch", *csv.MEDIAN, "launches"))
_COLUMNS = (
    *("machine", "machine_name", *_GROUP, *_PLACE),
    *csv.parts("first", *_STANDING),
    "ties",
    *csv.parts("next", *_STANDING),
    *csv.parts("ratio", *csv.VALUE),
    "certain",
)


def fastest_data(found: Fastest) -> dict[str, Any]:
    """Return a JSON object: a list of leaders, each with those that tie with it and the next one."""
    return {"leaders": [_leader(found, each) for each in found.leaders], "notes": list(found.matrix.notes)}


def fastest_rows(found: Fastest) -> csv.Rows:
    """Return a line for each leader; rows that tie stand in one field, with semicolons between."""
    lines = (
        {**_leader(found, each), "ties": "; ".join(row_name(cell.row) for cell in each.ties)} for each in found.leaders
    )
    return csv.Rows(_COLUMNS, list(lines))


def _leader(found: Fastest, leader: Leader) -> dict[str, Any]:
    of_work = {name: value for name, value in values(leader.group).items() if name in _GROUP}
    return {
        **of_place(found.matrix.hosts, leader.column, *_GROUP, *_ROW, **of_work),
        "first": _standing(leader.first),
        "ties": [_standing(each) for each in leader.ties],
        "next": None if leader.next is None else _standing(leader.next),
        "ratio": json.plain(leader.ratio),
        "certain": leader.certain,
    }


def _standing(cell: CellResult) -> dict[str, Any]:
    of_row = {name: value for name, value in values(cell.row).items() if name in _ROW}
    return {**of_row, **of_cell(cell, "seconds", "flags", "run")}
