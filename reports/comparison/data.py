"""A comparison for scripts: JSON, one object for each cell, and the same as CSV. ``reports/SCHEMA.md`` has the keys."""

from typing import Any

from dlbench.adapters import axes
from dlbench.reports.comparison import layout
from dlbench.reports.comparison.compared import BASELINE, CANDIDATE, CellComparison, Comparison, SideOfCell
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.csv import Rows, parts
from dlbench.reports.formats.json import plain

_OF_A_JUDGEMENT = ("ratio", "low", "high", "p", "adjusted_p", "smallest_effect", "standard_error")
_OF_A_SIDE = ("status", "launches", "contended", "environment")
_COLUMNS = (
    *parts("cell", *axes.NAMES),
    *("finding", "verdict", *_OF_A_JUDGEMENT[:-1], "stage", "method", "sentence"),
    *parts(BASELINE, *_OF_A_SIDE),
    *parts(CANDIDATE, *_OF_A_SIDE),
    "flags",
)


def comparison_rows(comparison: Comparison) -> Rows:
    """Return a line for each cell; flags are those of both sides."""
    lines = [_cell(each) for each in comparison.cells]
    for content in lines:
        of_sides = [flag for side in (BASELINE, CANDIDATE) for flag in content[side]["flags"]]
        content["flags"] = list({flag["name"]: flag for flag in of_sides}.values())
    return Rows(_COLUMNS, lines)


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a JSON object: the sides, the rule, the counts, and an object for each cell."""
    gate = gate_outcome(comparison) if comparison.purpose == "gate" else None
    return {
        **{name: getattr(comparison, name) for name in (BASELINE, CANDIDATE, "purpose", "same_session")},
        "machines": [{"machine": host.fingerprint, "machine_name": host.name} for host in comparison.hosts],
        "headline": layout.headline(comparison),
        "gate": plain(gate),
        "counts": {each.name: len(cells) for each, cells in layout.by_finding(comparison).items()},
        "geometric_mean": plain(comparison.geometric_mean),
        "rule": plain(comparison.rule),
        "notes": list(comparison.notes),
        "cells": [_cell(each) for each in comparison.cells],
    }


def _cell(each: CellComparison) -> dict[str, Any]:
    judged = each.judgement
    return {
        "cell": plain(each.cell),
        "finding": layout.finding(each).name,
        "verdict": judged.verdict.value,
        **{name: getattr(judged, name) for name in _OF_A_JUDGEMENT},
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


def _side(side: SideOfCell) -> dict[str, Any]:
    return {
        "status": side.status.value,
        "reason": side.reason,
        "launches": len(side.seconds),
        "launch_medians": list(side.seconds),
        "contended": side.contended,
        "environment": side.environment,
        "flags": plain(side.flags),
    }
