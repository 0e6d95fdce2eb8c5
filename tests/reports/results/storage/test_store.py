import itertools
import lzma
import math
import multiprocessing
import os
import signal
import sqlite3
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from kept_stores import empty_store, fill
from properties import examples

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.results.disturbance import disturbed_if_known
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.judged import JUDGED
from dlbench.reports.results.record import GATE, HISTORY_PAIRS, Record, last_attempts
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage import queries, schema
from dlbench.reports.results.storage.store import NIGHTS, Store


def refused(path: Path | str, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        Store.open(path, create)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 4
    return message


def test_records_are_read_back_in_order(path: Path) -> None:
    records = [
        make.record(launch=0),
        make.hole(Status.CRASHED, "signal 11", launch=1),
        make.record(run="run-2"),
    ]
    diverged = make.outcome(
        parity=make.parity("disagrees")._replace(losses=[float("nan"), float("inf")])
    )
    with Store.open(path) as store:
        for record in records:
            store.append(record)
    with Store.open(f"sqlite:///{path}", create=False) as store:
        assert store.records() == records
        assert store.records(run="run-2") == records[2:]
        assert store.records(suite="nothing") == []
        assert store.records(run="run-1", machine=make.MACHINE) == records[:2]
        store.append(make.record(run="run-3", result=diverged))
        assert str(store.records(run="run-3")[0].outcome.parity.losses) == "[nan, inf]"  # type: ignore[union-attr]


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
        for value in (1, 2):
            store.add_machine("m", {"memory": value})
            store.save_ceilings("m", {"gemm": [value]})
        assert store.machines() == {"m": {"memory": 2}}
        assert store.ceilings("m") == {"gemm": [2]}


def test_a_plain_copy_of_the_file_holds_all_even_where_a_reader_was_at_work(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.sqlite"
    with (
        Store.open(path) as store,
        closing(sqlite3.connect(path, check_same_thread=False)) as reader,
    ):
        for n in range(2):
            reader.execute("BEGIN")
            reader.execute(
                "SELECT count(*) FROM records"
            ).fetchall()  # it sees the state before the next record
            threading.Timer(0.2, reader.rollback).start()
            store.append(make.record(launch=n))
            copy.write_bytes(path.read_bytes())
            with Store.open(copy, create=False) as copied:
                assert len(copied.records()) == n + 1


def test_reading_creates_nothing(tmp_path: Path) -> None:
    assert "dlbench run" in refused(tmp_path / "none" / "results.sqlite", create=False)
    assert "dlbench run" in refused(tmp_path / "results.sqlite", create=False)
    output = refused(tmp_path / "new" / "folder" / "results.sqlite")
    assert f"there is no folder {tmp_path / 'new' / 'folder'}. Make it" in output
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "empty").touch()
    assert "no results yet" in refused(tmp_path / "empty", create=False)
    assert (tmp_path / "empty").stat().st_size == 0


def test_other_files_and_other_schemas_are_refused_and_left_alone(tmp_path: Path) -> None:
    letter, foreign, older, newer = (
        tmp_path / name for name in ("letter", "foreign", "older", "newer")
    )
    letter.write_text("Dear reader, " * 100)
    fill(newer, 1)
    statements = (
        (foreign, "CREATE TABLE bookmarks (url TEXT)"),
        (older, "CREATE TABLE schema_history AS SELECT 6 AS version"),
        (newer, "UPDATE dlbench_schema SET version = 99"),
    )
    for path, statement in statements:
        with sqlite3.connect(path) as connection:
            connection.execute(statement)
        connection.close()
    before = [path.read_bytes() for path in (letter, foreign, older, newer)]
    for create in (True, False):
        assert "not a database" in refused(letter, create)
        assert "bookmarks" in refused(foreign, create)
        assert "an older dlbench (store schema 6" in refused(older, create)
        assert "a newer dlbench (store schema 99" in refused(newer, create)
        assert "folder" in refused(tmp_path, create)
    assert [path.read_bytes() for path in (letter, foreign, older, newer)] == before
    assert "zero byte" in refused("a\0b")
    refused(letter / "inside.sqlite")
    assert "understood" in refused("nonsense://x")
    assert "hunter2" not in refused("postgresql+nodriver://me:hunter2@host/db")


def test_a_packed_store_is_read_and_never_written(tmp_path: Path) -> None:
    fill(tmp_path / "a.sqlite", 2)
    packed = tmp_path / "a.sqlite.xz"
    packed.write_bytes(lzma.compress((tmp_path / "a.sqlite").read_bytes()))
    assert Results.read([packed]) == Results.read([tmp_path / "a.sqlite"])
    assert "can only be read" in refused(packed)
    damaged = [b"no archive", lzma.compress(b"SQLite format 3\0" + bytes(5000))[:-20]]
    for content, words in [(archive, "cannot be unpacked") for archive in damaged] + [
        (lzma.compress(b"other"), "holds no result store")
    ]:
        packed.write_bytes(content)
        assert words in refused(packed, create=False)


def test_eight_processes_write_one_store_at_the_same_time(path: Path) -> None:
    # The first to come creates it; no record is lost.
    writers = [
        multiprocessing.get_context("fork").Process(target=fill, args=(path, 10, f"run-{n}"))
        for n in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    with Store.open(path, create=False) as store:
        for n in range(8):
            assert [record.launch for record in store.records(run=f"run-{n}")] == list(range(10))
        assert len(store.records()) == 80


def write_and_log(path: str, log: str) -> None:
    with Store.open(path) as store, Path(log).open("a") as file:
        for launch in range(100_000):
            store.append(make.record(launch=launch))
            file.write("x")
            file.flush()


def test_a_writer_that_is_killed_loses_no_finished_record(tmp_path: Path, path: Path) -> None:
    log = tmp_path / "log"
    writer = multiprocessing.get_context("fork").Process(
        target=write_and_log, args=(str(path), str(log))
    )
    writer.start()
    deadline = time.monotonic() + 60
    while (not log.exists() or log.stat().st_size < 25) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    with Store.open(path) as store:
        launches = [record.launch for record in store.records()]
        assert launches == list(range(len(launches)))
        assert len(launches) >= log.stat().st_size >= 25
        store.append(make.record(launch=len(launches)))


def test_a_store_held_by_another_program_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlbench.reports.results.storage.database.BUSY_SECONDS", 0.1)
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
def test_opening_a_store_again_releases_no_lock_of_this_process(path: Path) -> None:
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


@pytest.mark.parametrize("axis", axes.AXES, ids=lambda axis: axis.name)
def test_cells_that_differ_in_one_axis_have_different_keys(axis: axes.Axis) -> None:
    cell = make.cell()
    value = getattr(cell, axis.name)
    new_value = value + 1 if isinstance(value, int | float) else f"{value}x"
    changed = cell._replace(**{axis.name: new_value})
    places = itertools.product(("a", "b"), (cell, changed))
    keys = {schema.cell_key(machine, keyed_cell) for machine, keyed_cell in places}
    assert len(keys) == 4
    with empty_store() as store:
        for keyed_cell in (cell, changed):
            store.append(make.record(**keyed_cell._asdict()))
        assert store.cells() == {
            schema.cell_key(make.MACHINE, keyed_cell): keyed_cell for keyed_cell in (cell, changed)
        }


def test_the_key_of_a_cell_is_the_same_in_every_version() -> None:
    assert schema.cell_key(make.MACHINE, make.cell()) == 3653129286432091055


def launch(seconds: float, stolen: bool = False, **changes: Any) -> Record:
    """Return a record of one launch, which the hypervisor disturbed or not."""
    of_record = {key: changes.pop(key) for key in ("attempt", "side", "stage") if key in changes}
    result = make.outcome(
        [seconds] * 5, contention=make.contention(steal_seconds=4 * seconds if stolen else 0.0)
    )
    return replace(make.record(result=result, **changes), **of_record)


records = st.builds(
    lambda seconds, stolen, crashed, minutes, **fields: (
        make.hole(
            Status.CRASHED,
            "signal 11",
            minutes=minutes,
            run=fields["run"],
            launch=fields["launch"],
            threads=fields["threads"],
        )
        if crashed
        else launch(seconds, stolen, minutes=minutes, **fields)
    ),
    seconds=st.integers(1, 40).map(
        lambda n: n / 8
    ),  # on a grid, so that the order of a sum does not matter
    stolen=st.booleans(),
    crashed=st.integers(0, 5).map(lambda n: n == 0),
    minutes=st.integers(0, 1000),
    run=st.sampled_from(["run-1", "run-2"]),
    launch=st.sampled_from([0, HISTORY_PAIRS - 1, HISTORY_PAIRS]),
    threads=st.sampled_from([1, 2]),
    attempt=st.integers(0, 2),
    side=st.sampled_from(["baseline", "candidate"]),
    stage=st.sampled_from(["", GATE]),
)
several = st.lists(
    records, max_size=25, unique_by=lambda r: (r.run, r.launch, r.cell, r.attempt, r.side, r.stage)
)


@examples(20)
@given(several)
def test_nights_are_those_of_the_last_attempts(records: list[Record]) -> None:
    with empty_store() as store:
        store.add_machine(make.MACHINE, {"unreadable": True})
        store.append_runs([(make.run(), [record for record in records if record.run == "run-1"])])
        for record in records:
            if record.run != "run-1":
                store.append(record)
        cells, nights = store.cells(), store.nights()
    expected = defaultdict(list)
    for record in last_attempts(records):
        if record.outcome.status is Status.OK and (
            not record.stage or record.launch < HISTORY_PAIRS
        ):
            value = math.log(statistics.median(record.outcome.step_seconds()))
            expected[record.run, record.cell, record.side].append(
                (disturbed_if_known(record, None), value)
            )
    results = {(row.run, cells[row.cell], row.side): row for row in nights.itertuples()}
    assert set(results) == set(expected)
    for key, launches in expected.items():
        row = results[key]
        values = [value for disturbed, value in launches if not disturbed] or [
            value for _, value in launches
        ]
        assert (row.launches, row.disturbed) == (len(values), sum(bool(c) for c, _ in launches))
        assert row.quiet == any(not disturbed for disturbed, _ in launches)
        assert row.log_mean == pytest.approx(statistics.fmean(values), abs=1e-12)
        variance = statistics.variance(values) if len(values) > 1 else math.nan
        assert row.log_variance == pytest.approx(variance, abs=1e-12, nan_ok=True)
        assert (row.environment, row.machine) == ("abc123", make.MACHINE)
    assert list(nights["started"]) == sorted(nights["started"])


@pytest.mark.parametrize(("quantity", "counting"), [("first_step", 1), ("memory", 2)])
def test_disturbed_launches_count_for_no_time_of_a_night_but_for_its_memory(
    quantity: str, counting: int
) -> None:
    quiet, disturbed = launch(0.1), launch(0.1, stolen=True, launch=1)
    assert [disturbed_if_known(record, None) for record in (quiet, disturbed)] == [False, True]
    with empty_store() as store:
        store.append(quiet)
        store.append(disturbed)
        (night,) = store.nights(judged=JUDGED[quantity]).itertuples()
    value = JUDGED[quantity].value(quiet.outcome)
    assert value is not None
    assert (night.launches, night.disturbed) == (counting, 2 - counting)
    assert night.log_mean == pytest.approx(math.log(value))


def test_a_small_variance_is_not_lost_in_the_squares() -> None:
    with empty_store() as store:
        records = [launch(round(1e-6 * (1 + 1e-3 * n), 9), launch=n) for n in range(10)]
        for record in records:
            store.append(record)
        (night,) = store.nights().itertuples()
    logs = [math.log(statistics.median(record.outcome.step_seconds())) for record in records]
    assert night.log_variance == pytest.approx(statistics.variance(logs), rel=1e-6)


def test_nights_can_be_narrowed() -> None:
    with empty_store() as store:
        store.append_runs([(make.run(purpose="compare"), [launch(1.0), launch(2.0, threads=2)])])
        sides = [launch(1.0, run="run-2", side=side) for side in ("baseline", "candidate")]
        store.append_runs(
            [(make.run(id="run-2", purpose="gate", suite="other", machine="m-two"), sides)]
        )
        assert len(store.nights()) == len(store.nights(purpose=("compare", "gate"))) == 4
        for narrowed in ({"suite": "quick"}, {"machine": make.MACHINE}, {"purpose": "compare"}):
            assert list(store.nights(**narrowed)["run"]) == ["run-1"] * 2
        assert list(store.nights(purpose="gate")["side"]) == ["baseline", "candidate"]
        assert list(store.nights(suite="none").columns) == list(NIGHTS)


def test_an_import_is_kept_whole_or_not_at_all() -> None:
    def broken() -> Iterator[Record]:
        yield launch(1.0, threads=4)
        raise KeyboardInterrupt

    with empty_store() as store:
        store.append_runs([(make.run(), (launch(1.0, launch=n, run="run-1") for n in range(1200)))])
        with pytest.raises(StoreError, match="already has a run"):
            store.append_runs(
                [(make.run(id="run-0"), [launch(1.0, run="run-0")]), (make.run(), [launch(1.0)])]
            )
        with pytest.raises(KeyboardInterrupt):
            store.append_runs([(make.run(id="run-2"), broken())])
        assert store.record_counts() == {"run-1": 1200}
        assert [run.id for run in store.runs()] == ["run-1"]


def test_reports_of_large_stores_read_indexes_alone() -> None:
    with empty_store() as store:
        if store.engine.dialect.name != "sqlite":
            pytest.skip("how SQLite plans its queries")

        def plan(statement: Any) -> list[str]:
            text = str(statement.compile(store.engine, compile_kwargs={"literal_binds": True}))
            with store.engine.begin() as connection:
                return [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]

        assert (
            plan(queries.nights(None, None, None))[0]
            == "SCAN records USING COVERING INDEX records_by_launch"
        )
        steps = plan(queries.newest(None, None, None))
        assert "SCAN records USING COVERING INDEX records_by_cell" in steps
        assert any("INDEX records_by_cell (cell=? AND started=?)" in step for step in steps)
