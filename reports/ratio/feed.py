"""`dlbench report feed`: the cost of mini-batches from memory or files, and how to split the CPUs.

Each cell whose mini-batch is not resident is compared with the one where it is. Its time is shown
next to that of the model in Wuensche 2018, V.B: with b bytes for all devices behind one link of R
bytes a second, and T_c seconds to compute, a step takes T_c + b / R if the copy comes first, and
max(T_c, b / R) if the next mini-batch is copied meanwhile. The link is the one to the GPU or, on
the CPU, its memory. Both are measured. The model leaves out the CPU's work: reading, decoding,
converting and handing over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.families import Family
from dlbench.adapters.libraries.gpus import TO_DEVICE_PAGEABLE, TO_DEVICE_PINNED
from dlbench.adapters.protocol import COPIED, LOADER, PLACEMENTS, UNKNOWN, Cell
from dlbench.reports.ceilings import TRANSFERS, Best, gpu_ceilings
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
from dlbench.reports.formats.layout import (
    MISSING,
    Entry,
    Page,
    common_flags,
    entry,
    flag_lines,
    why_hole,
)
from dlbench.reports.left_out import left_out
from dlbench.reports.ratio.pairs import Pair, costs, pair_of, with_verdicts
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results import flag_kinds
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Compared, Matrix
from dlbench.reports.results.naming import counted, head_of, place_name, row_name, work_name
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.number_text import number, times
from dlbench.reports.results.quantities import QUANTITIES
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import (
    Estimate,
    RatioVerdict,
    Summary,
    as_fast,
    clearly_slower,
    ratio,
)

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
    """Return the seconds of a step that begins after the link has carried its mini-batches."""
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
    """The cell and the one with a resident mini-batch.

    None for the resident one itself, and where one of the two has no time that counts.
    """


def is_fed(cell: Cell) -> bool:
    """Return whether the mini-batch comes from elsewhere.

    False for an imported benchmark, where it is not known.
    """
    return cell.placement not in (_RESIDENT, UNKNOWN)


def _resident(cell: Cell) -> Cell:
    """Return the cell that differs in nothing but its mini-batch being resident."""
    return cell._replace(placement=_RESIDENT, loader_workers=0, storage=axes.BLANK.storage)


def _stall(feeding: Feeding) -> Estimate | None:
    """Return the share of the step that does not compute."""
    if feeding.pair is None:
        return None
    return feeding.pair.ratio.changed(_idle_share)


def _idle_share(ratio: float) -> float:
    return 1 - 1 / ratio


def _needed_rate(feeding: Feeding) -> float | None:
    """Return the bytes a second that would hide the mini-batches."""
    if not feeding.bytes or feeding.pair is None:
        return None
    _, resident = feeding.pair.times
    return feeding.bytes / resident.median


def _model_seconds(feeding: Feeding) -> float | None:
    """Return the seconds of a step by the model in Wuensche 2018, V.B."""
    if not (feeding.pair and feeding.bytes and feeding.rate):
        return None
    _, resident = feeding.pair.times
    law = ahead if feeding.cell.cell.helpers else one_after_another
    return law(resident.median, feeding.bytes, feeding.rate)


def _load_seconds(feeding: Feeding) -> float | None:
    """Return the CPU seconds of a step beyond those with a resident mini-batch."""
    if feeding.pair is None:
        return None
    fed = feeding.pair.cell.observed
    resident = feeding.pair.other.observed
    if fed is None or resident is None:
        return None
    return max(0.0, fed.cpu_seconds_per_step - resident.cpu_seconds_per_step)


def _cause(feeding: Feeding) -> str:
    """Return the cause that makes the step longer; empty where there is nothing to compare with."""
    pair = feeding.pair
    if pair is None:
        return ""
    if pair.ratio.high is not None and pair.ratio.high < HIDDEN_BELOW:
        return HIDDEN
    if pair.verdict is not RatioVerdict.SLOWER:
        return UNCLEAR
    cell = feeding.cell.cell
    cpus = feeding.host.effective_cpus
    observed = feeding.cell.observed
    waiting = 0.0
    if observed:
        waiting = observed.waiting_per_wall or 0.0
    if cpus is not None and cell.all_threads > cpus and waiting > WAITING:
        return CPUS
    if cell.placement == LOADER:
        return LOADING
    fed, resident = pair.times
    longer = fed.median - resident.median
    if feeding.bytes and feeding.rate and 2 * feeding.bytes / feeding.rate >= longer:
        return LINK
    return CPUS


class Split(NamedTuple):
    """The times of a loader that differ in threads and loader workers alone."""

    host: Host
    cell: Cell
    """One of its cells, for the axes that all share."""
    times: dict[Cell, Summary]
    best: Cell | None
    """The fastest within the CPUs.

    Or one with fewer threads and workers, within 2 % of it and not clearly slower.
    """


def _split(host: Host, cells: Sequence[CellResult]) -> Split:
    """Return the times that count, by threads and workers; disturbed ones only where all are."""
    calm = []
    for cell in cells:
        if usable(cell) and not cell.has(flag_kinds.CONTENDED):
            calm.append(cell)
    by_size = sorted(
        calm or cells, key=lambda cell: (cell.cell.all_threads, cell.cell.loader_workers)
    )
    most_threads = host.effective_cpus or float("inf")
    timed: dict[Cell, Summary] = {}
    within: dict[Cell, Summary] = {}
    for cell in by_size:
        seconds = usable(cell)
        if seconds is None:
            continue
        timed[cell.cell] = seconds
        if cell.cell.all_threads <= most_threads:
            within[cell.cell] = seconds
    least = min(within.values(), key=lambda seconds: seconds.median, default=None)
    best = None
    if least is not None:
        best = next((cell for cell, seconds in within.items() if as_fast(seconds, least)), None)
    return Split(host, cells[0].cell, timed, best)


def advice(split: Split) -> str:
    """Return one sentence: the threads and loader workers to use, and the cost of other splits."""
    if split.best is None:
        return f"nothing was timed within the {split.host.effective_cpus} CPUs"
    best = split.times[split.best]
    if len(split.times) == 1:
        return f"only {_size_text(split.best)} timed (threads + loader workers): nothing to compare"
    slower = []
    faster = []
    for cell, seconds in split.times.items():
        if cell == split.best:
            continue
        if clearly_slower(seconds, best):
            slower.append(f"{ratio(seconds, best).value:.2f}x with {_size_text(cell)}")
        if clearly_slower(best, seconds):
            faster.append(f"{_size_text(cell)} ({times(ratio(seconds, best))})")
    loading = "no loader worker"
    if split.best.loader_workers:
        loading = counted(split.best.loader_workers, "loader worker")
    threads = counted(split.best.threads, "thread")
    clauses = [f"use {threads} and {loading}: {number(best.median)} s a step"]
    if slower:
        clauses.append(f"a step takes {', '.join(slower)}")
    if faster:
        clauses.append(f"faster, but oversubscribing the CPUs: {', '.join(faster)}")
    if not slower and not faster:
        clauses.append("noise may explain every difference to other splits")
    return "; ".join(clauses)


def _size_text(cell: Cell) -> str:
    """Return the threads and loader workers of a cell: "1 + 1" for one of each."""
    return f"{cell.threads} + {cell.loader_workers}"


@dataclass(frozen=True)
class Feeds(Compared[Feeding]):
    """The content of the report."""

    splits: tuple[Split, ...] = ()


def feeds(matrix: Matrix, results: Results) -> Feeds:
    """Compare cells whose mini-batch is not resident with those where it is, and loaders' splits.

    The splits are those of the CPUs between threads and loader workers.
    """
    fed = [place for place in matrix.cells if is_fed(place.cell)]
    if not fed:
        return Feeds(matrix, ())
    shown: dict[Place, None] = {}
    pairs: dict[Place, Pair] = {}
    for place in fed:
        resident = Place(place.machine, _resident(place.cell))
        if resident in matrix.cells:
            shown[resident] = None
        shown[place] = None
        pair = pair_of(matrix.cells[place], matrix.cells.get(resident))
        if pair is not None:
            pairs[place] = pair
    judged = dict(zip(pairs, with_verdicts(list(pairs.values())), strict=True))
    families = {}
    for record in results.records:
        network = (record.cell.network, record.cell.specification)
        families[network] = family_of_record(record)
    # Of several boards of one device name the first counts.
    gpus = reversed(gpu_ceilings(results).items())
    links = {gpu[:2]: ceilings[TRANSFERS] for gpu, ceilings in gpus}
    rows = []
    by_row = grouped(shown, lambda place: (place.machine, _work(place.cell), row_name(place.cell)))
    for places in by_row.values():
        for place in sorted(places, key=_order):
            host = matrix.hosts[place.machine].under(place.cell.cpu_quota)
            size = _batch_bytes(place.cell, families)
            rate = _link_rate(place, links)
            if place.on_cpu:
                rate = _memory_rate(place, host, results)
            rows.append(Feeding(matrix.cells[place], host, size, rate, judged.get(place)))
    return Feeds(matrix, tuple(rows), _splits(rows, matrix))


def _batch_bytes(cell: Cell, families: Mapping[tuple[str, str], Family | None]) -> int | None:
    """Return the bytes of a cell's mini-batch, where they are known."""
    family = families.get((cell.network, cell.specification))
    if family is None or cell.batch_size is None:
        return None
    return family.batch_bytes(cell.batch_size)


