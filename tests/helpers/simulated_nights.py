"""Nights with known truth: launches that differ, resemble their neighbours, are skewed and at times far off.

The three machines are made after measurements of such: with five launches of each side, what they report of identical
code (a 2.5 % rule calls 0, 10 and 25 % of comparisons a regression) follows from these deviations. A machine's own
shift moves both sides of a night; the order of the launches within a pair is drawn by lot.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

MACHINES = {"quiet": (0.005, 0.005), "ci": (0.025, 0.03), "bad": (0.055, 0.06)}
"""Standard deviation of a launch, and of a night's common shift, in log units."""
LAUNCHES = 5
RESEMBLANCE = 0.3
"""Lag-one correlation of launches after one another; 0.5 that of nights."""
DRIFT = 0.03
"""Of the machine over the whole series."""


def launches(
    rng: np.random.Generator, nights: int, machine: str = "ci", steps: Sequence[tuple[int, float]] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return log seconds (nights, launches) of baseline and candidate; a step moves the candidate by a log size."""
    deviation, shift = MACHINES[machine]
    skewed = (rng.gamma(4.0, 1.0, (nights, 2 * LAUNCHES)) - 4) / 2
    noise = np.empty_like(skewed)
    noise[:, 0] = skewed[:, 0]
    for place in range(1, 2 * LAUNCHES):
        noise[:, place] = RESEMBLANCE * noise[:, place - 1] + math.sqrt(1 - RESEMBLANCE**2) * skewed[:, place]
    noise *= deviation
    noise += (rng.random(noise.shape) < 0.01) * rng.exponential(0.05, noise.shape)
    common = np.empty(nights)
    fresh = rng.normal(size=nights)
    common[0] = fresh[0]
    for night in range(1, nights):
        common[night] = 0.5 * common[night - 1] + math.sqrt(0.75) * fresh[night]
    noise += (shift * common + DRIFT * np.linspace(0, 1, nights))[:, np.newaxis]
    first = rng.random((nights, LAUNCHES)) < 0.5
    baseline = np.where(first, noise[:, 0::2], noise[:, 1::2])
    candidate = np.where(first, noise[:, 1::2], noise[:, 0::2])
    for place, size in steps:
        candidate[place:] += size
    return baseline, candidate


def ratios(
    rng: np.random.Generator, nights: int, machine: str = "ci", steps: Sequence[tuple[int, float]] = ()
) -> np.ndarray:
    """Return the nights' log ratios."""
    baseline, candidate = launches(rng, nights, machine, steps)
    return np.asarray(candidate.mean(axis=1) - baseline.mean(axis=1))


def absolute(
    rng: np.random.Generator, nights: int, machine: str = "ci", steps: Sequence[tuple[int, float]] = ()
) -> np.ndarray:
    """Return the nights' log seconds, the machine's shifts and drift included."""
    return np.asarray(launches(rng, nights, machine, steps)[1].mean(axis=1))


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
        "contended_launches": 0,
        "quiet": True,
    }
    return pd.DataFrame({**columns, **changes})
