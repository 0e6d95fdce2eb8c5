from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from records_of_threads import HOST, TESTED, curve_of, curves_of, records_of

from dlbench.adapters.protocol import BOUND, Outcome, Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.statistics import published, summarise
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.analysis import best_threads, curves, left_out
from dlbench.reports.threads.oversubscription import named_counts, wait_policies


def test_a_curve_by_hand() -> None:
    found = curve_of({1: 1.0, 2: 0.5, 4: 0.8, 8: 1.5})
    assert found.best == 2
    assert found.advice == "use 2 threads; a step takes 2.0x as long with 1, 1.60x with 4, 3.0x with 8"
    assert [p.speedup for p in found.points] == pytest.approx([1.0, 2.0, 1.25, 1 / 1.5])
    assert [p.efficiency for p in found.points] == pytest.approx([1.0, 1.0, 1.25 / 4, 1 / 12])
    assert [p.past_cores and round(p.past_cores.value, 3) for p in found.points] == [None, None, 1.6, 3.0]
    assert [p.past_cpus and round(p.past_cpus.value, 3) for p in found.points] == [None, None, None, 3.0]
    penalty = found.points[2].penalty
    assert 1.5 < penalty.ratio.low < 1.6 < penalty.ratio.high < 1.7


def test_fewer_threads_win_a_tie() -> None:
    assert curve_of({1: 1.0, 2: 0.505, 4: 0.5}).best == 2
    assert curve_of({1: 1.0, 2: 0.55, 4: 0.5}).best == 4
    # 4 % apart: a tie only as long as noise may explain it.
    assert curve_of({2: (0.50, 0.52, 0.54), 4: (0.48, 0.50, 0.52)}).best == 2
    assert curve_of({2: (0.5200, 0.5201, 0.5202), 4: (0.5000, 0.5001, 0.5002)}).best == 4
    assert best_threads({4: published(1.0), 2: published(1.02), 1: published(1.03)}) == 2
    assert best_threads({}) is None


def test_without_cores_told_nothing_is_past_them() -> None:
    found = curve_of({1: 1.0, 8: 2.0}, Host(make.MACHINE, "unknown"))
    assert all(point.past_cores is None and point.past_cpus is None for point in found.points)
    assert findings([found]) == []


def test_holes_take_no_part_but_are_shown() -> None:
    extra = [make.hole(Status.TIMED_OUT, "10 s", threads=8), make.hole(Status.SKIPPED, "budget", threads=16)]
    found = curve_of({1: 1.0, 2: 0.5}, extra=extra)
    assert [point.cell.status.value for point in found.points] == ["ok", "ok", "timed_out", "skipped"]
    assert found.advice == "use 2 threads; a step takes 2.0x as long with 1"


def test_a_curve_of_holes_says_so() -> None:
    found = curve_of({}, extra=[make.hole(Status.CRASHED, "signal 11")])
    assert found.best is None
    assert found.advice == "nothing was timed"


def test_a_single_count_cannot_be_compared() -> None:
    assert curve_of({2: 1.0}).advice == "only 2 threads timed: nothing to compare"


def test_wrong_mathematics_and_too_many_threads_take_no_part() -> None:
    wrong = make.outcome([0.1] * 5)._replace(parity=make.parity("disagrees"), status=Status.PARITY_FAILED)
    greedy = make.outcome([0.1] * 5)._replace(threads=make.threads(2, 0.5, 4.0))
    found = curve_of({1: 1.0}, extra=[make.record(result=wrong, threads=4), make.record(result=greedy, threads=2)])
    assert found.best == 1
    assert [point.seconds is not None for point in found.points] == [True, False, False]


def observed(seconds: float, p: int, waiting: float = 0.0, throttled: float = 0.0, switches: int = 0) -> Outcome:
    wall = 5 * seconds
    seen = make.threads(p, wall, min(p, 2))
    other = make.contention(
        run_queue_seconds=waiting * wall, throttled_seconds=throttled * wall, involuntary_switches=switches
    )
    return make.outcome([seconds] * 5, threads=seen, contention=other)


def test_the_mechanism_is_told_from_the_evidence() -> None:
    quick, slow = observed(0.5, 2), observed(1.5, 8, waiting=6.0, throttled=0.3, switches=5000)
    records = [make.record(result=quick, threads=2, launch=n) for n in range(3)]
    records += [make.record(result=slow, threads=8, launch=n) for n in range(3)]
    found = curve_of({}, extra=records)
    assert found.mechanism == (
        "at 8 threads the CPU quota throttles it 30% of the time; 6.0 of 8 threads wait for a CPU at any moment; "
        "a step costs 3.0x the CPU seconds (spinning, synchronising, cold caches); 1000 involuntary switches a step"
    )