def _memory_rate(place: Place, host: Host, results: Results) -> float | None:
    """Return the bytes a second of the CPU's memory, where they were measured."""
    ceilings = results.ceilings.get(place.machine)
    threads = place.cell.threads or host.effective_cpus or 1
    if ceilings is None:
        return None
    return ceilings.bandwidth_bytes_per_second(threads)


def _link_rate(place: Place, links: Mapping[tuple[str, str], Mapping[str, Best]]) -> float | None:
    """Return the bytes a second of the link to a GPU, where they were measured."""
    pinned = place.cell.placement in (COPIED[0], LOADER)
    transfer = TO_DEVICE_PINNED if pinned else TO_DEVICE_PAGEABLE
    rate = links.get((place.machine, place.device), {}).get(transfer)
    return None if rate is None else rate.value


def _splits(rows: Iterable[Feeding], matrix: Matrix) -> tuple[Split, ...]:
    """Return the splits of each loader that was measured with a known number of threads."""
    loaded = []
    for row in rows:
        cell = row.cell.cell
        if cell.placement == LOADER and cell.threads:
            loaded.append(row.cell)
    splits = []
    for place, cells in along(loaded, "threads", "loader_workers").items():
        split = _split(matrix.hosts[place.machine].under(place.cell.cpu_quota), cells)
        if split.times:
            splits.append(split)
    return tuple(splits)


