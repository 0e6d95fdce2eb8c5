"""What the store keeps beside a record's content, in columns to choose and to aggregate by.

Each of these values follows from the content (and, for ``contended``, from the machine's description); the columns are
caches, and `Store.rederive` makes them anew.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from dlbench.adapters.protocol import Cell
from dlbench.reports.errors import RecordError
from dlbench.reports.flags import contended, product_rate
from dlbench.reports.storage.cell_columns import to_columns
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

_Item = TypeVar("_Item")

_OF_A_RECORD = ("run", "suite", "machine", "launch", "environment", "wall_seconds", "attempt", "side", "stage")
_OF_ITS_CELL = ("framework", "mode", "network", "device", "threads", "batch_size")
BATCH = 500
"""Records read or written at a time where there are many: a few megabytes."""


def refill(
    connection: sa.Connection,
    records: sa.Table,
    numbers: "CellNumbers",
    hosts: Mapping[str, Host],
    names: Sequence[str],
) -> None:
    """Derive ``cell_id`` and these columns anew for every record, some at a time; raises RecordError."""
    change = sa.update(records).where(records.c.id == sa.bindparam("of"))
    change = change.values({name: sa.bindparam(f"new_{name}") for name in (*names, "cell_id")})
    for some in batched(connection.execute(sa.select(records.c.id).order_by(records.c.id)).scalars().all()):
        changes = []
        for row in connection.execute(sa.select(records.c.id, records.c.content).where(records.c.id.in_(some))).all():
            record = Record.from_dict(parse("record", row.content))
            values = columns(record, hosts.get(record.machine))
            values["cell_id"] = numbers.of(connection, record.machine, record.cell)
            changes.append({"of": row.id, **{f"new_{name}": values[name] for name in (*names, "cell_id")}})
        connection.execute(change, changes)


def batched(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Give the items `BATCH` at a time."""
    rest = iter(items)
    while some := list(islice(rest, BATCH)):
        yield some


def read_json(text: str) -> Any:
    """Return stored JSON without halves of surrogate pairs: no database and no file takes them. Raises ValueError."""
    content = json.loads(text)
    return json.loads(json.dumps(content, ensure_ascii=False).encode(errors="replace")) if "\\u" in text else content


def parse(what: str, content: Any) -> dict[str, Any]:
    """Read stored JSON that must be an object; raises RecordError."""
    try:
        parsed = read_json(content)
    except (TypeError, ValueError, RecursionError) as error:
        raise RecordError(f"A stored {what} is not JSON; the store is damaged.") from error
    if not isinstance(parsed, dict):
        raise RecordError(f"A stored {what} is not a JSON object; the store is damaged.")
    return parsed


def columns(record: Record, host: Host | None) -> dict[str, Any]:
    """Return all columns of a record but its content, its ``cell_id`` and whether it is its launch's effective one."""
    seconds, disturbed = record.outcome.step_seconds(), contended(record, host)
    return {
        **{name: getattr(record, name) for name in _OF_A_RECORD},
        **{name: getattr(record.cell, name) for name in _OF_ITS_CELL},
        "status": record.outcome.status.value,
        # Always with microseconds: text without them would sort after some with, in a database that compares words.
        "started": record.started.isoformat(timespec="microseconds"),
        "seconds": median(seconds) if seconds else None,
        "contended": None if disturbed is None else int(disturbed),
        "product_rate": product_rate(record, host),
    }


class CellNumbers:
    """The numbers that a store gives to cells, one for each (machine, cell); they never change."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._known: dict[tuple[str, Cell], int] = {}

    def forget(self) -> None:
        """Drop what was learnt, since a transaction that gave numbers did not come to its end."""
        self._known.clear()

    def of(self, connection: sa.Connection, machine: str, cell: Cell) -> int:
        """Return the cell's number, given now where it has none."""
        key = machine, cell
        if key not in self._known:
            self._known[key] = self._find(connection, key) or self._give(connection, key)
        return self._known[key]

    def _find(self, connection: sa.Connection, key: tuple[str, Cell]) -> int | None:
        wanted = [self._table.c[name] == value for name, value in self._columns(*key).items()]
        return connection.execute(sa.select(self._table.c.id).where(*wanted)).scalar()

    def _give(self, connection: sa.Connection, key: tuple[str, Cell]) -> int:
        try:
            with connection.begin_nested():
                connection.execute(sa.insert(self._table).values(**self._columns(*key)))
        except IntegrityError:
            pass  # Another writer of the same database server gave it in this moment.
        number = self._find(connection, key)
        if number is None:
            raise LookupError(f"the cell {key} was not kept")
        return number

    def _columns(self, machine: str, cell: Cell) -> dict[str, Any]:
        # While an old store is brought up to date its table lacks what cells were given later.
        values = {"machine": machine, **to_columns(cell)}
        return {name: value for name, value in values.items() if name in self._table.c}
