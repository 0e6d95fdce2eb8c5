"""The runner: launches a plan, stores each record as it finishes, keeps to the budget, resumes.

Whatever ends it - Ctrl-C, SIGTERM, kill -9, a full disk - every record that was finished is in the store, and a resumed
run launches exactly what is missing.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Protocol as TypingProtocol

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.record import Record, Run
from dlbench.reports.store import Store

from .carrier import Carrier
from .launcher import read_phase
from .plan import Plan, PlannedLaunch, group_of

# Statuses after which launching the same cell once more could tell something new.
_WORTH_REPEATING = (Status.OK, Status.PARITY_FAILED, Status.CRASHED)


class Observer(TypingProtocol):
    """Whoever watches a run: the command line's progress display, or a test."""

    def starts(self, planned: PlannedLaunch, index: int, total: int, expected_seconds: float) -> None:
        """A launch begins, the ``index``-th (from 1) of ``total``."""

    def ticks(self, phase: str, seconds_left: float, seconds_left_overall: float) -> None:
        """Now and then during a launch."""

    def ends(self, record: Record, index: int, total: int, seconds_left_overall: float) -> None:
        """A record was stored."""


@dataclass(frozen=True)
class Ending:
    """How a run ended: all done, or out of budget with so many launches left."""

    launches_left: int
    records: int


class Estimates:
    """How long launches last, learnt from those that ended."""

    def __init__(self, first_guess: float) -> None:
        self._first_guess = first_guess
        self._seconds: dict[str, list[float]] = {}

    def learn(self, cell: Cell, seconds: float) -> None:
        """Take note of a launch that lasted this long."""
        self._seconds.setdefault(cell.network, []).append(seconds)

    def of(self, cell: Cell) -> float:
        """Return the expected seconds of a launch: its network's mean so far, else the mean of all, else a guess."""
        if cell.network in self._seconds:
            return fmean(self._seconds[cell.network])
        known = [seconds for group in self._seconds.values() for seconds in group]
        return fmean(known) if known else self._first_guess

    def total(self, launches: Iterable[PlannedLaunch]) -> float:
        """Return the expected seconds of these launches together."""
        return sum(self.of(planned.cell) for planned in launches)


class Runner:
    """Carries out one run."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        store: Store,
        carrier: Carrier,
        observer: Observer,
        budget_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._run = run
        self._store = store
        self._carrier = carrier
        self._observer = observer
        self._budget = budget_seconds
        self._clock = clock
        self._records = store.records(run=run.id)
        self._estimates = Estimates(plan.protocol.seconds + 8.0)
        for record in self._records:
            self._estimates.learn(record.cell, record.wall_seconds)

    def missing(self) -> list[PlannedLaunch]:
        """Return the launches that have no record yet, in launching order."""
        done = {(record.cell, record.launch) for record in self._records}
        settled = {record.cell for record in self._records if record.outcome.status not in _WORTH_REPEATING}
        return [
            planned
            for planned in self._plan.order()
            if (planned.cell, planned.block) not in done and planned.cell not in settled
        ]

    def run(self) -> Ending:
        """Launch what is missing until all is done or the budget is spent; the run is marked finished only then.

        Raises StoreError when a record cannot be stored, and KeyboardInterrupt as it comes.
        """
        start = self._clock()
        pending = self.missing()
        total = len(pending)
        index = 0
        while pending:
            planned = pending.pop(0)
            expected = self._estimates.of(planned.cell)
            if self._budget is not None and self._clock() - start + expected > self._budget and index > 0:
                return Ending(len(pending) + 1, len(self._records))
            index += 1
            self._observer.starts(planned, index, total, expected)
            for record in self._carrier.attempts(
                planned,
                self._plan.protocol,
                skip=self._beyond_budget(planned.cell),
                tick=self._tick(planned, pending),
            ):
                self._store.append(record)
                self._records.append(record)
                if record.outcome.status is not Status.SKIPPED:
                    self._estimates.learn(planned.cell, record.wall_seconds)
            if record.outcome.status not in _WORTH_REPEATING:
                before = len(pending)
                pending = [later for later in pending if later.cell != record.cell]
                total -= before - len(pending)
            self._observer.ends(record, index, total, self._estimates.total(pending))
        self._store.finish_run(self._run.id, datetime.now(UTC))
        return Ending(0, len(self._records))

    def _tick(self, planned: PlannedLaunch, pending: list[PlannedLaunch]) -> Callable[[Path], None]:
        expected = self._estimates.of(planned.cell)
        afterwards = self._estimates.total(pending)
        began = time.monotonic()
        timed_since: list[float] = []

        def tick(directory: Path) -> None:
            phase, timed = read_phase(directory)
            now = time.monotonic()
            left = expected - (now - began)
            if timed is not None:
                timed_since.append(now)
                left = timed - (now - timed_since[0])
            left = max(0.0, left)
            self._observer.ticks(phase or "starting", left, left + afterwards)

        return tick

    def _beyond_budget(self, cell: Cell) -> str:
        """Return why this cell is not worth starting, by what its group's cell of fewest threads showed."""
        limit = self._plan.cell_seconds
        peers = [r for r in self._records if group_of(r.cell) == group_of(cell) and r.cell.threads < cell.threads]
        if not peers:
            return ""
        first = min(peers, key=lambda record: record.cell.threads)
        threads = "1 thread" if first.cell.threads == 1 else f"{first.cell.threads} threads"
        if first.outcome.status is Status.TIMED_OUT:
            return f"at {threads} it did not end within the cell's budget of {limit:g} s"
        if first.outcome.samples_ns:
            step = median(first.outcome.step_seconds())
            if step > limit:
                return f"one step takes {step:.3g} s at {threads}, the cell's budget is {limit:g} s"
        return ""
