"""Beginning and resuming: a resumed run is the run that was begun, whatever was typed the second time."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.storage.record import Record
from dlbench.reports.storage.store import Store
from dlbench.suites.environments import contents, row_interpreters
from dlbench.suites.errors import UsageError
from dlbench.suites.measuring import preparation
from dlbench.suites.planning import suite
from dlbench.suites.planning import values as axes
from dlbench.suites.planning.choices import Choices
from dlbench.suites.planning.expansion import expand
from dlbench.suites.planning.values import Capacity

pytestmark = pytest.mark.alone

HERE, THERE = SimpleNamespace(fingerprint="here"), SimpleNamespace(fingerprint="there")


def plan_of(seed=1, **choices):
    return expand(suite.load("quick"), Choices(**choices), Capacity(2, 4), seed)


@pytest.fixture
def store():
    with Store.open("sqlite://") as opened:
        yield opened


def test_a_resumed_run_keeps_cells_protocol_launches_and_order(store):
    begun = plan_of(seed=11, frameworks="null,torch:compile", launches=3, steps=2)
    run = preparation.begin(begun, store, HERE)
    typed_now = plan_of(seed=99, networks="fcn5", launches=1)
    resumed, found = preparation.resume(typed_now, store, HERE, ())
    assert found == run
    assert list(resumed.order()) == list(begun.order())
    assert (resumed.rows, resumed.protocol) == (begun.rows, begun.protocol)


def test_a_resumed_run_keeps_its_range_of_launches_and_its_precision(store):
    begun = plan_of(frameworks="null", launches="4-9", interval="3%", affinity="bound,oversubscribed")
    run = preparation.begin(begun, store, HERE)
    assert (run.launches, run.launches_most, run.precision) == (4, 9, 0.03)
    resumed, _ = preparation.resume(plan_of(frameworks="null"), store, HERE, ())
    assert (resumed.launches, resumed.most, resumed.interval) == (4, 9, 0.03)
    assert resumed.cells == begun.cells
    preparation.begin(plan_of(frameworks="null", launches="2"), store, HERE)
    fixed, _ = preparation.resume(plan_of(frameworks="null", interval="1%"), store, HERE, ())
    assert (fixed.launches, fixed.most, fixed.interval) == (2, 2, None)


def test_the_newest_unfinished_run_of_the_suite_on_this_machine_is_resumed(store):
    preparation.begin(plan_of(seed=1), store, HERE)
    newest = preparation.begin(plan_of(seed=2), store, HERE)
    finished = preparation.begin(plan_of(seed=3), store, HERE)
    store.finish_run(finished.id, finished.started)
    preparation.begin(plan_of(seed=4), store, THERE)
    assert preparation.resume(plan_of(), store, HERE, ())[1].id == newest.id


def test_nothing_to_resume_is_said(store):
    preparation.begin(plan_of(), store, THERE)
    with pytest.raises(UsageError, match="no unfinished run of quick on this machine"):
        preparation.resume(plan_of(), store, HERE, ())


def test_a_build_is_needed_again_and_taken_from_what_is_typed_now(store):
    build = axes.build("mine:null=/opt/mine/bin/python")
    preparation.begin(plan_of(frameworks="mine", builds=(build,)), store, HERE)
    with pytest.raises(UsageError, match="Give its --python again"):
        preparation.resume(plan_of(), store, HERE, ())
    moved = axes.build("mine:null=/opt/moved/bin/python")
    resumed, _ = preparation.resume(plan_of(), store, HERE, (moved,))
    assert [row.build for row in resumed.rows] == [moved]


def test_two_runs_never_share_an_id(store):
    assert len({preparation.begin(plan_of(), store, HERE).id for _ in range(50)}) == 50


def test_a_run_that_is_being_carried_out_is_not_resumed_by_a_second_process(store, tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    run = preparation.begin(plan_of(), store, HERE)
    with (
        preparation.exclusive(run),
        pytest.raises(UsageError, match="carried out by another"),
        preparation.exclusive(run),
    ):
        pass
    with preparation.exclusive(run):
        pass


def record_made_with(run, cell, environment):
    return Record(
        run.id, run.suite, 0, cell, Outcome(Status.OK), "here", environment, "CPython 3", run.protocol,
        run.started, 1.0, "0",
    )  # fmt: skip


def test_a_run_is_not_resumed_with_another_build_than_it_was_begun_with(store):
    plan = plan_of(frameworks="null")
    run = preparation.begin(plan, store, HERE)
    here = row_interpreters.look_into(plan.rows[0].build, Path(sys.executable))
    same = contents.digest_of(here)
    preparation.check_same_builds(plan, [record_made_with(run, plan.cells[0], same)])
    preparation.check_same_builds(plan, [record_made_with(run, plan.cells[0], "")])  # it never ran
    with pytest.raises(UsageError, match="measured null with CPython 3, environment another"):
        preparation.check_same_builds(plan, [record_made_with(run, plan.cells[0], "another")])
    with pytest.raises(UsageError, match="earlier dlbench, which knew the build of null by its versions alone"):
        preparation.check_same_builds(plan, [record_made_with(run, plan.cells[0], here.digest_of_versions)])
