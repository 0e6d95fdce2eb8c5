"""`dlbench fleet`: one suite on many machines, by Slurm, on this machine, or as scripts for any other scheduler."""

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store

from ..commands import options
from ..commands.options import OptionGroup, grouped, words_of
from ..commands.run import HowToRun
from ..display.screen import StatusLine, counted, err, print_json, say, show, table
from ..errors import FLEET_INCOMPLETE, UsageError, unknown_name
from ..planning import suite as suites
from ..planning import values
from . import schedulers, submission
from .schedulers.scheduler import Scheduler
from .schedulers.slurm_options import read_further
from .standing import AT_WORK, BROKEN, Standing, standings
from .submission import Submitter

fleet_app = typer.Typer(no_args_is_help=True, help="Measure a suite on many machines, into one store.")

_WATCH_SECONDS = 5.0


@dataclass(frozen=True)
class Where(OptionGroup):
    """Which machines, and how they are reached."""

    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="|".join(schedulers.NAMES),
            help="Slurm; processes on this machine; or scripts to be given to any other scheduler.",
        ),
    ] = "slurm"
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="How many nodes: idle ones first.")] = None
    nodelist: Annotated[str | None, typer.Option("--nodelist", metavar="NAMES", help="These nodes: n1,n2.")] = None
    partition: Annotated[str, typer.Option("--partition", help="Slurm's partition.")] = ""
    exclusive: Annotated[
        bool, typer.Option("--exclusive/--shared", help="Whether a job has its node to itself (Slurm).")
    ] = True
    time_limit: Annotated[str, typer.Option("--time-limit", help="Slurm ends a job after this: 90m, 8h.")] = ""
    account: Annotated[str, typer.Option("--account", help="Slurm's account.")] = ""
    qos: Annotated[str, typer.Option("--qos", help="Slurm's quality of service.")] = ""
    slurm_option: Annotated[
        list[str] | None,
        typer.Option("--slurm-option", metavar="KEY=VALUE", help="A further option of sbatch: constraint=zen4."),
    ] = None

    @property
    def named(self) -> list[str]:
        """The nodes that --nodelist names; empty without it."""
        return [] if self.nodelist is None else values.words(self.nodelist)

    def settings(self, python: str) -> tuple[tuple[str, str], ...]:
        """Return what Slurm is told of every job, by name; raises UsageError for what cannot be, or is not Slurm's."""
        minutes = f"{values.duration(self.time_limit) / 60:g}" if self.time_limit else ""
        given = {"partition": self.partition, "minutes": minutes, "account": self.account, "qos": self.qos}
        given |= {"shared": "" if self.exclusive else "yes"}
        found = [(name, value) for name, value in given.items() if value]
        found += [(f"further.{name}", value) for name, value in read_further(self.slurm_option or ()).items()]
        if found and self.on != "slurm":
            raise UsageError(f"--on {self.on} has no partition, account, time limit and the like. Leave them out.")
        return (*found, ("python", python))


@dataclass(frozen=True)
class Submitting(OptionGroup):
    """What is written where, and what ends it."""

    store_file: options.StoreFile = options.DEFAULT_STORE
    budget: options.TotalBudget = None
    no_build: options.NoBuild = False
    seed: options.Seed = None
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="FOLDER", help="For logs and scripts; all nodes must see it under this name."),
    ] = None
    node_python: Annotated[
        str, typer.Option("--node-python", metavar="PATH", help="The Python that has dlbench on the nodes (this one).")
    ] = ""
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what jobs of the suite's newest fleet left when they ended.")
    ] = False
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False


@dataclass(frozen=True)
class _RunWords(OptionGroup):
    """Those of the above that each job is told."""

    budget: options.TotalBudget = None
    no_build: options.NoBuild = False
    seed: options.Seed = None


Which = Annotated[str | None, typer.Argument(metavar="[FLEET]", help="The fleet's id. Without it, the newest.")]
OneNode = Annotated[str | None, typer.Option("--node", metavar="NAME", help="Only this node's job.")]


