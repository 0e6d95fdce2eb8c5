"""A plan: the cells of a suite on this machine, and the order in which they are launched."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dlbench.adapters import axes as table
from dlbench.adapters import tuning
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import BOUND, OVERSUBSCRIBED, TUNED, Cell, Protocol
from dlbench.hardware_probe import Machine
from dlbench.reports.storage.networks import specification_of_cells

from ..errors import UsageError
from . import devices, networks, values
from .axes import PLAIN, SuiteOverrides, parse_plain
from .networks import LARGEST_BATCH
from .suite import LARGEST_COUNT, USUAL_INTERVAL, USUAL_RANGE, Suite
from .values import RESIDENT, Build, Capacity, Row


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
        return row_of(self.rows, cell)

    def tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings that the cell's tuning chooses from."""
        return self.row_of(cell).build.framework.tunable(cell.mode, cell.device, self.network_of(cell).family.name)

    def protocol_of(self, cell: Cell) -> Protocol:
        """Return how a launch of this cell measures, and for how many steps it trains."""
        row = self.rows[0] if self.rows else None
        first = row is None or (cell.framework, cell.mode) == (row.build.name, row.mode)
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
        """Yield the launches that every cell gets, block by block."""
        for block in range(self.launches):
            yield from self.block(block)

    def block(self, block: int) -> Iterator[PlannedLaunch]:
        """Yield one launch of each cell, shuffled by the seed.

        Within the first block the cell with the fewest threads comes first in its group (same row, network, device
        and mini-batch): its time tells whether the rest of the group fits the cell's budget. On a GPU the cells that
        differ in their mini-batch only come the smaller first: where one runs out of memory, larger ones would too.
        Other than that the order is random, so that a drift of the machine falls on all cells alike; but cells that
        differ in the settings in force only are launched one after another, as the pairs that they are.
        """
        cells = list(self.cells)
        if not self.by_worth:
            random.Random(f"{self.seed}:{block}").shuffle(cells)
            pairs = _places(cells, lambda cell: cell._replace(tuning=TUNED))
            cells = [cells[place] for places in pairs for place in places]
            if block == 0:
                cells = _informative_first(cells)
        yield from (PlannedLaunch(cell, block) for cell in cells)


def row_of(rows: Iterable[Row], cell: Cell) -> Row:
    """Return the row a cell stands in."""
    return next(row for row in rows if (row.build.name, row.mode) == (cell.framework, cell.mode))


def group_of(cell: Cell) -> Cell:
    """Return what cells share that differ in their thread count only."""
    return cell._replace(threads=0)


def sizes_of(cell: Cell) -> Cell:
    """Return what cells share that differ in their mini-batch only."""
    return cell._replace(batch_size=0)


def _informative_first(cells: list[Cell]) -> list[Cell]:
    """Let the cells that decide whether others are worth starting change places with those."""
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


LARGEST_PLAN = 100_000
"""Cells of a plan, at most."""
_IN_ORDER = ("network", "framework", "device", "batch_size", *(each.axis for each in PLAIN), "threads")
"""The axes from the outermost loop to the innermost; ``framework`` is the row, its mode with it."""

_NO_CELL = {
    "device": "No row here has a mode for these networks on these devices. Name others (--networks, --devices).",
    "tuning": "No row here has such settings. `dlbench list --settings` shows which there are.",
    "placement": f"On the CPU the mini-batch is always {RESIDENT}: other placements are for GPUs. Name a GPU with "
    "--devices, or leave --placements out.",
}
"""Errors where an axis leaves no cell."""


