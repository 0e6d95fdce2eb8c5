"""Nodes of one kind on all their benchmarks, each against the mean of the others.

Their p-values are adjusted together.

d = mean log of the node - mean of the others' mean logs. Its variance is v + sum(v of others) /
m^2, where v is the variance of a mean and m the number of others. If launches deviate alike on all
nodes, v and the degrees of freedom come from their common deviation; else each node has its own,
and degrees of freedom are Satterthwaite's (1946): for two nodes this is Welch's t (1947). For more
they are at most the node's own: if its launches agree too well by chance, Satterthwaite's formula
credits it with the others' degrees of freedom. Simulated with six to ten identical nodes on five to
eight benchmarks with three launches each, his formula alone gives a p < 0.05 after Holm in 10-41 %.

Nodes that differ must not serve as the reference: one that is three times as slow would make all
others look fast. They are set aside, furthest out first and always less than half of a benchmark's
nodes, and the others are judged again. As long as no node differs, all nodes stay in the reference,
so this adds no false alarms beyond the first, which Holm's procedure bounds. Launches of identical
nodes have one deviation. A node has its own if Bartlett's test, or its launches on all benchmarks
together, reject that (``tests/reports/ratio/test_fleet.py`` has a simulation). Arrays are nodes x
benchmarks.
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
    NO_SPREAD,
    SIGNIFICANCE,
    WORSE,
    Estimate,
    RatioVerdict,
    Summary,
    holm,
    variance_of_launches,
)

MEAN = "mean"
"""In place of a benchmark: the geometric mean over all of a node's benchmarks."""
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
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
    """Launches that do not count, by their outcome."""
    readings: int = 0
    """Of the sentinel, while nothing disturbed it."""


@dataclass(frozen=True)
class NodeRatio:
    """One node against the others of its kind, on one benchmark or over all its benchmarks."""

    node: NodeSeen
    benchmark: Cell | str
    """A cell, a speed of the machine itself, or `MEAN`."""
    ratio: Estimate
    others: int
    """Nodes that it is compared with."""
    p_adjusted: float | None
    """After Holm; None where too few launches were made."""
    verdict: RatioVerdict
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
        ratios = []
        for mean, ratios_of_node in self.judged:
            ratios += [mean, *ratios_of_node]
        return ratios


class Estimates(NamedTuple):
    """Estimated logarithms, arrays of one shape; not a number where there is none."""

    values: Floats
    variances: Floats
    """Of these estimates, not of the launches."""
    freedoms: Floats
    """Degrees of freedom of the variances; infinite where they are assumed."""

    @classmethod
    def after_satterthwaite(cls, values: Floats, variances: Floats, squares: Floats) -> "Estimates":
        """Return estimates with degrees of freedom by Satterthwaite.

        ``squares`` are the sums of the squared parts of the variances, each over its degrees of
        freedom.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return cls(values, variances, np.where(squares > 0, variances**2 / squares, np.inf))

    def p_values(self) -> Floats:
        """Return the two-sided p-value of each.

        Where no launch deviates it is 0 for any difference at all, and else 1.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.values) / np.sqrt(self.variances)
        tested = 2 * stdtr(self.freedoms, -t)
        certain = np.where(np.abs(self.values) < NO_SPREAD, 1.0, 0.0)
        has_spread = np.sqrt(self.variances) >= NO_SPREAD
        return np.where(np.isnan(self.values), np.nan, np.where(has_spread, tested, certain))

    def half_widths(self, confidence: float) -> Floats:
        """Return half the width of each interval."""
        quantiles = np.asarray(stdtrit(self.freedoms, 0.5 + confidence / 2), dtype=np.float64)
        return quantiles * np.sqrt(self.variances)

    def means(self) -> "Estimates":
        """Return the mean of each row over its columns, whose errors are independent."""
        counts = np.maximum(1, (~np.isnan(self.values)).sum(axis=1))
        empty = np.isnan(self.values).all(axis=1)

        def mean(parts: Floats, power: int) -> Floats:
            sums = np.nansum(parts, axis=1)
            return np.where(empty, np.nan, sums / counts**power)

        return Estimates.after_satterthwaite(
            mean(self.values, 1),
            mean(self.variances, 2),
            mean(self.variances**2 / self.freedoms, 4),
        )


