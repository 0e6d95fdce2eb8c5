"""The threads report for scripts: JSON, and the same as CSV (``reports/SCHEMA.md`` describes every key)."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import values
from dlbench.reports.formats.csv import MEDIAN, VALUE, Rows, parts
from dlbench.reports.formats.json import plain
from dlbench.reports.matrix.data import of_cell
from dlbench.reports.statistics import Contrast
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.analysis import Threads
from dlbench.reports.threads.curve import Curve, Point
from dlbench.reports.threads.fits import Fit, Fits

_OF_A_LAW = ("seconds_at_one", "serial", "crosstalk", "fastest_threads")
_COLUMNS = (
    "machine",
    "machine_name",
    *(axis.name for axis in axes.of_role(axes.GROUP)),
    *(axis.name for axis in axes.of_role(axes.ROW)),
    "threads",
    "status",
    *parts("seconds_per_minibatch", *MEDIAN),
    "speedup",
    "efficiency",
    "serial_fraction",
    "ceiling_fraction",
    *parts("penalty", *VALUE, "p_adjusted", "verdict"),
    *parts("past_physical_cores", "value", "p_adjusted", "verdict"),
    *parts("past_effective_cpus", "value", "p_adjusted", "verdict"),
    *parts("threads_evidence", "waiting_per_wall", "cpu_per_wall", "cpu_seconds_per_step"),
    *parts("threads_evidence", "involuntary_switches_per_step", "throttled_share", "wait_policy"),
    "takes_part",
    "best_threads",
    "law.law",
    *(column for name in _OF_A_LAW for column in parts(f"law.{name}", *VALUE)),
    "laws_rejected",
    "flags",
)


def threads_data(found: Threads) -> dict[str, Any]:
    """Return the curves, the findings and the notes."""
    return {
        "curves": [_curve(curve) for curve in found.curves],
        "findings": findings(found.curves),
        "notes": list(found.left_out),
    }


def threads_rows(found: Threads) -> Rows:
    """Return a line for each point of each curve, on each the law chosen for its curve, or why none was."""
    curves = [_curve(curve) for curve in found.curves]
    return Rows(_COLUMNS, [{**curve, **_law(curve), **point} for curve in curves for point in curve["points"]])


def _law(curve: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen law of a curve and the reasons against the others."""
    fits = curve["fits"] or {"laws": [], "chosen": None, "rejected": ""}
    reasons = [f"{law['law']}: {reason}" for law in fits["laws"] for reason in law["rejected"]]
    return {
        "law": next((law for law in fits["laws"] if law["law"] == fits["chosen"]), None),
        "laws_rejected": "; ".join([fits["rejected"]] if fits["rejected"] else reasons),
    }


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
        **{name: getattr(curve.host, name) for name in ("physical_cores", "logical_cpus", "effective_cpus")},
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
    return {"fastest_threads" if name == "best_threads" else name: each for name, each in plain(fit).items()}


def _point(point: Point) -> dict[str, Any]:
    return {
        "threads": point.threads,
        **of_cell(point.cell, "status", "reason", "seconds"),
        "used": point.seconds is not None,
        "takes_part": point.seconds is not None and point.calm,
        **{name: getattr(point, name) for name in ("speedup", "efficiency", "serial_fraction")},
        **of_cell(point.cell, "ceiling_fraction"),
        "penalty": _comparison(point.penalty),
        "past_physical_cores": _comparison(point.past_cores),
        "past_effective_cpus": _comparison(point.past_cpus),
        "threads_evidence": plain(point.cell.observed),
        **of_cell(point.cell, "flags"),
    }
