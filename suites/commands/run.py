"""`dlbench run`: measures a suite on this machine."""

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from .options import Given, flag, option, takes
from .plan import kind_of_protocol, planned, size_of, training_lines
from .report import matrix_so_far

CONDITIONS: options.Options = {
    "no_ceilings": flag("--no-ceilings", "Do not measure ceilings first."),
    "no_quiet_gate": options.NO_QUIET_GATE,
    "corpus": option(
        *("--corpus", "Train on this text instead of the generated one (suite char).", Path | None), metavar="FILE"
    ),
}
"""Options of `run` that a fleet hands on, too."""
_NODE = "Run as this node's job of a fleet: records name the node, and the same command resumes its run."


@takes(
    {"name": options.SUITE_OR_CLAIMS},
    *(options.AXES, options.LAUNCHES, options.BUILDS, options.SESSION, CONDITIONS),
    {
        "node_name": option("--node", _NODE, metavar="FLEET/NODE"),
        "as_json": flag("--json", "Print the matrix as JSON when the run ends."),
    },
)
def run_command(given: Given) -> None:
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
    seconds, chosen = options.seconds_of(given.budget), options.choices(given)
    machine = probe()
    plan = planned(given.name, chosen, machine, given.seed, given.store_file)
    check_count(plan, given.yes)
    preparation.check_interpreters(chosen.builds)
    text = preparation.text_of(plan, given.corpus)
    folders.make_folder(folders.home())  # where it cannot be, nothing is built or measured
    node, unfinished = fleet_node(given.node_name, machine, say), None
    earlier = node.newest_run(given.store_file, plan.suite) if node is not None else None
    if earlier is not None and earlier.finished is not None:
        with delivery.opened(given.store_file, say, create=False):
            say(f"The job of this node has finished already: run {earlier.id}.")
        return
    if resumes := given.resume or earlier is not None:
        of_fleet = earlier.id if earlier is not None else None
        plan, unfinished, records = resumed(plan, given.store_file, machine, chosen, of_fleet=of_fleet)
        resume.check_same_text(text, records)
    profile = RunProfile(
        ceilings=not given.no_ceilings,
        quiet_gate=not given.no_quiet_gate,
        text=text,
        lines=lambda: (size_of(plan), kind_of_protocol(plan), *training_lines(plan, text), memory_line(plan, machine)),
        unfinished=unfinished,
    )
    if node is not None:
        profile = replace(profile, node=node.now, resume_command=node.resume_command(plan.suite))
    # Resuming needs a store that is there: it must not leave an empty one behind.
    with delivery.opened(given.store_file, say, create=not resumes, unfinished=unfinished) as store:
        matrix = partial(matrix_so_far, store)
        run, schedule = run_plan(
            plan, machine, store, profile, budget_seconds=seconds, build_missing=not given.no_build, matrix=matrix
        )
        for line in precision_lines(plan, schedule):
            say(line)
        _show(store, run, schedule, given.as_json, profile.resume_command)


def resumed(
    plan: Plan,
    store_file: str,
    machine: Machine,
    chosen: SuiteOverrides,
    purpose: str = "suite",
    of_fleet: str | None = None,
) -> tuple[Plan, Run, list[Record]]:
    """Return the plan of the unfinished run that --resume continues, the run and its records.

    Raises UsageError (see `resume`) and StoreError.
    """
    with Store.open(delivery.local_or(store_file), create=False) as store:
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
        # The reports that have something to show of these records.
        shown = {f"report {each.name}": each.suggestion for each in suggested(records)}
        shown["report matrix --json"] = "everything, for a script (also csv, markdown, latex)"
        show(f"Next ({shlex.quote(program())} ... --store {shlex.quote(store.name)}):", whole=True)
        for words, what in shown.items():
            show(f"  {words:<22}  {what}", whole=True)
    if not any(record.outcome.status is Status.OK for record in records):
        say("dlbench: no cell gave a valid number; the reasons are below the matrix.")
        raise typer.Exit(NOTHING_MEASURED)
