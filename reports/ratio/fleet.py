"""`dlbench report fleet`: node against node within each kind: the slow ones, by how much, and on what.

A kind is a fingerprint: only their names distinguish its nodes. A thing is a cell, or a speed of the machine itself,
which the sentinel read before and after each block: a rate, turned to time per unit of work, so that more is slower
everywhere. Only results of one build are compared: the build that most nodes have.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Reading, disturbances
from dlbench.reports.cells import axis_value
from dlbench.reports.columns import MEDIAN, VALUE, Column, csv_rows, objects, table, within
from dlbench.reports.disturbance import disturbed
from dlbench.reports.errors import ReportError
from dlbench.reports.flags import CONTENDED, SHARED_NODE
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table, number
from dlbench.reports.naming import group_name, name_of, rest_of
from dlbench.reports.ratio.nodes import FAST, SLOW, UNKNOWN, Judged, Kind, NodeSeen, Thing, contrasts
from dlbench.reports.ratio.pairs import counted, draw, listed
from dlbench.reports.report import FLEET, TOP, Report, ReportOptions, Source
from dlbench.reports.statistics import SIGNIFICANCE, Ratio, Summary, summarise
from dlbench.reports.storage.hosts import Host, Node
from dlbench.reports.storage.record import Record, Run, last_attempts

PRODUCTS, BANDWIDTH = "matrix products", "memory bandwidth"
_UNIT = 1e9
"""Seconds per GFLOP and per GB."""
NONE = "No node of a fleet was measured here; `dlbench fleet run SUITE` measures many into one store."
NOTHING = "The nodes do not differ by more than noise explains."
_LITTLE = "The nodes differ by more than noise explains, but by less than 2 %."
_ITSELF = "the machine itself, one thread"
_DETAILED, _DRAWN = 5, 11
"""Nodes shown thing by thing, and panels of things in a picture."""
_LEGEND = (
    "mean: time over that of the other nodes of the kind, geometric mean of so many things, with its 95 % interval; "
    "above 1 the node is slower. Nodes that differ are not among the others. slow, fast: on how many things.",
    "slow, fast: by more than 2 %, and noise does not explain it (a t-test, adjusted after Holm for all nodes, or for "
    "all nodes and things; of fewer than 3 launches an interval that allows for as many tests). like the others: the "
    "whole interval lies within 2 % of 1.",
)
_SPREAD_LEGEND = (
    "between: standard deviation of the nodes' means, in per cent of the time. within: of launches on one node. noise: "
    "the deviation that the means would have if all nodes were the same."
)


# Gathering results.

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
    """Return the kinds of all fleets that are asked for, by name.

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
        there = f"there are {', '.join(known)}" if known else "this store has no fleets"
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
    for thing in sorted(gathered.samples, key=_order_of_things):
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


def _order_of_things(thing: Cell | str) -> tuple[bool, tuple[str, ...]]:
    """Cells first, alike ones together; the machine's own speeds last."""
    if isinstance(thing, str):
        return True, (str(thing == BANDWIDTH),)
    return False, (thing.network, f"{thing.batch_size:09}", thing.framework, thing.mode, *map(str, thing))


# Analysis.


@dataclass(frozen=True)
class OnThing:
    """A node on one thing."""

    thing: Thing
    time: Summary
    usual: float
    """Geometric mean of the seconds of the nodes that it is compared with."""
    judged: Judged


@dataclass(frozen=True)
class Finding:
    """One node against the others of its kind."""

    node: NodeSeen
    mean: Judged
    """Geometric mean over its things."""
    things: tuple[OnThing, ...]
    """The slowest first."""

    @property
    def clear(self) -> tuple[OnThing, ...]:
        """Those on which noise does not explain how slow, or fast, it is."""
        return tuple(each for each in self.things if each.judged.verdict in (SLOW, FAST))

    @property
    def judged(self) -> tuple[Judged, ...]:
        """Its verdicts, that of the mean first."""
        return (self.mean, *(each.judged for each in self.things))

    @property
    def slow_somewhere(self) -> bool:
        """Whether it is slow over all its things, or on one."""
        return any(each.verdict == SLOW for each in self.judged)

    @property
    def out_of_line(self) -> bool:
        """Whether it is slow or fast over all its things, or on one."""
        return self.mean.verdict in (SLOW, FAST) or bool(self.clear)


