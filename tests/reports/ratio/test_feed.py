"""Feeding: the model of the paper, what makes a step longer, and the split of CPUs between threads
and a loader."""

from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from exported import exporter
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence, Status
from dlbench.hardware_probe import Ceilings
from dlbench.reports.ratio.feed import REPORT, Feeds, ahead, feeds, headline, one_after_another
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

SHOW = exporter("feed", "terminal")
GIGABYTE = 1e9
BYTES = 4 * 64 * (26752 + 1)
"""Of a mini-batch of fcn5: 64 examples with a label each."""


def test_the_model_gives_the_numbers_of_the_paper() -> None:
    size, rate = 8 * GIGABYTE, 31.5 * GIGABYTE
    assert one_after_another(0.0, size, rate) == pytest.approx(0.253968, abs=5e-7)
    assert one_after_another(0.0, 4 * size, rate) == pytest.approx(1.015873, abs=5e-7)
    three = ahead(0.5, 3 * size, rate)
    assert three == pytest.approx(0.7619, abs=5e-5)
    assert three - 0.5 == pytest.approx(0.2619, abs=5e-5)
    assert 0.5 / three == pytest.approx(0.6562, abs=5e-5)


@given(*[st.floats(1e-6, 1e6)] * 3)
def test_to_copy_ahead_is_never_slower_and_saves_half_at_most(
    compute: float, size: float, rate: float
) -> None:
    after, before = one_after_another(compute, size, rate), ahead(compute, size, rate)
    assert compute <= before <= after <= 2 * before * (1 + 1e-9)


def cells(
    seconds: float, placement: str = "resident", waiting: float = 0.0, **of_cell: Any
) -> list[Record]:
    """Three launches, whose threads wait for a CPU for this share of the time."""
    contention = make.contention(run_queue_seconds=waiting * 5 * seconds, others_cpu_seconds=0.0)
    return make.changed(
        make.launches(seconds, placement=placement, **of_cell), contention=contention
    )


def loader(seconds: float, threads: int, workers: int, **of_cell: Any) -> list[Record]:
    return cells(seconds, "loader", threads=threads, loader_workers=workers, **of_cell)


def analyse(*several: list[Record], bandwidth: float = 10 * GIGABYTE, cpus: int = 2) -> Feeds:
    records = tuple(record for launches_of_cell in several for record in launches_of_cell)
    host = Host(make.MACHINE, "machine", cpus, cpus, float(cpus), logical_cpus=cpus)
    ceiling = replace(make.ceiling(1, 1e12), bandwidth_bytes_per_second=bandwidth)
    results = Results(records, {make.MACHINE: host}, {make.MACHINE: Ceilings((ceiling,))})
    return feeds(build_matrix(results), results)


def only(content: Feeds) -> dict[str, Any]:
    """The JSON of the only cell whose mini-batch is not resident."""
    (row,) = [cell for cell in REPORT.as_data(content)["cells"] if cell["placement"] != "resident"]
    return dict(row)


def test_stall_rates_and_model_of_a_cell() -> None:
    row = only(analyse(cells(0.5), cells(0.625, "fed")))
    assert row["stall"]["value"] == pytest.approx(0.2)
    assert row["stall"]["low"] < 0.2 < row["stall"]["high"]
    assert (row["minibatch_bytes"], row["link_bytes_per_second"]) == (BYTES, 10 * GIGABYTE)
    assert row["needed_bytes_per_second"] == pytest.approx(BYTES / 0.5, rel=1e-3)
    assert row["model_seconds"] == pytest.approx(0.5 + BYTES / 10 / GIGABYTE, rel=1e-3)
    assert only(analyse(cells(0.5), cells(0.625, "prefetched")))["model_seconds"] == pytest.approx(
        0.5, rel=1e-3
    )


