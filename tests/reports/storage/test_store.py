import os
import signal
import sqlite3
import time
from pathlib import Path

import factory_of_records as make
import pytest
import sqlalchemy as sa
from filled_stores import fill, fresh

from dlbench.adapters.protocol import Status
from dlbench.reports.errors import StoreError
from dlbench.reports.storage import schema
from dlbench.reports.storage.migrations import Migration
from dlbench.reports.storage.store import Store


def refused(path: Path | str, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        Store.open(path, create)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 4
    return message


def test_what_was_appended_is_read_back_in_order(path: Path) -> None:
    kept = [make.record(launch=0), make.hole(Status.CRASHED, "signal 11", launch=1), make.record(run="run-2")]
    with Store.open(path) as store:
        for record in kept:
            store.append(record)
    with Store.open(path, create=False) as store:
        assert store.records() == kept
        assert store.records(run="run-2") == kept[2:]
        assert store.records(suite="nothing") == []
        assert store.records(run="run-1", machine=make.MACHINE) == kept[:2]


def test_a_loss_that_is_not_a_number_does_not_cost_the_record(path: Path) -> None:
    diverged = make.outcome(parity=make.parity("disagrees")._replace(losses=[float("nan"), float("inf")]))
    with Store.open(path) as store:
        store.append(make.record(result=diverged))
        assert str(store.records()[0].outcome.parity.losses) == "[nan, inf]"  # type: ignore[union-attr]


def test_runs_begin_and_finish(path: Path) -> None:
    with Store.open(path) as store:
        store.begin_run(make.run())
        assert store.runs() == [make.run()]
        store.finish_run("run-1", make.START)
        assert store.runs() == [make.run(finished=make.START)]
        with pytest.raises(StoreError, match="already has a run"):
            store.begin_run(make.run())
        with pytest.raises(StoreError, match="no run run-9"):
            store.finish_run("run-9", make.START)


def test_machines_and_ceilings_are_replaced_by_later_ones(path: Path) -> None:
    with Store.open(path) as store:
        assert store.machine("m") is None
        assert store.ceilings("m") is None
        store.add_machine("m", {"memory": 1})
        store.add_machine("m", {"memory": 2})
        store.save_ceilings("m", {"gemm": [1.0]})
        store.save_ceilings("m", {"gemm": [2.0]})
        assert store.machines() == {"m": {"memory": 2}}
        assert store.ceilings("m") == {"gemm": [2.0]}


@pytest.mark.parametrize("name", ["with space.sqlite", "hash#.sqlite", "percent%20.sqlite", "what?.sqlite", "ü.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    fill(tmp_path / name, 1)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_urls_are_understood(path: Path) -> None:
    with Store.open(f"sqlite:///{path}") as store:
        store.append(make.record())
    with Store.open(path, create=False) as store:
        assert len(store.records()) == 1
    with Store.open("sqlite://") as store:
        store.append(make.record())
        assert len(store.records()) == 1
    assert "understood" in refused("nonsense://x")
    assert "hunter2" not in refused("postgresql+nodriver://me:hunter2@host/db")


def test_reading_creates_nothing(tmp_path: Path) -> None:
    assert "dlbench run" in refused(tmp_path / "none" / "results.sqlite", create=False)
    assert "dlbench run" in refused(tmp_path / "results.sqlite", create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").touch()
    assert "no results yet" in refused(tmp_path / "empty", create=False)
    assert (tmp_path / "empty").stat().st_size == 0


def test_a_missing_folder_is_not_made_but_named(tmp_path: Path) -> None:
    said = refused(tmp_path / "new" / "folder" / "results.sqlite")
    assert f"there is no folder {tmp_path / 'new' / 'folder'}. Make it" in said
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, " * 100)
    stranger = tmp_path / "stranger.sqlite"
    with sqlite3.connect(stranger) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = letter.read_bytes(), stranger.read_bytes()
    for create in (True, False):
        assert "not a database" in refused(letter, create)
        assert "bookmarks" in refused(stranger, create)
        assert "folder" in refused(tmp_path, create)
    assert (letter.read_bytes(), stranger.read_bytes()) == before
    assert "zero byte" in refused("a\0b")
    refused(letter / "inside.sqlite")


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    fill(path, 1)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO schema_history VALUES (99, 'the future', '2030-01-01')")
    connection.close()
    before = path.read_bytes()
    assert "newer dlbench (schema 99" in refused(path)
    assert path.read_bytes() == before


def add_a_note(connection: sa.Connection) -> None:
    connection.execute(sa.text("ALTER TABLE records ADD COLUMN note TEXT"))


def fail_halfway(connection: sa.Connection) -> None:
    add_a_note(connection)
    raise sa.exc.OperationalError("statement", {}, Exception("no luck"))


def test_an_older_store_is_brought_up_to_date_in_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 2)
    newest = schema.newest_version()
    later = [Migration(newest + n, f"step {n}", lambda _: None) for n in (2, 3)]
    steps = (*schema.MIGRATIONS, Migration(newest + 1, "notes", add_a_note), *later)
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    before = path.read_bytes()
    with Store.open(path, create=False) as read:
        assert len(read.records()) == 2
    assert path.read_bytes() == before
    with Store.open(path) as store:
        assert [version for version, _, _ in store.history()] == list(range(1, newest + 4))
        assert len(store.records()) == 2


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(path, 2)
    newest = schema.newest_version()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, Migration(newest + 1, "notes", fail_halfway)))
        assert "no luck" in refused(path)
    with Store.open(path) as store:
        assert [version for version, _, _ in store.history()] == list(range(1, newest + 1))
        assert len(store.records()) == 2


def write_many(path: str, run: str, count: int) -> None:
    fill(Path(path), count, run)


def test_eight_processes_write_one_store_at_the_same_time(path: Path) -> None:
    # The first of them to come creates it; nobody's record is lost.
    writers = [fresh.Process(target=write_many, args=(str(path), f"run-{n}", 10)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    with Store.open(path, create=False) as store:
        for n in range(8):
            assert [record.launch for record in store.records(run=f"run-{n}")] == list(range(10))
        assert len(store.records()) == 80
        assert len(store.history()) == len(schema.MIGRATIONS)


def write_and_tell(path: str, told: str) -> None:
    with Store.open(path) as store, Path(told).open("a") as file:
        for launch in range(100_000):
            store.append(make.record(launch=launch))
            file.write("x")
            file.flush()


def test_a_writer_that_is_killed_loses_no_finished_record(tmp_path: Path, path: Path) -> None:
    told = tmp_path / "told"
    writer = fresh.Process(target=write_and_tell, args=(str(path), str(told)))
    writer.start()
    deadline = time.monotonic() + 60
    while (not told.exists() or told.stat().st_size < 25) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    with Store.open(path) as store:
        launches = [record.launch for record in store.records()]
        assert launches == list(range(len(launches)))
        assert len(launches) >= told.stat().st_size >= 25
        store.append(make.record(launch=len(launches)))


def test_a_store_held_by_another_program_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlbench.reports.storage.database.BUSY_SECONDS", 0.1)
    fill(path, 1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Store.open(path) as store:
        assert len(store.records()) == 1
        with pytest.raises(StoreError, match="held by another program"):
            store.append(make.record())
        holder.execute("COMMIT")
        store.append(make.record())
    holder.close()


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the kernel does not list its locks")
def test_opening_a_store_again_lets_go_of_no_lock_of_this_process(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"

    def locks() -> int:
        # "1: POSIX  ADVISORY  READ 123 fe:00:456 ...": of this process, on this file.
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        mine = [line for line in lines if line[4:5] == [str(os.getpid())]]
        return sum(line[5].rpartition(":")[2] == str(path.stat().st_ino) for line in mine)

    with Store.open(path) as first:
        first.begin_run(make.run())
        with first.engine.connect() as connection:
            connection.execute(sa.select(schema.runs)).all()
            held = locks()
            assert held > 0
            for create in (True, False):
                Store.open(path, create=create).close()
            assert locks() == held
