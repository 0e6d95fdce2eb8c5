"""A plan: the cells of a suite on this machine, the order in which they are launched, and how long
that takes.
"""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from statistics import fmean
from typing import Any

from dlbench.adapters import tuning
from dlbench.adapters.axes import BLANK, order_of
from dlbench.adapters.networks import Network
from dlbench.adapters.protocol import (
    BOUND,
    COPIED,
    EVERY_STEP,
    LOADER,
    OVERSUBSCRIBED,
    STORAGES,
    TUNED,
    Cell,
    Protocol,
)
from dlbench.hardware_probe import Machine
from dlbench.reports.results.memory_evidence import KEEP_HEAP
from dlbench.reports.results.networks import specification_of_cells

from ..errors import UsageError
from . import devices, networks, values
from .axes import PLAIN, SuiteOverrides, option_of
from .framework import Framework, catalogue
from .networks import LARGEST_BATCH
from .settings import check_launch_settings, known_launch_settings, lacking, not_possible
from .suite import FASTEST, LARGEST_COUNT, USUAL_INTERVAL, USUAL_RANGE, Suite
from .values import Build, Capacity, Row
from .variables import OPTION, contradiction, of_thread_counts

QUOTA_SAMPLE_SECONDS = 0.5
"""Of a cell under a CPU quota, at least: five of the kernel's periods. A sample within one period
would show the full speed, or none."""
MOST_CALLS = 1000
"""Of a launch of inference, whose seconds end it earlier."""
CALL_SECONDS = 1e-4
"""Shorter calls of inference are timed several at a time: reading the clocks and counters takes
about 4 us a sample."""
GPU_SAMPLE_SECONDS = 0.1
"""Of a cell on a GPU, at least, unless each step is a sample: twenty of them span the energy
counter's ticks."""


