"""A server that comes and goes while a run writes to it: each record reaches it once."""

from collections.abc import Callable
from typing import Any

import factory_of_records as make
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.reports.errors import StoreError
from dlbench.reports.storage.servers.delivering import RETRY_SECONDS, DeliveringStore
from dlbench.reports.storage.store import Store

WRITES = ("add_machine", "save_ceilings", "begin_run", "finish_run", "append", "add_sentinel")


class Server(Store):
    """A store that can be away, or lose its line after it has written."""

    up, loses_its_line = True, False
    closed = False

    def _rows(self, statement: Any) -> Any:
        self._check()
        return super()._rows(statement)

    def _writing(self, alone: bool = False) -> Any:
        self._check()
        return super()._writing(alone)

    def _check(self) -> None:
        if not self.up:
            raise StoreError("The store nowhere cannot be reached.")

    @property
    def engine(self) -> Any:
        self._check()
        return self._engine

    def append(self, record: Any) -> None:
        super().append(record)
        if self.loses_its_line:
            raise StoreError("The line was lost.")

    def close(self) -> None:
        self.closed = True


class Session:
    """A delivering store, its server, its own file, what it said, and the time."""

    def __init__(self) -> None:
        self.server = Server(Store.open("sqlite://").engine, "the server")
        self.here = Store.open("sqlite://")
        self.said: list[str] = []
        self.now = 0.0
        self.store = self.opened()

    def opened(self, unfinished: str | None = None) -> DeliveringStore:
        return DeliveringStore(self.server, self.here, self.said.append, unfinished, lambda: self.now)

    def launches(self) -> list[int]:
        self.server.up = True
        return [record.launch for record in self.server.records()]


@pytest.fixture
def session() -> Session:
    found = Session()
    found.store.add_machine(make.MACHINE, make.MACHINE_DICT)
    found.store.begin_run(make.run())
    return found


def test_while_the_server_is_there_it_gets_all_at_once(session: Session) -> None:
    session.store.append(make.record())
    session.store.add_sentinel("run-1", 0, "before", {"quiet": True})
    assert session.launches() == [0]
    assert session.store.records() == session.server.records()
    session.store.finish_run("run-1", make.START)
    session.store.close()
    assert session.server.runs() == [make.run(finished=make.START)]
    assert session.server.sentinels("run-1") == [(0, "before", {"quiet": True})]
    assert (session.said, session.store.delivered, session.server.closed) == ([], True, True)


def test_what_is_written_after_a_question_failed_waits_until_it_is_delivered(session: Session) -> None:
    session.server.up = False
    assert session.store.runs() == [make.run()]  # its own, since nobody else answers
    session.store.append(make.record())
    assert not session.store.delivered
    session.store.close()
    assert "Not everything was delivered" in session.said[-1]


def test_without_the_server_a_run_goes_on_and_what_waits_is_delivered_once(session: Session) -> None:
    session.store.append(make.record())
    session.server.up = False
    for launch in (1, 2):
        session.store.append(make.record(launch=launch))
    session.store.add_sentinel("run-1", 0, "before", {"quiet": True})
    (said,) = session.said
    assert "The run goes on" in said
    assert [record.launch for record in session.store.records(run="run-1")] == [0, 1, 2]
    assert session.store.runs() == [make.run()]
    assert session.launches() == [0]
    session.store.append(make.record(launch=3))  # too early to ask the server again
    assert session.launches() == [0]
    session.now = RETRY_SECONDS
    session.store.append(make.record(launch=4))
    assert session.launches() == [0, 1, 2, 3, 4]
    assert session.said[1] == "the server is back: 4 records that waited delivered."
    session.store.append(make.record(launch=5))
    session.store.close()
    assert session.launches() == [0, 1, 2, 3, 4, 5]
    assert len(session.server.sentinels("run-1")) == 1
    assert session.store.delivered


def test_at_its_end_a_run_delivers_what_waits_or_says_where_it_is(session: Session) -> None:
    session.server.up = False
    session.store.append(make.record())
    session.store.finish_run("run-1", make.START)
    session.store.close()
    assert not session.store.delivered
    assert "`dlbench store deliver`" in session.said[-1]
    again = session.opened()
    again.begun, again.delivered = True, False
    session.server.up = True
    again.close()
    assert session.launches() == [0]
    assert session.server.runs() == [make.run(finished=make.START)]


def test_a_record_of_which_nobody_knows_whether_it_was_written_is_not_doubled(session: Session) -> None:
    session.server.loses_its_line = True
    session.store.append(make.record())
    session.server.loses_its_line = False
    session.store.append(make.record(launch=1))
    session.store.close()
    assert session.launches() == [0, 1]


def test_a_break_while_a_record_is_delivered_loses_nothing(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(record: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(session.server, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.store.append(make.record())
    session.store.close()
    assert session.launches() == [0]


@pytest.mark.parametrize("write", WRITES[:3])
def test_before_a_run_has_begun_the_server_must_be_there(write: str) -> None:
    session = Session()
    session.server.up = False
    given: dict[str, Callable[[], None]] = {
        "add_machine": lambda: session.store.add_machine("m", {}),
        "save_ceilings": lambda: session.store.save_ceilings("m", {}),
        "begin_run": lambda: session.store.begin_run(make.run()),
    }
    with pytest.raises(StoreError, match="cannot be reached"):
        given[write]()
    session.store.close()
    assert session.said == []


def test_a_run_that_goes_on_knows_what_it_measured_before(session: Session) -> None:
    session.store.append(make.record())
    session.store.save_ceilings(make.MACHINE, {"gemm": [1.0]})
    session.here = Store.open("sqlite://")
    store = session.opened(unfinished="run-1")
    session.server.up = False
    store.append(make.record(launch=1))
    assert [record.launch for record in store.records(run="run-1")] == [0, 1]
    assert store.ceilings(make.MACHINE) == {"gemm": [1.0]}
    session.server.up = True
    store.close()
    assert session.launches() == [0, 1]


def test_readings_of_earlier_runs_are_the_servers(session: Session) -> None:
    session.server.begin_run(make.run(id="earlier"))
    session.server.add_sentinel("earlier", 0, "after", {"quiet": False})
    assert {run.id for run in session.store.runs()} == {"earlier", "run-1"}
    assert session.store.sentinels("earlier") == [(0, "after", {"quiet": False})]
    session.server.up = False
    assert session.store.sentinels("earlier") == []


@settings(max_examples=15)
@given(st.lists(st.sampled_from(["up", "down", "loses", "append", "later"]), max_size=12))
def test_whenever_the_server_comes_and_goes_each_record_reaches_it_once(moves: list[str]) -> None:
    session = Session()
    session.store.begin_run(make.run())
    launch = 0
    for move in moves:
        if move == "append":
            session.store.append(make.record(launch=launch))
            launch += 1
        elif move == "later":
            session.now += RETRY_SECONDS
        else:
            session.server.up, session.server.loses_its_line = move != "down", move == "loses"
    session.server.up, session.server.loses_its_line = True, False
    session.store.close()
    assert session.launches() == list(range(launch))
