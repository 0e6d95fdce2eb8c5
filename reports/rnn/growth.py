"""How a step's time goes with the units of a small recurrent network, and from how many on more threads pay."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from dlbench.reports.rnn.lines import Series
from dlbench.reports.statistics import Contrast, Ratio, Summary, Verdict, contrast, ratio

FLAT = 1.1
"""Up to this many times the time of the smallest network, units cost nothing worth a word."""


@dataclass(frozen=True)
class Growth:
    """The time of one number of units."""

    hidden: int
    ratio: Ratio
    """T / T of the smallest network."""
    exponent: Ratio | None
    """From the next smaller one on T grows as the units to this power; None for the smallest."""


@dataclass(frozen=True)
class Knee:
    """The smallest number of units that takes over `FLAT` times as long as the smallest network."""

    hidden: int | None
    """By the medians; None: not even the largest."""
    earliest: int | None
    """The smallest of which the interval leaves it open; None: the largest is shown not to."""
    latest: int | None
    """The smallest of which it is shown; None: of none."""


@dataclass(frozen=True)
class UnitsGrowth:
    """One series of a line, by rising units."""

    series: Series
    sizes: tuple[Growth, ...]
    knee: Knee


def growth(series: Series, times: Mapping[int, Summary]) -> UnitsGrowth:
    """Return how these seconds go with their units, rising; there are two at least."""
    units = list(times)
    ratios = [ratio(times[each], times[units[0]]) for each in units]
    ratios[0] = Ratio(1.0, 1.0, 1.0, "the smallest itself")
    exponents = [None, *(_exponent(a, b, times) for a, b in pairwise(units))]
    sizes = tuple(Growth(*each) for each in zip(units, ratios, exponents, strict=True))
    return UnitsGrowth(series, sizes, find_knee(sizes))


def find_knee(sizes: tuple[Growth, ...]) -> Knee:
    """Return where time begins to grow; an end that nobody told is taken for the value."""

    def first(ends: list[float | None]) -> int | None:
        told = zip(sizes, ends, strict=True)
        return next((each.hidden for each, end in told if (each.ratio.value if end is None else end) > FLAT), None)

    return Knee(
        first([each.ratio.value for each in sizes]),
        first([each.ratio.high for each in sizes]),
        first([each.ratio.low for each in sizes]),
    )


def _exponent(few: int, many: int, times: Mapping[int, Summary]) -> Ratio:
    return ratio(times[many], times[few]).changed(lambda value: math.log(value) / math.log(many / few))


@dataclass(frozen=True)
class ThreadsPay:
    """One series of a row with one thread and with more, by rising units."""

    series: Series
    threads: int
    """The larger count."""
    sizes: tuple[tuple[int, Contrast], ...]
    """T with more threads / T with one, for each number of units."""

    @property
    def from_units(self) -> int | None:
        """The smallest number of units from which more threads are clearly faster at each; None: not at the largest."""
        return self._last_run("better")

    @property
    def until_units(self) -> int | None:
        """The largest number of units up to which no size is clearly faster with more; None: the smallest is."""
        best = None
        for hidden, each in self.sizes:
            if each.verdict == "better":
                break
            best = hidden
        return best

    def _last_run(self, verdict: Verdict) -> int | None:
        first = None
        for hidden, each in reversed(self.sizes):
            if each.verdict != verdict:
                break
            first = hidden
        return first


def threads_pay(series: Series, threads: int, one: Mapping[int, Summary], more: Mapping[int, Summary]) -> ThreadsPay:
    """Compare the times of one thread and of more, by the units that both have."""
    shared = [hidden for hidden in one if hidden in more]
    return ThreadsPay(
        series, threads, tuple((hidden, contrast(threads, 1, more[hidden], one[hidden])) for hidden in shared)
    )
