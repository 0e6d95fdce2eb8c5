"""Schedules: which launches a run makes next, decided from its plan and its records alone.

    schedule = BlockSchedule(plan, records, host)
    for block in schedule.blocks():
        for launches in schedule.wanted(block, seconds_left):
            ...                                   # launch, store the record,
            schedule.add(record)

`BlockSchedule` launches each cell a fixed number of times or until its interval is narrow enough, `PairSchedule` both
sides of a comparison in interleaved pairs, `HalvingSchedule` searches the fastest cell. A resumed run makes its
schedule from the records so far.
"""

import itertools
import math
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median

from dlbench.adapters import tuning
from dlbench.adapters.protocol import TUNED, Cell, Protocol, Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONFIRM, CRASHES, ONCE_BY_CHANCE, pairs_of
from dlbench.reports.compare.verdict import DEFAULT, Rule, Screening, estimate_pairs, fewest_pairs, next_look, screen
from dlbench.reports.flags import Flag, cell_flags, disturbed, failed_launches, left_out, record_flags
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import SCREEN, SEARCH, Record, last_attempts

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

FINALISTS = 2
PAIRS = 8
"""Launches of each finalist after the choice is made: only these enter the gain, so that luck in the race does not."""
SPARE = 4
"""Further blocks at most, in the place of pairs that other programs disturbed."""
IMPLAUSIBLE = 3
"""So many launches with an implausible time put a cell out that has times: other programs may cause one."""


class Schedule(ABC):
    """The launches of one run so far, and those to come."""

    strict = False
    """Whether the run ends with the first launch that does not fit its budget."""

    def __init__(self, plan: Plan, records: Iterable[Record] = (), host: Host | None = None) -> None:
        self.plan, self.host = plan, host
        self.count = self.repeated = 0
        """Records in all, and those that repeat a disturbed launch."""
        self._durations = LaunchDurations(plan)
        self._records: defaultdict[Cell, list[Record]] = defaultdict(list)
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
        self._records[record.cell].append(record)
        self.count += 1
        self.repeated += record.attempt > 0
        if record.outcome.status is not Status.SKIPPED:
            self._durations.add(record.cell, record.wall_seconds)

    @abstractmethod
    def _update(self, cell: Cell) -> None:
        """Recompute what a cell needs."""

    @abstractmethod
    def blocks(self) -> Iterator[int]:
        """Yield the indices of blocks while something may be needed."""

    @abstractmethod
    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block in order, given the seconds left of a budget."""

    @abstractmethod
    def wants(self, launches: Group) -> bool:
        """Whether these launches are still needed, now that others have ended."""

    def launches_left(self) -> int:
        """Return how many launches are expected to be needed."""
        return sum(self._left.values())

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return sum(count * self.seconds(cell) for cell, count in self._left.items() if count)

    def reserved(self, launches: Group) -> float:
        """Return the seconds that a budget must leave behind these launches."""
        return 0.0

    def seconds(self, cell: Cell) -> float:
        """Return the expected seconds of a launch."""
        return self._durations.launch_duration(cell)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures."""
        return self.plan.protocol_of(cell)

    def skip_reason(self, cell: Cell) -> str:
        """Return why a cell is not worth starting, judged by others like it; else nothing."""
        return ""

    def most_attempts(self) -> int:
        """Return how often the next launch may be attempted."""
        return MOST_ATTEMPTS if self.repeated < _REPEATS + _REPEATS_SHARE * self.count else 1

    def disturbed(self, record: Record) -> bool:
        """Whether other programs disturbed this launch."""
        return disturbed(record, self.host)

    def launch_stats(self, cell: Cell) -> tuple[LaunchStats, ...]:
        """Return the statistics of the launches of a cell that gave a number, where an interval needs them."""
        return ()


