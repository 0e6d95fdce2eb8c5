"""Whole stores from file to server and back: nothing is lost, doubled, or changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
import sqlalchemy as sa
from postgresql_server import Server

from dlbench.adapters.protocol import Status
from dlbench.reports.errors import StoreError
from dlbench.reports.storage import schema
from dlbench.reports.storage.servers.copying import Copied, copy, copy_run
from dlbench.reports.storage.store import Store


@pytest.fixture(params=["file", "server"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Give a function that makes a new empty store of this kind."""

    def of_server() -> Store:
        server: Server = request.getfixturevalue("postgresql")
        return Store.open(server.url(server.database()))

    def of_file() -> Store:
        return Store.open(tmp_path / f"{len(list(tmp_path.glob('*.sqlite')))}.sqlite")

    return of_server if request.param == "server" else of_file


def fill(store: Store) -> None:
    """Two runs whose records alternate, an attempt that was repeated, a hole, a machine, sentinels, an orphan."""
    store.add_machine(make.MACHINE, make.MACHINE_DICT)
    store.save_ceilings(make.MACHINE, {"gemm": [1.0]})
    store.begin_run(make.run(id="b"))
    store.begin_run(make.run(id="a", purpose="gate", sides={"baseline": "x"}))
    for launch in range(3):
        for run in ("b", "a"):
            store.append(make.record(run=run, launch=launch, minutes=launch, threads=1 + launch))
    store.append(make.hole(Status.CRASHED, "signal 11", run="b", launch=4))
    store.append(make.record(run="b", launch=4, minutes=9, result=make.outcome()))
    store.append(make.record(run="nobody began it", network="lstm32"))
    store.begin_run(make.run(id="empty"))
    store.add_sentinel("b", 0, "before", {"quiet": True})
    store.add_sentinel("b", 0, "before", {"quiet": True})
    store.finish_run("b", make.START)


def contents(store: Store) -> dict[str, Any]:
    """All that a store holds, but for numbers that are its own."""
    with store.engine.connect() as connection:
        of_table = {
            name: [dict(row._mapping) for row in connection.execute(sa.select(table).order_by(table.c[0]))]
            for name, table in schema.TABLES.tables.items()
            if name != "dlbench_schema"
        }
    for row in (*of_table["records"], *of_table["sentinels"]):
        del row["id"]
    # Run by run, in a run as they came.
    of_table["records"].sort(key=lambda row: row["run"])
    for name in ("runs", "machines", "ceilings"):
        of_table[name].sort(key=str)
    return of_table


def test_all_is_copied_there_and_back_and_once(made: Callable[[], Store]) -> None:
    with Store.open("sqlite://") as source, made() as target, Store.open("sqlite://") as back:
        fill(source)
        told: list[tuple[int, int]] = []
        assert copy(source, target, lambda *each: told.append(each)) == Copied(3, 9)
        assert told[-1] == (9, 9)
        assert contents(target) == contents(source)
        assert copy(source, target) == Copied(0, 0)
        assert contents(target) == contents(source)
        assert copy(target, back) == Copied(3, 9)
        assert contents(back) == contents(source)
        assert copy(back, source) == Copied(0, 0)
        assert list(target.cells().values()) == list(source.cells().values())
        target.append(make.record(run="b", launch=7, threads=64))
        assert len(target.cells()) == len(source.cells()) + 1


def test_what_came_later_is_added_and_what_was_there_stays(made: Callable[[], Store]) -> None:
    with Store.open("sqlite://") as source, made() as target:
        fill(source)
        target.add_machine(make.MACHINE, {"told": "before"})
        target.append(make.record(run="b", launch=0, minutes=0))
        target.append(make.record(run="another", launch=0))
        assert copy(source, target) == Copied(3, 8)
        source.append(make.record(run="a", launch=9))
        source.finish_run("a", make.START)
        assert copy(source, target) == Copied(0, 1)
        assert target.machine(make.MACHINE) == {"told": "before"}
        assert [run.finished for run in target.runs()] == [run.finished for run in source.runs()]
        assert len(target.records()) == len(source.records()) + 1


def test_a_record_that_is_there_twice_stays_two(made: Callable[[], Store]) -> None:
    with Store.open("sqlite://") as source, made() as target:
        for _ in range(2):
            source.append(make.record())
        assert copy(source, target).records == 2
        assert copy(source, target).records == 0
        source.append(make.record())
        assert copy(source, target).records == 1


def test_one_run_alone(made: Callable[[], Store]) -> None:
    with made() as source, Store.open("sqlite://") as target:
        fill(source)
        copy_run(source, target, "a")
        assert [run.id for run in target.runs()] == ["a"]
        assert target.records() == source.records(run="a")
        assert target.machines() == source.machines()


def test_an_interrupted_copy_goes_on_where_it_was(made: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open("sqlite://") as source, made() as target:
        fill(source)

        def interrupt(done: int, of: int) -> None:
            if done == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copy(source, target, interrupt)
        assert [run.id for run in target.runs()] == ["b"]
        assert copy(source, target) == Copied(2, 4)
        assert contents(target) == contents(source)


def test_a_store_that_holds_what_a_server_cannot_is_named(postgresql: Server, database: str) -> None:
    with Store.open("sqlite://") as source, Store.open(postgresql.url(database)) as target:
        fill(source)
        with source.engine.begin() as connection:
            connection.execute(sa.text("UPDATE records SET wall_seconds = 'long' WHERE run = 'a'"))
        with pytest.raises(StoreError) as caught:
            copy(source, target)
        assert target.name in str(caught.value)
        assert {record.run for record in target.records()} == {"b"}
