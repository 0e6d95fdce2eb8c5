"""What fleets measured, brought together: nodes of one kind, and the things that several of them have.

A kind is a fingerprint: what tells its nodes apart is their name alone. A thing is a cell, or a speed of the machine
itself, which the sentinel read before and after each block: a rate, turned to time per unit of work, so that more is
slower everywhere. Only what one build made is compared: the build that most nodes have.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Reading, disturbances
from dlbench.reports.errors import ReportError
from dlbench.reports.flags import disturbed
from dlbench.reports.naming import name_of
from dlbench.reports.report import Source
from dlbench.reports.statistics import Summary, summarise
from dlbench.reports.storage.hosts import Host, Node
from dlbench.reports.storage.record import Record, Run, last_attempts

PRODUCTS, BANDWIDTH = "matrix products", "memory bandwidth"
_UNIT = 1e9
"""Seconds per GFLOP and per GB."""


@dataclass
class NodeSeen:
    """One node: what is known of it, and how much of what it measured counts."""

    name: str
    fleets: dict[str, None] = field(default_factory=dict)
    """Ids, in the order of their runs."""
    shared: dict[str, None] = field(default_factory=dict)
    """With whom, in words; empty where its jobs had it to themselves."""
    launches: int = 0
    disturbed: int = 0
    """Of these launches: by other programs."""
    failed: Counter[str] = field(default_factory=Counter)
    """Launches that do not count, by what became of them."""
    readings: int = 0
    """Of the sentinel, while nothing disturbed it."""


@dataclass(frozen=True)
class Thing:
    """What at least two nodes of a kind measured: time, with the launch (or the reading) as the sampling unit."""

    name: str
    cell: Cell | None
    """None for a speed of the machine itself."""
    times: Mapping[str, Summary]
    """By node; seconds per mini-batch, or per GFLOP or GB."""
    apart: tuple[str, ...] = ()
    """Nodes left out since they measured it with another build."""


@dataclass(frozen=True)
class Kind:
    """The nodes of one fingerprint."""

    host: Host
    nodes: Mapping[str, NodeSeen]
    """By name, in the order of names."""
    things: tuple[Thing, ...]
    lonely: tuple[str, ...] = ()
    """Things that only one node measured, each as "NODE: THING"."""


Samples = dict[Cell | str, dict[str, dict[str, list[list[float]]]]]
"""By thing, build and node: of each launch its steps in seconds."""


@dataclass
class _Gathered:
    """What the runs of one fingerprint hold."""

    host: Host
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    newest: dict[str, str] = field(default_factory=dict)
    """Of each build when it was last used."""

    def node(self, of: Node) -> NodeSeen:
        found = self.nodes.setdefault(of.name, NodeSeen(of.name))
        found.fleets[of.fleet] = None
        found.shared.update(dict.fromkeys(of.shared))
        return found

    def add(self, thing: Cell | str, build: str, node: str, steps: list[float], when: str) -> None:
        self.samples.setdefault(thing, {}).setdefault(build, {}).setdefault(node, []).append(steps)
        self.newest[build] = max(when, self.newest.get(build, ""))


def gather(source: Source) -> list[Kind]:
    """Return the kinds of all fleets that are asked for, by name; nothing where there is none.

    Raises ReportError for a fleet that is not there, or not the only one that begins so.
    """
    runs = {run.id: run for run, _ in source.runs() if run.node is not None and not run.sides}
    fleet = _fleet_named(source.options.fleet, runs.values())
    found: dict[str, _Gathered] = {}
    for run in sorted(runs.values(), key=lambda each: (each.started, each.id)):
        if run.node is None or fleet not in ("", run.node.fleet) or not source.narrowing.takes(run):
            continue
        results = source.narrowing.of(source.of_run(run.id))
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        gathered = found.setdefault(run.machine, _Gathered(host))
        gathered.node(run.node)
        _add_records(gathered, run.node, [each for each in results.records if each.run == run.id])
        if not source.narrowing.axes:
            _add_readings(gathered, run.node, (content for _, _, content in source.sentinels(run.id)))
    return sorted(map(_kind, found.values()), key=lambda kind: (kind.host.name, kind.host.fingerprint))


def _fleet_named(word: str, runs: Iterable[Run]) -> str:
    known = sorted({run.node.fleet for run in runs if run.node is not None})
    fitting = [each for each in known if each.startswith(word)]
    if not word or word in known:
        return word
    if not fitting:
        there = f"there are {', '.join(known)}" if known else "there is none here"
        raise ReportError(f"There is no fleet {word!r}; {there}.")
    if len(fitting) > 1:
        raise ReportError(f"{len(fitting)} fleets begin with {word!r}: {', '.join(fitting)}. Give more characters.")
    return fitting[0]


def _add_records(gathered: _Gathered, run_node: Node, records: list[Record]) -> None:
    for record in last_attempts(records):
        node = gathered.node(record.node or run_node)
        parity = record.outcome.parity
        if record.outcome.status is not Status.OK or not record.outcome.samples_ns:
            node.failed[record.outcome.status.value.replace("_", " ")] += 1
        elif parity is not None and parity.verdict == "disagrees":
            node.failed["parity failed"] += 1
        else:
            node.launches += 1
            node.disturbed += disturbed(record, gathered.host)
            cell, when = record.cell._replace(adapter=""), record.started.isoformat()
            gathered.add(cell, record.environment, node.name, record.outcome.step_seconds(), when)


def _add_readings(gathered: _Gathered, of: Node, contents: Iterable[Mapping[str, object]]) -> None:
    """Add the calm readings of a run; the one after a block is kept again before the next, and counts once."""
    node = gathered.node(of)
    taken = set()
    for content in contents:
        try:
            reading = Reading.from_dict(dict(content))
        except ValueError:  # of another version
            continue
        rates = reading.gemm_flops_per_second, reading.bandwidth_bytes_per_second
        if reading.taken in taken or disturbances(reading) or min(rates) <= 0:
            continue
        taken.add(reading.taken)
        node.readings += 1
        for thing, rate in zip((PRODUCTS, BANDWIDTH), rates, strict=True):
            gathered.add(thing, reading.method, node.name, [_UNIT / rate], reading.taken)


def _kind(gathered: _Gathered) -> Kind:
    things, lonely = [], []
    for thing in sorted(gathered.samples, key=_order):
        builds = gathered.samples[thing]
        # The one that most nodes have; of several the newest.
        build = max(builds, key=lambda each: (len(builds[each]), gathered.newest[each], each))
        name = thing if isinstance(thing, str) else name_of(thing)
        everywhere = {node for nodes in builds.values() for node in nodes}
        apart = tuple(sorted(everywhere - set(builds[build])))
        if len(builds[build]) > 1:
            times = {node: summarise(sorted(launches)) for node, launches in sorted(builds[build].items())}
            things.append(Thing(name, None if isinstance(thing, str) else thing, times, apart))
        else:
            lonely += [f"{node}: {name}" for node in sorted(everywhere)]
    nodes = dict(sorted(gathered.nodes.items()))
    return Kind(gathered.host, nodes, tuple(things), tuple(lonely))


def _order(thing: Cell | str) -> tuple[bool, tuple[str, ...]]:
    """Cells first, alike ones together; the machine's own speeds last."""
    if isinstance(thing, str):
        return True, (str(thing == BANDWIDTH),)
    return False, (thing.network, f"{thing.batch_size:09}", thing.framework, thing.mode, *map(str, thing))


def nodes_without_results(kind: Kind) -> list[NodeSeen]:
    """Return the nodes that measured nothing that counts."""
    return [node for node in kind.nodes.values() if not node.launches and not node.readings]
