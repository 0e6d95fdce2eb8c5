"""Fleets in a store: what each was asked for, and what is known of its jobs.

A job is one run of the fleet's suite on one node. It tells that it lives by a heartbeat, by the clock of the database:
the clocks of a hundred machines differ.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from dlbench.reports.errors import StoreError
from dlbench.reports.storage import database, schema
from dlbench.reports.storage.store import Store

_jobs = schema.fleet_jobs


@dataclass(frozen=True)
class Fleet:
    """What was asked for, once for all of its jobs."""

    id: str
    suite: str
    words: tuple[str, ...]
    """The further words of `dlbench run`, the same on every node."""
    scheduler: str
    folder: str
    """Where the scheduler keeps files and logs, on the machine that submitted."""
    version: str
    """Of dlbench, where it was submitted."""
    started: datetime
    settings: tuple[tuple[str, str], ...] = ()
    """The scheduler's own, such as a partition."""


@dataclass(frozen=True)
class Job:
    """One job of a fleet, as the store knows it."""

    number: int
    """From 1, in the order of submission."""
    node: str
    """The one it was submitted for; once it has begun the one that it is on."""
    handle: str | None = None
    """What the scheduler calls it; None until it took it."""
    run: str | None = None
    """The run that it measures; None until it has begun one."""
    machine: str | None = None
    """The node's fingerprint; None until it has begun."""
    beat_age: float | None = None
    """Seconds since its last heartbeat; None before the first."""
    ending: str | None = None
    """How it ended, in words; None: it has not said so."""
    planned: int | None = None
    """Launches of its run; None until it has begun one."""
    replaces: int | None = None
    """The number of a job that ended early: this one measures what that one left."""


def begin(store: Store, fleet: Fleet) -> None:
    """Keep a fleet; raises StoreError."""
    content = json.dumps({name: value for name, value in asdict(fleet).items() if name not in ("id", "started")})
    row = {"id": fleet.id, "started": fleet.started.astimezone(UTC).isoformat(), "content": content}
    with database.writing(store.engine, store.name) as connection:
        connection.execute(sa.insert(schema.fleets).values(row))


def add_job(store: Store, fleet: str, job: Job) -> None:
    """Keep a job that is about to be submitted; raises StoreError."""
    row = {"fleet": fleet, "number": job.number, "node": job.node, "replaces": job.replaces}
    with database.writing(store.engine, store.name) as connection:
        connection.execute(sa.insert(_jobs).values(row))


def note(store: Store, fleet: str, number: int, **told: str | int | None) -> None:
    """Keep what is new of a job, by the names of its columns. Raises StoreError."""
    _write(store, fleet, number, told)


def beat(store: Store, fleet: str, number: int) -> None:
    """Note that a job lives; raises StoreError."""
    _write(store, fleet, number, {"heartbeat": sa.func.current_timestamp()})


def _write(store: Store, fleet: str, number: int, values: Mapping[str, Any]) -> None:
    chosen = _jobs.c.fleet == fleet, _jobs.c.number == number
    with database.writing(store.engine, store.name) as connection:
        if connection.execute(sa.update(_jobs).where(*chosen).values(values)).rowcount == 0:
            raise StoreError(f"The store {store.name} has no job {number} of fleet {fleet}.")


def fleets(store: Store) -> list[Fleet]:
    """Return every fleet, the oldest first; raises StoreError."""
    with database.explained(store.name), store.engine.connect() as connection:
        rows = connection.execute(sa.select(schema.fleets)).all()
    return sorted((_fleet(store, row) for row in rows), key=lambda each: (each.started, each.id))


def jobs(store: Store, fleet: str) -> list[Job]:
    """Return the jobs of a fleet in the order of their numbers; raises StoreError."""
    now = sa.func.current_timestamp(type_=_jobs.c.heartbeat.type).label("now")
    asked = sa.select(_jobs, now).where(_jobs.c.fleet == fleet).order_by(_jobs.c.number)
    with database.explained(store.name), store.engine.connect() as connection:
        rows = connection.execute(asked).all()
    return [_job(row) for row in rows]


def job(store: Store, fleet: str, number: int) -> Job:
    """Return one job; raises StoreError where there is none."""
    found = next((each for each in jobs(store, fleet) if each.number == number), None)
    if found is None:
        raise StoreError(f"The store {store.name} has no job {number} of fleet {fleet}.")
    return found


def left_by(of_fleet: Sequence[Job], job: Job) -> str | None:
    """Return the run that a job goes on with: its own, or that of the job it replaces, and so on; None without any."""
    of_number = {each.number: each for each in of_fleet}
    while job.run is None and job.replaces in of_number:
        job = of_number[job.replaces]
    return job.run


def launches(store: Store, runs: Sequence[str]) -> dict[str, int]:
    """Return how many records each of these runs has; a run without any is missing. Raises StoreError."""
    run = schema.records.c.run
    asked = sa.select(run, sa.func.count()).where(run.in_(runs)).group_by(run)
    with database.explained(store.name), store.engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(asked)}


def finished(store: Store, runs: Sequence[str]) -> set[str]:
    """Return which of these runs came to their end; raises StoreError."""
    table = schema.runs.c
    asked = sa.select(table.id).where(table.id.in_(runs), table.finished.is_not(None))
    with database.explained(store.name), store.engine.connect() as connection:
        return set(connection.execute(asked).scalars())


def _fleet(store: Store, row: Any) -> Fleet:
    try:
        told = json.loads(row.content)
        return Fleet(
            row.id,
            told["suite"],
            tuple(told["words"]),
            told["scheduler"],
            told["folder"],
            told["version"],
            datetime.fromisoformat(row.started),
            tuple((name, value) for name, value in told["settings"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise database.damaged(store.name) from error


def _job(row: Any) -> Job:
    age = None if row.heartbeat is None else max(0.0, (row.now - row.heartbeat).total_seconds())
    told = (row.number, row.node, row.handle, row.run, row.machine)
    return Job(*told, age, row.ending, row.planned, row.replaces)
