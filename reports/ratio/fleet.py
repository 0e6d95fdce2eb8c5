"""`dlbench report fleet`: node against node within each kind: the slow ones, by how much, and on
what.

A kind is a fingerprint: its nodes differ in their names only. A benchmark is a cell, or a speed of
the machine itself, read by the sentinel before and after each block: a rate, converted to time per
unit of work, so that more always means slower. Only results of one build are compared: the build
that most nodes have.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Reading, unquiet_reasons
from dlbench.reports.columns import (
    MEDIAN,
    VALUE,
    Column,
    attributes,
    csv_rows,
    host_columns,
    objects,
    table,
    within,
)
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import MISSING, Entry, Page, Table
from dlbench.reports.ratio import nodes
from dlbench.reports.ratio.nodes import FAST, MEAN, SLOW, UNKNOWN, Kind, NodeRatio, NodeSeen, OfNode
from dlbench.reports.ratio.pairs import draw
from dlbench.reports.report import FLEET, TOP, Report, ReportOptions, Source
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.flags import CONTENDED, SHARED_NODE
from dlbench.reports.results.hosts import Host, Node
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted, group_name, listed, name_of, rest_of
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.record import Record, Run, last_attempts
from dlbench.reports.results.statistics import SIGNIFICANCE, summarise

PRODUCTS, BANDWIDTH = "matrix products", "memory bandwidth"
_UNIT = 1e9
"""Seconds per GFLOP and per GB."""
NONE = (
    "No node of a fleet was measured here; `dlbench fleet run SUITE` measures many into one store."
)
NOTHING = "The nodes do not differ by more than noise explains."
_LITTLE = "The nodes differ by more than noise explains, but by less than 2 %."
_ITSELF = "the machine itself, one thread"
_DETAILED, _DRAWN = 5, 11
"""Nodes shown benchmark by benchmark, and panels of benchmarks in a picture."""
_LEGEND = (
    (
        "mean: time relative to the other nodes of the kind, geometric mean over the benchmarks, "
        "with its 95 % interval; above 1 the node is slower. Nodes that differ are not among the "
        "others. slow, fast: number of benchmarks with that verdict."
    ),
    (
        "slow, fast: by more than 2 %, and noise does not explain it (a t-test, Holm-adjusted for "
        "all nodes, or for all nodes and benchmarks; with fewer than 3 launches an interval that "
        "allows for as many tests). like the others: the whole interval lies within 2 % of 1."
    ),
    (
        "between: standard deviation of the nodes' means, in per cent of the time. within: that of "
        "launches on one node. noise: the deviation that the means of identical nodes would have."
    ),
)
Samples = defaultdict[Cell | str, defaultdict[str, defaultdict[str, list[list[float]]]]]
"""By benchmark, build and node: of each launch its steps in seconds."""
Sample = tuple[Cell | str, str, str, list[float], str]
"""Benchmark, build, node, seconds of the steps, and moment of a launch or a reading."""
Spread = tuple[Cell | str, int, float, float | None, float | None]
"""Of a benchmark: nodes, and standard deviations as shares of the time.

