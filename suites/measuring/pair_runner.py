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
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

from ..planning.plan import Plan, PlannedLaunch
from ..quiet.block_gate import BlockGate
from .attempts import MOST_ATTEMPTS, Carrier
from .launcher import read_phase
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
    """How it ended: all done, or out of budget with so many pairs left at most."""

    pairs_left: int


class PairRunner:
    """Carries out one comparison; ``carriers`` are those of the two sides, by the side's name.

    Without a gate it waits for nothing and repeats nothing.
    """

    def __init__(
        self,
        plan: Plan,
        run: Run,
        store: Store,
        carriers: Mapping[str, Carrier],
        following: Next,
        observer: PairObserver,
        budget_seconds: float | None = None,
        gate: BlockGate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._run = run
        self._store = store
        self._carriers = carriers
        self._following = following
        self._observer = observer
        self._budget = budget_seconds
        self._gate = gate
        self._clock = clock
        self._records = store.records(run=run.id)
        self._estimates = Estimates(plan.protocol.seconds + 8.0)
        for record in self._records:
            self._estimates.learn(record.cell, record.wall_seconds)

    def run(self) -> PairEnding:
        """Measure until done or out of budget; the run is marked finished only when done.

        Raises StoreError when a record cannot be stored, and KeyboardInterrupt as it comes.
        """
        start = self._clock()
        first = True
        index = 0
        while planned := block(self._plan.cells, self._records, self._following, self._run.seed):
            if self._gate is not None:
                budget = None if self._budget is None else self._budget - (self._clock() - start)
                self._gate.before(index, budget)
            for pair in planned:
                left = pairs_left(self._plan.cells, self._records, self._following)
                if pair.cell not in left:
                    continue
                expected = 2 * self._estimates.of(pair.cell)
                if self._budget is not None and not first and self._clock() - start + expected > self._budget:
                    return PairEnding(sum(left.values()))
                first = False
                self._carry_out(pair, left)
            if self._gate is not None:
                self._gate.after(index)
            index += 1
        self._store.finish_run(self._run.id, datetime.now(UTC))
        return PairEnding(0)

    def _carry_out(self, pair: PlannedPair, left: Mapping[Cell, int]) -> None:
        stored: dict[str, Record] = {}
        for side in pair.order:
            self._observer.starts(pair, side, sum(left.values()))
            planned = PlannedLaunch(pair.cell, pair.launch)
            carrier = self._carriers[side]
            for record in carrier.attempts(
                planned,
                self._plan.protocol,
                side=side,
                stage=pair.stage,
                attempts=1 if self._gate is None else MOST_ATTEMPTS,
                tick=self._tick(left),
            ):
                self._store.append(record)
                self._records.append(record)
                self._estimates.learn(pair.cell, record.wall_seconds)
                stored[side] = record
        self._observer.ends(pair, stored, self._seconds_left())

    def _seconds_left(self) -> float:
        left = pairs_left(self._plan.cells, self._records, self._following)
        return sum(2 * count * self._estimates.of(cell) for cell, count in left.items())

    def _tick(self, left: Mapping[Cell, int]) -> Callable[[Path], None]:
        began = time.monotonic()
        overall = self._seconds_left()

        def tick(directory: Path) -> None:
            phase, _ = read_phase(directory)
            self._observer.ticks(phase or "starting", max(0.0, overall - (time.monotonic() - began)))

        return tick
