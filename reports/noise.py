"""`dlbench report noise`: causes of the differences between a cell's launches, and the remedies.

The variance of the logarithms of a cell's launches is divided in steps. Each step removes one
cause by evidence in the records themselves, so that nothing is fitted:

- page faults: their number times the cost of one, which each launch measured (`memory_evidence`);
- waiting: the time for which threads were ready and had no CPU, divided by the threads;
- the machine: the deviation that the launches of one group, or else of one block of the run, have
  in common over all cells.

The decrease of the variance in a step is the part of its cause. The variance left at the end is
the rest. A step that would raise the variance has no part.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.adapters.tuning import in_force
from dlbench.reports.columns import Column, axis_columns, table
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.disturbance import disturbed_turns
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, grouped, work_of
from dlbench.reports.results.memory_evidence import KEEP_HEAP, faults_per_step, share_of_step
from dlbench.reports.results.naming import counted, head_of, name_of, row_name, work_name
from dlbench.reports.results.networks import in_order
from dlbench.reports.results.record import Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import ENOUGH_LAUNCHES

FAULTS = "faults"
WAITING = "waiting"
MACHINE = "machine"
REST = "rest"
CAUSES = (FAULTS, WAITING, MACHINE, REST)
_MOST_LOST = 0.9
"""The largest share of a step put down to one cause: evidence of more contradicts itself."""
_NOTICEABLE = 0.01
"""Launches that deviate by less need no explanation."""
_MATTERING = 0.25
"""A cause with this part of the variance, or more, is named in a sentence."""
_SENTENCES = 6
_NOTHING = (
    f"None of these cells has {ENOUGH_LAUNCHES} launches; fewer do not show how launches differ."
)
_LEGEND = (
    (
        "p: threads; ±: standard deviation of the launches' medians. The next four columns divide "
        "its square: page faults, waiting for a CPU, the machine (what all launches of a group or "
        "block share), and the rest."
    ),
    (
        "within: standard deviation of a launch's samples; lost: turns in which other programs "
        "used its CPUs (-: it took no turns, or has more threads than there are CPUs)."
    ),
)


@dataclass(frozen=True)
class Noise:
    """How the launches of a cell differ."""

    place: Place
    launches: int
    deviation: float
    """Standard deviation of the logarithms of their seconds."""
    parts: Mapping[str, float]
    """Of its square, by cause; they add up to 1."""
    within: float
    """Standard deviation of the logarithms of a launch's samples: the mean over launches."""
    fewest_faults: float | None
    """Minor page faults of a step in the launch with the fewest. None: they are not known."""
    most_faults: float | None
    lost_to_faults: float
    """Share of a step's time, the mean over launches."""
    disturbed_turns: int
    turns: int
    keeps_heap: bool
    """Whether freed memory stays with its processes already."""
    fits: bool
    """Whether each of its threads has a CPU.

    Otherwise they wait for one another, and no turn shows a neighbour."""


def noise(records: Iterable[Record], hosts: Mapping[str, Host]) -> list[Noise]:
    """Return how the launches of each cell with enough of them differ, in the order of a matrix."""
    timed = [record for record in last_attempts(records) if _is_timed(record)]
    plain = []
    without_faults = []
    without_waiting = []
    for record in timed:
        log = math.log(record.outcome.median_seconds() or math.nan)
        log_without_faults = log + math.log1p(-_lost_to_faults(record))
        log_without_waiting = log_without_faults + math.log1p(-_lost_to_waiting(record))
        plain.append(log)
        without_faults.append(log_without_faults)
        without_waiting.append(log_without_waiting)
    without_machine = _remove_machine(without_waiting, timed)
    series = (plain, without_faults, without_waiting, without_machine)
    indices_by_cell: dict[tuple[str, Cell, str], list[int]] = {}
    for index, record in enumerate(timed):
        key = (record.machine, record.cell, record.side)
        indices_by_cell.setdefault(key, []).append(index)
    noises = []
    for (machine, cell, _), indices in indices_by_cell.items():
        if len(indices) < ENOUGH_LAUNCHES:
            continue
        variances = []
        for logs in series:
            logs_of_cell = [logs[index] for index in indices]
            variances.append(variance(logs_of_cell))
        records_of_cell = [timed[index] for index in indices]
        host = hosts.get(machine)
        fits = (
            host is None or host.effective_cpus is None or cell.all_threads <= host.effective_cpus
        )
        noises.append(_noise(Place(machine, cell), records_of_cell, variances, fits))
    return sorted(noises, key=_matrix_order)


def _is_timed(record: Record) -> bool:
    outcome = record.outcome
    return outcome.status is Status.OK and bool(outcome.samples_ns) and not outcome.too_short()


