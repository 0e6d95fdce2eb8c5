"""Containers: the threads that frameworks take under a quota, whether they see it, their cost and
the advice."""

from typing import Any

import factory_of_records as make
import pytest
from exported import exporter

from dlbench.adapters.protocol import Status
from dlbench.reports.ratio.containers import REPORT, Containers, advice, containers, headline
from dlbench.reports.results.outcome import HostObservation, QuotaUse
from dlbench.reports.results.record import Record

SHOW = exporter("containers", "terminal")


def launches(
    seconds: float, taken: int, threads: int = 0, quota: float = 1.0, **of_cell: Any
) -> list[Record]:
    """Three launches of a framework that takes so many threads, with a quota of which it needs 3
    periods in 4."""
    wall = 5 * seconds
    observed = (
        HostObservation(wall, wall, quota=QuotaUse(40, 30, wall, wall))
        if quota
        else HostObservation(wall, wall)
    )
    software = {"thread_setting": f"OMP_NUM_THREADS={threads}"} if threads else {}
    return [
        make.record(
            result=make.outcome(
                [seconds * factor] * 5,
                threads=make.threads(threads, wall, min(taken, quota or taken), says=taken),
                outside=observed,
                software=software,
            ),
            launch=n,
            threads=threads,
            cpu_quota=quota,
            **of_cell,
        )
        for n, factor in enumerate((0.99, 1.0, 1.01))
    ]


def analyse(*several: list[Record]) -> Containers:
    records = [record for launches_of_cell in several for record in launches_of_cell]
    return containers(make.matrix(*records, logical_cpus=2), records)


IGNORES = (launches(1.31, 2), launches(1.0, 1, 1), launches(1.3, 2, 2), launches(0.6, 2, quota=0.0))
HEEDS = tuple(
    launches(seconds, taken, threads, quota, framework="jax", mode="jit")
    for seconds, taken, threads, quota in (
        (1.0, 1, 0, 1.0),
        (1.0, 1, 1, 1.0),
        (1.3, 2, 2, 1.0),
        (0.6, 2, 0, 0.0),
    )
)


def test_a_framework_that_ignores_its_quota_is_told_what_to_set() -> None:
    (row,) = analyse(*IGNORES).rows
    assert (row.threads, row.unlimited, row.sees_quota, row.best, row.cpus) == (2, 2, False, 1, 1)
    assert row.throttled == 0.75
    output = advice(row)
    assert output.startswith(
        "torch eager takes 2 threads under a CPU quota of 1: a step takes 1.31x ("
    )
    assert output.endswith("as long as with 1. Set OMP_NUM_THREADS=1.")
    assert "takes 1.31x" in headline(analyse(*IGNORES))[0]


def test_a_framework_that_heeds_its_quota_has_nothing_to_set() -> None:
    (row,) = analyse(*HEEDS).rows
    assert (row.threads, row.sees_quota, row.best) == (1, True, 1)
    assert "Set" not in advice(row)
    assert "costs no significant time" in headline(analyse(*HEEDS))[0]


@pytest.mark.parametrize(
    ("several", "sees"),
    [
        ((launches(1.0, 1), launches(1.0, 1, quota=0.0)), None),  # one thread always
        (
            (launches(1.0, 2, quota=2.0), launches(1.0, 2, quota=0.0)),
            None,
        ),  # as many as the quota gives
        ((launches(1.0, 1),), None),  # unknown without a quota
        ((launches(1.0, 2),), False),
    ],
)
def test_what_a_framework_would_do_anyway_does_not_show_that_it_sees_the_quota(
    several: tuple[list[Record], ...], sees: bool | None
) -> None:
    (row,) = analyse(*several).rows
    assert row.sees_quota is sees
    assert (row.pair, row.best) == (None, None)
    assert "to compare with" in advice(row)


def test_a_missing_cell_has_its_reason() -> None:
    skipped = [make.hole(Status.SKIPPED, "no control group; run as root", threads=0, cpu_quota=0.5)]
    (row,) = analyse(skipped).rows
    assert (
        advice(row)
        == "torch eager has no time under a CPU quota of 0.5: skip, no control group; run as root."
    )
    assert "skip" in SHOW(analyse(skipped))


def test_the_page_has_frameworks_down_quotas_across_and_a_mean_over_networks() -> None:
    second = tuple(
        launches(seconds, taken, threads, quota, network="lstm32")
        for seconds, taken, threads, quota in (
            (2.62, 2, 0, 1.0),
            (2.0, 1, 1, 1.0),
            (2.6, 2, 2, 1.0),
        )
    )
    content = analyse(*IGNORES, *second, *HEEDS)
    page = SHOW(content)
    assert "geometric mean of 2 networks" in page
    assert page.count("1.31x") >= 4
    found_data = REPORT.as_data(content)
    rows, (mean,) = found_data["rows"], found_data["means"]
    assert (mean["framework"], mean["cpu_quota"], mean["networks"], mean["verdict"]) == (
        "torch",
        1.0,
        2,
        "slower",
    )
    assert mean["ratio"]["value"] == pytest.approx(1.31, rel=0.01)
    assert mean["advice"] in " ".join(line.strip() for line in page.splitlines())
    assert headline(content)[0].endswith(mean["advice"])
    assert sorted((row["framework"], row["network"]) for row in rows) == [
        ("jax", "fcn5"),
        ("torch", "fcn5"),
        ("torch", "lstm32"),
    ]
    assert all(row["advice"] for row in rows)
