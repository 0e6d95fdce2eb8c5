"""Schedules: which launches a run makes next, decided from its plan and its records alone.

    schedule = Schedule(plan, records, host)
    for block in schedule.blocks():
        for launches in schedule.wanted(block, seconds_left):
            ...                                   # launch, store the record,
            schedule.add(record)

`Schedule` launches each cell a fixed number of times or until its interval is narrow enough, `PairSchedule` both
sides of a comparison in interleaved pairs, `search.HalvingSchedule` searches the fastest cell. A resumed run makes its
schedule from the records so far.
"""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from dlbench.adapters.protocol import Cell, Protocol, Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONFIRM, CRASHES, ONCE_BY_CHANCE, pairs_of
from dlbench.reports.compare.verdict import DEFAULT, Rule, Screening, estimate_pairs, fewest_pairs, next_look, screen
from dlbench.reports.disturbance import disturbed
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import SCREEN, Record, last_attempts

from ..planning.plan import LaunchDurations, Plan, PlannedLaunch, group_of, sizes_of
from . import precision
from .precision import LaunchStats

Group = tuple[PlannedLaunch, ...]
"""Launches that belong together, in order: the two sides of a pair, else one."""

MOST_ATTEMPTS = 3
"""A disturbed launch is repeated until it was attempted this often."""
# Repetitions of disturbed launches allowed in a whole run: a number, and a share of its records.
_REPEATS, _REPEATS_SHARE = 4, 0.25
# Statuses after which another launch of the same cell could give something new.
_WORTH_REPEATING = (Status.OK, Status.PARITY_FAILED, Status.CRASHED)

LOOKS_APART = 1.4
"""A comparison looks at its interval after this many times the pairs of the previous look. Looking after every pair
would favour intervals that came out narrow by chance."""


class Schedule:
    """The launches of one run so far, and those to come: blocks of one launch of each cell."""

    strict = False
    """Whether the run ends with the first launch that does not fit its budget."""

    def __init__(self, plan: Plan, records: Iterable[Record] = (), host: Host | None = None) -> None:
        self.plan, self.host = plan, host
        self.count = self.repeated = 0
        """Records in all, and those that repeat a disturbed launch."""
        self._durations = LaunchDurations(plan)
        self._records: defaultdict[Cell, list[Record]] = defaultdict(list)
        """By cell, and by what cells share that differ in their threads or their mini-batch only."""
        self._stats: dict[Cell, tuple[LaunchStats, ...]] = {}
        self._left: dict[Cell, int] = {}
        """Launches that each cell is expected to need."""
        for record in records:
            self._take(record)
        for cell in plan.cells:
            self._update(cell)

    def add(self, record: Record) -> None:
        """Take note of a record."""
        self._take(record)
        self._update(record.cell)

    def _take(self, record: Record) -> None:
        for key in (record.cell, group_of(record.cell), sizes_of(record.cell)):
            self._records[key].append(record)
        self.count += 1
        self.repeated += record.attempt > 0
        if record.outcome.status is not Status.SKIPPED:
            self._durations.add(record.cell, record.wall_seconds)

    def _update(self, cell: Cell) -> None:
        """Recompute what a cell needs."""
        counting = last_attempts(self._records[cell])
        self._stats[cell] = tuple(filter(None, map(precision.launch_stats, counting)))
        self._left[cell] = self._needed(cell, counting)

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        statuses = [record.outcome.status for record in counting]
        if any(status not in _WORTH_REPEATING for status in statuses):
            return 0
        missing = max(0, self.plan.launches - len({record.launch for record in counting}))
        failed = statuses.count(Status.CRASHED) >= CRASHES or Status.PARITY_FAILED in statuses
        if self.plan.interval is None or failed:
            return missing  # a failed cell has no interval target
        left = precision.launches_left(self._stats[cell], self.plan.interval, self.plan.launches, self.plan.most)
        return min(self.plan.most - len(counting), max(missing, left))

    def blocks(self) -> Iterator[int]:
        """Yield the indices of blocks while something may be needed."""
        return iter(range(self.plan.most))

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block, shuffled by the plan's seed; ``seconds_left`` are those of a budget.

        Where time is short, those come first that gain most precision.
        """
        found = [planned for planned in self.plan.block(block) if self.wants(planned.cell, block)]
        # The first block's order serves the cells' budgets: see `Plan.block`.
        if self.plan.interval is not None and block and seconds_left is not None:
            seconds = {planned: self.seconds(planned.cell) for planned in found}
            if sum(seconds.values()) > seconds_left:
                gain, interval = precision.gain, self.plan.interval
                found.sort(key=lambda each: -gain(self._stats[each.cell], seconds[each], interval))
        return [(planned,) for planned in found]

    def wants(self, cell: Cell, block: int) -> bool:
        """Whether a cell still needs its launch of a block, now that others have ended."""
        if self._left[cell] == 0 or any(record.launch == block for record in self._records[cell]):
            return False
        return block < self.plan.launches or self.plan.interval is not None

    def launches_left(self) -> int:
        """Return how many launches are expected to be needed."""
        return sum(self._left.values())

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return sum(count * self.seconds(cell) for cell, count in self._left.items() if count)

    def reserved(self, cell: Cell, block: int) -> float:
        """Return the seconds that a budget must leave behind a cell's launch of a block."""
        return 0.0

    def seconds(self, cell: Cell) -> float:
        """Return the expected seconds of a launch."""
        return self._durations.launch_duration(cell)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures; with a precision to reach, for how many samples."""
        protocol = self.plan.protocol_of(cell)
        if self.plan.interval is None:
            return protocol
        searching = protocol.maximum_warmup_steps > 0
        steps = precision.steps(self._stats[cell], protocol.minimum_steps, protocol.steps, searching)
        return protocol._replace(steps=steps)

    def skip_reason(self, cell: Cell) -> str:
        """Return why a cell is not worth starting, judged by others like it; else nothing."""
        out_of_memory = [
            each.cell.batch_size
            for each in self._records[sizes_of(cell)]
            if each.outcome.status is Status.OUT_OF_MEMORY
        ]
        if not self._stats[cell] and min(out_of_memory, default=cell.batch_size) < cell.batch_size:
            return f"mini-batch {min(out_of_memory)} ran out of memory already"
        first = min(self._records[group_of(cell)], key=lambda each: each.cell.threads, default=None)
        if first is None or first.cell.threads >= cell.threads:
            return ""
        limit, outcome = self.plan.cell_seconds, first.outcome
        threads = "1 thread" if first.cell.threads == 1 else f"{first.cell.threads} threads"
        if outcome.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if outcome.samples_ns and (step := median(outcome.step_seconds())) > limit:
            return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""

    def most_attempts(self) -> int:
        """Return how often the next launch may be attempted."""
        return MOST_ATTEMPTS if self.repeated < _REPEATS + _REPEATS_SHARE * self.count else 1

    def disturbed(self, record: Record) -> bool:
        """Whether other programs disturbed this launch."""
        return disturbed(record, self.host)

    def launch_stats(self, cell: Cell) -> tuple[LaunchStats, ...]:
        """Return the statistics of the launches of a cell that gave a number."""
        return self._stats[cell]


PairRule = Callable[[Cell, Sequence[Record]], tuple[str, int] | None]
"""Given a cell and its records: the stage that needs a pair, and how many more at most; None when it is done."""


class PairSchedule(Schedule):
    """Pairs of launches, one of each side, until a rule wants no more."""

    strict = True

    def __init__(self, plan: Plan, records: Iterable[Record], rule: PairRule) -> None:
        self._rule = rule
        self._stages: dict[Cell, str] = {}
        super().__init__(replace(plan, interval=None), records)

    def _update(self, cell: Cell) -> None:
        self._stages[cell], pairs = self._rule(cell, self._records[cell]) or ("", 0)
        self._left[cell] = 2 * pairs

    def blocks(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: any(self._left.values()), itertools.count())

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return a pair for each cell that needs one, shuffled, each with the order of its sides drawn by the seed."""
        pairs = []
        for cell, stage in self._stages.items():
            if self._left[cell]:
                index = _next_index(self._records[cell], stage)
                sides = [BASELINE, CANDIDATE]
                random.Random(f"{self.plan.seed}:{stage}:{index}:{cell!r}").shuffle(sides)
                pairs.append(tuple(PlannedLaunch(cell, index, side, stage) for side in sides))
        random.Random(f"{self.plan.seed}:{[pair[0].block for pair in pairs]}").shuffle(pairs)
        return pairs

    def wants(self, cell: Cell, block: int) -> bool:
        return self._left[cell] > 0

    def skip_reason(self, cell: Cell) -> str:
        return ""  # each side of each cell is tried

    def most_attempts(self) -> int:
        return MOST_ATTEMPTS


