"""Which launches of a block take turns: those of cells that do the same work, as many as fit into memory.

Cells of one group are compared within tenths of a second, so that the machine's slow changes cancel out
(`reports.side_by_side`). More cells than fit are divided by chance, anew in each block, so that over several blocks
all of them can be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine
from dlbench.reports.cells import group_of, grouped

from ..planning.plan import Plan, PlannedLaunch
from . import turns

Group = tuple[PlannedLaunch, ...]
"""Launches that belong together, in order: those that take turns, the two sides of a pair, else one."""

MOST_MEMBERS = 16
"""Launches that take turns: with more of them a round takes long, and the machine changes within it."""
LONG_LAUNCH = 60.0
"""Seconds. The turns of a launch that is expected to last longer are too long to share rounds with others."""
PEAK_PER_LEAST = 4
"""A launch's peak of memory, in multiples of its weights, gradients and mini-batch, with room to spare."""
_OF_A_PROCESS = 500_000_000
"""Bytes of a process that has imported its framework."""
_SHARE_OF_MEMORY = 0.8


def expected_peak(plan: Plan, cell: Cell) -> int:
    """Return the bytes that a launch of a cell needs at most; of a mini-batch of unknown size those of its process."""
    if cell.batch_size is None:
        return _OF_A_PROCESS
    least = plan.network_of(cell).family.least_bytes(cell.batch_size, cell.world_size)
    return _OF_A_PROCESS + PEAK_PER_LEAST * least


def memory_for_launches(machine: Machine) -> int:
    """Return the bytes that launches which are alive at once may need together."""
    there = min(machine.memory.total_bytes, machine.memory.limit_bytes or machine.memory.total_bytes)
    return int(_SHARE_OF_MEMORY * there)


@dataclass(frozen=True)
class Grouping:
    """The cells of a plan that may take turns, and the memory that they have together."""

    plan: Plan
    cells: frozenset[Cell]
    memory_bytes: int

    def groups(
        self, launches: Sequence[PlannedLaunch], peaks: dict[Cell, int], seconds: dict[Cell, float]
    ) -> list[Group]:
        """Return the launches of a block in groups, in the order of their first launches.

        ``peaks`` are the bytes that launches of a cell needed, as far as known, and ``seconds`` how long they are
        expected to last.
        """
        found: list[Group] = []
        for of_work in grouped(launches, lambda launch: self._work(launch.cell, seconds)).values():
            needed = [peaks.get(each.cell) or expected_peak(self.plan, each.cell) for each in of_work]
            parts = max(math.ceil(len(of_work) / MOST_MEMBERS), math.ceil(sum(needed) / max(1, self.memory_bytes)))
            size = math.ceil(len(of_work) / min(parts, len(of_work)))
            for start in range(0, len(of_work), size):
                found.append(_group(of_work[start : start + size]))
        return found

    def _work(self, cell: Cell, seconds: dict[Cell, float]) -> Cell:
        """Return what cells of one group share; a cell that is to run alone shares it with no other."""
        together = cell in self.cells and seconds.get(cell, 0.0) <= LONG_LAUNCH
        return group_of(cell) if together else cell


def _group(launches: Sequence[PlannedLaunch]) -> Group:
    several = len(launches) > 1
    return tuple(PlannedLaunch(each.cell, each.block, each.side, in_turns=several) for each in launches)


def of_plan(plan: Plan, machine: Machine) -> Grouping:
    """Return how the launches of a plan are grouped: all that can take turns and compute anything do."""
    computing = [cell for cell in plan.cells if plan.row_of(cell).build.framework.computes]
    fitting = frozenset(cell for cell in computing if not turns.refusal(cell))
    return Grouping(plan, fitting, memory_for_launches(machine))
