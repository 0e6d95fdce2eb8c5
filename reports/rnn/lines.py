"""Small recurrent networks in a matrix: rows at their places, over the sizes of networks of the family elman.

Leaky units and other limits of gradients than the usual one take no part, nor do networks with more outputs than
inputs, or fewer: nobody studied those.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import OVERSUBSCRIBED, TUNED, Cell
from dlbench.reports.cells import NO_THREADS, CellResult, Matrix, Row, row_of
from dlbench.reports.flags import THREADS_EXCEEDED
from dlbench.reports.naming import extra_of_place, place_name, row_name
from dlbench.reports.statistics import Summary
from dlbench.reports.storage.networks import Networks

FAMILY = "elman"


class Size(NamedTuple):
    """What tells one of these networks from another."""

    hidden: int
    steps: int
    inputs: int = 2
    """As many as outputs."""
    activation: str = "relu"


class Series(NamedTuple):
    """What networks have in common that differ in their units only."""

    steps: int
    inputs: int = 2
    activation: str = "relu"


class Line(NamedTuple):
    """A row of the matrix at a place: all that a cell has but its network."""

    machine: str
    cell: Cell

    @property
    def row(self) -> Row:
        """The framework, its mode, and how its threads are bound."""
        return row_of(self.cell)

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.cell.on_cpu

    @property
    def threads(self) -> int | None:
        """Threads on the CPU; None where nobody told them."""
        return self.cell.threads if self.on_cpu and self.cell.threads != NO_THREADS else None

    @property
    def one_example(self) -> bool:
        """Whether it is as in the study: one example an update, on the device, in single precision, tuned."""
        own = self.cell
        usual = (own.batch_size, own.world_size, own.precision, own.placement, own.affinity, own.tuning)
        return usual == (1, 1, "float32", "resident", OVERSUBSCRIBED, TUNED)

    @property
    def name(self) -> str:
        """In words: "torch eager, 2 threads"."""
        return f"{row_name(self.row)}, {self.place}"

    @property
    def place(self) -> str:
        """What it is given, in words: "2 threads", "cuda:0"."""
        on_device = self.cell.device + extra_of_place(self.cell)
        return (place_name(self.cell) if self.on_cpu else "") or on_device


Lines = Mapping[Line, Mapping[Size, CellResult]]
Times = Mapping[Size, Summary]


def lines(matrix: Matrix, networks: Networks) -> Lines:
    """Return the cells of these networks; ``networks`` has what each is, by its name and digest."""
    found: dict[Line, dict[Size, CellResult]] = {}
    for cell in matrix.cells.values():
        network = networks.get((cell.group.network, cell.group.specification), {})
        numbers = network.get("numbers", {})
        plain = network.get("family") == FAMILY and set(numbers) == {*Size._fields, "outputs"}
        if plain and numbers["inputs"] == numbers["outputs"]:
            size = Size(*(numbers[name] for name in Size._fields))
            line = Line(cell.column.machine, axes.without(cell.cell, "network", "specification"))
            found.setdefault(line, {})[size] = cell
    return found


def times(cells: Mapping[Size, CellResult]) -> dict[Size, Summary]:
    """Return the times that can be used: of the right mathematics, by no more threads than were asked for."""
    return {
        size: timed
        for size, cell in sorted(cells.items())
        if (timed := cell.timed) is not None and not cell.has(THREADS_EXCEEDED)
    }


def by_units(found: Times) -> dict[Series, dict[int, Summary]]:
    """Return the times of each series by the number of units, rising."""
    series: dict[Series, dict[int, Summary]] = {}
    for size in sorted(found):
        series.setdefault(Series(*size[1:]), {})[size.hidden] = found[size]
    return dict(sorted(series.items(), key=lambda each: (each[0].activation, each[0].inputs, each[0].steps)))
