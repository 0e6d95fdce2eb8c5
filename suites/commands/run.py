"""`dlbench run`: measures a suite on this machine."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dlbench.hardware_probe import Machine, probe
from dlbench.reports.catalogue import suggested
from dlbench.reports.storage import delivery
from dlbench.reports.storage.hosts import Host, Node
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.store import Store

from ..display.progress import ProgressDisplay, clock, precision_lines
from ..display.screen import counted, err, program, resume_command, say, show
from ..environments import environment, folders
from ..errors import NOTHING_MEASURED, interruptible
from ..fleet.node import FleetNode, fleet_node
from ..planning.axes import SuiteOverrides
from ..planning.plan import Plan, check_count, memory_line
from ..run import capabilities, preparation, quiet_machine, resume
from ..run.judge import FirstLosses
from ..run.launch import LaunchRunner
from ..run.launcher import ProcessLauncher
from ..run.machine_lock import measuring
from ..run.quiet_machine import busy_gpus
from ..run.runner import Runner, RunResult
from ..run.schedules import Ledger
from ..run.texts import Text
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


@dataclass(frozen=True)
class InFleet(OptionGroup):
    """The option that `dlbench fleet run` adds to the command of each job."""

    node: Annotated[
        str | None,
        typer.Option(
            "--node",
            metavar="FLEET/NODE",
            help="Run as this node's job of a fleet: records name the node, and the same command resumes its run.",
        ),
    ] = None


@dataclass(frozen=True)
class Course:
    """What a run is for, and what decides which launches come next."""

    purpose: str = "suite"
    side: str = ""
    """Of its records."""
    ledger: Callable[[Plan, Iterable[Record], Host | None], Ledger] = Ledger
    words: Callable[[Plan], tuple[str, str]] = lambda plan: (size_of(plan), kind_of_protocol(plan))
    """Its size, and a sentence on its launches."""


_USUAL = Course()


@dataclass(frozen=True)
class Beginning:
    """The run to resume, and the node of a fleet that this machine is."""

    unfinished: Run | None = None
    node: FleetNode | None = None

    @property
    def node_now(self) -> Callable[[], Node | None]:
        """Return the node as it is now; None outside fleets."""
        return self.node.now if self.node is not None else lambda: None

    def resume_command(self, suite: str) -> str:
        """Return the command that resumes this run."""
        return self.node.resume_command(suite) if self.node is not None else resume_command()

    def run(self, plan: Plan, store: Store, machine: Machine, purpose: str) -> Run:
        """Return the run, in the store."""
        return self.unfinished or preparation.begin(plan, store, machine, purpose, self.node_now())


@grouped
def run_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, `claims`, or a file ending in .toml.")],
    axes: options.AxisOptions,
    launches: options.LaunchOptions,
    builds: options.RowOptions,
    session: options.SessionOptions,
    how: HowToRun,
    fleet: InFleet,
    as_json: Annotated[bool, typer.Option("--json", help="Print the matrix as JSON when the run ends.")] = False,
) -> None:
    """Measure a suite on this machine and show its matrix.

    Builds the environments it lacks, saying first what it downloads. Every finished launch is stored at once: Ctrl-C
    loses nothing, and --resume goes on. The suite `claims` is what the papers' claims still need from this machine
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
    preparation.check_brought(chosen.builds)
    text = preparation.text_of(plan, how.corpus)
    folders.make_folder(folders.home())  # where it cannot be, nothing is built or measured
    node, unfinished = fleet_node(fleet.node, machine, say), None
    earlier = node.newest_run(session.store_file, plan.suite) if node is not None else None
    if earlier is not None and earlier.finished is not None:
        with delivery.opened(session.store_file, say, create=False):
            say(f"The job of this node has finished already: run {earlier.id}.")
        return
    if resumes := session.resume or earlier is not None:
        of_fleet = earlier.id if earlier is not None else None
        plan, unfinished, records = going_on(plan, session, machine, chosen, of_fleet=of_fleet)
        resume.check_same_text(text, records)
    beginning = Beginning(unfinished, node)
    # Resuming needs a store that is there: it must not leave an empty one behind.
    with delivery.opened(session.store_file, say, create=not resumes, unfinished=unfinished) as store:
        run, ending, _ = carry_out(plan, machine, store, session, how, beginning, text=text)
        _show(store, run, ending, as_json, beginning.resume_command(plan.suite))