@dataclass(frozen=True)
class PlannedLaunch:
    """One launch to come: a cell and the block it belongs to, in a comparison or a search also its
    side.
    """

    cell: Cell
    block: int
    side: str = ""
    in_turns: bool = False
    """Whether it takes turns with the others of its group."""
    profiled_steps: int = 0
    """Steps under the framework's profiler after the timed ones, at least; 0: none."""
    profiled_seconds: float = 0.0
    """As many steps are profiled as take this long without the profiler."""


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
    """Maximum number of launches per cell; None: exactly ``launches``."""
    interval: float | None = None
    """Relative half-width at which a cell gets no further launch; None: a fixed number of launches,
    or a contest."""
    left_out: tuple[
        Cell, ...
    ] = ()  # not possible on this machine: bound to more CPUs than there are
    curve_check_steps: int = 0
    """Steps that rows after the first train on a text, to check the first row's; the protocol has
    the first row's."""
    cold_start: bool = False
    """Whether each launch has an empty cache and compiles again what earlier launches compiled."""
    networks: dict[str, Network] = field(
        default_factory=dict
    )  # by name; dlbench's own may be left out
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that all launches get, as the user gave them."""
    by_worth: bool = False
    """Whether its cells are those that a store lacks, the most useful first: launched in order,
    never shuffled."""

    @property
    def most(self) -> int:
        """A cell's launches at most."""
        return self.launches_most or self.launches

    @property
    def decides(self) -> bool:
        """Whether only columns whose fastest cell is not known yet get more than the fewest
        launches.
        """
        return self.most > self.launches and self.interval is None

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
        return self._rows_by_name[cell.framework, cell.mode]

    @cached_property
    def _rows_by_name(self) -> dict[tuple[str, str], Row]:
        return {(row.build.name, row.mode): row for row in self.rows}

    def tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings that the cell's tuning chooses from."""
        framework, family = self.row_of(cell).build.framework, self.network_of(cell).family.name
        return framework.tunable(cell.mode, cell.device, family, cell.task)

    def of_thread_counts(self) -> set[str]:
        """Return the environment variables that dlbench sets from the thread counts of the
        cells.
        """
        rows = {(cell.framework, cell.mode) for cell in self.cells if cell.threads}
        names: set[str] = set()
        for row in self.rows:
            if (row.build.name, row.mode) in rows:
                names |= of_thread_counts(row.build.framework, row.mode)
        return names

    def protocol_of(self, cell: Cell) -> Protocol:
        """Return how a launch of this cell measures, and for how many steps it trains."""
        row = self.rows[0] if self.rows else None
        first = row is None or (cell.framework, cell.mode) == (row.build.name, row.mode)
        found = (
            self.protocol if first else self.protocol._replace(curve_steps=self.curve_check_steps)
        )
        if cell.infers:
            # Each call is a sample, as many as its seconds hold: percentiles are of single calls.
            found = found._replace(sample_seconds=CALL_SECONDS, steps=max(found.steps, MOST_CALLS))
        if cell.cpu_quota:
            found = found._replace(sample_seconds=max(found.sample_seconds, QUOTA_SAMPLE_SECONDS))
        if found.sample_seconds and not cell.infers and not cell.on_cpu:
            found = found._replace(sample_seconds=max(found.sample_seconds, GPU_SAMPLE_SECONDS))
        return found

    def network_of(self, cell: Cell) -> Network:
        """Return the network of a cell; raises UsageError where the cell was planned for other
        numbers.
        """
        found = self.networks.get(cell.network) or networks.shipped().get(cell.network)
        if found is None:
            raise UsageError(
                f"{cell.network} is not a network of dlbench. Give the suite file that defines it "
                "instead of a name."
            )
        if cell.specification != specification_of_cells(found):
            raise UsageError(f"{cell.network} was planned with other numbers. Start a new run.")
        return found

    def order(self) -> Iterator[PlannedLaunch]:
        """Yield the launches that every cell gets, block by block."""
        for block in range(self.launches):
            yield from self.block(block)

    def block(self, block: int) -> Iterator[PlannedLaunch]:
        """Yield one launch of each cell, shuffled by the seed.

        Within the first block, the cell with the fewest threads comes first in its group (same row,
        network, device and mini-batch): its time shows whether the rest of the group fits the
        cell's budget. On a GPU, cells that differ only in their mini-batch come in rising order: if
        one runs out of memory, larger ones would too. Otherwise the order is random, so that a
        drift of the machine affects all cells alike; but cells that differ only in the settings in
        force are launched one after another, as pairs.
        """
        cells = list(self.cells)
        if not self.by_worth:
            random.Random(f"{self.seed}:{block}").shuffle(cells)
            pairs = _places(cells, lambda cell: cell._replace(tuning=TUNED))
            cells = [cells[place] for places in pairs for place in places]
            if block == 0:
                cells = _informative_first(cells)
        yield from (PlannedLaunch(cell, block) for cell in cells)


def binds(cell: Cell) -> bool:
    """Tell whether a cell has a CPU for each thread."""
    return cell.affinity == BOUND or cell.instances > 1


def group_of(cell: Cell) -> Cell:
    """Return what cells share that differ in their thread count only."""
    return cell._replace(threads=-1)  # 0 is the count of those for which none is set


def sizes_of(cell: Cell) -> Cell:
    """Return what cells share that differ in their mini-batch only."""
    return cell._replace(batch_size=0)


def _informative_first(cells: list[Cell]) -> list[Cell]:
    """Let the cells that decide whether others are worth starting change places with those."""
    ordered = list(cells)
    for indices in _places(cells, group_of):
        fewest = min(indices, key=lambda index: cells[index].threads or values.MOST_THREADS)
        ordered[indices[0]], ordered[fewest] = ordered[fewest], ordered[indices[0]]
    # Cells on a GPU have one thread count: the groups above hold one of them each, and nothing is
    # undone here.
    for indices in _places(cells, sizes_of):
        if not cells[indices[0]].on_cpu:
            rising = sorted(
                (ordered[index] for index in indices), key=lambda cell: order_of(cell.batch_size)
            )
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


