"""What one store holds brought to another, files and servers alike; what is there already is left alone.

A run is copied in one transaction, so an interrupted copy goes on where it was. Two records are the same where run,
machine, cell, launch, attempt, side, stage, environment and the moment of their start are: no launch is made twice in
one microsecond. A store that holds equal records several times keeps their number.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from dlbench.reports.storage import database, schema
from dlbench.reports.storage.store import Store, batched

Told = Callable[[int, int], None]
"""Takes how many records were looked at, and of how many."""

_SAME_RECORD = ("cell", "launch", "attempt", "side", "stage", "environment", "started")
_SAME_SENTINEL = ("block", "moment", "content")


class Copied(NamedTuple):
    """What the target did not have before."""

    runs: int
    records: int


def copy(source: Store, target: Store, told: Told = lambda done, of: None) -> Copied:
    """Bring all that a store holds to another; raises StoreError, and then every run before it is kept."""
    for table in (schema.machines, schema.ceilings):
        _copy_known(source, target, table)
    counts = source.record_counts()
    of, done, runs, records = sum(counts.values()), 0, 0, 0
    for run in _runs(source):
        added = _copy_run(source, target, run)
        runs, records = runs + added.runs, records + added.records
        done += counts.get(run, 0)
        told(done, of)
    return Copied(runs, records)


def copy_run(source: Store, target: Store, run: str) -> None:
    """Bring one run, and what is known of machines, to another store."""
    for table in (schema.machines, schema.ceilings):
        _copy_known(source, target, table)
    _copy_run(source, target, run)


def _ask(store: Store, statement: sa.Select[Any]) -> list[sa.Row[Any]]:
    with database.explained(store.name), store.engine.begin() as connection:
        return list(connection.execute(statement))


def _runs(source: Store) -> list[str]:
    """Return the ids of all runs, those with records in the order of the first one of each."""
    table = schema.records.c
    first = sa.func.min(table.id)
    found = [row.run for row in _ask(source, sa.select(table.run, first).group_by(table.run).order_by(first))]
    return list(dict.fromkeys([*found, *(run.id for run in source.runs())]))


def _copy_known(source: Store, target: Store, table: sa.Table) -> None:
    """Bring what is known of machines that the target does not know."""
    rows = _ask(source, sa.select(table))
    with database.writing(target.engine, target.name, alone=True) as connection:
        there = set(connection.execute(sa.select(table.c.fingerprint)).scalars())
        if missing := [dict(row._mapping) for row in rows if row.fingerprint not in there]:
            connection.execute(sa.insert(table), missing)


def _copy_run(source: Store, target: Store, run: str) -> Copied:
    """Bring a run with its records and sentinels to the target; both stores hold it alike where that succeeds."""
    with database.writing(target.engine, target.name, alone=True) as connection:
        runs = _copy_words(source, connection, run)
        records = _copy_records(source, connection, run)
        of_run = schema.sentinels.c.run == run
        rows = ({**row._mapping} for row in _ask(source, sa.select(schema.sentinels).where(of_run).order_by("id")))
        sentinels = list(_missing(connection, schema.sentinels, run, rows, _SAME_SENTINEL))
        if sentinels:
            connection.execute(sa.insert(schema.sentinels), [_without_id(row) for row in sentinels])
    return Copied(runs, records)


def _copy_words(source: Store, connection: sa.Connection, run: str) -> int:
    """Bring what a run is, and its end; return how many were missing."""
    table = schema.runs
    rows = _ask(source, sa.select(table).where(table.c.id == run))
    if not rows:
        return 0  # records whose run nobody began
    there = connection.execute(sa.select(table.c.id).where(table.c.id == run)).first()
    if there is None:
        connection.execute(sa.insert(table).values(dict(rows[0]._mapping)))
    elif rows[0].finished is not None:
        ended = sa.update(table).where(table.c.id == run, table.c.finished.is_(None))
        connection.execute(ended.values(finished=rows[0].finished))
    return int(there is None)


def _copy_records(source: Store, connection: sa.Connection, run: str) -> int:
    """Bring the records of a run that the target lacks, in their order, and return how many these were."""
    table = schema.records
    columns = [table.c[name] for name in ("id", *_SAME_RECORD)]
    light = _ask(source, sa.select(*columns).where(table.c.run == run).order_by(table.c.id))
    rows = ({**row._mapping} for row in light)
    missing = [row["id"] for row in _missing(connection, table, run, rows, _SAME_RECORD)]
    for some in batched(missing):
        whole = _ask(source, sa.select(table).where(table.c.id.in_(some)).order_by(table.c.id))
        connection.execute(sa.insert(table), [_without_id(row._mapping) for row in whole])
    return len(missing)


def _missing(
    connection: sa.Connection, table: sa.Table, run: str, rows: Iterable[dict[str, Any]], same: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run that the target has not as often, equal where these columns are."""
    columns = [table.c[name] for name in same]
    there = Counter(tuple(row) for row in connection.execute(sa.select(*columns).where(table.c.run == run)))
    for row in rows:
        key = tuple(row[name] for name in same)
        if there[key]:
            there[key] -= 1
        else:
            yield row


def _without_id(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}