def against_others(means: Estimates, others: Flags, common: Flags) -> Estimates:
    """Return each node against the mean of those flagged in ``others``, itself not counted.

    It is not a number where there is no other. ``common`` flags the means whose variance rests on
    the deviation that launches on all nodes have in common.
    """
    counted = others & ~np.isnan(means.values)

    def sum_of_others(parts: Floats) -> Floats:
        own = np.where(counted, parts, 0.0)
        total: Floats = own.sum(axis=0) - own
        return total

    count = sum_of_others(np.ones_like(means.values))
    squares = means.variances**2 / means.freedoms
    with np.errstate(divide="ignore", invalid="ignore"):
        values = means.values - sum_of_others(means.values) / count
        # Rounding may leave less than nothing of a difference of sums.
        variances = means.variances + np.maximum(0.0, sum_of_others(means.variances)) / count**2
        squares_of_both = squares + np.maximum(0.0, sum_of_others(squares)) / count**4
        squares_of_own = variances**2 / means.freedoms
    at_most_own = np.maximum(squares_of_both, squares_of_own)
    squares_of_several = np.where(count > 1, at_most_own, squares_of_both)
    squares = np.where(common, squares_of_own, squares_of_several)
    missing = np.isnan(means.values) | (count == 0)
    return Estimates.after_satterthwaite(
        np.where(missing, np.nan, values),
        np.where(missing, np.nan, variances),
        np.where(missing, np.nan, squares),
    )


class _Nodes:
    """The estimates of one kind, and which of them are set aside."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        names = list(kind.nodes)
        shape = (len(names), len(kind.times))
        values = np.full(shape, np.nan)
        variances = np.full(shape, np.nan)
        freedoms = np.full(shape, np.nan)
        enough = np.zeros(shape, dtype=bool)
        self.common = np.zeros(shape, dtype=bool)
        noisy = _noisy_nodes(kind)
        for column, times in enumerate(kind.times.values()):
            alike = _common_variance(time for name, time in times.items() if name not in noisy)
            for name, time in times.items():
                at = (names.index(name), column)
                values[at] = math.log(time.median)
                enough[at] = time.covers_launches
                if alike is not None and time.covers_launches and name not in noisy:
                    self.common[at] = True
                    variance, freedoms[at] = alike
                else:
                    variance = variance_of_launches(time)
                    freedoms[at] = time.launches - 1 if time.covers_launches else math.inf
                variances[at] = variance / time.launches
        self.means = Estimates(values, variances, freedoms)
        self.present = ~np.isnan(values)
        # Where two nodes have launches enough the others have nothing to add to what is usual.
        several = enough.sum(axis=0) > 1
        self.usual: Flags = np.where(several, enough, self.present)
        self.tested: Flags = enough & several
        tested_where_present = (self.tested | ~self.present).all(axis=1)
        self.all_tested: Flags = tested_where_present & self.present.any(axis=1)
        self.aside: Flags = np.zeros(shape, dtype=bool)

    def differences(self) -> Estimates:
        """Return each node on each benchmark against the nodes that are not set aside."""
        return against_others(self.means, self.usual & ~self.aside, self.common)

    def set_aside(self, benchmarks: Floats, nodes: Floats) -> bool:
        """Set aside the nodes that differ most, and return whether there was a further one.

        The arguments are distances in logarithms, or 0. Fewer than half of a benchmark's nodes may
        be set aside: the majority is the reference.
        """
        before = self.aside.sum()
        others = self.usual & ~self.aside
        whole = _furthest(nodes[:, None], np.asarray(others.any(axis=1, keepdims=True)))
        alone = _furthest(benchmarks, others)
        wanted = np.where(others, np.where(alone != 0, alone, whole), 0.0)
        room = (self.usual.sum(axis=0) - 1) // 2 - (self.aside & self.usual).sum(axis=0)
        for column in np.flatnonzero((wanted != 0).any(axis=0) & (room > 0)):
            # Of two equally far out, set aside the slow one: faults make nodes slow.
            ranks = {}
            for row, distance in enumerate(wanted[:, column]):
                if distance:
                    ranks[row] = (round(abs(distance), 9), distance > 0)
            ordered = sorted(ranks.values(), reverse=True)
            # Set aside all nodes of equal rank or none, so that names do not matter.
            last = (0.0, False)
            if len(ordered) > room[column]:
                last = ordered[room[column]]
            self.aside[[row for row, rank in ranks.items() if rank > last], column] = True
        return bool(self.aside.sum() > before)

    def ratios(self, benchmarks: "_Judged", nodes: "_Judged") -> list[OfNode]:
        """Return a ratio for each node's mean and benchmarks, where there is another node."""
        flags = self.usual & ~self.aside
        others = flags.sum(axis=0) - flags
        most = np.where(self.present, others, 0).max(axis=1, initial=0)
        judged = []
        for row, node in enumerate(self.kind.nodes.values()):
            ratios = []
            for column, (benchmark, times) in enumerate(self.kind.times.items()):
                at = (row, column)
                if not np.isnan(benchmarks[0][at]):
                    time = times.get(node.name)
                    ratios.append(
                        _ratio(benchmarks, at, node, benchmark, others[at], self.tested[at], time)
                    )
            if ratios:
                mean = _ratio(nodes, (row,), node, MEAN, most[row], self.all_tested[row])
                judged.append((mean, sorted(ratios, key=lambda ratio: -ratio.ratio.value)))
        return judged


