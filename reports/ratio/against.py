"""`dlbench report against`: the user's results next to the 2016 paper's Table 4.

Cells of the same network at the paper's mini-batch and the same number of threads are compared, as
long as both machines have a core for each thread: beyond that, threads share cores on one side
only.

`_legend` explains the figures. A published time above the highest theoretical peak is not compared:
it cannot be of this network on that many cores.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import geometric_mean
from typing import Any, NamedTuple

from dlbench.adapters.protocol import OVERSUBSCRIBED, TUNED, Cell, Status
from dlbench.reports.builds import MeasuredBuild, MeasuredBuilds
from dlbench.reports.columns import (
    Column,
    Row,
    attributes,
    begins,
    csv_rows,
    host_columns,
    objects,
    table,
    within,
)
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.ratio.pairs import seconds_column
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult, fastest_mode
from dlbench.reports.results.flag_kinds import CONTENDED, FEW_LAUNCHES, Flag, FlagKind
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, WorkKey, grouped, work_of
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import row_name, work_name
from dlbench.reports.results.networks import FIRST
from dlbench.reports.results.number_text import number
from dlbench.reports.results.published import SHI2016, CorePeak, Counterpart, Study, study
from dlbench.reports.results.published_matrix import published_matrix

_OTHER_WORK = (
    "the published time would be above the theoretical peak: its script trained another network, "
    "or used more threads"
)
_SEVERAL_WORKERS = "Not compared: cells of several workers; the table's are of one process."
_ON_GPUS = "Not compared: cells on GPUs; the table's GPUs are in `report matrix --reference`."
NOTHING = "No cell matches the table: measure its networks at its mini-batch on a CPU."


class Span(NamedTuple):
    """A number known only as a range."""

    low: float
    high: float


@dataclass(frozen=True)
class PaperPair:
    """A cell that the user measured and its published counterpart."""

    at: Cell
    """The published cell, with the table's name of the framework."""
    row: str
    """The framework's name in the user's results."""
    now: CellResult | None
    """None: not measured."""
    build: MeasuredBuild | None
    then: CellResult | None
    """None: not in the table."""
    speedup: float | None = None
    """Seconds then / seconds now."""
    share_now: float | None = None
    """Of the ceiling measured at no more than this many threads."""
    share_then: Span | None = None
    """Of the theoretical peak of this many cores."""
    reason: str = ""
    """Why there is no speed-up; empty where there is."""

    @property
    def per_peak(self) -> Span | None:
        """``share_now`` / ``share_then``; None where the published time is not of this network."""
        if self.share_now is None or self.share_then is None or self.share_then.low > 1.0:
            return None
        return Span(self.share_now / self.share_then.high, self.share_now / self.share_then.low)

    @property
    def name(self) -> str:
        """The row's name with its mode."""
        if self.now is None:
            return self.row
        return row_name(self.now.row)


class MeanSpeedup(NamedTuple):
    """The geometric means over the networks that a row has at one number of threads."""

    framework: str
    row: str
    threads: int
    networks: int
    """Their number."""
    speedup: float
    per_peak: Span | None
    """None unless it is known for all of them."""
    common: float | None
    """The speed-up over the common networks only, which makes rows comparable."""
    disturbed: list[str]
    """Networks whose measurement by the user was disturbed by other programs."""


