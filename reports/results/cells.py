"""Cells: launches of one machine and one cell as one result, put side by side as a matrix.

`build_matrix` makes cells from records; `assemble` puts cells of any origin (records of several
machines, a published table) side by side: groups and under them rows down, columns across, one
block of columns for each machine.

The store decides which records count (`Results.newest`): for each cell on each machine those of the
newest run that measured it, with one environment. A run that only skipped a cell does not displace
one that measured it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Generic, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.protocol import LEAST_SAMPLE_NS, Cell, Outcome, Parity, Status
from dlbench.reports.results.flags import (
    CEILING_SLACK,
    FEW_LAUNCHES,
    LOSS_NOT_FINITE,
    MEMORY_STATES,
    NEAR_PEAK,
    OTHER_ENVIRONMENT,
    OVER_CEILING,
    PARITY,
    PARITY_UNCHECKED,
    THREADS_EXCEEDED,
    Flag,
    FlagKind,
    cell_flags,
    failed_launches,
    memory_states,
    product_rate,
    record_flags,
)
from dlbench.reports.results.gpu_evidence import DeviceObserved, observe_device
from dlbench.reports.results.hosts import Host, name_among
from dlbench.reports.results.keys import Place, column_of, group_of, grouped, row_of, row_order
from dlbench.reports.results.memory_evidence import MemoryObserved, observe_memory
from dlbench.reports.results.naming import counted, listed, row_name, variables_in_words
from dlbench.reports.results.networks import by_numbers, family_of_record, in_order
from dlbench.reports.results.quantities import SECONDS, measure, why_no_joules, why_no_latency
from dlbench.reports.results.record import BASELINE, IMPORTED, SEARCH, Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.rounds import seconds_in_turns
from dlbench.reports.results.side_by_side import side_by_side
from dlbench.reports.results.statistics import (
    ENOUGH_LAUNCHES,
    BreakEven,
    Summary,
    break_even,
    clearly_slower,
    ratio,
    summarise,
    with_common_spread,
)
from dlbench.reports.results.thread_evidence import Observed, observe

Row = TypeVar("Row")

TOO_SHORT = (
    f"its samples are too short for the clock (0, or less than {LEAST_SAMPLE_NS} ns). Let a sample "
    "hold more calls."
)
_PAUSE = timedelta(hours=1)
"""A run without a launch for longer has paused, and the machine may have changed meanwhile."""


@dataclass(frozen=True)
class CellResult:
    """One cell on one machine: a number with its evidence, or the reason why there is none."""

    machine: str
    cell: Cell
    """All axes, without the adapter's folder."""
    status: Status
    reason: str
    seconds: Summary | None = None
    """Per mini-batch; kept for a cell that failed parity too, where it is not shown as a number."""
    items_per_second: float | None = None
    """Examples; for the recurrent networks sequences. None where the mini-batch size is not
    known."""
    gflops: float | None = None
    """10^9 floating-point operations per second, by `Family.flops`."""
    ceiling_fraction: float | None = None
    """Of the machine's measured matrix-product rate at no more than this many threads."""
    parity: Parity | None = None
    """Of the newest launch, or of the first that disagrees."""
    observed: Observed | None = None
    device_observed: DeviceObserved | None = None
    """None on the CPU."""
    memory_observed: MemoryObserved | None = None
    """None where no launch counted page faults."""
    flags: tuple[Flag, ...] = ()
    best: bool = False
    """Among the fastest of its column within its group: none is faster by more than noise may
    explain."""
    run: str = ""
    environment: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the user gave its launches (--env)."""
    interpreter: str = ""
    first_step_seconds: float | None = None
    """Median over launches; compilation included."""
    peak_memory_bytes: int | None = None
    """The largest of any launch."""
    default_threads: int | None = None
    """The framework's own thread count where none is set, if its adapter reports it."""
    cold_start: bool = False
    """Whether each launch had to compile anew what an earlier one had compiled."""
    measured: Mapping[str, Summary] = field(default_factory=dict)
    """Quantities that are measured once in a launch, by name (`quantities`)."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Why those are not known of which the launches say it."""
    break_even: BreakEven | None = None
    """Against the mode of its framework whose first step ends first there; None for that one."""

    @property
    def group(self) -> Cell:
        """The axes of its work."""
        return group_of(self.cell)

    @property
    def row(self) -> Cell:
        """The axes of its framework, mode and settings."""
        return row_of(self.cell)

    @property
    def column(self) -> Place:
        """Its machine, device, threads and workers."""
        return column_of(self.machine, self.cell)

    @property
    def timed(self) -> Summary | None:
        """Seconds per mini-batch where they are those of the right mathematics, else None."""
        wrong = self.has(PARITY) or self.has(LOSS_NOT_FINITE)
        return self.seconds if self.status is Status.OK and not wrong else None

    @property
    def shown(self) -> bool:
        """Whether a table shows its number, right or wrong, rather than why there is none."""
        return self.status is Status.OK and self.seconds is not None

    def has(self, kind: FlagKind) -> bool:
        """Tell whether a flag of this kind was raised."""
        return any(flag.kind is kind for flag in self.flags)


