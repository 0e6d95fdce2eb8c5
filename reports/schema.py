"""The tables of the store, and the migrations that lead to them, in order.

A new store runs every migration from the first; an old one those it lacks, in one transaction, and
``schema_history`` says which ran when. A migration, once released, is never edited: it holds its own copy of
the tables it creates, so that a later change does not alter the past.

Times are ISO 8601 text in UTC, which sorts as time does in every database. Cells, outcomes and machines are
JSON text; the columns beside them are for choosing rows, and for people with an SQL prompt.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    insert,
    select,
)

TABLES = MetaData()

schema_history = Table(
    "schema_history",
    TABLES,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("what", Text, nullable=False),
    Column("applied", String(40), nullable=False),
)
machines = Table(
    "machines",
    TABLES,
    Column("fingerprint", String(128), primary_key=True),
    Column("description", Text, nullable=False),
)
ceilings = Table(
    "ceilings",
    TABLES,
    Column("fingerprint", String(128), primary_key=True),
    Column("content", Text, nullable=False),
)
runs = Table(
    "runs",
    TABLES,
    Column("id", String(128), primary_key=True),
    Column("suite", String(128), nullable=False),
    Column("machine", String(128), nullable=False),
    Column("started", String(40), nullable=False),
    Column("finished", String(40)),
    Column("content", Text, nullable=False),
)
records = Table(
    "records",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String(128), nullable=False),
    Column("suite", String(128), nullable=False),
    Column("machine", String(128), nullable=False),
    Column("launch", Integer, nullable=False),
    Column("framework", String(128), nullable=False),
    Column("mode", String(128), nullable=False),
    Column("network", String(128), nullable=False),
    Column("device", String(128), nullable=False),
    Column("threads", Integer, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("environment", String(128), nullable=False),
    Column("started", String(40), nullable=False),
    Column("wall_seconds", Float, nullable=False),
    Column("content", Text, nullable=False),
    Index("records_by_run", "run"),
    Index("records_by_machine", "machine", "suite"),
)


class Migration(NamedTuple):
    """One step from a schema version to the next."""

    version: int
    what: str
    upgrade: Callable[[Connection], None]


def _first(connection: Connection) -> None:
    # While version 1 is the newest, its tables are the current ones; the first change of TABLES copies them
    # here.
    TABLES.create_all(connection, tables=[machines, ceilings, runs, records])


MIGRATIONS: tuple[Migration, ...] = (Migration(1, "machines, ceilings, runs and records", _first),)


def newest_version() -> int:
    """Return the schema version that this dlbench writes."""
    return MIGRATIONS[-1].version


def stored_version(connection: Connection) -> int:
    """Return the schema version of an opened store; 0 where it has no history yet."""
    if not connection.dialect.has_table(connection, schema_history.name):
        return 0
    versions = connection.execute(select(schema_history.c.version)).scalars().all()
    return max(versions, default=0)


def migrate(connection: Connection) -> None:
    """Apply, within the connection's transaction, the migrations that the store lacks."""
    present = stored_version(connection)
    if present == newest_version():
        return
    schema_history.create(connection, checkfirst=True)
    for migration in MIGRATIONS:
        if migration.version > present:
            migration.upgrade(connection)
            connection.execute(
                insert(schema_history).values(
                    version=migration.version, what=migration.what, applied=datetime.now(UTC).isoformat()
                )
            )
