"""Carries out a prepared plan: sources, ceilings, references, the run's record, quiet gate, launches.

`run`, `tune`, `compare --now` and `gate` are this, each with its profile.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dlbench.adapters.networks import family_of
from dlbench.hardware_probe import Machine
from dlbench.reports.compare.verdict import Rule
from dlbench.reports.storage.hosts import Host, Node, host_of
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

from ..display.progress import ProgressDisplay
from ..display.screen import err, resume_command, say
from ..errors import interruptible
from ..planning.plan import Plan
from . import capabilities, preparation, sides
from .judge import FirstLosses, note_losses
from .launch import LaunchRunner
from .launcher import launch_process
from .machine_lock import measuring
from .quiet_gate import busy_gpus, open_gate
from .runner import Runner
from .schedules import BlockSchedule, Schedule
from .sides import ONE_SIDE, Side, Sources
from .texts import Text


@dataclass(frozen=True)
class RunProfile:
    """Purpose and schedule of a run, and how it begins: as a new one or an unfinished one, on a fleet's node or not."""

    purpose: str = "suite"
    schedule: Callable[[Plan, Iterable[Record], Host | None], Schedule] = BlockSchedule
    sides: tuple[Side, ...] = ONE_SIDE
    rule: Rule | None = None
    """Of a comparison."""
    ceilings: bool = True
    """Whether missing ceilings are measured first."""
    quiet_gate: bool = True
    text: Text | None = None
    """What launches train on."""
    lines: Callable[[], Iterable[str]] = tuple
    """Describes the run: its size, then further lines."""
    unfinished: Run | None = None
    """The run to be resumed."""
    sources: Sources | None = None
    """The interpreters by side, where they are prepared already."""
    node: Callable[[], Node | None] = lambda: None
    resume_command: str = field(default_factory=resume_command)
    """Named where Ctrl-C or a signal ends it; empty: it ends as it comes."""


def run_plan(
    plan: Plan,
    machine: Machine,
    store: Store,
    profile: RunProfile,
    *,
    budget_seconds: float | None = None,
    build_missing: bool = True,
    matrix: Callable[[str], str] | None = None,
) -> tuple[Run, Schedule]:
    """Prepare and carry out a run; return it with the final state of its schedule.

    ``matrix`` returns the matrix so far of a run (its id), to be shown now and then.
    """
    paired = len(profile.sides) > 1
    store.add_machine(machine.fingerprint, machine.to_dict())
    sources = profile.sources or sides.prepare(plan, profile.sides, say, build_missing)
    with measuring(say, wait=True, computes=plan.computes):
        if profile.ceilings:
            preparation.ensure_ceilings(plan, store, machine, say)
        reference = preparation.prepare_references(plan, machine, say)
        defaults = {}
        if not paired:
            place = capabilities.place_of(machine)
            defaults = capabilities.threads_by_default(plan, sources[profile.sides[0].name], place, launch_process, say)
        named = sides.described(profile.sides, sources) if paired else {}
        run = profile.unfinished or preparation.begin(
            plan, store, machine, profile.purpose, named, profile.node(), profile.rule
        )
        size, *lines = profile.lines()
        say(f"{plan.suite}: {size}, run {run.id} in {store.name}")
        described = [f"  {name}: {words}" for name, words in run.sides.items()]
        for line in filter(None, (*lines, *busy_gpus(plan.cells, machine.gpus), *described)):
            say(line)
        gate = open_gate(store, run, say) if profile.quiet_gate and plan.computes else None
        records = list(store.records(run=run.id))
        first_losses = _first_losses(profile.sides, records)
        launchers = {
            side.name: LaunchRunner(
                plan,
                run,
                launch_process,
                sources[side.name],
                reference,
                machine=machine,
                gate=gate,
                default_threads=defaults,
                variables=side.variables,
                guest=side.guest,
                ceilings=store.ceilings(machine.fingerprint),
                text=profile.text,
                first_losses=first_losses[side.name],
                node=profile.node,
            )
            for side in profile.sides
        }
        shown = None if matrix is None else (lambda: matrix(run.id))
        with preparation.exclusive(run), ProgressDisplay(err, shown) as display:
            schedule = profile.schedule(plan, records, host_of(machine))
            display.follow(schedule)
            with interruptible(profile.resume_command) if profile.resume_command else contextlib.nullcontext():
                Runner(store, launchers, schedule, display, budget_seconds).run()
    return run, schedule


def _first_losses(of_run: tuple[Side, ...], records: list[Record]) -> dict[str, FirstLosses]:
    """Return the first losses for each side: two files compute different things, even where they have one name."""
    apart = any(side.step is not None for side in of_run)
    shared: FirstLosses = {}
    found: dict[str, FirstLosses] = {side.name: {} if apart else shared for side in of_run}
    for record in records:
        if record.network is not None:
            known = found.get(record.side, shared)
            note_losses(known, record.cell, record.outcome, family_of(record.network))
    return found
