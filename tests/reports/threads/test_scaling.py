import json as json_of_python
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import BOUND, Outcome, Status
from dlbench.reports.evidence.contrasts import holm, welch
from dlbench.reports.evidence.statistics import published, summarise
from dlbench.reports.formats import json, latex, markdown, terminal
from dlbench.reports.matrix.analysis import build_matrix
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.analysis import Curve, best_threads, curves, left_out
from dlbench.reports.threads.oversubscription import named_counts, wait_policies
from dlbench.reports.threads.words import FEW_LAUNCHES_LEGEND

HOST = Host(make.MACHINE, "two cores, four CPUs", 2, 4, 4.0, logical_cpus=4)
TESTED = "Welch's t, Holm-adjusted for {} comparisons, p < 0.05"


def records_of(times: Mapping[int, float | Sequence[float]], **of_cell: Any) -> list[Record]:
    """Launches with these times (three of each, one per cent apart, unless given)."""
    records = []
    for p, given in times.items():
        each = [0.99 * given, given, 1.01 * given] if isinstance(given, float) else given
        records += [make.record([t] * 5, launch=n, threads=p, **of_cell) for n, t in enumerate(each)]
    return records


def curves_of(records: Iterable[Record], host: Host = HOST) -> list[Curve]:
    return curves(build_matrix(Results(tuple(records), {make.MACHINE: host})))


def curve_of(times: Mapping[int, float | Sequence[float]], host: Host = HOST, extra: Sequence[Record] = ()) -> Curve:
    """The one curve of launches with these times."""
    (found,) = curves_of([*extra, *records_of(times)], host)
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
    assert said.startswith("Left out: 3 cells of several workers")
    assert left_out(build_matrix(Results(tuple(of_one)))) == []
    alone = build_matrix(Results(tuple(of_two), {make.MACHINE: HOST}))
    assert curves(alone) == []
    for export in (terminal.threads_to_terminal, markdown.threads_to_markdown, latex.threads_to_latex):
        for found in (matrix, alone):
            assert "of several workers" in " ".join(export(curves(found), notes=left_out(found)).split())
    assert json_of_python.loads(json.threads_to_json(curves(matrix), left_out(matrix)))["notes"] == [said]


def test_imported_benchmarks_without_a_thread_count_are_in_no_curve() -> None:
    matrix = build_matrix(Results((make.record(threads=0, framework="pytest-benchmark", mode="imported"),)))
    assert curves(matrix) == []
    assert left_out(matrix) == ["Left out: 1 cell of which no thread count is known."]


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
    found = curve_of({1: 1.0, 2: (0.40, 0.5, 0.6), 4: (0.45, 0.55, 0.65)})
    assert found.best == 2
    assert found.advice == "use 2 threads; 1 costs 2.0x, 4 cost 1.10x; noise may explain the cost of 4"


def test_more_threads_are_advised_only_where_they_are_clearly_faster() -> None:
    # Four threads have the lowest median; that they are faster than two, on two CPUs, noise may explain.
    two_cpus = Host(make.MACHINE, "two CPUs", 2, 2, 2.0, logical_cpus=2)
    found = curve_of({1: 1.44, 2: (1.00, 1.06, 1.12), 4: (0.94, 1.00, 1.06)}, two_cpus)
    assert found.best == 2
    assert found.advice == (
        "use 2 threads; 1 costs 1.36x, 4 cost 0.94x; 4 may be faster, by up to 17%: to decide takes about 17 launches "
        "of each"
    )
    assert findings([found])[1].endswith("shows no clear difference on fcn5")
    assert curve_of({1: 1.44, 2: 1.06, 4: 0.9}, two_cpus).best == 4
    # Eight are clearly faster than two, four are not: then eight, not four, for sharing CPUs.
    uneven = {1: 2.0, 2: (0.99, 1.00, 1.01), 4: (0.85, 0.97, 1.10), 8: (0.89, 0.90, 0.91)}
    assert curve_of(uneven, two_cpus).best == 8
    # Where each thread has a CPU of its own there is nothing to share.
    assert curve_of(uneven, Host(make.MACHINE, "many CPUs", 16, 16, 16.0, logical_cpus=16)).best == 4


times_of_launches = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4)


