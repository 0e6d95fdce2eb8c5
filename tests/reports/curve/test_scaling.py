"""Scaling over workers: speed-ups by their definitions, rivals, missing cells, tables, the
picture."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
from exported import exporters, texts
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.protocol import Protocol, Status
from dlbench.reports.curve.curve import Curve, CurvePoint, Curves
from dlbench.reports.curve.scaling import REPORT, SpeedUp, scaling, teams_of
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.record import Record

FORMATS = exporters("scaling")
launches = partial(make.launches, spread=0.005)


def content_of(*records: Record, cpus: int | None = 2) -> Curves:
    return scaling(make.matrix(*records, cores=cpus, logical_cpus=cpus), records)


def line_of(*records: Record, cpus: int | None = 2) -> Curve:
    (line,) = content_of(*records, cpus=cpus).curves
    return line


def at(point: CurvePoint) -> tuple[int, int, int]:
    return point.at.threads, point.at.batch_size, point.at.world_size


def point_of(
    line: Curve, world_size: int = 2, batch_size: int = 64, threads: int = 1
) -> CurvePoint:
    (point,) = (point for point in line.points if at(point) == (threads, batch_size, world_size))
    return point


def value(gain: Any) -> tuple[float, float]:
    assert gain.reason == ""
    return gain.speedup.value, gain.efficiency.value


# Definitions.


times = st.floats(0.001, 1000.0)


@examples(60)
@given(times, times, times, st.sampled_from((2, 4, 8)), st.sampled_from((1, 3)))
def test_figures_keep_to_their_definitions(
    alone: float, part: float, team: float, count: int, threads: int
) -> None:
    batch = 16 * count
    line = line_of(
        *launches(alone, batch_size=batch, threads=threads),
        *launches(part, batch_size=16, threads=threads),
        *launches(team, batch_size=batch, threads=threads, world_size=count),
        cpus=8,
    )
    point = point_of(line, count, batch, threads)
    # Seconds are kept in whole nanoseconds.
    assert value(point.findings.strong) == pytest.approx(
        (alone / team, alone / team / count), rel=1e-5
    )
    rates = [
        p.cell.items_per_second
        for p in line.points
        if p.at.world_size == count or p.at.batch_size == 16
    ]
    slow, fast = (rate for rate in rates if rate is not None)
    assert value(point.findings.weak) == pytest.approx((fast / slow, fast / slow / count), rel=1e-5)
    assert point.findings.weak.efficiency.value == pytest.approx(part / team, rel=1e-5)
    assert point.findings.shares_cpus == (count * threads > 8)


# Rivals.


OTHERS = {
    "network": "fcn8",
    "machine": "m-two",
    "device": "cuda:0",
    "precision": "bfloat16",
    "affinity": "bound",
    "threads": 2,
    "batch_size": 128,
}


@pytest.mark.parametrize("axis", OTHERS)
def test_only_what_is_otherwise_alike_is_compared(axis: str) -> None:
    content = content_of(*launches(1.0, **{axis: OTHERS[axis]}), *launches(0.5, world_size=2))
    (strong,) = (point.findings.strong for line in content.curves for point in teams_of(line))
    reason = "one worker of 1 thread at mini-batch 64 was not measured"
    assert strong == SpeedUp(None, None, reason, measured=False)


def test_cells_of_one_worker_that_nothing_is_compared_are_not_shown() -> None:
    line = line_of(
        *(
            record
            for p in (1, 2, 3, 8)
            for b in (16, 32, 64)
            for record in launches(1.0, threads=p, batch_size=b)
        ),
        *launches(0.5, world_size=2),
    )
    assert list(map(at, line.points)) == [(1, 32, 1), (1, 64, 1), (1, 64, 2), (2, 64, 1)]


def test_on_a_gpu_threads_are_no_rival_and_share_no_cpus() -> None:
    line = line_of(
        *launches(1.0, device="cuda:0", threads=4),
        *launches(0.5, device="cuda:0", threads=4, world_size=2),
        *launches(0.9, device="cuda:0", threads=8),
    )
    point = point_of(line, threads=4)
    assert point.findings.one_process is None
    assert not point.findings.shares_cpus
    assert value(point.findings.strong) == pytest.approx((2.0, 1.0))
    text = FORMATS["terminal"](
        content_of(*launches(1.0, device="cuda:0"), *launches(0.5, device="cuda:0", world_size=2))
    )
    assert "1 process" not in text
    assert "no speed-up can be expected" not in " ".join(text.split())


@pytest.mark.parametrize(("cpus", "shares"), [(6, False), (5, True), (None, False)])
def test_workers_with_more_threads_than_cpus_share_them_and_it_is_said(
    cpus: int | None, shares: bool
) -> None:
    content = content_of(
        *launches(1.0, threads=3), *launches(1.2, threads=3, world_size=2), cpus=cpus
    )
    assert (
        "no speed-up can be expected: 2 x" in " ".join(FORMATS["terminal"](content).split())
    ) is shares


WRONG = {"status": Status.PARITY_FAILED, "parity": make.parity("disagrees", "update error 0.4")}


@pytest.mark.parametrize(
    ("alone", "reason"),
    [
        (make.hole(Status.OUT_OF_MEMORY, "no room"), "no room"),
        (make.record(result=make.outcome(**WRONG)), "update error 0.4"),
        (
            make.record(result=make.outcome(final_loss_finite=False)),
            "something other than the reference",
        ),
        (
            make.record(result=make.outcome(threads=make.threads(1, 3.0, 3.0))),
            "more threads worked",
        ),
        (make.record(environment="another"), "another build"),
    ],
    ids=["hole", "parity", "loss", "threads", "build"],
)
def test_unusable_cells_are_in_no_ratio_and_the_reason_is_shown(alone: Record, reason: str) -> None:
    content = content_of(alone, *launches(0.5, world_size=2))
    strong = point_of(content.curves[0]).findings.strong
    assert (strong.speedup, strong.measured) == (None, True)
    assert strong.reason.startswith("one worker of 1 thread at mini-batch 64")
    assert reason in strong.reason
    assert reason in " ".join(FORMATS["terminal"](content).split())


# Workers that exchange less often, and losses.


TWO = {"world_size": 2}


def findings_of(line: Curve, sync: str, world_size: int = 2) -> Any:
    (point,) = (
        point for point in line.points if (point.at.sync, point.at.world_size) == (sync, world_size)
    )
    return point.findings


@examples(40)
@given(times, times, times, times, times)
def test_shares_keep_to_their_definitions(
    alone: float, step: float, often: float, seldom: float, four: float
) -> None:
    line = line_of(
        *launches(alone),
        *launches(step, **TWO),
        *launches(often, **TWO, sync="local:4"),
        *launches(seldom, **TWO, sync="local:16"),
        *launches(four, world_size=4, sync="local:4"),
    )
    assert findings_of(line, "step").doubling.share.value == pytest.approx(
        1 - step / alone, rel=1e-5, abs=1e-5
    )
    assert findings_of(line, "local:4").doubling.share.value == pytest.approx(
        1 - often / alone, rel=1e-5, abs=1e-5
    )
    # Four workers with local steps save over two that have them too.
    assert findings_of(line, "local:4", 4).doubling.share.value == pytest.approx(
        1 - four / often, rel=1e-5, abs=1e-5
    )
    for sync, seconds in (("local:4", often), ("local:16", seldom)):
        exchange = findings_of(line, sync).exchange.share
        assert exchange.value == pytest.approx(1 - seconds / step, rel=1e-5, abs=1e-5)
        assert exchange.low <= exchange.value <= exchange.high
    assert findings_of(line, "step").exchange is None
    assert findings_of(line, "local:16").strong.speedup.value == pytest.approx(
        alone / seldom, rel=1e-5
    )


def trained(
    records: list[Record], losses: list[float], loss_steps: int = 200, **software: Any
) -> list[Record]:
    """Return these launches with losses after each 100 of so many further steps."""
    points = [[100.0 * (place + 1), loss] for place, loss in enumerate(losses)]
    return [
        replace(
            record,
            protocol=Protocol(loss_steps=loss_steps),
            outcome=record.outcome._replace(
                losses=points, software={**record.outcome.software, **software}
            ),
        )
        for record in records
    ]


def test_seconds_to_a_loss_are_steps_to_what_all_reach_times_the_seconds_of_a_step() -> None:
    line = line_of(
        *trained(launches(1.0), [2.0, 1.0]),
        *trained(launches(0.6, **TWO), [2.0, 1.0]),
        *trained(launches(0.5, **TWO, sync="local:4"), [2.1, 1.5]),
    )
    assert {findings_of(line, sync).target_loss for sync in ("step", "local:4")} == {1.5}
    # Half of the way from 2 to 1, hence half of the way from 100 steps to 200.
    assert findings_of(line, "step").seconds_to_target == pytest.approx(150 * 0.6, rel=1e-4)
    assert findings_of(line, "step", 1).seconds_to_target == pytest.approx(150 * 1.0, rel=1e-4)
    assert findings_of(line, "local:4").steps_to_target == pytest.approx(200)
    text = " ".join(
        FORMATS["terminal"](content_of(*trained(launches(0.6, **TWO), [2.0, 1.0]))).split()
    )
    assert "a loss of 1.00 (mini-batch 64, 1 thread)" in text


@pytest.mark.parametrize(
    ("losses", "software", "reason"),
    [
        ([2.0, 1.04], {}, ""),
        ([2.0, 0.96], {}, ""),
        ([2.0, 1.2], {}, "its loss after 200 steps is 1.20, that of step 1.00"),
        ([2.0, 0.8], {}, "its loss after 200 steps is 0.800"),
        (
            [2.0],
            {"losses_ended": "the loss was not finite after 110 steps"},
            "ended early: the loss was not finite",
        ),
    ],
)
def test_asynchronous_workers_count_where_their_loss_is_that_of_synchronous_ones(
    losses: list[float], software: dict[str, Any], reason: str
) -> None:
    stale = {"median": 1, "maximum": 7, "steps": 320}
    synchronous = [*trained(launches(1.0), [2.0, 1.0]), *trained(launches(0.6, **TWO), [2.0, 1.0])]
    shared = trained(launches(0.4, **TWO, sync="async"), losses, **software, staleness=stale)
    content = content_of(*synchronous, *shared)
    text = " ".join(FORMATS["terminal"](content).split())
    (line,) = content.curves
    strong = findings_of(line, "async").strong
    assert (strong.speedup is None) is bool(reason)
    assert reason in strong.reason
    assert reason in text
    assert findings_of(line, "async").staleness == {"median": 1, "maximum": 7}
    # Those that wait are compared with one another all the same.
    assert findings_of(line, "step").target_loss == pytest.approx(
        1.0 if reason else max(1.0, losses[-1])
    )


# Tables and picture.


def test_against_one_process_of_as_many_threads_it_says_which_is_faster() -> None:
    slower = content_of(*launches(1.0), *launches(0.7, world_size=2), *launches(0.5, threads=2))
    faster = content_of(*launches(1.0), *launches(0.4, world_size=2), *launches(0.5, threads=2))
    alike = content_of(
        *launches(1.0), *launches(0.5, world_size=2), *launches([0.45, 0.5, 0.55], threads=2)
    )
    waited = make.outcome(
        threads=make.threads(2, 3.0, 1.2), contention=make.contention(run_queue_seconds=3.0)
    )
    rival = [replace(record, outcome=waited) for record in launches(0.5, threads=2)]
    disturbed = content_of(*launches(1.0), *launches(0.4, world_size=2), *rival)
    words = ("slower", "faster", "not clearly different", "faster (other programs interfered)")
    for content, word in zip((slower, faster, alike, disturbed), words, strict=True):
        text = " ".join(FORMATS["terminal"](content).split())
        assert f"one process of as many threads: 2 x 1 thread on 64 {word}." in text


def test_the_picture_has_a_page_for_each_machine_and_names_networks_and_rows(
    tmp_path: Path,
) -> None:
    records = [
        *(
            r
            for count in (1, 2)
            for batch in (32, 64)
            for r in launches(1.0, batch_size=batch, world_size=count)
        ),
        *(
            r
            for count in (1, 2)
            for r in launches(1.0, device="cuda:0", world_size=count, network="resnet50")
        ),
        *launches(1.0, machine="m-two", framework="mxnet"),
        make.hole(
            Status.CRASHED, "signal 11 | <b>", world_size=2, machine="m-two", framework="mxnet"
        ),
    ]
    assert REPORT.draw is not None
    first, second = REPORT.draw(content_of(*records), tmp_path / "scaling.svg", ReportOptions())
    words = texts(first)
    assert {
        "fcn5",
        "resnet50",
        "torch eager, 1 thread, batch 64",
        "torch eager, 1 thread, batch 32 each",
    } <= set(words)
    assert second.name == "scaling-2.svg"
    assert any("one worker" in word for word in texts(second))
    assert not REPORT.drawable(content_of())
