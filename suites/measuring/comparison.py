"""From a plan and two sides to a comparison that is measured: sources, references, carriers and the run's record."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dlbench.hardware_probe import Machine
from dlbench.reports.compare.comparison import BASELINE, CANDIDATE, Comparison, compare_sides_of_run
from dlbench.reports.compare.verdict import Rule, chosen
from dlbench.reports.storage.hosts import Host, read_host
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..environments import row_interpreters
from ..environments.environment import Report
from ..environments.row_interpreters import Source
from ..errors import FrameworkEnvironmentError, UsageError
from ..judging.first_losses import FirstLosses
from ..launching.launcher import ProcessLauncher
from ..planning.plan import Plan
from ..planning.values import Build
from ..quiet.block_gate import BlockGate
from . import preparation
from .attempts import Carrier
from .comparison_sides import Side, words

Prepared = Mapping[str, Mapping[str, Source]]
"""By side, each row's source."""


def _builds(plan: Plan, side: Side) -> list[Build]:
    """Return what each row of the plan is launched with on this side, under the row's own name.

    Raises UsageError for an interpreter of a framework that is no row, and for a revision of the adapters where a
    framework's own lies outside dlbench: it would not vary.
    """
    given = {build.framework.name: build for build in side.builds}
    planned = {build.framework.name for build in plan.builds}
    for name in given:
        if name not in planned:
            raise UsageError(
                f"An interpreter is given for {name}, which is not a row here ({', '.join(sorted(planned))}). Name it "
                "with --frameworks, or leave the interpreter out."
            )
    for build in plan.builds if side.revision else ():
        if build.framework.outside is not None:
            raise UsageError(
                f"The adapter of {build.name} lies outside dlbench: adapters at revision {side.revision} do not "
                "include it. Leave its row out, or --baseline-adapters and --candidate-adapters."
            )
    found = []
    for build in plan.builds:
        override = given.get(build.framework.name)
        interpreter = override.interpreter if override else None
        if side.name == CANDIDATE and override is None:
            interpreter = build.interpreter
        step = side.step if build.framework.file is not None else None
        found.append(Build(build.name, step or build.framework, interpreter))
    return found


def prepare(plan: Plan, pair: tuple[Side, Side], report: Report, build_missing: bool) -> Prepared:
    """Return every row's interpreter on both sides.

    Raises FrameworkEnvironmentError for an interpreter the user named and got wrong and where not one row has an
    interpreter on both sides, and UsageError for sides that the plan's rows do not allow (see `_builds`).
    """
    prepared = {side.name: row_interpreters.prepare(_builds(plan, side), report, build_missing) for side in pair}
    if not any(
        prepared[BASELINE][name].interpreter and prepared[CANDIDATE][name].interpreter for name in prepared[BASELINE]
    ):
        reasons = dict.fromkeys(s.reason.rstrip(".") for found in prepared.values() for s in found.values() if s.reason)
        raise FrameworkEnvironmentError(f"No row has an interpreter on both sides. {'; '.join(reasons)}.")
    return prepared


def begin(
    plan: Plan, pair: tuple[Side, Side], prepared: Prepared, store: Store, machine: Machine, purpose: str, rule: Rule
) -> Run:
    """Store and return a new run of both sides; what each side is, in words, and the rule stand in it."""
    named = {side.name: words(side, prepared[side.name].values()) for side in pair}
    run = replace(preparation.new_run(plan, machine, purpose, named), rule=chosen(rule))
    store.begin_run(run)
    return run


def carriers(
    plan: Plan,
    run: Run,
    pair: tuple[Side, Side],
    prepared: Prepared,
    machine: Machine,
    gate: BlockGate | None,
    ceilings: dict[str, Any] | None,
    records: Iterable[Record] = (),
) -> dict[str, Carrier]:
    """Return what launches each side, by its name; references that are not there yet are computed.

    ``records`` are those of the run so far.
    """
    reference = preparation.prepare_references(plan, machine, say)
    records = list(records)
    shared = FirstLosses.of(records)
    # Two files compute what each of them does, even where they have one name.
    own = any(side.step is not None for side in pair)
    first_losses = {
        side.name: FirstLosses.of(each for each in records if each.side == side.name) if own else shared
        for side in pair
    }
    return {
        side.name: Carrier(
            plan,
            run,
            ProcessLauncher(),
            prepared[side.name],
            reference,
            machine=machine,
            gate=gate,
            side=side.name,
            variables=side.variables,
            guest=side.guest,
            ceilings=ceilings,
            first_losses=first_losses[side.name],
        )
        for side in pair
    }


def check_same(run: Run, pair: tuple[Side, Side], prepared: Prepared, rule: Rule) -> None:
    """Refuse to go on with other sides, or by another rule, than the run began with; raises UsageError."""
    if run.rule != chosen(rule):
        raise UsageError(
            "The unfinished run was begun with another --threshold or --tolerance. Give the same options, or start a "
            "new run without --resume."
        )
    named = {side.name: words(side, prepared[side.name].values()) for side in pair}
    for name, then in run.sides.items():
        if named.get(name) != then:
            raise UsageError(
                f"The unfinished run's {name} was {then}; here it is {named.get(name)}. Give the same options, or "
                "start a new run without --resume."
            )


def report_of(store: Store, run: Run, rule: Rule | None = None) -> Comparison:
    """Return what the records of a run with two sides say so far, by its own rule unless another is given.

    Raises UsageError where it has none yet.
    """
    records = store.records(run=run.id)
    host: Host = read_host(run.machine, store.machine(run.machine))
    if not any(record.side for record in records):
        raise UsageError(f"Run {run.id} has no pair of launches yet. Go on with it (--resume), or compare another.")
    return compare_sides_of_run(run, records, host, rule)
