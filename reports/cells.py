"""Cells: launches of one machine and one cell as one result, put side by side as a matrix.

`build_matrix` makes cells from records; `assemble` puts cells of any origin (records of several machines, a published
table) side by side: groups and under them rows down, columns across, one block of columns for each machine.

Which records count is decided by the store (`Results.newest`): for each cell on each machine those of the newest run
that measured it, with one environment. A run that only skipped a cell does not displace one that measured it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from statistics import median
from typing import Any, NamedTuple, NewType

from packaging.version import InvalidVersion, Version

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Parity, Status
from dlbench.reports.flags import (
    CEILING_SLACK,
    LOSS_NOT_FINITE,
    NEAR_PEAK,
    OTHER_ENVIRONMENT,
    OVER_CEILING,
    PARITY,
    PARITY_UNCHECKED,
    THREADS_EXCEEDED,
    Flag,
    FlagKind,
    Observed,
    cell_flags,
    failed_launches,
    few_launches,
    observe,
    product_rate,
    record_flags,
)
from dlbench.reports.gpu_evidence import DeviceObserved, observe_device
from dlbench.reports.statistics import Summary, clearly_slower, deviation_of_launches, summarise
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import family_of_record, in_order
from dlbench.reports.storage.record import BASELINE, SEARCH, Record, last_attempts
from dlbench.reports.storage.results import Results, untunable

Group = NewType("Group", Cell)
"""A block of rows whose numbers may be compared: the same work, one network at one mini-batch."""
Row = NewType("Row", Cell)
"""One row of a group: a framework in a mode, a way to do the work."""

NO_THREADS = -1
"""The thread count of a device that has no threads to choose (a published GPU column)."""


class Place(NamedTuple):
    """A machine, and the axes that its cells have in common; the others are blank."""

    machine: str
    cell: Cell

    @property
    def device(self) -> str:
        """The device that computes."""
        return self.cell.device

    @property
    def threads(self) -> int | None:
        """Intra-op threads; 0: the framework's own number; None: the device has none to choose."""
        return None if self.cell.threads == NO_THREADS else self.cell.threads

    @property
    def world_size(self) -> int:
        """Workers, each on a device like this one or with so many threads."""
        return self.cell.world_size

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.cell.on_cpu


Column = Place
"""A column of the matrix; columns of one machine stand together."""


@lru_cache(20_000)
def group_of(cell: Cell) -> Group:
    """Return the group that a cell stands in."""
    return Group(axes.project(cell, [axis.name for axis in axes.of_role(axes.GROUP)]))


@lru_cache(20_000)
def row_of(cell: Cell) -> Row:
    """Return the row that a cell stands in."""
    return Row(axes.project(cell, [axis.name for axis in axes.of_role(axes.ROW)]))


@lru_cache(20_000)
def column_of(machine: str, cell: Cell) -> Column:
    """Return the column that a cell of this machine stands in."""
    return Place(machine, axes.project(cell, [axis.name for axis in axes.of_role(axes.COLUMN)]))


def group_at(network: str, batch_size: int, **others: Any) -> Group:
    """Return the group of these values; axes that are not given have their usual value."""
    return Group(axes.BLANK._replace(network=network, batch_size=batch_size, **others))


def row_at(framework: str, mode: str, **others: Any) -> Row:
    """Return the row of these values; axes that are not given have their usual value."""
    return Row(axes.BLANK._replace(framework=framework, mode=mode, **others))


def column_at(machine: str, device: str, threads: int | None, **others: Any) -> Column:
    """Return the column of these values; axes that are not given have their usual value."""
    given = NO_THREADS if threads is None else threads
    return Place(machine, axes.BLANK._replace(device=device, threads=given, **others))


def cell_at(group: Group, row: Row, column: Column) -> Cell:
    """Return the cell that stands there, without its adapter's folder."""
    holders = {axes.GROUP: group, axes.ROW: row, axes.COLUMN: column.cell}
    return axes.BLANK._replace(**{axis.name: getattr(holders[axis.role], axis.name) for axis in axes.AXES})


def values(cell: Cell, *left_out: str) -> dict[str, Any]:
    """Return the axes by name, as JSON and CSV have them: threads are None where the device has none to choose."""
    found = {name: value for name, value in axes.values(cell).items() if name not in left_out}
    if found.get("threads") == NO_THREADS:
        found["threads"] = None
    return found


