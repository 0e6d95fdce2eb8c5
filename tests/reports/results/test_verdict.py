import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from dlbench.reports.results.statistics import POWER, Estimate
from dlbench.reports.results.verdict import (
    DEFAULT,
    FEWEST_LAUNCHES,
    Judgement,
    Verdict,
    adjust,
    chosen,
    judge,
    rule_of,
)

seconds = st.floats(1e-6, 1e4)
launches = st.lists(seconds, min_size=FEWEST_LAUNCHES, max_size=20)


def spread(values: list[float]) -> float:
    return float(np.std(np.log(values)))


@given(launches, launches)
def test_unpaired_launches_are_judged_by_welchs_t(a: list[float], b: list[float]) -> None:
    assume(spread(a) > 1e-4 and spread(b) > 1e-4)
    result = judge(a, b)
    slower = stats.ttest_ind(np.log(b), np.log(a), equal_var=False, alternative="greater")
    faster = stats.ttest_ind(np.log(b), np.log(a), equal_var=False, alternative="less")
    assert result.ratio is not None
    ratio = result.ratio
    assert ratio.value == pytest.approx(stats.gmean(b) / stats.gmean(a), rel=1e-9)
    assert result.p == pytest.approx(
        (slower if ratio.value >= 1 else faster).pvalue, rel=1e-6, abs=1e-12
    )
    interval = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    assert np.log([ratio.low, ratio.high]) == pytest.approx(
        [interval.low, interval.high], rel=1e-6, abs=1e-9
    )


@given(launches, launches)
def test_different_sessions_widen_and_never_sharpen(a: list[float], b: list[float]) -> None:
    same, different = judge(a, b), judge(a, b, same_session=False)
    assert same.ratio is not None
    assert different.ratio is not None
    assert same.ratio.value == different.ratio.value
    assert (different.ratio.low or 0) <= (same.ratio.low or 0)
    assert (different.ratio.high or 0) >= (same.ratio.high or 0)
    assert (different.p or 0) >= (same.p or 0)
    assert (different.smallest_effect or 0) >= (same.smallest_effect or 0)
    if different.verdict in (Verdict.REGRESSION, Verdict.IMPROVEMENT):
        assert same.verdict is different.verdict


@pytest.mark.parametrize(("of_a", "of_b"), [(3, 3), (5, 5), (4, 12)])
def test_the_interval_over_two_sessions_covers_what_it_says(of_a: int, of_b: int) -> None:
    rng = np.random.default_rng(7)
    simulations, covered = 3000, 0
    for _ in range(simulations):
        shifts = rng.normal(0, DEFAULT.session_deviation, 2)
        a = np.exp(shifts[0] + rng.normal(0, 0.02, of_a))
        b = np.exp(shifts[1] + rng.normal(math.log(1.1), 0.04, of_b))
        result = judge(a, b, same_session=False)
        assert result.ratio is not None
        covered += not (result.ratio.is_above(1.1) or result.ratio.is_below(1.1))
    assert 0.93 <= covered / simulations <= 0.99  # the more cautious of two ways


@pytest.mark.parametrize("few", [0, 1, 2])
def test_too_few_launches_are_inconclusive_whatever_they_show(few: int) -> None:
    result = judge([1.0] * 5, [9.0] * few)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert (
        result.sentence == f"too few launches: {few}, and {FEWEST_LAUNCHES} are needed on each side"
    )
    assert result.p is None
    if not few:
        assert result.ratio is None
    else:
        assert result.ratio is not None
        assert result.ratio.value == pytest.approx(9.0)
        assert (result.ratio.low, result.ratio.high) == (None, None)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        judge([1.0] * 3, [1.0, bad, 1.0])


@pytest.mark.parametrize(("deviation", "count"), [(0.005, 20), (0.02, 10), (0.05, 5)])
def test_the_smallest_effect_is_found_as_often_as_it_says(deviation: float, count: int) -> None:
    """What launches say would have shown does show, in new launches from the same machine, about 80
    % of the time."""
    rng = np.random.default_rng(3)
    simulations = 800

    def one(ratio: float) -> Judgement:
        a, b = np.exp(rng.normal(0, deviation, (2, count)))
        return judge(a, ratio * b)

    lines = [one(1.0).smallest_effect for _ in range(100)]
    effect = float(np.median([value for value in lines if value is not None]))
    hits = sum(one(1 + effect).verdict is Verdict.REGRESSION for _ in range(simulations))
    assert POWER - 0.08 <= hits / simulations <= POWER + 0.08


p_values = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=30)


def judgement(p: float | None) -> Judgement:
    if p is None:
        return Judgement(Verdict.INCONCLUSIVE, "too few", 1, 1)
    return Judgement(
        Verdict.REGRESSION, "slower by +10.0%", 5, 5, Estimate(1.1, 1.0, 1.2, "t"), p, None, 0.03
    )


@given(p_values)
def test_adjusted_p_is_that_of_benjamini_and_hochberg(values: list[float | None]) -> None:
    adjusted = adjust([judgement(p) for p in values])
    results = [min(1.0, 2 * p) for p in values if p is not None]
    assert [judged.adjusted_p is None for judged in adjusted] == [p is None for p in values]
    ours = [judged.adjusted_p for judged in adjusted if judged.adjusted_p is not None]
    # The definition: the smallest rate at which a step-up procedure rejects.
    size = len(results)
    for p, value in zip(results, ours, strict=True):
        reached = [
            size * larger / sum(doubled <= larger for doubled in results)
            for larger in results
            if larger >= p
        ]
        assert value == pytest.approx(min(1.0, *reached))
    for judged in adjusted:
        if judged.adjusted_p is not None:
            assert (judged.verdict is Verdict.REGRESSION) == (
                judged.adjusted_p <= DEFAULT.false_discovery_rate
            )


def test_a_rule_of_an_older_store_is_read() -> None:
    rule = rule_of({"magnitude": 0.04, "tolerance": 0.09})
    assert (rule.threshold, rule.tolerance) == (0.04, 0.09)
    assert chosen(rule) == {"threshold": 0.04, "tolerance": 0.09}