def _given_up(records: Sequence[Record]) -> bool:
    """Tell whether a side would end the same way again."""
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        by_chance = sum(map(statuses.count, ONCE_BY_CHANCE))
        if by_chance >= CRASHES or statuses.count(Status.OK) + by_chance < len(statuses):
            return True
    return False


def _next_index(records: Sequence[Record], stage: str) -> int:
    return 1 + max((record.launch for record in records if record.stage == stage), default=-1)


def for_gate(host: Host, rule: Rule = DEFAULT) -> PairRule:
    """Return the rule of a gate: screening pairs until a cell is clear or suspect, then confirming ones."""

    def next_pairs(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None

        def spare(stage: str, pairs: int) -> bool:
            return _next_index(records, stage) < int((1 + rule.spare) * pairs)

        screened, _ = pairs_of(records, host, SCREEN)
        state = screen(*screened, rule)
        if state is Screening.SUSPECT:
            missing = rule.confirm_pairs - len(pairs_of(records, host, CONFIRM)[0][0])
            return (CONFIRM, missing) if missing > 0 and spare(CONFIRM, rule.confirm_pairs) else None
        if state is Screening.MORE and spare(SCREEN, rule.screen_looks[-1]):
            return SCREEN, max(1, next_look(len(screened[0]), rule) - len(screened[0]))
        return None

    return next_pairs


def for_compare(host: Host, cells: int, fewest: int, most: int, width: float, rule: Rule = DEFAULT) -> PairRule:
    """Return the rule of a comparison of this many cells: pairs until the ratio's interval is narrow enough.

    ``width`` is the half-width of the interval relative to the ratio. It stops on precision, never on a p-value, and
    not before there are enough pairs to prove a slowdown at all (`verdict.fewest_pairs`).
    """
    looks = [max(fewest, fewest_pairs(cells, rule))]
    while looks[-1] < most:
        looks.append(min(most, math.ceil(LOOKS_APART * looks[-1])))

    def next_pairs(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        (baseline, candidate), _ = pairs_of(records, host, None)
        made = len(baseline)
        spent = made >= looks[-1] or _next_index(records, "") >= int((1 + rule.spare) * looks[-1])
        if spent or _given_up(records):
            return None
        reached = max((look for look in looks if look <= made), default=0)
        needed = 0.0
        if reached:
            found = estimate_pairs(baseline[:reached], candidate[:reached], rule.confidence)
            half = (found.high - found.low) / (2 * found.ratio)
            if half <= width:
                return None
            needed = min(made * (half / width) ** 2, looks[-1])
        following = next(look for look in looks if look > made)
        return "", max(following, int(needed)) - made

    return next_pairs
