"""Slow drifts of known size are found, told from steps, and not seen in quiet series."""

import math

import numpy as np
import pytest
import simulated
from hypothesis import given
from hypothesis import strategies as st

from dlbench.reports.history.change_points import MAGNITUDE
from dlbench.reports.history.drifts import (
    ENOUGH_NIGHTS_OF_DRIFT,
    MACHINE_DRIFT,
    Changes,
    Ramp,
    find_changes,
)

A_NIGHT = math.log(1.01)


def ramp(nights: int, first: int, last: int, a_night: float = A_NIGHT) -> np.ndarray:
    """Return a level, a straight rise from the first to the last night, and the level after it."""
    return a_night * (np.clip(np.arange(nights), first, last) - first)


def step(nights: int, place: int, size: float) -> np.ndarray:
    return np.where(np.arange(nights) >= place, size, 0.0)


def resembling(
    rng: np.random.Generator, nights: int, deviation: float, correlation: float
) -> np.ndarray:
    """Return nights that deviate by so much and resemble the one before."""
    fresh = rng.normal(size=nights)
    noise = fresh.copy()
    for night in range(1, nights):
        noise[night] = correlation * noise[night - 1] + math.sqrt(1 - correlation**2) * fresh[night]
    return deviation * noise


def changes_of(values: np.ndarray, absolute: bool = True, magnitude: float = MAGNITUDE) -> Changes:
    return find_changes([values], magnitude, [absolute])[0]


def share_drifting(series: list[np.ndarray], absolute: bool) -> float:
    return float(np.mean([changes_of(values, absolute).drift is not None for values in series]))


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(("deviation", "least"), [(0.01, 0.98), (0.02, 0.93), (0.03, 0.8)])
def test_one_per_cent_a_night_is_a_drift(absolute, deviation, least):
    rng = np.random.default_rng(201)
    all_changes = [
        changes_of(ramp(24, 0, 23) + rng.normal(0, deviation, 24), absolute) for _ in range(60)
    ]
    drifts = [changes.drift for changes in all_changes if changes.drift is not None]
    assert len(drifts) / len(all_changes) >= least
    assert np.median([math.expm1(drift.size) for drift in drifts]) == pytest.approx(
        0.257, abs=0.025
    )
    assert np.median([drift.last - drift.first + 1 for drift in drifts]) >= 22
    # No step besides is confirmed: the drift has explained the series.
    assert (
        np.mean([any(not step.pending for step in changes.steps) for changes in all_changes]) <= 0.2
    )


def test_at_five_per_cent_a_night_it_is_a_drift_or_a_step_and_never_nothing_in_ratios():
    rng = np.random.default_rng(202)
    series = [ramp(24, 0, 23) + rng.normal(0, 0.05, 24) for _ in range(80)]
    assert share_drifting(series, absolute=True) >= 0.75  # observed 84 %
    ratios = [changes_of(values, absolute=False) for values in series]
    assert np.mean([changes.drift is not None for changes in ratios]) >= 0.4  # observed 51 to 60 %
    assert all(changes.drift is not None or changes.steps for changes in ratios)


@pytest.mark.parametrize(("first", "last"), [(36, 59), (0, 24), (18, 42)])
def test_a_drift_is_located(first, last):
    rng = np.random.default_rng(203)
    results = [changes_of(ramp(60, first, last) + rng.normal(0, 0.01, 60)).drift for _ in range(20)]
    drifts = [drift for drift in results if drift is not None]
    assert len(drifts) == len(results)
    assert np.median([drift.first for drift in drifts]) == pytest.approx(first, abs=2)
    assert np.median([drift.last for drift in drifts]) == pytest.approx(last, abs=2)


@pytest.mark.parametrize("nights", [24, 60])
@pytest.mark.parametrize(
    ("series", "absolute"),
    [
        (lambda rng, nights: rng.normal(0, 0.05, nights), False),
        (lambda rng, nights: rng.normal(0, 0.05, nights), True),
        (lambda rng, nights: resembling(rng, nights, 0.025, 0.5), True),
        (lambda rng, nights: simulated.ratios(rng, nights, "ci"), False),
        (lambda rng, nights: simulated.absolute(rng, nights, "ci"), True),
    ],
)
def test_quiet_series_do_not_drift(series, absolute, nights):
    # The goal is 0.5 % of the series. tests/benchmarks/change_points.py --drifts has the rates of
    # 2,000.
    rng = np.random.default_rng(204)
    assert share_drifting([series(rng, nights) for _ in range(100)], absolute) <= 0.01


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(("nights", "place"), [(24, 12), (60, 30), (60, 50)])
@pytest.mark.parametrize("size", [0.1, 0.23])
def test_a_single_step_is_a_change_point_and_no_drift(absolute, nights, place, size):
    rng = np.random.default_rng(205)
    all_changes = [
        changes_of(step(nights, place, size) + rng.normal(0, 0.01, nights), absolute)
        for _ in range(20)
    ]
    assert [changes.drift for changes in all_changes] == [None] * len(all_changes)
    assert all(
        len([step for step in changes.steps if not step.pending]) == 1 for changes in all_changes
    )


