"""The two stages of a gate: screening says which cells are suspect, fresh pairs alone confirm.

Screening looks after each of `Rule.screen_looks` pairs and stops for a cell as soon as it is suspect or clear, so that
most cells cost six pairs. What made a cell suspect plays no part in the verdict over it: that rests on
`Rule.confirm_pairs` fresh pairs, or chance would be counted twice.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from dlbench.reports.comparison.paired import FEWEST_PAIRS, estimate_pairs, smallest_shift
from dlbench.reports.comparison.verdict import DEFAULT, POWER, Judgement, Rule, Verdict, judge_pairs, undecided


class Screening(Enum):
    """What screening says of a cell."""

    MORE = "more"
    """More pairs are needed."""
    CLEAR = "clear"
    SUSPECT = "suspect"
    """It goes on to the confirming stage."""
    UNDECIDED = "undecided"
    """Not suspect, but after the last look a slowdown is not excluded either."""


def screen(baseline: Sequence[float], candidate: Sequence[float], rule: Rule = DEFAULT) -> Screening:
    """Return what so many pairs (seconds per step, side by side) say; decides at the rule's looks only."""
    looks = [look for look in rule.screen_looks if look <= len(baseline)]
    if not looks:
        return Screening.MORE
    for look in looks:
        found = estimate_pairs(baseline[:look], candidate[:look], rule.confidence)
        if found.ratio > 1 + rule.screen_magnitude and found.slower_p <= rule.screen_p_value:
            return Screening.SUSPECT
        if found.high < 1 + rule.tolerance:
            return Screening.CLEAR
    return Screening.UNDECIDED if looks[-1] == rule.screen_looks[-1] else Screening.MORE


def next_look(pairs: int, rule: Rule = DEFAULT) -> int:
    """Return how many pairs screening wants before it looks again."""
    return next((look for look in rule.screen_looks if look > pairs), rule.screen_looks[-1])


def judge_stages(
    screened: tuple[Sequence[float], Sequence[float]],
    confirmed: tuple[Sequence[float], Sequence[float]],
    rule: Rule = DEFAULT,
) -> Judgement:
    """Return the verdict on a cell from its screening pairs and, where there are any, its confirming ones.

    Each argument is (baseline, candidate), seconds per step of the pairs. A suspect cell whose confirming pairs are
    not complete is inconclusive, whatever they look like so far.
    """
    baseline, candidate = screened
    gate_effect = partial(smallest_effect, rule=rule)
    state = screen(baseline, candidate, rule)
    if state is Screening.SUSPECT:
        if len(confirmed[0]) >= rule.confirm_pairs:
            # Pairs beyond those asked for do not count, or measuring on would be a second chance.
            fresh = [side[: rule.confirm_pairs] for side in confirmed]
            return judge_pairs(fresh[0], fresh[1], rule, rule.confirm_p_value, gate_effect)
        found = judge_pairs(baseline, candidate, rule, smallest=gate_effect)
        why = f"suspect; {len(confirmed[0])} of {rule.confirm_pairs} confirming pairs measured"
        return replace(found, verdict=Verdict.INCONCLUSIVE, sentence=f"{found.sentence}; {why}")
    if len(baseline) < FEWEST_PAIRS:
        why = f"{len(baseline)} of {rule.screen_looks[0]} screening pairs measured"
        return undecided(Verdict.INCONCLUSIVE, why, len(baseline), len(candidate))
    found = judge_pairs(baseline, candidate, rule, smallest=gate_effect)
    if found.verdict is Verdict.REGRESSION:  # not suspect at any look: a later pair made it so
        return replace(found, verdict=Verdict.INCONCLUSIVE, sentence=f"{found.sentence}; not confirmed by fresh pairs")
    return found


def smallest_effect(deviation: float, rule: Rule = DEFAULT) -> float:
    """Return the relative slowdown that both stages together find with probability `POWER`, about.

    ``deviation`` is the standard deviation of the logarithms of the pairs' ratios.
    """
    each = math.sqrt(POWER)
    looks = rule.screen_looks[-1], rule.screen_p_value, rule.screen_magnitude
    confirming = rule.confirm_pairs, rule.confirm_p_value, rule.magnitude
    return max(smallest_shift(deviation, *stage, each) for stage in (looks, confirming))
