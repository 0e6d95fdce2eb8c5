"""`dlbench fleet`: one suite on many machines, by Slurm or as processes of this machine."""

import os
import shlex
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dlbench.reports.results.naming import counted
from dlbench.reports.results.storage import servers
from dlbench.reports.results.storage.store import Store

from ..commands import options
from ..commands.options import SuiteOptions, argument, flag, option, takes
from ..commands.run import ConditionOptions
from ..display.help import CommandLine
from ..display.screen import StatusLine, complain, err, print_json, program, say, show, table
from ..errors import FLEET_INCOMPLETE, Interrupted, SuitesError, UsageError, unknown_name
from ..planning import suite as suites
from ..planning import values, variables
from ..planning.framework import find
from .jobs import AT_WORK, BROKEN, Fleet, JobStatus, Local, chosen, statuses
from .slurm import Slurm, further_options

fleet_app = CommandLine(
    no_args_is_help=True, help="Measure a suite on many machines, into one store."
)

_WATCH_SECONDS = (1.0, 10.0)
"""The first and the longest pause between two queries of scheduler and store."""
_SCHEDULERS = ("slurm", "local")

_WAIT = flag("--wait", "Wait until all jobs have ended.")


@dataclass(frozen=True, kw_only=True)
class _FleetOptions:
    """How and where the jobs of a fleet run."""

    name: Annotated[str, options.SUITE]
    on: Annotated[
        str | None,
        option("--on", "Where jobs run: `slurm` (default), or `local` processes.", metavar="WHERE"),
    ] = None
    nodes: Annotated[
        int | None, option("--nodes", "Number of nodes. Idle ones come first.", metavar="N", min=1)
    ] = None
    nodelist: Annotated[
        str | None, option("--nodelist", "Use these nodes: n1,n2.", metavar="NAMES")
    ] = None
    partition: Annotated[str, option("--partition", "Slurm's partition.")] = ""
    exclusive: Annotated[
        bool | None,
        option("--exclusive/--shared", "Whether a job has its node to itself (default: yes)."),
    ] = None
    time_limit: Annotated[str, option("--time-limit", "Slurm ends a job after this: 90m, 8h.")] = ""
    account: Annotated[str, option("--account", "Slurm's account.")] = ""
    qos: Annotated[str, option("--qos", "Slurm's quality of service.")] = ""
    slurm_option: Annotated[
        list[str] | None,
        option(
            "--slurm-option", "A further option of sbatch: constraint=zen4.", metavar="KEY=VALUE"
        ),
    ] = None
    node_python: Annotated[
        str,
        option(
            "--node-python",
            "The nodes' Python that has dlbench (default: this one).",
            metavar="PATH",
        ),
    ] = ""
    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE
    folder: Annotated[
        Path | None,
        option(
            "--folder", "Folder for logs, which all nodes see under this path.", metavar="FOLDER"
        ),
    ] = None
    resume: Annotated[
        bool, flag("--resume", "Resubmit the unfinished jobs of the suite's newest fleet.")
    ] = False
    fleet: Annotated[str | None, option("--fleet", "With --resume: this fleet.", metavar="ID")] = (
        None
    )
    wait: Annotated[bool, _WAIT] = False


@dataclass(frozen=True, kw_only=True)
class _JobSessionOptions:
    """The budget and the seed of each job."""

    budget: Annotated[str | None, options.BUDGET] = None
    no_build: Annotated[bool, options.NO_BUILD] = False
    seed: Annotated[int | None, options.SEED] = None


@dataclass(frozen=True, kw_only=True)
class _JobOptions(SuiteOptions, _JobSessionOptions, ConditionOptions):
    """The options of `dlbench run` that each job gets."""


@dataclass(frozen=True, kw_only=True)
class FleetRunOptions(_FleetOptions, _JobOptions):
    """The options of `dlbench fleet run`."""


