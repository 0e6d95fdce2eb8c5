"""The numbers of one kind: means of its nodes with their variances, and which nodes are the measure of what is usual.

Nodes that are told apart are no measure: one that is three times as slow would make all others look fast. They are set
aside, furthest out first and never half of a thing's nodes, and the others are judged again.

Launches of alike nodes have one deviation, unless Bartlett's test speaks against it, or a node's launches on all things
together do; such a node has its own (``reports/VERDICTS.md`` has a simulation).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.special import chdtrc

from dlbench.reports.curve.fits import deviate_alike
from dlbench.reports.evidence.one_of_several import Differences, Flags, Floats, Means, against_others
from dlbench.reports.fleet.nodes import Kind
from dlbench.reports.statistics import SIGNIFICANCE, Summary, variance_of_launches

_FAR = 0.5
"""Set aside at once is what is as far out as this share of the furthest."""


class Numbers:
    """The numbers of one kind, and what of them is set aside."""

    def __init__(self, kind: Kind) -> None:
        self.nodes = list(kind.nodes)
        shape = len(self.nodes), len(kind.things)
        values, variances, freedoms = (np.full(shape, np.nan) for _ in range(3))
        self.enough: Flags = np.zeros(shape, dtype=bool)
        common: Flags = np.zeros(shape, dtype=bool)
        places = {name: place for place, name in enumerate(self.nodes)}
        noisy = _noisy_nodes(kind)
        for column, thing in enumerate(kind.things):
            alike = _common_variance(each for name, each in thing.times.items() if name not in noisy)
            for name, summary in thing.times.items():
                at = places[name], column
                values[at], self.enough[at] = math.log(summary.median), summary.covers_launches
                common[at] = alike is not None and summary.covers_launches and name not in noisy
                variance, freedoms[at] = alike if alike and common[at] else _own_variance(summary)
                variances[at] = variance / summary.launches
        self.means = Means(values, variances, freedoms, common)
        # Where two nodes have launches enough the others have nothing to add to what is usual.
        tested = self.enough.sum(axis=0) > 1
        self.usual: Flags = np.where(tested, self.enough, self.means.present)
        self.tested: Flags = self.enough & tested
        self.aside: Flags = np.zeros(shape, dtype=bool)

    @property
    def others(self) -> Flags:
        """Which nodes are the measure of each thing."""
        found: Flags = self.usual & ~self.aside
        return found

    def differences(self) -> tuple[Differences, Differences]:
        """Return each node on each thing, and in the mean of its things."""
        found = against_others(self.means, self.others)
        return found, found.means()

    def all_tested(self) -> Flags:
        """Return of which nodes every thing has launches enough, there and elsewhere."""
        every = (self.tested | ~self.means.present).all(axis=1) & self.means.present.any(axis=1)
        return np.asarray(every, dtype=np.bool_)

    def set_aside(self, things: Floats, nodes: Floats) -> bool:
        """Set aside what is told (its distance in logarithms, else 0) and furthest out; False if there is nothing new.

        Fewer than half of the nodes of a thing may be: what most do is usual.
        """
        before = self.aside.sum()
        whole = _furthest(nodes[:, None], np.asarray(self.others.any(axis=1, keepdims=True), dtype=np.bool_))
        alone = _furthest(things, self.others)
        wanted = np.where(self.others, np.where(alone != 0, alone, whole), 0.0)
        room = (self.usual.sum(axis=0) - 1) // 2 - (self.aside & self.usual).sum(axis=0)
        for column in np.flatnonzero((wanted != 0).any(axis=0) & (room > 0)):
            # Of two as far out the slow one: a fault makes slow.
            ranks = {row: (round(abs(each), 9), each > 0) for row, each in enumerate(wanted[:, column]) if each}
            ordered = sorted(ranks.values(), reverse=True)
            # Of those that are alike all or none, whatever their names.
            last = ordered[room[column]] if len(ordered) > room[column] else (0.0, False)
            self.aside[[row for row, rank in ranks.items() if rank > last], column] = True
        return bool(self.aside.sum() > before)


def _furthest(told: Floats, among: Flags) -> Floats:
    """Return of each column what is furthest out among these, and nearly as far; else 0."""
    new = np.where(among, told, 0.0)
    return np.where(np.abs(new) >= _FAR * np.abs(new).max(axis=0, initial=0.0), new, 0.0)


def _noisy_nodes(kind: Kind) -> set[str]:
    """Return the nodes whose launches deviate more than those of the others, over all things (chi-squared)."""
    squares: dict[str, float] = dict.fromkeys(kind.nodes, 0.0)
    freedoms = dict.fromkeys(kind.nodes, 0)
    for thing in kind.things:
        several = {name: np.log(each.launch_medians) for name, each in thing.times.items() if each.covers_launches}
        variance, _ = _pooled(list(several.values()))
        for name, logs in several.items() if variance > 0 else ():
            squares[name] += float(np.var(logs, ddof=1)) * (len(logs) - 1) / variance
            freedoms[name] += len(logs) - 1
    return {name for name in kind.nodes if float(chdtrc(freedoms[name], squares[name])) < SIGNIFICANCE}


def _common_variance(times: Iterable[Summary]) -> tuple[float, float] | None:
    """Return the variance of launches on all these nodes together, and its degrees of freedom.

    None of two nodes, whose test is Welch's, and where the nodes' launches do not deviate alike.
    """
    several = [np.log(each.launch_medians) for each in times if each.covers_launches]
    return _pooled(several) if len(several) > 2 and deviate_alike(several) else None


def _pooled(several: Sequence[Floats]) -> tuple[float, int]:
    freedom = sum(len(each) - 1 for each in several)
    squares = math.fsum(float(np.var(each, ddof=1)) * (len(each) - 1) for each in several)
    return squares / max(1, freedom), freedom


def _own_variance(summary: Summary) -> tuple[float, float]:
    """Return the variance of a node's launches, of too few what is assumed of it, and its degrees of freedom."""
    return variance_of_launches(summary), summary.launches - 1 if summary.covers_launches else math.inf
