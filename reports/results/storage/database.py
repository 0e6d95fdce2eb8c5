"""Opening a database: a SQLite file with care, any other through SQLAlchemy. Its errors in words.

Functions raise StoreError, in one line that names the store and the remedy.
"""

import codecs
import contextlib
import errno
import lzma
import os
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.storage import schema, servers

BUSY_SECONDS = 60.0
"""How long a writer waits for other writers before it gives up."""
_READERS_MS = 1000

LARGEST_PACKED = 500_000_000
"""Bytes of a packed store that are read into memory."""
PACKED = ".xz"
"""Suffix of a packed store, which is read as a copy in memory and never written; a tenth of the
size."""
_HEADER = b"SQLite format 3\0"
_SMALLEST_PAGE = 512

# Set by writers only: SQLite must take the write lock when a transaction begins, since a
# transaction that turns from reading to writing is refused at once, without waiting, when another
# wrote in between.
_WRITES = "dlbench_writes"


def open_engine(target: str, create: bool) -> tuple[sa.Engine, str]:
    """Return an engine for a file or a URL, and its name: the path, or the URL without a password.

    Without ``create`` a file must exist, and is opened for reading only where it may not be
    written.
    """
    path = _sqlite_path(target)
    if path is None:
        url = servers.parsed(target)
        if url.get_backend_name() == "sqlite":
            connect = partial(sqlite3.connect, ":memory:", check_same_thread=False)
            return _sqlite_engine(connect, StaticPool), target
        return servers.engine_of(url), servers.public(url)
    if path.suffix == PACKED and path.is_file():
        if create:
            raise StoreError(
                f"{path} is packed and can only be read; unpack it to write to it: xz --decompress "
                f"{path}"
            )
        return _sqlite_engine(partial(_in_memory, _unpacked(path)), StaticPool), str(path)
    _check_file(path, create)
    return _file_engine(path, create), str(path)


@contextmanager
def writing(engine: sa.Engine, name: str, alone: bool = False) -> Iterator[sa.Connection]:
    """Give a connection in a transaction that writes.

    It is durable when the block is left without an error. With ``alone`` all such writers of the
    same store exclude each other.
    """
    with (
        explained(name),
        engine.connect().execution_options(**{_WRITES: True}) as connection,
        connection.begin(),
    ):
        if alone:
            servers.lock(connection)
        yield connection


def prepare(engine: sa.Engine, name: str, create: bool) -> None:
    """Make the tables of an empty store with ``create``; refuse one of another schema version."""
    foreign: set[str] = set()
    with explained(name), engine.begin() as connection:
        version = schema.stored_version(connection)
        if not version:
            foreign = set(sa.inspect(connection).get_table_names())
            # Another process may have made the tables between the two.
            version = schema.stored_version(connection)
    if version == schema.VERSION:
        return
    if version:
        age = "a newer" if version > schema.VERSION else "an older"
        raise StoreError(
            f"{name} was written by {age} dlbench (store schema {version}, this one reads "
            f"{schema.VERSION} only); use that version, or choose another store with --store."
        )
    is_file = engine.dialect.name == "sqlite"
    # A server's database may be shared, if the names differ.
    taken = foreign if is_file else foreign & set(schema.TABLES.tables)
    if taken:
        remedy = "file with --store."
        if not is_file:
            remedy = (
                "database, or a schema of its own: ?options=-csearch_path%3DNAME at the end of the "
                "URL."
            )
        raise StoreError(
            f"{name} belongs to another program (it has a table {min(taken)}); choose another "
            f"{remedy}"
        )
    if not create:
        raise StoreError(f"{name} holds no results yet; fill it with `dlbench run SUITE`.")
    if is_file:
        _turn_on_write_ahead_log(engine, name)
    with writing(engine, name, alone=True) as connection:
        schema.create(connection)


