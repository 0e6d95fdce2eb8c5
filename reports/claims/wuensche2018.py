"""What Wuensche's survey of 2018 claims: of threads, of several GPUs, and of copies to them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from dlbench.adapters import axes
from dlbench.reports.against.wuensche2018 import NETWORK, table1
from dlbench.reports.cells import CellResult
from dlbench.reports.claims.cells import FCNS, Cells
from dlbench.reports.claims.claim import Test
from dlbench.reports.claims.questions import MORE, Claimed, Question, of_times, of_value

SAVED = {"cntk": 0.35, "mxnet": 0.35, "caffe": 0.28, "torch": 0.10, "tensorflow": 0.10}
"""Of the time, by twice the GPUs."""
MEMORY, LINK, GPUS, COMPUTES = 8.0, 31.5, 3, 0.5
"""Its example: GB to fill a GPU with, GB/s of the link that they share, GPUs, seconds of computing."""


def threads_beyond(cells: Cells) -> Iterator[Question]:
    """W1: twice as many threads as physical cores hurt fully connected networks."""
    for spot, _, cores in cells.hosts():
        for tool in ("caffe", "tensorflow", "torch"):
            for network in (NETWORK, *FCNS):
                batch = None if network in FCNS else 64
                over, under = (cells.at(spot, network, tool, p, batch) for p in (2 * cores, cores))
                if over or under or network in FCNS:
                    yield of_times(f"{tool} {network}, {2 * cores} threads / {cores}", over, under, MORE)


def threads_in_table1() -> Iterable[Question]:
    """W1 on the paper."""
    found = threads_beyond(Cells(table1(), lambda cell: cell.row.framework))
    return [each for each in found if NETWORK in each.what]


def doubling_gpus(cells: Cells) -> Iterator[Question]:
    """W2: twice the GPUs save a share of the time, by tool."""
    by_workers: dict[object, dict[int, CellResult]] = {}
    for cell in cells.matrix.cells.values():
        if not cell.cell.on_cpu:
            column = cell.column
            where = cells.tool_of(cell), cell.group, cell.row, column.machine, axes.without(column.cell, "world_size")
            by_workers.setdefault(where, {})[cell.column.world_size] = cell
    for found in by_workers.values():
        for workers, cell in found.items():
            tool = cells.tool_of(cell)
            if tool in SAVED and 2 * workers in found:
                claimed = Claimed(least=1.0, size=1 / (1 - SAVED[tool]))
                what = f"{tool} {cell.group.network}, {workers} GPUs / {2 * workers}"
                yield of_times(what, cell, found[2 * workers], claimed)


def example_of_copies() -> Iterator[Question]:
    """W3 on the paper: its example's share of the time computing, by T = max(T computing, n b / R)."""
    share = COMPUTES / max(COMPUTES, GPUS * MEMORY / LINK)
    yield of_value("share of the time computing / 65.62 % as printed", share / 0.6562, Claimed(0.999, 1.001))


TESTS: Mapping[str, Test] = {"W1": threads_beyond, "W2": doubling_gpus}
ON_PAPER: Mapping[str, Callable[[], Iterable[Question]]] = {"W1": threads_in_table1, "W3": example_of_copies}
