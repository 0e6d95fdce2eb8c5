"""Elman networks of a matrix, by their sizes."""

from typing import NamedTuple

from dlbench.reports.curve.curve import along
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import Place
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.networks import Networks

FAMILY = "elman"


class Size(NamedTuple):
    """The numbers of one of these networks; 0 where several differ in a number."""

    hidden: int
    steps: int
    inputs: int = 2
    """As many as outputs."""
    activation: str = "relu"


def sizes_of(matrix: Matrix, networks: Networks) -> dict[Place, dict[Size, CellResult]]:
    """Return the cells of these networks, by place and size.

    ``networks`` has the numbers of each, by its name and digest.
    """
    sizes = {}
    for key, network in networks.items():
        numbers = network.get("numbers", {})
        is_plain = network.get("family") == FAMILY and set(numbers) == {*Size._fields, "outputs"}
        if is_plain and numbers["inputs"] == numbers["outputs"]:
            sizes[key] = Size(*(numbers[name] for name in Size._fields))

    def network_key(cell: CellResult) -> tuple[str, str]:
        return cell.work.network, cell.work.specification

    cells = [cell for cell in matrix.cells.values() if network_key(cell) in sizes]
    cells_by_place = {}
    for place, cells_of_place in along(cells, "network", "specification").items():
        cells_by_size = {}
        for cell in cells_of_place:
            cells_by_size[sizes[network_key(cell)]] = cell
        cells_by_place[place] = cells_by_size
    return cells_by_place