def _order(place: Place) -> tuple[int, int, str, int]:
    cell = place.cell
    placement = len(PLACEMENTS)
    if cell.placement in PLACEMENTS:
        placement = PLACEMENTS.index(cell.placement)
    return cell.threads, placement, cell.storage, cell.loader_workers


def headline(analysis: Feeds) -> list[str]:
    """Return how often mini-batches from elsewhere cost time, by machine, and where most."""
    pairs = [(row, row.pair) for row in analysis.rows if row.pair is not None]
    return costs(analysis, pairs, "feeding mini-batches to the step costs", _pair_text)


def _pair_text(feeding: Feeding, pair: Pair) -> str:
    """Describe the cost of feeding one cell."""
    cell = feeding.cell.cell
    place = place_name(_resident(cell))
    name = f"{_work(cell)}: {row_name(cell)}, {_placement_text(cell)}, {place}"
    return f"{name}: {times(pair.ratio)} the resident time ({_cause(feeding)})"


# Tables.


def _work(cell: Cell) -> str:
    return work_name(_resident(cell))


def _placement_text(cell: Cell) -> str:
    """Return the origin of a cell's mini-batches, with the number of loader workers."""
    workers = f" w{cell.loader_workers}" if cell.placement == LOADER else ""
    return f"{cell.placement}{workers}{_storage_text(cell)}"


def _storage_text(cell: Cell) -> str:
    if cell.storage == axes.BLANK.storage:
        return ""
    return f", {cell.storage}"


def _stall_text(feeding: Feeding) -> str:
    stall = _stall(feeding)
    if stall is None:
        return MISSING
    deviation = ""
    if stall.low is not None and stall.high is not None:
        wider = max(stall.high - stall.value, stall.value - stall.low)
        deviation = f"±{100 * wider:.0f}"
    return f"{stall.value:.0%}{deviation}"


def _gigabytes(value: float | None) -> str:
    return MISSING if value is None else f"{value / 1e9:.3g}"


