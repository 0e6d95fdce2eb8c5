"""Profiled launches of both sides of a cell, which show the operators that differ.

`reports.results.operators` compares them. A launch times some steps as usual, then runs some more
under the framework's own profiler. The two sides of a cell take turns where they can, and each is
profiled while the other does nothing. There are two launches of each side, and up to four while no
operator is named. Their records are kept in the stage `PROFILED`, and count for nothing else.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from dlbench.adapters.protocol import ASYNC, Cell
from dlbench.hardware_probe import Machine
from dlbench.reports.results.naming import counted, name_of
from dlbench.reports.results.operators import FEWEST, MOST, StepDifference, step_difference
from dlbench.reports.results.record import BASELINE, CANDIDATE, Record, Run
from dlbench.reports.results.storage.store import Store

from ..display.screen import StatusLine, err, say
from ..planning.plan import Plan, PlannedLaunch
from . import launch_files, preparation
from .answers import read_phase
from .budget import Budget
from .groups import grouping_for_pairs
from .launch import LaunchRunner, run_attempts
from .launcher import launch_process
from .preparation import Reference
from .quiet import measuring
from .sides import Side, Sources

MOST_CELLS = 3
"""Slower cells of a comparison that are profiled: it takes about as long as three pairs of each."""
SECONDS = 1.0
"""Approximate seconds of profiled steps in a launch."""
FEWEST_STEPS = 5


def profile_cells(
    plan: Plan,
    run: Run,
    sides: Sequence[Side],
    sources: Sources,
    machine: Machine,
    cells: Sequence[Cell],
    store: Store,
    budget: Budget,
    order: str | None,
) -> None:
    """Profile both sides of these cells within the budget, and keep the records in the store.

    ``order`` is that of the comparison's pairs, if one was asked for.
    """
    in_turns = grouping_for_pairs(plan, machine, order, sides).cells
    longest_launch = dict.fromkeys(cells, 0.0)
    for record in store.records(run=run.id):
        if record.cell in longest_launch:
            longest_launch[record.cell] = max(longest_launch[record.cell], record.wall_seconds)
    say(
        f"profiling {counted(len(cells), 'slower cell')} on both sides, to name operators "
        "(--no-profile leaves it out)"
    )
    by_side = runners(plan, run, sides, sources, machine)
    with measuring(say, wait=True, computes=plan.computes):
        skipped = 0
        for cell in cells:
            launches = FEWEST if cell in in_turns else 2 * FEWEST
            if budget.has(launches * longest_launch[cell]):
                profile_sides(by_side, cell, store.append, cell in in_turns, budget=budget)
            else:
                skipped += 1
    if skipped:
        say(
            f"The budget leaves no time to profile {counted(skipped, 'slower cell')}, so no "
            "operator is named for them."
        )


def runners(
    plan: Plan, run: Run, sides: Sequence[Side], sources: Sources, machine: Machine
) -> dict[str, LaunchRunner]:
    """Return the runner of the profiled launches of each side, by its name."""
    feeds = launch_files.prepare_feeds(plan, machine, say)
    by_side = {}
    for side in sides:
        by_side[side.name] = LaunchRunner(
            plan,
            run,
            launch_process,
            sources[side.name],
            reference_at_hand(plan),
            feeds=feeds,
            machine=machine,
            variables=side.variables,
            guest=side.guest,
        )
    return by_side


def reference_at_hand(plan: Plan) -> Callable[[Cell], Reference | None]:
    """Return a look-up of the references that exist: a profile is no reason to compute one."""

    def reference(cell: Cell) -> Reference | None:
        if cell.sync == ASYNC or not plan.network_of(cell).family.specified:
            return None
        wanted = preparation.reference_key(plan.network_of(cell), cell)
        if not cell.local_steps:
            wanted = wanted._replace(parts=1)
        path = preparation.find(wanted)
        if path is None:
            return None
        return Reference(path)

    return reference


def profile_sides(
    by_side: Mapping[str, LaunchRunner],
    cell: Cell,
    keep: Callable[[Record], None],
    in_turns: bool,
    steps: int | None = None,
    budget: Budget | None = None,
) -> StepDifference:
    """Profile both sides of a cell, this many steps a launch or those of `SECONDS`.

    ``keep`` takes each record. The sides are alive at once if they take turns (``in_turns``).
    Raises the errors of launches.
    """
    records: list[Record] = []
    difference = step_difference(cell, records)
    pair_seconds = 0.0
    for block in range(MOST):
        has_time = budget is None or budget.has(pair_seconds)
        if block >= FEWEST and (difference.named or not has_time):
            break
        began = time.monotonic()
        for record in _pair(by_side, cell, block, in_turns, steps):
            keep(record)
            records.append(record)
        pair_seconds = time.monotonic() - began
        difference = step_difference(cell, records)
        if difference.problem:
            break
    return difference


def _pair(
    by_side: Mapping[str, LaunchRunner], cell: Cell, block: int, in_turns: bool, steps: int | None
) -> Iterator[Record]:
    """Launch both sides of a cell once, in an order drawn by the seed."""
    plan = by_side[CANDIDATE].plan
    sides = [BASELINE, CANDIDATE]
    random.Random(f"profiles:{plan.seed}:{block}:{cell!r}").shuffle(sides)
    seconds = 0.0
    if not steps:
        steps = FEWEST_STEPS
        seconds = SECONDS
    launches = []
    for side in sides:
        launches.append(PlannedLaunch(cell, block, side, in_turns, steps, seconds))
    groups: list[tuple[PlannedLaunch, ...]] = [(launch,) for launch in launches]
    if in_turns:
        groups = [tuple(launches)]
    with StatusLine(err) as status:

        def tick(directory: Path) -> None:
            phase = read_phase(directory)[0] or "starting"
            status.draw(
                f"  profiling {name_of(cell)}, {block + 1} of {FEWEST} to {MOST} of each side: "
                f"{phase}"
            )

        for group in groups:
            for records in run_attempts(by_side, group, plan.protocol_of, tick=tick):
                yield from records
