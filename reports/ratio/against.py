"""`dlbench report against`: the user's results beside the 2016 paper's Table 4.

Cells of the same network at the paper's mini-batch and the same number of threads are compared, as
long as both machines have a core for each thread: beyond that, threads share cores on one side
only.

`_legend` explains the figures. A published time above the highest theoretical peak is not compared:
it cannot be of this network on that many cores.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import geometric_mean
from typing import Any, NamedTuple

from dlbench.adapters.protocol import OVERSUBSCRIBED, TUNED, Cell, Status
from dlbench.reports.builds import Build, Builds
from dlbench.reports.columns import (
    Column,
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
from dlbench.reports.ratio.pairs import Row, seconds_column
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report
from dlbench.reports.results.cells import CellResult, fastest_mode
from dlbench.reports.results.flags import CONTENDED, FEW_LAUNCHES, FlagKind
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import group_name, row_name
from dlbench.reports.results.networks import FIRST
from dlbench.reports.results.number_text import number
from dlbench.reports.results.published import SHI2016, CorePeak, Counterpart, Study, study

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
class Pair:
    """A cell measured here and its published counterpart."""

    at: Cell
    """The published cell, with the table's name of the framework."""
    row: str
    """The framework's name here."""
    now: CellResult | None
    """None: not measured."""
    build: Build | None
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
        return row_name(self.now.row) if self.now is not None else self.row


@dataclass(frozen=True)
class Match:
    """One machine measured here against one published machine."""

    host: Host
    then: Host
    peak: CorePeak | None
    """Of a core of the published machine."""
    pairs: tuple[Pair, ...]
    fastest: tuple[Pair, ...]
    """The pairs of each row's fastest mode; means are taken over these."""
    left_out: dict[int, str]
    """Thread counts that are not compared, and why."""

    @property
    def ceilings(self) -> dict[int, float]:
        """FLOP/s now, by threads."""
        found: dict[int, float] = {}
        for pair in self.pairs:
            if pair.now is not None and pair.now.gflops is not None and pair.now.ceiling_fraction:
                found.setdefault(pair.at.threads, pair.now.gflops * 1e9 / pair.now.ceiling_fraction)
        return dict(sorted(found.items()))

    @property
    def common(self) -> dict[int, list[str]]:
        """By threads, the networks that every row with a mean there has a speed-up for."""
        found = {}
        timed = [pair for pair in self.fastest if pair.speedup is not None]
        for threads, there in sorted(grouped(timed, lambda pair: pair.at.threads).items()):
            of_rows = grouped(there, lambda pair: (pair.at.framework, pair.row)).values()
            rows = [[pair.at.network for pair in of] for of in of_rows]
            found[threads] = [
                name for name in dict.fromkeys(rows[0]) if all(name in row for row in rows)
            ]
        return found

    @property
    def means(self) -> list[dict[str, Any]]:
        """Geometric means over the networks that a row has at one number of threads.

        ``per_peak`` is None unless it is known for all of them, ``common`` is the speed-up over the
        common networks only, which makes rows comparable, and ``disturbed`` names the networks
        where other programs disturbed the measurement here.
        """
        common, means = self.common, []
        timed = [pair for pair in self.fastest if pair.speedup is not None]
        of_rows = grouped(timed, lambda pair: (pair.at.framework, pair.row, pair.at.threads))
        for (framework, row, threads), of in of_rows.items():
            speedups = {pair.at.network: pair.speedup for pair in of if pair.speedup is not None}
            spans = [pair.per_peak for pair in of if pair.per_peak is not None]
            ends = (
                list(map(geometric_mean, zip(*spans, strict=True)))
                if len(spans) == len(speedups)
                else []
            )
            shared = [speedups[name] for name in common[threads]]
            disturbed = (
                pair.at.network for pair in of if pair.now is not None and pair.now.has(CONTENDED)
            )
            means.append(
                {
                    "framework": framework,
                    "row": row,
                    "threads": threads,
                    "networks": len(speedups),
                    "speedup": geometric_mean(speedups.values()),
                    "per_peak": Span(*ends) if ends else None,
                    "common": geometric_mean(shared) if shared else None,
                    "disturbed": list(dict.fromkeys(disturbed)),
                }
            )
        return means


