"""The search for the fastest way to run a network here: its schedule, its result, and how to set
it.
"""

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np

from dlbench.adapters import axes, tuning
from dlbench.adapters.protocol import BOUND, TUNED, Cell, Status
from dlbench.reports.formats.json import plain
from dlbench.reports.results.disturbance import left_out
from dlbench.reports.results.flags import Flag, cell_flags, failed_launches, record_flags
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.naming import counted, rest_of
from dlbench.reports.results.record import SEARCH, Record, last_attempts
from dlbench.reports.results.rounds import seconds_in_turns
from dlbench.reports.results.verdict import PairedEstimate, estimate_data, estimate_pairs, pairs_for

from ..display.screen import as_called
from ..environments import environment
from ..planning.plan import Plan, PlannedLaunch
from ..planning.settings import LaunchSetting
from ..planning.variables import OPTION, is_secret
from .groups import Group, Grouping
from .schedules import Schedule

FINALISTS = 2
PAIRS = 8
"""Launches of each finalist after the selection: the gain comes from these alone, so luck in the
race adds no bias."""
SPARE = 4
"""Further blocks at most, to replace pairs that other programs disturbed."""
IMPLAUSIBLE = 3
"""Implausible times that drop a cell with valid ones: other programs may cause a single one."""


def halving_sizes(cells: int) -> list[int]:
    """Return the number of cells in each block, besides the one to beat: halved down to the
    finalists' pairs.
    """
    found = [cells]
    while found[-1] > FINALISTS:
        found.append(max(FINALISTS, math.ceil(found[-1] / 2)))
    return [*found[:-1], *[found[-1]] * (PAIRS + SPARE)]