@dataclass(frozen=True)
class Spread:
    """How much nodes, and launches on one node, differ on one thing: standard deviations as a share of the time."""

    thing: Thing
    between: float
    """Of the nodes' means."""
    within: float | None
    """Of a node's launches, pooled over the nodes; None where none has two launches."""
    by_noise: float | None
    """What the nodes' means would deviate by if the nodes were the same."""


@dataclass(frozen=True)
class KindFound:
    """One kind, and what can be said of its nodes."""

    kind: Kind
    nodes: tuple[Finding, ...]
    """Slow ones first, the slowest of them first; then fast ones, then the others."""
    spreads: tuple[Spread, ...]


@dataclass(frozen=True)
class FleetFound:
    """Everything that the report tells."""

    kinds: tuple[KindFound, ...]

    @property
    def compared(self) -> tuple[KindFound, ...]:
        """The kinds with several nodes that have a thing in common."""
        return tuple(each for each in self.kinds if each.nodes)


def nodes_of_fleets(source: Source) -> FleetFound:
    """Return what the fleets of a source say; raises ReportError for a fleet that is not there."""
    kinds = gather(source)
    found = contrasts(kinds)
    return FleetFound(tuple(_found(kind, *each) for kind, each in zip(kinds, found, strict=True)))


def _found(kind: Kind, table: list[list[Judged | None]], means: list[Judged | None]) -> KindFound:
    findings = []
    for node, row, mean in zip(kind.nodes.values(), table, means, strict=True):
        things = [
            OnThing(thing, time, time.median / judged.ratio.value, judged)
            for thing, judged in zip(kind.things, row, strict=True)
            if judged is not None and (time := thing.times.get(node.name)) is not None
        ]
        if mean is not None:
            ordered = sorted(things, key=lambda each: -each.judged.ratio.value)
            findings.append(Finding(node, mean, tuple(ordered)))
    return KindFound(kind, tuple(sorted(findings, key=_order)), tuple(map(_spread, kind.things)))


def _order(found: Finding) -> tuple[int, int, float, str]:
    """Sort slow nodes first, then those slow on a thing, fast ones, and the others; slower ones before."""
    rank = 0 if found.mean.verdict == SLOW else 1 if found.slow_somewhere else 2 if found.out_of_line else 3
    return rank, int(found.mean.verdict == UNKNOWN), -found.mean.ratio.value, found.node.name


def _spread(thing: Thing) -> Spread:
    between = float(np.std([math.log(each.median) for each in thing.times.values()], ddof=1))
    logs = [np.log(each.launch_medians) for each in thing.times.values()]
    within, by_noise = _of_launches([each for each in logs if len(each) > 1], [len(each) for each in logs])
    return Spread(thing, between, within, by_noise)


def _of_launches(
    several: Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]], counts: Sequence[int]
) -> tuple[float | None, float | None]:
    """Return the pooled deviation of a node's launches, and that of the means of so many of them."""
    if not several:
        return None, None
    squares = math.fsum(float(np.var(each, ddof=1)) * (len(each) - 1) for each in several)
    variance = squares / sum(len(each) - 1 for each in several)
    return math.sqrt(variance), math.sqrt(variance * math.fsum(1 / count for count in counts) / len(counts))


# Findings in sentences.


def headline(found: FleetFound) -> list[str]:
    """Return a sentence for each node that differs from the others, the slowest first; else that there is none."""
    if not found.compared:
        return []
    lines = [line for kind in found.compared for line in _of_kind(kind)]
    if lines:
        return lines
    judged = [each for kind in found.compared for node in kind.nodes for each in node.judged]
    differ = any(each.p_adjusted is not None and each.p_adjusted < SIGNIFICANCE for each in judged)
    return [_LITTLE if differ else NOTHING]


def _of_kind(found: KindFound) -> list[str]:
    named = [each for each in found.nodes if each.out_of_line]
    if len(found.nodes) != 2:
        return [_sentence(each, f"the {each.mean.others} other nodes of its kind") + _excuse(each) for each in named]
    # Of two the faster one says the same over again.
    slower = next((each for each in named if each.slow_somewhere), None)
    if slower is None:
        return []
    other = next(each.node.name for each in found.nodes if each is not slower)
    alone = "With only two nodes, it cannot be told which one is at fault."
    return [f"{_sentence(slower, other, two=True)} {alone}{_excuse(slower)}"]


