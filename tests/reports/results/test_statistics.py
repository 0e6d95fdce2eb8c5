import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from dlbench.reports.results.statistics import (
    ENOUGH_LAUNCHES,
    LAUNCH_DEVIATION,
    LEAST_DEVIATION,
    POWER,
    SIGNIFICANCE,
    UNKNOWN_SPREAD,
    Contrast,
    Estimate,
    RatioVerdict,
    Summary,
    break_even,
    clearly_slower,
    combination,
    common_spread,
    contrast,
    deviation_of_launches,
    holm,
    launches_to_decide,
    launches_to_settle,
    ratio,
    summarise,
    summarise_launches,
    tied,
    welch,
    with_common_spread,
)

Launches = list[list[float]]


def launches_of(
    random: np.random.Generator,
    launches: int,
    steps: int = 20,
    median: float = 0.5,
    between: float = 0.02,
) -> Launches:
    """Steps with a launch effect, skewed noise and spikes: what a virtual machine gives; the true
    median is known."""
    effects = np.exp(between * random.standard_normal(launches))
    noise = np.exp(0.03 * random.standard_normal((launches, steps)))
    return [list(median * effect * row) for effect, row in zip(effects, noise, strict=True)]


def coverage(simulate: Callable[[np.random.Generator], Summary | Estimate], truth: float) -> float:
    """Return in how many of the simulated intervals the truth lies, as a share."""
    random = np.random.default_rng(1)
    simulated = [simulate(random) for _ in range(900)]
    return float(
        np.mean(
            [
                (estimate.low or math.inf) <= truth <= (estimate.high or -math.inf)
                for estimate in simulated
            ]
        )
    )


def test_the_interval_within_a_launch_does_not_cover_another_and_says_so() -> None:
    assert coverage(lambda random: summarise(launches_of(random, 1, steps=100)), 0.5) < 0.5
    summary = summarise(launches_of(np.random.default_rng(1), 1))
    assert not summary.covers_launches
    assert "within one launch" in summary.method
    assert "within 2 launches" in summarise(launches_of(np.random.default_rng(1), 2)).method


@pytest.mark.parametrize("counts", [(20, 20), (4, 200), (200, 4), (1, 50), (1, 1)])
def test_two_launches_that_disagree_count_alike_and_their_interval_spans_both(
    counts: tuple[int, int],
) -> None:
    random = np.random.default_rng(5)
    fast, slow = (
        median * np.exp(0.02 * random.standard_normal(n))
        for median, n in zip((2.77e-3, 14.4e-3), counts, strict=True)
    )
    summary = summarise([fast, slow])
    assert summary.median == pytest.approx(math.sqrt(2.77e-3 * 14.4e-3), rel=0.05)
    assert summary.low is not None
    assert summary.high is not None
    assert summary.low <= np.median(fast)
    assert summary.high >= np.median(slow)
    # A ratio to a steady cell is no more certain than the two launches.
    against = ratio(summary, summarise([[2.77e-3] * 20] * 2))
    assert against.low is not None
    assert against.low < 1.0
    assert against.high > 5.0


def test_two_launches_that_agree_have_a_narrow_interval_that_covers_what_they_measured() -> None:
    summaries = [
        summarise(launches_of(np.random.default_rng(seed), 2, steps=40, between=0.0))
        for seed in range(200)
    ]
    widths = [math.log((summary.high or math.inf) / (summary.low or 1.0)) for summary in summaries]
    assert np.median(widths) < 0.05
    assert (
        np.mean(
            [(summary.low or math.inf) <= 0.5 <= (summary.high or 0.0) for summary in summaries]
        )
        >= 0.95
    )


def test_the_intervals_of_several_launches_are_scipys_of_student_and_welch() -> None:
    random = np.random.default_rng(3)
    slower, faster = (
        summarise(launches_of(random, 4, median=0.8)),
        summarise(launches_of(random, 6)),
    )
    logs_slower, logs_faster = np.log(slower.launch_medians), np.log(faster.launch_medians)
    for interval, test in (
        (slower, scipy.stats.ttest_1samp(logs_slower, 0.0)),
        (ratio(slower, faster), scipy.stats.ttest_ind(logs_slower, logs_faster, equal_var=False)),
    ):
        assert (interval.low, interval.high) == pytest.approx(
            np.exp(test.confidence_interval(0.95))
        )
    assert (slower.median, slower.coverage) == (pytest.approx(math.exp(logs_slower.mean())), 0.95)


