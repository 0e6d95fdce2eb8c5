"""Two thread counts held against one another: how many times slower, and whether that can be told from noise.

Where both have launches enough, Welch's t on the launches' log-medians gives a p-value, and Holm's step-down procedure
adjusts it for the number of comparisons of the report. One in twenty comparisons of equal things is "significant" at
5 %; a report makes dozens. Where they have not, there is no p-value: the ratio and its interval decide, and every
sentence that rests on them says so.

The best count is chosen by its time, so its own noise favours it a little; the test does not correct for that, and a
difference under `WORSE` is called none whatever its p-value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlbench.reports.evidence.statistics import Ratio, Summary, ratio

WORSE = 1.02
"""A smaller ratio is no difference worth a word."""
SIGNIFICANCE = 0.05
"""Adjusted p-values below this are called significant."""
_NO_SPREAD = 1e-9
"""Launches whose logarithms are this close differ by rounding alone."""


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
    def low(self) -> float | None:
        """Lower end of the ratio's interval."""
        return self.ratio.low

    @property
    def high(self) -> float | None:
        """Upper end of the ratio's interval."""
        return self.ratio.high

    @property
    def tested(self) -> bool:
        """Whether an adjusted p-value decides; if not, the ratio and its interval do."""
        return self.p_adjusted is not None

    @property
    def verdict(self) -> str:
        """The one of "worse", "better", "no clear difference" that the evidence supports."""
        if self.value > WORSE and self._told_apart(self.low is None or self.low > 1.0):
            return "worse"
        if self.value < 1 / WORSE and self._told_apart(self.high is None or self.high < 1.0):
            return "better"
        return "no clear difference"

    def _told_apart(self, by_interval: bool) -> bool:
        return by_interval if self.p_adjusted is None else self.p_adjusted < SIGNIFICANCE


def contrast(threads: int, against: int, slower: Summary, faster: Summary, test: bool = True) -> Contrast:
    """Return the comparison of two thread counts' times, with a p-value where there can be one and it is wanted."""
    return Contrast(threads, against, ratio(slower, faster), welch(slower, faster) if test else None)


def welch(one: Summary, other: Summary) -> float | None:
    """Return the two-sided p-value of Welch's t on the launches' log-medians (Welch 1947); None from too few."""
    from scipy.stats import ttest_ind_from_stats

    if not (one.covers_launches and other.covers_launches):
        return None
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
