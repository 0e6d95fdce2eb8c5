"""`dlbench report tables`: software, networks and hardware behind the numbers, as Tables 1 to 3 of
the paper.
"""

from collections.abc import Iterable, Sequence

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
    """Return Tables 1 to 3 for these results: software, the networks that were measured,
    hardware.
    """
    measured = {
        (record.cell.network, record.cell.specification, record.cell.batch_size): family_of_record(
            record
        )
        for record in results.records
        if record.cell.adapter != IMPORTED
    }
    workloads = [(name, family, batch) for (name, _, batch), family in measured.items()]
    found = [software_table(results.records, results.hosts)]
    if workloads or not results.records:
        found.append(networks_table(workloads))
    return found + [hardware_table(host) for host in results.hosts.values()]


def software_table(records: Iterable[Record], hosts: dict[str, Host]) -> Table:
    """Return a row for each framework, mode and environment: version, interpreter, environment
    hash, libraries.
    """
    several = len(hosts) > 1
    newest: dict[tuple[str, str, str, str, str], Record] = {}
    for record in sorted(
        records, key=lambda each: (bool(each.outcome.software), each.started), reverse=True
    ):
        cell = record.cell
        key = (
            record.machine if several else "",
            cell.framework,
            cell.mode,
            record.environment,
            cell.tuning,
        )
        newest.setdefault(key, record)
    rows, notes = [], []
    for (machine, framework, mode, environment, tuning), record in sorted(newest.items()):
        software = record.outcome.software
        name = f"{framework} {mode}" + (f" on {machine[:12]}" if several else "")
        version = str(software.get("version", "?"))
        if software.get("framework", framework) != framework:
            version = f"{software['framework']} {version}"
        rows.append(
            entries(
                name, version, record.interpreter, str(software.get("numpy", "?")), environment[:12]
            )
        )
        facts = [f"{key} {_words(software[key])}" for key in _FACTS if software.get(key)]
        variables = software.get("variables")
        if isinstance(variables, dict):
            threads = str(record.cell.threads)
            for key, value in sorted(variables.items()):
                of_threads = "THREADS" in key and value == threads
                facts.append(f"{key}={'the threads asked' if of_threads else value}")
        if facts:
            notes.append(f"{name}{'' if tuning == TUNED else ', ' + tuning}: " + "; ".join(facts))
    head = ("framework", "version", "interpreter", "NumPy", "environment")
    return Table(
        "Table 1. Software",
        head,
        tuple(dict.fromkeys(rows)),
        tuple(dict.fromkeys(notes)),
        words=True,
    )


def networks_table(
    workloads: Iterable[tuple[str, Family | None, int | None]] | None = None,
) -> Table:
    """Return a row for each network, family and mini-batch; by default for the paper's networks and
    mini-batches.
    """
    if workloads is None:
        workloads = [
            (network.name, network.family, network.batch_size) for network in FIRST.values()
        ]
    wanted = list(workloads)
    rows = []
    for name, family, batch in sorted(
        wanted, key=lambda each: (in_order(each[0]), axes.order_of(each[2]))
    ):
        size = "?" if batch is None else str(batch)
        if family is None:
            rows.append(entries(name, "?", "?", "?", size, "?"))
            continue
        flops = "?"
        if batch is not None and family.specified:
            flops = number(family.training_flops(batch) * 1e-9)
        loss = LOSSES.get(family.loss, "?")
        rows.append(entries(name, family.words(), family.size_words(), flops, size, loss))
    head = ("network", "layers", "parameters", "GFLOP/step", "batch", "loss")
    notes = (
        (
            "GFLOP of one training step, matrix products and convolutions only; a multiply-add "
            "counts as two."
        ),
        *_of_losses([family for _, family, _ in wanted if family is not None and family.specified]),
        *_as_published([name for name, _, _ in wanted]),
    )
    return Table("Table 2. Networks", head, tuple(rows), notes, words=True)


def _of_losses(families: Sequence[Family]) -> list[str]:
    """Return a line for each loss that these networks are trained with."""
    lines = []
    if any(family.loss == "cross_entropy" for family in families):
        lines.append(
            "Softmax cross-entropy, mean over the mini-batch; for LSTMs over the time steps too."
        )
    if any(family.loss == "squares" for family in families):
        lines.append("Mean squared error: over the mini-batch, its steps and the outputs.")
    if any(family.clip for family in families):
        lines.append(
            "Clip: the largest global gradient norm; a step scales larger gradients down to it."
        )
    trained = [*lines[:-1], f"{lines[-1]} SGD, learning rate 0.01."] if lines else []
    if any(not family.trains for family in families):
        trained.append(
            "Activity and clock are means over the chains of sampling machines, which are not "
            "trained."
        )
    return trained


def _as_published(names: Iterable[str]) -> list[str]:
    """Return a line on the different parameter counts that Table 2 of the 2016 paper gives for
    these networks.
    """
    shown = [name for name in PARAMETERS_OF_2016 if name in set(names)]
    if not shown:
        return []
    given = ", ".join(f"{name} {PARAMETERS_OF_2016[name]}" for name in shown)
    multiply_adds = " (resnet50's are multiply-adds)" if "resnet50" in shown else ""
    return [
        (
            f"Parameters in the 2016 paper's Table 2: {given}{multiply_adds}; its scripts' "
            "networks are those above."
        )
    ]


def hardware_table(host: Host) -> Table:
    """Return what the probe found on a machine."""
    rows = tuple(entries(*pair) for pair in host.description)
    notes = () if rows else ("The store has no description of this machine.",)
    return Table(f"Table 3. Hardware: {host.name}", ("", ""), rows, notes, words=True)


def _words(value: object) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{key} {inner}" for key, inner in value.items())
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else text[:97] + "..."


REPORT = Report(
    name="tables",
    summary="Software, networks and hardware behind the numbers (Tables 1 to 3 of the paper).",
    examples=("dlbench report tables --format markdown",),
    analyse=lambda source: tables(source.results()),
    page=lambda found, options: Page((), tuple(found)),
    data=data_of_tables,
    rows=rows_of_tables,
    suggestion="software, networks and hardware behind the numbers",
)
