"""Nodes of one kind on all their things, each against the mean of the others, with p-values adjusted together.

d = mean log of the node - mean of the others' mean logs. Its variance is v + sum(v of others) / m^2, where v is the
variance of a mean and m the number of others. Where launches deviate alike on all nodes v comes from their common
deviation, and so do the degrees of freedom; else each node has its own, and degrees of freedom are Satterthwaite's
(1946): of two nodes this is Welch's t (1947). Of more they are at most the node's own: by chance its launches agree
too well, and Satterthwaite's formula then takes the others' degrees of freedom for its own. Own simulation, six to ten
nodes alike on five to eight things with three launches each, any p < 0.05 after Holm: 10-41 % by his formula alone.

Nodes that differ are no measure: one that is three times as slow would make all others look fast. They are set aside,
furthest out first and never half of a thing's nodes, and the others are judged again; as long as no node differs none
is set aside, so that this adds no false alarm to the first one, which Holm's procedure bounds. Launches of alike nodes
have one deviation, unless Bartlett's test speaks against it, or a node's launches on all things together do; such a
node has its own (``reports/VERDICTS.md`` has a simulation). Tables are nodes x things.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import chdtrc, stdtr, stdtrit

from dlbench.adapters.protocol import Cell
from dlbench.reports.curve.fits import deviate_alike
from dlbench.reports.ratio.pairs import is_same
from dlbench.reports.statistics import (
    CONFIDENCE,
    LAUNCH_DEVIATION,
    SIGNIFICANCE,
    Ratio,
    Summary,
    holm,
    judge,
    variance_of_launches,
)
from dlbench.reports.storage.hosts import Host


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

    @property
    def empty(self) -> bool:
        """Whether it measured nothing that counts."""
        return not self.launches and not self.readings


@dataclass(frozen=True)
class Thing:
    """A cell or speed that two nodes of a kind have: time, with the launch (or the reading) as the sampling unit."""

    name: str
    cell: Cell | None
    """None for a speed of the machine itself."""
    times: Mapping[str, Summary]
    """By node; seconds per mini-batch, or per GFLOP or GB."""
    apart: tuple[str, ...] = ()
    """Nodes left out since they measured it with another build."""


@dataclass(frozen=True)
class Kind:
    """The nodes of one fingerprint."""

    host: Host
    nodes: Mapping[str, NodeSeen]
    """By name, in the order of names."""
    things: tuple[Thing, ...]
    lonely: tuple[str, ...] = ()
    """Things that only one node measured, each as "NODE: THING"."""


Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

_NO_SPREAD = 1e-9
"""Means whose logarithms are this close differ by rounding alone."""


@dataclass(frozen=True)
class Means:
    """Mean logarithms of each node on each thing; not a number where a node has none of a thing."""

    values: Floats
    variances: Floats
    """Of the means, not of the launches."""
    freedoms: Floats
    """Degrees of freedom of these variances; infinite where they are assumed."""
    common: Flags
    """Where the variance rests on the deviation that launches on all nodes have in common."""

    @property
    def present(self) -> Flags:
        """Where there is a mean."""
        return ~np.isnan(self.values)


@dataclass(frozen=True)
class Differences:
    """Estimates of differences of logarithms, with what is needed to judge them; any shape."""

    values: Floats
    variances: Floats
    squares: Floats
    """Sum of the squared parts of the variance, each over its degrees of freedom: Satterthwaite's denominator."""

    @property
    def freedoms(self) -> Floats:
        """Degrees of freedom after Satterthwaite; infinite where every variance is assumed, or zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.squares > 0, self.variances**2 / self.squares, np.inf)

    def p_values(self) -> Floats:
        """Return the two-sided p-value of each; where no launch deviates, whether there is any difference at all."""
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

    def means(self) -> "Differences":
        """Return the mean of each row over the columns that it has, whose errors are independent."""
        counts = np.maximum(1, (~np.isnan(self.values)).sum(axis=1))
        empty = np.isnan(self.values).all(axis=1)
        sums = (np.nansum(each, axis=1) for each in (self.values, self.variances, self.squares))
        found = (np.where(empty, np.nan, total / counts**power) for total, power in zip(sums, (1, 2, 4), strict=True))
        return Differences(*found)


def against_others(means: Means, others: Flags) -> Differences:
    """Return each node against the mean of those flagged in ``others``, itself not counted; else not a number."""
    counted = others & means.present
    count = counted.sum(axis=0) - counted
    squares = means.variances**2 / means.freedoms
    with np.errstate(divide="ignore", invalid="ignore"):
        value = means.values - _of_others(means.values, counted) / count
        # Rounding may leave less than nothing of a difference of sums.
        variance = means.variances + np.maximum(0.0, _of_others(means.variances, counted)) / count**2.0
        parts = squares + np.maximum(0.0, _of_others(squares, counted)) / count**4.0
        own = variance**2 / means.freedoms
    both = np.where(means.common, own, np.where(count > 1, np.maximum(parts, own), parts))
    missing = ~means.present | (count == 0)
    return Differences(*(np.where(missing, np.nan, each) for each in (value, variance, both)))


def _of_others(parts: Floats, counted: Flags) -> Floats:
    """Return for each node the sum over the others that are counted."""
    own = np.where(counted, parts, 0.0)
    total: Floats = own.sum(axis=0) - own
    return total


_FAR = 0.5
"""Nodes at least this share of the furthest distance out are set aside together."""


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
        """Return each node on each thing, and over all its things."""
        found = against_others(self.means, self.others)
        return found, found.means()

    def all_tested(self) -> Flags:
        """Return the nodes with enough launches of every thing, on themselves and on others."""
        every = (self.tested | ~self.means.present).all(axis=1) & self.means.present.any(axis=1)
        return np.asarray(every, dtype=np.bool_)

    def set_aside(self, things: Floats, nodes: Floats) -> bool:
        """Set aside what differs (its distance in logarithms, else 0) most; False if there is nothing new.

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


