"""The search for the place of a slowdown: its probabilities beside sums by hand, its choices, its
promises."""

import math
from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from bisect_simulation import changes, searches
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from simulated import Conditions

from dlbench.reports.results import posterior as search
from dlbench.reports.results.posterior import Assessment, assess

PAIRS = st.lists(st.floats(-0.2, 0.3), min_size=1, max_size=4)


@st.composite
def evidences(draw, most=6):
    """Draw a number of candidates and pairs of some of them, of the last one always."""
    count = draw(st.integers(1, most))
    places = draw(st.sets(st.integers(1, count)))
    ends = draw(st.lists(st.floats(0.02, 0.3), min_size=2, max_size=5))
    return count, {place: draw(PAIRS) for place in places - {count}} | {count: ends}


PEAK = float(stats.t.pdf(0, search.FREEDOM))


def density(residual, scale):
    return (
        PEAK * (1 + (residual / scale) ** 2 / search.FREEDOM) ** (-(search.FREEDOM + 1) / 2) / scale
    )


def size_from(first, size, place):
    """Return the size of a change at ``first``, as it shows at a place."""
    return size if place >= first else 0.0


def likelihood(evidence, size_of, scale):
    return math.prod(
        density(x - size_of(place), scale) for place, logs in evidence.items() for x in logs
    )


@given(evidences())
def test_the_probability_of_each_place_is_the_sum_over_all_sizes_and_scales(drawn):
    count, evidence = drawn
    grid = search.grid_of(evidence[count])
    sizes = [size for size in grid.sizes if size > 0]
    assume(sizes)
    by_place = []
    for first in range(1, count + 1):
        total_of_place = 0.0
        for size, scale in product(sizes, grid.scales):
            size_of = partial(size_from, first, size)
            total_of_place += likelihood(evidence, size_of, scale)
        by_place.append(total_of_place * (1 - search.ABSENT) / (count * len(sizes)))
    absent = search.ABSENT * sum(
        likelihood(evidence, lambda place: 0.0, scale) for scale in grid.scales
    )
    sums = search.sums(evidence, range(1, count + 1), grid)
    posterior = search.posterior(*sums, grid, np.full(count, 1 / count))
    total = sum(by_place) + absent
    assert posterior.places == pytest.approx(np.array(by_place) / total, rel=1e-6, abs=1e-12)
    assert posterior.absent == pytest.approx(absent / total, rel=1e-6, abs=1e-12)


@given(evidences(most=4))
def test_two_changes_are_the_sum_over_both_places_and_the_level_between(drawn):
    count, evidence = drawn
    grid, threshold = search.grid_of(evidence[count]), 0.025
    sizes = [size for size in grid.sizes if size > 0]
    assume(sizes)
    middle = float(np.median(grid.sizes))
    apart = max(middle / 4, math.log1p(threshold))
    candidates = np.linspace(-1.5 * middle, 2.5 * middle, 33)
    levels = [level for level in candidates if min(abs(level), abs(level - middle)) >= apart]
    assume(levels)
    total = 0.0
    for scale in grid.scales:
        values = (0.0, *levels, *sizes)
        table = {}
        for place, logs in evidence.items():
            for value in values:
                table[place, value] = math.prod(density(x - value, scale) for x in logs)
        for first, second in combinations(range(1, count + 1), 2):
            if not any(first <= place < second for place in evidence):
                continue  # the level between was not measured
            for level, size in product(levels, sizes):
                density_of_all = 1.0
                for place in evidence:
                    if place < first:
                        density_of_all *= table[place, 0.0]
                    elif place < second:
                        density_of_all *= table[place, level]
                    else:
                        density_of_all *= table[place, size]
                total += density_of_all / len(levels) / len(sizes)
    mass = 2 / count**2 / len(grid.scales)
    weights = np.full(count, 1 / count)
    log_likelihood, between = search.several_changes(
        evidence, range(1, count + 1), grid, weights, threshold
    )
    constant = sum(map(len, evidence.values())) * math.log(PEAK)
    assert (between is None) == (total == 0.0)
    if total > 1e-200:
        assert log_likelihood + constant == pytest.approx(
            math.log(total * mass), rel=1e-6, abs=1e-6
        )
        assert between in evidence


