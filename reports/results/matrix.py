"""The matrix: cells side by side, by work and row, with a block of columns for each machine.

`build_matrix` makes cells from records. `assemble` puts cells of any origin (records of several
machines, a published table) side by side.

The store decides which records count (`Results.newest`): for each cell on each machine those of the
newest run that measured it, with one environment. A run that only skipped a cell does not displace
one that measured it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Generic, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.results.cells import (
    CellResult,
    TimesInTurns,
    fair,
    in_the_running,
    make_cell,
    times_in_turns,
)
from dlbench.reports.results.flag_kinds import FEW_LAUNCHES, OTHER_ENVIRONMENT, Flag
from dlbench.reports.results.flags import product_rate
from dlbench.reports.results.hosts import Host, name_among
from dlbench.reports.results.keys import Place, RowKey, WorkKey, grouped, row_of, row_order
from dlbench.reports.results.naming import counted, listed, row_name, variables_in_words
from dlbench.reports.results.networks import by_numbers, in_order
from dlbench.reports.results.quantities import SECONDS
from dlbench.reports.results.record import BASELINE, SEARCH, Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.side_by_side import side_by_side
from dlbench.reports.results.statistics import (
    BreakEven,
    Summary,
    break_even,
    clearly_slower,
    with_common_spread,
)

Row = TypeVar("Row")

Rates = Mapping[tuple[str, str, str], Sequence[tuple[int, float]]]
"""Matrix-product rates by machine, device and precision: threads and FLOP/s."""
_PAUSE = timedelta(hours=1)
"""A run without a launch for longer has paused, and the machine may have changed meanwhile."""


@dataclass(frozen=True)
class Matrix:
    """Cells with their places in a table; a place without a cell was not measured."""

    hosts: dict[str, Host] = field(default_factory=dict)
    """The machines that have columns, in order."""
    columns: tuple[Place, ...] = ()
    """Those of one machine stand together."""
    rows: dict[WorkKey, tuple[RowKey, ...]] = field(default_factory=dict)
    cells: dict[Place, CellResult] = field(default_factory=dict)
    """By machine and cell, in the order of the table."""
    notes: tuple[str, ...] = ()
    quantity: str = SECONDS
    """The quantity that the cells' `seconds` are: another one only in a matrix of
    `quantities.in_quantity`."""

    def at(self, work: WorkKey, row: RowKey, column: Place) -> CellResult | None:
        """Return the cell of this work, row and column."""
        return self.cells.get(_place(work, row, column))

    def columns_of(self, machine: str) -> tuple[Place, ...]:
        """Return the columns of one machine."""
        return tuple(column for column in self.columns if column.machine == machine)

    @property
    def machines(self) -> tuple[str, ...]:
        """The fingerprints of the machines, in order."""
        return tuple(self.hosts)


def _place(work: WorkKey, row: RowKey, column: Place) -> Place:
    """Return the place where a row of a work meets a column."""
    part_of_role = {axes.WORK: work, axes.ROW: row, axes.COLUMN: column.cell}
    values = {axis.name: getattr(part_of_role[axis.role], axis.name) for axis in axes.AXES}
    return Place(column.machine, axes.BLANK._replace(**values))


@dataclass(frozen=True)
class Compared(Generic[Row]):
    """A matrix, and the comparisons made in it."""

    matrix: Matrix
    rows: tuple[Row, ...]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def name(self, machine: str) -> str:
        """Return the name of a machine, unique among those of the matrix."""
        return name_among(self.matrix.hosts, machine)


def build_matrix(results: Results) -> Matrix:
    """Return the matrix of results that hold only the records that count (`Results.newest`)."""
    attempts = last_attempts(results.records)
    records = [record for record in attempts if record.side != BASELINE]
    records.sort(key=lambda record: record.started)
    records_by_place = grouped(records, lambda record: Place(record.machine, record.cell))
    newest_by_row = _newest_by_row([launches[-1] for launches in records_by_place.values()])
    rates = _product_rates(results)
    turns = times_in_turns(records)
    cells = []
    for place, launches in records_by_place.items():
        host = results.hosts.get(place.machine)
        cell = make_cell(launches, host, _ceiling(place, results, rates), turns)
        newest = newest_by_row.get((place.machine, row_of(place.cell)))
        cells.append(_flag_older_environment(cell, launches[-1], newest))
    cells = _with_ratios_in_turns(cells, records, turns)
    cells = _with_common_spread(cells)
    return assemble(cells, results.hosts, _notes(results, records))


def _newest_by_row(records: Iterable[Record]) -> dict[tuple[str, Cell], Record]:
    """Return the newest record that has an environment, by machine and row."""
    newest: dict[tuple[str, Cell], Record] = {}
    for record in records:
        row = record.machine, row_of(record.cell)
        if record.environment and (row not in newest or record.started > newest[row].started):
            newest[row] = record
    return newest


def _flag_older_environment(cell: CellResult, record: Record, newest: Record | None) -> CellResult:
    """Return a cell with a flag if the newest record of its row has another environment."""
    if newest is None or cell.environment in ("", newest.environment):
        return cell
    if dict(cell.variables) != newest.variables:
        before = variables_in_words(cell.variables)
        now = variables_in_words(newest.variables)
        sentence = f"--env: {before}, the row's newest: {now}"
    else:
        sentence = (
            f"environment {cell.environment[:12]}, the row's newest is {newest.environment[:12]}"
        )
        version = record.outcome.software.get("version")
        if version and version == newest.outcome.software.get("version"):
            sentence += f": two builds of version {version}"
    return replace(cell, flags=(*cell.flags, Flag(OTHER_ENVIRONMENT, sentence)))


def _with_ratios_in_turns(
    cells: Sequence[CellResult], records: Sequence[Record], turns: TimesInTurns
) -> list[CellResult]:
    """Return the cells with the ratios that launches in turns show, for each work by itself."""
    machine_of_run = {record.run: record.machine for record in records}
    groups: dict[tuple[str, str], dict[Place, float]] = {}
    for (run, group, cell), seconds in turns.items():
        place = Place(machine_of_run[run], axes.without(cell))
        groups.setdefault((run, group), {})[place] = seconds
    timed_of_work: dict[tuple[str, Cell], list[int]] = {}
    for index, result in enumerate(cells):
        if result.seconds is not None:
            timed_of_work.setdefault((result.machine, result.work), []).append(index)
    related = list(cells)
    for timed in timed_of_work.values():
        number_at = {cells[index].place: number for number, index in enumerate(timed)}
        times_of_groups = []
        for times_by_place in groups.values():
            times_by_number = {}
            for place, seconds in times_by_place.items():
                if place in number_at:
                    times_by_number[number_at[place]] = seconds
            times_of_groups.append(times_by_number)
        ratios = side_by_side(times_of_groups, len(timed))
        if ratios is None:
            continue
        for number, index in enumerate(timed):
            seconds_alone = cells[index].seconds
            assert seconds_alone is not None
            seconds_in_turns = replace(seconds_alone, relative=ratios, number=number)
            related[index] = replace(cells[index], seconds=seconds_in_turns)
    return related


def _with_common_spread(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells with intervals that use the spread of all launches of their machine."""
    result: list[CellResult] = []
    for cells_of_machine in grouped(cells, lambda cell: cell.machine).values():
        own = [cell.seconds for cell in cells_of_machine if cell.seconds is not None]
        shared = iter(with_common_spread(own))
        for cell in cells_of_machine:
            if cell.seconds is not None:
                cell = _with_seconds(cell, next(shared))
            result.append(cell)
    return result