class BlockSchedule(Schedule):
    """Blocks of one launch of each cell: a fixed number, or until each cell's interval is narrow enough."""

    def __init__(self, plan: Plan, records: Iterable[Record] = (), host: Host | None = None) -> None:
        self._first_of_threads: defaultdict[Cell, dict[int, Record]] = defaultdict(dict)
        self._out_of_memory: dict[Cell, int] = {}
        self._stats: dict[Cell, tuple[LaunchStats, ...]] = {}
        super().__init__(plan, records, host)

    def _take(self, record: Record) -> None:
        super()._take(record)
        cell = record.cell
        self._first_of_threads[group_of(cell)].setdefault(cell.threads, record)
        if record.outcome.status is Status.OUT_OF_MEMORY:
            known = self._out_of_memory.get(sizes_of(cell), cell.batch_size)
            self._out_of_memory[sizes_of(cell)] = min(known, cell.batch_size)

    def _update(self, cell: Cell) -> None:
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

    def launch_stats(self, cell: Cell) -> tuple[LaunchStats, ...]:
        return self._stats[cell]

    def blocks(self) -> Iterator[int]:
        return iter(range(self.plan.most))

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches shuffled by the plan's seed; where time is short those that gain most precision first."""
        found = [planned for planned in self.plan.block(block) if self._wants(planned.cell, block)]
        # The first block's order serves the cells' budgets: see `Plan.block`.
        if self.plan.interval is not None and block and seconds_left is not None:
            seconds = {planned: self.seconds(planned.cell) for planned in found}
            if sum(seconds.values()) > seconds_left:
                gain, interval = precision.gain, self.plan.interval
                found.sort(key=lambda each: -gain(self._stats[each.cell], seconds[each], interval))
        return [(planned,) for planned in found]

    def wants(self, launches: Group) -> bool:
        return self._wants(launches[0].cell, launches[0].block)

    def _wants(self, cell: Cell, block: int) -> bool:
        if self._left[cell] == 0 or any(record.launch == block for record in self._records[cell]):
            return False
        return block < self.plan.launches or self.plan.interval is not None

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures; with a precision to reach, for how many samples."""
        protocol = self.plan.protocol_of(cell)
        if self.plan.interval is None:
            return protocol
        searching = protocol.maximum_warmup_steps > 0
        steps = precision.steps(self._stats[cell], protocol.minimum_steps, protocol.steps, searching)
        return protocol._replace(steps=steps)

    def skip_reason(self, cell: Cell) -> str:
        """Return why a cell is not worth starting: memory ran out, or fewer threads were too slow."""
        smallest = cell.batch_size if self._stats[cell] else self._out_of_memory.get(sizes_of(cell), cell.batch_size)
        if smallest < cell.batch_size:
            return f"mini-batch {smallest} ran out of memory already"
        limit = self.plan.cell_seconds
        peers = self._first_of_threads[group_of(cell)]
        fewest = min(peers, default=cell.threads)
        if fewest >= cell.threads:
            return ""
        first = peers[fewest].outcome
        threads = "1 thread" if fewest == 1 else f"{fewest} threads"
        if first.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if first.samples_ns and (step := median(first.step_seconds())) > limit:
            return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""


PairRule = Callable[[Cell, Sequence[Record]], tuple[str, int] | None]
"""Given a cell and its records: the stage that needs a pair, and how many more at most; None when it is done."""


class PairSchedule(Schedule):
    """Pairs of launches, one of each side, until a rule wants no more."""

    strict = True

    def __init__(self, plan: Plan, records: Iterable[Record], rule: PairRule) -> None:
        self._rule = rule
        self._stages: dict[Cell, str] = {}
        super().__init__(plan, records)

    def _update(self, cell: Cell) -> None:
        self._stages[cell], pairs = self._rule(cell, self._records[cell]) or ("", 0)
        self._left[cell] = 2 * pairs

    def blocks(self) -> Iterator[int]:
        return itertools.takewhile(lambda _: any(self._left.values()), itertools.count())

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return a pair for each cell that needs one, shuffled, each with the order of its sides drawn by the seed."""
        pairs = []
        for cell, stage in self._stages.items():
            if not self._left[cell]:
                continue
            index = _next_index(self._records[cell], stage)
            sides = [BASELINE, CANDIDATE]
            random.Random(f"{self.plan.seed}:{stage}:{index}:{cell!r}").shuffle(sides)
            pairs.append(tuple(PlannedLaunch(cell, index, side, stage) for side in sides))
        random.Random(f"{self.plan.seed}:{[pair[0].block for pair in pairs]}").shuffle(pairs)
        return pairs

    def wants(self, launches: Group) -> bool:
        return self._left[launches[0].cell] > 0

    def most_attempts(self) -> int:
        return MOST_ATTEMPTS


