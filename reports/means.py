"""Geometric means of ratios, over networks."""

import math
from collections.abc import Sequence

from dlbench.reports.statistics import Ratio


def geometric_mean(ratios: Sequence[Ratio]) -> Ratio:
    """Return the geometric mean of ratios whose errors are independent, with an interval if each has one.

    The interval is MOVER's for a sum, here of logarithms (method of variance estimates recovery; Zou and Donner 2008,
    Statistics in Medicine 27, 1693-1702): it takes each ratio's own interval, lopsided or not, as it is. It holds for
    these very networks, and says nothing of others. Raises ValueError without any ratio.
    """
    if not ratios:
        raise ValueError("there is no ratio to take the mean of")
    count = len(ratios)
    logs = [math.log(ratio.value) for ratio in ratios]
    mean = math.fsum(logs) / count
    what = f"geometric mean of {count} ratio{'s' if count != 1 else ''}"
    down, up = [], []
    for log, ratio in zip(logs, ratios, strict=True):
        if ratio.low is None or ratio.high is None:
            return Ratio(math.exp(mean), None, None, f"{what}, no interval")
        down.append(log - math.log(ratio.low))
        up.append(math.log(ratio.high) - log)
    return Ratio(
        math.exp(mean),
        math.exp(mean - math.hypot(*down) / count),
        math.exp(mean + math.hypot(*up) / count),
        f"{what}, interval by MOVER from theirs",
    )
