"""Carries out pairs of launches until nothing more is needed, storing each record as it ends.

What comes next follows from the records alone (`suites.pairs`): a comparison that was killed goes on where it was.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol as TypingProtocol

from dlbench.adapters.protocol import Cell
from dlbench.reports.compare.comparison import CANDIDATE
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store

from ..launching.control import read_phase
from ..planning.plan import PlannedLaunch
from .attempts import MOST_ATTEMPTS, Carrier
from .ledger import Estimates
from .pairs import Next, PlannedPair, block, pairs_left


class PairObserver(TypingProtocol):
    """Whoever watches a comparison being measured."""

    def starts(self, pair: PlannedPair, side: str, pairs_left: int) -> None:
        """A launch of this side begins; so many pairs are left at most, this one included."""

    def ticks(self, phase: str, seconds_left: float) -> None:
        """Now and then during a launch; the seconds are those of the whole comparison."""

    def ends(self, pair: PlannedPair, records: Mapping[str, Record], seconds_left: float) -> None:
        """Both launches of a pair are stored."""


@dataclass(frozen=True)
class PairEnding:
    """How it ended: all done, or out of budget with about so many pairs left."""

    pairs_left: int


@dataclass
class PairRunner:
    """Carries out one comparison; ``carriers`` are those of the two sides, by the side's name.

    Without a gate it waits for nothing and repeats nothing.
    """

    store: Store
    carriers: Mapping[str, Carrier]
    following: Next
    observer: PairObserver
    budget_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        one = self.carriers[CANDIDATE]  # both are of one run, on one machine
        self._plan, self._run, self._gate = one.plan, one.run, one.gate
        self._start = 0.0
        self._records = self.store.records(run=self._run.id)
        self._estimates = Estimates(self._plan.protocol.seconds + 8.0)
        for record in self._records:
            self._estimates.learn(record.cell, record.wall_seconds)

    def run(self) -> PairEnding:
        """Measure until done or out of budget; the run is marked finished only when done.

        Raises StoreError when a record cannot be stored, and KeyboardInterrupt as it comes.
        """
        self._start = self.clock()
        first = True
        index = 0
        while planned := block(self._plan.cells, self._records, self.following, self._run.seed):
            if self._gate is not None:
                self._gate.before(index, self._seconds_of_budget())
            for pair in planned:
                left = pairs_left(self._plan.cells, self._records, self.following)
                if pair.cell not in left:
                    continue
                expected = 2 * self._estimates.of(pair.cell)
                of_budget = self._seconds_of_budget()
                if of_budget is not None and not first and expected > of_budget:
                    return PairEnding(sum(left.values()))
                first = False
                self._carry_out(pair, left)
            if self._gate is not None:
                self._gate.after(index)
            index += 1
        self.store.finish_run(self._run.id, datetime.now(UTC))
        return PairEnding(0)

    def _carry_out(self, pair: PlannedPair, left: Mapping[Cell, int]) -> None:
        stored: dict[str, Record] = {}
        for side in pair.order:
            self.observer.starts(pair, side, sum(left.values()))
            for record in self.carriers[side].attempts(
                PlannedLaunch(pair.cell, pair.launch),
                self._plan.protocol,
                stage=pair.stage,
                most=1 if self._gate is None else MOST_ATTEMPTS,
                tick=self._tick(left),
            ):
                self.store.append(record)
                self._records.append(record)
                self._estimates.learn(pair.cell, record.wall_seconds)
                stored[side] = record
        self.observer.ends(pair, stored, self._seconds_left())

    def _seconds_left(self) -> float:
        pairs = pairs_left(self._plan.cells, self._records, self.following)
        left = sum(2 * count * self._estimates.of(cell) for cell, count in pairs.items())
        of_budget = self._seconds_of_budget()
        return left if of_budget is None else max(0.0, min(left, of_budget))

    def _seconds_of_budget(self) -> float | None:
        return None if self.budget_seconds is None else self.budget_seconds - (self.clock() - self._start)

    def _tick(self, left: Mapping[Cell, int]) -> Callable[[Path], None]:
        began = time.monotonic()
        overall = self._seconds_left()

        def tick(directory: Path) -> None:
            phase, _ = read_phase(directory)
            self.observer.ticks(phase or "starting", max(0.0, overall - (time.monotonic() - began)))

        return tick
