"""Local first: a run writes to a store of this machine, which is delivered to a server's store.

The local store of a server is a SQLite file and kept permanently. Everything that the server lacks
is delivered at the next opportunity: by the run that measured it, by the next run into that server,
or by `dlbench store deliver`. Each record arrives exactly once, even if a process or a connection
ends early, since the server's own records show which are missing.
"""

import contextlib
import hashlib
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import sqlalchemy as sa

from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import Record, Run
from dlbench.reports.results.storage import database, schema, servers
from dlbench.reports.results.storage.store import Store, batched

RETRY_SECONDS = 60.0
"""Pause before a server that was away is tried again, between two launches."""
_SAME = {
    schema.records: ("cell", "launch", "attempt", "side", "stage", "started"),
    schema.sentinels: ("block", "moment", "content"),
}
"""Columns in which two rows of a run differ: no launch is made twice in one microsecond."""

Say = Callable[[str], None]


def _no_progress(done: int, total: int) -> None:
    """Show nothing."""


def copy(
    source: Store, target: Store, progress: Callable[[int, int], None] = _no_progress
) -> tuple[int, int]:
    """Copy to a store everything that it lacks of another one, each run in one transaction.

    Returns how many runs and records the target did not have before. ``progress`` takes how many
    records were looked at, and of how many. Raises StoreError.
    """
    for table in (schema.machines, schema.ceilings):
        _copy_machines(source, target, table)
    states = _states(source)
    states_of_target = _states(target)
    total = sum(records for records, _, _ in states.values())
    done = 0
    runs = 0
    records = 0
    for run, state in states.items():
        if states_of_target.get(run) != state:
            new_runs, new_records = copy_run(source, target, run)
            runs += new_runs
            records += new_records
        done += state[0]
        progress(done, total)
    return runs, records


def _copy_machines(source: Store, target: Store, table: sa.Table) -> None:
    """Copy the rows of a table of machines that the target lacks."""
    fingerprints = sa.select(table.c.fingerprint)
    present = {row.fingerprint for row in target.rows(fingerprints)}
    missing = {}
    for row in source.rows(sa.select(table)):
        if row.fingerprint not in present:
            missing[row.fingerprint] = dict(row._mapping)
    if not missing:
        return
    with database.writing(target.engine, target.name, alone=True) as connection:
        # Another writer may have added some meanwhile.
        for fingerprint in connection.execute(fingerprints).scalars():
            missing.pop(fingerprint, None)
        if missing:
            connection.execute(sa.insert(table), list(missing.values()))


def copy_run(source: Store, target: Store, run: str, after: int = 0) -> tuple[int, int]:
    """Copy the missing parts of a run: its description, end, records and sentinels.

    ``after``: only records of the source with a higher number are looked at. Raises StoreError.
    """
    described = source.rows(sa.select(schema.runs).where(schema.runs.c.id == run))
    added = {}
    runs = 0
    with database.writing(target.engine, target.name, alone=True) as connection:
        if described:
            runs = _copy_description(connection, described[0])
        for table in _SAME:
            least = after if table is schema.records else 0
            missing = _missing_numbers(source, connection, table, run, least)
            for numbers in batched(missing):
                statement = sa.select(table).where(table.c.id.in_(numbers)).order_by(table.c.id)
                rows = []
                for stored in source.rows(statement):
                    row = dict(stored._mapping)
                    del row["id"]
                    rows.append(row)
                connection.execute(sa.insert(table), rows)
            added[table.name] = len(missing)
    return runs, added["records"]


def _missing_numbers(
    source: Store, connection: sa.Connection, table: sa.Table, run: str, after: int
) -> list[int]:
    """Return the numbers of a run's rows that the target does not have as often as the source.

    ``after`` is for records: only those with a higher number are looked at.
    """
    keys = [table.c[name] for name in _SAME[table]]
    statement = sa.select(table.c.id, *keys).where(table.c.run == run, table.c.id > after)
    rows = source.rows(statement.order_by(table.c.id))
    same = sa.select(*keys).where(table.c.run == run)
    if after:
        same = same.where(table.c.started.in_([row.started for row in rows]))
    counts = Counter(tuple(row) for row in connection.execute(same))
    missing = []
    for row in rows:
        key = tuple(row)[1:]
        counts[key] -= 1
        if counts[key] < 0:
            missing.append(row.id)
    return missing


def _states(store: Store) -> dict[str, tuple[int, int, bool]]:
    """Return for each run the numbers of its records and sentinels, and whether it has ended."""
    records = _counts_by_run(store, schema.records)
    sentinels = _counts_by_run(store, schema.sentinels)
    ended = dict(store.pairs(sa.select(schema.runs.c.id, schema.runs.c.finished.is_not(None))))
    first = sa.select(sa.func.min(schema.records.c.id), schema.records.c.run).group_by("run")
    measured = [run for _, run in sorted(store.pairs(first))]
    states = {}
    for run in dict.fromkeys([*measured, *ended]):
        states[run] = records.get(run, 0), sentinels.get(run, 0), bool(ended.get(run))
    return states


