"""The reports for scripts: JSON, one object for each cell. ``reports/SCHEMA.md`` describes every key."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from dlbench.reports.evidence.contrasts import Contrast
from dlbench.reports.evidence.gpu_evidence import DeviceObserved
from dlbench.reports.evidence.gpu_telemetry import Spread
from dlbench.reports.evidence.observed import Observed
from dlbench.reports.evidence.raised_flags import Flag
from dlbench.reports.evidence.statistics import Summary
from dlbench.reports.formats.layout import Table
from dlbench.reports.matrix.analysis import Matrix, MatrixCell
from dlbench.reports.matrix.places import values
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.curve import Curve, Point
from dlbench.reports.threads.fits import Estimate, Fit, Fits


def matrix_to_json(matrix: Matrix) -> str:
    """Return a JSON list with an object for each cell of the matrix, holes included."""
    return json_text(matrix_cells(matrix))


def threads_to_json(curves: Sequence[Curve], notes: Sequence[str] = ()) -> str:
    """Return a JSON object with the curves, the findings and the notes."""
    return json_text(
        {"curves": [_curve(curve) for curve in curves], "findings": findings(curves), "notes": list(notes)}
    )


def tables_to_json(tables: Iterable[Table]) -> str:
    """Return a JSON list with an object for each table: its title, its rows as objects, its notes."""
    return json_text(
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
        **values(cell.cell),
        "status": cell.status.value,
        "reason": cell.reason,
        "seconds_per_minibatch": summary_content(cell.seconds),
        "items_per_second": cell.items_per_second,
        "gflops": cell.gflops,
        "ceiling_fraction": cell.ceiling_fraction,
        "best": cell.best,
        "parity": None if cell.parity is None else cell.parity._asdict(),
        "threads_evidence": _observed(cell.observed),
        "device_evidence": _device(cell.device_observed),
        "flags": [flag_content(flag) for flag in cell.flags],
        "machine": cell.column.machine,
        "machine_name": matrix.hosts[cell.column.machine].name,
        "run": cell.run,
        "environment": cell.environment,
        "interpreter": cell.interpreter,
        "first_step_seconds": cell.first_step_seconds,
        "peak_memory_bytes": cell.peak_memory_bytes,
    }


def summary_content(summary: Summary | None) -> dict[str, Any] | None:
    """Return a summary as plain JSON types."""
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
    if observed is None:
        return None
    policy = None if observed.wait_policy is None else dict(observed.wait_policy)
    return {**vars(observed), "wait_policy": policy}


def _device(observed: DeviceObserved | None) -> dict[str, Any] | None:
    if observed is None:
        return None
    content = {key: value._asdict() if isinstance(value, Spread) else value for key, value in vars(observed).items()}
    reasons = observed.clock_reasons
    return {**content, "clock_reasons": None if reasons is None else dict(reasons), "notes": list(observed.notes)}


def flag_content(flag: Flag) -> dict[str, str]:
    """Return a flag as plain JSON types."""
    return {"name": flag.kind.name, "symbol": flag.kind.symbol, "detail": flag.sentence}


def _comparison(found: Contrast | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        **vars(found.ratio),
        "against": found.against,
        "p_value": found.p_value,
        "p_adjusted": found.p_adjusted,
        "comparisons": found.family or None,
        "verdict": found.verdict,
    }


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "machine": curve.host.fingerprint,
        "machine_name": curve.host.name,
        "physical_cores": curve.host.physical_cores,
        "logical_cpus": curve.host.logical_cpus,
        "effective_cpus": curve.host.effective_cpus,
        **values(curve.cell, "threads"),
        "computes": curve.computes,
        "best_threads": curve.best,
        "default_threads": curve.default,
        "advice": curve.advice,
        "mechanism": curve.mechanism,
        "fits": _fits(curve.fits),
        "points": [_point(point) for point in curve.points],
    }


def _fits(fits: Fits | None) -> dict[str, Any] | None:
    if fits is None:
        return None
    return {
        "fitted_threads": list(fits.threads),
        "chosen": None if fits.chosen is None else fits.chosen.law,
        "rejected": fits.rejected,
        "intervals": fits.intervals,
        "laws": [_fit(fit) for fit in fits.laws],
    }


def _fit(fit: Fit) -> dict[str, Any]:
    return {
        "law": fit.law,
        "seconds_at_one": _estimate(fit.seconds_at_one),
        "serial": _estimate(fit.serial),
        "crosstalk": _estimate(fit.crosstalk),
        "fastest_threads": _estimate(fit.best_threads),
        "aicc": fit.aicc,
        "largest_miss": fit.largest_miss,
        "rejected": list(fit.rejected),
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else dict(vars(estimate))


def _point(point: Point) -> dict[str, Any]:
    return {
        "threads": point.threads,
        "status": point.cell.status.value,
        "reason": point.cell.reason,
        "seconds_per_minibatch": summary_content(point.cell.seconds),
        "used": point.seconds is not None,
        "takes_part": point.seconds is not None and point.calm,
        "speedup": point.speedup,
        "efficiency": point.efficiency,
        "serial_fraction": point.serial_fraction,
        "ceiling_fraction": point.cell.ceiling_fraction,
        "penalty": _comparison(point.penalty),
        "past_physical_cores": _comparison(point.past_cores),
        "past_effective_cpus": _comparison(point.past_cpus),
        "threads_evidence": _observed(point.cell.observed),
        "flags": [flag_content(flag) for flag in point.cell.flags],
    }


def json_text(content: Any) -> str:
    """Return JSON text; what is not finite is null, since JSON knows neither nan nor inf."""
    return json.dumps(_finite(content), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _finite(content: Any) -> Any:
    """Replace what JSON has no word for (a loss that is not a number) by null."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
