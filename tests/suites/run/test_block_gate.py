"""The gate around blocks: how long it waits, what it says, what it keeps, and when it gives up."""

from dataclasses import replace

import factory_of_records as make
import pytest
from made_up_machines import READING

from dlbench.hardware_probe.sentinel import SentinelError
from dlbench.reports.storage.store import Store
from dlbench.suites.run import quiet_machine
from dlbench.suites.run.quiet_machine import (
    GIVE_UPS,
    PATIENCE_SECONDS,
    RECORD_LENGTH,
    BlockGate,
    QuietGate,
    earlier_readings,
)

pytestmark = pytest.mark.alone

QUIET = replace(READING, bandwidth_bytes_per_second=1e10, pressure_share=0.0, others_cpus=0.0, cpus=2.0)
BUSY = replace(QUIET, pressure_share=0.12)


class Machine:
    """What the sentinel reads, moment by moment, and a clock that goes on by sleeping and reading."""

    def __init__(self, readings, last=QUIET):
        self.readings, self.last, self.time, self.taken = list(readings), last, 0.0, 0

    def take(self):
        self.time += 0.4
        self.taken += 1
        found = self.readings.pop(0) if self.readings else self.last
        if isinstance(found, Exception):
            raise found
        return found

    def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def store():
    with Store.open("sqlite://") as opened:
        opened.begin_run(make.run(id="r1", plan=(), machine="here"))
        yield opened


def gate_of(store, machine, said):
    inner = QuietGate([], take=machine.take, sleep=machine.sleep, clock=lambda: machine.time)
    return BlockGate(inner, store, "r1", said.append)


def moments(store):
    return [(block, moment, content["quiet"]) for block, moment, content in store.sentinels("r1")]


def test_a_quiet_machine_costs_one_reading_a_block_and_nothing_is_said(store):
    machine, said = Machine([]), []
    gate = gate_of(store, machine, said)
    for block in range(3):
        gate.before(block)
        gate.after(block)
    assert said == []
    assert machine.taken == 4  # what is taken after a block, a moment ago, stands before the next
    assert moments(store) == [(block, moment, True) for block in range(3) for moment in ("before", "after")]


def test_a_machine_that_becomes_quiet_is_waited_for(store):
    machine, said = Machine([BUSY, BUSY, BUSY]), []
    gate_of(store, machine, said).before(2)
    assert moments(store) == [(2, "before", False)] * 3 + [(2, "before", True)]
    assert said == [f"block 3: waited {machine.time:.0f} s until other programs were quiet"]


def test_another_dlbench_is_named(store, monkeypatch):
    monkeypatch.setattr(quiet_machine, "other_dlbench", lambda: "dlbench (process 12)")
    machine, said = Machine([], last=BUSY), []
    gate_of(store, machine, said).before(0)
    assert "among them another dlbench (process 12))" in said[0]


def test_a_busy_machine_is_waited_for_within_patience_then_said_and_measured(store):
    machine, said = Machine([], last=BUSY), []
    gate_of(store, machine, said).before(0)
    assert PATIENCE_SECONDS <= machine.time < PATIENCE_SECONDS + 2
    (line,) = said
    assert line.startswith("block 1: other programs are busy (programs waited for a CPU 12%")
    assert line.endswith("waited 15 s, measuring anyway: disturbed launches will be marked")
    assert not any(quiet for *_, quiet in moments(store))


def test_a_budget_shortens_patience(store):
    machine = Machine([], last=BUSY)
    gate_of(store, machine, []).before(0, seconds_left=3.0)
    assert machine.time < 4


def test_a_machine_that_stays_busy_is_waited_for_no_more_until_it_is_quiet_again(store):
    machine = Machine([], last=BUSY)
    gate = gate_of(store, machine, [])
    for block in range(50):
        gate.before(block)
        assert not gate.before_repeat()
        gate.after(block)
    assert machine.time < GIVE_UPS * (PATIENCE_SECONDS + 2) + 3 * 50 * 0.5
    machine.last = QUIET
    gate.before(50)
    gate.after(50)
    machine.last = BUSY
    gate.before(51)  # the reading after block 50 was quiet
    began = machine.time
    assert not gate.before_repeat()
    assert machine.time - began >= PATIENCE_SECONDS


def test_a_repetition_waits_for_quiet(store):
    machine = Machine([BUSY, BUSY])
    assert gate_of(store, machine, []).before_repeat()
    assert machine.taken == 3
    assert moments(store) == []  # it is no block's


def test_without_a_sentinel_a_run_goes_on_and_that_is_said_once(store):
    machine, said = Machine([SentinelError("It failed.")]), []
    gate = gate_of(store, machine, said)
    gate.before(0)
    gate.after(0)
    assert not gate.before_repeat()
    assert said == ["no quiet gate: It failed."]
    assert machine.taken == 1


def test_readings_of_this_machine_are_remembered_the_newest_last(store):
    readings = [replace(QUIET, gemm_flops_per_second=float(number)) for number in range(1, 60)]
    for number, reading in enumerate(readings):
        store.add_sentinel("r1", number, "before", {**reading.to_dict(), "quiet": True, "reasons": []})
    store.begin_run(make.run(id="r2", plan=(), machine="there"))
    store.add_sentinel("r2", 0, "before", QUIET.to_dict())
    store.begin_run(make.run(id="r3", plan=(), machine="here"))
    store.add_sentinel("r3", 0, "before", replace(QUIET, gemm_flops_per_second=99.0).to_dict())
    store.add_sentinel("r3", 0, "after", {"of": "another version"})
    found = [reading.gemm_flops_per_second for reading in earlier_readings(store, "here")]
    assert found == [float(number) for number in range(60 - RECORD_LENGTH + 1, 60)] + [99.0]
