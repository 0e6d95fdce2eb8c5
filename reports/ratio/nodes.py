"""Nodes of one kind on all their benchmarks, each against the mean of the others, with p-values
adjusted together.

d = mean log of the node - mean of the others' mean logs. Its variance is v + sum(v of others) /
m^2, where v is the variance of a mean and m the number of others. If launches deviate alike on all
nodes, v and the degrees of freedom come from their common deviation; else each node has its own,
and degrees of freedom are Satterthwaite's (1946): for two nodes this is Welch's t (1947). For more
they are at most the node's own: if its launches agree too well by chance, Satterthwaite's formula
credits it with the others' degrees of freedom. Simulated with six to ten identical nodes on five to
eight benchmarks with three launches each, his formula alone gives a p < 0.05 after Holm in 10-41 %.

Nodes that differ must not serve as the reference: one that is three times as slow would make all
others look fast. They are set aside, furthest out first and always less than half of a benchmark's
nodes, and the others are judged again. As long as no node differs none is set aside, so this adds
no false alarms beyond the first, which Holm's procedure bounds. Launches of identical nodes have
one deviation; a node has its own if Bartlett's test, or its launches on all benchmarks together,
reject that (``reports/VERDICTS.md`` has a simulation). Arrays are nodes x benchmarks.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, stdtr, stdtrit

from dlbench.adapters.protocol import Cell
from dlbench.reports.curve.fits import deviate_alike
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.statistics import (
    CONFIDENCE,
    LAUNCH_DEVIATION,
    SIGNIFICANCE,
    WORSE,
    Ratio,
    Summary,
    holm,
    variance_of_launches,
)

SLOW, FAST, LIKE, UNKNOWN = "slow", "fast", "like the others", "inconclusive"
MEAN = "mean"
"""In place of a benchmark: the geometric mean over all of a node's benchmarks."""
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
_NO_SPREAD = 1e-9
"""Means whose logarithms are this close differ by rounding alone."""
_FAR = 0.5
"""Nodes at least this share of the furthest distance out are set aside together."""


@dataclass
class NodeSeen:
    """One node, and how many of its launches count."""

    name: str
    fleets: dict[str, None] = field(default_factory=dict)
    """Ids, in the order of their runs."""
    shared: dict[str, None] = field(default_factory=dict)
    """Other users of the node, in words; empty where its jobs had it to themselves."""
    launches: int = 0
    disturbed: int = 0
    """Of these launches: by other programs."""
    failed: Counter[str] = field(default_factory=Counter)
    """Launches that do not count, by what became of them."""
    readings: int = 0
    """Of the sentinel, while nothing disturbed it."""


@dataclass(frozen=True)
class NodeRatio:
    """One node against the others of its kind, on one benchmark or over all its benchmarks."""

    node: NodeSeen
    benchmark: Cell | str
    """A cell, a speed of the machine itself, or `MEAN`."""
    ratio: Ratio
    others: int
    """Nodes that it is compared with."""
    p_adjusted: float | None
    """After Holm; None where too few launches were made."""
    verdict: str
    time: Summary | None = None
    """None for the mean; seconds per mini-batch, or per GFLOP or GB."""


OfNode = tuple[NodeRatio, list[NodeRatio]]
"""The mean of a node, and its benchmarks, the slowest first."""


@dataclass
class Kind:
    """The nodes of one fingerprint."""

    host: Host
    nodes: dict[str, NodeSeen] = field(default_factory=dict)
    """By name, in the order of names."""
    times: dict[Cell | str, dict[str, Summary]] = field(default_factory=dict)
    """By benchmark that two nodes have, and node; the launch, or the reading, is the sampling
    unit."""
    missing: list[str] = field(default_factory=list)
    """A sentence for each gap."""
    judged: list[OfNode] = field(default_factory=list)
    """The nodes that differ first."""

    @property
    def ratios(self) -> list[NodeRatio]:
        """All ratios, node by node, the mean of each first."""
        return [each for mean, on in self.judged for each in (mean, *on)]