def halving_plan(plan: Plan) -> Plan:
    """Return the plan with as many blocks as a search of its cells has; launches train no further
    than they time.
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
        usual = cell.mode == plan.row_of(cell).build.framework.default_mode
        in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
        return not usual, len(in_force), cell.instances, abs(cell.threads - cores), cell.threads

    names = {cell.framework for cell in plan.cells}
    first = next(row.build.name for row in plan.rows if row.build.name in names)
    return tuple(sorted((cell for cell in plan.cells if cell.framework == first), key=distance))


class HalvingSchedule(Schedule):
    """A search: after each block of launches the slower half drops out, and the last ones run
    pairs.

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
        """Take the records so far; the first of ``starts`` with a number is what the others must
        beat.
        """
        self.starts = starts
        self._sizes = halving_sizes(len(plan.cells))
        self._pairs_from = len(self._sizes) - PAIRS - SPARE
        self._block = 0
        self._survivors: dict[int, list[Cell]] = {}
        super().__init__(plan, records, host, grouping)
        begun = self.count and self._block >= self._pairs_from
        if begun and any(self.wants(cell, self._block) for cell in plan.cells):
            self._block += (
                1  # pairs must be close in time: one begun before the interruption is not completed
            )
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
        return self._to_beat(self._pairs_from)

    def _to_beat(self, block: int) -> Cell:
        return next((cell for cell in self.starts if self._times(cell, block)), self.starts[0])

    def survivors(self, block: int) -> list[Cell]:
        """Return the cells that a block launches: the fastest of the blocks before it, and the one
        to beat.
        """
        if block not in self._survivors:
            # The cell to beat is fixed once the pairs begin: a failure in them does not change it.
            cells, stays = list(self.plan.cells), self._to_beat(min(block, self._pairs_from))
            for past, size in enumerate(self._sizes[1 : block + 1], start=1):
                times = {
                    cell: median(found) for cell in cells if (found := self._times(cell, past))
                }
                cells = sorted(times, key=times.__getitem__)[:size]
            if stays not in cells and self._times(stays, block):
                cells.append(stays)
            self._survivors[block] = cells
        return self._survivors[block]

    def finalists(self) -> list[Cell]:
        """Return the cells that run pairs, the one to beat among them, without those that failed
        since.
        """
        return [cell for cell in self.survivors(self._pairs_from) if not self._failed(cell)]

    def timed(self, cell: Cell, fit: bool = True) -> dict[int, float]:
        """Return a cell's seconds per step by block, for its pairs only; ``fit`` leaves out
        disturbed launches.
        """
        return {
            record.launch: self._seconds(record)
            for record in last_attempts(self._records[cell])
            if record.launch >= self._pairs_from
            and record.outcome.gives_a_number()
            and not (fit and left_out(record, self.host))
        }

    def _seconds(self, record: Record) -> float:
        """Return the seconds of a step of a launch: of one that took turns beside the others of its
        group.
        """
        group = {
            other.cell: other.outcome
            for cell in self.plan.cells
            for other in self._records[cell]
            if record.group
            and other.group == record.group
            and other.outcome.gives_a_number()
            and other.outcome.turns
        }
        if record.cell not in group:
            return median(record.outcome.step_seconds())
        return dict(zip(group, seconds_in_turns(list(group.values())), strict=True))[record.cell]

    def pairs(self, fit: bool = True) -> list[int]:
        """Return the blocks of pairs in which every finalist has a time; ``fit``: an undisturbed
        one.
        """
        timed = [set(self.timed(cell, fit)) for cell in self.finalists()]
        return sorted(set.intersection(*timed)) if timed else []

    def flags(self, cell: Cell) -> list[Flag]:
        """Return the flags of a cell's pairs, and how many of all its launches gave no time."""
        counting, timed = last_attempts(self._records[cell]), self.timed(cell)
        failed = [each for each in counting if not each.outcome.gives_a_number()]
        found = [record_flags(each, self.host) for each in counting if each.launch in timed]
        return cell_flags(found) + failed_launches(failed, len(counting))

    def tried(self) -> int:
        """Return how many cells have a record."""
        return sum(bool(self._records[cell]) for cell in self.plan.cells)

    def without_number(self) -> dict[str, int]:
        """Return the number of failed cells by reason, the most frequent first."""
        failed = (found[0].outcome for cell in self.plan.cells if (found := self._failed(cell)))
        return dict(
            Counter(outcome.reason or outcome.status.value for outcome in failed).most_common()
        )

    def _counting(self, cell: Cell, before: int | None) -> list[Record]:
        return last_attempts(
            each for each in self._records[cell] if before is None or each.launch < before
        )

    def _failed(self, cell: Cell, before: int | None = None) -> list[Record]:
        """Return the launches that drop a cell: one failure is enough, except for an implausible
        time.
        """
        counting = self._counting(cell, before)
        return (
            []
            if _forgiven(counting)
            else [each for each in counting if each.outcome.status is not Status.OK]
        )

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        timed = [each for each in counting if each.outcome.status is not Status.IMPLAUSIBLE]
        return super()._needed(cell, timed if _forgiven(counting) else counting)

    def _times(self, cell: Cell, before: int) -> list[float]:
        if self._failed(cell, before):
            return []
        counting = self._counting(cell, before)
        return [self._seconds(each) for each in counting if each.outcome.gives_a_number()]

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block; in the first block the most informative come first, since
        time may be short.

        These are the cell to beat, the same cell tuned, then one cell of each row and number of
        threads, the tuned one if there is one.
        """
        cells = [launch.cell for group in super().wanted(block) for launch in group]
        if block == 0:
            tuned_last = sorted(cells, key=lambda cell: cell.tuning == TUNED)
            first = set({cell._replace(tuning=TUNED): cell for cell in tuned_last}.values())
            start = self.starts[0]
            usual = (start, start._replace(tuning=TUNED))
            cells.sort(key=lambda cell: (cell != start, cell not in usual, cell not in first))
        launches = [PlannedLaunch(cell, block, SEARCH) for cell in cells]
        if self._grouping is None:
            return [(launch,) for launch in launches]
        peaks = {cell: self._peak(cell) for cell in cells}
        return self._grouping.groups(launches, peaks, {cell: self.seconds(cell) for cell in cells})

    def wants(self, cell: Cell, block: int) -> bool:
        """Whether a cell still needs its launch of a block; a past block launches nothing more."""
        if (
            block < self._block
            or not super().wants(cell, block)
            or cell not in self.survivors(block)
        ):
            return False
        if block < self._pairs_from:
            return True
        return not self._failed(cell) and (
            block < self._pairs_from + PAIRS or len(self.pairs()) < PAIRS
        )

    def reserved(self, cell: Cell, block: int) -> float:
        """Return the seconds of a budget that must remain after this launch.

        Until the pairs begin: the expected seconds of all pairs; then those of the rest of this
        pair, since an incomplete pair is worthless.
        """
        if block >= self._pairs_from:
            return sum(
                self.seconds(each)
                for each in self.finalists()
                if each != cell and self.wants(each, block)
            )
        return PAIRS * (FINALISTS + 1) * fmean(map(self.seconds, self.plan.cells))

    def launches_left(self) -> int:
        """Return the maximum number of launches still to come; failing cells reduce it."""
        now, survivors = self._block, self.survivors(self._block)
        here = sum(self.wants(cell, now) for cell in survivors)
        if now < self._pairs_from:
            living = sum(
                self.wants(cell, now) or bool(self._times(cell, now + 1)) for cell in survivors
            )
            halving = sum(min(size + 1, living) for size in self._sizes[now + 1 : self._pairs_from])
            return here + halving + PAIRS * min(FINALISTS + 1, living)
        missing = PAIRS - len(self.pairs()) - bool(here)
        return here + len(self.finalists()) * max(0, min(missing, len(self._sizes) - now - 1))

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return self.launches_left() * fmean(
            map(self.seconds, self.survivors(self._block) or self.plan.cells)
        )


def _forgiven(counting: Sequence[Record]) -> bool:
    """Whether a cell's only failures are implausible times, too few to drop it."""
    statuses = Counter(each.outcome.status for each in counting)
    return (
        set(statuses) == {Status.OK, Status.IMPLAUSIBLE}
        and statuses[Status.IMPLAUSIBLE] < IMPLAUSIBLE
    )