@dataclass(frozen=True)
class Matrix:
    """Cells with their places in a table; a place without a cell was not measured."""

    hosts: dict[str, Host] = field(default_factory=dict)
    """The machines that have columns, in order."""
    columns: tuple[Place, ...] = ()
    """Those of one machine stand together."""
    rows: dict[Cell, tuple[Cell, ...]] = field(default_factory=dict)
    cells: dict[Place, CellResult] = field(default_factory=dict)
    """By machine and cell, in the order of the table."""
    notes: tuple[str, ...] = ()
    quantity: str = SECONDS
    """The quantity that the cells' `seconds` are; another one in what `quantities.in_quantity`
    returns alone."""

    def at(self, group: Cell, row: Cell, column: Place) -> CellResult | None:
        """Return the cell of this group, row and column."""
        return self.cells.get(_place(group, row, column))

    def columns_of(self, machine: str) -> tuple[Place, ...]:
        """Return the columns of one machine."""
        return tuple(column for column in self.columns if column.machine == machine)

    @property
    def machines(self) -> tuple[str, ...]:
        """The fingerprints of the machines, in order."""
        return tuple(self.hosts)


def _place(group: Cell, row: Cell, column: Place) -> Place:
    role = {axes.GROUP: group, axes.ROW: row, axes.COLUMN: column.cell}
    return Place(
        column.machine,
        axes.BLANK._replace(**{a.name: getattr(role[a.role], a.name) for a in axes.AXES}),
    )


@dataclass(frozen=True)
class Compared(Generic[Row]):
    """A matrix, and what was compared in it."""

    matrix: Matrix
    rows: tuple[Row, ...]

    def __bool__(self) -> bool:
        return bool(self.rows)

    def name(self, machine: str) -> str:
        """Return the name of a machine, unique among those of the matrix."""
        return name_among(self.matrix.hosts, machine)


def build_matrix(results: Results) -> Matrix:
    """Return the matrix of these results, which hold no more than the records that count
    (`Results.newest`).
    """
    counting = [record for record in last_attempts(results.records) if record.side != BASELINE]
    counting.sort(key=lambda record: record.started)
    of_cell = grouped(counting, lambda record: Place(record.machine, record.cell))
    ceiling = _ceilings(results)
    ran = [records[-1] for records in of_cell.values() if records[-1].environment]
    newest = {
        row: max(of_row, key=lambda record: record.started)
        for row, of_row in grouped(
            ran, lambda record: (record.machine, row_of(record.cell))
        ).items()
    }
    in_turns = _seconds_in_turns(counting)
    cells = []
    for place, records in of_cell.items():
        made = _cell(records, results.hosts.get(place.machine), ceiling(place), in_turns)
        cells.append(
            _flag_older_environment(
                made, records[-1], newest.get((place.machine, row_of(place.cell)))
            )
        )
    cells = _with_common_spread(_put_side_by_side(cells, counting, in_turns))
    return assemble(cells, results.hosts, _notes(results, counting))


InTurns = Mapping[tuple[str, str, Cell], float]
"""Seconds of a step of launches that took turns, by run, group and cell."""


def _in_a_group(record: Record) -> tuple[str, str, Cell]:
    return record.run, record.group, record.cell


def _was_timed(record: Record) -> bool:
    return record.outcome.was_timed() and record.outcome.status in (Status.OK, Status.PARITY_FAILED)


