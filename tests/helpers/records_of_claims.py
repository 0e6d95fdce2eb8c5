"""Launches to try claims on, and what the report makes of them."""

from collections.abc import Iterable
from dataclasses import replace

import factory_of_records as make

from dlbench.reports.builds import MeasuredBuilds
from dlbench.reports.claims.claims import Claim, Evidence, claims, try_claims
from dlbench.reports.claims.figures import Tables
from dlbench.reports.claims.report import tools_of_stands
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.matrix import build_matrix
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

ADAPTERS = {"caffe": "caffe", "cntk": "cntk", "tensorflow": "tensorflow", "pytorch": "torch"}
"""Which tool of the papers each adapter stands for."""
CLAIMS = {claim.id: claim for claim in claims()}


def timed(tool: str, seconds: float, network: str = "fcn5", **of_cell: object) -> list[Record]:
    """Three launches of a tool of the papers."""
    adapter = {"torch": "pytorch"}.get(tool, tool)
    batch = {"fcn": 64, "lst": 128}.get(network[:3], 16)
    named = {
        "framework": tool,
        "adapter": adapter,
        "mode": "graph",
        "network": network,
        "batch_size": batch,
    }
    return make.launches(seconds, **{**named, **of_cell})


def small(
    seconds: float,
    hidden: int,
    steps: int,
    inputs: int = 2,
    activation: str = "relu",
    **of_cell: object,
) -> list[Record]:
    """Three launches of a small recurrent network."""
    sizes = {
        "inputs": inputs,
        "hidden": hidden,
        "outputs": inputs,
        "steps": steps,
        "activation": activation,
    }
    name = f"rnn-r{hidden}-t{steps}-i{inputs}-{activation}"
    where = {"network": name, "specification": f"of {name}", "batch_size": 1, **of_cell}
    return [
        replace(record, network={"family": "elman", "numbers": sizes})
        for record in timed("torch", seconds, **where)
    ]


def tables_of(records: Iterable[Record], cores: int = 4, gpus: tuple[str, ...] = ()) -> Tables:
    """The tables of these records; every machine has so many cores and these GPUs."""
    all_records = tuple(records)
    devices = tuple((f"GPU {index}", f"{model}, 8 GiB") for index, model in enumerate(gpus))
    hosts = {
        record.machine: Host(record.machine, "a machine", cores, cores, float(cores), devices)
        for record in all_records
    }
    builds = MeasuredBuilds(all_records, {})
    networks = {
        (record.cell.network, record.cell.specification): record.network
        for record in all_records
        if record.network
    }
    tool_of = tools_of_stands(ADAPTERS, lambda cell: builds.of(cell).adapter)
    return Tables(build_matrix(Results(all_records, hosts)), tool_of, networks, {})


def here(
    claim: str | Claim, records: Iterable[Record], cores: int = 4, gpus: tuple[str, ...] = ()
) -> Evidence:
    """What the records say of one claim."""
    chosen = CLAIMS[claim] if isinstance(claim, str) else claim
    (tried,) = try_claims([chosen], tables_of(records, cores, gpus)).tried
    return tried.here