@dataclass(frozen=True)
class Match:
    """One of the user's machines against one published machine."""

    host: Host
    then: Host
    peak: CorePeak | None
    """Of a core of the published machine."""
    pairs: tuple[PaperPair, ...]
    fastest: tuple[PaperPair, ...]
    """The pairs of each row's fastest mode; means are taken over these."""
    left_out: dict[int, str]
    """Thread counts that are not compared, and why."""

    @property
    def ceilings(self) -> dict[int, float]:
        """FLOP/s now, by threads."""
        ceilings: dict[int, float] = {}
        for pair in self.pairs:
            now = pair.now
            if now is not None and now.gflops is not None and now.ceiling_fraction:
                ceilings.setdefault(pair.at.threads, now.gflops * 1e9 / now.ceiling_fraction)
        return dict(sorted(ceilings.items()))

    @property
    def common(self) -> dict[int, list[str]]:
        """By threads, the networks for which every row with a mean there has a speed-up."""
        common: dict[int, list[str]] = {}
        timed = [pair for pair in self.fastest if pair.speedup is not None]
        for threads, pairs in sorted(grouped(timed, lambda pair: pair.at.threads).items()):
            rows: set[tuple[str, str]] = set()
            rows_by_network: dict[str, set[tuple[str, str]]] = {}
            for pair in pairs:
                row = (pair.at.framework, pair.row)
                rows.add(row)
                rows_by_network.setdefault(pair.at.network, set()).add(row)
            common[threads] = []
            for network, rows_of_network in rows_by_network.items():
                if rows_of_network == rows:
                    common[threads].append(network)
        return common

    @property
    def means(self) -> list[MeanSpeedup]:
        """Geometric means over the networks that a row has at one number of threads."""
        common = self.common
        means = []
        timed = [pair for pair in self.fastest if pair.speedup is not None]
        pairs_by_row = grouped(timed, lambda pair: (pair.at.framework, pair.row, pair.at.threads))
        for (framework, row, threads), pairs in pairs_by_row.items():
            speedups: dict[str, float] = {}
            lows = []
            highs = []
            disturbed: dict[str, None] = {}
            for pair in pairs:
                network = pair.at.network
                if pair.speedup is not None:
                    speedups[network] = pair.speedup
                if pair.per_peak is not None:
                    lows.append(pair.per_peak.low)
                    highs.append(pair.per_peak.high)
                if pair.now is not None and pair.now.has(CONTENDED):
                    disturbed[network] = None
            per_peak = None
            if len(lows) == len(speedups):
                per_peak = Span(geometric_mean(lows), geometric_mean(highs))
            common_speedup = None
            if common[threads]:
                common_speedup = geometric_mean(speedups[network] for network in common[threads])
            means.append(
                MeanSpeedup(
                    framework,
                    row,
                    threads,
                    networks=len(speedups),
                    speedup=geometric_mean(speedups.values()),
                    per_peak=per_peak,
                    common=common_speedup,
                    disturbed=list(disturbed),
                )
            )
        return means


@dataclass(frozen=True)
class Against:
    """Every machine of the user's against every machine of the paper's table with CPU columns."""

    study: Study
    matches: tuple[Match, ...]
    counterparts: Mapping[str, Counterpart]
    notes: tuple[str, ...]

    @property
    def pairs(self) -> list[PaperPair]:
        """Those of all machines."""
        pairs: list[PaperPair] = []
        for match in self.matches:
            pairs += match.pairs
        return pairs

    @property
    def common_flags(self) -> set[FlagKind]:
        """The flag of few launches, if all numbers that the user measured have it."""
        timed = (pair.now for pair in self.pairs if pair.now is not None and pair.now.timed)
        return {FEW_LAUNCHES} & layout.common_flags(timed)


def against(
    matrix: Matrix,
    counterparts: Mapping[str, Counterpart],
    builds: MeasuredBuilds,
    all_modes: bool = False,
) -> Against:
    """Compare the user's matrix with the paper's table.

    ``counterparts`` has today's adapter for each framework of the table; rows of other builds of
    that adapter are compared too, each separately. Rows show their fastest mode, or with
    ``all_modes`` every mode.
    """
    published = study(SHI2016)
    paper = published_matrix(published)
    with_cpus = []
    for name in paper.machines:
        if any(column.on_cpu for column in paper.columns_of(name)):
            with_cpus.append(name)
    matches = []
    for machine in matrix.machines:
        columns = matrix.columns_of(machine)
        if not any(map(_is_comparable, columns)):
            continue
        # The paper did not bind threads to CPUs, and tuned what it measured.
        cells = []
        for cell in matrix.cells.values():
            if (
                cell.machine == machine
                and _is_comparable(cell.column)
                and cell.row.affinity == OVERSUBSCRIBED
                and cell.row.tuning == TUNED
            ):
                cells.append(cell)
        works = {cell.work for cell in cells}
        rows = _rows_by_framework(cells, counterparts, builds)
        for theirs in with_cpus:
            host, then = matrix.hosts[machine], paper.hosts[theirs]
            counts, left_out = _thread_counts(columns, paper.columns_of(theirs), host, then)
            unmeasured = _unmeasured_pairs(paper, theirs, published.year, works, rows, counts)
            peak = published.peaks.get(theirs)
            pairs, fastest = _measured_pairs(unmeasured, cells, builds, peak, all_modes)
            matches.append(Match(host, then, peak, tuple(pairs), tuple(fastest), left_out))
    notes = [*matrix.notes, *paper.notes]
    if any(column.on_cpu and column.world_size > 1 for column in matrix.columns):
        notes.append(_SEVERAL_WORKERS)
    if any(column.on_gpu for column in matrix.columns):
        notes.append(_ON_GPUS)
    return Against(published, tuple(matches), counterparts, tuple(notes))


