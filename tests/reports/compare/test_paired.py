import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats
from simulated import BAD, CI, QUIET, Conditions, launches

from dlbench.reports.results.verdict import (
    FEWEST_PAIRS,
    PairedEstimate,
    estimate_pairs,
    smallest_effect_of_pairs,
)

seconds = st.floats(1e-6, 1e4)
pairs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=30)


def estimate(times: list[tuple[float, float]], confidence: float = 0.95) -> PairedEstimate:
    return estimate_pairs([a for a, _ in times], [b for _, b in times], confidence)


def differences(times: list[tuple[float, float]]) -> np.ndarray:
    return np.log([b for _, b in times]) - np.log([a for a, _ in times])


@given(pairs)
def test_without_ties_p_is_that_of_scipys_exact_test(times: list[tuple[float, float]]) -> None:
    logs = differences(times)
    sizes = np.sort(np.abs(logs))
    assume(sizes[0] > 1e-9)
    assume(len(sizes) == 1 or np.min(np.diff(sizes)) > 1e-9)
    ours = estimate(times)
    for p, alternative in ((ours.slower_p, "greater"), (ours.faster_p, "less")):
        assert p == pytest.approx(
            stats.wilcoxon(logs, alternative=alternative, method="exact").pvalue, rel=1e-9
        )


# Differences on a grid have zeros and ties; powers of two are added without rounding.
grids = st.lists(st.integers(-4, 4), min_size=1, max_size=12)


@given(grids)
@example([0])
@example([0, 0, 0, 1])
def test_with_ties_and_zeros_p_is_that_of_average_ranks_rounded_to_the_safe_side(
    grid: list[int],
) -> None:
    """Ranks averaged over ties, those of zeros split between the signs, on the distribution without
    ties."""
    ours = estimate_pairs([1.0] * len(grid), [math.exp(step / 64) for step in grid])
    # The logarithm of an exponential is a rounding away from the grid: ranks are those of what is
    # really compared.
    logs = np.log([math.exp(step / 64) for step in grid])
    assume(len(set(np.abs(logs))) == len(set(map(abs, grid))))
    ranks = stats.rankdata(np.abs(grid))
    patterns = np.array(np.meshgrid(*[(0, 1)] * len(grid))).reshape(len(grid), -1).T
    sums = patterns @ np.arange(1, len(grid) + 1)
    zeros = ranks[np.equal(grid, 0)].sum() / 2
    for p, against in ((ours.slower_p, np.less(grid, 0)), (ours.faster_p, np.greater(grid, 0))):
        assert p == pytest.approx(np.mean(sums <= math.ceil(ranks[against].sum() + zeros)))


@given(pairs)
def test_interval_and_test_agree(times: list[tuple[float, float]]) -> None:
    ours = estimate(times)
    assert not ours.is_above(ours.value)
    assert not ours.is_below(ours.value)
    assert (ours.low is None) == (ours.high is None) == (len(times) < FEWEST_PAIRS)
    if ours.is_above(1):
        assert ours.slower_p <= 0.025
    if ours.is_below(1):
        assert ours.faster_p <= 0.025
    if ours.slower_p <= 0.025 and len(times) >= FEWEST_PAIRS:
        assert ours.low is not None
        assert ours.low >= 1


@pytest.mark.parametrize(
    ("conditions", "count"),
    [(QUIET, 6), (CI, 24), (BAD, 6), (Conditions(0.01, spikes=0.3, spike=0.5), 12)],
    ids=["quiet", "drift and spikes", "few heavy tails", "a third spikes"],
)
def test_the_interval_covers_what_it_says(conditions: Conditions, count: int) -> None:
    """Launches may be as skewed as they like: the difference of two in random order is
    symmetric."""
    rng = np.random.default_rng(20)
    simulations, covered = 2000, 0
    for levels in launches(rng, conditions, simulations, count, 1.07):
        ours = estimate_pairs(np.exp(levels[:, 0]), np.exp(levels[:, 1]))
        covered += ours.low <= 1.07 <= ours.high
    assert 0.94 <= covered / simulations <= 0.985  # 96.9 % from six pairs, which allow few levels


@pytest.mark.parametrize("count", [7, 20, 60])
def test_the_smallest_effect_is_found_as_often_as_it_says(count: int) -> None:
    effect = smallest_effect_of_pairs(0.04, count)
    logs = np.random.default_rng(count).normal(math.log1p(effect), 0.04, (1500, count))
    estimates = [estimate_pairs(np.ones(count), np.exp(logs_of_pairs)) for logs_of_pairs in logs]
    hits = sum(
        estimate_of_pairs.slower_p <= 0.01 and estimate_of_pairs.value > 1.025
        for estimate_of_pairs in estimates
    )
    assert 0.74 <= hits / len(estimates) <= 0.86


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [([], [], "one length"), ([1.0], [1.0, 2.0], "one length"), ([0.0], [1.0], "positive")],
)
def test_unpaired_or_zero_times_are_refused(
    baseline: list[float], candidate: list[float], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        estimate_pairs(baseline, candidate)