def going_on(
    plan: Plan,
    session: options.SessionOptions,
    machine: Machine,
    chosen: SuiteOverrides,
    purpose: str = "suite",
    of_fleet: str | None = None,
) -> tuple[Plan, Run, list[Record]]:
    """Return the plan of the unfinished run that --resume goes on with, the run and its records.

    Raises UsageError (see `resuming`), before a store of an earlier dlbench is brought up to date, and StoreError.
    """
    with Store.open(delivery.local_or(session.store_file), create=False) as store:
        plan, unfinished = resume.resume(plan, store, machine, chosen, purpose, of_fleet)
        records = list(store.records(run=unfinished.id))
        resume.check_same_builds(plan, records)
    return plan, unfinished, records


def carry_out(
    plan: Plan,
    machine: Machine,
    store: Store,
    session: options.SessionOptions,
    how: HowToRun,
    beginning: Beginning | None = None,
    *,
    text: Text | None = None,
    course: Course = _USUAL,
) -> tuple[Run, RunResult, Ledger]:
    """Prepare and carry out the run, and return it with how it ended, and what its records show."""
    beginning = beginning or Beginning()
    launcher = ProcessLauncher()
    store.add_machine(machine.fingerprint, machine.to_dict())
    sources = environment.prepare_sources(plan.builds, say, build_missing=not session.no_build)
    with measuring(say, wait=True, computes=plan.computes):
        if not how.no_ceilings:
            preparation.ensure_ceilings(plan, store, machine, say)
        reference = preparation.prepare_references(plan, machine, say)
        defaults = capabilities.threads_by_default(plan, sources, capabilities.place_of(machine), launcher, say)
        run = beginning.run(plan, store, machine, course.purpose)
        size, kind = course.words(plan)
        say(f"{plan.suite}: {size}, run {run.id} in {store.name}")
        told = (kind, *training_lines(plan, text), memory_line(plan, machine), *busy_gpus(plan.cells, machine.gpus))
        for line in filter(None, told):
            say(line)
        gate = None if how.no_quiet_gate or not plan.computes else quiet_machine.open_gate(store, run, say)
        carrier = LaunchRunner(
            plan,
            run,
            launcher,
            sources,
            reference,
            machine=machine,
            gate=gate,
            default_threads=defaults,
            ceilings=store.ceilings(machine.fingerprint),
            text=text,
            first_losses=FirstLosses.of(store.records(run=run.id)),
            node=beginning.node_now,
            side=course.side,
        )
        with preparation.exclusive(run), ProgressDisplay(err, lambda: matrix_so_far(store, run.id)) as display:
            runner = Runner(store, carrier, display, session.seconds, ledger_of=course.ledger)
            display.follow(runner.ledger)
            with interruptible(beginning.resume_command(plan.suite)):
                ending = runner.run()
        for line in precision_lines(plan, runner.ledger):
            say(line)
    return run, ending, runner.ledger


def _show(store: Store, run: Run, ending: RunResult, as_json: bool, go_on: str) -> None:
    print(matrix_so_far(store, run.id, as_json))
    if ending.launches_left:
        left = counted(ending.launches_left, "launch", "launches")
        spent = f"The budget is spent with {left} left, about {clock(ending.seconds_left)} of measuring."
        say(f"{spent} Resume: {go_on}")
    records = store.records(run=run.id)
    if not as_json:
        for line in next_lines(store.name, records):
            show(line, whole=True)
    if not any(record.outcome.gives_a_number() for record in records):
        say("dlbench: no cell gave a number; the reasons are below the matrix.")
        raise typer.Exit(NOTHING_MEASURED)


def next_lines(store: str, records: Sequence[Record]) -> list[str]:
    """Return what may be typed next: the reports that have something to show of these records."""
    shown = {f"report {each.name}": each.suggestion for each in suggested(records)}
    shown["report matrix --json"] = "everything, for a script (also csv, markdown, latex)"
    called = f"{shlex.quote(program())} ... --store {shlex.quote(store)}"
    return [f"Next ({called}):", *(f"  {words:<22}  {what}" for words, what in shown.items())]