@fleet_app.command("run")
@grouped
def run_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")],
    where: Where,
    how: Submitting,
    axes: options.AxisOptions,
    launches: options.LaunchOptions,
    builds: options.RowOptions,
    conditions: HowToRun,
) -> None:
    """Measure a suite on several machines: one job for each, which has its machine to itself and runs the whole suite.

    Jobs write to one store, a database on a server unless they are processes of this machine. Every option of
    `dlbench run` is passed on to them. Environments are built where DLBENCH_HOME says: in a folder that all nodes see,
    or on each node's own disk. The command ends once the jobs are submitted; `dlbench fleet status` follows them.

    Examples:

    - `dlbench fleet run quick --on slurm --partition cpu --nodes 4 --store postgresql+psycopg://me@host/results`
    - `dlbench fleet run quick --on slurm --nodelist n1,n2 --frameworks torch --launches 5`
    - `dlbench fleet run quick --on slurm --resume`
    - `dlbench fleet run quick --on local --nodes 2 --frameworks null --store results.sqlite --wait`
    - `dlbench fleet run quick --on script --nodes 3 --folder jobs`
    """
    if where.on not in schedulers.NAMES:
        raise unknown_name("scheduler", where.on, schedulers.NAMES)
    words = words_of(axes, launches, builds, _RunWords(how.budget, how.no_build, how.seed), conditions)
    if how.resume:
        _resume(name, where, how, words)
        return
    submission.check_target(how.store_file, several_machines=where.on != "local")
    options.choices(axes, launches, builds)
    suites.load(name)
    settings = where.settings(how.node_python or sys.executable)
    id_ = submission.new_id()
    with Store.open(how.store_file, report=say) as store:
        folder = submission.folder_of(id_, how.folder)
        fleet = submission.new_fleet(id_, name, words, where.on, folder, settings)
        scheduler = schedulers.of(fleet)
        nodes = scheduler.nodes(where.nodes, where.named)
        fleets.begin(store, fleet)
        _submit(Submitter(store, how.store_file, fleet, scheduler), nodes)
        if how.wait:
            _wait(store, fleet, scheduler)


def _submit(submitter: Submitter, nodes: list[str]) -> None:
    fleet = submitter.fleet
    for number, node in enumerate(nodes, 1):
        submitter.submit(Job(number, node))
    say(f"fleet {fleet.id}: {counted(len(nodes), 'job')} of {fleet.suite} for {', '.join(nodes)}, in {fleet.folder}")
    if fleet.scheduler == "script":
        say("Give each script there to the scheduler of its node; `dlbench fleet status` shows what they measure.")


def _resume(name: str, where: Where, how: Submitting, words: list[str]) -> None:
    if where.nodes is not None:
        raise UsageError("--nodes has no meaning with --resume. Nodes that may take over are named with --nodelist.")
    with Store.open(how.store_file, create=False) as store:
        of_suite = [fleet for fleet in fleets.fleets(store) if fleet.suite == name]
        if not of_suite:
            raise UsageError(f"{store.name} has no fleet of {name}. Leave --resume out to start one.")
        fleet = of_suite[-1]
        submission.check_target(how.store_file, several_machines=fleet.scheduler != "local")
        if words and tuple(words) != fleet.words:
            raise UsageError(
                f"Fleet {fleet.id} was begun with other options: {' '.join(fleet.words) or 'none'}. Leave options out "
                "to go on with it, or leave --resume out to start another."
            )
        scheduler = schedulers.of(fleet)
        others = scheduler.nodes(None, where.named) if where.named else []
        found = submission.replacements(_standings(store, fleet, scheduler), store, scheduler, others)
        if not found:
            say(f"Nothing is left to go on with: no job of fleet {fleet.id} ended early.")
            return
        submitter = Submitter(store, how.store_file, fleet, scheduler)
        for job in found:
            submitter.submit(job)
            say(f"job {job.number} goes on with what job {job.replaces} left, on {job.node}")
        if how.wait:
            _wait(store, fleet, scheduler)


