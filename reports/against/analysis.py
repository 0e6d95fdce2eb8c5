"""One's own results beside a published table of other machines: what became faster, and how much of it is hardware.

Pure functions. Compared are cells of the same network at the paper's mini-batch and the same number of threads, as long
as both machines have a core for each of them: beyond that, threads share cores on one side only.

There are two figures. The speed-up is the ratio of seconds: hardware and software together. Per peak is the ratio of
the shares of peak, (operations per second now / the ceiling measured here) / (operations per second then / the
theoretical peak of as many cores), so the arithmetic rate of the cores is divided out - and nothing else: not memory,
caches or what the scripts of then computed besides. Operations are those of the network's specification here
(`Family.training_flops`) on both sides. A measured ceiling lies below the theoretical peak, so the share now comes
out higher than one of a theoretical peak: per peak favours the software of now.

A figure of then that lies above the highest theoretical peak is not compared: whatever took that time, it was not this
network on that many cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import NamedTuple

from dlbench.adapters.protocol import OVERSUBSCRIBED, TUNED, Status
from dlbench.reports.cells import Build, Builds, CellResult, Column, Group, Matrix, column_at, fastest_mode, row_at
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.flags import CONTENDED
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import FIRST

_OTHER_WORK = (
    "then it would have been above the theoretical peak: its script was of another network, or more threads worked"
)
_SEVERAL_WORKERS = "Not compared: cells of several workers; the table's are of one process."
_ON_GPUS = "Not compared: cells on GPUs; the table's GPUs stand in `report matrix --reference`."


class CorePeak(NamedTuple):
    """Theoretical single-precision rate of one core, as a range."""

    low: float
    """FLOP/s."""
    high: float
    source: str


class Published(NamedTuple):
    """A published table, and what is known of its frameworks and machines."""

    year: str
    matrix: Matrix
    frameworks: Mapping[str, tuple[str, str]]
    """By the table's name: the name in the catalogue of frameworks, and the one for people."""
    peaks: Mapping[str, CorePeak]
    """By machine."""


class Stand(NamedTuple):
    """Which framework of now is held against one of the table."""

    adapter: str
    """Its folder; empty: nobody stands for it."""
    title: str
    missing: str = ""
    """Why nobody does."""


class Span(NamedTuple):
    """A figure of which only the ends are known."""

    low: float
    high: float


class Where(NamedTuple):
    """What a pair is of."""

    group: Group
    framework: str
    """The table's name."""
    row: str
    """The name it was measured under here."""
    threads: int


@dataclass(frozen=True)
class Pair:
    """One network in one framework at one number of threads, then and now; either may be a hole."""

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
    """Numbers of threads that both or one measured, and why they are not compared."""


@dataclass(frozen=True)
class Against:
    """Every machine of one's own against every machine of a published table that has CPU columns."""

    published: Published
    matches: tuple[Match, ...]
    stands: Mapping[str, Stand]
    notes: tuple[str, ...]


def against(
    matrix: Matrix, published: Published, stands: Mapping[str, Stand], builds: Builds, all_modes: bool = False
) -> Against:
    """Compare one's own matrix with a published one.

    ``stands`` says for each framework of the table which adapter is held against it; rows of other builds of that
    adapter are compared too, each by itself. Shown is the fastest mode of each row, or with ``all_modes`` every one.
    """
    paper = published.matrix
    machines = [
        (mine, theirs)
        for mine in matrix.machines
        for theirs in paper.machines
        if any(column.device == "cpu" for column in paper.columns_of(theirs))
    ]
    matches = tuple(
        _match(matrix, mine, published, theirs, stands, builds, all_modes)
        for mine, theirs in machines
        if any(_comparable(column) for column in matrix.columns_of(mine))
    )
    several = any(column.device == "cpu" and column.world_size > 1 for column in matrix.columns)
    left_out = [_SEVERAL_WORKERS] if several else []
    left_out += [_ON_GPUS] if any(column.device != "cpu" for column in matrix.columns) else []
    return Against(published, matches, stands, (*matrix.notes, *paper.notes, *left_out))


def _comparable(column: Column) -> bool:
    # The paper's CPU columns are of one process.
    return column.device == "cpu" and column.world_size == 1


