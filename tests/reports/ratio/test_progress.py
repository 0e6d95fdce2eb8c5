"""From the oldest framework to the newest: order, ratios and means against independent
computations."""

import math
import random
from datetime import date
from typing import Any

import factory_of_records as make
import numpy as np
import pytest
import scipy.stats
from exported import exporters

from dlbench.adapters.protocol import INSTALLED, TUNED, Status
from dlbench.reports.builds import MeasuredBuild, MeasuredBuilds, released
from dlbench.reports.ratio.progress import Progress, Standing, progress
from dlbench.reports.results.number_text import times
from dlbench.reports.results.record import Record
from dlbench.reports.results.statistics import geometric_mean, mean_of_pairs, ratio, summarise

DATES = {
    ("caffe", "1.0.0"): date(2017, 4, 18),
    ("mxnet", "1.9.1"): date(2022, 5, 17),
    ("tensorflow", "2.21.0"): date(2026, 3, 6),
    ("pytorch", "2.13.0"): date(2026, 7, 8),
}
BATCHES = {"fcn5": 64, "fcn8": 64, "lstm32": 128}
FORMATS = exporters("progress")


def launches(
    times: float | list[float],
    framework: str = "caffe",
    version: str = "1.0.0",
    adapter: str = "",
    uploaded: str = "",
    **of_cell: Any,
) -> list[Record]:
    """Launches of these seconds, or three about them, of a version of a framework."""
    software = {"version": version} if version else {}
    software |= {"released": uploaded} if uploaded else {}
    build = {
        "framework": framework,
        "adapter": adapter or {"torch": "pytorch"}.get(framework, framework),
        "environment": f"{framework}-{version}",
    }
    where = {"mode": "m", "batch_size": BATCHES[of_cell.get("network", "fcn5")], **of_cell}
    return make.changed(make.launches(times, **build, **where), software=software)


def progress_of(records: list[Record], all_modes: bool = False) -> Progress:
    return progress(make.matrix(*records), MeasuredBuilds(records, DATES), all_modes)


def only(analysis: Progress) -> list[Standing]:
    (ranking,) = analysis.rankings
    return ranking


def names(ranking: list[Standing]) -> list[str]:
    return [standing.cell.row.framework for standing in ranking]


OLD = launches([2.0, 2.1, 1.9, 2.05])
MIDDLE = launches(1.0, "mxnet", "1.9.1")
NEW = launches([0.5, 0.52, 0.49], "torch", "2.13.0+cpu")


def test_the_date_in_the_record_of_a_release_counts() -> None:
    old, new = (
        launches(1.0, "jax-0.9.2", "0.9.2", "jax", "2026-03-18"),
        launches(1.0, "jax-0.10.2", "0.10.2", "jax"),
    )
    dated = launches(1.0, "jax-0.11.2", "0.11.2", "jax", "2026-09-17")
    assert names(only(progress_of([*new, *dated, *old]))) == [
        "jax-0.9.2",
        "jax-0.11.2",
        "jax-0.10.2",
    ]


def test_frameworks_stand_in_the_order_of_their_release_dates_whatever_the_order_of_records() -> (
    None
):
    records = [*NEW, *launches(0.9, "mine", "0.1", adapter="own"), *OLD, *MIDDLE]
    for seed in range(5):
        random.Random(seed).shuffle(records)
        ranking = only(progress_of(records))
        assert names(ranking) == ["caffe", "mxnet", "torch", "mine"]
        dates = [DATES["caffe", "1.0.0"], DATES["mxnet", "1.9.1"], DATES["pytorch", "2.13.0"], None]
        assert [standing.build.released for standing in ranking] == dates
        assert [standing.oldest for standing in ranking] == [True, False, False, False]


def test_where_the_oldest_has_no_number_the_next_one_takes_its_place() -> None:
    holes = [make.hole(Status.CRASHED, "signal 11", framework="caffe", adapter="caffe", mode="m")]
    ranking = only(progress_of([*holes, *MIDDLE, *NEW]))
    assert [(s.cell.row.framework, s.oldest) for s in ranking] == [
        ("mxnet", True),
        ("torch", False),
        ("caffe", False),
    ]
    disagrees = make.parity("disagrees", "update error 0.4")
    failed = make.outcome(parity=disagrees)._replace(status=Status.PARITY_FAILED)
    wrong = [
        make.record(result=failed, framework="caffe", adapter="caffe", mode="m", launch=n)
        for n in range(3)
    ]
    ranking = only(progress_of([*wrong, *MIDDLE]))
    assert [standing.oldest for standing in ranking if standing.cell.row.framework == "mxnet"] == [
        True
    ]


def test_the_fastest_mode_stands_for_a_framework_unless_all_are_asked_for() -> None:
    records = [
        *OLD,
        *launches(1.5, mode="fast"),
        *NEW,
        *launches(0.4, "torch", "2.13.0", mode="compile"),
    ]
    best = only(progress_of(records))
    assert [(s.cell.row.mode, s.modes) for s in best] == [("fast", 2), ("compile", 2)]
    all_stands = only(progress_of(records, all_modes=True))
    modes = [("fast", True), ("m", False), ("compile", False), ("m", False)]
    assert [(s.cell.row.mode, s.oldest) for s in all_stands] == modes
    by_mode = {s.cell.row.mode: s.speedup for s in all_stands if s.cell.row.framework == "torch"}
    assert by_mode["compile"] == best[1].speedup
    # Asked for all or not, what it comes to is the same.
    assert progress_of(records).overall == progress_of(records, all_modes=True).overall


