"""Machine against machine for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import values
from dlbench.reports.formats import csv, json
from dlbench.reports.machines.analysis import Against, Machines, Mean, Pair
from dlbench.reports.matrix.data import of_cell

_ROW = tuple(axis.name for axis in axes.of_role(axes.ROW))
_COLUMNS = (
    *("machine", "machine_name", "against", "against_name", *axes.NAMES),
    *csv.parts("seconds_per_minibatch", *csv.MEDIAN),
    *csv.parts("seconds_against", *csv.MEDIAN),
    *csv.parts("ratio", *csv.VALUE),
    *("p_adjusted", "verdict", "same_environment"),
)


def machines_data(found: Machines) -> dict[str, Any]:
    """Return a JSON object: for each machine beside another its cells, the mean of each row, and why no verdict."""
    return {
        "machines": [
            {
                **_both(found, each),
                "different": list(each.unlike),
                "overall": json.plain(each.overall),
                "rows": [_mean(mean) for mean in each.means],
                "cells": [_pair(pair) for pair in each.pairs],
            }
            for each in found.against
        ],
        "notes": list(found.matrix.notes),
    }


def machines_rows(found: Machines) -> csv.Rows:
    """Return a line for each cell that two machines have."""
    return csv.Rows(_COLUMNS, [{**_both(found, each), **_pair(pair)} for each in found.against for pair in each.pairs])


def _both(found: Machines, against: Against) -> dict[str, Any]:
    hosts = found.matrix.hosts
    return {
        "machine": against.other,
        "machine_name": hosts[against.other].name,
        "against": against.one,
        "against_name": hosts[against.one].name,
    }


def _mean(mean: Mean) -> dict[str, Any]:
    of_row = {name: value for name, value in values(mean.row).items() if name in _ROW}
    return {**of_row, "ratio": json.plain(mean.ratio), "cells": mean.cells, "verdict": mean.verdict or None}


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        **values(pair.one.cell),
        **of_cell(pair.other, "seconds"),
        "seconds_against": json.plain(pair.one.seconds),
        "ratio": json.plain(pair.ratio),
        "p_adjusted": pair.p_value,
        "verdict": pair.verdict or None,
        "same_environment": not pair.other_environment,
    }
