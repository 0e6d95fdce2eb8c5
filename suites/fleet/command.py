"""`dlbench fleet`: one suite on many machines, by Slurm or as processes of this machine."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dlbench.reports.storage import servers
from dlbench.reports.storage.store import Store

from ..commands import options
from ..commands.options import OptionGroup, grouped, words_of
from ..commands.run import HowToRun
from ..display.screen import StatusLine, complain, counted, err, print_json, program, say, show, table
from ..errors import FLEET_INCOMPLETE, Interrupted, SuitesError, UsageError, unknown_name
from ..planning import suite as suites
from ..planning import values
from .jobs import AT_WORK, BROKEN, Fleet, Job, JobStatus, Scheduler, chosen, statuses
from .local import Local
from .slurm import Slurm, further_options

fleet_app = typer.Typer(no_args_is_help=True, help="Measure a suite on many machines, into one store.")

_WATCH_SECONDS = 1.0, 10.0
"""The first and the longest pause between two queries of scheduler and store."""
_SCHEDULERS: Mapping[str, Callable[[Fleet], Scheduler]] = {
    "slurm": lambda fleet: Slurm(Path(fleet.folder), fleet.settings),
    "local": lambda fleet: Local(Path(fleet.folder)),
}

Which = Annotated[str | None, typer.Argument(metavar="[FLEET]", help="The fleet's id. Without it, the newest.")]
OneNode = Annotated[str | None, typer.Option("--node", metavar="NAME", help="Only this node's job.")]


@dataclass(frozen=True)
class Where(OptionGroup):
    """Which machines, and how they are reached."""

    on: Annotated[
        str | None,
        typer.Option("--on", metavar="|".join(_SCHEDULERS), help="Slurm, or processes on this machine (slurm)."),
    ] = None
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="How many nodes: idle ones first.")] = None
    nodelist: Annotated[str | None, typer.Option("--nodelist", metavar="NAMES", help="These nodes: n1,n2.")] = None
    partition: Annotated[str, typer.Option("--partition", help="Slurm's partition.")] = ""
    exclusive: Annotated[
        bool | None, typer.Option("--exclusive/--shared", help="Whether a job has its node to itself in Slurm (yes).")
    ] = None
    time_limit: Annotated[str, typer.Option("--time-limit", help="Slurm ends a job after this: 90m, 8h.")] = ""
    account: Annotated[str, typer.Option("--account", help="Slurm's account.")] = ""
    qos: Annotated[str, typer.Option("--qos", help="Slurm's quality of service.")] = ""
    slurm_option: Annotated[
        list[str] | None,
        typer.Option("--slurm-option", metavar="KEY=VALUE", help="A further option of sbatch: constraint=zen4."),
    ] = None
    node_python: Annotated[
        str, typer.Option("--node-python", metavar="PATH", help="The Python that has dlbench on the nodes (this one).")
    ] = ""

    def settings(self, scheduler: str) -> dict[str, str]:
        """Return the settings of every job, by name; raises UsageError, also for options that only Slurm has."""
        found = {"partition": self.partition, "account": self.account, "qos": self.qos}
        if self.time_limit:
            found["minutes"] = f"{values.duration(self.time_limit) / 60:g}"
        if self.exclusive is not None:
            found["shared"] = "no" if self.exclusive else "yes"
        found |= further_options(self.slurm_option or ())
        found = {name: text for name, text in found.items() if text or name.startswith("further.")}
        if found and scheduler != "slurm":
            raise UsageError(f"--on {scheduler} has no partition, account, time limit and the like. Leave them out.")
        return found | ({"python": self.node_python} if self.node_python else {})


@dataclass(frozen=True)
class EachJob(OptionGroup):
    """Options that each job gets."""

    budget: options.TotalBudget = None
    no_build: options.NoBuild = False
    seed: options.Seed = None


@dataclass(frozen=True)
class Submitting(OptionGroup):
    """Store, folder, and which jobs to submit."""

    store_file: options.StoreFile = options.DEFAULT_STORE
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="FOLDER", help="For logs; all nodes must see it under this name.")
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Submit the jobs of the suite's newest fleet again that have not finished.")
    ] = False
    fleet: Annotated[str | None, typer.Option("--fleet", metavar="ID", help="With --resume: this fleet.")] = None
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False


@fleet_app.command("run")
@grouped
def run_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name, or a file ending in .toml.")],
    where: Where,
    how: Submitting,
    each_job: EachJob,
    axes: options.AxisOptions,
    launches: options.LaunchOptions,
    builds: options.RowOptions,
    conditions: HowToRun,
) -> None:
    """Measure a suite on several machines: one job for each, a plain `dlbench run` of the whole suite on that node.

    Each job writes to a store on its node, which is delivered to the server that --store names. Every option of
    `dlbench run` is passed on. Environments are built where DLBENCH_HOME says: in a folder that all nodes see, or on
    each node's own disk. The command ends once the jobs are submitted; `dlbench fleet status` follows them.

    Examples:

    - `dlbench fleet run quick --on slurm --partition cpu --nodes 4 --store postgresql+psycopg://me@host/results`
    - `dlbench fleet run quick --on slurm --nodelist n1,n2 --frameworks torch --launches 5`
    - `dlbench fleet run quick --on slurm --resume`
    - `dlbench fleet run quick --on local --nodes 2 --frameworks null --store results.sqlite --wait`
    """
    words = words_of(axes, launches, builds, each_job, conditions)
    if how.resume:
        _resume(name, where, how, words)
        return
    on = where.on or "slurm"
    if on not in _SCHEDULERS:
        raise unknown_name("scheduler", on, _SCHEDULERS)
    if how.fleet is not None:
        raise UsageError("--fleet names a fleet to resume. Give it together with --resume.")
    _check_store(how.store_file, on)
    options.choices(axes, launches, builds)
    suites.load(name)
    fleet = Fleet.new(name, words, on, {"python": sys.executable, **where.settings(on)}, how.folder)
    scheduler = _SCHEDULERS[on](fleet)
    nodes = scheduler.nodes(where.nodes, [] if where.nodelist is None else values.words(where.nodelist))
    fleet.jobs = [Job(node) for node in nodes]
    Store.open(how.store_file).close()  # refused before anything is submitted
    say(f"fleet {fleet.id}: {counted(len(nodes), 'job')} of {name} for {', '.join(nodes)}, in {fleet.folder}")
    _submit(fleet, scheduler, fleet.jobs, how)


def _submit(fleet: Fleet, scheduler: Scheduler, jobs: Sequence[Job], how: Submitting) -> None:
    """Submit jobs, and wait for them where that is asked for; exit with FLEET_INCOMPLETE where one is refused."""
    command = [fleet.settings["python"], "-m", "dlbench.suites", "run", fleet.suite, *fleet.options]
    # A password stays in the environment, which others on a node cannot read.
    command += [] if servers.has_password(how.store_file) else ["--store", how.store_file]
    for job in jobs:
        job.handle, job.error = None, ""
        fleet.save()
        try:
            job.handle = scheduler.submit(job.node, [*command, "--node", f"{fleet.id}/{job.node}"])
        except Interrupted:
            raise
        except SuitesError as error:
            job.error = str(error)
            complain(job.error)
        fleet.save()
    broken = any(job.error for job in jobs)
    if how.wait:
        with Store.open(how.store_file, create=False) as store:
            broken = broken or any(each.state in BROKEN for each in _wait(fleet, scheduler, store))
    if broken:
        raise typer.Exit(FLEET_INCOMPLETE)


def _resume(name: str, where: Where, how: Submitting, words: list[str]) -> None:
    if where.nodes is not None or where.nodelist is not None or how.folder is not None:
        raise UsageError("--nodes, --nodelist and --folder are not for --resume: it submits the same nodes' jobs.")
    fleet = chosen(how.fleet, name)
    if where.on not in (None, fleet.scheduler):
        raise UsageError(f"The fleet was started with --on {fleet.scheduler}, and cannot be resumed elsewhere.")
    if words and words != fleet.options:
        raise UsageError(
            f"Fleet {fleet.id} was started with other options: {shlex.join(fleet.options) or 'none'}. Leave options "
            "out to resume it, or leave --resume out to start another."
        )
    _check_store(how.store_file, fleet.scheduler)
    fleet.settings |= where.settings(fleet.scheduler)
    scheduler = _SCHEDULERS[fleet.scheduler](fleet)
    with Store.open(how.store_file, create=False) as store:
        broken = [each.job for each in statuses(fleet, scheduler, store) if each.state in BROKEN]
    if not broken:
        say(f"There is nothing to resume: each job of fleet {fleet.id} has finished, or is at work.")
        return
    say(f"fleet {fleet.id}: {counted(len(broken), 'job')} again, for {', '.join(job.node for job in broken)}")
    _submit(fleet, scheduler, broken, how)


def _check_store(target: str, scheduler: str) -> None:
    """Raise UsageError for a store that jobs cannot get, or that machines cannot share."""
    if servers.is_served(target):
        if servers.has_password(target) and os.environ.get("DLBENCH_STORE") != target:
            raise UsageError(
                "A password in --store would be in every job's command, where others can read it. Put it into "
                "~/.pgpass, PGPASSWORD or DLBENCH_STORE."
            )
    elif scheduler != "local":
        raise UsageError(
            f"{target} is a file, and several machines cannot write to one SQLite file safely. Name a database on a "
            "server: --store postgresql+psycopg://USER@HOST/DATABASE (suites/README.md, A store on a server)."
        )


@fleet_app.command("status")
def status_command(
    fleet_id: Which = None,
    store_file: options.StoreFile = options.DEFAULT_STORE,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show the state of each job by the scheduler, and its progress by the newest record in the store.

    The exit code is 1 where a job ended without finishing its run.

    Examples:

    - `dlbench fleet status`
    - `dlbench fleet status 20261120T120000-ab12 --json`
    - `dlbench fleet status --wait`
    """
    fleet = chosen(fleet_id)
    scheduler = _SCHEDULERS[fleet.scheduler](fleet)
    with Store.open(store_file, create=False) as store:
        found = _wait(fleet, scheduler, store) if wait else statuses(fleet, scheduler, store)
    if as_json:
        jobs = [{**asdict(each), **asdict(each.job), "job": number} for number, each in enumerate(found, 1)]
        print_json({**asdict(fleet), "jobs": jobs})
    else:
        title = f"fleet {fleet.id}: {fleet.suite} on {fleet.scheduler}"
        table(title, ["node", "state", "launches", "newest record", ""], [_row(each) for each in found])
    if any(each.state in BROKEN for each in found):
        if not as_json:
            words = [program(), "fleet", "run", fleet.suite, "--resume", "--fleet", fleet.id]
            show(f"Resume: {shlex.join([*words, *options.words_of_store(store_file)])}", whole=True)
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
    fleet = chosen(fleet_id)
    scheduler = _SCHEDULERS[fleet.scheduler](fleet)
    jobs = {job.handle: job.node for job in fleet.jobs if job.handle and node in (None, job.node)}
    alive = [handle for handle, seen in scheduler.seen(list(jobs)).items() if seen.state not in ("ended", "gone")]
    if not alive:
        say(f"No job of fleet {fleet.id} {f'on {node} ' if node else ''}is at work.")
        return
    scheduler.cancel(alive)
    say(f"cancelled on {', '.join(jobs[handle] for handle in alive)}")