def _turn_on_write_ahead_log(engine: sa.Engine, name: str) -> None:
    # Readers and a writer then work at the same time; the file remembers it. On file systems
    # without shared memory SQLite keeps its rollback journal: writers then wait for readers too. A
    # lock at this point only means that another process is doing it.
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error) and "busy" not in str(error):
            raise _explain(error, name) from error
    finally:
        connection.close()


def checkpoint(engine: sa.Engine) -> None:
    """Move the write-ahead log into the file, so that a copy of it holds every finished launch.

    SQLite's own checkpoints skip pages that a reader of an older state still needs; this one waits
    for readers, but not long: the next one makes up for it.
    """
    if engine.dialect.name != "sqlite":
        return
    pragmas = (
        f"busy_timeout={_READERS_MS}",
        "wal_checkpoint(FULL)",
        f"busy_timeout={BUSY_SECONDS * 1000:.0f}",
    )
    # Where it fails, the record is on the disk all the same.
    with (
        contextlib.closing(engine.raw_connection()) as connection,
        contextlib.suppress(sqlite3.OperationalError),
    ):
        for pragma in pragmas:
            connection.cursor().execute(f"PRAGMA {pragma}")


def _sqlite_path(target: str) -> Path | None:
    """Return the file of a SQLite store; None for a database server, or for one in memory."""
    if not servers.is_url(target):
        # Path's own raises where there is no such user
        return Path(os.path.expanduser(target))  # noqa: PTH111
    scheme, _, rest = target.partition("://")
    if scheme.partition("+")[0] != "sqlite":
        return None
    if not rest.startswith("/") or rest.startswith("/:memory:"):
        return None
    return Path(rest[1:].partition("?")[0])


def _unpacked(path: Path) -> bytes:
    """Return a store packed by `xz` as a copy in memory can take it."""
    try:
        with lzma.open(path) as file:
            content = bytearray(file.read(LARGEST_PACKED + 1))
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise StoreError(
            f"{path} cannot be unpacked ({error}); choose another file with --store."
        ) from error
    if len(content) > LARGEST_PACKED:
        raise StoreError(
            f"{path} is too large to be read packed; unpack it first: xz --decompress {path}"
        )
    if not content.startswith(_HEADER):
        raise StoreError(f"{path} holds no result store; choose another file with --store.")
    # How the file is written: by a write-ahead log, which a copy in memory cannot have.
    content[18:20] = b"\1\1"
    return bytes(content)


def _in_memory(content: bytes) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.deserialize(content)
    return connection


def _check_file(path: Path, create: bool) -> None:
    """Say clearly, before SQLite says it vaguely, why the file cannot be opened."""
    try:
        if "\0" in str(path):
            raise ValueError("its name contains a zero byte")
        if path.is_dir():
            raise StoreError(
                f"{path} is a folder; name a file in it with --store, such as "
                f"{path / 'dlbench.sqlite'}."
            )
        if path.exists() and not path.is_file():
            raise StoreError(
                f"{path} is not a file, and no store can be kept in it; name a file with --store."
            )
        if path.exists():
            _check_header(path)
            return
        if not create:
            raise StoreError(
                f"There is no result store {path}. Measure first (`dlbench run quick`), or name "
                "another: --store FILE."
            )
        if not path.parent.is_dir():
            raise StoreError(
                f"The store {path} cannot be created: there is no folder {path.parent}. Make it, "
                "or choose another place with --store FILE."
            )
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"The store {path} cannot be created ({reason}); choose a writable place with --store "
            "FILE."
        ) from error


def _check_header(path: Path) -> None:
    # SQLite takes any file shorter than its smallest page for an empty database, and would
    # overwrite it; others it refuses itself. The file is not opened: closing it would release all
    # locks that the process has on it, also those of a store that is open already, and two
    # processes could then write over one another.
    if not os.access(path, os.R_OK):
        raise StoreError(f"The store {path} may not be read; check its permissions.")
    if 0 < path.stat().st_size < _SMALLEST_PAGE:
        raise _not_a_database(str(path))


