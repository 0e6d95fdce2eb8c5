"""The matrix for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Mapping
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import CellResult, Matrix, Place, values
from dlbench.reports.formats.csv import MEDIAN, Rows, parts
from dlbench.reports.formats.json import plain
from dlbench.reports.storage.hosts import Host

_COLUMNS = (
    "machine",
    "machine_name",
    *axes.NAMES,
    "status",
    "reason",
    *parts("seconds_per_minibatch", *MEDIAN, "samples", "launches", "method"),
    "items_per_second",
    "gflops",
    "ceiling_fraction",
    "best",
    "parity.verdict",
    "flags",
    *parts("threads_evidence", "framework_says", "wanting_threads", "cpu_per_wall", "waiting_per_wall"),
    *parts("device_evidence", "name", "event_per_wall", "busy_share", "joules_per_minibatch"),
    *(f"device_evidence.{name}.median" for name in ("sm_mhz", "temperature", "watts")),
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
    return [_cell(matrix, cell) for cell in matrix.cells.values()]


def _cell(matrix: Matrix, cell: CellResult) -> dict[str, Any]:
    return {
        **values(cell.cell),
        **of_cell(
            cell, "status", "reason", "seconds", "items_per_second", "gflops", "ceiling_fraction", "best", "parity"
        ),
        "threads_evidence": plain(cell.observed),
        "device_evidence": plain(cell.device_observed),
        **of_cell(cell, "flags"),
        "machine": cell.column.machine,
        "machine_name": matrix.hosts[cell.column.machine].name,
        **of_cell(cell, "run", "environment", "interpreter", "first_step_seconds", "peak_memory_bytes"),
    }


def of_place(hosts: Mapping[str, Host], place: Place, *left_out: str, **more: Any) -> dict[str, Any]:
    """Return the machine, ``more``, and the axes of a place but those left out, by the names that all reports use."""
    machine = {"machine": place.machine, "machine_name": hosts[place.machine].name}
    return {**machine, **more, **values(place.cell, *left_out)}


def of_cell(cell: CellResult, *names: str) -> dict[str, Any]:
    """Return these attributes of a cell as plain JSON types, by the names that every report has for them."""
    return {"seconds_per_minibatch" if name == "seconds" else name: plain(getattr(cell, name)) for name in names}
