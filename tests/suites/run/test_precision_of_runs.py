"""Launches until a precision is reached, over a launcher that only pretends."""

import math
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_runs import (
    PLAN,
    PRECISE,
    Pretender,
    Watcher,
    begin,
    carry_out,
    launched,
    launches_by_cell,
    noisy,
    ok,
    open_store,
    runner_of,
)
from properties import examples

from dlbench.adapters.protocol import Outcome, Status

pytestmark = pytest.mark.usefixtures("home_of_module")


def test_quiet_cells_get_few_launches_and_noisy_ones_up_to_the_most():
    store, _, ending = carry_out(noisy(lambda cell: 0.2 if cell.threads == 4 else 0.005), plan=PRECISE)
    made = launches_by_cell(store)
    assert set(made) == set(PRECISE.cells)
    assert {count for cell, count in made.items() if cell.threads == 4} == {20}
    assert all(5 <= count <= 8 for cell, count in made.items() if cell.threads != 4)
    assert ending.launches_left == 0
    assert store.runs()[0].finished is not None


def test_every_block_launches_each_cell_that_needs_it_once_in_the_plans_shuffled_order():
    store, _, _ = carry_out(noisy(0.02), plan=PRECISE)
    records = store.records()
    assert [record.launch for record in records] == sorted(record.launch for record in records)
    for block in range(20):
        cells = [record.cell for record in records if record.launch == block]
        assert len(set(cells)) == len(cells)
        assert cells == [planned.cell for planned in PRECISE.block(block) if planned.cell in cells]
    assert {record.cell for record in records if record.launch == 4} == set(PRECISE.cells)
    assert 0 < len({record.cell for record in records if record.launch == 7}) < len(PRECISE.cells)


@examples(3)
@given(st.integers(0, 120))
def test_a_resumed_run_with_a_precision_ends_as_one_that_was_never_interrupted(end):
    def answer():
        # Each launch's deviation hangs on cell and launch alone, whatever came before.
        made = Counter()

        def of(cell):
            made[cell] += 1
            return ok(0.01 * math.exp(random.Random(f"{cell}{made[cell]}").gauss(0, 0.02)))

        return of

    whole, _, _ = carry_out(answer(), plan=PRECISE)
    store, shared = open_store(), answer()
    run = begin(store, PRECISE)
    for launcher in (Pretender(shared, ends_at=end), Pretender(shared)):
        with suppress(KeyboardInterrupt):
            runner_of(store, run, launcher, plan=PRECISE).run()
    assert launched(store) == launched(whole)


def test_a_cell_that_crashes_or_computes_something_else_gets_no_launch_beyond_the_fewest():
    wrong = ok()._replace(status=Status.PARITY_FAILED, reason="loss off")

    def answer(cell):
        return {1: Outcome(Status.CRASHED, "so it was"), 2: wrong, 4: ok()}[cell.threads]

    store, _, ending = carry_out(answer, plan=PRECISE)
    assert {(cell.threads, count) for cell, count in launches_by_cell(store).items()} == {(1, 5), (2, 5), (4, 6)}
    assert ending.launches_left == 0


def test_a_budget_is_kept_and_what_is_left_is_told():
    store, launcher = open_store(), Pretender(noisy(0.03), seconds=10.0)
    run = begin(store, PRECISE)
    ending = runner_of(store, run, launcher, plan=PRECISE, budget=1005.0).run()
    assert launcher.time <= 1005.0
    assert ending.records == 100
    assert ending.launches_left > 0
    assert ending.seconds_left == pytest.approx(10.0 * ending.launches_left)
    assert store.runs()[-1].finished is None


def test_a_budget_that_ends_goes_where_it_buys_most():
    # Of cells of two kinds, one takes ten times as long; both are as noisy.
    slow = lambda cell: cell.network == "lstm32"  # noqa: E731
    answer = noisy(0.1)
    store = open_store()

    class Uneven(Pretender):
        def launch(self, order, tick=None):
            launched_now = super().launch(order, tick)
            seconds = 10.0 if slow(order.launch.cell) else 1.0
            self.time += seconds - self.seconds
            return replace(launched_now, wall_seconds=seconds)

    launcher = Uneven(answer)
    each_block = sum(10.0 if slow(cell) else 1.0 for cell in PRECISE.cells)
    ending = runner_of(store, begin(store, PRECISE), launcher, plan=PRECISE, budget=6.4 * each_block).run()
    assert launcher.time <= 6.4 * each_block
    assert ending.launches_left > 0
    last = [record.cell for record in store.records() if record.launch == 6]
    quick_cells = {cell for cell in PRECISE.cells if not slow(cell)}
    # All that are quick come first, then of the slow ones as many as there is time for.
    assert set(last[: len(quick_cells)]) == quick_cells
    assert 0 < len(last) - len(quick_cells) < len(quick_cells)


def test_where_launches_differ_more_than_steps_few_steps_are_timed_and_the_record_says_so():
    rng = random.Random(3)

    def answer(cell):
        # Launches differ by a tenth, the steps of one launch hardly at all: more of them teach nothing.
        base = 0.01 * math.exp(rng.gauss(0, 0.1))
        return Outcome(Status.OK, samples_ns=[round(base * math.exp(rng.gauss(0, 0.001)) * 1e9) for _ in range(20)])

    store, _, _ = carry_out(answer, plan=PRECISE)
    protocol = PRECISE.protocol
    early = {r.protocol.steps for r in store.records() if r.launch < 3}
    late = {r.protocol.steps for r in store.records() if r.launch >= 5}
    assert early == {protocol.minimum_steps}  # too few launches to tell
    assert late == {protocol.minimum_steps}


def test_a_fixed_number_of_launches_changes_no_steps():
    store, _, _ = carry_out(noisy(0.2))
    assert {record.protocol for record in store.records()} == {PLAN.protocol}


def test_the_totals_told_to_the_observer_are_estimates_that_end_right():
    watcher = Watcher()
    carry_out(noisy(0.02), plan=PRECISE, watcher=watcher)
    assert watcher.started[0][2] >= 5 * len(PRECISE.cells)
    _, index, total, left = watcher.ended[-1]
    assert (index, left) == (total, 0)
    assert [index for _, index, _, _ in watcher.started] == list(range(1, total + 1))