class Estimates(NamedTuple):
    """Estimated logarithms, arrays of one shape; not a number where there is none."""

    values: Floats
    variances: Floats
    """Of these estimates, not of the launches."""
    freedoms: Floats
    """Degrees of freedom of the variances; infinite where they are assumed."""

    @classmethod
    def after_satterthwaite(cls, values: Floats, variances: Floats, squares: Floats) -> "Estimates":
        """Return estimates from the sums of the squared parts of their variances, each over its
        degrees of freedom.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return cls(values, variances, np.where(squares > 0, variances**2 / squares, np.inf))

    def p_values(self) -> Floats:
        """Return the two-sided p-value of each; where no launch deviates, whether there is any
        difference at all.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.values) / np.sqrt(self.variances)
        found = 2 * stdtr(self.freedoms, -t)
        certain = np.where(np.abs(self.values) < _NO_SPREAD, 1.0, 0.0)
        spread = np.sqrt(self.variances) >= _NO_SPREAD
        return np.where(np.isnan(self.values), np.nan, np.where(spread, found, certain))

    def half_widths(self, confidence: float) -> Floats:
        """Return half the width of each interval."""
        quantiles = np.asarray(stdtrit(self.freedoms, 0.5 + confidence / 2), dtype=np.float64)
        return quantiles * np.sqrt(self.variances)

    def means(self) -> "Estimates":
        """Return the mean of each row over the columns that it has, whose errors are
        independent.
        """
        counts = np.maximum(1, (~np.isnan(self.values)).sum(axis=1))
        empty = np.isnan(self.values).all(axis=1)
        sums = (
            np.nansum(each, axis=1)
            for each in (self.values, self.variances, self.variances**2 / self.freedoms)
        )
        return Estimates.after_satterthwaite(
            *(
                np.where(empty, np.nan, total / counts**power)
                for total, power in zip(sums, (1, 2, 4), strict=True)
            )
        )


def against_others(means: Estimates, others: Flags, common: Flags) -> Estimates:
    """Return each node against the mean of those flagged in ``others``, itself not counted; else
    not a number.

    ``common`` flags the means whose variance rests on the deviation that launches on all nodes have
    in common.
    """
    counted = others & ~np.isnan(means.values)

    def of_others(parts: Floats) -> Floats:
        own = np.where(counted, parts, 0.0)
        total: Floats = own.sum(axis=0) - own
        return total

    count = of_others(np.ones_like(means.values))
    squares = means.variances**2 / means.freedoms
    with np.errstate(divide="ignore", invalid="ignore"):
        value = means.values - of_others(means.values) / count
        # Rounding may leave less than nothing of a difference of sums.
        variance = means.variances + np.maximum(0.0, of_others(means.variances)) / count**2
        parts = squares + np.maximum(0.0, of_others(squares)) / count**4
        own = variance**2 / means.freedoms
    both = np.where(common, own, np.where(count > 1, np.maximum(parts, own), parts))
    missing = np.isnan(means.values) | (count == 0)
    return Estimates.after_satterthwaite(
        *(np.where(missing, np.nan, each) for each in (value, variance, both))
    )


