"""`dlbench report fleet`: node against node within each kind.

It shows which nodes are slow, by how much, and on which benchmarks.

A kind is a fingerprint: its nodes differ in their names only. A benchmark is a cell, or a speed of
the machine itself, read by the sentinel before and after each block: a rate, converted to time per
unit of work, so that more always means slower. Only results of one build are compared: the build
that most nodes have.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from dlbench.reports.ratio.nodes import MEAN, Kind, NodeRatio, NodeSeen, OfNode
from dlbench.reports.ratio.pairs import draw
from dlbench.reports.report import FLEET, TOP, Report, ReportOptions, ReportSource
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.flag_kinds import CONTENDED, SHARED_NODE, FlagKind
from dlbench.reports.results.hosts import Host, Node
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted, listed, name_of, rest_of, work_name
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.record import Record, Run, last_attempts
from dlbench.reports.results.statistics import SIGNIFICANCE, RatioVerdict, summarise

PRODUCTS, BANDWIDTH = "matrix products", "memory bandwidth"
_UNIT = 1e9
"""Seconds per GFLOP and per GB."""
NONE = "This store has no node of a fleet; `dlbench fleet run SUITE` measures many into one store."
NOTHING = "The nodes do not differ by more than noise explains."
_LITTLE = "The nodes differ by more than noise explains, but by less than 2 %."
_ITSELF = "the machine itself, one thread"
_DETAILED, _DRAWN = 5, 11
"""Nodes shown benchmark by benchmark, and panels of benchmarks in a picture."""
_LEGEND = (
    (
        "mean: time relative to the other nodes of the kind, geometric mean over the benchmarks, "
        "with its 95 % interval; above 1 the node is slower. Nodes that differ are not among the "
        "others. slower, faster: number of benchmarks with that verdict."
    ),
    (
        "slower, faster: by more than 2 %, and noise does not explain it (a t-test, Holm-adjusted "
        "for all nodes, or for all nodes and benchmarks; with fewer than 3 launches an interval "
        "that allows for as many tests). same: the whole interval lies within 2 % of 1."
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

Of the nodes' means; of a node's launches, pooled over nodes (None where no node has two launches);
and the deviation that the means would have if the nodes were the same.
"""


# Gathering results.


def fleet(source: ReportSource) -> list[Kind]:
    """Return the kinds of all fleets that are asked for, by name, with the ratios of their nodes.

    Raises ReportError for a fleet that is not there, or not the only one that begins so.
    """
    runs = {run.id: run for run, _ in source.runs() if run.node is not None and not run.sides}
    fleet_id = _find_fleet(source.options.fleet, runs.values())
    gathered: dict[str, tuple[Kind, Samples, dict[str, str]]] = {}
    for run in sorted(runs.values(), key=lambda run: (run.started, run.id)):
        if run.node is None or fleet_id not in ("", run.node.fleet):
            continue
        if not source.narrowing.takes(run):
            continue
        results = source.narrowing.of(source.of_run(run.id))
        host = results.hosts.get(run.machine) or Host(run.machine, run.machine[:12])
        empty: Samples = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        kind, samples, newest = gathered.setdefault(run.machine, (Kind(host), empty, {}))
        records = [record for record in results.records if record.run == run.id]
        readings: Iterable[Sample] = ()
        if not source.narrowing.axes:
            readings = _reading_samples(_see_node(kind, run.node), source, run.id)
        launches = _launch_samples(kind, run.node, records)
        for benchmark, build, node, steps, when in (*launches, *readings):
            samples[benchmark][build][node].append(steps)
            newest[build] = max(when, newest.get(build, ""))
    kinds = []
    for kind, samples, newest in gathered.values():
        kind.nodes = dict(sorted(kind.nodes.items()))
        _choose_builds(kind, samples, newest)
        kinds.append(kind)
    kinds.sort(key=lambda kind: (kind.host.name, kind.host.fingerprint))
    for kind, judged in zip(kinds, nodes.contrasts(kinds), strict=True):
        kind.judged = sorted(judged, key=_order)
    return kinds


def _find_fleet(word: str, runs: Iterable[Run]) -> str:
    """Return the fleet that a word names or begins; empty for an empty word."""
    fleets = sorted({run.node.fleet for run in runs if run.node is not None})
    if not word or word in fleets:
        return word
    fitting = [fleet for fleet in fleets if fleet.startswith(word)]
    if not fitting:
        existing = "this store has no fleets"
        if fleets:
            existing = f"there are {', '.join(fleets)}"
        raise ReportError(f"There is no fleet {word!r}; {existing}.")
    if len(fitting) > 1:
        raise ReportError(
            f"{len(fitting)} fleets begin with {word!r}: {', '.join(fitting)}. Give more "
            "characters."
        )
    return fitting[0]