def test_no_mechanism_where_nothing_is_worse_or_nothing_was_seen() -> None:
    assert curve_of({1: 1.0, 2: 0.5}).mechanism == ""
    blind = make.outcome([1.0] * 5)._replace(threads=None, contention=None)
    records = [make.record(result=blind, threads=8, launch=n) for n in range(3)]
    assert curve_of({2: 0.5}, extra=records).mechanism == ""


def test_the_frameworks_default_is_named_where_its_adapter_tells_it() -> None:
    told = make.outcome([1.0] * 5)._replace(software={"default_threads": 2})
    records = [make.record(result=told, launch=n) for n in range(3)]
    found = curve_of({2: 0.5}, extra=records)
    assert found.default == 2
    assert found.advice.endswith("; the framework's default is 2")


def test_findings_name_what_gets_worse_and_what_gains() -> None:
    records = []
    for network, at_four in (("fcn5", 0.8), ("fcn8", 0.3), ("lstm32", 0.5)):
        for p, time in ((1, 1.0), (2, 0.5), (4, at_four)):
            records += [
                make.record([time * f] * 5, launch=n, threads=p, network=network)
                for n, f in enumerate((0.999, 1, 1.001))
            ]
    found = curves(build_matrix(Results(tuple(records), {make.MACHINE: HOST})))
    assert findings(found) == [
        f"two cores, four CPUs: past 2 threads, one for each physical core ({TESTED.format(3)}),",
        "  torch eager: gets worse on 1 of 3 networks: fcn5 1.60x at 4; gains on fcn8 0.60x at 4; "
        "shows no clear difference on lstm32 b64",
    ]


def test_other_devices_have_no_curve() -> None:
    assert curves(build_matrix(Results((make.record(device="cuda:0"),), {make.MACHINE: HOST}))) == []


def test_cells_of_several_workers_are_in_no_curve_and_the_report_says_so() -> None:
    of_one = records_of({1: 1.0, 2: 0.5, 4: 0.8})
    of_two = records_of({1: 0.1, 2: 0.1, 3: 0.1}, world_size=2)
    matrix = build_matrix(Results((*of_one, *of_two), {make.MACHINE: HOST}))
    assert curves(matrix) == curves_of(of_one)
    (said,) = left_out(matrix)
    assert said.startswith("Not shown: 3 cells of several workers")
    assert left_out(build_matrix(Results(tuple(of_one)))) == []
    alone = build_matrix(Results(tuple(of_two), {make.MACHINE: HOST}))
    assert curves(alone) == []


def test_imported_benchmarks_without_a_thread_count_are_in_no_curve() -> None:
    record = make.record(framework="pytest-benchmark", mode="imported")
    matrix = build_matrix(Results((replace(record, cell=record.cell._replace(threads=0)),)))
    assert curves(matrix) == []
    assert left_out(matrix) == ["Not shown: 1 cell of which no thread count is known."]


def test_a_known_curve_is_recovered_from_noise() -> None:
    # Amdahl with a serial tenth up to two cores, then half as much again for each doubling: the best is 2.
    truth = {1: 1.0, 2: 0.55, 4: 0.825, 8: 1.24}
    random = np.random.default_rng(7)

    def launch(time: float) -> list[float]:
        steps = 0.02 * random.standard_normal() + 0.03 * random.standard_normal(10)
        return list(time * np.exp(steps))

    for _ in range(100):
        assert best_threads({p: summarise([launch(t) for _ in range(5)]) for p, t in truth.items()}) == 2


def test_waiting_that_the_best_shares_is_no_mechanism() -> None:
    quick, slow = observed(0.5, 2, waiting=1.0), observed(0.8, 4, waiting=1.0)
    records = [make.record(result=quick, threads=2, launch=n) for n in range(3)]
    records += [make.record(result=slow, threads=4, launch=n) for n in range(3)]
    assert "wait for a CPU" not in curve_of({}, extra=records).mechanism


def test_findings_past_all_cpus_follow_where_there_is_smt() -> None:
    found = curve_of({1: 1.0, 2: 0.5, 4: 0.4, 8: 1.2})
    assert findings([found]) == [
        f"two cores, four CPUs: past 2 threads, one for each physical core ({TESTED.format(3)}),",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 2.4x at 8",
        f"two cores, four CPUs: past 4 threads, one for each CPU it may use ({TESTED.format(3)}),",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 3.0x at 8",
    ]


def disturbed(p: int, seconds: float) -> list[Record]:
    """Three launches whose threads waited a third of the time, with CPUs enough for all of them."""
    other = make.contention(run_queue_seconds=p * 5 * seconds / 3)
    result = make.outcome([seconds] * 5, threads=make.threads(p, 5 * seconds, p * 2 / 3), contention=other)
    return [make.record(result=result, threads=p, launch=n) for n in range(3)]