def expand(suite: Suite, choices: SuiteOverrides, capacity: Capacity, seed: int) -> Plan:
    """Return the plan of a suite on a machine of this capacity; raises UsageError for words that
    mean nothing.
    """
    known = {name: suite.known[name] for name in suite.chosen(choices["networks"])}
    named = values.words(choices["devices"]) if choices["devices"] else suite.devices
    used = devices.meant(named, capacity.gpus, capacity.visible)
    families = list(dict.fromkeys(network.family.name for network in known.values()))
    rows = _fitting(
        _rows(suite, choices),
        [(device, "") for device in used],
        f"not a mode of {', '.join(used)}. Name another device with --devices, or another mode.",
    )
    rows = _fitting(
        rows,
        [("", family) for family in families],
        f"not a mode for networks of the family {', '.join(families)}. Name another mode, or other "
        "networks.",
    )
    if choices["threads"] and devices.CPU not in used:
        raise UsageError(
            "--threads applies to cells on the CPU, and none of the devices is the CPU. Cells on a "
            "GPU have one thread count, since their threads only launch kernels: --device-threads."
        )
    on_gpu = values.one_count(choices["device_threads"] or suite.device_threads, capacity)
    threads = cache(partial(_threads, suite, choices, capacity, on_gpu))
    cells = _cells(suite, choices, capacity, known, rows, threads, used)
    helpers = {row.build.name: row.build.framework.helpers for row in rows}
    left_out = {
        cell: None
        for cell in cells
        if binds(cell)
        and cell.all_threads + helpers[cell.framework] * cell.instances > capacity.cpus
    }
    if len(left_out) == len(cells):
        raise UsageError(
            f"This machine has {capacity.cpus} CPUs to bind threads to, and every cell has more "
            "threads, counting all workers, instances and helpers. Give --threads, --world-sizes "
            f"and --instances whose product is at most {capacity.cpus}, or --affinity "
            f"{OVERSUBSCRIBED} and one instance."
        )
    section = suite.protocol
    if choices.steps is not None:
        if not 1 <= choices.steps <= LARGEST_COUNT:
            raise UsageError(
                f"--steps {choices.steps} is out of range: give a whole number from 1 to "
                f"{LARGEST_COUNT}."
            )
        section = section.model_copy(update={"steps": choices.steps})
    longest = max(cells, key=lambda cell: cell.local_steps)
    if longest.local_steps > section.steps:
        raise UsageError(
            f"{longest.sync} has more local steps than the {section.steps} steps that a launch "
            f"times. Give --steps {longest.local_steps} (in a suite, steps of [protocol]), or "
            "fewer local steps."
        )
    fewest, most, interval = _launches(suite, choices)
    plan = Plan(
        suite=suite.name,
        cells=tuple(cell for cell in cells if cell not in left_out),
        rows=rows,
        protocol=section.protocol(),
        launches=fewest,
        cell_seconds=values.duration(choices["cell_budget"])
        if choices["cell_budget"]
        else section.cell_seconds,
        seed=seed,
        settings=suite.settings,
        launches_most=most if most > fewest else None,
        interval=interval,
        left_out=tuple(left_out),
        curve_check_steps=min(section.curve_check_steps, section.curve_steps),
        cold_start=section.cold_start,
        networks=known,
        variables=dict(choices.variables),
    )
    check_variables(plan, plan.variables)
    return plan


def check_variables(plan: Plan, variables: Mapping[str, str], option: str = OPTION) -> None:
    """Raise UsageError for environment variables that contradict an axis of one of the plan's
    cells.

    Those of one side of a comparison (``option`` is not --env) may replace a setting: that is then
    what is compared.
    """
    if not variables:
        return
    for cell in plan.cells:
        framework = plan.row_of(cell).build.framework
        settings = tuning.in_force(cell.tuning, plan.tunable(cell)) if option == OPTION else ()
        if why := contradiction(variables, framework, cell.mode, cell.threads, settings, option):
            raise UsageError(why)