Of the nodes' means; of a node's launches, pooled over nodes (None where none has two launches); and
what the means would deviate by if the nodes were the same.
"""


# Gathering results.


def fleet(source: Source) -> list[Kind]:
    """Return the kinds of all fleets that are asked for, by name, with the ratios of their nodes.

    Raises ReportError for a fleet that is not there, or not the only one that begins so.
    """
    runs = {run.id: run for run, _ in source.runs() if run.node is not None and not run.sides}
    fleet = _fleet_named(source.options.fleet, runs.values())
    found: dict[str, tuple[Kind, Samples, dict[str, str]]] = {}
    for run in sorted(runs.values(), key=lambda each: (each.started, each.id)):
        if run.node is None or fleet not in ("", run.node.fleet) or not source.narrowing.takes(run):
            continue
        results = source.narrowing.of(source.of_run(run.id))
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        empty: Samples = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        kind, samples, newest = found.setdefault(run.machine, (Kind(host), empty, {}))
        of_run = _of_records(
            kind, run.node, [each for each in results.records if each.run == run.id]
        )
        readings = (
            [] if source.narrowing.axes else _of_readings(_node(kind, run.node), source, run.id)
        )
        for benchmark, build, node, steps, when in (*of_run, *readings):
            samples[benchmark][build][node].append(steps)
            newest[build] = max(when, newest.get(build, ""))
    kinds = sorted(
        (each for each, *_ in found.values()),
        key=lambda kind: (kind.host.name, kind.host.fingerprint),
    )
    for kind in kinds:
        kind.nodes = dict(sorted(kind.nodes.items()))
        _choose_builds(*found[kind.host.fingerprint])
    for kind, judged in zip(kinds, nodes.contrasts(kinds), strict=True):
        kind.judged = sorted(judged, key=_order)
    return kinds


def _fleet_named(word: str, runs: Iterable[Run]) -> str:
    known = sorted({run.node.fleet for run in runs if run.node is not None})
    fitting = [each for each in known if each.startswith(word)]
    if not word or word in known:
        return word
    if not fitting:
        there = f"there are {', '.join(known)}" if known else "this store has no fleets"
        raise ReportError(f"There is no fleet {word!r}; {there}.")
    if len(fitting) > 1:
        raise ReportError(
            f"{len(fitting)} fleets begin with {word!r}: {', '.join(fitting)}. Give more "
            "characters."
        )
    return fitting[0]


def _node(kind: Kind, of: Node) -> NodeSeen:
    found = kind.nodes.setdefault(of.name, NodeSeen(of.name))
    found.fleets[of.fleet] = None
    found.shared.update(dict.fromkeys(of.shared))
    return found


def _of_records(kind: Kind, of_run: Node, records: list[Record]) -> Iterator[Sample]:
    """Yield the launches that count."""
    for record in last_attempts(records):
        node = _node(kind, record.node or of_run)
        parity = record.outcome.parity
        if record.outcome.status is not Status.OK or not record.outcome.samples_ns:
            node.failed[record.outcome.status.value.replace("_", " ")] += 1
        elif parity is not None and parity.verdict == "disagrees":
            node.failed["parity failed"] += 1
        else:
            node.launches += 1
            node.disturbed += disturbed(record, kind.host)
            steps, when = record.outcome.step_seconds(), record.started.isoformat()
            yield record.cell._replace(adapter=""), record.environment, node.name, steps, when


def _of_readings(node: NodeSeen, source: Source, run: str) -> Iterator[Sample]:
    """Yield the calm readings of a run; one stored both after a block and before the next counts
    once.
    """
    taken = set()
    for _, _, content in source.sentinels(run):
        try:
            reading = Reading.from_dict(dict(content))
        except ValueError:  # of another version
            continue
        rates = reading.gemm_flops_per_second, reading.bandwidth_bytes_per_second
        if reading.taken in taken or unquiet_reasons(reading) or min(rates) <= 0:
            continue
        taken.add(reading.taken)
        node.readings += 1
        for benchmark, rate in zip((PRODUCTS, BANDWIDTH), rates, strict=True):
            yield benchmark, reading.method, node.name, [_UNIT / rate], reading.taken


def _choose_builds(kind: Kind, samples: Samples, newest: dict[str, str]) -> None:
    """Set a kind's times to those of the build that most nodes have (the newest, if tied), and list
    the gaps.
    """
    alone: list[str] = []
    other_builds, lacking = (defaultdict[str, list[str]](list) for _ in range(2))
    there = [name for name, node in kind.nodes.items() if node.launches or node.readings]
    for benchmark in sorted(samples, key=_order_of_benchmarks):
        builds, name = samples[benchmark], _name(benchmark)
        build = max(builds, key=lambda each: (len(builds[each]), newest[each], each))
        everywhere = sorted({node for nodes in builds.values() for node in nodes})
        if len(builds[build]) < 2:
            alone += [f"{node}: {name}" for node in everywhere]
            continue
        kind.times[benchmark] = {
            node: summarise(sorted(each)) for node, each in sorted(builds[build].items())
        }
        for node in there:
            if node not in builds[build]:
                (other_builds if node in everywhere else lacking)[node].append(name)
    for name in (each for each in kind.nodes if each not in there):
        failed = ", ".join(
            f"{count} {word}" for word, count in sorted(kind.nodes[name].failed.items())
        )
        kind.missing.append(f"{name} has no result that counts{f' ({failed})' if failed else ''}.")
    if len(there) == 1:
        of_kind = f"of its kind with results ({kind.host.name})"
        kind.missing.append(f"{there[0]} is the only node {of_kind}: nothing to compare it with.")

    def listing(names: Sequence[str]) -> str:
        return f"{counted(len(names), 'benchmark')} ({listed(names, 2)})"

    for name, names in other_builds.items():
        on = listing(names)
        kind.missing.append(
            f"{name} is not compared on {on}, measured with another build than on most nodes."
        )
    for these, those in grouped(lacking, lambda node: tuple(lacking[node])).items():
        verb = "has" if len(those) == 1 else "have"
        kind.missing.append(
            f"{listed(those)} {verb} no result of {listing(these)}, which other nodes have."
        )
    if len(kind.nodes) > 1 and alone:
        kind.missing.append(
            f"Not compared, since no two nodes have results of the same build: {listed(alone, 2)}."
        )


def _order_of_benchmarks(benchmark: Cell | str) -> tuple[bool, tuple[str, ...]]:
    """Cells first, alike ones together; the machine's own speeds last."""
    if isinstance(benchmark, str):
        return True, (str(benchmark == BANDWIDTH),)
    of = benchmark
    batch_size = "" if of.batch_size is None else f"{of.batch_size:09}"
    return False, (of.network, batch_size, of.framework, of.mode, *map(str, of))


