"""Published tables in the form of our own results: the files of ``reports/data``, described by its
published.toml.

Nothing in them has an interval: they give one number for each cell, without its spread or its
samples.
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
    """The framework here that is compared with one of the table."""

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
        lines = lines_of(self.description["file"])
        cells = [
            _cell(self, line)
            for line in lines
            if first or not line.get("note", "").startswith("first trial")
        ]
        source = f"Source: {self.description['source']}. {self.description['caveat']}"
        return assemble(cells, {host.fingerprint: host for host in self.hosts.values()}, [source])


@cache
def study(name: str) -> Study:
    """Return the study of this name."""
    described = _described()[name]
    machines = _described()[described.get("machines_of", name)]["machines"]
    hosts = {key: _host(of) for key, of in machines.items()}
    peaks = {
        of["fingerprint"]: CorePeak(of["core_peak"][0], of["core_peak"][1], of["core_peak_source"])
        for of in machines.values()
        if "core_peak" in of
    }
    frameworks = {
        key: (catalogued, title)
        for key, (catalogued, title) in described.get("frameworks", {}).items()
    }
    return Study(
        name, described["year"], frameworks, hosts, peaks, {**described, "machines": machines}
    )


def _host(described: Mapping[str, Any]) -> Host:
    threads = described.get("threads")
    parts = tuple((kind.upper(), described[kind]) for kind in ("cpu", "gpu") if kind in described)
    return Host(
        described["fingerprint"],
        described["name"],
        described.get("cores"),
        threads,
        threads,
        parts,
        threads,
    )


def networks_of_2017() -> Networks:
    """Return the networks of brandfonbrener2017, as records keep them."""
    found = study(BRANDFONBRENER2017)
    sizes = {"inputs": "n_in", "outputs": "n_out", "hidden": "n_rec", "steps": "n_steps"}
    return {
        (found.description["network"].format(**line), ""): {
            "family": "elman",
            "numbers": {
                **{name: int(line[of]) for name, of in sizes.items()},
                "activation": line["activation"],
            },
        }
        for line in lines_of(found.description["file"])
    }


def lines_of(name: str) -> list[dict[str, str]]:
    """Return the lines of a file of ``reports/data``, by its head."""
    return list(csv.DictReader(_text(name).splitlines()))


@cache
def _described() -> dict[str, Any]:
    return tomllib.loads(_text("published.toml"))


def _text(name: str) -> str:
    return resources.files("dlbench.reports").joinpath(f"data/{name}").read_text(encoding="utf-8")


def _cell(of: Study, line: Mapping[str, str]) -> CellResult:
    def value(name: str, usual: str = "") -> str:
        return str(of.description.get(name, usual)).format(**line)

    network, machine, threads = (
        value("network"),
        value("machine"),
        int(line.get("threads") or 0) or None,
    )
    batch = int(value("batch_size", "0")) or FIRST[network].known_batch_size
    seconds = (
        float(value("seconds")) / of.description.get("updates", 1) if value("seconds") else None
    )
    kind, _, why = (line.get("hole") or "").partition(": ")
    device = value("device") or ("cpu" if threads else "gpu")
    host = of.hosts[machine]
    rate = (
        FIRST[network].family.training_flops(batch) / seconds
        if seconds and network in FIRST
        else 0.0
    )
    peak, flags = of.description["machines"][machine].get("peak"), list[Flag]()
    if peak is not None and rate > DOUBTFUL_SHARE * peak:
        why = f"{rate * 1e-12:.2f} TFLOP/s are {rate / peak:.0%} of the GPU's theoretical peak"
        flags.append(Flag(NEAR_PEAK, why))
    return CellResult(
        machine=host.fingerprint,
        cell=axes.BLANK._replace(
            network=network,
            batch_size=batch,
            framework=value("framework"),
            mode=value("mode"),
            device=device,
            threads=threads or NO_THREADS,
        ),
        status=Status.OK if seconds else _REASONS.get(kind, Status.UNSUPPORTED),
        reason=f"{why}, says the paper" if why else "" if seconds else value("reason"),
        flags=tuple(flags),
        seconds=published(seconds) if seconds else None,
        items_per_second=batch / seconds if seconds else None,
        run=of.name,
    )


TABLES = (SHI2016, WUENSCHE2018, BRANDFONBRENER2017)
"""The published tables that may stand in place of a store (`--reference`)."""
