"""A comparison for scripts: JSON, one object for each cell, and the same as CSV. ``reports/SCHEMA.md`` has the keys."""

from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.protocol import to_dict
from dlbench.reports.comparison import layout as layout
from dlbench.reports.comparison.compared import BASELINE, CANDIDATE, CellComparison, Comparison, SideOfCell
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.csv import Rows, csv_text
from dlbench.reports.formats.json import flag_content, json_text

_COLUMNS = (
    *(f"cell.{name}" for name in axes.NAMES),
    "finding",
    "verdict",
    "ratio",
    "low",
    "high",
    "p",
    "adjusted_p",
    "smallest_effect",
    "stage",
    "method",
    "sentence",
    "baseline.status",
    "baseline.launches",
    "baseline.contended",
    "baseline.environment",
    "candidate.status",
    "candidate.launches",
    "candidate.contended",
    "candidate.environment",
    "flags",
)


def comparison_to_json(comparison: Comparison) -> str:
    """Return a JSON object: the sides, the rule, the counts, and an object for each cell."""
    # Halves of surrogate pairs, which a name from a command line may hold, have no place in UTF-8.
    return json_text(comparison_content(comparison)).encode("utf-8", "replace").decode()


def comparison_to_csv(comparison: Comparison) -> str:
    """Return a line for each cell, the keys of the JSON flattened; flags are those of both sides."""
    lines = [_on_one_line(_cell(each)) for each in comparison.cells]
    for content in lines:
        of_sides = [flag for side in (BASELINE, CANDIDATE) for flag in content[side]["flags"]]
        content["flags"] = list({flag["name"]: flag for flag in of_sides}.values())
    return csv_text(Rows(_COLUMNS, lines))


def comparison_content(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain JSON types."""
    gate = gate_outcome(comparison) if comparison.purpose == "gate" else None
    return {
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "purpose": comparison.purpose,
        "same_session": comparison.same_session,
        "machines": [{"machine": host.fingerprint, "machine_name": host.name} for host in comparison.hosts],
        "headline": layout.headline(comparison),
        "gate": None if gate is None else {"outcome": gate.outcome.value, "why": gate.why},
        "counts": {each.name: len(cells) for each, cells in layout.by_finding(comparison).items()},
        "geometric_mean": None if comparison.geometric_mean is None else dict(vars(comparison.geometric_mean)),
        "rule": dict(vars(comparison.rule)),
        "notes": list(comparison.notes),
        "cells": [_cell(each) for each in comparison.cells],
    }


def _cell(each: CellComparison) -> dict[str, Any]:
    judged = each.judgement
    return {
        "cell": to_dict(each.cell),
        "finding": layout.finding(each).name,
        "verdict": judged.verdict.value,
        "ratio": judged.ratio,
        "low": judged.low,
        "high": judged.high,
        "p": judged.p,
        "adjusted_p": judged.adjusted_p,
        "smallest_effect": judged.smallest_effect,
        "standard_error": judged.standard_error,
        "stage": each.stage,
        "method": judged.method,
        "sentence": judged.sentence,
        "launches_used": {BASELINE: judged.baseline_launches, CANDIDATE: judged.candidate_launches},
        "pairs": [
            {"stage": stage, BASELINE: list(pairs[0]), CANDIDATE: list(pairs[1])} for stage, pairs in each.pairs.items()
        ],
        BASELINE: _side(each.baseline),
        CANDIDATE: _side(each.candidate),
    }


def _on_one_line(content: Any) -> Any:
    """Return the content with every text as one line: a bare carriage return would end a record of CSV."""
    if isinstance(content, dict):
        return {key: _on_one_line(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_on_one_line(value) for value in content]
    return layout.line(content) if isinstance(content, str) else content


def _side(side: SideOfCell) -> dict[str, Any]:
    return {
        "status": side.status.value,
        "reason": side.reason,
        "launches": len(side.seconds),
        "launch_medians": list(side.seconds),
        "contended": side.contended,
        "environment": side.environment,
        "flags": [flag_content(flag) for flag in side.flags],
    }