def expand(suite: Suite, choices: SuiteOverrides, capacity: Capacity, seed: int) -> Plan:
    """Return the plan of a suite on a machine of this capacity; raises UsageError for words that mean nothing."""
    expansion = _Expansion(suite, choices, capacity)
    cells = expansion.cells()
    left_out = tuple(cell for cell in cells if cell.affinity == BOUND and cell.all_threads > capacity.cpus)
    if len(left_out) == len(cells):
        raise UsageError(
            f"This machine has {capacity.cpus} CPUs to bind threads to, and every cell has more threads, those of all "
            f"its workers together. Give --threads and --world-sizes whose product is at most {capacity.cpus}, or "
            f"--affinity {OVERSUBSCRIBED}."
        )
    section = suite.protocol
    if choices.steps is not None:
        if not 1 <= choices.steps <= LARGEST_COUNT:
            raise UsageError(f"--steps {choices.steps} is out of range: give a whole number from 1 to {LARGEST_COUNT}.")
        section = section.model_copy(update={"steps": choices.steps})
    if choices["cell_budget"]:
        section = section.model_copy(update={"cell_seconds": values.duration(choices["cell_budget"])})
    fewest, most, interval = _launches(suite, choices)
    return Plan(
        suite.name,
        tuple(cell for cell in cells if cell.affinity != BOUND or cell.all_threads <= capacity.cpus),
        expansion.rows,
        section.protocol(),
        fewest,
        section.cell_seconds,
        seed,
        suite.settings,
        most if most > fewest else None,
        interval,
        left_out,
        min(section.curve_check_steps, section.curve_steps),
        {name: suite.known[name] for name in expansion.networks},
    )


