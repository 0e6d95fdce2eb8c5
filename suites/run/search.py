"""The search for the fastest way to run a network on this machine: its schedule and its result."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import BOUND, TUNED, Cell, Status
from dlbench.reports.formats.json import plain
from dlbench.reports.results.conclusion import Conclusion, conclusion_data
from dlbench.reports.results.disturbance import left_out
from dlbench.reports.results.flag_kinds import Flag
from dlbench.reports.results.flags import cell_flags, failed_launches, record_flags
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.naming import counted, rest_of
from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import SEARCH, Record, last_attempts
from dlbench.reports.results.rounds import seconds_in_turns
from dlbench.reports.results.statistics import CONFIDENCE
from dlbench.reports.results.verdict import PairedEstimate, estimate_data, estimate_pairs, pairs_for

from ..display.screen import as_called
from ..environments import environment
from ..planning.plan import Plan, PlannedLaunch
from ..planning.settings import LaunchSetting, Tuned
from ..planning.variables import OPTION, is_secret
from .groups import Group, Grouping
from .schedules import Schedule

FINALISTS = 2
PAIRS = 8
"""Launches of each finalist after the selection.

The gain comes from these alone, so luck in the race adds no bias."""
SPARE = 4
"""Further blocks at most, to replace pairs that other programs disturbed."""
IMPLAUSIBLE = 3
"""Implausible times that drop a cell with valid ones: other programs may cause a single one."""


def halving_sizes(cells: int) -> list[int]:
    """Return the number of cells in each block, without the one to beat.

    It is halved down to the finalists, who then run their pairs.
    """
    sizes = [cells]
    while sizes[-1] > FINALISTS:
        sizes.append(max(FINALISTS, math.ceil(sizes[-1] / 2)))
    finalists = sizes.pop()
    return sizes + [finalists] * (PAIRS + SPARE)


def halving_plan(plan: Plan) -> Plan:
    """Return the plan with as many blocks as a search of its cells has.

    Its launches train no further than they time.
    """
    protocol = plan.protocol._replace(curve_steps=0, loss_steps=0)
    blocks = len(halving_sizes(len(plan.cells)))
    return replace(
        plan,
        protocol=protocol,
        curve_check_steps=0,
        launches=blocks,
        launches_most=None,
        interval=None,
    )


def search_starts(plan: Plan, cores: int) -> tuple[Cell, ...]:
    """Return the cells that a user may start from, the likeliest first.

    They belong to the first row with cells. Its default mode, as installed, on as many threads as
    cores comes first, then the cells nearest to that.
    """

    def distance(cell: Cell) -> tuple[object, ...]:
        is_default = cell.mode == plan.row_of(cell).build.framework.default_mode
        in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
        threads_apart = abs(cell.threads - cores)
        return not is_default, len(in_force), cell.instances, threads_apart, cell.threads

    names = {cell.framework for cell in plan.cells}
    first = next(row.build.name for row in plan.rows if row.build.name in names)
    starts = [cell for cell in plan.cells if cell.framework == first]
    return tuple(sorted(starts, key=distance))


class HalvingSchedule(Schedule):
    """A search: the slower half drops out after each block, and the last cells run pairs.

    Successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and
    hyperparameter optimization"): every cell still in the race gets one launch per block, so all
    share the machine's good and bad times. The cell to beat stays to the end. The survivors of a
    block follow from the records of earlier blocks. The launches of a block take turns, as many at
    once as a group may have.
    """

    def __init__(
        self,
        starts: Sequence[Cell],
        plan: Plan,
        records: Iterable[Record] = (),
        host: Host | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        """Take the records so far. The first of ``starts`` with a number is the one to beat."""
        self.starts = starts
        self._sizes = halving_sizes(len(plan.cells))
        self._pairs_from = len(self._sizes) - PAIRS - SPARE
        """The first block of pairs."""
        self._block = 0
        """The first block that may still launch cells."""
        self._survivors: dict[int, list[Cell]] = {}
        """Cells that a block launches, by block."""
        super().__init__(plan, records, host, grouping)
        begun = self.count and self._block >= self._pairs_from
        if begun and any(self.wants(cell, self._block) for cell in plan.cells):
            # Pairs must be close in time: one begun before the interruption is not completed.
            self._block += 1
        elif not begun and self.tried() < len(plan.cells):
            # An earlier budget was too short for some cells: they come first now, though later than
            # the others.
            self._block = 0

    def _take(self, record: Record) -> None:
        super()._take(record)
        self._block = max(self._block, record.launch)
        self._survivors = {}

    @property
    def to_beat(self) -> Cell:
        """The cell that the others must beat."""
        return self._cell_to_beat(self._pairs_from)

    def _cell_to_beat(self, block: int) -> Cell:
        return next((cell for cell in self.starts if self._times(cell, block)), self.starts[0])

    def survivors(self, block: int) -> list[Cell]:
        """Return the cells that a block launches.

        They are the fastest of the blocks before it, and the one to beat.
        """
        if block not in self._survivors:
            cells = list(self.plan.cells)
            # The cell to beat is fixed once the pairs begin: a failure in them does not change it.
            to_beat = self._cell_to_beat(min(block, self._pairs_from))
            for past, size in enumerate(self._sizes[1 : block + 1], start=1):
                medians = {}
                for cell in cells:
                    times = self._times(cell, past)
                    if times:
                        medians[cell] = median(times)
                cells = sorted(medians, key=medians.__getitem__)[:size]
            if to_beat not in cells and self._times(to_beat, block):
                cells.append(to_beat)
            self._survivors[block] = cells
        return self._survivors[block]

    def finalists(self) -> list[Cell]:
        """Return the cells that run pairs, including the one to beat, without failed ones."""
        return [cell for cell in self.survivors(self._pairs_from) if not self._failed(cell)]

    def timed(self, cell: Cell, fit: bool = True) -> dict[int, float]:
        """Return a cell's seconds per step by block, for its pairs only.

        With ``fit``, disturbed launches are left out.
        """
        seconds = {}
        for record in last_attempts(self._records[cell]):
            if record.launch < self._pairs_from or not record.outcome.gives_a_number():
                continue
            if not (fit and left_out(record, self.host)):
                seconds[record.launch] = self._seconds(record)
        return seconds

    def _seconds(self, record: Record) -> float:
        """Return the seconds of a step of a launch.

        If the launch took turns, they are relative to the others of its group.
        """
        outcomes: dict[Cell, Outcome] = {}
        if record.group:
            outcomes = self._outcomes_in_turns(record.group)
        if record.cell not in outcomes:
            return median(record.outcome.step_seconds())
        seconds = seconds_in_turns(list(outcomes.values()))
        return dict(zip(outcomes, seconds, strict=True))[record.cell]

    def _outcomes_in_turns(self, group: str) -> dict[Cell, Outcome]:
        """Return the outcomes of a group's launches that took turns and gave a number, by cell."""
        outcomes = {}
        for cell in self.plan.cells:
            for record in self._records[cell]:
                outcome = record.outcome
                if record.group == group and outcome.gives_a_number() and outcome.turns:
                    outcomes[record.cell] = outcome
        return outcomes

    def pairs(self, fit: bool = True) -> list[int]:
        """Return the blocks in which every finalist has a time, an undisturbed one with ``fit``."""
        finalists = self.finalists()
        if not finalists:
            return []
        timed = [set(self.timed(cell, fit)) for cell in finalists]
        return sorted(set.intersection(*timed))

    def flags(self, cell: Cell) -> list[Flag]:
        """Return the flags of a cell's pairs, and how many of all its launches gave no time."""
        counting = last_attempts(self._records[cell])
        timed = self.timed(cell)
        failed = []
        flags = []
        for record in counting:
            if not record.outcome.gives_a_number():
                failed.append(record)
            if record.launch in timed:
                flags.append(record_flags(record, self.host))
        return cell_flags(flags) + failed_launches(failed, len(counting))

    def tried(self) -> int:
        """Return how many cells have a record."""
        return sum(bool(self._records[cell]) for cell in self.plan.cells)

    def without_number(self) -> dict[str, int]:
        """Return the number of failed cells by reason, the most frequent first."""
        reasons: Counter[str] = Counter()
        for cell in self.plan.cells:
            failed = self._failed(cell)
            if failed:
                outcome = failed[0].outcome
                reasons[outcome.reason or outcome.status.value] += 1
        return dict(reasons.most_common())

    def _counting(self, cell: Cell, before: int | None) -> list[Record]:
        """Return the last attempts at a cell's launches, of all blocks or those ``before`` one."""
        records = self._records[cell]
        return last_attempts(
            record for record in records if before is None or record.launch < before
        )

    def _failed(self, cell: Cell, before: int | None = None) -> list[Record]:
        """Return the launches that drop a cell.

        One failure is enough, except for an implausible time.
        """
        counting = self._counting(cell, before)
        if _forgiven(counting):
            return []
        return [record for record in counting if record.outcome.status is not Status.OK]

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        if _forgiven(counting):
            counting = [
                record for record in counting if record.outcome.status is not Status.IMPLAUSIBLE
            ]
        return super()._needed(cell, counting)

    def _times(self, cell: Cell, before: int) -> list[float]:
        """Return a cell's seconds per step in the blocks before one, none if it has dropped out."""
        if self._failed(cell, before):
            return []
        counting = self._counting(cell, before)
        return [self._seconds(record) for record in counting if record.outcome.gives_a_number()]

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block.

        In the first block the most informative come first, since time may be short. These are the
        cell to beat, the same cell tuned, then one cell of each row and number of threads, the
        tuned one if there is one.
        """
        cells: list[Cell] = []
        for group in super().wanted(block):
            cells += [launch.cell for launch in group]
        if block == 0:
            self._sort_by_information(cells)
        return self._grouped([PlannedLaunch(cell, block, SEARCH) for cell in cells])

    def _sort_by_information(self, cells: list[Cell]) -> None:
        """Sort the cells of the first block, the most informative first. See `wanted`."""
        # Of the cells of a row and number of threads the last one is kept, a tuned one if possible.
        kept = {}
        for cell in sorted(cells, key=_is_tuned):
            kept[cell._replace(tuning=TUNED)] = cell
        first = set(kept.values())
        start = self.starts[0]
        tuned_start = start._replace(tuning=TUNED)

        def place(cell: Cell) -> tuple[bool, bool, bool]:
            return cell != start, cell not in (start, tuned_start), cell not in first

        cells.sort(key=place)

    def wants(self, cell: Cell, block: int) -> bool:
        """Return whether a cell still needs its launch of a block, never of a past one."""
        if block < self._block or not super().wants(cell, block):
            return False
        if cell not in self.survivors(block):
            return False
        if block < self._pairs_from:
            return True
        if self._failed(cell):
            return False
        return block < self._pairs_from + PAIRS or len(self.pairs()) < PAIRS

    def reserved(self, cell: Cell, block: int) -> float:
        """Return the seconds of a budget that must remain after this launch.

        Until the pairs begin, these are the expected seconds of all pairs. Then they are those of
        the rest of this pair, since an incomplete pair is worthless.
        """
        if block < self._pairs_from:
            return PAIRS * (FINALISTS + 1) * fmean(map(self.seconds, self.plan.cells))
        others = [finalist for finalist in self.finalists() if finalist != cell]
        return sum(self.seconds(other) for other in others if self.wants(other, block))

    def launches_left(self) -> int:
        """Return the maximum number of launches still to come. Failing cells reduce it."""
        block = self._block
        in_block = 0
        living = 0
        for cell in self.survivors(block):
            if self.wants(cell, block):
                in_block += 1
                living += 1
            elif self._times(cell, block + 1):
                living += 1
        if block < self._pairs_from:
            sizes = self._sizes[block + 1 : self._pairs_from]
            halving = sum(min(size + 1, living) for size in sizes)
            return in_block + halving + PAIRS * min(FINALISTS + 1, living)
        missing = PAIRS - len(self.pairs())
        if in_block:
            missing -= 1
        blocks = max(0, min(missing, len(self._sizes) - block - 1))
        return in_block + len(self.finalists()) * blocks

    def seconds_left(self) -> float:
        """Return the expected seconds of the launches that are left."""
        cells = self.survivors(self._block) or self.plan.cells
        return self.launches_left() * fmean(map(self.seconds, cells))


def _is_tuned(cell: Cell) -> bool:
    return cell.tuning == TUNED


def _forgiven(counting: Sequence[Record]) -> bool:
    """Return whether a cell's only failures are implausible times, too few to drop it."""
    statuses = Counter(record.outcome.status for record in counting)
    if set(statuses) != {Status.OK, Status.IMPLAUSIBLE}:
        return False
    return statuses[Status.IMPLAUSIBLE] < IMPLAUSIBLE


