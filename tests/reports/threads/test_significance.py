"""What noise can explain: costs, advice and findings of thread counts."""

from collections.abc import Mapping, Sequence

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from properties import examples
from records_of_threads import curve_of, curves_of, records_of

from dlbench.reports.cells import build_matrix
from dlbench.reports.statistics import holm, judge, ratio, summarise, welch
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results
from dlbench.reports.threads.advice import findings
from dlbench.reports.threads.words import FEW_LAUNCHES_LEGEND


def test_a_cost_that_noise_may_explain_is_called_so() -> None:
    found = curve_of({1: 1.0, 2: (0.40, 0.5, 0.6), 4: (0.45, 0.55, 0.65)})
    assert found.best == 2
    assert found.advice == (
        "use 2 threads; a step takes 2.0x as long with 1, 1.10x with 4; noise may explain the cost of 4"
    )


def test_more_threads_are_advised_only_where_they_are_clearly_faster() -> None:
    # Four threads have the lowest median; that they are faster than two, on two CPUs, noise may explain.
    two_cpus = Host(make.MACHINE, "two CPUs", 2, 2, 2.0, logical_cpus=2)
    found = curve_of({1: 1.44, 2: (1.00, 1.06, 1.12), 4: (0.94, 1.00, 1.06)}, two_cpus)
    assert found.best == 2
    assert found.advice == (
        "use 2 threads; a step takes 1.36x as long with 1; with 4 it took 0.94x as long (at best 0.83x), which noise "
        "may explain: about 17 launches of each would decide"
    )
    assert findings([found])[1].endswith("shows no clear difference on fcn5")
    assert curve_of({1: 1.44, 2: 1.06, 4: 0.9}, two_cpus).best == 4
    # Eight are clearly faster than two, four are not: then eight, not four, for sharing CPUs.
    uneven = {1: 2.0, 2: (0.99, 1.00, 1.01), 4: (0.85, 0.97, 1.10), 8: (0.89, 0.90, 0.91)}
    assert curve_of(uneven, two_cpus).best == 8
    # Where each thread has a CPU of its own there is nothing to share.
    assert curve_of(uneven, Host(make.MACHINE, "many CPUs", 16, 16, 16.0, logical_cpus=16)).best == 4


times_of_launches = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4)


several_counts = st.dictionaries(st.sampled_from([1, 2, 4, 8]), times_of_launches, min_size=1)


@examples(60)
@drawn(several_counts, several_counts, st.sampled_from([1, 2, 4, 8]))
def test_stars_advice_and_findings_cannot_contradict_one_another(
    times: dict[int, list[float]], others: dict[int, list[float]], cpus: int
) -> None:
    host = Host(make.MACHINE, "some CPUs", cpus, cpus, float(cpus), logical_cpus=cpus)
    records = [*records_of(times), *records_of(others, framework="mxnet")]
    for found in curves_of(records, host):
        points = {point.threads: point for point in found.points}
        best = points[found.best]
        if found.best > cpus:
            # More threads than CPUs are advised only with a finding that they gain.
            assert best.past_cpus is None or best.past_cpus.verdict == "better"
        fastest = min(found.points, key=lambda point: point.seconds.median if point.seconds else 0.0)
        assert fastest.penalty.verdict != "better"
        fewer = [point for point in found.points if point.threads < min(found.best, cpus + 1)]
        assert all(point.penalty and point.penalty.value > 1 for point in fewer)
    # A star means, by the same rule, that no framework with as many threads is clearly faster.
    cells = build_matrix(Results(tuple(records), {make.MACHINE: host})).cells.values()
    for threads in {*times, *others}:
        column = [cell for cell in cells if cell.column.threads == threads]
        least = min(column, key=lambda cell: cell.seconds.median)
        for cell in column:
            slower = judge(ratio(cell.seconds, least.seconds)) == "worse"
            assert cell.best is (not slower and len(column) > 1)


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
                assert point.penalty.family == 3
                assert point.penalty.p_adjusted == pytest.approx(expected[each.group.network, point.threads])
                assert point.past_cores.p_adjusted == point.penalty.p_adjusted


def test_what_one_comparison_shows_many_may_not() -> None:
    # 1.06x with p about 0.02 where it is the only comparison; not among twenty.
    noisy: dict[int, float | Sequence[float]] = {2: (0.49, 0.50, 0.51), 4: (0.52, 0.53, 0.54)}
    two_cores = Host(make.MACHINE, "two cores", 2, 2, 2.0, logical_cpus=2)
    (alone,) = curves_of(records_of(noisy), two_cores)
    assert alone.points[1].past_cores.verdict == "worse"
    assert "gets worse on 1 of 1 networks" in findings([alone])[1]
    assert "noise may explain" not in alone.advice
    many = curves_of([r for b in range(1, 21) for r in records_of(noisy, batch_size=b)], two_cores)
    assert all(each.points[1].past_cores and each.points[1].past_cores.verdict != "worse" for each in many)
    assert "gets worse" not in " ".join(findings(many))
    assert all(each.advice.endswith("noise may explain the cost of 4") for each in many)


def test_with_too_few_launches_the_ratio_decides_and_is_said_to() -> None:
    found = curve_of({1: [1.0], 2: [0.5], 4: [0.8]})
    assert found.points[2].penalty.p_value is None
    assert findings([found]) == [
        "two cores, four CPUs: past 2 threads, one for each physical core (by the ratio of times, untested: fewer than "
        "3 launches),",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 1.60x at 4",
    ]


def test_where_only_some_were_tested_the_others_are_marked() -> None:
    found = curves_of([*records_of({2: 0.5, 4: 0.8}), *records_of({2: [0.5], 4: [0.8]}, network="fcn8")])
    head, said = findings(found)
    assert "untested: by the ratio's interval, fewer than 3 launches" in head
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
    assert penalty.family == 1
    # A real framework whose parity nobody checked still counts.
    unchecked = make.outcome([1.0] * 5, parity=make.parity("unchecked", "no reference"))
    (one,) = curves_of([make.record(result=unchecked)])
    assert one.computes
