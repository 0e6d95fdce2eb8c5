"""The gate on real launches: identical code raises no alarm, real slowdowns are found, noise is
never a regression."""

import corpus as replay
import numpy as np
import pytest
from corpus import Corpus, Decision, Rate, calm, from_everywhere, gate, one_after_another, read
from scipy.stats import binomtest

from dlbench.reports.results.verdict import Verdict

SEED = 7
ALLOWED = 0.1 / 200
"""False alarms of a cell: one in ten nights of 200 cells."""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return read()


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(SEED)


def assert_few_alarms(rate: Rate) -> None:
    """Fail where so many alarms among so many comparisons contradict the allowed rate (p <
    .001)."""
    assert rate.trials > 0
    chance = binomtest(rate.hits, rate.trials, ALLOWED, alternative="greater").pvalue
    assert chance > 1e-3, f"{rate.hits} false alarms in {rate.trials} comparisons of identical code"


def by_the_product(corpus: Corpus, random: np.random.Generator, about: int = 25) -> list[Decision]:
    """Gates by the product's own schedule, records and report: independent ones, and ones with
    sides exchanged."""
    gates = []
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        gates += one_after_another(pairs)
        for only in (pairs, calm(pairs)):
            starts = list(from_everywhere(only, random, about))
            decisions = [gate(launches) for launches in starts[:: max(1, len(starts) // about)]]
            gates += [decision for decision in decisions if decision is not None]
    return gates


@pytest.mark.slow
def test_identical_code_raises_no_alarm_by_the_product_itself(
    corpus: Corpus, random: np.random.Generator
) -> None:
    assert_few_alarms(replay.alarms(by_the_product(corpus, random)))


def test_identical_code_raises_no_alarm_in_thousands_of_comparisons(
    corpus: Corpus, random: np.random.Generator
) -> None:
    verdicts = []
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        for drawn_from in (pairs, calm(pairs)):
            verdicts += [
                replay.quick_gate(launches) for launches in from_everywhere(drawn_from, random, 250)
            ]
    assert len(verdicts) >= 2000
    assert_few_alarms(replay.alarms(verdicts))


def test_a_slowdown_of_five_per_cent_is_found_where_launches_deviate_little(
    corpus: Corpus, random: np.random.Generator
) -> None:
    verdicts = []
    for framework in corpus.frameworks:
        deviation = replay.deviation(calm(corpus.pairs(framework, "a", "b")))
        pairs = replay.effect_pairs(corpus, framework, "plus5")
        slowdown = replay.estimate(pairs)
        assert slowdown.low > 1, "real extra work takes longer"
        if deviation <= 0.03:
            decisions = replay.gate_drawn(replay.exactly_five(pairs), random, 150)
            assert replay.alarms(decisions).interval[1] >= 0.85, framework
            verdicts += decisions
    assert verdicts, "no framework's launches deviate by 3 % or less"
    assert replay.alarms(verdicts).value >= 0.85


def test_noise_is_never_a_regression(corpus: Corpus, random: np.random.Generator) -> None:
    for name, verdicts in replay.verdicts_under_noise(corpus, random, 30, only_seen=True).items():
        assert verdicts.total() > 0
        assert verdicts[Verdict.REGRESSION] == 0, name
