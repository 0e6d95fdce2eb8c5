import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.compare.comparison import CellComparison, Comparison, compare_runs, compare_sides, pairs_of
from dlbench.reports.compare.report import outcome_of
from dlbench.reports.compare.verdict import DEFAULT, Verdict, judge_pairs
from dlbench.reports.flags import CONTENDED, FAILED_LAUNCHES
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import BASELINE, CANDIDATE, Record

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


def failed(side: str, number: int, status: Status = Status.CRASHED, why: str = "signal 11", **changes: Any) -> Record:
    return launch(side, number, 1.0, result=Outcome(status, why), **changes)


def times(count: int, ratio: float, deviation: float = 0.004, seed: int = 0) -> list[tuple[float, float]]:
    logs = np.random.default_rng(seed).normal(0, deviation, (count, 2))
    return [(0.5 * math.exp(a), 0.5 * ratio * math.exp(b)) for a, b in logs]


def pairs(found: Sequence[tuple[float, float]], first: int = 0, **of_cell: Any) -> list[Record]:
    return [
        launch(side, number, value, **of_cell)
        for number, pair in enumerate(found, first)
        for side, value in zip((BASELINE, CANDIDATE), pair, strict=True)
    ]


def compared(records: Sequence[Record], purpose: str = "compare") -> Comparison:
    return compare_sides(make.run(purpose=purpose, sides=NAMES, plan=()), records, HOST)


def only(found: Comparison) -> CellComparison:
    (cell,) = found.cells
    return cell


def test_pairs_are_judged_by_their_launches_medians() -> None:
    found = times(10, 1.1)
    cell = only(compared(pairs(found)))
    expected = judge_pairs([round(a, 9) for a, _ in found], [round(b, 9) for _, b in found])
    assert cell.judgement.verdict is Verdict.REGRESSION
    assert cell.judgement.ratio == pytest.approx(expected.ratio)
    assert cell.judgement.p == pytest.approx(expected.p)
    assert cell.judgement.adjusted_p == pytest.approx(2 * (expected.p or 0))
    assert cell.pairs[0] == pytest.approx([a for a, _ in found])


def test_a_pair_with_a_disturbed_launch_is_left_out() -> None:
    records = [*pairs(times(8, 1.0)), launch(BASELINE, 8, 0.5), disturbed(CANDIDATE, 8)]
    cell = only(compared(records))
    assert (cell.judgement.baseline_launches, cell.judgement.verdict) == (8, Verdict.NO_REGRESSION)
    assert (cell.baseline.contended, cell.candidate.contended) == (0, 1)
    assert all(flag.kind is not CONTENDED for flag in cell.candidate.flags)


@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_a_cell_that_lost_half_of_its_pairs_is_contended_and_never_a_regression(purpose: str) -> None:
    records = pairs(times(10, 2.0))
    for number in range(10, 20):
        records += [launch(BASELINE, number, 0.5), disturbed(CANDIDATE, number)]
    cell = only(compared(records, purpose))
    assert cell.judgement.verdict is Verdict.CONTENDED
    assert "10 of 20 pairs" in cell.judgement.sentence
    assert only(compared(records[:-2], purpose)).judgement.verdict is not Verdict.CONTENDED


def test_a_pair_that_was_interrupted_between_its_launches_is_no_pair() -> None:
    records = [*pairs(times(8, 1.0)), launch(BASELINE, 8, 0.5)]
    assert only(compared(records)).judgement.baseline_launches == 8


def test_a_gate_rests_on_its_pairs_up_to_the_look_that_decides() -> None:
    records = pairs(times(ENOUGH, 1.1))
    later = pairs(times(20, 0.5), ENOUGH)
    cell = only(compared(records[::-1] + later, "gate"))
    assert (cell.judgement.verdict, cell.judgement.candidate_launches) == (Verdict.REGRESSION, ENOUGH)
    assert cell.judgement.adjusted_p is None
    assert len(cell.pairs[0]) == ENOUGH + 20
    assert only(compared(records[:-2], "gate")).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("status", [Status.CRASHED, Status.OUT_OF_MEMORY, Status.UNSUPPORTED, Status.PARITY_FAILED])
@pytest.mark.parametrize("purpose", ["compare", "gate"])
def test_a_candidate_that_fails_where_the_baseline_does_not_is_broken(purpose: str, status: Status) -> None:
    records = [launch(BASELINE, number, 0.5) for number in range(6)]
    records += [failed(CANDIDATE, number, status, "because") for number in range(6)]
    found = compared(records, purpose)
    assert only(found).verdict is Verdict.BROKEN
    assert only(found).judgement.sentence == f"candidate: {status.value.replace('_', ' ')}, because"
    assert found.geometric_mean is None
    turned = [replace(r, side={BASELINE: CANDIDATE, CANDIDATE: BASELINE}[r.side]) for r in records]
    assert only(compared(turned, purpose)).verdict is Verdict.HOLE


def test_wrong_mathematics_in_one_launch_is_enough_and_says_why() -> None:
    wrong = make.outcome()._replace(status=Status.PARITY_FAILED, parity=make.parity("disagrees", "update error 0.4"))
    records = [*pairs(times(8, 1.0)), launch(BASELINE, 8, 0.5), launch(CANDIDATE, 8, 0.5, result=wrong)]
    cell = only(compared(records))
    assert cell.verdict is Verdict.BROKEN
    assert cell.judgement.sentence == "candidate: parity failed, update error 0.4 (in 1 of 9 launches)"


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
    found = stored(before, after)
    assert not found.same_session
    assert only(found).judgement.verdict is Verdict.INCONCLUSIVE
    assert any("different sessions" in note for note in found.notes)
    same = stored(before, [replace(record, run="one") for record in after])
    assert same.same_session
    assert only(same).judgement.verdict is Verdict.REGRESSION
    assert not same.notes
    assert only(stored(before, a_run("two", 1.3, seed=1))).verdict is Verdict.REGRESSION  # no session explains it