VARIABLES = "Variables: "
"""Beginning of a result's line with its variables."""
_REASONS = 3


@dataclass(frozen=True)
class SearchResult:
    """The finalists of a search."""

    schedule: HalvingSchedule
    seconds: Mapping[Cell, float]
    """Seconds of a step by finalist, the fastest first: the median over its launches in pairs."""
    slower: Mapping[Cell, PairedEstimate]
    """Ratio of each other finalist's seconds to the fastest's, in pairs."""
    confidence: float
    """Confidence of each interval with which all of them hold together.

    The same pairs select the fastest and give its gain."""
    disturbed: int
    """Pairs that are left out, since other programs disturbed one of their launches."""

    @property
    def best(self) -> Cell:
        """The fastest way."""
        return next(iter(self.seconds))

    @property
    def gain(self) -> PairedEstimate | None:
        """The speed-up of the fastest over the cell to beat.

        None if they are the same, or if the one to beat has no number.
        """
        return self.slower.get(self.schedule.to_beat)


def search_result(schedule: HalvingSchedule) -> SearchResult | None:
    """Return the result of a search, or None where it did not reach a pair."""
    blocks = schedule.pairs()
    if not blocks:
        return None
    timed = {}
    for cell in schedule.finalists():
        seconds = schedule.timed(cell)
        timed[cell] = [seconds[block] for block in blocks]
    # Bonferroni over every comparison of two finalists: whichever is then called the fastest, its
    # intervals hold.
    comparisons = max(1, len(timed) * (len(timed) - 1) // 2)
    confidence = 1 - (1 - CONFIDENCE) / comparisons

    def slower(cell: Cell, than: Cell) -> PairedEstimate:
        return estimate_pairs(timed[than], timed[cell], confidence)

    def place(cell: Cell) -> tuple[int, float]:
        # Ranked by the estimates that are shown, so that none of them contradicts the order.
        return sum(slower(cell, other).value > 1 for other in timed), fmean(np.log(timed[cell]))

    best, *others = sorted(timed, key=place)
    medians = {best: median(timed[best])}
    estimates = {}
    for cell in others:
        medians[cell] = median(timed[cell])
        estimates[cell] = slower(cell, best)
    return SearchResult(
        schedule,
        seconds=medians,
        slower=estimates,
        confidence=confidence,
        disturbed=len(schedule.pairs(fit=False)) - len(blocks),
    )


def recipe(result: SearchResult) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return how to run the fastest cell: variables, settings with their effect, further steps.

    Variables that only keep a row's process quiet, or in its own folder, are left out.
    """
    cell = result.best
    plan = result.schedule.plan
    build = plan.row_of(cell).build
    framework = build.framework
    in_force = {}
    chosen = [framework.modes[cell.mode].variables]
    for name in tuning.in_force(cell.tuning, plan.tunable(cell)):
        setting = framework.setting(name)
        in_force[name] = setting
        chosen.append(setting.variables)
    thread_variables: set[str] = set()
    for templates in (framework.variables, *chosen):
        thread_variables |= {name for name, text in templates.items() if "{threads}" in text}
    folder: Path | None
    if build.interpreter is None:
        folder = environment.locate(framework).directory
    else:
        folder = environment.external_source(build).folder
    wanted = thread_variables.union(*chosen)
    launched = framework.launch_variables(cell.mode, cell.threads, folder, in_force)
    variables = {name: value for name, value in launched.items() if name in wanted}
    secrets = []
    for name, value in plan.variables.items():
        if is_secret(name):
            secrets.append(name)
        else:
            variables[name] = value
    settings = {name: _setting_effect(setting) for name, setting in in_force.items()}
    steps = []
    if cell.world_size > 1:
        steps.append(f"Workers: {cell.world_size}, on equal parts of the mini-batch")
    if cell.instances > 1:
        steps.append(
            f"Instances: {cell.instances} independent processes, each bound to its own CPUs"
        )
    elif cell.affinity == BOUND:
        steps.append(f"CPUs: bind the process to {cell.all_threads} of them, as taskset does")
    elif framework.bound_to_one_node(in_force):
        steps.append(
            "CPUs: bind the process to those of one NUMA node, as numactl --cpunodebind does"
        )
    if cell.on_cpu and cell.threads and not thread_variables:
        hint = f"`dlbench list --capabilities` shows how to set {framework.title}'s thread count"
        steps.append(f"Threads: {cell.threads}; {hint}")
    if secrets:
        steps.append(
            f"Variables whose values are not shown: {', '.join(secrets)}, as given by {OPTION}"
        )
    return variables, settings, steps


def _setting_effect(setting: Tuned) -> str:
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in setting.settings.items())
    effect = setting.why
    if values:
        effect += f" ({values})"
    if isinstance(setting, LaunchSetting) and setting.package:
        effect += f" (of {setting.package})"
    return effect


def lines(result: SearchResult, command: str | None) -> list[str]:
    """Return the result in sentences.

    ``command`` is the one that measures the fastest again, where there is one.
    """
    best = result.best
    plan = result.schedule.plan
    planned = len(plan.cells)
    tried = result.schedule.tried()
    count = f"{planned}"
    if tried < planned:
        count = f"{tried} of {planned}"
    seconds = result.seconds[best]
    speed = f"{seconds:.4g} s a step"
    if best.batch_size is not None:
        speed += f", {best.batch_size / seconds:.4g} items/s"
    sentences = [f"Fastest of {count} configurations: {_name(plan, best)}: {speed}."]
    sentences.append(_gain_sentence(result))
    intervals = 0
    for cell, slower in result.slower.items():
        if slower.low is not None:
            intervals += 1
        if cell != result.schedule.to_beat:
            times = f"{_times_text(slower)} as long{_doubt_text(result, slower)}"
            sentences.append(f"Next: {_name(plan, cell)} takes {times}.")
    if intervals > 1:
        sentences.append(f"These intervals hold simultaneously at {CONFIDENCE:.0%} confidence.")
    if result.disturbed:
        pairs = counted(result.disturbed, "pair")
        sentences.append(f"Left out: {pairs} that other programs disturbed.")
    for cell in result.seconds:
        for flag in result.schedule.flags(cell):
            sentences.append(f"Mark on {_name(plan, cell)}: {flag.sentence}.")
    summary = plan.row_of(best).build.framework.summary_of(best.mode, best.task)
    sentences.append(f"Mode {best.mode}: {summary}")
    variables, settings, steps = recipe(result)
    sentences += steps
    if variables:
        words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
        sentences.append(VARIABLES + " ".join(words))
    sentences += [f"Setting {name}: {effect}" for name, effect in settings.items()]
    sentences += reasons(result.schedule.without_number())
    if tried != planned:
        sentences.append(
            f"The budget was too short for the other {planned - tried}. To try them too, search "
            "again with a longer one."
        )
    if command:
        sentences.append(f"Measure it again: {as_called(command)}")
    return sentences


def reasons(failed: Mapping[str, int]) -> list[str]:
    """Return sentences with the most frequent reasons why configurations gave no number."""
    sentences = [
        f"No number from {counted(count, 'configuration')}: {reason}"
        for reason, count in failed.items()
    ]
    if len(sentences) <= _REASONS:
        return sentences
    return [*sentences[:_REASONS], f"{len(sentences) - _REASONS} more reasons"]


def data(result: SearchResult, command: str | None) -> dict[str, Any]:
    """Return the result as plain JSON types."""
    schedule = result.schedule
    plan = schedule.plan
    best = result.best
    variables, settings, _ = recipe(result)
    finalists = []
    for cell, seconds in result.seconds.items():
        finalist = {
            **axes.values(cell),
            "seconds_per_minibatch": seconds,
            "times_the_fastest": estimate_data(result.slower.get(cell)),
            "flags": plain(tuple(schedule.flags(cell))),
        }
        finalists.append(finalist)
    content = {
        "finalists": finalists,
        "start": axes.values(schedule.starts[0]),
        "against": axes.values(schedule.to_beat),
        "gain": estimate_data(result.gain),
        "confidence": result.confidence,
        "disturbed_pairs": result.disturbed,
        "planned": len(plan.cells),
        "tried": schedule.tried(),
        "failed": schedule.without_number(),
        "mode": plan.row_of(best).build.framework.summary_of(best.mode, best.task),
        "variables": variables,
        "settings": settings,
        "command": command,
    }
    return conclusion_data("tune", conclusion_of(result), content)


def conclusion_of(result: SearchResult) -> Conclusion:
    """Return whether the fastest configuration is faster than the default one, and the gain."""
    reason = _gain_sentence(result)
    if result.best == result.schedule.starts[0]:
        return Conclusion("default", reason)
    if result.gain is None or result.gain.is_above(1):
        return Conclusion("faster", reason)
    return Conclusion("undecided", reason)


def data_without_result(schedule: HalvingSchedule, reason: str) -> dict[str, Any]:
    """Return the same of a search that has no result, for this reason."""
    content = {
        "finalists": [],
        "planned": len(schedule.plan.cells),
        "tried": schedule.tried(),
        "failed": schedule.without_number(),
    }
    return conclusion_data("tune", Conclusion("no number", reason), content)


def _name(plan: Plan, cell: Cell) -> str:
    # In a row without settings nothing is tuned.
    name = rest_of(cell)
    if cell.tuning == TUNED and plan.tunable(cell):
        name += ", tuned"
    return name


def _gain_sentence(result: SearchResult) -> str:
    plan = result.schedule.plan
    start = result.schedule.starts[0]
    beaten = result.schedule.to_beat
    if result.best == start:
        return "This is the default configuration: nothing tried was faster."
    lost = f"The default, {_name(plan, start)}, failed"
    if result.gain is None:
        return f"{lost}."
    doubt = _doubt_text(result, result.gain)
    gain = f"{_times_text(result.gain)} as fast as {_name(plan, beaten)}{doubt}."
    if beaten == start:
        return gain
    return f"{lost}; the fastest is {gain}"


def _times_text(estimate: PairedEstimate) -> str:
    details = counted(estimate.pairs, "pair")
    if estimate.low is not None:
        details = f"{estimate.low:.3f} to {estimate.high:.3f}, {details}"
    return f"{estimate.value:.3f} times ({details})"


def _doubt_text(result: SearchResult, estimate: PairedEstimate) -> str:
    if estimate.is_above(1.0) or estimate.is_below(1.0):
        return ""
    if estimate.low is not None:
        return "; noise may explain it"
    return f"; {pairs_for(result.confidence)} pairs are needed for an interval"