def _is_comparable(column: Place) -> bool:
    # The paper's CPU columns are of one process without a quota.
    return column.on_cpu and column.world_size == 1 and not column.cell.cpu_quota


def _rows_by_framework(
    cells: Iterable[CellResult], counterparts: Mapping[str, Counterpart], builds: MeasuredBuilds
) -> dict[str, list[str]]:
    """Return the names of the user's rows for each framework of the table."""
    cells_by_adapter = grouped(cells, lambda cell: builds.of(cell).adapter)
    rows = {}
    for framework, counterpart in counterparts.items():
        if counterpart.adapter:
            own = cells_by_adapter.get(counterpart.adapter, ())
            rows[framework] = sorted({cell.row.framework for cell in own})
    return rows


def _thread_counts(
    columns: Iterable[Place], published_columns: Iterable[Place], host: Host, then: Host
) -> tuple[list[int], dict[int, str]]:
    """Return the thread counts to compare, and the reasons why the user's others are not."""
    published = {column.threads for column in published_columns if _is_comparable(column)}
    own = set()
    for column in columns:
        if _is_comparable(column) and column.threads is not None:
            own.add(column.threads)
    counts = []
    left_out = {}
    for count in sorted(own):
        reason = _why_not(count, published, host, then)
        if reason:
            left_out[count] = reason
        else:
            counts.append(count)
    return counts, left_out


def _why_not(count: int, published: Collection[int | None], mine: Host, theirs: Host) -> str:
    """Return why cells with this thread count are not compared; empty where they are."""
    if count not in published:
        return "not in the table"
    for cores, whose in ((mine.own_cores, "here"), (theirs.own_cores, "there")):
        if cores is not None and count > cores:
            return f"more than the {cores} cores {whose}"
    return ""


def _unmeasured_pairs(
    paper: Matrix,
    machine: str,
    year: str,
    works: Collection[WorkKey],
    rows: Mapping[str, Sequence[str]],
    counts: Sequence[int],
) -> Iterator[PaperPair]:
    """Yield the published cell of each of the user's rows, as a pair without a measured cell."""
    for work, frameworks in paper.rows.items():
        if work not in works:
            continue
        for row in frameworks:
            for name, count in product(rows.get(row.framework, ()), counts):
                at = work._replace(framework=row.framework, mode=year, device="cpu", threads=count)
                yield PaperPair(at, name, None, None, paper.cells.get(Place(machine, at)))


def _measured_pairs(
    unmeasured: Iterable[PaperPair],
    cells: Iterable[CellResult],
    builds: MeasuredBuilds,
    peak: CorePeak | None,
    all_modes: bool,
) -> tuple[list[PaperPair], list[PaperPair]]:
    """Return these pairs with the user's cells, and of those the ones of the fastest modes."""
    modes_by_row = grouped(cells, lambda cell: (cell.work, cell.row.framework, cell.column.threads))
    pairs = []
    fastest = []
    for pair in unmeasured:
        key = (work_of(pair.at), pair.row, pair.at.threads)
        modes = sorted(modes_by_row.get(key, ()), key=lambda cell: cell.row)
        if not modes:
            judged = _judged(pair, peak)
            pairs.append(judged)
            fastest.append(judged)
            continue
        best = fastest_mode(modes)
        shown = modes if all_modes else [best]
        for cell in shown:
            judged = _judged(replace(pair, now=cell, build=builds.of(cell)), peak)
            pairs.append(judged)
            if cell is best:
                fastest.append(judged)
    return pairs, fastest


