"""`dlbench plan`: what a suite would measure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlbench.adapters import axes as table_of_axes
from dlbench.adapters.protocol import Cell, Status, to_dict
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.results import naming
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted

from ..display.numbers import in_words, percent
from ..display.screen import print_json, say, show, table
from ..environments import environment
from ..environments.announcements import announcement
from ..environments.lacking_pythons import command_for, lack_python, version_for
from ..planning import claims, suite, variables
from ..planning.axes import SuiteOverrides
from ..planning.framework import counterparts_of_2016, find, release_dates
from ..planning.plan import LaunchDurations, Plan, expand, memory_line
from ..run import first_part, preparation
from ..run.privacy import recorded
from . import options
from .options import SuiteOptions, takes

if TYPE_CHECKING:
    from ..run.texts import Text

# Functions import the store and the reports themselves: most plans need neither, and importing
# SQLAlchemy and SciPy takes longer than all else that this command does.


@dataclass(frozen=True, kw_only=True)
class PlanOptions(SuiteOptions):
    """The options of `dlbench plan`."""

    name: Annotated[str, options.SUITE_OR_CLAIMS]
    seed: Annotated[int | None, options.SEED] = None
    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE
    as_json: Annotated[bool, options.JSON] = False


@takes(PlanOptions)
def plan_command(given: PlanOptions) -> None:
    """Show what a run of this suite would measure and about how long it takes, without measuring.

    The duration is estimated from this machine's launches in the store.

    Examples:

    - `dlbench plan quick`
    - `dlbench plan table4 --networks fcn5 --threads 1,2`
    - `dlbench plan claims`
    """
    machine = probe()
    chosen = options.choices(given)
    plan = planned(given.name, chosen, machine, given.seed, given.store_file)
    preparation.check_interpreters(chosen.builds)
    frameworks = [build.framework for build in plan.builds]
    left = variables.left_behind(plan.variables, frameworks, plan.thread_variables())
    if left:
        say(left)
    for framework in frameworks:
        if framework.unavailable:
            reason = environment.locate(framework).reason
            say(f"{reason} A run leaves its cells without a number.")
    if given.as_json:
        _print_as_json(plan)
        return
    _show_cells(plan)
    lines = [
        _left_out_line(plan),
        memory_line(plan, machine),
        kind_of_protocol(plan),
        *training_lines(plan),
        _duration_line(plan, _known_seconds(given.store_file, machine)),
        *announcement(first_part.to_build(plan)),
    ]
    for line in lines:
        if line:
            show(line)


def _print_as_json(plan: Plan) -> None:
    order = [
        {"cell": plan.cells.index(launch.cell), "launch": launch.index} for launch in plan.order()
    ]
    print_json(
        {
            "suite": plan.suite,
            "seed": plan.seed,
            "launches_per_cell": plan.launches,
            "launches_most": plan.most,
            "interval": plan.interval,
            "cell_seconds": plan.cell_seconds,
            "protocol": to_dict(plan.protocol),
            "variables": recorded(plan.variables),
            "cells": [to_dict(cell) for cell in plan.cells],
            "left_out": [to_dict(cell) for cell in plan.left_out],
            "order": order,
        }
    )


def _show_cells(plan: Plan) -> None:
    """Print a table with a row for all cells that differ only in threads."""
    rows = []
    for columns, cells in grouped(plan.cells, _columns_but_threads).items():
        counts = [table_of_axes.word("threads", cell.threads) for cell in cells]
        rows.append([*columns, ", ".join(counts)])
    table(
        f"{plan.suite}: {size_of(plan)}",
        ["network", "mini-batch", "framework", "mode", "device", "threads"],
        rows,
    )


def _left_out_line(plan: Plan) -> str:
    """Return a sentence on cells that bind more threads than there are CPUs; empty without any."""
    if not plan.left_out:
        return ""
    counts = sorted({cell.all_threads for cell in plan.left_out})
    cells = counted(len(plan.left_out), "cell")
    return (
        f"left out: {cells} that would bind {', '.join(map(str, counts))} threads to as many CPUs; "
        "this machine has fewer"
    )


def _known_seconds(store_file: str, machine: Machine) -> dict[Cell, float]:
    """Return the duration of this machine's launches by cell, from the store if it can be read."""
    if not _may_exist(store_file):
        return {}
    from dlbench.reports.results.errors import StoreError
    from dlbench.reports.results.storage.store import Store

    try:
        with Store.open(store_file, create=False) as store:
            return store.launch_seconds(machine.fingerprint)
    except StoreError as error:
        say(f"dlbench: {error}")
        return {}


