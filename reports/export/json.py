"""The reports for scripts: JSON, one object for each cell. ``reports/SCHEMA.md`` describes every key."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from dlbench.reports.evidence import Flag
from dlbench.reports.export.layout import Table
from dlbench.reports.matrix import Matrix, MatrixCell
from dlbench.reports.observed import Observed
from dlbench.reports.scaling import Curve, Point, findings
from dlbench.reports.statistics import Ratio, Summary


def matrix_to_json(matrix: Matrix) -> str:
    """Return a JSON list with an object for each cell of the matrix, holes included."""
    return _text(matrix_cells(matrix))


def threads_to_json(curves: Sequence[Curve]) -> str:
    """Return a JSON object with the curves and the findings."""
    return _text({"curves": [_curve(curve) for curve in curves], "findings": findings(curves)})


def tables_to_json(tables: Iterable[Table]) -> str:
    """Return a JSON list with an object for each table: its title, its rows as objects, its notes."""
    return _text(
        [
            {
                "title": table.title,
                "rows": [
                    {
                        head or f"column_{place}": entry.plain
                        for place, (head, entry) in enumerate(zip(table.head, row, strict=True))
                    }
                    for row in table.rows
                ],
                "notes": list(table.notes),
            }
            for table in tables
        ]
    )


def matrix_cells(matrix: Matrix) -> list[dict[str, Any]]:
    """Return the cells as plain JSON types, in the order of the table: groups, rows, columns."""
    places = ((group, row, column) for group, rows in matrix.rows.items() for row in rows for column in matrix.columns)
    return [_cell(matrix, matrix.cells[place]) for place in places if place in matrix.cells]


def _cell(matrix: Matrix, cell: MatrixCell) -> dict[str, Any]:
    return {
        "network": cell.group.network,
        "framework": cell.row.framework,
        "mode": cell.row.mode,
        "device": cell.column.device,
        "threads": cell.column.threads,
        "batch_size": cell.group.batch_size,
        "precision": cell.group.precision,
        "placement": cell.group.placement,
        "status": cell.status.value,
        "reason": cell.reason,
        "seconds_per_minibatch": _summary(cell.seconds),
        "items_per_second": cell.items_per_second,
        "gflops": cell.gflops,
        "ceiling_fraction": cell.ceiling_fraction,
        "best": cell.best,
        "parity": None if cell.parity is None else cell.parity._asdict(),
        "threads_evidence": _observed(cell.observed),
        "flags": [_flag(flag) for flag in cell.flags],
        "machine": cell.column.machine,
        "machine_name": matrix.hosts[cell.column.machine].name,
        "run": cell.run,
        "environment": cell.environment,
        "interpreter": cell.interpreter,
        "first_step_seconds": cell.first_step_seconds,
        "peak_memory_bytes": cell.peak_memory_bytes,
    }


def _summary(summary: Summary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {
        "median": summary.median,
        "low": summary.low,
        "high": summary.high,
        "samples": summary.samples,
        "launches": summary.launches,
        "method": summary.method,
        "covers_launches": summary.covers_launches,
        "launch_medians": list(summary.launch_medians),
    }


def _observed(observed: Observed | None) -> dict[str, Any] | None:
    return None if observed is None else dict(vars(observed))


def _flag(flag: Flag) -> dict[str, str]:
    return {"name": flag.kind.name, "symbol": flag.kind.symbol, "detail": flag.sentence}


def _ratio(found: Ratio | None) -> dict[str, Any] | None:
    return None if found is None else dict(vars(found))


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "machine": curve.host.fingerprint,
        "machine_name": curve.host.name,
        "physical_cores": curve.host.physical_cores,
        "effective_cpus": curve.host.effective_cpus,
        "network": curve.group.network,
        "batch_size": curve.group.batch_size,
        "framework": curve.row.framework,
        "mode": curve.row.mode,
        "best_threads": curve.best,
        "default_threads": curve.default,
        "advice": curve.advice,
        "mechanism": curve.mechanism,
        "points": [_point(point) for point in curve.points],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "threads": point.threads,
        "status": point.cell.status.value,
        "reason": point.cell.reason,
        "seconds_per_minibatch": _summary(point.cell.seconds),
        "used": point.seconds is not None,
        "speedup": point.speedup,
        "efficiency": point.efficiency,
        "penalty": _ratio(point.penalty),
        "past_physical_cores": _ratio(point.past_cores),
        "past_effective_cpus": _ratio(point.past_cpus),
        "threads_evidence": _observed(point.cell.observed),
        "flags": [_flag(flag) for flag in point.cell.flags],
    }


def _text(content: Any) -> str:
    return json.dumps(_finite(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _finite(content: Any) -> Any:
    """Replace what JSON has no word for (a loss that is not a number) by null."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
