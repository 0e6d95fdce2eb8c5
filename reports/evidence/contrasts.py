"""What can be told from noise: the one rule behind the stars of a matrix, the advice on threads and its findings.

`judge` is that rule: of two times one is clearly longer when their ratio is beyond `WORSE` and its interval does not
include 1. A published ratio has no interval, and decides by its value. Where a report makes many comparisons, an
adjusted p-value stands for the interval, so that advice and findings of one report cannot contradict one another.

Where both have launches enough, Welch's t on the launches' log-medians gives a p-value, and Holm's step-down procedure
adjusts it for the number of comparisons of the report. One in twenty comparisons of equal things is "significant" at
5 %; a report makes dozens. Where they have not, there is no p-value: the ratio and its interval decide, and every
sentence that rests on them says so.

The best count is chosen by its time, so its own noise favours it a little; the test does not correct for that, and a
difference under `WORSE` is called none whatever its p-value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtri, stdtrit

from dlbench.reports.evidence.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Ratio, Summary, ratio

Verdict = Literal["worse", "better", "no clear difference"]

WORSE = 1.02
"""A smaller ratio is no difference worth a word."""
SIGNIFICANCE = 0.05
"""Adjusted p-values below this are called significant."""
POWER = 0.8
"""How probable it is that as many launches as `launches_to_decide` names tell a difference that is really there."""
MOST_LAUNCHES = 100
"""More launches than anybody makes of one cell."""
_NO_SPREAD = 1e-9
"""Launches whose logarithms are this close differ by rounding alone."""


def judge(found: Ratio, p_adjusted: float | None = None, worse: float = WORSE) -> Verdict:
    """Say whether the first of two times is clearly longer ("worse"), clearly shorter, or neither.

    A ratio within ``worse`` of 1 is neither.
    """
    significant = None if p_adjusted is None else p_adjusted < SIGNIFICANCE
    if found.value > worse and (significant if significant is not None else found.low is None or found.low > 1.0):
        return "worse"
    if found.value < 1 / worse and (significant if significant is not None else found.high is None or found.high < 1.0):
        return "better"
    return "no clear difference"


def clearly_slower(one: Summary, other: Summary) -> bool:
    """Tell whether one time is longer than another by more than noise may explain."""
    return judge(ratio(one, other)) == "worse"


def launches_to_decide(one: Summary, other: Summary, comparisons: int = 1) -> int | None:
    """Return how many launches of each would tell these two times apart; None where `MOST_LAUNCHES` would not.

    It is the number from which Welch's t finds a difference as large as the one seen, with probability `POWER`, when
    ``comparisons`` are adjusted for (after Bonferroni, the worst case of Holm's procedure).
    """
    difference = abs(math.log(one.median / other.median))
    variance = variance_of_launches(one) + variance_of_launches(other)
    for launches in range(ENOUGH_LAUNCHES, MOST_LAUNCHES + 1):
        wanted = float(stdtrit(2 * (launches - 1), 1 - SIGNIFICANCE / max(1, comparisons) / 2)) + float(ndtri(POWER))
        if wanted * math.sqrt(variance / launches) <= difference:
            return launches
    return None


def variance_of_launches(summary: Summary) -> float:
    """Return the variance of the logarithms of launches' medians; of too few launches what is assumed of it."""
    if summary.covers_launches:
        return float(np.var(np.log(summary.launch_medians), ddof=1))
    within = 0.0
    if summary.low is not None and summary.high is not None and summary.coverage is not None:
        within = math.log(summary.high / summary.low) / 2 / float(ndtri(0.5 + summary.coverage / 2))
    return LAUNCH_DEVIATION**2 + within**2 * summary.launches


@dataclass(frozen=True)
class Contrast:
    """T(threads) / T(against)."""

    threads: int
    against: int
    ratio: Ratio
    p_value: float | None = None
    """Welch's t, two-sided; None where launches are too few, or where nothing is to be tested."""
    p_adjusted: float | None = None
    """After Holm; None until the whole report's comparisons are known."""
    family: int = 0
    """How many comparisons it was adjusted with, itself included."""

    @property
    def value(self) -> float:
        """How many times longer a step takes."""
        return self.ratio.value

    @property
    def tested(self) -> bool:
        """Whether an adjusted p-value decides; if not, the ratio and its interval do."""
        return self.p_adjusted is not None

    @property
    def verdict(self) -> Verdict:
        """What the evidence supports, by `judge`."""
        return judge(self.ratio, self.p_adjusted)

    @property
    def swapped(self) -> "Contrast":
        """T(against) / T(threads), with the same evidence."""
        low, high = (None if end is None else 1 / end for end in (self.ratio.high, self.ratio.low))
        turned = Ratio(1 / self.value, low, high, self.ratio.method)
        return replace(self, threads=self.against, against=self.threads, ratio=turned)


def contrast(threads: int, against: int, slower: Summary, faster: Summary, test: bool = True) -> Contrast:
    """Return the comparison of two thread counts' times, with a p-value where there can be one and it is wanted."""
    return Contrast(threads, against, ratio(slower, faster), welch(slower, faster) if test else None)


def welch(one: Summary, other: Summary) -> float | None:
    """Return the two-sided p-value of Welch's t on the launches' log-medians (Welch 1947); None from too few."""
    if not (one.covers_launches and other.covers_launches):
        return None
    from scipy.stats import ttest_ind_from_stats

    a, b = np.log(one.launch_medians), np.log(other.launch_medians)
    if max(np.ptp(a), np.ptp(b)) < _NO_SPREAD:
        return 1.0 if abs(a[0] - b[0]) < _NO_SPREAD else 0.0
    (mean, deviation), (other_mean, other_deviation) = ((float(x.mean()), float(x.std(ddof=1))) for x in (a, b))
    found = ttest_ind_from_stats(mean, deviation, len(a), other_mean, other_deviation, len(b), equal_var=False)
    return float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted for their number, in their order.

    Holm's step-down procedure (Holm, A simple sequentially rejective multiple test procedure, 1979): it bounds the
    probability of any false positive at all, whatever the dependence between the tests. SciPy has no function for it.
    """
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


def adjust(comparisons: Sequence[Contrast]) -> list[Contrast]:
    """Return one report's comparisons, in their order, those with a p-value adjusted for their number."""
    tested = [place for place, each in enumerate(comparisons) if each.p_value is not None]
    found = list(comparisons)
    for place, value in zip(tested, holm([comparisons[n].p_value or 0.0 for n in tested]), strict=True):
        found[place] = replace(comparisons[place], p_adjusted=value, family=len(tested))
    return found
