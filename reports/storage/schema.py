"""The tables of the store as this version of dlbench knows them, and the way there.

A new store runs every migration of `migrations` from the first; an old one those it lacks, in one transaction, and
``schema_history`` says which ran when.

Times are ISO 8601 text in UTC, which sorts as time does in every database. Records, runs, machines and sentinels are
JSON text in ``content`` or ``description``; the columns beside them are for choosing rows, and for people with an SQL
prompt. In ``records`` five columns are caches, derived when the record is appended and derivable again
(`Store.rederive`): ``cell_id``; ``seconds``, the launch's median seconds per step; ``contended`` (1, 0, null: its
evidence is silent); ``product_rate``, see `record_columns.product_rate`; ``effective``, 1 for the one attempt of a
launch that counts (see `attempts`).
"""

from datetime import UTC, datetime

from sqlalchemy import Column, Connection, Integer, String, Table, Text, insert, select

from dlbench.reports.storage.migrations import MIGRATIONS, tables

TABLES = tables(MIGRATIONS[-1].version)
machines, ceilings, runs, cells, sentinels, records, fleets, fleet_jobs = (
    TABLES.tables[name]
    for name in ("machines", "ceilings", "runs", "cells", "sentinels", "records", "fleets", "fleet_jobs")
)
schema_history = Table(
    "schema_history",
    TABLES,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("what", Text, nullable=False),
    Column("applied", String(40), nullable=False),
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
