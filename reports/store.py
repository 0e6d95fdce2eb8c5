"""The Store: runs, records, machines and ceilings in one SQLite file, or in any database SQLAlchemy speaks.

`Store.append` returns when the record is on the disk (one transaction, ``synchronous=FULL``): a runner that
is killed afterwards loses nothing. Several processes may write one store at the same time: SQLite keeps a
write-ahead log where the file system allows it, and a writer waits `database.BUSY_SECONDS` for its turn. Whatever goes
wrong is a StoreError of one line that names the store and the remedy.
"""

import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from dlbench.reports import database, schema
from dlbench.reports.errors import StoreError
from dlbench.reports.record import Record, Run

_Kept = TypeVar("_Kept", Run, Record)


class Store:
    """An opened store; a context manager. Open one with `Store.open`."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        """What the user calls it: the path, or the URL without its password."""

    @classmethod
    def open(cls, target: str | os.PathLike[str], create: bool = True) -> "Store":
        """Open the store in a file, or at a database URL (anything that holds "://").

        With ``create`` a missing file is made and an older schema brought up to date. Without it nothing is
        created or changed by opening, and a store that is missing, empty or of an older schema is a
        StoreError. Raises StoreError.
        """
        engine, name = database.open_engine(os.fspath(target), create)
        store = cls(engine, name)
        try:
            store._prepare(create)
        except BaseException:
            engine.dispose()
            raise
        return store

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
            if connection.execute(sa.select(schema.runs.c.id).where(schema.runs.c.id == run.id)).first():
                raise StoreError(f"The store {self.name} already has a run {run.id}; give the new one another id.")
            connection.execute(
                sa.insert(schema.runs).values(
                    id=run.id,
                    suite=run.suite,
                    machine=run.machine,
                    started=run.started.isoformat(),
                    finished=None if run.finished is None else run.finished.isoformat(),
                    content=_json(run.to_dict()),
                )
            )

    def finish_run(self, run: str, when: datetime) -> None:
        """Note that the run with this id came to its end; raises StoreError where there is none."""
        with self._writing() as connection:
            statement = sa.update(schema.runs).where(schema.runs.c.id == run)
            if connection.execute(statement.values(finished=when.astimezone(UTC).isoformat())).rowcount == 0:
                raise StoreError(f"The store {self.name} has no run {run}; begin it first.")

    def runs(self) -> list[Run]:
        """Return every run, the oldest first."""
        rows = self._rows(sa.select(schema.runs).order_by(schema.runs.c.started, schema.runs.c.id))
        # The column alone knows the end: the content was written when the run began.
        return [self._build(Run, {**self._parse(row.content), "finished": row.finished}) for row in rows]

    def latest_unfinished(self, suite: str, machine: str) -> Run | None:
        """Return the newest run of this suite on this machine (fingerprint) that did not finish."""
        runs = [run for run in self.runs() if run.suite == suite and run.machine == machine]
        return next((run for run in reversed(runs) if run.finished is None), None)

    def append(self, record: Record) -> None:
        """Keep a record; it is on the disk when this returns. Raises StoreError, and then nothing is kept."""
        cell = record.cell
        with self._writing() as connection:
            connection.execute(
                sa.insert(schema.records).values(
                    run=record.run,
                    suite=record.suite,
                    machine=record.machine,
                    launch=record.launch,
                    framework=cell.framework,
                    mode=cell.mode,
                    network=cell.network,
                    device=cell.device,
                    threads=cell.threads,
                    batch_size=cell.batch_size,
                    status=record.outcome.status.value,
                    environment=record.environment,
                    started=record.started.isoformat(),
                    wall_seconds=record.wall_seconds,
                    content=_json(record.to_dict()),
                )
            )

    def records(self, run: str | None = None, suite: str | None = None, machine: str | None = None) -> list[Record]:
        """Return the records in the order they were appended: all, or those of a run, suite or machine."""
        table = schema.records
        statement = sa.select(table.c.content).order_by(table.c.id)
        for column, wanted in ((table.c.run, run), (table.c.suite, suite), (table.c.machine, machine)):
            if wanted is not None:
                statement = statement.where(column == wanted)
        return [self._build(Record, self._parse(row.content)) for row in self._rows(statement)]

    def history(self) -> list[tuple[int, str, str]]:
        """Return the migrations that made this store's schema: (version, what, when in ISO 8601)."""
        table = schema.schema_history
        return [(row.version, row.what, row.applied) for row in self._rows(sa.select(table).order_by(table.c.version))]

    def _replace(self, table: sa.Table, fingerprint: str, **values: str) -> None:
        with self._writing() as connection:
            connection.execute(sa.delete(table).where(table.c.fingerprint == fingerprint))
            connection.execute(sa.insert(table).values(fingerprint=fingerprint, **values))

    def _rows(self, statement: sa.Select[Any]) -> list[sa.Row[Any]]:
        with database.explained(self.name), self._engine.begin() as connection:
            return list(connection.execute(statement))

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        return database.writing(self._engine, self.name)

    def _prepare(self, create: bool) -> None:
        """Check that this is a store of ours and of a known schema, and bring it up to date where allowed."""
        with database.explained(self.name):
            with self._engine.begin() as connection:
                version = schema.stored_version(connection)
                strangers = (
                    not version and database.is_sqlite(self._engine) and sa.inspect(connection).get_table_names()
                )
            newest = schema.newest_version()
            if strangers:
                raise StoreError(
                    f"{self.name} is a database of another program (it has a table {strangers[0]}); "
                    "choose another file with --store."
                )
            if version > newest:
                raise StoreError(
                    f"{self.name} was written by a newer dlbench (schema {version}, this one knows "
                    f"{newest}); upgrade dlbench or choose another file with --store."
                )
            if version == newest:
                return
            if not create:
                if version == 0:
                    raise StoreError(f"{self.name} holds no results yet; fill it with `dlbench run SUITE`.")
                raise StoreError(
                    f"{self.name} has the older schema {version}; `dlbench run` with this store brings it up to date."
                )
        if database.is_sqlite(self._engine):
            database.turn_on_write_ahead_log(self._engine, self.name)
        with self._writing() as connection:
            # Another process may have done it between the look above and this lock.
            schema.migrate(connection)

    def _parse(self, text: Any) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise database.damaged(self.name) from error
        if not isinstance(content, dict):
            raise database.damaged(self.name)
        return content

    def _build(self, kind: type[_Kept], data: dict[str, Any]) -> _Kept:
        try:
            return kind.from_dict(data)
        except StoreError as error:
            raise type(error)(f"In {self.name}: {error}") from error


def _json(content: Any) -> str:
    # Not-a-number stays readable for Python: a diverged loss must not cost the record.
    return json.dumps(content, separators=(",", ":"))
