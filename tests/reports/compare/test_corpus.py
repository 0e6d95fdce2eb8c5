"""The gate on real launches: identical code raises no alarm, real slowdowns are found, noise is never a regression."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import corpus_noise as noise
import corpus_rates as rates
import factory_of_records as make
import numpy as np
import pytest
from corpus import PACKED, Corpus, calm, pack, read
from corpus_rates import Rate
from corpus_replay import (
    OTHER_RULES,
    Decision,
    drawn,
    exchanged,
    from_everywhere,
    gate,
    one_after_another,
    pooled_mann_whitney,
    quick_gate,
)

from dlbench.adapters.protocol import Contention
from dlbench.reports.compare import comparison as compare
from dlbench.reports.compare.verdict import DEFAULT, Judgement, Rule, Verdict, judge_pairs

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


@pytest.mark.slow
def test_the_same_test_fails_when_steps_are_pooled(
    corpus: Corpus, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {launch.seconds: launch.outcome.step_seconds() for launch in corpus.launches}

    def pooled(
        screened: tuple[Sequence[float], Sequence[float]],
        confirmed: tuple[Sequence[float], Sequence[float]],
        rule: Rule = DEFAULT,
    ) -> Judgement:
        sides = [[step for seconds in side for step in steps[seconds]] for side in screened]
        verdict = Verdict.REGRESSION if pooled_mann_whitney(*sides) else Verdict.NO_REGRESSION
        found = judge_pairs(*screened, rule)
        return Judgement(**{**vars(found), "verdict": verdict})

    monkeypatch.setattr(compare, "judge_stages", pooled)
    found = rates.alarms(by_the_product(corpus, random))
    with pytest.raises(AssertionError, match="false alarms"):
        assert_few_alarms(found)


@pytest.mark.slow
def test_the_quick_gate_says_what_the_product_says(corpus: Corpus, random: np.random.Generator) -> None:
    seen = set()
    for framework in corpus.frameworks:
        pairs = corpus.pairs(framework, "a", "b")
        assert one_after_another(pairs, gate) == one_after_another(pairs, quick_gate)
        for start in range(0, len(pairs), 5):
            # Some of these gates come to an end before their pairs do, some do not.
            chosen = exchanged([*pairs[start:], *pairs[: start // 2]], random)
            found = gate(chosen)
            assert found == quick_gate(chosen)
            seen.add(None if found is None else found.verdict)
        slower = corpus.pairs(framework, "a", "plus5")
        for seed in range(4):
            for each in (slower, calm(slower)):
                found, quick = (way(drawn(each, np.random.default_rng(seed))) for way in (gate, quick_gate))
                assert found == quick
                seen.add(found.verdict)
    assert {Verdict.NO_REGRESSION, Verdict.REGRESSION, Verdict.CONTENDED} <= seen


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


def test_more_extra_work_takes_longer(corpus: Corpus) -> None:
    for framework in corpus.frameworks:
        ratios = [rates.estimate(rates.effect_pairs(corpus, framework, label)).ratio for label in ("plus2", "plus10")]
        assert 1 < ratios[0] < ratios[1]


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


def test_where_every_pair_is_disturbed_the_verdict_is_contended(corpus: Corpus, random: np.random.Generator) -> None:
    kinds = {kind.name: kind for kind in noise.kinds_of_noise(corpus)}
    for name in ("only pairs with a disturbed launch", "candidate always disturbed, baseline never"):
        assert set(noise.verdicts_under(kinds[name], corpus, random, 20)) == {Verdict.CONTENDED}


def test_without_its_evidence_one_sided_noise_would_be_a_regression(
    corpus: Corpus, random: np.random.Generator
) -> None:
    # Else the test above would prove nothing: these launches are slow indeed.
    (kind,) = [kind for kind in noise.kinds_of_noise(corpus) if kind.name.endswith("candidate always disturbed")]
    found = noise.verdicts_under(kind, corpus, random, 20)
    assert found[Verdict.REGRESSION] > 0.9 * found.total()


def test_other_rules_raise_alarms_on_the_same_launches(corpus: Corpus, random: np.random.Generator) -> None:
    for rule in OTHER_RULES:
        if "one session" in rule.name or "Mann-Whitney" in rule.name:
            found = Rate()
            for framework in corpus.frameworks:
                pairs = corpus.pairs(framework, "a", "b")
                found += Rate.count(map(rule.alarm, from_everywhere(pairs, random, 100)))
            assert found.value > 20 * ALLOWED, rule.name


def test_the_median_rule_is_that_of_pytest_benchmark(corpus: Corpus) -> None:
    utils = pytest.importorskip("pytest_benchmark.utils")
    for field, rule in (("median", OTHER_RULES[1]), ("min", OTHER_RULES[2])):
        check = utils.parse_compare_fail(f"{field}:5%")
        for before, after in corpus.pairs(corpus.frameworks[0], "a", "b"):
            old, new = (
                {"median": float(np.median(steps)), "min": min(steps)}
                for steps in (before.outcome.step_seconds(), after.outcome.step_seconds())
            )
            assert rule.alarm([(before, after)]) == (check.fails(new, old) is not None)


def test_the_corpus_is_small_and_names_nobody() -> None:
    assert PACKED.stat().st_size < 1_500_000
    with gzip.open(PACKED, "rt", encoding="utf-8") as file:
        about = json.loads(file.readline())
    assert set(about) == {"network", "batch_size", "threads", "order", "products", "machine", "host"}
    assert not any("/" in text for text in about["machine"].values())


def test_packing_keeps_what_a_verdict_rests_on_and_gives_the_same_bytes_again(tmp_path: Path) -> None:
    raw, packed = tmp_path / "raw.jsonl", tmp_path / "packed.gz"
    threads = make.threads(1, 0.5, 0.8)._asdict()
    contention = make.contention(run_queue_seconds=0.2, involuntary_switches=3, throttled_seconds=None)._asdict()
    line = {"framework": "torch", "label": "a", "block": 3, "started": "2026-11-20T16:05:36.532+00:00", "status": "ok"}
    line |= {"samples_ns": [30000001, 31000002, 29000003], "threads": threads, "contention": contention}
    failed = line | {"label": "b", "status": "crashed", "samples_ns": []}
    lines = [json.dumps(each) for each in ({"network": "lstm32"}, line, failed)]
    raw.write_text("\n".join(lines) + '\n{"framework": "tor', encoding="utf-8")

    assert pack(raw, packed) == 1
    first = packed.read_bytes()
    pack(raw, packed)
    assert packed.read_bytes() == first

    (launch,) = read(packed).launches
    assert (launch.framework, launch.label, launch.block) == ("torch", "a", 3)
    assert launch.started.isoformat() == "2026-11-20T16:05:36.532000+00:00"
    assert launch.outcome.samples_ns == line["samples_ns"]
    assert launch.contention == Contention(**contention)
    assert launch.threads._asdict() == {**threads, "cpu_seconds_by_thread": None}
    assert launch.seconds == pytest.approx(0.030000001)
    assert launch.disturbed, "it waited for a third of the time it wanted to run"
    assert not launch.unseeing().disturbed
