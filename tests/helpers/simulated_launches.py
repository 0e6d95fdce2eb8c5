"""Launches whose truth is known, and decision rules to try on them.

What a launch gives is the logarithm of its median seconds per step: the machine's level at that moment (a random walk
from launch to launch), the launch's own luck (memory layout, thread placement), now and then somebody in the way (who
always makes it slower), and the ratio of its side. The two launches of a pair are neighbours in random order, as a gate
makes them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dlbench.reports.compare.verdict import (
    DEFAULT,
    Judgement,
    Rule,
    Screening,
    Verdict,
    judge_stages,
    next_look,
    screen,
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
    """Degrees of freedom of Student's t that the launches' luck follows, scaled to the same standard deviation."""
    session: float = 0.0
    """Of the machine's level from session to session, where a stored baseline is compared."""
    step: float = 0.02
    """Of steps around their launch."""
    slow_steps: float = 0.03
    """Share of steps that take longer, by `spike` on average."""


QUIET = Conditions(0.01)
CI = Conditions(0.03, drift=0.005, spikes=0.02, session=0.025)
BAD = Conditions(0.04, drift=0.01, spikes=0.05, spike=0.3, tails=3.0, session=0.04, step=0.04, slow_steps=0.1)


def launches(
    rng: np.random.Generator, conditions: Conditions, simulations: int, pairs: int, ratio: float = 1.0
) -> Array:
    """Return log-medians of shape (simulations, pairs, 2): baseline and candidate, side by side in random order."""
    shape = simulations, 2 * pairs
    if np.isfinite(conditions.tails):
        luck = rng.standard_t(conditions.tails, shape) / np.sqrt(conditions.tails / (conditions.tails - 2))
    else:
        luck = rng.normal(size=shape)
    level = np.cumsum(rng.normal(0.0, conditions.drift, shape), axis=1)
    spikes = (rng.random(shape) < conditions.spikes) * rng.exponential(conditions.spike, shape)
    in_time = (level + conditions.launch * luck + spikes).reshape(simulations, pairs, 2)
    swapped = rng.random((simulations, pairs, 1)) < 0.5
    sides = np.where(swapped, in_time[:, :, ::-1], in_time)
    sides[:, :, 1] += np.log(ratio)
    return sides


def steps(rng: np.random.Generator, conditions: Conditions, levels: Array, count: int = 20) -> Array:
    """Return the logarithms of ``count`` steps of each launch, along a last axis."""
    shape = (*levels.shape, count)
    slow = (rng.random(shape) < conditions.slow_steps) * rng.exponential(conditions.spike, shape)
    return levels[..., None] + rng.normal(0.0, conditions.step, shape) + slow


class Decision(NamedTuple):
    """What a gate said of a cell, and what it cost."""

    judgement: Judgement
    pairs: int
    """Both stages together."""

    @property
    def alarm(self) -> bool:
        """Whether the cell would have failed a build."""
        return self.judgement.verdict is Verdict.REGRESSION


def gate(levels: Array, rule: Rule = DEFAULT) -> Decision:
    """Carry out both stages on a cell's pairs, shape (pairs, 2): those after the last look are the confirming ones."""
    baseline, candidate = np.exp(levels[:, 0]), np.exp(levels[:, 1])
    look = next_look(0, rule)
    while (state := screen(baseline[:look], candidate[:look], rule)) is Screening.MORE:
        look = next_look(look, rule)
    start = rule.screen_looks[-1]
    stop = start + rule.confirm_pairs if state is Screening.SUSPECT else start
    judged = judge_stages((baseline[:look], candidate[:look]), (baseline[start:stop], candidate[start:stop]), rule)
    return Decision(judged, look + stop - start)


def pairs_needed(rule: Rule = DEFAULT) -> int:
    """Return how many pairs `gate` may ask for."""
    return rule.screen_looks[-1] + rule.confirm_pairs
