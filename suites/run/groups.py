"""Groups of a block's launches that take turns: those of cells that do the same work.

A group has as many launches as fit into memory. Its cells are compared within tenths of a second,
so that the machine's slow changes cancel out (`reports.results.side_by_side`). In a matrix, the
rows of a column make a group: smaller groups alternate faster. Cells of different columns are
compared by their seconds. Under a CPU quota the thread counts of a row make a group, and after the
first block one column is at another row's place in each group, so that all cells of a network can
be compared. More cells than fit are divided by chance, anew in each block.
"""

import math
import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.hardware_probe import Machine
from dlbench.reports.results.keys import column_of, grouped, row_of, work_of
from dlbench.reports.results.naming import name_of

from ..planning import devices, values
from ..planning.plan import Plan, PlannedLaunch
from . import turns
from .sides import Side

TURNS, SEQUENTIAL = ORDERS = ("turns", "sequential")
"""Launches follow one another: alternating within tenths of a second, or one after the other."""
Group = tuple[PlannedLaunch, ...]
"""Launches that belong together, in order.

They take turns, or are the two sides of a pair. Any other group has one launch."""

FEWEST_IN_COLUMN = 2
"""Fewest launches of a column that make a group."""
FEWEST_UNDER_QUOTA = 3
"""Fewest launches of a row under a CPU quota that make a group.

With two, one of them at another's place, too little could be compared."""
MOST_MEMBERS = 16
"""Most launches that take turns.

With more of them a round takes long, and the machine changes within it."""
LONG_LAUNCH = 60.0
"""Seconds of a launch from which its turns are too long to share rounds with others."""
PEAK_PER_LEAST = 4
"""A launch's peak of memory, in multiples of its weights, gradients and mini-batch.

There is room to spare."""
_PEAK_PER_LEAST_ON_GPU = 10
"""The same on a GPU.

A framework that asks for too much ends there, where a CPU's memory has room for more."""
_PROCESS_BYTES = 500_000_000
"""Bytes of a process that has imported its framework."""
_GPU_PROCESS_BYTES = 2_000_000_000
"""Bytes of the machine's memory for a process that computes on a GPU."""
CONTEXT_BYTES = 1_000_000_000
"""Bytes of a GPU for a process's context and libraries, beside those of its framework."""
_SHARE_OF_MEMORY = 0.8


def expected_peak(plan: Plan, cell: Cell) -> int:
    """Return the bytes of its device that a launch of a cell needs at most.

    If the size of its mini-batch is unknown, they are those of its process.
    """
    least = 0
    if cell.batch_size is not None:
        family = plan.network_of(cell).family
        least = family.least_bytes(cell.batch_size, cell.world_size, cell.infers)
    if cell.on_gpu:
        return CONTEXT_BYTES + _PEAK_PER_LEAST_ON_GPU * least
    return _PROCESS_BYTES + PEAK_PER_LEAST * least


def memory_for_launches(machine: Machine) -> int:
    """Return the bytes that launches which are alive at once may need together."""
    total = machine.memory.total_bytes
    available = min(total, machine.memory.limit_bytes or total)
    return int(_SHARE_OF_MEMORY * available)


def memory_of_gpus(machine: Machine) -> dict[str, int]:
    """Return the bytes of each GPU that launches which are alive at once may need together."""
    memory = {}
    for device in devices.present(machine.gpus):
        memory[device.name] = int(_SHARE_OF_MEMORY * (device.memory_bytes or 0))
    return memory


class Together(Enum):
    """The cells whose launches form a group."""

    WORK = "work"
    """All cells that do the same work."""
    COLUMN = "column"
    """The rows of a column of a matrix, or the thread counts of a row under a CPU quota.

    Where these are too few, all cells that do the same work."""
    BUILD = "build"
    """Cells that differ in their builds alone, as releases do."""