def _furthest(distances: Floats, among: Flags) -> Floats:
    """Return of each column what is furthest out among these, and nearly as far; else 0."""
    new = np.where(among, distances, 0.0)
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


SLOW, FAST, LIKE, UNKNOWN = "slow", "fast", "like the others", "cannot be told"


@dataclass(frozen=True)
class Judged:
    """One node against the others, on one thing or over all its things."""

    ratio: Ratio
    others: int
    """Nodes that it is compared with."""
    p_adjusted: float | None
    """After Holm; None where too few launches were made."""
    verdict: str


Table = list[list[Judged | None]]
"""By node and thing; None where there is no such mean, or nothing to compare it with."""


def contrasts(kinds: Sequence[Kind]) -> list[tuple[Table, list[Judged | None]]]:
    """Return for each kind every node on every thing, and every node over all its things."""
    numbers = [Numbers(kind) for kind in kinds]
    while True:
        both = [each.differences() for each in numbers]
        things = _judged([one for one, _ in both], [each.tested for each in numbers])
        nodes = _judged([mean for _, mean in both], [each.all_tested() for each in numbers])
        distant = [tuple(_distances(each) for each in pair) for pair in zip(things, nodes, strict=True)]
        steps = [each.set_aside(*pair) for each, pair in zip(numbers, distant, strict=True)]
        if not any(steps):
            break
    return [_tables(each, *pair) for each, pair in zip(numbers, zip(things, nodes, strict=True), strict=True)]


@dataclass(frozen=True)
class _Verdicts:
    """Differences with what they mean."""

    differences: Differences
    p_adjusted: Floats
    halves: Floats
    words: np.ndarray[tuple[int, ...], np.dtype[np.str_]]


def _judged(differences: Sequence[Differences], tested: Sequence[Flags]) -> list[_Verdicts]:
    """Return the verdicts of one family of tests, of all kinds together.

    Where launches are too few for a test the interval decides, of a confidence for as many tests (Bonferroni).
    """
    p_values = [np.where(flags, each.p_values(), np.nan) for each, flags in zip(differences, tested, strict=True)]
    adjusted = iter(holm([float(p) for each in p_values for p in each[~np.isnan(each)]]))
    count = sum(int((~np.isnan(each.values)).sum()) for each in differences)
    found = []
    for each, p_value in zip(differences, p_values, strict=True):
        p_value[~np.isnan(p_value)] = [next(adjusted) for _ in range(int((~np.isnan(p_value)).sum()))]
        halves, wide = (each.half_widths(1 - share) for share in (1 - CONFIDENCE, (1 - CONFIDENCE) / max(1, count)))
        words = np.full(each.values.shape, "", dtype="<U16")
        for at in zip(*np.nonzero(~np.isnan(each.values)), strict=True):
            p = None if np.isnan(p_value[at]) else float(p_value[at])
            words[at] = _verdict(_ratio(each.values[at], halves[at]), _ratio(each.values[at], wide[at]), p)
        found.append(_Verdicts(each, p_value, halves, words))
    return found


def _ratio(value: float, half: float, method: str = "") -> Ratio:
    return Ratio(math.exp(value), math.exp(value - half), math.exp(value + half), method)


def _verdict(shown: Ratio, wide: Ratio, p_adjusted: float | None) -> str:
    """Return what can be said: like the others is what lies within `WORSE` of 1 with its whole interval."""
    word = {"worse": SLOW, "better": FAST}.get(judge(shown if p_adjusted is not None else wide, p_adjusted))
    if word:
        return word
    return LIKE if is_same(shown) else UNKNOWN


def _distances(found: _Verdicts) -> Floats:
    """Return how far out each is that differs, in logarithms; else 0."""
    differs = (found.words == SLOW) | (found.words == FAST)
    distances: Floats = np.where(differs, found.differences.values, 0.0)
    return distances


def _tables(numbers: Numbers, things: _Verdicts, nodes: _Verdicts) -> tuple[Table, list[Judged | None]]:
    others = numbers.others.sum(axis=0) - numbers.others
    table: Table = [
        [
            _shown(things, (row, column), int(others[row, column]), bool(numbers.tested[row, column]))
            for column in range(others.shape[1])
        ]
        for row in range(len(numbers.nodes))
    ]
    every = numbers.all_tested()
    most = np.where(numbers.means.present, others, 0).max(axis=1, initial=0)
    means = [_shown(nodes, (row,), int(most[row]), bool(every[row])) for row in range(len(numbers.nodes))]
    return table, means


def _shown(found: _Verdicts, at: tuple[int, ...], others: int, tested: bool) -> Judged | None:
    value = float(found.differences.values[at])
    if math.isnan(value):
        return None
    what = f"{CONFIDENCE:.0%} t over launch log-medians, against the mean of the others"
    if not tested:
        what += f"; where launches are too few they are taken to deviate by {LAUNCH_DEVIATION:.0%}"
    p_value = float(found.p_adjusted[at])
    ratio = _ratio(value, float(found.halves[at]), what)
    return Judged(ratio, others, None if math.isnan(p_value) else p_value, str(found.words[at]))