def _sentence(found: Finding, others: str, two: bool = False) -> str:
    """Return the verdict of a node over all its things, or else on the one where it differs most, and the other one."""
    mean = f"geometric mean of {counted(len(found.things), 'thing')}"
    overall = found.mean.verdict in (SLOW, FAST)
    verdict = found.mean.verdict if overall else SLOW if found.slow_somewhere else FAST
    on = [each for each in found.clear if each.judged.verdict == verdict]
    most = (on[0] if verdict == SLOW else on[-1]) if on else None
    if overall or most is None:
        verb = "takes" if two else f"is {verdict}:"
        line = f"{found.node.name} {verb} {_size(found.mean.ratio)} the time of {others} ({mean})"
        if most is None or len(found.things) < 2:
            return f"{line}."
        how = "clearly so only" if len(on) == 1 else "most"
        return f"{line}; {how} on {most.thing.name}, {number(most.judged.ratio.value)}x."
    rest = f" and on {counted(len(on) - 1, 'other thing')}" if len(on) > 1 else ""
    if two:
        return f"{found.node.name} takes {_size(most.judged.ratio)} the time of {others} on {most.thing.name}{rest}."
    return (
        f"{found.node.name} is {verdict} on {most.thing.name}: {_size(most.judged.ratio)} the time of {others}"
        f"{rest}; {_size(found.mean.ratio)} over all ({mean})."
    )


def _size(found: Ratio) -> str:
    ends = "" if found.low is None or found.high is None else f" ({number(found.low)}-{number(found.high)})"
    return f"{number(found.value)}x{ends}"


def _excuse(found: Finding) -> str:
    """Return another possible reason why a slow node is slow."""
    if not found.slow_somewhere:
        return ""
    node, lines = found.node, ""
    if node.shared:
        lines += f" It was shared when it was measured ({'; '.join(node.shared)}), which may be why."
    if node.disturbed:
        lines += f" Other programs disturbed {node.disturbed} of its {node.launches} launches."
    return lines


def missing(found: FleetFound) -> list[str]:
    """Return a line for each gap: nodes without results or alone of their kind, and things that only some have."""
    return [line for each in found.kinds for line in (*_missing_nodes(each.kind), *_missing_things(each.kind))]


def _missing_nodes(kind: Kind) -> Iterator[str]:
    for node in (each for each in kind.nodes.values() if each.empty):
        failed = ", ".join(f"{count} {word}" for word, count in sorted(node.failed.items()))
        yield f"{node.name} has no result that counts{f' ({failed})' if failed else ''}."
    there = [name for name, node in kind.nodes.items() if not node.empty]
    if len(there) == 1:
        yield f"{there[0]} is the only node of its kind with results ({kind.host.name}): nothing to compare it with."


def _missing_things(kind: Kind) -> Iterator[str]:
    other_builds: dict[str, list[str]] = {}
    lacking: dict[str, list[str]] = {}
    for thing in kind.things:
        for node in thing.apart:
            other_builds.setdefault(node, []).append(thing.name)
        for name, of in kind.nodes.items():
            if name not in thing.times and name not in thing.apart and not of.empty:
                lacking.setdefault(name, []).append(thing.name)
    for node, names in other_builds.items():
        yield f"{node} is not compared on {_things(names)}, measured with another build than on most nodes."
    together: dict[tuple[str, ...], list[str]] = {}
    for node, names in lacking.items():
        together.setdefault(tuple(names), []).append(node)
    for things, nodes in together.items():
        verb = "has" if len(nodes) == 1 else "have"
        yield f"{listed(nodes)} {verb} no result of {_things(things)}, which other nodes have."
    if len(kind.nodes) > 1 and kind.lonely:
        yield f"Compared with nothing, since no two nodes have it of one build: {listed(kind.lonely, 2)}."


def _things(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'thing')} ({listed(names, 2)})"


# Its tables.

_JUDGED: tuple[Column[Judged], ...] = (
    Column("others", None, lambda each: each.others),
    Column("ratio", "ratio", lambda each: each.ratio, fields=VALUE),
    Column("p_adjusted", None, lambda each: each.p_adjusted),
    Column(
        "verdict", "verdict", lambda each: each.verdict, lambda each: Entry(each.verdict, hole=each.verdict == SLOW)
    ),
)


def _axis(name: str) -> Callable[[Thing], Any]:
    return lambda thing: None if thing.cell is None else axis_value(thing.cell, name)


