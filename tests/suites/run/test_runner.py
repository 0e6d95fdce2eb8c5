"""The runner over a launcher that only pretends: order, budget, kills, resuming, and disturbed
launches."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import factory_of_records as make
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretended_runs import (
    ORDER,
    PLAN,
    Pretender,
    begin,
    carry_out,
    launched,
    ok,
    open_store,
    runner_of,
    sources,
)
from properties import examples

from dlbench.adapters.protocol import TUNED, Contention, Status, ThreadEvidence
from dlbench.hardware_probe import probe
from dlbench.reports.results.record import BASELINE, CANDIDATE, SEARCH
from dlbench.suites.planning.plan import PlannedLaunch
from dlbench.suites.run import judge, launch_files, runner
from dlbench.suites.run.preparation import Reference
from dlbench.suites.run.sides import Side

pytestmark = pytest.mark.usefixtures("home_of_module")


def test_a_launch_is_told_settings_variables_time_and_reference():
    def reference(cell):
        return (
            Reference(Path(f"/references/{cell.network}"), 16)
            if cell.framework == "torch"
            else None
        )

    store, launcher, _ = carry_out(reference=reference)
    by_mode = {
        (o.launch.cell.mode, o.launch.cell.threads, o.launch.cell.network): o
        for o in launcher.orders
    }
    null, compiled = by_mode["null", 4, "fcn5"], by_mode["compile", 2, "lstm32"]
    assert null.launch.settings == {"step_seconds": 0.5}
    assert null.reference is None
    assert null.interpreter == Path("/null/python")
    assert null.timeout == 10.0
    assert compiled.launch.settings["compile"] == "over the mode's own"
    assert compiled.launch.settings["dense"] == "mkl"  # the mode's own
    assert (compiled.reference, compiled.launch.repeated_batch) == (Path("/references/lstm32"), 16)
    assert (null.launch.repeated_batch, null.launch.gpu) == (None, None)
    assert (
        null.variables["CUDA_VISIBLE_DEVICES"] == compiled.variables["CUDA_VISIBLE_DEVICES"] == ""
    )
    assert compiled.variables["OMP_NUM_THREADS"] == "2"
    assert Path(compiled.launch.cache_directory).is_dir()
    for record in store.records():
        assert (record.run, record.suite, record.machine, record.version) == (
            "r1",
            "pretended",
            "machine-1",
            "9.9",
        )
        assert record.environment == f"env-{record.cell.framework}"
        assert record.interpreter == f"CPython of {record.cell.framework}"
        assert (record.protocol, record.wall_seconds, record.outcome) == (PLAN.protocol, 1.0, ok())


def test_a_framework_without_interpreter_is_skipped_with_the_reason_and_the_others_run():
    store, launcher, _ = carry_out(sources=sources(torch="no Python for it here"))
    torch = [record for record in store.records() if record.cell.framework == "torch"]
    assert {(r.outcome.status, r.outcome.reason) for r in torch} == {
        (Status.SKIPPED, "no Python for it here")
    }
    assert len(torch) == len([cell for cell in PLAN.cells if cell.framework == "torch"])
    assert {cell.framework for cell in launcher.cells} == {"null"}


def test_a_record_carries_its_rows_default_thread_count():
    row = PLAN.rows[0]
    store, _, _ = carry_out(default_threads={(row.build.name, row.mode, TUNED): 7})
    for record in store.records():
        reported = record.outcome.software.get("default_threads")
        is_row = (record.cell.framework, record.cell.mode, record.cell.tuning) == (
            row.build.name,
            row.mode,
            TUNED,
        )
        assert reported == (7 if is_row else None)


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
        missing = [launch for launch in ORDER if runner.schedule.wants(*launch)]
        assert missing == ORDER[len(before) :]
        try:
            runner.run()
        except KeyboardInterrupt:
            assert (store.runs()[-1].id, store.runs()[-1].finished) == (run.id, None)
    assert launched(store) == ORDER
    assert store.runs()[0].finished is not None


def test_a_spent_budget_stops_the_run_and_leaves_it_to_be_resumed():
    store, launcher = open_store(), Pretender(seconds=10.0)
    run = begin(store)
    ending = runner_of(store, run, launcher, budget=45.0).run()
    assert launcher.time <= 45.0
    assert (ending.count, ending.launches_left()) == (4, len(ORDER) - 4)
    assert launched(store) == ORDER[:4]
    assert store.runs()[-1].finished is None
    again = Pretender(seconds=0.001)
    assert runner_of(store, run, again, budget=1e6).run().launches_left() == 0
    assert launched(store) == ORDER


MACHINE = probe()


class BusyFor:
    """A wait for a quiet machine that allows so many repetitions."""

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
    return ok()._replace(
        threads=threads, contention=Contention(0.0, 0, 0, 0.0, 0.0, 0.2 * cpus, 0.0, 0)
    )


def carry_out_disturbed(answer, quiet_wait, plan=PLAN):
    store, launcher = open_store(), Pretender(answer)
    runner = runner_of(
        store, begin(store, plan), launcher, plan, machine=MACHINE, quiet_wait=quiet_wait
    )
    return store, runner.run()


def test_a_disturbed_launch_is_attempted_thrice_within_limits_and_every_attempt_is_kept():
    store, ending = carry_out_disturbed(lambda cell: contended(), BusyFor())
    records = store.records()
    assert ending.launches_left() == 0
    attempts = Counter(record.attempt for record in records)
    assert attempts[0] == len(ORDER)
    assert 0 < attempts[1] + attempts[2] <= 4 + 2 + 0.25 * len(records)
    assert {record.attempt for record in records if record.cell.framework == "null"} == {
        0
    }  # it computes nothing
    first = next(record for record in records if record.attempt == 2)
    assert [r.attempt for r in records if (r.cell, r.launch) == (first.cell, first.launch)] == [
        0,
        1,
        2,
    ]
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


@pytest.mark.parametrize(("in_turns", "attempts"), [(False, 3), (True, 1)])
def test_launches_in_turns_are_not_repeated_since_their_turns_were(monkeypatch, in_turns, attempts):
    most_attempts = []

    def record_attempts(runners, launches, protocol_of, *, most=1, **options):
        most_attempts.append(most)
        return iter(())

    monkeypatch.setattr(runner, "run_attempts", record_attempts)
    store = open_store()
    cell = next(cell for cell in PLAN.cells if cell.framework != "null")
    carried_out = runner_of(store, begin(store), Pretender(), quiet_wait=BusyFor())
    carried_out._launch((PlannedLaunch(cell, 0, "", in_turns),))
    assert most_attempts == [attempts]


def test_a_quiet_machine_is_not_waited_for_where_no_launch_fits_the_budget():
    store, launcher, quiet_wait = open_store(), Pretender(seconds=10.0), BusyFor()
    budget = 10.0 * len(PLAN.cells) + 5.0
    ending = runner_of(store, begin(store), launcher, budget=budget, quiet_wait=quiet_wait).run()
    assert ending.launches_left() == len(PLAN.cells)
    assert quiet_wait.moments == [("before", 0), ("after", 0)]


def test_the_sides_of_a_comparison_and_releases_have_first_losses_of_their_own():
    def own(row, side, loss):
        result = make.outcome()._replace(
            parity=make.parity()._replace(losses=[2.0, loss]), software={"framework": "mine"}
        )
        record = make.record(result=result, framework=row, network="own")
        return replace(record, side=side, network={"family": "own", "numbers": {}})

    def second_losses(losses_by_key, rows, by_row):
        cells = [make.cell(framework=row, network="own") for row in rows]
        return [losses_by_key[judge.losses_key("mine", cell, by_row)][1][0] for cell in cells]

    two_sides = (Side(BASELINE), Side(CANDIDATE))
    losses = runner._first_losses(
        two_sides, [own("a", BASELINE, 1.9), own("a", CANDIDATE, 1.8)], False
    )
    assert [second_losses(losses[side.name], ["a"], False) for side in two_sides] == [[1.9], [1.8]]
    releases = [own("a-1.0", "", 1.9), own("a-1.1", "", 1.8)]
    (of_releases,) = runner._first_losses((Side(""),), releases, True).values()
    assert second_losses(of_releases, ["a-1.0", "a-1.1"], True) == [1.9, 1.8]
    # Rows of an ordinary run must agree with its first launch.
    (of_run,) = runner._first_losses((Side(""),), releases, False).values()
    assert second_losses(of_run, ["a-1.0", "a-1.1"], False) == [1.9, 1.9]
    # So must the launches of a search, which have a side of their own.
    (of_search,) = runner._first_losses((Side(""),), [own("a", SEARCH, 1.9)], False).values()
    assert second_losses(of_search, ["a"], False) == [1.9]


def test_weights_are_mapped_on_all_sides_or_on_none(monkeypatch):
    monkeypatch.setattr(launch_files, "prepare_weights", lambda *_: lambda cell: Path("/weights"))
    own, with_own_adapters = Side("candidate"), Side("baseline", guest=Path("/other/adapters"))
    (cell, *_), machine = PLAN.cells, probe()
    assert runner._large_weights(PLAN, machine, (own,))(cell) == Path("/weights")
    for sides in ((with_own_adapters, own), (own, with_own_adapters)):
        assert runner._large_weights(PLAN, machine, sides)(cell) is None