@pytest.mark.parametrize(("slower_launches", "faster_launches"), [(1, 1), (1, 5)])
def test_the_interval_of_a_ratio_of_few_launches_covers_as_it_says(
    slower_launches: int, faster_launches: int
) -> None:
    def measured(random: np.random.Generator) -> Estimate:
        slower, faster = (
            replace(
                summarise(launches_of(random, count, median=median, between=0.05)),
                launch_deviation=0.05,
            )
            for count, median in ((slower_launches, 0.8), (faster_launches, 0.5))
        )
        return ratio(slower, faster)

    assert 0.94 <= coverage(measured, 1.6) <= 0.98


def test_a_machines_own_cells_show_how_launches_deviate() -> None:
    random = np.random.default_rng(5)
    cells = [summarise(launches_of(random, 5, steps=5, between=0.06)) for _ in range(300)]
    assert deviation_of_launches(cells) == pytest.approx(0.06, rel=0.1)
    quiet = [summarise(launches_of(random, 5, steps=5, between=0.0)) for _ in range(300)]
    assert deviation_of_launches(quiet) == LEAST_DEVIATION
    few = [summarise(launches_of(random, 2)) for _ in range(100)]
    assert deviation_of_launches([*cells[:9], *few]) == LAUNCH_DEVIATION
    assert deviation_of_launches(cells[:10]) != LAUNCH_DEVIATION


@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_intervals_of_cells_that_share_their_variance_cover_as_they_say_and_are_narrower(
    factor: float,
) -> None:
    random = np.random.default_rng(9)
    covered, narrower = [], []
    for _ in range(60):
        deviations = 0.02 * factor ** random.standard_normal(24)
        alone = [
            summarise(launches_of(random, 3, steps=9, median=1.0, between=deviation))
            for deviation in deviations
        ]
        shared = with_common_spread(alone)
        covered += [cell.low <= 1.0 <= cell.high for cell in shared if cell.low and cell.high]
        narrower += [np.log(cell.high / cell.low) for cell in shared if cell.low and cell.high]
        narrower += [-np.log(cell.high / cell.low) for cell in alone if cell.low and cell.high]
    assert np.mean(covered) == pytest.approx(0.955, abs=0.02)
    assert sum(narrower) < 0


def test_cells_too_few_or_too_different_share_nothing() -> None:
    random = np.random.default_rng(9)
    alike = [float(variance) for variance in random.chisquare(2, 30) / 2]
    assert common_spread(alike, [2.0] * 30).freedom > 4
    assert common_spread(alike[:9], [2.0] * 9) == UNKNOWN_SPREAD
    different = [variance * 10.0 ** random.uniform(-6, 6) for variance in alike]
    assert common_spread(different, [2.0] * 30) == UNKNOWN_SPREAD


@pytest.mark.parametrize(("apart", "deviation"), [(1.0, 0.01), (1.005, 0.01), (1.05, 0.03)])
def test_as_many_launches_as_settle_a_comparison_do_so_most_of_the_time(
    apart: float, deviation: float
) -> None:
    random = np.random.default_rng(3)

    def pair(launches: int) -> tuple[Summary, Summary]:
        drawn = np.exp(deviation * random.standard_normal((2, launches)))
        slower = summarise([[apart * seconds] for seconds in drawn[0]])
        faster = summarise([[seconds] for seconds in drawn[1]])
        return slower, faster

    needed = launches_to_settle(*pair(4000))
    assert needed is not None
    pairs = [pair(needed) for _ in range(150)]
    settled = [tied(first, second) or clearly_slower(first, second) for first, second in pairs]
    assert 0.7 < np.mean(settled) < 0.95


@pytest.mark.parametrize(
    ("steps", "expected", "method"),
    [
        ([2.0], (2.0, None, None), "a single step, no interval"),
        ([1.0, 2.0, 3.0, 4.0, 5.0], (3.0, 1.0, 5.0), "94% order statistics"),
        # The 6th and 15th smallest of 20 (e.g. Conover's tables).
        ([float(value) for value in range(1, 21)], (10.5, 6.0, 15.0), "96% order statistics"),
    ],
)
def test_few_steps_have_the_interval_of_the_tables_and_say_how_much_it_covers(
    steps: list[float], expected: tuple[float | None, ...], method: str
) -> None:
    summary = summarise([steps])
    assert (summary.median, summary.low, summary.high) == expected
    assert summary.method.startswith(method)


