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

from dlbench.reports.results.hosts import Host
from dlbench.reports.results.networks import Networks

SHI2016, WUENSCHE2018, BRANDFONBRENER2017 = "shi2016", "wuensche2018", "brandfonbrener2017"
TABLES = (SHI2016, WUENSCHE2018, BRANDFONBRENER2017)
"""The published tables that may stand in place of a store (`--reference`)."""
UPDATES = 2000
"""Of a run of brandfonbrener2017: 1000 examples, twice, one at a time."""


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
    frameworks = {}
    for key, (catalogued, title) in description.get("frameworks", {}).items():
        frameworks[key] = catalogued, title
    return Study(
        name=name,
        year=description["year"],
        frameworks=frameworks,
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