def test_a_count_where_others_were_in_the_way_takes_no_part() -> None:
    found = curve_of({1: 1.0, 8: 1.5}, extra=disturbed(2, 0.3))
    assert found.best == 1
    assert found.advice == (
        "use 1 thread, the best of those not disturbed; a step takes 1.50x as long with 8; the measurement with 2 "
        "threads was disturbed and does not count: measure again on a quiet machine"
    )
    assert [point.calm for point in found.points] == [True, False, True]
    # It is still shown beside the best, but nothing is claimed from it: eight threads are held against one.
    assert found.points[1].penalty.value == pytest.approx(0.3, rel=1e-3)
    assert found.points[1].penalty.p_value is None
    assert found.points[2].past_cores.against == 1
    assert found.fits.threads == (1,)


def test_a_disturbed_count_past_the_cores_is_in_no_finding() -> None:
    found = curve_of({1: 1.0, 2: 0.5}, extra=disturbed(4, 5.0))
    assert found.points[2].past_cores is not None
    assert findings([found]) == []


def test_where_others_were_always_in_the_way_all_take_part_and_it_says_so() -> None:
    found = curve_of({}, extra=[*disturbed(1, 1.0), *disturbed(2, 0.6), *disturbed(4, 0.9)])
    assert found.best == 2
    assert found.advice.endswith(
        "; the measurements with 1, 2, 4 threads were disturbed: measure again on a quiet machine"
    )
    assert found.mechanism == ""


def test_a_count_past_the_cpus_does_not_win_because_nobody_could_be_seen_there() -> None:
    found = curve_of({8: 0.9}, extra=[*disturbed(1, 1.0), *disturbed(2, 0.6)])
    assert found.best == 2
    assert found.advice == (
        "use 2 threads; a step takes 1.67x as long with 1, 1.50x with 8; the measurements with 1, 2 threads were "
        "disturbed: measure again on a quiet machine"
    )
    assert findings([found])[1] == "  torch eager: gets worse on 1 of 1 networks: fcn5~ 1.50x at 8"


def test_the_counts_asked_for_are_the_capacities_and_their_doubles() -> None:
    assert named_counts(Host("", "", 16, 64, 64.0, logical_cpus=32)) == {16, 32, 64}
    assert named_counts(Host("", "", 2, 2, 2.0, logical_cpus=2)) == {2, 4, 32}
    assert named_counts(Host("", "")) == {32}


WIDE = Host(make.MACHINE, "eight cores", 8, 8, 8.0, logical_cpus=8)
LAW = {p: 0.5 * (1 + 0.05 * (p - 1) + 0.01 * p * (p - 1)) / p for p in (1, 2, 3, 4, 6, 8)}


def test_laws_are_fitted_to_the_bound_row_and_penalties_to_the_other() -> None:
    free = {**{p: 1.02 * t for p, t in LAW.items()}, 16: 0.9}
    bound, other = sorted(
        curves_of([*records_of(LAW, affinity=BOUND), *records_of(free)], WIDE), key=lambda each: not each.bound
    )
    assert (bound.name, other.name) == ("torch eager, bound", "torch eager")
    assert bound.fits.threads == tuple(LAW)
    assert bound.fits.chosen.law == "usl"
    assert other.fits is None
    assert all(p.past_cores is None and (p.penalty is None or p.penalty.p_value is None) for p in bound.points)
    assert [p.threads for p in other.points if p.penalty and p.penalty.p_adjusted is not None] == [16]
    assert other.points[-1].penalty.verdict == "worse"


def test_without_a_bound_row_the_counts_up_to_the_cpus_are_fitted() -> None:
    (found,) = curves_of(records_of({**LAW, 16: 5.0}), WIDE)
    assert found.fits.threads == tuple(LAW)
    assert found.fits.chosen is not None
    # Karp and Flatt's fraction is of p threads on p CPUs too.
    assert [p.serial_fraction is not None for p in found.points] == [False, True, True, True, True, True, False]


def with_settings(p: int, variables: Mapping[str, str], **software: Any) -> Record:
    result = make.outcome([1.0] * 5, p, software={"variables": dict(variables), **software})
    return make.record(result=result, threads=p)


def test_wait_policies_are_whatever_was_set() -> None:
    passive = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2"}
    same = curve_of({}, extra=[with_settings(p, passive) for p in (1, 2)])
    assert wait_policies(same.points) == "OMP_WAIT_POLICY=passive"
    turns = curve_of(
        {}, extra=[with_settings(p, {}, allow_spinning=p <= 2, mode_settings={"spin": "auto"}) for p in (1, 2, 4)]
    )
    assert wait_policies(turns.points) == (
        "at 1, 2 spin=auto, allow_spinning=True; at 4 spin=auto, allow_spinning=False"
    )
    unset = curve_of({}, extra=[with_settings(1, {}), with_settings(2, {"GOMP_SPINCOUNT": "0"})])
    assert wait_policies(unset.points) == "at 1 nothing set; at 2 GOMP_SPINCOUNT=0"
    assert wait_policies(curve_of({}, extra=[with_settings(1, {})]).points) == ""
    assert wait_policies(curve_of({1: 1.0}).points) == ""
