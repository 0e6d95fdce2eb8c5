"""A gate's looks: when they end the measurement, what they then say, and how often they may err."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import t as student
from simulated import gate

from dlbench.reports.results.judged import JUDGED, TIME
from dlbench.reports.results.statistics import POWER, CommonSpread
from dlbench.reports.results.verdict import (
    DEFAULT,
    EARLY_LOOK,
    NO_SPREADS,
    NO_TAILS,
    Spreads,
    Verdict,
    chosen,
    deciding_look,
    deviation_of,
    estimate_few_pairs,
    judge_looks,
    next_look,
    null_distribution,
    outlook,
    rule_of,
    smallest_effect,
    spreads_of,
)

LOOKS = [look.pairs for look in DEFAULT.looks]
FIRST, LAST = LOOKS[0], LOOKS[-1]
FIRST_ALARM = next(look.pairs for look in DEFAULT.looks if look.slower)
Pairs = tuple[list[float], list[float]]


def pairs(count: int, ratio: float, deviation: float = 0.005, seed: int = 0) -> Pairs:
    rng = np.random.default_rng(seed)
    before, after = np.exp(rng.normal(0, deviation, (2, count)))
    return list(before), list(ratio * after)


def test_the_levels_of_the_looks_add_up_to_what_is_promised() -> None:
    assert DEFAULT.false_alarms <= 0.0005
    assert DEFAULT.confidence_of_looks >= 0.95
    for look in DEFAULT.looks:
        if look.assumes_normal:
            assert look.slower == look.slower_tail == 0, (
                "the bound on false alarms rests on signs alone"
            )
            continue
        smallest = null_distribution(look.pairs)[0]
        assert look.bound >= smallest, "an interval without an end"
        for level in (look.slower, look.slower_tail):
            assert level == 0 or level >= smallest, "a level that no pairs can meet"


def test_of_identical_code_a_tail_is_as_rarely_called_slower_as_promised() -> None:
    """Tails deviate by 5 %: few cells are measured longer, and of 1,000 none is called slower (0.1
    expected)."""
    rng = np.random.default_rng(7)
    alarms, longer = 0, 0
    for _ in range(1000):
        medians = pairs(LAST, 1.0, 0.01, int(rng.integers(2**32)))
        tails = pairs(LAST, 1.0, 0.05, int(rng.integers(2**32)))
        decided = deciding_look(*medians, tails=tails)
        longer += decided != deciding_look(*medians)
        alarms += judge_looks(*medians, tails=tails).verdict is Verdict.REGRESSION
    assert alarms <= 2
    assert longer <= 0.1 * 1000


@pytest.mark.parametrize(
    ("ratio", "deviation", "ends", "verdict"),
    [
        (1.0, 0.005, FIRST, Verdict.NO_REGRESSION),
        (1.01, 0.005, 4, Verdict.NO_REGRESSION),
        (0.8, 0.005, FIRST_ALARM, Verdict.IMPROVEMENT),
        (0.98, 0.005, FIRST, Verdict.NO_REGRESSION),
        (1.06, 0.005, FIRST_ALARM, Verdict.REGRESSION),
        (1.92, 0.02, FIRST_ALARM, Verdict.REGRESSION),
        (0.9, 0.2, 16, Verdict.INCONCLUSIVE),
    ],
)
def test_a_look_ends_as_soon_as_the_pairs_allow(
    ratio: float, deviation: float, ends: int, verdict: Verdict
) -> None:
    decision = gate(np.log(np.array(pairs(LAST, ratio, deviation)).T))
    assert (decision.pairs, decision.judgement.verdict) == (ends, verdict)


def of_gates(
    simulations: int, cells: int, ratio: float, deviation: float, seed: int
) -> list[list[Pairs]]:
    """Return the first pairs of gates whose cells' deviations differ by half either way."""
    rng = np.random.default_rng(seed)
    deviations = deviation * np.exp(0.4 * rng.normal(size=(simulations, cells, 1)))
    after = ratio * np.exp(deviations * rng.normal(size=(simulations, cells, EARLY_LOOK)))
    before = [1.0] * EARLY_LOOK
    return [[(before, list(cell)) for cell in of_gate] for of_gate in after]


def passed_early(gates: list[list[Pairs]], together: bool) -> float:
    """Return the share of cells that the first look excludes a slowdown of."""
    passed = total = 0
    for cells in gates:
        spreads = spreads_of((cell, NO_TAILS) for cell in cells) if together else NO_SPREADS
        for cell in cells:
            passed += deciding_look(*cell, spreads=spreads) is not None
            total += 1
    return passed / total


def test_few_pairs_decide_alone_where_they_deviate_little() -> None:
    """A pair deviates by 1.3 %: both sides by 0.9 %."""
    same = [gate(np.log(np.array(pairs(LAST, 1.0, 0.009, seed)).T)) for seed in range(200)]
    assert sum(decision.pairs <= 4 for decision in same) >= 0.7 * len(same)
    slower = [
        gate(np.log(np.array(pairs(LAST, 1 + DEFAULT.tolerance, 0.009, seed)).T))
        for seed in range(200)
    ]
    passed = sum(decision.judgement.verdict is Verdict.NO_REGRESSION for decision in slower)
    assert passed <= 0.02 * len(slower)


