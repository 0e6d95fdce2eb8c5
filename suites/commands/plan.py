"""`dlbench plan`: what a suite would measure."""

from collections.abc import Mapping
from pathlib import Path

import typer

from dlbench.adapters import axes as table_of_axes
from dlbench.adapters.protocol import Cell, Status, to_dict
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.catalogue import report
from dlbench.reports.report import Source
from dlbench.reports.results import naming
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted
from dlbench.reports.results.results import Results
from dlbench.reports.results.statistics import ENOUGH_LAUNCHES, FEWEST_LAUNCHES, FREEDOM_FOR_TWO
from dlbench.reports.results.storage.store import Store

from ..display.progress import in_words, percent
from ..display.screen import print_json, say, show, table
from ..environments import environment
from ..planning import claims, suite
from ..planning.axes import SuiteOverrides
from ..planning.framework import counterparts_of_2016, release_dates
from ..planning.plan import LaunchDurations, Plan, expand, memory_line
from ..run import preparation
from ..run.privacy import recorded
from ..run.runner import left_behind_of
from ..run.texts import Text
from . import options
from .options import Given, takes


@takes(
    {"name": options.SUITE_OR_CLAIMS},
    *(options.AXES, options.LAUNCHES, options.BUILDS),
    {"seed": options.SEED, "store_file": options.STORE, "as_json": options.JSON},
)
def plan_command(given: Given) -> None:
    """Show what a run of this suite would measure and about how long it takes, without measuring.

    The duration is estimated from this machine's launches in the store.

    Examples:

    - `dlbench plan table4 --networks fcn5 --threads 1,2`
    - `dlbench plan table4 --devices cuda:all --precisions float32,tf32`
    - `dlbench plan claims`
    """
    machine, chosen = probe(), options.choices(given)
    plan = planned(given.name, chosen, machine, given.seed, given.store_file)
    preparation.check_interpreters(chosen.builds)
    if left := left_behind_of(plan):
        say(left)
    for build in plan.builds:
        if build.framework.unavailable:
            say(
                f"{environment.locate(build.framework).reason} A run leaves its cells without a "
                "number."
            )
    if given.as_json:
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
                "order": [
                    {"cell": plan.cells.index(launch.cell), "block": launch.block}
                    for launch in plan.order()
                ],
            }
        )
        return
    table(
        f"{plan.suite}: {size_of(plan)}",
        ["network", "mini-batch", "framework", "mode", "device", "threads"],
        [
            [*line, ", ".join(table_of_axes.word("threads", cell.threads) for cell in cells)]
            for line, cells in grouped(plan.cells, _line_of).items()
        ],
    )
    left_out = ""
    if plan.left_out:
        counts = ", ".join(map(str, sorted({cell.all_threads for cell in plan.left_out})))
        left = counted(len(plan.left_out), "cell")
        left_out = (
            f"left out: {left} that would bind {counts} threads to as many CPUs; this machine has "
            "fewer"
        )
    expected = _how_long(plan, _known_seconds(given.store_file, machine))
    for line in (
        left_out,
        memory_line(plan, machine),
        kind_of_protocol(plan),
        *training_lines(plan),
        expected,
    ):
        if line:
            show(line)


def _known_seconds(store_file: str, machine: Machine) -> dict[Cell, float]:
    """Return the duration of this machine's launches by cell, from the store if it can be read."""
    if not _is_there(store_file):
        return {}
    try:
        with Store.open(store_file, create=False) as store:
            return store.launch_seconds(machine.fingerprint)
    except StoreError as error:
        say(f"dlbench: {error}")
        return {}


def _is_there(store_file: str) -> bool:
    return "://" in store_file or Path(store_file).exists()


def _how_long(plan: Plan, known: Mapping[Cell, float]) -> str:
    """Return in a sentence how long a run takes, by launches of the same cells, else of the same
    networks.
    """
    at_most = (
        f"at most {in_words(len(plan.cells) * plan.most * plan.cell_seconds)} "
        f"({in_words(plan.cell_seconds)} each)"
    )
    durations = LaunchDurations(plan, known)
    expected = [durations.by_launches(cell) or 0.0 for cell in plan.cells]
    if not all(expected):
        which = "of some of these networks" if any(expected) else "of these networks"
        return f"No estimate: the store has no launches {which} on this machine; {at_most}."
    same = sum(cell in known for cell in plan.cells)
    if same == len(expected):
        basis = "of these cells"
    else:
        basis = (
            f"of {same} of these cells and of others"
            if same
            else "of other cells of the same networks"
        )
    longest = f" to {in_words(sum(expected) * plan.most)}" if plan.most > plan.launches else ""
    return (
        f"About {in_words(sum(expected) * plan.launches)}{longest}, by earlier launches {basis}; "
        f"{at_most}."
    )