_CONFIDENCE = 0.95
VARIABLES = "Variables: "
"""How the line of a result with its variables begins."""
_REASONS = 3


@dataclass(frozen=True)
class SearchResult:
    """The finalists of a search."""

    schedule: HalvingSchedule
    seconds: Mapping[Cell, float]
    """Of a step, median over the launches in pairs, by finalist, the fastest first."""
    slower: Mapping[Cell, PairedEstimate]
    """Seconds over the fastest's, in pairs, of each finalist but the fastest."""
    confidence: float
    """Of each interval, so that all hold together: the same pairs select the fastest and give its
    gain."""
    disturbed: int
    """Pairs that are left out, since other programs disturbed one of their launches."""

    @property
    def best(self) -> Cell:
        """The fastest way."""
        return next(iter(self.seconds))

    @property
    def gain(self) -> PairedEstimate | None:
        """The speed-up of the fastest over the cell to beat; None if they are the same, or that has
        no number.
        """
        return self.slower.get(self.schedule.to_beat)


def search_result(schedule: HalvingSchedule) -> SearchResult | None:
    """Return the result of a search; None where it did not reach a pair."""
    blocks = schedule.pairs()
    if not blocks:
        return None
    by_block = {cell: schedule.timed(cell) for cell in schedule.finalists()}
    timed = {cell: [seconds[block] for block in blocks] for cell, seconds in by_block.items()}
    # Bonferroni over every comparison of two finalists: whichever is then called the fastest, its
    # intervals hold.
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(timed) * (len(timed) - 1) // 2)

    def slower(cell: Cell, than: Cell) -> PairedEstimate:
        return estimate_pairs(timed[than], timed[cell], confidence)

    def place(cell: Cell) -> tuple[int, float]:
        # Ranked by the estimates that are shown, so that none of them contradicts the order.
        return sum(slower(cell, other).ratio > 1 for other in timed), fmean(np.log(timed[cell]))

    cells = sorted(timed, key=place)
    return SearchResult(
        schedule,
        {cell: median(timed[cell]) for cell in cells},
        {cell: slower(cell, cells[0]) for cell in cells[1:]},
        confidence,
        len(schedule.pairs(fit=False)) - len(blocks),
    )