def test_a_step_within_a_drift_is_found_besides():
    rng = np.random.default_rng(206)
    values = ramp(60, 0, 59, 0.005) + step(60, 30, 0.3) + rng.normal(0, 0.01, 60)
    for absolute in (False, True):
        changes = changes_of(values, absolute)
        assert changes.drift is not None
        assert changes.drift.size == pytest.approx(0.295, abs=0.04)
        assert [step.position for step in changes.steps if not step.pending] == [30]


def test_absolute_times_may_drift_as_far_as_their_machine_does():
    rng = np.random.default_rng(207)
    noise = rng.normal(0, 0.002, 60)
    small, large = (
        ramp(60, 0, 59, math.log1p(size) / 59) + noise
        for size in (MACHINE_DRIFT - 0.01, 2 * MACHINE_DRIFT)
    )
    assert changes_of(small, absolute=True).drift is None
    assert changes_of(small, absolute=False).drift is not None
    assert changes_of(large, absolute=True).drift is not None


def test_the_threshold_is_that_of_change_points():
    rng = np.random.default_rng(208)
    values = ramp(60, 0, 59, math.log(1.08) / 59) + rng.normal(0, 0.004, 60)
    assert changes_of(values, absolute=False).drift is not None
    assert changes_of(values, absolute=False, magnitude=0.1).drift is None


def test_p_values_are_adjusted_over_all_series():
    rng = np.random.default_rng(209)
    values = ramp(24, 0, 23) + rng.normal(0, 0.02, 24)
    quiet = [rng.normal(0, 0.02, 24) for _ in range(9)]
    alone = changes_of(values).drift
    company = find_changes([values, *quiet], drifting=[True] * 10)[0].drift
    assert isinstance(alone, Ramp)
    assert isinstance(company, Ramp)
    assert alone.adjusted_p == alone.p
    assert company.adjusted_p == pytest.approx(10 * alone.p)


@pytest.mark.parametrize("length", [0, 1, 2, 5, 11, 12, 13, 24])
@pytest.mark.parametrize("absolute", [False, True])
def test_short_and_constant_series(length, absolute):
    assert changes_of(np.zeros(length), absolute) == Changes((), None)
    assert (
        changes_of(ramp(length, 0, max(length - 1, 0)), absolute).drift is None
        or length >= ENOUGH_NIGHTS_OF_DRIFT
    )


def test_without_series_nothing_changes():
    assert find_changes([]) == []


@pytest.mark.parametrize("deviation", [0.001, 0.003, 0.01])
@pytest.mark.parametrize("shape", [lambda share: share**2, lambda share: 1 - np.exp(-2 * share)])
def test_a_curved_drift_of_calm_nights_is_found(shape, deviation):
    rng = np.random.default_rng(211)
    curve = 0.23 * shape(np.arange(24) / 23)
    assert (
        share_drifting([curve + rng.normal(0, deviation, 24) for _ in range(20)], absolute=True)
        >= 0.8
    )


def test_a_long_series_is_searched_in_coarser_places():
    rng = np.random.default_rng(210)
    drift = changes_of(ramp(2000, 1000, 1500, 0.0004) + rng.normal(0, 0.02, 2000)).drift
    assert drift is not None
    assert (drift.first, drift.last) == pytest.approx((1000, 1500), abs=120)


@given(seed=st.integers(0, 2**32 - 1), shift=st.floats(-20, 20))
def test_the_level_is_of_no_matter_and_faster_is_slower_turned_round(seed, shift):
    values = ramp(30, 4, 28) + np.random.default_rng(seed).normal(0, 0.01, 30)
    upwards, moved, downwards = (
        changes_of(series).drift for series in (values, values + shift, -values)
    )
    assert upwards is not None
    assert moved is not None
    assert downwards is not None
    assert moved.size == pytest.approx(upwards.size, abs=1e-6)
    assert (downwards.first, downwards.last) == (upwards.first, upwards.last)
    assert downwards.size == pytest.approx(-upwards.size)
    assert upwards.low <= upwards.size <= upwards.high