def _cells(
    suite: Suite,
    choices: SuiteOverrides,
    capacity: Capacity,
    known: Mapping[str, Network],
    rows: Iterable[Row],
    threads: Callable[[str, float], tuple[int, ...]],
    used: Sequence[str],
) -> list[Cell]:
    """Return the distinct cells, grouped by network; raises UsageError if there are none.

    ``threads`` gives the counts of a device under a CPU quota.
    """
    plain = {
        each.axis: values.parse_plain(each, choices[each.key] or suite.axes[each.key], capacity)
        for each in PLAIN
    }
    plain["cpu_quota"] = _within(
        "cpu_quota", plain["cpu_quota"], capacity.mask or capacity.cpus, choices
    )
    plain["loader_workers"] = _within(
        "loader_workers", plain["loader_workers"], capacity.cpus, choices
    )
    idle = [
        key
        for key in ("loader_workers", "storage")
        if choices[key] and set(plain[key]) - {0, STORAGES[0]}
    ]
    if idle and LOADER not in plain["placement"]:
        raise UsageError(
            f"{option_of(idle[0])} is for mini-batches that a framework loads from a file. Add "
            f"--placements {LOADER}."
        )
    apart = [word for word in plain["sync"] if word != EVERY_STEP]
    if apart and max(plain["world_size"]) == 1:
        raise UsageError(
            f"--sync {apart[0]} is for several workers, and there is one. Give --world-sizes 2, or "
            f"--sync {EVERY_STEP}."
        )
    words = choices["batch_sizes"]
    sizes = values.parse_counts(words, capacity, "mini-batch size", LARGEST_BATCH) if words else ()
    # Several GPUs are the first of those named and the ones behind it: from any other on they would
    # be fewer.
    leading = {devices.CPU, *[device for device in used if device != devices.CPU][:1]}
    begun = []
    for (name, network), row, device in itertools.product(known.items(), rows, used):
        build, family = row.build, network.family.name
        its_own = build.framework.work in ("", name)  # a user's step is the only way to do its work
        if row.fits(device, family) and its_own:
            cell = BLANK._replace(
                network=name, specification=specification_of_cells(network), device=device
            )
            cell = cell._replace(
                framework=build.name, adapter=build.framework.folder, mode=row.mode
            )
            for task in plain["task"]:
                names = build.framework.tunable(row.mode, device, family, task)
                begun.append((cell._replace(task=task), build.framework, names))
    if not begun:
        raise UsageError(
            "No row here has a mode for these networks on these devices. Name others (--networks, "
            "--devices)."
        )
    of_cells = [
        (*names, *framework.launchable(cell.mode, cell.device)) for cell, framework, names in begun
    ]
    _check_settings(plain["tuning"], rows, of_cells if choices["tuning"] else None)
    if not any(names or plain["tuning"] != (tuning.EACH,) for _, _, names in begun):
        raise UsageError(
            "No row here has such settings. `dlbench list --settings` lists those of each row."
        )
    if plain["tuning"] == (tuning.LAUNCH,) and not any(
        _possible(cell, framework) for cell, framework, _ in begun
    ):
        missing = {
            name
            for cell, framework, _ in begun
            for name in framework.launchable(cell.mode, cell.device)
        }
        raise UsageError(
            "No launch setting can be tried here: "
            f"{not_possible(missing) or 'none suits these rows'}."
        )

    def varied() -> Iterator[Cell]:
        for cell, framework, names in begun:
            default = (
                known[cell.network].batch_size if framework.file is None else framework.batch_size
            )
            usual: tuple[int | None, ...] = suite.batch_sizes.get(cell.network, (default,))
            of_suite = suite.cpu_batch_sizes.get(cell.network, usual) if cell.on_cpu else usual
            axes = {"batch_size": sizes or of_suite, **plain}
            axes["task"] = (cell.task,)
            axes["tuning"] = tuple(_tunings(plain["tuning"], cell, framework, names))
            for combination in itertools.product(*axes.values()):
                found = cell._replace(**dict(zip(axes, combination, strict=True)))
                if found.placement != LOADER:
                    found = found._replace(loader_workers=0, storage=STORAGES[0])
                copied = found.on_cpu and found.placement in COPIED
                alone = found.instances == 1 or found.on_cpu
                # One worker exchanges with none.
                exchanges = found.world_size > 1 or found.sync == EVERY_STEP
                if (
                    not copied
                    and alone
                    and exchanges
                    and (found.world_size == 1 or found.device in leading)
                ):
                    counts = threads(cell.device, found.cpu_quota)
                    of_counts = (found._replace(threads=count) for count in counts)
                    yield from (each for each in of_counts if each.threads or not binds(each))

    found = list(itertools.islice(varied(), LARGEST_PLAN + 1))
    if len(found) > LARGEST_PLAN:
        raise UsageError(
            f"{suite.name} has more than {LARGEST_PLAN} cells here, which is out of range. Narrow "
            "it (--networks, --frameworks, --threads, --batch-sizes)."
        )
    if not found:
        if BOUND in plain["affinity"] and not set(plain["placement"]) <= set(COPIED):
            raise UsageError(
                "Binding threads to CPUs needs a thread count. Give --threads, or --affinity "
                f"{OVERSUBSCRIBED}."
            )
        raise UsageError(
            f"Placements {' and '.join(COPIED)} are copies to a GPU. Name a GPU with --devices, or "
            "another placement. Several instances are for the CPU, and need a thread count."
        )
    return list(dict.fromkeys(found))  # what was named twice is measured once


