"""The runner over a launcher that only pretends: what is launched, what is skipped, what is kept, what is resumed."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_gpus import TWO, gpus
from pretended_runs import ORDER, PLAN, TEXT, Watcher, carry_out, launched, ok, sources
from properties import examples

from dlbench.adapters.protocol import TUNED, Outcome, Parity, Status
from dlbench.suites.planning import suite
from dlbench.suites.planning.axes import SuiteOverrides
from dlbench.suites.planning.plan import expand, sizes_of
from dlbench.suites.planning.values import Capacity
from dlbench.suites.run.references import Reference
from dlbench.suites.run.runner import RunResult
from dlbench.suites.run.schedules import Estimates

pytestmark = pytest.mark.usefixtures("home_of_module")


def test_every_launch_of_the_plan_is_stored_in_its_order_and_the_run_is_finished():
    store, launcher, ending = carry_out()
    assert launched(store) == ORDER
    assert launcher.cells == [cell for cell, _ in ORDER]
    assert ending == RunResult(launches_left=0, records=len(ORDER))
    assert store.runs()[0].finished is not None
    assert store.runs()[-1].finished is not None


def test_a_record_says_what_it_was_measured_on():
    store, _, _ = carry_out()
    for record in store.records():
        assert (record.run, record.suite, record.machine, record.version) == ("r1", "pretended", "machine-1", "9.9")
        assert record.environment == f"env-{record.cell.framework}"
        assert record.interpreter == f"CPython of {record.cell.framework}"
        assert record.protocol == PLAN.protocol
        assert record.wall_seconds == 1.0
        assert record.outcome == ok()


def test_a_launch_is_told_settings_variables_time_and_reference():
    def reference(cell):
        return Reference(Path(f"/references/{cell.network}"), 16) if cell.framework == "torch" else None

    _, launcher, _ = carry_out(reference=reference)
    by_mode = {(o.launch.cell.mode, o.launch.cell.threads, o.launch.cell.network): o for o in launcher.orders}
    null, compiled = by_mode["null", 4, "fcn5"], by_mode["compile", 2, "lstm32"]
    assert null.launch.settings == {"step_seconds": 0.5}
    assert null.reference is None
    assert null.interpreter == Path("/null/python")
    assert null.timeout == 10.0
    assert compiled.launch.settings["compile"] == "over the mode's own"
    assert compiled.launch.settings["dense"] == "mkl"  # the mode's own
    assert (compiled.reference, compiled.launch.repeated_batch) == (Path("/references/lstm32"), 16)
    assert (null.launch.repeated_batch, null.launch.gpu) == (None, None)
    assert null.variables["CUDA_VISIBLE_DEVICES"] == compiled.variables["CUDA_VISIBLE_DEVICES"] == ""
    assert compiled.variables["OMP_NUM_THREADS"] == "2"
    assert Path(compiled.launch.cache_directory).is_dir()


@pytest.mark.parametrize("status", list(Status))
def test_only_a_cell_whose_status_may_change_is_launched_again(status):
    outcome = Outcome(status, "so it was")
    repeated = status in (Status.OK, Status.PARITY_FAILED, Status.CRASHED)
    store, launcher, ending = carry_out(lambda cell: outcome if cell.framework == "null" else ok())
    counted = Counter(cell for cell in launcher.cells if cell.framework == "null")
    assert set(counted.values()) <= ({2} if repeated else {1})
    statuses = {record.outcome.status for record in store.records() if record.cell.framework == "null"}
    # The group of a cell that timed out at one thread is not tried at more.
    assert statuses == ({status, Status.SKIPPED} if status is Status.TIMED_OUT else {status})
    assert {record.cell for record in store.records()} == set(PLAN.cells)
    assert ending.launches_left == 0


def test_a_cell_slower_than_its_budget_at_one_thread_is_skipped_at_more_with_the_reason():
    store, launcher, _ = carry_out(lambda cell: ok(11.5 if cell.network == "fcn5" and cell.mode == "eager" else 0.1))
    skipped = [record for record in store.records() if record.outcome.status is Status.SKIPPED]
    assert {record.cell for record in skipped} == {
        cell for cell in PLAN.cells if cell.network == "fcn5" and cell.mode == "eager" and cell.threads > 1
    }
    assert {r.outcome.reason for r in skipped} == {"one step takes 11.5 s at 1 thread, the cell's budget is 10 s"}
    assert {record.wall_seconds for record in skipped} == {0.0}
    assert len(skipped) == 2  # once each, not once per block
    assert not any(record.cell in launcher.cells for record in skipped)


def test_a_cell_that_timed_out_at_one_thread_is_skipped_at_more_with_the_reason():
    late = Outcome(Status.TIMED_OUT, "ended after 10 s")
    store, launcher, _ = carry_out(lambda cell: late if (cell.network, cell.mode) == ("lstm32", "null") else ok())
    skipped = [record for record in store.records() if record.outcome.status is Status.SKIPPED]
    assert {record.cell.threads for record in skipped} == {2, 4}
    assert {r.outcome.reason for r in skipped} == {"at 1 thread it did not end within the cell's budget of 10 s"}
    assert len([cell for cell in launcher.cells if (cell.network, cell.mode) == ("lstm32", "null")]) == 1


@pytest.mark.parametrize(("at_four", "at_fewer"), [(9.9, 9.9), (11.0, 0.1)])
def test_a_cell_within_its_budget_is_never_skipped_and_one_slow_at_more_threads_says_nothing_of_fewer(
    at_four, at_fewer
):
    store, _, _ = carry_out(lambda cell: ok(at_four if cell.threads == 4 else at_fewer))
    assert {record.outcome.status for record in store.records()} == {Status.OK}


SIZES = (8, 16, 64, 256)
BATCHES = expand(
    suite.parse(TEXT, "pretended.toml"),
    SuiteOverrides(
        networks="fcn5",
        frameworks="null",
        devices="cpu,gpus",
        precisions="float32,tf32",
        threads="1",
        batch_sizes="8,16,64,256",
    ),
    Capacity(2, 4, gpus(TWO)),
    seed=5,
)
GROUPS = sorted({sizes_of(cell) for cell in BATCHES.cells})


@examples(8)
@given(st.dictionaries(st.sampled_from(GROUPS), st.sampled_from((0, *SIZES))))
def test_beyond_the_mini_batch_that_runs_out_of_memory_none_is_launched(limits):
    def answer(cell):
        over = cell.batch_size > limits.get(sizes_of(cell), max(SIZES))
        return Outcome(Status.OUT_OF_MEMORY, "CUDA out of memory") if over else ok()

    store, _, ending = carry_out(answer, plan=BATCHES)
    assert ending.launches_left == 0
    for group in GROUPS:
        found = {r.cell.batch_size: r.outcome for r in store.records() if sizes_of(r.cell) == group}
        fitting = [size for size in SIZES if size <= limits.get(group, max(SIZES))]
        first, *larger = [*(size for size in SIZES if size not in fitting), None]
        assert {found[size].status for size in fitting} <= {Status.OK}
        if first is not None and not group.on_cpu:  # on the CPU a larger one may have come before it
            assert found[first].status is Status.OUT_OF_MEMORY
            skipped = [found[size] for size in larger if size is not None]
            assert {outcome.status for outcome in skipped} <= {Status.SKIPPED}
            assert {outcome.reason for outcome in skipped} <= {f"mini-batch {first} ran out of memory already"}


def test_a_framework_without_interpreter_is_skipped_with_the_reason_and_the_others_run():
    store, launcher, _ = carry_out(sources=sources(torch="no Python for it here"))
    torch = [record for record in store.records() if record.cell.framework == "torch"]
    assert {(r.outcome.status, r.outcome.reason) for r in torch} == {(Status.SKIPPED, "no Python for it here")}
    assert len(torch) == len([cell for cell in PLAN.cells if cell.framework == "torch"])
    assert {cell.framework for cell in launcher.cells} == {"null"}


def test_a_wrong_number_is_kept_and_launched_again():
    parity = Parity("disagrees", "loss off", [1.0], 0.1, 0.1, "w", 1e-5, 1e-3, 0.0)
    wrong = ok()._replace(status=Status.PARITY_FAILED, reason="loss off", parity=parity)
    store, _, _ = carry_out(lambda cell: wrong)
    assert launched(store) == ORDER
    assert store.records()[0].outcome == wrong


def test_the_observer_is_told_index_total_and_times():
    watcher = Watcher()
    carry_out(watcher=watcher)
    assert [index for _, index, _, _ in watcher.started] == list(range(1, len(ORDER) + 1))
    assert {total for _, _, total, _ in watcher.started} == {len(ORDER)}
    first, later = watcher.started[0][3], watcher.started[-1][3]
    assert first == PLAN.protocol.seconds + 8.0  # a guess
    assert later == 1.0  # learnt
    assert watcher.ended[-1][3] == 0
    assert [left for *_, left in watcher.ended] == sorted((left for *_, left in watcher.ended), reverse=True)


def test_the_total_falls_by_what_is_settled():
    watcher = Watcher()
    carry_out(lambda cell: Outcome(Status.UNSUPPORTED, "no"), watcher=watcher)
    assert watcher.ended[-1][1:3] == (len(PLAN.cells), len(PLAN.cells))


def test_estimates_learn_from_the_same_network_first():
    estimates = Estimates(7.0)
    fcn5 = next(cell for cell in PLAN.cells if cell.network == "fcn5")
    lstm32 = next(cell for cell in PLAN.cells if cell.network == "lstm32")
    assert estimates.of(fcn5) == 7.0
    estimates.learn(fcn5, 2.0)
    assert (estimates.of(fcn5), estimates.of(lstm32)) == (2.0, 2.0)
    estimates.learn(lstm32, 10.0)
    estimates.learn(lstm32, 20.0)
    assert (estimates.of(fcn5), estimates.of(lstm32)) == (2.0, 15.0)
    other = next(cell for cell in PLAN.cells if cell.network == "lstm32" and cell != lstm32)
    estimates.learn(other, 30.0)
    assert (estimates.of(lstm32), estimates.of(other)) == (15.0, 30.0)  # what a cell itself took counts first
    assert estimates.of(lstm32._replace(threads=64)) == 20.0


def test_a_record_carries_its_rows_default_thread_count():
    row = PLAN.rows[0]
    store, _, _ = carry_out(default_threads={(row.build.name, row.mode, TUNED): 7})
    for record in store.records():
        told = record.outcome.software.get("default_threads")
        is_row = (record.cell.framework, record.cell.mode, record.cell.tuning) == (row.build.name, row.mode, TUNED)
        assert told == (7 if is_row else None)
