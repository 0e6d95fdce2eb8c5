"""`dlbench report noise`: what the differences between the launches of a cell consist of, and what
would lessen them.

The variance of the logarithms of a cell's launches is divided in steps, each of which takes one
cause off with what the records themselves say about it, so that nothing is fitted:

- page faults: their number times the cost of one, which each launch measured (`memory_evidence`);
- waiting: the time for which threads were ready and had no CPU, divided by the threads;
- the machine: what the launches of one group, or else of one block of the run, have in common over
  all cells.

What a step lessens the variance by is the part of its cause; what is left at the end is the rest. A
step that would raise the variance has no part.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.adapters.tuning import TUNABLE, in_force
from dlbench.reports.columns import Column, axis_columns, table
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.disturbance import disturbed_turns
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, group_of, grouped
from dlbench.reports.results.memory_evidence import KEEP_HEAP, faults_per_step, share_of_step
from dlbench.reports.results.naming import counted, group_name, head_of, name_of, row_name
from dlbench.reports.results.networks import in_order
from dlbench.reports.results.record import Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import ENOUGH_LAUNCHES

FAULTS, WAITING, MACHINE, REST = CAUSES = ("faults", "waiting", "machine", "rest")
_MOST_LOST = 0.9
"""Of a step, at most, is put down to one cause: evidence of more contradicts itself."""
_NOTICEABLE = 0.01
"""Launches that deviate by less need no explanation."""
_MATTERING = 0.25
"""A cause with this part of the variance, or more, is named in a sentence."""
_SENTENCES = 6
_NOTHING = f"No cell here has {ENOUGH_LAUNCHES} launches; fewer do not show how launches differ."
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
    """Minor page faults of a step in the launch with the fewest; None where they are not known."""
    most_faults: float | None
    lost_to_faults: float
    """Share of a step's time, the mean over launches."""
    disturbed_turns: int
    turns: int
    keeps_heap: bool
    """Whether freed memory stays with its processes already."""
    fits: bool
    """Whether there is a CPU for each of its threads: else they wait for one another, and no turn
    shows a neighbour."""


def noise(records: Iterable[Record], hosts: Mapping[str, Host]) -> list[Noise]:
    """Return how the launches of each cell with enough of them differ, in the order of a matrix."""
    timed = [
        record
        for record in last_attempts(records)
        if record.outcome.status is Status.OK
        and record.outcome.samples_ns
        and not record.outcome.too_short()
    ]
    plain = [math.log(record.outcome.median_seconds() or math.nan) for record in timed]
    faulted = [
        log + math.log1p(-_lost_to_faults(record)) for log, record in zip(plain, timed, strict=True)
    ]
    waited = [
        log + math.log1p(-_lost_to_waiting(record))
        for log, record in zip(faulted, timed, strict=True)
    ]
    steady = _without_the_machine(waited, timed)
    cells = grouped(
        range(len(timed)),
        lambda number: (timed[number].machine, timed[number].cell, timed[number].side),
    )
    found = []
    for (machine, cell, _), numbers in cells.items():
        if len(numbers) < ENOUGH_LAUNCHES:
            continue
        steps = [
            variance([series[number] for number in numbers])
            for series in (plain, faulted, waited, steady)
        ]
        of_cell = [timed[number] for number in numbers]
        host = hosts.get(machine)
        cpus = math.inf if host is None or host.effective_cpus is None else host.effective_cpus
        found.append(_noise(Place(machine, cell), of_cell, steps, cell.all_threads <= cpus))

    def order(each: Noise) -> tuple[object, ...]:
        group = group_of(each.place.cell)
        return (
            each.place.machine,
            in_order(group.network),
            axes.sort_key(group),
            axes.sort_key(each.place.cell),
        )

    return sorted(found, key=order)


