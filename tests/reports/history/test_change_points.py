"""Change points held against series of known truth, and against scipy where it computes the
same."""

import math

import numpy as np
import pytest
import simulated
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from dlbench.reports.history.change_points import (
    ENOUGH_NIGHTS,
    FALSE_DISCOVERY_RATE,
    LevelChange,
    find_steps,
    steps_of,
)

STEP = math.log(1.05)


def confirmed(steps: tuple[LevelChange, ...]) -> list[LevelChange]:
    return [step for step in steps if not step.pending]


def share_alarmed(series: list[np.ndarray], drifting: bool = False) -> float:
    """Return the share of series, each searched by itself, in which a change is confirmed."""
    return float(
        np.mean([bool(confirmed(find_steps([logs], drifting=[drifting])[0])) for logs in series])
    )


@pytest.mark.parametrize("machine", ["ci", "bad"])
def test_ratios_without_change_raise_no_alarm(machine):
    # The goal is 1 % of the series. Observed with 1,000 and other seeds: 0 %, 0.1 %, 0.4 %.
    rng = np.random.default_rng(101)
    assert share_alarmed([simulated.ratios(rng, 60, machine) for _ in range(400)]) <= 0.01


def test_a_step_of_five_per_cent_is_found_five_nights_later():
    rng = np.random.default_rng(103)
    detected, exact = [], []
    for _ in range(200):
        steps = confirmed(find_steps([simulated.ratios(rng, 60, "ci", [(55, STEP)])])[0])
        detected.append(bool(steps))
        exact += [abs(steps[-1].position - 55)] if steps else []
    assert np.mean(detected) >= 0.92  # the goal is 85 %; observed 97 to 98 %
    assert np.mean(np.array(exact) == 0) >= 0.85
    assert np.mean(np.array(exact) <= 1) >= 0.95


def test_absolute_times_alarm_more_often_and_far_less_than_without_their_own_test():
    rng = np.random.default_rng(106)
    series = [simulated.absolute(rng, 60) for _ in range(200)]
    drifting, plain = share_alarmed(series, drifting=True), share_alarmed(series)
    assert drifting <= 0.06  # observed 3 to 4 %: no goal, but what the notes warn of
    assert plain >= 0.15


def test_nights_that_resemble_the_one_before_are_no_change():
    rng = np.random.default_rng(107)
    series = [0.01 * signal.lfilter([1.0], [1.0, -0.6], rng.normal(size=60)) for _ in range(200)]
    assert share_alarmed(series, drifting=True) <= 0.06
    assert share_alarmed(series) <= 0.08  # 13 % where nights count as independent


@pytest.mark.parametrize("places", [(30,), (56, 58), (20, 22)])
def test_odd_nights_are_no_change(places):
    rng = np.random.default_rng(109)
    odd = np.where(np.isin(np.arange(60), places), 0.15, 0.0)
    assert share_alarmed([0.016 * rng.normal(size=60) + odd for _ in range(100)]) <= 0.01


def clear(*changes: tuple[int, float], nights: int = 60, seed: int = 1) -> np.ndarray:
    """Return a series whose steps stand out far from its noise."""
    series = np.random.default_rng(seed).uniform(-0.004, 0.004, nights)
    for place, size in changes:
        series[place:] += size
    return series


def test_size_and_interval_are_those_of_students_test_between_the_segments():
    series = clear((25, 0.05), (40, -0.08))
    (first, second) = find_steps([series])[0]
    assert (first.position, second.position) == (25, 40)
    for step, before, after in (
        (first, series[:25], series[25:40]),
        (second, series[25:40], series[40:]),
    ):
        theirs = stats.ttest_ind(after, before).confidence_interval(0.95)
        assert step.size == pytest.approx(after.mean() - before.mean())
        assert (step.low, step.high) == pytest.approx((theirs.low, theirs.high))
        assert (step.before, step.after) == (len(before), len(after))


def test_a_change_is_pending_until_its_fifth_night():
    for nights in range(1, 9):
        (step,) = find_steps([clear((30, 0.05), nights=30 + nights)])[0]
        assert (step.position, step.after, step.pending) == (30, nights, nights < ENOUGH_NIGHTS)


def test_small_changes_are_left_out_by_their_size_alone():
    series = [
        clear((30, math.log(1.024))),
        clear((30, math.log(1.026))),
        clear((30, -math.log(1.024))),
    ]
    assert [len(steps) for steps in find_steps(series)] == [0, 1, 0]
    assert [len(steps) for steps in find_steps(series, magnitude=0.01)] == [1, 1, 1]


def test_p_values_are_adjusted_over_all_series():
    rng = np.random.default_rng(110)
    series = 0.016 * rng.normal(size=60)
    series[52:] += 0.045
    (alone,) = find_steps([series], magnitude=0.001)[0]
    company = find_steps(
        [series, *[0.016 * rng.normal(size=60) for _ in range(9)]], magnitude=0.001
    )[0]
    assert company[0].adjusted_p == pytest.approx(10 * alone.p)
    assert alone.adjusted_p == alone.p


@pytest.mark.parametrize("length", [0, 1, 2, 5, 6, 9, 10, 11])
@pytest.mark.parametrize("drifting", [False, True])
def test_short_and_constant_series(length, drifting):
    assert find_steps([np.zeros(length)], drifting=[drifting]) == [()]
    assert (
        confirmed(
            find_steps([0.01 * np.random.default_rng(1).normal(size=length)], drifting=[drifting])[
                0
            ]
        )
        == []
    )


def test_every_change_of_a_long_series_is_found():
    places = [190, 200, 399, 405, 800, 1201, 2995]
    sizes = [0.05, -0.09, 0.06, 0.05, -0.06, 0.05, -0.04]
    apart = clear(*zip(places[1:], sizes[1:], strict=True), nights=3000)
    assert [step.position for step in find_steps([apart])[0]] == places[1:]
    all_changes = clear(*zip(places, sizes, strict=True), nights=3000)
    assert [step.position for step in find_steps([all_changes])[0]] == places


@given(
    seed=st.integers(0, 2**32 - 1),
    place=st.integers(ENOUGH_NIGHTS, 40),
    size=st.floats(0.02, 0.3),
    shift=st.floats(-20, 20),
)
def test_the_level_is_of_no_matter_and_faster_is_slower_turned_round(seed, place, size, shift):
    series = clear((place, size), seed=seed)
    (steps,) = find_steps([series], magnitude=1e-6)
    (moved,) = find_steps([series + shift], magnitude=1e-6)
    turned = steps_of(-series)
    assert [step.position for step in steps] == [step.position for step in moved]
    assert [step.size for step in steps] == pytest.approx([step.size for step in moved], abs=1e-9)
    assert [-step.size for step in steps_of(series)] == pytest.approx(
        [step.size for step in turned]
    )
    assert place in [step.position for step in steps]
    assert all(step.low <= step.size <= step.high for step in steps)
    assert all(0 <= step.p <= step.adjusted_p <= FALSE_DISCOVERY_RATE for step in steps)