def _see_node(kind: Kind, node: Node) -> NodeSeen:
    """Return a kind's node of this name, and note its fleet and its other users."""
    seen = kind.nodes.setdefault(node.name, NodeSeen(node.name))
    seen.fleets[node.fleet] = None
    seen.shared.update(dict.fromkeys(node.shared))
    return seen


def _launch_samples(kind: Kind, node_of_run: Node, records: list[Record]) -> Iterator[Sample]:
    """Yield the launches that count."""
    for record in last_attempts(records):
        node = _see_node(kind, record.node or node_of_run)
        parity = record.outcome.parity
        if record.outcome.status is not Status.OK or not record.outcome.samples_ns:
            node.failed[record.outcome.status.value.replace("_", " ")] += 1
        elif parity is not None and parity.verdict == "disagrees":
            node.failed["parity failed"] += 1
        else:
            node.launches += 1
            node.disturbed += disturbed(record, kind.host)
            benchmark = record.place.cell
            steps = record.outcome.step_seconds()
            yield benchmark, record.environment, node.name, steps, record.started.isoformat()


def _reading_samples(node: NodeSeen, source: ReportSource, run: str) -> Iterator[Sample]:
    """Yield the calm readings of a run.

    A reading that is stored both after a block and before the next one counts once.
    """
    taken = set()
    for _, _, content in source.sentinels(run):
        try:
            reading = Reading.from_dict(dict(content))
        except ValueError:  # of another version
            continue
        rates = (reading.gemm_flops_per_second, reading.bandwidth_bytes_per_second)
        if reading.taken in taken or unquiet_reasons(reading) or min(rates) <= 0:
            continue
        taken.add(reading.taken)
        node.readings += 1
        for benchmark, rate in zip((PRODUCTS, BANDWIDTH), rates, strict=True):
            yield benchmark, reading.method, node.name, [_UNIT / rate], reading.taken


def _choose_builds(kind: Kind, samples: Samples, newest: dict[str, str]) -> None:
    """Set a kind's times to those of the build that most nodes have, and list the gaps.

    Of several such builds it takes the newest.
    """
    alone: list[str] = []
    other_builds: defaultdict[str, list[str]] = defaultdict(list)
    lacking: defaultdict[str, list[str]] = defaultdict(list)
    with_results = [name for name, node in kind.nodes.items() if node.launches or node.readings]
    for benchmark in sorted(samples, key=_order_of_benchmarks):
        builds = samples[benchmark]
        name = _benchmark_name(benchmark)
        build = max(builds, key=lambda build: (len(builds[build]), newest[build], build))
        chosen = builds[build]
        measured: set[str] = set()
        for samples_by_node in builds.values():
            measured.update(samples_by_node)
        if len(chosen) < 2:
            alone += [f"{node}: {name}" for node in sorted(measured)]
            continue
        times = {}
        for node, launches in sorted(chosen.items()):
            times[node] = summarise(sorted(launches))
        kind.times[benchmark] = times
        for node in with_results:
            if node in chosen:
                continue
            if node in measured:
                other_builds[node].append(name)
            else:
                lacking[node].append(name)
    kind.missing += _missing_nodes(kind, with_results)
    kind.missing += _missing_benchmarks(other_builds, lacking)
    if len(kind.nodes) > 1 and alone:
        kind.missing.append(
            f"Not compared, since no two nodes have results of the same build: {listed(alone, 2)}."
        )


def _missing_nodes(kind: Kind, with_results: Sequence[str]) -> list[str]:
    """Return a sentence for each node without results, and for one that is alone."""
    lines = []
    for name, node in kind.nodes.items():
        if name not in with_results:
            failures = [f"{count} {status}" for status, count in sorted(node.failed.items())]
            failed = ""
            if failures:
                failed = f" ({', '.join(failures)})"
            lines.append(f"{name} has no result that counts{failed}.")
    if len(with_results) == 1:
        lines.append(
            f"{with_results[0]} is the only node of its kind with results ({kind.host.name}): "
            "nothing to compare it with."
        )
    return lines


