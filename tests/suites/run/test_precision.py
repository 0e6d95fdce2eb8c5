"""Allocation: properties of the rules, and simulations of what they come to, with fixed seeds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlbench.suites.run.schedules import LaunchStats, gain, half_width, launches_needed, reached, samples_of_launch

TARGET = {"precision": 0.02, "fewest": 5, "most": 20}


def launches_of(medians, within=0.02, samples=20, sample_seconds=0.1, startup_seconds=5.0, warmup_samples=0):
    return [
        LaunchStats(float(median), within**2, samples, sample_seconds, startup_seconds, warmup_samples)
        for median in medians
    ]


def students_half(seconds):
    logs = np.log(seconds)
    return stats.sem(logs) * stats.t.ppf(0.975, len(logs) - 1)


medians = st.lists(st.floats(1e-4, 1e3), min_size=0, max_size=25)
positive = st.floats(1e-6, 1e4)


@given(medians, st.sampled_from([0.001, 0.02, 0.3]))
def test_the_half_width_is_that_of_students_interval_and_within_the_precision_where_that_is_reached(found, precision):
    launches = launches_of(found)
    width = half_width(launches)
    if len(found) < 3:
        assert width is None
    else:
        assert width == pytest.approx(math.expm1(students_half(found)), rel=1e-6, abs=1e-9)
    assert not reached(launches, precision) or width <= precision


@given(medians, st.integers(1, 10), st.integers(0, 15), st.sampled_from([0.001, 0.02, 0.3]))
def test_a_cell_gets_its_fewest_launches_and_never_more_than_its_most(found, fewest, more, precision):
    launches, most = launches_of(found), fewest + more
    left = launches_needed(launches, precision, fewest, most)
    assert left > 0 or len(found) >= fewest
    assert left == 0 or fewest <= len(found) + left <= most
    done = len(found) >= most or reached(launches, precision)
    assert (left == 0) == (len(found) >= fewest and done)


@given(
    st.lists(st.floats(0.5, 2.0), min_size=0, max_size=10),
    st.floats(0.0, 1.0), positive, positive, st.integers(1, 30), st.integers(0, 200), st.integers(0, 40), st.booleans(),
)  # fmt: skip
def test_steps_stay_within_their_bounds(found, within, sample, startup, fewest, more, warmup, searching):
    launches = launches_of(found, within, 20, sample, startup, warmup)
    assert fewest <= samples_of_launch(launches, fewest, fewest + more, searching) <= fewest + more


def test_steps_are_kalibera_and_jones_optimum():
    """Against a search: of all step counts that one gives the narrowest interval for a given time."""
    rng = np.random.default_rng(3)
    between, within, startup, sample = 0.01, 0.10, 8.0, 0.5
    # Launches in plenty, so that the estimates of both variances are the truth, nearly.
    found = np.exp(rng.normal(0, math.sqrt(between**2 + math.pi / 2 * within**2 / 40), 4000))
    chosen = samples_of_launch(launches_of(found, within, 40, sample, startup), 1, 1000)
    assert chosen == pytest.approx(math.sqrt(startup / sample) * within / between, rel=0.1)
    counts = np.arange(1, 200)
    variance_for_a_second = (between**2 + within**2 / counts) * (startup + counts * sample)
    assert variance_for_a_second[chosen - 1] < 1.01 * variance_for_a_second.min()


def test_a_search_for_warm_up_keeps_its_samples():
    launches = launches_of([1.0, 1.3, 0.8, 1.2, 0.7], within=0.001, warmup_samples=9)
    assert samples_of_launch(launches, 5, 30) == 5
    assert samples_of_launch(launches, 5, 30, searching=True) == 14
    assert samples_of_launch(launches, 5, 12, searching=True) == 12


def test_a_cell_without_an_interval_gains_most_then_a_noisy_one_by_the_second():
    def gained(spread, count=6, seconds=6.0):
        found = launches_of(np.exp(spread * stats.norm.ppf((np.arange(6) + 0.5) / 6)))
        return gain(found[:count], seconds, 0.02)

    assert gained(0.05, count=1) > gained(0.05) > gained(0.05, seconds=60.0) > gained(0.011) >= 0


# The standard error of a coverage of 95 % over 4000 cells is 0.34 %.
@pytest.mark.parametrize("deviation", [0.003, 0.015, 0.03, 0.04, 0.06])
@pytest.mark.slow
def test_optional_stopping_leaves_coverage_between_93_and_97_per_cent(deviation):
    rng, covered, made = np.random.default_rng(11), [], []
    for _ in range(4000):
        seconds = np.exp(rng.normal(0, deviation, TARGET["most"]))  # the true time is 1 second a step
        launches = launches_of(seconds)
        count = next(n for n in range(len(launches) + 1) if launches_needed(launches[:n], **TARGET) == 0)
        covered.append(abs(np.log(seconds[:count]).mean()) <= students_half(seconds[:count]))
        made.append(count)
    assert 0.93 - 2 * 0.0034 <= np.mean(covered) <= 0.97
    assert np.mean(made) < 20
