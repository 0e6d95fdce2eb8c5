"""`dlbench report against`: one's own results beside the 2016 paper's Table 4.

Cells of the same network at the paper's mini-batch and the same number of threads are compared, as long as both
machines have a core for each thread: beyond that, threads share cores on one side only.

The speed-up is the ratio of seconds: hardware and software together. Per peak is the ratio of the shares of peak,
(operations per second now / the ceiling measured here) / (operations per second then / the theoretical peak of as many
cores): the arithmetic rate of the cores is divided out, but not memory, caches, or what the scripts of then computed
besides. Both sides count the operations of the network's specification here (`Family.training_flops`). A measured
ceiling lies below the theoretical peak, so per peak favours the software of now.

A number of then above the highest theoretical peak is not compared: it was not this network on that many cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any, NamedTuple

from dlbench.adapters.protocol import OVERSUBSCRIBED, TUNED, Cell, Status
from dlbench.reports.builds import Build, Builds
from dlbench.reports.cells import CellResult, Matrix, Place, build_matrix, fastest_mode
from dlbench.reports.columns import MEDIAN, csv_rows, objects, table, within
from dlbench.reports.columns import Column as TableColumn
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.flags import CONTENDED, FEW_LAUNCHES, FlagKind
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import MISSING, Entry, Page, number
from dlbench.reports.naming import group_name, row_name
from dlbench.reports.published import SHI2016, CorePeak, Counterpart, Study, study
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report, Source
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import FIRST

_OTHER_WORK = (
    "the published time would be above the theoretical peak: its script trained another network, or used more threads"
)
_SEVERAL_WORKERS = "Not compared: cells of several workers; the table's are of one process."
_ON_GPUS = "Not compared: cells on GPUs; the table's GPUs are in `report matrix --reference`."
NOTHING = "Nothing was measured that the table has too: its networks, at its mini-batch, on a CPU."


class Span(NamedTuple):
    """A number known by its ends only."""

    low: float
    high: float


class Where(NamedTuple):
    """The place of a pair."""

    group: Cell
    framework: str
    """The table's name."""
    row: str
    """The name it was measured under here."""
    threads: int


@dataclass(frozen=True)
class Pair:
    """A cell of now and its counterpart of then."""

    where: Where
    now: CellResult | None
    """None: not measured."""
    build: Build | None
    then: CellResult | None
    """None: not in the table."""
    speedup: float | None
    """Seconds then / seconds now."""
    share_now: float | None
    """Of the ceiling measured at no more than this many threads."""
    share_then: Span | None
    """Of the theoretical peak of this many cores."""
    per_peak: Span | None
    """``share_now`` / ``share_then``."""
    reason: str
    """Why there is no speed-up; empty where there is."""


class Mean(NamedTuple):
    """Geometric means over the networks that a row has at one number of threads."""

    framework: str
    row: str
    threads: int
    networks: int
    speedup: float
    per_peak: Span | None
    """None where it is not known of every one of them."""
    common: float | None = None
    """The speed-up over `Match.common` alone, by which rows can be compared; None where that is empty."""
    disturbed: tuple[str, ...] = ()
    """Those of its networks where other programs disturbed the measurement here."""


@dataclass(frozen=True)
class Match:
    """One machine of now against one of then."""

    host: Host
    then: Host
    peak: CorePeak | None
    """Of a core of then."""
    ceilings: dict[int, float]
    """FLOP/s now, by threads."""
    pairs: tuple[Pair, ...]
    means: tuple[Mean, ...]
    common: dict[int, tuple[str, ...]]
    """By threads, the networks that every row with a mean there has a speed-up for."""
    left_out: dict[int, str]
    """Numbers of threads that are not compared, and why."""


@dataclass(frozen=True)
class Against:
    """Every machine of one's own against every machine of a published table that has CPU columns."""

    study: Study
    matches: tuple[Match, ...]
    counterparts: Mapping[str, Counterpart]
    notes: tuple[str, ...]

    @property
    def pairs(self) -> list[Pair]:
        """Those of all machines."""
        return [pair for match in self.matches for pair in match.pairs]