class _Expansion:
    """The values of each axis, cell by cell."""

    def __init__(self, suite: Suite, choices: SuiteOverrides, capacity: Capacity) -> None:
        self._suite, self._choices, self._capacity = suite, choices, capacity
        self.networks = suite.chosen(choices["networks"])
        named = values.words(choices["devices"]) if choices["devices"] else suite.devices
        self._devices = devices.meant(named, capacity.gpus, capacity.visible)
        families = list(dict.fromkeys(suite.known[name].family.name for name in self.networks))
        rows, on = _rows(suite, choices), ", ".join(self._devices)
        rows = _rows_with(
            rows,
            lambda row: any(_runs_on(row, device) for device in self._devices),
            f"not a mode of {on}. Name another device with --devices, or another mode.",
        )
        self.rows = _rows_with(
            rows,
            lambda row: any(_is_about(row, family) for family in families),
            f"not a mode for networks of the family {', '.join(families)}. Name another mode, or other networks.",
        )
        if choices["threads"] and devices.CPU not in self._devices:
            raise UsageError(
                "--threads is for cells on the CPU, and no device here is the CPU. Cells on a GPU have one count, of "
                "threads that only start work there: --device-threads."
            )
        self._threads = {device: self._threads_on(device) for device in self._devices}
        self._plain = {
            each.axis: parse_plain(each, choices[each.key] or suite.axes[each.key], capacity) for each in PLAIN
        }
        self._applied: set[str] = set()
        """The words of the axis tuning that some cell has the settings for."""
        self._check_settings()
        # Several GPUs are the first of those named and the ones behind it: from any other on they would be fewer.
        self._leading = {devices.CPU, *[device for device in self._devices if device != devices.CPU][:1]}

    def cells(self) -> tuple[Cell, ...]:
        """Return the distinct cells; raises UsageError where no cell is left."""
        cells = [table.BLANK]
        for axis in _IN_ORDER:
            varied = (each for cell in cells for each in self._vary(cell, axis))
            cells = list(itertools.islice(varied, LARGEST_PLAN + 1))
            if len(cells) > LARGEST_PLAN:
                raise UsageError(
                    f"{self._suite.name} has more than {LARGEST_PLAN} cells here, which is out of range. Narrow it "
                    "(--networks, --frameworks, --threads, --batch-sizes)."
                )
            if axis == "tuning":
                self._check_applied()
            if not cells:
                raise UsageError(_NO_CELL.get(axis, f"No cell has such a value of {axis}."))
        return tuple(dict.fromkeys(cells))  # what was named twice is measured once

    def _vary(self, cell: Cell, axis: str) -> Iterable[Cell]:
        """Return the cell with each value of an axis that it can have; axes before it in order are settled."""
        known = self._suite.known
        if axis == "network":
            specifications = {name: specification_of_cells(known[name]) for name in self.networks}
            return (cell._replace(network=name, specification=numbers) for name, numbers in specifications.items())
        if axis == "framework":
            rows = ((row, row.build) for row in self.rows)
            return (
                cell._replace(framework=build.name, adapter=build.framework.folder, mode=row.mode)
                for row, build in rows
            )
        found: Any
        if axis == "device":
            row = row_of(self.rows, cell)
            about = _is_about(row, known[cell.network].family.name)
            found = [device for device in self._devices if about and _runs_on(row, device)]
        elif axis == "batch_size":
            found = self._batch_sizes(cell)
        elif axis == "tuning":
            found = self._tunings(cell)
        else:
            found = self._threads[cell.device] if axis == "threads" else self._plain[axis]
        return (varied for value in found if self._exists(varied := cell._replace(**{axis: value})))

    def _exists(self, cell: Cell) -> bool:
        """Tell whether there is such a cell: nothing is copied to a CPU, and several GPUs begin with the first."""
        if cell.on_cpu and cell.placement != RESIDENT:
            return False
        return cell.world_size == 1 or cell.device in self._leading

    def _check_settings(self) -> None:
        """Raise UsageError for a setting that no row has."""
        settings = {row.build.framework.name: list(row.build.framework.tuning) for row in self.rows}
        known = {name for names in settings.values() for name in names}
        for word in self._plain["tuning"]:
            for name in () if word == tuning.EACH else tuning.named(word):
                if name not in known:
                    there_are = "; ".join(f"{each}: {', '.join(names)}" for each, names in settings.items() if names)
                    raise UsageError(f"No row has a setting {name!r}. There are {there_are or 'none'}.")

    def _check_applied(self) -> None:
        """Raise UsageError for a word that was asked for, whose settings rows have, but no cell here."""
        for word in self._plain["tuning"] if self._choices["tuning"] else ():
            if word != tuning.EACH and word not in self._applied:
                names = tuning.named(word)
                settings = f"settings {' and '.join(names)} together" if len(names) > 1 else f"setting {names[0]}"
                raise UsageError(
                    f"No cell here has the {settings} (--tuning {word}). `dlbench list --settings` shows where each "
                    "setting means anything."
                )

    def _tunings(self, cell: Cell) -> Iterable[str]:
        """Yield the words for the settings in force, each choice once; a setting that the row lacks is no choice."""
        family = self._suite.known[cell.network].family.name
        names = row_of(self.rows, cell).build.framework.tunable(cell.mode, cell.device, family)
        for word in self._plain["tuning"]:
            if word == tuning.EACH:
                yield from tuning.each(names)
            elif set(tuning.named(word)) <= set(names):
                self._applied.add(word)
                yield tuning.written(tuning.in_force(word, names), names)

    def _batch_sizes(self, cell: Cell) -> tuple[int, ...]:
        suite, words = self._suite, self._choices["batch_sizes"]
        if words:
            return values.counts(words, self._capacity, "mini-batch size", LARGEST_BATCH)
        if cell.on_cpu and cell.network in suite.cpu_batch_sizes:
            return suite.cpu_batch_sizes[cell.network]
        return suite.batch_sizes.get(cell.network, (suite.known[cell.network].batch_size,))

    def _threads_on(self, device: str) -> tuple[int, ...]:
        suite, choices, capacity = self._suite, self._choices, self._capacity
        if device != devices.CPU:
            return (values.one_count(choices["device_threads"] or suite.device_threads, capacity),)
        found = values.counts(choices["threads"] or suite.threads, capacity)
        if choices["threads"] and not choices["threads_limit"]:
            return found  # what the user typed is what is measured
        limit = values.count(choices["threads_limit"] or suite.threads_limit, capacity, "thread limit")
        kept = tuple(threads for threads in found if threads <= limit)
        if not kept:
            raise UsageError(f"No thread count of {list(found)} is within the limit of {limit}. Raise --threads-limit.")
        return kept


def _launches(suite: Suite, choices: SuiteOverrides) -> tuple[int, int, float | None]:
    """Return (fewest, most, interval) of a cell's launches; an interval alone makes a fixed number a range."""
    fewest, most, interval = suite.protocol.launches_of_a_cell()
    if choices["launches"]:
        fewest, most = values.launch_range(choices["launches"], "--launches")
    elif choices["interval"] and most == fewest:
        fewest, most = values.launch_range(USUAL_RANGE, "--launches")
    if fewest == most:
        if choices["interval"]:
            raise UsageError(f"--interval needs a range of launches, as in --launches {USUAL_RANGE}.")
        return fewest, most, None
    if choices["interval"]:
        interval = values.share(choices["interval"], "--interval")
    return fewest, most, interval or USUAL_INTERVAL


