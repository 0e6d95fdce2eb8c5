"""A store on a real PostgreSQL server, and local stores delivered to it: nothing lost or doubled,
no password shown."""

import json
import lzma
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory_of_records as make
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgresql_server import Server
from processes import running_command, suite_of_null, wait_until

from dlbench.adapters.protocol import Status
from dlbench.reports.results.errors import StoreError
from dlbench.reports.results.results import Results
from dlbench.reports.results.storage import delivery, servers
from dlbench.reports.results.storage.delivery import RETRY_SECONDS, DeliveringStore, copy, copy_run
from dlbench.reports.results.storage.store import Store

Command = Callable[..., tuple[Any, str, str]]
STORES = Path(__file__).parents[3] / "goldens" / "stores"
SECRET = "hunter2"
SUITE = suite_of_null(
    step_seconds=0.005, protocol={"launches": 5, "cell_seconds": 100.0, "seconds": 0.05}
)
ALL = Counter(range(5))


@pytest.fixture
def url(postgresql: Server, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Give the URL of an empty database, with a password, and a home without a local store."""
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    return postgresql.url(database, password=SECRET)


def refused(url: str, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        Store.open(url, create)
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    assert caught.value.exit_code == 4
    return message


def launched(url: str) -> Counter[int]:
    with Store.open(url, create=False) as store:
        return Counter(record.launch for record in store.records())


def write_many(url: str, run: str, count: int) -> None:
    with Store.open(url) as store:
        store.add_machine("m-one", {"written by": run})
        store.begin_run(make.run(id=run))
        for launch in range(count):
            store.append(make.record(launch=launch, run=run, threads=1 + launch % 3))


def test_eight_writers_write_one_store_at_the_same_time(url: str) -> None:
    # All of them find it empty: one makes the tables.
    with ThreadPoolExecutor(8) as writers:
        for done in [writers.submit(write_many, url, f"run-{n}", 12) for n in range(8)]:
            done.result()
    with Store.open(url, create=False) as store:
        assert len(store.runs()) == 8
        for n in range(8):
            assert [record.launch for record in store.records(run=f"run-{n}")] == list(range(12))
        assert list(store.machines()) == ["m-one"]


def test_every_part_of_a_store_is_read_back_in_order_of_time(url: str) -> None:
    later = make.START.replace(microsecond=5)
    with Store.open(url) as store:
        for id_, started in (("z", later), ("b", make.START), ("A", make.START)):
            store.begin_run(make.run(id=id_, started=started))
        store.finish_run("b", make.START)
        store.save_ceilings("m", {"gemm": [1.0]})
        store.save_ceilings("m", {"gemm": [2.0]})
        store.add_sentinel("b", 0, "before", {"quiet": True})
        store.append(
            make.record(
                network="naïve",
                result=make.outcome(parity=make.parity()._replace(losses=[float("nan")])),
            )
        )
    with Store.open(url.replace("+psycopg", ""), create=False) as store:
        assert [run.id for run in store.runs()] == [
            "A",
            "b",
            "z",
        ]  # though the server sorts A after b
        assert store.runs()[1].finished == make.START
        assert store.ceilings("m") == {"gemm": [2.0]}
        assert store.sentinels("b") == [(0, "before", {"quiet": True})]
        (record,) = store.records()
        assert (str(record.outcome.parity.losses), record.cell.network) == ("[nan]", "naïve")  # type: ignore[union-attr]


def test_what_a_server_refuses_is_one_line_with_the_remedy(
    postgresql: Server, database: str, url: str
) -> None:
    assert "holds no results yet; fill it with `dlbench run SUITE`" in refused(url, create=False)
    postgresql.carry_out("DROP ROLE IF EXISTS reader")
    postgresql.carry_out("CREATE ROLE reader LOGIN")
    postgresql.carry_out("DROP ROLE IF EXISTS guarded")
    postgresql.carry_out(f"CREATE ROLE guarded LOGIN PASSWORD 'other{SECRET}'")
    theirs = postgresql.url(database, "reader")
    assert "does not allow this user to do that (permission denied for schema public)" in refused(
        theirs
    )
    with Store.open(url) as store:
        store.append(make.record())
        with pytest.raises(StoreError, match="cannot store this text or number"):
            store.begin_run(make.run(suite="s" * 200))
    postgresql.carry_out("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", database=database)
    with Store.open(theirs, create=False) as store:
        assert len(store.records()) == 1
        with pytest.raises(
            StoreError, match=r"permission denied for .*USAGE on their sequences to write"
        ):
            store.append(make.record(launch=1, threads=2))
    postgresql.carry_out("DROP OWNED BY reader", database=database)
    wrong = refused(postgresql.url(database, "guarded", SECRET))
    assert "refuses this user (" in wrong
    assert f"postgresql+psycopg://guarded@127.0.0.1:{postgresql.port}/{database} " in wrong
    assert "refuses this user" in refused(postgresql.url(database, "nobody-knows", SECRET))
    assert "make the database" in refused(postgresql.url("nonesuch", password=SECRET))
    assert "correct its URL" in refused(url + "?nonsense=1")
    assert "check that the server runs" in refused(
        f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/db"
    )
    postgresql.carry_out("CREATE TABLE strangers (id int)", database=database)
    other_database = postgresql.database()
    postgresql.carry_out("CREATE TABLE runs (experiment TEXT)", database=other_database)
    assert "it has a table runs" in refused(postgresql.url(other_database))


def test_a_server_that_was_restarted_is_found_again(postgresql: Server, url: str) -> None:
    with Store.open(url) as store:
        store.append(make.record())
        postgresql.stop()
        with pytest.raises(StoreError, match="check that the server runs"):
            store.append(make.record(launch=1))
        postgresql.start()
        store.append(make.record(launch=1))
        assert [record.launch for record in store.records()] == [0, 1]


def test_a_full_server_is_waited_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(url).close()
    places = sa.create_engine(url, poolclass=sa.NullPool)
    with ExitStack() as held:
        with suppress(sa.exc.OperationalError):
            for _ in range(200):
                held.enter_context(places.connect())
        monkeypatch.setattr(servers, "_WAIT_SECONDS", 0.0)
        assert "accepts no further connections" in refused(url)
        monkeypatch.setattr(servers, "_WAIT_SECONDS", 30.0)
        with ThreadPoolExecutor() as pool:
            opened = pool.submit(Store.open, url)
            time.sleep(0.5)
            assert not opened.done()
            held.close()
            opened.result(30).close()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://me:hunter2@host:5433/db", "postgresql+psycopg://me@host:5433/db"),
        (
            "postgresql+psycopg://me:hunter2@/db?host=%2Frun",
            "postgresql+psycopg://me@/db?host=%2Frun",
        ),
        (
            "postgresql+psycopg://host/db?password=hunter2&sslmode=require",
            "postgresql+psycopg://host/db?sslmode=require",
        ),
        ("postgresql+psycopg://me:a%40hunter2@host/db", "postgresql+psycopg://me@host/db"),
        ("postgresql+psycopg://me:a/hunter2@host/db", "postgresql+psycopg://me@host/db"),
    ],
)
def test_the_name_of_a_store_has_no_password(url: str, name: str) -> None:
    assert servers.public(servers.parsed(url)) == name
    assert servers.without_password(f"--store={url}") == f"--store={name}"
    assert SECRET not in refused(url.replace("host", "nowhere.invalid"))


def test_a_url_that_cannot_be_understood_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "write %40" in refused(f"postgresql+psycopg://me:p@{SECRET}@host/db")
    assert (
        servers.without_password(f"postgresql+psycopg://me:p@{SECRET}@host/db")
        == "postgresql+psycopg://..."
    )
    assert "understood" in refused(f"postgresql+psycopg://me:{SECRET}@host:port/db")
    assert servers.without_password("--store=results.sqlite") == "--store=results.sqlite"
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert f"{sys.executable} -m pip install 'psycopg[binary]'" in refused(
        f"postgresql://me:{SECRET}@host/db"
    )


# Copies.


def fill(store: Store) -> None:
    """Two runs whose records alternate, a repeated attempt, a missing cell, a machine, sentinels,
    an orphan."""
    store.add_machine(make.MACHINE, make.MACHINE_DICT)
    store.save_ceilings(make.MACHINE, {"gemm": [1.0]})
    store.begin_run(make.run(id="b"))
    store.begin_run(make.run(id="a", purpose="gate", sides={"baseline": "x"}))
    for launch in range(3):
        for run in ("b", "a"):
            store.append(make.record(run=run, launch=launch, minutes=launch, threads=1 + launch))
    store.append(make.hole(Status.CRASHED, "signal 11", run="b", launch=4))
    store.append(make.record(run="b", launch=4, minutes=9, result=make.outcome()))
    store.append(make.record(run="without a run", network="lstm32"))
    store.begin_run(make.run(id="empty"))
    store.add_sentinel("b", 0, "before", {"quiet": True})
    store.add_sentinel("b", 0, "before", {"quiet": True})
    store.finish_run("b", make.START)


def contents(store: Store) -> dict[str, Any]:
    runs = store.runs()
    return {
        "runs": sorted(runs, key=lambda run: run.id),
        "records": {run: store.records(run=run) for run in ("a", "b", "without a run")},
        "sentinels": [store.sentinels(run.id) for run in runs],
        "machines": store.machines(),
        "ceilings": store.ceilings(make.MACHINE),
    }


def test_everything_is_copied_there_and_back_and_once(url: str, tmp_path: Path) -> None:
    with (
        Store.open("sqlite://") as source,
        Store.open(url) as target,
        Store.open(tmp_path / "b.sqlite") as back,
    ):
        fill(source)
        progress: list[tuple[int, int]] = []

        def interrupt(done: int, total: int) -> None:
            if done == 5:
                raise KeyboardInterrupt
            progress.append((done, total))

        with pytest.raises(KeyboardInterrupt):
            copy(source, target, interrupt)
        assert [run.id for run in target.runs()] == ["b"]
        assert copy(source, target, lambda *counts: progress.append(counts)) == (2, 4)
        assert progress[-1] == (9, 9)
        assert contents(target) == contents(source)
        assert copy(source, target) == (0, 0)
        assert copy(target, back) == (3, 9)
        assert contents(back) == contents(source)
        back.append(make.record(run="a", launch=9))
        back.finish_run("a", make.START)
        assert copy(back, target) == (0, 1)
        assert contents(target) == contents(back)
        for _ in range(2):  # equal records stay as many
            source.append(make.record(run="a", launch=11))
        assert copy_run(source, target, "a")[1] == 2
        assert copy(source, target) == (0, 0)


# Delivery: a SQLite file as the server, which fails at will.


class Session:
    """A delivering store, its server, and the time."""

    def __init__(self, folder: Path) -> None:
        self.target = str(folder / "server.sqlite")
        self.local = Store.open(folder / "local.sqlite")
        self.up, self.breaks_after_writing = True, False
        self.said: list[str] = []
        self.now = 0.0
        self.store = self.opened()

    def opened(self) -> DeliveringStore:
        name = "postgresql+psycopg://host/db"
        return DeliveringStore(self.local, self._server, name, self.said.append, lambda: self.now)

    def _server(self) -> Store:
        if not self.up:
            raise StoreError("The server cannot be reached.")
        server = Store.open(self.target)
        close = server.close

        def closed() -> None:
            close()
            if self.breaks_after_writing:
                raise StoreError("The connection was lost.")

        server.close = closed  # type: ignore[method-assign]
        return server

    def launches(self) -> list[int]:
        with Store.open(self.target) as server:
            return [record.launch for record in server.records()]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    result = Session(tmp_path)
    result.store.add_machine(make.MACHINE, make.MACHINE_DICT)
    result.store.begin_run(make.run())
    return result


def test_a_break_while_a_record_is_delivered_loses_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(delivery, "copy_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.store.append(make.record())
    session.store.deliver_last()
    assert session.launches() == [0]


@settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    moves=st.lists(
        st.sampled_from(["up", "down", "breaks", "append", "later", "other"]), max_size=12
    )
)
def test_whenever_the_server_comes_and_goes_each_record_reaches_it_once(
    moves: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    session = Session(tmp_path_factory.mktemp("session"))
    session.store.begin_run(make.run())
    launch = 0
    for move in moves:
        if move == "append":
            session.store.append(make.record(launch=launch, minutes=launch))
            launch += 1
        elif move == "later":
            session.now += RETRY_SECONDS
        elif move == "other":  # another process delivers the same local store
            session.opened().deliver()
        else:
            session.up, session.breaks_after_writing = move != "down", move == "breaks"
    session.up, session.breaks_after_writing = True, False
    session.opened().deliver()
    assert sorted(session.launches()) == list(range(launch))


# Real commands.


def secret_in_files(folder: Path) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def test_a_run_whose_server_goes_away_is_kept_resumed_and_delivered(
    command: Command, url: str, postgresql: Server, tmp_path: Path
) -> None:
    Path("mine.toml").write_text(SUITE.replace("step_seconds = 0.005", "step_seconds = 0.05"))
    with running_command(tmp_path, "run", "mine.toml", "--store", url) as process:
        wait_until(lambda: "[1/5]" in process.said(), "the first record")
        postgresql.stop(signal.SIGQUIT)  # as a machine that loses its power
        wait_until(lambda: "The run continues" in process.said(), "a record that waits here")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert SECRET not in process.said()
    postgresql.start()
    assert launched(url).total() < 5
    code, _, errors = command("run", "mine.toml", "--store", url, "--resume")
    assert code == 0, errors
    assert launched(url) == ALL
    # A server that is known may be away when a run begins.
    postgresql.stop()
    offline = command("run", "mine.toml", "--store", url)
    assert offline[0] == 0, offline
    assert "so does `dlbench store deliver" in offline[2]
    assert command("store", "deliver", "--store", url)[0] == 4
    postgresql.start()
    delivered = command("store", "deliver", "--store", url)
    assert delivered[0] == 0, delivered
    assert "5 waiting records delivered" in delivered[2]
    assert launched(url) == ALL + ALL
    with Store.open(url, create=False) as store:
        assert all(run.finished is not None for run in store.runs())
    assert SECRET not in str((offline, delivered))
    assert "is not a server store" in command("store", "deliver", "--store", "x.sqlite")[2]
    delivery.local_path(url).unlink()  # of another machine's, or lost
    assert command("run", "mine.toml", "--store", url, "--budget", "1ms")[0] == 0
    delivery.local_path(url).unlink()
    assert command("run", "mine.toml", "--store", url, "--resume")[0] == 0
    assert launched(url) == ALL + ALL + ALL


def test_a_server_that_was_never_reached_ends_a_run_before_it_measures(
    command: Command, url: str, postgresql: Server
) -> None:
    Path("mine.toml").write_text(SUITE)
    postgresql.stop()
    code, out, errors = command("run", "mine.toml", "--store", url)
    assert (code, out) == (4, "")
    assert "check that the server runs" in errors.splitlines()[-1]
    assert not delivery.local_path(url).exists()


def test_a_table_that_is_locked_for_long_counts_as_away(
    url: str, postgresql: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "_LOCK_MILLISECONDS", 200)
    lines: list[str] = []
    with sa.create_engine(url).connect() as locking, delivery.opened(url, lines.append) as store:
        store.begin_run(make.run())
        locking.exec_driver_sql("LOCK TABLE records IN ACCESS EXCLUSIVE MODE")
        store.append(make.record())
        assert "is held by another program" in lines[-1]
        locking.rollback()
    assert launched(url) == Counter([0])


def test_no_command_shows_a_password(
    command: Command, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Path("mine.toml").write_text(SUITE)
    wrong = url.replace(SECRET, f"{SECRET}@{SECRET}")
    in_query = url.replace(f":{SECRET}", "") + f"?password={SECRET}"
    monkeypatch.setenv("DLBENCH_STORE", in_query)
    results = [command("run", "mine.toml", "--budget", "1ms")]
    assert results[0][0] == 0, results
    monkeypatch.setenv("DLBENCH_STORE", url)
    results += [
        command(*words)
        for words in (
            ("run", "mine.toml", "--budget", "1ms", "--store", url),
            ("run", "mine.toml", "--resume", "--budget", "1ms", f"--store={in_query}"),
            ("plan", "mine.toml"),
            ("compare", "previous", "latest"),
            ("compare", f"{url}:latest", "latest"),
            ("report", "matrix", "--network", "nonesuch"),
            ("report", "runs", "--store", url, "--store", in_query, "--run", "nonesuch"),
            ("report", "page", "--store", url),
            ("store", "copy", url, "copy.sqlite"),
            ("store", "copy", url, in_query),
            *(
                ("report", "runs", "--store", wrong_url)
                for wrong_url in (wrong, url.replace("owner", "stranger"), url + "x")
            ),
        )
    ]
    assert {code for code, _, _ in results} == {0, 2, 4}
    for code, out, errors in results:
        assert SECRET not in out + errors, (code, out, errors)
        assert "Traceback" not in errors
    assert secret_in_files(tmp_path) == []


def rounded(text: str) -> str:
    """Round sums that the database makes: their last digits depend on the order."""
    return re.sub(r"\d\.\d{9,}(e-?\d+)?", lambda match: f"{float(match[0]):.6g}", text)


@pytest.fixture
def copied(command: Command, url: str) -> tuple[str, str]:
    Path("workers.sqlite").write_bytes(lzma.decompress((STORES / "workers.sqlite.xz").read_bytes()))
    code, _, errors = command("store", "copy", "workers.sqlite", url)
    assert code == 0, errors
    return "workers.sqlite", url


def in_order(results: Results) -> Results:
    return replace(
        results,
        records=tuple(sorted(results.records, key=lambda record: (record.started, record.launch))),
    )


def test_reports_read_the_same_of_the_server_and_of_the_file(
    command: Command, copied: tuple[str, str]
) -> None:
    file, url = copied
    ways: list[dict[str, Any]] = [{}, {"newest": True}, {"newest": True, "all_runs": True}]
    for way in ways:
        assert in_order(Results.read([url], **way)) == in_order(Results.read([file], **way))
    for words in (("report", "matrix"), ("report", "runs"), ("history",)):
        results = [command(*words, "--format", "json", "--store", store) for store in copied]
        of_file, of_server = (
            (code, rounded(out), errors.replace(servers.without_password(url), file))
            for code, out, errors in results
        )
        assert of_file == of_server, words
        assert of_file[0] in (0, 2)
        assert words[-1] != "matrix" or json.loads(of_file[1])
