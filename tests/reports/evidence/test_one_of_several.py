"""One against the mean of the others, compared with SciPy's tests and with the formula written
out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlbench.reports.ratio.nodes import Estimates, against_others

LOGS = st.lists(st.floats(-2.0, 2.0), min_size=3, max_size=6).filter(
    lambda logs: np.std(logs) > 1e-3
)


def against(groups, common=False):
    """Compare nodes on one benchmark, of a list of logarithms for each; of all alike with their
    pooled variance."""
    freedoms = np.array([len(group) - 1.0 for group in groups])
    variances = np.array([np.var(group, ddof=1) for group in groups])
    if common:
        variances = np.full(len(groups), (variances * freedoms).sum() / freedoms.sum())
        freedoms = np.full(len(groups), freedoms.sum())
    counts = np.array([len(group) for group in groups])
    column = (np.array([np.mean(group) for group in groups]), variances / counts, freedoms)
    estimates = Estimates(*(statistic[:, None] for statistic in column))
    shape = len(groups), 1
    return against_others(estimates, np.ones(shape, dtype=bool), np.full(shape, common))


@given(LOGS, LOGS)
def test_of_two_nodes_it_is_welchs_t(first, second):
    result = against([first, second])
    expected = stats.ttest_ind(first, second, equal_var=False)
    ends = expected.confidence_interval(0.95)
    assert result.p_values()[0, 0] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert result.freedoms[0, 0] == pytest.approx(expected.df)
    half = result.half_widths(0.95)[0, 0]
    middle = result.values[0, 0]
    assert (middle - half, middle + half) == pytest.approx(
        (ends.low, ends.high), rel=1e-6, abs=1e-9
    )
    assert result.values[1, 0] == pytest.approx(-middle)


@given(LOGS, LOGS)
def test_of_two_nodes_that_deviate_alike_it_is_students_t(first, second):
    result = against([first, second], common=True)
    expected = stats.ttest_ind(first, second, equal_var=True)
    assert result.p_values()[0, 0] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)


@given(st.lists(LOGS, min_size=3, max_size=5))
def test_of_more_nodes_it_is_the_contrast_of_means_with_no_more_freedom_than_the_node_has(groups):
    result = against(groups)
    parts = [np.var(group, ddof=1) / len(group) for group in groups]
    for place, own in enumerate(groups):
        other_means = [np.mean(group) for number, group in enumerate(groups) if number != place]
        shares = [
            part * (1.0 if number == place else 1 / len(other_means) ** 2)
            for number, part in enumerate(parts)
        ]
        freedom = sum(shares) ** 2 / sum(
            s**2 / (len(group) - 1) for s, group in zip(shares, groups, strict=True)
        )
        assert result.values[place, 0] == pytest.approx(
            np.mean(own) - np.mean(other_means), abs=1e-9
        )
        assert result.variances[place, 0] == pytest.approx(sum(shares), rel=1e-6)
        assert result.freedoms[place, 0] == pytest.approx(min(freedom, len(own) - 1), rel=1e-6)


def test_a_node_without_the_benchmark_or_without_others_has_no_difference():
    table = Estimates(*(np.array([[1.0], [2.0], [np.nan]]) for _ in range(3)))
    only_the_first = np.array([[True], [False], [True]])
    contrasts = against_others(table, only_the_first, np.zeros((3, 1), dtype=bool))
    assert np.isnan(contrasts.values[:, 0]).tolist() == [True, False, True]
    assert contrasts.values[1, 0] == 1.0


def test_launches_without_any_spread_show_the_least_difference_and_none_where_there_is_none():
    result = against([[1.0] * 3, [1.0] * 3, [1.1] * 3])
    assert result.p_values()[:, 0].tolist() == [0.0, 0.0, 0.0]
    same = against([[1.0] * 3] * 3)
    assert same.p_values()[:, 0].tolist() == [1.0, 1.0, 1.0]