def _rows(suite: Suite, choices: SuiteOverrides) -> tuple[Row, ...]:
    builds = list(choices.builds)
    if len({build.name for build in builds}) < len(builds):
        raise UsageError(
            "Two --python options give the same row name. Give them different names, as in torch-a:torch=/path."
        )
    chosen = choices["frameworks"]
    wanted = values.words(chosen) if chosen else list(suite.frameworks)
    # A build with another name is an additional row; one with a framework's name replaces that row.
    joining = [build.name for build in builds if not chosen or build.name != build.framework.name]
    joining += [] if chosen else choices.joining
    wanted += [name for name in dict.fromkeys(joining) if name not in {word.partition(":")[0] for word in wanted}]
    return values.rows(wanted, builds)


def _runs_on(row: Row, device: str) -> bool:
    """Tell whether a row's mode is one of this device: there are no CUDA graphs on a CPU."""
    mode = row.build.framework.modes.get(row.mode)
    return mode is None or ("cpu" if device == devices.CPU else "gpu") in mode.devices


def _is_about(row: Row, family: str) -> bool:
    """Tell whether a row's mode means anything for this family of networks."""
    mode = row.build.framework.modes.get(row.mode)
    return mode is None or not mode.families or family in mode.families


def _rows_with(rows: tuple[Row, ...], fits: Callable[[Row], bool], complaint: str) -> tuple[Row, ...]:
    """Return the rows that fit; raises UsageError where none does."""
    found = tuple(filter(fits, rows))
    if not found:
        names = dict.fromkeys(f"{row.build.name} {row.mode}" for row in rows)
        raise UsageError(f"{', '.join(names)}: {complaint}")
    return found


MOST_CELLS = 10_000
"""More than these are measured when --yes is given: most who ask for so many mistyped a list."""


def check_count(plan: Plan, confirmed: bool) -> None:
    """Raise UsageError for an unconfirmed plan of very many cells."""
    if len(plan.cells) > MOST_CELLS and not confirmed:
        raise UsageError(
            f"{plan.suite} has {len(plan.cells)} cells here, more than {MOST_CELLS}. Narrow it (--networks, "
            "--frameworks, --threads), or give --yes to measure them all."
        )


def too_large(plan: Plan, cell: Cell, machine: Machine) -> str:
    """Return why a cell cannot fit into the memory of this machine or its GPU; empty where it may."""
    if not plan.row_of(cell).build.framework.computes:
        return ""
    family = plan.network_of(cell).family
    there = min(machine.memory.total_bytes, machine.memory.limit_bytes or machine.memory.total_bytes)
    needed, where = family.least_bytes(cell.batch_size, cell.world_size), "this machine"
    if needed <= there and not cell.on_cpu:
        gpu = next((each for each in machine.gpus.devices if f"cuda:{each.index}" == cell.device), None)
        needed = family.least_bytes(max(1, cell.batch_size // cell.world_size)) // 2  # half where of 16 bits
        there, where = (gpu and gpu.memory_bytes) or needed, cell.device
    if needed <= there:
        return ""
    sizes = f"{needed / 1e9:,.1f} GB, and {where} has {there / 1e9:,.1f} GB"
    return f"weights, gradients and mini-batch need at least {sizes}"


def memory_line(plan: Plan, machine: Machine) -> str:
    """Return in a sentence which cells cannot fit into memory; empty where all may."""
    found = {cell: why for cell in plan.cells if (why := too_large(plan, cell, machine))}
    if not found:
        return ""
    first, why = next(iter(found.items()))
    several = "1 cell does" if len(found) == 1 else f"{len(found)} cells do"
    of_first = f"{first.network}, mini-batch {first.batch_size}: {why}"
    return f"{several} not fit into memory and will not be launched; {of_first}."
