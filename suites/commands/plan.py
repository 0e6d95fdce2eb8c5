"""`dlbench plan`: what a suite would measure."""

from typing import Annotated

import typer

from dlbench.adapters import axes as table_of_axes
from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine, probe
from dlbench.reports import naming
from dlbench.reports.evidence.statistics import ENOUGH_LAUNCHES

from ..display.progress import clock, percent
from ..display.screen import counted, out, print_json, table
from ..measuring import preparation
from ..planning import suite
from ..planning.choices import Choices
from ..planning.expansion import expand
from ..planning.plan import Plan
from . import listing, options
from .option_groups import grouped


@grouped
def plan_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")],
    axes: options.AxisOptions,
    launches: options.LaunchOptions,
    builds: options.BuildOptions,
    seed: options.Seed = None,
    as_json: options.Json = False,
) -> None:
    """Show what a run of this suite would measure, without measuring.

    Examples:

    - `dlbench plan table4 --networks fcn5 --threads 1,2`
    - `dlbench plan table4 --devices cuda:all --precisions float32,tf32`
    """
    plan = plan_of(name, options.choices(axes, launches, builds), probe(), seed)
    if as_json:
        print_json(listing.plan(plan))
        return
    groups: dict[tuple[str, ...], list[str]] = {}
    for cell in plan.cells:
        groups.setdefault(_line_of(cell), []).append(str(cell.threads))
    table(
        f"{plan.suite}: {size_of(plan)}",
        ["network", "mini-batch", "framework", "mode", "device", "threads"],
        [[*key, ", ".join(counts)] for key, counts in groups.items()],
    )
    for line in (_left_out(plan), kind_of_protocol(plan)):
        if line:
            out.print(line, markup=False, soft_wrap=True)
    at_most = len(plan.cells) * plan.most * plan.cell_seconds
    out.print(f"At most {clock(at_most)}; usually a small part of it.", markup=False)


def plan_of(name: str, chosen: Choices, machine: Machine, seed: int | None) -> Plan:
    """Return the plan of a suite on this machine; raises UsageError."""
    new = preparation.new_seed() if seed is None else seed
    return expand(suite.load(name), chosen, preparation.capacity(machine), new)


def size_of(plan: Plan) -> str:
    """Return how many cells and launches a plan has."""
    launches = (
        f"{plan.launches}-{plan.most} launches" if plan.interval else counted(plan.launches, "launch", "launches")
    )
    return f"{counted(len(plan.cells), 'cell')}, {launches} of each"


def kind_of_protocol(plan: Plan) -> str:
    """Return in a sentence whether the number of launches is fixed, and what intervals then mean."""
    if plan.interval:
        return f"until precise: a cell gets launches until its 95 % interval is no wider than ±{percent(plan.interval)}"
    if plan.launches >= ENOUGH_LAUNCHES:
        return f"{counted(plan.launches, 'launch', 'launches')} per cell: ± covers what launches differ by."
    several = "One launch" if plan.launches == 1 else f"{plan.launches} launches"
    return f"{several} per cell: ± shows variation within a launch only; use --interval 2% for more."


def _line_of(cell: Cell) -> tuple[str, ...]:
    """Return the columns of a cell but for its threads; what is not as usual stands beside what it belongs to."""
    extra = {
        role: " ".join(each.short.format(getattr(cell, each.name)) for each in table_of_axes.unusual(cell, role))
        for role in (table_of_axes.GROUP, table_of_axes.ROW)
    }
    network = f"{cell.network} {extra[table_of_axes.GROUP]}".strip()
    mode = f"{cell.mode} {extra[table_of_axes.ROW]}".strip()
    return network, str(cell.batch_size), cell.framework, mode, naming.short_extra(cell.device, cell)


def _left_out(plan: Plan) -> str:
    """Return in a sentence which cells this machine cannot have; empty where it can have all."""
    if not plan.left_out:
        return ""
    counts = ", ".join(map(str, sorted({cell.all_threads for cell in plan.left_out})))
    left = counted(len(plan.left_out), "cell")
    return f"left out: {left} that would bind {counts} threads to as many CPUs; this machine has fewer"
