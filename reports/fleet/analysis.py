"""Node against node within each kind: who is slow, by how much, on what; and how much nodes differ beside launches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dlbench.reports.fleet.contrasts import FAST, SLOW, UNKNOWN, Judged, contrasts
from dlbench.reports.fleet.nodes import Kind, NodeSeen, Thing, gather
from dlbench.reports.report import Source
from dlbench.reports.statistics import Summary


@dataclass(frozen=True)
class OnThing:
    """A node on one thing."""

    thing: Thing
    time: Summary
    usual: float
    """Seconds of the nodes that it is held against, their geometric mean."""
    judged: Judged


@dataclass(frozen=True)
class Finding:
    """One node against the others of its kind."""

    node: NodeSeen
    mean: Judged
    """Geometric mean over its things."""
    things: tuple[OnThing, ...]
    """The slowest first."""

    @property
    def told(self) -> tuple[OnThing, ...]:
        """Those on which noise does not explain how slow, or fast, it is."""
        return tuple(each for each in self.things if each.judged.verdict in (SLOW, FAST))

    @property
    def slow_somewhere(self) -> bool:
        """Whether it is slow in the mean, or on a thing."""
        return any(each.verdict == SLOW for each in (self.mean, *(each.judged for each in self.things)))

    @property
    def out_of_line(self) -> bool:
        """Whether it is told apart in the mean, or on a thing."""
        return self.mean.verdict in (SLOW, FAST) or bool(self.told)


@dataclass(frozen=True)
class Spread:
    """How much nodes, and launches on one node, differ on one thing: standard deviations as a share of the time."""

    thing: Thing
    between: float
    """Of the nodes' means."""
    within: float | None
    """Of a node's launches, pooled over the nodes; None where none has two launches."""
    by_noise: float | None
    """What the nodes' means would deviate by if the nodes were the same."""


@dataclass(frozen=True)
class KindFound:
    """One kind, and what can be said of its nodes."""

    kind: Kind
    nodes: tuple[Finding, ...]
    """Slow ones first, the slowest of them first; then fast ones, then the others."""
    spreads: tuple[Spread, ...]

    @property
    def two_alone(self) -> bool:
        """Whether two nodes alone are compared: then nobody can say which of them is at fault."""
        return len(self.nodes) == 2


@dataclass(frozen=True)
class FleetFound:
    """Everything that the report tells."""

    kinds: tuple[KindFound, ...]

    @property
    def compared(self) -> tuple[KindFound, ...]:
        """The kinds of which several nodes have a thing in common."""
        return tuple(each for each in self.kinds if each.nodes)


def nodes_of_fleets(source: Source) -> FleetFound:
    """Return what the fleets of a source say; raises ReportError for a fleet that is not there."""
    kinds = gather(source)
    found = contrasts(kinds)
    return FleetFound(tuple(_found(kind, *each) for kind, each in zip(kinds, found, strict=True)))


def _found(kind: Kind, table: list[list[Judged | None]], means: list[Judged | None]) -> KindFound:
    findings = []
    for node, row, mean in zip(kind.nodes.values(), table, means, strict=True):
        things = [
            OnThing(thing, time, time.median / judged.ratio.value, judged)
            for thing, judged in zip(kind.things, row, strict=True)
            if judged is not None and (time := thing.times.get(node.name)) is not None
        ]
        if mean is not None:
            ordered = sorted(things, key=lambda each: -each.judged.ratio.value)
            findings.append(Finding(node, mean, tuple(ordered)))
    return KindFound(kind, tuple(sorted(findings, key=_order)), tuple(map(_spread, kind.things)))


def _order(found: Finding) -> tuple[int, int, float, str]:
    """Slow in the mean, slow somewhere, fast, the others; those that are slower before."""
    rank = 0 if found.mean.verdict == SLOW else 1 if found.slow_somewhere else 2 if found.out_of_line else 3
    return rank, int(found.mean.verdict == UNKNOWN), -found.mean.ratio.value, found.node.name


def _spread(thing: Thing) -> Spread:
    between = float(np.std([math.log(each.median) for each in thing.times.values()], ddof=1))
    logs = [np.log(each.launch_medians) for each in thing.times.values()]
    within, by_noise = _of_launches([each for each in logs if len(each) > 1], [len(each) for each in logs])
    return Spread(thing, between, within, by_noise)


def _of_launches(
    several: Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]], counts: Sequence[int]
) -> tuple[float | None, float | None]:
    """Return the pooled deviation of a node's launches, and that of the means of so many of them."""
    if not several:
        return None, None
    squares = math.fsum(float(np.var(each, ddof=1)) * (len(each) - 1) for each in several)
    variance = squares / sum(len(each) - 1 for each in several)
    return math.sqrt(variance), math.sqrt(variance * math.fsum(1 / count for count in counts) / len(counts))
