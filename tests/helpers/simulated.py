"""Launches and nights whose truth is known, and decision rules to try on them.

What a launch gives is the logarithm of its median seconds per step: the machine's level at that
moment (a random walk from launch to launch), the launch's own luck (memory layout, thread
placement), now and then somebody in the way (who always makes it slower), and the ratio of its
side. The two launches of a pair are neighbours in random order, as a gate makes them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dlbench.reports.results.verdict import (
    DEFAULT,
    Judgement,
    Rule,
    Verdict,
    deciding_look,
    judge_looks,
)

Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class Conditions:
    """How noisy a machine is; standard deviations are of logarithms."""

    launch: float
    """Of launches around the machine's level."""
    drift: float = 0.0
    """Of the step of the random walk from one launch to the next."""
    spikes: float = 0.0
    """Share of launches that somebody was in the way of."""
    spike: float = 0.1
    """Mean of what that adds (exponential)."""
    tails: float = np.inf
    """Degrees of freedom of Student's t that the launches' luck follows, scaled to the same
    standard deviation."""


QUIET = Conditions(0.01)
CI = Conditions(0.03, drift=0.005, spikes=0.02)
BAD = Conditions(0.04, drift=0.01, spikes=0.05, spike=0.3, tails=3.0)


def launches(
    rng: np.random.Generator,
    conditions: Conditions,
    simulations: int,
    pairs: int,
    ratio: float = 1.0,
) -> Array:
    """Return log-medians of shape (simulations, pairs, 2): baseline and candidate, side by side in
    random order."""
    shape = simulations, 2 * pairs
    if np.isfinite(conditions.tails):
        luck = rng.standard_t(conditions.tails, shape) / np.sqrt(
            conditions.tails / (conditions.tails - 2)
        )
    else:
        luck = rng.normal(size=shape)
    level = np.cumsum(rng.normal(0.0, conditions.drift, shape), axis=1)
    spikes = (rng.random(shape) < conditions.spikes) * rng.exponential(conditions.spike, shape)
    in_time = (level + conditions.launch * luck + spikes).reshape(simulations, pairs, 2)
    swapped = rng.random((simulations, pairs, 1)) < 0.5
    sides = np.where(swapped, in_time[:, :, ::-1], in_time)
    sides[:, :, 1] += np.log(ratio)
    return sides


class Decision(NamedTuple):
    """What a gate said of a cell, and what it cost."""

    judgement: Judgement
    pairs: int

    @property
    def alarm(self) -> bool:
        """Whether the cell would have failed a build."""
        return self.judgement.verdict is Verdict.REGRESSION


def gate(levels: Array, rule: Rule = DEFAULT) -> Decision:
    """Carry out a gate on a cell's pairs, shape (pairs, 2)."""
    baseline, candidate = np.exp(levels[:, 0]), np.exp(levels[:, 1])
    look = deciding_look(baseline, candidate, rule)
    return Decision(
        judge_looks(baseline, candidate, rule), len(baseline) if look is None else look.pairs
    )


def pairs_needed(rule: Rule = DEFAULT) -> int:
    """Return how many pairs `gate` may ask for."""
    return rule.looks[-1].pairs


# Nights: launches that resemble their neighbours, are skewed and at times far off. The three
# machines are made after measurements of such: with five launches of each side, what they report of
# identical code (a 2.5 % rule calls 0, 10 and 25 % of comparisons a regression) follows from these
# deviations. A machine's own shift moves both sides of a night; the order of the launches within a
# pair is drawn by lot.

MACHINES = {"quiet": (0.005, 0.005), "ci": (0.025, 0.03), "bad": (0.055, 0.06)}
"""Standard deviation of a launch, and of a night's common shift, in log units."""
LAUNCHES = 5
RESEMBLANCE = 0.3
"""Lag-one correlation of launches after one another; 0.5 that of nights."""
DRIFT = 0.03
"""Of the machine over the whole series."""


def nights(
    rng: np.random.Generator,
    count: int,
    machine: str = "ci",
    steps: Sequence[tuple[int, float]] = (),
) -> tuple[np.ndarray, np.ndarray]:
    """Return log seconds (nights, launches) of baseline and candidate; a step moves the candidate
    by a log size."""
    deviation, shift = MACHINES[machine]
    skewed = (rng.gamma(4.0, 1.0, (count, 2 * LAUNCHES)) - 4) / 2
    noise = np.empty_like(skewed)
    noise[:, 0] = skewed[:, 0]
    for place in range(1, 2 * LAUNCHES):
        noise[:, place] = (
            RESEMBLANCE * noise[:, place - 1] + math.sqrt(1 - RESEMBLANCE**2) * skewed[:, place]
        )
    noise *= deviation
    noise += (rng.random(noise.shape) < 0.01) * rng.exponential(0.05, noise.shape)
    common = np.empty(count)
    fresh = rng.normal(size=count)
    common[0] = fresh[0]
    for night in range(1, count):
        common[night] = 0.5 * common[night - 1] + math.sqrt(0.75) * fresh[night]
    noise += (shift * common + DRIFT * np.linspace(0, 1, count))[:, np.newaxis]
    first = rng.random((count, LAUNCHES)) < 0.5
    baseline = np.where(first, noise[:, 0::2], noise[:, 1::2])
    candidate = np.where(first, noise[:, 1::2], noise[:, 0::2])
    for place, size in steps:
        candidate[place:] += size
    return baseline, candidate


def ratios(
    rng: np.random.Generator,
    count: int,
    machine: str = "ci",
    steps: Sequence[tuple[int, float]] = (),
) -> np.ndarray:
    """Return the nights' log ratios."""
    baseline, candidate = nights(rng, count, machine, steps)
    return np.asarray(candidate.mean(axis=1) - baseline.mean(axis=1))


def absolute(
    rng: np.random.Generator,
    count: int,
    machine: str = "ci",
    steps: Sequence[tuple[int, float]] = (),
) -> np.ndarray:
    """Return the nights' log seconds, the machine's shifts and drift included."""
    return np.asarray(nights(rng, count, machine, steps)[1].mean(axis=1))


def started(night: int) -> str:
    """Return when a night began."""
    return (pd.Timestamp("2026-01-01T02:00:00+00:00") + pd.Timedelta(days=night)).isoformat()


def rows(cell: int, side: str, logs: np.ndarray, **changes: Any) -> pd.DataFrame:
    """Return what `Store.nights` gives of one cell and side from log seconds (nights, launches)."""
    nights, count = logs.shape
    columns = {
        "run": [f"run-{night:03d}" for night in range(nights)],
        "started": [started(night) for night in range(nights)],
        "machine": "m-one",
        "environment": "abc",
        "cell": cell,
        "side": side,
        "launches": count,
        "log_mean": logs.mean(axis=1),
        "log_variance": logs.var(axis=1, ddof=1) if count > 1 else math.nan,
        "disturbed": 0,
        "quiet": True,
    }
    return pd.DataFrame({**columns, **changes})
