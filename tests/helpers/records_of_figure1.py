"""Launches of mini-batches of many sizes, and the figure made of them."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import factory_of_records as make
from exported import exporters

from dlbench.adapters.protocol import Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.curve.curve import Curves
from dlbench.reports.curve.figure1 import figure1
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

FORMATS = exporters("figure1")
SIZES = (16, 32, 64, 128, 256, 512)


def saturating(half: float, sizes: Sequence[int] = SIZES, highest: float = 1000.0) -> dict[int, float]:
    """Seconds of a device that gives half of its highest rate at a mini-batch of ``half``: T(b) = (b + half) / highest.

    A doubling from b multiplies the rate by 2 (b + half) / (2 b + half), which falls under 1.1 at b = 4.5 half.
    """
    return {size: (size + half) / highest for size in sizes}


def records_of(times: Mapping[int, float | Sequence[float]], **of_cell: Any) -> list[Record]:
    """Launches with these times by mini-batch size (three of each, half a per cent apart, unless given)."""
    return [r for size, t in times.items() for r in make.launches(t, 0.005, batch_size=size, **of_cell)]


def figure_of(records: Sequence[Record], **of_host: Any) -> Curves:
    hosts = {r.machine: Host(r.machine, f"machine {r.machine}", 2, 2, 2.0, **of_host) for r in records}
    return figure1(build_matrix(Results(tuple(records), hosts)))


def holes(sizes: Mapping[int, Status], **of_cell: Any) -> list[Record]:
    return [make.hole(status, f"{status.value}!", batch_size=size, **of_cell) for size, status in sizes.items()]


def busy() -> Curves:
    """Five rows on three networks at three places, some of whose sizes did not fit."""
    records: list[Record] = []
    modes = {"torch": "eager", "torch-next": "compile", "jax": "jit", "mxnet": "hybrid", "tensorflow": "function"}
    places = (("cpu", "float32", 1.0), ("cuda:0", "float32", 40.0), ("cuda:0", "bfloat16", 90.0))
    networks = {"fcn5": SIZES, "resnet50": SIZES[:4], "lstm32": SIZES[2:]}
    for n, (row, place, network) in enumerate(itertools.product(modes.items(), places, networks)):
        of_cell: dict[str, Any] = dict(zip(("framework", "mode", "device", "precision"), (*row, *place), strict=False))
        of_cell["network"] = network
        slow = n // (len(places) * len(networks))
        times = saturating(10.0 * (slow + 1), networks[network], 300.0 * place[2] * (1 + slow / 5))
        records += records_of(times, **of_cell)
        if network == "resnet50" and slow % 2:
            records += holes({256: Status.OUT_OF_MEMORY, 512: Status.SKIPPED}, **of_cell)
    records += [make.hole(Status.TIMED_OUT, "100 % of <the> time_limit", batch_size=1024, framework="jax", mode="jit")]
    return figure_of(records)
