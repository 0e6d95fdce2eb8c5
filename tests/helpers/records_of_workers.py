"""Launches of one worker and of several, and the report of them."""

from functools import partial
from typing import Any

import factory_of_records as make
from exported import exporters

from dlbench.adapters.protocol import Status
from dlbench.reports.cells import build_matrix
from dlbench.reports.curve.curve import Curves
from dlbench.reports.curve.scaling import scaling
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

FORMATS = exporters("scaling")
launches = partial(make.launches, spread=0.005)


def found_in(*records: Record, cpus: int | None = 2) -> Curves:
    hosts = {r.machine: Host(r.machine, f"machine {r.machine}", cpus, cpus, 2.0, logical_cpus=cpus) for r in records}
    return scaling(build_matrix(Results(records, hosts)))


def busy() -> Curves:
    records: list[Record] = []
    for framework, mode, speed in (("torch", "eager", 1.0), ("onnxruntime", "training", 0.7)):
        for network in ("fcn5", "resnet50"):
            of_cell: dict[str, Any] = {"framework": framework, "mode": mode, "network": network}
            for batch in (32, 64):
                records += launches(speed * batch / 64, batch_size=batch, **of_cell)
                records += launches(speed * batch / 64 / 1.7, batch_size=batch, threads=2, **of_cell)
                records += launches(speed * batch / 64 / 1.8, batch_size=batch, world_size=2, **of_cell)
                records += launches([0.9, 0.8], batch_size=batch, world_size=2, threads=2, **of_cell)
                for count in (1, 2, 4, 8):
                    seconds = 0.001 * speed * batch / count**0.9
                    records += launches(seconds, batch_size=batch, device="cuda:0", world_size=count, **of_cell)
    records += launches(1.0, machine="m-two", framework="mxnet")
    records.append(make.hole(Status.CRASHED, "signal 11 | <b>", world_size=2, machine="m-two", framework="mxnet"))
    return found_in(*records)