def _name(benchmark: Cell | str) -> str:
    return benchmark if isinstance(benchmark, str) else name_of(benchmark)


# Findings.


def _order(of_node: OfNode) -> tuple[int, bool, float, str]:
    """Sort slow nodes first, then those slow on a benchmark, fast ones, and the others; slower ones
    before.
    """
    mean, verdicts = of_node[0], [each.verdict for each in (of_node[0], *of_node[1])]
    rank = 0 if mean.verdict == SLOW else 1 if SLOW in verdicts else 2 if FAST in verdicts else 3
    return rank, mean.verdict == UNKNOWN, -mean.ratio.value, mean.node.name


def _clear(on: Iterable[NodeRatio]) -> list[NodeRatio]:
    """Return the benchmarks on which noise does not explain how slow, or fast, a node is."""
    return [each for each in on if each.verdict in (SLOW, FAST)]


def _spreads(kind: Kind) -> list[Spread]:
    found: list[Spread] = []
    for benchmark, by_node in kind.times.items():
        times = by_node.values()
        between = float(np.std([math.log(each.median) for each in times], ddof=1))
        variance, freedom = nodes.pooled_variance(times)
        by_noise = variance * math.fsum(1 / each.launches for each in times) / len(times)
        known = (math.sqrt(variance), math.sqrt(by_noise)) if freedom else (None, None)
        found.append((benchmark, len(times), between, *known))
    return found


def headline(kinds: Sequence[Kind]) -> list[str]:
    """Return a sentence for each node that differs from the others, slowest first, or one saying
    that none does.
    """
    ratios = [each for kind in kinds for each in kind.ratios]
    if not ratios:
        return []
    lines = [line for kind in kinds for line in _of_kind(kind.judged)]
    differ = any(each.p_adjusted is not None and each.p_adjusted < SIGNIFICANCE for each in ratios)
    return lines or [_LITTLE if differ else NOTHING]


