"""The runner: prepares a plan, makes the launches that a schedule asks for, and stores records.

`run`, `tune`, `compare --now` and `gate` use it, each with its profile. Each record is stored as
its launch ends. However a run ends (Ctrl-C, SIGTERM, kill -9, a full disk), every finished record
is in the store, and a resumed run makes exactly the missing launches.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from dlbench.adapters.networks import family_of
from dlbench.adapters.protocol import Cell, Status
from dlbench.hardware_probe import Machine
from dlbench.reports.results.hosts import Host, Node, host_of
from dlbench.reports.results.naming import variables_in_words
from dlbench.reports.results.record import BISECTING, RELEASES, Record, Run
from dlbench.reports.results.storage.store import Store
from dlbench.reports.results.verdict import Rule

from ..display.progress import ProgressDisplay
from ..display.screen import err, resume_command, say
from ..errors import UsageError, interruptible
from ..planning.framework import GUEST_DIRECTORY
from ..planning.plan import Plan
from ..planning.variables import OPTION, left_behind
from . import capabilities, launch_files, preparation, quota, sides
from .answers import read_phase
from .budget import Budget
from .groups import Group
from .judge import FirstLosses, note_losses
from .launch import LaunchRunner, run_attempts
from .launcher import launch_process
from .privacy import recorded
from .quiet import QuietWait, busy_gpus, earlier_readings, measuring
from .schedules import Schedule, schedule_for
from .sides import ONE_SIDE, Side, Sources
from .texts import Text


@dataclass(frozen=True)
class RunProfile:
    """Purpose and schedule of a run, and how it begins.

    It is a new one or an unfinished one, on a fleet's node or not.
    """

    purpose: str = "suite"
    schedule: Callable[[Plan, Iterable[Record], Host | None], Schedule] = schedule_for
    sides: tuple[Side, ...] = ONE_SIDE
    rule: Rule | None = None  # of a comparison
    ceilings: bool = True  # whether missing ceilings are measured first
    waits_for_quiet: bool = True
    text: Text | None = None  # to train on
    lines: Callable[[], Iterable[str]] = tuple  # describe the run: its size, then further lines
    unfinished: Run | None = None  # to be resumed
    ends_run: bool = True  # False for the first part of a run, which is continued
    sources: Sources | None = None  # the interpreters by side, where they are prepared already
    described: Mapping[str, str] | None = None
    """A text for each side, where the sides are more than their interpreters."""
    node: Callable[[], Node | None] = lambda: None
    resume_command: str = field(default_factory=resume_command)


def run_plan(
    plan: Plan,
    machine: Machine,
    store: Store,
    profile: RunProfile,
    *,
    budget: Budget | None = None,
    build_missing: bool = True,
    matrix: Callable[[str, bool], str] | None = None,
) -> tuple[Run, Schedule]:
    """Prepare and carry out a run, and return it with the final state of its schedule.

    ``matrix`` returns the matrix so far of a run (its id), with or without notes. It is shown now
    and then.
    """
    store.add_machine(machine.fingerprint, machine.to_dict())
    sources = profile.sources or sides.prepare(plan, profile.sides, say, build_missing)
    with measuring(say, wait=True, computes=plan.computes):
        quota.remove_left()
        if profile.ceilings:
            preparation.ensure_ceilings(plan, store, machine, say)
        new_launcher = _prepare(plan, machine, profile, sources)
        run = profile.unfinished or begin(plan, store, machine, profile, sources)
        _announce(plan, store, machine, profile, run)
        quiet_wait = None
        if profile.waits_for_quiet and plan.computes:
            quiet_wait = QuietWait(store, run.id, say, earlier_readings(store, run.machine))
        records = list(store.records(run=run.id))
        by_row = profile.purpose in (RELEASES, BISECTING)
        first_losses = _first_losses(profile.sides, records, by_row)
        ceilings = store.ceilings(machine.fingerprint)
        launchers = {}
        for side in profile.sides:
            launchers[side.name] = new_launcher(
                run=run,
                sources=sources[side.name],
                quiet_wait=quiet_wait,
                variables=side.variables,
                guest=side.guest,
                ceilings=ceilings,
                first_losses=first_losses[side.name],
                losses_by_row=by_row,
            )
        shown = None if matrix is None else partial(matrix, run.id)
        interruption: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if profile.resume_command:
            interruption = interruptible(profile.resume_command)
        with preparation.exclusive(run), ProgressDisplay(err, shown) as display:
            schedule = profile.schedule(plan, records, host_of(machine))
            display.follow(schedule)
            runner = Runner(
                store, launchers, schedule, display, budget or Budget(), profile.ends_run
            )
            with interruption:
                try:
                    runner.run()
                except KeyboardInterrupt:
                    display.show_matrix()
                    raise
    return run, schedule


def _prepare(
    plan: Plan, machine: Machine, profile: RunProfile, sources: Sources
) -> Callable[..., LaunchRunner]:
    """Prepare the files and answers that launches need. Return a factory of runners."""
    reference = preparation.prepare_references(plan, machine, say)
    large_weights = _large_weights(plan, machine, profile.sides)
    feed_files = launch_files.prepare_feeds(plan, machine, say)
    default_threads = {}
    if len(profile.sides) == 1:
        place = capabilities.machine_key(machine)
        (only,) = profile.sides
        default_threads = capabilities.threads_by_default(
            plan, sources[only.name], place, launch_process, say
        )
    return partial(
        LaunchRunner,
        plan,
        launcher=launch_process,
        reference=reference,
        weights=large_weights,
        feeds=feed_files,
        machine=machine,
        default_threads=default_threads,
        text=profile.text,
        node=profile.node,
    )


def begin(plan: Plan, store: Store, machine: Machine, profile: RunProfile, sources: Sources) -> Run:
    """Store and return a new run."""
    described = profile.described or {}
    if not described and len(profile.sides) > 1:
        described = sides.describe_sides(profile.sides, sources)
    run = preparation.new_run(
        plan, machine, profile.purpose, described, profile.node(), profile.rule
    )
    store.begin_run(run)
    return run


def _announce(plan: Plan, store: Store, machine: Machine, profile: RunProfile, run: Run) -> None:
    """Describe a run to the user before its first launch."""
    size, *lines = profile.lines()
    say(f"{plan.suite}: {size}, run {run.id} in {store.name}")
    if plan.variables:
        say(f"Launched with {variables_in_words(recorded(plan.variables))} ({OPTION}).")
    left = left_behind_sentence(plan, profile.sides)
    if left:
        say(left)
    lines += busy_gpus(plan.cells, machine.gpus)
    lines += quota.notes(plan.cells, machine)
    lines += [f"  {name}: {text}" for name, text in run.sides.items()]
    for line in lines:
        if line:
            say(line)


def left_behind_sentence(plan: Plan, sides_of_run: Sequence[Side] = ONE_SIDE) -> str:
    """Return a sentence with this shell's variables that launches do not get, though they matter.

    It is empty if there are none. See `variables.left_behind`.
    """
    given = set(plan.variables)
    for side in sides_of_run:
        given |= set(side.variables)
    frameworks = [build.framework for build in plan.builds]
    frameworks += [side.step for side in sides_of_run if side.step is not None]
    return left_behind(given, frameworks, plan.thread_variables())


def _large_weights(
    plan: Plan, machine: Machine, sides_of_run: tuple[Side, ...]
) -> Callable[[Cell], Path | None]:
    """Return a look-up of the files with a cell's weights: for all sides, or for none.

    Another version of the adapters may not support such files. In a gate of identical code, where
    only one side drew its weights, the sides differed by 2.5 % (± 2.0 %).
    """
    if any(side.guest != GUEST_DIRECTORY for side in sides_of_run):
        return lambda cell: None
    return launch_files.prepare_weights(plan, machine, say)


def _first_losses(
    sides_of_run: tuple[Side, ...], records: list[Record], by_row: bool
) -> dict[str, FirstLosses]:
    """Return the first losses for each side.

    The launches of a side must agree, and reports compare the sides.
    """
    losses: dict[str, FirstLosses] = {side.name: {} for side in sides_of_run}
    first = losses[sides_of_run[0].name]  # the records of a search have a side of their own
    for record in records:
        if record.network is not None:
            noted = losses.get(record.side, first)
            note_losses(noted, record.cell, record.outcome, family_of(record.network), by_row)
    return losses


@dataclass
class Runner:
    """The launches of one run, made one after the other.

    Without a `QuietWait` it waits for nothing and repeats nothing.
    """

    store: Store
    launchers: Mapping[str, LaunchRunner]
    """Runners by side."""
    schedule: Schedule
    observer: ProgressDisplay
    budget: Budget = field(default_factory=Budget)
    ends_run: bool = True
    """Whether the run is finished once its schedule needs no more launches."""

    def __post_init__(self) -> None:
        launcher = next(iter(self.launchers.values()))  # all are of one run, on one machine
        self._plan = launcher.plan
        self._run = launcher.run
        self._quiet_wait = launcher.quiet_wait
        self._launched = 0

    def run(self) -> Schedule:
        """Make the missing launches until the budget is spent, and return the schedule.

        It has the number of launches left. The run is marked as finished once none is missing.
        Raises StoreError when a record cannot be stored, and KeyboardInterrupt as it comes.
        """
        self.budget.begin()
        for block in self.schedule.blocks():
            wanted = self.schedule.wanted(block, self.budget.left())
            fitting = [launches for launches in wanted if self._fits(launches)]
            if fitting and self._quiet_wait is not None:
                self._quiet_wait.before(block, self.budget.left())
            before = self._launched
            complete = bool(fitting) and self._run_block(block, wanted)
            if self._quiet_wait is not None and self._launched > before:
                self._quiet_wait.after(block)
            if not complete and self.schedule.strict:
                break
        if self.ends_run and self.schedule.launches_left() == 0:
            self.store.finish_run(self._run.id, datetime.now(UTC))
        return self.schedule

    def _run_block(self, block: int, wanted: Sequence[Group]) -> bool:
        """Make the launches of a block that fit the budget, and return whether all of them did."""
        complete = True
        for group in wanted:
            launches = tuple(
                launch for launch in group if self.schedule.wants(launch.cell, launch.index)
            )
            if not launches:
                continue
            if not self._fits(launches):
                complete = False
                if block == 0 or self.schedule.strict:
                    break
                continue  # a shorter one may fit
            if launches[0].in_turns:
                self._launch(launches)
            else:
                for launch in launches:
                    self._launch((launch,))
        return complete

    def _fits(self, launches: Group) -> bool:
        """Return whether launches fit the rest of the budget. The first ones always do.

        At most half of the budget is reserved for later launches.
        """
        if self.budget.seconds is None or self._launched == 0:
            return True
        expected = self.schedule.seconds_of(launches)
        reserved = self.schedule.reserved(launches[0].cell, launches[0].index)
        return self.budget.has(expected + min(reserved, self.budget.seconds / 2))

    def _launch(self, launches: Group) -> None:
        """Make one launch, or a group of them at once, with the attempts that it takes."""
        first = launches[0]
        build = self._plan.row_of(first.cell).build
        self._launched += len(launches)
        seconds = self.schedule.seconds_of(launches)
        total = self._launched + self.schedule.launches_left() - len(launches)
        self.observer.starts(launches, self._launched, total, seconds)
        # A framework that computes nothing is not worth repeating. In a group the disturbed turns
        # were repeated already.
        repeats = self._quiet_wait is not None and build.framework.computes and not first.in_turns
        most = self.schedule.most_attempts() if repeats else 1
        tick = self._tick(seconds, max(0.0, self._seconds_left() - seconds), first.in_turns)
        attempts = run_attempts(
            self.launchers,
            launches,
            self.schedule.protocol,
            most=most,
            skip_reason=self.schedule.skip_reason,
            tick=tick,
        )
        records: list[Record] = []
        for records in attempts:
            for record in records:
                self.store.append(record)
                self.schedule.add(record)
        total = self._launched + self.schedule.launches_left()
        for index, record in enumerate(records, self._launched - len(records) + 1):
            self.observer.ends(record, index, total, self._seconds_left())
            self._check_named(record)

    def _check_named(self, record: Record) -> None:
        """Raise UsageError if the user's own step needs an interpreter that was not named."""
        build = self._plan.row_of(record.cell).build
        reason = record.outcome.reason
        unnamed = build.framework.file is not None and build.interpreter is None
        if unnamed and record.outcome.status is Status.CRASHED and "ModuleNotFoundError" in reason:
            raise UsageError(
                f"{reason}. Name the interpreter that has it: --python {build.name}=PATH, or "
                "--python PATH."
            )

    def _seconds_left(self) -> float:
        """Return the seconds until all is done, or the budget is spent."""
        needed = self.schedule.seconds_left()
        allowed = self.budget.left()
        return needed if allowed is None else max(0.0, min(needed, allowed))

    def _tick(self, expected: float, afterwards: float, in_turns: bool) -> Callable[[Path], None]:
        began = time.monotonic()
        # The time at which each phase with its expected seconds was first read.
        first_read: dict[tuple[str, float], float] = {}

        def tick(directory: Path) -> None:
            phase, phase_seconds = read_phase(directory)
            now = time.monotonic()
            left = expected - (now - began)
            if phase_seconds is not None and not in_turns:
                phase_began = first_read.setdefault((phase, phase_seconds), now)
                left = phase_seconds - (now - phase_began)
            left = max(0.0, left)
            self.observer.ticks(phase or "starting", left, left + afterwards)

        return tick