@pytest.mark.parametrize(
    ("seconds", "placement", "of_cell", "bandwidth", "expected"),
    [
        (0.51, "fed", {}, 10 * GIGABYTE, "hidden"),
        (0.7, "fed", {}, 10 * GIGABYTE, "CPUs"),  # converted by one of them
        (0.7, "fed", {}, BYTES / 0.15, "link"),
        (0.7, "loader", {}, BYTES / 0.15, "loader"),
        (0.7, "loader", {"loader_workers": 1, "threads": 2, "waiting": 0.5}, 10 * GIGABYTE, "CPUs"),
        (
            0.7,
            "loader",
            {"loader_workers": 1, "threads": 2, "waiting": 0.05},
            10 * GIGABYTE,
            "loader",
        ),
        (0.7, "prefetched", {"threads": 2, "waiting": 0.5}, BYTES / 0.15, "CPUs"),
    ],
)
def test_what_makes_the_step_longer(
    seconds: float, placement: str, of_cell: dict[str, Any], bandwidth: float, expected: str
) -> None:
    resident = cells(0.5, threads=of_cell.get("threads", 1))
    row = only(analyse(resident, cells(seconds, placement, **of_cell), bandwidth=bandwidth))
    assert row["verdict"] == expected


def test_noise_is_no_verdict_and_a_missing_resident_cell_none() -> None:
    noisy = [make.record([t] * 5, launch=n, placement="fed") for n, t in enumerate((0.3, 0.5, 0.7))]
    assert only(analyse(cells(0.5), noisy))["verdict"] == "unclear"
    row = only(analyse(cells(0.7, "fed")))
    assert (row["resident_seconds"], row["verdict"], row["stall"], row["model_seconds"]) == (
        None,
        "",
        None,
        None,
    )


def test_on_a_gpu_the_link_is_the_one_to_the_device() -> None:
    ceilings = DeviceCeilings(
        to_device_pinned_bytes_per_second=20e9, to_device_pageable_bytes_per_second=5e9
    )
    several = [*cells(0.001, device="cuda:0"), *cells(0.0025, "pageable", device="cuda:0")]
    row = only(analyse(make.changed(several, device=DeviceEvidence("a GPU", ceilings=ceilings))))
    assert row["link_bytes_per_second"] == 5e9
    assert row["model_seconds"] == pytest.approx(0.001 + BYTES / 5e9, rel=1e-3)
    assert row["verdict"] == "link"


@pytest.mark.parametrize(
    ("timed", "best", "words"),
    [
        (
            [(1.0, 1, 0), (0.8, 2, 0), (0.6, 1, 1), (0.9, 2, 1)],
            (1, 1),
            ["1.33x with 2 + 0", "1.50x with 2 + 1"],
        ),
        (
            [(1.0, 1, 0), (0.995, 1, 1)],
            (1, 0),
            ["use 1 thread and no loader worker", "noise may explain"],
        ),
        (
            [(1.0, 1, 1), (0.5, 2, 1)],
            (1, 1),
            ["faster, but oversubscribing the CPUs: 2 + 1 (0.500x"],
        ),
        ([(1.0, 1, 1)], (1, 1), ["nothing to compare"]),
        ([(1.0, 2, 1)], (None, None), ["nothing was timed within the 2 CPUs"]),
    ],
)
def test_the_best_split_is_within_the_cpus_and_others_cost(
    timed: list[tuple[float, int, int]], best: tuple[int | None, int | None], words: list[str]
) -> None:
    content = analyse(*(loader(*split_of_cpus) for split_of_cpus in timed))
    (split,) = REPORT.as_data(content)["splits"]
    assert (split["threads"], split["loader_workers"]) == best
    page = " ".join(SHOW(content).split())
    for text in words:
        assert text in split["advice"]
        assert text in page


def test_the_page_and_a_missing_cell() -> None:
    refused = [
        make.hole(
            Status.UNSUPPORTED,
            "this adapter keeps the mini-batch resident",
            placement="fed",
            mode="loop",
        )
    ]
    content = analyse(
        cells(0.5), cells(0.7, "fed"), loader(0.8, 1, 0), loader(0.8, 1, 0, storage="disk"), refused
    )
    page = " ".join(SHOW(content).split())
    assert "torch loop, fed: n/a, this adapter keeps the mini-batch resident" in page
    assert "loader w0, disk" in page
    assert len(REPORT.as_data(content)["splits"]) == 2
    assert "costs time in 3 of 3 cells" in headline(content)[0]
    assert "dlbench run feed" in SHOW(analyse(cells(0.5)))