def recipe(found: SearchResult) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return how to run the fastest cell: variables to set, settings with their effect, and further
    steps in words.

    Variables that only keep a row's process quiet, or in its own folder, are left out.
    """
    cell, plan = found.best, found.schedule.plan
    build = plan.row_of(cell).build
    framework = build.framework
    in_force = {
        name: framework.setting(name) for name in tuning.in_force(cell.tuning, plan.tunable(cell))
    }
    chosen = [
        framework.modes[cell.mode].variables,
        *(tuned.variables for tuned in in_force.values()),
    ]
    of_threads = {
        name
        for each in (framework.variables, *chosen)
        for name, text in each.items()
        if "{threads}" in text
    }
    own = build.interpreter is None
    folder = (
        environment.locate(framework).directory
        if own
        else environment.external_source(build).folder
    )
    wanted = of_threads.union(*chosen)
    variables = framework.launch_variables(cell.mode, cell.threads, folder, in_force)
    settings = {}
    for name, tuned in in_force.items():
        values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in tuned.settings.items())
        settings[name] = f"{tuned.why} ({values})" if values else tuned.why
        if isinstance(tuned, LaunchSetting) and tuned.package:
            settings[name] += f" (of {tuned.package})"
    besides = []
    if cell.world_size > 1:
        besides.append(f"Workers: {cell.world_size}, on equal parts of the mini-batch")
    if cell.instances > 1:
        besides.append(
            f"Instances: {cell.instances} independent processes, each bound to its own CPUs"
        )
    elif cell.affinity == BOUND:
        besides.append(f"CPUs: bind the process to {cell.all_threads} of them, as taskset does")
    elif framework.bound_to_one_node(in_force):
        besides.append(
            "CPUs: bind the process to those of one NUMA node, as numactl --cpunodebind does"
        )
    if cell.on_cpu and cell.threads and not of_threads:
        hint = f"`dlbench list --capabilities` shows how to set {framework.title}'s thread count"
        besides.append(f"Threads: {cell.threads}; {hint}")
    given = {name: value for name, value in plan.variables.items() if not is_secret(name)}
    if secrets := [name for name in plan.variables if is_secret(name)]:
        besides.append(
            f"Variables whose values are not shown: {', '.join(secrets)}, as given by {OPTION}"
        )
    return (
        {**{name: value for name, value in variables.items() if name in wanted}, **given},
        settings,
        besides,
    )


def lines(found: SearchResult, command: str | None) -> list[str]:
    """Return the result in sentences; ``command`` is the one that measures the fastest again, where
    there is one.
    """
    best, plan, tried = found.best, found.schedule.plan, found.schedule.tried()
    planned = len(plan.cells)
    of = f"{tried} of {planned}" if tried < planned else f"{planned}"
    speed = f"{found.seconds[best]:.4g} s a step"
    if best.batch_size is not None:
        speed += f", {best.batch_size / found.seconds[best]:.4g} items/s"
    sentences = [f"Fastest of {of} configurations: {_named(plan, best)}: {speed}.", _gain(found)]
    for cell, slower in found.slower.items():
        if cell != found.schedule.to_beat:
            sentences.append(
                f"Next: {_named(plan, cell)} takes {_times(slower)} as long{_doubt(found, slower)}."
            )
    if sum(slower.low > 0 for slower in found.slower.values()) > 1:
        sentences.append(f"These intervals hold simultaneously at {_CONFIDENCE:.0%} confidence.")
    if found.disturbed:
        sentences.append(
            f"Left out: {counted(found.disturbed, 'pair')} that other programs disturbed."
        )
    for cell in found.seconds:
        sentences += [
            f"Mark on {_named(plan, cell)}: {flag.sentence}." for flag in found.schedule.flags(cell)
        ]
    sentences.append(
        f"Mode {best.mode}: {plan.row_of(best).build.framework.summary_of(best.mode, best.task)}"
    )
    variables, settings, besides = recipe(found)
    sentences += besides
    if variables:
        sentences.append(
            VARIABLES
            + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
        )
    sentences += [f"Setting {name}: {effect}" for name, effect in settings.items()]
    sentences += reasons(found.schedule.without_number())
    if others := planned - tried:
        sentences.append(
            f"The budget was too short for the other {others}. To try them too, search again with "
            "a longer one."
        )
    return sentences + ([f"Measure it again: {as_called(command)}"] if command else [])


def reasons(failed: Mapping[str, int]) -> list[str]:
    """Return sentences with the most frequent reasons why configurations gave no number."""
    shown = [
        f"No number from {counted(count, 'configuration')}: {reason}"
        for reason, count in failed.items()
    ]
    return shown[:_REASONS] + (
        [f"{len(shown) - _REASONS} more reasons"] if len(shown) > _REASONS else []
    )


def data(found: SearchResult, command: str | None) -> dict[str, Any]:
    """Return the result as plain JSON types."""
    schedule, plan = found.schedule, found.schedule.plan
    variables, settings, _ = recipe(found)
    return {
        "finalists": [
            {
                **axes.values(cell),
                "seconds_per_minibatch": seconds,
                "times_the_fastest": estimate_data(found.slower.get(cell)),
                "flags": plain(tuple(schedule.flags(cell))),
            }
            for cell, seconds in found.seconds.items()
        ],
        "start": axes.values(schedule.starts[0]),
        "against": axes.values(schedule.to_beat),
        "gain": estimate_data(found.gain),
        "confidence": found.confidence,
        "disturbed_pairs": found.disturbed,
        "planned": len(plan.cells),
        "tried": schedule.tried(),
        "failed": schedule.without_number(),
        "mode": plan.row_of(found.best).build.framework.summary_of(
            found.best.mode, found.best.task
        ),
        "variables": variables,
        "settings": settings,
        "command": command,
    }


def _named(plan: Plan, cell: Cell) -> str:
    # In a row without settings nothing is tuned.
    return rest_of(cell) + (", tuned" if cell.tuning == TUNED and plan.tunable(cell) else "")


def _gain(found: SearchResult) -> str:
    plan, start, beaten = found.schedule.plan, found.schedule.starts[0], found.schedule.to_beat
    if found.best == start:
        return "This is the default configuration: nothing tried was faster."
    lost = f"The default, {_named(plan, start)}, failed"
    if found.gain is None:
        return f"{lost}."
    gain = f"{_times(found.gain)} as fast as {_named(plan, beaten)}{_doubt(found, found.gain)}."
    return gain if beaten == start else f"{lost}; the fastest is {gain}"


def _times(found: PairedEstimate) -> str:
    pairs = counted(found.pairs, "pair")
    interval = (
        f" ({found.low:.3f} to {found.high:.3f}, {pairs})" if found.low > 0 else f" ({pairs})"
    )
    return f"{found.ratio:.3f} times{interval}"


def _doubt(result: SearchResult, found: PairedEstimate) -> str:
    if not found.low <= 1.0 <= found.high:
        return ""
    needed = pairs_for(result.confidence)
    return (
        "; noise may explain it"
        if found.low > 0
        else f"; {needed} pairs are needed for an interval"
    )
