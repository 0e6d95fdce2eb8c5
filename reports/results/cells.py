"""Cells: the launches of one cell on one machine as one result.

`make_cell` makes a cell from the records that count. `matrix` puts cells side by side.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from dlbench.adapters import axes
from dlbench.adapters.protocol import LEAST_SAMPLE_NS, Cell, Parity, Status
from dlbench.reports.results.flag_kinds import (
    FEW_LAUNCHES,
    LOSS_NOT_FINITE,
    MEMORY_STATES,
    NEAR_PEAK,
    OVER_CEILING,
    PARITY,
    PARITY_UNCHECKED,
    THREADS_EXCEEDED,
    Flag,
    FlagKind,
)
from dlbench.reports.results.flags import (
    CEILING_SLACK,
    cell_flags,
    failed_launches,
    memory_states,
    record_flags,
)
from dlbench.reports.results.gpu_evidence import DeviceObserved, observe_device
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, RowKey, WorkKey, column_of, row_of, work_of
from dlbench.reports.results.memory_evidence import MemoryObserved, observe_memory
from dlbench.reports.results.naming import counted
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.quantities import measure, why_no_joules, why_no_latency
from dlbench.reports.results.record import IMPORTED, Record
from dlbench.reports.results.rounds import seconds_in_turns
from dlbench.reports.results.statistics import ENOUGH_LAUNCHES, BreakEven, Summary, ratio, summarise
from dlbench.reports.results.thread_evidence import Observed, observe

TOO_SHORT = (
    f"its samples are too short for the clock (0, or less than {LEAST_SAMPLE_NS} ns). Let a sample "
    "hold more calls."
)


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
    """Among the fastest of its column for its work: none is faster by more than noise may
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
    """Whether each launch had to compile everything anew, though an earlier one had."""
    measured: Mapping[str, Summary] = field(default_factory=dict)
    """Quantities that are measured once in a launch, by name (`quantities`)."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Why others are not known, where the launches show it."""
    break_even: BreakEven | None = None
    """Against the mode of its framework whose first step ends first; None for that one."""

    @property
    def place(self) -> Place:
        """Its cell on its machine."""
        return Place(self.machine, self.cell)

    @property
    def work(self) -> WorkKey:
        """The axes of its work."""
        return work_of(self.cell)

    @property
    def row(self) -> RowKey:
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


TimesInTurns = Mapping[tuple[str, str, Cell], float]
"""Seconds of a step of launches that took turns, by run, group and cell."""


def times_in_turns(records: Iterable[Record]) -> TimesInTurns:
    """Return the seconds of a step of those launches that took turns with others."""
    timed_of_group: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.group and record.outcome.turns and _was_timed(record):
            timed_of_group.setdefault((record.run, record.group), []).append(record)
    seconds_by_launch: dict[tuple[str, str, Cell], float] = {}
    for group in timed_of_group.values():
        seconds_of_group = seconds_in_turns([record.outcome for record in group])
        for record, seconds in zip(group, seconds_of_group, strict=True):
            seconds_by_launch[_key_in_turns(record)] = seconds
    return seconds_by_launch


def _key_in_turns(record: Record) -> tuple[str, str, Cell]:
    return record.run, record.group, record.cell


def _was_timed(record: Record) -> bool:
    return record.outcome.was_timed() and record.outcome.status in (Status.OK, Status.PARITY_FAILED)


def make_cell(
    records: Sequence[Record], host: Host | None, ceiling: float | None, turns: TimesInTurns
) -> CellResult:
    """Return the cell that these records make, the newest of which is last.

    They are of one cell, machine and environment. ``ceiling`` is the machine's in FLOP/s, ``turns``
    the seconds of launches that took turns (`times_in_turns`).
    """
    newest = records[-1]
    status, reason = _status(records)
    result = CellResult(
        machine=newest.machine,
        cell=axes.without(newest.cell),
        status=status,
        reason=reason,
        run=newest.run,
        environment=newest.environment,
        variables=newest.variables,
        interpreter=newest.interpreter,
    )
    timed = [record for record in records if _was_timed(record)]
    if not timed or status is Status.IMPLAUSIBLE:
        return result
    if any(record.outcome.too_short() for record in timed):
        return replace(result, reason=TOO_SHORT)
    return _with_numbers(result, records, timed, host, ceiling, turns)


def _with_numbers(
    result: CellResult,
    records: Sequence[Record],
    timed: Sequence[Record],
    host: Host | None,
    ceiling: float | None,
    turns: TimesInTurns,
) -> CellResult:
    """Return a cell with the numbers of its timed launches and the evidence for them."""
    newest = records[-1]
    outcomes = [record.outcome for record in timed]
    seconds = _summarise(timed, turns)
    measured = measure(outcomes)
    items_per_second = None
    if newest.cell.batch_size is not None:
        items_per_second = newest.cell.batch_size / seconds.median
    gflops = _gflops(newest, outcomes, seconds.median)
    fraction = None
    if gflops is not None and ceiling:
        fraction = gflops * 1e9 / ceiling
    first_steps = []
    peak_memory = 0
    for outcome in outcomes:
        if outcome.first_step_seconds is not None:
            first_steps.append(outcome.first_step_seconds)
        peak_memory = max(peak_memory, outcome.peak_memory_bytes or 0)
    default_threads = outcomes[-1].facts.default_threads
    if not isinstance(default_threads, int):
        default_threads = None
    return replace(
        result,
        seconds=seconds,
        items_per_second=items_per_second,
        gflops=gflops,
        ceiling_fraction=fraction,
        parity=_parity(outcomes),
        observed=observe(outcomes),
        device_observed=observe_device(timed),
        memory_observed=observe_memory(outcomes),
        flags=tuple(_flags(records, timed, host, fraction)),
        first_step_seconds=median(first_steps) if first_steps else None,
        default_threads=default_threads,
        peak_memory_bytes=peak_memory or None,
        cold_start=all(outcome.facts.cold_start is True for outcome in outcomes),
        measured=measured,
        unmeasured=_unmeasured(newest, outcomes, measured),
    )


