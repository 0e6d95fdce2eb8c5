"""The runner: makes the launches that a schedule asks for, stores each record as it ends, and keeps to the budget.

However a run ends (Ctrl-C, SIGTERM, kill -9, a full disk), every finished record is in the store, and a resumed run
launches exactly what is missing.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from dlbench.adapters.protocol import Status
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store

from ..errors import UsageError
from ..planning.plan import PlannedLaunch
from .launch import LaunchRunner
from .outcomes import read_phase
from .schedules import Group, Schedule


class Observer(Protocol):
    """Watches a run: the command line's progress display, or a test."""

    def starts(self, planned: PlannedLaunch, index: int, total: int, expected_seconds: float) -> None:
        """A launch begins, the ``index``-th (from 1) of about ``total``."""

    def ticks(self, phase: str, seconds_left: float, seconds_left_overall: float) -> None:
        """Now and then during a launch."""

    def ends(self, record: Record, index: int, total: int, seconds_left_overall: float) -> None:
        """A launch has ended; the last of its records, which are stored."""


@dataclass
class Runner:
    """Makes the launches of one run; without a quiet gate it waits for nothing and repeats nothing."""

    store: Store
    launchers: Mapping[str, LaunchRunner]
    """By side."""
    schedule: Schedule
    observer: Observer
    budget_seconds: float | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        one = next(iter(self.launchers.values()))  # all are of one run, on one machine
        self._plan, self._run, self._gate = one.plan, one.run, one.gate
        self._start, self._launched = 0.0, 0

    def run(self) -> Schedule:
        """Launch what is missing until all is done or the budget is spent; only then the run is marked finished.

        Returns the schedule, which knows what is left. Raises StoreError when a record cannot be stored, and
        KeyboardInterrupt as it comes.
        """
        self._start = self.clock()
        for block in self.schedule.blocks():
            if not self._run_block(block) and self.schedule.strict:
                break
        if self.schedule.launches_left() == 0:
            self.store.finish_run(self._run.id, datetime.now(UTC))
        return self.schedule

    def _run_block(self, block: int) -> bool:
        """Make the launches of one block that fit the budget; return whether all of them did."""
        wanted = self.schedule.wanted(block, self._seconds_of_budget())
        if not any(self._fits(launches) for launches in wanted):
            return False
        if self._gate is not None:
            self._gate.before(block, self._seconds_of_budget())
        launched, complete = False, True
        for launches in wanted:
            if not self.schedule.wants(launches):
                continue
            if not self._fits(launches):
                complete = False
                if block == 0 or self.schedule.strict:
                    break
                continue  # a shorter one may fit
            for planned in launches:
                self._launch(planned)
            launched = True
        if self._gate is not None and launched:
            self._gate.after(block)
        return complete

    def _fits(self, launches: Group) -> bool:
        """Whether launches fit what is left of the budget; the first ones always do.

        Half of the budget at most is kept for what follows.
        """
        left = self._seconds_of_budget()
        if left is None or self.budget_seconds is None or self._launched == 0:
            return True
        expected = sum(self.schedule.seconds(each.cell) for each in launches)
        return expected <= left - min(self.schedule.reserved(launches), self.budget_seconds / 2)

    def _launch(self, planned: PlannedLaunch) -> None:
        cell = planned.cell
        self._launched += 1
        seconds = self.schedule.seconds(cell)
        total = self._launched + self.schedule.launches_left() - 1
        self.observer.starts(planned, self._launched, total, seconds)
        # What computes nothing is not worth repeating.
        repeats = self._gate is not None and self._plan.row_of(cell).build.framework.computes
        record: Record | None = None
        for record in self.launchers[planned.side].run_launch(
            planned,
            self.schedule.protocol(cell),
            most=self.schedule.most_attempts() if repeats else 1,
            skip=self.schedule.skip_reason(cell),
            tick=self._tick(seconds, max(0.0, self._seconds_left() - seconds)),
        ):
            self.store.append(record)
            self.schedule.add(record)
        assert record is not None
        total = self._launched + self.schedule.launches_left()
        self.observer.ends(record, self._launched, total, self._seconds_left())
        self._check_own_step(record)

    def _check_own_step(self, record: Record) -> None:
        """Raise UsageError where a step of the user's own lacks its framework and no interpreter was named."""
        build = self._plan.row_of(record.cell).build
        reason = record.outcome.reason
        unnamed = build.framework.file is not None and build.interpreter is None
        if unnamed and record.outcome.status is Status.CRASHED and "ModuleNotFoundError" in reason:
            raise UsageError(
                f"{reason}. Name the interpreter that has it: --python {build.name}=PATH, or --python PATH."
            )

    def _seconds_of_budget(self) -> float | None:
        return None if self.budget_seconds is None else self.budget_seconds - (self.clock() - self._start)

    def _seconds_left(self) -> float:
        """Return the seconds until all is done, or the budget is spent."""
        left, of_budget = self.schedule.seconds_left(), self._seconds_of_budget()
        return left if of_budget is None else max(0.0, min(left, of_budget))

    def _tick(self, expected: float, afterwards: float) -> Callable[[Path], None]:
        began = time.monotonic()
        first_read: dict[tuple[str, float], float] = {}
        """When each phase with its expected seconds was first read."""

        def tick(directory: Path) -> None:
            phase, timed = read_phase(directory)
            now = time.monotonic()
            left = expected - (now - began)
            if timed is not None:
                left = timed - (now - first_read.setdefault((phase, timed), now))
            left = max(0.0, left)
            self.observer.ticks(phase or "starting", left, left + max(0.0, afterwards))

        return tick
