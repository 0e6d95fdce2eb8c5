"""The runner: launches a plan, stores each record as it finishes, keeps to the budget, resumes.

Whatever ends it - Ctrl-C, SIGTERM, kill -9, a full disk - every record that was finished is in the store, and a resumed
run launches exactly what is missing. Launches are made in blocks, one of each cell that still needs one (`Ledger`);
what follows is decided from the records alone.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol as TypingProtocol

from dlbench.adapters.protocol import Cell
from dlbench.reports.compare.comparison import CANDIDATE
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store

from ..planning.plan import Plan, PlannedLaunch
from .launch import MOST_ATTEMPTS, LaunchRunner
from .outcomes import read_phase
from .schedules import Estimates, Ledger, Next, PlannedPair, pair_block, pairs_left

# Repetitions of disturbed launches allowed over a whole run: so many, and this share of its records.
_REPEATS, _REPEATS_SHARE = 4, 0.25


class Observer(TypingProtocol):
    """Whoever watches a run: the command line's progress display, or a test."""

    def starts(self, planned: PlannedLaunch, index: int, total: int, expected_seconds: float) -> None:
        """A launch begins, the ``index``-th (from 1) of ``total``; with a precision to reach that is an estimate."""

    def ticks(self, phase: str, seconds_left: float, seconds_left_overall: float) -> None:
        """Now and then during a launch."""

    def ends(self, record: Record, index: int, total: int, seconds_left_overall: float) -> None:
        """A launch came to its end; the last of its records, which are stored."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended: all done, or out of budget with so many launches left."""

    launches_left: int
    records: int
    seconds_left: float = 0.0
    """What those launches are expected to take."""


@dataclass
class Runner:
    """Carries out one run; where its carrier has no gate it waits for nothing and repeats nothing."""

    store: Store
    carrier: LaunchRunner
    observer: Observer
    budget_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic
    ledger_of: Callable[[Plan, Iterable[Record], Host | None], Ledger] = Ledger
    """Makes of the plan and the run's records what says which launches are needed."""
    ledger: Ledger = field(init=False)
    """What the run's records show so far."""

    def __post_init__(self) -> None:
        self.ledger = self.ledger_of(self.carrier.plan, self.store.records(run=self.carrier.run.id), self.carrier.host)
        self._plan, self._gate = self.carrier.plan, self.carrier.gate
        self._start, self._launched = 0.0, 0

    def run(self) -> RunResult:
        """Launch what is missing until all is done or the budget is spent; the run is marked finished only then.

        Raises StoreError when a record cannot be stored, and KeyboardInterrupt as it comes.
        """
        self._start = self.clock()
        for block in range(self._plan.most):
            cells = [planned.cell for planned in self._plan.block(block) if self.ledger.wants(planned.cell, block)]
            if cells:
                self._launch(block, cells)  # where the budget kept time for later blocks, they follow
        left = self.ledger.launches_left()
        if left == 0:
            self.store.finish_run(self.carrier.run.id, datetime.now(UTC))
        return RunResult(left, self.ledger.count, self.ledger.seconds_left())

    def _launch(self, block: int, cells: list[Cell]) -> None:
        """Launch of one block what fits the budget."""
        if not any(self._fits(cell, block) for cell in cells):
            return
        if self._gate is not None:
            self._gate.before(block, self._seconds_of_budget())
        launched = False
        for cell in self.ledger.in_order(cells, block, self._seconds_of_budget()):
            if not self.ledger.wants(cell, block):
                continue
            if not self._fits(cell, block):
                if block == 0:
                    break
                continue  # a shorter one may fit
            self._carry_out(PlannedLaunch(cell, block))
            launched = True
        if self._gate is not None and launched:
            self._gate.after(block)

    def _fits(self, cell: Cell, block: int) -> bool:
        """Tell whether a launch fits what is left of the budget; the first always does.

        Half of the budget at most is kept for what follows.
        """
        left = self._seconds_of_budget()
        if left is None or self.budget_seconds is None or self._launched == 0:
            return True
        return self.ledger.seconds(cell) <= left - min(self.ledger.reserved(cell, block), self.budget_seconds / 2)

    def _carry_out(self, planned: PlannedLaunch) -> None:
        cell = planned.cell
        self._launched += 1
        others = self.ledger.launches_left() - 1
        seconds = self.ledger.seconds(cell)
        self.observer.starts(planned, self._launched, self._launched + others, seconds)
        record: Record | None = None
        for record in self.carrier.attempts(
            planned,
            self.ledger.protocol(cell),
            most=self._most_attempts(cell),
            skip=self.ledger.not_worth_starting(cell),
            tick=self._tick(seconds, max(0.0, self._seconds_left() - seconds)),
        ):
            self.store.append(record)
            self.ledger.add(record)
        assert record is not None
        total = self._launched + self.ledger.launches_left()
        self.observer.ends(record, self._launched, total, self._seconds_left())

    def _most_attempts(self, cell: Cell) -> int:
        """Return how often a launch may be attempted; what computes nothing is not worth repeating."""
        if self._gate is None or not self._plan.row_of(cell).build.framework.computes:
            return 1
        allowed = _REPEATS + _REPEATS_SHARE * self.ledger.count
        return MOST_ATTEMPTS if self.ledger.repeated < allowed else 1

    def _seconds_of_budget(self) -> float | None:
        return None if self.budget_seconds is None else self.budget_seconds - (self.clock() - self._start)

    def _seconds_left(self) -> float:
        """Return how long it goes on: until all is done, or the budget is spent."""
        left, of_budget = self.ledger.seconds_left(), self._seconds_of_budget()
        return left if of_budget is None else max(0.0, min(left, of_budget))

    def _tick(self, expected: float, afterwards: float) -> Callable[[Path], None]:
        began = time.monotonic()
        seen: dict[tuple[str, float], float] = {}
        """When what the guest says of itself was first read."""

        def tick(directory: Path) -> None:
            phase, timed = read_phase(directory)
            now = time.monotonic()
            left = expected - (now - began)
            if timed is not None:
                left = timed - (now - seen.setdefault((phase, timed), now))
            left = max(0.0, left)
            self.observer.ticks(phase or "starting", left, left + max(0.0, afterwards))

        return tick


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
    carriers: Mapping[str, LaunchRunner]
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
        while planned := pair_block(self._plan.cells, self._records, self.following, self._run.seed):
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
