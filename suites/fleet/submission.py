"""From a suite and nodes to jobs in a scheduler's hands, and again for what jobs that ended early left."""

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlbench.reports.storage.servers import fleets, urls
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store

from ..environments import folders
from ..errors import UsageError
from ..measuring import preparation
from .membership import cells_not_begun
from .schedulers.scheduler import Scheduler, Wanted
from .standing import BROKEN, Standing


@dataclass(frozen=True)
class Submitter:
    """What all submissions of one fleet share."""

    store: Store
    target: str
    """The store's name, as it was given."""
    fleet: Fleet
    scheduler: Scheduler

    def submit(self, job: Job) -> str:
        """Keep a job and give it to the scheduler; return its handle. Raises what the scheduler raises, StoreError."""
        fleets.add_job(self.store, self.fleet.id, job)
        handle = self.scheduler.submit(Wanted(job.number, job.node, self._command(job.number)))
        fleets.note(self.store, self.fleet.id, job.number, handle=handle)
        return handle

    def _command(self, number: int) -> tuple[str, ...]:
        python = dict(self.fleet.settings)["python"]
        called = (python, "-m", "dlbench.suites", "run", self.fleet.suite, *self.fleet.words)
        # A password stays in the environment, which others on a node cannot read.
        where = () if os.environ.get("DLBENCH_STORE") == self.target else ("--store", self.target)
        return (*called, *where, "--job", f"{self.fleet.id}/{number}")


def new_id() -> str:
    """Return an id for a fleet, the time first."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def new_fleet(
    id_: str, suite: str, words: Sequence[str], scheduler: str, folder: Path, settings: Sequence[tuple[str, str]]
) -> Fleet:
    """Return a fleet that begins now, in no store yet."""
    told = id_, suite, tuple(words), scheduler, str(folder), preparation.version(), datetime.now(UTC)
    return Fleet(*told, settings=tuple(settings))


def folder_of(id_: str, given: Path | None) -> Path:
    """Make and return the folder of a fleet's files; raises FrameworkEnvironmentError."""
    return folders.make_folder((given.absolute() if given else folders.fleets()) / id_)


def check_target(target: str, several_machines: bool) -> None:
    """Raise UsageError for a store that jobs cannot be told of, or that machines cannot share."""
    if urls.is_served(target):
        if os.environ.get("DLBENCH_STORE") != target and urls.without_password(target) != target:
            raise UsageError(
                "A password in --store would stand in every job's command, where others can read it. Put it into "
                "~/.pgpass, PGPASSWORD or DLBENCH_STORE."
            )
    elif several_machines:
        raise UsageError(
            f"{target} is a file, and several machines cannot write to one SQLite file safely. Name a database on a "
            "server: --store postgresql+psycopg://USER@HOST/DATABASE (suites/README.md, A store on a server)."
        )


def replacements(standings: Sequence[Standing], store: Store, scheduler: Scheduler, others: Sequence[str]) -> list[Job]:
    """Return the jobs that go on with what broken ones left, in order; raises UsageError where no node can.

    A job goes on with all of it on its own node. Where that is not usable, another of the same kind takes the cells
    that were not begun: one of ``others``, else a node of the fleet whose own job has ended.
    """
    found: list[Job] = []
    number = max((each.job.number for each in standings), default=0)
    spare = _spare(standings, others)
    for each in standings:
        if each.state not in BROKEN:
            continue
        number += 1
        if not others and scheduler.usable(each.job.node):
            found.append(Job(number, each.job.node, replaces=each.job.number))
            continue
        run = store.run(each.job.run) if each.job.run else None
        if run is not None and not cells_not_begun(store, run):
            raise UsageError(
                f"Node {each.job.node} cannot be used now, and it began every cell of its run: no other node can go on "
                "with them. Try again once it is back."
            )
        node = _taken(spare, each, scheduler)
        if node is None:
            raise UsageError(
                f"Node {each.job.node} cannot be used now, and no other node of its kind is free. Name one with "
                "--nodelist, or try again once it is back."
            )
        found.append(Job(number, node, replaces=each.job.number))
    return found


def _spare(standings: Sequence[Standing], others: Sequence[str]) -> dict[str, str | None]:
    """Return the nodes that may take over, with their fingerprints where these are known."""
    known = {each.job.node: each.job.machine for each in standings if each.job.machine}
    if others:
        return {node: known.get(node) for node in others}
    unsound = {each.job.node for each in standings if each.state in BROKEN}
    return {node: machine for node, machine in known.items() if node not in unsound}


def _taken(spare: dict[str, str | None], broken: Standing, scheduler: Scheduler) -> str | None:
    """Take a usable node of the broken job's kind; one that nothing is known of is tried, and looked at there."""
    for node, machine in list(spare.items()):
        alike = machine is None or broken.job.machine is None or machine == broken.job.machine
        if alike and scheduler.usable(node):
            del spare[node]
            return node
    return None
