"""From an engine to a store that can be used: of a known schema, and brought up to date where it is older."""

from collections.abc import Callable

import sqlalchemy as sa

from dlbench.reports.errors import RecordError, StoreError
from dlbench.reports.storage import database, schema


def ready(engine: sa.Engine, name: str, create: bool, upgrade: bool, report: Callable[[str], None]) -> sa.Engine:
    """Return an engine whose store has the newest schema: this one, or of an older store not to be changed a copy's.

    An empty store gets its tables with ``create``, an older one the newer schema with ``upgrade``; of a file the state
    before is kept beside it, which ``report`` is told. Raises StoreError, and then the engine is disposed of.
    """
    try:
        version = _version(engine, name)
        if version == schema.newest_version():
            return engine
        if version == 0 and not create:
            raise StoreError(f"{name} holds no results yet; fill it with `dlbench run SUITE`.")
        if version:
            engine = _upgradable(engine, name, version, upgrade, report)
        if database.is_sqlite(engine) and (upgrade or not version):
            database.turn_on_write_ahead_log(engine, name)
        with database.writing(engine, name, alone=True) as connection:
            schema.migrate(connection)  # another process may have done it between the look above and this lock
    except RecordError as error:
        engine.dispose()
        raise RecordError(f"In {name}: {error}") from error
    except BaseException:
        engine.dispose()
        raise
    return engine


def _upgradable(engine: sa.Engine, name: str, version: int, upgrade: bool, report: Callable[[str], None]) -> sa.Engine:
    """Return the engine of an older store that may be changed: its own, with a copy kept, or a copy's in memory."""
    if not upgrade:
        copy = database.copy_in_memory(engine, name)
        engine.dispose()
        return copy
    known = schema.newest_version()
    kept = "it is on a server, so no copy was kept"
    if database.is_sqlite(engine):
        with database.explained(name):
            kept = f"the old file is kept as {database.back_up(engine, name, f'schema-{version}')}"
    report(f"{name} is upgraded from schema {version} to {known}; {kept}")
    return engine


def _version(engine: sa.Engine, name: str) -> int:
    """Return the schema's version, 0 of an empty store; raises StoreError where this version cannot use it."""
    strangers: set[str] = set()
    with database.explained(name), engine.begin() as connection:
        version = schema.stored_version(connection)
        if not version:
            strangers = set(sa.inspect(connection).get_table_names())
            version = schema.stored_version(connection)  # another process may have made the tables between the two
    if not version:
        _refuse_strangers(strangers, database.is_sqlite(engine), name)
    if version > schema.newest_version():
        raise StoreError(
            f"{name} was written by a newer dlbench (schema {version}, this one knows {schema.newest_version()}); "
            "upgrade dlbench or choose another file with --store."
        )
    return version


def _refuse_strangers(tables: set[str], of_file: bool, name: str) -> None:
    """Raise StoreError where these tables, which are not dlbench's, leave its own no place."""
    if of_file and tables:
        raise StoreError(
            f"{name} is a database of another program (it has a table {min(tables)}); choose another file with --store."
        )
    # A server's database may be shared, if the names differ.
    if taken := tables & (set(schema.TABLES.tables) - {schema.schema_history.name}):
        raise StoreError(
            f"{name} has a table {min(taken)} of another program; choose another database, or a schema of its own: "
            "?options=-csearch_path%3DNAME at the end of the URL."
        )