def _seconds_in_turns(records: Sequence[Record]) -> InTurns:
    found: dict[tuple[str, str, Cell], float] = {}
    timed = [
        record for record in records if record.group and record.outcome.turns and _was_timed(record)
    ]
    for of_group in grouped(timed, lambda record: (record.run, record.group)).values():
        seconds = seconds_in_turns([record.outcome for record in of_group])
        found |= zip(map(_in_a_group, of_group), seconds, strict=True)
    return found


def _put_side_by_side(
    cells: Sequence[CellResult], records: Sequence[Record], in_turns: InTurns
) -> list[CellResult]:
    """Return the cells with what the groups of their launches say about their ratios, machine by
    machine.
    """
    machine_of = {record.run: record.machine for record in records}
    places = [Place(cell.machine, cell.cell) for cell in cells]
    groups: dict[tuple[str, str], dict[Place, float]] = {}
    for (run, group, cell), seconds in in_turns.items():
        place = Place(machine_of[run], axes.project(cell, axes.NAMES))
        groups.setdefault((run, group), {})[place] = seconds
    found = list(cells)
    works = grouped(range(len(cells)), lambda number: (cells[number].machine, cells[number].group))
    for of_work in works.values():
        wanted = [number for number in of_work if cells[number].seconds is not None]
        number_of = {places[number]: index for index, number in enumerate(wanted)}
        shared = [
            {number_of[place]: seconds for place, seconds in group.items() if place in number_of}
            for group in groups.values()
        ]
        known = side_by_side(shared, len(wanted))
        if known is None:
            continue
        for index, number in enumerate(wanted):
            summary = cells[number].seconds
            assert summary is not None
            found[number] = replace(
                cells[number], seconds=replace(summary, beside=known, place=index)
            )
    return found


def _flag_older_environment(cell: CellResult, record: Record, newest: Record | None) -> CellResult:
    if newest is None or cell.environment in ("", newest.environment):
        return cell
    if dict(cell.variables) != newest.variables:
        before, now = variables_in_words(cell.variables), variables_in_words(newest.variables)
        return replace(
            cell,
            flags=(
                *cell.flags,
                Flag(OTHER_ENVIRONMENT, f"--env: {before}, the row's newest: {now}"),
            ),
        )
    sentence = f"environment {cell.environment[:12]}, the row's newest is {newest.environment[:12]}"
    version = record.outcome.software.get("version")
    if version and version == newest.outcome.software.get("version"):
        sentence += f": two builds of version {version}"
    return replace(cell, flags=(*cell.flags, Flag(OTHER_ENVIRONMENT, sentence)))


