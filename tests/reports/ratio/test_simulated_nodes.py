"""Verdicts on nodes whose truth is known: false alarms, coverage, and slow nodes that are found and named."""

import math

import numpy as np
import pytest
from records_of_fleets import drawn, kind
from scipy.stats import binom

from dlbench.reports.ratio.nodes import FAST, LIKE, MEAN, SLOW, contrasts
from dlbench.reports.statistics import SIGNIFICANCE

SEED = 20261123
ROUNDS = 120


def judged(logs):
    """Return the ratios on benchmarks, and the mean of each node."""
    (ratios,) = contrasts([kind(logs)])
    return [each for each in ratios if each.benchmark != MEAN], [each for each in ratios if each.benchmark == MEAN]


@pytest.mark.parametrize(("shape", "noisy"), [((6, 4, 3), 1.0), ((5, 3, 5), 1.0), ((6, 4, 4), 3.0), ((2, 4, 4), 1.0)])
def test_alike_nodes_raise_few_false_alarms_and_intervals_cover_what_they_say(shape, noisy):
    rng = np.random.default_rng(SEED)
    alarms, covered = [], []
    for _ in range(ROUNDS):
        logs = drawn(rng, shape, launch=0.0)
        noise = rng.normal(0.0, 0.03, shape)
        noise[0] *= noisy
        families = judged(logs + noise)
        alarms.append([any(each.p_adjusted < SIGNIFICANCE for each in family) for family in families])
        covered.append([np.mean([r.ratio.low <= 1 <= r.ratio.high for r in family]) for family in families])
    most = binom.ppf(0.999, ROUNDS, SIGNIFICANCE)
    assert np.sum(alarms, axis=0).max() <= most
    for share in np.mean(covered, axis=0):
        # Intervals of a node that is noisier than the others cover more than they say.
        assert 0.93 <= share <= (0.97 if noisy == 1.0 else 0.985)


def test_a_node_five_per_cent_slow_is_found_and_no_other():
    rng = np.random.default_rng(SEED)
    for _ in range(20):
        on, means = judged(drawn(rng, (8, 6, 3), node=0.003, slow=1.05))
        assert [each.verdict for each in means[:-1]] == [LIKE] * 7
        assert means[-1].verdict == SLOW
        assert means[-1].ratio.value == pytest.approx(1.05, rel=0.015)
        assert means[-1].others == 7
        assert SLOW in {each.verdict for each in on if each.node.name == "n8"}


@pytest.mark.parametrize("factor", [1.3, 3.0, 30.0])
def test_a_very_slow_node_makes_no_other_look_fast(factor):
    logs = drawn(np.random.default_rng(SEED), (3, 4, 4), slow=factor)
    on, means = judged(logs)
    assert [each.verdict for each in means] == [LIKE, LIKE, SLOW]
    assert [each.others for each in means] == [1, 1, 2]
    assert FAST not in {each.verdict for each in on}
    assert means[-1].ratio.value == pytest.approx(factor, rel=0.02)


def test_several_slow_nodes_and_a_fast_one_are_all_named():
    logs = drawn(np.random.default_rng(SEED), (9, 4, 4))
    for node, factor in ((0, 3.0), (1, 1.2), (2, 0.8)):
        logs[node] += math.log(factor)
    _, means = judged(logs)
    assert [each.verdict for each in means] == [SLOW, SLOW, FAST, *[LIKE] * 6]
    assert [each.ratio.value for each in means[:3]] == pytest.approx([3.0, 1.2, 0.8], rel=0.02)


def test_a_node_slow_on_one_benchmark_only_is_named_there():
    logs = drawn(np.random.default_rng(SEED), (6, 12, 4))
    logs[2, 7] += math.log(1.15)
    on, means = judged(logs)
    assert [(each.node.name, each.benchmark) for each in on if each.verdict == SLOW] == [("n3", "benchmark 7")]
    assert SLOW not in {each.verdict for each in means}


def test_of_one_launch_each_there_is_no_p_value_and_noise_is_no_finding():
    rng = np.random.default_rng(SEED)
    on, means = judged(drawn(rng, (10, 4, 1), slow=1.5))
    assert {each.p_adjusted for each in on} == {None}
    assert [each.verdict for each in means].count(SLOW) == 1
    assert means[-1].verdict == SLOW
    on, means = judged(drawn(rng, (10, 4, 1)))
    assert not {SLOW, FAST} & {each.verdict for each in (*on, *means)}
