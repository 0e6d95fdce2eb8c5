"""Where times become steady: the cuts against ruptures, the decisions against simulations of known truth."""

import itertools

import numpy as np
import pytest
import ruptures
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples
from scipy.stats import binomtest

from dlbench.adapters.launch.steady import SHORTEST, change_points, noise_variance, steady_from

MINIMUM = 5


def noisy(levels, noise, random):
    """Return times whose logarithms are these levels with independent normal noise."""
    return np.exp(np.asarray(levels) + random.normal(0.0, noise, len(levels)))


def warming(steps, slower, steady_steps=20):
    return np.where(np.arange(steps + steady_steps) < steps, np.log1p(slower), 0.0)


def remembering(count, correlation, noise, random):
    """Return times with first-order autoregressive logarithms of this standard deviation."""
    shocks = random.normal(0.0, noise * np.sqrt(1 - correlation**2), count + 50)
    values = np.zeros(count + 50)
    for index in range(1, count + 50):
        values[index] = correlation * values[index - 1] + shocks[index]
    return np.exp(values[50:])


def share_above(hits, series):
    """Return the highest share that this many hits disprove with 99.9 % confidence: what can be asserted."""
    return binomtest(hits, series, alternative="greater").proportion_ci(0.999).low


def share_below(hits, series):
    return binomtest(hits, series, alternative="less").proportion_ci(0.999).high


segments = st.lists(st.tuples(st.integers(1, 30), st.floats(-5, 5)), min_size=1, max_size=6)


@examples(150)
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

    found = change_points(signal, penalty)
    # PELT's pruning, and ruptures' with a minimal size at that, may miss the optimum; never may this search.
    assert cost(found) <= cost(expected[:-1]) + 1e-9
    if found != expected[:-1]:
        assert cost(found) < cost(expected[:-1]) - 1e-12
    assert all(end - start >= SHORTEST for start, end in zip([0, *found], [*found, len(signal)], strict=True))


@pytest.mark.parametrize("noise", [0.005, 0.05])
@pytest.mark.parametrize("count", [*range(MINIMUM, 12), 12, 20, 50, 200])
def test_steady_times_are_left_alone_and_few_of_them_rarely_doubted(count, noise):
    random = np.random.default_rng(count)
    found = [steady_from(noisy(np.zeros(count), noise, random), MINIMUM) for _ in range(600)]
    assert share_above(sum(start != 0 for start in found), 600) <= (0.04 if count < 12 else 0.02)
    if count < 2 * SHORTEST:
        assert set(found) == {0}


@pytest.mark.parametrize("steps", [3, 4, 8, 15])
@pytest.mark.parametrize(
    ("slower", "noise", "power"),
    [
        (0.03, 0.005, 0.95),
        (0.05, 0.005, 0.98),
        (0.05, 0.01, 0.85),
        (0.08, 0.01, 0.97),
        (0.2, 0.02, 0.97),
        (0.5, 0.02, 0.97),
    ],
)
def test_an_injected_warm_up_is_found(steps, slower, noise, power):
    random = np.random.default_rng(steps)
    found = [steady_from(noisy(warming(steps, slower), noise, random), MINIMUM) for _ in range(200)]
    hits = sum(start is not None and abs(start - steps) <= 1 for start in found)
    assert share_below(hits, 200) >= power


@examples(200)
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


def test_a_drift_to_the_end_has_no_steady_state():
    for count, drift in ((20, 0.1), (20, 0.5), (50, 0.1), (50, 0.5), (200, 0.2)):
        random = np.random.default_rng(count)
        lost = sum(steady_from(noisy(np.linspace(drift, 0, count), 0.01, random), MINIMUM) is None for _ in range(200))
        assert share_below(lost, 200) >= 0.85, (count, drift)


def test_noise_that_remembers_does_not_bias_what_is_left():
    """Stated in the module: how often samples are lost, and what that does to the median."""
    random = np.random.default_rng(6)
    series, noise = 1500, 0.02
    whole, left, lost = [], [], 0
    for _ in range(series):
        times = remembering(20, 0.5, noise, random)
        start = steady_from(times, MINIMUM) or 0
        lost += start > 0
        whole.append(np.log(np.median(times)))
        left.append(np.log(np.median(times[start:])))
    assert share_above(lost, series) <= 0.10
    assert abs(np.mean(left)) <= 4 * np.std(left) / np.sqrt(series)
    assert np.std(left) <= 1.3 * np.std(whole)


@examples(100)
@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=450), st.integers(1, 10))
def test_any_times_have_an_answer(times, minimum):
    start = steady_from(times, minimum)
    assert start is None or 0 <= start <= len(times) - minimum