def _noise(
    place: Place, records: Sequence[Record], variances: Sequence[float], fits: bool
) -> Noise:
    """Return the noise of a cell; ``variances`` are those after each cause was taken off, the plain
    one first.
    """
    whole = variances[0]
    parts, left = {}, whole
    for cause, after in zip((FAULTS, WAITING, MACHINE), variances[1:], strict=True):
        lessened = max(0.0, left - after)
        parts[cause] = lessened / whole if whole else 0.0
        left = min(left, after)
    parts[REST] = left / whole if whole else 1.0
    faults = [count for record in records if (count := faults_per_step(record.outcome)) is not None]
    turns = [record.outcome.outside.turns for record in records if record.outcome.outside]
    return Noise(
        place=place,
        launches=len(records),
        deviation=math.sqrt(whole),
        parts=parts,
        within=fmean(_deviation_within(record) for record in records),
        fewest_faults=min(faults, default=None),
        most_faults=max(faults, default=None),
        lost_to_faults=fmean(_lost_to_faults(record) for record in records),
        disturbed_turns=sum(sum(disturbed_turns(of_launch)) for of_launch in turns),
        turns=sum(map(len, turns)),
        keeps_heap=all(_keeps_heap(record) for record in records),
        fits=fits,
    )


def _keeps_heap(record: Record) -> bool:
    tunable = record.outcome.software.get(TUNABLE)
    return KEEP_HEAP in in_force(record.cell.tuning, tunable if isinstance(tunable, list) else [])


def _deviation_within(record: Record) -> float:
    logs = [math.log(seconds) for seconds in record.outcome.step_seconds()]
    return math.sqrt(variance(logs)) if len(logs) > 1 else 0.0


def _lost_to_faults(record: Record) -> float:
    """Return the share of a launch's step that its page faults took."""
    faults = faults_per_step(record.outcome)
    share = None if faults is None else share_of_step(record.outcome, faults)
    return min(_MOST_LOST, share or 0.0)


def _lost_to_waiting(record: Record) -> float:
    """Return the share of its time for which each of a launch's threads waited for a CPU, on
    average.
    """
    threads, contention = record.outcome.threads, record.outcome.contention
    if (
        threads is None
        or contention is None
        or not contention.run_queue_seconds
        or not threads.wall_seconds
    ):
        return 0.0
    waited = contention.run_queue_seconds / max(1, record.cell.all_threads)
    return min(_MOST_LOST, waited / threads.wall_seconds)


def _without_the_machine(logs: Sequence[float], records: Sequence[Record]) -> list[float]:
    """Return the logarithms less what launches that were made together share, as far as that is not
    the cells' own.

    What a launch itself adds to the mean of the others is no part of that: the mean is of the
    others alone.
    """
    cells = grouped(
        range(len(records)), lambda number: (records[number].machine, records[number].cell)
    )
    levels = {
        number: fmean(logs[other] for other in numbers)
        for numbers in cells.values()
        for number in numbers
    }
    deviations = [log - levels[number] for number, log in enumerate(logs)]
    together = grouped(range(len(records)), lambda number: _made_together(records[number]))
    found = list(logs)
    for numbers in together.values():
        for number in numbers:
            others = [deviations[other] for other in numbers if other != number]
            if others:
                # Few others show the machine badly: their mean is shrunk towards no effect.
                found[number] = logs[number] - fmean(others) * len(others) / (len(others) + 1)
    return found


def _made_together(record: Record) -> tuple[object, ...]:
    return (record.run, record.group) if record.group else (record.run, "block", record.launch)


def sentences(found: Sequence[Noise]) -> list[str]:
    """Return what the noticeable differences between launches mostly consist of, and the
    remedies.
    """
    of_cause = grouped([each for each in found if _main_cause(each) is not None], _main_cause)
    lines = [_of_faults(each) for each in of_cause.get(FAULTS, [])]
    if len(lines) > _SENTENCES:
        lines = [
            *lines[:_SENTENCES],
            f"... and {counted(len(lines) - _SENTENCES, 'more cell')}; --json has all.",
        ]
    crowded = [each for each in of_cause.get(WAITING, []) if not each.fits]
    disturbed = [each for each in of_cause.get(WAITING, []) if each.fits]
    if crowded:
        lines.append(
            f"{_of_cells(crowded, WAITING)} waiting for a CPU: more threads than CPUs wait for one "
            "another."
        )
    if disturbed:
        lines.append(
            f"{_of_cells(disturbed, WAITING)} waiting for a CPU: other programs ran meanwhile. End "
            "them."
        )
    if moved := of_cause.get(MACHINE, []):
        lines.append(
            f"{_of_cells(moved, MACHINE)} the machine's speed, which changed for all cells alike. "
            "Ratios of launches that took turns are free of it."
        )
    return lines