@pytest.mark.parametrize(
    ("adapter", "version", "when"),
    [
        ("pytorch", "2.13.0", date(2026, 7, 8)),
        ("pytorch", "2.13.1", None),
        ("pytorch", "2.13.0rc1", None),
        ("tensorflow", "2.13.0", None),
        ("pytorch", "2.14.0.dev20261010+cpu", date(2026, 10, 10)),
        ("tensorflow", "2.22.0-dev20261010", date(2026, 10, 10)),
        ("pytorch", "2.14.0.dev20261399", None),
        ("pytorch", "", None),
    ],
)
def test_release_dates_of_versions(adapter: str, version: str, when: date | None) -> None:
    assert released(adapter, version, DATES) == when


def test_a_named_build_takes_its_date_from_its_adapter_and_a_crash_takes_no_version_away() -> None:
    crashed = make.hole(
        Status.CRASHED,
        "signal 11",
        framework="torch-old",
        adapter="pytorch",
        mode="m",
        minutes=9,
        network="fcn8",
    )
    records = [*launches(1.0, "torch-old", "2.13.0+cpu", adapter="pytorch"), crashed]
    analysis = progress_of(records)
    for ranking in analysis.rankings:
        (standing,) = ranking
        assert standing.build == MeasuredBuild("pytorch", "2.13.0+cpu", date(2026, 7, 8))


# The summary over networks.


def test_the_summary_is_of_the_newest_over_the_oldest_that_have_every_network() -> None:
    records = []
    for network, factor in (("fcn5", 1.0), ("fcn8", 2.0), ("lstm32", 3.0)):
        if network != "lstm32":
            records += launches(4.0, network=network)
        records += launches(2.0 * factor, "mxnet", "1.9.1", network=network)
        records += launches(1.0, "tensorflow", "2.21.0", network=network)
        records += launches(0.7, "mine", "0.1", adapter="own", network=network)
    records += launches(0.1, "torch", "2.13.0", network="fcn5")
    (overall,) = progress_of(records).overall
    # Caffe lacks a network, torch lacks two, and nobody knows when mine was released.
    assert (overall.oldest[0], overall.newest[0]) == ("mxnet", "tensorflow")
    assert overall.mean.ratio.value == pytest.approx(scipy.stats.gmean([2.0, 4.0, 6.0]))


def test_a_mean_over_disturbed_networks_is_marked_and_names_them() -> None:
    fcn8 = launches(1.0, "tensorflow", "2.21.0", network="fcn8")
    disturbed = make.changed(fcn8, contention=make.contention(steal_seconds=20.0))
    old_launches = [*launches(2.0, network="fcn5"), *launches(2.0, network="fcn8")]
    analysis = progress_of([*old_launches, *launches(1.0, "tensorflow", "2.21.0"), *disturbed])
    (overall,) = analysis.overall
    assert [group.network for group in overall.disturbed] == ["fcn8"]
    text = " ".join(FORMATS["terminal"](analysis).split())
    assert "~ at 1 thread: disturbed on fcn8, mini-batch 64" in text
    assert overall.mean is not None
    assert f"{times(overall.mean.ratio)}~" in text


@pytest.mark.slow
def test_the_interval_of_the_mean_covers_the_truth() -> None:
    rng = np.random.default_rng(20261120)
    truths = np.array([0.5, 1.0, 2.0, 3.0, 1.5, 8.0])
    replicates, covered, cautious = 1500, 0, 0
    for _ in range(replicates):
        pairs = []
        for truth in truths:
            old, new = (np.exp(rng.normal(math.log(t), 0.03, size=3)) for t in (truth, 1.0))
            pairs.append((summarise([[t] for t in old]), summarise([[t] for t in new])))
        truth = scipy.stats.gmean(truths)
        for place, mean in enumerate(
            (mean_of_pairs(pairs), geometric_mean([ratio(*pair) for pair in pairs]))
        ):
            assert mean.low is not None
            assert mean.high is not None
            covered += place == 0 and mean.low <= truth <= mean.high
            cautious += place == 1 and mean.low <= truth <= mean.high
    # Four standard errors of 1500 tries about 95 %.
    assert 0.927 <= covered / replicates <= 0.973
    assert covered <= cautious


def test_null_computes_nothing_and_is_no_progress() -> None:
    nothing = make.outcome(
        parameter_count=None, parity=make.parity("unchecked"), software={"version": "1"}
    )
    null = make.record(result=nothing, framework="null", adapter="null", mode="null")
    ranking = only(progress_of([*OLD, null]))
    assert [(s.cell.row.framework, s.speedup) for s in ranking if not s.oldest] == [("null", None)]


def test_a_row_without_settings_stands_among_those_as_installed_too() -> None:
    old = make.changed(OLD, software={**OLD[0].outcome.software, "tunable": []})
    new = launches(0.9, "torch", "2.13.0", tuning=INSTALLED)
    rankings = progress_of([*old, *NEW, *new]).rankings
    assert {ranking[0].place.cell.tuning: names(ranking) for ranking in rankings} == {
        TUNED: ["caffe", "torch"],
        INSTALLED: ["caffe", "torch"],
    }
    assert [ranking[0].place.cell.tuning for ranking in progress_of([*old, *new]).rankings] == [
        INSTALLED
    ]
