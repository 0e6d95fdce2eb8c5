"""The tables of the store as this version of dlbench knows them, and the way there.

A new store runs every migration of `migrations` from the first; an old one those it lacks, in one transaction, and
``schema_history`` says which ran when.

Times are ISO 8601 text in UTC, which sorts as time does in every database. Records, runs, machines and sentinels are
JSON text in ``content`` or ``description``; the columns beside them are for choosing rows, and for people with an SQL
prompt. In ``records`` five columns are caches, derived when the record is appended and derivable again
(`Store.rederive`): ``cell_id``; ``seconds``, the launch's median seconds per step; ``contended`` (1, 0, null: its
evidence is silent); ``product_rate``, see `derived.product_rate`; ``effective``, 1 for the one attempt of a launch
that counts (see `medians`).
"""

from datetime import UTC, datetime

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
    UniqueConstraint,
    insert,
    select,
)

from dlbench.reports.storage.migrations import MIGRATIONS

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
    Column("purpose", String(32), nullable=False, server_default="suite"),
)
cells = Table(
    "cells",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("machine", String(128), nullable=False),
    Column("framework", String(128), nullable=False),
    Column("adapter", String(64), nullable=False),
    Column("mode", String(128), nullable=False),
    Column("network", String(128), nullable=False),
    Column("device", String(64), nullable=False),
    Column("threads", Integer, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("precision", String(32), nullable=False),
    Column("placement", String(32), nullable=False),
    Column("affinity", String(32), nullable=False),
    Column("world_size", Integer, nullable=False, server_default="1"),
    Column("further", Text, nullable=False, server_default=""),
    UniqueConstraint(
        "machine",
        "framework",
        "adapter",
        "mode",
        "network",
        "device",
        "threads",
        "batch_size",
        "precision",
        "placement",
        "affinity",
        "world_size",
        "further",
        name="one_number_for_each_cell",
    ),
)
sentinels = Table(
    "sentinels",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run", String(128), nullable=False),
    Column("block", Integer, nullable=False),
    Column("moment", String(16), nullable=False),
    Column("content", Text, nullable=False),
    Index("sentinels_by_run", "run"),
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
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("side", String(32), nullable=False, server_default=""),
    Column("stage", String(32), nullable=False, server_default=""),
    Column("cell_id", Integer),
    Column("seconds", Float),
    Column("contended", Integer),
    Column("product_rate", Float),
    Column("effective", Integer, nullable=False, server_default="1"),
    Index("records_by_machine", "machine", "suite"),
    # Each holds all that its queries read, so that a report over a million records does not touch their content.
    Index(
        "records_by_launch",
        *("run", "cell_id", "side", "environment", "stage", "launch", "effective", "status", "contended", "seconds"),
    ),
    Index("records_by_cell", "cell_id", "started", "status", "side", "environment", "suite", "product_rate"),
)


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