def _summarise(timed: Sequence[Record], turns: TimesInTurns) -> Summary:
    """Return the seconds of a step over a cell's timed launches."""
    steps = []
    without_samples = []
    seconds_in_turns = []
    for record in timed:
        outcome = record.outcome
        steps.append(outcome.step_seconds())
        seconds_in_turns.append(turns.get(_key_in_turns(record)))
        if outcome.statistics is not None:
            without_samples.append(outcome.statistics)
    return summarise(steps, without_samples, seconds_in_turns)


def _gflops(record: Record, outcomes: Iterable[Outcome], seconds: float) -> float | None:
    """Return the rate of a step in GFLOP/s; None where its number of operations is not known."""
    family = family_of_record(record)
    batch_size = record.cell.batch_size
    if family is None or batch_size is None:
        return None
    # A framework that computes nothing has no parameters, and no outputs.
    if not any(outcome.parameter_count or _gave_outputs(outcome) for outcome in outcomes):
        return None
    return family.flops(batch_size, record.cell.infers) / seconds * 1e-9


def _gave_outputs(outcome: Outcome) -> bool:
    return outcome.parity is not None and outcome.parity.output_error is not None


def _flags(
    records: Sequence[Record], timed: Sequence[Record], host: Host | None, fraction: float | None
) -> list[Flag]:
    """Return the flags of a cell with a number; ``fraction`` is its share of the ceiling."""
    flags = cell_flags([record_flags(record, host) for record in timed])
    if records[-1].cell.on_cpu and all(flag.kind is not MEMORY_STATES for flag in flags):
        flags += memory_states(timed)
    if fraction is not None and fraction > CEILING_SLACK:
        flags.append(Flag(OVER_CEILING, f"{fraction:.0%} of the measured ceiling"))
    failed = [record for record in records if not _was_timed(record)]
    flags += failed_launches(failed, len(records))
    if len(timed) < ENOUGH_LAUNCHES:
        flags.append(Flag(FEW_LAUNCHES, counted(len(timed), "launch", "launches")))
    return flags


def _parity(outcomes: Iterable[Outcome]) -> Parity | None:
    """Return the parity check of the first launch that disagrees, else of the newest."""
    newest = None
    for outcome in outcomes:
        if outcome.parity is None:
            continue
        newest = outcome.parity
        if newest.verdict == "disagrees":
            break
    return newest


def _unmeasured(
    record: Record, outcomes: Sequence[Outcome], measured: Mapping[str, Summary]
) -> dict[str, str]:
    """Return why quantities are not known; nothing for an imported benchmark."""
    reasons: dict[str, str] = {}
    if record.cell.adapter == IMPORTED:
        return reasons
    if "cpu_joules" not in measured:
        reasons["cpu_joules"] = why_no_joules(outcomes[-1])
    if record.cell.infers and "p99" not in measured:
        reasons["p99"] = next(filter(None, map(why_no_latency, outcomes)), "")
    return reasons


def _status(records: Sequence[Record]) -> tuple[Status, str]:
    """Return the status of a cell, and the reason for it.

    Untrustworthy results outweigh everything, else one good launch makes a number.
    """
    for status in (Status.IMPLAUSIBLE, Status.PARITY_FAILED, Status.OK):
        ended_so = [record.outcome for record in records if record.outcome.status is status]
        if ended_so:
            newest = ended_so[-1]
            reason = newest.reason
            if not reason and newest.parity and status is Status.PARITY_FAILED:
                reason = newest.parity.reason
            return status, reason
    return records[-1].outcome.status, records[-1].outcome.reason


def fair(cells: Iterable[CellResult]) -> list[CellResult]:
    """Return the cells whose time may be compared.

    Those that used more threads than asked, or whose time is doubtful, are not among them.
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
    _, least = min(pool, key=_median)

    def ratio_to_least(pair: tuple[CellResult, Summary]) -> float:
        return ratio(pair[1], least).value

    return sorted(pool, key=ratio_to_least)


def _median(pair: tuple[CellResult, Summary]) -> float:
    _, seconds = pair
    return seconds.median


def fastest_mode(cells: Sequence[CellResult]) -> CellResult:
    """Return the fastest of a framework's modes at one place; ``cells`` must not be empty.

    A cell that used more threads than asked, or has no parity check, is returned only if no other
    has a number. Without any number, a launched cell is preferred.
    """
    timed = [cell for cell in cells if cell.timed is not None]
    if not timed:
        return min(cells, key=lambda cell: (cell.status is Status.SKIPPED, cell.row))

    def rank(cell: CellResult) -> tuple[bool, bool, float]:
        seconds = cell.timed.median if cell.timed else 0.0
        return cell.has(THREADS_EXCEEDED), cell.has(PARITY_UNCHECKED), seconds

    return min(timed, key=rank)
