"""Synthetic records: everything about a launch can be said, and what is not said is
unremarkable."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from dlbench.adapters.protocol import Cell, Contention, Parity, Protocol, Status, ThreadEvidence
from dlbench.hardware_probe import Ceiling
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import Matrix, build_matrix
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.results import Results

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MACHINE = "m-one"

# As hardware_probe describes a machine; the reports read nothing else of it.
MACHINE_DICT: dict[str, Any] = {
    "cpu": {"physical_cores": 2, "logical_cpus": 2, "effective_cpus": 2}
}


def cell(**changes: Any) -> Cell:
    return Cell("torch", "pytorch", "eager", "fcn5", "cpu", 1, 64)._replace(**changes)


def parity(verdict: str = "agrees", reason: str = "") -> Parity:
    return Parity(verdict, reason, [10.0, 9.0], 1e-7, 1e-4, "fc1.weight", 1e-5, 2e-2, 0.1)


def threads(
    requested: int,
    wall: float,
    cpu_per_wall: float | None = None,
    says: int | None = -1,
    **changes: Any,
) -> ThreadEvidence:
    """Evidence of a framework that keeps ``requested`` threads equally busy unless given otherwise.

    No thread is on more than one CPU at once: where CPU time asks for it there are more threads.
    """
    ratio = float(requested) if cpu_per_wall is None else cpu_per_wall
    busy = max(1, requested, math.ceil(ratio))
    evidence = ThreadEvidence(
        requested=requested,
        framework_says=requested if says == -1 else says,
        os_threads=busy + 1,
        cpu_seconds=ratio * wall,
        wall_seconds=wall,
        cpu_seconds_by_thread=[ratio * wall / busy] * busy + [0.0],
    )
    return evidence._replace(**changes)


def contention(**changes: Any) -> Contention:
    return Contention(0.0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0)._replace(**changes)


def outcome(
    seconds: Iterable[float] = (1.0, 1.1, 0.9), requested: int = 1, **changes: Any
) -> Outcome:
    samples = [round(duration * 1e9) for duration in seconds]
    wall = sum(samples) * 1e-9
    result = Outcome(
        status=Status.OK,
        import_seconds=1.0,
        prepare_seconds=2.0,
        first_step_seconds=3.0,
        warmup_ns=samples[:1],
        samples_ns=samples,
        final_loss=1.5,
        final_loss_finite=True,
        peak_memory_bytes=10**9,
        parity=parity(),
        threads=threads(requested, wall) if wall else None,
        contention=contention(),
        software={"python": "3.11.7", "versions": {"torch": "2.13.0"}, "blas": "oneDNN"},
        parameter_count=118_000_000,
        gemm_flops_per_second=None,
    )
    return result._replace(**changes)


def record(
    seconds: Sequence[float] = (1.0, 1.1, 0.9),
    launch: int = 0,
    run: str = "run-1",
    machine: str = MACHINE,
    environment: str = "abc123",
    minutes: float = 0.0,
    result: Outcome | None = None,
    **of_cell: Any,
) -> Record:
    where = cell(**of_cell)
    return Record(
        run=run,
        suite="quick",
        launch=launch,
        cell=where,
        outcome=outcome(seconds, where.all_threads) if result is None else result,
        machine=machine,
        environment=environment,
        interpreter="CPython 3.11.7",
        protocol=Protocol(),
        started=START + timedelta(minutes=minutes),
        wall_seconds=10.0,
        version="0.1.0",
    )


def launches(
    seconds: float | Sequence[float], spread: float = 0.01, **of_record: Any
) -> list[Record]:
    """Launches of these seconds a step, of one number three that are so much apart."""
    step_seconds = (
        [seconds * f for f in (1 - spread, 1.0, 1 + spread)]
        if isinstance(seconds, float)
        else seconds
    )
    return [record([t] * 5, launch=n, **of_record) for n, t in enumerate(step_seconds)]


def changed(records: Iterable[Record], **of_outcome: Any) -> list[Record]:
    """The same records with these parts of their outcomes."""
    return [replace(record, outcome=record.outcome._replace(**of_outcome)) for record in records]


def matrix(*records: Record, cores: int | None = 2, **of_host: Any) -> Matrix:
    """The cells of these records; every machine has so many cores."""
    hosts = {
        r.machine: Host(r.machine, f"machine {r.machine}", cores, cores, 2.0, **of_host)
        for r in records
    }
    return build_matrix(Results(records, hosts))


def hole(status: Status, reason: str, **changes: Any) -> Record:
    return record(result=Outcome(status, reason), **changes)


def run(**changes: Any) -> Run:
    fields: dict[str, Any] = {
        "id": "run-1",
        "suite": "quick",
        "protocol": Protocol(),
        "launches": 3,
        "plan": (cell(), cell(threads=2)),
        "machine": MACHINE,
        "started": START,
        "version": "0.1.0",
        "finished": None,
        "seed": 1,
    }
    return Run(**{**fields, **changes})


def ceiling(threads: int, flops_per_second: float) -> Ceiling:
    """A ceiling with these two facts; whatever else the probe records about it is of no matter to
    the reports."""
    values: dict[object, Any] = {int: 1, float: 1.0, str: "x", tuple[float, ...]: (1.0,)}
    described = {field.name: values.get(field.type) for field in fields(Ceiling)}
    return Ceiling(**{**described, "threads": threads, "gemm_flops_per_second": flops_per_second})
