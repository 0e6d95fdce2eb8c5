"""Which jobs go on with what broken ones left, on which nodes; and what each job is told."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from empty_stores import empty_store
from factory_of_records import cell, launches, run

from dlbench.reports.storage.hosts import Node
from dlbench.reports.storage.servers import fleets
from dlbench.reports.storage.servers.fleets import Fleet, Job
from dlbench.reports.storage.store import Store
from dlbench.suites.errors import UsageError
from dlbench.suites.fleet import going_on, submission
from dlbench.suites.fleet.going_on import GoingOn
from dlbench.suites.fleet.schedulers.scheduler import Seen, Wanted
from dlbench.suites.fleet.standing import FINISHED, LOST, MEASURING, REPLACED, Standing

PYTHON = (("python", "/opt/python"),)
CELLS = tuple(cell(threads=count) for count in (1, 2, 3))


class Hand:
    """A scheduler that takes everything, on nodes that are there."""

    def __init__(self, *there: str) -> None:
        self.there, self.taken = there, list[Wanted]()

    def nodes(self, count: int | None, named: Sequence[str]) -> list[str]:
        return list(named) or list(self.there)

    def submit(self, wanted: Wanted) -> str:
        self.taken.append(wanted)
        return f"h{wanted.number}"

    def seen(self, handles: Sequence[str]) -> dict[str, Seen]:
        return {}

    def cancel(self, handles: Sequence[str]) -> None: ...

    def log(self, handle: str) -> Path | None:
        return None

    def usable(self, node: str) -> bool:
        return node in self.there


@pytest.fixture
def store() -> Iterator[Store]:
    with empty_store() as opened:
        begun = replace(run(), id="r1", plan=CELLS, node=Node("f1", "n1"))
        opened.begin_run(begun)
        opened.append(replace(launches(1.0, threads=1)[0], run="r1"))
        yield opened


def broken(node: str = "n1", machine: str | None = "kind") -> Standing:
    return Standing(Job(1, node, "h1", "r1", machine), LOST)


def other(number: int, node: str, machine: str, state: str = FINISHED) -> Standing:
    return Standing(Job(number, node, f"h{number}", f"r{number}", machine), state)


def test_its_own_node_goes_on_where_it_can(store: Store) -> None:
    for others in ((), ("n2",)):
        found = going_on.replacements([broken(), other(2, "n2", "kind")], store, Hand("n1", "n2"), others)
        assert found.jobs == [Job(3, "n1", replaces=1)]
        assert found.lines == ["job 3 goes on with what job 1 left, on n1"]


def test_else_another_of_its_kind_takes_over(store: Store) -> None:
    at_work = other(5, "n5", "kind", MEASURING)
    standings = [broken(), other(2, "n2", "another"), at_work, other(3, "n3", "kind"), other(4, "n4", "kind")]
    there = Hand("n2", "n3", "n4", "n5", "n9")
    found = going_on.replacements(standings, store, there, ())
    assert found.jobs == [Job(6, "n3", replaces=1)]
    assert found.lines == ["job 6 takes over from job 1, on n3; 1 cells that n1 began stay as they are"]
    assert going_on.replacements(standings, store, there, ["n9"]).jobs == [Job(6, "n9", replaces=1)]


def test_one_that_cannot_go_on_holds_up_no_other(store: Store) -> None:
    second = replace(broken("n5"), job=replace(broken("n5").job, number=2))
    standings = [broken(), second, other(3, "n3", "kind")]
    found = going_on.replacements(standings, store, Hand("n3"), ())
    assert [job.node for job in found.jobs] == ["n3"]
    assert found.refusals == ["Node n5 cannot be used now, and no other node of its kind is free."]
    standings.append(other(4, "n4", "kind"))
    found = going_on.replacements(standings, store, Hand("n3", "n4"), ())
    assert [(job.number, job.node) for job in found.jobs] == [(5, "n3"), (6, "n4")]


def test_where_every_cell_was_begun_its_own_node_alone_can_go_on(store: Store) -> None:
    for threads in (2, 3):
        store.append(replace(launches(1.0, threads=threads)[0], run="r1"))
    found = going_on.replacements([broken(), other(2, "n2", "kind")], store, Hand("n2"), ())
    assert (found.jobs, found.refusals) == ([], ["Node n1 cannot be used now, and it began every cell of its run."])


def test_what_a_job_left_that_never_began_is_what_the_one_before_it_left(store: Store) -> None:
    second = Standing(Job(2, "n1", "h2", None, None, replaces=1), LOST)
    first = replace(broken(), state=REPLACED)
    found = going_on.replacements([first, second, other(3, "n3", "kind")], store, Hand("n3"), ())
    assert "1 cells that n1 began" in found.lines[0]


def test_who_measures_or_has_ended_well_is_left_alone(store: Store) -> None:
    standings = [other(1, "n1", "kind"), other(2, "n2", "kind", MEASURING)]
    assert going_on.replacements(standings, store, Hand("n1", "n2"), ()) == GoingOn()


def test_a_job_that_is_refused_holds_up_no_other_and_is_not_forgotten(store: Store) -> None:
    fleet = Fleet("f1", "quick", (), "script", "", "0", datetime.now(UTC), PYTHON)
    fleets.begin(store, fleet)

    class Refusing(Hand):
        def submit(self, wanted: Wanted) -> str:
            if wanted.node == "n2":
                raise UsageError("Slurm refused job 2.")
            return super().submit(wanted)

    submitter = submission.Submitter(store, "postgresql://me@host/results", fleet, Refusing())
    assert submitter.submit([Job(1, "n1"), Job(2, "n2"), Job(3, "n3")]) == ["Slurm refused job 2."]
    kept = fleets.jobs(store, "f1")
    assert [(job.handle, job.ending) for job in kept] == [
        *(("h1", None), (None, "it was not submitted: Slurm refused job 2."), ("h3", None))
    ]


def test_a_job_is_a_plain_run_with_its_number(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLBENCH_STORE", raising=False)
    fleet = Fleet("f1", "quick", ("--threads", "1,2"), "script", "", "0", datetime.now(UTC), PYTHON)
    fleets.begin(store, fleet)
    hand = Hand("n1")
    submission.Submitter(store, "postgresql://me@host/results", fleet, hand).submit([Job(1, "n1")])
    (wanted,) = hand.taken
    assert wanted.command == (
        *("/opt/python", "-m", "dlbench.suites", "run", "quick", "--threads", "1,2"),
        *("--store", "postgresql://me@host/results", "--job", "f1/1"),
    )
    assert [job.handle for job in fleets.jobs(store, "f1")] == ["h1"]


def test_a_password_stays_out_of_the_commands_of_jobs(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    secret = "postgresql://me:hunter2@host/results"
    monkeypatch.delenv("DLBENCH_STORE", raising=False)
    with pytest.raises(UsageError, match="pgpass") as refused:
        submission.check_target(secret, several_machines=True)
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("DLBENCH_STORE", secret)
    submission.check_target(secret, several_machines=True)
    fleet = Fleet("f1", "quick", (), "script", "", "0", datetime.now(UTC), PYTHON)
    fleets.begin(store, fleet)
    hand = Hand("n1")
    submission.Submitter(store, secret, fleet, hand).submit([Job(1, "n1")])
    assert "hunter2" not in " ".join(hand.taken[0].command)


@pytest.mark.parametrize("url", ["postgresql://me@host/results", "postgresql+psycopg:///results?host=/run/pg"])
def test_a_url_without_a_password_is_told_to_jobs(url: str) -> None:
    submission.check_target(url, several_machines=True)


def test_machines_do_not_share_a_file() -> None:
    submission.check_target("results.sqlite", several_machines=False)
    with pytest.raises(UsageError, match="database on a server"):
        submission.check_target("results.sqlite", several_machines=True)
