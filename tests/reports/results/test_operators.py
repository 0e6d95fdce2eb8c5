"""Operators of two sides: the one that got slower is named, and nothing is in identical code."""

import json
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest
from exported import exporter
from factory_of_records import cell, outcome

from dlbench.adapters.libraries.profiles import ELEMENTWISE, FUSED, MATRIX, MEMORY
from dlbench.adapters.protocol import Operator, Profile, SampleCounts
from dlbench.reports.results.operators import (
    CLEAR,
    MOST,
    OUTSIDE,
    StepDifference,
    step_difference,
    step_differences,
)
from dlbench.reports.results.record import BASELINE, CANDIDATE, PROFILED, Record

SECONDS = {"mm": 0.5, "add": 0.2, "copy": 0.1, "sum": 0.05}
KINDS = {
    "mm": MATRIX,
    "add": ELEMENTWISE,
    "copy": MEMORY,
    "sum": MATRIX,
    "fusion": FUSED,
    "fusion.1": FUSED,
}


def launch(
    side: str, seconds: dict[str, float], number: int = 0, step: float = 1.0, **changes: object
) -> Record:
    """Return a profiled launch whose operators take these seconds, of a step of ``step``."""
    operators = [Operator(name, KINDS[name], False, value, 3.0) for name, value in seconds.items()]
    profile = Profile("a profiler", 5, step, operators)
    result = outcome([step] * 3, profile=profile, **changes)
    return replace(make.record(result=result, launch=number), side=side, stage=PROFILED)


def sides(
    rng: np.random.Generator,
    deviation: float,
    launches: int,
    slower: dict[str, float],
    of_launch: float = 0.0,
) -> StepDifference:
    """Return the difference of simulated launches, whose operators take so many times as long in
    the candidate."""
    records = []
    for number in range(launches):
        for side in (BASELINE, CANDIDATE):
            pace = np.exp(rng.normal(0, of_launch))
            factors = dict.fromkeys(SECONDS, 1.0)
            if side == CANDIDATE:
                factors |= slower
            seconds = {
                name: value * factors[name] * pace * np.exp(rng.normal(0, deviation))
                for name, value in SECONDS.items()
            }
            outside = 0.15 * pace
            records.append(launch(side, seconds, number, sum(seconds.values()) + outside))
    return step_difference(cell(), records)


@pytest.mark.parametrize("of_launch", [0.0, 0.02])
def test_in_identical_code_nothing_is_named(of_launch: float) -> None:
    rng = np.random.default_rng(5)
    alarms = sum(bool(sides(rng, 0.01, MOST, {}, of_launch).named) for _ in range(500))
    assert alarms <= 2


@pytest.mark.parametrize(
    ("name", "times"), [("mm", 1.15), ("add", 1.4), ("copy", 1.8), ("sum", 2.5)]
)
def test_the_operator_that_takes_longer_is_named_and_no_other(name: str, times: float) -> None:
    rng = np.random.default_rng(6)
    results = [sides(rng, 0.01, 3, {name: times}) for _ in range(100)]
    assert (
        sum([operator.name for operator in difference.named] == [name] for difference in results)
        >= 90
    )
    assert np.mean([result.named[0].share for result in results if result.named]) == pytest.approx(
        1.0, abs=0.1
    )


def test_an_operator_of_the_candidate_alone_is_named_with_its_time() -> None:
    records = [launch(BASELINE, {"mm": 0.5}, number, 0.6) for number in (0, 1)]
    records += [launch(CANDIDATE, {"mm": 0.5, "copy": 0.2}, number, 0.8) for number in (0, 1)]
    difference = step_difference(cell(), records)
    assert difference.sentence == (
        "The difference lies in copy (200 ms a step, not in the baseline, all of the difference)."
    )


def test_an_operator_with_a_small_part_of_the_difference_is_not_named_however_clear_it_is() -> None:
    records = [
        launch(BASELINE, {"mm": 0.5, "copy": 0.2, "add": 0.2}, number, 0.9) for number in (0, 1)
    ]
    slower = {"mm": 1.5, "copy": 0.26, "add": 0.1}
    records += [launch(CANDIDATE, slower, number, 1.86) for number in (0, 1)]
    results = {operator.name: operator for operator in step_difference(cell(), records).operators}
    assert all(abs(results[name].errors) > CLEAR for name in slower)
    assert [name for name in slower if results[name].named] == ["mm"]


