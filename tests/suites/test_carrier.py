"""The carrier: what each side's launches are told, and what their records say; no process is started."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dlbench.adapters.protocol import Outcome, Status
from dlbench.hardware_probe import probe
from dlbench.hardware_probe.cpu import bound_mask
from dlbench.reports.record import Run
from dlbench.suites import suite
from dlbench.suites.axes import Capacity
from dlbench.suites.carrier import Carrier
from dlbench.suites.errors import UsageError
from dlbench.suites.launcher import Launched
from dlbench.suites.plan import Choices, PlannedLaunch, expand
from dlbench.suites.sources import Source

PLAN = expand(
    suite.load("quick"),
    Choices(networks="fcn5", frameworks="torch", threads="1,2", affinity="bound,oversubscribed"),
    Capacity(2, 2),
    seed=1,
)
MACHINE = probe()


class Taker:
    """A launcher that notes its orders and answers that all is well."""

    def __init__(self):
        self.orders = []

    def launch(self, order, tick=None):
        self.orders.append(order)
        return Launched(Outcome(Status.OK, samples_ns=[10**7] * 3), 1.0)


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("DLBENCH_HOME", str(tmp_path))


def carrier_of(launcher, **options):
    run = Run("r1", "quick", PLAN.protocol, 1, PLAN.cells, "machine-1", datetime.now(UTC), "9", None, 1)
    (row,) = PLAN.rows
    given = {"torch": Source(row.build, Path("/torch/python"), "CPython 3", "env-1")}
    return Carrier(PLAN, run, launcher, given, lambda cell: None, **{"machine": MACHINE, **options})


def planned(affinity="oversubscribed", threads=1):
    cell = next(cell for cell in PLAN.cells if (cell.affinity, cell.threads) == (affinity, threads))
    return PlannedLaunch(cell, 4)


def test_a_bound_cell_is_given_as_many_cpus_as_threads_and_another_none():
    launcher = Taker()
    carrier = carrier_of(launcher)
    carrier.carry_out(planned("bound"), PLAN.protocol)
    carrier.carry_out(planned("oversubscribed"), PLAN.protocol)
    bound, free = launcher.orders
    assert bound.launch.cpus == list(bound_mask(MACHINE.cpu, 1))
    assert len(bound.launch.cpus) == 1
    assert free.launch.cpus is None


def test_more_bound_threads_than_cpus_are_refused_in_a_sentence():
    too_many = PlannedLaunch(planned("bound").cell._replace(threads=10**6), 0)
    with pytest.raises(UsageError, match="1000000 threads cannot be bound"):
        carrier_of(Taker()).carry_out(too_many, PLAN.protocol)


def test_a_side_has_variables_and_adapters_of_its_own():
    launcher = Taker()
    side = carrier_of(launcher, variables={"OMP_NUM_THREADS": "7", "MINE": "yes"}, guest=Path("/other/adapters"))
    (record,) = side.carry_out(planned(), PLAN.protocol, side="candidate", stage="screen")
    carrier_of(launcher).carry_out(planned(), PLAN.protocol)
    changed, usual = launcher.orders
    assert (changed.variables["OMP_NUM_THREADS"], changed.variables["MINE"]) == ("7", "yes")
    assert changed.guest == Path("/other/adapters")
    assert (usual.variables["OMP_NUM_THREADS"], usual.guest) == ("1", None)
    assert {**usual.variables, "OMP_NUM_THREADS": "7", "MINE": "yes"} == changed.variables
    assert (record.side, record.stage, record.attempt, record.launch) == ("candidate", "screen", 0, 4)


def test_a_record_notes_the_protocol_and_the_quota_in_force():
    protocol = PLAN.protocol._replace(steps=7)
    launcher = Taker()
    (record,) = carrier_of(launcher).carry_out(planned(), protocol)
    assert record.protocol == launcher.orders[0].launch.protocol == protocol
    assert record.quota_cpus == MACHINE.cpu.quota_cpus


def test_what_is_skipped_starts_nothing():
    launcher = Taker()
    (record,) = carrier_of(launcher).carry_out(planned(), PLAN.protocol, attempts=3, skip="not worth it")
    assert (record.outcome.status, record.outcome.reason, record.wall_seconds) == (Status.SKIPPED, "not worth it", 0.0)
    assert launcher.orders == []


def test_each_attempt_is_handed_over_before_the_next_begins(monkeypatch):
    monkeypatch.setattr("dlbench.suites.carrier.disturbed", lambda record, host: True)
    launcher, waits = Taker(), []
    found = carrier_of(launcher, before_repeat=lambda: waits.append(len(launcher.orders))).attempts(
        planned(), PLAN.protocol, attempts=3
    )
    for attempt in range(3):
        assert next(found).attempt == attempt
        assert len(launcher.orders) == attempt + 1
    assert next(found, None) is None
    assert waits == [1, 2]
