"""Keys of results: a cell on a machine, and its parts by role (work, row of a table, column)."""

from collections.abc import Callable, Hashable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, NewType, TypeVar

from dlbench.adapters import axes
from dlbench.adapters.protocol import UNKNOWN, Cell
from dlbench.reports.results.networks import by_numbers

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)

WorkKey = NewType("WorkKey", Cell)
"""The axes of a cell that say what is computed; the others are blank."""
RowKey = NewType("RowKey", Cell)
"""The axes of a cell that say how it is computed; the others are blank."""

NO_THREADS = -1
"""The thread count of a device that has no threads to choose (a published GPU column)."""


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by key, in the order in which the keys first occur."""
    items_by_key: dict[Key, list[Item]] = {}
    for item in items:
        items_by_key.setdefault(key(item), []).append(item)
    return items_by_key


class Place(NamedTuple):
    """A cell on a machine, or the axes that several of its cells share, such as a column.

    The adapter's folder is no axis: a place has none.
    """

    machine: str
    cell: Cell

    @property
    def device(self) -> str:
        """The device that computes."""
        return self.cell.device

    @property
    def threads(self) -> int | None:
        """Intra-op threads; 0: the framework's own number; None: not applicable, or not known."""
        value: int | None = axis_value(self.cell, "threads")
        return value

    @property
    def world_size(self) -> int:
        """Workers, each on a device like this one or with this many threads."""
        return self.cell.world_size

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.cell.on_cpu

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU computes; neither does where the device is not known."""
        return self.cell.on_gpu


def _names_of_role(role: str) -> tuple[str, ...]:
    return tuple(axis.name for axis in axes.with_role(role))


_NAMES_OF_ROLE = {role: _names_of_role(role) for role in (axes.WORK, axes.ROW, axes.COLUMN)}


@lru_cache(20_000)
def work_of(cell: Cell) -> WorkKey:
    """Return the axes of a cell's work.

    Cells of one work may be compared, and stand in one block of rows.
    """
    return WorkKey(axes.project(cell, _NAMES_OF_ROLE[axes.WORK]))


@lru_cache(20_000)
def row_of(cell: Cell) -> RowKey:
    """Return the axes of a cell's way to do the work: framework, mode and settings."""
    return RowKey(axes.project(cell, _NAMES_OF_ROLE[axes.ROW]))


def row_order(row: RowKey) -> tuple[str, RowKey]:
    """Return a sort key of rows: by framework, a release after those of smaller numbers."""
    return by_numbers(row.framework), row


@lru_cache(20_000)
def column_of(machine: str, cell: Cell) -> Place:
    """Return the column of this machine's cell: its device, threads and workers."""
    return Place(machine, axes.project(cell, _NAMES_OF_ROLE[axes.COLUMN]))


_RESOURCES = (
    "threads",
    "world_size",
    "cpu_quota",
    "loader_workers",
    "instances",
    "storage",
    "sync",
)
"""Axes that an imported benchmark does not state, though a cell has no value for that."""


def axis_value(cell: Cell, name: str) -> Any:
    """Return the value of an axis for JSON and CSV.

    Threads are None where the device has none to choose. Where nobody recorded the device, nobody
    recorded the other resources either.
    """
    value = getattr(cell, name)
    if name == "threads" and value == NO_THREADS:
        return None
    if cell.device == UNKNOWN and name in _RESOURCES:
        return UNKNOWN if isinstance(value, str) else None
    return value


def differ(cells: Iterable[Cell], *names: str) -> bool:
    """Tell whether some of these cells differ in these axes and in no other."""
    values: dict[Cell, set[Cell]] = {}
    for cell in cells:
        values.setdefault(axes.without(cell, *names), set()).add(axes.project(cell, names))
    return any(len(several) > 1 for several in values.values())