@examples(60)
@drawn(st.dictionaries(st.sampled_from([1, 2, 4, 8]), times_of_launches, min_size=1), st.sampled_from([1, 2, 4, 8]))
def test_stars_advice_and_findings_cannot_contradict_one_another(times: dict[int, list[float]], cpus: int) -> None:
    found = curve_of(times, Host(make.MACHINE, "some CPUs", cpus, cpus, float(cpus), logical_cpus=cpus))
    points = {point.threads: point for point in found.points}
    assert found.best is not None
    best = points[found.best]
    if found.best > cpus:
        # More threads than CPUs are advised only with a finding that they gain.
        assert best.past_cpus is None or best.past_cpus.verdict == "better"
    fastest = min(found.points, key=lambda point: point.seconds.median if point.seconds else 0.0)
    assert fastest.penalty is not None
    assert fastest.penalty.verdict != "better"
    fewer = [point for point in found.points if point.threads < min(found.best, cpus + 1)]
    assert all(point.penalty and point.penalty.value > 1 for point in fewer)


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
        "use 1 thread, the best of those not disturbed; 8 cost 1.50x; the measurement with 2 threads was disturbed and "
        "is left out: measure again on a quiet machine"
    )
    assert [point.calm for point in found.points] == [True, False, True]
    # It is still shown beside the best, but nothing is claimed from it: eight threads are held against one.
    assert found.points[1].penalty is not None
    assert found.points[1].penalty.value == pytest.approx(0.3, rel=1e-3)
    assert found.points[1].penalty.p_value is None
    assert found.points[2].past_cores is not None
    assert found.points[2].past_cores.against == 1
    assert found.fits is not None
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
        "use 2 threads; 1 costs 1.67x, 8 cost 1.50x; the measurements with 1, 2 threads were disturbed: "
        "measure again on a quiet machine"
    )
    assert findings([found])[1] == "  torch eager: gets worse on 1 of 1 networks: fcn5~ 1.50x at 8"


def test_the_counts_asked_for_are_the_capacities_and_their_doubles() -> None:
    assert named_counts(Host("", "", 16, 64, 64.0, logical_cpus=32)) == {16, 32, 64}
    assert named_counts(Host("", "", 2, 2, 2.0, logical_cpus=2)) == {2, 4, 32}
    assert named_counts(Host("", "")) == {32}


def test_penalties_are_adjusted_for_all_comparisons_of_the_report() -> None:
    random = np.random.default_rng(5)
    times_of = {"fcn5": {1: 1.0, 2: 0.5, 4: 0.52}, "fcn8": {1: 1.0, 2: 0.5, 4: 0.55, 8: 0.6}}
    noisy = {
        name: {p: [t * f for f in np.exp(0.02 * random.standard_normal(3))] for p, t in times.items()}
        for name, times in times_of.items()
    }
    found = curves_of([r for name, times in noisy.items() for r in records_of(times, network=name)])
    # By hand, best and fastest within the cores and within the CPUs being 2 threads: 4 for fcn5; 4 and 8 for fcn8.
    raw = {
        (name, p): welch(summarise([[t] for t in times[p]]), summarise([[t] for t in times[2]]))
        for name, times in noisy.items()
        for p in times
        if p > 2
    }
    assert [each.best for each in found] == [2, 2]
    values = [value for value in raw.values() if value is not None]
    expected = dict(zip(raw, holm(values), strict=True))
    for each in found:
        for point in each.points:
            if point.threads > 2:
                assert point.penalty is not None
                assert point.penalty.family == 3
                assert point.penalty.p_adjusted == pytest.approx(expected[each.group.network, point.threads])
                assert point.past_cores is not None
                assert point.past_cores.p_adjusted == point.penalty.p_adjusted


