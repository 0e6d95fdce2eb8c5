"""A fleet and its jobs, stored in the fleet's folder.

The states of jobs come from the scheduler and the store. `Local` runs them on this machine, one
process tree each, to try a fleet without a cluster.
"""

import contextlib
import json
import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil
import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import Run
from dlbench.reports.results.storage import database, schema
from dlbench.reports.results.storage.store import Store

from ..environments import folders
from ..errors import FrameworkEnvironmentError, UsageError, unknown_name

AT_WORK = ("waiting", "running")
BROKEN = ("ended early", "not submitted")
"""A job in one of these states has no process, and launches of its run are missing."""
_FILE = "fleet.json"

Seen = tuple[str, str]
"""A scheduler's view of a job: its state, and the scheduler's own words.

The state is waiting, running, ended, gone (the scheduler does not know it) or unknown (the
scheduler does not answer now). The words are such as "PENDING (Resources)", or the reason why it
does not answer."""


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
    jobs: dict[str, str] = field(default_factory=dict)
    """The scheduler's name of each node's last job; empty until it was accepted."""
    errors: dict[str, str] = field(default_factory=dict)
    """Why the scheduler refused a node's job."""

    @classmethod
    def new(
        cls,
        suite: str,
        options: list[str],
        scheduler: str,
        settings: dict[str, str],
        folder: Path | None,
    ) -> "Fleet":
        """Make a fleet with a folder of its own; raises FrameworkEnvironmentError."""
        now = datetime.now(UTC)
        id_ = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        parent = folder.absolute() if folder else folders.fleets()
        place = folders.make_folder(parent / id_)
        if place.parent != folders.fleets():  # found again by its id, wherever its logs are
            link = folders.make_folder(folders.fleets()) / id_
            with folders.written(link.parent):
                link.symlink_to(place)
        return cls(id_, suite, options, scheduler, str(place), now.isoformat(), settings)

    def save(self) -> None:
        """Write the description to the fleet's folder; raises FrameworkEnvironmentError."""
        with folders.written(Path(self.folder)):
            folders.write_whole(Path(self.folder) / _FILE, json.dumps(asdict(self), indent=1))


def chosen(id_: str | None, suite: str | None = None) -> Fleet:
    """Return the fleet with this id, or the newest one submitted from this machine.

    If a suite is named, it is one of that suite. Raises UsageError.
    """
    fleets = []
    for path in sorted(folders.fleets().glob(f"*/{_FILE}")):
        try:
            fleet = TypeAdapter(Fleet).validate_json(path.read_bytes())
        except (OSError, ValidationError):  # a folder that is being removed, or not a fleet's
            continue
        if suite in (None, fleet.suite):
            fleets.append(fleet)
    if not fleets:
        scope = f" of {suite}" if suite else ""
        raise UsageError(
            f"No fleet{scope} was submitted from this folder. `dlbench fleet run` starts one."
        )
    if id_ is None:
        return fleets[-1]
    by_id = {fleet.id: fleet for fleet in fleets}
    if id_ not in by_id:
        raise unknown_name("fleet", id_, by_id)
    return by_id[id_]


class JobStatus(NamedTuple):
    """A job's state, and its progress by the store. It has a field for each JSON key."""

    job: int
    """Its number in the fleet, from 1."""
    node: str
    handle: str | None
    """The scheduler's name of it; None where it was not submitted."""
    error: str
    """Why it was not submitted, or empty."""
    state: str
    text: str
    launches: int
    """Launches in the store."""
    planned: int | None
    """None before the run begins."""
    newest: str
    """When its newest record started (ISO 8601 in UTC), or empty."""


def statuses(fleet: Fleet, seen: Mapping[str, Seen], store: Store) -> list[JobStatus]:
    """Return each job's state, and its progress by the store: launches and newest record.

    Raises StoreError.
    """
    runs: dict[str, Run] = {}
    for run in store.runs():
        if run.node is not None and run.node.fleet == fleet.id:
            runs[run.node.name] = run
    table = schema.records.c
    query = (
        sa.select(table.run, sa.func.count(), sa.func.max(table.started))
        .where(table.run.in_([run.id for run in runs.values()]))
        .group_by(table.run)
    )
    with database.explained(store.name), store.engine.connect() as connection:
        progress = {id_: (count, newest) for id_, count, newest in connection.execute(query)}
    rows: list[JobStatus] = []
    for number, (node, handle) in enumerate(fleet.jobs.items(), start=1):
        error = fleet.errors.get(node, "")
        finished = False
        planned = None
        launches, newest = 0, ""
        if node in runs:
            run = runs[node]
            finished = run.finished is not None
            planned = len(run.plan) * run.launches
            launches, newest = progress.get(run.id, (0, ""))
        state, text = job_state(seen.get(handle), error, finished)
        rows.append(
            JobStatus(number, node, handle or None, error, state, text, launches, planned, newest)
        )
    return rows


def job_state(seen: Seen | None, error: str, finished: bool) -> tuple[str, str]:
    """Return a job's state and the words for it, from the scheduler's view and its run's end."""
    if finished:
        return "finished", ""
    if seen is None:
        return "not submitted", error
    state, text = seen
    if state == "gone":
        return "ended early", "the scheduler no longer knows it"
    return "ended early" if state == "ended" else state, text


_NODE = re.compile(r"local-[1-9][0-9]*")
_SAME_START_SECONDS = 2.0
"""The clock may be set meanwhile; a process id is not reused that soon."""


class Local:
    """Jobs of this machine; a handle is a process id, its start time and the node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Referenced, so that ended ones are collected.
        self._processes: list[subprocess.Popen[bytes]] = []

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        """Return local-1, local-2, ...: as many as are asked for, else one."""
        for name in named:
            if not _NODE.fullmatch(name):
                raise UsageError(
                    f"There is no node {name!r}: this machine's are called local-1, local-2 and so "
                    "on."
                )
        pool = list(dict.fromkeys(named))
        if not pool:
            pool = [f"local-{number}" for number in range(1, (count or 1) + 1)]
        if count is not None and len(pool) < count:
            raise UsageError(f"{counted(count, 'node')} asked for, {len(pool)} named.")
        return pool[:count]

    def submit(self, node: str, command: Sequence[str]) -> str:
        """Start a job in a session of its own.

        It outlives this process and its terminal, as a cluster's jobs do.
        """
        try:
            with self.log(node).open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._processes.append(process)
            return f"{process.pid}:{psutil.Process(process.pid).create_time():.2f}:{node}"
        except (OSError, psutil.Error) as error:
            raise FrameworkEnvironmentError(
                f"The job on {node} could not be started: {error}."
            ) from error

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        """Return whether each job's process exists."""
        views: dict[str, Seen] = {}
        for handle in handles:
            state = "ended" if _process(handle) is None else "running"
            views[handle] = (state, "")
        return views

    def cancel(self, handles: Sequence[str]) -> None:
        """End each job by SIGTERM."""
        for handle in handles:
            process = _process(handle)
            if process is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()

    def log(self, handle: str) -> Path:
        """Return the file that the job writes to."""
        return self._folder / f"{handle.rpartition(':')[2]}.log"


def _process(handle: str) -> psutil.Process | None:
    """Return a job's process; None where it has ended."""
    number, started, _ = handle.split(":")
    try:
        process = psutil.Process(int(number))
        same = abs(process.create_time() - float(started)) <= _SAME_START_SECONDS
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None
