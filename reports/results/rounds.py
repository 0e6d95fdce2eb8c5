"""Launches that took turns: the seconds of a step of each, relative to the others of their group.

Each turn counts with the median of its samples. Turns of a round, or the slices of them, alternate
within tenths of a second, so that what slows the machine for longer slows them alike: a launch
counts with the middle over rounds of its turn's distance from the round's level. That level is the
mean over its turns of their logarithms, each less its launch's distance. Both follow from one
another, so they are computed in a few passes (Tukey's median polish, with means for the rounds;
Tukey 1977, Exploratory Data Analysis, chapter 11). For two launches it is the middle over rounds of
the ratio of their turns.

The middle of many rounds is their median: short turns have spikes. Long steps have few rounds, each
of them a mean over many slices, and a median of few values is noisy: their middle is the median of
the means of all pairs of values (Hodges and Lehmann 1963, Annals of Mathematical Statistics 34,
598-611), which one outlier does not move far either. The study is in turns-and-memory.md.

The level of all launches of a group is that of their medians: seconds are those of usual steps, and
only their ratios depend on the way to compare.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlbench.reports.results.disturbance import disturbed_turns
from dlbench.reports.results.outcome import Outcome, TurnObservation

FEWEST_SHARE = 0.5
"""Disturbed turns of a launch are left out as long as it has a turn in this share of its rounds."""
FEW_ROUNDS = 10
"""So many or fewer have the median of means of pairs as their middle."""
_PASSES = 40
"""Passes at most, until distances change by less than `_SETTLED`."""
_SETTLED = 1e-9

Floats = npt.NDArray[np.float64]


def took_turns(*outcomes: Outcome) -> bool:
    """Tell whether all of these launches took turns."""
    return all(outcome.turns for outcome in outcomes)


def seconds_in_turns(outcomes: Sequence[Outcome]) -> list[float]:
    """Return the seconds of a step of launches that took turns with one another, in their order."""
    logs = _by_round([seconds_by_round(outcome) for outcome in outcomes])
    distances = _distances(logs)
    level = float(np.mean(np.nanmedian(logs, axis=0)))
    return [float(seconds) for seconds in np.exp(level + distances - np.mean(distances))]


def _by_round(turns: Sequence[dict[int, float]]) -> Floats:
    """Return log seconds by round and launch, with NaN for missing turns.

    Rounds of a single launch are left out, unless a launch has no others.
    """
    rounds = sorted(set().union(*turns))
    logs = np.full((len(rounds), len(turns)), np.nan)
    for launch, seconds_by_number in enumerate(turns):
        for row, number in enumerate(rounds):
            if number in seconds_by_number:
                logs[row, launch] = np.log(seconds_by_number[number])
    shared: Floats = logs[np.isfinite(logs).sum(axis=1) > 1]
    if np.isfinite(shared).any(axis=0).all():
        return shared
    return logs


def _distances(logs: Floats) -> Floats:
    """Return the distance of each launch from the levels of the rounds."""
    distances = np.zeros(logs.shape[1])
    for _ in range(_PASSES):
        before = distances
        levels = np.nanmean(logs - distances, axis=1)
        launches = (logs - levels[:, np.newaxis]).T
        distances = np.array([middle(values) for values in launches])
        if np.abs(distances - before).max() < _SETTLED:
            break
    return distances


def middle(values: Floats) -> float:
    """Return the middle of a launch's rounds; NaN are left out."""
    finite = values[np.isfinite(values)]
    if len(finite) > FEW_ROUNDS:
        return float(np.median(finite))
    first, second = np.triu_indices(len(finite))
    return float(np.median((finite[first] + finite[second]) / 2))


def variance_of_middle(count: int) -> float:
    """Return the variance of the middle of many normal values of variance 1, for their count."""
    # Of the median, or of the median of means of pairs.
    inverse_efficiency = np.pi / 2 if count > FEW_ROUNDS else np.pi / 3
    return inverse_efficiency / count


def seconds_by_round(outcome: Outcome) -> dict[int, float]:
    """Return the median seconds of a step in each round, by its last turn in it.

    Disturbed turns are left out. Where too few rounds are left they count too.
    """
    steps = np.asarray(outcome.step_seconds())
    parts = np.split(steps, np.cumsum(outcome.turns)[:-1])
    observed: Sequence[TurnObservation] = ()
    if outcome.outside is not None:
        observed = outcome.outside.turns
    disturbed = disturbed_turns(observed)
    by_round: dict[int, float] = {}
    undisturbed: dict[int, float] = {}
    for index, samples in enumerate(parts):
        number = index
        counts = True
        if index < len(observed):
            counts = not disturbed[index]
            if observed[index].round >= 0:
                number = observed[index].round
        by_round[number] = float(np.median(samples))
        if counts:
            undisturbed[number] = by_round[number]
    if len(undisturbed) >= FEWEST_SHARE * len(by_round):
        return undisturbed
    return by_round
