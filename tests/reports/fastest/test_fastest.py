"""Who is fastest, of records whose truth is known."""

import math

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import INSTALLED
from dlbench.reports.cells import build_matrix
from dlbench.reports.fastest.analysis import fastest, leaders
from dlbench.reports.fastest.report import REPORT
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.statistics import clearly_slower
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.results import Results

HOSTS = {make.MACHINE: Host(make.MACHINE, "two cores", 2, 2, 2.0)}
NAMES = ("torch", "mxnet", "jax", "caffe")


def source(records):
    return Source(lambda: Results(tuple(records), HOSTS))


def found_in(records):
    return leaders(build_matrix(Results(tuple(records), HOSTS)))


def only(records):
    (leader,) = found_in(records)
    return leader


def test_the_fastest_is_certain_where_noise_explains_nothing():
    leader = only([*make.launches(1.0), *make.launches(2.0, framework="mxnet"), *make.launches(3.0, framework="jax")])
    assert (leader.first.row.framework, leader.next.row.framework) == ("torch", "mxnet")
    assert leader.ratio.value == pytest.approx(2.0)
    assert leader.ratio.low > 1
    assert (leader.ties, leader.certain) == ((), True)


def test_a_lead_over_a_cell_of_another_run_is_not_certain():
    records = [*make.launches(1.0), *make.launches(2.0, framework="mxnet", run="another")]
    leader = only(records)
    assert (leader.ties, leader.ratio.low > 1, leader.certain) == ((), True, False)
    (told,) = REPORT.headline(fastest(build_matrix(Results(tuple(records), HOSTS))))
    assert "in one comparison noise may explain" in told or "in 1 noise may explain who is ahead" in told


def test_what_noise_cannot_tell_from_it_ties_and_the_next_is_clearly_slower():
    records = [*make.launches(1.0), *make.launches(1.005, framework="mxnet"), *make.launches(2.0, framework="jax")]
    leader = only(records)
    assert [each.row.framework for each in leader.ties] == ["mxnet"]
    assert leader.next.row.framework == "jax"
    assert not leader.certain
    second = only(records[:6])
    assert second.next is second.ties[0]
    assert not second.certain


def test_one_row_alone_has_nobody_to_lead():
    leader = only(make.launches(1.0))
    assert (leader.next, leader.ratio, leader.ties, leader.certain) == (None, None, (), False)
    found = REPORT.analyse(source(make.launches(1.0)))
    assert not REPORT.worth_a_section(found)
    assert "nothing to compare" in REPORT.page(found, ReportOptions()).before[0]
    assert REPORT.headline(found) == []


def test_wrong_mathematics_and_more_threads_than_asked_never_lead():
    wrong = make.outcome([0.1] * 3, parity=make.parity("disagrees", "no"))
    greedy = make.outcome([0.1] * 3, threads=make.threads(1, 0.3, cpu_per_wall=2.0, says=2))
    records = [*make.launches(1.0), make.record(framework="a", result=wrong), make.record(framework="b", result=greedy)]
    assert only(records).first.row.framework == "torch"


def test_a_few_launches_are_told():
    records = [make.record([1.0, 1.01, 0.99]), make.record([2.0, 2.01, 1.99], framework="mxnet")]
    page = REPORT.page(REPORT.analyse(source(records)), ReportOptions())
    assert any("fewer than 3 launches" in line for line in page.after)
    assert page.tables[0].rows[-1][-1].text == "yes"


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=4), st.integers(0, 5), st.floats(0.001, 1000.0))
def test_it_agrees_with_the_stars_and_a_change_of_scale_changes_no_ratio(factors, seed, scale):
    noise = np.random.default_rng(seed).normal(0, 0.05, (len(factors), 3))

    def made(by):
        times = [[by * factor * math.exp(each) for each in row] for factor, row in zip(factors, noise, strict=True)]
        return build_matrix(
            Results(
                tuple(r for name, t in zip(NAMES, times, strict=False) for r in make.launches(t, framework=name)), HOSTS
            )
        )

    (leader,), matrix = leaders(made(1.0)), made(1.0)
    stars = {cell.row for cell in matrix.cells.values() if cell.best}
    assert {leader.first.row, *(each.row for each in leader.ties)} == stars
    assert all(not clearly_slower(each.seconds, leader.first.seconds) for each in leader.ties)
    (scaled,) = leaders(made(scale))
    # Samples are whole nanoseconds.
    assert scaled.ratio.value == pytest.approx(leader.ratio.value, rel=1e-5)


def test_data_and_rows_say_the_same():
    found = fastest(build_matrix(Results((*make.launches(1.0), *make.launches(1.001, framework="mxnet")), HOSTS)))
    (told,), (line,) = REPORT.as_data(found)["leaders"], list(REPORT.as_rows(found).lines)
    assert [each["framework"] for each in told["ties"]] == [
        "mxnet" if told["first"]["framework"] == "torch" else "torch"
    ]
    assert line["ties"] == f"{told['ties'][0]['framework']} eager"
    assert (told["network"], told["threads"], told["certain"]) == ("fcn5", 1, False)
    assert "cannot be told from" in REPORT.page(found, ReportOptions()).tables[0].notes[0]


def test_published_times_lead_by_their_value():
    from dlbench.reports.against.published_tables import TABLES

    found = fastest(TABLES["shi2016"]())
    assert all(not each.certain for each in found.leaders)
    assert "by the published value the fastest" in REPORT.headline(found)[0]


def test_the_leader_tuned_otherwise_is_no_rival():
    twin = make.launches(1.001, tuning=INSTALLED)
    leader = only([*make.launches(1.0), *twin, *make.launches(2.0, framework="mxnet")])
    assert (leader.ties, leader.certain, leader.next.row.framework) == ((), True, "mxnet")
    assert only([*make.launches(1.0), *twin]).next is None
