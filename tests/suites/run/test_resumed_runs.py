"""Runs that end early: by a budget, a full disk, an interrupt; and what is left when they go on."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_runs import ORDER, PLAN, Pretender, begin, carry_out, launched, ok, open_store, runner_of
from properties import examples

from dlbench.adapters.protocol import Outcome, Status
from dlbench.reports.errors import StoreError
from dlbench.suites.errors import FrameworkEnvironmentError

pytestmark = pytest.mark.usefixtures("home_of_module")


@examples(6)
@given(st.integers(0, len(ORDER)), st.integers(0, len(ORDER)))
def test_a_resumed_run_launches_exactly_what_is_missing(first_end, second_end):
    store = open_store()
    run = begin(store)
    ends = [first_end, second_end, None]
    for end in ends:
        before = launched(store)
        launcher = Pretender(ends_at=end)
        runner = runner_of(store, store.runs()[0], launcher)
        wanted = [each for each in ORDER if runner.ledger.wants(*each)]
        assert wanted == ORDER[len(before) :]
        try:
            runner.run()
        except KeyboardInterrupt:
            assert (store.runs()[-1].id, store.runs()[-1].finished) == (run.id, None)
    assert launched(store) == ORDER
    assert store.runs()[0].finished is not None


statuses = st.sampled_from([Status.OK, Status.CRASHED, Status.TIMED_OUT, Status.UNSUPPORTED, Status.OUT_OF_MEMORY])


@examples(6)
@given(st.lists(statuses, min_size=len(PLAN.cells), max_size=len(PLAN.cells)), st.integers(0, len(ORDER)))
def test_an_interrupted_run_ends_with_the_records_of_one_that_was_not(chosen, end):
    of = dict(zip(PLAN.cells, chosen, strict=True))

    def answer(cell):
        return ok() if of[cell] is Status.OK else Outcome(of[cell], "so it was")

    whole, _, _ = carry_out(answer)
    store = open_store()
    run = begin(store)
    for launcher in (Pretender(answer, ends_at=end), Pretender(answer)):
        with suppress(KeyboardInterrupt):
            runner_of(store, run, launcher).run()
    assert launched(store) == launched(whole)
    assert [r.outcome for r in store.records()] == [r.outcome for r in whole.records()]


def test_a_spent_budget_stops_the_run_and_leaves_it_to_be_resumed():
    store, launcher = open_store(), Pretender(seconds=10.0)
    run = begin(store)
    ending = runner_of(store, run, launcher, budget=45.0).run()
    assert launcher.time <= 45.0
    assert (ending.records, ending.launches_left) == (4, len(ORDER) - 4)
    assert launched(store) == ORDER[:4]
    assert store.runs()[-1].finished is None
    again = Pretender(seconds=0.001)
    assert runner_of(store, run, again, budget=1e6).run().launches_left == 0
    assert launched(store) == ORDER


def test_a_budget_too_small_for_anything_gives_one_launch():
    store, launcher = open_store(), Pretender(seconds=10.0)
    ending = runner_of(store, begin(store), launcher, budget=0.001).run()
    assert (ending.records, ending.launches_left) == (1, len(ORDER) - 1)


class FullStore:
    """A store whose disk is full after so many records."""

    def __init__(self, store, room):
        self.store, self.room = store, room

    def append(self, record):
        if self.room == 0:
            raise StoreError("The store could not be written: the disk is full.")
        self.room -= 1
        self.store.append(record)

    def __getattr__(self, name):
        return getattr(self.store, name)


@examples(6)
@given(st.integers(0, len(ORDER) - 1))
def test_a_full_disk_loses_nothing_that_was_finished(room):
    store = open_store()
    run = begin(store)
    with pytest.raises(StoreError, match="disk is full"):
        runner_of(FullStore(store, room), run, Pretender()).run()
    assert launched(store) == ORDER[:room]
    assert store.runs()[0].finished is None
    runner_of(store, run, Pretender()).run()
    assert launched(store) == ORDER


def test_what_the_launcher_cannot_do_ends_the_run_with_its_records_kept():
    def answer(cell):
        raise FrameworkEnvironmentError("no room for temporary files")

    store = open_store()
    run = begin(store)
    with pytest.raises(FrameworkEnvironmentError):
        runner_of(store, run, Pretender(answer)).run()
    assert store.runs()[-1].finished is None


def test_records_of_another_run_are_none_of_its_business():
    store, _, _ = carry_out()
    other = replace(store.runs()[0], id="r2", finished=None)
    store.begin_run(other)
    launcher = Pretender()
    runner_of(store, other, launcher).run()
    assert len(launcher.orders) == len(ORDER)