_Judged = tuple[Floats, Floats, Floats, np.ndarray[tuple[int, ...], np.dtype[np.str_]]]
"""Differences of one shape.

Values, half widths of their intervals, p-values after Holm, and verdicts.
"""


def _distances(judged: _Judged) -> Floats:
    """Return the distance of each node that differs, in logarithms; else 0."""
    return np.where(np.isin(judged[3], (RatioVerdict.SLOWER, RatioVerdict.FASTER)), judged[0], 0.0)


def contrasts(kinds: Sequence[Kind]) -> list[list[OfNode]]:
    """Return the ratios of each kind's nodes, in the order of names."""
    nodes_by_kind = [_Nodes(kind) for kind in kinds]
    while nodes_by_kind:
        differences = []
        means = []
        tested = []
        all_tested = []
        for nodes in nodes_by_kind:
            differences_of_kind = nodes.differences()
            differences.append(differences_of_kind)
            means.append(differences_of_kind.means())
            tested.append(nodes.tested)
            all_tested.append(nodes.all_tested)
        benchmarks = _judged(differences, tested)
        judged_means = _judged(means, all_tested)
        judged = list(zip(nodes_by_kind, benchmarks, judged_means, strict=True))
        changed = False
        for nodes, on_benchmarks, mean in judged:
            if nodes.set_aside(_distances(on_benchmarks), _distances(mean)):
                changed = True
        if not changed:
            return [nodes.ratios(on_benchmarks, mean) for nodes, on_benchmarks, mean in judged]
    return []


