import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from exported import exporter
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlbench.adapters.protocol import Status
from dlbench.reports.compare.report import gate_outcome, outcome_of
from dlbench.reports.results.comparison import (
    CellComparison,
    Comparison,
    compare_runs,
    compare_sides,
)
from dlbench.reports.results.disturbance import disturbances
from dlbench.reports.results.flag_kinds import CONTENDED, FAILED_LAUNCHES
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.outcome import HostObservation, Outcome, TurnObservation
from dlbench.reports.results.record import BASELINE, CANDIDATE, IMPORTED, Record
from dlbench.reports.results.verdict import DEFAULT, Verdict, chosen, judge_pairs, rule_of

TERMINAL, JSON = (exporter("compare", form) for form in ("terminal", "json"))

HOST = Host(make.MACHINE, "AMD EPYC, 2 CPUs", 2, 2, 2.0)
OTHER = Host("m-two", "Ryzen, 8 CPUs", 8, 8, 8.0)
HOSTS = {HOST.fingerprint: HOST, OTHER.fingerprint: OTHER}
NAMES = {BASELINE: "torch 2.12", CANDIDATE: "torch 2.13"}
ENOUGH = next(look.pairs for look in DEFAULT.looks if look.slower)
DISTURBED = make.contention(steal_seconds=5.0)


def launch(side: str, number: int, seconds: float, **changes: Any) -> Record:
    return replace(make.record([seconds] * 3, launch=number, **changes), side=side)


def disturbed(side: str, number: int) -> Record:
    return launch(side, number, 9.0, result=make.outcome([9.0] * 3)._replace(contention=DISTURBED))


def failed(
    side: str, number: int, status: Status = Status.CRASHED, why: str = "signal 11", **changes: Any
) -> Record:
    return launch(side, number, 1.0, result=Outcome(status, why), **changes)


def times(
    count: int, ratio: float, deviation: float = 0.004, seed: int = 0
) -> list[tuple[float, float]]:
    logs = np.random.default_rng(seed).normal(0, deviation, (count, 2))
    return [(0.5 * math.exp(a), 0.5 * ratio * math.exp(b)) for a, b in logs]


def pairs(
    times_of_pairs: Sequence[tuple[float, float]], first: int = 0, **axes_of_cell: Any
) -> list[Record]:
    return [
        launch(side, number, value, **axes_of_cell)
        for number, pair in enumerate(times_of_pairs, first)
        for side, value in zip((BASELINE, CANDIDATE), pair, strict=True)
    ]


def compared(records: Sequence[Record], purpose: str = "compare") -> Comparison:
    return compare_sides(make.run(purpose=purpose, sides=NAMES, plan=()), records, HOST)


def only(comparison: Comparison) -> CellComparison:
    (cell,) = comparison.cells
    return cell


def test_pairs_are_judged_by_their_launches_medians() -> None:
    times_of_pairs = times(10, 1.1)
    cell = only(compared(pairs(times_of_pairs)))
    expected = judge_pairs(
        [round(a, 9) for a, _ in times_of_pairs], [round(b, 9) for _, b in times_of_pairs]
    )
    assert cell.judgement.verdict is Verdict.REGRESSION
    assert cell.judgement.ratio.value == pytest.approx(expected.ratio.value)
    assert cell.judgement.p == pytest.approx(expected.p)
    assert cell.judgement.adjusted_p == pytest.approx(2 * (expected.p or 0))
    assert cell.pairs[0] == pytest.approx([a for a, _ in times_of_pairs])