def _columns(analysis: Feeds) -> tuple[Column[Feeding], ...]:
    common = common_flags(row.cell for row in analysis.rows if row.cell.shown)
    best_splits = set()
    for split in analysis.splits:
        if split.best:
            best_splits.add(Place(split.host.fingerprint, split.best))

    def seconds(feeding: Feeding) -> Entry:
        cell = feeding.cell
        is_best = cell.place in best_splits
        return entry(cell, QUANTITIES["seconds"], common)._replace(best=is_best, interval="")

    return (
        *host_columns(lambda feeding: feeding.host),
        *axis_columns(lambda feeding: feeding.cell.cell),
        Column("", "mini-batch", lambda feeding: _placement_text(feeding.cell.cell)),
        Column("", "p", lambda feeding: head_of(_resident(feeding.cell.cell))),
        *attributes(lambda feeding: feeding.cell, "status", "reason"),
        Column(
            "seconds_per_minibatch", "s/step", lambda feeding: feeding.cell.seconds, seconds, MEDIAN
        ),
        Column("resident_seconds", None, _resident_seconds),
        Column("stall", "stall", _stall, _stall_text, VALUE),
        Column("minibatch_bytes", None, lambda feeding: feeding.bytes),
        Column(
            "needed_bytes_per_second",
            "needs",
            _needed_rate,
            lambda feeding: _gigabytes(_needed_rate(feeding)),
        ),
        Column(
            "link_bytes_per_second",
            "link",
            lambda feeding: feeding.rate,
            lambda feeding: _gigabytes(feeding.rate),
        ),
        Column("model_seconds", "model", _model_seconds),
        Column("load_cpu_seconds", "CPU s", _load_seconds),
        Column("verdict", "verdict", _cause),
    )


def _resident_seconds(feeding: Feeding) -> float | None:
    return None if feeding.pair is None else feeding.pair.times[1].median


def _best_seconds(split: Split) -> float | None:
    return None if split.best is None else split.times[split.best].median


_SPLIT: tuple[Column[Split], ...] = (
    *host_columns(lambda split: split.host),
    *axis_columns(
        lambda split: split.cell,
        [name for name in axes.NAMES if name not in ("threads", "loader_workers")],
    ),
    Column("effective_cpus", None, lambda split: split.host.effective_cpus),
    Column("threads", None, lambda split: split.best and split.best.threads),
    Column("loader_workers", None, lambda split: split.best and split.best.loader_workers),
    Column("seconds_per_minibatch", None, _best_seconds),
    Column("advice", None, advice),
)


def _page(analysis: Feeds) -> Page:
    if not analysis.rows:
        return Page((NOTHING, *analysis.matrix.notes), ())
    columns = _columns(analysis)
    splits = grouped(analysis.splits, lambda split: (split.host.fingerprint, _work(split.cell)))
    rows = grouped(analysis.rows, lambda row: (row.cell.machine, _work(row.cell.cell)))
    tables = []
    for (machine, work), rows_of_work in rows.items():
        notes = []
        for row in rows_of_work:
            if row.cell.timed is None:
                cell = row.cell.cell
                name = f"{row_name(cell)}, {_placement_text(cell)}"
                notes.append(f"{name}: {why_hole(row.cell)}")
        for split in splits.get((machine, work), ()):
            name = f"{row_name(split.cell)}{_storage_text(split.cell)}"
            notes.append(f"{name}: {advice(split)}.")
        tables.append(
            table(
                columns,
                rows_of_work,
                f"{work}, on {analysis.name(machine)}",
                "cells",
                section=lambda row: row_name(row.cell.cell),
                notes=dict.fromkeys(notes),
                keys=2,
            )
        )
    shown = [row.cell for row in analysis.rows if row.cell.shown]
    unused = left_out(cell for cell in shown if cell.timed is not None and usable(cell) is None)
    marks = flag_lines(shown, common_flags(shown))
    after = (*_LEGEND, *marks, *unused, *analysis.matrix.notes)
    return Page(tuple(headline(analysis)), tuple(tables), after)


def _data(analysis: Feeds) -> dict[str, Any]:
    return {
        "cells": objects(_columns(analysis), analysis.rows),
        "splits": objects(_SPLIT, analysis.splits),
        "notes": [*headline(analysis), *analysis.matrix.notes],
    }


REPORT = Report(
    name="feed",
    summary="The cost of loading data, and threads against loader workers.",
    examples=(
        "dlbench report feed",
        "dlbench report feed --frameworks torch --batch-sizes 64 --json",
    ),
    analyse=lambda source: feeds(source.matrix(), source.results()),
    page=lambda analysis, options: _page(analysis),
    data=_data,
    rows=lambda analysis: csv_rows(_columns(analysis), analysis.rows),
    suggestion="what it costs to feed mini-batches to the step",
    applies=lambda cells: any(map(is_fed, cells)),
    options=frozenset({ALL_RUNS}),
    heading="Feeding: the cost of mini-batches from memory and files",
    place=34,
    headline=headline,
)
