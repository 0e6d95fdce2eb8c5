from collections.abc import Mapping, Sequence

import factory_of_records as make
import numpy as np
import pytest

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.hosts import Host
from dlbench.reports.matrix import build_matrix
from dlbench.reports.record import Record
from dlbench.reports.results import Results
from dlbench.reports.scaling import Curve, best_threads, curves, findings, is_worse
from dlbench.reports.statistics import Ratio, published, summarise

HOST = Host(make.MACHINE, "two cores, four CPUs", 2, 4, 4.0)


def curve_of(times: Mapping[int, float | Sequence[float]], host: Host = HOST, extra: Sequence[Record] = ()) -> Curve:
    """The curve of launches with these times (of three launches, one per cent apart, unless given)."""
    records = list(extra)
    for p, given in times.items():
        each = [0.99 * given, given, 1.01 * given] if isinstance(given, float) else given
        records += [make.record([t] * 5, launch=n, threads=p) for n, t in enumerate(each)]
    (found,) = curves(build_matrix(Results(tuple(records), {make.MACHINE: host})))
    return found


def test_a_curve_by_hand() -> None:
    found = curve_of({1: 1.0, 2: 0.5, 4: 0.8, 8: 1.5})
    assert found.best == 2
    assert found.advice == "use 2 threads; 1 costs 2.0x, 4 cost 1.60x, 8 cost 3.0x"
    assert [p.speedup for p in found.points] == pytest.approx([1.0, 2.0, 1.25, 1 / 1.5])
    assert [p.efficiency for p in found.points] == pytest.approx([1.0, 1.0, 1.25 / 4, 1 / 12])
    assert [p.past_cores and round(p.past_cores.value, 3) for p in found.points] == [None, None, 1.6, 3.0]
    assert [p.past_cpus and round(p.past_cpus.value, 3) for p in found.points] == [None, None, None, 3.0]
    penalty = found.points[2].penalty
    assert penalty is not None
    assert penalty.low is not None
    assert penalty.high is not None
    assert 1.5 < penalty.low < 1.6 < penalty.high < 1.7


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
    assert found.advice == "use 2 threads; 1 costs 2.0x"


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


def test_worse_needs_more_than_noise() -> None:
    assert is_worse(Ratio(1.1, 1.01, 1.2, ""))
    assert not is_worse(Ratio(1.1, 0.99, 1.2, ""))
    assert not is_worse(Ratio(1.01, 1.005, 1.015, ""))
    assert is_worse(Ratio(1.1, None, None, ""))
    assert not is_worse(None)


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
        "two cores, four CPUs: past 2 threads, one for each physical core,",
        "  torch eager: gets worse on 1 of 3 networks: fcn5 1.60x at 4; gains on fcn8 0.60x at 4; "
        "shows no clear difference on lstm32 b64",
    ]


def test_other_devices_have_no_curve() -> None:
    assert curves(build_matrix(Results((make.record(device="cuda:0"),), {make.MACHINE: HOST}))) == []


def test_a_known_curve_is_recovered_from_noise() -> None:
    # Amdahl with a serial tenth up to two cores, then half as much again for each doubling: the best is 2.
    truth = {1: 1.0, 2: 0.55, 4: 0.825, 8: 1.24}
    random = np.random.default_rng(7)

    def launch(time: float) -> list[float]:
        steps = 0.02 * random.standard_normal() + 0.03 * random.standard_normal(10)
        return list(time * np.exp(steps))

    for _ in range(100):
        assert best_threads({p: summarise([launch(t) for _ in range(5)]) for p, t in truth.items()}) == 2


def test_a_cost_that_noise_may_explain_is_called_so() -> None:
    found = curve_of({1: (0.3, 0.7, 0.9), 2: (0.40, 0.5, 0.6), 4: 1.5})
    assert found.best == 2
    assert found.advice.endswith("; noise may explain the cost of 1")


def test_waiting_that_the_best_shares_is_no_mechanism() -> None:
    quick, slow = observed(0.5, 2, waiting=1.0), observed(0.8, 4, waiting=1.0)
    records = [make.record(result=quick, threads=2, launch=n) for n in range(3)]
    records += [make.record(result=slow, threads=4, launch=n) for n in range(3)]
    assert "wait for a CPU" not in curve_of({}, extra=records).mechanism


def test_findings_past_all_cpus_follow_where_there_is_smt() -> None:
    found = curve_of({1: 1.0, 2: 0.5, 4: 0.4, 8: 1.2})
    assert findings([found]) == [
        "two cores, four CPUs: past 2 threads, one for each physical core,",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 2.4x at 8",
        "two cores, four CPUs: past 4 threads, one for each CPU it may use,",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 3.0x at 8",
    ]


def test_advice_from_a_busy_machine_says_so_and_blames_no_mechanism() -> None:
    half = make.threads(1, 2.5, 0.5)
    disturbed = make.outcome([0.5] * 5, threads=half, contention=make.contention(run_queue_seconds=1.25))
    records = [make.record(result=disturbed, threads=1, launch=n) for n in range(3)]
    records += [make.record(result=observed(0.9, 8, waiting=6.0), threads=8, launch=n) for n in range(3)]
    found = curve_of({}, extra=records)
    assert found.advice == ("use 1 thread; 8 cost 1.80x; others were in the way at 1: measure again on a quiet machine")
    assert found.mechanism == ""
