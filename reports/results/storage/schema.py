"""Tables and indexes of a store, and the key of a cell.

Times are ISO 8601 text in UTC, which sorts as time does in every database. Runs, records, machines
and sentinels are JSON text in ``content`` or ``description``; the other columns are those
that queries select and aggregate by. Both indexes of ``records`` hold all that their queries read,
so that a report over a million records does not touch their content. In ``records``

- ``cell`` is `cell_key` of machine and cell;
- ``seconds`` is the launch's median seconds per step, null without a number;
- ``contended`` is 1 or 0, null where the launch's evidence does not say;
- ``product_rate`` is the framework's own matrix product in FLOP/s, see `flags.product_rate`.

There are no migrations: a store of another `VERSION` is refused.
"""

import hashlib
import json

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, Index, Integer, String, Table, Text

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.record import LAUNCH

VERSION = 7
TABLES = sa.MetaData()


def _text(name: str, length: int | None = 128, **more: object) -> Column[str]:
    kind = Text() if length is None else String(length)
    return Column(name, kind, **{"nullable": False, **more})  # type: ignore[arg-type]


version = Table(
    "dlbench_schema", TABLES, Column("version", Integer, primary_key=True, autoincrement=False)
)
machines = Table(
    "machines", TABLES, _text("fingerprint", primary_key=True), _text("description", None)
)
ceilings = Table("ceilings", TABLES, _text("fingerprint", primary_key=True), _text("content", None))
runs = Table(
    "runs",
    TABLES,
    _text("id", primary_key=True),
    *map(_text, ("suite", "machine")),
    _text("started", 40),
    _text("finished", 40, nullable=True),
    _text("purpose", 32),
    _text("content", None),
)
sentinels = Table(
    "sentinels",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=True),
    _text("run", index=True),
    Column("block", Integer, nullable=False),
    _text("moment", 16),
    _text("content", None),
)
records = Table(
    "records",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=True),
    *map(_text, ("run", "suite", "machine")),
    Column("cell", BigInteger, nullable=False),
    *(_text(name, 32) for name in ("side", "stage")),
    _text("environment"),
    Column("launch", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    _text("status", 32),
    _text("started", 40),
    Column("wall_seconds", Float, nullable=False),
    Column("seconds", Float),
    Column("contended", Integer),
    Column("product_rate", Float),
    _text("content", None),
)
_launch = [records.c[name] for name in LAUNCH]
_repeats = records.c.attempt > 0
Index("records_by_machine", records.c.machine, records.c.suite)
Index(
    "records_by_launch",
    *_launch,
    records.c.attempt,
    records.c.status,
    records.c.contended,
    records.c.seconds,
)
Index(
    "records_by_cell",
    records.c.cell,
    records.c.started,
    records.c.status,
    records.c.side,
    records.c.stage,
    records.c.environment,
    records.c.suite,
    records.c.product_rate,
)
Index(
    "records_repeated",
    *_launch,
    records.c.attempt,
    sqlite_where=_repeats,
    postgresql_where=_repeats,
)


def cell_key(machine: str, cell: Cell) -> int:
    """Return a 63-bit number of machine and cell, the same in every store.

    An axis added later does not change it.
    """
    defaults = Cell._field_defaults
    unusual = {}
    for name, value in cell._asdict().items():
        if name not in defaults or value != defaults[name]:
            unusual[name] = value
    text = json.dumps([machine, unusual], sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stored_version(connection: sa.Connection) -> int:
    """Return the schema version of an opened store; 0 where it has none yet."""
    for name in (version.name, "schema_history"):  # the latter in stores before version 7
        if connection.dialect.has_table(connection, name):
            return connection.execute(sa.text(f"SELECT MAX(version) FROM {name}")).scalar() or 0
    return 0


def create(connection: sa.Connection) -> None:
    """Create the tables of an empty store, within the connection's transaction."""
    if not stored_version(connection):  # another process may have made them meanwhile
        TABLES.create_all(connection)
        connection.execute(sa.insert(version).values(version=VERSION))
