"""How long a launch lasts: from earlier launches, else roughly from the network's arithmetic and the protocol."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from statistics import fmean

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell, Protocol

from .framework import catalogue
from .plan import Plan

_STARTUP = 6.0
"""Seconds in which a launch starts, imports its framework and checks its mathematics, roughly."""
_RATE = 5e10
"""FLOP/s of an unknown machine."""
_TRAINING_STEP = 0.05
"""Seconds of a step of training on a text."""


class LaunchDurations:
    """The expected wall seconds of a plan's launches, which improve with each launch that is added."""

    def __init__(self, plan: Plan, earlier: Mapping[Cell, float] | None = None) -> None:
        self._plan = plan
        self._seconds: defaultdict[Hashable, list[float]] = defaultdict(list)
        self._idle = {each.folder for each in catalogue().values() if not each.computes}
        self._measured = self._rough = 0.0
        for cell, seconds in (earlier or {}).items():
            self._add(cell, seconds)

    def add(self, cell: Cell, seconds: float) -> None:
        """Take note of a launch of the plan."""
        self._add(cell, seconds)
        self._measured += seconds
        self._rough += self._rough_duration(cell)

    def _add(self, cell: Cell, seconds: float) -> None:
        for key in self._keys(cell):
            self._seconds[key].append(seconds)

    def launch_duration(self, cell: Cell) -> float:
        """Return the expected seconds of a launch: the mean of the most alike, else a rough estimate.

        The rough one is scaled by how long the launches so far took of theirs.
        """
        found = self.by_launches(cell)
        pace = self._measured / self._rough if self._rough else 1.0
        return self._rough_duration(cell) * pace if found is None else found

    def by_launches(self, cell: Cell) -> float | None:
        """Return the mean of launches of this cell, else of its row on this network, else of others on it."""
        return next((fmean(self._seconds[key]) for key in self._keys(cell) if key in self._seconds), None)

    def _keys(self, cell: Cell) -> Iterable[Hashable]:
        # Launches of a framework that computes nothing say nothing about any other.
        return cell, (cell.network, cell.framework, cell.mode), (cell.network, cell.adapter in self._idle)

    def _rough_duration(self, cell: Cell) -> float:
        return rough_duration(cell, self._plan.network_of(cell), self._plan.protocol_of(cell))


def rough_duration(cell: Cell, network: Network, protocol: Protocol) -> float:
    """Return a rough estimate of a launch's seconds, without any launch to go by."""
    step = network.family.training_flops(cell.batch_size) / _RATE
    allowed = max(protocol.seconds, protocol.minimum_steps * step)
    # A user's own step may take any time.
    timed = min(protocol.steps * max(step, protocol.sample_seconds), allowed) if step else allowed
    return _STARTUP + protocol.warmup_steps * step + timed + _TRAINING_STEP * protocol.curve_steps