def _matrix_order(noise: Noise) -> tuple[object, ...]:
    work = work_of(noise.place.cell)
    return (
        noise.place.machine,
        in_order(work.network),
        axes.sort_key(work),
        axes.sort_key(noise.place.cell),
    )


def _noise(
    place: Place, records: Sequence[Record], variances: Sequence[float], fits: bool
) -> Noise:
    """Return the noise of a cell.

    ``variances`` has the plain one first, then those after removing one cause after another.
    """
    whole = variances[0]
    parts: dict[str, float] = {}
    left = whole
    for cause, after in zip((FAULTS, WAITING, MACHINE), variances[1:], strict=True):
        decrease = max(0.0, left - after)
        parts[cause] = decrease / whole if whole else 0.0
        left = min(left, after)
    parts[REST] = left / whole if whole else 1.0
    deviations_within = []
    fault_counts = []
    shares_lost_to_faults = []
    disturbed = 0
    turns = 0
    for record in records:
        deviations_within.append(_deviation_within(record))
        shares_lost_to_faults.append(_lost_to_faults(record))
        faults = faults_per_step(record.outcome)
        if faults is not None:
            fault_counts.append(faults)
        if record.outcome.outside:
            turns_of_launch = record.outcome.outside.turns
            turns += len(turns_of_launch)
            disturbed += sum(disturbed_turns(turns_of_launch))
    return Noise(
        place=place,
        launches=len(records),
        deviation=math.sqrt(whole),
        parts=parts,
        within=fmean(deviations_within),
        fewest_faults=min(fault_counts, default=None),
        most_faults=max(fault_counts, default=None),
        lost_to_faults=fmean(shares_lost_to_faults),
        disturbed_turns=disturbed,
        turns=turns,
        keeps_heap=all(_keeps_heap(record) for record in records),
        fits=fits,
    )


def _keeps_heap(record: Record) -> bool:
    tunable = record.outcome.facts.tunable
    if not isinstance(tunable, list):
        tunable = []
    return KEEP_HEAP in in_force(record.cell.tuning, tunable)


def _deviation_within(record: Record) -> float:
    logs = [math.log(seconds) for seconds in record.outcome.step_seconds()]
    if len(logs) < 2:
        return 0.0
    return math.sqrt(variance(logs))


def _lost_to_faults(record: Record) -> float:
    """Return the share of a launch's step that its page faults took."""
    faults = faults_per_step(record.outcome)
    if faults is None:
        return 0.0
    share = share_of_step(record.outcome, faults)
    return min(_MOST_LOST, share or 0.0)


def _lost_to_waiting(record: Record) -> float:
    """Return the mean share of time for which a launch's threads waited for a CPU."""
    threads = record.outcome.threads
    contention = record.outcome.contention
    if (
        threads is None
        or contention is None
        or not contention.run_queue_seconds
        or not threads.wall_seconds
    ):
        return 0.0
    waited = contention.run_queue_seconds / max(1, record.cell.all_threads)
    return min(_MOST_LOST, waited / threads.wall_seconds)


def _remove_machine(logs: Sequence[float], records: Sequence[Record]) -> list[float]:
    """Return the logarithms less the deviation that launches made together share.

    The deviation of a launch is from its cell's mean. Its own deviation is no part of the shared
    one, which is the mean of the others alone.
    """
    indices_by_cell: dict[Place, list[int]] = {}
    indices_together: dict[tuple[object, ...], list[int]] = {}
    for index, record in enumerate(records):
        indices_by_cell.setdefault(Place(record.machine, record.cell), []).append(index)
        indices_together.setdefault(_made_together(record), []).append(index)
    deviations = [0.0] * len(records)
    for indices in indices_by_cell.values():
        level = fmean(logs[index] for index in indices)
        for index in indices:
            deviations[index] = logs[index] - level
    corrected = list(logs)
    for indices in indices_together.values():
        for index in indices:
            others = [deviations[other] for other in indices if other != index]
            if others:
                # Few others show the machine badly: their mean is shrunk towards no effect.
                corrected[index] = logs[index] - fmean(others) * len(others) / (len(others) + 1)
    return corrected


def _made_together(record: Record) -> tuple[object, ...]:
    """Return the key that launches made together share."""
    if record.group:
        return (record.run, record.group)
    return (record.run, "block", record.launch)


