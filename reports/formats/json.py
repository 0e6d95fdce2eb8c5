"""JSON, and what several reports hold in it. ``reports/SCHEMA.md`` describes every key."""

import json
import math
from collections.abc import Iterable
from typing import Any

from dlbench.reports.evidence.flag_kinds import Flag
from dlbench.reports.evidence.gpu_evidence import DeviceObserved
from dlbench.reports.evidence.gpu_telemetry import Spread
from dlbench.reports.evidence.observed import Observed
from dlbench.reports.evidence.statistics import Summary
from dlbench.reports.formats.layout import Table


def data_of_tables(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return an object for each table: its title, its rows as objects, its notes."""
    return [
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


def observed_content(observed: Observed | None) -> dict[str, Any] | None:
    """Return what was observed of threads as plain JSON types."""
    if observed is None:
        return None
    policy = None if observed.wait_policy is None else dict(observed.wait_policy)
    return {**vars(observed), "wait_policy": policy}


def device_content(observed: DeviceObserved | None) -> dict[str, Any] | None:
    """Return what was observed of a GPU as plain JSON types."""
    if observed is None:
        return None
    content = {key: value._asdict() if isinstance(value, Spread) else value for key, value in vars(observed).items()}
    reasons = observed.clock_reasons
    return {**content, "clock_reasons": None if reasons is None else dict(reasons), "notes": list(observed.notes)}


def flag_content(flag: Flag) -> dict[str, str]:
    """Return a flag as plain JSON types."""
    return {"name": flag.kind.name, "symbol": flag.kind.symbol, "detail": flag.sentence}


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