def _may_exist(store_file: str) -> bool:
    """Tell whether a store is a file that exists, or the URL of a server."""
    return "://" in store_file or Path(store_file).exists()


def _duration_line(plan: Plan, known: Mapping[Cell, float]) -> str:
    """Return in a sentence how long a run takes.

    It is estimated from ``known`` launches of the same cells, else of the same networks.
    """
    longest = in_words(len(plan.cells) * plan.most * plan.cell_seconds)
    at_most = f"at most {longest} ({in_words(plan.cell_seconds)} each)"
    durations = LaunchDurations(plan, known)
    expected = [durations.by_launches(cell) or 0.0 for cell in plan.cells]
    if not all(expected):
        which = "of some of these networks" if any(expected) else "of these networks"
        return f"No estimate: the store has no launches {which} on this machine; {at_most}."
    same = sum(cell in known for cell in plan.cells)
    if same == len(expected):
        basis = "of these cells"
    elif same:
        basis = f"of {same} of these cells and of others"
    else:
        basis = "of other cells of the same networks"
    expected_time = in_words(sum(expected) * plan.launches)
    if plan.most > plan.launches:
        expected_time += f" to {in_words(sum(expected) * plan.most)}"
    return f"About {expected_time}, by earlier launches {basis}; {at_most}."


def planned(
    name: str, chosen: SuiteOverrides, machine: Machine, seed: int | None, store_file: str
) -> Plan:
    """Return the plan of a suite, or of the cells for claims that a store lacks.

    Raises UsageError and StoreError.
    """
    if name != claims.NAME:
        return plan_of(name, chosen, machine, seed)
    from dlbench.reports.catalogue import report
    from dlbench.reports.report import ReportSource
    from dlbench.reports.results.results import Results

    results = Results()
    if _may_exist(store_file):
        results = Results.read([store_file], machine=machine.fingerprint)
    source = ReportSource(
        lambda: results, releases=release_dates, counterparts=counterparts_of_2016
    )
    measured = {
        record.cell for record in results.records if record.outcome.status is not Status.SKIPPED
    }
    tried = report("claims").analyse(source).tried
    lacking = [trial.claim for trial in tried if trial.here.missing or not trial.here.of]
    if seed is None:
        seed = preparation.new_seed()
    plan = claims.plan_of_claims(
        lacking,
        chosen,
        preparation.capacity(machine),
        seed,
        measured,
        _known_seconds(store_file, machine),
        say,
    )
    if plan is None:
        say(
            "Nothing is left to measure on this machine for any claim: `dlbench report claims` "
            "has the verdicts."
        )
        raise typer.Exit
    return plan


def plan_of(name: str, chosen: SuiteOverrides, machine: Machine, seed: int | None) -> Plan:
    """Return the plan of a suite on this machine. Raises UsageError."""
    if seed is None:
        seed = preparation.new_seed()
    loaded = suite.load(name)
    place = preparation.capacity(machine)
    if chosen.own is None:
        plan = expand(loaded, chosen, place, seed)
        if chosen["frameworks"] or not loaded.instead:
            return plan
        fitting = _with_frameworks_for(loaded, chosen)
        return plan if fitting is loaded else expand(fitting, chosen, place, seed)
    return chosen.own.tolerated(expand(chosen.own.instead_of(loaded), chosen, place, seed))


