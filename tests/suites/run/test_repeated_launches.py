"""Launches that others disturbed are repeated, over a launcher that only pretends."""

from collections import Counter

import pytest
from pretended_runs import ORDER, PLAN, PRECISE, Pretender, begin, ok, open_store, runner_of

from dlbench.adapters.protocol import Contention, ThreadEvidence
from dlbench.hardware_probe import probe

pytestmark = pytest.mark.usefixtures("home_of_module")


MACHINE = probe()


class BusyFor:
    """A gate that lets repetitions through so many times."""

    def __init__(self, repeats=10**6):
        self.repeats, self.moments = repeats, []

    def before(self, block, seconds_left=None):
        self.moments.append(("before", block))

    def after(self, block):
        self.moments.append(("after", block))

    def before_repeat(self):
        self.repeats -= 1
        return self.repeats >= 0


def contended():
    """An outcome whose timed region lost a fifth of the CPUs' time to the hypervisor."""
    cpus = MACHINE.cpu.effective_cpus
    threads = ThreadEvidence(1, 1, 1, 1.0, 1.0, [1.0])
    return ok()._replace(threads=threads, contention=Contention(0.0, 0, 0, 0.0, 0.0, 0.2 * cpus, 0.0, 0))


def carry_out_disturbed(answer, gate, plan=PLAN):
    store, launcher = open_store(), Pretender(answer)
    runner = runner_of(store, begin(store, plan), launcher, plan, machine=MACHINE, gate=gate)
    return store, runner.run()


def test_a_disturbed_launch_is_attempted_thrice_within_limits_and_every_attempt_is_kept():
    store, ending = carry_out_disturbed(lambda cell: contended(), BusyFor())
    records = store.records()
    assert ending.launches_left == 0
    attempts = Counter(record.attempt for record in records)
    assert attempts[0] == len(ORDER)
    assert 0 < attempts[1] + attempts[2] <= 4 + 2 + 0.25 * len(records)
    assert {record.attempt for record in records if record.cell.framework == "null"} == {0}  # it computes nothing
    first = next(record for record in records if record.attempt == 2)
    assert [r.attempt for r in records if (r.cell, r.launch) == (first.cell, first.launch)] == [0, 1, 2]
    assert {record.quota_cpus for record in records} == {MACHINE.cpu.quota_cpus}


def test_an_undisturbed_attempt_ends_the_attempts():
    calls = Counter()

    def answer(cell):
        calls[cell] += 1
        return contended() if calls[cell] == 1 and cell.network == "fcn5" else ok()

    store, _ = carry_out_disturbed(answer, BusyFor())
    records = [record for record in store.records() if record.attempt > 0]
    assert {(r.cell.network, r.launch, r.attempt) for r in records} == {("fcn5", 0, 1)}
    assert len(records) > 2


def test_where_others_stay_busy_nothing_is_repeated():
    store, ending = carry_out_disturbed(lambda cell: contended(), BusyFor(repeats=0))
    assert {record.attempt for record in store.records()} == {0}
    assert ending.launches_left == 0


def test_the_gate_stands_before_and_after_each_block():
    gate = BusyFor()
    carry_out_disturbed(lambda cell: ok(), gate)
    assert gate.moments == [("before", 0), ("after", 0), ("before", 1), ("after", 1)]


def test_the_gate_is_not_waited_for_where_no_launch_fits_the_budget():
    store, launcher, gate = open_store(), Pretender(seconds=10.0), BusyFor()
    budget = 10.0 * len(PLAN.cells) + 5.0
    ending = runner_of(store, begin(store), launcher, budget=budget, gate=gate).run()
    assert ending.launches_left == len(PLAN.cells)
    assert gate.moments == [("before", 0), ("after", 0)]


def test_disturbed_attempts_do_not_count_towards_a_cells_interval_once_repeated():
    calls = Counter()

    def answer(cell):
        calls[cell] += 1
        return contended()._replace(samples_ns=[10**9] * 3) if calls[cell] == 1 else ok()

    store, _ = carry_out_disturbed(answer, BusyFor(), plan=PRECISE)
    repeated = {record.cell for record in store.records() if record.attempt == 1}
    assert repeated
    for cell in repeated:
        assert len([r for r in store.records() if r.cell == cell and r.attempt == 0]) == 6
