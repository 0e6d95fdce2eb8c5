"""Where a cell stands in a matrix: its group, its row and its column, each a cell with the axes of one role only."""

from collections.abc import Iterable
from typing import Any, NamedTuple, NewType

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell

Group = NewType("Group", Cell)
"""A block of rows whose numbers may be compared: the same work, one network at one mini-batch."""
Row = NewType("Row", Cell)
"""One row of a group: a framework in a mode, a way to do the work."""

NO_THREADS = -1
"""The thread count of a device that has no threads to choose (a published GPU column)."""


class Place(NamedTuple):
    """A machine, and what the cells measured there have in common; axes in which they differ are blank."""

    machine: str
    cell: Cell

    @property
    def device(self) -> str:
        """The device that computes."""
        return self.cell.device

    @property
    def threads(self) -> int | None:
        """Intra-op threads; 0: the framework's own number; None: the device has none to choose."""
        return None if self.cell.threads == NO_THREADS else self.cell.threads

    @property
    def world_size(self) -> int:
        """Workers, each on a device like this one or with so many threads."""
        return self.cell.world_size

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.cell.on_cpu


Column = Place
"""A column of the matrix; columns of one machine stand together."""


def group_of(cell: Cell) -> Group:
    """Return the group that a cell stands in."""
    return Group(axes.project(cell, [axis.name for axis in axes.of_role(axes.GROUP)]))


def row_of(cell: Cell) -> Row:
    """Return the row that a cell stands in."""
    return Row(axes.project(cell, [axis.name for axis in axes.of_role(axes.ROW)]))


def column_of(machine: str, cell: Cell) -> Column:
    """Return the column that a cell of this machine stands in."""
    return Place(machine, axes.project(cell, [axis.name for axis in axes.of_role(axes.COLUMN)]))


def group_at(network: str, batch_size: int, **others: Any) -> Group:
    """Return the group of these values; axes that are not given have their usual value."""
    return Group(axes.BLANK._replace(network=network, batch_size=batch_size, **others))


def row_at(framework: str, mode: str, **others: Any) -> Row:
    """Return the row of these values; axes that are not given have their usual value."""
    return Row(axes.BLANK._replace(framework=framework, mode=mode, **others))


def column_at(machine: str, device: str, threads: int | None, **others: Any) -> Column:
    """Return the column of these values; axes that are not given have their usual value."""
    given = NO_THREADS if threads is None else threads
    return Place(machine, axes.BLANK._replace(device=device, threads=given, **others))


def cell_at(group: Group, row: Row, column: Column) -> Cell:
    """Return the cell that stands there, without its adapter's folder."""
    holders = {axes.GROUP: group, axes.ROW: row, axes.COLUMN: column.cell}
    return axes.BLANK._replace(**{axis.name: getattr(holders[axis.role], axis.name) for axis in axes.AXES})


def values(cell: Cell, *left_out: str) -> dict[str, Any]:
    """Return the axes by name, as JSON and CSV have them: threads are None where the device has none to choose."""
    found = {name: value for name, value in axes.values(cell).items() if name not in left_out}
    if found.get("threads") == NO_THREADS:
        found["threads"] = None
    return found


def differ(cells: Iterable[Cell], *names: str) -> bool:
    """Tell whether some of these cells differ in these axes and in no other."""
    found: dict[Cell, set[Cell]] = {}
    for cell in cells:
        found.setdefault(axes.without(cell, *names), set()).add(axes.project(cell, names))
    return any(len(each) > 1 for each in found.values())