@dataclass(frozen=True)
class Against:
    """Every machine of the user's against every machine of the paper's table that has CPU
    columns.
    """

    study: Study
    matches: tuple[Match, ...]
    counterparts: Mapping[str, Counterpart]
    notes: tuple[str, ...]

    @property
    def pairs(self) -> list[Pair]:
        """Those of all machines."""
        return [pair for match in self.matches for pair in match.pairs]

    @property
    def common_flags(self) -> set[FlagKind]:
        """The flag of few launches, if all numbers measured here have it."""
        timed = (pair.now for pair in self.pairs if pair.now is not None and pair.now.timed)
        return {FEW_LAUNCHES} & layout.common_flags(timed)


def against(
    matrix: Matrix, counterparts: Mapping[str, Counterpart], builds: Builds, all_modes: bool = False
) -> Against:
    """Compare the user's matrix with the paper's table.

    ``counterparts`` has today's adapter for each framework of the table; rows of other builds of
    that adapter are compared too, each separately. Rows show their fastest mode, or with
    ``all_modes`` every mode.
    """
    of = study(SHI2016)
    paper = of.matrix()
    cpus = [
        each for each in paper.machines if any(column.on_cpu for column in paper.columns_of(each))
    ]
    # The paper did not bind threads to CPUs, and tuned what it measured.
    as_then = [
        c
        for c in matrix.cells.values()
        if c.row.affinity == OVERSUBSCRIBED and c.row.tuning == TUNED
    ]

    def match(machine: str, theirs: str) -> Match:
        host, then = matrix.hosts[machine], paper.hosts[theirs]
        own, published = (
            {c.threads for c in m.columns_of(name) if _comparable(c) and c.threads is not None}
            for m, name in ((matrix, machine), (paper, theirs))
        )
        left_out = {
            count: why for count in sorted(own) if (why := _why_not(count, published, host, then))
        }
        peak = of.peaks.get(theirs)
        usual = [cell for cell in as_then if cell.machine == machine and _comparable(cell.column)]
        modes_of = grouped(
            usual, lambda cell: (cell.group, cell.row.framework, cell.column.threads)
        )
        rows_of = {
            adapter: sorted({cell.row.framework for cell in cells})
            for adapter, cells in grouped(usual, lambda cell: builds.of(cell).adapter).items()
        }
        pairs: list[Pair] = []
        fastest: list[Pair] = []
        for group in (each for each in paper.rows if each in {cell.group for cell in usual}):
            for framework in (row.framework for row in paper.rows[group]):
                counterpart = counterparts.get(framework)
                rows = (
                    rows_of.get(counterpart.adapter, ())
                    if counterpart and counterpart.adapter
                    else ()
                )
                for name, count in product(rows, sorted(own & published - set(left_out))):
                    at = group._replace(
                        framework=framework, mode=of.year, device="cpu", threads=count
                    )
                    past = paper.cells.get(Place(theirs, at))
                    modes = sorted(
                        modes_of.get((group, name, count), ()), key=lambda cell: cell.row
                    )
                    best = fastest_mode(modes) if modes else None
                    for now in modes if all_modes and modes else [best]:
                        build = None if now is None else builds.of(now)
                        pairs.append(_judged(Pair(at, name, now, build, past), peak))
                        fastest += pairs[-1:] if now is best else []
        return Match(host, then, peak, tuple(pairs), tuple(fastest), left_out)

    matches = tuple(
        match(mine, theirs)
        for mine in matrix.machines
        for theirs in cpus
        if any(map(_comparable, matrix.columns_of(mine)))
    )
    left_out = (
        [_SEVERAL_WORKERS] if any(c.on_cpu and c.world_size > 1 for c in matrix.columns) else []
    )
    left_out += [_ON_GPUS] if any(column.on_gpu for column in matrix.columns) else []
    return Against(of, matches, counterparts, (*matrix.notes, *paper.notes, *left_out))