def sentences(noises: Sequence[Noise]) -> list[str]:
    """Return the main causes of noticeable differences between launches, and the remedies."""
    noises_by_cause = grouped(noises, _main_cause)
    lines = [_fault_sentence(noise) for noise in noises_by_cause.get(FAULTS, [])]
    if len(lines) > _SENTENCES:
        more = counted(len(lines) - _SENTENCES, "more cell")
        lines = [*lines[:_SENTENCES], f"... and {more}; --json has all."]
    crowded = []
    disturbed = []
    for noise in noises_by_cause.get(WAITING, []):
        if noise.fits:
            disturbed.append(noise)
        else:
            crowded.append(noise)
    moved = noises_by_cause.get(MACHINE, [])
    if crowded:
        lines.append(
            f"{_much_is(crowded, WAITING)} waiting for a CPU: more threads than CPUs wait for one "
            "another."
        )
    if disturbed:
        lines.append(
            f"{_much_is(disturbed, WAITING)} waiting for a CPU: other programs ran meanwhile. End "
            "them."
        )
    if moved:
        lines.append(
            f"{_much_is(moved, MACHINE)} the machine's speed, which changed for all cells alike. "
            "Ratios of launches that took turns are free of it."
        )
    return lines


def _main_cause(noise: Noise) -> str | None:
    """Return the cause of most of the variation; None where it is small, or mostly unexplained."""
    main = max(CAUSES[:-1], key=lambda cause: noise.parts[cause])
    if noise.deviation >= _NOTICEABLE and noise.parts[main] >= _MATTERING:
        return main
    return None


def _much_is(noises: Sequence[Noise], cause: str) -> str:
    """Return how a sentence begins: "In 8 cells much of the variation ... is"."""
    most = max(noises, key=lambda noise: noise.parts[cause])
    name = name_of(most.place.cell)
    share = f"{most.parts[cause]:.0%}"
    if len(noises) == 1:
        return f"{name}: {share} of the variation between launches is"
    return (
        f"In {len(noises)} cells much of the variation between launches (most in {name}, {share}) "
        "is"
    )


def _fault_sentence(noise: Noise) -> str:
    start = (
        f"{name_of(noise.place.cell)}: {noise.parts[FAULTS]:.0%} of the variation between launches "
        f"is page faults, {noise.fewest_faults or 0:,.0f} to {noise.most_faults or 0:,.0f} a step"
    )
    if noise.keeps_heap:
        return f"{start}, though freed memory stays with the process."
    return f"{start}. With {KEEP_HEAP} (--tuning) a step may take {noise.lost_to_faults:.0%} less."


def _part_column(cause: str) -> Column[Noise]:
    return Column(
        f"{cause}_part",
        cause,
        lambda noise: noise.parts[cause],
        lambda noise: f"{noise.parts[cause]:.0%}",
    )


def _lost_turns(noise: Noise) -> str:
    if noise.turns and noise.fits:
        return f"{noise.disturbed_turns / noise.turns:.0%}"
    return "-"


_COLUMNS: tuple[Column[Noise], ...] = (
    Column("", "", lambda noise: row_name(noise.place.cell)),
    Column("", "p", lambda noise: head_of(noise.place.cell)),
    Column("machine", None, lambda noise: noise.place.machine),
    *axis_columns(lambda noise: noise.place.cell),
    Column("launches", None, lambda noise: noise.launches),
    Column("deviation", "±", lambda noise: noise.deviation, lambda noise: f"{noise.deviation:.1%}"),
    *map(_part_column, CAUSES),
    Column("within", "within", lambda noise: noise.within, lambda noise: f"{noise.within:.1%}"),
    Column("disturbed_turns", "lost", lambda noise: noise.disturbed_turns, _lost_turns),
    Column("turns", None, lambda noise: noise.turns),
    Column("fewest_faults", None, lambda noise: noise.fewest_faults),
    Column("most_faults", None, lambda noise: noise.most_faults),
    Column("lost_to_faults", None, lambda noise: noise.lost_to_faults),
)


def _page(results: Results) -> Page:
    noises = noise(results.records, results.hosts)
    title = "What launches differ by"
    if not noises:
        return Page((_NOTHING,), (table(_COLUMNS, noises, title, "cells"),))
    tables = []
    for machine, rows in grouped(noises, lambda noise: noise.place.machine).items():
        tables.append(
            table(
                _COLUMNS,
                rows,
                f"{title}, on {results.hosts[machine].name}",
                "cells",
                lambda noise: work_name(noise.place.cell),
                keys=2,
            )
        )
    legends = axes.legends(noise.place.cell for noise in noises)
    return Page(tuple(sentences(noises)), tuple(tables), (*_LEGEND, *legends))


REPORT = Report(
    name="noise",
    summary="Why launches differ, and the remedy.",
    examples=("dlbench report noise", "dlbench report noise --run latest --frameworks torch"),
    analyse=lambda source: source.results(),
    page=lambda results, options: _page(results),
    heading="Why launches differ",
    place=78,
    has_section=lambda results: bool(noise(results.records, results.hosts)),
    options=frozenset({ALL_RUNS}),
)