class _Nodes:
    """The estimates of one kind, and which of them are set aside."""

    def __init__(self, kind: Kind) -> None:
        self.kind, names = kind, list(kind.nodes)
        shape = len(names), len(kind.times)
        values, variances, freedoms = (np.full(shape, np.nan) for _ in range(3))
        enough, self.common = (np.zeros(shape, dtype=bool) for _ in range(2))
        noisy = _noisy_nodes(kind)
        for column, times in enumerate(kind.times.values()):
            alike = _common_variance(each for name, each in times.items() if name not in noisy)
            for name, summary in times.items():
                at = names.index(name), column
                values[at], enough[at] = math.log(summary.median), summary.covers_launches
                self.common[at] = (
                    alike is not None and summary.covers_launches and name not in noisy
                )
                own = (
                    variance_of_launches(summary),
                    summary.launches - 1 if summary.covers_launches else math.inf,
                )
                variance, freedoms[at] = alike if alike and self.common[at] else own
                variances[at] = variance / summary.launches
        self.means = Estimates(values, variances, freedoms)
        self.present = ~np.isnan(values)
        # Where two nodes have launches enough the others have nothing to add to what is usual.
        several = enough.sum(axis=0) > 1
        self.usual: Flags = np.where(several, enough, self.present)
        self.tested: Flags = enough & several
        self.all_tested: Flags = (self.tested | ~self.present).all(axis=1) & self.present.any(
            axis=1
        )
        self.aside: Flags = np.zeros(shape, dtype=bool)

    def differences(self) -> Estimates:
        """Return each node on each benchmark against the nodes that are not set aside."""
        return against_others(self.means, self.usual & ~self.aside, self.common)

    def set_aside(self, benchmarks: Floats, nodes: Floats) -> bool:
        """Set aside the nodes that differ most (distances in logarithms, else 0); return False if
        it finds no other.

        Fewer than half of a benchmark's nodes may be set aside: the majority is the reference.
        """
        before = self.aside.sum()
        others = self.usual & ~self.aside
        whole = _furthest(nodes[:, None], np.asarray(others.any(axis=1, keepdims=True)))
        alone = _furthest(benchmarks, others)
        wanted = np.where(others, np.where(alone != 0, alone, whole), 0.0)
        room = (self.usual.sum(axis=0) - 1) // 2 - (self.aside & self.usual).sum(axis=0)
        for column in np.flatnonzero((wanted != 0).any(axis=0) & (room > 0)):
            # Of two equally far out, set aside the slow one: faults make nodes slow.
            ranks = {
                row: (round(abs(each), 9), each > 0)
                for row, each in enumerate(wanted[:, column])
                if each
            }
            ordered = sorted(ranks.values(), reverse=True)
            # Set aside all nodes of equal rank or none, so that names do not matter.
            last = ordered[room[column]] if len(ordered) > room[column] else (0.0, False)
            self.aside[[row for row, rank in ranks.items() if rank > last], column] = True
        return bool(self.aside.sum() > before)

    def ratios(self, benchmarks: "_Judged", nodes: "_Judged") -> list[OfNode]:
        """Return a ratio for each node's mean and each of its benchmarks, where there is another
        node.
        """
        flags = self.usual & ~self.aside
        others = flags.sum(axis=0) - flags
        most = np.where(self.present, others, 0).max(axis=1, initial=0)
        found = []
        for row, node in enumerate(self.kind.nodes.values()):
            of_node = [
                _ratio(
                    benchmarks,
                    (row, at),
                    node,
                    each,
                    others[row, at],
                    self.tested[row, at],
                    times.get(node.name),
                )
                for at, (each, times) in enumerate(self.kind.times.items())
                if not np.isnan(benchmarks[0][row, at])
            ]
            if of_node:
                mean = _ratio(nodes, (row,), node, MEAN, most[row], self.all_tested[row])
                found.append((mean, sorted(of_node, key=lambda each: -each.ratio.value)))
        return found


_Judged = tuple[Floats, Floats, Floats, np.ndarray[tuple[int, ...], np.dtype[np.str_]]]
"""Differences of one shape: values, half widths of their intervals, p-values after Holm, and
verdicts."""


def _distances(judged: _Judged) -> Floats:
    """Return the distance of each node that differs, in logarithms; else 0."""
    return np.where(np.isin(judged[3], (SLOW, FAST)), judged[0], 0.0)


def contrasts(kinds: Sequence[Kind]) -> list[list[OfNode]]:
    """Return the ratios of each kind's nodes, in the order of names."""
    found = [_Nodes(kind) for kind in kinds]
    while found:
        differences = [each.differences() for each in found]
        benchmarks = _judged(differences, [each.tested for each in found])
        means = _judged([each.means() for each in differences], [each.all_tested for each in found])
        both = list(zip(found, benchmarks, means, strict=True))
        steps = [each.set_aside(_distances(one), _distances(mean)) for each, one, mean in both]
        if not any(steps):
            return [each.ratios(one, mean) for each, one, mean in both]
    return []