_THING: tuple[Column[Thing], ...] = (
    Column("thing", "", lambda thing: thing.name if thing.cell is None else "cell", lambda thing: _row_of(thing)),
    *(Column(name, None, _axis(name)) for name in axes.NAMES),
)
_ON: tuple[Column[OnThing], ...] = (
    *within(_THING, lambda on: on.thing),
    Column("launches", None, lambda on: on.time.launches),
    Column(
        "seconds",
        "seconds",
        lambda on: {name: getattr(on.time, name) for name in MEDIAN},
        lambda on: number(on.time.median),
        MEDIAN,
    ),
    Column("seconds_of_others", "others", lambda on: on.usual),
    *within(_JUDGED, lambda on: on.judged),
)
_SPREAD: tuple[Column[Spread], ...] = (
    *within(_THING, lambda spread: spread.thing),
    Column("nodes", "nodes", lambda spread: len(spread.thing.times)),
    Column("between", "between", lambda spread: spread.between, lambda spread: _share(spread.between)),
    Column("within", "within", lambda spread: spread.within, lambda spread: _share(spread.within)),
    Column("by_noise", "noise", lambda spread: spread.by_noise, lambda spread: _share(spread.by_noise)),
)
_NODE: tuple[Column[Finding], ...] = (
    Column("node", "", lambda each: each.node.name, lambda each: Entry(each.node.name, marks=_marks(each.node))),
    Column("", "mean", lambda each: each.mean.ratio),
    Column("", "things", lambda each: len(each.things)),
    Column("", SLOW, lambda each: sum(on.judged.verdict == SLOW for on in each.clear) or None),
    Column("", FAST, lambda each: sum(on.judged.verdict == FAST for on in each.clear) or None),
    Column("fleets", None, lambda each: list(each.node.fleets)),
    Column("shared", None, lambda each: list(each.node.shared)),
    Column("launches", "launches", lambda each: each.node.launches),
    Column("disturbed_launches", None, lambda each: each.node.disturbed),
    Column("readings", None, lambda each: each.node.readings),
    *within([column for column in _JUDGED if column.key != "ratio"], lambda each: each.mean),
    Column("ratio", None, lambda each: each.mean.ratio),
    Column("things", None, lambda each: objects(_ON, each.things)),
)


def _row_of(thing: Thing) -> str:
    if thing.cell is not None:
        return rest_of(thing.cell)
    return f"{thing.name}, {'s/GB' if thing.name == BANDWIDTH else 's/GFLOP'}"


def _group(thing: Thing) -> str:
    return _ITSELF if thing.cell is None else group_name(thing.cell)


