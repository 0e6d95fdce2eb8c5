"""`dlbench fleet`: one suite on many machines, by Slurm, on this machine, or as scripts for any other scheduler."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store

from ..commands import options
from ..commands.options import grouped, words_of
from ..commands.run import HowToRun
from ..display.screen import StatusLine, complain, counted, err, print_json, program, say, show, table
from ..errors import FLEET_INCOMPLETE, Interrupted, SuitesError, UsageError, unknown_name
from ..planning import suite as suites
from ..storing import spools
from . import going_on, schedulers, submission
from .fleet_options import Submitting, Where
from .schedulers.scheduler import RUNNING, WAITING, Scheduler
from .standing import AT_WORK, BROKEN, Standing, standings
from .submission import Submitter

fleet_app = typer.Typer(no_args_is_help=True, help="Measure a suite on many machines, into one store.")

_WATCH_SECONDS = 1.0, 10.0
"""The first pause between two looks, and the longest: each asks the scheduler and the store."""


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
    - `dlbench fleet run quick --on script --nodelist big1,big2 --folder jobs`
    """
    words = words_of(axes, launches, builds, how.of_each_job, conditions)
    if how.resume:
        _resume(name, where, how, words)
        return
    on = where.scheduler()
    if how.fleet is not None:
        raise UsageError("--fleet names a fleet to go on with. Give it together with --resume.")
    submission.check_target(how.store_file, several_machines=on != "local")
    options.choices(axes, launches, builds)
    suites.load(name)
    settings = {"python": sys.executable, **where.settings}
    id_ = submission.new_id()
    with Store.open(how.store_file) as store:
        folder = submission.folder_of(id_, how.folder)
        fleet = submission.new_fleet(id_, name, words, on, folder, settings)
        scheduler = schedulers.of(fleet)
        nodes = scheduler.nodes(where.nodes, where.named)
        fleets.begin(store, fleet)
        say(
            f"fleet {fleet.id}: {counted(len(nodes), 'job')} of {fleet.suite} for {', '.join(nodes)}, in {fleet.folder}"
        )
        jobs = [Job(number, node) for number, node in enumerate(nodes, 1)]
        _submit(Submitter(store, how.store_file, fleet, scheduler), jobs, how.wait)
        if on == "script":
            say("Give each script there to the scheduler of its node; `dlbench fleet status` shows what they measure.")


def _submit(submitter: Submitter, jobs: list[Job], wait: bool, refused: Sequence[str] = ()) -> None:
    """Submit jobs, and wait for them where that is asked for; exit with FLEET_INCOMPLETE where one broke."""
    refused = [*refused, *submitter.submit(jobs)]
    for line in refused:
        complain(line)
    found = _wait(submitter.store, submitter.fleet, submitter.scheduler) if wait else []
    if refused or any(each.state in BROKEN for each in found):
        raise typer.Exit(FLEET_INCOMPLETE)


def _resume(name: str, where: Where, how: Submitting, words: list[str]) -> None:
    if where.nodes is not None or how.folder is not None:
        raise UsageError("--nodes and --folder are not for --resume. Nodes that may take over: --nodelist.")
    spools.deliver_before(how.store_file, say)  # else a node may take what is measured already
    with Store.open(how.store_file, create=False) as store:
        fleet = _to_go_on_with(store, name, how.fleet, words)
        submission.check_target(how.store_file, several_machines=where.scheduler(fleet.scheduler) != "local")
        fleet = replace(fleet, settings=tuple({**dict(fleet.settings), **where.settings}.items()))
        scheduler = schedulers.of(fleet)
        others = scheduler.nodes(None, where.named) if where.named else []
        found = going_on.replacements(_standings(store, fleet, scheduler), store, scheduler, others)
        if not found.jobs and not found.refusals:
            say(f"Nothing is left to go on with: no job of fleet {fleet.id} ended early.")
            return
        # One that was lost may live where nobody sees it: it shall not measure beside its successor.
        replaced = {job.replaces for job in found.jobs}
        handles = [job.handle for job in fleets.jobs(store, fleet.id) if job.number in replaced and job.handle]
        try:
            scheduler.cancel(handles)
        except Interrupted:
            raise
        except SuitesError as error:
            say(f"What went before may still run: {error}")
        for line in found.lines:
            say(line)
        _submit(Submitter(store, how.store_file, fleet, scheduler), found.jobs, how.wait, found.refusals)


def _to_go_on_with(store: Store, suite: str, fleet_id: str | None, words: list[str]) -> Fleet:
    of_suite = [fleet for fleet in fleets.fleets(store) if fleet.suite == suite]
    if not of_suite:
        raise UsageError(f"{store.name} has no fleet of {suite}. Leave --resume out to start one.")
    fleet = next((each for each in of_suite if each.id == fleet_id), None) if fleet_id else of_suite[-1]
    if fleet is None:
        raise unknown_name(f"fleet of {suite}", fleet_id or "", [each.id for each in of_suite])
    if words and tuple(words) != fleet.words:
        raise UsageError(
            f"Fleet {fleet.id} was begun with other options: {' '.join(fleet.words) or 'none'}. Leave options out to "
            "go on with it, or leave --resume out to start another."
        )
    return fleet


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
            words = [program(), "fleet", "run", fleet.suite, "--resume", "--fleet", fleet.id]
            words += options.words_of_store(store_file)
            show(f"Go on: {shlex.join(words)}", whole=True)
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
        found = _standings(store, fleet, scheduler)
        seen = scheduler.seen([each.job.handle for each in found if each.job.handle])
        # One that is called lost, or was replaced, may still hold its node.
        alive = {handle for handle, each in seen.items() if each.state in (WAITING, RUNNING)}
        jobs = [each.job for each in found if each.state in AT_WORK or each.job.handle in alive]
        chosen = [job for job in jobs if job.handle and node in (None, job.node)]
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
    pause, longest = _WATCH_SECONDS
    with StatusLine(err) as line:
        while True:
            found = _standings(store, fleet, scheduler)
            at_work = [each for each in found if each.state in AT_WORK]
            if not at_work:
                return found
            done, planned = sum(each.launches for each in found), sum(each.job.planned or 0 for each in found)
            line.draw(f"  {counted(len(at_work), 'job')} at work, {done} of {planned or '?'} launches")
            time.sleep(pause)
            pause = min(1.5 * pause, longest)


def _row(each: Standing) -> list[str]:
    job = each.job
    launches = f"{each.launches} of {job.planned}" if job.planned else ""
    beat = "" if job.beat_age is None else f"{job.beat_age:.0f} s ago"
    return [str(job.number), job.node, each.state, launches, beat if each.state in AT_WORK else "", each.words]


def _data(fleet: Fleet, found: list[Standing]) -> dict[str, Any]:
    jobs = [{**asdict(each.job), "state": each.state, "words": each.words, "launches": each.launches} for each in found]
    return {**asdict(fleet), "started": fleet.started.isoformat(), "settings": dict(fleet.settings), "jobs": jobs}
