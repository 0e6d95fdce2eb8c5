"""`dlbench run`: measures a suite on this machine."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dlbench.adapters.protocol import Status
from dlbench.hardware_probe import Machine, probe
from dlbench.reports.catalogue import suggested
from dlbench.reports.storage import delivery
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

from ..display.progress import clock, precision_lines
from ..display.screen import counted, program, say, show
from ..environments import folders
from ..errors import NOTHING_MEASURED
from ..fleet.node import fleet_node
from ..planning.axes import SuiteOverrides
from ..planning.plan import Plan, check_count, memory_line
from ..run import preparation, resume
from ..run.runner import RunProfile, run_plan
from ..run.schedules import Schedule
from . import options
from .options import OptionGroup, grouped
from .plan import kind_of_protocol, planned, size_of, training_lines
from .report import matrix_so_far


@dataclass(frozen=True)
class HowToRun(OptionGroup):
    """What `run` alone leaves out, and shows."""

    no_ceilings: Annotated[bool, typer.Option("--no-ceilings", help="Do not measure ceilings first.")] = False
    no_quiet_gate: Annotated[
        bool, typer.Option("--no-quiet-gate", help="Do not wait for a quiet machine or repeat disturbed launches.")
    ] = False
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", metavar="FILE", help="Train on this text instead of the generated one (suite char)."),
    ] = None


@grouped
def run_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, `claims`, or a file ending in .toml.")],
    axes: options.AxisOptions,
    launches: options.LaunchOptions,
    builds: options.RowOptions,
    session: options.SessionOptions,
    how: HowToRun,
    node_name: Annotated[
        str | None,
        typer.Option(
            "--node",
            metavar="FLEET/NODE",
            help="Run as this node's job of a fleet: records name the node, and the same command resumes its run.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the matrix as JSON when the run ends.")] = False,
) -> None:
    """Measure a suite on this machine and show its matrix.

    Builds the environments it lacks, saying first what it downloads. Every finished launch is stored at once: Ctrl-C
    loses nothing, and --resume continues. The suite `claims` is what the papers' claims still need from this machine
    (`dlbench report claims`), most claims a minute first.

    Examples:

    - `dlbench run quick`
    - `dlbench run table4 --frameworks torch,mxnet --networks fcn5 --threads 1,2,4-8 --budget 10m`
    - `dlbench run quick --frameworks torch --devices cpu,cuda:0 --batch-sizes 64,256`
    - `dlbench run quick --frameworks torch,jax --threads 1 --world-sizes 1,2`
    - `dlbench run quick --python torch-nightly:torch=/opt/nightly/bin/python`
    - `dlbench run quick --adapter my_framework=path/to/its/adapter`
    - `dlbench run char --corpus my_text.txt`
    - `dlbench run threads --step train_step.py --python ~/venv/bin/python`
    - `dlbench run claims --budget 2h`
    """
    chosen = options.choices(axes, launches, builds)
    machine = probe()
    plan = planned(name, chosen, machine, session.seed, session.store_file)
    check_count(plan, session.yes)
    preparation.check_interpreters(chosen.builds)
    text = preparation.text_of(plan, how.corpus)
    folders.make_folder(folders.home())  # where it cannot be, nothing is built or measured
    node, unfinished = fleet_node(node_name, machine, say), None
    earlier = node.newest_run(session.store_file, plan.suite) if node is not None else None
    if earlier is not None and earlier.finished is not None:
        with delivery.opened(session.store_file, say, create=False):
            say(f"The job of this node has finished already: run {earlier.id}.")
        return
    if resumes := session.resume or earlier is not None:
        of_fleet = earlier.id if earlier is not None else None
        plan, unfinished, records = resumed(plan, session, machine, chosen, of_fleet=of_fleet)
        resume.check_same_text(text, records)
    profile = RunProfile(
        ceilings=not how.no_ceilings,
        quiet_gate=not how.no_quiet_gate,
        text=text,
        lines=lambda: (size_of(plan), kind_of_protocol(plan), *training_lines(plan, text), memory_line(plan, machine)),
        unfinished=unfinished,
    )
    if node is not None:
        profile = replace(profile, node=node.now, resume_command=node.resume_command(plan.suite))
    # Resuming needs a store that is there: it must not leave an empty one behind.
    with delivery.opened(session.store_file, say, create=not resumes, unfinished=unfinished) as store:
        run, schedule = run_plan(
            plan,
            machine,
            store,
            profile,
            budget_seconds=session.seconds,
            build_missing=not session.no_build,
            matrix=partial(matrix_so_far, store),
        )
        for line in precision_lines(plan, schedule):
            say(line)
        _show(store, run, schedule, as_json, profile.resume_command)


def resumed(
    plan: Plan,
    session: options.SessionOptions,
    machine: Machine,
    chosen: SuiteOverrides,
    purpose: str = "suite",
    of_fleet: str | None = None,
) -> tuple[Plan, Run, list[Record]]:
    """Return the plan of the unfinished run that --resume continues, the run and its records.

    Raises UsageError (see `resume`) and StoreError.
    """
    with Store.open(delivery.local_or(session.store_file), create=False) as store:
        plan, unfinished = resume.resume(plan, store, machine, chosen, purpose, of_fleet)
        records = list(store.records(run=unfinished.id))
        resume.check_same_builds(plan, records)
    return plan, unfinished, records


def _show(store: Store, run: Run, schedule: Schedule, as_json: bool, command: str) -> None:
    print(matrix_so_far(store, run.id, as_json))
    if left := schedule.launches_left():
        launches = counted(left, "launch", "launches")
        spent = f"The budget is spent with {launches} left, about {clock(schedule.seconds_left())} of measuring."
        say(f"{spent} Resume: {command}")
    records = store.records(run=run.id)
    if not as_json:
        for line in next_lines(store.name, records):
            show(line, whole=True)
    if not any(record.outcome.status is Status.OK for record in records):
        say("dlbench: no cell gave a valid number; the reasons are below the matrix.")
        raise typer.Exit(NOTHING_MEASURED)


def next_lines(store: str, records: Sequence[Record]) -> list[str]:
    """Return what may be typed next: the reports that have something to show of these records."""
    shown = {f"report {each.name}": each.suggestion for each in suggested(records)}
    shown["report matrix --json"] = "everything, for a script (also csv, markdown, latex)"
    called = f"{shlex.quote(program())} ... --store {shlex.quote(store)}"
    return [f"Next ({called}):", *(f"  {words:<22}  {what}" for words, what in shown.items())]
