"""What settings are worth, of records whose truth is known."""

import math
from dataclasses import replace
from datetime import timedelta

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlbench.adapters import tuning
from dlbench.adapters.protocol import INSTALLED, TUNED
from dlbench.reports.ratio.tuning import (
    NOT_TESTED,
    REPORT,
    applies,
    over_networks,
    verdict,
    worth_of_settings,
)
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.record import SEARCH
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import RatioVerdict

NAMES = ("alpha", "beta", "gamma")


def record(seconds, names, **changes):
    """Return a record whose row has settings of these names."""
    (launch_record,) = make.changed(
        [make.record([seconds] * 3, **changes)], software={"tunable": list(names)}
    )
    return launch_record


def records_of(worth, pairs=8, noise=0.0, seed=0, names=NAMES, **changes):
    """Return records of `tuning.sweep_words`, whose settings multiply the seconds by their worth.

    Each block has a pace of its own, as a machine does, which is twice as slow at the end as in the
    beginning.
    """
    random = np.random.default_rng(seed)
    records = []
    for block in range(pairs):
        pace = 2.0 ** (block / pairs)
        for word in tuning.sweep_words(names):
            seconds = pace * math.prod(worth[name] for name in tuning.in_force(word, names))
            seconds *= math.exp(noise * random.normal())
            records.append(record(seconds, names, launch=block, tuning=word, **changes))
    return records


def worths(records):
    """Return the worth of all settings together, and of each, of records of one row."""
    together, *settings = worth_of_settings(records, {}).worths
    return together, settings


@given(st.lists(st.floats(0.3, 3.0), min_size=3, max_size=3))
def test_a_drift_of_the_machine_is_in_no_ratio(factors):
    together, settings = worths(records_of(dict(zip(NAMES, factors, strict=True))))
    for name, factor, worth in zip(NAMES, factors, settings, strict=True):
        assert worth.setting == name
        assert worth.alone.value == pytest.approx(factor, rel=1e-6)
        assert worth.among.value == pytest.approx(factor, rel=1e-6)
        assert worth.alone.pairs == worth.among.pairs == 8
    assert together.alone.value == pytest.approx(math.prod(factors), rel=1e-6)


def test_of_two_settings_that_do_the_same_work_one_is_worth_nothing_beside_the_other():
    names = NAMES[:2]
    records = []
    for block in range(6):
        for word in tuning.sweep_words(names):
            seconds = 0.5 if tuning.in_force(word, names) else 1.0
            records.append(record(seconds, names, launch=block, tuning=word))
    for worth in worths(records)[1]:
        assert worth.alone.value == pytest.approx(0.5)
        assert worth.among.value == pytest.approx(1.0)
        assert worth.verdict == RatioVerdict.SAME


def test_over_networks_each_counts_once_however_often_it_was_measured():
    ratios = {"fcn5": [0.5], "fcn8": [0.6], "alexnet": [0.9, 0.7], "lstm32": [0.8]}
    records = []
    for network, of_network in ratios.items():
        for place, ratio in enumerate(of_network, 1):
            cell = {"network": network, "threads": place, "batch_size": 16 * place}
            records.append(record(1.0, ["alpha"], tuning=INSTALLED, **cell))
            records.append(record(ratio, ["alpha"], tuning=TUNED, **cell))
    ((_, _, ratio, networks),) = over_networks(worth_of_settings(records, {}).worths)
    logs = np.log([0.5, 0.6, math.sqrt(0.9 * 0.7), 0.8])
    low, high = stats.t.interval(0.95, 3, logs.mean(), stats.sem(logs))
    assert networks == 4
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(
        tuple(np.exp([logs.mean(), low, high]))
    )
    assert over_networks(worth_of_settings(records[:2], {}).worths) == []
    ((_, _, ratio, _),) = over_networks(worth_of_settings(records[:4], {}).worths)
    assert (ratio.low, verdict(ratio)) == (None, NOT_TESTED)


def test_a_row_without_settings_and_one_measured_one_way_only_are_not_shown():
    plain = [make.record([1.0] * 3, launch=block) for block in range(6)]
    tuned = [record(1.0, ["alpha"], launch=block) for block in range(6)]
    assert worth_of_settings([*plain, *tuned], {}).worths == ()
    assert not applies([make.cell()])
    assert applies([make.cell(), make.cell(tuning=INSTALLED)])


def test_a_launch_setting_is_compared_with_the_same_without_it():
    of_torch = {INSTALLED: 2.0, "installed+jemalloc": 1.6, TUNED: 1.0, "tuned+jemalloc": 0.9}
    of_jax = {TUNED: 1.0, "tuned+jemalloc": 1.2}
    records = []
    for block in range(6):
        for word, seconds in of_torch.items():
            records.append(record(seconds, ["alpha"], launch=block, tuning=word, framework="torch"))
        for word, seconds in of_jax.items():
            records.append(record(seconds, [], launch=block, tuning=word, framework="jax"))
        records.append(record(1.0, [], launch=block, tuning=TUNED, framework="mxnet"))
    worth_by_setting = {
        (worth.cell.framework, worth.setting): worth
        for worth in worth_of_settings(records, {}).worths
        if worth.setting
    }
    assert set(worth_by_setting) == {("torch", "alpha"), ("torch", "jemalloc"), ("jax", "jemalloc")}
    assert worth_by_setting["torch", "jemalloc"].alone.value == pytest.approx(0.8)
    assert worth_by_setting["torch", "jemalloc"].among.value == pytest.approx(0.9)
    assert worth_by_setting["torch", "alpha"].alone.value == pytest.approx(0.5)
    assert worth_by_setting["jax", "jemalloc"].verdict == RatioVerdict.SLOWER


