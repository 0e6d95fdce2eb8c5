"""`dlbench explain`: the operators of one cell's step, by the time they take."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import typer

from dlbench.adapters.protocol import ASYNC, Cell, Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.disturbance import disturbed
from dlbench.reports.errors import ReportError
from dlbench.reports.explained import REPORT, explain
from dlbench.reports.formats.export import to_stdout
from dlbench.reports.naming import name_of
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.hosts import host_of
from dlbench.reports.storage.networks import family_of_record
from dlbench.reports.storage.record import Record

from ..display.screen import StatusLine, err, say
from ..environments import environment, folders
from ..errors import NOTHING_MEASURED, FrameworkEnvironmentError, UsageError
from ..planning import networks
from ..planning.axes import SuiteOverrides
from ..planning.framework import find, offered
from ..planning.plan import Plan, PlannedLaunch, expand
from ..planning.suite import ProtocolSection, Suite, load
from ..run import launch_files, preparation
from ..run.launch import LaunchRunner
from ..run.launcher import Launched, LaunchRequest, Tick, launch_process
from ..run.outcomes import read_phase
from ..run.preparation import Reference
from ..run.quiet import measuring
from ..run.runner import left_behind_of
from . import options
from .options import Given, option, takes

_FORM = "Write ROW/NETWORK, for example torch/resnet50 or torch:compile/fcn5"
_PROTOCOL = ProtocolSection(warmup_steps=3, steps=10, minimum_steps=3, seconds=5.0, cell_seconds=900.0)
_MOST_STEPS = 1000  # a profiler keeps every call of every operator until its end


_HOW: options.Options = {
    "suite_name": options.suite_of_network(""),
    "profiled": option("--steps", "Steps to profile.", int, 5, min=1, max=_MOST_STEPS),
    "top": option("--top", "Operators to show; --json has all.", int, ReportOptions.top, min=1),
    "no_build": options.NO_BUILD,
    "as_json": options.JSON,
}


@takes(
    {"cell": options.argument("CELL", "Row and network: `torch/resnet50`, `torch:compile/fcn5`.")},
    *(options.AXES_OF_A_CELL, options.BUILDS, _HOW),
)
def explain_command(given: Given) -> None:
    """Show where one cell's step spends its time: its operators, from the framework's own profiler.

    Makes one launch: some steps without the profiler, then some with it. Stores nothing.

    Examples:

    - `dlbench explain torch/resnet50`
    - `dlbench explain torch:compile/fcn5 --threads 2 --batch-sizes 128 --top 30`
    - `dlbench explain mxnet/lstm32 --devices cuda:0 --json`
    - `dlbench explain torch/small --suite mine.toml`
    - `dlbench explain train_step --step train_step.py --python ~/venv/bin/python`
    """
    chosen = options.choices(given)
    machine = probe()
    plan = _plan(given, chosen, machine)
    preparation.check_interpreters(chosen.builds)
    folders.make_folder(folders.home())
    record = _launch(plan, machine, given.profiled, build_missing=not given.no_build)
    outcome = record.outcome
    if not outcome.samples_ns:
        say(f"dlbench: no step was timed, {outcome.status.value.replace('_', ' ')}: {outcome.reason}")
        raise typer.Exit(NOTHING_MEASURED)
    if outcome.profile is None:
        title = plan.row_of(record.cell).build.framework.title
        if failed := outcome.software.get("profile_failed"):
            raise ReportError(f"{title} ran, but its profiler failed: {failed}")
        others = [name for name, each in offered().items() if (each.directory / "profile.py").exists()]
        raise ReportError(
            f"{title}'s adapter has no profiler for this cell. Explain a row of another framework "
            f"({', '.join(others)}), or give the adapter a method `profile` (adapters/base.py)."
        )
    found = explain(record.cell, outcome, family_of_record(record))
    print(to_stdout(REPORT, found, ReportOptions(top=given.top), "json" if given.as_json else "terminal"), end="")
    if outcome.status is Status.PARITY_FAILED:
        say(f"This cell does not compute what the reference does: {outcome.reason}")
    if outcome.status is Status.IMPLAUSIBLE:
        say(f"These times are implausible: {outcome.reason}")
    if disturbed(record, host_of(machine)):
        say("Other programs used the CPUs, so these times are too long. Run it again on a quiet machine.")


def _plan(given: Given, chosen: SuiteOverrides, machine: Machine) -> Plan:
    """Return the plan of one cell, with the networks, mini-batches and settings of the suite named.

    Raises UsageError where the words mean none, or several.
    """
    row, _, network = (part.strip() for part in given.cell.partition("/"))
    if chosen.own is not None:
        network = network or row
    if not (row and network):
        raise UsageError(f"{given.cell[:60]!r} is not a cell. {_FORM}.")
    one = partial(Suite, name="explain", summary="one cell", frameworks=(row,), threads="cores", protocol=_PROTOCOL)
    if chosen.own is not None:
        if given.suite_name:
            raise UsageError("--suite and --step exclude each other: both define the network. Leave one out.")
        if row not in chosen.own.names or network != find(row).work:
            raise UsageError(f"{given.cell[:60]!r} is not a step of --step. Write {chosen.own.names[0]}.")
        suite = chosen.own.instead_of(one())
    else:
        of = load(given.suite_name) if given.suite_name else None
        meant = networks.chosen([network], (), of.known if of else networks.shipped())
        if len(meant) > 1:
            raise UsageError(f"One cell can be explained at a time; {network} fits {len(meant)} networks. {_FORM}.")
        kept = ("network", "grid", "batch_sizes", "cpu_batch_sizes", "settings") if of else ()
        suite = one(networks=meant, **{key: getattr(of, key) for key in kept})
    place = preparation.capacity(machine)
    plan = expand(suite, chosen.but(frameworks=row), place, preparation.new_seed())
    if len(plan.cells) > 1:
        first, second = (name_of(cell) for cell in plan.cells[:2])
        raise UsageError(
            f"Only one cell can be explained at a time, and these are {len(plan.cells)}: {first}; {second}"
            f"{'; ...' if len(plan.cells) > 2 else ''}. Give one value to each option, and one row. {_FORM}."
        )
    return plan


def _launch(plan: Plan, machine: Machine, steps: int, build_missing: bool) -> Record:
    """Run the launch; raises FrameworkEnvironmentError if there is no interpreter for it."""
    planned = PlannedLaunch(plan.cells[0], 0)
    sources = environment.prepare_sources(plan.builds, say, build_missing)
    source = sources[planned.cell.framework]
    if source.interpreter is None:
        raise FrameworkEnvironmentError(source.reason)

    def profiled(request: LaunchRequest, tick: Tick) -> Launched:
        return launch_process(replace(request, launch=request.launch._replace(profiled_steps=steps)), tick)

    def reference(cell: Cell) -> Reference | None:
        """Return the cell's reference if there is one: a profile is no reason to compute it."""
        if cell.sync == ASYNC or not plan.network_of(cell).family.specified:
            return None
        wanted = preparation.reference_key(plan.network_of(cell), cell)
        if not cell.local_steps:
            wanted = wanted._replace(parts=1)
        path = preparation.find(wanted)
        return None if path is None else Reference(path)

    if left := left_behind_of(plan):
        say(left)
    run = preparation.new_run(plan, machine, "explain")
    files = launch_files.prepare_feeds(plan, machine, say)
    launch_runner = LaunchRunner(plan, run, profiled, sources, reference, machine=machine, feeds=files)
    with measuring(say, wait=True, computes=plan.computes), StatusLine(err) as status:
        say(f"launching {name_of(planned.cell)}")

        def tick(directory: Path) -> None:
            status.draw(f"  {read_phase(directory)[0] or 'starting'}")

        return launch_runner.attempt(planned, plan.protocol, tick=tick)
