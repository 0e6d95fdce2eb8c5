"""A plan: the cells of a suite on this machine, and the order in which they are launched."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import BOUND, OVERSUBSCRIBED, Cell, Protocol
from dlbench.reports.storage.networks import specification_of_cells

from ..errors import UsageError
from . import devices, networks
from . import values as axes
from .networks import LARGEST_BATCH
from .suite import LARGEST_COUNT, USUAL_PRECISION, USUAL_RANGE, Suite
from .values import Build, Capacity, Row


@dataclass(frozen=True)
class Choices:
    """What the command line narrows or overrides; empty means as the suite says."""

    networks: str = ""
    frameworks: str = ""
    threads: str = ""
    threads_limit: str = ""
    batch_sizes: str = ""
    devices: str = ""
    affinity: str = ""
    launches: int | str | None = None
    precision: str = ""
    steps: int | None = None
    cell_budget: str = ""
    builds: tuple[Build, ...] = ()
    joining: tuple[str, ...] = ()
    """Frameworks that join the suite's rows where none are named: adapters given for this command."""
    precisions: str = ""
    placements: str = ""
    device_threads: str = ""
    world_sizes: str = ""


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch to come: a cell and the block it belongs to."""

    cell: Cell
    block: int


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
    precision: float | None = None
    """Relative half-width at which a cell gets no further launch; None: a fixed number of launches."""
    left_out: tuple[Cell, ...] = ()
    """Cells that this machine cannot have: bound to more CPUs than there are."""
    networks: dict[str, Network] = field(default_factory=dict)
    """The cells' networks by name; those that come with dlbench may be left out."""

    @property
    def most(self) -> int:
        """A cell's launches at most."""
        return self.launches_most or self.launches

    @property
    def computes(self) -> bool:
        """Whether any row computes anything: else there is nothing that others could disturb."""
        return any(row.build.framework.computes for row in self.rows)

    def row_of(self, cell: Cell) -> Row:
        """Return the row a cell stands in."""
        return next(row for row in self.rows if (row.build.name, row.mode) == (cell.framework, cell.mode))

    def network_of(self, cell: Cell) -> Network:
        """Return the network of a cell; raises UsageError where the cell was planned for other numbers."""
        found = self.networks.get(cell.network) or networks.shipped().get(cell.network)
        if found is None:
            raise UsageError(
                f"{cell.network} is no network of dlbench. Give the suite file that defines it instead of a name."
            )
        if cell.specification != specification_of_cells(found):
            raise UsageError(f"{cell.network} had other numbers when this was planned. Begin a run of its own.")
        return found

    def order(self) -> Iterator[PlannedLaunch]:
        """Yield the launches that every cell gets: one of each cell per block, shuffled by the seed.

        Within the first block the cell with the fewest threads comes first in its group (same row, network, device
        and mini-batch): its time tells whether the rest of the group fits the cell's budget. On a GPU the cells that
        differ in their mini-batch only come the smaller first: where one runs out of memory, larger ones would too.
        Other than that the order is random, so that a drift of the machine falls on all cells alike.
        """
        for block in range(self.launches):
            yield from self.block(block)

    def block(self, block: int) -> Iterator[PlannedLaunch]:
        """Yield one launch of each cell, in the order of this block."""
        shuffled = list(self.cells)
        random.Random(self.lot(block)).shuffle(shuffled)
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


def expand(suite: Suite, choices: Choices, capacity: Capacity, seed: int) -> Plan:
    """Return the plan of a suite on a machine of this capacity; raises UsageError for words that mean nothing."""
    chosen = suite.chosen(choices.networks)
    named = axes.words(choices.devices) if choices.devices else suite.devices
    on = devices.meant(named, capacity.gpus, capacity.visible)
    rows = _rows_on(_rows(suite, choices), on)
    affinities = _words(choices.affinity, suite.affinity, axes.affinity)
    precisions = _words(choices.precisions, suite.precisions, axes.precision)
    world_sizes = axes.world_sizes(choices.world_sizes or suite.world_sizes, capacity)
    section = suite.protocol
    placements = {device: _placements(suite, choices, device) for device in on}
    # Several GPUs are the first of those named and the ones behind it: from any other on they would be fewer.
    leading = {devices.CPU, *[device for device in on if device != devices.CPU][:1]}
    threads_on = {device: _threads(suite, choices, capacity, device) for device in on}
    fewest, most, precision = _launches(suite, choices)
    if choices.threads and devices.CPU not in on:
        raise UsageError(
            "--threads is for cells on the CPU, and no device here is it. Cells on a GPU have one count, of threads "
            "that only start what it computes: --device-threads."
        )
    if choices.steps is not None:
        section = section.model_copy(update={"steps": _within_reason(choices.steps, "--steps")})
    if choices.cell_budget:
        section = section.model_copy(update={"cell_seconds": axes.duration(choices.cell_budget)})
    cells = (
        Cell(
            row.build.name,
            row.build.framework.folder,
            row.mode,
            network,
            device,
            threads,
            batch,
            precision_of_cell,
            placement,
            affinity,
            world_size,
            specification_of_cells(suite.known[network]),
        )
        for network in chosen
        for row in rows
        for device in on
        if _means_anything(row, device)
        for batch in _batch_sizes(suite, choices, network, device, capacity)
        for precision_of_cell in precisions
        for placement in placements[device]
        for affinity in affinities
        for world_size in world_sizes
        if world_size == 1 or device in leading
        for threads in threads_on[device]
    )
    distinct = tuple(dict.fromkeys(cells))  # what was named twice is measured once
    if not distinct:
        raise UsageError(
            f"On the CPU the mini-batch is always {axes.RESIDENT}: other placements are of GPUs. Name a GPU with "
            "--devices, or leave --placements out."
        )
    kept = tuple(cell for cell in distinct if cell.affinity != BOUND or cell.all_threads <= capacity.cpus)
    if not kept:
        raise UsageError(
            f"This machine has {capacity.cpus} CPUs to bind threads to, and no cell has so few, those of all its "
            f"workers together. Give --threads and --world-sizes whose product is at most {capacity.cpus}, or "
            f"--affinity {OVERSUBSCRIBED}."
        )
    return Plan(
        suite.name,
        kept,
        rows,
        section.protocol(),
        fewest,
        section.cell_seconds,
        seed,
        suite.settings,
        most if most > fewest else None,
        precision,
        tuple(cell for cell in distinct if cell.affinity == BOUND and cell.all_threads > capacity.cpus),
        {name: suite.known[name] for name in chosen},
    )


