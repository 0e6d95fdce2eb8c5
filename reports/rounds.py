"""Launches that took turns: the seconds of a step of each, relative to the others of their group.

Each turn counts with the median of its samples. Where turns are short, those of a round follow one another within
tenths of a second, so that what slows the machine for longer slows them alike: a launch counts with the median over
rounds of its turn's distance from the round's level. That level is the mean over its turns of their logarithms, each
less its launch's distance. Both follow from one another, so they are computed in a few passes (Tukey's median polish,
with means for the rounds; Tukey 1977, Exploratory Data Analysis, chapter 11). For two launches it is the median over
rounds of the ratio of their turns.

Long steps whose turns were cut into slices alternated as fast, so that the same holds for them. Long steps in whole
turns are too far apart for that: a neighbour on the same core comes and goes between two of them.
Noise only adds time, so that the fastest turn of each launch is compared then (Chen and Revels 2016, arXiv 1608.04295).
In groups of twelve launches with steps of 0.2 to 1.4 s and four rounds on a busy virtual machine, launches deviated by
4.0 to 5.9 % so, and by 5.7 to 8.4 % by the median polish; pairs of steps of 3 to 50 ms by 2 to 12 % and by 1 to 7 %.

The level of all launches of a group is that of their medians: seconds are those of usual steps, and only their ratios
depend on the way to compare.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlbench.adapters.protocol import Outcome
from dlbench.reports.disturbance import disturbed_turns

FEWEST_SHARE = 0.5
"""Disturbed turns of a launch are left out as long as it has a turn in this share of its rounds."""
SHORT_TURN = 0.15
"""Seconds. Where turns last longer, on average, those of a round say little about one another."""
_PASSES = 40
"""Each halves what is left to the end."""

Floats = npt.NDArray[np.float64]


def took_turns(*outcomes: Outcome) -> bool:
    """Tell whether all of these launches took turns."""
    return all(outcome.turns for outcome in outcomes)


def seconds_in_turns(outcomes: Sequence[Outcome]) -> list[float]:
    """Return the seconds of a step of launches that took turns with one another, in their order."""
    logs = _by_round([seconds_by_round(outcome) for outcome in outcomes])
    lengths = [sum(outcome.samples_ns) * 1e-9 / len(outcome.turns) for outcome in outcomes]
    side_by_side = np.mean(lengths) <= SHORT_TURN or any(map(_sliced, outcomes))
    effects = _polished(logs) if side_by_side else np.nanmin(logs, axis=0)
    level = float(np.mean(np.nanmedian(logs, axis=0)))
    return [float(seconds) for seconds in np.exp(level + effects - np.mean(effects))]


def _sliced(outcome: Outcome) -> bool:
    """Tell whether turns of a launch were cut, so that those of a round took place at once."""
    return outcome.outside is not None and any(turn.slices > 1 for turn in outcome.outside.turns)


def _by_round(turns: Sequence[dict[int, float]]) -> Floats:
    """Return log seconds by round and launch, with NaN for missing turns.

    Rounds of a single launch are left out, unless a launch has no others.
    """
    rounds = sorted(set().union(*turns))
    logs = np.array([[np.log(of_launch.get(number, np.nan)) for of_launch in turns] for number in rounds])
    shared = logs[np.isfinite(logs).sum(axis=1) > 1]
    return shared if np.isfinite(shared).any(axis=0).all() else logs


def _polished(logs: Floats) -> Floats:
    """Return the distance of each launch from the levels of the rounds, by median polish."""
    levels = np.nanmean(logs, axis=1)
    effects = np.zeros(logs.shape[1])
    for _ in range(_PASSES):
        effects = np.nanmedian(logs - levels[:, np.newaxis], axis=0)
        levels = np.nanmean(logs - effects, axis=1)
    return effects


def seconds_by_round(outcome: Outcome) -> dict[int, float]:
    """Return the median seconds of a step in each round: those of its last turn in it, the disturbed ones left out.

    Where too few rounds are left the disturbed turns count too.
    """
    steps = np.asarray(outcome.step_seconds())
    parts = np.split(steps, np.cumsum(outcome.turns)[:-1])
    observed = [] if outcome.outside is None else outcome.outside.turns
    disturbed = disturbed_turns(observed)
    by_round: dict[int, float] = {}
    undisturbed: dict[int, float] = {}
    for index, samples in enumerate(parts):
        turn = observed[index] if index < len(observed) else None
        number = index if turn is None or turn.round < 0 else turn.round
        by_round[number] = float(np.median(samples))
        if turn is None or not disturbed[index]:
            undisturbed[number] = by_round[number]
    return undisturbed if len(undisturbed) >= FEWEST_SHARE * len(by_round) else by_round
