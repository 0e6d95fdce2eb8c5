"""What a launch takes for warm-up, and steps timed several at a time, on a clock of the test's own."""

import itertools

import numpy as np
import pytest
from pretending_adapter import Pretender, run

from dlbench.adapters.launch import measurement, timing
from dlbench.adapters.protocol import Status


class Clockwork(Pretender):
    """A pretender whose every step lasts as long as it is told, on a clock of its own."""

    def __init__(self, folder, lengths):
        super().__init__(folder)
        self.lengths, self.now = lengths, 10**15

    def step(self):
        super().step()
        # The first step and one of the warm-up come before the series that is told.
        index = self.calls.count("step") - 3
        self.now += int(self.lengths(max(0, index)))


def timed_by(monkeypatch, folder, lengths, **numbers):
    """Carry out a launch in which the n-th timed step (from 0) lasts ``lengths(n)`` nanoseconds."""
    adapter = Clockwork(folder, lengths)
    monkeypatch.setattr(timing, "nanoseconds", lambda: adapter.now)
    loop = timing.timed_loop
    monkeypatch.setattr(timing, "timed_loop", lambda *given: loop(*given, clock=lambda: adapter.now))
    numbers = {"warmup_steps": 2, "steps": 20, "minimum_steps": 5, "seconds": 1000.0, **numbers}
    return run(folder, adapter, **numbers)


def lengths_of(level, seed=0, noise=0.005):
    factors = np.exp(np.random.default_rng(seed).normal(0.0, noise, 1000))
    return lambda index: 1_000_000 * level(index) * factors[index]


def test_a_warm_up_is_cut_off_and_kept_apart(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 1.3 if index < 6 else 1.0)
    # The first of the warm-up is the one before the timed samples begin.
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=30)
    assert outcome.steady is True
    assert len(outcome.warmup_ns) + len(outcome.samples_ns) == 21
    assert 6 <= len(outcome.warmup_ns) <= 8
    assert max(outcome.samples_ns) < 1_100_000 < min(outcome.warmup_ns[:6])
    assert (outcome.timed_steps(), outcome.observed_steps()) == (len(outcome.samples_ns), 20)


def test_more_samples_are_taken_until_enough_are_steady(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 1.3 if index < 18 else 1.0)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=30)
    assert outcome.steady is True
    assert 18 <= len(outcome.warmup_ns) <= 20
    assert 5 <= len(outcome.samples_ns) <= 9
    assert outcome.observed_steps() == len(outcome.warmup_ns) - 1 + len(outcome.samples_ns) == 25


@pytest.mark.parametrize("longest", [1, 4, 12, 30])
def test_the_longest_warm_up_is_never_passed_and_then_all_samples_are_kept(tmp_path, monkeypatch, longest):
    lengths = lengths_of(lambda index: 0.97**index)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=longest)
    assert outcome.status is Status.OK
    assert outcome.steady is False
    assert (len(outcome.warmup_ns), len(outcome.samples_ns)) == (1, 20 + longest)
    assert outcome.observed_steps() == outcome.timed_steps() == 20 + longest


def test_a_change_after_the_longest_warm_up_is_no_warm_up(tmp_path, monkeypatch):
    lengths = lengths_of(lambda index: 1.3 if index < 12 else 1.0)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=8)
    assert (outcome.steady, len(outcome.samples_ns)) == (False, 20)


def test_the_search_for_a_steady_state_ends_with_the_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(measurement.time, "perf_counter", itertools.count(0.0, 3.0).__next__)
    lengths = lengths_of(lambda index: 0.97**index)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=10_000, seconds=10.0)
    assert outcome.steady is False
    assert 20 < len(outcome.samples_ns) <= 40


@pytest.mark.parametrize("warm_up", [0, 5])
def test_short_steps_are_timed_several_at_a_time(tmp_path, monkeypatch, warm_up):
    lengths = lengths_of(lambda index: 0.1)
    outcome = timed_by(
        monkeypatch, tmp_path, lambda index: lengths(index % 1000), sample_seconds=0.01, maximum_warmup_steps=warm_up
    )
    assert 100 <= outcome.steps_per_sample <= 110
    assert len(outcome.samples_ns) == 20
    assert min(outcome.samples_ns) >= 9_900_000
    assert outcome.step_seconds() == pytest.approx([1e-4] * 20, rel=0.01)
    assert outcome.timed_steps() == outcome.observed_steps() == 20 * outcome.steps_per_sample
    # What comes before them is told by the step, the tries to find their number among it.
    assert outcome.warmup_ns == pytest.approx([100_000] * len(outcome.warmup_ns), rel=0.02)
    assert len(outcome.warmup_ns) >= 2