def _judged(differences: Sequence[Estimates], tested: Sequence[Flags]) -> list[_Judged]:
    """Return the verdicts of one family of tests, of all kinds together.

    A node is slower or faster if its ratio is beyond `WORSE` and Holm's test is significant or,
    with too few launches for a test, the interval for as many tests (Bonferroni) excludes 1. It is
    the same if its whole interval lies within `WORSE` of 1.
    """
    values = [estimates.values.ravel() for estimates in differences]
    variances = [estimates.variances.ravel() for estimates in differences]
    freedoms = [estimates.freedoms.ravel() for estimates in differences]
    family = Estimates(np.concatenate(values), np.concatenate(variances), np.concatenate(freedoms))
    is_tested = np.concatenate([flags.ravel() for flags in tested])
    p = np.where(is_tested, family.p_values(), np.nan)
    p[~np.isnan(p)] = holm(p[~np.isnan(p)].tolist())
    count = max(1, int((~np.isnan(family.values)).sum()))
    half = family.half_widths(CONFIDENCE)
    half_of_all = family.half_widths(1 - (1 - CONFIDENCE) / count)
    sure = np.where(np.isnan(p), np.abs(family.values) > half_of_all, p < SIGNIFICANCE)
    limit = math.log(WORSE)
    verdicts = np.select(
        [
            sure & (family.values > limit),
            sure & (family.values < -limit),
            np.abs(family.values) + half <= limit,
        ],
        [RatioVerdict.SLOWER, RatioVerdict.FASTER, RatioVerdict.SAME],
        RatioVerdict.INCONCLUSIVE,
    )
    judged = []
    begin = 0
    for estimates in differences:
        shape = estimates.values.shape
        part = slice(begin, begin + estimates.values.size)
        judged.append(
            (
                family.values[part].reshape(shape),
                half[part].reshape(shape),
                p[part].reshape(shape),
                verdicts[part].reshape(shape),
            )
        )
        begin = part.stop
    return judged


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
    values, half_widths, p_values, verdicts = judged
    value = float(values[at])
    half = float(half_widths[at])
    p = float(p_values[at])
    ratio = Estimate(math.exp(value), math.exp(value - half), math.exp(value + half), method)
    p_adjusted = None if math.isnan(p) else p
    return NodeRatio(
        node, benchmark, ratio, int(others), p_adjusted, RatioVerdict(verdicts[at]), time
    )


def _furthest(distances: Floats, among: Flags) -> Floats:
    """Return the largest distances of each column among these, and those nearly as large.

    The others are 0.
    """
    candidates = np.where(among, distances, 0.0)
    largest = np.abs(candidates).max(axis=0, initial=0.0)
    return np.where(np.abs(candidates) >= _FAR * largest, candidates, 0.0)


def _noisy_nodes(kind: Kind) -> set[str]:
    """Return the nodes whose launches deviate more than those of the others (chi-squared).

    The test is over all benchmarks.
    """
    squares: dict[str, float] = dict.fromkeys(kind.nodes, 0.0)
    freedoms = dict.fromkeys(kind.nodes, 0)
    for times in kind.times.values():
        several = {name: time for name, time in times.items() if time.covers_launches}
        variance, _ = pooled_variance(several.values())
        if variance <= 0:
            continue
        for name, time in several.items():
            squares[name] += variance_of_launches(time) * (time.launches - 1) / variance
            freedoms[name] += time.launches - 1
    noisy = set()
    for name in kind.nodes:
        p = float(chdtrc(freedoms[name], squares[name]))
        if p < SIGNIFICANCE:
            noisy.add(name)
    return noisy


def _common_variance(times: Iterable[Summary]) -> tuple[float, float] | None:
    """Return the variance of launches on all these nodes together, and its degrees of freedom.

    None for two nodes, whose test is Welch's, and if the nodes' launches do not deviate alike.
    """
    several = [time for time in times if time.covers_launches]
    if len(several) <= 2:
        return None
    if not deviate_alike([np.log(time.launch_medians) for time in several]):
        return None
    return pooled_variance(several)


def pooled_variance(times: Iterable[Summary]) -> tuple[float, int]:
    """Return the variance of a node's launches (logarithms), and its degrees of freedom.

    It is pooled over nodes.
    """
    freedom = 0
    squares = []
    for time in times:
        if time.launches > 1:
            logs = np.log(time.launch_medians)
            freedom += len(logs) - 1
            squares.append(float(np.var(logs, ddof=1)) * (len(logs) - 1))
    return math.fsum(squares) / max(1, freedom), freedom