def test_three_pairs_are_enough_where_the_other_cells_say_how_pairs_deviate() -> None:
    same = of_gates(150, 8, 1.0, 0.015, 1)
    assert passed_early(same, together=True) >= 0.8
    assert passed_early(same, together=False) <= 0.4
    assert passed_early(of_gates(150, 8, 1.0, 0.06, 2), together=True) <= 0.1


def test_a_cell_that_is_noisier_than_the_others_keeps_its_own_deviation() -> None:
    noisy = pairs(EARLY_LOOK, 1.0, 0.05, 3)
    estimate = estimate_few_pairs(*noisy, 0.95, CommonSpread(0.005**2, 6.0))
    half = student.ppf(0.975, 6 + EARLY_LOOK - 1) * deviation_of(*noisy) / EARLY_LOOK**0.5
    assert np.log(estimate.high / estimate.value) == pytest.approx(half)


@pytest.mark.parametrize("deviation", [0.01, 0.03])
def test_the_first_look_seldom_passes_a_slowdown(deviation: float) -> None:
    slower = of_gates(500, 8, 1 + DEFAULT.tolerance, deviation, 3)
    assert passed_early(slower, together=True) <= 0.01


def test_a_cell_whose_tail_looks_slower_is_measured_beyond_the_first_look() -> None:
    medians = pairs(EARLY_LOOK, 1.0, 0.002)
    spreads = Spreads(CommonSpread(0.003**2, 6.0), CommonSpread(0.02**2, 6.0))
    slow, same = pairs(EARLY_LOOK, 1.1, 0.02, 4), pairs(EARLY_LOOK, 1.0, 0.02, 4)
    assert deciding_look(*medians, tails=slow, spreads=spreads) is None
    assert deciding_look(*medians, tails=same, spreads=spreads) == DEFAULT.looks[0]


@pytest.mark.parametrize(
    ("count", "deviation", "why"),
    [
        (16, 0.2, "it does not look slower either (p "),
        (40, 0.08, "no more than 40 pairs are measured"),
    ],
)
def test_an_open_cell_says_why_it_gets_no_more_pairs(
    count: int, deviation: float, why: str
) -> None:
    for seed in range(200):
        judgement = judge_looks(*pairs(LAST, 1.05, deviation, seed))
        if judgement.verdict is Verdict.INCONCLUSIVE and judgement.baseline_launches == count:
            assert why in judgement.sentence
            return
    pytest.fail("no such cell in 200")


some_pairs = st.builds(
    pairs,
    st.integers(0, LAST),
    st.floats(0.7, 1.5),
    st.sampled_from([0.003, 0.03, 0.2]),
    st.integers(0, 99),
)


@given(some_pairs, st.integers(0, 12), st.floats(0.5, 2))
def test_pairs_between_two_looks_and_after_the_deciding_one_change_nothing(
    measured: Pairs, more: int, ratio: float
) -> None:
    before, after = measured
    decided = deciding_look(before, after)
    assume(decided is not None or len(before) + more < next_look(len(before)).pairs)
    extra = pairs(more, ratio)
    assert deciding_look(before + extra[0], after + extra[1]) == decided
    judgement, then = judge_looks(before, after), judge_looks(before + extra[0], after + extra[1])
    if decided is not None:
        assert then == judgement
    assert then.verdict is judgement.verdict


@given(some_pairs)
def test_before_a_look_decides_there_is_no_verdict(measured: Pairs) -> None:
    if deciding_look(*measured) is None:
        judgement = judge_looks(*measured)
        if judgement.verdict is Verdict.NO_REGRESSION:
            # Only the proof that it is faster is missing.
            assert judgement.ratio.value < 1 / (1 + DEFAULT.threshold)
            assert len(measured[0]) < FIRST_ALARM
            return
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert (
            f"{len(measured[0])} of at least {next_look(len(measured[0])).pairs} pairs measured"
            in judgement.sentence
        )


@given(some_pairs)
def test_verdict_and_interval_agree(measured: Pairs) -> None:
    assume(deciding_look(*measured) is not None)
    judgement = judge_looks(*measured)
    assert judgement.ratio is not None
    if judgement.verdict is Verdict.REGRESSION:
        assert judgement.ratio.is_above(1)
    if judgement.verdict is Verdict.IMPROVEMENT:
        assert judgement.ratio.is_below(1)
    if judgement.verdict is Verdict.NO_REGRESSION:
        assert judgement.ratio.is_below(1 + DEFAULT.tolerance)


