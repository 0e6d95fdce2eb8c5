"""A race of cells: after each block of launches the slower half drops out, and the last ones run pairs.

Successive halving (Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter
optimization"): every cell still in the race gets one launch a block, so all have been through the same times of the
machine. The cell that the others must beat stays to the end. What follows is decided from the records alone.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from dlbench.adapters import tuning
from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.evidence.attempts import effective
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

from ..measuring.ledger import Ledger
from ..planning.plan import Plan

NAME = "tune"
"""Of the run in the store, as a suite has one."""
FINALISTS = 2
PAIRS = 8
"""Launches of each finalist after the choice is made: only these enter the gain, lest luck in the race does."""


def sizes(cells: int) -> list[int]:
    """Return how many cells each block has, beside the one to beat: halved to the finalists, who run pairs."""
    found = [cells]
    while found[-1] > FINALISTS:
        found.append(max(FINALISTS, math.ceil(found[-1] / 2)))
    return [*found[:-1], *[found[-1]] * PAIRS]


def raced(plan: Plan) -> Plan:
    """Return the plan with as many blocks as a race of its cells has."""
    return replace(plan, suite=NAME, launches=len(sizes(len(plan.cells))), launches_most=None, interval=None)


def to_beat(plan: Plan, cores: int) -> Cell:
    """Return what a user starts from: the first row's default mode, as installed, on as many threads as cores."""

    def distance(cell: Cell) -> tuple[object, ...]:
        row = plan.row_of(cell)
        usual = cell.mode == row.build.framework.default_mode
        in_force = tuning.in_force(cell.tuning, plan.tunable(cell))
        return not usual, len(in_force), abs(cell.threads - cores), cell.threads

    first = plan.rows[0].build.name
    return min((cell for cell in plan.cells if cell.framework == first), key=distance)


class Race(Ledger):
    """The state of a race."""

    def __init__(self, beaten: Cell, plan: Plan, records: Iterable[Record], host: Host | None = None) -> None:
        """Take the records so far; ``beaten`` is the cell that the others must beat."""
        self._beaten = beaten
        self._sizes = sizes(len(plan.cells))
        self._known: dict[tuple[int, int], list[Cell]] = {}
        super().__init__(plan, records, host)

    def survivors(self, block: int) -> list[Cell]:
        """Return the cells that a block launches: the fastest of the blocks before it, and the one to beat."""
        if (block, self.count) not in self._known:
            self._known = {(block, self.count): self._survivors(block)}
        return self._known[block, self.count]

    def _survivors(self, block: int) -> list[Cell]:
        cells = list(self._plan.cells)
        for past, size in enumerate(self._sizes[1 : block + 1], start=1):
            times = {cell: median(found) for cell in cells if (found := self._times(cell, past))}
            cells = sorted(times, key=times.__getitem__)[:size]
        stays = self._beaten not in cells and self._times(self._beaten, block)
        return [*cells, self._beaten] if stays else cells

    def finalists(self) -> list[Cell]:
        """Return the cells of the last blocks, the one to beat among them."""
        return self.survivors(len(self._sizes) - PAIRS)

    def timed(self, cell: Cell) -> dict[int, float]:
        """Return a cell's seconds a step by block, of its pairs alone."""
        first = len(self._sizes) - PAIRS
        return {block: seconds for block, seconds in self._by_block(cell).items() if block >= first}

    def _by_block(self, cell: Cell) -> dict[int, float]:
        counting = effective(self._records.get(cell, []), self._host)
        return {
            record.launch: median(record.outcome.step_seconds())
            for record in counting
            if record.outcome.status is Status.OK and record.outcome.samples_ns
        }

    def _times(self, cell: Cell, before: int) -> list[float]:
        return [seconds for block, seconds in self._by_block(cell).items() if block < before]

    def wants(self, cell: Cell, block: int) -> bool:
        """Tell whether a block launches this cell yet."""
        return super().wants(cell, block) and cell in self.survivors(block)

    def launches_left(self) -> int:
        """Return the launches still to come; where cells fail they are fewer."""
        launched = Counter(each.launch for found in self._records.values() for each in found if each.attempt == 0)
        now = max(launched, default=0)
        here = max(0, len(self.survivors(now)) - launched[now])
        return here + sum(min(size + 1, len(self._plan.cells)) for size in self._sizes[now + 1 :])

    def seconds_left(self) -> float:
        """Return the expected seconds of those."""
        cells = self._plan.cells
        return self.launches_left() * sum(self.seconds(cell) for cell in cells) / len(cells)