@dataclass(frozen=True, kw_only=True)
class _FleetIdOptions:
    """The fleet that is meant."""

    fleet_id: Annotated[
        str | None, argument("FLEET", "The fleet's id. Without it, the newest.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class StatusOptions(_FleetIdOptions):
    """The options of `dlbench fleet status`."""

    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE
    wait: Annotated[bool, _WAIT] = False
    as_json: Annotated[bool, options.JSON] = False


@dataclass(frozen=True, kw_only=True)
class LogsOptions(_FleetIdOptions):
    """The options of `dlbench fleet logs`."""

    node: Annotated[str | None, option("--node", "Only this node's job.", metavar="NAME")] = None


@dataclass(frozen=True, kw_only=True)
class CancelOptions(LogsOptions):
    """The options of `dlbench fleet cancel`."""

    store_file: Annotated[str, options.STORE] = options.DEFAULT_STORE


def settings_of(given: FleetRunOptions, scheduler: str) -> dict[str, str]:
    """Return the settings of every job, by name.

    Raises UsageError, also for options that only Slurm has.
    """
    settings: dict[str, str] = {}
    for name in ("partition", "account", "qos"):
        if getattr(given, name):
            settings[name] = getattr(given, name)
    if given.time_limit:
        settings["minutes"] = f"{values.duration(given.time_limit) / 60:g}"
    if given.exclusive is not None:
        settings["shared"] = "no" if given.exclusive else "yes"
    settings.update(further_options(given.slurm_option or ()))
    if settings and scheduler != "slurm":
        raise UsageError(
            f"--on {scheduler} takes no partition, account, time limit or the like. Leave them out."
        )
    if given.node_python:
        settings["python"] = given.node_python
    return settings


def _scheduler(fleet: Fleet) -> Slurm | Local:
    if fleet.scheduler == "slurm":
        return Slurm(Path(fleet.folder), fleet.settings)
    return Local(Path(fleet.folder))


@fleet_app.command("run")
@takes(FleetRunOptions)
def run_command(given: FleetRunOptions) -> None:
    """Measure a suite on several machines: one job for each, a `dlbench run` of the whole suite.

    Each job writes to a store on its node, and delivers it to the server that --store names. All
    options of `dlbench run` are passed on. Environments are built in DLBENCH_HOME: a folder that
    all nodes see, or one on each node's own disk. The command ends once the jobs are submitted;
    `dlbench fleet status` follows them.

    Examples:

    - `dlbench fleet run quick --nodes 4 --store postgresql+psycopg://me@host/db`
    - `dlbench fleet run quick --resume`
    - `dlbench fleet run quick --on local --nodes 2 --frameworks null --wait`
    """
    words = options.words_of(given, options.names_of(_JobOptions))
    name = given.name
    if given.resume:
        _resume(given, words)
        return
    on = given.on or "slurm"
    if on not in _SCHEDULERS:
        raise unknown_name("scheduler", on, _SCHEDULERS)
    if given.fleet is not None:
        raise UsageError("--fleet names a fleet to resume. Give it together with --resume.")
    _check_store(given.store_file, on)
    _check_secrets(given)
    chosen_axes = options.choices(given)
    suites.load(name)
    own_steps = [find(row) for row in chosen_axes.own.names] if chosen_axes.own else []
    left_behind = variables.left_behind(chosen_axes.variables, own_steps)
    if left_behind:
        say(left_behind)
    settings = {"python": sys.executable, **settings_of(given, on)}
    fleet = Fleet.new(name, words, on, settings, given.folder)
    scheduler = _scheduler(fleet)
    named = [] if given.nodelist is None else values.words(given.nodelist)
    nodes = scheduler.nodes(given.nodes, named)
    fleet.jobs = dict.fromkeys(nodes, "")
    Store.open(given.store_file).close()  # refused before anything is submitted
    say(
        f"fleet {fleet.id}: {counted(len(nodes), 'job')} of {name} for {', '.join(nodes)}, in "
        f"{fleet.folder}"
    )
    _submit(fleet, scheduler, nodes, given)


def _submit(
    fleet: Fleet, scheduler: Slurm | Local, nodes: Iterable[str], given: FleetRunOptions
) -> None:
    """Submit jobs, and wait for them with --wait; exit with FLEET_INCOMPLETE if one is refused."""
    command = [fleet.settings["python"], "-m", "dlbench.suites", "run", fleet.suite, *fleet.options]
    # A password stays in the environment, which others on a node cannot read.
    if not servers.has_password(given.store_file):
        command += ["--store", given.store_file]
    fleet.errors = {}
    for node in nodes:
        fleet.jobs[node] = ""
        fleet.save()
        try:
            fleet.jobs[node] = scheduler.submit(node, [*command, "--node", f"{fleet.id}/{node}"])
        except Interrupted:
            raise
        except SuitesError as error:
            fleet.errors[node] = str(error)
            complain(error)
        fleet.save()
    broken = bool(fleet.errors)
    if given.wait:
        with Store.open(given.store_file, create=False) as store:
            if not broken:
                jobs = _statuses(fleet, store, wait=True)
                broken = any(job.state in BROKEN for job in jobs)
    if broken:
        raise typer.Exit(FLEET_INCOMPLETE)


def _resume(given: FleetRunOptions, words: list[str]) -> None:
    if given.nodes is not None or given.nodelist is not None or given.folder is not None:
        raise UsageError(
            "--nodes, --nodelist and --folder are not for --resume: it submits the same nodes' "
            "jobs."
        )
    fleet = chosen(given.fleet, given.name)
    if given.on not in (None, fleet.scheduler):
        raise UsageError(
            f"The fleet was started with --on {fleet.scheduler}, and cannot be resumed elsewhere."
        )
    if words and words != fleet.options:
        raise UsageError(
            f"Fleet {fleet.id} was started with other options: "
            f"{shlex.join(fleet.options) or 'none'}. Leave options out to resume it, or leave "
            "--resume out to start another."
        )
    _check_store(given.store_file, fleet.scheduler)
    fleet.settings |= settings_of(given, fleet.scheduler)
    with Store.open(given.store_file, create=False) as store:
        broken = [job.node for job in _statuses(fleet, store) if job.state in BROKEN]
    if not broken:
        say(f"There is nothing to resume: each job of fleet {fleet.id} has finished, or is active.")
        return
    say(f"fleet {fleet.id}: {counted(len(broken), 'job')} again, for {', '.join(broken)}")
    _submit(fleet, _scheduler(fleet), broken, given)


def _check_secrets(given: FleetRunOptions) -> None:
    """Raise UsageError for a secret whose value a job would need in its command."""
    for name, value in variables.read(given.env or ()).items():
        if variables.is_secret(name) and os.environ.get(name) != value:
            raise UsageError(
                f"The value of {name} in --env would be in every job's command, where others can "
                f"read it. Set it in the shell, and give --env {name}."
            )


def _check_store(target: str, scheduler: str) -> None:
    """Raise UsageError for a store that jobs cannot get, or that machines cannot share."""
    if servers.is_served(target):
        if servers.has_password(target) and os.environ.get("DLBENCH_STORE") != target:
            raise UsageError(
                "A password in --store would be in every job's command, where others can read it. "
                "Put it into ~/.pgpass, PGPASSWORD or DLBENCH_STORE."
            )
    elif scheduler != "local":
        raise UsageError(
            f"{target} is a file, and several machines cannot write to one SQLite file safely. "
            "Name a database on a server: --store postgresql+psycopg://USER@HOST/DATABASE "
            "(suites/docs/how-to/store-on-a-server.md)."
        )


@fleet_app.command("status")
@takes(StatusOptions)
def status_command(given: StatusOptions) -> None:
    """Show each job's state from the scheduler, and its progress from the records in the store.

    The exit code is 1 if a job ended without finishing its run.

    Examples:

    - `dlbench fleet status`
    - `dlbench fleet status 20261120T120000-ab12 --json`
    - `dlbench fleet status --wait`
    """
    fleet = chosen(given.fleet_id)
    with Store.open(given.store_file, create=False) as store:
        jobs = _statuses(fleet, store, given.wait)
    if given.as_json:
        print_json({**asdict(fleet), "jobs": [job._asdict() for job in jobs]})
    else:
        title = f"fleet {fleet.id}: {fleet.suite} on {fleet.scheduler}"
        rows = []
        for job in jobs:
            newest = ""
            if job.newest:
                age = datetime.now(UTC) - datetime.fromisoformat(job.newest)
                newest = f"{age.total_seconds():.0f} s ago"
            launches = f"{job.launches} of {job.planned}" if job.planned else ""
            rows.append([job.node, job.state, launches, newest, job.text])
        table(title, ["node", "state", "launches", "newest record", ""], rows)
    if any(job.state in BROKEN for job in jobs):
        if not given.as_json:
            words = [program(), "fleet", "run", fleet.suite, "--resume", "--fleet", fleet.id]
            show(
                f"Resume: {shlex.join([*words, *options.words_of_store(given.store_file)])}",
                whole=True,
            )
        raise typer.Exit(FLEET_INCOMPLETE)


@fleet_app.command("cancel")
@takes(CancelOptions)
def cancel_command(given: CancelOptions) -> None:
    """End a fleet's active jobs; every finished launch is stored.

    Examples:

    - `dlbench fleet cancel`
    - `dlbench fleet cancel 20261120T120000-ab12 --node n3`
    """
    fleet = chosen(given.fleet_id)
    scheduler = _scheduler(fleet)
    jobs = {}
    for name, handle in fleet.jobs.items():
        if handle and given.node in (None, name):
            jobs[handle] = name
    views = scheduler.seen(list(jobs))
    alive = [handle for handle, (state, _) in views.items() if state not in ("ended", "gone")]
    if not alive:
        where = f"on {given.node} " if given.node else ""
        say(f"No job of fleet {fleet.id} {where}is active.")
        return
    scheduler.cancel(alive)
    say(f"cancelled on {', '.join(jobs[handle] for handle in alive)}")


@fleet_app.command("logs")
@takes(LogsOptions)
def logs_command(given: LogsOptions) -> None:
    """Print the output of the jobs of a fleet.

    Examples:

    - `dlbench fleet logs --node n3`
    - `dlbench fleet logs 20261120T120000-ab12`
    """
    fleet = chosen(given.fleet_id)
    scheduler = _scheduler(fleet)
    jobs = {name: handle for name, handle in fleet.jobs.items() if given.node in (None, name)}
    if not jobs:
        raise unknown_name("node", given.node or "", fleet.jobs)
    for name, handle in jobs.items():
        show(f"== {name}", whole=True)
        path = scheduler.log(handle) if handle else None
        if path is None or not path.exists():
            show("no log yet")
            continue
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            show(line, whole=True)


def _statuses(fleet: Fleet, store: Store, wait: bool = False) -> list[JobStatus]:
    """Return the status of each job; with ``wait`` show progress until none is active."""
    scheduler = _scheduler(fleet)
    pause, longest = _WATCH_SECONDS
    with StatusLine(err) as line:
        while True:
            handles = [handle for handle in fleet.jobs.values() if handle]
            jobs = statuses(fleet, scheduler.seen(handles), store)
            at_work = [job for job in jobs if job.state in AT_WORK]
            if not (wait and at_work):
                return jobs
            done = sum(job.launches for job in jobs)
            planned = sum(job.planned or 0 for job in jobs)
            line.draw(
                f"  {counted(len(at_work), 'job')} active, {done} of {planned or '?'} launches"
            )
            time.sleep(pause)
            pause = min(1.5 * pause, longest)
