"""`dlbench report feed`: the cost of fetching mini-batches from memory or files, and how to split
the CPUs.

Each cell whose mini-batch is not resident is compared with the one where it is. Its time is shown
beside that of the model in Wuensche 2018, V.B: with b bytes for all devices behind one link of R
bytes a second, and T_c seconds to compute, a step takes T_c + b / R if the copy comes first, and
max(T_c, b / R) if the next mini-batch is copied meanwhile. The link is the one to the GPU or, on
the CPU, its memory; both are measured. The model leaves out the CPU's work: reading, decoding,
converting and handing over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.libraries.gpus import TO_DEVICE_PAGEABLE, TO_DEVICE_PINNED
from dlbench.adapters.protocol import COPIED, LOADER, PLACEMENTS, UNKNOWN, Cell
from dlbench.reports.ceilings import TRANSFERS, gpu_ceilings
from dlbench.reports.columns import (
    Column,
    attributes,
    axis_columns,
    csv_rows,
    host_columns,
    objects,
    table,
)
from dlbench.reports.curve.curve import along, usable
from dlbench.reports.formats.csv import MEDIAN, VALUE
from dlbench.reports.formats.layout import MISSING, Page, common_flags, entry, flag_lines, why_hole
from dlbench.reports.left_out import left_out
from dlbench.reports.ratio.pairs import SLOWER, Pair, costs, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results import flags
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, group_name, head_of, place_name, row_name
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.quantities import QUANTITIES
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import Ratio, Summary, as_fast, clearly_slower, ratio

NOTHING = (
    "No mini-batch from memory or a file was measured yet; `dlbench run feed` measures what they "
    "cost."
)
HIDDEN, LINK, LOADING, CPUS, UNCLEAR = "hidden", "link", "loader", "CPUs", "unclear"
HIDDEN_BELOW = 1.05
"""Times the resident time below which the interval must lie for the cost to count as hidden."""
WAITING = 0.1
"""With this many threads waiting for a CPU on average, there are too few CPUs."""
_RESIDENT = PLACEMENTS[0]
_LEGEND = (
    (
        "p: threads of the step; s/step: its seconds (*: the split of the CPUs to use; 1 + 2: one "
        "thread and two loader workers); stall: share of the step that does not compute, 1 - "
        "resident / s/step; needs: GB/s that would hide the mini-batches (4 bytes per number, over "
        "the resident time); link: measured GB/s to the GPU or of the CPU's memory; model: seconds "
        "by Wuensche 2018, V.B; CPU s: CPU seconds of a step beyond the resident one's."
    ),
    (
        f"hidden: the interval is below {HIDDEN_BELOW:g} times the resident time; link: copies "
        "cause at least half of the stall; loader: reading and decoding; CPUs: converting, or "
        "waiting, as threads and loader workers outnumber the CPUs; unclear: noise may explain it."
    ),
)


def one_after_another(compute: float, size: float, rate: float) -> float:
    """Return the seconds of a step that begins when its mini-batches of this size have gone through
    the link.
    """
    return compute + size / rate


def ahead(compute: float, size: float, rate: float) -> float:
    """Return the same where the next mini-batches are copied while this step computes."""
    return max(compute, size / rate)


class Feeding(NamedTuple):
    """A cell, and what its mini-batch takes."""

    cell: CellResult
    host: Host
    bytes: int | None
    """Of a mini-batch."""
    rate: float | None
    """Bytes a second of the link, or of the memory; None where it was not measured."""
    pair: Pair | None
    """It and the cell with a resident mini-batch; None for that one, and where one of them has no
    time that counts."""


def is_fed(cell: Cell) -> bool:
    """Tell whether the mini-batch comes from elsewhere. False for an imported benchmark, where it
    is not known.
    """
    return cell.placement not in (_RESIDENT, UNKNOWN)


def _resident(cell: Cell) -> Cell:
    """Return the cell that differs in nothing but its mini-batch being resident."""
    return cell._replace(placement=_RESIDENT, loader_workers=0, storage=axes.BLANK.storage)


def _stall(each: Feeding) -> Ratio | None:
    return None if each.pair is None else each.pair.ratio.changed(lambda value: 1 - 1 / value)


def _needed_rate(each: Feeding) -> float | None:
    return each.bytes / each.pair.times[1].median if each.bytes and each.pair else None


def _model(each: Feeding) -> float | None:
    if not (each.pair and each.bytes and each.rate):
        return None
    law = ahead if each.cell.cell.helpers else one_after_another
    return law(each.pair.times[1].median, each.bytes, each.rate)


def _load_seconds(each: Feeding) -> float | None:
    """Return the CPU seconds of a step beyond those with a resident mini-batch."""
    seen = [] if each.pair is None else [each.pair.cell.observed, each.pair.other.observed]
    spent = [one.cpu_seconds_per_step for one in seen if one is not None]
    return max(0.0, spent[0] - spent[1]) if len(spent) == 2 else None


def _verdict(each: Feeding) -> str:
    """Return what makes the step longer; empty where that cannot be said."""
    if each.pair is None:
        return ""
    if each.pair.ratio.high is not None and each.pair.ratio.high < HIDDEN_BELOW:
        return HIDDEN
    if each.pair.verdict != SLOWER:
        return UNCLEAR
    cell, cpus, seen = each.cell.cell, each.host.effective_cpus, each.cell.observed
    waiting = (seen.waiting_per_wall or 0.0) if seen else 0.0
    if cpus is not None and cell.all_threads > cpus and waiting > WAITING:
        return CPUS
    if cell.placement == LOADER:
        return LOADING
    longer = each.pair.times[0].median - each.pair.times[1].median
    return LINK if each.bytes and each.rate and 2 * each.bytes / each.rate >= longer else CPUS


class Split(NamedTuple):
    """The times of a loader that differ in threads and loader workers alone."""

    host: Host
    cell: Cell
    """One of its cells, for the axes that all share."""
    times: dict[Cell, Summary]
    best: Cell | None
    """The fastest within the CPUs, or one with fewer threads and workers within 2 % of it and not
    clearly slower."""


def _split(host: Host, cells: Sequence[CellResult]) -> Split:
    """Return the times that count, by threads and workers; disturbed ones only where all are."""
    calm = [each for each in cells if usable(each) and not each.has(flags.CONTENDED)] or cells
    by_size = sorted(calm, key=lambda each: (each.cell.all_threads, each.cell.loader_workers))
    found = {each.cell: seconds for each in by_size if (seconds := usable(each)) is not None}
    within = {
        cell: each
        for cell, each in found.items()
        if cell.all_threads <= (host.effective_cpus or float("inf"))
    }
    least = min(within.values(), key=lambda each: each.median, default=None)
    best = next(
        (cell for cell, seconds in within.items() if least and as_fast(seconds, least)), None
    )
    return Split(host, cells[0].cell, found, best)


def advice(split: Split) -> str:
    """Return one sentence: how many threads and loader workers to use, and the cost of other
    splits.
    """
    if split.best is None:
        return f"nothing was timed within the {split.host.effective_cpus} CPUs"
    best = split.times[split.best]
    if len(split.times) == 1:
        return f"only {_part(split.best)} timed (threads + loader workers): nothing to compare"
    others = {cell: each for cell, each in split.times.items() if cell != split.best}
    slower = [
        f"{ratio(each, best).value:.2f}x with {_part(cell)}"
        for cell, each in others.items()
        if clearly_slower(each, best)
    ]
    faster = [
        f"{_part(cell)} ({times(ratio(each, best))})"
        for cell, each in others.items()
        if clearly_slower(best, each)
    ]
    loading = (
        counted(split.best.loader_workers, "loader worker")
        if split.best.loader_workers
        else "no loader worker"
    )
    words = [
        f"use {counted(split.best.threads, 'thread')} and {loading}: {number(best.median)} s a step"
    ]
    words += [f"a step takes {', '.join(slower)}"] if slower else []
    words += [f"faster, but oversubscribing the CPUs: {', '.join(faster)}"] if faster else []
    return "; ".join(
        words
        if slower or faster
        else [*words, "noise may explain every difference to other splits"]
    )


def _part(cell: Cell) -> str:
    """Return how a cell splits CPUs: "1 + 1" are one thread and one loader worker."""
    return f"{cell.threads} + {cell.loader_workers}"


@dataclass(frozen=True)
class Feeds(Compared[Feeding]):
    """The content of the report."""

    splits: tuple[Split, ...] = ()


def feeds(matrix: Matrix, results: Results) -> Feeds:
    """Compare each cell whose mini-batch is not resident with the one where it is, and the splits
    of each loader.
    """
    fed = [place for place in matrix.cells if is_fed(place.cell)]
    if not fed:
        return Feeds(matrix, ())
    resident = {place: Place(place.machine, _resident(place.cell)) for place in fed}
    pairs = {
        place: pair_of(matrix.cells[place], matrix.cells.get(at)) for place, at in resident.items()
    }
    paired = {place: pair for place, pair in pairs.items() if pair is not None}
    judged = dict(zip(paired, with_verdicts(list(paired.values())), strict=True))
    families = {
        (each.cell.network, each.cell.specification): family_of_record(each)
        for each in results.records
    }
    links = {gpu[:2]: found[TRANSFERS] for gpu, found in reversed(gpu_ceilings(results).items())}

    def rate(place: Place, host: Host) -> float | None:
        if not place.on_cpu:
            name = (
                TO_DEVICE_PINNED
                if place.cell.placement in (COPIED[0], LOADER)
                else TO_DEVICE_PAGEABLE
            )
            best = links.get((place.machine, place.device), {}).get(name)
            return None if best is None else best.value
        ceilings = results.ceilings.get(place.machine)
        threads = place.cell.threads or host.effective_cpus or 1
        return None if ceilings is None else ceilings.bandwidth_bytes_per_second(threads)

    def feeding(place: Place) -> Feeding:
        host = matrix.hosts[place.machine].under(place.cell.cpu_quota)
        family = families.get((place.cell.network, place.cell.specification))
        batch_size = place.cell.batch_size
        size = None if family is None or batch_size is None else family.batch_bytes(batch_size)
        return Feeding(matrix.cells[place], host, size, rate(place, host), judged.get(place))

    def order(place: Place) -> tuple[int, int, str, int]:
        cell = place.cell
        known = (
            PLACEMENTS.index(cell.placement) if cell.placement in PLACEMENTS else len(PLACEMENTS)
        )
        return cell.threads, known, cell.storage, cell.loader_workers

    shown = dict.fromkeys(
        each for place in fed for each in (resident[place], place) if each in matrix.cells
    )
    rows = [
        feeding(place)
        for of in grouped(
            shown, lambda place: (place.machine, _work(place.cell), row_name(place.cell))
        ).values()
        for place in sorted(of, key=order)
    ]
    loaded = [
        each.cell for each in rows if each.cell.cell.placement == LOADER and each.cell.cell.threads
    ]
    splits = [
        _split(matrix.hosts[place.machine].under(place.cell.cpu_quota), of)
        for place, of in along(loaded, "threads", "loader_workers").items()
    ]
    return Feeds(matrix, tuple(rows), tuple(each for each in splits if each.times))


def headline(found: Feeds) -> list[str]:
    """Return for each machine how often mini-batches from elsewhere cost time, and where most."""

    def where(each: Feeding, pair: Pair) -> str:
        cell = each.cell.cell
        name = f"{_work(cell)}: {row_name(cell)}, {_how(cell)}, {place_name(_resident(cell))}"
        return f"{name}: {times(pair.ratio)} the resident time ({_verdict(each)})"

    pairs = [(each, each.pair) for each in found.rows if each.pair is not None]
    return costs(found, pairs, "feeding mini-batches to the step costs", where)


# Tables.


def _work(cell: Cell) -> str:
    return group_name(_resident(cell))


def _how(cell: Cell) -> str:
    storage = "" if cell.storage == axes.BLANK.storage else f", {cell.storage}"
    return (
        f"{cell.placement}{f' w{cell.loader_workers}' if cell.placement == LOADER else ''}{storage}"
    )


def _per_cent(found: Ratio | None) -> str:
    if found is None:
        return MISSING
    ends = (
        ()
        if found.low is None or found.high is None
        else (found.high - found.value, found.value - found.low)
    )
    return f"{found.value:.0%}" + (f"±{100 * max(ends):.0f}" if ends else "")


def _gigabytes(value: float | None) -> str:
    return MISSING if value is None else f"{value / 1e9:.3g}"


def _columns(found: Feeds) -> tuple[Column[Feeding], ...]:
    common = common_flags(each.cell for each in found.rows if each.cell.shown)
    best = {Place(split.host.fingerprint, split.best) for split in found.splits if split.best}
    return (
        *host_columns(lambda each: each.host),
        *axis_columns(lambda each: each.cell.cell),
        Column("", "mini-batch", lambda each: _how(each.cell.cell)),
        Column("", "p", lambda each: head_of(_resident(each.cell.cell))),
        *attributes(lambda each: each.cell, "status", "reason"),
        Column(
            "seconds_per_minibatch",
            "s/step",
            lambda each: each.cell.seconds,
            lambda each: entry(each.cell, QUANTITIES["seconds"], common)._replace(
                best=Place(each.cell.machine, each.cell.cell) in best, interval=""
            ),
            MEDIAN,
        ),
        Column("resident_seconds", None, lambda each: each.pair and each.pair.times[1].median),
        Column("stall", "stall", _stall, lambda each: _per_cent(_stall(each)), VALUE),
        Column("minibatch_bytes", None, lambda each: each.bytes),
        Column(
            "needed_bytes_per_second",
            "needs",
            _needed_rate,
            lambda each: _gigabytes(_needed_rate(each)),
        ),
        Column(
            "link_bytes_per_second",
            "link",
            lambda each: each.rate,
            lambda each: _gigabytes(each.rate),
        ),
        Column("model_seconds", "model", _model),
        Column("load_cpu_seconds", "CPU s", _load_seconds),
        Column("verdict", "verdict", _verdict),
    )


_SPLIT: tuple[Column[Split], ...] = (
    *host_columns(lambda split: split.host),
    *axis_columns(
        lambda split: split.cell,
        [name for name in axes.NAMES if name not in ("threads", "loader_workers")],
    ),
    Column("effective_cpus", None, lambda split: split.host.effective_cpus),
    Column("threads", None, lambda split: split.best and split.best.threads),
    Column("loader_workers", None, lambda split: split.best and split.best.loader_workers),
    Column(
        "seconds_per_minibatch", None, lambda split: split.best and split.times[split.best].median
    ),
    Column("advice", None, advice),
)


def _page(found: Feeds) -> Page:
    if not found.rows:
        return Page((NOTHING, *found.matrix.notes), ())
    tables = []
    splits = grouped(found.splits, lambda split: (split.host.fingerprint, _work(split.cell)))
    for at, here in grouped(
        found.rows, lambda each: (each.cell.machine, _work(each.cell.cell))
    ).items():
        holes = [each.cell for each in here if each.cell.timed is None]
        notes = [f"{row_name(each.cell)}, {_how(each.cell)}: {why_hole(each)}" for each in holes]
        for split in splits.get(at, ()):
            storage = "" if split.cell.storage == axes.BLANK.storage else f", {split.cell.storage}"
            notes.append(f"{row_name(split.cell)}{storage}: {advice(split)}.")
        title = f"{at[1]}, on {found.name(at[0])}"
        tables.append(
            table(
                *(_columns(found), here, title, "cells", lambda each: row_name(each.cell.cell)),
                notes=dict.fromkeys(notes),
                keys=2,
            )
        )
    shown = [each.cell for each in found.rows if each.cell.shown]
    unused = left_out(cell for cell in shown if cell.timed is not None and usable(cell) is None)
    lines = (*_LEGEND, *flag_lines(shown, common_flags(shown)), *unused, *found.matrix.notes)
    return Page(tuple(headline(found)), tuple(tables), lines)


REPORT = Report(
    name="feed",
    summary=(
        "The cost of mini-batches from memory or files, and how to split CPUs between threads and "
        "loader workers."
    ),
    examples=(
        "dlbench report feed",
        "dlbench report feed --frameworks torch --batch-sizes 64 --json",
    ),
    analyse=lambda source: feeds(source.matrix(), source.results()),
    page=lambda found, options: _page(found),
    data=lambda found: {
        "cells": objects(_columns(found), found.rows),
        "splits": objects(_SPLIT, found.splits),
        "notes": [*headline(found), *found.matrix.notes],
    },
    rows=lambda found: csv_rows(_columns(found), found.rows),
    suggestion="what it costs to feed mini-batches to the step",
    applies=lambda cells: any(map(is_fed, cells)),
    options=frozenset({ALL_RUNS}),
    heading="Feeding: the cost of mini-batches from memory and files",
    place=34,
    headline=headline,
)
