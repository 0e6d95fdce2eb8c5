"""`dlbench report feed`: what it costs to bring mini-batches to the step, why, and how to split CPUs with a loader.

Each cell whose step takes its mini-batch from elsewhere is compared with the one whose mini-batch is resident. Beside
its time stands that of the model in Wuensche 2018, V.B: with b bytes of a mini-batch for each of n devices behind one
link of R bytes a second, and T_c seconds to compute, a step takes T = T_c + n b / R one after the other, and
max(T_c, n b / R) where the next mini-batch is brought meanwhile. The link is the one to the GPU or, on the CPU, its
memory; both as measured. What the model leaves out is the CPU's work: to read, decode, convert and hand over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.libraries.gpus import TO_DEVICE_PAGEABLE, TO_DEVICE_PINNED
from dlbench.adapters.protocol import COPIED, FED, LOADER, PLACEMENTS, Cell
from dlbench.reports import flags
from dlbench.reports.ceilings import TRANSFERS, gpu_ceilings
from dlbench.reports.cells import CellResult, Matrix, Place, grouped
from dlbench.reports.columns import Column, axis_columns, csv_rows, host_columns, objects, table
from dlbench.reports.curve.curve import along, usable
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import (
    MISSING,
    Entry,
    Page,
    Table,
    common_flags,
    entry,
    flag_lines,
    number,
    times,
    why_hole,
)
from dlbench.reports.naming import counted, group_name, place_name, row_name
from dlbench.reports.quantities import QUANTITIES
from dlbench.reports.ratio.pairs import SLOWER, Compared, Pair, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.statistics import Ratio, clearly_slower, ratio
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import family_of_record
from dlbench.reports.storage.results import Results

NOTHING = "No mini-batch was brought to a step yet; `dlbench run feed` measures what that costs."
HIDDEN, LINK, LOADING, CPUS, UNCLEAR = "hidden", "link", "loader", "CPUs", "unclear"
HIDDEN_BELOW = 1.05
"""Times the resident time below which bringing the mini-batches counts as hidden."""
WAITING = 0.1
"""Threads that wait for a CPU, on average, from which on CPUs are too few."""
_LEGEND = (
    "stall: share of a step that does not compute, 1 - resident / s/batch; needs: bytes of a mini-batch (4 for each "
    "number) over the resident time, the rate that hides them; link: as measured, to the GPU or of the CPU's memory; "
    "model: Wuensche 2018, V.B; load CPU s: CPU seconds of a step beyond the resident one's.",
    f"hidden: less than {HIDDEN_BELOW:g} times the resident time; link: its copies make half of the stall or more; "
    "loader: reading and decoding; CPUs: converting, or more threads and loader workers than CPUs, so that they wait; "
    "unclear: noise may explain it.",
)


def one_after_another(compute: float, size: float, rate: float, devices: int = 1) -> float:
    """Return the seconds of a step that begins when mini-batches of this size have gone to all devices by one link."""
    return compute + devices * size / rate


def ahead(compute: float, size: float, rate: float, devices: int = 1) -> float:
    """Return the same where the next mini-batches go there while this step computes."""
    return max(compute, devices * size / rate)


_OF_LOADERS = ("loader_workers", "storage")


def of_resident(cell: Cell) -> Cell:
    """Return the cell that differs in nothing but its mini-batch being resident."""
    return cell._replace(placement=PLACEMENTS[0], **{name: getattr(axes.BLANK, name) for name in _OF_LOADERS})


@dataclass(frozen=True)
class Brought:
    """A cell whose step takes its mini-batch from elsewhere."""

    cell: CellResult
    host: Host
    bytes: int | None
    """Of a mini-batch."""
    rate: float | None
    """Bytes a second of the link, or of the memory; None where it was not measured."""
    pair: Pair | None
    """It and the cell of a resident mini-batch; None where one of them has no time that counts."""

    @property
    def works_ahead(self) -> bool:
        """Whether mini-batches are brought while the step computes."""
        return self.cell.cell.helpers > 0

    @property
    def resident(self) -> float | None:
        """Seconds of a step with a resident mini-batch."""
        return None if self.pair is None else self.pair.times[1].median

    @property
    def stall(self) -> Ratio | None:
        """Share of a step that does not compute."""
        return None if self.pair is None else self.pair.ratio.changed(lambda value: 1 - 1 / value)

    @property
    def needs(self) -> float | None:
        """Bytes a second that hide everything."""
        return None if self.bytes is None or self.resident is None else self.bytes / self.resident

    @property
    def model(self) -> float | None:
        """Seconds of a step by the model."""
        if self.resident is None or not self.bytes or not self.rate:
            return None
        return (ahead if self.works_ahead else one_after_another)(self.resident, self.bytes, self.rate)

    @property
    def load_seconds(self) -> float | None:
        """CPU seconds of a step beyond those with a resident mini-batch."""
        if self.pair is None:
            return None
        with_it, without = self.pair.cell.observed, self.pair.other.observed
        if with_it is None or without is None:
            return None
        return max(0.0, with_it.cpu_seconds_per_step - without.cpu_seconds_per_step)

    @property
    def crowded(self) -> bool:
        """Whether threads and loader workers are more than the CPUs, and wait for them."""
        cpus, observed = self.host.effective_cpus, self.cell.observed
        waiting = 0.0 if observed is None else observed.waiting_per_wall or 0.0
        return cpus is not None and self.cell.cell.all_threads > cpus and waiting > WAITING

    @property
    def verdict(self) -> str:
        """What makes the step longer; empty where that cannot be said."""
        if self.pair is None:
            return ""
        if self.pair.ratio.value < HIDDEN_BELOW:
            return HIDDEN
        if self.pair.verdict != SLOWER:
            return UNCLEAR
        if self.crowded:
            return CPUS
        if self.cell.cell.placement == LOADER:
            return LOADING
        one, other = (each.median for each in self.pair.times)
        copying = self.bytes / self.rate if self.bytes and self.rate else 0.0
        return LINK if 2 * copying >= one - other else CPUS


@dataclass(frozen=True)
class Split:
    """The cells of a loader that differ in threads and loader workers alone."""

    host: Host
    cells: tuple[CellResult, ...]

    @cached_property
    def timed(self) -> list[CellResult]:
        """Those with a time that counts, by threads and workers; disturbed ones only where all are."""
        found = [each for each in self.cells if usable(each) is not None]
        calm = [each for each in found if not each.has(flags.CONTENDED)]
        return sorted(calm or found, key=lambda each: (each.cell.threads, each.cell.loader_workers))

    def best(self, cpus: int | None) -> CellResult | None:
        """Return the fastest within so many CPUs, or one with fewer threads and workers that is not clearly slower."""
        within = [each for each in self.timed if cpus is None or each.cell.all_threads <= cpus]
        times = [(each, each.timed) for each in within if each.timed is not None]
        if not times:
            return None
        _, least = min(times, key=lambda pair: pair[1].median)
        good = [each for each, timed in times if not clearly_slower(timed, least)]
        return min(good, key=lambda each: (each.cell.all_threads, each.cell.loader_workers))

    @property
    def by_cpus(self) -> dict[int, CellResult]:
        """The best for each number of CPUs up to those here that something was measured for."""
        counts = sorted({each.cell.all_threads for each in self.timed})
        here = self.host.effective_cpus
        found = {count: self.best(count) for count in counts if here is None or count <= here}
        return {count: best for count, best in found.items() if best is not None}


@dataclass(frozen=True)
class Feeds(Compared[Brought]):
    """The content of the report."""

    splits: tuple[Split, ...] = ()


def feeds(matrix: Matrix, results: Results) -> Feeds:
    """Compare each cell that brings mini-batches to its step with the resident one, and the splits of each loader."""
    brought = [(place, cell) for place, cell in matrix.cells.items() if place.cell.placement in (*COPIED, *FED)]
    if not brought:
        return Feeds(matrix, ())
    families = {(each.cell.network, each.cell.specification): family_of_record(each) for each in results.records}
    links = {gpu[:2]: found[TRANSFERS] for gpu, found in reversed(gpu_ceilings(results).items())}
    rows = []
    for place, cell in brought:
        host = matrix.hosts[place.machine].under(place.cell.cpu_quota)
        family = families.get((place.cell.network, place.cell.specification))
        rate = None
        if not place.on_cpu:
            name = TO_DEVICE_PINNED if place.cell.placement in (COPIED[0], LOADER) else TO_DEVICE_PAGEABLE
            best = links.get((place.machine, place.device), {}).get(name)
            rate = None if best is None else best.value
        elif place.machine in results.ceilings:
            threads = place.cell.threads or host.effective_cpus or 1
            rate = results.ceilings[place.machine].bandwidth_bytes_per_second(threads)
        size = None if family is None else family.batch_bytes(place.cell.batch_size)
        resident = matrix.cells.get(Place(place.machine, of_resident(place.cell)))
        rows.append(Brought(cell, host, size, rate, pair_of(cell, resident)))
    judged = iter(with_verdicts([each.pair for each in rows if each.pair is not None], lambda pair: True))
    rows = [replace(each, pair=next(judged)) if each.pair else each for each in rows]
    loaded = [each.cell for each in rows if each.cell.cell.placement == LOADER and each.cell.column.threads]
    splits = [
        Split(matrix.hosts[key.machine].under(key.cell.cpu_quota), tuple(of))
        for key, of in along(loaded, "threads", "loader_workers").items()
    ]
    return Feeds(matrix, tuple(rows), tuple(each for each in splits if each.timed))


# Advice.


def _part(cell: Cell) -> str:
    """Return how a cell splits CPUs: "1 + 1" are one thread and one loader worker."""
    return f"{cell.threads} + {cell.loader_workers}"


def advice(split: Split) -> str:
    """Return one sentence: how many threads and loader workers to use, and the cost of other splits."""
    cpus = split.host.effective_cpus
    best = split.best(cpus)
    if best is None or best.timed is None:
        return f"nothing was timed within the {cpus} CPUs"
    workers = best.cell.loader_workers
    loading = f"{counted(workers, 'loader worker')}" if workers else "no loader worker"
    words = [f"use {counted(best.cell.threads, 'thread')} and {loading}: {number(best.timed.median)} s a step"]
    others = [(each, ratio(each.timed, best.timed)) for each in split.timed if each is not best and each.timed]
    if not others:
        return f"only {_part(best.cell)} timed (threads + loader workers): nothing to compare"
    slower = [f"{found.value:.2f}x with {_part(each.cell)}" for each, found in others if _slower(each, best)]
    if slower:
        words.append(f"a step takes {', '.join(slower)}")
    beyond = [(each, found) for each, found in others if cpus is not None and each.cell.all_threads > cpus]
    faster = [f"{_part(each.cell)} ({times(found)})" for each, found in beyond if _slower(best, each)]
    if faster:
        words.append(f"faster, with more of them than CPUs: {', '.join(faster)}")
    if not slower and not faster:
        words.append("noise may explain every difference to other splits")
    return "; ".join(words)


def _slower(one: CellResult, other: CellResult) -> bool:
    return one.timed is not None and other.timed is not None and clearly_slower(one.timed, other.timed)


def headline(found: Feeds) -> list[str]:
    """Return for each machine how often bringing mini-batches costs time, and where most."""
    lines = []
    for machine, here in grouped((each for each in found.rows if each.pair), lambda each: each.cell.machine).items():
        costly = [(each, each.pair) for each in here if each.pair and each.pair.verdict == SLOWER]
        head = f"{found.name(machine)}: bringing mini-batches to the step"
        if not costly:
            lines.append(f"{head} costs no significant time in {counted(len(here), 'cell')}.")
            continue
        most, pair = max(costly, key=lambda each: each[1].ratio.value)
        name = f"{group_name(most.cell.group)}: {row_name(most.cell.cell)}, {place_name(most.cell.cell)}"
        share = f"costs time in {len(costly)} of {counted(len(here), 'cell')}"
        lines.append(f"{head} {share}, most on {name}: {times(pair.ratio)} the resident time ({most.verdict}).")
    return lines


# Tables, JSON and CSV.


def _work(cell: Cell) -> str:
    return group_name(of_resident(cell))


def _how(each: Brought) -> str:
    cell = each.cell.cell
    storage = "" if cell.storage == axes.BLANK.storage else f", {cell.storage}"
    return f"{cell.placement}{storage}{f' w{cell.loader_workers}' if cell.placement == LOADER else ''}"


def _per_cent(found: Ratio | None) -> str:
    if found is None:
        return MISSING
    ends = "" if found.low is None or found.high is None else f" {found.low * 100:.0f}-{found.high * 100:.0f}"
    return f"{found.value:.0%}{ends}"


def _rate(value: float | None) -> str:
    return MISSING if value is None else f"{value / 1e9:.3g}"


def _columns(rows: Sequence[Brought]) -> tuple[Column[Brought], ...]:
    common = common_flags(each.cell for each in rows if each.cell.shown)
    seconds = QUANTITIES["seconds"]
    return (
        *host_columns(lambda each: each.host),
        *axis_columns(lambda each: each.cell.cell),
        Column("", "", lambda each: row_name(each.cell.cell)),
        Column("", "mini-batch", _how),
        Column("", "at", lambda each: place_name(each.cell.cell._replace(loader_workers=0))),
        Column("status", None, lambda each: each.cell.status),
        Column("reason", None, lambda each: each.cell.reason),
        Column(
            "seconds_per_minibatch",
            "s/batch",
            lambda each: each.cell.seconds,
            lambda each: entry(each.cell, seconds, set(common))._replace(best=False),
            MEDIAN,
        ),
        Column("resident_seconds", "resident", lambda each: each.resident),
        Column("stall", "stall", lambda each: each.stall, lambda each: _per_cent(each.stall), VALUE),
        Column("minibatch_bytes", None, lambda each: each.bytes),
        Column("needed_bytes_per_second", "needs GB/s", lambda each: each.needs, lambda each: _rate(each.needs)),
        Column("link_bytes_per_second", "link GB/s", lambda each: each.rate, lambda each: _rate(each.rate)),
        Column("model_seconds", "model", lambda each: each.model),
        Column("load_cpu_seconds", "load CPU s", lambda each: each.load_seconds),
        Column("verdict", "verdict", lambda each: each.verdict),
    )


def _table(found: Feeds, machine: str, here: Sequence[Brought]) -> Table:
    holes = [each for each in here if each.cell.timed is None]
    reasons = dict.fromkeys(f"{row_name(each.cell.cell)}, {_how(each)}: {why_hole(each.cell)}" for each in holes)
    title = f"Mini-batches brought to the step, on {found.name(machine)}"
    return table(_columns(here), here, title, group=lambda each: _work(each.cell.cell), notes=reasons, keys=3)


class _Line(NamedTuple):
    group: str
    threads: int
    fields: Mapping[int, Entry]


def _group(split: Split) -> str:
    first = split.cells[0].cell
    storage = "" if first.storage == axes.BLANK.storage else f", {first.storage}"
    return f"{_work(first)}{storage}: {row_name(first)}"


def _split_table(found: Feeds, machine: str, here: Sequence[Split]) -> Table:
    """Return the times of each loader, threads down and loader workers across, with its advice beneath."""
    seconds = QUANTITIES["seconds"]
    lines = []
    for split in here:
        best = split.best(split.host.effective_cpus)
        for threads, of_threads in grouped(split.cells, lambda each: each.cell.threads).items():
            fields = {
                each.cell.loader_workers: entry(each, seconds, {flags.FEW_LAUNCHES})._replace(best=each is best)
                for each in of_threads
            }
            lines.append(_Line(_group(split), threads, fields))
    columns: list[Column[_Line]] = [Column("", "threads", lambda line: line.threads)]
    for workers in sorted({each.cell.loader_workers for split in here for each in split.cells}):
        heading = f"{workers} to load"
        columns.append(Column("", heading, lambda line, of=workers: line.fields.get(of, MISSING)))  # type: ignore[misc]
    notes = [f"{_group(split)}: {advice(split)}." for split in here]
    title = f"Seconds by threads and loader workers, on {found.name(machine)}"
    return table(columns, lines, title, group=lambda line: line.group, notes=notes)


_SPLIT: tuple[Column[Split], ...] = (
    *host_columns(lambda split: split.host),
    *axis_columns(
        lambda split: split.cells[0].cell, [name for name in axes.NAMES if name not in ("threads", "loader_workers")]
    ),
    Column("effective_cpus", None, lambda split: split.host.effective_cpus),
    Column(
        "best",
        None,
        lambda split: [
            {
                "cpus": cpus,
                "threads": best.cell.threads,
                "loader_workers": best.cell.loader_workers,
                "seconds_per_minibatch": None if best.timed is None else best.timed.median,
            }
            for cpus, best in split.by_cpus.items()
        ],
        fields=None,
    ),
    Column("advice", None, advice),
)


def _page(found: Feeds) -> Page:
    if not found.rows:
        return Page((NOTHING, *found.matrix.notes), ())
    tables = []
    splits = grouped(found.splits, lambda split: split.host.fingerprint)
    for machine, here in grouped(found.rows, lambda each: each.cell.machine).items():
        tables.append(_table(found, machine, here))
        tables += [_split_table(found, machine, splits[machine])] if machine in splits else []
    shown = [each.cell for each in found.rows if each.cell.shown]
    lines = (*_LEGEND, *flag_lines(shown, common_flags(shown)), *found.matrix.notes)
    return Page(tuple(headline(found)), tuple(tables), lines)


def _is_brought(cells: Iterable[Cell]) -> bool:
    return any(cell.placement in FED for cell in cells)



REPORT = Report(
    name="feed",
    summary="What it costs to bring mini-batches to the step, and how to split CPUs between threads and a loader.",
    examples=("dlbench report feed", "dlbench report feed --frameworks torch --batch-sizes 64 --json"),
    analyse=lambda source: feeds(source.matrix(), source.results()),
    page=lambda found, options: _page(found),
    data=lambda found: {
        "cells": objects(_columns(found.rows), found.rows),
        "splits": objects(_SPLIT, found.splits),
        "notes": [*headline(found), *found.matrix.notes],
    },
    rows=lambda found: csv_rows(_columns(found.rows), found.rows),
    suggestion="what it costs to bring mini-batches to the step",
    applies=_is_brought,
    options=frozenset({ALL_RUNS}),
    heading="Feeding: what it costs to bring mini-batches to the step",
    place=34,
    headline=headline,
    has_section=lambda found: bool(found.rows),
)