@given(evidences(), st.data())
def test_candidates_that_cannot_be_tested_count_for_the_next_one_that_can(drawn, data):
    count, evidence = drawn
    unmeasured = sorted(set(range(1, count)) - set(evidence))
    untestable = (
        set(data.draw(st.lists(st.sampled_from(unmeasured), unique=True))) if unmeasured else set()
    )
    full, restricted = assess(evidence, count), assess(evidence, count, untestable)
    assert set(restricted.candidates) == set(range(1, count + 1)) - untestable
    before = 0
    for place, share in zip(restricted.candidates, restricted.places, strict=True):
        assert share == pytest.approx(sum(full.places[before:place]), abs=1e-9)
        before = place
    for posterior in (full, restricted):
        assert sum(posterior.places) + posterior.absent == pytest.approx(1.0)
        assert posterior.low <= posterior.size <= posterior.high


def assessment(shares):
    """Return an assessment that gives the candidates probabilities in proportion to these
    shares."""
    places = tuple(np.array(shares) / sum(shares))
    return Assessment(tuple(range(1, len(places) + 1)), places, 0.0, 0.0, None, 1.1, 1.0, 1.2, 0.01)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=8), st.floats(0.5, 0.999))
def test_the_range_is_the_fewest_neighbours_that_are_probable_enough(shares, confidence):
    verdict = assessment(shares)
    first, last = verdict.range(confidence)
    assert sum(verdict.places[first : last + 1]) >= confidence - 1e-9
    shorter = [sum(verdict.places[start : start + last - first]) for start in range(len(shares))]
    assert max(shorter, default=0.0) < confidence + 1e-9


@given(st.lists(st.floats(0.0, 1), min_size=2, max_size=9), st.sets(st.integers(1, 9)))
def test_the_next_candidate_splits_the_posterior_most_evenly_or_nearly_so_without_a_build(
    shares, measured
):
    assume(sum(shares) > 0)
    verdict = assessment(shares)
    chosen = verdict.following(measured)
    reached = np.cumsum(verdict.places)[:-1]
    informative = reached * (1 - reached)
    assert chosen < len(shares)  # nothing is to be learnt from the bad end
    assert informative[chosen - 1] >= search.BUILT * informative.max() - 1e-12
    if chosen not in measured:
        assert informative[chosen - 1] == pytest.approx(informative.max())


def pairs(level, count, seed=0, deviation=0.01):
    return list(level + np.random.default_rng(seed).normal(0, deviation, count))


def test_a_level_between_the_ends_is_no_single_change_and_a_small_offset_is_none():
    ends = {10: pairs(0.10, 12)}
    halfway = assess({5: pairs(0.05, 8, 1), **ends}, 10)
    assert halfway.several > 0.95
    assert halfway.between == halfway.following({5}) == 5
    assert halfway.decided()
    undone = assess({5: pairs(0.2, 8, 1), **ends}, 10)  # up, and half of it back
    assert undone.several > 0.95
    offset = assess({5: pairs(0.01, 8, 1), **ends}, 10)
    assert offset.several < 0.05
    assert sum(offset.places[:5]) < 0.01


def test_one_disturbed_launch_decides_nothing():
    posterior = assess({5: [0.4], 10: pairs(0.05, 12, deviation=0.02)}, 10)
    assert 0.4 < sum(posterior.places[:5]) < 0.95


def test_the_number_of_pairs_left_falls_to_nothing():
    ends = {64: pairs(0.05, 12, deviation=0.04)}
    begun, later = (
        assess(ends, 64),
        assess({31: pairs(0.0, 9, 1), 32: pairs(0.05, 9, 2), **ends}, 64),
    )
    assert begun.pairs_left() > later.pairs_left()
    decided = assess({31: pairs(0.0, 30, 1), 32: pairs(0.05, 30, 2), **ends}, 64)
    assert decided.decided()
    assert decided.pairs_left() == 0
    assert decided.places[31] == max(decided.places)
    assert decided.low < 1.05 < decided.high


@pytest.mark.parametrize(
    ("sizes", "wrong", "several"), [((0.05,), (0, 5), (0, 2)), ((0.05, 0.05), (0, 6), (12, 30))]
)
def test_simulated_searches_are_as_right_as_they_say(sizes, wrong, several):
    counts = searches(np.random.default_rng(3), (Conditions(0.02), changes(*sizes)), 30)
    # Of 30 with a probability of 95 % more than 5 are wrong once in 300 times. Of two changes
    # either is right.
    assert wrong[0] <= counts.wrong <= wrong[1]
    assert several[0] <= counts.several <= several[1]
    assert counts.right + counts.wrong + counts.several > 27
    assert np.mean(counts.pairs) < 90


def test_without_a_change_nothing_is_searched():
    assert searches(np.random.default_rng(3), (Conditions(0.03), changes()), 60).unconfirmed == 60
