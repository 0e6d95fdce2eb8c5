"""The runner over a launcher that only pretends: what is launched, what is skipped, what is kept, what is resumed."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlbench.adapters.protocol import Outcome, Parity, Status
from dlbench.reports.errors import StoreError
from dlbench.reports.record import Run
from dlbench.reports.store import Store
from dlbench.suites import suite
from dlbench.suites.axes import Capacity
from dlbench.suites.carrier import Carrier
from dlbench.suites.errors import FrameworkEnvironmentError
from dlbench.suites.launcher import Launched
from dlbench.suites.plan import Choices, expand
from dlbench.suites.runner import Ending, Estimates, Runner
from dlbench.suites.sources import Source

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
    carrier = Carrier(plan, run, launcher, given or sources(plan), reference, default_threads=defaults or {})
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
    reference = lambda cell: Path(f"/references/{cell.network}") if cell.framework == "torch" else None  # noqa: E731
    _, launcher, _ = carry_out(reference=reference)
    by_mode = {(o.launch.cell.mode, o.launch.cell.threads, o.launch.cell.network): o for o in launcher.orders}
    null, compiled = by_mode["null", 4, "fcn5"], by_mode["compile", 2, "lstm32"]
    assert null.launch.settings == {"step_seconds": 0.5}
    assert null.launch.reference is None
    assert null.interpreter == Path("/null/python")
    assert null.timeout == 10.0
    assert compiled.launch.settings["compile"] == "over the mode's own"
    assert compiled.launch.settings["channels_last"] is True  # the mode's own
    assert compiled.launch.reference == "/references/lstm32"
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


@settings(max_examples=30)
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


@settings(max_examples=30)
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


@settings(max_examples=30)
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
