"""The cells of a matrix as the papers' claims speak of them: a tool, on a network, with so many threads or on a GPU.

A tool of a paper is here the framework that stands for it, in its fastest mode; every other framework is a tool by its
own name. Cells that differ from the papers' in another way (threads bound to CPUs, several workers, another precision,
a mini-batch that is copied to the device) take no part.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.reports.cells import CellResult, Matrix, fastest_mode
from dlbench.reports.curve.curve import computes_nothing
from dlbench.reports.recurrent_cells.settings import Losses
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import FIRST, Networks

FCNS, CNNS, RNNS = ("fcn5", "fcn8"), ("alexnet", "resnet50"), ("lstm32", "lstm64")
NETWORKS = (*FCNS, *CNNS, *RNNS)
_DIFFERENT = [axis.name for axis in axes.AXES if axis.usual is not None]
"""Axes that have their usual value in every cell that takes part."""


class Spot(NamedTuple):
    """A machine's CPUs, or one of its GPUs."""

    machine: str
    device: str

    @property
    def on_cpu(self) -> bool:
        """Whether it is the CPUs."""
        return self.device == "cpu"


class Work(NamedTuple):
    """What a tool does there."""

    network: str
    batch_size: int


class Cells:
    """The cells of a matrix that take part."""

    def __init__(
        self,
        matrix: Matrix,
        tool_of: Callable[[CellResult], str],
        machines: Sequence[str] | None = None,
        networks: Networks | None = None,
        losses: Losses | None = None,
    ) -> None:
        """Take a matrix, what tool a cell is of, of which machines (without any of all), and what is known of networks.

        These are named with their specification: their family and numbers, as records keep them. ``losses`` are those
        of networks trained on a text.
        """
        self.matrix = matrix
        self.tool_of = tool_of
        self.networks = networks or {}
        self.losses = losses or {}
        self._found: dict[tuple[Spot, Work, str, int | None], list[CellResult]] = {}
        for cell in matrix.cells.values():
            spot, column = Spot(cell.column.machine, cell.column.device), cell.column
            usual = all(getattr(cell.cell, name) == getattr(axes.BLANK, name) for name in _DIFFERENT)
            if usual and not computes_nothing(cell) and (machines is None or spot.machine in machines):
                work = Work(cell.group.network, cell.group.batch_size)
                threads = column.threads if spot.on_cpu else None
                self._found.setdefault((spot, work, tool_of(cell), threads), []).append(cell)

    def cpus(self) -> list[Spot]:
        """Return the CPUs of every machine, whether its cores are known or not."""
        return list(dict.fromkeys(spot for spot, *_ in self._found if spot.on_cpu))

    def hosts(self, cores: int = 1) -> Iterator[tuple[Spot, Host, int]]:
        """Yield the CPUs of machines with so many physical cores of their own: where, the machine, how many."""
        measured = self.cpus()
        yield from (each for each in self.all_hosts() if each[0] in measured and each[2] >= cores)

    def all_hosts(self) -> Iterator[tuple[Spot, Host, int]]:
        """Yield the same of every machine whose CPUs have any cell at all."""
        for machine in dict.fromkeys(column.machine for column in self.matrix.columns if column.on_cpu):
            host = self.matrix.hosts[machine]
            if host.own_cores is not None:
                yield Spot(machine, "cpu"), host, host.own_cores

    def gpus(self, model: str = "") -> list[Spot]:
        """Return the GPUs, or those whose model has these words in its name."""
        spots = dict.fromkeys(spot for spot, *_ in self._found if not spot.on_cpu)
        return [spot for spot in spots if re.search(rf"{model}(?! ?Ti\b)", self.name(spot))]

    def tools(self, spot: Spot) -> list[str]:
        """Return the tools that were measured there."""
        return sorted({tool for where, _, tool, _ in self._found if where == spot})

    def counts(self, spot: Spot) -> list[int]:
        """Return the thread counts that were measured there."""
        return sorted({threads for where, *_, threads in self._found if where == spot and threads})

    def sizes(self, spot: Spot, network: str) -> list[int]:
        """Return the mini-batches that a network was measured with there."""
        return sorted({work.batch_size for where, work, *_ in self._found if where == spot and work.network == network})

    def at(
        self, spot: Spot, network: str, tool: str, threads: int | None = None, batch_size: int | None = None
    ) -> CellResult | None:
        """Return the fastest cell there; without a mini-batch at the one that the network is defined with."""
        usual = FIRST[network].batch_size if network in FIRST else 0
        found = self._found.get((spot, Work(network, batch_size or usual), tool, threads))
        return fastest_mode(found) if found else None

    def fastest(
        self, spot: Spot, network: str, tools: Sequence[str], batch_size: int | None = None
    ) -> CellResult | None:
        """Return the fastest cell of several tools on a GPU; None where none has a time."""
        return _fastest(self.at(spot, network, tool, batch_size=batch_size) for tool in tools)

    def best(self, spot: Spot, network: str, tool: str, most: int | None = None) -> CellResult | None:
        """Return the fastest cell of a tool over thread counts, or those up to so many; None where none has a time."""
        counts = [count for count in self.counts(spot) if most is None or count <= most]
        return _fastest(self.at(spot, network, tool, count) for count in counts)

    def name(self, spot: Spot) -> str:
        """Return what a GPU, or the machine with these CPUs, is called."""
        host = self.matrix.hosts[spot.machine]
        told = dict(host.description)
        index = spot.device.partition(":")[2]
        model = told.get(f"GPU {index}" if index else "GPU", "").partition(",")[0]
        return host.name if spot.on_cpu or not model else model


def _fastest(cells: Iterable[CellResult | None]) -> CellResult | None:
    timed = {cell.timed.median: cell for cell in cells if cell is not None and cell.timed is not None}
    return timed[min(timed)] if timed else None


def tools_of_stands(
    adapters: Mapping[str, str], adapter_of: Callable[[CellResult], str]
) -> Callable[[CellResult], str]:
    """Return what says which tool a cell is of: ``adapters`` names the papers' tools by the adapter that stands."""

    def tool_of(cell: CellResult) -> str:
        adapter, row = adapter_of(cell), cell.row.framework
        # A row may have the name of a tool of the papers, and be another program.
        return adapters.get(adapter, f"{row} by {adapter}" if row in adapters.values() else row)

    return tool_of