def test_where_a_compiler_gives_other_names_the_kinds_are_compared() -> None:
    """Each of the two new fusions is no slower than the old one; together they are."""
    records = [launch(BASELINE, {"mm": 0.5, "fusion": 0.2}, number, 0.7) for number in (0, 1)]
    slower = {"mm": 0.5, "fusion.1": 0.5}
    records += [launch(CANDIDATE, slower, number, 1.0) for number in (0, 1)]
    difference = step_difference(cell(), records)
    named = {kind.name: kind for kind in difference.kinds if kind.named}
    assert set(named) == {FUSED}
    assert named[FUSED].share == pytest.approx(1.0)


def test_a_difference_that_no_operator_explains_is_said_to_be_so_with_what_else_differs() -> None:
    faults = {BASELINE: [10] * 3, CANDIDATE: [4000] * 3}
    records = []
    for number in (0, 1):
        for side, seconds in ((BASELINE, 0.6), (CANDIDATE, 0.9)):
            counts = SampleCounts(faults[side], [0] * 3, [0] * 3)
            records.append(launch(side, {"mm": 0.5}, number, seconds, sample_counts=counts))
    difference = step_difference(cell(), records)
    assert [operator.name for operator in difference.named] == [OUTSIDE]
    assert difference.sentence.startswith("The difference lies outside operators")
    assert difference.circumstances[0] == "page faults a step: 10.0 in the baseline, 4000."


def test_a_faster_candidate_has_its_faster_operator_named() -> None:
    difference = sides(np.random.default_rng(7), 0.005, 3, {"mm": 0.7})
    (named,) = difference.named
    assert (named.name, named.difference < 0, named.share > 0.9) == ("mm", True, True)


def test_profilers_that_cannot_be_compared_give_the_reason() -> None:
    baseline = launch(BASELINE, SECONDS)
    other_profile = Profile("another", 5, 1.0, [Operator("mm", MATRIX, False, 0.5, 3.0)])
    candidate = launch(CANDIDATE, SECONDS)
    strange = replace(candidate, outcome=candidate.outcome._replace(profile=other_profile))
    assert "different profilers" in step_difference(cell(), [baseline, strange]).sentence
    without = replace(candidate, outcome=candidate.outcome._replace(profile=None))
    assert (
        "the framework of the candidate has no profiler"
        in step_difference(cell(), [baseline, without]).sentence
    )
    failing = replace(
        without, outcome=without.outcome._replace(software={"profile_failed": "no room"})
    )
    assert "failed: no room" in step_difference(cell(), [baseline, failing]).sentence
    assert "the candidate was not profiled" in step_difference(cell(), [baseline]).sentence


def test_each_cell_has_its_own_difference_and_every_format_can_be_written() -> None:
    records = [launch(side, SECONDS, number) for number in (0, 1) for side in (BASELINE, CANDIDATE)]
    second_cell = [replace(record, cell=cell(threads=2)) for record in records]
    differences = step_differences([*records, *second_cell])
    assert [difference.cell for difference in differences] == [cell(), cell(threads=2)]
    to_json, to_terminal = exporter("operators", "json"), exporter("operators", "terminal")
    content = json.loads(to_json(differences[0]))
    assert {operator["name"] for operator in content["operators"]} == {*SECONDS, OUTSIDE}
    assert "neither the step nor any of its operators differs" in " ".join(
        to_terminal(differences[0]).split()
    )


def test_where_the_step_does_not_differ_an_operator_must_be_called_more_often() -> None:
    """A convolution of PyTorch was 16 % faster in two pairs of identical code by chance."""

    def pair(number: int, calls: float) -> list[Record]:
        results = []
        for side, seconds, of_side in ((BASELINE, 0.10, 3.0), (CANDIDATE, 0.13, calls)):
            operators = [
                Operator("copy", MEMORY, False, seconds, of_side),
                Operator("mm", MATRIX, False, 0.6, 3.0),
            ]
            profile = Profile("a profiler", 5, 1.0, operators)
            results.append(
                replace(launch(side, SECONDS, number), outcome=outcome([1.0] * 3, profile=profile))
            )
        return results

    by_time = step_difference(cell(), [*pair(0, 3.0), *pair(1, 3.0)])
    by_calls = step_difference(cell(), [*pair(0, 4.0), *pair(1, 4.0)])
    assert not by_time.differs
    assert "copy" not in [operator.name for operator in by_time.operators if operator.named]
    assert "copy" in [operator.name for operator in by_calls.operators if operator.named]