def _counts_by_run(store: Store, table: sa.Table) -> dict[str, int]:
    return dict(store.pairs(sa.select(table.c.run, sa.func.count()).group_by(table.c.run)))


def _copy_description(connection: sa.Connection, row: sa.Row[Any]) -> int:
    table = schema.runs
    if connection.execute(sa.select(table.c.id).where(table.c.id == row.id)).first() is None:
        connection.execute(sa.insert(table).values(dict(row._mapping)))
        return 1
    if row.finished is not None:
        ended = sa.update(table).where(table.c.id == row.id, table.c.finished.is_(None))
        connection.execute(ended.values(finished=row.finished))
    return 0


def local_path(target: str) -> Path:
    """Return the file of the local store of a server, one for each host that shares a home."""
    given = os.environ.get("DLBENCH_HOME")
    home = Path(given).absolute() if given else platformdirs.user_state_path("dlbench")
    name = servers.public(servers.parsed(target))
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return home / "stores" / f"{platform.node() or 'host'}-{digest}.sqlite"


def local_or(target: str) -> str:
    """Return the store that holds this machine's own runs into a store.

    Of a store on a server it is the local one, once it exists.
    """
    if servers.is_served(target):
        path = local_path(target)
        if path.exists():
            return str(path)
    return target


@contextlib.contextmanager
def opened(
    target: str, report: Say, create: bool = True, unfinished: Run | None = None
) -> Iterator[Store]:
    """Open the store that a run writes to; first deliver earlier records that its server lacks.

    A server that this machine has never reached must be there. ``unfinished`` is a run that is to
    be resumed. Raises StoreError.
    """
    if not servers.is_served(target):
        with Store.open(target, create=create) as store:
            yield store
        return
    path = local_path(target)
    if not path.exists():
        Store.open(target, create=create).close()
        with database.explained(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
    with Store.open(path) as local:
        store = DeliveringStore(local, lambda: Store.open(target), target, report)
        try:
            store.deliver()
            if unfinished is not None and not local.runs(unfinished.id):
                with Store.open(target, create=False) as server:
                    copy_run(server, local, unfinished.id)
            yield store
        finally:
            store.deliver_last()


class DeliveringStore(Store):
    """A local store whose content is delivered to a server's store as soon as that takes it."""

    def __init__(
        self,
        local: Store,
        open_server: Callable[[], Store],
        target: str,
        report: Say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(local.engine, servers.public(servers.parsed(target)))
        self._place = local.name
        self._open_server = open_server
        self._report = report
        self._clock = clock
        self._failed_at: float | None = None
        self.behind = True
        """Whether the server may lack something of the local store."""

    def deliver(self) -> None:
        """Deliver everything that the server lacks, if it can be reached."""
        self._deliver(lambda server: None)

    def deliver_last(self) -> None:
        """Try once more to deliver everything; otherwise report where it is kept."""
        if self.behind:
            self._failed_at = None
            self.deliver()
        if self.behind:
            self._report(
                f"Not everything was delivered to {self.name}: the rest is kept in {self._place}. "
                "The next run into that store delivers it, and so does `dlbench store deliver "
                f"--store {self.name}`."
            )

    def replace(self, table: sa.Table, fingerprint: str, **values: str) -> None:
        """Keep a machine's description or ceilings; see Store."""
        super().replace(table, fingerprint, **values)
        self._deliver(lambda server: server.replace(table, fingerprint, **values))

    def written(self, run: str) -> None:
        """Deliver the changes of a run."""
        self._deliver(lambda server: copy_run(self, server, run))

    def append(self, record: Record) -> None:
        """Keep a record on this machine's disk, and on the server if that accepts it."""
        super().append(record)
        numbers = sa.select(sa.func.max(schema.records.c.id))
        (newest,) = self.rows(numbers.where(schema.records.c.run == record.run))
        self._deliver(lambda server: copy_run(self, server, record.run, after=newest[0] - 1))

    def _deliver(self, write: Callable[[Store], object]) -> None:
        """Pass a write on to the server, with everything that it missed while unreachable."""
        away = self._failed_at is not None
        if self._failed_at is not None and self._clock() - self._failed_at < RETRY_SECONDS:
            self.behind = True
            return
        behind = self.behind
        self.behind = True  # also where Ctrl-C breaks in
        added = 0
        try:
            # A connection for each delivery: a thousand machines must not hold a thousand of them.
            with self._open_server() as server:
                if behind:
                    _, added = copy(self, server)
                write(server)
        except StoreError as error:
            self._failed_at = self._clock()
            if not away:
                self._report(
                    f"{error} The run continues: its records are kept in {self._place} and "
                    "delivered later."
                )
            return
        self._failed_at = None
        self.behind = False
        if added:
            self._report(f"{counted(added, 'waiting record')} delivered to {self.name}")