def _judged(pair: PaperPair, peak: CorePeak | None) -> PaperPair:
    """Return a pair with its ratios, or with the reason why there are none."""
    past = pair.then.timed if pair.then is not None else None
    present = None
    share_now = None
    if pair.now is not None and pair.now.timed is not None and not computes_nothing(pair.now):
        present = pair.now.timed
        share_now = pair.now.ceiling_fraction
    share_then = None
    if past is not None and peak is not None:
        operations = FIRST[pair.at.network].family.training_flops(pair.at.known_batch_size)
        rate = operations / past.median / pair.at.threads
        low = rate / peak.high
        high = rate / peak.low
        # No core does more than its peak: where the lower end is possible the clock was higher than
        # the low one.
        share_then = Span(low, max(low, min(high, 1.0)))
    speedup = None
    reason = ""
    if past is None or present is None:
        reason = _why(pair.now, pair.then)
    elif share_then is not None and share_then.low > 1.0:
        reason = _OTHER_WORK
    else:
        speedup = past.median / present.median
    return replace(pair, speedup=speedup, share_now=share_now, share_then=share_then, reason=reason)


def _why(now: CellResult | None, then: CellResult | None) -> str:
    """Return why there is no speed-up."""
    reasons = []
    if now is None:
        reasons.append("not measured here")
    elif now.timed is None or computes_nothing(now):
        reason = "no number"
        if now.status is Status.OK and now.seconds is not None:
            reason = "it computed something other than the reference, or nothing"
        reasons.append(f"here {now.reason or reason}")
    if then is None:
        reasons.append("then not in the table")
    elif then.timed is None:
        reasons.append(f"then {then.reason or 'not in the table'}")
    return "; ".join(reasons)


# Its tables.


def _columns(year: str = "", common: Collection[FlagKind] = ()) -> tuple[Column[PaperPair], ...]:
    return (
        *attributes(lambda pair: pair.at, "network", "batch_size"),
        Column("framework_then", None, lambda pair: pair.at.framework),
        Column("framework", None, lambda pair: pair.row),
        Column("mode", None, _mode),
        Column("version", None, _version),
        Column("threads", "p", lambda pair: pair.at.threads),
        Column("status", None, _status),
        seconds_column(lambda pair: pair.now, common, "seconds_now", "s now"),
        Column("seconds_then", f"s {year}", _seconds_then, _seconds_then_entry),
        Column("speedup", "speed-up", lambda pair: pair.speedup, lambda pair: _times(pair.speedup)),
        Column("share_now", "% now", lambda pair: pair.share_now, _share_now_text),
        Column(
            "share_then", f"% {year}", lambda pair: pair.share_then, _share_then_text, Span._fields
        ),
        Column(
            "per_peak",
            "per peak",
            lambda pair: pair.per_peak,
            lambda pair: _times(pair.per_peak),
            Span._fields,
        ),
        Column("reason", None, lambda pair: pair.reason),
        Column("flags", None, _flags),
    )


def _mode(pair: PaperPair) -> str | None:
    return pair.now.row.mode if pair.now else None


def _status(pair: PaperPair) -> str:
    return pair.now.status if pair.now else "not_measured"


def _flags(pair: PaperPair) -> list[Flag]:
    return list(pair.now.flags) if pair.now else []


def _version(pair: PaperPair) -> str | None:
    if pair.build is None:
        return None
    return pair.build.version or None


def _seconds_then(pair: PaperPair) -> float | None:
    if pair.then is None or pair.then.timed is None:
        return None
    return pair.then.timed.median


def _seconds_then_entry(pair: PaperPair) -> Entry:
    if pair.then is None:
        return Entry(MISSING)
    if pair.then.timed is None:
        return Entry(layout.HOLES[pair.then.status], hole=True)
    return Entry(number(pair.then.timed.median))


def _share_now_text(pair: PaperPair) -> str:
    if pair.share_now is None:
        return ""
    return f"{100 * pair.share_now:.0f}"


def _share_then_text(pair: PaperPair) -> str:
    if pair.share_then is None:
        return ""
    low, high = pair.share_then
    return _ends(f"{100 * low:.0f}", f"{100 * high:.0f}")


_MACHINES = (
    *host_columns(lambda match: match.host),
    *host_columns(lambda match: match.then, "machine_then"),
)


def _mean_speedup_text(mean: MeanSpeedup) -> str:
    mark = CONTENDED.symbol if mean.disturbed else ""
    return _times(mean.speedup) + mark


