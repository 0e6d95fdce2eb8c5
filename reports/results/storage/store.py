"""The Store: runs, records, machines and ceilings in a SQLite file, or a database of SQLAlchemy.

`Store.append` returns when the record is on the disk (one transaction, ``synchronous=FULL``): a
runner that is killed afterwards loses nothing. Several processes may write one store at the same
time: SQLite keeps a write-ahead log where the file system allows it, and a writer waits
`database.BUSY_SECONDS` for its turn. Errors are StoreErrors of one line that names the store and
the remedy.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter

from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.results.disturbance import disturbed_if_known
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.flags import product_rate
from dlbench.reports.results.hosts import Host, read_host
from dlbench.reports.results.record import PROFILED, Record, Run
from dlbench.reports.results.storage import database, queries, schema
from dlbench.reports.results.storage.queries import Wanted

if TYPE_CHECKING:
    import pandas as pd

    from dlbench.reports.results.judged import JudgedQuantity

_Kept = TypeVar("_Kept", Run, Record)
_Item = TypeVar("_Item")

BATCH = 500
"""Records read or written at a time where there are many: a few megabytes."""
_IN_COLUMNS = (
    "run",
    "suite",
    "machine",
    "side",
    "stage",
    "environment",
    "launch",
    "attempt",
    "wall_seconds",
)


class Newest(NamedTuple):
    """The run and environment that measured a cell on a machine last: a row of `queries.newest`."""

    machine: str
    cell: Cell
    key: int
    measured: str | None
    newest: str | None
    first: str | None
    first_id: int
    least: str | None
    greatest: str | None
    product_rate: float | None
    newest_id: int | None
    run: str | None
    environment: str | None


_NEWEST = TypeAdapter(Newest)


class _NightSums(NamedTuple):
    """A row of `queries.nights`."""

    run: str
    cell: int
    side: str
    environment: str
    quiet: float
    """Launches, then the sum of the logarithms and that of their squares."""
    quiet_sum: float
    quiet_squares: float
    disturbed: float
    """The same of launches that other programs disturbed."""
    disturbed_sum: float
    disturbed_squares: float


class Store:
    """An opened store; a context manager. Open one with `Store.open`."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        """As the user calls it: the path, or the URL without its password."""
        self._hosts: dict[str, Host] = {}

    @classmethod
    def open(cls, target: str | os.PathLike[str], create: bool = True) -> "Store":
        """Open the store in a file, or at a database URL (anything that holds "://").

        With ``create`` a missing one is made. Raises StoreError, also for one of another schema
        version.
        """
        engine, name = database.open_engine(os.fspath(target), create)
        try:
            database.prepare(engine, name, create)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Return the connections; everything appended is already on the disk."""
        self.engine.dispose()

    def add_machine(self, fingerprint: str, machine: Mapping[str, Any]) -> None:
        """Keep a machine's description under its fingerprint, in place of an earlier one."""
        self.replace(schema.machines, fingerprint, description=_json(machine))
        self._hosts.pop(fingerprint, None)

    def machine(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the description of a machine, or None where the store has none."""
        return self.machines().get(fingerprint)

    def machines(self) -> dict[str, dict[str, Any]]:
        """Return every machine's description by its fingerprint."""
        rows = self.rows(sa.select(schema.machines).order_by(schema.machines.c.fingerprint))
        return {row.fingerprint: self._parse(row.description) for row in rows}

    def save_ceilings(self, fingerprint: str, ceilings: Mapping[str, Any]) -> None:
        """Keep the measured ceilings of a machine; a later measurement replaces an earlier one."""
        self.replace(schema.ceilings, fingerprint, content=_json(ceilings))

    def ceilings(self, fingerprint: str) -> dict[str, Any] | None:
        """Return the measured ceilings of a machine, or None where there are none."""
        table = schema.ceilings
        rows = self.rows(sa.select(table).where(table.c.fingerprint == fingerprint))
        return self._parse(rows[0].content) if rows else None

    def begin_run(self, run: Run) -> None:
        """Keep a run that starts now; raises StoreError where its id is taken."""
        with self._writing() as connection:
            self._insert_run(connection, run)
        self.written(run.id)

    def finish_run(self, run: str, when: datetime) -> None:
        """Note that the run with this id ended; raises StoreError where there is none."""
        with self._writing() as connection:
            statement = sa.update(schema.runs).where(schema.runs.c.id == run)
            finished = when.astimezone(UTC).isoformat()
            if connection.execute(statement.values(finished=finished)).rowcount == 0:
                raise StoreError(f"The store {self.name} has no run {run}; begin it first.")
        self.written(run)

    def extend_run(self, run: Run) -> None:
        """Replace the run that has this id by a longer plan of it, unfinished."""
        with self._writing() as connection:
            statement = sa.update(schema.runs).where(schema.runs.c.id == run.id)
            connection.execute(statement.values(finished=None, content=_json(run.to_dict())))
        self.written(run.id)

    def runs(self, ids: Wanted = None) -> list[Run]:
        """Return every run, or those with these ids, the oldest first."""
        rows = self.rows(sa.select(schema.runs).where(*queries.wanted(schema.runs.c.id, ids)))
        runs = []
        for row in rows:
            # The column alone has the end: the content was written when the run began.
            content = {**self._parse(row.content), "finished": row.finished}
            runs.append(self._build(Run, content))
        # Not by the database: servers sort text by the rules of a language.
        return sorted(runs, key=lambda run: (run.started, run.id))

    def append(self, record: Record) -> None:
        """Keep a record; it is on the disk when this returns.

        Raises StoreError, and then nothing is kept.
        """
        with self._writing() as connection:
            self._insert_records(connection, [record])
        database.checkpoint(self.engine)

    def append_runs(self, runs: Iterable[tuple[Run, Iterable[Record]]]) -> None:
        """Keep runs and their records in one transaction, e.g. to import them.

        Raises StoreError, also where a run's id is taken, and then nothing is kept.
        """
        with self._writing(alone=True) as connection:
            for run, records in runs:
                self._insert_run(connection, run)
                for batch in batched(records):
                    self._insert_records(connection, batch)

    def add_sentinel(self, run: str, block: int, moment: str, content: Mapping[str, Any]) -> None:
        """Keep the sentinel's reading at a block of a run; ``moment`` is "before" or "after" it."""
        with self._writing() as connection:
            row = {"run": run, "block": block, "moment": moment, "content": _json(content)}
            connection.execute(sa.insert(schema.sentinels).values(row))
        self.written(run)

    def written(self, run: str) -> None:
        """Take note that a run has begun or ended, or has another reading of the sentinel."""

    def sentinels(self, run: str) -> list[tuple[int, str, dict[str, Any]]]:
        """Return the sentinels of a run in the order they were added.

        Each is its block, "before" or "after" it, and its content.
        """
        table = schema.sentinels
        rows = self.rows(sa.select(table).where(table.c.run == run).order_by(table.c.id))
        return [(row.block, row.moment, self._parse(row.content)) for row in rows]

    def cells(self) -> dict[int, Cell]:
        """Return every cell that has records, by its `schema.cell_key`, the first one first."""
        return {key: cell for key, (_, cell) in self.places().items()}

    def places(self) -> dict[int, tuple[str, Cell]]:
        """Return machine and cell of every cell that has records, by key, the first one first."""
        table = schema.records.c
        firsts = self.pairs(sa.select(sa.func.min(table.id), table.cell).group_by(table.cell))
        numbers = sorted(number for number, _ in firsts)
        places = {}
        for batch in batched(numbers):
            for record in self._stream([table.id.in_(batch)]):
                key = schema.cell_key(record.machine, record.cell)
                places[key] = record.machine, record.cell
        return places

    def newest(
        self, run: str | None = None, suite: str | None = None, machine: str | None = None
    ) -> list[Newest]:
        """Return for each cell of each machine the run and environment that measured it last."""
        places = self.places()
        keys = None
        if machine is not None:
            keys = [key for key, (fingerprint, _) in places.items() if fingerprint == machine]
        newest: dict[int, Newest] = {}
        for row in self.rows(queries.newest(run, suite, keys)):
            with self._understood():
                entry = _NEWEST.validate_python((*places[row.cell], *row))
            before = newest.get(entry.key)
            if before is None or (entry.newest_id or 0) > (before.newest_id or 0):
                newest[entry.key] = entry
        return list(newest.values())

    def nights(
        self,
        suite: Wanted = None,
        machine: Wanted = None,
        purpose: Wanted = None,
        judged: "JudgedQuantity | None" = None,
    ) -> "pd.DataFrame":
        """Return a row for each run (of these), cell, side and environment, the oldest run first.

        Columns: run, started (of the run, ISO 8601 text in UTC), machine, environment, cell (see
        `cells`), side, launches, log_mean and log_variance (mean and sample variance of the natural
        logarithms of the launches' medians; NaN for the variance of one), disturbed,
        quiet. The mean is over the launches that count, are ok and undisturbed (``quiet``).
        If all were disturbed, it is over those. With ``judged`` the launches count with that
        quantity instead of their median step; every record is read then.
        """
        sums: Sequence[Any]
        if judged is None:
            sums = self.rows(queries.nights(suite, machine, purpose))
        else:
            sums = self._sums_of(judged, queries.night_conditions(suite, machine, purpose))
        runs = {row.run for row in sums}
        started = dict(self.pairs(sa.select(schema.runs.c.id, schema.runs.c.started)))
        strays = runs - set(started)
        if strays:
            table = schema.records.c
            first = sa.select(table.run, sa.func.min(table.started)).where(table.run.in_(strays))
            started |= dict(self.pairs(first.group_by(table.run)))
        machines = {key: fingerprint for key, (fingerprint, _) in self.places().items()}
        with self._understood():
            strangers = {row.cell for row in sums} - set(machines)
            if strangers:
                raise KeyError(f"cells {strangers}")
            for run in runs:
                datetime.fromisoformat(started[run])
            return _frame_of_nights(sums, started, machines)

    def _sums_of(
        self, judged: "JudgedQuantity", conditions: list[sa.ColumnElement[bool]]
    ) -> list["_NightSums"]:
        """Return for each run, cell, side and environment the sums of a quantity's logarithms."""
        hosts = {name: read_host(name, described) for name, described in self.machines().items()}
        sums: dict[tuple[str, int, str, str], list[float]] = {}
        for record in self._stream(conditions):
            value = judged.value(record.outcome)
            if value is None or value <= 0:
                continue
            cell = schema.cell_key(record.machine, record.cell)
            key = record.run, cell, record.side, record.environment
            sums_of_key = sums.setdefault(key, [0.0] * 6)
            # Other programs disturb times, and no count.
            disturbed = judged.of_clock and disturbed_if_known(record, hosts.get(record.machine))
            first = 3 if disturbed else 0
            log = math.log(value)
            sums_of_key[first] += 1
            sums_of_key[first + 1] += log
            sums_of_key[first + 2] += log * log
        return [_NightSums(*key, *values) for key, values in sums.items()]

    def record_counts(self) -> dict[str, int]:
        """Return how many records each run has; a run without any is missing."""
        table = schema.records.c
        counts = sa.select(table.run, sa.func.count()).where(queries.measured()).group_by(table.run)
        return dict(self.pairs(counts))

    def launch_seconds(self, machine: str) -> dict[Cell, float]:
        """Return the mean wall seconds of a launch of each cell that was launched on a machine."""
        table = schema.records.c
        launched = (
            table.machine == machine,
            table.status != Status.SKIPPED.value,
            queries.measured(),
        )
        mean = sa.select(table.cell, sa.func.avg(table.wall_seconds)).where(*launched)
        means = self.pairs(mean.group_by(table.cell))
        cells = self.cells()
        return {cells[key]: seconds for key, seconds in means}

    def records(
        self, run: str | None = None, suite: str | None = None, machine: str | None = None
    ) -> list[Record]:
        """Return the records in the order they were appended.

        All, or those of a run, suite or machine. Those of profiled launches are left out: see
        `profiles`.
        """
        return list(self._stream(queries.record_conditions(run, suite, machine)))

    def profiles(self, run: str) -> list[Record]:
        """Return the records of the profiled launches of a run, in the order they were appended."""
        table = schema.records.c
        return list(self._stream([table.run == run, table.stage == PROFILED]))

    def records_of_cells(
        self, keys: Iterable[int], run: str | None, asked: bool = False
    ) -> Iterator[tuple[int, Record]]:
        """Yield records of these cells that count for a matrix, each with its cell's key.

        They are of a run, or of all. ``asked`` means that the run was asked for by its id: then
        launches of a comparison's candidate count too.
        """
        run_asked_for = run if asked else None
        side = queries.counting(schema.records.c.side, run_asked_for)
        in_run = queries.wanted(schema.records.c.run, run)
        for batch in batched(keys):
            in_batch = schema.records.c.cell.in_(batch)
            conditions = [*in_run, in_batch, side, queries.measured()]
            for record in self._stream(conditions):
                yield schema.cell_key(record.machine, record.cell), record

    def compared_runs(self, suite: str | None = None, machine: str | None = None) -> list[str]:
        """Return the ids of the runs of two sides (compare, gate) and of searches with a record."""
        table = schema.records.c
        conditions = queries.record_conditions(None, suite, machine)
        runs = sa.select(table.run).where(table.side != "", *conditions).distinct()
        return [row.run for row in self.rows(runs)]

    def example(self, run: str, cell: int, side: str) -> Record | None:
        """Return one record of this run, cell (see `cells`) and side, or None.

        It is a timed one where there is any.
        """
        table = schema.records.c
        asked = table.run == run, table.cell == cell, table.side == side, queries.measured()
        timed_first = sa.case((table.status == Status.OK.value, 0), else_=1), table.id
        # Chosen by the index alone: only the one content is read.
        chosen = self.rows(sa.select(table.id).where(*asked).order_by(*timed_first).limit(1))
        if not chosen:
            return None
        return next(self._stream([table.id == chosen[0].id]))

    def _stream(self, conditions: Sequence[sa.ColumnElement[bool]]) -> Iterator[Record]:
        table = schema.records.c
        numbers = self.rows(sa.select(table.id).where(*conditions).order_by(table.id))
        same: dict[str, Any] = {}
        for batch in batched(row.id for row in numbers):
            contents = sa.select(table.content).where(table.id.in_(batch)).order_by(table.id)
            for row in self.rows(contents):
                yield self._record(row.content, same)

    def _insert_run(self, connection: sa.Connection, run: Run) -> None:
        same = sa.select(schema.runs.c.id).where(schema.runs.c.id == run.id)
        if connection.execute(same).first():
            raise StoreError(
                f"The store {self.name} already has a run {run.id}; give the new one another id."
            )
        content = run.to_dict()
        names = ("id", "suite", "machine", "started", "finished", "purpose")
        columns = {name: content[name] for name in names}
        connection.execute(sa.insert(schema.runs).values(**columns, content=_json(content)))

    def _insert_records(self, connection: sa.Connection, records: Sequence[Record]) -> None:
        rows = [to_row(record, self._host(connection, record.machine)) for record in records]
        connection.execute(sa.insert(schema.records), rows)

    def _host(self, connection: sa.Connection, machine: str) -> Host | None:
        if machine not in self._hosts:
            table = schema.machines.c
            statement = sa.select(table.description).where(table.fingerprint == machine)
            description = connection.execute(statement).scalar()
            if description is None:
                return None  # It may yet be added.
            self._hosts[machine] = read_host(machine, self._parse(description))
        return self._hosts[machine]

    def replace(self, table: sa.Table, fingerprint: str, **values: str) -> None:
        """Replace the row of a machine."""
        # Writers of one server may describe the same machine at the same moment: they take turns.
        with self._writing(alone=True) as connection:
            connection.execute(sa.delete(table).where(table.c.fingerprint == fingerprint))
            connection.execute(sa.insert(table).values(fingerprint=fingerprint, **values))

    def rows(self, statement: sa.Select[Any]) -> list[sa.Row[Any]]:
        """Return the rows of a statement over the tables of `schema`."""
        with database.explained(self.name), self.engine.begin() as connection:
            return list(connection.execute(statement))

    def pairs(self, statement: sa.Select[Any]) -> list[tuple[Any, Any]]:
        """Return the rows of a statement with two columns."""
        return [tuple(row) for row in self.rows(statement)]

    def _writing(self, alone: bool = False) -> AbstractContextManager[sa.Connection]:
        return database.writing(self.engine, self.name, alone)

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise StoreError where columns hold impossible values: SQLite accepts any value."""
        try:
            yield
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise database.damaged(self.name) from error

    def _parse(self, text: Any) -> dict[str, Any]:
        with self._understood():
            content = _read_json(text)
            if not isinstance(content, dict):
                raise TypeError("expected a JSON object")
            return content

    def _record(self, content: Any, same: dict[str, Any]) -> Record:
        """Read a record; ``same`` makes one of equal software dictionaries, its larger part."""
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


def batched(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items `BATCH` at a time."""
    rest = iter(items)
    while True:
        batch = list(islice(rest, BATCH))
        if not batch:
            return
        yield batch


def to_row(record: Record, host: Host | None) -> dict[str, Any]:
    """Return the columns of a record, see `schema`."""
    disturbed = disturbed_if_known(record, host)
    disturbed_number = None if disturbed is None else int(disturbed)
    return {
        **{name: getattr(record, name) for name in _IN_COLUMNS},
        "cell": schema.cell_key(record.machine, record.cell),
        "status": record.outcome.status.value,
        # Always with microseconds: text without them would sort after some with, in a database that
        # compares words.
        "started": record.started.isoformat(timespec="microseconds"),
        "seconds": record.outcome.median_seconds(),
        "contended": disturbed_number,
        "product_rate": product_rate(record, host),
        "content": _json(record.to_dict()),
    }


def _frame_of_nights(
    rows: Iterable[Sequence[Any]], started: Mapping[str, str], machines: Mapping[int, str]
) -> "pd.DataFrame":
    import pandas as pd

    sums = [
        "quiet",
        "quiet_sum",
        "quiet_squares",
        "disturbed",
        "disturbed_sum",
        "disturbed_squares",
    ]
    frame = pd.DataFrame(
        [tuple(row) for row in rows], columns=["run", "cell", "side", "environment", *sums]
    )
    frame = frame.astype({"cell": "int64", **dict.fromkeys(sums, "float64")})
    quiet = frame["quiet"] > 0
    launches = frame["quiet"].where(quiet, frame["disturbed"])
    total = frame["quiet_sum"].where(quiet, frame["disturbed_sum"])
    squares = frame["quiet_squares"].where(quiet, frame["disturbed_squares"])
    frame["log_mean"] = total / launches
    # Logarithms of step times are of the order of 1 to 10: their squares leave 8 digits or more to
    # a deviation of 1 %.
    spread = (squares - total * frame["log_mean"]).clip(lower=0.0)
    frame["log_variance"] = spread / (launches - 1).where(launches > 1)
    frame["launches"] = launches.astype("int64")
    frame["disturbed"] = frame["disturbed"].astype("int64")
    frame["quiet"] = quiet
    frame["started"] = frame["run"].map(started)
    frame["machine"] = frame["cell"].map(machines)
    frame["order_of_cell"] = frame["cell"].map({key: number for number, key in enumerate(machines)})
    frame = frame.sort_values(
        ["started", "run", "order_of_cell", "side"], kind="stable", ignore_index=True
    )
    return frame[list(NIGHTS)]


NIGHTS = (
    *("run", "started", "machine", "environment", "cell", "side"),
    *("launches", "log_mean", "log_variance", "disturbed", "quiet"),
)


def _json(content: Any) -> str:
    # Not-a-number stays readable for Python: a diverged loss must not cost the record.
    return json.dumps(content, separators=(",", ":"))


def _read_json(text: str) -> Any:
    content = json.loads(text)
    if "\\u" not in text:
        return content
    # Without halves of surrogate pairs: no database and no file takes them.
    return json.loads(json.dumps(content, ensure_ascii=False).encode(errors="replace"))
