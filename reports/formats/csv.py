"""The reports as CSV: one line for each cell or point, the keys of the JSON flattened ("seconds_per_minibatch.low")."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.formats.json import matrix_cells, threads_to_json
from dlbench.reports.formats.layout import Table
from dlbench.reports.matrix.analysis import Matrix
from dlbench.reports.threads.curve import Curve

_MATRIX_COLUMNS = (
    "machine",
    "machine_name",
    *axes.NAMES,
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
    "device_evidence.name",
    "device_evidence.event_per_wall",
    "device_evidence.busy_share",
    "device_evidence.joules_per_minibatch",
    "device_evidence.sm_mhz.median",
    "device_evidence.temperature.median",
    "device_evidence.watts.median",
    "device_evidence.peak_memory_bytes",
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
    "affinity",
    "threads",
    "status",
    "seconds_per_minibatch.median",
    "seconds_per_minibatch.low",
    "seconds_per_minibatch.high",
    "speedup",
    "efficiency",
    "serial_fraction",
    "ceiling_fraction",
    "penalty.value",
    "penalty.low",
    "penalty.high",
    "penalty.p_adjusted",
    "penalty.verdict",
    "past_physical_cores.value",
    "past_physical_cores.p_adjusted",
    "past_physical_cores.verdict",
    "past_effective_cpus.value",
    "past_effective_cpus.p_adjusted",
    "past_effective_cpus.verdict",
    "threads_evidence.waiting_per_wall",
    "threads_evidence.cpu_per_wall",
    "threads_evidence.cpu_seconds_per_step",
    "threads_evidence.involuntary_switches_per_step",
    "threads_evidence.throttled_share",
    "threads_evidence.wait_policy",
    "takes_part",
    "best_threads",
    "law.law",
    "law.seconds_at_one.value",
    "law.seconds_at_one.low",
    "law.seconds_at_one.high",
    "law.serial.value",
    "law.serial.low",
    "law.serial.high",
    "law.crosstalk.value",
    "law.crosstalk.low",
    "law.crosstalk.high",
    "law.fastest_threads.value",
    "law.fastest_threads.low",
    "law.fastest_threads.high",
    "laws_rejected",
    "flags",
)


def matrix_to_csv(matrix: Matrix) -> str:
    """Return a line for each cell, holes included."""
    return csv_text(_MATRIX_COLUMNS, matrix_cells(matrix))


def threads_to_csv(curves: Sequence[Curve]) -> str:
    """Return a line for each point of each curve, on each the law chosen for its curve, or why none was."""
    content = json.loads(threads_to_json(curves))["curves"]
    return csv_text(
        _THREADS_COLUMNS, [{**curve, **_law(curve), **point} for curve in content for point in curve["points"]]
    )


def _law(curve: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen law of a curve and the reasons against the others."""
    fits = curve["fits"] or {"laws": [], "chosen": None, "rejected": ""}
    reasons = [f"{law['law']}: {reason}" for law in fits["laws"] for reason in law["rejected"]]
    return {
        "law": next((law for law in fits["laws"] if law["law"] == fits["chosen"]), None),
        "laws_rejected": "; ".join([fits["rejected"]] if fits["rejected"] else reasons),
    }


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


def csv_text(columns: Sequence[str], lines: Iterable[dict[str, Any]]) -> str:
    """Return lines (by column) as CSV text with a head."""
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
    if column.endswith("wait_policy"):
        return " ".join(f"{name}={set_to}" for name, set_to in (value or {}).items())
    return "" if value is None else value