@dataclass(frozen=True)
class Grouping:
    """The cells of a plan whose launches take turns, and the memory that they have together."""

    plan: Plan
    cells: frozenset[Cell] = frozenset()
    memory_bytes: int = 0
    remarks: tuple[str, ...] = ()
    """A line for each cell that cannot take turns, where that was asked for."""
    together: Together = Together.WORK
    gpu_memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """The same of each GPU, by device."""

    def groups(
        self,
        launches: Sequence[PlannedLaunch],
        peaks: Mapping[Cell, int],
        seconds: Mapping[Cell, float],
    ) -> list[Group]:
        """Return the launches of a block in groups, in the order of their first launches.

        ``peaks`` are the bytes of its device that launches of a cell needed, as far as known, and
        ``seconds`` those for which they are expected to last.
        """

        def work(launch: PlannedLaunch) -> Cell:
            return self._work(launch.cell, seconds)

        groups: list[Group] = []
        for launches_of_work in grouped(launches, work).values():
            for part in self._divide(launches_of_work):
                size = self._members(part, peaks)
                for start in range(0, len(part), size):
                    members = part[start : start + size]
                    in_turns = len(members) > 1
                    groups.append(tuple(replace(launch, in_turns=in_turns) for launch in members))
        return groups

    def _divide(self, launches: Sequence[PlannedLaunch]) -> list[list[PlannedLaunch]]:
        """Return the launches of one work in parts.

        The parts of a matrix are its columns. Under a CPU quota the thread counts of a row are
        compared, so that there a part is a row under one quota, and rows are linked by one column
        at a time.
        """
        if self.together is not Together.COLUMN:
            return [list(launches)]
        under_quota = any(launch.cell.cpu_quota for launch in launches)
        part_of: Callable[[PlannedLaunch], Hashable] = _column
        fewest = FEWEST_IN_COLUMN
        if under_quota:
            part_of = _row_under_quota
            fewest = FEWEST_UNDER_QUOTA
        parts = list(grouped(launches, part_of).values())
        # Beyond its fewest launches a contest is about columns alone.
        if self.plan.decides and launches[0].index >= self.plan.launches:
            return parts
        if len(parts) == 1 or min(map(len, parts)) < fewest:
            return [list(launches)]
        # Columns are not linked so: only launches on as many threads have turns in slices
        # (`turns.may_be_sliced`), which compare them most precisely.
        if not under_quota or launches[0].index == 0:
            return parts
        return self._link(parts)

    def _link(self, parts: Sequence[Sequence[PlannedLaunch]]) -> list[list[PlannedLaunch]]:
        """Return the parts with the launches of one column, each at the next one's place.

        The seed draws which column it is.
        """
        launches = list(chain.from_iterable(parts))
        first = launches[0]
        columns = grouped(launches, _column_of_any_quota).values()
        several = [column for column in columns if len(column) > 1]
        chance = random.Random(f"links:{self.plan.seed}:{first.index}:{work_of(first.cell)!r}")
        moved = chance.choice(several or [[first]])
        following = dict(zip(moved, [*moved[1:], moved[0]], strict=True))
        linked = []
        for part in parts:
            linked.append([following.get(launch, launch) for launch in part])
        return linked

    def _members(self, launches: Sequence[PlannedLaunch], peaks: Mapping[Cell, int]) -> int:
        """Return how many of these launches on one device are alive at once.

        The groups are as equal as possible.
        """
        needed = []
        for launch in launches:
            peak = peaks.get(launch.cell)
            needed.append(peak or expected_peak(self.plan, launch.cell))
        cell = launches[0].cell
        available = self.memory_bytes
        most = MOST_MEMBERS
        if cell.on_gpu:
            available = self.gpu_memory_bytes.get(cell.device, 0)
            most = min(most, max(1, self.memory_bytes // _GPU_PROCESS_BYTES))
        for parts in range(math.ceil(len(needed) / most), len(needed)):
            size = math.ceil(len(needed) / parts)
            sums = [sum(needed[start : start + size]) for start in range(0, len(needed), size)]
            if max(sums) <= available:
                return size
        return 1

    def _work(self, cell: Cell, seconds: Mapping[Cell, float]) -> Cell:
        """Return the key that cells of one group share.

        A cell that is to run alone shares it with no other. Each device has groups of its own.
        """
        if cell not in self.cells or seconds.get(cell, 0.0) > LONG_LAUNCH:
            return cell
        if self.together is Together.BUILD:
            return axes.without(cell, "framework")
        return work_of(cell)._replace(device=cell.device)


def _column(launch: PlannedLaunch) -> Hashable:
    return column_of("", launch.cell)


def _column_of_any_quota(launch: PlannedLaunch) -> Hashable:
    return column_of("", axes.without(launch.cell, "cpu_quota"))


def _row_under_quota(launch: PlannedLaunch) -> Hashable:
    return row_of(launch.cell), launch.cell.cpu_quota


def grouping_for_plan(plan: Plan, machine: Machine, order: str | None) -> Grouping:
    """Return how the launches of a plan are grouped.

    They follow this ``order``, or without one take turns wherever it helps. Nothing can disturb a
    framework that computes nothing: its launches need no turns. On a GPU they take turns only if
    they are asked to, since no GPU has shown yet what it gains. Where first steps are measured, no
    other launch may start meanwhile. Raises UsageError for an unknown order.
    """
    memory = memory_for_launches(machine)
    gpu_memory = memory_of_gpus(machine)
    if order is not None:
        values.one_of(order, "order", ORDERS)
    if order == SEQUENTIAL or (order is None and plan.cold_start):
        return Grouping(plan, memory_bytes=memory)
    able = []
    remarks = []
    for cell in plan.cells:
        reason = turns.refusal(cell)
        if reason:
            remarks.append(f"sequential launches of {name_of(cell)}: {reason}")
        else:
            able.append(cell)
    if order == TURNS:
        in_turns = frozenset(able)
        return Grouping(plan, in_turns, memory, tuple(remarks), gpu_memory_bytes=gpu_memory)
    computing = []
    for cell in able:
        if cell.on_cpu and plan.row_of(cell).build.framework.computes:
            computing.append(cell)
    return Grouping(plan, frozenset(computing), memory)


def grouping_for_pairs(
    plan: Plan, machine: Machine, order: str | None, sides: Sequence[Side]
) -> Grouping:
    """Return how the pairs of a plan's cells are made, as `grouping_for_plan` does.

    Without an order both sides must fit into memory, and adapters of another revision, which may
    not support turns, are measured one after the other. Raises UsageError for an unknown order.
    """
    grouping = grouping_for_plan(plan, machine, order)
    if order is not None:
        return grouping
    if any(side.revision for side in sides):
        return Grouping(plan)
    fitting = frozenset(cell for cell in grouping.cells if _both_fit(plan, cell, machine))
    return replace(grouping, cells=fitting)


def _both_fit(plan: Plan, cell: Cell, machine: Machine) -> bool:
    """Return whether two launches of a cell fit into memory.

    If the size of its mini-batch is unknown, they are assumed to fit.
    """
    return cell.batch_size is None or 2 * expected_peak(plan, cell) <= memory_for_launches(machine)
