"""Cells whose launches took turns: differences of levels within groups, complete or not, and their
intervals."""

import math
from dataclasses import replace

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from scipy.special import stdtrit
from scipy.stats import ttest_rel

from dlbench.reports.results.leaders import fastest
from dlbench.reports.results.side_by_side import side_by_side
from dlbench.reports.results.statistics import (
    mean_of_pairs,
    ratio,
    summarise,
    took_turns,
    welch,
    with_common_spread,
)


def groups_of(levels, deviations, blocks, size, chance, shift=0.3):
    """Return made-up groups of this size: each cell once a block, each group with an effect of its
    own."""
    groups = []
    for _ in range(blocks):
        order = chance.permutation(len(levels))
        for start in range(0, len(levels), size):
            effect = chance.normal(0, shift)
            members = order[start : start + size]
            groups.append(
                {
                    int(cell): math.exp(levels[cell] + effect + chance.normal(0, deviations[cell]))
                    for cell in members
                }
            )
    return groups


@examples(30)
@given(
    st.lists(st.floats(-1, 1), min_size=3, max_size=12),
    st.integers(2, 4),
    st.integers(2, 5),
    st.integers(0, 2**32 - 1),
)
def test_without_deviations_the_levels_are_exact_wherever_cells_are_connected(
    levels, size, blocks, seed
):
    groups = groups_of(levels, [0.0] * len(levels), blocks, size, np.random.default_rng(seed))
    related = side_by_side(groups, len(levels))
    if related is None:
        return
    for first in range(len(levels)):
        for second in range(len(levels)):
            if related.known(first, second):
                assert related.difference(first, second) == pytest.approx(
                    levels[first] - levels[second], abs=1e-9
                )


@examples(30)
@given(st.lists(st.tuples(st.floats(0.5, 2), st.floats(0.5, 2)), min_size=2, max_size=10))
def test_of_two_cells_it_is_the_paired_t(pairs):
    related = side_by_side([{0: first, 1: second} for first, second in pairs], 2)
    differences = np.log([first / second for first, second in pairs])
    assert related.difference(0, 1) == pytest.approx(float(np.mean(differences)), abs=1e-9)
    variance, freedom = related.variance(0, 1)
    assert freedom == pytest.approx(len(pairs) - 1)
    expected = max(float(np.var(differences, ddof=1)) / len(pairs), 2 * 1e-8 / len(pairs))
    assert variance == pytest.approx(expected, rel=1e-6)


def test_levels_agree_with_an_ordinary_least_squares_fit():
    chance = np.random.default_rng(5)
    groups = groups_of(chance.normal(0, 0.3, 7), [0.02] * 7, 3, 3, chance)
    related = side_by_side(groups, 7)
    shared = [group for group in groups if len(group) > 1]
    rows = [
        (number, cell, math.log(seconds))
        for number, group in enumerate(shared)
        for cell, seconds in group.items()
    ]
    design = np.zeros((len(rows), 7 + len(shared)))
    for row, (number, cell, _) in zip(design, rows, strict=True):
        row[cell] = row[7 + number] = 1.0
    fitted = np.linalg.lstsq(design, np.array([seconds for *_, seconds in rows]), rcond=None)[0]
    for second in range(1, 7):
        assert related.difference(0, second) == pytest.approx(fitted[0] - fitted[second], abs=1e-9)


def test_between_cells_that_never_met_nothing_is_known():
    groups = [{0: 1.0, 1: 2.0}, {0: 1.1, 1: 2.1}, {2: 1.0, 3: 3.0}, {2: 1.0, 3: 3.1}]
    related = side_by_side(groups, 5)
    assert related.known(0, 1)
    assert related.known(2, 3)
    assert not related.known(0, 2)
    assert not related.known(0, 4)
    assert not related.known(1, 1)
    # Through a third cell two become known.
    assert side_by_side([*groups, {1: 1.0, 2: 2.0}], 5).known(0, 3)


def test_a_single_group_shows_no_deviation():
    assert side_by_side([{0: 1.0, 1: 2.0, 2: 3.0}], 3) is None
    assert side_by_side([{0: 1.0}, {1: 1.0}], 2) is None
    assert side_by_side([], 2) is None