@pytest.mark.parametrize(
    ("after", "part"),
    [(a_run("two", 1.0, threads=2), "no cell in common"), (pairs(times(5, 1.0)), "choose one of its sides")],
)
def test_runs_that_cannot_be_compared_are_refused(after: list[Record], part: str) -> None:
    with pytest.raises(ValueError, match=part):
        stored(a_run("one", 1.0), after)


def test_different_machines_are_compared_and_never_judged() -> None:
    found = stored(a_run("one", 1.0), a_run("two", 5.0, seed=1, machine=OTHER.fingerprint))
    assert only(found).judgement.verdict is Verdict.COMPARISON
    assert only(found).judgement.ratio == pytest.approx(5.0, rel=0.02)
    assert found.hosts == (HOST, OTHER)
    assert any("different machines" in note for note in found.notes)


def test_a_launch_of_a_duet_is_not_judged_beside_one_with_the_machine_for_itself() -> None:
    alone, slower = make.changed(a_run("one", 1.0), cpus=[0, 1]), a_run("two", 1.3, seed=1)
    assert only(stored(alone, make.changed(slower, cpus=[1]))).verdict is Verdict.COMPARISON
    assert only(stored(alone, make.changed(slower, cpus=[0, 1]))).verdict is Verdict.REGRESSION


def test_a_stored_run_that_others_disturbed_is_contended() -> None:
    loud = a_run("two", 1.0, result=make.outcome([9.0] * 3)._replace(contention=DISTURBED))
    found = only(stored(a_run("one", 1.0), loud))
    assert found.judgement.verdict is Verdict.CONTENDED
    assert found.candidate.contended == 5
    assert "5 of 10 launches" in found.judgement.sentence


def test_the_geometric_mean_by_hand() -> None:
    found = compared(pairs(times(10, 1.1), threads=1) + pairs(times(10, 1.3, seed=1), threads=2))
    one, two = (cell.judgement for cell in found.cells)
    mean = found.geometric_mean
    assert mean.method == "geometric mean of 2 cells"
    assert mean.value == pytest.approx(math.sqrt((one.ratio or 0) * (two.ratio or 0)))
    errors = [np.std(np.diff(np.log(times(10, 1, seed=seed)), axis=1), ddof=1) / math.sqrt(10) for seed in (0, 1)]
    variance = sum(error**2 for error in errors) / 4
    freedom = variance**2 / sum((error**2 / 4) ** 2 / 9 for error in errors)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(variance)
    assert mean.low == pytest.approx(mean.value * math.exp(-half), rel=1e-5)
    assert mean.high == pytest.approx(mean.value * math.exp(half), rel=1e-5)


def test_a_shift_of_the_session_does_not_average_out_over_cells() -> None:
    def ends(runs: int, name: str) -> float:
        before = [record for p in range(1, runs + 1) for record in a_run("one", 1.0, seed=p, threads=p)]
        after = [record for p in range(1, runs + 1) for record in a_run(name, 1.0, seed=p + 99, threads=p)]
        mean = stored(before, after).geometric_mean
        return math.log(mean.high / mean.low) / 2

    shift = math.sqrt(2) * DEFAULT.session_deviation
    for cells in (3, 30):
        assert ends(cells, "two") == pytest.approx(1.96 * shift, rel=0.02)
    assert ends(30, "one") < 0.1 * shift


COUNTS = st.dictionaries(st.sampled_from([f for f in Verdict if f is not Verdict.COMPARISON]), st.integers(1, 30))


@given(COUNTS)
def test_a_gate_fails_on_a_regression_passes_on_proof_and_is_undecided_otherwise(counts: dict[Verdict, int]) -> None:
    found = outcome_of(counts, "cell")
    if counts.keys() & {Verdict.REGRESSION, Verdict.BROKEN}:
        assert found.outcome == "failed"
    else:
        proof = counts and counts.keys() <= {Verdict.NO_REGRESSION, Verdict.IMPROVEMENT}
        assert found.outcome == ("passed" if proof else "undecided")
    assert found.line.startswith(f"gate {found.outcome}: ")


@pytest.mark.parametrize("early", [BASELINE, CANDIDATE])
@pytest.mark.parametrize(("apart", "ratio"), [(0.0, 1.25), (100.0, 1.0)])
def test_of_a_duet_the_samples_of_the_common_time_are_compared(early: str, apart: float, ratio: float) -> None:
    # For a second both are timed; steps of a side that is alone, before or after, take a tenth of the time.
    def side(name: str, seconds: float) -> Record:
        beside, alone = [seconds] * round(1.0 / seconds), [0.01] * 40
        steps, begin = (alone + beside, -0.4) if name == early else (beside + alone, apart)
        result = make.outcome(steps)._replace(timed_between=[begin, begin + sum(steps)])
        return launch(name, 0, seconds, result=result)

    ((before,), (after,)), _ = pairs_of([side(BASELINE, 0.1), side(CANDIDATE, 0.125)], HOST)
    assert after / before == pytest.approx(ratio)