def _with_common_spread(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells with what the cells of their machine say together about launches."""
    found: list[CellResult] = []
    for of_machine in grouped(cells, lambda cell: cell.machine).values():
        summaries = iter(
            with_common_spread([cell.seconds for cell in of_machine if cell.seconds is not None])
        )
        found += [
            cell if cell.seconds is None else _with_seconds(cell, next(summaries))
            for cell in of_machine
        ]
    return found


def _with_seconds(cell: CellResult, seconds: Summary) -> CellResult:
    """Return a cell with its final time, without the flag of few launches where the interval covers
    them.
    """
    kept = tuple(
        flag for flag in cell.flags if flag.kind is not FEW_LAUNCHES or not seconds.covers_launches
    )
    return replace(cell, seconds=seconds, flags=kept)


def _notes(results: Results, records: Sequence[Record]) -> list[str]:
    notes = [
        (
            f"{name}: cells were measured with several environments (builds, or variables of "
            "--env); only the newest of each cell is shown."
        )
        for name in sorted(results.displaced)
    ]
    notes += _notes_on_variables(records)
    runs = {record.run for record in records}
    if len(runs) > 1:
        times = sorted(record.started for record in records)
        first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in (times[0], times[-1]))
        notes.append(
            f"Cells come from {len(runs)} runs, {first} to {last} UTC; --run ID shows one."
        )
    for run, of_run in grouped(records, lambda record: record.run).items():
        pauses = [
            (a.started, b.started) for a, b in pairwise(of_run) if b.started - a.started > _PAUSE
        ]
        if pauses:
            begin, end = max(pauses, key=lambda pause: pause[1] - pause[0])
            notes.append(
                f"{run}: no launch from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; the "
                "machine may have been faster or slower before than after, and a cell's launches "
                "may lie on both sides."
            )
    notes += [
        f"{run}: a comparison of two builds; the candidate is shown, the baseline is not."
        if of_two
        else (
            f"{run}: a search for the fastest (tune), which launched fast cells more often than "
            "others."
        )
        for run, of_two in sorted(
            {(record.run, record.side != SEARCH) for record in records if record.side}
        )
    ]
    notes += [
        (
            f"{run.id}: {run.launches} launches of each cell, up to {run.launches_most} where the "
            "fastest of the column was undecided (--interval fastest)."
        )
        for run in results.contests
        if run.id in runs
    ]
    if results.comparisons:
        runs_of = counted(len(results.comparisons), "run")
        notes.append(
            f"Not shown: {runs_of} of two builds (compare, gate) or of a search (tune); --run "
            f"{max(results.comparisons)} shows one."
        )
    return notes


def _notes_on_variables(records: Sequence[Record]) -> list[str]:
    """Return a line for each set of environment variables that cells were launched with (--env)."""
    launched = {record.cell: record for record in records if record.environment}
    by_variables = grouped(launched.values(), lambda record: variables_in_words(record.variables))
    notes = []
    for words, those in by_variables.items():
        if not those[0].variables:
            continue
        rows = listed(list(dict.fromkeys(row_name(record.cell) for record in those)))
        which = (
            "all cells"
            if len(those) == len(launched)
            else f"{len(those)} of {len(launched)} cells ({rows})"
        )
        notes.append(f"Launched with {words} (--env): {which}.")
    return notes


def assemble(
    cells: Iterable[CellResult], hosts: Mapping[str, Host], notes: Iterable[str] = ()
) -> Matrix:
    """Put cells side by side, in a settled order, and mark the best of each column within each
    group.
    """
    by_place = {Place(cell.machine, cell.cell): cell for cell in cells}
    known = {
        name: hosts.get(name) or Host(name, name[:12])
        for name in [*hosts, *(p.machine for p in by_place)]
    }
    machines = list(known)
    columns = sorted(
        {c.column for c in by_place.values()},
        key=lambda c: (machines.index(c.machine), _device_order(c)),
    )
    groups = {cell.group for cell in by_place.values()}
    rows: dict[Cell, tuple[Cell, ...]] = {}
    ordered: dict[Place, CellResult] = {}
    for group in sorted(
        groups,
        key=lambda group: (
            in_order(group.network),
            axes.order_of(group.batch_size),
            axes.sort_key(group),
        ),
    ):
        rows[group] = tuple(
            sorted({cell.row for cell in by_place.values() if cell.group == group}, key=row_order)
        )
        places = [_place(group, row, column) for row in rows[group] for column in columns]
        ordered |= {place: by_place[place] for place in places if place in by_place}
        for column in columns:
            found = [
                ordered[p] for row in rows[group] if (p := _place(group, row, column)) in ordered
            ]
            peers = _with_break_even(found)
            ordered |= {Place(cell.machine, cell.cell): cell for cell in peers}
            ordered |= {
                Place(cell.machine, cell.cell): replace(cell, best=True) for cell in _fastest(peers)
            }
    used = {column.machine for column in columns}
    used_hosts = {name: host for name, host in known.items() if name in used}
    return Matrix(
        used_hosts,
        tuple(columns),
        rows,
        ordered,
        tuple(dict.fromkeys([*notes, *_of_one_name(rows)])),
    )


def _with_break_even(peers: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells of a column and group, those of a framework with several modes with their
    break-even.
    """
    found = []
    for of_framework in grouped(peers, lambda cell: cell.row.framework).values():
        fair_ones = fair(of_framework)
        started = {id(cell): start for cell in fair_ones if (start := cell.measured.get("start"))}
        first = min(
            of_framework,
            key=lambda cell: started[id(cell)].median if id(cell) in started else math.inf,
        )
        for cell in of_framework:
            start, other = started.get(id(cell)), started.get(id(first))
            if cell is not first and start and other and cell.seconds and first.seconds:
                cell = replace(
                    cell, break_even=break_even(start, cell.seconds, other, first.seconds)
                )
            found.append(cell)
    return found


def _of_one_name(groups: Iterable[Cell]) -> list[str]:
    """Return a line for each name that stands for several networks here."""
    networks = dict.fromkeys((group.network, group.specification) for group in groups)
    return [
        (
            f"{name} is the name of {len(several)} networks with different numbers, shown "
            "separately in this order: "
        )
        + ", ".join(digest or "as first shipped" for _, digest in several)
        for name, several in grouped(networks, lambda network: network[0]).items()
        if len(several) > 1
    ]


def _device_order(column: Place) -> tuple[object, ...]:
    """Order devices by their numbers, and threads within everything else."""
    others = axes.sort_key(axes.without(column.cell, "device", "threads"))
    return not column.on_cpu, by_numbers(column.device), others, column.threads or 0


def fair(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells with a time that may be compared: none that used more threads than asked, or
    is doubtful.
    """
    unfair = (THREADS_EXCEEDED, NEAR_PEAK)
    return [cell for cell in cells if cell.timed is not None and not any(map(cell.has, unfair))]


def in_the_running(cells: Iterable[CellResult]) -> list[tuple[CellResult, Summary]]:
    """Return the cells of a column that may be its fastest, each with its time, the fastest first.

    They are fair, and cells without a parity check are among them only if none has one. Cells that
    took turns are in the order of their ratios: their seconds are known less precisely.
    """
    timed = [(cell, cell.timed) for cell in fair(cells) if cell.timed is not None]
    pool = [pair for pair in timed if not pair[0].has(PARITY_UNCHECKED)] or timed
    if not pool:
        return []
    _, least = min(pool, key=lambda pair: pair[1].median)
    return sorted(pool, key=lambda pair: ratio(pair[1], least).value)


def _fastest(cells: list[CellResult]) -> list[CellResult]:
    """Return the fastest cell and those within noise of it; empty if there is nothing to choose
    from.
    """
    pool = in_the_running(cells)
    if not pool or len(cells) < 2:
        return []
    _, least = pool[0]
    return [cell for cell, timed in pool if not clearly_slower(timed, least)]


def _ceilings(results: Results) -> Callable[[Place], float | None]:
    """Return the ceiling in FLOP/s by cell: the highest matrix-product rate on its machine at no
    more threads.
    """
    # The frameworks' own products: (machine, device, precision) -> threads and FLOP/s. One that
    # used more threads than it was asked to says nothing about that number of threads.
    products = {where: list(rates) for where, rates in results.products.items()}
    for record in results.records:
        if rate := product_rate(record, results.hosts.get(record.machine)):
            where = record.machine, record.cell.device, record.cell.precision
            products.setdefault(where, []).append((record.cell.threads, rate))

    def ceiling(place: Place) -> float | None:
        machine, cell = place
        # A framework's own product is one worker's. On the CPU the workers beyond those that fit
        # add nothing.
        workers, threads = cell.world_size, cell.threads
        host = results.hosts.get(machine)
        if cell.on_cpu and host is not None and host.effective_cpus:
            # No more threads than the quota's CPUs can be at work; without a count there may be as
            # many.
            cpus = min(host.effective_cpus, math.ceil(cell.cpu_quota) or host.effective_cpus)
            threads = min(threads or cpus, cpus) if cell.cpu_quota or not threads else threads
            workers = min(workers, max(1, host.effective_cpus // max(1, cell.threads)))
        own = products.get((machine, cell.device, cell.precision), [])
        rates = [rate * workers for count, rate in own if not cell.on_cpu or count <= threads]
        if cell.on_cpu and cell.precision == "float32" and machine in results.ceilings:
            rates.append(
                results.ceilings[machine].gemm_flops_per_second(threads * cell.world_size) or 0.0
            )
        return max(rates, default=0.0) or None

    return ceiling


def _cell(
    records: list[Record], host: Host | None, ceiling: float | None, in_turns: InTurns
) -> CellResult:
    """Return the cell that these records of one cell, machine and environment make; the newest is
    last.
    """
    newest = records[-1]
    cell = newest.cell
    status, reason = _status(records)
    timed = [record for record in records if _was_timed(record)]
    place = CellResult(
        machine=newest.machine,
        cell=axes.project(cell, axes.NAMES),
        status=status,
        reason=reason,
        run=newest.run,
        environment=newest.environment,
        variables=newest.variables,
        interpreter=newest.interpreter,
    )
    if not timed or status is Status.IMPLAUSIBLE:
        return place
    if any(record.outcome.too_short() for record in timed):
        return replace(place, reason=TOO_SHORT)
    outcomes = [record.outcome for record in timed]
    without_samples = [outcome.statistics for outcome in outcomes if outcome.statistics is not None]
    of_turns = [in_turns.get(_in_a_group(record)) for record in timed]
    summary = summarise([each.step_seconds() for each in outcomes], without_samples, of_turns)
    measured = measure(outcomes)
    family = family_of_record(newest)
    gflops = items_per_second = None
    if cell.batch_size is not None:
        items_per_second = cell.batch_size / summary.median
        # A framework that computes nothing has no parameters, and no outputs.
        if family is not None and any(
            outcome.parameter_count or _gave_outputs(outcome) for outcome in outcomes
        ):
            gflops = family.flops(cell.batch_size, cell.infers) / summary.median * 1e-9
    fraction = gflops * 1e9 / ceiling if gflops is not None and ceiling else None
    flags = cell_flags([record_flags(record, host) for record in timed])
    if cell.on_cpu and all(flag.kind is not MEMORY_STATES for flag in flags):
        flags += memory_states(timed)
    if fraction is not None and fraction > CEILING_SLACK:
        flags.append(Flag(OVER_CEILING, f"{fraction:.0%} of the measured ceiling"))
    flags += failed_launches([record for record in records if record not in timed], len(records))
    if len(timed) < ENOUGH_LAUNCHES:
        flags.append(Flag(FEW_LAUNCHES, counted(len(timed), "launch", "launches")))
    parities = [each.parity for each in outcomes if each.parity is not None]
    default = outcomes[-1].software.get("default_threads")
    firsts = [each.first_step_seconds for each in outcomes if each.first_step_seconds is not None]
    return replace(
        place,
        seconds=summary,
        items_per_second=items_per_second,
        gflops=gflops,
        ceiling_fraction=fraction,
        parity=next(
            (each for each in parities if each.verdict == "disagrees"),
            parities[-1] if parities else None,
        ),
        observed=observe(outcomes),
        device_observed=observe_device(timed),
        memory_observed=observe_memory(outcomes),
        flags=tuple(flags),
        first_step_seconds=median(firsts) if firsts else None,
        default_threads=default if isinstance(default, int) else None,
        peak_memory_bytes=max(each.peak_memory_bytes or 0 for each in outcomes) or None,
        cold_start=all(each.software.get("cold_start") is True for each in outcomes),
        measured=measured,
        unmeasured=_unmeasured(newest, outcomes[-1], measured),
    )


def _gave_outputs(outcome: Outcome) -> bool:
    return outcome.parity is not None and outcome.parity.output_error is not None


def _unmeasured(
    record: Record, outcome: Outcome, measured: Mapping[str, Summary]
) -> dict[str, str]:
    """Return why quantities are not known; nothing of a benchmark that another program measured."""
    found: dict[str, str] = {}
    if record.cell.adapter == IMPORTED:
        return found
    if "cpu_joules" not in measured:
        found["cpu_joules"] = why_no_joules(outcome)
    if record.cell.infers and "p99" not in measured:
        found["p99"] = why_no_latency(outcome)
    return found


def _status(records: list[Record]) -> tuple[Status, str]:
    """Return the status of a cell: untrustworthy results outweigh everything, else one good launch
    makes a number.
    """
    for wanted in (Status.IMPLAUSIBLE, Status.PARITY_FAILED, Status.OK):
        found = [record for record in records if record.outcome.status is wanted]
        if found:
            outcome = found[-1].outcome
            of_parity = (
                outcome.parity.reason if outcome.parity and wanted is Status.PARITY_FAILED else ""
            )
            return wanted, outcome.reason or of_parity
    return records[-1].outcome.status, records[-1].outcome.reason


def fastest_mode(cells: Sequence[CellResult]) -> CellResult:
    """Return the fastest of a framework's modes at one place; ``cells`` must not be empty.

    A cell that used more threads than asked, or has no parity check, is returned only if no other
    has a number; without any number, a launched cell is preferred.
    """
    timed = [cell for cell in cells if cell.timed is not None]
    if not timed:
        return min(cells, key=lambda cell: (cell.status is Status.SKIPPED, cell.row))

    def rank(cell: CellResult) -> tuple[bool, bool, float]:
        median = cell.timed.median if cell.timed else 0.0
        return cell.has(THREADS_EXCEEDED), cell.has(PARITY_UNCHECKED), median

    return min(timed, key=rank)