def against(
    matrix: Matrix, of: Study, counterparts: Mapping[str, Counterpart], builds: Builds, all_modes: bool = False
) -> Against:
    """Compare one's own matrix with a published one.

    ``counterparts`` has the adapter of now for each framework of the table; rows of other builds of that adapter are
    compared too, each by itself. Shown is the fastest mode of each row, or with ``all_modes`` every one.
    """
    paper = of.matrix()
    cpus = [each for each in paper.machines if any(column.on_cpu for column in paper.columns_of(each))]
    matches = tuple(
        _match(matrix, mine, of, paper, theirs, counterparts, builds, all_modes)
        for mine in matrix.machines
        for theirs in cpus
        if any(map(_comparable, matrix.columns_of(mine)))
    )
    left_out = [_SEVERAL_WORKERS] if any(c.on_cpu and c.world_size > 1 for c in matrix.columns) else []
    left_out += [_ON_GPUS] if any(not column.on_cpu for column in matrix.columns) else []
    return Against(of, matches, counterparts, (*matrix.notes, *paper.notes, *left_out))


def _comparable(column: Place) -> bool:
    # The paper's CPU columns are of one process.
    return column.on_cpu and column.world_size == 1


def _match(
    matrix: Matrix,
    machine: str,
    of: Study,
    paper: Matrix,
    theirs: str,
    counterparts: Mapping[str, Counterpart],
    builds: Builds,
    all_modes: bool,
) -> Match:
    host, then = matrix.hosts[machine], paper.hosts[theirs]
    own, published = (
        {c.threads for c in m.columns_of(name) if _comparable(c) and c.threads is not None}
        for m, name in ((matrix, machine), (paper, theirs))
    )
    left_out = {count: why for count in sorted(own) if (why := _why_not(count, published, host, then))}
    counts = sorted(own & published - set(left_out))
    peak = of.peaks.get(theirs)
    found: dict[tuple[Cell, str, int], list[CellResult]] = {}
    names: dict[str, set[str]] = {}
    for cell in matrix.cells.values():
        group, row, column = cell.group, cell.row, cell.column
        # The paper did not bind threads to CPUs, and tuned what it measured.
        usual = row.affinity == OVERSUBSCRIBED and row.tuning == TUNED
        if usual and column.machine == machine and _comparable(column) and column.threads is not None:
            found.setdefault((group, row.framework, column.threads), []).append(cell)
            names.setdefault(builds.of(cell).adapter, set()).add(row.framework)
    pairs: list[Pair] = []
    fastest: list[Pair] = []
    measured = {group for group, _, _ in found}
    for group in (group for group in matrix.rows if group in measured and group in paper.rows):
        for framework in (row.framework for row in paper.rows[group]):
            counterpart = counterparts.get(framework)
            for name in sorted(names.get(counterpart.adapter, ())) if counterpart and counterpart.adapter else ():
                for count in counts:
                    past = paper.cells.get(
                        Place(theirs, group._replace(framework=framework, mode=of.year, device="cpu", threads=count))
                    )
                    modes = sorted(found.get((group, name, count), ()), key=lambda cell: cell.row)
                    best = fastest_mode(modes) if modes else None
                    for now in modes if all_modes and modes else [best]:
                        build = None if now is None else builds.of(now)
                        pairs.append(_pair(Where(group, framework, name, count), now, build, past, peak))
                        fastest += pairs[-1:] if now is best else []
    ceilings: dict[int, float] = {}
    for pair in pairs:
        if pair.now is not None and pair.now.gflops is not None and pair.now.ceiling_fraction:
            ceilings.setdefault(pair.where.threads, pair.now.gflops * 1e9 / pair.now.ceiling_fraction)
    common = _common(fastest)
    return Match(host, then, peak, ceilings, tuple(pairs), tuple(_means(fastest, common)), common, left_out)


def _why_not(count: int, published: set[int], mine: Host, theirs: Host) -> str:
    """Return why cells of so many threads are not compared; empty where they are."""
    if count not in published:
        return "not in the table"
    for cores, whose in ((mine.own_cores, "here"), (theirs.own_cores, "there")):
        if cores is not None and count > cores:
            return f"more than the {cores} cores {whose}"
    return ""


def _pair(
    where: Where, now: CellResult | None, build: Build | None, then: CellResult | None, peak: CorePeak | None
) -> Pair:
    past = then.timed if then is not None else None
    present = now.timed if now is not None and not computes_nothing(now) else None
    share_then = None
    if past is not None and peak is not None:
        flops = FIRST[where.group.network].family.training_flops(where.group.batch_size)
        rate = flops / past.median / where.threads
        low, high = rate / peak.high, rate / peak.low
        # No core does more than its peak: where the lower end is possible the clock was higher than the low one.
        share_then = Span(low, max(low, min(high, 1.0)))
    impossible = share_then is not None and share_then.low > 1.0
    share_now = now.ceiling_fraction if now is not None and present is not None else None
    per_peak = None
    if impossible:
        past = None
    elif share_now is not None and share_then is not None:
        per_peak = Span(share_now / share_then.high, share_now / share_then.low)
    speedup = past.median / present.median if past is not None and present is not None else None
    reason = "" if speedup is not None else _OTHER_WORK if impossible and present is not None else _why(now, then)
    return Pair(where, now, build, then, speedup, share_now, share_then, per_peak, reason)