@fleet_app.command("status")
def status_command(
    fleet_id: Which = None,
    store_file: options.StoreFile = options.DEFAULT_STORE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show how the jobs of a fleet stand: by their heartbeats in the store, and by what the scheduler says.

    A job without a heartbeat for a minute is lost, whatever the scheduler says. The exit code is 1 where a job failed
    or was lost and no other goes on with it.

    Examples:

    - `dlbench fleet status`
    - `dlbench fleet status 20261120T120000-ab12 --json`
    - `dlbench fleet status --wait`
    """
    with Store.open(store_file, create=False) as store:
        fleet = _chosen(store, fleet_id)
        scheduler = schedulers.of(fleet)
        found = _wait(store, fleet, scheduler) if wait else _standings(store, fleet, scheduler)
    if as_json:
        print_json(_data(fleet, found))
    else:
        title = f"fleet {fleet.id}: {fleet.suite} on {fleet.scheduler}"
        table(title, ["job", "node", "state", "launches", "heartbeat", ""], [_row(each) for each in found])
    if any(each.state in BROKEN for each in found):
        if not as_json:
            show(f"Go on: dlbench fleet run {fleet.suite} --resume")
        raise typer.Exit(FLEET_INCOMPLETE)


@fleet_app.command("cancel")
def cancel_command(
    fleet_id: Which = None, store_file: options.StoreFile = options.DEFAULT_STORE, node: OneNode = None
) -> None:
    """End the jobs of a fleet that have not ended; every finished launch is stored.

    Examples:

    - `dlbench fleet cancel`
    - `dlbench fleet cancel 20261120T120000-ab12 --node n3`
    """
    with Store.open(store_file, create=False) as store:
        fleet = _chosen(store, fleet_id)
        scheduler = schedulers.of(fleet)
        found = [each.job for each in _standings(store, fleet, scheduler) if each.state in AT_WORK]
        chosen = [job for job in found if job.handle and node in (None, job.node)]
        if not chosen:
            say(f"No job of fleet {fleet.id} {f'on {node} ' if node else ''}is at work.")
            return
        scheduler.cancel([job.handle for job in chosen if job.handle])
        say(f"cancelled: {', '.join(f'job {job.number} on {job.node}' for job in chosen)}")


@fleet_app.command("logs")
def logs_command(
    fleet_id: Which = None,
    store_file: options.StoreFile = options.DEFAULT_STORE,
    node: OneNode = None,
    number: Annotated[int | None, typer.Option("--job", metavar="NUMBER", help="Only this job.")] = None,
) -> None:
    """Print what the jobs of a fleet printed.

    Examples:

    - `dlbench fleet logs --node n3`
    - `dlbench fleet logs 20261120T120000-ab12 --job 2`
    """
    with Store.open(store_file, create=False) as store:
        fleet = _chosen(store, fleet_id)
        scheduler = schedulers.of(fleet)
        jobs = [job for job in fleets.jobs(store, fleet.id) if node in (None, job.node)]
    jobs = [job for job in jobs if number in (None, job.number)]
    if not jobs:
        raise UsageError(f"Fleet {fleet.id} has no such job. `dlbench fleet status` lists them.")
    for job in jobs:
        show(f"== job {job.number}, {job.node}", whole=True)
        path = scheduler.log(job.handle) if job.handle else None
        if path is None or not path.exists():
            show("no log yet")
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            show(line, whole=True)


def _chosen(store: Store, fleet_id: str | None) -> Fleet:
    found = fleets.fleets(store)
    if not found:
        raise UsageError(f"{store.name} has no fleet. `dlbench fleet run` starts one.")
    if fleet_id is None:
        return found[-1]
    fleet = next((each for each in found if each.id == fleet_id), None)
    if fleet is None:
        raise unknown_name("fleet", fleet_id, [each.id for each in found])
    return fleet


def _standings(store: Store, fleet: Fleet, scheduler: Scheduler) -> list[Standing]:
    jobs = fleets.jobs(store, fleet.id)
    runs = [job.run for job in jobs if job.run]
    seen = scheduler.seen([job.handle for job in jobs if job.handle])
    return standings(jobs, seen, fleets.launches(store, runs), fleets.finished(store, runs))


def _wait(store: Store, fleet: Fleet, scheduler: Scheduler) -> list[Standing]:
    """Wait until no job is at work, telling how far they are, and return how they stand."""
    with StatusLine(err) as line:
        while True:
            found = _standings(store, fleet, scheduler)
            at_work = [each for each in found if each.state in AT_WORK]
            if not at_work:
                return found
            done, planned = sum(each.launches for each in found), sum(each.job.planned or 0 for each in found)
            line.draw(f"  {counted(len(at_work), 'job')} at work, {done} of {planned or '?'} launches")
            time.sleep(_WATCH_SECONDS)


def _row(each: Standing) -> list[str]:
    job = each.job
    launches = f"{each.launches} of {job.planned}" if job.planned else ""
    beat = "" if job.beat_age is None else f"{job.beat_age:.0f} s ago"
    return [str(job.number), job.node, each.state, launches, beat if each.state in AT_WORK else "", each.words]


def _data(fleet: Fleet, found: list[Standing]) -> dict[str, Any]:
    jobs = [{**asdict(each.job), "state": each.state, "words": each.words, "launches": each.launches} for each in found]
    return {**asdict(fleet), "started": fleet.started.isoformat(), "settings": dict(fleet.settings), "jobs": jobs}