def _launches(suite: Suite, choices: Choices) -> tuple[int, int, float | None]:
    """Return (fewest, most, precision) of a cell's launches; a precision alone makes a fixed number a range."""
    fewest, most, precision = suite.protocol.launches_of_a_cell()
    if choices.launches is not None and choices.launches != "":
        fewest, most = axes.launch_range(str(choices.launches), "--launches")
    elif choices.precision and most == fewest:
        fewest, most = axes.launch_range(USUAL_RANGE, "--launches")
    if fewest == most:
        if choices.precision:
            raise UsageError(f"--precision needs a range of launches, as in --launches {USUAL_RANGE}.")
        return fewest, most, None
    if choices.precision:
        precision = axes.share(choices.precision, "--precision")
    return fewest, most, precision or USUAL_PRECISION


def _within_reason(value: int, option: str) -> int:
    if not 1 <= value <= LARGEST_COUNT:
        raise UsageError(f"{option} {value} cannot be meant. Give a whole number from 1 to {LARGEST_COUNT}.")
    return value


def _rows(suite: Suite, choices: Choices) -> tuple[Row, ...]:
    builds = list(choices.builds)
    names = [build.name for build in builds]
    if len(set(names)) < len(names):
        raise UsageError("Two --python options give the same row name. Name them apart, as in torch-a:torch=/path.")
    wanted = axes.words(choices.frameworks) if choices.frameworks else list(suite.frameworks)
    # A build under a name of its own joins the rows, lest an option be ignored in silence; under a framework's name it
    # takes that row's place.
    joining = [build.name for build in builds if not choices.frameworks or build.name != build.framework.name]
    joining += [] if choices.frameworks else choices.joining
    wanted += [name for name in dict.fromkeys(joining) if name not in {word.partition(":")[0] for word in wanted}]
    return axes.rows(wanted, builds)


def _means_anything(row: Row, device: str) -> bool:
    """Tell whether a row's mode is one of this device: there are no CUDA graphs on a CPU."""
    mode = row.build.framework.modes.get(row.mode)
    return mode is None or ("cpu" if device == devices.CPU else "gpu") in mode.devices


def _rows_on(rows: tuple[Row, ...], on: tuple[str, ...]) -> tuple[Row, ...]:
    """Return the rows that have a cell on any of these devices; raises UsageError where none has."""
    found = tuple(row for row in rows if any(_means_anything(row, device) for device in on))
    if not found:
        names = ", ".join(dict.fromkeys(f"{row.build.name} {row.mode}" for row in rows))
        raise UsageError(
            f"{names}: not a mode of {', '.join(on)}. Name another device with --devices, or another mode."
        )
    return found


def _words(chosen: str, otherwise: tuple[str, ...], check: Callable[[str], str]) -> tuple[str, ...]:
    return tuple(check(word) for word in axes.words(chosen)) if chosen else otherwise


def _placements(suite: Suite, choices: Choices, device: str) -> tuple[str, ...]:
    """Return where a device's mini-batches lie; to the CPU nothing needs to be copied."""
    found = _words(choices.placements, suite.placements, axes.placement)
    return tuple(each for each in found if device != devices.CPU or each == axes.RESIDENT)


def _threads(suite: Suite, choices: Choices, capacity: Capacity, device: str) -> tuple[int, ...]:
    if device != devices.CPU:
        return (axes.one_count(choices.device_threads or suite.device_threads, capacity),)
    found = axes.counts(choices.threads or suite.threads, capacity)
    if choices.threads and not choices.threads_limit:
        return found  # what the user typed is what is measured
    limit = axes.count(choices.threads_limit or suite.threads_limit, capacity, "thread limit")
    kept = tuple(threads for threads in found if threads <= limit)
    if not kept:
        raise UsageError(f"No thread count of {list(found)} is within the limit of {limit}. Raise --threads-limit.")
    return kept


def _batch_sizes(suite: Suite, choices: Choices, network: str, device: str, capacity: Capacity) -> tuple[int, ...]:
    if choices.batch_sizes:
        return axes.counts(choices.batch_sizes, capacity, "mini-batch size", LARGEST_BATCH)
    if device == devices.CPU and network in suite.cpu_batch_sizes:
        return suite.cpu_batch_sizes[network]
    return suite.batch_sizes.get(network, (suite.known[network].batch_size,))


def narrow_to(plan: Plan, cells: tuple[Cell, ...]) -> Plan:
    """Return the plan with these cells only, in the plan's order."""
    wanted = set(cells)
    return replace(plan, cells=tuple(cell for cell in plan.cells if cell in wanted))