def _comparable(column: Place) -> bool:
    # The paper's CPU columns are of one process without a quota.
    return column.on_cpu and column.world_size == 1 and not column.cell.cpu_quota


def _why_not(count: int, published: set[int], mine: Host, theirs: Host) -> str:
    """Return why cells with this thread count are not compared; empty where they are."""
    if count not in published:
        return "not in the table"
    for cores, whose in ((mine.own_cores, "here"), (theirs.own_cores, "there")):
        if cores is not None and count > cores:
            return f"more than the {cores} cores {whose}"
    return ""


def _judged(pair: Pair, peak: CorePeak | None) -> Pair:
    """Return a pair with its ratios, or with the reason why there are none."""
    past = pair.then.timed if pair.then is not None else None
    present = pair.now.timed if pair.now is not None and not computes_nothing(pair.now) else None
    share_then = None
    if past is not None and peak is not None:
        operations = FIRST[pair.at.network].family.training_flops(pair.at.known_batch_size)
        rate = operations / past.median / pair.at.threads
        low, high = rate / peak.high, rate / peak.low
        # No core does more than its peak: where the lower end is possible the clock was higher than
        # the low one.
        share_then = Span(low, max(low, min(high, 1.0)))
    impossible = share_then is not None and share_then.low > 1.0
    share_now = pair.now.ceiling_fraction if pair.now is not None and present is not None else None
    speedup = past.median / present.median if past and present and not impossible else None
    reason = (
        ""
        if speedup is not None
        else _OTHER_WORK
        if impossible and present
        else _why(pair.now, pair.then)
    )
    return replace(pair, speedup=speedup, share_now=share_now, share_then=share_then, reason=reason)


def _why(now: CellResult | None, then: CellResult | None) -> str:
    """Return why there is no speed-up."""
    parts = []
    if now is None:
        parts.append("not measured here")
    elif now.timed is None or computes_nothing(now):
        wrong = now.status is Status.OK and now.seconds is not None
        why = now.reason or (
            "it computed something other than the reference, or nothing" if wrong else "no number"
        )
        parts.append(f"here {why}")
    if then is None or then.timed is None:
        parts.append(
            f"then {then.reason if then is not None and then.reason else 'not in the table'}"
        )
    return "; ".join(parts)


# Its tables.


def _columns(year: str = "", common: Collection[FlagKind] = ()) -> tuple[Column[Pair], ...]:
    def past(pair: Pair) -> Entry:
        if pair.then is None:
            return Entry(MISSING)
        if pair.then.timed is None:
            return Entry(layout.HOLES[pair.then.status], hole=True)
        return Entry(number(pair.then.timed.median))

    def share(span: Span | None) -> str:
        return "" if span is None else _ends(*(f"{100 * end:.0f}" for end in span))

    return (
        *attributes(lambda pair: pair.at, "network", "batch_size"),
        Column("framework_then", None, lambda pair: pair.at.framework),
        Column("framework", None, lambda pair: pair.row),
        Column("mode", None, lambda pair: pair.now.row.mode if pair.now else None),
        Column("version", None, lambda pair: pair.build.version or None if pair.build else None),
        Column("threads", "p", lambda pair: pair.at.threads),
        Column("status", None, lambda pair: pair.now.status if pair.now else "not_measured"),
        seconds_column(lambda pair: pair.now, common, "seconds_now", "s now"),
        Column(
            "seconds_then",
            f"s {year}",
            lambda pair: pair.then.timed.median if pair.then and pair.then.timed else None,
            past,
        ),
        Column("speedup", "speed-up", lambda pair: pair.speedup, lambda pair: _times(pair.speedup)),
        Column(
            "share_now",
            "% now",
            lambda pair: pair.share_now,
            lambda pair: share(
                None if pair.share_now is None else Span(pair.share_now, pair.share_now)
            ),
        ),
        Column(
            "share_then",
            f"% {year}",
            lambda pair: pair.share_then,
            lambda pair: share(pair.share_then),
            Span._fields,
        ),
        Column(
            "per_peak",
            "per peak",
            lambda pair: pair.per_peak,
            lambda pair: _times(pair.per_peak),
            Span._fields,
        ),
        Column("reason", None, lambda pair: pair.reason),
        Column("flags", None, lambda pair: pair.now.flags if pair.now else []),
    )


