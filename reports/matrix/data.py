"""The matrix for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import device_content, flag_content, observed_content, summary_content
from dlbench.reports.matrix.analysis import Matrix, MatrixCell
from dlbench.reports.matrix.places import values

_COLUMNS = (
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


def matrix_rows(matrix: Matrix) -> Rows:
    """Return a line for each cell, holes included."""
    return Rows(_COLUMNS, matrix_cells(matrix))


def matrix_cells(matrix: Matrix) -> list[dict[str, Any]]:
    """Return the cells as plain JSON types, in the order of the table: groups, rows, columns."""
    places = ((group, row, column) for group, rows in matrix.rows.items() for row in rows for column in matrix.columns)
    return [_cell(matrix, matrix.cells[place]) for place in places if place in matrix.cells]


def _cell(matrix: Matrix, cell: MatrixCell) -> dict[str, Any]:
    return {
        **values(cell.cell),
        "status": cell.status.value,
        "reason": cell.reason,
        "seconds_per_minibatch": summary_content(cell.seconds),
        "items_per_second": cell.items_per_second,
        "gflops": cell.gflops,
        "ceiling_fraction": cell.ceiling_fraction,
        "best": cell.best,
        "parity": None if cell.parity is None else cell.parity._asdict(),
        "threads_evidence": observed_content(cell.observed),
        "device_evidence": device_content(cell.device_observed),
        "flags": [flag_content(flag) for flag in cell.flags],
        "machine": cell.column.machine,
        "machine_name": matrix.hosts[cell.column.machine].name,
        "run": cell.run,
        "environment": cell.environment,
        "interpreter": cell.interpreter,
        "first_step_seconds": cell.first_step_seconds,
        "peak_memory_bytes": cell.peak_memory_bytes,
    }