def planned(
    name: str, chosen: SuiteOverrides, machine: Machine, seed: int | None, store_file: str
) -> Plan:
    """Return the plan of a suite, or of the cells for claims that a store lacks; raises UsageError
    and StoreError.
    """
    if name != claims.NAME:
        return plan_of(name, chosen, machine, seed)
    results = Results()
    if _is_there(store_file):
        results = Results.read([store_file], machine=machine.fingerprint)
    source = Source(lambda: results, releases=release_dates, counterparts=counterparts_of_2016)
    measured = {each.cell for each in results.records if each.outcome.status is not Status.SKIPPED}
    tried = report("claims").analyse(source).tried
    lacking = [each.claim for each in tried if each.here.missing or not each.here.of]
    place, new = preparation.capacity(machine), preparation.new_seed() if seed is None else seed
    known = _known_seconds(store_file, machine)
    found = claims.plan_of_claims(lacking, chosen, place, new, measured, known, say)
    if found is None:
        say(
            "Nothing is left to measure here for any claim: `dlbench report claims` has the "
            "verdicts."
        )
        raise typer.Exit
    return found


def plan_of(name: str, chosen: SuiteOverrides, machine: Machine, seed: int | None) -> Plan:
    """Return the plan of a suite on this machine; raises UsageError."""
    new = preparation.new_seed() if seed is None else seed
    found, place = suite.load(name), preparation.capacity(machine)
    if chosen.own is None:
        return expand(found, chosen, place, new)
    return chosen.own.tolerated(expand(chosen.own.instead_of(found), chosen, place, new))


def size_of(plan: Plan) -> str:
    """Return how many cells and launches a plan has."""
    fixed = counted(plan.launches, "launch", "launches")
    launches = f"{plan.launches}-{plan.most} launches" if plan.most > plan.launches else fixed
    return f"{counted(len(plan.cells), 'cell')}, {launches} of each"


def kind_of_protocol(plan: Plan) -> str:
    """Return in a sentence whether the number of launches is fixed, and what intervals then
    mean.
    """
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
    if plan.launches == FEWEST_LAUNCHES and len(plan.cells) >= FREEDOM_FOR_TWO:
        return (
            f"{plan.launches} launches per cell: all cells together show how launches differ, and "
            "± covers that."
        )
    several = "One launch" if plan.launches == 1 else f"{plan.launches} launches"
    return (
        f"{several} per cell: ± shows variation within a launch only; use --interval 2% for more."
    )


def training_lines(plan: Plan, text: Text | None = None) -> list[str]:
    """Return sentences on the training after the timed steps, and on its text."""
    steps, more = plan.protocol.curve_steps, plan.protocol.loss_steps
    further = [
        f"After the timed steps, each launch runs {more} more steps and keeps their losses."
    ] * (more > 0)
    if not steps:
        return further
    first, *others = [f"{row.build.name} {row.mode}" for row in plan.rows]
    check = f"; {' and '.join(others)} {plan.curve_check_steps} as a cross-check" if others else ""
    lines = [
        *further,
        f"After the timed steps, each launch of {first} trains {steps} steps on a text{check}.",
    ]
    if text is not None:
        known = "" if text.floor is None else f"; its entropy is {text.floor:.3f}"
        lines.append(f"The text: {text.name}, {len(text.symbols):,} symbols, {text.digest}{known}.")
        lines += [f"The text: {text.note}."] if text.note else []
    return lines


def _line_of(cell: Cell) -> tuple[str, ...]:
    """Return a cell's columns except its threads; unusual axis values are added to network, mode
    and device.
    """
    extra = {
        role: " ".join(
            each.short.format(getattr(cell, each.name))
            for each in table_of_axes.unusual(cell, role)
        )
        for role in (table_of_axes.GROUP, table_of_axes.ROW)
    }
    network = f"{cell.network} {extra[table_of_axes.GROUP]}".strip()
    mode = f"{cell.mode} {extra[table_of_axes.ROW]}".strip()
    return (
        network,
        table_of_axes.word("batch_size", cell.batch_size),
        cell.framework,
        mode,
        naming.short_extra(cell.device, cell),
    )
