"""The runner over a launcher that only pretends: what is launched, what is skipped, what is kept, what is resumed."""

import math
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_gpus import TWO, gpus, nvml
from properties import examples

from dlbench.adapters.protocol import Contention, Outcome, Parity, Status, ThreadEvidence
from dlbench.hardware_probe import probe
from dlbench.reports.errors import StoreError
from dlbench.reports.storage.hosts import host_of
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.store import Store
from dlbench.suites.environments.row_interpreters import Source
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.measuring.attempts import Carrier
from dlbench.suites.measuring.launcher import Launched
from dlbench.suites.measuring.references import Reference
from dlbench.suites.measuring.runner import Ending, Estimates, Runner
from dlbench.suites.planning import suite
from dlbench.suites.planning.choices import Choices
from dlbench.suites.planning.expansion import expand
from dlbench.suites.planning.plan import sizes_of
from dlbench.suites.planning.values import Capacity

TEXT = """
name = "pretended"
summary = "for tests"
networks = ["fcn5", "lstm32"]
frameworks = ["null", "torch:*"]
threads = [1, 2, 4]
[protocol]
launches = 2
cell_seconds = 10.0
[settings.null]
step_seconds = 0.5
[settings.torch]
compile = "over the mode's own"
"""
PLAN = expand(suite.parse(TEXT, "pretended.toml"), Choices(), Capacity(2, 4), seed=5)
ORDER = [(planned.cell, planned.block) for planned in PLAN.order()]


@pytest.fixture(autouse=True, scope="module")
def _home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLBENCH_HOME", str(tmp_path_factory.mktemp("home")))
        yield


class Pretender:
    """A launcher that answers at once, as told; its clock runs as if each launch lasted ``seconds``."""

    def __init__(self, answer=lambda cell: ok(), seconds=1.0, ends_at=None):
        self.answer, self.seconds, self.ends_at = answer, seconds, ends_at
        self.orders, self.time = [], 0.0

    def launch(self, order, tick=None):
        if len(self.orders) == self.ends_at:
            raise KeyboardInterrupt
        self.orders.append(order)
        self.time += self.seconds
        return Launched(self.answer(order.launch.cell), self.seconds)

    @property
    def cells(self):
        return [order.launch.cell for order in self.orders]


class Watcher:
    """An observer that notes what it is told."""

    def __init__(self):
        self.started, self.ended = [], []

    def starts(self, planned, index, total, expected_seconds):
        self.started.append((planned, index, total, expected_seconds))

    def ticks(self, phase, seconds_left, seconds_left_overall):
        pass

    def ends(self, record, index, total, seconds_left_overall):
        self.ended.append((record, index, total, seconds_left_overall))


def ok(step=0.01):
    return Outcome(Status.OK, samples_ns=[round(step * 1e9)] * 3)


def sources(plan=PLAN, **reasons):
    found = {}
    for row in plan.rows:
        name = row.build.name
        gone = reasons.get(name)
        found[name] = Source(row.build, None if gone else Path(f"/{name}/python"), f"CPython of {name}", f"env-{name}")
        if gone:
            found[name] = Source(row.build, None, "", "", gone)
    return found


def open_store():
    return Store.open("sqlite://")


def begin(store, plan=PLAN):
    now = datetime.now(UTC)
    run = Run("r1", plan.suite, plan.protocol, plan.launches, plan.cells, "machine-1", now, "9.9", None, plan.seed)
    store.begin_run(run)
    return run


def runner_of(
    store, run, launcher, plan=PLAN, budget=None, watcher=None, given=None, reference=lambda cell: None, defaults=None
):
    carrier = Carrier(
        plan, run, launcher, given or sources(plan), reference, default_threads=defaults or {}, nvml=nvml(TWO)
    )
    return Runner(plan, run, store, carrier, watcher or Watcher(), budget, lambda: launcher.time)


def launched(store):
    return [(record.cell, record.launch) for record in store.records()]


def carry_out(answer=lambda cell: ok(), **options):
    store, launcher = open_store(), Pretender(answer)
    ending = runner_of(store, begin(store), launcher, **options).run()
    return store, launcher, ending


def test_every_launch_of_the_plan_is_stored_in_its_order_and_the_run_is_finished():
    store, launcher, ending = carry_out()
    assert launched(store) == ORDER
    assert launcher.cells == [cell for cell, _ in ORDER]
    assert ending == Ending(launches_left=0, records=len(ORDER))
    assert store.runs()[0].finished is not None
    assert store.latest_unfinished(PLAN.suite, "machine-1") is None


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
    assert null.launch.reference is None
    assert null.interpreter == Path("/null/python")
    assert null.timeout == 10.0
    assert compiled.launch.settings["compile"] == "over the mode's own"
    assert compiled.launch.settings["channels_last"] is True  # the mode's own
    assert (compiled.launch.reference, compiled.launch.repeated_batch) == ("/references/lstm32", 16)
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