def test_a_slower_tail_fails_a_gate_though_the_usual_step_is_not_slower() -> None:
    chance = np.random.default_rng(2)

    def with_tail(side: str, number: int, slow: float) -> Record:
        steps = 0.5 * np.exp(chance.normal(0, 0.005, 50))
        steps[:8] *= slow
        return launch(side, number, 0.5, result=make.outcome(steps))

    def of_tails(slow: float, pairs_made: int, purpose: str = "gate") -> Comparison:
        launches = [
            with_tail(side, number, times_as_slow)
            for number in range(pairs_made)
            for side, times_as_slow in ((BASELINE, 1.0), (CANDIDATE, slow))
        ]
        return compared(launches, purpose)

    # The usual steps are known after six pairs, the tail after sixteen.
    open_still = of_tails(1.5, 6)
    assert only(open_still).verdict is Verdict.INCONCLUSIVE
    assert "6 of at least 12 pairs measured" in only(open_still).judgement.sentence
    comparison = of_tails(1.5, 16)
    assert only(comparison).verdict is Verdict.REGRESSION
    assert only(comparison).judgement.ratio.value == pytest.approx(1.0, abs=0.01)
    tail = only(comparison).tail
    assert tail is not None
    assert tail.value == pytest.approx(1.5, rel=0.05)
    output = " ".join(TERMINAL(comparison).split())
    assert "but the slowest tenth of the steps is" in output
    assert "p 1.5e-05" in output
    assert json.loads(JSON(comparison))["cells"][0]["tail"]["low"] > 1.3
    assert only(of_tails(1.0, 6)).verdict is Verdict.NO_REGRESSION
    # Other comparisons have no looks, and only remark on it.
    compared_once = of_tails(1.5, 16, "compare")
    assert only(compared_once).verdict is Verdict.NO_REGRESSION
    assert "one step in ten is slower: nine in ten take up to 1." in " ".join(
        TERMINAL(compared_once).split()
    )


def test_a_pair_with_a_disturbed_launch_is_left_out() -> None:
    records = [*pairs(times(8, 1.0)), launch(BASELINE, 8, 0.5), disturbed(CANDIDATE, 8)]
    cell = only(compared(records))
    assert (cell.judgement.baseline_launches, cell.judgement.verdict) == (8, Verdict.NO_REGRESSION)
    assert (cell.baseline.disturbed_launches, cell.candidate.disturbed_launches) == (0, 1)
    assert all(flag.kind is not CONTENDED for flag in cell.candidate.flags)


@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_a_cell_that_lost_half_of_its_pairs_is_contended_and_never_a_regression(
    purpose: str,
) -> None:
    records = pairs(times(10, 2.0))
    for number in range(10, 20):
        records += [launch(BASELINE, number, 0.5), disturbed(CANDIDATE, number)]
    cell = only(compared(records, purpose))
    assert cell.judgement.verdict is Verdict.CONTENDED
    assert "10 of 20 pairs" in cell.judgement.sentence
    assert only(compared(records[:-2], purpose)).judgement.verdict is not Verdict.CONTENDED


def in_turns(side: str, number: int, seconds: float, between: float = 0.0) -> Record:
    """Return a launch that took turns while other programs had four fifths of its CPU.

    Between its samples the host's clock shows so many seconds more for each.
    """
    turn = seconds + between
    busy = TurnObservation(turn, 0.2 * turn, 0.8 * turn, busy_seconds=1.8 * turn)
    outcome = make.outcome(
        [seconds] * 6,
        turns=[1] * 6,
        outside=HostObservation(6 * turn, 1.2 * turn, turns=[busy] * 6),
    )
    evidence = {
        "threads": make.threads(1, 6 * turn, 0.2),
        "contention": make.contention(run_queue_seconds=4.8 * turn, others_cpu_seconds=30.0),
    }
    record = launch(side, number, seconds, result=outcome._replace(**evidence))
    return replace(record, group=f"group {number}")