@fleet_app.command("logs")
def logs_command(fleet_id: Which = None, node: OneNode = None) -> None:
    """Print the output of the jobs of a fleet.

    Examples:

    - `dlbench fleet logs --node n3`
    - `dlbench fleet logs 20261120T120000-ab12`
    """
    fleet = chosen(fleet_id)
    scheduler = _SCHEDULERS[fleet.scheduler](fleet)
    jobs = [job for job in fleet.jobs if node in (None, job.node)]
    if not jobs:
        raise unknown_name("node", node or "", [job.node for job in fleet.jobs])
    for job in jobs:
        show(f"== {job.node}", whole=True)
        path = scheduler.log(job.handle) if job.handle else None
        if path is None or not path.exists():
            show("no log yet")
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            show(line, whole=True)


def _wait(fleet: Fleet, scheduler: Scheduler, store: Store) -> list[JobStatus]:
    """Wait until no job is at work, showing progress, and return the status of each."""
    pause, longest = _WATCH_SECONDS
    with StatusLine(err) as line:
        while True:
            found = statuses(fleet, scheduler, store)
            at_work = [each for each in found if each.state in AT_WORK]
            if not at_work:
                return found
            done, planned = sum(each.launches for each in found), sum(each.planned or 0 for each in found)
            line.draw(f"  {counted(len(at_work), 'job')} at work, {done} of {planned or '?'} launches")
            time.sleep(pause)
            pause = min(1.5 * pause, longest)


def _row(each: JobStatus) -> list[str]:
    launches = f"{each.launches} of {each.planned}" if each.planned else ""
    age = datetime.now(UTC) - datetime.fromisoformat(each.newest) if each.newest else None
    newest: Any = "" if age is None else f"{age.total_seconds():.0f} s ago"
    return [each.job.node, each.state, launches, newest, each.text]
