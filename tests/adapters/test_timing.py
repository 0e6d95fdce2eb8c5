"""The timed loop, warm-up, and where a series becomes steady."""

import gc
import itertools
import mmap
import time
from types import SimpleNamespace

import factory_of_records as make
import numpy as np
import pytest
import ruptures
from hypothesis import assume, example, given
from hypothesis import strategies as st
from pretending_adapter import Pretender, run
from properties import examples
from scipy.stats import binomtest

from dlbench.adapters.launch import timing
from dlbench.adapters.launch.timing import SHORTEST, change_points, noise_variance, steady_from
from dlbench.adapters.protocol import Protocol, Status


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


def timed_on(machine, **protocol):
    defaults = {"warmup_steps": 0, "steps": 10, "minimum_steps": 3, "seconds": 1.0}
    return timing.timed_loop(
        machine.step, machine.synchronize, Protocol(**{**defaults, **protocol}), machine.clock
    )


SECOND = 10**9


def test_single_calls_within_samples_are_noted_and_those_of_lead_ins_left_out():
    calls = []
    lengths = [0.001, 0.03, 0.02, 0.001]
    to_sleep = iter(lengths)
    timing.noting_calls(lambda: time.sleep(next(to_sleep)), lambda: None, 4, calls)()
    assert all(call >= 1e9 * length for call, length in zip(calls, lengths, strict=True))
    assert len(calls) == 4
    # Two calls a sample: of the first turn a lead-in and one sample, of the second one a lead-in
    # and two.
    assert timing.calls_that_count(list(range(10)), 2, 2, [1, 2]) == [2, 3, 6, 7, 8, 9]
    assert timing.calls_that_count(list(range(6)), 2, 0, [1, 2]) == [0, 1, 2, 3, 4, 5]
    assert timing.calls_that_count(list(range(6)), 2, 1, []) == [2, 3, 4, 5]


