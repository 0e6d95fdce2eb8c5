"""Rows of one machine compared: how many times as long as the fastest each takes, over the networks they have."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dlbench.reports.rnn.lines import Line, Size, Times
from dlbench.reports.statistics import Ratio, geometric_mean, ratio


@dataclass(frozen=True)
class Compared:
    """One line among those of its machine, mini-batch and activation."""

    line: Line
    mean: Ratio
    """The geometric mean of T / T of the fastest line."""
    sizes: int
    """Over so many networks, ..."""
    of: int
    """... of as many as are compared."""
    wins: tuple[Size, ...]
    """The networks that it is the fastest at, by the medians."""


def compare(found: Mapping[Line, Times]) -> tuple[Compared, ...]:
    """Compare these lines, the fastest first; none where there is one alone.

    Compared are the networks that at least half as many lines have as the one that most have: being the fastest of few
    is no merit.
    """
    lines = Counter(size for times in found.values() for size in times)
    sizes = sorted(size for size, count in lines.items() if 2 * count >= max(lines.values()))
    fastest = {size: _fastest(size, found) for size in sizes}
    compared = []
    for line, times in found.items():
        ratios = [
            Ratio(1.0, 1.0, 1.0, "the fastest itself")
            if fastest[size] == line
            else ratio(seconds, found[fastest[size]][size])
            for size, seconds in times.items()
            if size in fastest
        ]
        if ratios and len(found) > 1:
            wins = tuple(size for size in sizes if fastest[size] == line)
            compared.append(Compared(line, geometric_mean(ratios), len(ratios), len(sizes), wins))
    return tuple(sorted(compared, key=lambda each: each.mean.value))


def _fastest(size: Size, found: Mapping[Line, Times]) -> Line:
    medians = {line: times[size].median for line, times in found.items() if size in times}
    return min(medians, key=lambda line: medians[line])
