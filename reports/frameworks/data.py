"""Framework against framework for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Iterator
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import Column, Row, values
from dlbench.reports.formats import csv, json
from dlbench.reports.frameworks.analysis import Compared, Frameworks, Mean, Standing
from dlbench.reports.matrix.data import of_place

_GROUP, _ROW, _PLACE = (tuple(axis.name for axis in axes.of_role(role)) for role in (axes.GROUP, axes.ROW, axes.COLUMN))
_COLUMNS = (
    *("machine", "machine_name", *_PLACE, *_ROW),
    *csv.parts("against", *_ROW),
    *csv.parts("ratio", *csv.VALUE),
    *("networks", "wins", "losses"),
)


def frameworks_data(found: Frameworks) -> dict[str, Any]:
    """Return a JSON object: for each machine its reference, and a line for each other row and place."""
    return {
        "machines": [
            {
                "machine": each.machine,
                "machine_name": found.matrix.hosts[each.machine].name,
                "against": _row(each.reference),
                "rows": [
                    {**_row(standing.row), "overall": _mean(standing.overall), "places": _places(standing)}
                    for standing in each.standings
                ],
                "apart": [_row(row) for row in each.apart],
            }
            for each in found.machines
        ],
        "notes": list(found.matrix.notes),
    }


def frameworks_rows(found: Frameworks) -> csv.Rows:
    """Return a line for each row at each place."""
    return csv.Rows(_COLUMNS, [line for each in found.machines for line in _lines(found, each)])


def _lines(found: Frameworks, compared: Compared) -> Iterator[dict[str, Any]]:
    for standing in compared.standings:
        for column, mean in standing.means.items():
            where = of_place(found.matrix.hosts, column, *_GROUP, *_ROW)
            count = len(mean.networks)
            of = {**_row(standing.row), "against": _row(compared.reference)}
            yield {**where, **of, **_mean(mean), "networks": count}


def _places(standing: Standing) -> list[dict[str, Any]]:
    return [{**_place(column), **_mean(mean)} for column, mean in standing.means.items()]


def _row(row: Row) -> dict[str, Any]:
    return {name: value for name, value in values(row).items() if name in _ROW}


def _place(column: Column) -> dict[str, Any]:
    return {name: value for name, value in values(column.cell).items() if name in _PLACE}


def _mean(mean: Mean) -> dict[str, Any]:
    networks = [{name: value for name, value in values(group).items() if name in _GROUP} for group in mean.networks]
    return {"ratio": json.plain(mean.ratio), "networks": networks, "wins": mean.wins, "losses": mean.losses}
