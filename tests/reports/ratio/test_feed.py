"""Feeding: the model of the paper, what makes a step longer, and the split of CPUs between threads and a loader."""

from dataclasses import replace
from typing import Any

import factory_of_records as make
import pytest
from exported import exporter
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.protocol import DeviceCeilings, DeviceEvidence, Status
from dlbench.hardware_probe import Ceilings
from dlbench.reports.cells import build_matrix
from dlbench.reports.ratio.feed import (
    CPUS,
    HIDDEN,
    LINK,
    LOADING,
    REPORT,
    UNCLEAR,
    Feeds,
    advice,
    ahead,
    feeds,
    headline,
    one_after_another,
)
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

SHOW = exporter("feed", "terminal")
GIGABYTE = 1e9
BYTES = 4 * 64 * (26752 + 1)
"""Of a mini-batch of fcn5: 64 examples with a label each."""


def test_the_model_gives_the_numbers_of_the_paper() -> None:
    size, rate = 8 * GIGABYTE, 31.5 * GIGABYTE
    assert one_after_another(0.0, size, rate) == pytest.approx(0.253968, abs=5e-7)
    assert one_after_another(0.0, size, rate, 4) == pytest.approx(1.015873, abs=5e-7)
    three = one_after_another(0.0, size, rate, 3)
    assert three == pytest.approx(0.7619, abs=5e-5)
    step = ahead(0.5, size, rate, 3)
    assert step == three
    assert step - 0.5 == pytest.approx(0.2619, abs=5e-5)
    assert 0.5 / step == pytest.approx(0.6562, abs=5e-5)


@given(*[st.floats(1e-6, 1e6)] * 3, st.integers(1, 64))
def test_bringing_ahead_is_never_slower_and_saves_half_at_most(
    compute: float, size: float, rate: float, devices: int
) -> None:
    after, before = one_after_another(compute, size, rate, devices), ahead(compute, size, rate, devices)
    assert compute <= before <= after <= 2 * before * (1 + 1e-9)


def cells(seconds: float, placement: str = "resident", waiting: float = 0.0, **of_cell: Any) -> list[Record]:
    """Three launches, whose threads wait for a CPU for this share of the time."""
    found = []
    for n, factor in enumerate((0.99, 1.0, 1.01)):
        usual = make.record([seconds * factor] * 5, launch=n, placement=placement, **of_cell)
        evidence = make.contention(run_queue_seconds=waiting * 5 * seconds, others_cpu_seconds=0.0)
        result = usual.outcome._replace(contention=evidence)
        found.append(make.record(launch=n, placement=placement, result=result, **of_cell))
    return found


def found(*several: list[Record], bandwidth: float = 10 * GIGABYTE, cpus: int = 2) -> Feeds:
    records = tuple(record for each in several for record in each)
    host = Host(make.MACHINE, "machine", cpus, cpus, float(cpus), logical_cpus=cpus)
    ceiling = replace(make.ceiling(1, 1e12), bandwidth_bytes_per_second=bandwidth)
    results = Results(records, {make.MACHINE: host}, {make.MACHINE: Ceilings((ceiling,))})
    return feeds(build_matrix(results), results)


def only(content: Feeds) -> Any:
    (row,) = content.rows
    return row


def test_stall_rates_and_model_of_a_cell() -> None:
    row = only(found(cells(0.5), cells(0.625, "fed")))
    assert row.stall.value == pytest.approx(0.2)
    assert row.stall.low < 0.2 < row.stall.high
    assert (row.bytes, row.rate) == (BYTES, 10 * GIGABYTE)
    assert row.needs == pytest.approx(BYTES / 0.5)
    assert row.model == pytest.approx(0.5 + BYTES / 10 / GIGABYTE)
    assert only(found(cells(0.5), cells(0.625, "prefetched"))).model == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("seconds", "placement", "more", "expected"),
    [
        (0.51, "fed", {}, HIDDEN),
        (0.7, "fed", {}, CPUS),  # converted by one of them
        (0.7, "fed", {"bandwidth": BYTES / 0.15}, LINK),
        (0.7, "loader", {}, LOADING),
        (0.7, "loader", {"loader_workers": 1}, LOADING),
        (0.7, "loader", {"loader_workers": 1, "threads": 2, "waiting": 0.5}, CPUS),
        (0.7, "loader", {"loader_workers": 1, "threads": 2, "waiting": 0.05}, LOADING),
        (0.7, "prefetched", {"threads": 2, "waiting": 0.5}, CPUS),
    ],
)
def test_what_makes_the_step_longer(seconds: float, placement: str, more: dict[str, Any], expected: str) -> None:
    of_cell = {name: value for name, value in more.items() if name != "bandwidth"}
    given_rate = {"bandwidth": more["bandwidth"]} if "bandwidth" in more else {}
    row = only(found(cells(0.5, threads=of_cell.get("threads", 1)), cells(seconds, placement, **of_cell), **given_rate))
    assert row.verdict == expected


