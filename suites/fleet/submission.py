"""From a suite and nodes to jobs in a scheduler's hands."""

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dlbench.reports.storage.servers import fleets, urls
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store

from ..environments import folders
from ..errors import Interrupted, SuitesError, UsageError
from ..run import preparation
from .schedulers.scheduler import Scheduler, Wanted


@dataclass(frozen=True)
class Submitter:
    """What all submissions of one fleet share."""

    store: Store
    target: str
    """The store's name, as it was given."""
    fleet: Fleet
    scheduler: Scheduler

    def submit(self, jobs: Sequence[Job]) -> list[str]:
        """Keep jobs, then give each to the scheduler; return what it said of those it refused. Raises StoreError."""
        for job in jobs:  # all of them, so that none is forgotten where one is refused
            fleets.add_job(self.store, self.fleet.id, job)
        refused = []
        for job in jobs:
            try:
                handle = self.scheduler.submit(Wanted(job.number, job.node, self._command(job.number)))
            except Interrupted:
                raise
            except SuitesError as error:
                refused.append(str(error))
                fleets.note(self.store, self.fleet.id, job.number, ending=f"it was not submitted: {error}")
                continue
            fleets.note(self.store, self.fleet.id, job.number, handle=handle)
        return refused

    def _command(self, number: int) -> tuple[str, ...]:
        python = dict(self.fleet.settings)["python"]
        called = (python, "-m", "dlbench.suites", "run", self.fleet.suite, *self.fleet.words)
        # A password stays in the environment, which others on a node cannot read.
        where = () if urls.has_password(self.target) else ("--store", self.target)
        return (*called, *where, "--job", f"{self.fleet.id}/{number}")


def new_id() -> str:
    """Return an id for a fleet, the time first."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def new_fleet(
    id_: str, suite: str, words: Sequence[str], scheduler: str, folder: Path, settings: Mapping[str, str]
) -> Fleet:
    """Return a fleet that begins now, in no store yet."""
    told = id_, suite, tuple(words), scheduler, str(folder), preparation.version(), datetime.now(UTC)
    return Fleet(*told, settings=tuple(settings.items()))


def folder_of(id_: str, given: Path | None) -> Path:
    """Make and return the folder of a fleet's files; raises FrameworkEnvironmentError."""
    return folders.make_folder((given.absolute() if given else folders.fleets()) / id_)


def check_target(target: str, several_machines: bool) -> None:
    """Raise UsageError for a store that jobs cannot be told of, or that machines cannot share."""
    if urls.is_served(target):
        if urls.has_password(target) and os.environ.get("DLBENCH_STORE") != target:
            raise UsageError(
                "A password in --store would stand in every job's command, where others can read it. Put it into "
                "~/.pgpass, PGPASSWORD or DLBENCH_STORE."
            )
    elif several_machines:
        raise UsageError(
            f"{target} is a file, and several machines cannot write to one SQLite file safely. Name a database on a "
            "server: --store postgresql+psycopg://USER@HOST/DATABASE (suites/README.md, A store on a server)."
        )
