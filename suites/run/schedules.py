"""What a run's records show of each cell so far, what each cell still needs, and what that will cost."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from dlbench.adapters.protocol import Cell, Protocol, Status
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, CONFIRM, CRASHES, ONCE_BY_CHANCE, pairs_of
from dlbench.reports.compare.verdict import DEFAULT, Rule, Screening, estimate_pairs, fewest_pairs, next_look, screen
from dlbench.reports.flags import disturbed
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import SCREEN, Record, last_attempts

from ..planning.plan import Plan, group_of, sizes_of
from . import precision
from .precision import Candidate, LaunchStats, Target

# Statuses after which launching the same cell once more could tell something new.
_WORTH_REPEATING = (Status.OK, Status.PARITY_FAILED, Status.CRASHED)
_STEP_SECONDS = 0.05  # of training on a text, until a launch has told


class Estimates:
    """How long launches last, learnt from those that ended."""

    def __init__(self, first_guess: float) -> None:
        self._first_guess = first_guess
        self._seconds: dict[Cell | str, list[float]] = {}

    def learn(self, cell: Cell, seconds: float) -> None:
        """Take note of a launch that lasted this long."""
        for key in (cell, cell.network, ""):
            self._seconds.setdefault(key, []).append(seconds)

    def of(self, cell: Cell) -> float:
        """Return the expected seconds of a launch: the cell's mean, else its network's, all's, or a guess."""
        known = (self._seconds[key] for key in (cell, cell.network, "") if key in self._seconds)
        return fmean(next(known, [self._first_guess]))