def _given_up(records: Sequence[Record]) -> bool:
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        if any(status not in (Status.OK, *ONCE_BY_CHANCE) for status in statuses):
            return True  # it would end the same way again
        if sum(map(statuses.count, ONCE_BY_CHANCE)) >= CRASHES:
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


def halving_sizes(cells: int) -> list[int]:
    """Return how many cells each block has, beside the one to beat: halved to the finalists, who run pairs."""
    found = [cells]
    while found[-1] > FINALISTS:
        found.append(max(FINALISTS, math.ceil(found[-1] / 2)))
    return [*found[:-1], *[found[-1]] * (PAIRS + SPARE)]


def halving_plan(plan: Plan) -> Plan:
    """Return the plan with as many blocks as a search of its cells has; nothing trains on a text."""
    protocol = plan.protocol._replace(curve_steps=0)
    blocks = len(halving_sizes(len(plan.cells)))
    return replace(plan, protocol=protocol, curve_check_steps=0, launches=blocks, launches_most=None, interval=None)


def search_starts(plan: Plan, cores: int) -> tuple[Cell, ...]:
    """Return the cells that a user may start from, the likeliest first.

    They are of the first row that has cells: its default mode, as installed, on as many threads as cores comes first,
    then the nearest to that.
    """

    def distance(cell: Cell) -> tuple[object, ...]:
        usual = cell.mode == plan.row_of(cell).build.framework.default_mode
        in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
        return not usual, len(in_force), abs(cell.threads - cores), cell.threads

    names = {cell.framework for cell in plan.cells}
    first = next(row.build.name for row in plan.rows if row.build.name in names)
    return tuple(sorted((cell for cell in plan.cells if cell.framework == first), key=distance))


