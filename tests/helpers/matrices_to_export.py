"""Matrices of every kind, for the formats to show."""

from typing import Any

import factory_of_records as make
from exported import exporters

from dlbench.adapters.protocol import BOUND, Status
from dlbench.reports.cells import Matrix, assemble, build_matrix
from dlbench.reports.published import SHI2016, study
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.results import Results

HOST = Host(make.MACHINE, "AMD EPYC, 2 CPUs", 2, 2, 2.0, (("CPU", "AMD EPYC"), ("Memory", "8 GiB")))
WIDE = Host("m-wide", "eight cores of two threads", 8, 8, 8.0, logical_cpus=16)
OTHER = Host("m-two", "Somebody & Sons_100% {fast} CPU", 4, 8, 8.0)


def results_of(*records: Any) -> Results:
    return Results(tuple(records), {host.fingerprint: host for host in (HOST, OTHER, WIDE)})


def launches(times: dict[int, float], **of_cell: Any) -> list[Any]:
    """Three launches of each time, one per cent apart, on the wide machine, throttled a little."""
    return [
        make.record(
            result=make.outcome([t * f] * 5, p, contention=make.contention(throttled_seconds=0.1 * t)),
            **{"launch": n, "machine": "m-wide", "threads": p, **of_cell},
        )
        for p, t in times.items()
        for n, f in enumerate((0.99, 1.0, 1.01))
    ]


def laws() -> Results:
    """A row that follows a law, bound and not, one that follows none, and one whose counts are too few."""
    law = {p: 0.5 * (1 + 0.05 * (p - 1) + 0.01 * p * (p - 1)) / p for p in (1, 2, 3, 4, 6, 8)}
    return results_of(
        *launches(law, affinity=BOUND),
        *launches({**law, 16: 0.9, 32: 2.0}),
        *launches({p: t * (7 if p > 2 else 1) for p, t in law.items()}, framework="mxnet", affinity=BOUND),
        *launches({1: 1.0, 2: 0.6}, framework="onnxruntime"),
    )


def busy() -> Results:
    """One of everything."""
    records = [make.record([0.5 * f] * 5, launch=n) for n, f in enumerate((0.99, 1.0, 1.01))]
    records += [make.record([0.8 * f] * 5, launch=n, threads=8) for n, f in enumerate((0.99, 1.0, 1.01))]
    for status in Status:
        if status not in (Status.OK, Status.PARITY_FAILED):
            records.append(
                make.hole(status, f"a reason | with_signs & {status.value} 100% <b>", framework=status.value)
            )
    wrong = make.outcome()._replace(status=Status.PARITY_FAILED, parity=make.parity("disagrees", "update error 0.4"))
    records.append(make.record(framework="wrong", result=wrong))
    nan = make.outcome()._replace(parity=make.parity("agrees")._replace(losses=[float("nan")]), final_loss_finite=False)
    records.append(make.record(framework="diverged", result=nan))
    records.append(make.record(framework="knob", threads=2, result=make.outcome(threads=make.threads(2, 3.0, 1.0))))
    return results_of(*records)


def beside(one: Matrix, other: Matrix) -> Matrix:
    return assemble([*one.cells.values(), *other.cells.values()], {**one.hosts, **other.hosts}, other.notes)


MATRICES = {
    "empty": lambda: build_matrix(Results()),
    "holes": lambda: build_matrix(results_of(make.hole(Status.CRASHED, "signal 11"), make.hole(Status.SKIPPED, ""))),
    "one machine": lambda: build_matrix(busy()),
    "two machines": lambda: build_matrix(results_of(*busy().records, make.record(machine="m-two", threads=4))),
    "with the paper": lambda: beside(build_matrix(busy()), study(SHI2016).matrix()),
    "a batch sweep": lambda: build_matrix(results_of(*(make.record(batch_size=b) for b in (1, 8, 64)))),
    "scaling laws": lambda: build_matrix(laws()),
    "workers": lambda: build_matrix(
        results_of(
            *(make.record(world_size=w, threads=p) for w in (1, 2) for p in (1, 2)),
            *(make.record(world_size=w, device="cuda:0") for w in (1, 2, 4)),
        )
    ),
    "a GPU": lambda: build_matrix(results_of(make.record(device="cuda:0"), make.record(device="cuda:0", threads=2))),
}
OF_THREADS = exporters("threads")
