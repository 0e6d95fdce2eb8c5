"""What settings are worth for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Iterator
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.compare.verdict import PairedEstimate
from dlbench.reports.formats import csv
from dlbench.reports.tuning.analysis import Row, Tuning, Worth, verdict
from dlbench.reports.tuning.over_networks import Mean, names_of_means, over_networks

_AXES = tuple(name for name in axes.NAMES if name != "tuning")
_RATIO = ("ratio", "low", "high", "pairs")
_COLUMNS = (
    *("machine", "machine_name", *_AXES, "setting"),
    *csv.parts("alone", *_RATIO),
    *csv.parts("among", *_RATIO),
    "verdict",
)


def tuning_data(found: Tuning) -> dict[str, Any]:
    """Return a JSON object: what each setting is worth to each row (of all together ``setting`` is null), and means."""
    return {
        "settings": list(_lines(found)),
        "over_networks": [_mean(found, each, name) for each, name in names_of_means(over_networks(found.rows)).items()],
    }


def tuning_rows(found: Tuning) -> csv.Rows:
    """Return a line for each setting of each row."""
    return csv.Rows(_COLUMNS, list(_lines(found)))


def _mean(found: Tuning, mean: Mean, name: str) -> dict[str, Any]:
    return {
        "machine": mean.machine,
        "machine_name": found.hosts[mean.machine].name,
        "row": name,
        "networks": mean.networks,
        "ratio": mean.ratio.value,
        "low": mean.ratio.low,
        "high": mean.ratio.high,
        "verdict": verdict(mean.ratio),
    }


def _lines(found: Tuning) -> Iterator[dict[str, Any]]:
    for row in found.rows:
        for worth in (row.together, *row.settings):
            yield {**_where(found, row), **_content(worth)}


def _where(found: Tuning, row: Row) -> dict[str, Any]:
    values = {name: getattr(row.cell, name) for name in _AXES}
    return {"machine": row.machine, "machine_name": found.hosts[row.machine].name, **values}


def _content(worth: Worth) -> dict[str, Any]:
    return {
        "setting": worth.setting or None,
        "alone": of_estimate(worth.alone),
        "among": of_estimate(worth.among),
        "verdict": worth.verdict or None,
    }


def of_estimate(found: PairedEstimate | None) -> dict[str, Any] | None:
    """Return an estimate as plain JSON types: null for none, and for the ends of an interval that is none."""
    if found is None:
        return None
    # Too few pairs allow no interval: 0 and infinity say nothing.
    low, high = (found.low, found.high) if found.low > 0 else (None, None)
    return {"ratio": found.ratio, "low": low, "high": high, "pairs": found.pairs}
