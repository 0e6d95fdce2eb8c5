"""The Store: runs, records, machines and ceilings in one SQLite file, or in any database SQLAlchemy speaks.

`Store.append` returns when the record is on the disk (one transaction, ``synchronous=FULL``): a runner that
is killed afterwards loses nothing. Several processes may write one store at the same time: SQLite keeps a
write-ahead log where the file system allows it, and a writer waits `BUSY_SECONDS` for its turn. Whatever goes
wrong is a StoreError of one line that names the store and the remedy.
"""

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from dlbench.reports import schema
from dlbench.reports.errors import StoreError
from dlbench.reports.record import Record, Run

BUSY_SECONDS = 60.0
"""How long a writer waits for other writers before it gives up."""

# Set by writers only: SQLite must take the write lock when a transaction begins, since a transaction that
# turns from reading to writing is refused at once, without waiting, when another wrote in between.
_WRITES = "dlbench_writes"

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
        text = os.fspath(target)
        path = _sqlite_path(text)
        if path is None:
            engine, name = _server_engine(text)
        else:
            _check_file(path, create)
            engine, name = _file_engine(path, create), str(path)
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
        with _explained(self.name), self._engine.begin() as connection:
            return list(connection.execute(statement))

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with (
            _explained(self.name),
            self._engine.connect().execution_options(**{_WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    def _prepare(self, create: bool) -> None:
        """Check that this is a store of ours and of a known schema, and bring it up to date where allowed."""
        with _explained(self.name):
            with self._engine.begin() as connection:
                version = schema.stored_version(connection)
                strangers = not version and self._is_file and sa.inspect(connection).get_table_names()
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
        if self._is_file:
            self._turn_on_write_ahead_log()
        with self._writing() as connection:
            # Another process may have done it between the look above and this lock.
            schema.migrate(connection)

    @property
    def _is_file(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    def _turn_on_write_ahead_log(self) -> None:
        # It lasts: the file remembers it. On file systems without shared memory SQLite keeps its rollback
        # journal, and so it may: writers then wait for readers too. A lock here only means that another
        # process is doing it.
        connection = self._engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "busy" not in str(error):
                raise _explain(error, self.name) from error
        finally:
            connection.close()

    def _parse(self, text: Any) -> dict[str, Any]:
        try:
            content = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise _damaged(self.name) from error
        if not isinstance(content, dict):
            raise _damaged(self.name)
        return content

    def _build(self, kind: type[_Kept], data: dict[str, Any]) -> _Kept:
        try:
            return kind.from_dict(data)
        except StoreError as error:
            raise type(error)(f"In {self.name}: {error}") from error


def _json(content: Any) -> str:
    # Not-a-number stays readable for Python: a diverged loss must not cost the record.
    return json.dumps(content, separators=(",", ":"))


def _sqlite_path(target: str) -> Path | None:
    """Return the file of a SQLite store; None for a database server, or for one in memory."""
    if "://" not in target:
        return Path(target).expanduser()
    scheme, _, rest = target.partition("://")
    if scheme.partition("+")[0] == "sqlite" and rest.startswith("/") and not rest.startswith("/:memory:"):
        return Path(rest[1:].partition("?")[0])
    return None


def _server_engine(target: str) -> tuple[sa.Engine, str]:
    try:
        url = sa.make_url(target)
        name = url.render_as_string(hide_password=True)
        if url.get_backend_name() == "sqlite":
            return _sqlite_engine(lambda: sqlite3.connect(":memory:", check_same_thread=False), StaticPool), name
        return sa.create_engine(url), name
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise StoreError(
            "The store's URL cannot be understood; write a file name, or a URL such as "
            f"postgresql+psycopg://USER@HOST/DATABASE ({type(error).__name__})."
        ) from error
    except ModuleNotFoundError as error:
        raise StoreError(
            f"The store's database needs the Python package {error.name}; install it beside dlbench."
        ) from error


def _check_file(path: Path, create: bool) -> None:
    """Say clearly, before SQLite says it vaguely, why the file cannot be opened."""
    try:
        if "\0" in str(path):
            raise ValueError("its name holds a zero byte")
        if path.is_dir():
            raise StoreError(f"{path} is a folder; name a file in it with --store, such as {path / 'dlbench.sqlite'}.")
        if path.exists():
            _check_header(path)
            return
        if not create:
            raise StoreError(f"There is no store {path}; fill one with `dlbench run SUITE --store {path}`.")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"The store {path} cannot be created ({reason}); choose a writable place with --store FILE."
        ) from error


def _check_header(path: Path) -> None:
    # SQLite takes any file shorter than its header for an empty database, and would overwrite it.
    try:
        with path.open("rb") as file:
            header = file.read(16)
    except PermissionError as error:
        raise StoreError(f"The store {path} may not be read; check its permissions.") from error
    if header not in (b"", b"SQLite format 3\0"):
        raise _not_a_database(str(path))


def _file_engine(path: Path, create: bool) -> sa.Engine:
    mode = "rwc" if create else "rw"
    if not create and not os.access(path, os.W_OK):
        mode = "ro"
        # Reading a write-ahead log needs a file beside the store; without one to make, nobody can be writing.
        if not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
            mode = "ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return _sqlite_engine(
        lambda: sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False), QueuePool
    )


def _sqlite_engine(connect: Callable[[], sqlite3.Connection], pool: type[sa.Pool]) -> sa.Engine:
    engine = sa.create_engine("sqlite://", creator=connect, poolclass=pool)

    @sa.event.listens_for(engine, "connect")
    def _settle(connection: Any, _: Any) -> None:
        # The sqlite3 module shall not begin transactions by itself: see _begin.
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous=FULL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise _explain(error, name) from error


def _not_a_database(name: str) -> StoreError:
    return StoreError(f"{name} is not a database; choose another file with --store. It was left as it is.")


def _damaged(name: str) -> StoreError:
    return StoreError(f"The store {name} is damaged; restore it from a copy, or choose another file with --store.")


def _explain(error: BaseException, name: str) -> StoreError:
    """Turn an error of the database into one line with the remedy."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(cause).split())
    code = getattr(cause, "sqlite_errorname", "") or ""
    if code.startswith("SQLITE_NOTADB"):
        return StoreError(f"{name} is not a database; choose another file with --store. It was left as it is.")
    if code.startswith("SQLITE_CORRUPT") or isinstance(cause, UnicodeDecodeError) or "decode to UTF-8" in text:
        return _damaged(name)
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StoreError(
            f"The store {name} could not be written: {text}. What it held is kept; make room on its "
            "disk and go on with `dlbench run SUITE --resume`."
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
        return StoreError(
            f"The store {name} cannot be opened or written ({text}); check its permissions and those of its "
            "folder, or choose a writable place with --store FILE."
        )
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(
            f"The store {name} is held by another program for more than {BUSY_SECONDS:.0f} s; close that "
            "program and go on with `dlbench run SUITE --resume`."
        )
    return StoreError(f"The store {name} cannot be used ({text}); check it, or choose another with --store.")
