"""The Store: runs, records, machines and ceilings in one SQLite file, or in any database SQLAlchemy speaks.

`Store.append` returns when the record is on the disk (one transaction, ``synchronous=FULL``): a runner that
is killed afterwards loses nothing. Several processes may write one store at the same time: SQLite keeps a
write-ahead log where the file system allows it, and a writer waits `database.BUSY_SECONDS` for its turn. Whatever goes
wrong is a StoreError of one line that names the store and the remedy.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.errors import StoreError
from dlbench.reports.evidence.nights import frame_of_nights
from dlbench.reports.storage import database, newest, opening, queries, record_columns, schema
from dlbench.reports.storage.cell_columns import from_columns
from dlbench.reports.storage.hosts import Host, read_host
from dlbench.reports.storage.newest import CellSummary
from dlbench.reports.storage.queries import Wanted
from dlbench.reports.storage.record import Record, Run
from dlbench.reports.storage.record_columns import batched, read_json

if TYPE_CHECKING:
    import pandas as pd

_Kept = TypeVar("_Kept", Run, Record)


class Store:
    """An opened store; a context manager. Open one with `Store.open`."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        """What the user calls it: the path, or the URL without its password."""
        self._place = name
        self._numbers = record_columns.CellNumbers(schema.cells)
        self._hosts: dict[str, Host] = {}

    @classmethod
    def open(
        cls,
        target: str | os.PathLike[str],
        create: bool = True,
        upgrade: bool | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> "Store":
        """Open the store in a file, or at a database URL (anything that holds "://").

        With ``create`` a missing file is made. With ``upgrade``, which is as ``create`` unless given, a store of an
        older schema is brought up to date; ``report`` is told so, and where it is kept as it was. Without it a file is
        read as a copy in memory that is brought up to date, and nothing may be written. Raises StoreError.
        """
        engine, name = database.open_engine(os.fspath(target), create)
        return cls(opening.ready(engine, name, create, create if upgrade is None else upgrade, report), name)

    @property
    def engine(self) -> sa.Engine:
        """The database, for the modules beside this one."""
        return self._engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections; what was appended is already on the disk."""
        self._engine.dispose()

    def add_machine(self, fingerprint: str, machine: Mapping[str, Any]) -> None:
        """Keep a machine's description under its fingerprint; a later description replaces an earlier one."""
        self._replace(schema.machines, fingerprint, description=_json(machine))
        self._hosts.pop(fingerprint, None)

    def machine(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the description of a machine, or None where the store has none."""
        return self.machines().get(fingerprint)

    def machines(self) -> dict[str, dict[str, Any]]:
        """Return every machine's description by its fingerprint."""
        rows = self._rows(sa.select(schema.machines).order_by(schema.machines.c.fingerprint))
        return {row.fingerprint: self._parse(row.description) for row in rows}

    def save_ceilings(self, fingerprint: str, ceilings: Mapping[str, Any]) -> None:
        """Keep the measured ceilings of a machine; a later measurement replaces an earlier one."""
        self._replace(schema.ceilings, fingerprint, content=_json(ceilings))

    def ceilings(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the measured ceilings of a machine, or None where there are none."""
        table = schema.ceilings
        rows = self._rows(sa.select(table).where(table.c.fingerprint == fingerprint))
        return self._parse(rows[0].content) if rows else None

    def begin_run(self, run: Run) -> None:
        """Keep a run that starts now; raises StoreError where its id is taken."""
        with self._writing() as connection:
            self._insert_run(connection, run)

    def finish_run(self, run: str, when: datetime) -> None:
        """Note that the run with this id came to its end; raises StoreError where there is none."""
        with self._writing() as connection:
            statement = sa.update(schema.runs).where(schema.runs.c.id == run)
            if connection.execute(statement.values(finished=when.astimezone(UTC).isoformat())).rowcount == 0:
                raise StoreError(f"The store {self.name} has no run {run}; begin it first.")

    def runs(self) -> list[Run]:
        """Return every run, the oldest first."""
        return self._runs(sa.select(schema.runs))

    def run(self, run: str) -> Run | None:
        """Return the run with this id, or None where there is none."""
        return next(iter(self._runs(sa.select(schema.runs).where(schema.runs.c.id == run))), None)

    def _runs(self, statement: sa.Select[Any]) -> list[Run]:
        # The column alone knows the end: the content was written when the run began.
        rows = self._rows(statement)
        found = (self._build(Run, {**self._parse(row.content), "finished": row.finished}) for row in rows)
        # Not by the database: servers sort text by the rules of a language.
        return sorted(found, key=lambda run: (run.started, run.id))

    def append(self, record: Record) -> None:
        """Keep a record; it is on the disk when this returns. Raises StoreError, and then nothing is kept."""
        with self._appending() as connection:
            (row,) = self._insert_records(connection, [record])
            queries.settle(connection, *queries.same_launch(row))

    def insert(self, connection: sa.Connection, records: Sequence[Record]) -> None:
        """Insert records of one run within an open transaction of this store."""
        try:
            self._insert_records(connection, records)
            queries.settle(connection, schema.records.c.run == records[0].run)
        except BaseException:
            self._numbers.forget()
            raise

    def append_runs(self, runs: Iterable[tuple[Run, Iterable[Record]]]) -> None:
        """Keep runs and their records in one transaction, e.g. to import them.

        Raises StoreError, also where a run's id is taken, and then nothing is kept.
        """
        with self._appending(alone=True) as connection:
            for run, records in runs:
                self._insert_run(connection, run)
                for some in batched(records):
                    self._insert_records(connection, some)
                queries.settle(connection, schema.records.c.run == run.id)

    def add_sentinel(self, run: str, block: int, moment: str, content: Mapping[str, Any]) -> None:
        """Keep what the sentinel showed at a block of a run; ``moment`` is "before" or "after" it."""
        if moment not in ("before", "after"):
            raise ValueError(f"a sentinel stands before or after a block, not {moment!r}")
        with self._writing() as connection:
            row = {"run": run, "block": block, "moment": moment, "content": _json(content)}
            connection.execute(sa.insert(schema.sentinels).values(row))

    def sentinels(self, run: str) -> list[tuple[int, str, dict[str, Any]]]:
        """Return the sentinels of a run in the order they were added: (block, "before" or "after", content)."""
        table = schema.sentinels
        rows = self._rows(sa.select(table).where(table.c.run == run).order_by(table.c.id))
        return [(row.block, row.moment, self._parse(row.content)) for row in rows]

    def cells(self) -> dict[int, Cell]:
        """Return every cell that has records, by the number that `nights` knows it by.

        A number is of this store alone, and of one machine: the same cell on another machine has another.
        """
        rows = self._rows(sa.select(schema.cells).order_by(schema.cells.c.id))
        with self._understood():
            return {row.id: from_columns(dict(row._mapping)) for row in rows}

    def nights(self, suite: Wanted = None, machine: Wanted = None, purpose: Wanted = None) -> "pd.DataFrame":
        """Return a row for each run (of these), cell, side and environment, the oldest run first.

        Columns: run, started (of the run, ISO 8601 text in UTC), machine, environment, cell (see `cells`), side,
        launches, log_mean and log_variance (mean and sample variance of the natural logarithms of the launches'
        medians; NaN for the variance of one), contended_launches. Of each launch the attempt counts that
        `attempts.choose` takes, where it is ok. The mean is over the launches that were not contended; where all were,
        over those, and ``launches`` then equals ``contended_launches``.
        """
        sums = self._rows(queries.nights(suite, machine, purpose))
        of_runs = {row.run for row in sums}
        started = dict(self._pairs(sa.select(schema.runs.c.id, schema.runs.c.started)))
        if strays := of_runs - set(started):
            started |= dict(self._pairs(queries.first_starts(strays)))
        machines = dict(self._pairs(sa.select(schema.cells.c.id, schema.cells.c.machine)))
        with self._understood():
            if strangers := {row.cell_id for row in sums} - set(machines):
                raise KeyError(f"cells {strangers}")
            for each in of_runs:
                datetime.fromisoformat(started[each])
            return frame_of_nights(sums, started, machines)

    def record_counts(self) -> dict[str, int]:
        """Return how many records each run has; a run without any is missing."""
        return dict(self._pairs(queries.record_counts()))

    def launch_seconds(self, machine: str) -> dict[Cell, float]:
        """Return for each cell that was launched on a machine how long a launch of it lasted, in the mean."""
        rows = dict(self._pairs(queries.launch_seconds(machine)))
        return {cell: rows[number] for number, cell in self.cells().items() if number in rows}

    def rederive(self) -> None:
        """Derive the cached columns of every record anew, e.g. once a machine's description is known."""
        hosts = {name: read_host(name, description) for name, description in self.machines().items()}
        with self._appending(alone=True) as connection:
            names = ("attempt", "side", "stage", "seconds", "contended", "product_rate")
            record_columns.refill(connection, schema.records, self._numbers, hosts, names)
            connection.execute(sa.update(schema.records).values(effective=1))
            queries.settle(connection)

    def records(self, run: str | None = None, suite: str | None = None, machine: str | None = None) -> list[Record]:
        """Return the records in the order they were appended: all, or those of a run, suite or machine."""
        return list(self.stream(run, suite, machine))

    def stream(self, run: str | None = None, suite: str | None = None, machine: str | None = None) -> Iterator[Record]:
        """Give `records` one after the other, without holding them all."""
        table = schema.records.c
        conditions = queries.of_records(run, suite, machine)
        numbers = [row.id for row in self._rows(sa.select(table.id).where(*conditions).order_by(table.id))]
        same: dict[str, Any] = {}
        for some in batched(numbers):
            statement = sa.select(table.content).where(table.id.in_(some)).order_by(table.id)
            for row in self._rows(statement):
                yield self._record(row.content, same)

    def cell_summaries(
        self, run: str | None = None, suite: str | None = None, machine: str | None = None
    ) -> list[CellSummary]:
        """Return for each cell of each machine which run and environment measured it last; no content is read."""
        found: dict[int, CellSummary] = {}
        for row in self._rows(newest.cell_summaries(run, suite, machine)):
            with self._understood():
                summary = newest.cell_summary(row)
            if summary.number not in found or summary.newest_id > found[summary.number].newest_id:
                found[summary.number] = summary
        return list(found.values())

    def compared_runs(self, suite: str | None = None, machine: str | None = None) -> list[str]:
        """Return the ids of the runs of two sides (compare, gate) and of the searches that hold a record."""
        table = schema.records.c
        conditions = queries.of_records(None, suite, machine)
        return [row.run for row in self._rows(sa.select(table.run).where(table.side != "", *conditions).distinct())]

    def records_of_cells(self, run: str, chosen: Mapping[int, tuple[str, bool]], asked: bool = False) -> list[Record]:
        """Return a run's records of these cells (by number) that count, in the order they were appended.

        For each cell: the environment wanted, and whether skipped launches are left out. ``asked`` tells whether the
        run was asked for by its id: then launches of a comparison's candidate count too.
        """
        kept = []
        same: dict[str, Any] = {}
        for some in batched(chosen):
            for row in self._rows(newest.contents(run, some, asked)):
                environment, measured = chosen[row.cell_id]
                if row.environment == environment and not (measured and row.status == Status.SKIPPED.value):
                    kept.append((row.id, self._record(row.content, same)))
        return [record for _, record in sorted(kept, key=lambda pair: pair[0])]

    def example(self, run: str, cell: int, side: str) -> Record | None:
        """Return one record of this run, cell (see `cells`) and side, a timed one where there is any; else None."""
        table = schema.records.c
        asked = table.run == run, table.cell_id == cell, table.side == side
        timed_first = sa.case((table.status == Status.OK.value, 0), else_=1), table.id
        # Chosen by the index alone: only the one content is read.
        chosen = self._rows(sa.select(table.id).where(*asked).order_by(*timed_first).limit(1))
        rows = self._rows(sa.select(table.content).where(table.id == chosen[0].id)) if chosen else []
        return self._build(Record, self._parse(rows[0].content)) if rows else None

    def history(self) -> list[tuple[int, str, str]]:
        """Return the migrations that made this store's schema: (version, what, when in ISO 8601)."""
        table = schema.schema_history
        return [(row.version, row.what, row.applied) for row in self._rows(sa.select(table).order_by(table.c.version))]

    def _insert_run(self, connection: sa.Connection, run: Run) -> None:
        if connection.execute(sa.select(schema.runs.c.id).where(schema.runs.c.id == run.id)).first():
            raise StoreError(f"The store {self.name} already has a run {run.id}; give the new one another id.")
        content = run.to_dict()
        kept = {name: content[name] for name in ("id", "suite", "machine", "started", "finished", "purpose")}
        connection.execute(sa.insert(schema.runs).values(**kept, content=_json(content)))

    def _insert_records(self, connection: sa.Connection, records: Sequence[Record]) -> list[dict[str, Any]]:
        rows = [
            {
                **record_columns.columns(record, self._host(connection, record.machine)),
                "cell_id": self._numbers.of(connection, record.machine, record.cell),
                "content": _json(record.to_dict()),
            }
            for record in records
        ]
        connection.execute(sa.insert(schema.records), rows)
        return rows

    def _host(self, connection: sa.Connection, machine: str) -> Host | None:
        if machine not in self._hosts:
            table = schema.machines
            statement = sa.select(table.c.description).where(table.c.fingerprint == machine)
            described = connection.execute(statement).scalar()
            if described is None:
                return None  # It may yet be told.
            self._hosts[machine] = read_host(machine, self._parse(described))
        return self._hosts[machine]

    def _replace(self, table: sa.Table, fingerprint: str, **values: str) -> None:
        # Writers of one server may tell of the same machine at the same moment: they take turns.
        with self._writing(alone=True) as connection:
            connection.execute(sa.delete(table).where(table.c.fingerprint == fingerprint))
            connection.execute(sa.insert(table).values(fingerprint=fingerprint, **values))

    def _rows(self, statement: sa.Select[Any]) -> list[sa.Row[Any]]:
        with database.explained(self._place), self._engine.begin() as connection:
            return list(connection.execute(statement))

    def _pairs(self, statement: sa.Select[Any]) -> list[tuple[Any, Any]]:
        return [tuple(row) for row in self._rows(statement)]

    @contextmanager
    def _appending(self, alone: bool = False) -> Iterator[sa.Connection]:
        try:
            with self._writing(alone) as connection:
                yield connection
        except BaseException:
            self._numbers.forget()
            raise

    def _writing(self, alone: bool = False) -> AbstractContextManager[sa.Connection]:
        return database.writing(self._engine, self._place, alone)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise StoreError where columns hold what they cannot: SQLite lets any of them hold anything."""
        try:
            yield
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise database.damaged(self.name) from error

    def _parse(self, text: Any) -> dict[str, Any]:
        try:
            content = read_json(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise database.damaged(self.name) from error
        if not isinstance(content, dict):
            raise database.damaged(self.name)
        return content

    def _record(self, content: Any, same: dict[str, Any]) -> Record:
        """Read a record; equal software dictionaries, the larger part of it, become one by way of ``same``."""
        data = self._parse(content)
        outcome = data.get("outcome")
        if isinstance(outcome, dict) and "software" in outcome:
            outcome["software"] = same.setdefault(repr(outcome["software"]), outcome["software"])
        return self._build(Record, data)

    def _build(self, kind: type[_Kept], data: dict[str, Any]) -> _Kept:
        try:
            return kind.from_dict(data)
        except StoreError as error:
            raise type(error)(f"In {self.name}: {error}") from error


def _json(content: Any) -> str:
    # Not-a-number stays readable for Python: a diverged loss must not cost the record.
    return json.dumps(content, separators=(",", ":"))