def test_a_cell_within_its_budget_is_never_skipped():
    store, _, _ = carry_out(lambda cell: ok(9.9))
    assert {record.outcome.status for record in store.records()} == {Status.OK}


def test_a_cell_slow_at_more_threads_says_nothing_of_fewer():
    store, _, _ = carry_out(lambda cell: ok(11.0 if cell.threads == 4 else 0.1))
    assert {record.outcome.status for record in store.records()} == {Status.OK}


SIZES = (8, 16, 64, 256)
BATCHES = expand(
    suite.parse(TEXT, "pretended.toml"),
    Choices(
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
    store, launcher, _ = carry_out(given=sources(torch="no Python for it here"))
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


@examples(30)
@given(st.integers(0, len(ORDER)), st.integers(0, len(ORDER)))
def test_a_resumed_run_launches_exactly_what_is_missing(first_end, second_end):
    store = open_store()
    run = begin(store)
    ends = [first_end, second_end, None]
    for end in ends:
        before = launched(store)
        launcher = Pretender(ends_at=end)
        runner = runner_of(store, store.runs()[0], launcher)
        assert [(planned.cell, planned.block) for planned in runner.missing()] == ORDER[len(before) :]
        try:
            runner.run()
        except KeyboardInterrupt:
            assert store.latest_unfinished(PLAN.suite, run.machine).id == run.id
    assert launched(store) == ORDER
    assert store.runs()[0].finished is not None


statuses = st.sampled_from([Status.OK, Status.CRASHED, Status.TIMED_OUT, Status.UNSUPPORTED, Status.OUT_OF_MEMORY])


@examples(30)
@given(st.lists(statuses, min_size=len(PLAN.cells), max_size=len(PLAN.cells)), st.integers(0, len(ORDER)))
def test_an_interrupted_run_ends_with_the_records_of_one_that_was_not(chosen, end):
    of = dict(zip(PLAN.cells, chosen, strict=True))

    def answer(cell):
        return ok() if of[cell] is Status.OK else Outcome(of[cell], "so it was")

    whole, _, _ = carry_out(answer)
    store = open_store()
    run = begin(store)
    for launcher in (Pretender(answer, ends_at=end), Pretender(answer)):
        try:
            runner_of(store, run, launcher).run()
        except KeyboardInterrupt:
            continue
    assert launched(store) == launched(whole)
    assert [r.outcome for r in store.records()] == [r.outcome for r in whole.records()]


def test_a_spent_budget_stops_the_run_and_leaves_it_to_be_resumed():
    store, launcher = open_store(), Pretender(seconds=10.0)
    run = begin(store)
    ending = runner_of(store, run, launcher, budget=45.0).run()
    assert launcher.time <= 45.0
    assert (ending.records, ending.launches_left) == (4, len(ORDER) - 4)
    assert launched(store) == ORDER[:4]
    assert store.latest_unfinished(PLAN.suite, run.machine) is not None
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


@examples(30)
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
    assert store.latest_unfinished(PLAN.suite, run.machine) is not None


def test_records_of_another_run_are_none_of_its_business():
    store, _, _ = carry_out()
    other = begin_another(store)
    launcher = Pretender()
    runner_of(store, other, launcher).run()
    assert len(launcher.orders) == len(ORDER)


def begin_another(store):
    run = store.runs()[0]
    other = Run("r2", run.suite, run.protocol, run.launches, run.plan, run.machine, run.started, "9.9", None, run.seed)
    store.begin_run(other)
    return other


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
    store, _, _ = carry_out(defaults={(row.build.name, row.mode): 7})
    for record in store.records():
        told = record.outcome.software.get("default_threads")
        assert told == (7 if (record.cell.framework, record.cell.mode) == (row.build.name, row.mode) else None)


# With a precision to reach: launches deviate by so much, drawn anew for each.
PRECISE = replace(PLAN, launches=5, launches_most=20, interval=0.02)


def noisy(deviation, seed=1):
    rng = random.Random(seed)
    return lambda cell: ok(0.01 * math.exp(rng.gauss(0, deviation(cell) if callable(deviation) else deviation)))


def launches_by_cell(store):
    return Counter(record.cell for record in store.records())


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


@examples(8)
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
        try:
            runner_of(store, run, launcher, plan=PRECISE).run()
        except KeyboardInterrupt:
            continue
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
    assert store.latest_unfinished(PRECISE.suite, run.machine) is not None


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
    run = begin(store, plan)
    carrier = Carrier(
        plan, run, launcher, sources(plan), lambda cell: None, machine=MACHINE, before_repeat=gate.before_repeat
    )
    runner = Runner(plan, run, store, carrier, Watcher(), None, lambda: launcher.time, gate=gate, host=host_of(MACHINE))
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
    run = begin(store)
    carrier = Carrier(PLAN, run, launcher, sources(PLAN), lambda cell: None)
    budget = 10.0 * len(PLAN.cells) + 5.0
    ending = Runner(PLAN, run, store, carrier, Watcher(), budget, lambda: launcher.time, gate=gate).run()
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