def test_noise_is_no_verdict_and_a_missing_resident_cell_none() -> None:
    noisy = [make.record([t] * 5, launch=n, placement="fed") for n, t in enumerate((0.4, 0.6, 0.8))]
    assert only(found(cells(0.5), noisy)).verdict == UNCLEAR
    row = only(found(cells(0.7, "fed")))
    assert (row.pair, row.verdict, row.stall, row.model) == (None, "", None, None)


def test_on_a_gpu_the_link_is_the_one_to_the_device() -> None:
    ceilings = DeviceCeilings(to_device_pinned_bytes_per_second=20e9, to_device_pageable_bytes_per_second=5e9)
    on_gpu = {"device": "cuda:0", "threads": 1}
    resident, pageable = (
        [
            make.record(
                launch=each.launch,
                result=each.outcome._replace(device=DeviceEvidence("a GPU", ceilings=ceilings)),
                placement=each.cell.placement,
                **on_gpu,
            )
            for each in several
        ]
        for several in (cells(0.001, **on_gpu), cells(0.0025, "pageable", **on_gpu))
    )
    row = only(found(resident, pageable))
    assert row.rate == 5e9
    assert row.model == pytest.approx(0.001 + BYTES / 5e9)
    assert row.verdict == LINK


def loader(seconds: float, threads: int, workers: int, **of_cell: Any) -> list[Record]:
    return cells(seconds, "loader", threads=threads, loader_workers=workers, **of_cell)


def test_the_best_split_is_within_the_cpus_and_others_cost() -> None:
    content = found(loader(1.0, 1, 0), loader(0.8, 2, 0), loader(0.6, 1, 1), loader(0.9, 2, 1), loader(0.95, 1, 2))
    (split,) = content.splits
    best = {cpus: (each.cell.threads, each.cell.loader_workers) for cpus, each in split.by_cpus.items()}
    assert best == {1: (1, 0), 2: (1, 1)}
    said = advice(split)
    assert said.startswith("use 1 thread and 1 loader worker: 0.600 s a step; a step takes ")
    assert "1.33x with 2 + 0" in said
    assert "1.50x with 2 + 1" in said
    shown = SHOW(content)
    assert "*0.600" in shown
    assert "use 1 thread and 1 loader worker" in " ".join(shown.split())


def test_splits_that_noise_may_explain_take_the_fewer_and_faster_ones_beyond_the_cpus_are_said() -> None:
    (split,) = found(loader(1.0, 1, 0), loader(0.995, 1, 1)).splits
    assert advice(split) == (
        "use 1 thread and no loader worker: 1.00 s a step; noise may explain every difference to other splits"
    )
    (split,) = found(loader(1.0, 1, 1), loader(0.5, 2, 1)).splits
    assert "faster, with more of them than CPUs: 2 + 1 (0.500x" in advice(split)
    (split,) = found(loader(1.0, 1, 1)).splits
    assert "nothing to compare" in advice(split)


def test_the_page_its_json_and_a_missing_cell() -> None:
    refused = [make.hole(Status.UNSUPPORTED, "on the CPU this adapter takes resident", placement="fed", mode="loop")]
    content = found(cells(0.5), cells(0.7, "fed"), loader(0.8, 1, 0), loader(0.8, 1, 0, storage="disk"), refused)
    shown = " ".join(SHOW(content).split())
    assert "torch loop, fed: n/a, on the CPU this adapter takes resident" in shown
    assert "loader, disk w0" in shown
    data = REPORT.as_data(content)
    assert [each["placement"] for each in data["cells"] if each["verdict"]] == ["fed", "loader", "loader"]
    assert len(data["splits"]) == 2
    assert "costs time in 3 of 3 cells" in headline(content)[0]
    assert "dlbench run feed" in SHOW(found(cells(0.5)))