def differ(cells: Iterable[Cell], *names: str) -> bool:
    """Tell whether some of these cells differ in these axes and in no other."""
    found: dict[Cell, set[Cell]] = {}
    for cell in cells:
        found.setdefault(axes.without(cell, *names), set()).add(axes.project(cell, names))
    return any(len(each) > 1 for each in found.values())


@dataclass(frozen=True)
class CellResult:
    """One cell on one machine: a number with its evidence, or the reason why there is none."""

    machine: str
    """The machine's fingerprint."""
    cell: Cell
    """All axes, without the adapter's folder."""
    status: Status
    reason: str
    seconds: Summary | None = None
    """Per mini-batch; kept for a cell that failed parity too, where it is not shown as a number."""
    items_per_second: float | None = None
    """Examples; for the recurrent networks sequences."""
    gflops: float | None = None
    """10^9 floating-point operations per second, by `Family.training_flops`."""
    ceiling_fraction: float | None = None
    """Of the machine's measured matrix-product rate at no more than this many threads."""
    parity: Parity | None = None
    """Of the newest launch, or of the first that disagrees."""
    observed: Observed | None = None
    device_observed: DeviceObserved | None = None
    """None on the CPU."""
    flags: tuple[Flag, ...] = ()
    best: bool = False
    """Among the fastest of its column within its group: none is faster by more than noise may explain."""
    run: str = ""
    environment: str = ""
    interpreter: str = ""
    first_step_seconds: float | None = None
    """Median over launches; compilation included."""
    peak_memory_bytes: int | None = None
    """The largest of any launch."""
    default_threads: int | None = None
    """The framework's own thread count where none is set, if its adapter reports it."""

    @property
    def group(self) -> Group:
        """Its work."""
        return group_of(self.cell)

    @property
    def row(self) -> Row:
        """Its way to do the work."""
        return row_of(self.cell)

    @property
    def column(self) -> Column:
        """Its machine, device and threads."""
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
    """Cells by where they stand; what is missing was not measured."""

    hosts: dict[str, Host] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    rows: dict[Group, tuple[Row, ...]] = field(default_factory=dict)
    cells: dict[tuple[Group, Row, Column], CellResult] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def columns_of(self, machine: str) -> tuple[Column, ...]:
        """Return the columns of one machine."""
        return tuple(column for column in self.columns if column.machine == machine)

    @property
    def machines(self) -> tuple[str, ...]:
        """The fingerprints of the machines that have columns, in order."""
        return tuple(dict.fromkeys(column.machine for column in self.columns))


def build_matrix(results: Results) -> Matrix:
    """Return the matrix of these results, which hold no more than the records that count (`Results.newest`)."""
    of_cell: dict[tuple[str, Cell], list[Record]] = {}
    for record in sorted(results.records, key=lambda record: record.started):
        if record.side != BASELINE:
            of_cell.setdefault((record.machine, record.cell), []).append(record)
    of_cell = {key: last_attempts(records) for key, records in of_cell.items()}
    ceilings = _Ceilings(results)
    newest: dict[tuple[str, Row], Record] = {}
    for (machine, cell), records in of_cell.items():
        key, last = (machine, row_of(cell)), records[-1]
        # Without an environment it never ran.
        if last.environment and (key not in newest or last.started > newest[key].started):
            newest[key] = last
    cells = []
    for (machine, _), records in of_cell.items():
        made = _cell(records, results.hosts.get(machine), ceilings)
        of_row = newest.get((machine, made.row))
        if of_row is not None and made.environment and made.environment != of_row.environment:
            sentence = f"environment {made.environment[:12]}, the row's newest is {of_row.environment[:12]}"
            version = records[-1].outcome.software.get("version")
            if version and version == of_row.outcome.software.get("version"):
                sentence += f": two builds of version {version}"
            made = replace(made, flags=(*made.flags, Flag(OTHER_ENVIRONMENT, sentence)))
        cells.append(made)
    cells = _with_deviations(cells)
    return assemble(cells, results.hosts, _notes(results, [each for found in of_cell.values() for each in found]))