def _why(now: CellResult | None, then: CellResult | None) -> str:
    """Return why there is no speed-up."""
    parts = []
    if now is None:
        parts.append("not measured here")
    elif now.timed is None or computes_nothing(now):
        wrong = now.status is Status.OK and now.seconds is not None
        why = now.reason or ("it computed something else than the reference, or nothing" if wrong else "no number")
        parts.append(f"here {why}")
    if then is None or then.timed is None:
        parts.append(f"then {then.reason if then is not None and then.reason else 'not in the table'}")
    return "; ".join(parts)


def _common(pairs: Sequence[Pair]) -> dict[int, tuple[str, ...]]:
    """Return by threads the networks for which every row with a speed-up there has one."""
    of_rows: dict[int, dict[tuple[str, str], dict[str, None]]] = {}
    for pair in pairs:
        if pair.speedup is not None:
            of_row = of_rows.setdefault(pair.where.threads, {}).setdefault((pair.where.framework, pair.where.row), {})
            of_row[pair.where.group.network] = None
    return {
        threads: tuple(name for name in next(iter(rows.values())) if all(name in row for row in rows.values()))
        for threads, rows in of_rows.items()
    }


def _means(pairs: Sequence[Pair], common: Mapping[int, Sequence[str]]) -> list[Mean]:
    """Return the geometric means over networks of these pairs, one for each network at most."""
    found: dict[tuple[str, str, int], list[Pair]] = {}
    for pair in pairs:
        if pair.speedup is not None:
            found.setdefault(pair.where[1:], []).append(pair)
    means = []
    for (framework, row, threads), of_row in found.items():
        speedups = {pair.where.group.network: pair.speedup for pair in of_row if pair.speedup is not None}
        spans = [pair.per_peak for pair in of_row if pair.per_peak is not None]
        span = None
        if len(spans) == len(speedups):
            span = Span(geometric_mean([each.low for each in spans]), geometric_mean([each.high for each in spans]))
        shared = [speedups[name] for name in common[threads]]
        disturbed = [pair.where.group.network for pair in of_row if pair.now is not None and pair.now.has(CONTENDED)]
        means.append(
            Mean(
                framework,
                row,
                threads,
                len(speedups),
                geometric_mean(list(speedups.values())),
                span,
                geometric_mean(shared) if shared else None,
                tuple(dict.fromkeys(disturbed)),
            )
        )
    return means


# Its tables.


def _columns(year: str, common: set[FlagKind]) -> tuple[TableColumn[Pair], ...]:
    seconds = layout.QUANTITIES["seconds"]

    def past(pair: Pair) -> Entry:
        if pair.then is None:
            return Entry(MISSING)
        if pair.then.timed is None:
            return Entry(layout.HOLES[pair.then.status], hole=True)
        return Entry(number(pair.then.timed.median))

    def share(span: Span | None) -> str:
        return "" if span is None else _ends(*(f"{100 * end:.0f}" for end in span))

    return (
        TableColumn("network", None, lambda pair: pair.where.group.network),
        TableColumn("batch_size", None, lambda pair: pair.where.group.batch_size),
        TableColumn("framework_then", None, lambda pair: pair.where.framework),
        TableColumn("framework", None, lambda pair: pair.where.row),
        TableColumn("mode", None, lambda pair: pair.now.row.mode if pair.now else None),
        TableColumn("version", None, lambda pair: pair.build.version or None if pair.build else None),
        TableColumn("threads", "p", lambda pair: pair.where.threads),
        TableColumn("status", None, lambda pair: pair.now.status if pair.now else "not_measured"),
        TableColumn(
            "seconds_now",
            "s now",
            lambda pair: pair.now.seconds if pair.now else None,
            lambda pair: layout.entry(pair.now, seconds, common)._replace(best=False),
            MEDIAN,
        ),
        TableColumn(
            "seconds_then",
            f"s {year}",
            lambda pair: pair.then.timed.median if pair.then and pair.then.timed else None,
            past,
        ),
        TableColumn("speedup", "speed-up", lambda pair: pair.speedup, lambda pair: _times(pair.speedup)),
        TableColumn(
            "share_now",
            "% now",
            lambda pair: pair.share_now,
            lambda pair: "" if pair.share_now is None else f"{100 * pair.share_now:.0f}",
        ),
        TableColumn(
            "share_then",
            f"% {year}",
            lambda pair: pair.share_then,
            lambda pair: share(pair.share_then),
            ("low", "high"),
        ),
        TableColumn(
            "per_peak", "per peak", lambda pair: pair.per_peak, lambda pair: _times(pair.per_peak), ("low", "high")
        ),
        TableColumn("reason", None, lambda pair: pair.reason),
        TableColumn("flags", None, lambda pair: pair.now.flags if pair.now else []),
    )


