"""A run that is a fleet's job, by the real command: what it keeps of its node, where it goes on, how it ends."""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from processes import wait_until
from suites_of_null import suite_of_null

from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store
from dlbench.suites.fleet import heartbeat, membership
from dlbench.suites.fleet.heartbeat import Heartbeat
from dlbench.suites.fleet.standing import DONE

Command = Callable[..., tuple[Any, str, str]]
STORE = "fleet.sqlite"
SUITE = suite_of_null(step_seconds=0.005, protocol={"seconds": 0.05}, threads=[1, 2, 3])


@pytest.fixture
def fleet(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a suite of three cells, and a store with a fleet that has one job; return the fleet's id."""
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path / "home"))
    Path("mine.toml").write_text(SUITE)
    with Store.open(STORE) as store:
        fleets.begin(store, Fleet("f1", "mine.toml", (), "local", "", "0", datetime.now(UTC)))
        fleets.add_job(store, "f1", Job(1, "n1"))
    return "f1"


def job(number: int) -> Job:
    with Store.open(STORE, create=False) as store:
        return fleets.job(store, "f1", number)


def replaced_on(node: str) -> None:
    with Store.open(STORE) as store:
        fleets.add_job(store, "f1", Job(2, node, replaces=1))


def measured() -> Counter[tuple[str, int]]:
    """Return how often each node measured each thread count."""
    with Store.open(STORE, create=False) as store:
        return Counter((record.node.name, record.cell.threads) for record in store.records() if record.node)


def test_a_job_keeps_what_became_of_it(fleet: str, command: Command) -> None:
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/1")
    assert code == 0, errors
    kept = job(1)
    assert (kept.node, kept.ending, kept.planned) == ("n1", DONE, 3)
    assert kept.beat_age is not None
    with Store.open(STORE, create=False) as store:
        (run,) = store.runs()
        assert run.id == kept.run
        assert run.machine == kept.machine
        assert {record.node for record in store.records()} == {run.node}
    assert run.node is not None
    assert (run.node.fleet, run.node.name) == ("f1", "n1")


@pytest.mark.slow
def test_the_same_node_goes_on_with_all_that_is_left(fleet: str, command: Command) -> None:
    command("run", "mine.toml", "--store", STORE, "--job", "f1/1", "--budget", "0.2s")
    assert "its budget was spent with" in (job(1).ending or "")
    # Its nodes share a fingerprint: nobody but the fleet knows which one the run belongs to.
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--resume")
    assert (code, "no unfinished run" in errors) == (2, True)
    replaced_on("n1")
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/2")
    assert code == 0, errors
    assert job(2).run == job(1).run
    assert measured() == Counter({("n1", threads): 1 for threads in (1, 2, 3)})


@pytest.mark.slow
def test_another_node_takes_the_cells_that_were_not_begun(fleet: str, command: Command) -> None:
    command("run", "mine.toml", "--store", STORE, "--job", "f1/1", "--budget", "0.2s")
    before = measured()
    assert 0 < before.total() < 3
    replaced_on("n2")
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/2")
    assert code == 0, errors
    assert job(2).run != job(1).run
    assert (job(2).ending, job(2).planned) == (DONE, 3 - before.total())
    assert measured() - before == Counter(
        {("n2", threads): 1 for threads in (1, 2, 3) if ("n1", threads) not in before}
    )


def test_a_takeover_that_ends_early_is_gone_on_with_too(fleet: str, command: Command) -> None:
    """Also where the fleet measures a part of its suite."""
    words = ("run", "mine.toml", "--threads", "1,2,3", "--store", STORE)
    command(*words, "--job", "f1/1", "--budget", "0.2s")
    replaced_on("n2")
    command(*words, "--job", "f1/2", "--budget", "0.2s")
    with Store.open(STORE) as store:
        fleets.add_job(store, "f1", Job(3, "n2", replaces=2))
    code, _, errors = command(*words, "--job", "f1/3")
    assert code == 0, errors
    assert job(3).run == job(2).run != job(1).run
    assert Counter(threads for _, threads in measured().elements()) == Counter([1, 2, 3])


def test_what_has_finished_meanwhile_is_not_measured_again(fleet: str, command: Command) -> None:
    command("run", "mine.toml", "--store", STORE, "--job", "f1/1")
    for number, node in ((2, "n1"), (3, "n2")):
        with Store.open(STORE) as store:
            fleets.add_job(store, "f1", Job(number, node, replaces=1))
        code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", f"f1/{number}")
        assert (code, "Nothing is left" in errors) == (0, True)
        assert (job(number).ending, job(number).run) == (DONE, job(1).run)
    assert measured().total() == 3


def test_a_job_that_is_started_again_goes_on_with_its_own_run(fleet: str, command: Command) -> None:
    command("run", "mine.toml", "--store", STORE, "--job", "f1/1", "--budget", "0.2s")
    begun = job(1).run
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/1")
    assert code == 0, errors
    assert (job(1).run, job(1).ending) == (begun, DONE)
    assert measured() == Counter({("n1", threads): 1 for threads in (1, 2, 3)})
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/1", "--resume")
    assert (code, "dlbench fleet run SUITE --resume" in errors) == (2, True)


def test_a_node_of_another_kind_takes_nothing(fleet: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("run", "mine.toml", "--store", STORE, "--job", "f1/1", "--budget", "0.2s")
    replaced_on("n2")
    with Store.open(STORE) as store:
        left = store.runs()[0]
    monkeypatch.setattr(Store, "run", lambda self, run: type(left)(**{**vars(left), "machine": "another"}))
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/2")
    assert (code, "Node n2 is of another kind than n1" in errors) == (2, True)
    assert "of another kind" in (job(2).ending or "")


@pytest.mark.slow
def test_why_it_ended_early_is_kept(fleet: str, command: Command) -> None:
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/1", "--corpus", "missing.txt")
    assert code == 2  # before it began: the job's log has the reason
    assert job(1).ending is None
    replaced_on("n1")
    with Store.open(STORE) as store:
        fleets.note(store, "f1", 1, run="r-that-is-not-there")
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/2")
    assert code == 0, errors  # nothing was left of a run that nobody knows


@pytest.mark.parametrize("word", ["f1", "f1/one", "/1", "f2/1", "f1/9"])
def test_no_such_job(fleet: str, command: Command, word: str) -> None:
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", word)
    assert code in (2, 4)
    assert len(errors.splitlines()) == 1


def test_a_heart_beats_as_soon_as_the_store_is_there_and_until_its_end(fleet: str) -> None:
    hidden = Path(STORE).rename("hidden.sqlite")
    beating = Heartbeat(STORE, "f1", 1, seconds=0.05)
    with beating:
        time.sleep(0.2)
        hidden.rename(STORE)
        wait_until(lambda: job(1).beat_age is not None, "a heartbeat")
    assert not beating._thread.is_alive()
    assert heartbeat.LOST_SECONDS >= 3 * heartbeat.BEAT_SECONDS


@pytest.mark.slow
def test_a_store_that_is_away_ends_no_run(fleet: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership.fleets, "beat", fail)
    note, calls = membership.fleets.note, iter(range(9))
    monkeypatch.setattr(
        membership.fleets, "note", lambda *given, **told: (fail if next(calls) else note)(*given, **told)
    )
    code, _, errors = command("run", "mine.toml", "--store", STORE, "--job", "f1/1")
    assert code == 0, errors
    assert "What became of the job was not kept there." in errors
    assert measured().total() == 3


def fail(*given: Any, **told: Any) -> None:
    raise membership.StoreError("The server is away.")