def test_the_report_says_what_helps_and_what_hurts():
    records = records_of({"alpha": 0.8, "beta": 1.2, "gamma": 1.0}, noise=0.003)
    source = ReportSource(
        lambda: Results(tuple(records), {make.MACHINE: read_host(make.MACHINE, None)})
    )
    analysis = REPORT.analyse(source)
    page = REPORT.page(analysis, ReportOptions())
    assert "Faster with: alpha (torch eager) on fcn5." in page.before
    assert "Slower with: beta (torch eager) on fcn5." in page.before
    assert "The same with: gamma (torch eager) on fcn5." in page.before
    assert REPORT.as_data(analysis)["over_networks"] == []
    assert worths(records_of({"alpha": 0.5}, names=("alpha",), pairs=5))[1][0].verdict == NOT_TESTED
    rows = list(REPORT.as_rows(analysis).lines)
    assert [row["setting"] for row in rows] == [None, *NAMES]
    assert [row["verdict"] for row in rows[1:]] == [
        RatioVerdict.FASTER,
        RatioVerdict.SLOWER,
        RatioVerdict.SAME,
    ]
    assert (
        "dlbench run tuning"
        in REPORT.page(REPORT.analyse(ReportSource(Results)), ReportOptions()).before[0]
    )


def reported(**several):
    """Return the worth of all settings together, and of each, by runs of these records an hour
    apart."""
    runs, records = {}, {}
    for hour, (name, records_of_run) in enumerate(several.items()):
        started, plan = (
            make.START + timedelta(hours=hour),
            tuple(dict.fromkeys(record.cell for record in records_of_run)),
        )
        runs[name] = make.run(id=name, started=started, plan=plan)
        records[name] = tuple(
            replace(record, run=name, started=started) for record in records_of_run
        )
    hosts = {make.MACHINE: read_host(make.MACHINE, None)}
    source = ReportSource(
        Results,
        lambda: [(run, 1) for run in runs.values()],
        of_run=lambda run: Results(records[run], hosts),
    )
    together, *settings = REPORT.analyse(source).worths
    return together, settings


def test_a_later_run_of_a_tuned_cell_does_not_take_its_partner_away():
    pairs = records_of(dict.fromkeys(NAMES, 0.9))
    later = [record(0.1, NAMES, launch=block, tuning=TUNED) for block in range(3)]
    together, settings = reported(pairs=pairs, later=later)
    assert together.alone.value == pytest.approx(0.9**3)
    assert {worth.alone.pairs for worth in settings} == {8}


def test_of_each_comparison_the_newest_run_counts_that_has_an_interval():
    oldest = records_of(dict.fromkeys(NAMES, 0.9))
    newest = records_of(dict.fromkeys(NAMES, 0.5), pairs=2)
    middle = [
        record
        for record in records_of(dict.fromkeys(NAMES, 0.8))
        if record.cell.tuning in (INSTALLED, TUNED)
    ]
    together, settings = reported(oldest=oldest, middle=middle, newest=newest)
    assert together.alone.value == pytest.approx(0.8**3)
    assert {round(worth.alone.value, 6) for worth in settings} == {0.9}


def test_launches_of_a_search_do_not_judge_settings():
    searched = [replace(record, side=SEARCH) for record in records_of(dict.fromkeys(NAMES, 0.9))]
    analysis = worth_of_settings(searched, {})
    assert (analysis.worths, analysis.searched) == ((), len(searched))
    assert "A search" in REPORT.page(analysis, ReportOptions()).before[0]


def test_means_of_rows_that_differ_in_precision_have_names_of_their_own():
    records = [
        record
        for precision in ("float32", "bfloat16")
        for network in ("fcn5", "lstm32", "alexnet")
        for record in records_of(dict.fromkeys(NAMES, 0.9), network=network, precision=precision)
    ]
    worths = worth_of_settings(records, {}).worths
    elsewhere = [
        replace(worth, machine="elsewhere") for worth in worths if worth.cell.precision == "float32"
    ]
    assert sorted(
        (machine, name) for machine, name, _, _ in over_networks([*elsewhere, *worths])
    ) == [
        ("elsewhere", "torch eager"),
        (make.MACHINE, "torch eager"),
        (make.MACHINE, "torch eager, bfloat16"),
    ]


def test_of_another_build_or_with_other_settings_no_older_pairs_count():
    old = [
        replace(record, environment="another") for record in records_of(dict.fromkeys(NAMES, 0.9))
    ]
    fewer = records_of(dict.fromkeys(NAMES, 0.7), names=NAMES[:2])
    new = records_of(dict.fromkeys(NAMES, 0.5), pairs=2)
    together, settings = reported(old=old, fewer=fewer, new=new)
    assert together.alone.pairs == 2
    assert [worth.setting for worth in settings] == list(NAMES)