def test_launches_without_spread_have_a_ratio_without_spread() -> None:
    twice, once = summarise([[2.0]] * 3), summarise([[1.0]] * 3)
    double = ratio(twice, once)
    assert double.value == pytest.approx(2.0)
    assert double.low == double.high == double.value
    assert (welch(once, twice), welch(once, once)) == (0.0, 1.0)


probabilities = st.lists(st.floats(0, 1), max_size=7)


def closure_of_bonferroni(values: Sequence[float]) -> list[float]:
    """Holm's procedure by its definition: a hypothesis falls when every set of hypotheses that
    holds it does.

    Marcus, Peritz and Gabriel 1976, with Bonferroni's test for each set.
    """
    places = range(len(values))
    adjusted = [0.0] * len(values)
    for size in range(1, len(values) + 1):
        for hypotheses in itertools.combinations(places, size):
            smallest = min(values[place] for place in hypotheses)
            p_of_set = min(1.0, size * smallest)
            for place in hypotheses:
                adjusted[place] = max(adjusted[place], p_of_set)
    return adjusted


@given(probabilities)
def test_holm_is_the_closure_of_bonferronis_test(values: list[float]) -> None:
    assert holm(values) == pytest.approx(closure_of_bonferroni(values))


def summary(
    random: np.random.Generator, launches: int, centre: float = 1.0, deviation: float = 0.02
) -> Summary:
    return summarise(
        [[centre * math.exp(deviation * random.standard_normal())] * 3 for _ in range(launches)]
    )


def of(
    value: float, low: float | None = None, high: float | None = None, p: float | None = None
) -> Contrast:
    return Contrast(4, 2, Estimate(value, low, high, ""), p, p)


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (of(1.5, p=0.01), RatioVerdict.SLOWER),
        (of(1.5, 1.4, 1.6, p=0.06), RatioVerdict.INCONCLUSIVE),
        (of(1.01, p=1e-9), RatioVerdict.INCONCLUSIVE),
        # Untested: by the ratio, and its interval where there is one.
        (of(1.1, 1.01, 1.2), RatioVerdict.SLOWER),
        (of(1.1, 0.99, 1.2), RatioVerdict.INCONCLUSIVE),
        (of(1.01, 1.005, 1.015), RatioVerdict.SAME),
        (of(1.01, 0.97, 1.015), RatioVerdict.INCONCLUSIVE),
        (of(1.1), RatioVerdict.SLOWER),
        (of(0.9, 0.8, 0.99), RatioVerdict.FASTER),
    ],
)
def test_verdicts(comparison: Contrast, verdict: RatioVerdict) -> None:
    assert comparison.verdict is verdict


def test_as_many_launches_as_named_tell_a_difference_of_that_size() -> None:
    random = np.random.default_rng(4)
    measured = summary(random, 4, 1.05, 0.03), summary(random, 4, 1.0, 0.03)
    variances = [float(np.var(np.log(side.launch_medians), ddof=1)) for side in measured]
    needed = launches_to_decide(*measured)
    assert needed is not None
    difference = abs(math.log(measured[0].median / measured[1].median))
    deviation = math.sqrt(sum(variances) / 2)
    significant = 0
    for _ in range(300):
        slower, faster = (
            summary(random, needed, math.exp(difference), deviation),
            summary(random, needed, 1.0, deviation),
        )
        significant += (contrast(4, 2, slower, faster).p_value or 0.0) < SIGNIFICANCE
    assert binom.ppf(0.001, 300, POWER - 0.05) <= significant
    more = launches_to_decide(*measured, comparisons=20)
    assert more is None or more > needed
    assert launches_to_decide(summarise([[1.0001] * 5]), summarise([[1.0] * 5])) is None
    # From one launch what launches are assumed to differ by counts too.
    assert (
        launches_to_decide(summarise([[1.06] * 5]), summarise([[1.0] * 5])) or 0
    ) >= ENOUGH_LAUNCHES


