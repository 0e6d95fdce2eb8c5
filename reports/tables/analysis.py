"""Tables 1 to 3 of the paper for one's own results: software, networks, hardware."""

from collections.abc import Iterable
from datetime import datetime

from dlbench.adapters.networks import (
    NETWORKS,
    Convolution,
    Dense,
    Feedforward,
    MaxPool,
    Network,
    Residual,
    parameter_count,
    training_flops,
)
from dlbench.reports.formats.layout import Entry, Table, number
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.results import Results

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
    """Return Tables 1 to 3 for these results: software, the networks that were measured, hardware."""
    pairs = dict.fromkeys((record.cell.network, record.cell.batch_size) for record in results.records)
    found = [software_table(results.records, results.hosts), networks_table(pairs)]
    return found + [hardware_table(host) for host in results.hosts.values()]


def software_table(records: Iterable[Record], hosts: dict[str, Host] | None = None) -> Table:
    """Return a row for each framework, mode and environment: version, interpreter, environment hash, libraries."""
    several = len(hosts or {}) > 1
    newest: dict[tuple[str, str, str, str], Record] = {}
    for record in records:
        key = record.machine if several else "", record.cell.framework, record.cell.mode, record.environment
        best = newest.get(key)
        if best is None or (bool(record.outcome.software), record.started) > (
            bool(best.outcome.software),
            best.started,
        ):
            newest[key] = record
    rows, notes = [], []
    for (machine, framework, mode, environment), record in sorted(newest.items()):
        software = record.outcome.software
        name = f"{framework} {mode}" + (f" on {machine[:12]}" if several else "")
        version = str(software.get("version", "?"))
        if software.get("framework", framework) != framework:
            version = f"{software['framework']} {version}"
        fields = (name, version, record.interpreter, str(software.get("numpy", "?")), environment[:12])
        rows.append(tuple(Entry(field) for field in fields))
        facts = [f"{key} {_words(software[key])}" for key in _FACTS if software.get(key)]
        variables = software.get("variables")
        if isinstance(variables, dict):
            threads = str(record.cell.threads)
            for key, value in sorted(variables.items()):
                facts.append(f"{key}={'the threads asked' if 'THREADS' in key and value == threads else value}")
        if facts:
            notes.append(f"{name}: " + "; ".join(facts))
    head = ("framework", "version", "interpreter", "NumPy", "environment")
    return Table("Table 1. Software", head, tuple(rows), tuple(dict.fromkeys(notes)), words=True)


def _telling(record: Record) -> tuple[bool, datetime]:
    # A record with software tells more than a newer one without (a crash).
    return bool(record.outcome.software), record.started


def networks_table(pairs: Iterable[tuple[str, int]] = ()) -> Table:
    """Return a row for each (network, mini-batch); without any, for all networks at the paper's mini-batch."""
    wanted = list(pairs) or [(network.name, network.batch_size) for network in NETWORKS.values()]
    order = list(NETWORKS)
    rows = []
    for name, batch in sorted(wanted, key=lambda pair: (order.index(pair[0]) if pair[0] in order else 99, pair)):
        network = NETWORKS.get(name)
        if network is None:
            rows.append(tuple(Entry(field) for field in (name, "?", "?", "?", str(batch), "?")))
            continue
        fields = (
            name,
            layers(network),
            f"{parameter_count(network) / 1e6:.1f} M",
            number(training_flops(network, batch) * 1e-9),
            str(batch),
            "cross-entropy",
        )
        rows.append(tuple(Entry(field) for field in fields))
    head = ("network", "layers", "parameters", "GFLOP/step", "batch", "loss")
    notes = (
        "GFLOP of one training step, matrix products and convolutions only, a multiply-add being two.",
        "Softmax cross-entropy, mean over the mini-batch; of the LSTMs over its steps too. SGD, learning rate 0.01.",
        *_as_published([name for name, _ in wanted]),
    )
    return Table("Table 2. Networks", head, tuple(rows), notes, words=True)


def _as_published(names: Iterable[str]) -> list[str]:
    """Return a line on the parameters that Table 2 of the 2016 paper gives these networks, which are others."""
    shown = [name for name in PARAMETERS_OF_2016 if name in set(names)]
    if not shown:
        return []
    told = ", ".join(f"{name} {PARAMETERS_OF_2016[name]}" for name in shown)
    multiply_adds = " (resnet50's are multiply-adds)" if "resnet50" in shown else ""
    return [f"Parameters in the 2016 paper's Table 2: {told}{multiply_adds}; its scripts' networks are those above."]


def layers(network: Network) -> str:
    """Return a network's layers in words, derived from its specification."""
    family = network.family
    if isinstance(family, Feedforward):
        convolutions = sum(isinstance(layer, Convolution) for layer in family.layers)
        pools = sum(isinstance(layer, MaxPool) for layer in family.layers)
        dense = sum(isinstance(layer, Dense) for layer in family.layers)
        kinds = (("conv", convolutions), ("pool", pools), ("dense", dense))
        return ", ".join(f"{count} {kind}" for kind, count in kinds if count)
    if isinstance(family, Residual):
        convolutions = 1 + sum(3 + block.projection for block in family.blocks)
        return f"{convolutions} conv in {len(family.blocks)} blocks, 1 dense"
    return f"embedding, {family.layers} LSTM of {family.hidden}, {family.steps} steps"


def hardware_table(host: Host) -> Table:
    """Return what the probe found on a machine."""
    rows = tuple((Entry(label), Entry(value)) for label, value in host.description)
    notes = () if rows else ("The store has no description of this machine.",)
    return Table(f"Table 3. Hardware: {host.name}", ("", ""), rows, notes, words=True)


def _words(value: object) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{key} {inner}" for key, inner in value.items())
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else text[:97] + "..."