@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_disturbed_pairs_count_where_the_sides_took_turns(purpose: str) -> None:
    records = []
    for number, pair in enumerate(times(ENOUGH, 1.2)):
        for side, seconds in zip((BASELINE, CANDIDATE), pair, strict=True):
            records.append(in_turns(side, number, seconds))
    assert all(disturbances(record, HOST) for record in records)
    comparison = compared(records, purpose)
    cell = only(comparison)
    assert cell.judgement.verdict is Verdict.REGRESSION
    assert (cell.baseline.launches, cell.baseline.disturbed_launches) == (ENOUGH, 0)
    (note,) = [note for note in comparison.notes if note.startswith("Other programs")]
    assert f"disturbed {ENOUGH} of {ENOUGH} pairs" in note


@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_a_pair_does_not_count_where_others_hide_what_a_launch_did(purpose: str) -> None:
    records = pairs(times(ENOUGH, 1.0))
    for number in range(ENOUGH, ENOUGH + 4):
        records.append(in_turns(BASELINE, number, 0.5))
        records.append(in_turns(CANDIDATE, number, 0.5, between=1.0))
    cell = only(compared(records, purpose))
    assert len(cell.pairs[0]) == ENOUGH
    assert "hide what it did between its samples" in disturbances(records[-1], HOST)


def test_a_pair_that_was_interrupted_between_its_launches_is_no_pair() -> None:
    records = [*pairs(times(8, 1.0)), launch(BASELINE, 8, 0.5)]
    assert only(compared(records)).judgement.baseline_launches == 8


def test_a_gate_rests_on_its_pairs_up_to_the_look_that_decides() -> None:
    records = pairs(times(ENOUGH, 1.1))
    later = pairs(times(20, 0.5), ENOUGH)
    cell = only(compared(records[::-1] + later, "gate"))
    assert (cell.judgement.verdict, cell.judgement.candidate_launches) == (
        Verdict.REGRESSION,
        ENOUGH,
    )
    assert cell.judgement.adjusted_p is None
    assert len(cell.pairs[0]) == ENOUGH + 20
    assert only(compared(records[:-2], "gate")).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    "status", [Status.CRASHED, Status.OUT_OF_MEMORY, Status.UNSUPPORTED, Status.PARITY_FAILED]
)
@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_a_candidate_that_fails_where_the_baseline_does_not_is_broken(
    purpose: str, status: Status
) -> None:
    records = [launch(BASELINE, number, 0.5) for number in range(6)]
    records += [failed(CANDIDATE, number, status, "because") for number in range(6)]
    comparison = compared(records, purpose)
    assert only(comparison).verdict is Verdict.BROKEN
    assert (
        only(comparison).judgement.sentence
        == f"candidate: {status.value.replace('_', ' ')}, because"
    )
    assert comparison.geometric_mean is None
    turned = [replace(r, side={BASELINE: CANDIDATE, CANDIDATE: BASELINE}[r.side]) for r in records]
    assert only(compared(turned, purpose)).verdict is Verdict.HOLE


def test_wrong_mathematics_in_one_launch_is_enough_and_says_why() -> None:
    wrong = make.outcome()._replace(
        status=Status.PARITY_FAILED, parity=make.parity("disagrees", "update error 0.4")
    )
    records = [
        *pairs(times(8, 1.0)),
        launch(BASELINE, 8, 0.5),
        launch(CANDIDATE, 8, 0.5, result=wrong),
    ]
    cell = only(compared(records))
    assert cell.verdict is Verdict.BROKEN
    assert (
        cell.judgement.sentence == "candidate: parity failed, update error 0.4 (in 1 of 9 launches)"
    )


def test_one_crash_may_be_bad_luck_and_is_flagged_two_are_not() -> None:
    records = [*pairs(times(8, 1.0)), launch(BASELINE, 8, 0.5), failed(CANDIDATE, 8)]
    cell = only(compared(records))
    assert cell.judgement.verdict is Verdict.NO_REGRESSION
    assert [flag.kind for flag in cell.candidate.flags] == [FAILED_LAUNCHES]
    assert "signal 11 (in 1 of 9 launches)" in cell.candidate.flags[0].sentence
    again = only(compared([*records, launch(BASELINE, 9, 0.5), failed(CANDIDATE, 9)]))
    assert again.verdict is Verdict.BROKEN
    assert "2 of 10 launches" in again.judgement.sentence


