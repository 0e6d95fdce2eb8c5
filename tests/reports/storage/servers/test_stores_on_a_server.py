"""A store on a real PostgreSQL server: what is kept, who may, what is said where it cannot be used, and no password."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import factory_of_records as make
import pytest
import sqlalchemy as sa
from postgresql_server import Server

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.servers import urls
from dlbench.reports.storage.store import Store

SECRET = "hunter2"


def refused(url: str, create: bool = True) -> str:
    with pytest.raises(StoreError) as caught:
        Store.open(url, create)
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    assert caught.value.exit_code == 4
    return message


def write_many(url: str, run: str, count: int) -> None:
    with Store.open(url) as store:
        store.add_machine("m-one", {"written by": run})
        store.begin_run(make.run(id=run))
        for launch in range(count):
            store.append(make.record(launch=launch, run=run, threads=1 + launch % 3))


def test_eight_writers_write_one_store_at_the_same_time(postgresql: Server, database: str) -> None:
    # All of them find it empty: one makes the tables.
    url = postgresql.url(database)
    with ThreadPoolExecutor(8) as writers:
        for done in [writers.submit(write_many, url, f"run-{n}", 12) for n in range(8)]:
            done.result()
    with Store.open(url, create=False) as store:
        assert len(store.runs()) == 8
        for n in range(8):
            assert [record.launch for record in store.records(run=f"run-{n}")] == list(range(12))
        assert len(store.records()) == 96
        assert len(store.cells()) == 3
        assert list(store.machines()) == ["m-one"]


def test_every_part_of_a_store_is_read_back(postgresql: Server, database: str) -> None:
    with Store.open(postgresql.url(database)) as store:
        store.begin_run(make.run())
        store.finish_run("run-1", make.START)
        store.save_ceilings("m", {"gemm": [1.0]})
        store.save_ceilings("m", {"gemm": [2.0]})
        store.add_sentinel("run-1", 0, "before", {"quiet": True})
        store.append(make.record(result=make.outcome(parity=make.parity()._replace(losses=[float("nan")]))))
    with Store.open(postgresql.url(database).replace("+psycopg", ""), create=False) as store:
        assert store.runs() == [make.run(finished=make.START)]
        assert store.ceilings("m") == {"gemm": [2.0]}
        assert store.sentinels("run-1") == [(0, "before", {"quiet": True})]
        assert str(store.records()[0].outcome.parity.losses) == "[nan]"  # type: ignore[union-attr]


def test_runs_are_in_order_of_time_where_the_server_sorts_as_people_do(postgresql: Server, database: str) -> None:
    whole, later = make.START, make.START.replace(microsecond=5)
    with Store.open(postgresql.url(database)) as store:
        assert store.engine.connect().exec_driver_sql("SELECT 'a' < 'B'").scalar() is True
        store.begin_run(make.run(id="z", started=later))
        store.begin_run(make.run(id="b", started=whole))
        store.begin_run(make.run(id="A", started=whole))
        assert [run.id for run in store.runs()] == ["A", "b", "z"]


def test_a_newer_schema_is_refused(postgresql: Server, database: str) -> None:
    Store.open(postgresql.url(database)).close()
    postgresql.carry_out("UPDATE dlbench_schema SET version = 99", database=database)
    assert "was written by a newer dlbench (store schema 99" in refused(postgresql.url(database))


def test_a_database_with_tables_of_the_same_names_is_left_alone(postgresql: Server, database: str) -> None:
    postgresql.carry_out("CREATE TABLE bookmarks (url TEXT)", database=database)
    postgresql.carry_out("CREATE TABLE runs (experiment TEXT)", database=database)
    said = refused(postgresql.url(database))
    assert "it has a table runs" in said
    assert postgresql.carry_out("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", database=database) == [
        (2,)
    ]
    postgresql.carry_out("CREATE SCHEMA mine", database=database)
    of_its_own = said.rpartition(": ")[2].partition(" ")[0].replace("NAME", "mine")
    with Store.open(postgresql.url(database) + of_its_own) as store:
        store.append(make.record())
    assert postgresql.carry_out("SELECT count(*) FROM mine.records", database=database) == [(1,)]


def test_an_empty_database_holds_no_results(postgresql: Server, database: str) -> None:
    assert "holds no results yet; fill it with `dlbench run SUITE`" in refused(postgresql.url(database), create=False)


def test_a_role_without_rights(postgresql: Server, database: str) -> None:
    postgresql.carry_out("DROP ROLE IF EXISTS reader")
    postgresql.carry_out("CREATE ROLE reader LOGIN")
    mine, theirs = postgresql.url(database), postgresql.url(database, "reader")
    assert "lets this user not do that (permission denied for schema public)" in refused(theirs)
    with Store.open(mine) as store:
        store.append(make.record())
    assert "permission denied for table dlbench_schema" in refused(theirs, create=False)
    postgresql.carry_out("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", database=database)
    with Store.open(theirs, create=False) as store:
        assert len(store.records()) == 1
        with pytest.raises(StoreError, match=r"permission denied for .*USAGE on their sequences, to write"):
            store.append(make.record(launch=1, threads=2))
        assert len(store.records()) == 1
    postgresql.carry_out("DROP OWNED BY reader", database=database)


def test_what_cannot_be_reached_is_told_with_the_remedy(postgresql: Server, database: str) -> None:
    postgresql.carry_out("DROP ROLE IF EXISTS guarded")
    postgresql.carry_out(f"CREATE ROLE guarded LOGIN PASSWORD 'other{SECRET}'")
    wrong = refused(postgresql.url(database, "guarded", SECRET))
    assert "refuses this user (" in wrong
    assert "~/.pgpass, PGPASSWORD or the URL" in wrong
    assert f"postgresql+psycopg://guarded@127.0.0.1:{postgresql.port}/{database} " in wrong
    assert "refuses this user" in refused(postgresql.url(database, "guarded"))
    assert "refuses this user" in refused(postgresql.url(database, "nobody-knows", SECRET))
    assert "does not exist (" in refused(postgresql.url("nonesuch", password=SECRET))
    assert "make the database" in refused(postgresql.url("nonesuch", password=SECRET))
    assert "correct its URL" in refused(postgresql.url(database, password=SECRET) + "?nonsense=1")
    assert "check that the server runs" in refused(f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/db")
    postgresql.stop()
    assert "cannot be reached (" in refused(postgresql.url(database, password=SECRET))


def test_a_server_that_was_started_anew_is_found_again(postgresql: Server, database: str) -> None:
    with Store.open(postgresql.url(database)) as store:
        store.append(make.record())
        postgresql.stop()
        with pytest.raises(StoreError, match="check that the server runs"):
            store.append(make.record(launch=1))
        postgresql.start()
        store.append(make.record(launch=1))
        assert [record.launch for record in store.records()] == [0, 1]


def test_a_full_server_is_waited_for_and_told_where_it_stays_full(
    postgresql: Server, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql.url(database)
    Store.open(url).close()
    places = sa.create_engine(url, poolclass=sa.NullPool)
    with ExitStack() as held:
        with suppress(sa.exc.OperationalError):
            for _ in range(200):
                held.enter_context(places.connect())
        monkeypatch.setattr(urls, "_WAIT_SECONDS", 0.0)
        assert "takes no further connection" in refused(url)
        monkeypatch.setattr(urls, "_WAIT_SECONDS", 30.0)
        with ThreadPoolExecutor() as pool:
            opened = pool.submit(Store.open, url)
            time.sleep(0.5)
            assert not opened.done()
            held.close()
            opened.result(30).close()


def test_what_no_column_of_a_server_holds_is_refused(postgresql: Server, database: str) -> None:
    with Store.open(postgresql.url(database)) as store:
        with pytest.raises(StoreError, match="cannot hold such a text or number"):
            store.begin_run(make.run(suite="s" * 200))
        assert store.runs() == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@host:5433/db", "postgresql+psycopg://me@host:5433/db"),
        ("postgresql+psycopg://me:hunter2@/db?host=%2Frun", "postgresql+psycopg://me@/db?host=%2Frun"),
        (
            "postgresql+psycopg://host/db?password=hunter2&sslmode=require",
            "postgresql+psycopg://host/db?sslmode=require",
        ),
        ("postgresql+psycopg://me:a%40hunter2@host/db", "postgresql+psycopg://me@host/db"),
        ("postgresql+psycopg://me:a/hunter2@host/db", "postgresql+psycopg://me@host/db"),
    ],
)
def test_the_name_of_a_store_has_no_password(url: str, shown: str) -> None:
    assert urls.public(urls.parsed(url)) == shown
    assert urls.without_password(url) == shown
    assert urls.without_password(f"--store={url}") == f"--store={shown}"
    assert SECRET not in refused(url.replace("host", "nowhere.invalid"))


def test_a_url_that_cannot_be_understood_is_not_repeated() -> None:
    assert "write %40" in refused(f"postgresql+psycopg://me:p@{SECRET}@host/db")
    assert urls.without_password(f"postgresql+psycopg://me:p@{SECRET}@host/db") == "postgresql+psycopg://..."
    assert "understood" in refused(f"postgresql+psycopg://me:{SECRET}@host:port/db")
    assert urls.without_password("--store=results.sqlite") == "--store=results.sqlite"


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    said = refused(f"postgresql://me:{SECRET}@host/db")
    assert f"{sys.executable} -m pip install 'psycopg[binary]'" in said


def test_contents_are_text_that_any_program_reads(postgresql: Server, database: str) -> None:
    with Store.open(postgresql.url(database)) as store:
        store.append(make.record(network="naïve"))
    (row,) = postgresql.carry_out("SELECT content FROM records", database=database)
    assert json.loads(row[0])["cell"]["network"] == "naïve"
