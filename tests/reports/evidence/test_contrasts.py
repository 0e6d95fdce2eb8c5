import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dlbench.reports.statistics import (
    ENOUGH_LAUNCHES,
    POWER,
    SIGNIFICANCE,
    Contrast,
    Ratio,
    Summary,
    adjust,
    contrast,
    holm,
    launches_to_decide,
    published,
    summarise,
    welch,
)

probabilities = st.lists(st.floats(0, 1), max_size=7)


def closure_of_bonferroni(values: Sequence[float]) -> list[float]:
    """Holm's procedure by its definition: a hypothesis falls when every set of hypotheses that holds it does.

    Marcus, Peritz and Gabriel 1976, with Bonferroni's test for each set.
    """
    places = range(len(values))
    sets = [s for size in range(1, len(values) + 1) for s in itertools.combinations(places, size)]
    return [max(min(1.0, len(s) * min(values[n] for n in s)) for s in sets if place in s) for place in places]


@given(probabilities)
def test_holm_is_the_closure_of_bonferronis_test(values: list[float]) -> None:
    assert holm(values) == pytest.approx(closure_of_bonferroni(values))


def summary(random: np.random.Generator, launches: int, centre: float = 1.0, deviation: float = 0.02) -> Summary:
    return summarise([[centre * math.exp(deviation * random.standard_normal())] * 3 for _ in range(launches)])


@given(st.integers(0, 10**6), st.integers(3, 8), st.integers(3, 8), st.floats(0.9, 1.1))
def test_the_p_value_says_what_the_interval_of_the_ratio_says(seed: int, m: int, n: int, shift: float) -> None:
    random = np.random.default_rng(seed)
    found = contrast(4, 2, summary(random, m, shift, 0.03), summary(random, n))
    assert (found.p_value < 0.05) == (not found.ratio.low <= 1.0 <= found.ratio.high)


def test_too_few_launches_give_no_p_value() -> None:
    random = np.random.default_rng(0)
    enough = summary(random, 3)
    assert welch(enough, summary(random, 2)) is None
    assert welch(published(1.0), enough) is None
    assert contrast(4, 2, enough, enough, test=False).p_value is None


def test_launches_without_spread_differ_or_do_not() -> None:
    one, two = summarise([[1.0]] * 3), summarise([[2.0]] * 3)
    assert welch(one, two) == 0.0
    assert welch(one, one) == 1.0


def of(value: float, low: float | None = None, high: float | None = None, p: float | None = None) -> Contrast:
    return Contrast(4, 2, Ratio(value, low, high, ""), p, p)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (of(1.5, p=0.01), "worse"),
        (of(1.5, 1.4, 1.6, p=0.06), "no clear difference"),
        (of(0.5, p=0.01), "better"),
        (of(0.5, 0.4, 0.6, p=0.06), "no clear difference"),
        (of(1.01, p=1e-9), "no clear difference"),
        (of(0.99, p=1e-9), "no clear difference"),
        # Untested: by the ratio, and its interval where there is one.
        (of(1.1, 1.01, 1.2), "worse"),
        (of(1.1, 0.99, 1.2), "no clear difference"),
        (of(1.01, 1.005, 1.015), "no clear difference"),
        (of(1.1), "worse"),
        (of(0.9, 0.8, 0.99), "better"),
        (of(0.9, 0.8, 1.01), "no clear difference"),
        (of(0.9), "better"),
    ],
)
def test_verdicts(found: Contrast, verdict: str) -> None:
    assert found.verdict == verdict


def test_only_what_was_tested_is_adjusted_and_counted() -> None:
    ratio = Ratio(1.5, 1.2, 1.8, "")
    given_to = [Contrast(4, 2, ratio, p) for p in (0.01, None, 0.04, 0.02)]
    found = adjust(given_to)
    assert [each.p_adjusted for each in found] == pytest.approx([0.03, None, 0.04, 0.04])
    assert [each.family for each in found] == [3, 0, 3, 3]
    assert [each.tested for each in found] == [True, False, True, True]
    assert adjust([]) == []


def test_equal_times_rarely_make_a_report_that_claims_anything() -> None:
    """Forty comparisons of equal things: 5 % of reports at most hold a false claim; unadjusted, most would."""
    random = np.random.default_rng(11)
    reports, false, unadjusted = 150, 0, 0
    for _ in range(reports):
        pairs = [contrast(4, 2, summary(random, 4), summary(random, 4)) for _ in range(40)]
        false += any((each.p_adjusted or 0.0) < SIGNIFICANCE for each in adjust(pairs))
        unadjusted += any((each.p_value or 0.0) < SIGNIFICANCE for each in pairs)
    assert false <= binom.ppf(0.999, reports, SIGNIFICANCE)
    assert unadjusted > reports / 2


def test_as_many_launches_as_named_tell_a_difference_of_that_size() -> None:
    random = np.random.default_rng(4)
    seen = summary(random, 4, 1.05, 0.03), summary(random, 4, 1.0, 0.03)
    of_one = [float(np.var(np.log(each.launch_medians), ddof=1)) for each in seen]
    needed = launches_to_decide(*seen)
    assert needed is not None
    difference = abs(math.log(seen[0].median / seen[1].median))
    deviation = math.sqrt(sum(of_one) / 2)
    told = 0
    for _ in range(300):
        one, other = summary(random, needed, math.exp(difference), deviation), summary(random, needed, 1.0, deviation)
        told += (contrast(4, 2, one, other).p_value or 0.0) < SIGNIFICANCE
    assert binom.ppf(0.001, 300, POWER - 0.05) <= told
    more = launches_to_decide(*seen, comparisons=20)
    assert more is None or more > needed
    assert launches_to_decide(summarise([[1.0001] * 5]), summarise([[1.0] * 5])) is None
    # From one launch what launches are assumed to differ by counts too.
    assert (launches_to_decide(summarise([[1.06] * 5]), summarise([[1.0] * 5])) or 0) >= ENOUGH_LAUNCHES


@given(st.floats(0.5, 2.0), st.floats(1.0, 1.5), st.none() | st.floats(0, 1))
def test_a_contrast_the_other_way_round_says_the_opposite(value: float, width: float, p_adjusted: float | None) -> None:
    opposite = {"worse": "better", "better": "worse", "no clear difference": "no clear difference"}
    found = Contrast(4, 2, Ratio(value, value / width, value * width, ""), p_adjusted, p_adjusted)
    assert found.swapped.verdict == opposite[found.verdict]
    assert (found.swapped.threads, found.swapped.against) == (2, 4)