_MEANS: tuple[Column[MeanSpeedup], ...] = (
    *attributes(lambda mean: mean, "framework", "row"),
    Column("threads", "p", lambda mean: mean.threads),
    Column("networks", "networks", lambda mean: mean.networks),
    Column("speedup", "speed-up", lambda mean: mean.speedup, _mean_speedup_text),
    Column("per_peak", "per peak", lambda mean: mean.per_peak, lambda mean: _times(mean.per_peak)),
    Column("common", "of common", lambda mean: mean.common, lambda mean: _times(mean.common)),
    *attributes(lambda mean: mean, "disturbed"),
)


def _times(multiple: float | Span | None) -> str:
    if multiple is None:
        return ""
    if isinstance(multiple, Span):
        return f"{_ends(number(multiple.low), number(multiple.high))}x"
    return f"{number(multiple)}x"


def _ends(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def warning(analysis: Against) -> str:
    """Return the caveat that stands before the numbers."""
    return (
        "The machines differ, so a speed-up combines hardware and software: do not read it as "
        f"progress of the software alone. The frameworks of {analysis.study.year} ran different "
        "scripts, and each of their figures is a single mean without a spread."
    )


def _page(analysis: Against) -> Page:
    """Return a table for each pair of machines, and one of means."""
    if not analysis.pairs:
        return Page((warning(analysis), NOTHING), (), (*_frameworks(analysis), *analysis.notes))
    columns = _columns(analysis.study.year, analysis.common_flags)
    tables = []
    for match in analysis.matches:
        name_column = _name_column(
            match.pairs, lambda pair: pair.name, lambda pair: (pair.at.network, pair.name)
        )
        tables.append(
            table(
                (name_column, *columns),
                match.pairs,
                f"{match.host.name}, against {match.then.name}",
                section=lambda pair: work_name(pair.at),
                notes=_notes(match),
                keys=2,
            )
        )
        means = match.means
        if means:
            row_column = _name_column(means, lambda mean: mean.row, lambda mean: mean.row)
            title = "Geometric means over networks"
            notes = _notes_on_means(match, means)
            tables.append(table((row_column, *_MEANS), means, title, notes=notes))
    return Page((warning(analysis),), tuple(tables), tuple(_legend(analysis)))


def _name_column(
    rows: Sequence[Row], name: Callable[[Row], str], key: Callable[[Row], Any]
) -> Column[Row]:
    """Return the column of names, with each name only where the key changes."""
    is_first = begins(rows, key)

    def text(row: Row) -> str:
        return name(row) if is_first(row) else ""

    return Column("", "", text)


def _notes_on_means(match: Match, means: Sequence[MeanSpeedup]) -> list[str]:
    """Return lines that name the networks of the last column.

    Thread counts of the same networks share a line.
    """
    lines = []
    networks_by_count = {count: ", ".join(names) for count, names in match.common.items()}
    for networks, counts in _counts_by_text(networks_by_count).items():
        extent = "no network has a speed-up in every row"
        if networks:
            extent = f"the speed-up over {networks}, which every row has"
        lines.append(f"of common, at p = {counts}: {extent}")
    if any(mean.disturbed for mean in means):
        lines.append(f"{CONTENDED.symbol} includes networks whose measurement here was disturbed")
    return lines


def _counts_by_text(texts: Mapping[int, str]) -> dict[str, str]:
    """Return the thread counts of each text: "1, 2"."""
    counts_by_text: dict[str, str] = {}
    for count, text in texts.items():
        if text in counts_by_text:
            counts_by_text[text] += f", {count}"
        else:
            counts_by_text[text] = str(count)
    return counts_by_text


def _notes(match: Match) -> list[str]:
    lines = []
    if any(pair.speedup is not None for pair in match.fastest):
        lines.append(
            "Means take the fastest mode at each place. Compare rows only by the means over common "
            "networks."
        )
    if match.peak is not None:
        low, high = number(match.peak.low * 1e-9), number(match.peak.high * 1e-9)
        lines.append(
            f"Peak then: {low} to {high} GFLOP/s a core, theoretical, single precision "
            f"({match.peak.source})."
        )
    ceilings = match.ceilings
    if ceilings:
        rates = [f"{number(rate * 1e-9)} at {count}" for count, rate in ceilings.items()]
        threads = "thread" if set(ceilings) == {1} else "threads"
        lines.append(f"Peak now: {', '.join(rates)} {threads} (GFLOP/s, measured here).")
    for reason, counts in _counts_by_text(match.left_out).items():
        lines.append(f"Not compared: {counts} threads, {reason}.")
    missing = []
    for pair in match.pairs:
        if pair.reason:
            missing.append((pair.reason, f"{pair.at.network} {pair.name}", str(pair.at.threads)))
    return lines + layout.reasons(missing)


def _legend(analysis: Against) -> list[str]:
    year = analysis.study.year
    lines = []
    if analysis.pairs:
        lines = [
            (
                f"p: threads on both sides; s: seconds per mini-batch, here and in {year}; "
                "speed-up: then / now, hardware and software together; %: share of the peak, here "
                f"of the matrix-product ceiling measured at no more than p threads, in {year} of "
                "the theoretical peak of p cores (a range, since their clock is unknown); per "
                "peak: the ratio of these shares, which divides out the cores' rate."
            ),
            (
                "Per peak favours today's software: a measured ceiling lies below the theoretical "
                f"peak. Memory, caches and whatever else the scripts of {year} computed are not "
                "divided out. Both sides count the operations of the networks as specified here."
            ),
        ]
    cells = [pair.now for pair in analysis.pairs if pair.now is not None]
    flags = layout.flag_lines(cells, analysis.common_flags, "every number measured here:")
    return [*lines, *_frameworks(analysis), *flags, *analysis.notes]


def _frameworks(analysis: Against) -> list[str]:
    """Return a line for each framework of the table without a row, or with a successor."""
    shown = {pair.at.framework for pair in analysis.pairs}
    lines = []
    for name, (_, title) in analysis.study.frameworks.items():
        counterpart = analysis.counterparts.get(name)
        if counterpart is None or not counterpart.adapter:
            reason = counterpart.missing if counterpart else ""
            lines.append(f"{title} has no row: {reason or 'no adapter'}.")
        elif name not in shown:
            lines.append(
                f"{title} of {analysis.study.year}: nothing was measured here for it "
                f"({counterpart.title})."
            )
        elif counterpart.title != title:
            lines.append(
                f"{counterpart.title} is shown as the successor of {title}; it is a different "
                "program."
            )
    return lines


def _data(analysis: Against) -> dict[str, Any]:
    successors = {}
    for name, counterpart in analysis.counterparts.items():
        _, title = analysis.study.frameworks[name]
        successors[name] = {"title": title, "now": counterpart.title or None}
    return {
        "warning": warning(analysis),
        "stands": successors,
        "machines": [_match_data(match) for match in analysis.matches],
        "notes": _legend(analysis),
    }


def _match_data(match: Match) -> dict[str, Any]:
    return {
        **objects(_MACHINES, [match])[0],
        "peak_per_core_then": plain(match.peak),
        "ceiling_now": _with_text_keys(match.ceilings),
        "not_compared": _with_text_keys(match.left_out),
        "cells": objects(_columns(), match.pairs),
        "means": objects(_MEANS, match.means),
        "common": _with_text_keys(match.common),
    }


def _with_text_keys(by_threads: Mapping[int, object]) -> dict[str, object]:
    return {str(threads): value for threads, value in by_threads.items()}


def _rows(analysis: Against) -> Rows:
    columns: tuple[Column[tuple[Match, PaperPair]], ...] = (
        *within(_MACHINES, lambda line: line[0]),
        *within(_columns(), lambda line: line[1]),
        Column("warning", None, lambda line: warning(analysis)),
    )
    lines = []
    for match in analysis.matches:
        for pair in match.pairs:
            lines.append((match, pair))
    return csv_rows(columns, lines)


REPORT = Report(
    name="against",
    summary="""Your results beside the 2016 paper's Table 4, with speed-ups.

For each framework of the paper, at equal thread counts: the seconds of 2016, the speed-up since
(hardware and software together), and the speed-up that remains when both sides are divided by the
cores' peak rates.""",
    examples=("dlbench report against", "dlbench report against --all-modes --format markdown"),
    analyse=lambda source: against(
        source.matrix(), source.counterparts(), source.builds(), source.options.all_modes
    ),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=_rows,
    options=frozenset({ALL_MODES, ALL_RUNS}),
    has_section=lambda analysis: bool(analysis.matches),
    heading="Beside the paper of 2016",
    place=74,
)
