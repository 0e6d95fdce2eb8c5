"""What a made-up GPU can do at best, found out by a clock that only its own work moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlbench.adapters.launch import timing
from dlbench.adapters.libraries import gpus
from dlbench.adapters.libraries.gpus import COPY, DEVICE_BYTES, HOST_BYTES, OPERATOR, PROBES, STARTED, Probe


class Machine:
    """A host and a device with a queue of work; times in nanoseconds. Some starts are disturbed."""

    def __init__(self, start=5000, work=100_000, fence=10_000, depth=1024, disturbance=0):
        self.start_ns, self.work_ns, self.fence_ns = start, work, fence
        self.depth, self.disturbance = depth, disturbance
        self.now, self.idle_from, self.queue, self.calls = 0, 0, [], 0

    def clock(self):
        self.now += 1  # lest a loop until some moment never ends
        return self.now

    def start(self):
        self.calls += 1
        self.now += self.start_ns + (self.disturbance if self.calls % (3 * STARTED) == 1 else 0)
        self.queue = [end for end in self.queue if end > self.now]
        if len(self.queue) >= self.depth:
            self.now = self.queue[0]  # a full queue takes no more
        self.idle_from = max(self.idle_from, self.now) + self.work_ns
        self.queue.append(self.idle_from)

    def wait(self):
        self.now = max(self.now, self.idle_from) + self.fence_ns

    def probe(self):
        return Probe(self.start, self.wait)


@pytest.fixture(autouse=True)
def _on_the_machines_clock(monkeypatch):
    monkeypatch.setattr(timing, "nanoseconds", lambda: Machine.current.clock())
    monkeypatch.setattr(gpus, "SECONDS", 0.03)


def on(machine):
    Machine.current = machine
    return machine


@given(
    start=st.integers(500, 20_000),
    work=st.integers(25_000, 30_000_000),
    fence=st.integers(0, 20_000),
    disturbance=st.integers(0, 10**6),
)
def test_copies_in_a_row_take_what_the_device_takes(start, work, fence, disturbance):
    machine = on(Machine(start, work, fence, disturbance=disturbance))
    found = gpus.seconds_in_a_row(machine.probe())
    # One start before the first and one fence after the last are in a sample of 5 ms or more.
    assert work <= found * 1e9 <= work * (1 + (start + fence) / 4.9e6) + 1


@given(start=st.integers(500, 20_000), work=st.integers(500, 10**6), fence=st.integers(0, 10**6))
def test_an_operator_is_started_behind_others_and_finished_alone(start, work, fence):
    machine = on(Machine(start, work, fence, disturbance=10**6))
    # Whatever the device takes for it: the host does not wait for what is not needed yet.
    assert gpus.seconds_to_start(machine.probe()) * 1e9 == pytest.approx(start, abs=1)
    assert gpus.seconds_to_finish(machine.probe()) * 1e9 == pytest.approx(start + work + fence, abs=2)


def test_each_probe_gives_its_number_and_a_copy_on_the_device_counts_twice():
    asked = []

    def find(name, size):
        asked.append((name, size))
        machine = on(Machine(start=1000, work=2_000_000, fence=0))
        return machine.probe()

    found, failures = gpus.measure_ceilings(find, lambda error: False)
    assert failures == []
    assert asked == [(name, DEVICE_BYTES if name == COPY else 0 if name == OPERATOR else HOST_BYTES) for name in PROBES]
    rates = found._replace(operator_start_seconds=None, operator_finish_seconds=None)
    assert rates.copy_bytes_per_second == pytest.approx(2 * DEVICE_BYTES / 0.002, rel=0.01)
    assert rates[1:5] == pytest.approx([HOST_BYTES / 0.002] * 4, rel=0.01)
    assert found.operator_start_seconds == pytest.approx(1e-6, rel=0.01)
    assert found.operator_finish_seconds == pytest.approx(0.002001, rel=0.01)


def test_what_a_probe_holds_is_let_go_before_the_next_is_made():
    held = []

    class Array:
        def __init__(self):
            assert not held
            held.append(1)

        def __del__(self):
            held.pop()

    def find(name, size):
        array, machine = Array(), on(Machine())
        return Probe(lambda: (array, machine.start()), machine.wait)

    found, failures = gpus.measure_ceilings(find, lambda error: False)
    assert failures == []
    assert None not in found


class FullError(Exception):
    pass


def test_a_full_memory_costs_its_number_without_a_word_and_anything_else_is_told():
    def find(name, size):
        machine = on(Machine())
        if name == COPY:
            raise FullError("device")

        def fail():
            raise (FullError if name == OPERATOR else ValueError)("no\n link")

        return Probe(fail if name in ("to_device_pinned", OPERATOR) else machine.start, machine.wait)

    found, failures = gpus.measure_ceilings(find, lambda error: isinstance(error, FullError))
    assert failures == ["to_device_pinned: ValueError: no link"]
    told = {name for name, value in found._asdict().items() if value is not None}
    assert told == {
        "to_device_pageable_bytes_per_second",
        "from_device_pinned_bytes_per_second",
        "from_device_pageable_bytes_per_second",
    }
