"""Schedules: which launches a run makes next, decided from its plan and its records alone.

    schedule = BlockSchedule(plan, records, host)
    for block in schedule.blocks():
        for launches in schedule.in_order(schedule.wanted(block), block, seconds_left):
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
from collections import Counter
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

from ..planning.plan import Plan, PlannedLaunch, group_of, sizes_of
from . import precision
from .precision import Candidate, LaunchStats, Target

Group = tuple[PlannedLaunch, ...]
"""Launches that belong together, in order: the two sides of a pair, else one."""

MOST_ATTEMPTS = 3
"""A disturbed launch is repeated until it was attempted this often."""
# Repetitions of disturbed launches allowed in a whole run: a number, and a share of its records.
_REPEATS, _REPEATS_SHARE = 4, 0.25
# Statuses after which another launch of the same cell could give something new.
_WORTH_REPEATING = (Status.OK, Status.PARITY_FAILED, Status.CRASHED)
_STEP_SECONDS = 0.05  # of training on a text, until a launch has shown it

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
        self.count = 0
        """Records in all."""
        self.repeated = 0
        """Those that repeat a disturbed launch."""
        self._first_guess = plan.protocol.seconds + 8.0 + _STEP_SECONDS * plan.protocol.curve_steps
        self._seconds: dict[Cell | str, list[float]] = {}
        self._records: dict[Cell, list[Record]] = {}
        for record in records:
            self._take(record)
        for cell in plan.cells:
            self._update(cell)

    def add(self, record: Record) -> None:
        """Take note of a record."""
        self._take(record)
        self._update(record.cell)

    def _take(self, record: Record) -> None:
        self._records.setdefault(record.cell, []).append(record)
        self.count += 1
        self.repeated += record.attempt > 0
        if record.outcome.status is not Status.SKIPPED:
            for key in (record.cell, record.cell.network, ""):
                self._seconds.setdefault(key, []).append(record.wall_seconds)

    @abstractmethod
    def _update(self, cell: Cell) -> None:
        """Recompute what a cell needs."""

    @abstractmethod
    def blocks(self) -> Iterator[int]:
        """Yield the indices of blocks while something may be needed."""

    @abstractmethod
    def wanted(self, block: int) -> list[Group]:
        """Return the launches of a block."""

    @abstractmethod
    def wants(self, launches: Group) -> bool:
        """Whether these launches are still needed, now that others have ended."""

    @abstractmethod
    def launches_left(self) -> int:
        """Return how many launches are expected to be needed."""

    @abstractmethod
    def seconds_left(self) -> float:
        """Return the expected seconds of those."""

    def in_order(self, launches: list[Group], block: int, seconds_left: float | None) -> list[Group]:
        """Return the launches of a block in order, given the seconds left of a budget."""
        return launches

    def reserved(self, launches: Group) -> float:
        """Return the seconds that a budget must leave behind these launches."""
        return 0.0

    def seconds(self, cell: Cell) -> float:
        """Return the expected seconds of a launch: the cell's mean, else its network's, that of all, or a guess."""
        known = (self._seconds[key] for key in (cell, cell.network, "") if key in self._seconds)
        return fmean(next(known, [self._first_guess]))

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

    @property
    def precision(self) -> float | None:
        """The relative half-width to be reached; None for a fixed number of launches."""
        return None

    def launch_stats(self, cell: Cell) -> tuple[LaunchStats, ...]:
        """Return the statistics of the launches of a cell that gave a number."""
        return ()


class BlockSchedule(Schedule):
    """Blocks of one launch of each cell: a fixed number, or until each cell's interval is narrow enough."""

    def __init__(self, plan: Plan, records: Iterable[Record] = (), host: Host | None = None) -> None:
        most = max(plan.launches, plan.most)
        self._target = None if plan.interval is None else Target(plan.interval, plan.launches, most)
        self._by_group: dict[Cell, dict[int, Record]] = {}
        self._out_of_memory: dict[Cell, int] = {}
        self._left: dict[Cell, int] = {}
        self._stats: dict[Cell, tuple[LaunchStats, ...]] = {}
        super().__init__(plan, records, host)

    def _take(self, record: Record) -> None:
        super()._take(record)
        self._by_group.setdefault(group_of(record.cell), {}).setdefault(record.cell.threads, record)
        if record.outcome.status is Status.OUT_OF_MEMORY:
            sizes = sizes_of(record.cell)
            known = self._out_of_memory.get(sizes, record.cell.batch_size)
            self._out_of_memory[sizes] = min(known, record.cell.batch_size)

    def _update(self, cell: Cell) -> None:
        records = self._records.get(cell, [])
        counting = last_attempts(records)
        self._stats[cell] = tuple(found for record in counting if (found := precision.launch_stats(record)) is not None)
        self._left[cell] = self._needed(cell, counting)

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        statuses = [record.outcome.status for record in counting]
        if any(status not in _WORTH_REPEATING for status in statuses):
            return 0
        missing = max(0, self.plan.launches - len({record.launch for record in counting}))
        if self._target is None:
            return missing
        if statuses.count(Status.CRASHED) >= CRASHES or Status.PARITY_FAILED in statuses:
            return missing  # a failed cell has no interval target
        tries_left = self._target.most - len(counting)
        return min(tries_left, max(missing, precision.launches_left(self._stats[cell], self._target)))

    @property
    def precision(self) -> float | None:
        """The relative half-width to be reached; None for a fixed number of launches."""
        return self.plan.interval

    def launch_stats(self, cell: Cell) -> tuple[LaunchStats, ...]:
        """Return the statistics of the launches of a cell that gave a number."""
        return self._stats[cell]

    def blocks(self) -> Iterator[int]:
        """Yield the indices of all blocks."""
        return iter(range(self.plan.most))

    def wanted(self, block: int) -> list[Group]:
        """Return the launches of a block, shuffled by the plan's seed."""
        return [(planned,) for planned in self.plan.block(block) if self._wants(planned.cell, block)]

    def wants(self, launches: Group) -> bool:
        """Whether this launch is still needed."""
        return self._wants(launches[0].cell, launches[0].block)

    def _wants(self, cell: Cell, block: int) -> bool:
        if self._left[cell] == 0 or any(record.launch == block for record in self._records.get(cell, ())):
            return False
        return block < self.plan.launches or self._target is not None

    def in_order(self, launches: list[Group], block: int, seconds_left: float | None) -> list[Group]:
        """Return the launches shuffled as given, or first those that gain the most precision where time is short."""
        # The first block's order serves the cells' budgets: see `Plan.block`.
        if self._target is None or block == 0:
            return launches
        by_cell = {each[0].cell: each for each in launches}
        candidates = [Candidate(cell, self._stats[cell], self.seconds(cell)) for cell in by_cell]
        ordered = precision.in_order(candidates, self._target, seconds_left)
        return [by_cell[each.key] for each in ordered if isinstance(each.key, Cell)]

    def launches_left(self) -> int:
        """Return how many launches are expected to be needed."""
        return sum(self._left.values())

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return sum(count * self.seconds(cell) for cell, count in self._left.items() if count)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures; with a precision to reach, for how many samples."""
        protocol = self.plan.protocol_of(cell)
        if self._target is None:
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
        peers = self._by_group.get(group_of(cell), {})
        fewest = min(peers, default=cell.threads)
        if fewest >= cell.threads:
            return ""
        first = peers[fewest]
        threads = "1 thread" if fewest == 1 else f"{fewest} threads"
        if first.outcome.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if first.outcome.samples_ns and (step := median(first.outcome.step_seconds())) > limit:
            return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""


Next = Callable[[Cell, Sequence[Record]], tuple[str, int] | None]
"""Given a cell and its records: the stage that needs a pair, and how many more at most; None when it is done."""


class PairSchedule(Schedule):
    """Pairs of launches, one of each side, until `following` wants no more."""

    strict = True

    def __init__(self, plan: Plan, records: Iterable[Record], following: Next) -> None:
        self._following = following
        self._next: dict[Cell, tuple[str, int] | None] = {}
        super().__init__(plan, records)

    def _update(self, cell: Cell) -> None:
        self._next[cell] = self._following(cell, self._records.get(cell, []))

    def blocks(self) -> Iterator[int]:
        """Yield indices while any cell needs a pair."""
        return itertools.takewhile(lambda _: any(self._next.values()), itertools.count())

    def wanted(self, block: int) -> list[Group]:
        """Return a pair for each cell that needs one, shuffled, each with the order of its sides drawn by the seed."""
        pairs = []
        for cell, wanted in self._next.items():
            if wanted is None:
                continue
            stage, index = wanted[0], _next_index(self._records.get(cell, []), wanted[0])
            drawn = random.Random(f"{self.plan.seed}:{stage}:{index}:{cell!r}")
            first = drawn.choice((BASELINE, CANDIDATE))
            second = CANDIDATE if first == BASELINE else BASELINE
            pairs.append(tuple(PlannedLaunch(cell, index, side, stage) for side in (first, second)))
        random.Random(f"{self.plan.seed}:{[pair[0].block for pair in pairs]}").shuffle(pairs)
        return pairs

    def wants(self, launches: Group) -> bool:
        """Whether the cell of this pair still needs one."""
        return self._next[launches[0].cell] is not None

    def launches_left(self) -> int:
        """Return how many launches may still be needed, two for each pair."""
        return sum(2 * wanted[1] for wanted in self._next.values() if wanted is not None)

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return sum(2 * each[1] * self.seconds(cell) for cell, each in self._next.items() if each is not None)

    def most_attempts(self) -> int:
        """Return how often the next launch may be attempted."""
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


def for_gate(host: Host, rule: Rule = DEFAULT) -> Next:
    """Return the rule of a gate: screening pairs until a cell is clear or suspect, then confirming ones."""

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        screened, _ = pairs_of(records, host, SCREEN)
        state = screen(*screened, rule)
        if state is Screening.SUSPECT:
            confirmed, _ = pairs_of(records, host, CONFIRM)
            missing = rule.confirm_pairs - len(confirmed[0])
            spare = int((1 + rule.spare) * rule.confirm_pairs) - _next_index(records, CONFIRM)
            return (CONFIRM, missing) if missing > 0 and spare > 0 else None
        spare = int((1 + rule.spare) * rule.screen_looks[-1]) - _next_index(records, SCREEN)
        if state is Screening.MORE and spare > 0:
            return SCREEN, max(1, next_look(len(screened[0]), rule) - len(screened[0]))
        return None

    return following


def for_compare(host: Host, cells: int, fewest: int, most: int, width: float, rule: Rule = DEFAULT) -> Next:
    """Return the rule of a comparison of this many cells: pairs until the ratio's interval is narrow enough.

    ``width`` is the half-width of the interval relative to the ratio. It stops on precision, never on a p-value, and
    not before there are enough pairs to prove a slowdown at all (`verdict.fewest_pairs`).
    """
    looks = [max(fewest, fewest_pairs(cells, rule))]
    while looks[-1] < most:
        looks.append(min(most, math.ceil(LOOKS_APART * looks[-1])))

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        (baseline, candidate), _ = pairs_of(records, host, None)
        spare = int((1 + rule.spare) * looks[-1]) - _next_index(records, "")
        if len(baseline) >= looks[-1] or spare <= 0:
            return None
        reached = [look for look in looks if look <= len(baseline)]
        half = math.inf
        if reached:
            found = estimate_pairs(baseline[: reached[-1]], candidate[: reached[-1]], rule.confidence)
            half = (found.high - found.low) / (2 * found.ratio)
        if half <= width:
            return None
        following_look = next(look for look in looks if look > len(baseline))
        needed = len(baseline) * (half / width) ** 2 if reached else 0.0
        return "", max(following_look, min(looks[-1], int(min(needed, looks[-1])))) - len(baseline)

    return following


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
        row = plan.row_of(cell)
        usual = cell.mode == row.build.framework.default_mode
        in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
        return not usual, len(in_force), abs(cell.threads - cores), cell.threads

    names = {cell.framework for cell in plan.cells}
    first = next(row.build.name for row in plan.rows if row.build.name in names)
    return tuple(sorted((cell for cell in plan.cells if cell.framework == first), key=distance))


class HalvingSchedule(BlockSchedule):
    """A search: after each block of launches the slower half drops out, and the last ones run pairs.

    Successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
    optimization"): every cell still in the race gets one launch a block, so all have been through the same times of
    the machine. The cell that the others must beat stays to the end. Who goes on to a block follows from the records
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
            for record in self._counting(cell)
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
        counting, timed = self._counting(cell), self.timed(cell)
        failed = [each for each in counting if not each.outcome.gives_a_number()]
        found = [record_flags(each, self.host) for each in counting if each.launch in timed]
        return cell_flags(found) + failed_launches(failed, len(counting))

    def tried(self) -> int:
        """Return how many cells have a record."""
        return sum(bool(self._records.get(cell)) for cell in self.plan.cells)

    def without_number(self) -> dict[str, int]:
        """Return why cells are out, and how many for each reason, the most frequent first."""
        failed = (found[0].outcome for cell in self.plan.cells if (found := self._failed(cell)))
        reasons = Counter(outcome.reason or outcome.status.value for outcome in failed)
        return dict(reasons.most_common())

    def _counting(self, cell: Cell, before: int | None = None) -> list[Record]:
        known = self._records.get(cell, [])
        return last_attempts(each for each in known if before is None or each.launch < before)

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

    def wanted(self, block: int) -> list[Group]:
        """Return the launches of a block."""
        return [tuple(replace(each, side=SEARCH) for each in launches) for launches in super().wanted(block)]

    def _wants(self, cell: Cell, block: int) -> bool:
        # A block that others have followed launches nothing more.
        if block < self._block or not super()._wants(cell, block) or cell not in self.survivors(block):
            return False
        if block < self._pairs_from:
            return True
        return not self._failed(cell) and (block < self._pairs_from + PAIRS or len(self.pairs()) < PAIRS)

    def in_order(self, launches: list[Group], block: int, seconds_left: float | None) -> list[Group]:
        """Return the launches of a block; in the first one the most informative first, where time may be short.

        That is the cell to beat, the same tuned, then one of each row and number of threads, tuned where that is among
        them.
        """
        if block:
            return launches
        tuned_last = sorted((each[0].cell for each in launches), key=lambda cell: cell.tuning == TUNED)
        first = set({cell._replace(tuning=TUNED): cell for cell in tuned_last}.values())
        start = self.starts[0]
        usual = (start, start._replace(tuning=TUNED))
        cells = {each: each[0].cell for each in launches}
        return sorted(
            launches, key=lambda each: (cells[each] != start, cells[each] not in usual, cells[each] not in first)
        )

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
        now = self._block
        here = sum(self._wants(cell, now) for cell in self.survivors(now))
        if now < self._pairs_from:
            living = sum(self._wants(cell, now) or bool(self._times(cell, now + 1)) for cell in self.survivors(now))
            halving = sum(min(size + 1, living) for size in self._sizes[now + 1 : self._pairs_from])
            return here + halving + PAIRS * min(FINALISTS + 1, living)
        missing = PAIRS - len(self.pairs()) - bool(here)
        return here + len(self.finalists()) * max(0, min(missing, len(self._sizes) - now - 1))

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return self.launches_left() * fmean(map(self.seconds, self.survivors(self._block) or self.plan.cells))


def _forgiven(counting: Sequence[Record]) -> bool:
    """Whether all that a cell's launches lack is some times: too few are implausible to put it out."""
    statuses = Counter(each.outcome.status for each in counting)
    return set(statuses) == {Status.OK, Status.IMPLAUSIBLE} and statuses[Status.IMPLAUSIBLE] < IMPLAUSIBLE
