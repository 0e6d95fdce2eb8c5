"""The gate on real launches: identical code raises no alarm, real slowdowns are found, noise is never a regression."""

import gzip
import json

import corpus_noise as noise
import corpus_rates as rates
import numpy as np
import pytest
from corpus import PACKED, Corpus, calm, read
from corpus_rates import Rate
from corpus_replay import Decision, from_everywhere, gate, one_after_another

from dlbench.reports.compare.verdict import DEFAULT, Verdict

SEED = 7
ALLOWED = 0.1 / 200
"""False alarms of a cell: one in ten nights of 200 cells."""


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return read()


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(SEED)


def assert_few_alarms(found: Rate) -> None:
    """Fail where so many alarms among so many comparisons contradict the allowed rate (p < .001)."""
    from scipy.stats import binomtest

    assert found.of > 0
    chance = binomtest(found.hits, found.of, ALLOWED, alternative="greater").pvalue
    assert chance > 1e-3, f"{found.hits} false alarms in {found.of} comparisons of identical code"


def by_the_product(corpus: Corpus, random: np.random.Generator, about: int = 25) -> list[Decision]:
    """Gates by the product's own schedule, records and report: independent ones, and ones with sides exchanged."""
    found = []
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        found += one_after_another(pairs)
        for only in (pairs, calm(pairs)):
            starts = list(from_everywhere(only, random, about))
            decisions = [gate(each) for each in starts[:: max(1, len(starts) // about)]]
            found += [decision for decision in decisions if decision is not None]
    return found


@pytest.mark.slow
def test_identical_code_raises_no_alarm_by_the_product_itself(corpus: Corpus, random: np.random.Generator) -> None:
    assert_few_alarms(rates.alarms(by_the_product(corpus, random)))


def test_identical_code_raises_no_alarm_in_thousands_of_comparisons(
    corpus: Corpus, random: np.random.Generator
) -> None:
    for only_calm in (False, True):
        found = Rate()
        for framework in corpus.frameworks:
            pairs = corpus.pairs(framework, "a", "b")
            found += rates.alarms(rates.gate_exchanged(calm(pairs) if only_calm else pairs, random, 500))
        assert found.of >= 2000
        assert_few_alarms(found)


def test_a_slowdown_of_five_per_cent_is_found_where_launches_deviate_little(
    corpus: Corpus, random: np.random.Generator
) -> None:
    found = Rate()
    for framework in corpus.frameworks:
        robust, _ = rates.deviation(calm(corpus.pairs(framework, "a", "b")))
        pairs = rates.effect_pairs(corpus, framework, "plus5")
        shown = rates.estimate(pairs)
        assert shown.low > 1, "real extra work takes longer"
        if robust <= 0.03:
            power = rates.alarms(rates.gate_drawn(rates.exactly_five(pairs), random, 150))
            assert power.interval[1] >= 0.85, framework
            found += power
    assert found.of, "no framework's launches deviate by 3 % or less"
    assert found.value >= 0.85


@pytest.mark.parametrize("size", [*DEFAULT.screen_looks, DEFAULT.confirm_pairs])
def test_intervals_hold_the_truth(corpus: Corpus, random: np.random.Generator, size: int) -> None:
    found = rates.coverage(corpus, random, size, 250)
    low, high = found.exchanged.interval
    assert low <= 0.97
    assert high >= 0.93


def test_noise_is_never_a_regression(corpus: Corpus, random: np.random.Generator) -> None:
    for kind in noise.kinds_of_noise(corpus):
        if kind.kind == noise.SEEN:
            found = noise.verdicts_under(kind, corpus, random, 60)
            assert found.total() > 0
            assert found[Verdict.REGRESSION] == 0, kind.name


def test_the_corpus_is_small_and_names_nobody() -> None:
    assert PACKED.stat().st_size < 1_500_000
    with gzip.open(PACKED, "rt", encoding="utf-8") as file:
        about = json.loads(file.readline())
    assert set(about) == {"network", "batch_size", "threads", "order", "products", "machine", "host"}
    assert not any("/" in text for text in about["machine"].values())