def _threads(
    suite: Suite,
    choices: SuiteOverrides,
    capacity: Capacity,
    on_gpu: int,
    device: str,
    quota: float,
) -> tuple[int, ...]:
    """Return the thread counts of cells on a device under a CPU quota; raises UsageError."""
    if device != devices.CPU:
        return (on_gpu,)
    capacity = replace(capacity, quota=quota)
    counts = values.parse_threads(choices["threads"] or suite.threads, capacity)
    if choices["threads"] and not choices["threads_limit"]:
        return counts  # what the user typed is what is measured
    limit = values.count(choices["threads_limit"] or suite.threads_limit, capacity, "thread limit")
    found = tuple(count for count in counts if count <= limit)
    if not found:
        raise UsageError(
            f"No thread count of {list(counts)} is within the limit of {limit}. Raise "
            "--threads-limit."
        )
    return found


def _within(key: str, counts: Sequence[Any], most: int, choices: SuiteOverrides) -> tuple[Any, ...]:
    """Return the values that this machine has CPUs for; raises UsageError where one that was typed
    is larger.
    """
    found = tuple(each for each in counts if each <= most)
    if len(found) < len(counts) and (choices[key] or not found):
        raise UsageError(
            f"{option_of(key)} {max(counts):g} is more than the {most} CPUs that dlbench may use "
            f"here. Give at most {most}."
        )
    return found


def _check_settings(
    words: Iterable[str], rows: Iterable[Row], of_cells: Collection[Sequence[str]] | None
) -> None:
    """Raise UsageError for a setting that no row has or, given the settings of cells, settings that
    no cell has.
    """
    frameworks = [row.build.framework for row in rows]
    settings = {each.name: [*each.tuning, *each.alternatives] for each in frameworks}
    for word in words:
        names = () if word in tuning.SWEEPS else tuning.named(word)
        known = [name for each in (*settings.values(), known_launch_settings()) for name in each]
        strange = next((name for name in names if name not in known), None)
        if strange is not None:
            settings["for any launch"] = list(known_launch_settings())
            there_are = "; ".join(
                f"{each}: {', '.join(its)}" for each, its in settings.items() if its
            )
            raise UsageError(f"No row has a setting {strange!r}. There are {there_are}.")
        if of_cells is not None and not any(set(names) <= set(each) for each in of_cells):
            several = (
                f"settings {' and '.join(names)} together"
                if len(names) > 1
                else f"setting {names[0]}"
            )
            raise UsageError(
                f"No cell here has the {several} (--tuning {word}). `dlbench list --settings` "
                "shows where each setting applies."
            )
        check_launch_settings(names)


def _possible(cell: Cell, framework: Framework) -> list[str]:
    """Return the launch settings to try in turn; none for a framework that computes nothing."""
    names = framework.launchable(cell.mode, cell.device) if framework.computes else ()
    return [name for name in names if not lacking(name)]


def _tunings(
    words: Iterable[str], cell: Cell, framework: Framework, names: Sequence[str]
) -> Iterator[str]:
    """Yield the words for the settings in force, each choice once; a setting that the row lacks is
    no choice.

    ``names`` are the settings of the row.
    """
    for word in words:
        if word == tuning.EACH:
            yield from tuning.each(names)
        elif word == tuning.LAUNCH:
            yield TUNED
            yield from (
                tuning.written({*names, name}, names) for name in _possible(cell, framework)
            )
        elif set(tuning.named(word)) <= {*names, *framework.launchable(cell.mode, cell.device)}:
            yield tuning.written(tuning.in_force(word, names), names)


