"""Which records of a store are a cell's newest, found without reading any content."""

from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import TypeAdapter

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.storage.cell_columns import from_columns
from dlbench.reports.storage.queries import cells, records, wanted
from dlbench.reports.storage.record import BASELINE


class CellSummary(NamedTuple):
    """What a store holds of a cell on a machine, and which run and environment measured it last."""

    machine: str
    cell: Cell
    number: int
    """Of the cell in this store."""
    measured: bool
    """Whether it was ever launched; else all its records are skipped ones."""
    newest: str | None
    """When the newest measured record started (else the newest of all), ISO 8601 text; with its ``newest_id``.

    None where all are a comparison's baselines: then no record of the cell counts.
    """
    newest_id: int
    run: str
    environment: str
    """Of that record."""
    first: str
    """When its first record that counts started; with the least id of all its records, ``first_id``."""
    first_id: int
    environments: frozenset[str]
    """The least and the greatest with which it was measured: one element where it was always the same."""
    product_rate: float | None
    """The highest rate of the framework's own matrix product."""


_SUMMARY = TypeAdapter(CellSummary)


def counting(side: sa.ColumnElement[Any], run: str | None) -> sa.ColumnElement[bool]:
    """Return whether a record counts for a matrix: two builds under one name cannot stand in one row."""
    return side == "" if run is None else side != BASELINE


def cell_summaries(run: str | None, suite: str | None, machine: str | None) -> sa.Select[Any]:
    """Return the statement whose rows `cell_summary` reads: one or, where starts are equal, several for a cell.

    Launches of comparisons and searches do not count unless their run is asked for, and then not a baseline's.
    """
    table = records.c
    conditions = wanted(table.run, run) + wanted(table.suite, suite)
    if machine is not None:
        conditions.append(table.cell_id.in_(sa.select(cells.c.id).where(cells.c.machine == machine)))
    counts = counting(table.side, run)
    # A framework's own product counts whichever side of a run that was asked for it is of.
    of_either_side = table.side == "" if run is None else sa.true()
    launched = sa.and_(counts, table.status != Status.SKIPPED.value)
    of_cell = (
        sa.select(
            table.cell_id,
            sa.func.max(sa.case((launched, table.started))).label("measured"),
            sa.func.max(sa.case((counts, table.started))).label("newest"),
            sa.func.min(sa.case((counts, table.started))).label("first"),
            sa.func.min(table.id).label("first_id"),
            sa.func.min(sa.case((launched, table.environment))).label("least"),
            sa.func.max(sa.case((launched, table.environment))).label("greatest"),
            sa.func.max(sa.case((of_either_side, table.product_rate))).label("product_rate"),
        )
        .where(*conditions)
        .group_by(table.cell_id)
        .subquery()
    )
    last = records.alias("last")
    same = sa.and_(
        last.c.cell_id == of_cell.c.cell_id,
        last.c.started == sa.func.coalesce(of_cell.c.measured, of_cell.c.newest),
        counting(last.c.side, run),
        sa.or_(of_cell.c.measured.is_(None), last.c.status != Status.SKIPPED.value),
        *wanted(last.c.run, run),
        *wanted(last.c.suite, suite),
    )
    return (
        sa.select(of_cell, last.c.id.label("newest_id"), last.c.run, last.c.environment, cells)
        .outerjoin(last, same)
        .join(cells, cells.c.id == of_cell.c.cell_id)
    )


def cell_summary(row: Any) -> CellSummary:
    """Read a row of `cell_summaries`; raises ValueError or TypeError where it holds what it cannot."""
    found = CellSummary(
        machine=row.machine,
        cell=from_columns(dict(row._mapping)),
        number=row.cell_id,
        measured=row.measured is not None,
        newest=row.measured or row.newest,
        newest_id=row.newest_id or 0,
        run=row.run or "",
        environment=row.environment or "",
        first=row.first or "",
        first_id=row.first_id,
        environments=frozenset({row.least, row.greatest} - {None}),
        product_rate=row.product_rate,
    )
    return _SUMMARY.validate_python(found)


def contents(run: str, numbers: Collection[int], asked: bool) -> sa.Select[Any]:
    """Return the statement for a run's records of these cells that count, in the order of appending.

    ``asked`` tells whether the run was asked for by its id.

    Columns: id, cell_id, environment, status, content.
    """
    table = records.c
    return (
        sa.select(table.id, table.cell_id, table.environment, table.status, table.content)
        .where(table.run == run, table.cell_id.in_(list(numbers)), counting(table.side, run if asked else None))
        .order_by(table.id)
    )
