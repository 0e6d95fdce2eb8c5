"""Percentiles of single calls: which calls count, when there are too few, and who answers
soonest."""

import factory_of_records as make
import numpy as np
import pytest

from dlbench.adapters.protocol import Status
from dlbench.reports.curve.latency import REPORT, latencies
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.quantities import LATENCIES, calls_of
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

RNG = np.random.default_rng(5)


def calls(seconds: float, count: int = 400) -> list[float]:
    return list(seconds * (1 + RNG.exponential(0.1, count)))


def launches(seconds: float, count: int = 400, **fields: object) -> list[Record]:
    return [
        make.record(
            result=make.outcome(calls(seconds, count)), launch=launch, task="inference", **fields
        )
        for launch in range(3)
    ]


def content_of(*records: Record):
    hosts = {record.machine: Host(record.machine, "EPYC", 2, 2, 2.0) for record in records}
    return latencies(ReportSource(lambda: Results(records, hosts)))


@pytest.mark.parametrize(("name", "share"), [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)])
def test_a_percentile_is_that_of_the_calls_with_none_trimmed(name: str, share: float) -> None:
    durations = calls(0.01)
    percentile = LATENCIES[name][2](make.outcome(durations))
    assert percentile == pytest.approx(
        np.quantile(np.round(np.array(durations) * 1e9) / 1e9, share), rel=1e-9
    )


def test_the_first_call_of_each_turn_does_not_count() -> None:
    outcome = make.outcome([9.0, *[1.0] * 4, 9.0, *[1.0] * 5], turns=[5, 0, 6])
    assert calls_of(outcome) == [1.0] * 9
    # Calls that are as long as a turn hardly notice the pause, and there are no others.
    assert calls_of(make.outcome([9.0, 1.0, 9.0], turns=[1, 2])) == [9.0, 1.0, 9.0]
    assert calls_of(make.outcome([9.0, 1.0])) == [9.0, 1.0]
    assert calls_of(make.outcome([9.0, 1.0], steps_per_sample=4)) == []
    under_a_quota = make.outcome([5.0], steps_per_sample=2)._replace(
        calls_ns=[3 * 10**9, 7 * 10**9]
    )
    assert calls_of(under_a_quota) == [3.0, 7.0]


def test_calls_of_instances_are_those_of_each_and_not_their_joint_step() -> None:
    software = {"samples_ns_of_instances": [[2_000_000, 4_000_000], [3_000_000]]}
    outcome = make.outcome([0.001, 0.002], software=software)
    assert calls_of(outcome) == pytest.approx([0.002, 0.004, 0.003])


@pytest.mark.parametrize(
    ("count", "expected"), [(3, set()), (4, {"p50"}), (20, {"p50", "p90"}), (200, set(LATENCIES))]
)
def test_a_percentile_needs_two_calls_beyond_it(count: int, expected: set[str]) -> None:
    outcome = make.outcome(calls(0.01, count))
    assert {
        name for name, (_, _, percentile) in LATENCIES.items() if percentile(outcome) is not None
    } == expected


def test_the_report_has_cells_of_inference_alone_and_marks_the_least_of_each_place() -> None:
    quick, slow = launches(0.01, framework="onnx"), launches(0.02, framework="torch")
    elsewhere = [*launches(0.03, threads=2), *make.launches(0.5)]
    content = content_of(*quick, *slow, *elsewhere)
    assert [(row.cell.cell.framework, row.calls, bool(row.best)) for row in content.rows] == [
        ("onnx", 1200, True),
        ("torch", 1200, False),
        ("torch", 1200, False),
    ]
    shares = [share for share, _ in content.rows[0].curve]
    assert shares[-1] == 0.998  # of 1200 calls
    rows = REPORT.as_data(content)["rows"]
    assert rows[0]["p99"]["median"] > rows[0]["p90"]["median"] > rows[0]["p50"]["median"] > 0.01
    assert rows[0]["task"] == "inference"


def test_a_percentile_that_one_launch_lacks_is_not_the_cell_s() -> None:
    """Percentiles of different launches would not be in order: here p99 would be below p50."""
    short = make.record(
        result=make.outcome(calls(0.05, 20)), launch=3, task="inference", framework="onnx"
    )
    content = content_of(*launches(0.01, framework="onnx"), short)
    row = REPORT.as_data(content)["rows"][0]
    assert row["p99"] is None
    assert row["p90"]["median"] > row["p50"]["median"]
    page = REPORT.page(content, ReportOptions())
    assert any("No p99 of 1 cell: too few calls" in line for line in page.after)


def test_it_says_why_there_is_no_percentile_and_why_a_cell_has_no_number() -> None:
    refused = make.hole(
        Status.UNSUPPORTED, "task inference: no", task="inference", framework="caffe"
    )
    page = REPORT.page(content_of(*launches(0.01, 30), refused), ReportOptions())
    assert any("No p99 of 1 cell: too few calls" in line for line in page.after)
    assert any(
        "caffe" in line and "`dlbench report matrix` has the reasons" in line for line in page.after
    )
    nothing = REPORT.page(content_of(*make.launches(0.5)), ReportOptions())
    assert "No cell of inference was measured yet" in nothing.before[0]