class Ledger:
    """The state of one run, cell by cell; records are added as they come."""

    def __init__(self, plan: Plan, records: Iterable[Record], host: Host | None = None) -> None:
        self._plan = plan
        self._host = host
        self._target = (
            None if plan.interval is None else Target(plan.interval, plan.launches, max(plan.launches, plan.most))
        )
        self._estimates = Estimates(plan.protocol.seconds + 8.0 + _STEP_SECONDS * plan.protocol.curve_steps)
        self._records: dict[Cell, list[Record]] = {}
        self._by_group: dict[Cell, dict[int, Record]] = {}
        self._out_of_memory: dict[Cell, int] = {}
        self._left: dict[Cell, int] = {}
        self._seen: dict[Cell, tuple[LaunchStats, ...]] = {}
        self.count = 0
        """Records in all."""
        self.repeated = 0
        """Those of them that repeat a launch others disturbed."""
        for record in records:
            self._take(record)
        for cell in plan.cells:
            self._look_at(cell)

    def add(self, record: Record) -> None:
        """Take note of a record."""
        self._take(record)
        self._look_at(record.cell)

    def _take(self, record: Record) -> None:
        self._records.setdefault(record.cell, []).append(record)
        self._by_group.setdefault(group_of(record.cell), {}).setdefault(record.cell.threads, record)
        if record.outcome.status is Status.OUT_OF_MEMORY:
            sizes = sizes_of(record.cell)
            known = self._out_of_memory.get(sizes, record.cell.batch_size)
            self._out_of_memory[sizes] = min(known, record.cell.batch_size)
        self.count += 1
        self.repeated += record.attempt > 0
        if record.outcome.status is not Status.SKIPPED:
            self._estimates.learn(record.cell, record.wall_seconds)

    def _look_at(self, cell: Cell) -> None:
        """Work out anew what a cell has and needs."""
        records = self._records.get(cell, [])
        counting = last_attempts(records)
        self._seen[cell] = tuple(found for record in counting if (found := precision.launch_stats(record)) is not None)
        self._left[cell] = self._needed(cell, counting)

    def _needed(self, cell: Cell, counting: list[Record]) -> int:
        statuses = [record.outcome.status for record in counting]
        if any(status not in _WORTH_REPEATING for status in statuses):
            return 0
        missing = max(0, self._plan.launches - len({record.launch for record in counting}))
        if self._target is None:
            return missing
        if statuses.count(Status.CRASHED) >= CRASHES or Status.PARITY_FAILED in statuses:
            return missing  # nobody waits for the precision of a number that is none
        tries_left = self._target.most - len(counting)
        return min(tries_left, max(missing, precision.launches_left(self._seen[cell], self._target)))

    @property
    def precision(self) -> float | None:
        """The half-width to be reached, relative; None for a fixed number of launches."""
        return self._plan.interval

    def disturbed(self, record: Record) -> bool:
        """Tell whether others were in this launch's way."""
        return disturbed(record, self._host)

    def half_width(self, cell: Cell) -> float | None:
        """Return the relative half-width of a cell's interval; None with fewer than three launches."""
        return precision.half_width(self._seen[cell])

    def seen(self, cell: Cell) -> tuple[LaunchStats, ...]:
        """Return what the launches of a cell that gave a number show."""
        return self._seen[cell]

    def wants(self, cell: Cell, block: int) -> bool:
        """Tell whether this block launches this cell yet."""
        if self._left[cell] == 0 or any(record.launch == block for record in self._records.get(cell, ())):
            return False
        return block < self._plan.launches or self._target is not None

    def in_order(self, cells: list[Cell], block: int, seconds_left: float | None) -> list[Cell]:
        """Return the cells of a block, shuffled as given, or those first that buy most where time is short."""
        # The first block's order serves the cells' budgets: see `Plan.block`.
        if self._target is None or block == 0:
            return cells
        candidates = [Candidate(cell, self._seen[cell], self.seconds(cell)) for cell in cells]
        ordered = precision.in_order(candidates, self._target, seconds_left)
        return [each.key for each in ordered if isinstance(each.key, Cell)]

    def reserved(self, cell: Cell, block: int) -> float:
        """Return the seconds that a budget must leave behind this launch."""
        return 0.0

    def launches_left(self) -> int:
        """Return the launches still needed in all."""
        return sum(self._left.values())

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return sum(count * self.seconds(cell) for cell, count in self._left.items() if count)

    def seconds(self, cell: Cell) -> float:
        """Return the expected seconds of a cell's next launch."""
        return self._estimates.of(cell)

    def protocol(self, cell: Cell) -> Protocol:
        """Return how the next launch of a cell measures; with a precision to reach, for how many samples."""
        protocol = self._plan.protocol_of(cell)
        if self._target is None:
            return protocol
        searching = protocol.maximum_warmup_steps > 0
        steps = precision.steps(self._seen[cell], protocol.minimum_steps, protocol.steps, searching)
        return protocol._replace(steps=steps)

    def not_worth_starting(self, cell: Cell) -> str:
        """Return why a cell is not worth starting, by what others like it showed; else nothing."""
        return self._beyond_memory(cell) or self._beyond_budget(cell)

    def _beyond_memory(self, cell: Cell) -> str:
        """Return with which smaller mini-batch of the same cell memory ran out; nothing for one that fitted before."""
        smallest = cell.batch_size if self._seen[cell] else self._out_of_memory.get(sizes_of(cell), cell.batch_size)
        return f"mini-batch {smallest} ran out of memory already" if smallest < cell.batch_size else ""

    def _beyond_budget(self, cell: Cell) -> str:
        """Return what the group's cell of fewest threads showed that more threads will not make good."""
        limit = self._plan.cell_seconds
        peers = self._by_group.get(group_of(cell), {})
        fewest = min(peers, default=cell.threads)
        if fewest >= cell.threads:
            return ""
        first = peers[fewest]
        threads = "1 thread" if fewest == 1 else f"{fewest} threads"
        if first.outcome.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if first.outcome.samples_ns:
            step = median(first.outcome.step_seconds())
            if step > limit:
                return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""


LOOKS_APART = 1.4
"""A comparison looks at its interval after so many times the pairs of the look before. Looking after every pair would
favour intervals that came out narrow by chance."""


@dataclass(frozen=True)
class PlannedPair:
    """One pair to come: a launch of each side of a cell, one after the other."""

    cell: Cell
    stage: str
    launch: int
    """Index of the pair within its stage."""
    first: str
    """The side launched first, drawn by lot."""

    @property
    def order(self) -> tuple[str, str]:
        """Both sides, in launching order."""
        return (self.first, CANDIDATE if self.first == BASELINE else BASELINE)


Next = Callable[[Cell, Sequence[Record]], tuple[str, int] | None]
"""Given a cell and its records: the stage that needs a pair, and how many more at most; None when it is done."""


