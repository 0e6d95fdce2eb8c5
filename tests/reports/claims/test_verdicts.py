"""How figures become verdicts: by intervals, sizes, tests adjusted for their number, and
majorities."""

import math

import factory_of_records as make
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from records_of_claims import here, timed
from scipy.stats import ttest_ind

from dlbench.adapters.protocol import Status
from dlbench.reports.claims.claims import HOLDS, ClaimVerdict, answers, verdict
from dlbench.reports.claims.figures import Claimed, Question, value_question
from dlbench.reports.results.statistics import Summary, ratio, summarise

A6, A9 = "A6", "A9"
"""T(tensorflow) / T(torch) on LSTMs at 4 threads: above 1, about 12. T(8) / T(4) of TensorFlow:
below 1."""


def two_tools(tensorflow: float, torch: float, spread: float = 0.01) -> list[make.Record]:
    records = []
    for network in ("lstm32", "lstm64"):
        records += timed("tensorflow", tensorflow, network, threads=4, spread=spread)
        records += timed("torch", torch, network, threads=4, spread=spread)
    return records


@pytest.mark.parametrize(
    ("tensorflow", "spread", "expected"),
    [
        (12.0, 0.01, ClaimVerdict.REPRODUCES),
        (7.0, 0.01, ClaimVerdict.REPRODUCES),  # within a factor of 2 of 12
        (23.0, 0.01, ClaimVerdict.REPRODUCES),
        (25.0, 0.01, ClaimVerdict.IN_DIRECTION),
        (2.0, 0.01, ClaimVerdict.IN_DIRECTION),
        (0.5, 0.01, ClaimVerdict.DIFFERS),
        (1.01, 0.001, ClaimVerdict.INCONCLUSIVE),  # a difference of 1 % does not matter
        (1.3, 0.4, ClaimVerdict.INCONCLUSIVE),  # noise
    ],
)
def test_each_verdict_can_be_brought_about(
    tensorflow: float, spread: float, expected: ClaimVerdict
) -> None:
    evidence = here(A6, two_tools(tensorflow, 1.0, spread))
    assert evidence.verdict is expected
    assert (evidence.of, evidence.holds) == (2, 2 if expected in HOLDS else 0)


def test_wrong_mathematics_counts_for_nothing() -> None:
    wrong = make.outcome(
        [1.0] * 5, 4, status=Status.PARITY_FAILED, parity=make.parity("disagrees", "other weights")
    )
    where = {"framework": "torch", "network": "lstm32", "batch_size": 128, "threads": 4}
    evidence = here(
        A6, [*timed("tensorflow", 12.0, "lstm32", threads=4), make.record(result=wrong, **where)]
    )
    assert evidence.verdict is ClaimVerdict.NOT_MEASURED
    assert evidence.missing[0].missing == "the second: parity failed, other weights"


def summary(medians: tuple[float, ...]) -> Summary:
    return summarise([seconds] * 5 for seconds in medians)


LAUNCHES = st.lists(st.floats(0.5, 2.0), min_size=3, max_size=5).map(tuple)


@given(over=LAUNCHES, under=LAUNCHES, bound=st.sampled_from([0.5, 1.4, 2.0, 3.0]))
@examples(60)
def test_one_test_is_welchs_t_against_the_bound(
    over: tuple[float, ...], under: tuple[float, ...], bound: float
) -> None:
    numerator, denominator = summary(over), summary(under)
    quotient = ratio(numerator, denominator)
    (answer,) = answers([Question("it", Claimed(least=bound), quotient, (numerator, denominator))])
    shifted, logs = np.log(over) - math.log(bound), np.log(under)
    if min(np.ptp(shifted), np.ptp(logs)) < 1e-3:
        return
    p = ttest_ind(shifted, logs, equal_var=False).pvalue
    expected = ClaimVerdict.REPRODUCES if quotient.value > bound else ClaimVerdict.DIFFERS
    assert answer is (expected if p < 0.05 else ClaimVerdict.INCONCLUSIVE)


def test_tests_are_adjusted_for_their_number() -> None:
    numerator, denominator = summary((1.10, 1.16, 1.22)), summary((1.0, 1.04, 1.08))
    p = ttest_ind(
        np.log(numerator.launch_medians), np.log(denominator.launch_medians), equal_var=False
    ).pvalue
    assert 0.025 < p < 0.05
    question = Question(
        "it", Claimed(least=1.0), ratio(numerator, denominator), (numerator, denominator)
    )
    assert answers([question]) == [ClaimVerdict.REPRODUCES]
    assert answers([question] * 2) == [ClaimVerdict.INCONCLUSIVE] * 2
    # What has no test takes nothing from one that has.
    assert answers([question, value_question("x", 2.0, Claimed(least=1.0))]) == [
        ClaimVerdict.REPRODUCES,
        ClaimVerdict.REPRODUCES,
    ]


@given(
    value=st.floats(0.01, 100),
    least=st.floats(0.01, 10),
    width=st.floats(0.01, 10),
    size=st.floats(0.1, 10),
)
@examples(60)
def test_a_value_without_an_interval_decides_alone(
    value: float, least: float, width: float, size: float
) -> None:
    most = least + width
    (answer,) = answers([value_question("it", value, Claimed(least, most, size))])
    if least < value < most:
        assert answer is (
            ClaimVerdict.REPRODUCES if 0.5 <= value / size <= 2 else ClaimVerdict.IN_DIRECTION
        )
    elif value < least or value > most:
        assert answer is ClaimVerdict.DIFFERS
    else:
        assert answer is ClaimVerdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, ClaimVerdict.NOT_MEASURED),
        ({ClaimVerdict.REPRODUCES: 4, ClaimVerdict.DIFFERS: 1}, ClaimVerdict.REPRODUCES),
        (
            {ClaimVerdict.REPRODUCES: 3, ClaimVerdict.IN_DIRECTION: 1, ClaimVerdict.DIFFERS: 1},
            ClaimVerdict.IN_DIRECTION,
        ),
        ({ClaimVerdict.REPRODUCES: 3, ClaimVerdict.DIFFERS: 1}, ClaimVerdict.PARTLY),
        ({ClaimVerdict.DIFFERS: 8, ClaimVerdict.REPRODUCES: 2}, ClaimVerdict.DIFFERS),
        ({ClaimVerdict.INCONCLUSIVE: 4, ClaimVerdict.REPRODUCES: 1}, ClaimVerdict.INCONCLUSIVE),
    ],
)
def test_four_fifths_of_the_figures_decide(
    counts: dict[ClaimVerdict, int], expected: ClaimVerdict
) -> None:
    assert verdict([answer for answer, count in counts.items() for _ in range(count)]) is expected