_MACHINES = (
    *host_columns(lambda match: match.host),
    *host_columns(lambda match: match.then, "machine_then"),
)
_MEANS: tuple[Column[dict[str, Any]], ...] = (
    *attributes(dict, "framework", "row"),
    Column("threads", "p", lambda mean: mean["threads"]),
    Column("networks", "networks", lambda mean: mean["networks"]),
    Column(
        "speedup",
        "speed-up",
        lambda mean: mean["speedup"],
        lambda mean: _times(mean["speedup"]) + (CONTENDED.symbol if mean["disturbed"] else ""),
    ),
    Column(
        "per_peak", "per peak", lambda mean: mean["per_peak"], lambda mean: _times(mean["per_peak"])
    ),
    Column("common", "of common", lambda mean: mean["common"], lambda mean: _times(mean["common"])),
    *attributes(dict, "disturbed"),
)


def _times(found: float | Span | None) -> str:
    if found is None:
        return ""
    return f"{_ends(*map(number, found)) if isinstance(found, tuple) else number(found)}x"


def _ends(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def warning(found: Against) -> str:
    """Return the caveat that stands before the numbers."""
    return (
        "The machines differ, so a speed-up combines hardware and software: do not read it as "
        f"progress of the software alone. The frameworks of {found.study.year} ran different "
        "scripts, and each of their figures is a single mean without a spread."
    )


def _page(found: Against) -> Page:
    """Return a table for each pair of machines, and one of means."""
    if not found.pairs:
        return Page((warning(found), NOTHING), (), (*_frameworks(found), *found.notes))
    tables = []
    for match in found.matches:
        title, means = f"{match.host.name}, against {match.then.name}", match.means
        columns = _columns(found.study.year, found.common_flags)
        tables.append(
            table(
                (
                    _named(
                        match.pairs,
                        lambda pair: pair.name,
                        lambda pair: (pair.at.network, pair.name),
                    ),
                    *columns,
                ),
                match.pairs,
                title,
                group=lambda pair: group_name(pair.at),
                notes=_notes(match),
                keys=2,
            )
        )
        if means:
            named = (_named(means, lambda mean: mean["row"], lambda mean: mean["row"]), *_MEANS)
            tables.append(
                table(
                    named,
                    means,
                    "Geometric means over networks",
                    notes=_notes_of_means(match, means),
                )
            )
    return Page((warning(found),), tuple(tables), tuple(_legend(found)))


def _named(
    rows: Sequence[Row], name: Callable[[Row], str], key: Callable[[Row], Any]
) -> Column[Row]:
    first = begins(rows, key)
    return Column("", "", lambda row: name(row) if first(row) else "")


def _notes_of_means(match: Match, means: Sequence[dict[str, Any]]) -> list[str]:
    """Return lines that name the networks of the last column, thread counts of the same ones
    together.
    """
    lines = [
        f"of common, at p = {counts}: the speed-up over {networks}, which every row has"
        if networks
        else f"of common, at p = {counts}: no network has a speed-up in every row"
        for networks, counts in _together(
            (count, ", ".join(names)) for count, names in match.common.items()
        ).items()
    ]
    if any(mean["disturbed"] for mean in means):
        lines.append(f"{CONTENDED.symbol} includes networks whose measurement here was disturbed")
    return lines


def _together(counts: Iterable[tuple[int, str]]) -> dict[str, str]:
    """Return the thread counts of each text: "1, 2"."""
    of_text = grouped(counts, lambda each: each[1])
    return {text: ", ".join(str(count) for count, _ in each) for text, each in of_text.items()}


def _notes(match: Match) -> list[str]:
    lines = []
    if any(pair.speedup is not None for pair in match.fastest):
        lines.append(
            "Means take the fastest mode at each place. Compare rows only by the means over common "
            "networks."
        )
    if match.peak is not None:
        low, high = (number(end * 1e-9) for end in match.peak[:2])
        lines.append(
            f"Peak then: {low} to {high} GFLOP/s a core, theoretical, single precision "
            f"({match.peak.source})."
        )
    if ceilings := match.ceilings:
        rates = ", ".join(f"{number(rate * 1e-9)} at {p}" for p, rate in ceilings.items())
        lines.append(
            f"Peak now: {rates} thread{'s' if set(ceilings) != {1} else ''} (GFLOP/s, measured "
            "here)."
        )
    lines += [
        f"Not compared: {counts} threads, {why}."
        for why, counts in _together(match.left_out.items()).items()
    ]
    missing = [(pair.reason, pair.at, pair.name) for pair in match.pairs if pair.reason]
    return lines + layout.reasons(
        (why, f"{at.network} {name}", str(at.threads)) for why, at, name in missing
    )


def _legend(found: Against) -> list[str]:
    year = found.study.year
    lines = []
    if found.pairs:
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
    cells = (pair.now for pair in found.pairs if pair.now is not None)
    flags = layout.flag_lines(cells, found.common_flags, "every number measured here:")
    return [*lines, *_frameworks(found), *flags, *found.notes]


def _frameworks(found: Against) -> list[str]:
    """Return a line for each framework of the table without a row, and for each with a
    successor.
    """
    shown = {pair.at.framework for pair in found.pairs}
    lines = []
    for name, (_, title) in found.study.frameworks.items():
        counterpart = found.counterparts.get(name)
        if counterpart is None or not counterpart.adapter:
            why = counterpart.missing if counterpart and counterpart.missing else "no adapter"
            lines.append(f"{title} has no row: {why}.")
        elif name not in shown:
            lines.append(
                f"{title} of {found.study.year}: nothing was measured here for it "
                f"({counterpart.title})."
            )
        elif counterpart.title != title:
            lines.append(
                f"{counterpart.title} is shown as the successor of {title}; it is a different "
                "program."
            )
    return lines


def _data(found: Against) -> dict[str, Any]:
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
                "ceiling_now": {str(threads): rate for threads, rate in match.ceilings.items()},
                "not_compared": {str(threads): why for threads, why in match.left_out.items()},
                "cells": objects(_columns(), match.pairs),
                "means": objects(_MEANS, match.means),
                "common": {str(threads): networks for threads, networks in match.common.items()},
            }
            for match in found.matches
        ],
        "notes": _legend(found),
    }


def _rows(found: Against) -> Rows:
    columns: tuple[Column[tuple[Match, Pair]], ...] = (
        *within(_MACHINES, lambda line: line[0]),
        *within(_columns(), lambda line: line[1]),
        Column("warning", None, lambda line: warning(found)),
    )
    return csv_rows(columns, [(match, pair) for match in found.matches for pair in match.pairs])


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
    page=lambda found, options: _page(found),
    data=_data,
    rows=_rows,
    options=frozenset({ALL_MODES, ALL_RUNS}),
    has_section=lambda found: bool(found.matches),
    heading="Beside the paper of 2016",
    place=74,
)