def _with_frameworks_for(loaded: suite.Suite, chosen: SuiteOverrides) -> suite.Suite:
    """Return a suite with others ``instead`` of the frameworks whose Python this machine lacks.

    A line names them, and the command that installs their Python.
    """
    given = {build.framework.name for build in chosen.builds}
    by_word = {word: find(word.partition(":")[0]) for word in loaded.frameworks}
    lacking = lack_python(
        framework for framework in by_word.values() if framework.name not in given
    )
    if not lacking:
        return loaded
    kept = [word for word, framework in by_word.items() if framework not in lacking]
    others = [word for word in loaded.instead if not lack_python([find(word.partition(":")[0])])]
    taken = [word for word in others if word not in kept][: len(lacking)]
    version = version_for(lacking)
    names = ", ".join(framework.name for framework in lacking)
    line = f"No Python {version} was found for {names}. To measure them: {command_for(version)}."
    if taken:
        line += f" Measured instead: {', '.join(taken)}."
    say(line)
    if not kept and not taken:
        return loaded
    return loaded.model_copy(update={"frameworks": (*kept, *taken)})


def size_of(plan: Plan) -> str:
    """Return how many cells and launches a plan has."""
    if plan.most > plan.launches:
        launches = f"{plan.launches}-{plan.most} launches"
    else:
        launches = counted(plan.launches, "launch", "launches")
    return f"{counted(len(plan.cells), 'cell')}, {launches} of each"


def kind_of_protocol(plan: Plan) -> str:
    """Return in a sentence how many launches cells get, and what their intervals then cover."""
    from dlbench.reports.results.statistics import (
        ENOUGH_LAUNCHES,
        FEWEST_WITH_SPREAD,
        FREEDOM_FOR_TWO,
    )

    if plan.interval:
        return (
            "a cell gets launches until its 95 % interval is no wider than "
            f"±{percent(plan.interval)}"
        )
    if plan.decides:
        return "columns whose fastest cell is then still open get more launches, until it is known"
    if plan.launches >= ENOUGH_LAUNCHES:
        return (
            f"{counted(plan.launches, 'launch', 'launches')} per cell: ± covers the differences "
            "between launches."
        )
    if plan.launches == FEWEST_WITH_SPREAD and len(plan.cells) >= FREEDOM_FOR_TWO:
        return (
            f"{plan.launches} launches per cell: all cells together show how launches differ, and "
            "± covers that."
        )
    several = "One launch" if plan.launches == 1 else f"{plan.launches} launches"
    return (
        f"{several} per cell: ± shows variation within a launch only; use --interval 2% for more."
    )


def training_lines(plan: Plan, text: "Text | None" = None) -> list[str]:
    """Return sentences on the training after the timed steps, and on its text."""
    steps = plan.protocol.curve_steps
    more = plan.protocol.loss_steps
    lines = []
    if more > 0:
        lines.append(
            f"After the timed steps, each launch runs {more} more steps and keeps their losses."
        )
    if not steps:
        return lines
    first, *others = [f"{row.build.name} {row.mode}" for row in plan.rows]
    check = ""
    if others:
        check = f"; {' and '.join(others)} {plan.curve_check_steps} as a cross-check"
    lines.append(
        f"After the timed steps, each launch of {first} trains {steps} steps on a text{check}."
    )
    if text is not None:
        entropy = "" if text.floor is None else f"; its entropy is {text.floor:.3f}"
        lines.append(
            f"The text: {text.name}, {len(text.symbols):,} symbols, {text.digest}{entropy}."
        )
        if text.note:
            lines.append(f"The text: {text.note}.")
    return lines


def _columns_but_threads(cell: Cell) -> tuple[str, ...]:
    """Return a cell's columns except its threads.

    Unusual values of other axes are added to network, mode and device.
    """
    network = f"{cell.network} {_unusual_values(cell, table_of_axes.WORK)}".strip()
    mode = f"{cell.mode} {_unusual_values(cell, table_of_axes.ROW)}".strip()
    return (
        network,
        table_of_axes.word("batch_size", cell.batch_size),
        cell.framework,
        mode,
        naming.short_extra(cell.device, cell),
    )


def _unusual_values(cell: Cell, role: str) -> str:
    """Return a cell's unusual values of the axes of a role, each in its short form."""
    axes = table_of_axes.unusual(cell, role)
    return " ".join(axis.short.format(getattr(cell, axis.name)) for axis in axes)