def a_run(name: str, ratio: float, count: int = 5, seed: int = 0, **changes: Any) -> list[Record]:
    return [
        make.record([value] * 3, launch=number, run=name, **changes)
        for number, (_, value) in enumerate(times(count, ratio, seed=seed))
    ]


def stored(before: Sequence[Record], after: Sequence[Record]) -> Comparison:
    return compare_runs(before, after, HOSTS, NAMES)


def test_stored_runs_are_judged_with_an_allowance_for_their_sessions() -> None:
    before, after = a_run("one", 1.0), a_run("two", 1.04, seed=1)
    comparison = stored(before, after)
    assert not comparison.same_session
    assert only(comparison).judgement.verdict is Verdict.INCONCLUSIVE
    assert any("different sessions" in note for note in comparison.notes)
    same = stored(before, [replace(record, run="one") for record in after])
    assert same.same_session
    assert only(same).judgement.verdict is Verdict.REGRESSION
    assert not same.notes
    assert (
        only(stored(before, a_run("two", 1.3, seed=1))).verdict is Verdict.REGRESSION
    )  # no session explains it


@pytest.mark.parametrize(
    ("after", "part"),
    [
        (a_run("two", 1.0, threads=2), "no cell in common"),
        (pairs(times(5, 1.0)), "choose one of its sides"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(after: list[Record], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        stored(a_run("one", 1.0), after)


def test_different_machines_are_compared_and_never_judged() -> None:
    comparison = stored(a_run("one", 1.0), a_run("two", 5.0, seed=1, machine=OTHER.fingerprint))
    assert only(comparison).judgement.verdict is Verdict.COMPARISON
    assert only(comparison).judgement.ratio.value == pytest.approx(5.0, rel=0.02)
    assert comparison.hosts == (HOST, OTHER)
    assert any("different machines" in note for note in comparison.notes)


def test_launches_with_other_numbers_of_cpus_are_not_judged() -> None:
    all_cpus, slower = make.changed(a_run("one", 1.0), cpus=[0, 1]), a_run("two", 1.3, seed=1)
    assert only(stored(all_cpus, make.changed(slower, cpus=[1]))).verdict is Verdict.COMPARISON
    assert only(stored(all_cpus, make.changed(slower, cpus=[0, 1]))).verdict is Verdict.REGRESSION


def test_a_stored_run_that_others_disturbed_is_contended() -> None:
    loud = a_run("two", 1.0, result=make.outcome([9.0] * 3)._replace(contention=DISTURBED))
    cell = only(stored(a_run("one", 1.0), loud))
    assert cell.judgement.verdict is Verdict.CONTENDED
    assert cell.candidate.disturbed_launches == 5
    assert "5 of 10 launches" in cell.judgement.sentence


def test_the_geometric_mean_by_hand() -> None:
    comparison = compared(
        pairs(times(10, 1.1), threads=1) + pairs(times(10, 1.3, seed=1), threads=2)
    )
    first, second = (cell.judgement for cell in comparison.cells)
    mean = comparison.geometric_mean
    assert mean.method == "geometric mean of 2 cells"
    assert mean.value == pytest.approx(math.sqrt(first.ratio.value * second.ratio.value))
    errors = [
        np.std(np.diff(np.log(times(10, 1, seed=seed)), axis=1), ddof=1) / math.sqrt(10)
        for seed in (0, 1)
    ]
    variance = sum(error**2 for error in errors) / 4
    freedom = variance**2 / sum((error**2 / 4) ** 2 / 9 for error in errors)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    assert mean.low == pytest.approx(mean.value * math.exp(-half), rel=1e-5)
    assert mean.high == pytest.approx(mean.value * math.exp(half), rel=1e-5)


def test_a_shift_of_the_session_does_not_average_out_over_cells() -> None:
    def ends(runs: int, name: str) -> float:
        before = [
            record for p in range(1, runs + 1) for record in a_run("one", 1.0, seed=p, threads=p)
        ]
        after = [
            record
            for p in range(1, runs + 1)
            for record in a_run(name, 1.0, seed=p + 99, threads=p)
        ]
        mean = stored(before, after).geometric_mean
        return math.log(mean.high / mean.low) / 2

    shift = math.sqrt(2) * DEFAULT.session_deviation
    for cells in (3, 30):
        assert ends(cells, "two") == pytest.approx(1.96 * shift, rel=0.02)
    assert ends(30, "one") < 0.1 * shift


COUNTS = st.dictionaries(
    st.sampled_from([f for f in Verdict if f is not Verdict.COMPARISON]), st.integers(1, 30)
)


@given(COUNTS)
def test_a_gate_fails_on_a_regression_passes_on_proof_and_is_undecided_otherwise(
    counts: dict[Verdict, int],
) -> None:
    gate = outcome_of(counts, "cell")
    if counts.keys() & {Verdict.REGRESSION, Verdict.BROKEN, Verdict.DIFFERENT}:
        assert gate.outcome == "failed"
    else:
        proof = counts and counts.keys() <= {Verdict.NO_REGRESSION, Verdict.IMPROVEMENT}
        assert gate.outcome == ("passed" if proof else "undecided")
    assert gate.line.startswith(f"gate {gate.outcome}: ")


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({Verdict.REGRESSION: 2}, "2 of 2 cells are slower than the baseline"),
        (
            {Verdict.NO_REGRESSION: 2, Verdict.REGRESSION: 1, Verdict.DIFFERENT: 1},
            "1 of 4 cells is slower than the baseline, 1 is other work than the baseline",
        ),
        ({Verdict.IMPROVEMENT: 1, Verdict.INCONCLUSIVE: 2}, "2 of 3 cells are inconclusive"),
        ({Verdict.NO_REGRESSION: 3}, "no slowdown in 3 cells"),
    ],
)
def test_the_outcome_of_a_gate_reads_as_a_sentence(counts: dict[Verdict, int], why: str) -> None:
    assert outcome_of(counts, "cell").why == why


# A user's own step: both sides must compute the same.


def own(
    records: Sequence[Record], losses: Sequence[float], tolerance: float = 1e-3
) -> list[Record]:
    parity = make.parity()._replace(losses=list(losses), loss_tolerance=tolerance)
    changed = make.changed(records, parity=parity)
    return [replace(record, network={"family": "own", "numbers": {}}) for record in changed]


def own_pairs(
    before: Sequence[float], after: Sequence[float], ratio: float = 0.52, count: int = 8
) -> list[Record]:
    sides = pairs(times(count, ratio))
    baseline = [record for record in sides if record.side == BASELINE]
    candidate = [record for record in sides if record.side == CANDIDATE]
    return [*own(baseline, before), *own(candidate, after)]


# The losses of a step that trains, and of its copy without a gradient.
TRAINED, UNTRAINED = (2.0, 1.97401), (2.0, 1.98560)


@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_a_candidate_that_computes_no_gradient_is_no_improvement(purpose: str) -> None:
    comparison = compared(own_pairs(TRAINED, UNTRAINED), purpose)
    cell = only(comparison)
    assert cell.verdict is Verdict.DIFFERENT
    text = (
        "the candidate computes something else: loss of step 2 1.9856 instead of 1.97401, off by "
        "5.9e-03"
    )
    assert cell.judgement.sentence.startswith(text)
    assert cell.judgement.ratio.value == pytest.approx(0.52, rel=0.02)  # as evidence
    assert cell.loss_difference is not None
    assert cell.loss_difference.step == 2
    assert (
        gate_outcome(comparison).line == "gate failed: 1 of 1 cell is other work than the baseline"
    )
    assert comparison.geometric_mean is None


def test_other_work_is_no_part_of_the_geometric_mean_or_the_adjustment() -> None:
    same, different = own_pairs(TRAINED, TRAINED, 1.1, 10), own_pairs(TRAINED, UNTRAINED, 0.5)
    different = [replace(record, cell=record.cell._replace(threads=2)) for record in different]
    third = pairs(times(10, 1.1, seed=2), threads=4)
    comparison = compared([*same, *different, *third])
    assert [cell.verdict for cell in comparison.cells] == [
        Verdict.REGRESSION,
        Verdict.DIFFERENT,
        Verdict.REGRESSION,
    ]
    assert comparison.geometric_mean is not None
    assert comparison.geometric_mean.method == "geometric mean of 2 cells"
    alone = compared([*same, *third])
    assert comparison.geometric_mean.value == pytest.approx(
        alone.geometric_mean.value if alone.geometric_mean else 0
    )
    assert comparison.cells[0].judgement.adjusted_p == alone.cells[0].judgement.adjusted_p


@pytest.mark.parametrize("tolerance", [1e-3, 1e-2])
def test_the_steps_own_tolerance_decides(tolerance: float) -> None:
    records = own_pairs(TRAINED, UNTRAINED)
    wider = [
        replace(
            record,
            outcome=record.outcome._replace(
                parity=record.outcome.parity._replace(loss_tolerance=tolerance)
            ),
        )
        for record in records
        if record.outcome.parity is not None
    ]
    expected = Verdict.DIFFERENT if tolerance < 5.9e-3 else Verdict.IMPROVEMENT
    assert only(compared(wider)).verdict is expected


def test_other_work_is_compared_where_that_is_asked_for_and_a_line_says_so() -> None:
    rule = replace(DEFAULT, allow_different=True)
    run = make.run(purpose="gate", sides=NAMES, plan=(), rule=chosen(rule))
    stored_run = type(run).from_dict(run.to_dict())
    assert rule_of(stored_run.rule) == rule
    comparison = compare_sides(stored_run, own_pairs(TRAINED, UNTRAINED, count=12), HOST)
    assert only(comparison).verdict is Verdict.IMPROVEMENT
    (note,) = comparison.notes
    assert note.startswith(
        "The candidate computes something else; compared all the same, as asked: fcn5, "
    )
    assert "(loss of step 2 1.9856 instead of 1.97401" in note


def test_steps_without_a_loss_are_compared_and_a_line_says_that_nothing_was_checked() -> None:
    comparison = compared(own_pairs(TRAINED, ()))
    assert only(comparison).verdict is Verdict.IMPROVEMENT
    assert comparison.notes[0].startswith(
        "Not checked: whether both sides compute the same, as a step reports no loss: "
    )
    assert compared(own_pairs(TRAINED, TRAINED)).notes == ()


def test_losses_of_networks_with_a_reference_are_left_to_the_reference() -> None:
    records = pairs(times(8, 1.0))
    after = make.parity()._replace(losses=[3.0, 2.0])
    changed = [
        record if record.side == BASELINE else make.changed([record], parity=after)[0]
        for record in records
    ]
    assert only(compared(changed)).verdict is Verdict.NO_REGRESSION


def test_one_launch_at_the_edge_of_the_tolerance_does_not_decide() -> None:
    records = own_pairs(TRAINED, (2.0, 1.9757))
    assert only(compared(records)).verdict is Verdict.IMPROVEMENT  # off by 8.6e-4
    (last,) = own(records[-1:], (2.0, 1.9772))
    assert only(compared([*records[:-1], last])).verdict is Verdict.IMPROVEMENT


def test_stored_runs_of_an_own_step_must_compute_the_same() -> None:
    before, after = own(a_run("one", 1.0), TRAINED), own(a_run("two", 0.5), UNTRAINED)
    assert only(stored(before, after)).verdict is Verdict.DIFFERENT
    elsewhere = [replace(record, machine=OTHER.fingerprint) for record in after]
    assert only(stored(before, elsewhere)).verdict is Verdict.DIFFERENT
    failed_too = [*before, replace(failed("", 9), network=before[0].network)]
    assert only(stored(failed_too, after)).verdict is Verdict.DIFFERENT
    assert only(stored(before, own(a_run("two", 0.5), TRAINED))).verdict is Verdict.IMPROVEMENT


# What the other side lacks, and what else differs.


def test_one_sided_cells_are_named_in_the_terminal_and_all_in_json() -> None:
    common = a_run("one", 1.0)
    before = [
        *common,
        *(record for n in range(13) for record in a_run("one", 1.0, network=f"old{n:02}")),
    ]
    after = [*a_run("two", 1.0), *a_run("two", 1.5, network="renamed")]
    comparison = stored(before, after)
    output = " ".join(TERMINAL(comparison).split())
    assert "Only in the baseline: old00, mini-batch 64, torch eager, 1 thread." in output
    assert output.count("Only in the baseline: ") == 10
    assert "... and 3 more only in the baseline; --json shows all." in output
    assert "Only in the candidate: renamed, mini-batch 64, torch eager, 1 thread." in output
    assert output.endswith("13 only in the baseline; 1 only in the candidate.")
    only_in = json.loads(JSON(comparison))["only_in"]
    assert [cell["network"] for cell in only_in[BASELINE]] == [f"old{n:02}" for n in range(13)]
    assert [cell["network"] for cell in only_in[CANDIDATE]] == ["renamed"]


def test_another_interpreter_and_other_packages_are_said() -> None:
    before = [*a_run("one", 1.0), *a_run("one", 1.0, threads=2)]
    newer = [replace(record, interpreter="CPython 3.13.1") for record in a_run("two", 1.3)]
    after = [
        *make.changed(
            newer, software={"python": "3.13.1", "versions": {"torch": "2.14.0"}, "blas": "oneDNN"}
        ),
        *a_run("two", 1.3, threads=2),
    ]
    comparison = stored(before, after)
    assert only(stored(before[:5], after[:5])).verdict is Verdict.REGRESSION
    output = " ".join(TERMINAL(comparison).split())
    assert (
        "The sides also differ in: interpreter CPython 3.11.7 -> CPython 3.13.1 (in 1 of 2 cells); "
        "versions" in output
    )
    first = json.loads(JSON(comparison))["differences"][0]
    assert first == {
        "what": "interpreter",
        BASELINE: "CPython 3.11.7",
        CANDIDATE: "CPython 3.13.1",
        "cells": 1,
    }
    assert stored(before, [replace(record, run="two") for record in before]).differences == ()


def test_the_commits_of_imported_benchmarks_are_said_and_the_advice_fits_them() -> None:
    def imported(run: str, commit: str, count: int) -> list[Record]:
        file_content = {
            "version": "5.3.1",
            "commit_info": {"id": commit * 20, "dirty": False},
            "options": {"timer": "t"},
        }
        records = a_run(run, 1.0, count, adapter=IMPORTED, framework="pytest-benchmark")
        return make.changed(records, software={"pytest_benchmark": file_content})

    comparison = stored(imported("one", "ab", 5), imported("two", "cd", 5))
    assert [difference.words for difference in comparison.differences] == [
        "commit ababababab -> cdcdcdcdcd"
    ]
    (note,) = comparison.notes
    assert "--now" not in note
    assert "`pytest --benchmark-json FILE`, then `dlbench import --one-run FILES`" in note
    (few,) = stored(imported("one", "ab", 1), imported("two", "cd", 1)).notes
    assert "A file of pytest-benchmark is one launch, and a verdict needs 3 on each side." in few
    assert "--now" in stored(a_run("one", 1.0), a_run("two", 1.0)).notes[0]
