"""The whole two-stage rule on launches whose truth is known: false alarms, power, coverage, cost; mutants caught."""

from functools import cache

import numpy as np
import pytest
from corpus import mann_whitney
from scipy import stats
from simulated import BAD, CI, Conditions, Decision, gate, launches, pairs_needed, steps

from dlbench.reports.compare.verdict import DEFAULT

GOAL = 0.0005
"""False alarms per cell: 0.1 a night on 200 cells."""
CONDITIONS = {
    "1 %": Conditions(0.01, drift=0.005, spikes=0.02),
    "2 %": Conditions(0.02, drift=0.005, spikes=0.02),
    "3 %": CI,
    "bad": BAD,
}
NULL, POWERED = 6000, 500
USUAL_CONDITIONS = [pytest.param(each, marks=() if each == "3 %" else pytest.mark.slow) for each in CONDITIONS]


@cache
def decided(name: str, ratio: float, simulations: int) -> list[Decision]:
    rng = np.random.default_rng([1, *name.encode(), round(1000 * ratio)])
    return [gate(cell) for cell in launches(rng, CONDITIONS[name], simulations, pairs_needed(), ratio)]


def alarms(name: str, ratio: float, simulations: int) -> int:
    return sum(each.alarm for each in decided(name, ratio, simulations))


def exceeds(count: int, of: int, rate: float) -> bool:
    """Whether so many in so many prove (one-sided, 99.9 %) that they come more often than this."""
    return bool(stats.binomtest(count, of, rate, alternative="greater").pvalue < 0.001)


@pytest.mark.parametrize("name", USUAL_CONDITIONS)
def test_false_alarms_are_rare(name: str) -> None:
    found = alarms(name, 1.0, NULL)
    assert not exceeds(found, NULL, GOAL)
    # What was seen bounds the rate from above too: a test that cannot fail would bound nothing.
    assert stats.binomtest(found, NULL).proportion_ci(0.95, "exact").high < 3 * GOAL


@pytest.mark.parametrize(
    ("name", "ratio", "power"),
    [("1 %", 1.05, 0.99), ("2 %", 1.05, 0.95), ("3 %", 1.05, 0.85), ("3 %", 1.1, 0.99), ("bad", 1.1, 0.85)],
)
def test_real_slowdowns_are_found(name: str, ratio: float, power: float) -> None:
    assert alarms(name, ratio, POWERED) / POWERED >= power


@pytest.mark.parametrize("name", USUAL_CONDITIONS)
def test_the_confirming_interval_covers_what_it_says(name: str) -> None:
    """Of the cells that were suspect: screening chose them, and their fresh pairs do not know it."""
    found = [each.judgement for each in decided(name, 1.1, 1500) if each.pairs > DEFAULT.screen_looks[-1]]
    assert len(found) > 1300
    covered = sum((each.low or 0) <= 1.1 <= (each.high or 0) for each in found)
    assert 0.93 <= covered / len(found) <= 0.97


@pytest.mark.parametrize("name", USUAL_CONDITIONS)
def test_the_pooled_mutant_is_caught(name: str) -> None:
    """Mann and Whitney's test over all steps, as if they were independent, fails the bound that the rule keeps."""
    rng = np.random.default_rng(3)
    simulations = 100
    levels = launches(rng, CONDITIONS[name], simulations, 5)
    found = sum(mann_whitney(each[:, 0], each[:, 1]) for each in steps(rng, CONDITIONS[name], levels))
    assert exceeds(found, simulations, GOAL)
    assert found / simulations > 0.05
