"""The whole rule of a gate on launches whose truth is known: false alarms and power."""

import numpy as np
import pytest
from scipy import stats
from simulated import BAD, CI, Array, Conditions, gate, launches, pairs_needed

from dlbench.reports.results.verdict import deciding_look

GOAL = 0.0005
"""False alarms per cell: 0.1 a night on 200 cells."""
CONDITIONS = {
    "1 %": Conditions(0.01, drift=0.005, spikes=0.02),
    "2 %": Conditions(0.02, drift=0.005, spikes=0.02),
    "3 %": CI,
    "bad": BAD,
}
NULL, POWERED = 6000, 200


def is_alarm(levels: Array) -> bool:
    """Tell whether a gate fails; only a look that may find a regression is judged: that halves the
    time."""
    look = deciding_look(np.exp(levels[:, 0]), np.exp(levels[:, 1]))
    return look is not None and look.slower > 0 and gate(levels).alarm


def alarms(name: str, ratio: float, simulations: int) -> int:
    rng = np.random.default_rng([1, *name.encode(), round(1000 * ratio)])
    return sum(map(is_alarm, launches(rng, CONDITIONS[name], simulations, pairs_needed(), ratio)))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "3 %" else pytest.mark.slow) for name in CONDITIONS],
)
def test_false_alarms_are_rare(name: str) -> None:
    false_alarms = alarms(name, 1.0, NULL)
    assert stats.binomtest(false_alarms, NULL, GOAL, alternative="greater").pvalue >= 0.001
    # What was seen bounds the rate from above too: a test that cannot fail would bound nothing.
    assert stats.binomtest(false_alarms, NULL).proportion_ci(0.95, "exact").high < 3 * GOAL


@pytest.mark.parametrize(
    ("name", "ratio", "power"),
    [("1 %", 1.05, 0.99), ("2 %", 1.05, 0.95), ("3 %", 1.05, 0.85), ("bad", 1.1, 0.85)],
)
def test_real_slowdowns_are_found(name: str, ratio: float, power: float) -> None:
    assert alarms(name, ratio, POWERED) / POWERED >= power
