"""A plan: the cells of a suite on this machine, the order in which they are launched, and about how long that takes."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import TUNED, Cell, Protocol
from dlbench.reports.storage.networks import specification_of_cells

from ..errors import UsageError
from . import networks
from .values import Build, Row

STARTING = 6.0
"""Seconds in which a launch starts, imports its framework and checks its mathematics, roughly."""
RATE = 5e10
"""FLOP/s of a machine of which nothing is known, roughly: it only has to tell short launches from long ones."""


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch to come: a cell and the block it belongs to, in a comparison or a search also its side and stage."""

    cell: Cell
    block: int
    side: str = ""
    stage: str = ""


@dataclass(frozen=True)
class Plan:
    """Cells in the suite's order, how each is measured, and the seed of the launching order."""

    suite: str
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...]
    protocol: Protocol
    launches: int
    cell_seconds: float
    seed: int
    settings: dict[str, dict[str, object]] = field(default_factory=dict)
    launches_most: int | None = None
    """A cell's launches at most, while its interval misses the precision; None: ``launches``, no more."""
    interval: float | None = None
    """Relative half-width at which a cell gets no further launch; None: a fixed number of launches."""
    left_out: tuple[Cell, ...] = ()
    """Cells that this machine cannot have: bound to more CPUs than there are."""
    curve_check_steps: int = 0
    """Steps that rows behind the first train on a text, to check the first one's; the protocol's are the first's."""
    networks: dict[str, Network] = field(default_factory=dict)
    """The cells' networks by name; those that come with dlbench may be left out."""

    by_worth: bool = False
    """Its cells are what a store lacks, the most worth while first: launched in their order, and never shuffled."""

    @property
    def most(self) -> int:
        """A cell's launches at most."""
        return self.launches_most or self.launches

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds of the rows, each once."""
        return tuple({row.build.name: row.build for row in self.rows}.values())

    @property
    def computes(self) -> bool:
        """Whether any row computes anything: else there is nothing that others could disturb."""
        return any(build.framework.computes for build in self.builds)

    def row_of(self, cell: Cell) -> Row:
        """Return the row a cell stands in."""
        return next(row for row in self.rows if (row.build.name, row.mode) == (cell.framework, cell.mode))

    def tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings of which the cell's tuning chooses."""
        return self.row_of(cell).build.framework.tunable(cell.mode, cell.device, self.network_of(cell).family.name)

    def protocol_of(self, cell: Cell) -> Protocol:
        """Return how a launch of this cell measures, and for how many steps it trains."""
        first = (cell.framework, cell.mode) == (self.rows[0].build.name, self.rows[0].mode) if self.rows else True
        return self.protocol if first else self.protocol._replace(curve_steps=self.curve_check_steps)

    def network_of(self, cell: Cell) -> Network:
        """Return the network of a cell; raises UsageError where the cell was planned for other numbers."""
        found = self.networks.get(cell.network) or networks.shipped().get(cell.network)
        if found is None:
            raise UsageError(
                f"{cell.network} is not a network of dlbench. Give the suite file that defines it instead of a name."
            )
        if cell.specification != specification_of_cells(found):
            raise UsageError(f"{cell.network} had other numbers when this was planned. Start a new run.")
        return found

    def order(self) -> Iterator[PlannedLaunch]:
        """Yield the launches that every cell gets: one of each cell per block, shuffled by the seed.

        Within the first block the cell with the fewest threads comes first in its group (same row, network, device
        and mini-batch): its time tells whether the rest of the group fits the cell's budget. On a GPU the cells that
        differ in their mini-batch only come the smaller first: where one runs out of memory, larger ones would too.
        Other than that the order is random, so that a drift of the machine falls on all cells alike; but cells that
        differ in the settings in force only are launched one after another, as the pairs that they are.
        """
        for block in range(self.launches):
            yield from self.block(block)

    def block(self, block: int) -> Iterator[PlannedLaunch]:
        """Yield one launch of each cell, in the order of this block."""
        if self.by_worth:
            yield from (PlannedLaunch(cell, block) for cell in self.cells)
            return
        shuffled = list(self.cells)
        random.Random(self.lot(block)).shuffle(shuffled)
        shuffled = _neighbours(shuffled)
        for cell in _telling_first(shuffled) if block == 0 else shuffled:
            yield PlannedLaunch(cell, block)

    def lot(self, block: int) -> str:
        """Return what a block is shuffled by."""
        return f"{self.seed}:{block}"


def group_of(cell: Cell) -> Cell:
    """Return what cells share that differ in their thread count only."""
    return cell._replace(threads=0)


def sizes_of(cell: Cell) -> Cell:
    """Return what cells share that differ in their mini-batch only."""
    return cell._replace(batch_size=0)


def _neighbours(cells: list[Cell]) -> list[Cell]:
    """Put cells that differ in their tuning only behind the first of them, in the order they have."""
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell._replace(tuning=TUNED), []).append(cell)
    return [cell for group in groups.values() for cell in group]


def _telling_first(cells: list[Cell]) -> list[Cell]:
    """Let the cells that tell whether others are worth starting change places with those."""
    ordered = list(cells)
    for indices in _places(cells, group_of):
        fewest = min(indices, key=lambda index: cells[index].threads)
        ordered[indices[0]], ordered[fewest] = ordered[fewest], ordered[indices[0]]
    # Cells on a GPU have one thread count: the groups above hold one of them each, and nothing is undone here.
    for indices in _places(cells, sizes_of):
        if not cells[indices[0]].on_cpu:
            rising = sorted((ordered[index] for index in indices), key=lambda cell: cell.batch_size)
            for index, cell in zip(indices, rising, strict=True):
                ordered[index] = cell
    return ordered


def _places(cells: list[Cell], group: Callable[[Cell], Cell]) -> Iterable[list[int]]:
    """Return the places of each group's cells, rising."""
    places: dict[Cell, list[int]] = {}
    for index, cell in enumerate(cells):
        places.setdefault(group(cell), []).append(index)
    return places.values()


def narrow_to(plan: Plan, cells: tuple[Cell, ...]) -> Plan:
    """Return the plan with these cells and their rows only, in the plan's order."""
    wanted = set(cells)
    kept = tuple(cell for cell in plan.cells if cell in wanted)
    used = {(cell.framework, cell.mode) for cell in kept}
    rows = tuple(row for row in plan.rows if (row.build.name, row.mode) in used)
    return replace(plan, cells=kept, rows=rows)


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
