"""The migrations of the store, in order, and its tables at each version of the schema.

A migration, once released, is never edited, nor is what `tables` says of a version: what is new is marked with the
version that it is there since.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from dlbench.reports.storage import record_columns
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import Run


class Migration(NamedTuple):
    """One step from a schema version to the next."""

    version: int
    what: str
    upgrade: Callable[[sa.Connection], None]


def tables(version: int) -> sa.MetaData:
    """Return the tables of a version of the schema.

    In ``records`` the columns beside the content are caches, see `schema`; its indexes hold all that their queries
    read, so that a report over a million records does not touch their content.
    """
    made = sa.MetaData()
    add = partial(_add, made, version)
    add("machines", _text("fingerprint", primary_key=True), _text("description", None))
    add("ceilings", _text("fingerprint", primary_key=True), _text("content", None))
    add(
        "runs",
        _text("id", primary_key=True),
        _text("suite"),
        _text("machine"),
        _text("started", 40),
        _text("finished", 40, nullable=True),
        _text("content", None),
        _text("purpose", 32, since=2, server_default="suite"),
    )
    if version >= 2:
        _add_version_2(add)
    add(
        "records",
        _own_number(),
        *map(_text, ("run", "suite", "machine")),
        _number("launch"),
        *map(_text, ("framework", "mode", "network", "device")),
        *map(_number, ("threads", "batch_size")),
        _text("status", 32),
        _text("environment"),
        _text("started", 40),
        _number("wall_seconds", sa.Float),
        _text("content", None),
        _number("attempt", since=2, server_default="0"),
        _text("side", 32, since=2, server_default=""),
        _text("stage", 32, since=2, server_default=""),
        _number("cell_id", since=2, nullable=True),
        _number("seconds", sa.Float, since=2, nullable=True),
        _number("contended", since=2, nullable=True),
        _number("product_rate", sa.Float, since=2, nullable=True),
        _number("effective", since=2, server_default="1"),
        _index("records_by_run", "run", until=1),
        _index("records_by_machine", "machine suite"),
        _index("records_by_launch", "run cell_id side environment stage launch effective status contended seconds", 2),
        _index("records_by_cell", "cell_id started status side environment suite product_rate", 2),
    )
    if version >= 6:
        _add_version_6(add)
    return made


def _add_version_2(add: Callable[..., sa.Table]) -> None:
    of_a_cell = [
        *map(_text, ("machine", "framework")),
        _text("adapter", 64),
        *map(_text, ("mode", "network")),
        _text("device", 64),
        *map(_number, ("threads", "batch_size")),
        *(_text(name, 32) for name in ("precision", "placement", "affinity")),
        _number("world_size", since=3, server_default="1"),
        _text("further", None, since=4, server_default=""),
    ]
    cells = add("cells", _own_number(), *of_a_cell)
    names = [column.name for column in cells.columns if column.name != "id"]
    cells.append_constraint(sa.UniqueConstraint(*names, name="one_number_for_each_cell"))
    sentinel = _text("run"), _number("block"), _text("moment", 16), _text("content", None)
    add("sentinels", _own_number(), *sentinel, _index("sentinels_by_run", "run"))


def _add_version_6(add: Callable[..., sa.Table]) -> None:
    add("fleets", _text("id", primary_key=True), _text("started", 40), _text("content", None))
    add(
        "fleet_jobs",
        _own_number(),
        _text("fleet"),
        _number("number"),
        _text("node"),
        _number("replaces", nullable=True),
        # What changes while the job lives. The heartbeat is by the database's clock: those of machines differ.
        *(_text(name, nullable=True) for name in ("handle", "run", "machine")),
        sa.Column("heartbeat", sa.DateTime(timezone=True), info={"since": 6}),
        _number("planned", nullable=True),
        _text("ending", None, nullable=True),
        _index("one_job_of_each_number", "fleet number", 6, unique=True),
    )


def _add(made: sa.MetaData, version: int, name: str, *parts: sa.Column[Any] | sa.Index) -> sa.Table:
    there = (part for part in parts if part.info["since"] <= version <= part.info.get("until", version))
    return sa.Table(name, made, *there)


def _text(name: str, length: int | None = 128, since: int = 1, **more: Any) -> sa.Column[Any]:
    kind = sa.Text() if length is None else sa.String(length)
    return sa.Column(name, kind, info={"since": since}, **{"nullable": False, **more})


def _number(name: str, kind: Any = sa.Integer, since: int = 1, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, info={"since": since}, **{"nullable": False, **more})


def _own_number() -> sa.Column[Any]:
    return _number("id", primary_key=True, autoincrement=True)


def _index(name: str, columns: str, since: int = 1, **more: int) -> sa.Index:
    return sa.Index(name, *columns.split(), info={"since": since, **more})


def _first(connection: sa.Connection) -> None:
    tables(1).create_all(connection)


def _second(connection: sa.Connection) -> None:
    old, new = tables(1).tables, tables(2)
    new.create_all(connection, [table for name, table in new.tables.items() if name not in old])
    for name in ("runs", "records"):
        for column in new.tables[name].columns:
            if column.name not in old[name].columns:
                described = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sa.text(f"ALTER TABLE {name} ADD COLUMN {described}"))
    _fill_version_2(connection, new)
    before, after = ({str(i.name): i for i in each["records"].indexes} for each in (old, new.tables))
    for name in after.keys() - before.keys():
        after[name].create(connection)
    before["records_by_run"].drop(connection)


def _fill_version_2(connection: sa.Connection, tables: sa.MetaData) -> None:
    runs, records, machines = (tables.tables[name] for name in ("runs", "records", "machines"))
    for row in connection.execute(sa.select(runs.c.id, runs.c.content)).all():
        purpose = Run.from_dict(record_columns.parse("run", row.content)).purpose
        connection.execute(sa.update(runs).where(runs.c.id == row.id).values(purpose=purpose))
    hosts = {
        row.fingerprint: read_host(row.fingerprint, record_columns.parse("machine", row.description))
        for row in connection.execute(sa.select(machines)).all()
    }
    # Which attempt is effective needs no thought: a record of version 1 is its launch's only one.
    names = ("attempt", "side", "stage", "seconds", "contended", "product_rate")
    record_columns.refill(connection, records, record_columns.CellNumbers(tables.tables["cells"]), hosts, names)


def _add_fleets(connection: sa.Connection) -> None:
    new = tables(6)
    new.create_all(connection, [new.tables[name] for name in ("fleets", "fleet_jobs")])


def _make_cells_anew(version: int, connection: sa.Connection) -> None:
    """Replace the table of cells, keeping its rows: SQLite cannot change a constraint.

    The table has a row for each cell, not for each launch.
    """
    new = tables(version).tables["cells"]
    old = sa.Table("cells", sa.MetaData(), autoload_with=connection)
    rows = [dict(row._mapping) for row in connection.execute(sa.select(old)).all()]
    old.drop(connection)
    new.create(connection)
    if not rows:
        return
    connection.execute(sa.insert(new), rows)
    if connection.dialect.name == "postgresql":
        # Numbers that are written out do not move the sequence that gives the next one.
        highest = max(row["id"] for row in rows)
        connection.execute(
            sa.text("SELECT setval(pg_get_serial_sequence('cells', 'id'), :highest)"), {"highest": highest}
        )


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "machines, ceilings, runs and records", _first),
    Migration(2, "cells by number, medians and contention as columns, sentinels", _second),
    Migration(3, "cells by the number of their workers too", partial(_make_cells_anew, 3)),
    Migration(4, "cells by further axes, which need no column of their own", partial(_make_cells_anew, 4)),
    # Older versions know neither the status `implausible` nor `outside` in an outcome.
    Migration(5, "what the host saw of each launch, in its record", lambda connection: None),
    Migration(6, "fleets and their jobs", _add_fleets),
)