def _judged(differences: Sequence[Estimates], tested: Sequence[Flags]) -> list[_Judged]:
    """Return the verdicts of one family of tests, of all kinds together.

    A node is slow or fast if its ratio is beyond `WORSE` and Holm's test is significant or, with
    too few launches for a test, the interval for as many tests (Bonferroni) excludes 1. It is like
    the others if its whole interval lies within `WORSE` of 1.
    """
    family = Estimates(
        *(np.concatenate([each[part].ravel() for each in differences]) for part in range(3))
    )
    p = np.where(np.concatenate([flags.ravel() for flags in tested]), family.p_values(), np.nan)
    p[~np.isnan(p)] = holm(p[~np.isnan(p)].tolist())
    count = max(1, int((~np.isnan(family.values)).sum()))
    half, wide = family.half_widths(CONFIDENCE), family.half_widths(1 - (1 - CONFIDENCE) / count)
    sure = np.where(np.isnan(p), np.abs(family.values) > wide, p < SIGNIFICANCE)
    limit = math.log(WORSE)
    words = np.select(
        [
            sure & (family.values > limit),
            sure & (family.values < -limit),
            np.abs(family.values) + half <= limit,
        ],
        [SLOW, FAST, LIKE],
        UNKNOWN,
    )
    ends = np.cumsum([each.values.size for each in differences])[:-1]
    shapes = [each.values.shape for each in differences]
    parts = (
        [each.reshape(shape) for each, shape in zip(np.split(of, ends), shapes, strict=True)]
        for of in (family.values, half, p, words)
    )
    return list(zip(*parts, strict=True))


def _ratio(
    judged: _Judged,
    at: tuple[int, ...],
    node: NodeSeen,
    benchmark: Cell | str,
    others: int,
    tested: bool,
    time: Summary | None = None,
) -> NodeRatio:
    method = f"{CONFIDENCE:.0%} t over launch log-medians, against the mean of the others"
    if not tested:
        method += f"; with too few launches they are assumed to deviate by {LAUNCH_DEVIATION:.0%}"
    value, half, p = (float(each[at]) for each in judged[:3])
    ratio = Ratio(math.exp(value), math.exp(value - half), math.exp(value + half), method)
    p_adjusted = None if math.isnan(p) else p
    return NodeRatio(node, benchmark, ratio, int(others), p_adjusted, str(judged[3][at]), time)


def _furthest(distances: Floats, among: Flags) -> Floats:
    """Return the largest distances of each column among these, and those nearly as large; else
    0.
    """
    new = np.where(among, distances, 0.0)
    return np.where(np.abs(new) >= _FAR * np.abs(new).max(axis=0, initial=0.0), new, 0.0)


def _noisy_nodes(kind: Kind) -> set[str]:
    """Return the nodes whose launches deviate more than those of the others, over all benchmarks
    (chi-squared).
    """
    squares: dict[str, float] = dict.fromkeys(kind.nodes, 0.0)
    freedoms = dict.fromkeys(kind.nodes, 0)
    for times in kind.times.values():
        several = {name: each for name, each in times.items() if each.covers_launches}
        variance, _ = pooled_variance(several.values())
        for name, each in several.items() if variance > 0 else ():
            squares[name] += variance_of_launches(each) * (each.launches - 1) / variance
            freedoms[name] += each.launches - 1
    return {
        name for name in kind.nodes if float(chdtrc(freedoms[name], squares[name])) < SIGNIFICANCE
    }


def _common_variance(times: Iterable[Summary]) -> tuple[float, float] | None:
    """Return the variance of launches on all these nodes together, and its degrees of freedom.

    None for two nodes, whose test is Welch's, and if the nodes' launches do not deviate alike.
    """
    several = [each for each in times if each.covers_launches]
    alike = len(several) > 2 and deviate_alike([np.log(each.launch_medians) for each in several])
    return pooled_variance(several) if alike else None


def pooled_variance(times: Iterable[Summary]) -> tuple[float, int]:
    """Return the variance of a node's launches (logarithms), pooled over nodes, and its degrees of
    freedom.
    """
    several = [np.log(each.launch_medians) for each in times if each.launches > 1]
    freedom = sum(len(each) - 1 for each in several)
    squares = math.fsum(float(np.var(each, ddof=1)) * (len(each) - 1) for each in several)
    return squares / max(1, freedom), freedom
