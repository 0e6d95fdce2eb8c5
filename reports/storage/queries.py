"""What the store is asked in SQL: statements of SQLAlchemy over the light columns only.

Portable: nothing of one database's own. Each is served by one of the indexes of `schema`.
"""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from dlbench.adapters.protocol import Status
from dlbench.reports.compare.verdict import DEFAULT
from dlbench.reports.storage import schema

records, runs, cells = schema.records, schema.runs, schema.cells

Wanted = str | Collection[str] | None
"""One value, several, or whatever there is."""

_LAUNCH = ("run", "cell_id", "side", "environment", "stage", "launch")
# What the attempts at one launch have in common, as in `attempts.effective`.


def wanted(column: sa.ColumnElement[Any], value: Wanted) -> list[sa.ColumnElement[bool]]:
    """Return the condition that a column has one of these values, or none where it does not matter."""
    if value is None:
        return []
    return [column == value] if isinstance(value, str) else [column.in_(list(value))]


def of_records(run: Wanted, suite: Wanted, machine: Wanted) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on records of this run, suite and machine."""
    table = records.c
    return wanted(table.run, run) + wanted(table.suite, suite) + wanted(table.machine, machine)


def nights(suite: Wanted, machine: Wanted, purpose: Wanted) -> sa.Select[Any]:
    """Return for each run, cell, side and environment sums over the effective launches that are ok, of these runs.

    Columns: run, cell, side, environment, then count, sum and sum of squares of the log medians of the launches that
    were not contended, and the same of those that were.
    """
    table = records.c
    # Conditions on what the runs are: only the wanted runs' index entries are read.
    of_runs = wanted(runs.c.suite, suite) + wanted(runs.c.machine, machine) + wanted(runs.c.purpose, purpose)
    narrowed = [table.run.in_(sa.select(runs.c.id).where(*of_runs))] if of_runs else []
    log = sa.func.ln(table.seconds)
    disturbed = sa.func.coalesce(table.contended, 0) == 1

    def total(condition: sa.ColumnElement[bool], value: Any) -> sa.ColumnElement[Any]:
        return sa.func.sum(sa.case((condition, value), else_=sa.literal(0)))

    sums = [total(condition, value) for condition in (~disturbed, disturbed) for value in (1, log, log * log)]
    return (
        sa.select(table.run, table.cell_id, table.side, table.environment, *sums)
        .where(
            table.effective == 1,
            table.status == Status.OK.value,
            table.seconds.is_not(None),
            # Of a gate the pairs of the first look: later ones were measured because of what these showed.
            sa.or_(table.stage == "", sa.and_(table.stage == "screen", table.launch < DEFAULT.screen_looks[0])),
            *narrowed,
        )
        .group_by(table.run, table.cell_id, table.side, table.environment)
    )


def launches_with_attempts(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return the statement for the launches of which there is more than one record."""
    table = records.c
    key = [table[name] for name in _LAUNCH]
    return sa.select(*key).where(*conditions).group_by(*key).having(sa.func.count() > 1)


def attempts(launch: sa.Row[Any]) -> sa.Select[Any]:
    """Return the statement for the attempts at one launch of `launches_with_attempts`, in order."""
    table = records.c
    columns = (table.id, table.attempt, table.started, table.seconds, table.contended, table.effective)
    return sa.select(*columns).where(*same_launch(launch._asdict())).order_by(table.attempt, table.started, table.id)


def settle(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> None:
    """Mark, of the launches with several attempts among these records, the attempt that counts."""
    for launch in connection.execute(launches_with_attempts(*conditions)).all():
        rows = connection.execute(attempts(launch)).all()
        counts = rows[-1].id
        for row in rows:
            if row.effective != (row.id == counts):
                change = sa.update(records).where(records.c.id == row.id)
                connection.execute(change.values(effective=int(row.id == counts)))


def same_launch(launch: Mapping[str, Any]) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that a record is an attempt at this launch."""
    return [records.c[name] == launch[name] for name in _LAUNCH]


def launch_seconds(machine: str) -> sa.Select[Any]:
    """Return for each cell of a machine the mean seconds of its launches that were carried out: cell, seconds."""
    table = schema.records.c
    carried_out = table.machine == machine, table.status != Status.SKIPPED.value
    return sa.select(table.cell_id, sa.func.avg(table.wall_seconds)).where(*carried_out).group_by(table.cell_id)


def record_counts() -> sa.Select[Any]:
    """Return the statement for each run with its number of records."""
    return sa.select(records.c.run, sa.func.count()).group_by(records.c.run)


def first_starts(of_runs: Collection[str]) -> sa.Select[Any]:
    """Return the statement for each of these runs with the start of its first record."""
    condition = records.c.run.in_(list(of_runs))
    return sa.select(records.c.run, sa.func.min(records.c.started)).where(condition).group_by(records.c.run)
