"""Beginning and resuming: a resumed run is the run that was begun, whatever was typed the second
time."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import factory_of_records as make
import pytest
from processes import plan_of

from dlbench.reports.results.storage.store import Store
from dlbench.suites.environments import digests, environment
from dlbench.suites.errors import UsageError
from dlbench.suites.planning import values
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.run import preparation, resume

HERE, THERE = SimpleNamespace(fingerprint="here"), SimpleNamespace(fingerprint="there")


def begin(plan, store, machine):
    """Store and return a new run of a plan."""
    run = preparation.new_run(plan, machine)
    store.begin_run(run)
    return run


@pytest.fixture
def store():
    with Store.open("sqlite://") as opened:
        yield opened


CHOICES = [
    {},
    {"frameworks": "null,torch:compile", "launches": "3", "steps": 2},
    {
        "frameworks": "null",
        "launches": "4-9",
        "interval": "3%",
        "threads": "1,2",
        "affinity": "bound,oversubscribed",
    },
]


@pytest.mark.parametrize("chosen", CHOICES)
def test_the_same_command_goes_on_with_its_run(store, chosen):
    begun = plan_of(seed=11, **chosen)
    run = begin(begun, store, HERE)
    resumed, continued = resume.resume(
        plan_of(seed=99, **chosen), store, HERE, SuiteOverrides(**chosen)
    )
    assert continued == run
    assert resumed == begun
    assert list(resumed.order()) == list(begun.order())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"networks": "fcn5"}, "network: fcn5 now, fcn5, lstm32 in the run"),
        ({"threads": "3"}, "threads: 3 now, "),
        ({"launches": "1"}, "launches: 1 now, 2 in the run"),
        ({"launches": "3", "steps": 7}, "launches: 3 now, 2 in the run"),
        ({"steps": 7}, "steps: 7 now, "),
    ],
)
def test_another_command_is_refused_with_what_differs(store, changes, words):
    run = begin(plan_of(), store, HERE)
    with pytest.raises(UsageError) as caught:
        resume.resume(plan_of(**changes), store, HERE, SuiteOverrides(**changes))
    assert f"The unfinished run {run.id} is not the one asked for now: " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    "more", [{"launches": "3"}, {"launches": "2-9", "interval": "fastest"}, {"interval": "5%"}]
)
def test_more_launches_go_on_with_a_run_that_is_finished_or_not(store, finished, more):
    run = begin(plan_of(seed=11), store, HERE)
    if finished:
        store.finish_run(run.id, run.started)
    plan, extended = resume.resume(plan_of(seed=99, **more), store, HERE, SuiteOverrides(**more))
    expected = plan_of(seed=11, **more)
    assert (extended.id, extended.finished) == (run.id, None)
    assert (extended.launches, extended.most, extended.precision) == (
        expected.launches,
        expected.most,
        expected.interval,
    )
    assert plan == expected
    store.extend_run(extended)
    assert store.runs() == [extended]
    # An interruption later the same command goes on.
    assert (
        resume.resume(plan_of(seed=99, **more), store, HERE, SuiteOverrides(**more))[1] == extended
    )


def test_an_unfinished_run_of_the_same_command_comes_before_a_longer_one(store):
    shorter = begin(plan_of(launches="1", seed=1), store, HERE)
    store.finish_run(shorter.id, shorter.started)
    same = begin(plan_of(seed=2), store, HERE)
    assert resume.resume(plan_of(), store, HERE, SuiteOverrides())[1].id == same.id
    store.finish_run(same.id, same.started)
    with pytest.raises(UsageError, match="no unfinished run"):
        resume.resume(plan_of(launches="1"), store, HERE, SuiteOverrides(launches="1"))


def test_the_newest_unfinished_run_of_the_suite_on_this_machine_is_resumed(store):
    begin(plan_of(seed=1), store, HERE)
    newest = begin(plan_of(seed=2), store, HERE)
    finished = begin(plan_of(seed=3), store, HERE)
    store.finish_run(finished.id, finished.started)
    begin(plan_of(seed=4), store, THERE)
    assert resume.resume(plan_of(), store, HERE, SuiteOverrides())[1].id == newest.id


def test_a_build_is_needed_again_and_taken_from_what_is_typed_now(store):
    build = values.build("mine:null=/opt/mine/bin/python")
    begin(plan_of(frameworks="mine", builds=(build,)), store, HERE)
    with pytest.raises(UsageError, match="Give its --python again"):
        resume.resume(plan_of(), store, HERE, SuiteOverrides())
    moved = values.build("mine:null=/opt/moved/bin/python")
    chosen = {"frameworks": "mine", "builds": (moved,)}
    resumed, _ = resume.resume(plan_of(**chosen), store, HERE, SuiteOverrides(**chosen))
    assert [row.build for row in resumed.rows] == [moved]


def test_a_run_that_is_being_carried_out_is_not_resumed_by_a_second_process(
    store, tmp_path, monkeypatch
):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))
    run = begin(plan_of(), store, HERE)
    with (
        preparation.exclusive(run),
        pytest.raises(UsageError, match="in progress in another"),
        preparation.exclusive(run),
    ):
        pass
    with preparation.exclusive(run):
        pass


def test_a_run_is_not_resumed_with_another_build_or_other_settings_than_it_was_begun_with(store):
    plan = plan_of(frameworks="null")
    run = begin(plan, store, HERE)
    digest = digests.build_digest(environment.look_into(plan.rows[0].build, Path(sys.executable)))
    settings = list(plan.tunable(plan.cells[0]))

    def check(environment, names):
        record = make.record(run=run.id, environment=environment, **plan.cells[0]._asdict())
        software = {**record.outcome.software, "tunable": names}
        resume.check_same_builds(
            plan, [replace(record, outcome=record.outcome._replace(software=software))]
        )

    check(digest, settings)
    check("", ["gone"])  # it never ran
    with pytest.raises(
        UsageError, match=r"measured null with CPython 3\.11\.7, environment another"
    ):
        check("another", settings)
    with pytest.raises(UsageError, match="measured null with the settings gone"):
        check(digest, ["gone"])