def _launches(suite: Suite, choices: SuiteOverrides) -> tuple[int, int, float | None]:
    """Return (fewest, most, interval) of a cell's launches; an interval alone makes a fixed number
    a range.

    A range without an interval is that of a contest (`Plan.decides`).
    """
    fewest, most = values.launch_range(
        choices["launches"] or str(suite.protocol.launches), "--launches"
    )
    if choices["interval"] and not choices["launches"] and fewest == most:
        fewest, most = values.launch_range(USUAL_RANGE, "--launches")
    if fewest == most:
        if choices["interval"]:
            raise UsageError(
                f"--interval needs a range of launches, as in --launches {USUAL_RANGE}."
            )
        return fewest, most, None
    text = choices["interval"] or suite.protocol.interval
    if text == FASTEST:
        return fewest, most, None
    return fewest, most, values.share(text, "--interval", FASTEST) if text else USUAL_INTERVAL


def _rows(suite: Suite, choices: SuiteOverrides) -> tuple[Row, ...]:
    builds = list(choices.builds)
    if len({build.name for build in builds}) < len(builds):
        raise UsageError(
            "Two --python options give the same row name. Give them different names, as in "
            "torch-a:torch=/path."
        )
    chosen = choices["frameworks"]
    wanted = values.words(chosen) if chosen else list(suite.frameworks)
    # A build with another name is an additional row; one with a framework's name replaces that row.
    joining = [build.name for build in builds if not chosen or build.name != build.framework.name]
    joining += [] if chosen else choices.joining
    wanted += [
        name
        for name in dict.fromkeys(joining)
        if name not in {word.partition(":")[0] for word in wanted}
    ]
    return values.rows(wanted, builds)


def _fitting(
    rows: tuple[Row, ...], uses: Sequence[tuple[str, str]], complaint: str
) -> tuple[Row, ...]:
    """Return the rows that fit one of these devices or families; raises UsageError where none
    does.
    """
    found = tuple(row for row in rows if any(row.fits(*each) for each in uses))
    if not found:
        names = dict.fromkeys(f"{row.build.name} {row.mode}" for row in rows)
        raise UsageError(f"{', '.join(names)}: {complaint}")
    return found


_STARTUP = 3.0
"""Seconds in which a launch starts, imports its framework and checks its mathematics, roughly."""
_RATE = 5e10
"""FLOP/s of an unknown machine."""
_TRAINING_STEP = 0.05
"""Seconds of a step of training on a text."""


class LaunchDurations:
    """The expected wall seconds of a plan's launches, which improve with each launch that is
    added.
    """

    def __init__(self, plan: Plan, earlier: Mapping[Cell, float] | None = None) -> None:
        self._plan = plan
        self._seconds: defaultdict[Hashable, list[float]] = defaultdict(list)
        self._idle = {each.folder for each in catalogue().values() if not each.computes}
        self._measured = self._expected = 0.0
        for cell, seconds in (earlier or {}).items():
            self._note(cell, seconds)

    def add(self, cell: Cell, seconds: float) -> None:
        """Take note of a launch of the plan."""
        self._note(cell, seconds)
        self._measured += seconds
        self._expected += self._rough(cell)

    def _note(self, cell: Cell, seconds: float) -> None:
        for key in self._keys(cell):
            self._seconds[key].append(seconds)

    def launch_duration(self, cell: Cell) -> float:
        """Return the expected seconds of a launch: the mean of the most alike, else a rough
        estimate.

        The rough one is scaled by how long the launches so far took of theirs.
        """
        found = self.by_launches(cell)
        pace = self._measured / self._expected if self._expected else 1.0
        return self._rough(cell) * pace if found is None else found

    def by_launches(self, cell: Cell) -> float | None:
        """Return the mean of launches of this cell, else of its row on this network, else of others
        on it.
        """
        return next(
            (fmean(self._seconds[key]) for key in self._keys(cell) if key in self._seconds), None
        )

    def _keys(self, cell: Cell) -> Iterable[Hashable]:
        # Launches of a framework that computes nothing say nothing about any other.
        return (
            cell,
            (cell.network, cell.framework, cell.mode),
            (cell.network, cell.adapter in self._idle),
        )

    def _rough(self, cell: Cell) -> float:
        return rough_duration(cell, self._plan.network_of(cell), self._plan.protocol_of(cell))