def _of_kind(nodes: Sequence[OfNode]) -> list[str]:
    named = [(mean, on) for mean, on in nodes if _clear((mean, *on))]
    if len(nodes) != 2:
        return [
            _sentence(*each, f"the {each[0].others} other nodes of its kind") + _excuse(*each)
            for each in named
        ]
    # With two nodes, a sentence on the faster one would repeat the other.
    slower = next((each for each in named if _slow_somewhere(*each)), None)
    if slower is None:
        return []
    other = next(mean.node.name for mean, _ in nodes if mean is not slower[0])
    alone = "With only two nodes, either one may be at fault."
    return [f"{_sentence(*slower, other, two=True)} {alone}{_excuse(*slower)}"]


def _slow_somewhere(mean: NodeRatio, on: Iterable[NodeRatio]) -> bool:
    return any(each.verdict == SLOW for each in (mean, *on))


def _sentence(mean: NodeRatio, on: Sequence[NodeRatio], others: str, two: bool = False) -> str:
    """Return the verdict of a node over all its benchmarks, and that on the one where it differs
    most.
    """
    over = f"geometric mean of {counted(len(on), 'benchmark')}"
    overall = mean.verdict in (SLOW, FAST)
    verdict = mean.verdict if overall else SLOW if _slow_somewhere(mean, on) else FAST
    clear = [each for each in on if each.verdict == verdict]
    most = (clear[0] if verdict == SLOW else clear[-1]) if clear else mean
    where, said = _name(most.benchmark), f"{mean.node.name} {'takes' if two else f'is {verdict}:'}"
    if overall:
        line = f"{said} {times(mean.ratio)} the time of {others} ({over})"
        how = "clearly so only" if len(clear) == 1 else "most"
        return (
            f"{line}; {how} on {where}, {number(most.ratio.value)}x."
            if clear and len(on) > 1
            else f"{line}."
        )
    rest = f" and on {counted(len(clear) - 1, 'other benchmark')}" if len(clear) > 1 else ""
    return (
        f"{said} {times(most.ratio)} the time of {others} on {where}{rest}; {times(mean.ratio)} "
        f"over all ({over})."
    )


def _excuse(mean: NodeRatio, on: Iterable[NodeRatio]) -> str:
    """Return another possible reason why a slow node is slow."""
    if not _slow_somewhere(mean, on):
        return ""
    node, lines = mean.node, ""
    if node.shared:
        lines += (
            f" It was shared when it was measured ({'; '.join(node.shared)}), which may be why."
        )
    if node.disturbed:
        lines += f" Other programs disturbed {node.disturbed} of its {node.launches} launches."
    return lines


# Its tables.


def _row(benchmark: Cell | str) -> str:
    if isinstance(benchmark, str):
        return f"{benchmark}, {'s/GB' if benchmark == BANDWIDTH else 's/GFLOP'}"
    return rest_of(benchmark)


def _group(benchmark: Cell | str) -> str:
    return _ITSELF if isinstance(benchmark, str) else group_name(benchmark)