def pair_block(cells: Iterable[Cell], records: Sequence[Record], following: Next, seed: int) -> list[PlannedPair]:
    """Return one pair for each cell that needs one, shuffled, each with its sides' order drawn by lot."""
    by_cell = _by_cell(records)
    planned = []
    for cell in cells:
        known = by_cell.get(cell, [])
        wanted = following(cell, known)
        if wanted is None:
            continue
        stage, _ = wanted
        launch = _tried(known, stage)
        lot = random.Random(f"{seed}:{stage}:{launch}:{cell!r}")
        planned.append(PlannedPair(cell, stage, launch, lot.choice((BASELINE, CANDIDATE))))
    random.Random(f"{seed}:{[pair.launch for pair in planned]}").shuffle(planned)
    return planned


def pairs_left(cells: Iterable[Cell], records: Sequence[Record], following: Next) -> dict[Cell, int]:
    """Return how many pairs each unfinished cell may still need, for an estimate of the time left."""
    by_cell = _by_cell(records)
    left = {cell: following(cell, by_cell.get(cell, [])) for cell in cells}
    return {cell: wanted[1] for cell, wanted in left.items() if wanted is not None}


def _by_cell(records: Sequence[Record]) -> dict[Cell, list[Record]]:
    found: dict[Cell, list[Record]] = {}
    for record in records:
        found.setdefault(record.cell, []).append(record)
    return found


def _given_up(records: Sequence[Record]) -> bool:
    for side in (BASELINE, CANDIDATE):
        statuses = [record.outcome.status for record in records if record.side == side]
        if any(status not in (Status.OK, *ONCE_BY_CHANCE) for status in statuses):
            return True  # it would end the same way again
        if sum(map(statuses.count, ONCE_BY_CHANCE)) >= CRASHES:
            return True
    return False


def _tried(records: Sequence[Record], stage: str) -> int:
    return 1 + max((record.launch for record in records if record.stage == stage), default=-1)


def for_gate(host: Host, rule: Rule = DEFAULT) -> Next:
    """Return what a gate needs next: screening pairs until a cell is clear or suspect, then confirming ones."""

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        screened, _ = pairs_of(records, host, SCREEN)
        state = screen(*screened, rule)
        if state is Screening.SUSPECT:
            confirmed, _ = pairs_of(records, host, CONFIRM)
            missing = rule.confirm_pairs - len(confirmed[0])
            spare = int((1 + rule.spare) * rule.confirm_pairs) - _tried(records, CONFIRM)
            return (CONFIRM, missing) if missing > 0 and spare > 0 else None
        spare = int((1 + rule.spare) * rule.screen_looks[-1]) - _tried(records, SCREEN)
        if state is Screening.MORE and spare > 0:
            return SCREEN, max(1, next_look(len(screened[0]), rule) - len(screened[0]))
        return None

    return following


def for_compare(host: Host, cells: int, fewest: int, most: int, precision: float, rule: Rule = DEFAULT) -> Next:
    """Return what a comparison of so many cells needs next: pairs until the ratio's interval is narrow enough.

    ``precision`` is the half-width of the interval relative to the ratio. It stops on precision, never on a p-value,
    and not before there are pairs enough to prove a slowdown at all (`verdict.fewest_pairs`).
    """
    looks = [max(fewest, fewest_pairs(cells, rule))]
    while looks[-1] < most:
        looks.append(min(most, math.ceil(LOOKS_APART * looks[-1])))

    def following(cell: Cell, records: Sequence[Record]) -> tuple[str, int] | None:
        if _given_up(records):
            return None
        (baseline, candidate), _ = pairs_of(records, host, None)
        spare = int((1 + rule.spare) * looks[-1]) - _tried(records, "")
        if len(baseline) >= looks[-1] or spare <= 0:
            return None
        reached = [look for look in looks if look <= len(baseline)]
        half = math.inf
        if reached:
            found = estimate_pairs(baseline[: reached[-1]], candidate[: reached[-1]], rule.confidence)
            half = (found.high - found.low) / (2 * found.ratio)
        if half <= precision:
            return None
        following_look = next(look for look in looks if look > len(baseline))
        needed = len(baseline) * (half / precision) ** 2 if reached else 0.0
        return "", max(following_look, min(looks[-1], int(min(needed, looks[-1])))) - len(baseline)

    return following
