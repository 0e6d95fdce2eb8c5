"""SQL statements over the light columns of a store: portable, and served by `schema`'s indexes.

Which records count is decided here: `superseded` attempts and profiled launches never do,
`counting` says which sides do, and `newest` which run and environment of a cell.
"""

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from dlbench.adapters.protocol import Status
from dlbench.reports.results.record import BASELINE, GATE, HISTORY_PAIRS, LAUNCH, PROFILED
from dlbench.reports.results.storage.schema import records, runs

Wanted = str | Collection[str] | None
"""One value, several, or any."""


def wanted(column: sa.ColumnElement[Any], value: Wanted) -> list[sa.ColumnElement[bool]]:
    """Return the condition that a column has one of these values, or none without a value."""
    if value is None:
        return []
    return [column == value] if isinstance(value, str) else [column.in_(list(value))]


def record_conditions(run: Wanted, suite: Wanted, machine: Wanted) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on records of this run, suite and machine, without profiled ones."""
    table = records.c
    return [
        measured(),
        *wanted(table.run, run),
        *wanted(table.suite, suite),
        *wanted(table.machine, machine),
    ]


def measured() -> sa.ColumnElement[bool]:
    """Return the condition that a launch was measured, not profiled."""
    return records.c.stage != PROFILED


def superseded() -> sa.Select[Any]:
    """Return the ids of attempts that a later attempt at the same launch replaced."""
    earlier = records.alias("earlier")
    same = [earlier.c[name] == records.c[name] for name in LAUNCH]
    return (
        sa.select(earlier.c.id)
        .join(records, sa.and_(*same, earlier.c.attempt < records.c.attempt))
        .where(records.c.attempt > 0)
    )


def counting(side: sa.ColumnElement[Any], run: str | None) -> sa.ColumnElement[bool]:
    """Return whether a side counts for a matrix.

    No baseline does, and other sides only in a run that is asked for.
    """
    return side == "" if run is None else side != BASELINE


def newest(run: str | None, suite: str | None, keys: Collection[int] | None) -> sa.Select[Any]:
    """Return for each cell (of these keys) the run and environment that measured it last.

    A run that only skipped the cell counts where nothing else did. Where two records started at
    once there are two rows; the one with the larger ``newest_id`` counts. Columns: cell; measured
    and newest, starts of the newest record that was launched and of the newest at all; first, the
    start of the first record that counts; first_id; least and greatest of the environments that
    measured it; product_rate, the highest; newest_id, run and environment of the newest record.
    """
    table = records.c
    conditions = [measured(), *wanted(table.run, run), *wanted(table.suite, suite)]
    if keys is not None:
        conditions.append(table.cell.in_(list(keys)))
    counts = counting(table.side, run)
    launched = sa.and_(counts, table.status != Status.SKIPPED.value)
    # A framework's own product counts on either side of a run that was asked for.
    has_product = table.side == "" if run is None else sa.true()
    cells = (
        sa.select(
            table.cell,
            sa.func.max(sa.case((launched, table.started))).label("measured"),
            sa.func.max(sa.case((counts, table.started))).label("newest"),
            sa.func.min(sa.case((counts, table.started))).label("first"),
            sa.func.min(table.id).label("first_id"),
            sa.func.min(sa.case((launched, table.environment))).label("least"),
            sa.func.max(sa.case((launched, table.environment))).label("greatest"),
            sa.func.max(sa.case((has_product, table.product_rate))).label("product_rate"),
        )
        .where(*conditions)
        .group_by(table.cell)
        .subquery()
    )
    last = records.alias("last")
    is_last = sa.and_(
        last.c.cell == cells.c.cell,
        last.c.started == sa.func.coalesce(cells.c.measured, cells.c.newest),
        counting(last.c.side, run),
        last.c.stage != PROFILED,
        sa.or_(cells.c.measured.is_(None), last.c.status != Status.SKIPPED.value),
        *wanted(last.c.run, run),
        *wanted(last.c.suite, suite),
    )
    columns = cells, last.c.id.label("newest_id"), last.c.run, last.c.environment
    return sa.select(*columns).outerjoin(last, is_last)


def nights(suite: Wanted, machine: Wanted, purpose: Wanted) -> sa.Select[Any]:
    """Return for each run, cell, side and environment sums over the launches that count and are ok.

    Columns: run, cell, side, environment, then count, sum and sum of squares of the log medians of
    the launches that were not contended, and the same of those that were.
    """
    table = records.c
    log = sa.func.ln(table.seconds)
    disturbed = sa.func.coalesce(table.contended, 0) == 1
    sums = []
    for condition in (~disturbed, disturbed):
        for value in (1, log, log * log):
            sums.append(sa.func.sum(sa.case((condition, value), else_=sa.literal(0))))
    keys = table.run, table.cell, table.side, table.environment
    return (
        sa.select(*keys, *sums)
        .where(*night_conditions(suite, machine, purpose), table.seconds.is_not(None))
        .group_by(*keys)
    )


def night_conditions(
    suite: Wanted, machine: Wanted, purpose: Wanted
) -> list[sa.ColumnElement[bool]]:
    """Return the conditions on the records that make the nights of these runs."""
    table = records.c
    # Conditions on the runs: only their index entries are read.
    run_conditions = [
        *wanted(runs.c.suite, suite),
        *wanted(runs.c.machine, machine),
        *wanted(runs.c.purpose, purpose),
    ]
    conditions = [
        table.id.not_in(superseded()),
        measured(),
        table.status == Status.OK.value,
        # Of a gate the pairs of the first look: later ones were measured because of their result.
        sa.or_(table.stage != GATE, table.launch < HISTORY_PAIRS),
    ]
    if run_conditions:
        conditions.append(table.run.in_(sa.select(runs.c.id).where(*run_conditions)))
    return conditions
