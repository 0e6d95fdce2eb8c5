"""Pairs of launches that took turns: their ratio, from the differences within rounds.

A round's two turns are tenths of a second apart, so that what slows the machine for longer than that slows both sides.
Noise only adds time: of a turn with several samples its shortest counts (Chen and Revels 2016, arXiv 1608.04295).
"""

import numpy as np
import numpy.typing as npt

from dlbench.adapters.protocol import Outcome
from dlbench.reports.disturbance import disturbed_turn

FEWEST_SHARE = 0.5
"""Disturbed rounds are left out as long as this share of the rounds is left."""

Floats = npt.NDArray[np.float64]


def took_turns(first: Outcome, second: Outcome) -> bool:
    """Tell whether two launches took turns."""
    return bool(first.turns and second.turns)


def seconds_in_turns(first: Outcome, second: Outcome) -> tuple[float, float]:
    """Return the seconds of a step of both launches, whose ratio is the median over rounds of their turns' ratios."""
    turns = [_turns(outcome) for outcome in (first, second)]
    rounds = min(map(len, turns))
    one, other = (np.log(each[:rounds]) for each in turns)
    kept = undisturbed_rounds(first, second, rounds)
    level, difference = float(np.median(one[kept])), float(np.median(other[kept] - one[kept]))
    return float(np.exp(level)), float(np.exp(level + difference))


def _turns(outcome: Outcome) -> Floats:
    """Return the shortest seconds of a step in each turn."""
    steps = np.asarray(outcome.step_seconds())
    starts = np.cumsum([0, *outcome.turns[:-1]])
    shortest: Floats = np.minimum.reduceat(steps, starts)
    return shortest


def undisturbed_rounds(first: Outcome, second: Outcome, rounds: int) -> npt.NDArray[np.bool_]:
    """Return which of the rounds neither launch was disturbed in; all of them where too few are left."""
    kept = np.ones(rounds, dtype=bool)
    for outcome in (first, second):
        observed = [] if outcome.outside is None else outcome.outside.turns[:rounds]
        kept[: len(observed)] &= [not disturbed_turn(turn) for turn in observed]
    return kept if kept.sum() >= FEWEST_SHARE * rounds else np.ones(rounds, dtype=bool)