def _share(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _verdict(each: NodeRatio) -> Entry:
    return Entry(each.verdict, hole=each.verdict == SLOW)


_BENCHMARK: tuple[Column[Cell | str], ...] = (
    Column("benchmark", "", lambda each: each if isinstance(each, str) else "cell", _row),
    *attributes(lambda each: None if isinstance(each, str) else each, *axes.NAMES),
)
_RATIO: tuple[Column[NodeRatio], ...] = (
    Column("node", None, lambda each: each.node.name),
    *within(_BENCHMARK, lambda each: each.benchmark),
    Column("launches", None, lambda each: each.time.launches if each.time else each.node.launches),
    Column(
        "seconds",
        "seconds",
        lambda each: each.time and {name: getattr(each.time, name) for name in MEDIAN},
        lambda each: number(each.time.median) if each.time else "",
        MEDIAN,
    ),
    Column(
        "seconds_of_others",
        "others",
        lambda each: each.time and each.time.median / each.ratio.value,
    ),
    Column("others", None, lambda each: each.others),
    Column("ratio", "ratio", lambda each: each.ratio, fields=VALUE),
    Column("p_adjusted", None, lambda each: each.p_adjusted),
    Column("verdict", "verdict", lambda each: each.verdict, _verdict),
)
_SPREAD: tuple[Column[Spread], ...] = (
    *within(_BENCHMARK, lambda spread: spread[0]),
    Column("nodes", "nodes", lambda spread: spread[1]),
    Column("between", "between", lambda spread: spread[2], lambda spread: _share(spread[2])),
    Column("within", "within", lambda spread: spread[3], lambda spread: _share(spread[3])),
    Column("by_noise", "noise", lambda spread: spread[4], lambda spread: _share(spread[4])),
)
_NODE: tuple[Column[OfNode], ...] = (
    Column("node", "", lambda of: of[0].node.name, lambda of: _marked(of[0].node)),
    Column("", "mean", lambda of: of[0].ratio),
    Column("", "benchmarks", lambda of: len(of[1])),
    Column("", SLOW, lambda of: sum(each.verdict == SLOW for each in of[1]) or None),
    Column("", FAST, lambda of: sum(each.verdict == FAST for each in of[1]) or None),
    Column("fleets", None, lambda of: list(of[0].node.fleets)),
    Column("shared", None, lambda of: list(of[0].node.shared)),
    Column("launches", "launches", lambda of: of[0].node.launches),
    Column("disturbed_launches", None, lambda of: of[0].node.disturbed),
    Column("readings", None, lambda of: of[0].node.readings),
    Column("", "verdict", lambda of: of[0].verdict, lambda of: _verdict(of[0])),
)


def _raised(node: NodeSeen) -> list[Any]:
    return [
        kind for kind, raised in ((SHARED_NODE, node.shared), (CONTENDED, node.disturbed)) if raised
    ]


def _marked(node: NodeSeen) -> Entry:
    return Entry(node.name, marks="".join(f" {kind.symbol}" for kind in _raised(node)))


def _page(kinds: Sequence[Kind], options: ReportOptions) -> Page:
    """Return for each kind its nodes, those that differ by benchmark, and how much nodes and
    launches differ.
    """
    if not kinds:
        return Page((NONE,), ())
    sentences, top = headline(kinds), options.top
    more = len(sentences) - top
    before = [
        *sentences[:top],
        *([f"Also different: {counted(more, 'further node')}."] if more > 0 else []),
    ]
    tables, marks = [], set()
    for kind in (each for each in kinds if each.ratios):
        spreads, name = _spreads(kind), kind.host.name
        before.append(_summary(name, len(kind.judged), spreads))
        rest = Counter(mean.verdict for mean, _ in kind.judged[top:])
        words = ", ".join(f"{count} {word}" for word, count in rest.most_common())
        notes = [f"{counted(rest.total(), 'further node')}: {words}."] if rest else []
        tables.append(table(_NODE, kind.judged[:top], f"{name}: nodes", notes=notes))
        tables += [
            _details(*each, kind, top)
            for each in [each for each in kind.judged if _clear(each[1])][:_DETAILED]
        ]
        tables.append(
            table(
                _SPREAD,
                spreads,
                f"{name}: nodes and launches",
                group=lambda spread: _group(spread[0]),
            )
        )
        marks |= {
            f"{of.symbol} {of.legend}" for mean, _ in kind.judged for of in _raised(mean.node)
        }
    after = (*_LEGEND[:2], *sorted(marks), _LEGEND[2]) if tables else ()
    return Page(
        tuple(before), tuple(tables), (*after, *(line for kind in kinds for line in kind.missing))
    )


def _details(mean: NodeRatio, on: Iterable[NodeRatio], kind: Kind, top: int) -> Table:
    """Return the benchmarks with the largest differences on which a node differs."""
    clear = sorted(_clear(on), key=lambda each: -abs(math.log(each.ratio.value)))
    shown = sorted(clear[:top], key=lambda each: list(kind.times).index(each.benchmark))
    left = len(clear) - len(shown)
    notes = [f"{counted(left, 'further benchmark')} with smaller differences."] if left else []
    title = f"{mean.node.name}, by benchmark"
    return table(_RATIO, shown, title, group=lambda each: _group(each.benchmark), notes=notes)


def _summary(name: str, nodes: int, spreads: Sequence[Spread]) -> str:
    line = f"{name}: {counted(nodes, 'node')}, {counted(len(spreads), 'benchmark')}."
    known = [spread[2:] for spread in spreads if spread[3] is not None and spread[4] is not None]
    if not known:
        return f"{line} With one launch each, the variation between launches is unknown."
    between, inside, noise = (_share(statistics.median(each)) for each in zip(*known, strict=True))
    return (
        f"{line} In the median benchmark the nodes' means deviate by {between}, launches on one "
        f"node by {inside}; means of identical nodes would deviate by {noise}."
    )


def _data(kinds: Sequence[Kind]) -> dict[str, Any]:
    return {
        "machines": [
            {
                **objects(host_columns(lambda kind: kind.host), [kind])[0],
                "nodes": objects(_NODE, kind.judged),
                "ratios": objects(_RATIO, kind.ratios),
                "spreads": objects(_SPREAD, _spreads(kind)),
            }
            for kind in kinds
        ],
        "findings": headline(kinds),
        "missing": [line for kind in kinds for line in kind.missing],
    }


def _rows(kinds: Sequence[Kind]) -> Rows:
    columns: tuple[Column[tuple[Kind, NodeRatio]], ...] = (
        *host_columns(lambda line: line[0].host),
        Column("shared", None, lambda line: "; ".join(line[1].node.shared)),
        *within(_RATIO, lambda line: line[1]),
    )
    return csv_rows(columns, [(kind, each) for kind in kinds for each in kind.ratios])


def _draw(kinds: Sequence[Kind], path: Path, options: ReportOptions) -> list[Path]:
    """Draw a page for each kind: a panel of the mean, and one of each benchmark on which the nodes
    differ most.
    """
    pages = []
    for kind in (each for each in kinds if each.ratios):
        most = {
            spread[0] for spread in sorted(_spreads(kind), key=lambda spread: -spread[2])[:_DRAWN]
        }
        points = [
            (
                "Geometric mean" if of == MEAN else _name(of),
                each.node.name,
                "the other nodes",
                each.ratio,
            )
            for of in (MEAN, *(each for each in kind.times if each in most))
            for mean, on in kind.judged[: options.top]
            for each in (mean, *on)
            if each.benchmark == of
        ]
        pages.append((kind.host.name, "time over that of the other nodes; 95 % intervals", points))
    return draw(pages, path, series="against")


def _compared(kinds: Sequence[Kind]) -> bool:
    return any(kind.ratios for kind in kinds)


REPORT = Report(
    name="fleet",
    summary="""Which of several identical nodes is slow, by how much, and on what.

Compares the cells that several nodes have, and the machine's own speeds (matrix products and memory
on one thread) between launches. Shows how much nodes differ, and how much launches do.""",
    examples=(
        "dlbench report fleet --store postgresql+psycopg://me@host/results",
        "dlbench report fleet --fleet 20261122 --plot nodes.png",
        "dlbench report fleet --networks fcn5 --json",
    ),
    analyse=fleet,
    page=_page,
    data=_data,
    rows=_rows,
    draw=_draw,
    drawable=_compared,
    options=frozenset({FLEET, TOP}),
    heading="Node against node",
    place=18,
    headline=headline,
    has_section=_compared,
)
