"""The study for scripts (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Sequence
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.cells import values
from dlbench.reports.formats.csv import MEDIAN, Rows, parts
from dlbench.reports.formats.json import plain
from dlbench.reports.matrix import of_cell
from dlbench.reports.recurrent_cells.analysis import CellStudy, Line, Way
from dlbench.reports.recurrent_cells.curves import Net, Trained
from dlbench.reports.recurrent_cells.findings import Finding
from dlbench.reports.recurrent_cells.learnt import KNOWS_NOTHING, Learnt

_OF_A_PLACE = tuple(axis.name for axis in axes.of_role(axes.ROW, axes.COLUMN))
_COLUMNS = (
    *("machine", "machine_name", *_OF_A_PLACE, "batch_size"),
    *("cell", "layers", "size", "steps", "embedding", "status", "reason"),
    *parts("seconds_per_minibatch", *MEDIAN, "launches"),
    *("characters_per_second", "gflops", "ceiling_fraction", "flags"),
    *("text", "loss", "steps_to_target", *parts("hours_to_target", "value", "low", "high"), "pareto"),
)


def cells_data(found: CellStudy, told: Sequence[Finding]) -> dict[str, Any]:
    """Return a JSON object: texts with their curves, speeds, times to a loss, findings."""
    return {
        "texts": [_text(each) for each in found.learnt],
        "speeds": [_speed(found, line, net) for line in found.lines for net in line.cells],
        "times": [_time(found, way) for way in found.ways],
        "findings": [_finding(each) for each in told],
        "notes": list(found.notes),
    }


def cells_rows(found: CellStudy) -> Rows:
    """Return a line for each speed, and for each text on which its network was trained."""
    ways: dict[tuple[int, Net], list[Way | None]] = {}
    for way in found.ways:
        ways.setdefault((id(way.line), way.net), []).append(way)
    lines = [
        {**_speed(found, line, net), **(_NO_TIME if way is None else _time(found, way))}
        for line in found.lines
        for net in line.cells
        for way in ways.get((id(line), net), [None])
    ]
    return Rows(_COLUMNS, lines)


_NO_TIME = dict.fromkeys(("text", "loss", "steps_to_target", "hours_to_target", "pareto"))


def _text(learnt: Learnt) -> dict[str, Any]:
    return {
        **learnt.text._asdict(),
        "floor_taken": learnt.floor,
        "loss_knowing_nothing": KNOWS_NOTHING,
        "target_share": learnt.share,
        "target_loss": learnt.target,
        "common_steps": learnt.common_steps,
        "curves": [_curve(learnt, net, each) for net, each in learnt.nets.items()],
    }


def _curve(learnt: Learnt, net: Net, trained: Trained) -> dict[str, Any]:
    curve = trained.curve
    return {
        **net._asdict(),
        "framework": curve.row.framework,
        "mode": curve.row.mode,
        "machine": curve.machine,
        "run": curve.run,
        "loss": learnt.loss(net),
        "test_loss": curve.test_loss,
        "steps_to_target": curve.steps_to(learnt.target),
        "ended": curve.ended,
        "blocks": [list(block) for block in zip(curve.steps, curve.losses, strict=True)],
        "confirmed": trained.confirmed,
        "checks": [
            {"framework": check.by.row.framework, "difference": check.difference, "steps": check.steps}
            for check in trained.checks
        ],
    }


def _place(found: CellStudy, line: Line, net: Net) -> dict[str, Any]:
    cell = line.cells[net]
    machine = line.place.machine
    where = {name: value for name, value in values(cell.cell).items() if name in _OF_A_PLACE}
    return {"machine": machine, "machine_name": found.hosts[machine].name, **where, **net._asdict()}


def _speed(found: CellStudy, line: Line, net: Net) -> dict[str, Any]:
    cell = line.cells[net]
    items = cell.items_per_second
    return {
        **_place(found, line, net),
        **of_cell(cell, "status", "reason", "seconds"),
        "characters_per_second": None if items is None else items * net.steps,
        **of_cell(cell, "gflops", "ceiling_fraction", "flags", "run"),
    }


def _time(found: CellStudy, way: Way) -> dict[str, Any]:
    hours = way.hours
    return {
        **_place(found, way.line, way.net),
        "text": way.learnt.text.digest,
        "loss": way.loss,
        "steps_to_target": way.steps,
        "hours_to_target": None if hours is None else dict(zip(("value", "low", "high"), hours, strict=True)),
        "pareto": way.best,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    found = finding.evidence
    return {
        "name": finding.name,
        "finding": finding.said,
        "verdict": found.verdict.value,
        "holds": found.holds,
        "of": found.of,
        "numbers": [
            {
                "what": question.what,
                "answer": answer.value,
                "claimed": plain(question.claimed),
                **({} if question.found is None else {key: getattr(question.found, key) for key in _RATIO}),
            }
            for question, answer in found.figures
        ],
    }


_RATIO = ("value", "low", "high", "method")