@examples(50)
@given(
    st.lists(st.integers(0, 2 * SECOND), min_size=12, max_size=12),
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(0, 10),
    st.integers(0, SECOND),
)
@example([SECOND // 4] * 12, 12, 1, 1.0, 0)  # the seconds are full, and not yet over
def test_any_steps_are_kept_in_order_until_the_first_reason_to_stop(
    lengths, steps, minimum, seconds, fence
):
    timed = timed_on(Machine(lengths, fence), steps=steps, minimum_steps=minimum, seconds=seconds)
    samples = [length + fence for length in lengths]
    passed = [sum(samples[: n + 1]) for n in range(len(samples))]
    stops = [
        n + 1
        for n in range(steps)
        if n + 1 == steps or (passed[n] > int(seconds * SECOND) and n + 1 >= minimum)
    ]
    assert timed == samples[: stops[0]]


def test_the_device_is_idle_before_and_after_each_step():
    machine = Machine([1] * 3)
    timed_on(machine, steps=3)
    assert machine.calls == ["fence", "step", "fence", "step", "fence", "step", "fence"]


@pytest.mark.parametrize("collecting", [True, False])
def test_no_garbage_is_collected_between_steps_and_afterwards_it_is_as_before(collecting):
    (gc.enable if collecting else gc.disable)()
    try:
        machine = Machine([1] * 4)
        timed_on(machine, steps=4)
        assert machine.collecting == [False] * 4
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


@pytest.mark.parametrize("guess_over_truth", [0.1, 1.0, 5.0, 1000.0])
@pytest.mark.parametrize("step", [50, 1_000, 100_000, 3_000_000])
def test_samples_are_as_long_as_wanted_however_wrong_the_first_guess(
    monkeypatch, step, guess_over_truth
):
    """A guess may be too long (a slow first step) or too short (steps that hand over work and
    return)."""
    guess = max(1, int(step * guess_over_truth))
    machine = Machine(itertools.repeat(step))
    monkeypatch.setattr(timing, "nanoseconds", machine.clock)
    count, tried = timing.steps_per_sample(machine.step, machine.synchronize, guess, 0.01)
    if guess >= SECOND // 100:
        assert (count, tried) == (1, [])  # a step that took so long may do so again
        return
    assert count * step >= SECOND // 100
    # Never more than twice what a guess of the truth, or the too short guess itself, would have
    # taken.
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


@pytest.mark.parametrize(("growing", "steps"), [(0, 1), (2, 3), (100, timing.GROWING_STEPS)])
def test_warm_up_goes_on_while_steps_map_memory_anew(growing, steps):
    mappings = []

    def step():
        if len(mappings) < growing:
            mappings.append(mmap.mmap(-1, 2**23))
            mappings[-1].write(bytes(2**23))
        time.sleep(0.01)

    assert len(timing.until_memory_stays(step, lambda: None)) == steps


@pytest.mark.parametrize(("in_turns", "further"), [(True, 3), (False, 0)])
def test_a_launch_in_turns_warms_up_for_longer_where_its_memory_still_grows(in_turns, further):
    """By 25,000 pages in each of the first four steps; a step takes a second."""
    machine, losses = Machine(itertools.repeat(SECOND)), []
    pages = lambda: 25_000 * min(4, machine.calls.count("step"))  # noqa: E731
    adapter = SimpleNamespace(synchronize=machine.synchronize)
    cell = make.record(threads=1).cell
    launch = SimpleNamespace(protocol=Protocol(warmup_steps=3), cell=cell, in_turns=in_turns)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(timing, "nanoseconds", machine.clock)
        patched.setattr(timing, "resident_pages", pages)
        spent, count = timing.warm_up(adapter, launch, machine.step, lambda: losses.append(0.0))
    assert count == 1
    # Two steps after the first one, and until one leaves the memory as it was.
    assert len(spent) == machine.calls.count("step") == 2 + further
    assert len(losses) == 2


def test_memory_that_each_step_gives_back_is_no_warm_up():
    def step():
        with mmap.mmap(-1, 2**23) as memory:
            memory.write(bytes(2**23))
        time.sleep(0.01)

    assert len(timing.until_memory_stays(step, lambda: None)) == 1


class Clockwork(Pretender):
    """A pretender whose every step lasts as long as it is given, on a clock of its own."""

    def __init__(self, folder, lengths):
        super().__init__(folder)
        self.lengths, self.now = lengths, 10**15

    def step(self):
        super().step()
        # The first step and one of the warm-up come before the series that is given.
        index = self.calls.count("step") - 3
        self.now += int(self.lengths(max(0, index)))


def timed_by(monkeypatch, folder, lengths, **numbers):
    """Carry out a launch in which the n-th timed step (from 0) lasts ``lengths(n)`` nanoseconds."""
    adapter = Clockwork(folder, lengths)
    monkeypatch.setattr(timing, "nanoseconds", lambda: adapter.now)
    loop = timing.timed_loop
    monkeypatch.setattr(
        timing,
        "timed_loop",
        lambda *arguments, **named: loop(*arguments, clock=lambda: adapter.now, **named),
    )
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


@pytest.mark.parametrize("longest", [1, 4, 12, 30])
def test_the_longest_warm_up_is_never_passed_and_then_all_samples_are_kept(
    tmp_path, monkeypatch, longest
):
    lengths = lengths_of(lambda index: 0.97**index)
    outcome = timed_by(monkeypatch, tmp_path, lengths, maximum_warmup_steps=longest)
    assert outcome.status is Status.OK
    assert outcome.steady is False
    assert (len(outcome.warmup_ns), len(outcome.samples_ns)) == (1, 20 + longest)
    assert outcome.observed_steps() == outcome.timed_steps() == 20 + longest


@pytest.mark.parametrize("warm_up", [0, 5])
def test_short_steps_are_timed_several_at_a_time(tmp_path, monkeypatch, warm_up):
    lengths = lengths_of(lambda index: 0.1)
    outcome = timed_by(
        monkeypatch,
        tmp_path,
        lambda index: lengths(index % 1000),
        sample_seconds=0.01,
        maximum_warmup_steps=warm_up,
    )
    assert 100 <= outcome.steps_per_sample <= 110
    assert len(outcome.samples_ns) == 20
    assert min(outcome.samples_ns) >= 9_900_000
    assert outcome.step_seconds() == pytest.approx([1e-4] * 20, rel=0.01)
    assert outcome.timed_steps() == outcome.observed_steps() == 20 * outcome.steps_per_sample
    # What comes before them is named by the step, the tries to find their number among it.
    assert outcome.warmup_ns == pytest.approx([100_000] * len(outcome.warmup_ns), rel=0.02)
    assert len(outcome.warmup_ns) >= 2


MINIMUM = 5


def noisy(levels, noise, random):
    """Return times whose logarithms are these levels with independent normal noise."""
    return np.exp(np.asarray(levels) + random.normal(0.0, noise, len(levels)))


def warming(steps, slower, steady_steps=20):
    return np.where(np.arange(steps + steady_steps) < steps, np.log1p(slower), 0.0)


def share_above(hits, series):
    """Return the highest share that this many hits disprove with 99.9 % confidence: what can be
    asserted."""
    return binomtest(hits, series, alternative="greater").proportion_ci(0.999).low


def share_below(hits, series):
    return binomtest(hits, series, alternative="less").proportion_ci(0.999).high


segments = st.lists(st.tuples(st.integers(1, 30), st.floats(-5, 5)), min_size=1, max_size=6)


@examples(60)
@given(segments, st.floats(0.01, 20), st.integers(0, 2**32 - 1), st.floats(0.01, 1.0))
def test_the_cuts_are_those_of_ruptures(levels, penalty, seed, noise):
    signal = np.concatenate([np.full(length, level) for length, level in levels])
    signal = signal + np.random.default_rng(seed).normal(0.0, noise, len(signal))
    assume(len(signal) >= 2 * SHORTEST)
    expected = ruptures.Pelt(model="l2", min_size=SHORTEST, jump=1).fit(signal).predict(pen=penalty)

    def cost(cuts):
        bounds = [0, *cuts, len(signal)]
        parts = [signal[start:end] for start, end in itertools.pairwise(bounds)]
        return sum(((part - part.mean()) ** 2).sum() for part in parts) + penalty * len(cuts)

    result = change_points(signal, penalty)
    # PELT's pruning, and ruptures' with a minimal size at that, may miss the optimum; never may
    # this search.
    assert cost(result) <= cost(expected[:-1]) + 1e-9
    if result != expected[:-1]:
        assert cost(result) < cost(expected[:-1]) - 1e-12
    bounds = [0, *result, len(signal)]
    assert all(end - start >= SHORTEST for start, end in itertools.pairwise(bounds))


@pytest.mark.parametrize(
    ("count", "noise"),
    [*((count, 0.005) for count in (MINIMUM, 8, 11, 12, 20, 200)), (8, 0.05), (50, 0.05)],
)
def test_steady_times_are_left_alone_and_few_of_them_rarely_doubted(count, noise):
    random = np.random.default_rng(count)
    places = [steady_from(noisy(np.zeros(count), noise, random), MINIMUM) for _ in range(400)]
    assert share_above(sum(start != 0 for start in places), 400) <= (0.04 if count < 12 else 0.02)
    if count < 2 * SHORTEST:
        assert set(places) == {0}


@pytest.mark.parametrize(
    ("steps", "slower", "noise", "power"),
    [
        (3, 0.03, 0.005, 0.95),
        (8, 0.05, 0.005, 0.98),
        (15, 0.05, 0.01, 0.85),
        (8, 0.08, 0.01, 0.97),
        (3, 0.2, 0.02, 0.97),
        (15, 0.5, 0.02, 0.97),
    ],
)
def test_an_injected_warm_up_is_found(steps, slower, noise, power):
    random = np.random.default_rng(steps)
    places = [
        steady_from(noisy(warming(steps, slower), noise, random), MINIMUM) for _ in range(200)
    ]
    hits = sum(start is not None and abs(start - steps) <= 1 for start in places)
    assert share_below(hits, 200) >= power


@examples(100)
@given(st.integers(6, 60), st.data(), st.floats(1.01, 1000))
def test_a_single_spike_never_counts(count, data, height):
    where = data.draw(st.integers(0, count - 1))
    seed = data.draw(st.integers(0, 1000))
    times = noisy(np.zeros(count), 0.01, np.random.default_rng(seed))
    spiked = times.copy()
    spiked[where] *= height
    # A spike's height is of no matter: the same decision as for one just above its neighbours.
    lower = spiked.copy()
    lower[where] = times.max() * 1.01
    assume(spiked[where] >= lower[where] and noise_variance(spiked) == noise_variance(lower))
    assert steady_from(spiked, MINIMUM) == steady_from(lower, MINIMUM)


def test_a_disturbance_that_passes_is_no_warm_up_and_one_that_stays_is_a_change():
    times = np.ones(60) * np.exp(np.random.default_rng(5).normal(0, 0.005, 60))
    passing = times.copy()
    passing[30:34] *= 1.5
    assert steady_from(passing, MINIMUM) == 0
    staying = times.copy()
    staying[30:] *= 1.1
    assert abs(steady_from(staying, MINIMUM) - 30) <= 1