_MACHINES: tuple[TableColumn[Match], ...] = (
    TableColumn("machine", None, lambda match: match.host.fingerprint),
    TableColumn("machine_name", None, lambda match: match.host.name),
    TableColumn("machine_then", None, lambda match: match.then.fingerprint),
    TableColumn("machine_then_name", None, lambda match: match.then.name),
)
_MEANS: tuple[TableColumn[Mean], ...] = (
    TableColumn("", "p", lambda mean: mean.threads),
    TableColumn("", "networks", lambda mean: mean.networks),
    TableColumn("", "speed-up", lambda mean: _times(mean.speedup) + (CONTENDED.symbol if mean.disturbed else "")),
    TableColumn("", "per peak", lambda mean: _times(mean.per_peak)),
    TableColumn("", "of common", lambda mean: _times(mean.common)),
)


def _times(found: float | Span | None) -> str:
    if found is None:
        return ""
    return f"{_ends(*map(number, found)) if isinstance(found, Span) else number(found)}x"


def _ends(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _named(pair: Pair) -> str:
    return row_name(pair.now.row) if pair.now is not None else pair.where.row


def warning(found: Against) -> str:
    """Return the caveat that stands before the numbers."""
    return (
        "The machines differ, so a speed-up is one of hardware and software together: do not read it as progress of "
        f"the software alone. The frameworks of {found.study.year} ran different scripts, and each of their figures is "
        "a single mean without its spread."
    )


def _page(found: Against) -> Page:
    """Return a table for each pair of machines, and one of means."""
    if not found.pairs:
        return Page((warning(found), NOTHING), (), (*_frameworks(found), *found.notes))
    tables = []
    for match in found.matches:
        title = f"{match.host.name}, against {match.then.name}"
        lines = _once(match.pairs, lambda pair: (pair.where.group, _named(pair)), _named)
        columns: tuple[TableColumn[tuple[str, Pair]], ...] = (
            TableColumn("", "", lambda line: line[0]),
            *within(_columns(found.study.year, _common_flags(found)), lambda line: line[1]),
        )
        tables.append(
            table(columns, lines, title, "", lambda line: group_name(line[1].where.group), _notes(match), keys=2)
        )
        if match.means:
            means = _once(match.means, lambda mean: mean.row, lambda mean: mean.row)
            of_means: tuple[TableColumn[tuple[str, Mean]], ...] = (
                TableColumn("", "", lambda line: line[0]),
                *within(_MEANS, lambda line: line[1]),
            )
            tables.append(table(of_means, means, "Geometric means over networks", notes=_notes_of_means(match)))
    return Page((warning(found),), tuple(tables), tuple(_legend(found)))


def _once(rows: Any, key: Any, name: Any) -> list[tuple[str, Any]]:
    """Return the rows, each behind its name where the row before has another key."""
    keys = [key(row) for row in rows]
    return [(name(row) if place == 0 or keys[place - 1] != keys[place] else "", row) for place, row in enumerate(rows)]


def _common_flags(found: Against) -> set[FlagKind]:
    timed = [pair.now for pair in found.pairs if pair.now is not None and pair.now.timed]
    return {FEW_LAUNCHES} if timed and all(cell.has(FEW_LAUNCHES) for cell in timed) else set()


def _notes_of_means(match: Match) -> list[str]:
    """Return lines that name the networks of the last column, thread counts of the same ones together."""
    lines = [
        f"of common, at p = {counts}: the speed-up over {', '.join(networks)}, which every row has"
        if networks
        else f"of common, at p = {counts}: no network has a speed-up in every row"
        for networks, counts in _together(sorted(match.common.items())).items()
    ]
    if any(mean.disturbed for mean in match.means):
        lines.append(f"{CONTENDED.symbol} holds networks on which the measurement here was disturbed")
    return lines


def _together(counts: Any) -> dict[Any, str]:
    """Return the thread counts of each value: "1, 2"."""
    found: dict[Any, list[str]] = {}
    for count, value in counts:
        found.setdefault(value, []).append(str(count))
    return {value: ", ".join(each) for value, each in found.items()}


def _notes(match: Match) -> list[str]:
    lines = []
    if match.means:
        lines.append("Means take the fastest mode at each place. Compare rows only by the means over common networks.")
    if match.peak is not None:
        low, high = (number(end * 1e-9) for end in match.peak[:2])
        lines.append(f"Peak then: {low} to {high} GFLOP/s a core, theoretical, single precision ({match.peak.source}).")
    if match.ceilings:
        rates = ", ".join(f"{number(rate * 1e-9)} at {p}" for p, rate in sorted(match.ceilings.items()))
        lines.append(f"Peak now: {rates} thread{'s' if set(match.ceilings) != {1} else ''} (GFLOP/s, measured here).")
    lines += [f"Not compared: {counts} threads, {why}." for why, counts in _together(match.left_out.items()).items()]
    missing = [
        (pair.reason, f"{pair.where.group.network} {_named(pair)}", str(pair.where.threads))
        for pair in match.pairs
        if pair.reason
    ]
    return lines + layout.reasons(missing)


def _legend(found: Against) -> list[str]:
    year = found.study.year
    lines = []
    if found.pairs:
        lines = [
            f"p threads on both sides; s seconds per mini-batch, here now and in {year}; speed-up then / now, hardware "
            "and software together; % of peak, here of the measured matrix-product ceiling at no more than p threads, "
            f"in {year} of the theoretical peak of p cores, a range since their clock is not known; per peak the ratio "
            "of these shares, so the rate of the cores is divided out.",
            "Per peak favours the software of today: a measured ceiling lies below the theoretical peak. Memory, "
            f"caches and what the scripts of {year} computed besides are not divided out. Both sides count the "
            "operations of the networks as they are specified here.",
        ]
    cells = (pair.now for pair in found.pairs if pair.now is not None)
    flags = layout.flag_lines(cells, _common_flags(found), "every number of today:")
    return [*lines, *_frameworks(found), *flags, *found.notes]


def _frameworks(found: Against) -> list[str]:
    """Return a line for each framework of the table without a row, and for each with a successor."""
    shown = {pair.where.framework for pair in found.pairs}
    lines = []
    for name, (_, title) in found.study.frameworks.items():
        counterpart = found.counterparts.get(name)
        if counterpart is None or not counterpart.adapter:
            why = counterpart.missing if counterpart and counterpart.missing else "no adapter"
            lines.append(f"{title} has no row: {why}.")
        elif name not in shown:
            lines.append(f"{title} of {found.study.year}: nothing was measured here for it ({counterpart.title}).")
        elif counterpart.title != title:
            lines.append(f"{counterpart.title} is shown as the successor of {title}; it is another program.")
    return lines


def _data(found: Against) -> dict[str, Any]:
    columns = _columns(found.study.year, set())
    return {
        "warning": warning(found),
        "stands": {
            name: {"title": found.study.frameworks[name][1], "now": counterpart.title or None}
            for name, counterpart in found.counterparts.items()
        },
        "machines": [
            {
                **objects(_MACHINES, [match])[0],
                "peak_per_core_then": plain(match.peak),
                "ceiling_now": {str(threads): rate for threads, rate in sorted(match.ceilings.items())},
                "not_compared": {str(threads): why for threads, why in match.left_out.items()},
                "cells": objects(columns, match.pairs),
                "means": plain(match.means),
                "common": {str(threads): list(networks) for threads, networks in sorted(match.common.items())},
            }
            for match in found.matches
        ],
        "notes": _legend(found),
    }


def _rows(found: Against) -> Rows:
    columns: tuple[TableColumn[tuple[Match, Pair]], ...] = (
        *within(_MACHINES, lambda line: line[0]),
        *within(_columns(found.study.year, set()), lambda line: line[1]),
        TableColumn("warning", None, lambda line: warning(found)),
    )
    return csv_rows(columns, [(match, pair) for match in found.matches for pair in match.pairs])


def _analyse(source: Source) -> Against:
    results = source.results()
    builds = Builds(results.records, source.releases())
    mine = build_matrix(results)
    return against(mine, study(SHI2016), source.counterparts(), builds, source.options.all_modes)


REPORT = Report(
    name="against",
    summary="""One's own results beside the 2016 paper's Table 4, with speed-ups.

For each framework of the paper, on as many threads: the seconds of 2016, the speed-up since (hardware and software
together), and how much is left when both are divided by the cores' peak rates.""",
    examples=("dlbench report against", "dlbench report against --all-modes --format markdown"),
    analyse=_analyse,
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    options=frozenset({ALL_MODES, ALL_RUNS}),
    has_section=lambda found: bool(found.matches),
    heading="Beside the paper of 2016",
    place=74,
)
