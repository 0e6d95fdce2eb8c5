"""Launches of frameworks of several years, and the progress made of them."""

from datetime import date
from typing import Any

import factory_of_records as make
from exported import exporters

from dlbench.adapters.protocol import Status
from dlbench.reports.builds import Builds
from dlbench.reports.cells import build_matrix
from dlbench.reports.ratio.progress import Progress, Ranking, progress
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

DATES = {
    ("caffe", "1.0.0"): date(2017, 4, 18),
    ("mxnet", "1.9.1"): date(2022, 5, 17),
    ("tensorflow", "2.21.0"): date(2026, 3, 6),
    ("pytorch", "2.13.0"): date(2026, 7, 8),
}
BATCHES = {"fcn5": 64, "fcn8": 64, "lstm32": 128}
FORMATS = exporters("progress")


def launches(
    times: float | list[float], framework: str = "caffe", version: str = "1.0.0", adapter: str = "", **of_cell: Any
) -> list[Record]:
    """Launches of these seconds, or three about them, of a version of a framework."""
    each = [times * f for f in (0.99, 1.0, 1.01)] if isinstance(times, float) else times
    software = {"version": version} if version else {}
    network = of_cell.get("network", "fcn5")
    where = {"mode": "m", "batch_size": BATCHES[network], **of_cell, "framework": framework}
    return [
        make.record(
            result=make.outcome([t] * 5, of_cell.get("threads", 1), software=software),
            launch=n,
            environment=f"{framework}-{version}",
            **{**where, "adapter": adapter or {"torch": "pytorch"}.get(framework, framework)},
        )
        for n, t in enumerate(each)
    ]


def progress_of(records: list[Record], all_modes: bool = False) -> Progress:
    hosts = {r.machine: Host(r.machine, f"machine {r.machine}", 2, 2, 2.0) for r in records}
    return progress(build_matrix(Results(tuple(records), hosts)), Builds(records, DATES), all_modes)


def only(found: Progress) -> Ranking:
    (ranking,) = found.rankings
    return ranking


def names(ranking: Ranking) -> list[str]:
    return [standing.cell.row.framework for standing in ranking.standings]


OLD = launches([2.0, 2.1, 1.9, 2.05])
MIDDLE = launches(1.0, "mxnet", "1.9.1")
NEW = launches([0.5, 0.52, 0.49], "torch", "2.13.0+cpu")


def busy(all_modes: bool = False) -> Progress:
    records = [*OLD, *MIDDLE, *NEW, *launches(0.6, "torch", "2.13.0", mode="compile")]
    records += launches(0.3, "torch-nightly", "2.14.0.dev20261010+cpu", adapter="pytorch")
    records += [*launches(0.9, "mine", "0.1_a&b", adapter="own"), *launches(3.0, network="lstm32")]
    records += launches(1.5, "mxnet", "1.9.1", network="lstm32")
    records += launches(1.0, "mxnet", "1.9.1", network="lstm32", threads=2)
    records.append(
        make.hole(Status.TIMED_OUT, "100 % of <the> time_limit", framework="mxnet", adapter="mxnet", threads=2)
    )
    return progress_of(records, all_modes)