def _compared(mine: Host, theirs: Host, own: set[int], paper: set[int]) -> tuple[list[int], dict[int, str]]:
    """Return the numbers of threads to compare at, and why each other one of ``own`` is none of them."""
    left_out = {}
    for count in sorted(own):
        beyond = [
            f"more than the {cores} cores {whose}"
            for cores, whose in ((mine.own_cores, "here"), (theirs.own_cores, "there"))
            if cores is not None and count > cores
        ]
        if count not in paper:
            left_out[count] = "not in the table"
        elif beyond:
            left_out[count] = beyond[0]
    return sorted(own & paper - set(left_out)), left_out


def _match(
    matrix: Matrix,
    machine: str,
    published: Published,
    theirs: str,
    stands: Mapping[str, Stand],
    builds: Builds,
    all_modes: bool,
) -> Match:
    host, then = matrix.hosts[machine], published.matrix.hosts[theirs]
    own, paper = (
        {c.threads for c in of.columns_of(name) if _comparable(c) and c.threads is not None}
        for of, name in ((matrix, machine), (published.matrix, theirs))
    )
    counts, left_out = _compared(host, then, own, paper)
    peak = published.peaks.get(theirs)
    cells = _Cells(matrix, machine, builds)
    pairs: list[Pair] = []
    fastest: list[Pair] = []
    for group in (group for group in cells.groups if group in published.matrix.rows):
        for framework in (row.framework for row in published.matrix.rows[group]):
            stand = stands.get(framework)
            for row in cells.rows_of(stand.adapter if stand else ""):
                for count in counts:
                    column = column_at(theirs, "cpu", count)
                    past = published.matrix.cells.get((group, row_at(framework, published.year), column))
                    modes = cells.at(group, row, count)
                    best = fastest_mode(modes) if modes else None
                    for cell in modes if all_modes and modes else [best]:
                        build = None if cell is None else builds.of(cell)
                        pairs.append(_pair(Where(group, framework, row, count), cell, build, past, peak))
                        fastest += pairs[-1:] if cell is best else []
    ceilings: dict[int, float] = {}
    for pair in pairs:
        if pair.now is not None and pair.now.gflops is not None and pair.now.ceiling_fraction:
            ceilings.setdefault(pair.where.threads, pair.now.gflops * 1e9 / pair.now.ceiling_fraction)
    common = _common(fastest)
    return Match(host, then, peak, ceilings, tuple(pairs), tuple(_means(fastest, common)), common, left_out)


class _Cells:
    """The CPU cells of one machine that may be held against a table."""

    def __init__(self, matrix: Matrix, machine: str, builds: Builds) -> None:
        self._found: dict[tuple[Group, str, int], list[CellResult]] = {}
        self._adapters: dict[str, dict[str, None]] = {}
        for (group, row, column), cell in matrix.cells.items():
            # The paper did not bind threads to CPUs, and tuned what it measured.
            usual = row.affinity == OVERSUBSCRIBED and row.tuning == TUNED
            if usual and column.machine == machine and _comparable(column) and column.threads is not None:
                self._found.setdefault((group, row.framework, column.threads), []).append(cell)
                self._adapters.setdefault(builds.of(cell).adapter, {})[row.framework] = None
        measured = {group for group, _, _ in self._found}
        self.groups = [group for group in matrix.rows if group in measured]

    def rows_of(self, adapter: str) -> list[str]:
        """Return the names that an adapter was measured under."""
        return sorted(self._adapters.get(adapter, ())) if adapter else []

    def at(self, group: Group, row: str, threads: int) -> list[CellResult]:
        """Return the modes of a row."""
        return sorted(self._found.get((group, row, threads), ()), key=lambda cell: cell.row)


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
    """Return why there is nothing to divide."""
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
    """Return by threads the networks, as the pairs have them in turn, that no row with a speed-up there lacks."""
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
        by_network = {pair.where.group.network: pair.speedup for pair in of_row if pair.speedup is not None}
        speedups = list(by_network.values())
        spans = [pair.per_peak for pair in of_row if pair.per_peak is not None]
        span = None
        if len(spans) == len(speedups):
            span = Span(geometric_mean([each.low for each in spans]), geometric_mean([each.high for each in spans]))
        shared = [by_network[name] for name in common[threads]]
        of_shared = geometric_mean(shared) if shared else None
        disturbed = {p.where.group.network for p in of_row if p.now is not None and p.now.has(CONTENDED)}
        in_order = tuple(name for name in by_network if name in disturbed)
        means.append(Mean(framework, row, threads, len(speedups), geometric_mean(speedups), span, of_shared, in_order))
    return means
