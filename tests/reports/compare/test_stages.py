from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples
from simulated import gate

from dlbench.reports.compare.verdict import (
    DEFAULT,
    POWER,
    Screening,
    Verdict,
    judge_pairs,
    judge_stages,
    next_look,
    screen,
    smallest_effect,
)

FIRST, LAST = DEFAULT.screen_looks[0], DEFAULT.screen_looks[-1]
ENOUGH = DEFAULT.confirm_pairs
Pairs = tuple[list[float], list[float]]
NONE: Pairs = ([], [])


def pairs(count: int, ratio: float, deviation: float = 0.005, seed: int = 0) -> Pairs:
    rng = np.random.default_rng(seed)
    before, after = np.exp(rng.normal(0, deviation, (2, count)))
    return list(before), list(ratio * after)


@pytest.mark.parametrize(
    ("screened", "state"),
    [
        (NONE, Screening.MORE),
        (pairs(FIRST - 1, 1.5), Screening.MORE),
        (pairs(FIRST, 1.1), Screening.SUSPECT),
        (pairs(FIRST, 1.0), Screening.CLEAR),
        (pairs(FIRST, 0.8), Screening.CLEAR),
        (pairs(FIRST, 1.01), Screening.CLEAR),
        (pairs(FIRST, 1.0, 0.2), Screening.MORE),
        (pairs(LAST, 1.0, 0.2), Screening.UNDECIDED),
    ],
)
def test_what_screening_says(screened: Pairs, state: Screening) -> None:
    assert screen(*screened) is state


some_pairs = st.builds(
    pairs, st.integers(0, LAST), st.floats(0.7, 1.5), st.sampled_from([0.003, 0.03, 0.2]), st.integers(0, 99)
)


@given(some_pairs, st.integers(0, 5), st.floats(0.5, 2))
def test_pairs_between_two_looks_change_nothing(screened: Pairs, more: int, ratio: float) -> None:
    before, after = screened
    count = len(before)
    following = next_look(count)
    assume(count >= LAST or count + more < following)
    extra = pairs(more, ratio)
    assert screen(before + extra[0], after + extra[1]) is screen(before, after)


@given(some_pairs)
def test_without_fresh_pairs_nothing_is_a_regression(screened: Pairs) -> None:
    assert judge_stages(screened, NONE).verdict is not Verdict.REGRESSION


suspects = st.builds(
    pairs,
    st.sampled_from(DEFAULT.screen_looks),
    st.floats(1.05, 1.5),
    st.sampled_from([0.002, 0.01]),
    st.integers(0, 99),
)


@examples(50)
@given(suspects, suspects, st.floats(0.9, 1.2), st.integers(0, 99))
def test_the_verdict_on_a_suspect_rests_on_fresh_pairs_alone(one: Pairs, other: Pairs, ratio: float, seed: int) -> None:
    confirmed = pairs(ENOUGH, ratio, 0.02, seed)
    assert screen(*one) is screen(*other) is Screening.SUSPECT
    found = [judge_stages(each, confirmed) for each in (one, other)]
    alone = judge_pairs(*confirmed, DEFAULT, DEFAULT.confirm_p_value)
    for each in found:
        assert replace(each, smallest_effect=None, sentence="") == replace(alone, smallest_effect=None, sentence="")


SUSPECT = pairs(FIRST, 1.1)


@pytest.mark.parametrize("count", [0, 1, ENOUGH - 1])
def test_an_unfinished_confirmation_confirms_nothing(count: int) -> None:
    found = judge_stages(SUSPECT, pairs(count, 1.5))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert f"suspect; {count} of {ENOUGH} confirming pairs measured" in found.sentence
    assert judge_stages(SUSPECT, pairs(ENOUGH, 1.5)).verdict is Verdict.REGRESSION


def test_measuring_on_after_the_confirmation_is_no_second_chance() -> None:
    before, after = pairs(ENOUGH, 1.0)
    more = pairs(60, 1.5)
    found = judge_stages(SUSPECT, (before + more[0], after + more[1]))
    assert found.verdict is Verdict.NO_REGRESSION
    assert found == judge_stages(SUSPECT, (before, after))


@pytest.mark.parametrize("deviation", [0.01, 0.03, 0.06])
def test_the_smallest_effect_of_both_stages_is_found_as_often_as_it_says(deviation: float) -> None:
    effect = smallest_effect(deviation)
    rng = np.random.default_rng(8)
    count, simulations = LAST + ENOUGH, 600
    logs = rng.normal(np.log1p(effect), deviation, (simulations, count))
    levels = np.stack([np.zeros_like(logs), logs], axis=2)
    hits = sum(gate(each).alarm for each in levels)
    assert POWER - 0.1 <= hits / simulations <= POWER + 0.12
