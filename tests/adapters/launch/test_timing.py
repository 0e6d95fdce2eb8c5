"""The timed loop over a clock that tests turn by hand."""

import gc
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

from dlbench.adapters.launch import timing
from dlbench.adapters.protocol import Protocol


class Machine:
    """Steps of known length on a clock of its own; notes what is called."""

    def __init__(self, lengths, fence=0):
        self.lengths, self.fence = iter(lengths), fence
        self.now, self.calls, self.collecting = 10**18, [], []

    def clock(self):
        return self.now

    def step(self):
        self.calls.append("step")
        self.collecting.append(gc.isenabled())
        self.now += next(self.lengths)

    def synchronize(self):
        self.calls.append("fence")
        self.now += self.fence


def run(machine, **protocol):
    defaults = {"warmup_steps": 0, "steps": 10, "minimum_steps": 3, "seconds": 1.0}
    return timing.timed_loop(machine.step, machine.synchronize, Protocol(**{**defaults, **protocol}), machine.clock)


SECOND = 10**9


@examples(50)
@given(
    st.lists(st.integers(0, 2 * SECOND), min_size=12, max_size=12),
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(0, 10),
    st.integers(0, SECOND),
)
@example([SECOND // 4] * 12, 12, 1, 1.0, 0)  # the seconds are full, and not yet over
def test_any_steps_are_kept_in_order_until_the_first_reason_to_stop(lengths, steps, minimum, seconds, fence):
    found = run(Machine(lengths, fence), steps=steps, minimum_steps=minimum, seconds=seconds)
    samples = [length + fence for length in lengths]
    passed = [sum(samples[: n + 1]) for n in range(len(samples))]
    stops = [n + 1 for n in range(steps) if n + 1 == steps or (passed[n] > int(seconds * SECOND) and n + 1 >= minimum)]
    assert found == samples[: stops[0]]


def test_the_device_is_idle_before_and_after_each_step():
    machine = Machine([1] * 3)
    run(machine, steps=3)
    assert machine.calls == ["fence", "step", "fence", "step", "fence", "step", "fence"]


@pytest.mark.parametrize("collecting", [True, False])
def test_no_garbage_is_collected_between_steps_and_afterwards_it_is_as_before(collecting):
    (gc.enable if collecting else gc.disable)()
    try:
        machine = Machine([1] * 4)
        run(machine, steps=4)
        assert machine.collecting == [False] * 4
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


def test_the_rate_of_a_product_is_that_of_the_fastest(monkeypatch):
    machine = Machine([9 * SECOND, SECOND // 10, SECOND // 100, SECOND // 10] + [SECOND] * 9)
    monkeypatch.setattr(timing, "nanoseconds", machine.clock)
    monkeypatch.setattr(timing.time, "perf_counter", lambda: machine.now / SECOND)
    assert timing.gemm_rate(machine.step, 100, budget_seconds=1.0) == pytest.approx(2 * 100**3 / 0.01)
    assert len(machine.calls) == 5  # the first is not timed; the one that ends the budget is the last


def found_for(monkeypatch, lengths, guess, seconds, fence=0):
    machine = Machine(lengths, fence)
    monkeypatch.setattr(timing, "nanoseconds", machine.clock)
    return (*timing.steps_per_sample(machine.step, machine.synchronize, guess, seconds), machine)


def test_a_step_long_enough_is_a_sample_and_is_not_tried(monkeypatch):
    count, tried, machine = found_for(monkeypatch, [], SECOND // 100, 0.01)
    assert (count, tried, machine.calls) == (1, [], [])
    assert found_for(monkeypatch, [], 1, 0.0)[:2] == (1, [])


@pytest.mark.parametrize("guess_over_truth", [0.1, 1.0, 5.0, 1000.0])
@pytest.mark.parametrize("step", [50, 1_000, 100_000, 3_000_000])
def test_samples_are_as_long_as_wanted_however_wrong_the_first_guess(monkeypatch, step, guess_over_truth):
    """A guess may be too long (a slow first step) or too short (steps that hand over work and return)."""
    guess = max(1, int(step * guess_over_truth))
    count, tried, _ = found_for(monkeypatch, itertools.repeat(step), guess, 0.01)
    if guess >= SECOND // 100:
        assert (count, tried) == (1, [])  # a step that took so long may do so again
        return
    assert count * step >= SECOND // 100
    # Never more than twice what a guess of the truth, or the too short guess itself, would have taken.
    assert count <= 2 + 2 * max(SECOND // 100 / step, SECOND // 100 / max(guess, 1000))
    assert tried == [step] * len(tried)
    assert 1 <= len(tried) <= timing.TRIES


@examples(30)
@given(st.integers(20_000, 300_000_000), st.sampled_from([0.0, 0.1]))
def test_a_device_is_kept_busy_for_the_time_asked_and_no_step_is_cut(step, seconds):
    machine = Machine(itertools.repeat(step))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timing, "nanoseconds", machine.clock)
        begun = machine.now
        spent = timing.keep_busy(machine.step, machine.synchronize, seconds)
    assert spent == [step] * len(spent)
    assert machine.now - begun >= seconds * SECOND
    assert machine.now - begun == step * machine.calls.count("step")
    # Until batches are long enough they double; from then on a hundred fill the time.
    assert len(spent) <= (100 + 7 if seconds else 1)