def _share(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _marks(node: NodeSeen) -> str:
    kinds = ((SHARED_NODE, bool(node.shared)), (CONTENDED, bool(node.disturbed)))
    return "".join(f" {kind.symbol}" for kind, raised in kinds if raised)


def _page(found: FleetFound, options: ReportOptions) -> Page:
    """Return for each kind its nodes, those that differ thing by thing, and how much nodes and launches differ."""
    if not found.kinds:
        return Page((NONE,), ())
    sentences, top = headline(found), options.top
    more = len(sentences) - top
    before = [*sentences[:top], *([f"So are {counted(more, 'further node')}."] if more > 0 else [])]
    tables = []
    for kind in found.compared:
        before.append(_summary(kind))
        rest = Counter(each.mean.verdict for each in kind.nodes[top:])
        words = ", ".join(f"{count} {word}" for word, count in rest.most_common())
        notes = [f"{counted(rest.total(), 'further node')}: {words}."] if rest else []
        name = kind.kind.host.name
        tables.append(table(_NODE, kind.nodes[:top], f"{name}: nodes", notes=notes))
        tables += [_details(each, kind, top) for each in [each for each in kind.nodes if each.clear][:_DETAILED]]
        tables.append(
            table(_SPREAD, kind.spreads, f"{name}: nodes and launches", group=lambda spread: _group(spread.thing))
        )
    nodes = [each.node for kind in found.compared for each in kind.nodes]
    marks = [
        f"{kind.symbol} {kind.legend}"
        for kind, raised in (
            (SHARED_NODE, any(node.shared for node in nodes)),
            (CONTENDED, any(node.disturbed for node in nodes)),
        )
        if raised
    ]
    after = (*_LEGEND, *marks, _SPREAD_LEGEND) if found.compared else ()
    return Page(tuple(before), tuple(tables), (*after, *missing(found)))


def _details(found: Finding, kind: KindFound, top: int) -> Table:
    """Return the things with the largest differences on which a node differs."""
    largest = sorted(found.clear, key=lambda each: -max(each.judged.ratio.value, 1 / each.judged.ratio.value))[:top]
    order = [thing.name for thing in kind.kind.things]
    shown = sorted(largest, key=lambda each: order.index(each.thing.name))
    left = len(found.clear) - len(shown)
    notes = [f"{counted(left, 'further thing')} with smaller differences."] if left else []
    return table(_ON, shown, f"{found.node.name}, thing by thing", group=lambda on: _group(on.thing), notes=notes)


def _summary(found: KindFound) -> str:
    spreads = [each for each in found.spreads if each.within is not None and each.by_noise is not None]
    line = f"{found.kind.host.name}: {counted(len(found.nodes), 'node')}, {counted(len(found.spreads), 'thing')}."
    if not spreads:
        return f"{line} With one launch of each nothing shows how much launches differ."
    between, inside, noise = (
        statistics.median(getattr(each, name) for each in spreads) for name in ("between", "within", "by_noise")
    )
    return (
        f"{line} In the median thing the nodes' means deviate by {_share(between)}, launches on one node by "
        f"{_share(inside)}; if all nodes were the same their means would deviate by {_share(noise)}."
    )


def _data(found: FleetFound) -> dict[str, Any]:
    return {
        "machines": [
            {
                "machine": each.kind.host.fingerprint,
                "machine_name": each.kind.host.name,
                "nodes": objects(_NODE, each.nodes),
                "spreads": objects(_SPREAD, each.spreads),
            }
            for each in found.kinds
        ],
        "findings": headline(found),
        "missing": missing(found),
    }


def _rows(found: FleetFound) -> Rows:
    """Return a line for the mean of each node, and one for each of its things."""
    lines = [(kind, node, on) for kind in found.kinds for node in kind.nodes for on in (None, *node.things)]
    columns: tuple[Column[tuple[KindFound, Finding, OnThing | None]], ...] = (
        Column("machine", None, lambda line: line[0].kind.host.fingerprint),
        Column("machine_name", None, lambda line: line[0].kind.host.name),
        Column("node", None, lambda line: line[1].node.name),
        Column("shared", None, lambda line: "; ".join(line[1].node.shared)),
        *(_of_mean(column) for column in _ON),
    )
    return csv_rows(columns, lines)


def _of_mean(column: Column[OnThing]) -> Column[tuple[KindFound, Finding, OnThing | None]]:
    def value(line: tuple[KindFound, Finding, OnThing | None]) -> Any:
        _, node, on = line
        if on is not None:
            return column.value(on)
        mean = {"thing": "mean", "launches": node.node.launches, **objects(_JUDGED, [node.mean])[0]}
        return mean.get(column.key)

    return Column(column.key, None, value, fields=column.fields)


def _draw(found: FleetFound, path: Path, options: ReportOptions) -> list[Path]:
    """Draw a page for each kind: a panel of the mean, and one of each thing on which the nodes differ most."""
    pages = []
    for kind in found.compared:
        shown = kind.nodes[: options.top]
        points = [("Geometric mean", each.node.name, "the other nodes", each.mean.ratio) for each in shown]
        most = {each.thing.name for each in sorted(kind.spreads, key=lambda each: -each.between)[:_DRAWN]}
        points += [
            (thing.name, each.node.name, "the other nodes", on.judged.ratio)
            for thing in kind.kind.things
            if thing.name in most
            for each in shown
            for on in each.things
            if on.thing is thing
        ]
        pages.append((kind.kind.host.name, "time over that of the other nodes; 95 % intervals", points))
    return draw(pages, path, series="against")


REPORT = Report(
    name="fleet",
    summary="""Node against node: which of many machines of one kind is slow, by how much, and on what.

Compared are the cells that several nodes have, and the machine's own speeds (matrix products and memory on one
thread) as they were read between launches. Beside that stands how much nodes differ, and how much launches do.""",
    examples=(
        "dlbench report fleet --store postgresql+psycopg://me@host/results",
        "dlbench report fleet --fleet 20261122 --plot nodes.png",
        "dlbench report fleet --networks fcn5 --json",
    ),
    analyse=nodes_of_fleets,
    page=_page,
    data=_data,
    rows=_rows,
    draw=_draw,
    drawable=lambda found: bool(found.compared),
    options=frozenset({FLEET, TOP}),
    heading="Node against node",
    place=18,
    headline=headline,
    has_section=lambda found: bool(found.compared),
)