def _with_deviations(cells: Sequence[CellResult]) -> list[CellResult]:
    """Return the cells, those with few launches with the deviation between launches that their machine shows."""
    of_machine: dict[str, list[Summary]] = {}
    for cell in cells:
        if cell.seconds is not None:
            of_machine.setdefault(cell.machine, []).append(cell.seconds)
    deviations = {machine: deviation_of_launches(summaries) for machine, summaries in of_machine.items()}
    return [
        cell
        if cell.seconds is None
        else replace(cell, seconds=replace(cell.seconds, launch_deviation=deviations[cell.machine]))
        for cell in cells
    ]


def _notes(results: Results, records: Sequence[Record]) -> list[str]:
    notes = [
        f"{name}: cells were measured with several environments (builds); only the newest of each cell is shown."
        for name in sorted(results.displaced)
    ]
    runs = {record.run for record in records}
    if len(runs) > 1:
        times = sorted(record.started for record in records)
        first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in (times[0], times[-1]))
        notes.append(f"Cells come from {len(runs)} runs, {first} to {last} UTC; --run ID shows one.")
    notes += [
        f"{run}: a comparison of two builds; the candidate is shown, the baseline is not."
        if of_two
        else f"{run}: a search for the fastest (tune), which launched fast cells more often than others."
        for run, of_two in sorted({(record.run, record.side != SEARCH) for record in records if record.side})
    ]
    if results.comparisons:
        runs_of = f"{len(results.comparisons)} run{'s' if len(results.comparisons) != 1 else ''}"
        notes.append(
            f"Not shown: {runs_of} of two builds (compare, gate) or of a search (tune); --run "
            f"{max(results.comparisons)} shows one."
        )
    return notes


def assemble(cells: Iterable[CellResult], hosts: Mapping[str, Host], notes: Iterable[str] = ()) -> Matrix:
    """Put cells side by side, in a settled order, and mark the best of each column within each group."""
    by_place = {(cell.group, cell.row, cell.column): cell for cell in cells}
    machines = {
        name: place for place, name in enumerate(dict.fromkeys([*hosts, *(key[2].machine for key in by_place)]))
    }
    columns = sorted({key[2] for key in by_place}, key=lambda c: (machines[c.machine], _device_order(c)))
    groups = sorted({key[0] for key in by_place}, key=lambda g: (in_order(g.network), g.batch_size, axes.sort_key(g)))
    rows = {group: tuple(sorted({row for of, row, _ in by_place if of == group})) for group in groups}
    for group in groups:
        for column in columns:
            for cell in _fastest([by_place[k] for row in rows[group] if (k := (group, row, column)) in by_place]):
                by_place[group, cell.row, column] = replace(cell, best=True)
    known = {name: hosts.get(name) or Host(name, name[:12]) for name in machines}
    used = {column.machine for column in columns}
    places = [(group, row, column) for group in groups for row in rows[group] for column in columns]
    ordered = {place: by_place[place] for place in places if place in by_place}
    lines = (*notes, *_of_one_name(groups))
    return Matrix(
        {n: h for n, h in known.items() if n in used}, tuple(columns), rows, ordered, tuple(dict.fromkeys(lines))
    )


def _of_one_name(groups: Sequence[Group]) -> list[str]:
    """Return a line for each name that stands for several networks here."""
    found: dict[str, list[str]] = {}
    for group in groups:
        digests = found.setdefault(group.network, [])
        if group.specification not in digests:
            digests.append(group.specification)
    return [
        f"{name} is the name of {len(digests)} networks with different numbers, shown separately in this order: "
        + ", ".join(digest or "as first shipped" for digest in digests)
        for name, digests in found.items()
        if len(digests) > 1
    ]


def _device_order(column: Column) -> tuple[object, ...]:
    """Order devices by their numbers, cuda:2 before cuda:10, and threads within everything else."""
    parts = [(int(part), "") if part.isdecimal() else (0, part) for part in column.device.split(":")]
    others = axes.sort_key(axes.without(column.cell, "device", "threads"))
    return not column.on_cpu, parts, others, column.threads or 0


