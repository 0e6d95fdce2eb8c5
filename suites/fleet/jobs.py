"""A fleet and its jobs: kept in its folder, and their states from the scheduler and the store's newest records."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from dlbench.reports.storage import database, schema
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.store import Store

from ..environments import folders
from ..errors import UsageError, unknown_name

State = Literal["waiting", "running", "finished", "ended early", "not submitted", "unknown"]
AT_WORK = frozenset({"waiting", "running"})
BROKEN = frozenset({"ended early", "not submitted"})
"""A job in one of these states has no process, and launches of its run are missing."""
_FILE = "fleet.json"


class Seen(NamedTuple):
    """A scheduler's view of a job."""

    state: Literal["waiting", "running", "ended", "gone", "unknown"]
    """``gone``: the scheduler does not know the job, or no longer; ``unknown``: it cannot be asked now."""
    text: str = ""
    """The scheduler's own words, such as "PENDING (Resources)", or why it cannot be asked."""


class Scheduler(Protocol):
    """Starts jobs; every method may be called from another process than the one that submitted them."""

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return the nodes to use; raises UsageError where one cannot be used, or where there are too few."""
        ...

    def submit(self, node: str, command: Sequence[str]) -> str:
        """Start a job on a node and return its handle; raises SuitesError where it is refused."""
        ...

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return the view of each of these jobs; raises nothing."""
        ...

    def cancel(self, handles: Sequence[str]) -> None:
        """End these jobs by SIGTERM without waiting; raises SuitesError where that cannot be done."""
        ...

    def log(self, handle: str) -> Path:
        """Return the file of a job's output and errors, which may not exist yet."""
        ...


@dataclass
class Job:
    """One node's job, as it was submitted last."""

    node: str
    handle: str | None = None
    """The scheduler's name of it; None until it was accepted."""
    error: str = ""
    """Why the scheduler refused it."""


@dataclass
class Fleet:
    """One `dlbench fleet run`."""

    id: str
    suite: str
    options: list[str]
    """Options of `dlbench run`, the same on every node."""
    scheduler: str
    folder: str
    """Holds this description, and the jobs' logs."""
    started: str
    settings: dict[str, str] = field(default_factory=dict)
    """The scheduler's own options, such as a partition."""
    jobs: list[Job] = field(default_factory=list)

    @classmethod
    def new(
        cls, suite: str, options: list[str], scheduler: str, settings: dict[str, str], folder: Path | None
    ) -> "Fleet":
        """Make a fleet with a folder of its own; raises FrameworkEnvironmentError where that cannot be made."""
        now = datetime.now(UTC)
        id_ = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        place = folders.make_folder((folder.absolute() if folder else folders.fleets()) / id_)
        made = cls(id_, suite, options, scheduler, str(place), now.isoformat(), settings)
        if place.parent != folders.fleets():  # found again by its id, wherever its logs are
            link = folders.make_folder(folders.fleets()) / id_
            with folders.written(link.parent):
                link.symlink_to(place)
        return made

    def save(self) -> None:
        """Write the description to the fleet's folder; raises FrameworkEnvironmentError."""
        with folders.written(Path(self.folder)):
            folders.write_whole(Path(self.folder) / _FILE, json.dumps(asdict(self), indent=1))


def fleets() -> list[Fleet]:
    """Return the fleets that were submitted from this machine, the oldest first."""
    found = []
    for path in sorted(folders.fleets().glob(f"*/{_FILE}")):
        try:
            found.append(TypeAdapter(Fleet).validate_json(path.read_bytes()))
        except (OSError, ValidationError):  # a folder that is being removed, or not a fleet's
            continue
    return found


def chosen(id_: str | None, suite: str | None = None) -> Fleet:
    """Return the fleet with this id, or the newest, of a suite where one is named; raises UsageError."""
    found = [fleet for fleet in fleets() if suite in (None, fleet.suite)]
    if not found:
        of_suite = f" of {suite}" if suite else ""
        raise UsageError(f"No fleet{of_suite} was submitted from here. `dlbench fleet run` starts one.")
    fleet = found[-1] if id_ is None else next((each for each in found if each.id == id_), None)
    if fleet is None:
        raise unknown_name("fleet", id_ or "", [each.id for each in found])
    return fleet


@dataclass(frozen=True)
class JobStatus:
    """The state of one job, and its progress by the store."""

    job: Job
    state: State
    text: str = ""
    launches: int = 0
    """Records in the store."""
    planned: int | None = None
    """Launches of its run; None until the store has it."""
    newest: str = ""
    """Start of its newest record, in ISO 8601."""


def statuses(fleet: Fleet, scheduler: Scheduler, store: Store) -> list[JobStatus]:
    """Return the status of each job; raises StoreError."""
    seen = scheduler.seen([job.handle for job in fleet.jobs if job.handle])
    runs = newest_runs(store, fleet.id)
    table = schema.records.c
    asked = (
        sa.select(table.run, sa.func.count(), sa.func.max(table.started))
        .where(table.run.in_([run.id for run in runs.values()]))
        .group_by(table.run)
    )
    with database.explained(store.name), store.engine.connect() as connection:
        counted = {run: (count, newest) for run, count, newest in connection.execute(asked)}
    return [_status(job, seen, runs.get(job.node), counted) for job in fleet.jobs]


def newest_runs(store: Store, fleet: str) -> dict[str, Run]:
    """Return the newest run of each node of a fleet."""
    return {run.node.name: run for run in store.runs() if run.node is not None and run.node.fleet == fleet}


def _status(job: Job, seen: Mapping[str, Seen], run: Run | None, counted: Mapping[str, tuple[int, str]]) -> JobStatus:
    launches, newest = counted.get(run.id, (0, "")) if run else (0, "")
    planned = len(run.plan) * run.launches if run else None
    state, text = _state(job, seen.get(job.handle or ""), run is not None and run.finished is not None)
    return JobStatus(job, state, text, launches, planned, newest)


def _state(job: Job, seen: Seen | None, finished: bool) -> tuple[State, str]:
    if finished:
        return "finished", ""
    if seen is None:
        return "not submitted", job.error
    if seen.state == "gone":
        return "ended early", "the scheduler no longer knows it"
    return ("ended early" if seen.state == "ended" else seen.state), seen.text
