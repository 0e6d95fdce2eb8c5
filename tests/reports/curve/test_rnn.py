"""Lines, growth, crossings and threads of small recurrent networks, where the law behind their times is known."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples

from dlbench.reports.curve.curve import Knee
from dlbench.reports.curve.fits import crossing, fit_line
from dlbench.reports.curve.rnn import Series, growth, threads_pay
from dlbench.reports.curve.rnn_report import knee_words, threads_sentences, where
from dlbench.reports.curve.rnn_report import published as study_of_2017
from dlbench.reports.statistics import Summary, published, summarise

STEPS = (10, 20, 50, 100, 200)
UNITS = (10, 20, 50, 100, 200, 500)
SECONDS = st.floats(1e-6, 1.0)


def launches(seconds: float, deviation: float, random: np.random.Generator, count: int = 5) -> Summary:
    return summarise([[seconds * math.exp(each)] for each in random.normal(0, deviation, count)])


@given(SECONDS, SECONDS, st.integers(2, 5))
@examples(50)
def test_a_line_without_noise_is_found_again(fixed: float, per_step: float, points: int) -> None:
    fit = fit_line({steps: published(fixed + per_step * steps) for steps in STEPS[:points]})
    whole = fixed + per_step * STEPS[0]
    assert fit.fixed.value == pytest.approx(fixed, rel=1e-6, abs=1e-7 * whole)
    assert fit.per_step.value == pytest.approx(per_step, rel=1e-6, abs=1e-7 * whole)
    assert (fit.largest_residual is None) is (points == 2)
    assert (fit.fixed.low is None) is (points == 2)
    assert fit.largest_residual is None or fit.largest_residual < 1e-6


@pytest.mark.parametrize("steps", [STEPS, (20, 100)])
def test_intervals_of_lines_cover_the_truth(steps: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    hits = np.zeros(2)
    for _ in range(300):
        fit = fit_line({each: launches(1e-3 + 1e-5 * each, 0.02, random) for each in steps})
        for place, (found, true) in enumerate(((fit.fixed, 1e-3), (fit.per_step, 1e-5))):
            hits[place] += found.low <= true <= found.high
    assert np.all(hits / 300 > 0.91)


def test_the_study_of_2017_has_the_lines_worked_out_of_it_by_hand() -> None:
    """Seconds of 2000 updates and microseconds, by least squares of T itself."""
    expected = {("Figure 2", 50): (6.59, 162.4), ("Figure 3", 100): (1.21, 156.5), ("Figure 9", 200): (8.48, 730.0)}
    found = {
        (line.line.cell.mode, size.hidden): fit for line in study_of_2017().lines for size, fit in line.fits.items()
    }
    for which, (fixed, per_step) in expected.items():
        assert found[which].fixed.value * 2000 == pytest.approx(fixed, rel=0.07)
        assert found[which].per_step.value * 1e6 == pytest.approx(per_step, rel=0.02)


@given(SECONDS, st.floats(-2.0, 3.0))
@examples(50)
def test_an_exponent_is_found_again(seconds: float, exponent: float) -> None:
    found = growth(Series(20), {n: published(seconds * n**exponent) for n in UNITS})
    assert [each.hidden for each in found.sizes] == list(UNITS)
    for each in found.sizes[1:]:
        assert each.exponent.value == pytest.approx(exponent, abs=1e-9)
    first = next((n for n in UNITS if (n / 10) ** exponent > 1.1), None)
    assert found.knee == Knee(first, first, first)


def test_a_knee_says_how_early_and_how_late_it_may_be() -> None:
    random = np.random.default_rng(3)
    flat = {n: launches(1.0 if n < 100 else 1.12 if n == 100 else 3.0, 0.03, random, 4) for n in UNITS}
    knee = growth(Series(20), flat).knee
    assert knee.at in (100, 200)
    assert knee.earliest <= 100
    assert knee.latest == 200
    assert knee_words(knee) == f"{knee.at} ({knee.earliest} to 200)"
    assert knee_words(Knee(None, None, None)) == "none"


@given(st.floats(3.0, 1500.0), st.floats(0.2, 2.0), st.floats(-1.0, 1.0))
@examples(60)
def test_a_crossing_of_two_powers_is_found_again(at: float, gain: float, slope: float) -> None:
    assume(all(abs(math.log(at / n)) > 1e-6 for n in UNITS))
    first = {n: published((n / at) ** (slope + gain)) for n in UNITS}
    second = {n: published((n / at) ** slope) for n in UNITS}
    found = crossing(first, second)
    if at < UNITS[0]:
        assert (found.units, where(found)) == (0.0, "below 10")
    elif at > UNITS[-1]:
        assert (found.units, where(found)) == (math.inf, "above 500")
    else:
        assert found.units == pytest.approx(at, rel=1e-6)
    assert (found.low, found.high) == (None, None)


def test_intervals_of_crossings_cover_the_truth() -> None:
    random = np.random.default_rng(4)
    hits = 0
    for _ in range(200):
        first = {n: launches(n / 70, 0.05, random) for n in UNITS}
        second = {n: launches(1.0, 0.05, random) for n in UNITS}
        found = crossing(first, second)
        assert found.low <= found.units <= found.high
        hits += found.low <= 70 <= found.high
    assert 0.91 < hits / 200 <= 1.0


def test_the_study_of_2017_crosses_where_its_author_says() -> None:
    crossed = [each for each in study_of_2017().crossings if each.series == Series(20, 10)]
    (units,) = [each.at.units for each in crossed]
    assert units == pytest.approx(970, rel=0.01)
    assert {(each.first.name, each.second.name) for each in crossed} == {
        ("cpu of MacBook Pro 2016", "gpu of Tesla K80")
    }


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ((2.0, 1.5, 0.5), "use 1 thread below n_rec 50 (n_steps 20)"),
        ((0.5, 0.5, 0.5), "use 4 threads from n_rec 10 on, the smallest measured (n_steps 20)"),
        ((0.5, 1.5, 1.0), "use 1 thread up to n_rec 50, the largest measured (n_steps 20)"),
    ],
)
def test_from_how_many_units_on_threads_pay(ratios: tuple[float, ...], said: str) -> None:
    one = {n: published(1.0) for n in UNITS[:3]}
    more = {n: published(each) for n, each in zip(UNITS, ratios, strict=False)}
    line = study_of_2017().lines[0].line
    line = line._replace(cell=line.cell._replace(threads=4))
    (sentence,) = threads_sentences([threads_pay(line, Series(20), one, more)])
    assert sentence.endswith(f": {said}.")
