"""Gates over more than time: each quantity has its own verdict, and other programs disturb no
count."""

import json
from collections.abc import Sequence
from dataclasses import replace

import factory_of_records as make
import pytest
from exported import exporter

from dlbench.adapters.protocol import SampleCounts, Status
from dlbench.reports.compare.report import gate_outcome
from dlbench.reports.results.comparison import (
    CellComparison,
    Comparison,
    compare_runs,
    compare_sides,
    pairs_of,
)
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record
from dlbench.reports.results.verdict import DEFAULT, Rule, Verdict

HOST = Host(make.MACHINE, "a machine", 2, 2, 2.0)
RULE = replace(DEFAULT, further=(("memory", 0.025), ("first_step", 0.1), ("faults", 0.1)))
DISTURBED = make.contention(steal_seconds=5.0)


def launch(side: str, number: int, **changes: object) -> Record:
    counts = SampleCounts([100] * 3, [0] * 3, [0] * 3)
    base = make.outcome([1.0 + 0.001 * ((7 * number) % 5 - 2)] * 3, sample_counts=counts)
    return replace(make.record(result=base._replace(**changes), launch=number), side=side)


def sides(
    count: int, candidate: dict[str, object], outcome_of_both: dict[str, object] | None = None
) -> list[Record]:
    """Return pairs whose candidates differ in these parts of their outcomes."""
    common = outcome_of_both or {}
    records = []
    for number in range(count):
        records.append(launch(BASELINE, number, **common))
        records.append(launch(CANDIDATE, number, **{**common, **candidate}))
    return records


def judged(records: Sequence[Record], rule: Rule = RULE) -> Comparison:
    return compare_sides(
        make.run(purpose="gate", sides={BASELINE: "a", CANDIDATE: "b"}, plan=()),
        records,
        HOST,
        rule,
    )


def by_quantity(comparison: Comparison) -> dict[str, CellComparison]:
    return {cell.quantity: cell for cell in comparison.cells}


def test_identical_code_passes_in_every_quantity() -> None:
    judgements = judged(sides(4, {}))
    assert [cell.quantity for cell in judgements.cells] == [
        "time",
        "memory",
        "first_step",
        "faults",
    ]
    assert {cell.verdict for cell in judgements.cells} == {Verdict.NO_REGRESSION}
    assert gate_outcome(judgements).line == "gate passed: no regression in 4 judgements"


@pytest.mark.parametrize(
    ("quantity", "change"),
    [
        ("memory", {"peak_memory_bytes": 1_060_000_000}),
        ("first_step", {"first_step_seconds": 3.7}),
        ("faults", {"sample_counts": SampleCounts([150] * 3, [0] * 3, [0] * 3)}),
    ],
)
def test_a_rise_of_one_quantity_fails_the_gate_and_is_named(
    quantity: str, change: dict[str, object]
) -> None:
    judgements = judged(sides(14, change))
    verdicts = {name: cell.verdict for name, cell in by_quantity(judgements).items()}
    assert verdicts.pop(quantity) is Verdict.REGRESSION
    assert set(verdicts.values()) == {Verdict.NO_REGRESSION}
    assert (
        gate_outcome(judgements).line == "gate failed: 1 of 4 judgements is worse than the baseline"
    )
    content = json.loads(exporter("compare", "json")(judgements))
    assert [cell["quantity"] for cell in content["cells"] if cell["finding"] == "REGRESSION"] == [
        quantity
    ]
    text = " ".join(exporter("compare", "terminal")(judgements).split())
    assert f": {quantity}" in text
    assert "% more" in text
    assert "1 cell, 4 judgements: 1 REGRESSION, 3 no regression" in text


def test_less_memory_is_an_improvement_that_fails_nothing() -> None:
    judgements = judged(sides(14, {"peak_memory_bytes": 900_000_000}))
    assert by_quantity(judgements)["memory"].verdict is Verdict.IMPROVEMENT
    assert gate_outcome(judgements).outcome == "passed"


def test_programs_that_disturb_times_disturb_no_count() -> None:
    records = sides(14, {"peak_memory_bytes": 1_060_000_000}, {"contention": DISTURBED})
    assert pairs_of(records, HOST)[0] == ((), ())
    assert len(pairs_of(records, HOST, "memory")[0][0]) == 14
    result = by_quantity(judged(records))
    assert result["time"].verdict is Verdict.CONTENDED
    assert result["memory"].verdict is Verdict.REGRESSION


def test_a_quantity_that_was_not_measured_is_a_hole_and_the_others_are_judged() -> None:
    result = by_quantity(judged(sides(4, {}, {"sample_counts": None})))
    assert result["faults"].verdict is Verdict.HOLE
    assert "page faults a step was not measured" in result["faults"].judgement.sentence
    assert result["memory"].verdict is Verdict.NO_REGRESSION


def test_a_side_that_fails_is_said_once() -> None:
    records = [launch(BASELINE, number) for number in range(3)]
    crash = Outcome(Status.CRASHED, "signal 11")
    records += [
        replace(make.record(result=crash, launch=number), side=CANDIDATE) for number in range(3)
    ]
    (cell,) = judged(records).cells
    assert (cell.quantity, cell.verdict) == ("time", Verdict.BROKEN)


def test_stored_runs_are_compared_in_the_same_quantities_without_a_shift_of_counts() -> None:
    names = {BASELINE: "a", CANDIDATE: "b"}
    before = [replace(launch("", number), run="run-1") for number in range(4)]
    heavier = {"peak_memory_bytes": 1_060_000_000}
    after = [replace(launch("", number, **heavier), run="run-2") for number in range(4)]
    comparison = compare_runs(before, after, {make.MACHINE: HOST}, names, RULE)
    assert by_quantity(comparison)["memory"].verdict is Verdict.REGRESSION
    assert by_quantity(comparison)["time"].verdict is not Verdict.REGRESSION