@pytest.mark.parametrize("noise", ["heavy tails", "in steps", "resembling"])
def test_no_noise_that_falls_on_both_sides_alike_exceeds_the_levels(noise: str) -> None:
    """The signs are by lot, the sizes as unkind as one likes; without the estimate's own limit."""
    rng = np.random.default_rng([3, *noise.encode()])
    simulations, alarms = 20_000, 0
    shape = simulations, LAST
    sizes = {
        "heavy tails": lambda: np.abs(rng.standard_cauchy(shape)),
        "in steps": lambda: rng.integers(1, 4, shape) + 1e-6 * rng.random(shape),
        "resembling": lambda: np.exp(np.cumsum(rng.normal(0, 0.5, shape), axis=1)),
    }[noise]()
    positive = rng.random(shape) < 0.5
    called = np.zeros(simulations, dtype=bool)
    for look in DEFAULT.looks:
        ranks = np.argsort(np.argsort(sizes[:, : look.pairs], axis=1), axis=1) + 1
        against = (ranks * ~positive[:, : look.pairs]).sum(axis=1)
        called |= null_distribution(look.pairs)[against] <= look.slower
    alarms = int(called.sum())
    assert (
        alarms
        <= simulations * DEFAULT.false_alarms + 4 * (simulations * DEFAULT.false_alarms) ** 0.5
    )
    assert alarms > 0, "levels that nothing meets prove nothing"


@pytest.mark.parametrize("deviation", [0.03])
def test_identical_code_is_called_faster_as_rarely_as_slower(deviation: float) -> None:
    rng = np.random.default_rng(8)
    verdicts = [gate(rng.normal(0, deviation, (LAST, 2))).judgement.verdict for _ in range(1500)]
    called = {
        verdict: verdicts.count(verdict) for verdict in (Verdict.IMPROVEMENT, Verdict.REGRESSION)
    }
    # 0.75 are expected at most; a p-value of 1 / 64 alone would give 15 and more.
    assert max(called.values()) <= 4


@pytest.mark.parametrize("deviation", [0.01, 0.03])
def test_one_end_of_the_interval_misses_as_rarely_as_it_says_whenever_a_look_ends(
    deviation: float,
) -> None:
    rng = np.random.default_rng(5)
    missed = dict.fromkeys(("low", "high"), 0)
    simulations = 500
    for effect in (1.0, 1.03):
        for _ in range(simulations):
            logs = rng.normal(np.log(effect), deviation, LAST)
            judgement = judge_looks([1.0] * LAST, list(np.exp(logs)))
            missed["low"] += judgement.ratio.is_above(effect)
            missed["high"] += judgement.ratio.is_below(effect)
    for count in missed.values():
        assert count / (2 * simulations) <= 1 - DEFAULT.confidence_of_looks


@pytest.mark.parametrize("deviation", [0.01, 0.06])
def test_the_outlook_is_what_happens(deviation: float) -> None:
    effect = smallest_effect(deviation)
    assert outlook(deviation, effect)[0] == pytest.approx(POWER, abs=0.02)
    rng = np.random.default_rng(8)
    for slowdown in (0.0, effect):
        power, needed = outlook(deviation, slowdown)
        logs = rng.normal(np.log1p(slowdown), deviation, (500, LAST))
        decisions = [
            gate(logs_of_pairs) for logs_of_pairs in np.stack([np.zeros_like(logs), logs], axis=2)
        ]
        assert np.mean([decision.alarm for decision in decisions]) == pytest.approx(power, abs=0.06)
        assert np.mean([decision.pairs for decision in decisions]) == pytest.approx(
            needed, rel=0.08
        )


@pytest.mark.parametrize("quantities", range(1, 7))
def test_several_quantities_share_one_bound_on_false_alarms(quantities: int) -> None:
    further = tuple((name, 0.05) for name in list(JUDGED)[: quantities - 1])
    rule = replace(DEFAULT, further=further)
    assert len(rule.judged) == quantities
    alarms = [rule.of_quantity(name).false_alarms for name in rule.judged]
    assert sum(alarms) <= DEFAULT.false_alarms
    first = next(look for look in rule.of_quantity(TIME).looks if look.slower)
    assert first.slower >= null_distribution(first.pairs)[0], "a level that no pairs can meet"
    pairs_of_looks = [look.pairs for look in rule.of_quantity(TIME).looks]
    assert pairs_of_looks == sorted(set(pairs_of_looks))


def test_a_rule_is_read_back_with_the_quantities_it_judges() -> None:
    for rule in (
        DEFAULT,
        replace(DEFAULT, further=(("memory", 0.05),)),
        replace(DEFAULT, judges_time=False, further=(("memory", 0.025), ("faults", 0.3))),
    ):
        assert rule_of(chosen(rule)) == rule


def test_a_quantity_has_its_own_threshold_and_words() -> None:
    rule = replace(DEFAULT, further=(("memory", 0.2),)).of_quantity("memory")
    assert (rule.threshold, rule.tolerance) == (0.2, 0.4)
    before, after = [1.0] * LAST, [1.5 + 0.001 * place for place in range(LAST)]
    judgement = judge_looks(before, after, rule)
    assert judgement.verdict is Verdict.REGRESSION
    assert judgement.sentence.startswith("50.6")
    assert "% more" in judgement.sentence
