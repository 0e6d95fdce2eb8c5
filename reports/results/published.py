"""Published tables in the form of our own results.

They are the files of ``reports/data``, described by its published.toml. Nothing in them has an
interval: they give one number for each cell, without its spread or its samples.
"""

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flags import NEAR_PEAK, Flag
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import NO_THREADS
from dlbench.reports.results.matrix import Matrix, assemble
from dlbench.reports.results.networks import FIRST, Networks
from dlbench.reports.results.statistics import published

SHI2016, WUENSCHE2018, BRANDFONBRENER2017 = "shi2016", "wuensche2018", "brandfonbrener2017"
UPDATES = 2000
"""Of a run of brandfonbrener2017: 1000 examples, twice, one at a time."""
DOUBTFUL_SHARE = 0.90
"""Of a GPU's theoretical peak: training steps above this share are doubtful (an FFT may save
arithmetic)."""
_REASONS = {
    "unsupported": Status.UNSUPPORTED,
    "crashed": Status.CRASHED,
    "timed out": Status.TIMED_OUT,
    "out of memory": Status.OUT_OF_MEMORY,
}
"""The first words of a reason in the data."""


class CorePeak(NamedTuple):
    """Theoretical single-precision rate of one core, as a range."""

    low: float
    """FLOP/s."""
    high: float
    source: str


class Counterpart(NamedTuple):
    """The framework of dlbench that is compared with one of the table."""

    adapter: str
    """Its folder; empty: there is none."""
    title: str
    missing: str = ""
    """Why there is none."""


class Study(NamedTuple):
    """A published table, with its frameworks and machines."""

    name: str
    year: str
    frameworks: Mapping[str, tuple[str, str]]
    """By the table's name: the name in the catalogue of frameworks, and the one for people."""
    hosts: Mapping[str, Host]
    """By the data's name of the machine."""
    peaks: Mapping[str, CorePeak]
    """By fingerprint."""
    description: Mapping[str, Any]
    """Its part of published.toml."""

    def matrix(self, first: bool = True) -> Matrix:
        """Return the table, with the first trial of each figure or without."""
        cells = []
        for line in lines_of(self.description["file"]):
            if first or not line.get("note", "").startswith("first trial"):
                cells.append(_cell(self, line))
        hosts = {host.fingerprint: host for host in self.hosts.values()}
        source = f"Source: {self.description['source']}. {self.description['caveat']}"
        return assemble(cells, hosts, [source])


@cache
def study(name: str) -> Study:
    """Return the study of this name."""
    description = _described()[name]
    machines = _described()[description.get("machines_of", name)]["machines"]
    peaks = {}
    for machine in machines.values():
        if "core_peak" in machine:
            low, high = machine["core_peak"]
            peaks[machine["fingerprint"]] = CorePeak(low, high, machine["core_peak_source"])
    frameworks = description.get("frameworks", {})
    return Study(
        name=name,
        year=description["year"],
        frameworks={key: (catalogued, title) for key, (catalogued, title) in frameworks.items()},
        hosts={key: _host(machine) for key, machine in machines.items()},
        peaks=peaks,
        description={**description, "machines": machines},
    )


def _host(machine: Mapping[str, Any]) -> Host:
    threads = machine.get("threads")
    parts = tuple((kind.upper(), machine[kind]) for kind in ("cpu", "gpu") if kind in machine)
    return Host(
        machine["fingerprint"],
        machine["name"],
        physical_cores=machine.get("cores"),
        effective_cpus=threads,
        capacity_cpus=threads,
        description=parts,
        logical_cpus=threads,
    )


def networks_of_2017() -> Networks:
    """Return the networks of brandfonbrener2017, as records keep them."""
    description = study(BRANDFONBRENER2017).description
    columns = {"inputs": "n_in", "outputs": "n_out", "hidden": "n_rec", "steps": "n_steps"}
    networks = {}
    for line in lines_of(description["file"]):
        numbers: dict[str, Any] = {name: int(line[column]) for name, column in columns.items()}
        numbers["activation"] = line["activation"]
        name = description["network"].format(**line)
        networks[name, ""] = {"family": "elman", "numbers": numbers}
    return networks


def lines_of(name: str) -> list[dict[str, str]]:
    """Return the lines of a file of ``reports/data``, by its head."""
    return list(csv.DictReader(_text(name).splitlines()))


@cache
def _described() -> dict[str, Any]:
    return tomllib.loads(_text("published.toml"))


def _text(name: str) -> str:
    return resources.files("dlbench.reports").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _cell(table: Study, line: Mapping[str, str]) -> CellResult:
    """Return the cell that a line of the table describes."""

    def value(name: str, default: str = "") -> str:
        return str(table.description.get(name, default)).format(**line)

    network = value("network")
    machine = value("machine")
    threads = int(line.get("threads") or 0) or None
    batch = int(value("batch_size", "0")) or FIRST[network].known_batch_size
    seconds = None
    if value("seconds"):
        seconds = float(value("seconds")) / table.description.get("updates", 1)
    kind, _, reason = (line.get("hole") or "").partition(": ")
    rate = 0.0
    if seconds and network in FIRST:
        rate = FIRST[network].family.training_flops(batch) / seconds
    peak = table.description["machines"][machine].get("peak")
    flags = []
    if peak is not None and rate > DOUBTFUL_SHARE * peak:
        reason = f"{rate * 1e-12:.2f} TFLOP/s are {rate / peak:.0%} of the GPU's theoretical peak"
        flags.append(Flag(NEAR_PEAK, reason))
    if reason:
        reason = f"{reason}, says the paper"
    elif not seconds:
        reason = value("reason")
    return CellResult(
        machine=table.hosts[machine].fingerprint,
        cell=axes.BLANK._replace(
            network=network,
            batch_size=batch,
            framework=value("framework"),
            mode=value("mode"),
            device=value("device") or ("cpu" if threads else "gpu"),
            threads=threads or NO_THREADS,
        ),
        status=Status.OK if seconds else _REASONS.get(kind, Status.UNSUPPORTED),
        reason=reason,
        flags=tuple(flags),
        seconds=published(seconds) if seconds else None,
        items_per_second=batch / seconds if seconds else None,
        run=table.name,
    )


TABLES = (SHI2016, WUENSCHE2018, BRANDFONBRENER2017)
"""The published tables that may stand in place of a store (`--reference`)."""