def _file_engine(path: Path, create: bool) -> sa.Engine:
    mode = "rwc" if create else "rw"
    if not create and not os.access(path, os.W_OK):
        mode = "ro"
        # Reading a write-ahead log needs a file next to the store; without one to make, nobody can
        # be writing.
        if not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists():
            mode = "ro&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return _sqlite_engine(
        lambda: sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, check_same_thread=False),
        QueuePool,
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
        begin = "BEGIN"
        if connection.get_execution_options().get(_WRITES, False):
            begin = "BEGIN IMMEDIATE"
        connection.exec_driver_sql(begin)

    return engine


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn any error of the database within the block into a StoreError."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise _explain(error, name) from error


def _not_a_database(name: str) -> StoreError:
    if begins_as_text(name):
        return StoreError(
            f"{name} is not a database but a text file. If pytest-benchmark wrote it, read it into "
            f"a store: `dlbench import {shlex.quote(name)} --store STORE`. It was left as it is."
        )
    return StoreError(
        f"{name} is not a database; choose another file with --store. It was left as it is."
    )


def begins_as_text(name: str) -> bool:
    """Tell whether a file begins as text in UTF-8 does."""
    text = _beginning(name)
    return bool(text) and not any(character < " " and not character.isspace() for character in text)


def begins_as_json(name: str) -> bool:
    """Tell whether a file begins as an object of JSON in UTF-8 does."""
    return _beginning(name).lstrip().startswith("{")


def begins_as_store(name: str) -> bool:
    """Tell whether a file begins as a SQLite database does."""
    try:
        with Path(name).open("rb") as stream:
            return stream.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def _beginning(name: str) -> str:
    """Return the first characters of a file; none where it cannot be read, or is not text in UTF-8.

    Not for a store that is open: closing a file releases all locks that the process has on it.
    """
    try:
        with Path(name).open("rb") as stream:
            # An incremental decoder takes a character that is cut off at the end.
            return codecs.getincrementaldecoder("utf-8-sig")().decode(stream.read(4096))
    except (OSError, ValueError):  # a UnicodeDecodeError is a ValueError
        return ""


def damaged(name: str) -> StoreError:
    """Return the error of a store whose content cannot be understood."""
    return StoreError(
        f"The store {name} is damaged; restore it from a copy, or choose another file with --store."
    )


def _explain(error: BaseException, name: str) -> StoreError:
    """Turn an error of the database into one line with the remedy."""
    cause = getattr(error, "orig", None) or error
    if servers.is_of_server(cause):
        return StoreError(f"The store {name} {servers.remedy(cause)}")
    text = " ".join(str(cause).split())
    code = getattr(cause, "sqlite_errorname", "") or ""
    if code.startswith("SQLITE_NOTADB"):
        return _not_a_database(name)
    undecodable = isinstance(cause, UnicodeDecodeError) or "decode to UTF-8" in text
    if undecodable or code.startswith("SQLITE_CORRUPT"):
        return damaged(name)
    meaning = _OTHER
    for codes, words in _REMEDIES.items():
        if code.startswith(codes):
            meaning = words
            break
    return StoreError(f"The store {name} {meaning.format(text=text, seconds=BUSY_SECONDS)}")


_REMEDIES = {
    ("SQLITE_FULL", "SQLITE_IOERR"): (
        "could not be written: {text}. Its content is kept; make room on its disk and resume with "
        "`dlbench run SUITE --resume`."
    ),
    ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"): (
        "cannot be opened or written ({text}); check its permissions and those of its folder, or "
        "choose a writable place with --store FILE."
    ),
    ("SQLITE_BUSY", "SQLITE_LOCKED"): (
        "has been held by another program for more than {seconds:.0f} s; close that program and "
        "resume with `dlbench run SUITE --resume`."
    ),
}
_OTHER = "cannot be used ({text}); check it, or choose another with --store."
