"""A race of cells: after each block of launches the slower half drops out, and the last ones run pairs.

Successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
optimization"): every cell still in the race gets one launch a block, so all have been through the same times of the
machine. The cell that the others must beat stays to the end. What follows is decided from the records alone, who goes
on to a block from those of the blocks before it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median

from dlbench.adapters import tuning
from dlbench.adapters.protocol import TUNED, Cell, Status
from dlbench.reports.flags import Flag, cell_flags, failed_launches, left_out, record_flags
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record, last_attempts

from ..planning.plan import Plan
from .schedules import Ledger

FINALISTS = 2
PAIRS = 8
"""Launches of each finalist after the choice is made: only these enter the gain, so that luck in the race does not."""
SPARE = 4
"""Further blocks at most, in the place of pairs that other programs disturbed."""
IMPLAUSIBLE = 3
"""Of a cell that has times, so many launches of an implausible time put it out: other programs may cause one."""


def sizes(cells: int) -> list[int]:
    """Return how many cells each block has, beside the one to beat: halved to the finalists, who run pairs."""
    found = [cells]
    while found[-1] > FINALISTS:
        found.append(max(FINALISTS, math.ceil(found[-1] / 2)))
    return [*found[:-1], *[found[-1]] * (PAIRS + SPARE)]


def raced(plan: Plan) -> Plan:
    """Return the plan with as many blocks as a race of its cells has; nothing trains on a text."""
    protocol = plan.protocol._replace(curve_steps=0)
    blocks = len(sizes(len(plan.cells)))
    return replace(plan, protocol=protocol, curve_check_steps=0, launches=blocks, launches_most=None, interval=None)


def starts(plan: Plan, cores: int) -> tuple[Cell, ...]:
    """Return what a user may start from, the likeliest first.

    It is of the first row that has cells: its default mode, as installed, on as many threads as cores, else what is
    nearest to that.
    """

    def distance(cell: Cell) -> tuple[object, ...]:
        row = plan.row_of(cell)
        usual = cell.mode == row.build.framework.default_mode
        in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
        return not usual, len(in_force), abs(cell.threads - cores), cell.threads

    names = {cell.framework for cell in plan.cells}
    first = next(row.build.name for row in plan.rows if row.build.name in names)
    return tuple(sorted((cell for cell in plan.cells if cell.framework == first), key=distance))


class Race(Ledger):
    """The state of a race."""

    def __init__(self, begin: Sequence[Cell], plan: Plan, records: Iterable[Record], host: Host | None = None) -> None:
        """Take the records so far; of ``begin`` (see `starts`) the first with a number is what the others must beat."""
        self.begin = begin
        self._sizes = sizes(len(plan.cells))
        self._pairs_from = len(self._sizes) - PAIRS - SPARE
        self._block = 0
        self._survivors: dict[int, list[Cell]] = {}
        super().__init__(plan, records, host)
        begun = self.count and self._block >= self._pairs_from
        if begun and any(self.wants(cell, self._block) for cell in plan.cells):
            self._block += 1  # a pair is neighbours in time: what another session began of one is not completed
        elif not begun and self.tried() < len(plan.cells):
            # A budget was too short for some ways: they come first now, though at another time than the others did.
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
        return next((cell for cell in self.begin if self._times(cell, block)), self.begin[0])

    def survivors(self, block: int) -> list[Cell]:
        """Return the cells that a block launches: the fastest of the blocks before it, and the one to beat."""
        if block not in self._survivors:
            # Who is to be beaten is settled when the pairs begin: a failure in them brings nobody back.
            cells, stays = list(self._plan.cells), self._to_beat(min(block, self._pairs_from))
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
        """Return a cell's seconds a step by block, of its pairs alone; ``fit``: without what others disturbed."""
        return {
            record.launch: median(record.outcome.step_seconds())
            for record in self._counting(cell)
            if record.launch >= self._pairs_from
            and record.outcome.gives_a_number()
            and not (fit and left_out(record, self._host))
        }

    def pairs(self, fit: bool = True) -> list[int]:
        """Return the blocks of pairs in which every finalist has a time; ``fit``: one that nobody disturbed."""
        timed = [set(self.timed(cell, fit)) for cell in self.finalists()]
        return sorted(set.intersection(*timed)) if timed else []

    def flags(self, cell: Cell) -> list[Flag]:
        """Return what the evidence of a cell's pairs says against it, and how many of all its launches gave no time."""
        counting, timed = self._counting(cell), self.timed(cell)
        failed = [each for each in counting if not each.outcome.gives_a_number()]
        found = [record_flags(each, self._host) for each in counting if each.launch in timed]
        return cell_flags(found) + failed_launches(failed, len(counting))

    def tried(self) -> int:
        """Return how many cells have a record."""
        return sum(bool(self._records.get(cell)) for cell in self._plan.cells)

    def without_number(self) -> dict[str, int]:
        """Return why cells are out, and of how many that is so, the most frequent reason first."""
        failed = (found[0].outcome for cell in self._plan.cells if (found := self._failed(cell)))
        reasons = Counter(outcome.reason or outcome.status.value for outcome in failed)
        return dict(reasons.most_common())

    def _counting(self, cell: Cell, before: int | None = None) -> list[Record]:
        known = self._records.get(cell, [])
        return last_attempts(each for each in known if before is None or each.launch < before)

    def _failed(self, cell: Cell, before: int | None = None) -> list[Record]:
        """Return the launches that put a cell out: one is enough, but for an implausible time."""
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

    def wants(self, cell: Cell, block: int) -> bool:
        """Tell whether a block launches this cell yet; a block that others have followed launches nothing more."""
        if block < self._block or not super().wants(cell, block) or cell not in self.survivors(block):
            return False
        if block < self._pairs_from:
            return True
        return not self._failed(cell) and (block < self._pairs_from + PAIRS or len(self.pairs()) < PAIRS)

    def in_order(self, cells: list[Cell], block: int, seconds_left: float | None) -> list[Cell]:
        """Return the cells of a block; of the first one those first that tell most where time is short.

        That is the cell to beat, the same tuned, then one of each row and number of threads, tuned where that is among
        them.
        """
        if block:
            return cells
        tuned_last = sorted(cells, key=lambda cell: cell.tuning == TUNED)
        first = set({cell._replace(tuning=TUNED): cell for cell in tuned_last}.values())
        start = self.begin[0]
        usual = (start, start._replace(tuning=TUNED))
        return sorted(cells, key=lambda cell: (cell != start, cell not in usual, cell not in first))

    def reserved(self, cell: Cell, block: int) -> float:
        """Return the seconds that a budget must leave behind this launch.

        Until the pairs begin they are what those are expected to take, then what the rest of this one takes: of a pair
        a single launch is worth nothing.
        """
        if block >= self._pairs_from:
            return sum(self.seconds(each) for each in self.finalists() if each != cell and self.wants(each, block))
        return PAIRS * (FINALISTS + 1) * fmean(map(self.seconds, self._plan.cells))

    def launches_left(self) -> int:
        """Return the launches still to come, at most: where cells fail they are fewer."""
        now = self._block
        here = sum(self.wants(cell, now) for cell in self.survivors(now))
        if now < self._pairs_from:
            living = sum(self.wants(cell, now) or bool(self._times(cell, now + 1)) for cell in self.survivors(now))
            halving = sum(min(size + 1, living) for size in self._sizes[now + 1 : self._pairs_from])
            return here + halving + PAIRS * min(FINALISTS + 1, living)
        missing = PAIRS - len(self.pairs()) - bool(here)
        return here + len(self.finalists()) * max(0, min(missing, len(self._sizes) - now - 1))

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        return self.launches_left() * fmean(map(self.seconds, self.survivors(self._block) or self._plan.cells))


def _forgiven(counting: Sequence[Record]) -> bool:
    """Tell whether all that a cell's launches lack is some times: too few are implausible to put it out."""
    statuses = Counter(each.outcome.status for each in counting)
    return set(statuses) == {Status.OK, Status.IMPLAUSIBLE} and statuses[Status.IMPLAUSIBLE] < IMPLAUSIBLE