class HalvingSchedule(BlockSchedule):
    """A search: after each block of launches the slower half drops out, and the last ones run pairs.

    Successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
    optimization"): every cell still in the race gets one launch a block, so all have been through the same times of
    the machine. The cell that the others must beat stays to the end. The survivors of a block follow from the records
    of the blocks before it.
    """

    def __init__(
        self, starts: Sequence[Cell], plan: Plan, records: Iterable[Record] = (), host: Host | None = None
    ) -> None:
        """Take the records so far; the first of ``starts`` with a number is what the others must beat."""
        self.starts = starts
        self._sizes = halving_sizes(len(plan.cells))
        self._pairs_from = len(self._sizes) - PAIRS - SPARE
        self._block = 0
        self._survivors: dict[int, list[Cell]] = {}
        super().__init__(plan, records, host)
        begun = self.count and self._block >= self._pairs_from
        if begun and any(self._wants(cell, self._block) for cell in plan.cells):
            self._block += 1  # a pair is neighbours in time: one that another session began is not completed
        elif not begun and self.tried() < len(plan.cells):
            # A budget was too short for some cells: they come first now, though at another time than the others did.
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
        """Return the cells that a block launches: the fastest of the blocks before it, and the one to beat."""
        if block not in self._survivors:
            # The cell to beat is settled when the pairs begin: a failure in them brings none back.
            cells, stays = list(self.plan.cells), self._to_beat(min(block, self._pairs_from))
            for past, size in enumerate(self._sizes[1 : block + 1], start=1):
                times = {cell: median(found) for cell in cells if (found := self._times(cell, past))}
                cells = sorted(times, key=times.__getitem__)[:size]
            if stays not in cells and self._times(stays, block):
                cells.append(stays)
            self._survivors[block] = cells
        return self._survivors[block]

    def finalists(self) -> list[Cell]:
        """Return the cells that run pairs, the one to beat among them, without those that failed since."""
        return [cell for cell in self.survivors(self._pairs_from) if not self._failed(cell)]

    def timed(self, cell: Cell, fit: bool = True) -> dict[int, float]:
        """Return a cell's seconds a step by block, of its pairs alone; ``fit``: without disturbed launches."""
        return {
            record.launch: median(record.outcome.step_seconds())
            for record in last_attempts(self._records[cell])
            if record.launch >= self._pairs_from
            and record.outcome.gives_a_number()
            and not (fit and left_out(record, self.host))
        }

    def pairs(self, fit: bool = True) -> list[int]:
        """Return the blocks of pairs in which every finalist has a time; ``fit``: an undisturbed one."""
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
        """Return why cells are out, and how many for each reason, the most frequent first."""
        failed = (found[0].outcome for cell in self.plan.cells if (found := self._failed(cell)))
        return dict(Counter(outcome.reason or outcome.status.value for outcome in failed).most_common())

    def _counting(self, cell: Cell, before: int | None) -> list[Record]:
        return last_attempts(each for each in self._records[cell] if before is None or each.launch < before)

    def _failed(self, cell: Cell, before: int | None = None) -> list[Record]:
        """Return the launches that put a cell out: one is enough, except for an implausible time."""
        counting = self._counting(cell, before)
        return [] if _forgiven(counting) else [each for each in counting if each.outcome.status is not Status.OK]

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        timed = [each for each in counting if each.outcome.status is not Status.IMPLAUSIBLE]
        return super()._needed(cell, timed if _forgiven(counting) else counting)

    def _times(self, cell: Cell, before: int) -> list[float]:
        if self._failed(cell, before):
            return []
        counting = self._counting(cell, before)
        return [median(each.outcome.step_seconds()) for each in counting if each.outcome.gives_a_number()]

    def wanted(self, block: int, seconds_left: float | None = None) -> list[Group]:
        """Return the launches of a block; in the first one the most informative first, since time may be short.

        That is the cell to beat, the same tuned, then one of each row and number of threads, tuned where that is among
        them.
        """
        cells = [launches[0].cell for launches in super().wanted(block)]
        if block == 0:
            tuned_last = sorted(cells, key=lambda cell: cell.tuning == TUNED)
            first = set({cell._replace(tuning=TUNED): cell for cell in tuned_last}.values())
            start = self.starts[0]
            usual = (start, start._replace(tuning=TUNED))
            cells.sort(key=lambda cell: (cell != start, cell not in usual, cell not in first))
        return [(PlannedLaunch(cell, block, SEARCH),) for cell in cells]

    def _wants(self, cell: Cell, block: int) -> bool:
        # A block that others have followed launches nothing more.
        if block < self._block or not super()._wants(cell, block) or cell not in self.survivors(block):
            return False
        if block < self._pairs_from:
            return True
        return not self._failed(cell) and (block < self._pairs_from + PAIRS or len(self.pairs()) < PAIRS)

    def reserved(self, launches: Group) -> float:
        """Return the seconds that a budget must leave behind this launch.

        Until the pairs begin: the expected seconds of all pairs; then those of the rest of this pair, since a single
        launch of a pair is worth nothing.
        """
        cell, block = launches[0].cell, launches[0].block
        if block >= self._pairs_from:
            return sum(self.seconds(each) for each in self.finalists() if each != cell and self._wants(each, block))
        return PAIRS * (FINALISTS + 1) * fmean(map(self.seconds, self.plan.cells))

    def launches_left(self) -> int:
        """Return the launches still to come, at most: where cells fail they are fewer."""
        now, survivors = self._block, self.survivors(self._block)
        here = sum(self._wants(cell, now) for cell in survivors)
        if now < self._pairs_from:
            living = sum(self._wants(cell, now) or bool(self._times(cell, now + 1)) for cell in survivors)
            halving = sum(min(size + 1, living) for size in self._sizes[now + 1 : self._pairs_from])
            return here + halving + PAIRS * min(FINALISTS + 1, living)
        missing = PAIRS - len(self.pairs()) - bool(here)
        return here + len(self.finalists()) * max(0, min(missing, len(self._sizes) - now - 1))

    def seconds_left(self) -> float:
        return self.launches_left() * fmean(map(self.seconds, self.survivors(self._block) or self.plan.cells))


def _forgiven(counting: Sequence[Record]) -> bool:
    """Whether all that a cell's launches lack is some times: too few are implausible to put it out."""
    statuses = Counter(each.outcome.status for each in counting)
    return set(statuses) == {Status.OK, Status.IMPLAUSIBLE} and statuses[Status.IMPLAUSIBLE] < IMPLAUSIBLE
