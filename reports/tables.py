"""`dlbench report tables`: software, networks and hardware, as Tables 1 to 3 of the paper."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from dlbench.adapters import axes
from dlbench.adapters.families import LOSSES, Family
from dlbench.adapters.protocol import TUNED
from dlbench.reports.formats.csv import rows_of_tables
from dlbench.reports.formats.json import data_of_tables
from dlbench.reports.formats.layout import Page, Table, entries
from dlbench.reports.report import Report
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.networks import FIRST, family_of_record, in_order
from dlbench.reports.results.number_text import number
from dlbench.reports.results.record import IMPORTED, Record
from dlbench.reports.results.results import Results

PARAMETERS_OF_2016 = {
    "fcn5": "55 M",
    "fcn8": "58 M",
    "alexnet": "61 M",
    "resnet50": "3.8 billion",
    "lstm32": "13 M",
    "lstm64": "13 M",
}
"""Shi, Wang, Xu, Chu 2016, Table 2."""
_FACTS = ("blas", "execution", "onednn", "openmp", "cpu_capability", "compiler", "build")


def tables(results: Results) -> list[Table]:
    """Return Tables 1 to 3 for these results: software, measured networks, hardware."""
    workloads = {}
    for record in results.records:
        cell = record.cell
        if cell.adapter != IMPORTED:
            key = (cell.network, cell.specification, cell.batch_size)
            workloads[key] = (cell.network, family_of_record(record), cell.batch_size)
    all_tables = [software_table(results.records, results.hosts)]
    if workloads or not results.records:
        all_tables.append(networks_table(workloads.values()))
    for host in results.hosts.values():
        all_tables.append(hardware_table(host))
    return all_tables


def software_table(records: Iterable[Record], hosts: dict[str, Host]) -> Table:
    """Return the version, interpreter, environment and libraries of each framework and mode."""
    several = len(hosts) > 1
    newest: dict[tuple[str, str, str, str, str], Record] = {}
    for record in sorted(records, key=_software_order, reverse=True):
        cell = record.cell
        machine = record.machine if several else ""
        key = (machine, cell.framework, cell.mode, record.environment, cell.tuning)
        newest.setdefault(key, record)
    rows = []
    notes = []
    for (machine, framework, mode, environment, tuning), record in sorted(newest.items()):
        software = record.outcome.software
        name = f"{framework} {mode}"
        if several:
            name += f" on {machine[:12]}"
        version = str(software.get("version", "?"))
        if software.get("framework", framework) != framework:
            version = f"{software['framework']} {version}"
        numpy = str(software.get("numpy", "?"))
        rows.append(entries(name, version, record.interpreter, numpy, environment[:12]))
        facts = _software_facts(record)
        if facts:
            condition = "" if tuning == TUNED else f", {tuning}"
            notes.append(f"{name}{condition}: {'; '.join(facts)}")
    head = ("framework", "version", "interpreter", "NumPy", "environment")
    return Table(
        "Table 1. Software",
        head,
        tuple(dict.fromkeys(rows)),
        tuple(dict.fromkeys(notes)),
        words=True,
    )


def _software_order(record: Record) -> tuple[bool, datetime]:
    """Return the key that sorts launches with a description last, the newest of them at the end."""
    return (bool(record.outcome.software), record.started)


def _software_facts(record: Record) -> list[str]:
    """Return the libraries and the environment variables of a launch."""
    software = record.outcome.software
    facts = [f"{key} {_short_text(software[key])}" for key in _FACTS if software.get(key)]
    variables = software.get("variables")
    if isinstance(variables, dict):
        threads = str(record.cell.threads)
        for key, value in sorted(variables.items()):
            if "THREADS" in key and value == threads:
                value = "the threads asked"
            facts.append(f"{key}={value}")
    return facts


def networks_table(
    workloads: Iterable[tuple[str, Family | None, int | None]] | None = None,
) -> Table:
    """Return a row for each network, family and mini-batch; by default for those of the paper."""
    if workloads is None:
        workloads = [
            (network.name, network.family, network.batch_size) for network in FIRST.values()
        ]
    rows = []
    names = []
    families = []
    for name, family, batch in sorted(workloads, key=_workload_order):
        names.append(name)
        size = "?" if batch is None else str(batch)
        if family is None:
            rows.append(entries(name, "?", "?", "?", size, "?"))
            continue
        flops = "?"
        if family.specified:
            families.append(family)
            if batch is not None:
                flops = number(family.training_flops(batch) * 1e-9)
        loss = LOSSES.get(family.loss, "?")
        rows.append(entries(name, family.words(), family.size_words(), flops, size, loss))
    head = ("network", "layers", "parameters", "GFLOP/step", "batch", "loss")
    notes = (
        (
            "GFLOP of one training step, matrix products and convolutions only; a multiply-add "
            "counts as two."
        ),
        *_training_notes(families),
        *_published_notes(names),
    )
    return Table("Table 2. Networks", head, tuple(rows), notes, words=True)


def _workload_order(workload: tuple[str, Family | None, int | None]) -> tuple[Any, Any]:
    """Return the key that sorts networks as everywhere, and each by its mini-batch."""
    name, _, batch = workload
    return (in_order(name), axes.order_of(batch))


def _training_notes(families: Sequence[Family]) -> list[str]:
    """Return a line for each loss of these networks, and one on sampling machines."""
    lines = []
    losses = {family.loss for family in families}
    if "cross_entropy" in losses:
        lines.append(
            "Softmax cross-entropy, mean over the mini-batch; for LSTMs over the time steps too."
        )
    if "squares" in losses:
        lines.append("Mean squared error: over the mini-batch, its steps and the outputs.")
    if any(family.clip for family in families):
        lines.append(
            "Clip: the largest global gradient norm; a step scales larger gradients down to it."
        )
    if lines:
        lines[-1] += " SGD, learning rate 0.01."
    if any(not family.trains for family in families):
        lines.append(
            "Activity and clock are means over the chains of sampling machines, which are not "
            "trained."
        )
    return lines


def _published_notes(names: Collection[str]) -> list[str]:
    """Return a line on the other parameter counts of these networks in the 2016 paper's Table 2."""
    counts = []
    for name, parameters in PARAMETERS_OF_2016.items():
        if name in names:
            counts.append(f"{name} {parameters}")
    if not counts:
        return []
    words = ", ".join(counts)
    if "resnet50" in names:
        words += " (resnet50's are multiply-adds)"
    return [
        (f"Parameters in the 2016 paper's Table 2: {words}; its scripts' networks are those above.")
    ]


def hardware_table(host: Host) -> Table:
    """Return the probe's description of a machine."""
    rows = tuple(entries(name, value) for name, value in host.description)
    notes: tuple[str, ...] = ()
    if not rows:
        notes = ("The store has no description of this machine.",)
    return Table(f"Table 3. Hardware: {host.name}", ("", ""), rows, notes, words=True)


def _short_text(value: object) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{key} {content}" for key, content in value.items())
    text = " ".join(str(value).split())
    if len(text) > 100:
        text = text[:97] + "..."
    return text


REPORT = Report(
    name="tables",
    summary="Software, networks and hardware behind the numbers.",
    examples=("dlbench report tables --format markdown",),
    analyse=lambda source: tables(source.results()),
    page=lambda tables, options: Page((), tuple(tables)),
    data=data_of_tables,
    rows=rows_of_tables,
    suggestion="software, networks and hardware behind the numbers",
)