def _missing_benchmarks(
    other_builds: Mapping[str, Sequence[str]], lacking: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return a sentence for the benchmarks on which a node is not compared, by node."""
    lines = []
    for node, benchmarks in other_builds.items():
        lines.append(
            f"{node} is not compared on {_listing(benchmarks)}, measured with another build than "
            "on most nodes."
        )
    for benchmarks, nodes_without in grouped(lacking, lambda node: tuple(lacking[node])).items():
        verb = "has" if len(nodes_without) == 1 else "have"
        lines.append(
            f"{listed(nodes_without)} {verb} no result of {_listing(benchmarks)}, which other "
            "nodes have."
        )
    return lines


def _listing(benchmarks: Sequence[str]) -> str:
    return f"{counted(len(benchmarks), 'benchmark')} ({listed(benchmarks, 2)})"


def _order_of_benchmarks(benchmark: Cell | str) -> tuple[bool, tuple[str, ...]]:
    """Cells first, alike ones together; the machine's own speeds last."""
    if isinstance(benchmark, str):
        return True, (str(benchmark == BANDWIDTH),)
    cell = benchmark
    batch_size = "" if cell.batch_size is None else f"{cell.batch_size:09}"
    return False, (cell.network, batch_size, cell.framework, cell.mode, *map(str, cell))


def _benchmark_name(benchmark: Cell | str) -> str:
    return benchmark if isinstance(benchmark, str) else name_of(benchmark)


# Findings.


def _order(judged: OfNode) -> tuple[int, bool, float, str]:
    """Rank slow nodes first, then those slow on a benchmark, fast ones, and the others.

    Slower ones come before.
    """
    mean, benchmarks = judged
    verdicts = [mean.verdict, *(ratio.verdict for ratio in benchmarks)]
    if mean.verdict == RatioVerdict.SLOWER:
        rank = 0
    elif RatioVerdict.SLOWER in verdicts:
        rank = 1
    elif RatioVerdict.FASTER in verdicts:
        rank = 2
    else:
        rank = 3
    return rank, mean.verdict == RatioVerdict.INCONCLUSIVE, -mean.ratio.value, mean.node.name


def _clear_ratios(ratios: Iterable[NodeRatio]) -> list[NodeRatio]:
    """Return the ratios of slow or fast nodes, which noise does not explain."""
    clear = (RatioVerdict.SLOWER, RatioVerdict.FASTER)
    return [ratio for ratio in ratios if ratio.verdict in clear]


def _spreads(kind: Kind) -> list[Spread]:
    spreads: list[Spread] = []
    for benchmark, time_by_node in kind.times.items():
        times = time_by_node.values()
        between = float(np.std([math.log(time.median) for time in times], ddof=1))
        variance, freedom = nodes.pooled_variance(times)
        within_node = None
        by_noise = None
        if freedom:
            within_node = math.sqrt(variance)
            launches = math.fsum(1 / time.launches for time in times)
            by_noise = math.sqrt(variance * launches / len(times))
        spreads.append((benchmark, len(times), between, within_node, by_noise))
    return spreads


def headline(kinds: Sequence[Kind]) -> list[str]:
    """Return a sentence for each node that differs from the others, slowest first.

    If no node differs, one sentence says so.
    """
    ratios: list[NodeRatio] = []
    lines: list[str] = []
    for kind in kinds:
        ratios += kind.ratios
        lines += _findings(kind.judged)
    if lines or not ratios:
        return lines
    for ratio in ratios:
        if ratio.p_adjusted is not None and ratio.p_adjusted < SIGNIFICANCE:
            return [_LITTLE]
    return [NOTHING]


def _findings(nodes: Sequence[OfNode]) -> list[str]:
    """Return a sentence for each node of a kind that differs from the others."""
    if len(nodes) == 2:
        return _findings_of_two(*nodes)
    lines = []
    for mean, benchmarks in nodes:
        if _clear_ratios((mean, *benchmarks)):
            others = f"the {mean.others} other nodes of its kind"
            excuse = _excuse(mean, benchmarks)
            lines.append(_sentence(mean, benchmarks, others) + excuse)
    return lines


def _findings_of_two(first: OfNode, second: OfNode) -> list[str]:
    """Return a sentence on the slower of two nodes. A second on the faster would repeat it."""
    for (mean, benchmarks), (other, _) in ((first, second), (second, first)):
        if _is_slow_somewhere(mean, benchmarks):
            line = _sentence(mean, benchmarks, other.node.name, two=True)
            excuse = _excuse(mean, benchmarks)
            return [f"{line} With only two nodes, either one may be at fault.{excuse}"]
    return []


def _is_slow_somewhere(mean: NodeRatio, benchmarks: Iterable[NodeRatio]) -> bool:
    return any(ratio.verdict == RatioVerdict.SLOWER for ratio in (mean, *benchmarks))


def _sentence(
    mean: NodeRatio, benchmarks: Sequence[NodeRatio], others: str, two: bool = False
) -> str:
    """Return a node's verdict over all its benchmarks, and on the one where it differs most."""
    is_clear = mean.verdict in (RatioVerdict.SLOWER, RatioVerdict.FASTER)
    verdict = RatioVerdict.FASTER
    if is_clear:
        verdict = mean.verdict
    elif _is_slow_somewhere(mean, benchmarks):
        verdict = RatioVerdict.SLOWER
    clear = [ratio for ratio in benchmarks if ratio.verdict == verdict]
    most = mean
    if clear:
        # The slowest comes first.
        most = clear[0] if verdict == RatioVerdict.SLOWER else clear[-1]
    where = _benchmark_name(most.benchmark)
    subject = f"{mean.node.name} is {verdict}:"
    if two:
        subject = f"{mean.node.name} takes"
    over = f"geometric mean of {counted(len(benchmarks), 'benchmark')}"
    if not is_clear:
        rest = ""
        if len(clear) > 1:
            rest = f" and on {counted(len(clear) - 1, 'other benchmark')}"
        return (
            f"{subject} {times(most.ratio)} the time of {others} on {where}{rest}; "
            f"{times(mean.ratio)} over all ({over})."
        )
    line = f"{subject} {times(mean.ratio)} the time of {others} ({over})"
    if not clear or len(benchmarks) == 1:
        return f"{line}."
    extent = "clearly so only" if len(clear) == 1 else "most"
    return f"{line}; {extent} on {where}, {number(most.ratio.value)}x."


def _excuse(mean: NodeRatio, benchmarks: Iterable[NodeRatio]) -> str:
    """Return another possible reason why a slow node is slow."""
    if not _is_slow_somewhere(mean, benchmarks):
        return ""
    node = mean.node
    excuse = ""
    if node.shared:
        excuse += (
            f" It was shared when it was measured ({'; '.join(node.shared)}), which may be why."
        )
    if node.disturbed:
        excuse += f" Other programs disturbed {node.disturbed} of its {node.launches} launches."
    return excuse


# Its tables.


def _row_text(benchmark: Cell | str) -> str:
    if not isinstance(benchmark, str):
        return rest_of(benchmark)
    unit = "s/GB" if benchmark == BANDWIDTH else "s/GFLOP"
    return f"{benchmark}, {unit}"


def _section(benchmark: Cell | str) -> str:
    return _ITSELF if isinstance(benchmark, str) else work_name(benchmark)


def _share(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _verdict_entry(ratio: NodeRatio) -> Entry:
    return Entry(ratio.verdict, hole=ratio.verdict == RatioVerdict.SLOWER)


def _benchmark_key(benchmark: Cell | str) -> str:
    return benchmark if isinstance(benchmark, str) else "cell"


def _cell_or_none(benchmark: Cell | str) -> Cell | None:
    return None if isinstance(benchmark, str) else benchmark


def _launches(ratio: NodeRatio) -> int:
    return ratio.time.launches if ratio.time else ratio.node.launches


def _seconds_data(ratio: NodeRatio) -> dict[str, Any] | None:
    if ratio.time is None:
        return None
    return {name: getattr(ratio.time, name) for name in MEDIAN}


def _seconds_text(ratio: NodeRatio) -> str:
    return number(ratio.time.median) if ratio.time else ""


def _seconds_of_others(ratio: NodeRatio) -> float | None:
    if ratio.time is None:
        return None
    return ratio.time.median / ratio.ratio.value


def _count_or_none(judged: OfNode, verdict: RatioVerdict) -> int | None:
    """Return the number of benchmarks with this verdict; None for zero."""
    _, benchmarks = judged
    return sum(ratio.verdict == verdict for ratio in benchmarks) or None


_BENCHMARK: tuple[Column[Cell | str], ...] = (
    Column("benchmark", "", _benchmark_key, _row_text),
    *attributes(_cell_or_none, *axes.NAMES),
)
_RATIO: tuple[Column[NodeRatio], ...] = (
    Column("node", None, lambda ratio: ratio.node.name),
    *within(_BENCHMARK, lambda ratio: ratio.benchmark),
    Column("launches", None, _launches),
    Column("seconds", "seconds", _seconds_data, _seconds_text, MEDIAN),
    Column("seconds_of_others", "others", _seconds_of_others),
    Column("others", None, lambda ratio: ratio.others),
    Column("ratio", "ratio", lambda ratio: ratio.ratio, fields=VALUE),
    Column("p_adjusted", None, lambda ratio: ratio.p_adjusted),
    Column("verdict", "verdict", lambda ratio: ratio.verdict, _verdict_entry),
)
_SPREAD: tuple[Column[Spread], ...] = (
    *within(_BENCHMARK, lambda spread: spread[0]),
    Column("nodes", "nodes", lambda spread: spread[1]),
    Column("between", "between", lambda spread: spread[2], lambda spread: _share(spread[2])),
    Column("within", "within", lambda spread: spread[3], lambda spread: _share(spread[3])),
    Column("by_noise", "noise", lambda spread: spread[4], lambda spread: _share(spread[4])),
)
_NODE: tuple[Column[OfNode], ...] = (
    Column("node", "", lambda judged: judged[0].node.name, lambda judged: _marked(judged[0].node)),
    Column("", "mean", lambda judged: judged[0].ratio),
    Column("", "benchmarks", lambda judged: len(judged[1])),
    Column("", RatioVerdict.SLOWER, lambda judged: _count_or_none(judged, RatioVerdict.SLOWER)),
    Column("", RatioVerdict.FASTER, lambda judged: _count_or_none(judged, RatioVerdict.FASTER)),
    Column("fleets", None, lambda judged: list(judged[0].node.fleets)),
    Column("shared", None, lambda judged: list(judged[0].node.shared)),
    Column("launches", "launches", lambda judged: judged[0].node.launches),
    Column("disturbed_launches", None, lambda judged: judged[0].node.disturbed),
    Column("readings", None, lambda judged: judged[0].node.readings),
    Column(
        "", "verdict", lambda judged: judged[0].verdict, lambda judged: _verdict_entry(judged[0])
    ),
)


def _raised(node: NodeSeen) -> list[FlagKind]:
    """Return the flags of a node."""
    raised = []
    if node.shared:
        raised.append(SHARED_NODE)
    if node.disturbed:
        raised.append(CONTENDED)
    return raised


def _marked(node: NodeSeen) -> Entry:
    marks = [f" {kind.symbol}" for kind in _raised(node)]
    return Entry(node.name, marks="".join(marks))


def _page(kinds: Sequence[Kind], options: ReportOptions) -> Page:
    """Return the nodes of each kind, their differences by benchmark, and the spreads.

    The spreads are those between nodes and between launches.
    """
    if not kinds:
        return Page((NONE,), ())
    sentences = headline(kinds)
    before = sentences[: options.top]
    more = len(sentences) - len(before)
    if more > 0:
        before.append(f"Also different: {counted(more, 'further node')}.")
    tables: list[Table] = []
    marks = set()
    missing: list[str] = []
    for kind in kinds:
        missing += kind.missing
        if not kind.ratios:
            continue
        spreads = _spreads(kind)
        before.append(_summary(kind.host.name, len(kind.judged), spreads))
        tables += _tables(kind, spreads, options.top)
        for mean, _ in kind.judged:
            for flag in _raised(mean.node):
                marks.add(f"{flag.symbol} {flag.legend}")
    legend: list[str] = []
    if tables:
        legend = [*_LEGEND[:2], *sorted(marks), _LEGEND[2]]
    return Page(tuple(before), tuple(tables), (*legend, *missing))


def _tables(kind: Kind, spreads: Sequence[Spread], top: int) -> list[Table]:
    """Return the tables of a kind: its nodes, the details of those that differ, and the spreads."""
    name = kind.host.name
    rest = Counter(mean.verdict for mean, _ in kind.judged[top:])
    notes = []
    if rest:
        verdicts = [f"{count} {verdict}" for verdict, count in rest.most_common()]
        notes.append(f"{counted(rest.total(), 'further node')}: {', '.join(verdicts)}.")
    tables = [table(_NODE, kind.judged[:top], f"{name}: nodes", notes=notes)]
    different = [judged for judged in kind.judged if _clear_ratios(judged[1])]
    for mean, benchmarks in different[:_DETAILED]:
        tables.append(_details(mean, benchmarks, kind, top))
    tables.append(
        table(
            _SPREAD,
            spreads,
            f"{name}: nodes and launches",
            section=lambda spread: _section(spread[0]),
        )
    )
    return tables


def _size(ratio: NodeRatio) -> float:
    """Return how far a ratio is from 1, in log units."""
    return abs(math.log(ratio.ratio.value))


def _details(mean: NodeRatio, ratios: Iterable[NodeRatio], kind: Kind, top: int) -> Table:
    """Return the benchmarks with the largest differences on which a node differs."""
    order = list(kind.times)
    clear = sorted(_clear_ratios(ratios), key=_size, reverse=True)
    shown = sorted(clear[:top], key=lambda ratio: order.index(ratio.benchmark))
    more = len(clear) - len(shown)
    notes = []
    if more:
        notes.append(f"{counted(more, 'further benchmark')} with smaller differences.")
    title = f"{mean.node.name}, by benchmark"
    return table(_RATIO, shown, title, section=lambda ratio: _section(ratio.benchmark), notes=notes)


def _summary(name: str, nodes: int, spreads: Sequence[Spread]) -> str:
    line = f"{name}: {counted(nodes, 'node')}, {counted(len(spreads), 'benchmark')}."
    of_nodes = []
    of_launches = []
    of_noise = []
    for _, _, between_nodes, within_node, by_noise in spreads:
        if within_node is not None and by_noise is not None:
            of_nodes.append(between_nodes)
            of_launches.append(within_node)
            of_noise.append(by_noise)
    if not of_nodes:
        return f"{line} With one launch each, the variation between launches is unknown."
    between = _share(statistics.median(of_nodes))
    between_launches = _share(statistics.median(of_launches))
    noise = _share(statistics.median(of_noise))
    return (
        f"{line} In the median benchmark the nodes' means deviate by {between}, launches on one "
        f"node by {between_launches}; means of identical nodes would deviate by {noise}."
    )


def _data(kinds: Sequence[Kind]) -> dict[str, Any]:
    machines = []
    missing: list[str] = []
    for kind in kinds:
        missing += kind.missing
        machines.append(
            {
                **objects(host_columns(lambda host: host), [kind.host])[0],
                "nodes": objects(_NODE, kind.judged),
                "ratios": objects(_RATIO, kind.ratios),
                "spreads": objects(_SPREAD, _spreads(kind)),
            }
        )
    return {"machines": machines, "findings": headline(kinds), "missing": missing}


def _rows(kinds: Sequence[Kind]) -> Rows:
    columns: tuple[Column[tuple[Kind, NodeRatio]], ...] = (
        *host_columns(lambda line: line[0].host),
        Column("shared", None, lambda line: "; ".join(line[1].node.shared)),
        *within(_RATIO, lambda line: line[1]),
    )
    lines = []
    for kind in kinds:
        for ratio in kind.ratios:
            lines.append((kind, ratio))
    return csv_rows(columns, lines)


def _draw(kinds: Sequence[Kind], path: Path, options: ReportOptions) -> list[Path]:
    """Draw a page for each kind: a panel of the mean, and of the benchmarks that differ most."""
    pages = []
    for kind in kinds:
        if not kind.ratios:
            continue
        spreads = sorted(_spreads(kind), key=lambda spread: -spread[2])
        most_different = {spread[0] for spread in spreads[:_DRAWN]}
        drawn = [benchmark for benchmark in kind.times if benchmark in most_different]
        ratios: list[NodeRatio] = []
        for mean, benchmarks in kind.judged[: options.top]:
            ratios += [mean, *benchmarks]
        points = []
        for benchmark in (MEAN, *drawn):
            panel = "Geometric mean"
            if benchmark != MEAN:
                panel = _benchmark_name(benchmark)
            for ratio in ratios:
                if ratio.benchmark == benchmark:
                    points.append((panel, ratio.node.name, "the other nodes", ratio.ratio))
        pages.append((kind.host.name, "time over that of the other nodes; 95 % intervals", points))
    return draw(pages, path, series="against")


def _has_ratios(kinds: Sequence[Kind]) -> bool:
    return any(kind.ratios for kind in kinds)


REPORT = Report(
    name="fleet",
    summary="""Which of several identical nodes is slow, and by how much.

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
    drawable=_has_ratios,
    options=frozenset({FLEET, TOP}),
    heading="Node against node",
    place=18,
    headline=headline,
    has_section=_has_ratios,
)