@given(st.floats(0.5, 2.0), st.floats(1.0, 1.5), st.none() | st.floats(0, 1))
def test_a_contrast_the_other_way_round_says_the_opposite(
    value: float, width: float, p_adjusted: float | None
) -> None:
    opposite = {
        RatioVerdict.SLOWER: RatioVerdict.FASTER,
        RatioVerdict.FASTER: RatioVerdict.SLOWER,
        RatioVerdict.SAME: RatioVerdict.SAME,
        RatioVerdict.INCONCLUSIVE: RatioVerdict.INCONCLUSIVE,
    }
    comparison = Contrast(
        4, 2, Estimate(value, value / width, value * width, ""), p_adjusted, p_adjusted
    )
    assert comparison.swapped.verdict == opposite[comparison.verdict]
    assert (comparison.swapped.threads, comparison.swapped.against) == (2, 4)


def known(value: float, down: float, up: float | None = None) -> Summary:
    """Return a time of several launches with an interval that reaches so far down and up."""
    ends = value - down, value + (down if up is None else up)
    return replace(summarise([[value]] * ENOUGH_LAUNCHES), median=value, low=ends[0], high=ends[1])


SHARES = st.floats(0.001, 0.3)
"""Of a time, by which its interval reaches down or up."""


@given(
    st.floats(0.1, 5.0),
    st.floats(0.1, 60.0),
    st.floats(0.01, 1.0),
    st.floats(0.1, 0.99),
    st.tuples(*[SHARES] * 4),
)
def test_a_break_even_with_even_intervals_is_fiellers(
    start: float, later: float, step: float, share: float, widths: tuple[float, float, float, float]
) -> None:
    times = (start + later, share * step, start, step)
    reach = [time * width for time, width in zip(times, widths, strict=True)]
    even = break_even(*(known(time, down) for time, down in zip(times, reach, strict=True)))
    gain, of_starts, of_steps = (
        step - share * step,
        math.hypot(reach[0], reach[2]),
        math.hypot(reach[1], reach[3]),
    )
    if of_steps >= gain:
        assert (even.steps, even.high) == (None, None)
        return
    # Fieller 1954, without a covariance; the first step belongs to the start.
    g = (of_steps / gain) ** 2
    half = math.sqrt(of_starts**2 * (1 - g) + (later / gain * of_steps) ** 2) / gain
    low, high = ((later / gain + sign * half) / (1 - g) for sign in (-1, 1))
    assert even.steps == pytest.approx(1 + later / gain)
    assert even.low == pytest.approx(1 + max(0.0, low), rel=1e-6)
    assert even.high == pytest.approx(1 + high, rel=1e-6)


@given(st.lists(st.tuples(st.floats(0.01, 10.0), SHARES, SHARES), min_size=4, max_size=4))
def test_within_a_break_even_neither_way_clearly_takes_less(
    given_to: list[tuple[float, float, float]],
) -> None:
    times = [known(time, time * down, time * up) for time, down, up in given_to]
    other_start, start = sorted(times[:2], key=lambda start: start.median)
    step, other_step = times[2:]
    even = break_even(start, step, other_start, other_step)

    def more(steps: float) -> tuple[float, float]:
        further = steps - 1
        _, *ends = combination(
            (1, start), (further, step), (-1, other_start), (-further, other_step)
        )
        return ends[0], ends[1]

    if even.low is None or even.low > 1:
        assert more(1 + 0.99 * ((even.low or 1e6) - 1))[0] > 0
    if even.high is None:
        # However many steps: it never clearly takes less.
        assert all(more(1 + 10.0**power)[1] >= 0 for power in range(8))
        return
    assert even.steps is not None
    assert even.low is not None
    assert even.low <= even.steps <= even.high
    assert more(even.high * 1.01)[1] < 0
    if even.high > 1:
        low, high = more(1 + 0.99 * (even.high - 1) + 0.01 * (even.low - 1))
        assert low <= 0 <= high


def test_what_a_launch_gives_once_has_an_interval_from_three_launches_on() -> None:
    assert summarise_launches([]) is None
    few, several = summarise_launches([2.0, 8.0]), summarise_launches([2.0, 4.0, 8.0])
    assert few is not None
    assert several is not None
    assert (few.low, few.high, few.launches) == (None, None, 2)
    assert several.median == pytest.approx(4.0)
    assert several.low is not None
    assert several.low < 2.0