def rough_duration(cell: Cell, network: Network, protocol: Protocol) -> float:
    """Return a rough estimate of a launch's seconds, without any launch to go by."""
    # A user's own step may do anything.
    step = (
        0.0
        if cell.batch_size is None
        else network.family.flops(cell.batch_size, cell.infers) / _RATE
    )
    sample = step * cell.sample_steps
    allowed = max(protocol.seconds, protocol.minimum_steps * sample)
    timed = min(protocol.steps * max(sample, protocol.sample_seconds), allowed) if step else allowed
    untimed = (max(protocol.warmup_steps, cell.sample_steps) + protocol.loss_steps) * step
    return _STARTUP + untimed + timed + _TRAINING_STEP * protocol.curve_steps


MOST_CELLS = 10_000
"""A larger plan needs --yes: it is usually a mistyped list."""


def check_count(plan: Plan, confirmed: bool) -> None:
    """Raise UsageError for an unconfirmed plan of very many cells."""
    if len(plan.cells) > MOST_CELLS and not confirmed:
        raise UsageError(
            f"{plan.suite} has {len(plan.cells)} cells here, more than {MOST_CELLS}. Narrow it "
            "(--networks, --frameworks, --threads), or give --yes to measure them all."
        )


def too_large(plan: Plan, cell: Cell, machine: Machine) -> str:
    """Return why a cell cannot fit into the memory of this machine or its GPU; empty where it
    may.
    """
    if not plan.row_of(cell).build.framework.computes:
        return ""
    family, batch_size = plan.network_of(cell).family, cell.batch_size
    if batch_size is None:
        return ""
    there = min(
        machine.memory.total_bytes, machine.memory.limit_bytes or machine.memory.total_bytes
    )
    needed, where = (
        family.least_bytes(batch_size, cell.world_size, cell.infers) * cell.instances,
        "this machine",
    )
    if needed <= there and not cell.on_cpu:
        gpu = next(
            (each for each in machine.gpus.devices if f"cuda:{each.index}" == cell.device), None
        )
        needed = (
            family.least_bytes(max(1, batch_size // cell.world_size), 1, cell.infers) // 2
        )  # half where of 16 bits
        there, where = (gpu and gpu.memory_bytes) or needed, cell.device
    if needed <= there:
        return ""
    sizes = f"{needed / 1e9:,.1f} GB, and {where} has {there / 1e9:,.1f} GB"
    what = "weights, gradients and mini-batch" if family.trains else "weights and chains"
    return f"{what} need at least {sizes}"


def memory_line(plan: Plan, machine: Machine) -> str:
    """Return in a sentence which cells cannot fit into memory; empty where all may."""
    found = {cell: why for cell in plan.cells if (why := too_large(plan, cell, machine))}
    if not found:
        return ""
    first, why = next(iter(found.items()))
    several = "1 cell does" if len(found) == 1 else f"{len(found)} cells do"
    of_first = f"{first.network}, mini-batch {first.batch_size}: {why}"
    return f"{several} not fit into memory and will not be launched; {of_first}."


def heap_line(plan: Plan) -> str:
    """Return in a sentence that steps of the user's own keep their freed memory, or why they
    cannot; else empty.
    """
    own = [
        cell
        for cell in plan.cells
        if plan.row_of(cell).build.framework.file is not None and cell.on_cpu
    ]
    if not own:
        return ""
    if why := lacking(KEEP_HEAP):
        return (
            f"The setting {KEEP_HEAP} is not possible: {why}. Launches may differ by page faults."
        )
    if any(KEEP_HEAP in tuning.in_force(cell.tuning, plan.tunable(cell)) for cell in own):
        return (
            f"Freed memory stays with the process ({KEEP_HEAP}), so that launches are alike; "
            "--tuning installed: as is."
        )
    return ""