def fair(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells with a time that may be compared: none that used more threads than asked, or is doubtful."""
    unfair = (THREADS_EXCEEDED, NEAR_PEAK)
    return [cell for cell in cells if cell.timed is not None and not any(map(cell.has, unfair))]


def in_the_running(cells: Iterable[CellResult]) -> list[tuple[CellResult, Summary]]:
    """Return the cells of a column that may be its fastest, each with its time.

    They are fair, and one that proved nothing about its mathematics is among them only where none did.
    """
    pool = [(cell, cell.timed) for cell in fair(cells) if cell.timed is not None]
    return [pair for pair in pool if not pair[0].has(PARITY_UNCHECKED)] or pool


def _fastest(cells: list[CellResult]) -> list[CellResult]:
    """Return the fastest cells, where there is a choice at all. Those within noise of it are as good."""
    pool = in_the_running(cells)
    if not pool or len(cells) < 2:
        return []
    least = min((timed for _, timed in pool), key=lambda timed: timed.median)
    return [cell for cell, timed in pool if not clearly_slower(timed, least)]


class _Ceilings:
    """The highest matrix-product rate seen on a machine at no more than so many threads."""

    def __init__(self, results: Results) -> None:
        self._measured = results.ceilings
        self._cpus = {name: host.effective_cpus for name, host in results.hosts.items()}
        # The frameworks' own products: (machine, device, precision) -> threads -> the highest FLOP/s. One that used
        # more threads than it was asked to says nothing about that number of threads.
        self._sentinels: dict[tuple[str, str, str], dict[int, float]] = {}
        for where, rates in results.products.items():
            for threads, rate in rates:
                self._saw(where, threads, rate)
        for record in results.records:
            if product := product_rate(record, results.hosts.get(record.machine)):
                where = record.machine, record.cell.device, record.cell.precision
                self._saw(where, record.cell.threads, product)

    def _saw(self, where: tuple[str, str, str], threads: int, rate: float) -> None:
        highest = self._sentinels.setdefault(where, {})
        highest[threads] = max(rate, highest.get(threads, 0.0))

    def rate(self, machine: str, cell: Cell) -> float | None:
        """Return the ceiling in FLOP/s for this cell; None where nothing was measured."""
        sentinels = self._sentinels.get((machine, cell.device, cell.precision), {})
        on_device = cell.device != "cpu"
        # A framework's own product is one worker's. On the CPU the workers beyond those that fit add nothing.
        workers = cell.world_size
        if not on_device and (cpus := self._cpus.get(machine)):
            workers = min(workers, max(1, int(cpus) // max(1, cell.threads)))
        rates = [rate * workers for threads, rate in sentinels.items() if on_device or threads <= cell.threads]
        if cell.device == "cpu" and cell.precision == "float32" and machine in self._measured:
            measured = self._measured[machine].gemm_flops_per_second(cell.all_threads)
            rates += [measured] if measured else []
        return max(rates, default=None)


def _cell(records: list[Record], host: Host | None, ceilings: _Ceilings) -> CellResult:
    """Return the cell that these records of one cell, machine and environment make; the newest is last."""
    newest = records[-1]
    cell = newest.cell
    status, reason = _status(records)
    timed = [
        record
        for record in records
        if record.outcome.samples_ns and record.outcome.status in (Status.OK, Status.PARITY_FAILED)
    ]
    place = CellResult(
        machine=newest.machine,
        cell=axes.project(cell, axes.NAMES),
        status=status,
        reason=reason,
        run=newest.run,
        environment=newest.environment,
        interpreter=newest.interpreter,
    )
    if not timed or status is Status.IMPLAUSIBLE:
        return place
    summary = summarise([record.outcome.step_seconds() for record in timed])
    family = family_of_record(newest)
    computes = any(record.outcome.parameter_count for record in timed)
    gflops = family.training_flops(cell.batch_size) / summary.median * 1e-9 if family and computes else None
    ceiling = ceilings.rate(newest.machine, cell)
    fraction = gflops * 1e9 / ceiling if gflops is not None and ceiling else None
    flags = cell_flags([record_flags(record, host) for record in timed])
    if fraction is not None and fraction > CEILING_SLACK:
        flags.append(Flag(OVER_CEILING, f"{fraction:.0%} of the measured ceiling"))
    flags += failed_launches([record for record in records if record not in timed], len(records))
    flags += few_launches(len(timed))
    parities = [record.outcome.parity for record in timed if record.outcome.parity is not None]
    default = timed[-1].outcome.software.get("default_threads")
    firsts = [s for record in timed if (s := record.outcome.first_step_seconds) is not None]
    return replace(
        place,
        seconds=summary,
        items_per_second=cell.batch_size / summary.median,
        gflops=gflops,
        ceiling_fraction=fraction,
        parity=next((each for each in parities if each.verdict == "disagrees"), parities[-1] if parities else None),
        observed=observe([record.outcome for record in timed]),
        device_observed=observe_device(timed),
        flags=tuple(flags),
        first_step_seconds=median(firsts) if firsts else None,
        default_threads=default if isinstance(default, int) else None,
        peak_memory_bytes=max((record.outcome.peak_memory_bytes or 0 for record in timed), default=0) or None,
    )


def _status(records: list[Record]) -> tuple[Status, str]:
    """Return the status of a cell: what cannot be believed outweighs everything, one good launch makes a number."""
    for wanted in (Status.IMPLAUSIBLE, Status.PARITY_FAILED, Status.OK):
        found = [record for record in records if record.outcome.status is wanted]
        if found:
            outcome = found[-1].outcome
            of_parity = outcome.parity.reason if outcome.parity and wanted is Status.PARITY_FAILED else ""
            return wanted, outcome.reason or of_parity
    return records[-1].outcome.status, records[-1].outcome.reason


_NIGHTLY = re.compile(r"\bdev(20\d{2})(\d{2})(\d{2})\b")


class Build(NamedTuple):
    """One version of a framework."""

    adapter: str
    """The folder in adapters/ that drives it; empty where no record names it."""
    version: str
    """As the framework says; empty where it never came to say so."""
    released: date | None
    """None: unknown."""


class Builds:
    """The builds of records, by machine, row and environment."""

    def __init__(self, records: Iterable[Record], releases: Mapping[tuple[str, str], date]) -> None:
        """Take records, and the dates of releases by adapter (folder) and version."""
        self._releases = releases
        self._known: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._newest: dict[tuple[str, str], tuple[str, str]] = {}
        records = list(records)
        self._untunable = untunable(records)
        for record in sorted(records, key=lambda record: record.started):
            if record.side == BASELINE:
                continue  # another build under the row's name, which no cell of a matrix is made of
            cell = record.cell
            version = str(record.outcome.software.get("version") or "")
            # A launch that crashed before it could say its version takes nothing from one that could.
            build = cell.adapter, version or self._newest.get((record.machine, cell.framework), ("", ""))[1]
            if version:
                self._known[record.machine, cell.framework, record.environment] = build
            self._newest[record.machine, cell.framework] = build

    def of(self, cell: CellResult) -> Build:
        """Return the build that a cell was measured with; of one that never ran, that of the rest of its row."""
        machine, framework = cell.column.machine, cell.row.framework
        newest = self._newest.get((machine, framework), ("", ""))
        adapter, version = self._known.get((machine, framework, cell.environment), newest)
        return Build(adapter, version, released(adapter, version, self._releases))

    def is_as_installed_too(self, cell: CellResult) -> bool:
        """Tell whether a cell's row has no setting there, so that the one cell is both."""
        return (cell.column.machine, cell.cell) in self._untunable


def released(adapter: str, version: str, releases: Mapping[tuple[str, str], date]) -> date | None:
    """Return when a version was released; None where that is not known.

    A local label ("2.13.0+cpu") and trailing zeros make no other release; a nightly build has its date in its version
    ("2.14.0.dev20261010").
    """
    if (adapter, version) in releases:
        return releases[adapter, version]
    wanted = _public(version)
    for (folder, known), when in releases.items():
        if folder == adapter and wanted is not None and _public(known) == wanted:
            return when
    nightly = _NIGHTLY.search(version)
    try:
        return date(*map(int, nightly.groups())) if nightly else None
    except ValueError:
        return None


def _public(version: str) -> Version | None:
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return None


def fastest_mode(cells: Sequence[CellResult]) -> CellResult:
    """Return the fastest of a framework's modes at one place; of ``cells``, one at least.

    One that used more threads than asked, or proved nothing about its mathematics, only where no other has a number;
    without any number the hole that was launched, if one was.
    """
    timed = [cell for cell in cells if cell.timed is not None]
    if not timed:
        return min(cells, key=lambda cell: (cell.status is Status.SKIPPED, cell.row))

    def rank(cell: CellResult) -> tuple[bool, bool, float]:
        median = cell.timed.median if cell.timed else 0.0
        return cell.has(THREADS_EXCEEDED), cell.has(PARITY_UNCHECKED), median

    return min(timed, key=rank)