@pytest.mark.parametrize(
    ("cells", "blocks", "size"), [(2, 4, 2), (4, 3, 4), (12, 2, 12), (12, 3, 4)]
)
def test_intervals_cover_what_they_say(cells, blocks, size):
    """Of 300 made-up machines' differences about 95 % lie within their intervals."""
    chance = np.random.default_rng(7)
    inside = []
    for _ in range(150):
        levels = chance.normal(0, 0.3, cells)
        deviations = 0.01 * np.exp(chance.normal(0, 0.4, cells))
        related = side_by_side(groups_of(levels, deviations, blocks, size, chance), cells)
        summaries = [summary_at(related, place) for place in range(cells)]
        summaries = with_common_spread(summaries)
        for second in (1, cells - 1):
            if related.known(0, second):
                between = ratio(summaries[0], summaries[second])
                inside.append(between.low <= math.exp(levels[0] - levels[second]) <= between.high)
    assert 0.9 <= np.mean(inside) <= 0.99


def summary_at(related, place):
    return replace(summarise([[1.0, 1.1]]), relative=related, number=place)


def test_ratios_come_from_the_groups_where_launches_took_turns():
    """The machine is up to a third slower at times: each cell's own interval is wide, and their
    ratio is known well."""
    chance = np.random.default_rng(3)
    groups = groups_of([0.0, math.log(1.05)], [0.002, 0.002], 6, 2, chance)
    related = side_by_side(groups, 2)
    alone = [summarise([[group[cell]] * 3 for group in groups]) for cell in (0, 1)]
    in_turns = [replace(cell, relative=related, number=number) for number, cell in enumerate(alone)]
    apart, together = ratio(alone[1], alone[0]), ratio(in_turns[1], in_turns[0])
    assert together.value == pytest.approx(1.05, abs=0.005)
    assert math.log(together.high / together.low) < math.log(apart.high / apart.low) / 10
    assert "took turns" in together.method
    assert welch(in_turns[1], in_turns[0]) < 1e-4 < welch(alone[1], alone[0])
    assert welch(in_turns[1], in_turns[0], 1.05) > 0.05
    mean = mean_of_pairs([(in_turns[1], in_turns[0])] * 2)
    assert mean.value == pytest.approx(together.value)
    assert took_turns(*in_turns)
    assert not took_turns(*alone)


def test_a_paired_t_of_scipy_agrees():
    chance = np.random.default_rng(11)
    first, second = np.exp(chance.normal(0, 0.2, 8)), np.exp(chance.normal(0.1, 0.2, 8))
    related = side_by_side([{0: a, 1: b} for a, b in zip(first, second, strict=True)], 2)
    variance, freedom = related.variance(0, 1)
    expected = ttest_rel(np.log(first), np.log(second))
    assert related.difference(0, 1) / math.sqrt(variance) == pytest.approx(expected.statistic)
    assert freedom == pytest.approx(expected.df)
    low, high = expected.confidence_interval(0.95)
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    assert (related.difference(0, 1) - half, related.difference(0, 1) + half) == pytest.approx(
        (low, high)
    )


def test_the_fastest_of_a_column_is_so_within_groups_whatever_the_machine_did_between_them():
    """The machine was half as fast in the groups with PyTorch, which takes a tenth less than
    JAX."""
    records, noise = [], (0.999, 1.0, 1.001)
    for number, factor in enumerate(noise):
        for group, members in (
            ("slow", {"torch": 2.0, "mxnet": 4.0}),
            ("fast", {"jax": 1.1 * factor, "mxnet": 2.0}),
        ):
            for framework, seconds in members.items():
                outcome = make.outcome([seconds] * 3, turns=[1, 1, 1])
                launch = number + 3 * (group == "fast")
                record = make.record(launch=launch, result=outcome, framework=framework)
                records.append(replace(record, group=f"{group}{number}"))
    (leader,) = fastest(make.matrix(*records)).rows
    assert leader.first.cell.framework == "torch"
    assert leader.first.timed.median > 1.5 * leader.next.timed.median
    assert leader.ratio.value == pytest.approx(1.1, rel=0.01)
