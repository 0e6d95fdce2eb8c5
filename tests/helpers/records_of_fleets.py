"""Fleets whose truth is known: nodes of one kind with the times that are given, or drawn."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import factory_of_records as make
import numpy as np

from dlbench.hardware_probe import Reading
from dlbench.reports.ratio.nodes import Kind, NodeSeen
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.statistics import summarise
from dlbench.reports.storage.hosts import Host, Node
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.results import Narrowing, Results

KIND = Host("kind-1", "EPYC, 4 CPUs", 4, 4, 4.0, cpu_model="EPYC", memory_gib=16)
CALM = Reading(1e11, 1e10, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, "NumPy 2, 512 x 512", "2026-03-01T12:00:00.000+00:00")

Times = Mapping[str, Mapping[str, float | Sequence[float]]]
"""By node and network: seconds of each launch, or of three a little apart."""


def records(
    times: Times, fleet: str = "f1", shared: Sequence[str] = (), machine: str = KIND.fingerprint
) -> list[Record]:
    """Return a run's records for each node."""
    return [
        replace(each, node=Node(fleet, node, tuple(shared)))
        for node, networks in times.items()
        for network, seconds in networks.items()
        for each in make.launches(seconds, network=network, machine=machine, run=f"{fleet}-{machine}-{node}")
    ]


def source(
    found: Iterable[Record],
    readings: Mapping[str, Sequence[Reading]] | None = None,
    hosts: Mapping[str, Host] | None = None,
    narrowing: Narrowing | None = None,
    runs: Sequence[Run] = (),
    **options: Any,
) -> Source:
    """Return what a report asks, of these records and, by node, of these readings."""
    kept = list(found)
    known = dict(hosts or {KIND.fingerprint: KIND})
    of_records = {each.run: make.run(id=each.run, machine=each.machine, node=each.node) for each in kept}
    every = [*of_records.values(), *runs]
    nodes = {run.id: run.node.name for run in every if run.node is not None}

    def sentinels(run: str) -> list[tuple[int, str, dict[str, Any]]]:
        return [(place, "before", asdict(each)) for place, each in enumerate((readings or {}).get(nodes[run], ()))]

    return Source(
        Results,
        lambda: [(run, 1) for run in every],
        ReportOptions(**options),
        of_run=lambda run: Results(tuple(each for each in kept if each.run == run), known),
        sentinels=sentinels,
        narrowing=narrowing or Narrowing(),
    )


def readings(products: Sequence[float], bandwidths: Sequence[float], **changes: Any) -> list[Reading]:
    """Return calm readings of these rates, a minute apart."""
    return [
        replace(
            CALM,
            gemm_flops_per_second=product,
            bandwidth_bytes_per_second=bandwidth,
            taken=f"2026-03-01T12:{minute:02}:00.000+00:00",
            **changes,
        )
        for minute, (product, bandwidth) in enumerate(zip(products, bandwidths, strict=True))
    ]


def kind(logs: np.ndarray[tuple[int, int, int], np.dtype[np.float64]]) -> Kind:
    """Return a kind of the log-medians of launches, shape (nodes, benchmarks, launches), nodes named n1, n2, ..."""
    names = [f"n{place + 1}" for place in range(len(logs))]
    times = {
        f"benchmark {place}": {name: summarise([[s] for s in each]) for name, each in zip(names, of, strict=True)}
        for place, of in enumerate(np.exp(logs.transpose(1, 0, 2)))
    }
    return Kind(KIND, {name: NodeSeen(name) for name in names}, dict(times))


def drawn(
    rng: np.random.Generator, shape: tuple[int, int, int], launch: float = 0.01, node: float = 0.0, slow: float = 1.0
) -> np.ndarray[tuple[int, int, int], np.dtype[np.float64]]:
    """Return log-medians, shape (nodes, benchmarks, launches): of launches and nodes that deviate; the last is slow."""
    nodes, benchmarks, _ = shape
    levels = rng.normal(0.0, node, (nodes, 1, 1)) + rng.normal(0.0, 1.0, (1, benchmarks, 1))
    levels[-1] += np.log(slow)
    return levels + rng.normal(0.0, launch, shape)