def _with_seconds(cell: CellResult, seconds: Summary) -> CellResult:
    """Return a cell with its final time.

    The flag of few launches goes where the interval covers variation between launches.
    """
    flags = cell.flags
    if seconds.covers_launches:
        flags = tuple(flag for flag in flags if flag.kind is not FEW_LAUNCHES)
    return replace(cell, seconds=seconds, flags=flags)


def _product_rates(results: Results) -> Rates:
    """Return the rates of the frameworks' own matrix products.

    A launch that used more threads than it was asked to says nothing about that number of threads.
    """
    rates = {condition: list(measured) for condition, measured in results.products.items()}
    for record in results.records:
        rate = product_rate(record, results.hosts.get(record.machine))
        if rate:
            condition = record.machine, record.cell.device, record.cell.precision
            rates.setdefault(condition, []).append((record.cell.threads, rate))
    return rates


def _ceiling(place: Place, results: Results, rates: Rates) -> float | None:
    """Return the highest matrix-product rate in FLOP/s with no more threads; None if unknown."""
    machine, cell = place
    # A framework's own product is one worker's. On the CPU the workers beyond those that fit add
    # nothing.
    workers = cell.world_size
    threads = cell.threads
    host = results.hosts.get(machine)
    if cell.on_cpu and host is not None and host.effective_cpus:
        # No more threads than the quota's CPUs can be at work. Without a count there may be as
        # many.
        cpus = min(host.effective_cpus, math.ceil(cell.cpu_quota) or host.effective_cpus)
        if cell.cpu_quota or not threads:
            threads = min(threads or cpus, cpus)
        workers = min(workers, max(1, host.effective_cpus // max(1, cell.threads)))
    candidates = []
    for count, rate in rates.get((machine, cell.device, cell.precision), []):
        if not cell.on_cpu or count <= threads:
            candidates.append(rate * workers)
    if cell.on_cpu and cell.precision == "float32" and machine in results.ceilings:
        probed = results.ceilings[machine].gemm_flops_per_second(threads * cell.world_size)
        candidates.append(probed or 0.0)
    return max(candidates, default=0.0) or None


def _notes(results: Results, records: Sequence[Record]) -> list[str]:
    """Return a line on everything that a reader of the matrix must know; records are by time."""
    notes = []
    for row in sorted(results.displaced):
        notes.append(
            f"{row}: cells were measured with several environments (builds, or variables of "
            "--env); only the newest of each cell is shown."
        )
    notes += _notes_on_variables(records)
    runs = {record.run for record in records}
    if len(runs) > 1:
        first, last = records[0].started, records[-1].started
        notes.append(
            f"Cells come from {len(runs)} runs, {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} "
            "UTC; --run ID shows one."
        )
    notes += _notes_on_pauses(records)
    notes += _notes_on_sides(records)
    for run in results.contests:
        if run.id in runs:
            notes.append(
                f"{run.id}: {run.launches} launches of each cell, up to {run.launches_most} where "
                "the fastest of the column was undecided (--interval fastest)."
            )
    if results.comparisons:
        hidden = counted(len(results.comparisons), "run")
        notes.append(
            f"Not shown: {hidden} of two builds (compare, gate) or of a search (tune); --run "
            f"{max(results.comparisons)} shows one."
        )
    return notes


def _notes_on_variables(records: Sequence[Record]) -> list[str]:
    """Return a line for each set of environment variables that cells were launched with (--env)."""
    launched = {record.cell: record for record in records if record.environment}
    by_variables = grouped(launched.values(), lambda record: variables_in_words(record.variables))
    notes = []
    for words, launches in by_variables.items():
        if not launches[0].variables:
            continue
        cells = "all cells"
        if len(launches) < len(launched):
            rows = dict.fromkeys(row_name(record.cell) for record in launches)
            cells = f"{len(launches)} of {len(launched)} cells ({listed(list(rows))})"
        notes.append(f"Launched with {words} (--env): {cells}.")
    return notes


def _notes_on_pauses(records: Sequence[Record]) -> list[str]:
    """Return a line on the longest pause of each run that paused; records are by time."""
    notes = []
    for run, launches in grouped(records, lambda record: record.run).items():
        times = [record.started for record in launches]
        begin, end = max(pairwise(times), key=_length, default=(times[0], times[0]))
        if end - begin > _PAUSE:
            notes.append(
                f"{run}: no launch from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; the "
                "machine may have been faster or slower before than after, and a cell's launches "
                "may lie on both sides."
            )
    return notes


def _length(pause: tuple[datetime, datetime]) -> timedelta:
    begin, end = pause
    return end - begin


def _notes_on_sides(records: Iterable[Record]) -> list[str]:
    """Return a line on each run of a comparison, or of a search, that is shown."""
    runs = {(record.run, record.side != SEARCH) for record in records if record.side}
    notes = []
    for run, is_comparison in sorted(runs):
        if is_comparison:
            notes.append(
                f"{run}: a comparison of two builds; the candidate is shown, the baseline is not."
            )
        else:
            notes.append(
                f"{run}: a search for the fastest (tune), which launched fast cells more often "
                "than others."
            )
    return notes


def assemble(
    cells: Iterable[CellResult], hosts: Mapping[str, Host], notes: Iterable[str] = ()
) -> Matrix:
    """Put cells side by side in a settled order, and mark the best of each column and work."""
    by_place = {cell.place: cell for cell in cells}
    all_hosts = dict(hosts)
    for place in by_place:
        all_hosts.setdefault(place.machine, Host(place.machine, place.machine[:12]))
    machines = list(all_hosts)

    def order(column: Place) -> tuple[object, ...]:
        """Order devices of a machine by their numbers, and threads within everything else."""
        others = axes.sort_key(axes.without(column.cell, "device", "threads"))
        device = (not column.on_cpu, by_numbers(column.device))
        return machines.index(column.machine), device, others, column.threads or 0

    columns = sorted({cell.column for cell in by_place.values()}, key=order)
    works = grouped(by_place.values(), lambda cell: cell.work)
    rows: dict[WorkKey, tuple[RowKey, ...]] = {}
    ordered: dict[Place, CellResult] = {}
    for work in sorted(works, key=_work_order):
        rows[work] = tuple(sorted({cell.row for cell in works[work]}, key=row_order))
        peers_of_column: dict[Place, list[CellResult]] = {}
        for row in rows[work]:
            for column in columns:
                place = _place(work, row, column)
                if place in by_place:
                    ordered[place] = by_place[place]
                    peers_of_column.setdefault(column, []).append(by_place[place])
        for peers in peers_of_column.values():
            for cell in _compare_peers(peers):
                ordered[cell.place] = cell
    used = {column.machine for column in columns}
    return Matrix(
        hosts={machine: host for machine, host in all_hosts.items() if machine in used},
        columns=tuple(columns),
        rows=rows,
        cells=ordered,
        notes=tuple(dict.fromkeys([*notes, *_notes_on_names(rows)])),
    )


def _work_order(work: WorkKey) -> tuple[object, ...]:
    """Order works by network, then by mini-batch."""
    return in_order(work.network), axes.order_of(work.batch_size), axes.sort_key(work)


def _compare_peers(peers: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells of a column and work with their break-even, the best of them marked."""
    cells = _with_break_even(peers)
    best = {id(cell) for cell in _fastest(cells)}
    compared = []
    for cell in cells:
        if id(cell) in best:
            cell = replace(cell, best=True)
        compared.append(cell)
    return compared


def _with_break_even(peers: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells with their break-even against their framework's mode that starts first."""
    result = []
    for modes in grouped(peers, lambda cell: cell.row.framework).values():
        started = [cell for cell in fair(modes) if "start" in cell.measured]
        started.sort(key=lambda cell: cell.measured["start"].median)
        later = {id(cell) for cell in started[1:]}
        for cell in modes:
            if id(cell) in later:
                cell = replace(cell, break_even=_break_even(cell, started[0]))
            result.append(cell)
    return result


def _break_even(later: CellResult, first: CellResult) -> BreakEven:
    assert later.seconds is not None
    assert first.seconds is not None
    return break_even(
        later.measured["start"], later.seconds, first.measured["start"], first.seconds
    )


def _fastest(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return the fastest cell and those within noise of it; empty if there is no choice."""
    pool = in_the_running(cells)
    if not pool or len(cells) < 2:
        return []
    _, least = pool[0]
    return [cell for cell, seconds in pool if not clearly_slower(seconds, least)]


def _notes_on_names(works: Iterable[WorkKey]) -> list[str]:
    """Return a line for each name that stands for several networks."""
    networks = dict.fromkeys((work.network, work.specification) for work in works)
    notes = []
    for name, namesakes in grouped(networks, lambda network: network[0]).items():
        if len(namesakes) > 1:
            digests = [digest or "as first shipped" for _, digest in namesakes]
            notes.append(
                f"{name} is the name of {len(namesakes)} networks with different numbers, shown "
                f"separately in this order: {', '.join(digests)}"
            )
    return notes


def not_compared(matrix: Matrix) -> list[CellResult]:
    """Return the cells that are not compared with the others at their place."""
    others = []
    cells_by_place = grouped(matrix.cells.values(), lambda cell: (cell.column, cell.work))
    for cells in cells_by_place.values():
        compared = {cell.cell for cell, _ in in_the_running(cells)}
        others += [cell for cell in cells if cell.cell not in compared]
    return others
