"""About how long launches last: by earlier ones where there are any, else by the work of their networks."""

from collections.abc import Mapping, Sequence
from statistics import mean

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import Cell, Protocol

STARTING = 6.0
"""Seconds in which a launch starts, imports its framework and checks its mathematics, roughly."""
RATE = 5e10
"""FLOP/s of a machine of which nothing is known, roughly: it only has to tell short launches from long ones."""


def expected_seconds(cells: Sequence[Cell], known: Mapping[Cell, float]) -> list[float | None]:
    """Return how long a launch of each cell lasts, by launches of the same, else in the mean of its network's."""
    by_network: dict[str, list[float]] = {}
    for cell, seconds in known.items():
        by_network.setdefault(cell.network, []).append(seconds)
    return [known.get(cell) or (mean(of) if (of := by_network.get(cell.network)) else None) for cell in cells]


def rough_seconds(cell: Cell, network: Network, protocol: Protocol) -> float:
    """Return how long a launch lasts of which no earlier one tells, within some factor."""
    step = network.family.training_flops(cell.batch_size) / RATE
    allowed = max(protocol.seconds, protocol.minimum_steps * step)
    timed = min(protocol.steps * max(step, protocol.sample_seconds), allowed)
    return STARTING + protocol.warmup_steps * step + timed
