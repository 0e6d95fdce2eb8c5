"""Threads: the count to use, its rivals, the disturbed ones, and what noise can explain of costs
and findings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
from exported import texts
from hypothesis import given as drawn
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import BOUND, Status
from dlbench.reports.curve.curve import Curve, CurvePoint, Curves
from dlbench.reports.curve.threads import (
    PAST_CORES,
    PAST_CPUS,
    REPORT,
    advice,
    bound,
    computes,
    curve_name,
    drawn_curves,
    findings,
    headline,
    mechanism,
    threads,
    wait_policies,
)
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import RatioVerdict, holm, summarise, welch

HOST = Host(make.MACHINE, "two cores, four CPUs", 2, 4, 4.0, logical_cpus=4)
TESTED = "Welch's t, Holm-adjusted for {} comparisons, p < 0.05"


def records_of(times: Mapping[int, float | Sequence[float]], **axes: Any) -> list[Record]:
    """Launches with these times (three of each, one per cent apart, unless given)."""
    records = []
    for count, seconds in times.items():
        records += make.launches(seconds, threads=count, **axes)
    return records


def content_of(records: Iterable[Record], host: Host = HOST) -> Curves:
    return threads(build_matrix(Results(tuple(records), {make.MACHINE: host})))


def curves_of(records: Iterable[Record], host: Host = HOST) -> list[Curve]:
    return list(content_of(records, host).curves)


def best(curve: Curve) -> int | None:
    return curve.findings.best_threads


def values(curve: Curve, name: str) -> list[Any]:
    """One of the findings about each of the points."""
    return [getattr(point.findings, name) for point in curve.points]


def penalty(point: CurvePoint) -> Any:
    return point.findings.penalty


def curve_of(
    times: Mapping[int, float | Sequence[float]], host: Host = HOST, extra: Sequence[Record] = ()
) -> Curve:
    """The one curve of launches with these times."""
    (curve,) = curves_of([*extra, *records_of(times)], host)
    return curve


def test_counts_that_cannot_be_used_are_named_and_no_other_is_recommended_instead() -> None:
    """With two threads it is faster, but more than two worked: the remaining count is not the best
    by default."""
    greedy = make.outcome([0.1] * 5)._replace(threads=make.threads(2, 0.5, 8.0))
    curve = curve_of({1: 1.0}, extra=[make.record(result=greedy, threads=2)])
    assert best(curve) is None
    assert mechanism(curve) == ""
    assert advice(curve) == (
        "no advice: only 1 thread can be used; 2 threads left out: more threads worked than were "
        "asked for (>)"
    )
    alone = curve_of({}, extra=[make.record(result=greedy, threads=2)])
    assert (
        advice(alone)
        == "no advice: 2 threads left out: more threads worked than were asked for (>)"
    )


TWO_CPUS = Host(make.MACHINE, "two CPUs", 2, 2, 2.0, logical_cpus=2)


def test_a_curve_by_hand() -> None:
    curve = curve_of({1: 1.0, 2: 0.5, 4: 0.8, 8: 1.5})
    assert best(curve) == 2
    assert (
        advice(curve)
        == "use 2 threads; a step takes 2.0x as long with 1, 1.60x with 4, 3.0x with 8"
    )
    assert values(curve, "speedup") == pytest.approx([1.0, 2.0, 1.25, 1 / 1.5])
    assert values(curve, "efficiency") == pytest.approx([1.0, 1.0, 1.25 / 4, 1 / 12])
    assert [past and round(past.value, 3) for past in values(curve, PAST_CORES)] == [
        None,
        None,
        1.6,
        3.0,
    ]
    assert [past and round(past.value, 3) for past in values(curve, PAST_CPUS)] == [
        None,
        None,
        None,
        3.0,
    ]
    interval = penalty(curve.points[2]).ratio
    assert 1.5 < interval.low < 1.6 < interval.high < 1.7


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({1: 1.0, 2: 0.505, 4: 0.5}, 2),  # fewer threads win a tie
        ({1: 1.0, 2: 0.55, 4: 0.5}, 4),
        # 4 % apart: noise may explain it, and the faster estimate is advised all the same.
        ({2: (0.50, 0.52, 0.54), 4: (0.48, 0.50, 0.52)}, 4),
        ({2: (0.5200, 0.5201, 0.5202), 4: (0.5000, 0.5001, 0.5002)}, 4),
        ({}, None),
    ],
)
def test_the_best_is_the_smallest_that_takes_no_longer(
    times: dict[int, Any], expected: int | None
) -> None:
    crash = [make.hole(Status.CRASHED, "signal 11", threads=16)]
    curve = curve_of(times, extra=crash)
    assert best(curve) == expected
    assert advice(curve).startswith("no advice: 16 threads without a number") is (expected is None)


def test_more_threads_than_cpus_are_advised_only_where_they_are_clearly_faster() -> None:
    # Four threads have the lowest median; that they are faster than two, on two CPUs, noise may
    # explain.
    curve = curve_of({1: 1.44, 2: (1.00, 1.06, 1.12), 4: (0.94, 1.00, 1.06)}, TWO_CPUS)
    assert best(curve) == 2
    assert advice(curve) == (
        "use 2 threads; a step takes 1.36x as long with 1; with 4 it took 0.94x as long (at best "
        "0.83x), within noise; about 17 launches of each would settle it"
    )
    assert findings([curve])[1].endswith("shows no clear difference on fcn5")
    assert best(curve_of({1: 1.44, 2: 1.06, 4: 0.9}, TWO_CPUS)) == 4
    # Eight are clearly faster than two, four are not: then eight, not four, for sharing CPUs.
    uneven = {1: 2.0, 2: (0.99, 1.00, 1.01), 4: (0.85, 0.97, 1.10), 8: (0.89, 0.90, 0.91)}
    assert best(curve_of(uneven, TWO_CPUS)) == 8
    # Where each thread has a CPU of its own there is nothing to share.
    assert (
        best(curve_of(uneven, Host(make.MACHINE, "many CPUs", 16, 16, 16.0, logical_cpus=16))) == 8
    )


def test_where_noise_leaves_it_open_the_faster_estimate_is_advised_and_the_doubt_is_said() -> None:
    curve = curve_of({1: (0.4, 1.0, 2.5), 2: (0.2, 0.48, 1.2)})
    assert best(curve) == 2
    assert (
        advice(curve)
        == "use 2 threads; a step takes 2.1x as long with 1; noise may explain the cost of 1"
    )
    three = curve_of({1: 2.0, 2: (0.50, 0.52, 0.54), 4: (0.48, 0.50, 0.52)})
    assert advice(three) == (
        "use 4 threads; a step takes 4.0x as long with 1, 1.04x with 2; noise may explain the cost "
        "of 2"
    )


def test_unusable_cells_take_no_part_but_are_shown() -> None:
    wrong = make.outcome([0.1] * 5)._replace(
        parity=make.parity("disagrees"), status=Status.PARITY_FAILED
    )
    greedy = make.outcome([0.1] * 5)._replace(threads=make.threads(4, 0.5, 8.0))
    default = make.outcome([0.5] * 5)._replace(software={"default_threads": 2})
    extra = [make.record(result=wrong, threads=3), make.record(result=greedy, threads=4)]
    extra += [
        make.hole(Status.TIMED_OUT, "10 s", threads=8),
        make.record(result=default, threads=2),
    ]
    curve = curve_of({1: 1.0}, extra=extra)
    assert [point.cell.status.value for point in curve.points] == [
        "ok",
        "ok",
        "parity_failed",
        "ok",
        "timed_out",
    ]
    assert [point.at for point in curve.timed] == [1, 2]
    assert advice(curve) == (
        "use 2 threads; a step takes 2.0x as long with 1; 4 threads left out: more threads worked "
        "than were asked for (>); the framework's default is 2"
    )
    (table,) = REPORT.page(content_of([*extra, *records_of({1: 1.0})]), ReportOptions()).tables
    assert "8 threads: timeout, 10 s." in table.notes
    assert any(
        note.startswith("4 threads: 8.0 runnable threads on average, 4 requested")
        for note in table.notes
    )
    assert advice(curve_of({2: 1.0})) == "only 2 threads timed: nothing to compare"


def test_cells_that_are_left_out_are_counted() -> None:
    one_worker = records_of({1: 1.0, 2: 0.5, 4: 0.8})
    two_workers = records_of({1: 0.1, 2: 0.1, 3: 0.1}, world_size=2)
    unknown = make.record(framework="pytest-benchmark", mode="imported")
    unknown = replace(unknown, cell=unknown.cell._replace(threads=0))
    content = content_of([*one_worker, *two_workers, unknown, make.record(device="cuda:0")])
    assert list(content.curves) == curves_of(one_worker)
    assert content.notes[0].startswith("Not shown: 3 cells of several workers")
    assert content.notes[1] == "Not shown: 1 cell for which no thread count was set."
    assert content_of(one_worker).notes == ()


# Why more threads are slower, and how threads wait.


def observed(
    seconds: float, p: int, waiting: float = 0.0, throttled: float = 0.0, switches: int = 0
) -> Outcome:
    wall = 5 * seconds
    threads = make.threads(p, wall, min(p, 2))
    contention = make.contention(
        run_queue_seconds=waiting * wall,
        throttled_seconds=throttled * wall,
        involuntary_switches=switches,
    )
    return make.outcome([seconds] * 5, threads=threads, contention=contention)


def pair(quick: Outcome, slow: Outcome, p: int) -> Curve:
    records = [make.record(result=quick, threads=2, launch=n) for n in range(3)]
    return curve_of(
        {}, extra=[*records, *(make.record(result=slow, threads=p, launch=n) for n in range(3))]
    )


def test_the_mechanism_follows_from_the_evidence() -> None:
    curve = pair(observed(0.5, 2), observed(1.5, 8, waiting=6.0, throttled=0.3, switches=5000), 8)
    assert mechanism(curve) == (
        "at 8 threads the CPU quota throttles it 30% of the time; 6.0 of 8 threads wait for a CPU "
        "at any moment; a step costs 3.0x the CPU seconds (spinning, synchronising, cold caches); "
        "1000 involuntary switches a step"
    )
    # Waiting that the best shares explains nothing; nor is there a mechanism without evidence, or
    # nothing is worse.
    shared = pair(observed(0.5, 2, waiting=1.0), observed(0.8, 4, waiting=1.0), 4)
    assert "wait for a CPU" not in mechanism(shared)
    assert mechanism(curve_of({1: 1.0, 2: 0.5})) == ""
    blind = make.outcome([1.0] * 5)._replace(threads=None, contention=None)
    assert mechanism(pair(observed(0.5, 2), blind, 8)) == ""


def with_settings(p: int, variables: Mapping[str, str]) -> Record:
    return make.record(
        result=make.outcome([1.0] * 5, p, software={"variables": dict(variables)}), threads=p
    )


@pytest.mark.parametrize(
    ("extra", "policies"),
    [
        (
            [with_settings(p, {"OMP_WAIT_POLICY": "passive", "LANG": "C"}) for p in (1, 2)],
            "OMP_WAIT_POLICY=passive",
        ),
        (
            [with_settings(1, {}), with_settings(2, {"GOMP_SPINCOUNT": "0"})],
            "at 1 nothing set; at 2 GOMP_SPINCOUNT=0",
        ),
    ],
)
def test_wait_policies_are_whatever_was_set(extra: list[Record], policies: str) -> None:
    assert wait_policies(curve_of({}, extra=extra).points) == policies


# Findings.


def test_findings_name_workloads_that_get_worse_and_that_gain() -> None:
    times = {"fcn5": 0.8, "fcn8": 0.3, "lstm32": 0.5}
    records = [
        r
        for name, four in times.items()
        for r in records_of({1: 1.0, 2: 0.5, 4: four}, network=name)
    ]
    failing = make.hole(Status.CRASHED, "signal 11", threads=4, network="alexnet")
    curves = curves_of([*records, failing, *records_of({2: 0.5}, network="alexnet")])
    assert findings(curves) == [
        f"two cores, four CPUs: past 2 threads, one for each physical core ({TESTED.format(3)}),",
        "  torch eager: gets worse on 1 of 3 networks: fcn5 1.60x at 4; gains on fcn8 0.60x at 4; "
        "shows no clear difference on lstm32 b64; fails on alexnet b64 (crashed at 4)",
    ]
    (sentence,) = headline(curves)
    assert sentence.startswith(
        "two cores, four CPUs: more threads than its 2 cores cost time on 1 of 3 rows, most on fcn5"
    )


def test_findings_past_all_cpus_follow_where_there_is_smt() -> None:
    curve = curve_of({1: 1.0, 2: 0.5, 4: 0.4, 8: 1.2})
    assert findings([curve]) == [
        f"two cores, four CPUs: past 2 threads, one for each physical core ({TESTED.format(3)}),",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 2.4x at 8",
        f"two cores, four CPUs: past 4 threads, one for each CPU it may use ({TESTED.format(3)}),",
        "  torch eager: gets worse on 1 of 1 networks: fcn5 3.0x at 8",
    ]
    assert findings([curve_of({1: 1.0, 8: 2.0}, Host(make.MACHINE, "unknown"))]) == []


def disturbed(p: int, seconds: float) -> list[Record]:
    """Three launches whose threads waited a third of the time, with CPUs enough for all of them."""
    contention = make.contention(run_queue_seconds=p * 5 * seconds / 3)
    result = make.outcome(
        [seconds] * 5, threads=make.threads(p, 5 * seconds, p * 2 / 3), contention=contention
    )
    return [make.record(result=result, threads=p, launch=n) for n in range(3)]


def test_a_disturbed_count_takes_no_part() -> None:
    curve = curve_of({1: 1.0, 8: 1.5}, extra=disturbed(2, 0.3))
    assert best(curve) == 1
    assert advice(curve) == (
        "use 1 thread, the best of those not disturbed; a step takes 1.50x as long with 8; "
        "disturbed with 2 (not counted): measure again on a quiet machine"
    )
    assert [point.takes_part for point in curve.points] == [True, False, True]
    # It is still shown beside the best, but without any claim: eight threads are compared with one.
    assert penalty(curve.points[1]).value == pytest.approx(0.3, rel=1e-3)
    assert penalty(curve.points[1]).p_value is None
    assert curve.points[2].findings.past_physical_cores.against == 1
    assert curve.findings.fits.fitted_threads == (1,)
    assert findings([curve_of({1: 1.0, 2: 0.5}, extra=disturbed(4, 5.0))]) == []


def test_if_all_counts_were_disturbed_none_past_the_cpus_wins_by_that() -> None:
    curve = curve_of({8: 0.9}, extra=[*disturbed(1, 1.0), *disturbed(2, 0.6)])
    assert best(curve) == 2
    assert advice(curve) == (
        "use 2 threads; a step takes 1.67x as long with 1, 1.50x with 8; disturbed with 1, 2: "
        "measure again on a quiet machine"
    )
    assert findings([curve])[1] == "  torch eager: gets worse on 1 of 1 networks: fcn5~ 1.50x at 8"
    assert mechanism(curve) == ""


WIDE = Host(make.MACHINE, "eight cores", 8, 8, 8.0, logical_cpus=8)
LAW = {p: 0.5 * (1 + 0.05 * (p - 1) + 0.01 * p * (p - 1)) / p for p in (1, 2, 3, 4, 6, 8)}


def test_laws_are_fitted_to_the_bound_row_and_penalties_to_the_other() -> None:
    free = {**{p: 1.02 * t for p, t in LAW.items()}, 16: 0.9}
    curves = curves_of([*records_of(LAW, affinity=BOUND), *records_of(free)], WIDE)
    bound_curve, free_curve = sorted(curves, key=bound, reverse=True)
    assert (curve_name(bound_curve), curve_name(free_curve)) == (
        "torch eager, bound",
        "torch eager",
    )
    assert bound_curve.findings.fits.fitted_threads == tuple(LAW)
    assert bound_curve.findings.fits.chosen == "usl"
    assert free_curve.findings.fits is None
    for point in bound_curve.points:
        assert point.findings.past_physical_cores is None
        assert penalty(point).p_value is None
    assert [point.at for point in free_curve.points if penalty(point).p_adjusted is not None] == [
        16
    ]
    assert penalty(free_curve.points[-1]).verdict is RatioVerdict.SLOWER
    # Without a bound row the counts up to the CPUs are fitted, and have Karp and Flatt's fraction.
    (alone,) = curves_of(records_of({**LAW, 16: 5.0}), WIDE)
    assert alone.findings.fits.fitted_threads == tuple(LAW)
    assert alone.findings.fits.law is not None
    assert [fraction is not None for fraction in values(alone, "serial_fraction")] == [
        False,
        *[True] * 5,
        False,
    ]


# What noise can explain.


several_counts = st.dictionaries(
    st.sampled_from([1, 2, 4, 8]), st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4), min_size=1
)


@examples(60)
@drawn(several_counts, st.sampled_from([1, 2, 4, 8]))
def test_advice_and_findings_cannot_contradict_one_another(
    times: dict[int, list[float]], cpus: int
) -> None:
    curve = curve_of(
        times, Host(make.MACHINE, "some CPUs", cpus, cpus, float(cpus), logical_cpus=cpus)
    )
    (past,) = (
        point.findings.past_effective_cpus for point in curve.points if point.at == best(curve)
    )
    # More threads than CPUs are advised only with a finding that they gain.
    assert best(curve) <= cpus or past is None or past.verdict is RatioVerdict.FASTER
    fastest = min(curve.points, key=lambda point: point.seconds.median)
    assert penalty(fastest).verdict is not RatioVerdict.FASTER
    assert all(
        penalty(point).value > 1 for point in curve.points if point.at < min(best(curve), cpus + 1)
    )


def test_penalties_are_adjusted_for_all_comparisons_of_the_report() -> None:
    random = np.random.default_rng(5)
    times_of = {"fcn5": {1: 1.0, 2: 0.5, 4: 0.52}, "fcn8": {1: 1.0, 2: 0.5, 4: 0.55, 8: 0.6}}
    noisy: dict[str, dict[int, list[float]]] = {}
    records = []
    for name, times in times_of.items():
        noisy[name] = {}
        for p, seconds in times.items():
            noisy[name][p] = list(seconds * np.exp(0.02 * random.standard_normal(3)))
        records += records_of(noisy[name], network=name)
    curves = curves_of(records)
    # By hand, best and fastest within the cores and within the CPUs being 2 threads: 4 for fcn5; 4
    # and 8 for fcn8.
    raw = {}
    for name, launches in noisy.items():
        summaries = {p: summarise([[t] for t in seconds]) for p, seconds in launches.items()}
        for p in launches:
            if p > 2:
                raw[name, p] = welch(summaries[p], summaries[2])
    assert [best(curve) for curve in curves] == [2, 2]
    p_values = [value for value in raw.values() if value is not None]
    expected = dict(zip(raw, holm(p_values), strict=True))
    for curve in curves:
        for point in curve.points:
            if point.at > 2:
                assert penalty(point).family == 3
                assert penalty(point).p_adjusted == pytest.approx(
                    expected[curve.cell.network, point.at]
                )
                past = point.findings.past_physical_cores
                assert past.p_adjusted == penalty(point).p_adjusted


def test_with_too_few_launches_the_ratio_decides_and_is_said_to() -> None:
    few = curve_of({1: [1.0], 2: [0.5], 4: [0.8]})
    assert penalty(few.points[2]).p_value is None
    assert findings([few]) == [
        (
            "two cores, four CPUs: past 2 threads, one for each physical core (by the ratio of "
            "times, untested: fewer than 3 launches),"
        ),
        "  torch eager: gets worse on 1 of 1 networks: fcn5 1.60x at 4",
    ]
    curves = curves_of(
        [*records_of({2: 0.5, 4: 0.8}), *records_of({2: [0.5], 4: [0.8]}, network="fcn8")]
    )
    head, sentence = findings(curves)
    assert "untested: by the ratio's interval, fewer than 3 launches" in head
    assert "fcn5 1.60x at 4, fcn8 1.60x at 4 (untested)" in sentence


def test_a_framework_that_computes_nothing_is_in_no_finding_and_costs_no_significance() -> None:
    idle = []
    for p, seconds in {1: 1.0, 2: 0.5, 4: 3.0}.items():
        parity = make.parity("unchecked", "computes nothing")
        result = make.outcome([seconds] * 5, p, parity=parity, parameter_count=None)
        idle += [
            make.record(result=result, threads=p, launch=n, framework="idle", mode="idle")
            for n in range(3)
        ]
    curves = curves_of([*idle, *records_of({1: 1.0, 2: 0.5, 4: 0.8})])
    by_framework = {curve.cell.framework: curve for curve in curves}
    assert (computes(by_framework["idle"]), computes(by_framework["torch"])) == (False, True)
    assert "idle" not in " ".join(findings(list(by_framework.values())))
    assert findings([by_framework["idle"]]) == []
    assert penalty(by_framework["torch"].points[2]).family == 1
    # A real framework whose parity is unchecked still counts.
    unchecked = make.outcome([1.0] * 5, parity=make.parity("unchecked", "no reference"))
    (curve_unchecked,) = curves_of([make.record(result=unchecked)])
    assert computes(curve_unchecked)


# The picture.


def test_the_picture_has_a_panel_for_each_network_and_explains_its_marks(tmp_path):
    times = {1: 1.0, 2: 0.5, 4: 0.7}
    records = [
        *records_of(times),
        *records_of(times, framework="mxnet"),
        *records_of(times, network="fcn8"),
    ]
    assert REPORT.draw is not None
    (written,) = REPORT.draw(content_of(records), tmp_path / "t.svg", ReportOptions())
    words = set(texts(written))
    assert {"fcn5, mini-batch 64", "fcn8, mini-batch 64", "mxnet eager", "torch eager"} <= words
    assert {
        "threads to use",
        "T(1)/p of the fastest with one",
        f"the machine's own cores: {HOST.own_cores}",
    } <= words
    assert drawn_curves(curves_of(records_of({2: 1.0}))) == []


# CPU quotas.


def test_a_quota_counts_as_cpus_do() -> None:
    quick = records_of({1: 1.0, 2: 0.5}, cpu_quota=0.0)
    limited = records_of({1: 1.0, 2: 1.3, 3: 1.6}, cpu_quota=1.0)
    own = make.record(
        result=make.outcome([1.3] * 5, threads=make.threads(0, 6.5, 1.0, says=2)),
        threads=0,
        cpu_quota=1.0,
    )
    free, under = curves_of([*quick, *limited, own], TWO_CPUS)
    assert (best(free), best(under)) == (2, 1)
    assert [past and past.against for past in values(under, PAST_CPUS)] == [None, 1, 1]
    assert advice(under).endswith("the framework's default is 2")
    assert under.host.effective_cpus == 1
    assert headline([under])[0].startswith(
        "two CPUs under a CPU quota of 1: more threads than 1 CPU cost time on 1 of 1"
    )
    assert content_of([*quick, *limited, own], TWO_CPUS).notes == ()