def _main_cause(noise: Noise) -> str | None:
    """Return the cause of most of the variation; None where it is small, or mostly unexplained."""
    main = max(CAUSES[:-1], key=lambda cause: noise.parts[cause])
    return main if noise.deviation >= _NOTICEABLE and noise.parts[main] >= _MATTERING else None


def _of_cells(found: Sequence[Noise], cause: str) -> str:
    most = max(found, key=lambda noise: noise.parts[cause])
    if len(found) == 1:
        return (
            f"{name_of(most.place.cell)}: {most.parts[cause]:.0%} of the variation between "
            "launches is"
        )
    return (
        f"In {len(found)} cells much of the variation between launches (most in "
        f"{name_of(most.place.cell)}, {most.parts[cause]:.0%}) is"
    )


def _of_faults(noise: Noise) -> str:
    found = (
        f"{name_of(noise.place.cell)}: {noise.parts[FAULTS]:.0%} of the variation between launches "
        f"is page faults, {noise.fewest_faults or 0:,.0f} to {noise.most_faults or 0:,.0f} a step"
    )
    if noise.keeps_heap:
        return f"{found}, though freed memory stays with the process."
    return f"{found}. With {KEEP_HEAP} (--tuning) a step may take {noise.lost_to_faults:.0%} less."


_COLUMNS: tuple[Column[Noise], ...] = (
    Column("", "", lambda each: row_name(each.place.cell)),
    Column("", "p", lambda each: head_of(each.place.cell)),
    Column("machine", None, lambda each: each.place.machine),
    *axis_columns(lambda each: each.place.cell),
    Column("launches", None, lambda each: each.launches),
    Column("deviation", "±", lambda each: each.deviation, lambda each: f"{each.deviation:.1%}"),
    *(
        Column(
            f"{cause}_part",
            cause,
            lambda each, cause=cause: each.parts[cause],  # type: ignore[misc]
            lambda each, cause=cause: f"{each.parts[cause]:.0%}",  # type: ignore[misc]
        )
        for cause in CAUSES
    ),
    Column("within", "within", lambda each: each.within, lambda each: f"{each.within:.1%}"),
    Column(
        "disturbed_turns",
        "lost",
        lambda each: each.disturbed_turns,
        lambda each: (
            f"{each.disturbed_turns / each.turns:.0%}" if each.turns and each.fits else "-"
        ),
    ),
    Column("turns", None, lambda each: each.turns),
    Column("fewest_faults", None, lambda each: each.fewest_faults),
    Column("most_faults", None, lambda each: each.most_faults),
    Column("lost_to_faults", None, lambda each: each.lost_to_faults),
)


def _page(results: Results) -> Page:
    found = noise(results.records, results.hosts)
    title = "What launches differ by"
    if not found:
        return Page((_NOTHING,), (table(_COLUMNS, found, title, "cells"),))
    tables = [
        table(
            _COLUMNS,
            rows,
            f"{title}, on {results.hosts[machine].name}",
            "cells",
            lambda each: group_name(each.place.cell),
            keys=2,
        )
        for machine, rows in grouped(found, lambda each: each.place.machine).items()
    ]
    return Page(
        tuple(sentences(found)),
        tuple(tables),
        (*_LEGEND, *axes.legends(each.place.cell for each in found)),
    )


REPORT = Report(
    name="noise",
    summary=(
        "What the differences between launches consist of: page faults, waiting, the machine; and "
        "the remedy."
    ),
    examples=("dlbench report noise", "dlbench report noise --run latest --frameworks torch"),
    analyse=lambda source: source.results(),
    page=lambda results, options: _page(results),
    heading="Why launches differ",
    place=78,
    has_section=lambda results: bool(noise(results.records, results.hosts)),
    options=frozenset({ALL_RUNS}),
)
