"""The reports as CSV: one line for each cell or point, the keys of the JSON flattened ("seconds_per_minibatch.low")."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from dlbench.reports.export.json import matrix_cells, threads_to_json
from dlbench.reports.export.layout import Table
from dlbench.reports.matrix import Matrix
from dlbench.reports.scaling import Curve

_MATRIX_COLUMNS = (
    "machine",
    "machine_name",
    "network",
    "batch_size",
    "framework",
    "mode",
    "device",
    "threads",
    "precision",
    "placement",
    "status",
    "reason",
    "seconds_per_minibatch.median",
    "seconds_per_minibatch.low",
    "seconds_per_minibatch.high",
    "seconds_per_minibatch.samples",
    "seconds_per_minibatch.launches",
    "seconds_per_minibatch.method",
    "items_per_second",
    "gflops",
    "ceiling_fraction",
    "best",
    "parity.verdict",
    "flags",
    "threads_evidence.framework_says",
    "threads_evidence.wanting_threads",
    "threads_evidence.cpu_per_wall",
    "threads_evidence.waiting_per_wall",
    "environment",
    "interpreter",
    "run",
)
_THREADS_COLUMNS = (
    "machine",
    "machine_name",
    "network",
    "batch_size",
    "framework",
    "mode",
    "threads",
    "status",
    "seconds_per_minibatch.median",
    "seconds_per_minibatch.low",
    "seconds_per_minibatch.high",
    "speedup",
    "efficiency",
    "penalty.value",
    "penalty.low",
    "penalty.high",
    "past_physical_cores.value",
    "past_effective_cpus.value",
    "threads_evidence.waiting_per_wall",
    "threads_evidence.cpu_per_wall",
    "threads_evidence.cpu_seconds_per_step",
    "threads_evidence.involuntary_switches_per_step",
    "threads_evidence.throttled_share",
    "best_threads",
    "flags",
)


def matrix_to_csv(matrix: Matrix) -> str:
    """Return a line for each cell, holes included."""
    return _text(_MATRIX_COLUMNS, matrix_cells(matrix))


def threads_to_csv(curves: Sequence[Curve]) -> str:
    """Return a line for each point of each curve."""
    content = json.loads(threads_to_json(curves))["curves"]
    return _text(_THREADS_COLUMNS, [{**curve, **point} for curve in content for point in curve["points"]])


def tables_to_csv(tables: Iterable[Table]) -> str:
    """Return the tables beneath one another, an empty line between them, each with its title as a line of its own."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for place, table in enumerate(tables):
        if place:
            buffer.write("\n")
        writer.writerow([table.title])
        writer.writerow(table.head)
        writer.writerows([entry.plain for entry in row] for row in table.rows)
    return buffer.getvalue()


def _text(columns: Sequence[str], lines: Iterable[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_field(line, column) for column in columns] for line in lines)
    return buffer.getvalue()


def _field(line: dict[str, Any], column: str) -> Any:
    value: Any = line
    for key in column.split("."):
        value = None if value is None else value[key]
    if column == "flags":
        return " ".join(flag["name"] for flag in value)
    return "" if value is None else value