def test_what_one_comparison_shows_many_may_not() -> None:
    # 1.06x with p about 0.02 where it is the only comparison; not among twenty.
    noisy: dict[int, float | Sequence[float]] = {2: (0.49, 0.50, 0.51), 4: (0.52, 0.53, 0.54)}
    two_cores = Host(make.MACHINE, "two cores", 2, 2, 2.0, logical_cpus=2)
    (alone,) = curves_of(records_of(noisy), two_cores)
    assert alone.points[1].past_cores is not None
    assert alone.points[1].past_cores.verdict == "worse"
    assert "gets worse on 1 of 1 networks" in findings([alone])[1]
    assert "noise may explain" not in alone.advice
    many = curves_of([r for b in range(1, 21) for r in records_of(noisy, batch_size=b)], two_cores)
    assert all(each.points[1].past_cores and each.points[1].past_cores.verdict != "worse" for each in many)
    assert "gets worse" not in " ".join(findings(many))
    assert all(each.advice.endswith("noise may explain the cost of 4") for each in many)


def test_with_too_few_launches_the_ratio_decides_and_is_said_to() -> None:
    found = curve_of({1: [1.0], 2: [0.5], 4: [0.8]})
    assert found.points[2].penalty is not None
    assert found.points[2].penalty.p_value is None
    assert findings([found]) == [
        "two cores, four CPUs: past 2 threads, one for each physical core (by the ratio of times, untested: fewer than "
        "3 launches),",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 1.60x at 4",
    ]


def test_where_only_some_were_tested_the_others_are_marked() -> None:
    found = curves_of([*records_of({2: 0.5, 4: 0.8}), *records_of({2: [0.5], 4: [0.8]}, network="fcn8")])
    head, said = findings(found)
    assert "untested: by the ratio alone, fewer than 3 launches" in head
    assert "such a count has no p-value" in FEW_LAUNCHES_LEGEND
    assert "fcn5 1.60x at 4, fcn8 1.60x at 4 (untested)" in said


def waiting_only(times: Mapping[int, float]) -> list[Record]:
    """Launches of a framework without parameters, whose parity nobody could check."""
    found = []
    for p, seconds in times.items():
        result = make.outcome(
            [seconds] * 5, p, parity=make.parity("unchecked", "computes nothing"), parameter_count=None
        )
        found += [make.record(result=result, threads=p, launch=n, framework="idle", mode="idle") for n in range(3)]
    return found


def test_what_computes_nothing_is_in_no_finding_and_costs_no_significance() -> None:
    idle, real = waiting_only({1: 1.0, 2: 0.5, 4: 3.0}), records_of({1: 1.0, 2: 0.5, 4: 0.8})
    found = {each.row.framework: each for each in curves_of([*idle, *real])}
    assert not found["idle"].computes
    assert found["torch"].computes
    assert "idle" not in " ".join(findings(list(found.values())))
    assert findings([found["idle"]]) == []
    penalty = found["torch"].points[2].penalty
    assert penalty is not None
    assert penalty.family == 1
    # A real framework whose parity nobody checked still counts.
    unchecked = make.outcome([1.0] * 5, parity=make.parity("unchecked", "no reference"))
    (one,) = curves_of([make.record(result=unchecked)])
    assert one.computes


WIDE = Host(make.MACHINE, "eight cores", 8, 8, 8.0, logical_cpus=8)
LAW = {p: 0.5 * (1 + 0.05 * (p - 1) + 0.01 * p * (p - 1)) / p for p in (1, 2, 3, 4, 6, 8)}


def test_laws_are_fitted_to_the_bound_row_and_penalties_to_the_other() -> None:
    free = {**{p: 1.02 * t for p, t in LAW.items()}, 16: 0.9}
    bound, other = sorted(
        curves_of([*records_of(LAW, affinity=BOUND), *records_of(free)], WIDE), key=lambda each: not each.bound
    )
    assert (bound.name, other.name) == ("torch eager, bound", "torch eager")
    assert bound.fits is not None
    assert bound.fits.threads == tuple(LAW)
    assert bound.fits.chosen is not None
    assert bound.fits.chosen.law == "usl"
    assert other.fits is None
    assert all(p.past_cores is None and (p.penalty is None or p.penalty.p_value is None) for p in bound.points)
    assert [p.threads for p in other.points if p.penalty and p.penalty.p_adjusted is not None] == [16]
    assert other.points[-1].penalty is not None
    assert other.points[-1].penalty.verdict == "worse"


def test_without_a_bound_row_the_counts_up_to_the_cpus_are_fitted() -> None:
    (found,) = curves_of(records_of({**LAW, 16: 5.0}), WIDE)
    assert found.fits is not None
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
