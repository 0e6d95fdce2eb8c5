"""The migrations of the store, in order.

A migration, once released, is never edited: it holds its own copy of the tables that it creates or changes, so that a
later change of `schema` does not alter the past.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
    text,
    update,
)
from sqlalchemy.schema import CreateColumn

from dlbench.reports.storage import record_columns
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import Run


class Migration(NamedTuple):
    """One step from a schema version to the next."""

    version: int
    what: str
    upgrade: Callable[[Connection], None]


def _tables_of_version_1() -> MetaData:
    tables = MetaData()
    Table(
        "machines",
        tables,
        Column("fingerprint", String(128), primary_key=True),
        Column("description", Text, nullable=False),
    )
    Table(
        "ceilings",
        tables,
        Column("fingerprint", String(128), primary_key=True),
        Column("content", Text, nullable=False),
    )
    Table(
        "runs",
        tables,
        Column("id", String(128), primary_key=True),
        Column("suite", String(128), nullable=False),
        Column("machine", String(128), nullable=False),
        Column("started", String(40), nullable=False),
        Column("finished", String(40)),
        Column("content", Text, nullable=False),
    )
    Table(
        "records",
        tables,
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
    return tables


def _first(connection: Connection) -> None:
    _tables_of_version_1().create_all(connection)


def _columns_new_in_version_2() -> tuple[list[Column[Any]], list[Column[Any]]]:
    """Return those of runs, and those of records."""
    of_runs: list[Column[Any]] = [Column("purpose", String(32), nullable=False, server_default="suite")]
    of_records: list[Column[Any]] = [
        Column("attempt", Integer, nullable=False, server_default="0"),
        Column("side", String(32), nullable=False, server_default=""),
        Column("stage", String(32), nullable=False, server_default=""),
        Column("cell_id", Integer),
        Column("seconds", Float),
        Column("contended", Integer),
        Column("product_rate", Float),
        Column("effective", Integer, nullable=False, server_default="1"),
    ]
    return of_runs, of_records


def _second(connection: Connection) -> None:
    tables = _tables_of_version_1()
    runs, records = tables.tables["runs"], tables.tables["records"]
    added = MetaData()
    of_a_cell = ("machine", "framework", "adapter", "mode", "network", "device")
    lengths = (128, 128, 64, 128, 128, 64)
    cells = Table(
        "cells",
        added,
        Column("id", Integer, primary_key=True, autoincrement=True),
        *(Column(name, String(length), nullable=False) for name, length in zip(of_a_cell, lengths, strict=True)),
        *(Column(name, Integer, nullable=False) for name in ("threads", "batch_size")),
        *(Column(name, String(32), nullable=False) for name in ("precision", "placement", "affinity")),
        UniqueConstraint(
            *of_a_cell,
            *("threads", "batch_size", "precision", "placement", "affinity"),
            name="one_number_for_each_cell",
        ),
    )
    Table(
        "sentinels",
        added,
        Column("id", Integer, primary_key=True, autoincrement=True),
        Column("run", String(128), nullable=False),
        Column("block", Integer, nullable=False),
        Column("moment", String(16), nullable=False),
        Column("content", Text, nullable=False),
        Index("sentinels_by_run", "run"),
    )
    added.create_all(connection)
    for table, columns in zip((runs, records), _columns_new_in_version_2(), strict=True):
        for column in columns:
            described = CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {described}"))
            table.append_column(column)
    _fill_version_2(connection, tables, cells)
    by_launch = "run cell_id side environment stage launch effective status contended seconds"
    by_cell = "cell_id started status side environment suite product_rate"
    for name, of_index in (("records_by_launch", by_launch), ("records_by_cell", by_cell)):
        Index(name, *(records.c[column] for column in of_index.split())).create(connection)
    next(index for index in records.indexes if index.name == "records_by_run").drop(connection)


def _fill_version_2(connection: Connection, tables: MetaData, cells: Table) -> None:
    runs, records, machines = (tables.tables[name] for name in ("runs", "records", "machines"))
    for row in connection.execute(select(runs.c.id, runs.c.content)).all():
        purpose = Run.from_dict(record_columns.parse("run", row.content)).purpose
        connection.execute(update(runs).where(runs.c.id == row.id).values(purpose=purpose))
    hosts = {
        row.fingerprint: read_host(row.fingerprint, record_columns.parse("machine", row.description))
        for row in connection.execute(select(machines)).all()
    }
    # Which attempt is effective needs no thought: a record of version 1 is its launch's only one.
    names = ("attempt", "side", "stage", "seconds", "contended", "product_rate")
    record_columns.refill(connection, records, record_columns.CellNumbers(cells), hosts, names)


def _cells_of_version_3(tables: MetaData) -> Table:
    texts = ("machine", "framework", "adapter", "mode", "network", "device")
    lengths = (128, 128, 64, 128, 128, 64)
    numbers, kinds = ("threads", "batch_size"), ("precision", "placement", "affinity")
    return Table(
        "cells",
        tables,
        Column("id", Integer, primary_key=True, autoincrement=True),
        *(Column(name, String(length), nullable=False) for name, length in zip(texts, lengths, strict=True)),
        *(Column(name, Integer, nullable=False) for name in numbers),
        *(Column(name, String(32), nullable=False) for name in kinds),
        Column("world_size", Integer, nullable=False, server_default="1"),
        UniqueConstraint(*texts, *numbers, *kinds, "world_size", name="one_number_for_each_cell"),
    )


def _third(connection: Connection) -> None:
    _make_cells_anew(connection, _cells_of_version_3(MetaData()))


def _cells_of_version_4(tables: MetaData) -> Table:
    table = _cells_of_version_3(tables)
    old = next(each for each in table.constraints if isinstance(each, UniqueConstraint))
    table.constraints.remove(old)
    table.append_column(Column("further", Text, nullable=False, server_default=""))
    table.append_constraint(UniqueConstraint(*old.columns.keys(), "further", name=old.name))
    return table


def _fourth(connection: Connection) -> None:
    _make_cells_anew(connection, _cells_of_version_4(MetaData()))


def _make_cells_anew(connection: Connection, new: Table) -> None:
    """Replace the table of cells, keeping its rows: SQLite cannot change a constraint.

    The table has a row for each cell, not for each launch.
    """
    old = Table("cells", MetaData(), autoload_with=connection)
    rows = [dict(row._mapping) for row in connection.execute(select(old)).all()]
    old.drop(connection)
    new.create(connection)
    if not rows:
        return
    connection.execute(insert(new), rows)
    if connection.dialect.name == "postgresql":
        # Numbers that are written out do not move the sequence that gives the next one.
        highest = max(row["id"] for row in rows)
        connection.execute(text("SELECT setval(pg_get_serial_sequence('cells', 'id'), :highest)"), {"highest": highest})


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "machines, ceilings, runs and records", _first),
    Migration(2, "cells by number, medians and contention as columns, sentinels", _second),
    Migration(3, "cells by the number of their workers too", _third),
    Migration(4, "cells by further axes, which need no column of their own", _fourth),
)
