"""A plan: the cells of a suite on this machine, their launching order, and how long that takes."""

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
from .suite import FASTEST, LARGEST_COUNT, USUAL_INTERVAL, USUAL_RANGE, ProtocolSection, Suite
from .values import Build, Capacity, Row
from .variables import OPTION, contradiction, thread_variables

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
    """One launch to come: a cell, its index and, in a comparison or a search, its side."""

    cell: Cell
    index: int
    """Of the launches of its cell, from 0. Those of all cells with one index are a block."""
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
    left_out: tuple[Cell, ...] = ()
    """Cells not possible on this machine: bound to more CPUs than there are."""
    curve_check_steps: int = 0
    """Steps that rows after the first train on a text, to check the first row's; the protocol has
    the first row's."""
    cold_start: bool = False
    """Whether each launch has an empty cache and compiles again what earlier launches compiled."""
    networks: dict[str, Network] = field(default_factory=dict)
    """Networks by name. dlbench's own may be left out."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables that all launches get, as the user gave them."""
    first_frameworks: int = 0
    """So many frameworks are measured before the environments of the others are built; 0: all are
    built first."""
    by_worth: bool = False
    """Whether its cells are those that a store lacks, the most useful first.

    They are launched in order, never shuffled."""

    @property
    def most(self) -> int:
        """Maximum number of launches of a cell."""
        return self.launches_most or self.launches

    @property
    def decides(self) -> bool:
        """Whether only columns whose fastest cell is not known yet get further launches."""
        return self.most > self.launches and self.interval is None

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds of the rows, each once."""
        return tuple({row.build.name: row.build for row in self.rows}.values())

    @property
    def computes(self) -> bool:
        """Whether any row computes anything. Otherwise other programs could disturb nothing."""
        return any(build.framework.computes for build in self.builds)

    def row_of(self, cell: Cell) -> Row:
        """Return the row a cell stands in."""
        return self._rows_by_name[cell.framework, cell.mode]

    @cached_property
    def _rows_by_name(self) -> dict[tuple[str, str], Row]:
        return {(row.build.name, row.mode): row for row in self.rows}

    def tunable(self, cell: Cell) -> tuple[str, ...]:
        """Return the settings that the cell's tuning chooses from."""
        framework = self.row_of(cell).build.framework
        family = self.network_of(cell).family.name
        return framework.tunable(cell.mode, cell.device, family, cell.task)

    def thread_variables(self) -> set[str]:
        """Return the environment variables that dlbench sets from the cells' thread counts."""
        threaded = {(cell.framework, cell.mode) for cell in self.cells if cell.threads}
        names: set[str] = set()
        for row in self.rows:
            if (row.build.name, row.mode) in threaded:
                names |= thread_variables(row.build.framework, row.mode)
        return names

    def protocol_of(self, cell: Cell) -> Protocol:
        """Return how a launch of this cell measures, and for how many steps it trains."""
        protocol = self.protocol
        first = self.rows[0] if self.rows else None
        if first is not None and (cell.framework, cell.mode) != (first.build.name, first.mode):
            protocol = protocol._replace(curve_steps=self.curve_check_steps)
        if cell.infers:
            # Each call is a sample, as many as its seconds hold: percentiles are of single calls.
            steps = max(protocol.steps, MOST_CALLS)
            protocol = protocol._replace(sample_seconds=CALL_SECONDS, steps=steps)
        if cell.cpu_quota:
            seconds = max(protocol.sample_seconds, QUOTA_SAMPLE_SECONDS)
            protocol = protocol._replace(sample_seconds=seconds)
        if protocol.sample_seconds and not cell.infers and not cell.on_cpu:
            seconds = max(protocol.sample_seconds, GPU_SAMPLE_SECONDS)
            protocol = protocol._replace(sample_seconds=seconds)
        return protocol

    def network_of(self, cell: Cell) -> Network:
        """Return the network of a cell.

        Raises UsageError where the cell was planned for other numbers.
        """
        network = self.networks.get(cell.network) or networks.shipped().get(cell.network)
        if network is None:
            raise UsageError(
                f"{cell.network} is not a network of dlbench. Give the suite file that defines it "
                "instead of a name."
            )
        if cell.specification != specification_of_cells(network):
            raise UsageError(f"{cell.network} was planned with other numbers. Start a new run.")
        return network

    def order(self) -> Iterator[PlannedLaunch]:
        """Yield the launches that every cell gets, block by block."""
        for block in range(self.launches):
            yield from self.block(block)

    def block(self, block: int) -> Iterator[PlannedLaunch]:
        """Yield one launch of each cell, shuffled by the seed.

        Within the first block, the cell with the fewest threads comes first among those of the same
        row, network, device and mini-batch: its time shows whether the others fit the cell's
        budget. On a GPU, cells that differ only in their mini-batch come in rising order: if one
        runs out of memory, larger ones would too. Otherwise the order is random, so that a drift of
        the machine affects all cells alike. But cells that differ only in the settings in force are
        launched one after another, as pairs.
        """
        cells = list(self.cells)
        if not self.by_worth:
            random.Random(f"{self.seed}:{block}").shuffle(cells)
            places = itertools.chain.from_iterable(_places(cells, _any_settings))
            cells = [cells[place] for place in places]
            if block == 0:
                cells = _informative_first(cells)
        for cell in cells:
            yield PlannedLaunch(cell, block)


def binds(cell: Cell) -> bool:
    """Tell whether a cell has a CPU for each thread."""
    return cell.affinity == BOUND or cell.instances > 1


def any_threads(cell: Cell) -> Cell:
    """Return the part shared by cells that differ only in their thread count."""
    return cell._replace(threads=BLANK.threads)


def any_batch_size(cell: Cell) -> Cell:
    """Return the part shared by cells that differ only in their mini-batch."""
    return cell._replace(batch_size=0)


def _any_settings(cell: Cell) -> Cell:
    """Return the part shared by cells that differ only in their settings."""
    return cell._replace(tuning=TUNED)


def _informative_first(cells: list[Cell]) -> list[Cell]:
    """Swap cells so that those that decide whether others are worth starting come first."""

    def thread_count(place: int) -> int:
        return cells[place].threads or values.MOST_THREADS

    ordered = list(cells)
    for places in _places(cells, any_threads):
        first = places[0]
        fewest = min(places, key=thread_count)
        ordered[first], ordered[fewest] = ordered[fewest], ordered[first]
    # Cells on a GPU have one thread count: each list of places above has one of them. So nothing is
    # undone.
    for places in _places(cells, any_batch_size):
        if cells[places[0]].on_cpu:
            continue
        rising = [ordered[place] for place in places]
        rising.sort(key=lambda cell: order_of(cell.batch_size))
        for place, cell in zip(places, rising, strict=True):
            ordered[place] = cell
    return ordered


def _places(cells: list[Cell], shared: Callable[[Cell], Cell]) -> Iterable[list[int]]:
    """Return the rising places of the cells that share what ``shared`` returns."""
    places: dict[Cell, list[int]] = {}
    for place, cell in enumerate(cells):
        places.setdefault(shared(cell), []).append(place)
    return places.values()


def narrow_to(plan: Plan, cells: tuple[Cell, ...]) -> Plan:
    """Return the plan with these cells and their rows only, in the plan's order."""
    wanted = set(cells)
    kept = tuple(cell for cell in plan.cells if cell in wanted)
    used = {(cell.framework, cell.mode) for cell in kept}
    rows = tuple(row for row in plan.rows if (row.build.name, row.mode) in used)
    return replace(plan, cells=kept, rows=rows)


LARGEST_PLAN = 100_000
"""Maximum number of cells of a plan."""


def expand(suite: Suite, choices: SuiteOverrides, capacity: Capacity, seed: int) -> Plan:
    """Return the plan of a suite on a machine of this capacity.

    Raises UsageError for words that mean nothing.
    """
    chosen_networks = {
        name: suite.known[name] for name in suite.select_networks(choices["networks"])
    }
    device_words: Sequence[str] = suite.devices
    if choices["devices"]:
        device_words = values.words(choices["devices"])
    used = devices.resolve(device_words, capacity.gpus, capacity.visible)
    rows = _rows_that_fit(_rows(suite, choices), used, chosen_networks.values())
    if choices["threads"] and devices.CPU not in used:
        raise UsageError(
            "--threads applies to cells on the CPU, and none of the devices is the CPU. Cells on a "
            "GPU have one thread count, since their threads only launch kernels: --device-threads."
        )
    on_gpu = values.one_count(choices["device_threads"] or suite.device_threads, capacity)
    threads = cache(partial(_threads, suite, choices, capacity, on_gpu))
    cells = _cells(suite, choices, capacity, chosen_networks, rows, threads, used)
    left_out = _cells_without_cpus(cells, rows, capacity)
    section = _protocol_section(suite, choices, cells)
    fewest, most, interval = _launches(suite, choices)
    cell_seconds = section.cell_seconds
    if choices["cell_budget"]:
        cell_seconds = values.duration(choices["cell_budget"])
    plan = Plan(
        suite=suite.name,
        cells=tuple(cell for cell in cells if cell not in left_out),
        rows=rows,
        protocol=section.protocol(),
        launches=fewest,
        cell_seconds=cell_seconds,
        seed=seed,
        settings=suite.settings,
        launches_most=most if most > fewest else None,
        interval=interval,
        left_out=tuple(left_out),
        curve_check_steps=min(section.curve_check_steps, section.curve_steps),
        cold_start=section.cold_start,
        networks=chosen_networks,
        variables=dict(choices.variables),
        first_frameworks=suite.first_frameworks,
    )
    check_variables(plan, plan.variables)
    return plan


def _cells_without_cpus(
    cells: Collection[Cell], rows: Iterable[Row], capacity: Capacity
) -> dict[Cell, None]:
    """Return the cells that bind more threads than there are CPUs, as an ordered set.

    Raises UsageError where that is every cell.
    """
    helpers = {row.build.name: row.build.framework.helpers for row in rows}
    left_out: dict[Cell, None] = {}
    for cell in cells:
        bound_threads = cell.all_threads + helpers[cell.framework] * cell.instances
        if binds(cell) and bound_threads > capacity.cpus:
            left_out[cell] = None
    if len(left_out) == len(cells):
        raise UsageError(
            f"This machine has {capacity.cpus} CPUs to bind threads to, and every cell has more "
            "threads, counting all workers, instances and helpers. Give --threads, --world-sizes "
            f"and --instances whose product is at most {capacity.cpus}, or --affinity "
            f"{OVERSUBSCRIBED} and one instance."
        )
    return left_out


def _protocol_section(
    suite: Suite, choices: SuiteOverrides, cells: Iterable[Cell]
) -> ProtocolSection:
    """Return the suite's protocol with the steps that were given; raises UsageError."""
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
    return section


def check_variables(plan: Plan, variables: Mapping[str, str], option: str = OPTION) -> None:
    """Raise UsageError for environment variables that contradict an axis of one of the cells.

    Those of one side of a comparison (``option`` is not --env) may replace a setting: that is then
    what is compared.
    """
    if not variables:
        return
    for cell in plan.cells:
        framework = plan.row_of(cell).build.framework
        settings: Sequence[str] = ()
        if option == OPTION:
            settings = tuning.in_force(cell.tuning, plan.tunable(cell))
        reason = contradiction(variables, framework, cell.mode, cell.threads, settings, option)
        if reason:
            raise UsageError(reason)


_Base = tuple[Cell, Framework, tuple[str, ...]]
"""A cell without the values of its further axes, its framework, and the settings of its row."""


def _cells(
    suite: Suite,
    choices: SuiteOverrides,
    capacity: Capacity,
    chosen_networks: Mapping[str, Network],
    rows: Sequence[Row],
    threads: Callable[[str, float], tuple[int, ...]],
    used: Sequence[str],
) -> list[Cell]:
    """Return the distinct cells, grouped by network; raises UsageError if there are none.

    ``threads`` gives the counts of a device under a CPU quota.
    """
    plain = _plain_values(suite, choices, capacity)
    sizes: tuple[int, ...] = ()
    if choices["batch_sizes"]:
        sizes = values.parse_counts(
            choices["batch_sizes"], capacity, "mini-batch size", LARGEST_BATCH
        )
    bases = _bases(chosen_networks, rows, used, plain["task"])
    _check_tuning(plain["tuning"], rows, bases, typed=bool(choices["tuning"]))
    # Several GPUs are the first of those named and the ones behind it: from any other on they would
    # be fewer.
    named_gpus = [device for device in used if device != devices.CPU]
    leading = {devices.CPU, *named_gpus[:1]}

    def varied() -> Iterator[Cell]:
        for base, framework, names in bases:
            network = chosen_networks[base.network]
            axes: dict[str, Iterable[Any]] = {
                "batch_size": sizes or _suite_sizes(suite, network, base, framework),
                **plain,
                "task": (base.task,),
                "tuning": tuple(_tunings(plain["tuning"], base, framework, names)),
            }
            for combination in itertools.product(*axes.values()):
                cell = base._replace(**dict(zip(axes, combination, strict=True)))
                if cell.placement != LOADER:
                    cell = cell._replace(loader_workers=0, storage=STORAGES[0])
                if not _is_meaningful(cell, leading):
                    continue
                for count in threads(cell.device, cell.cpu_quota):
                    if count or not binds(cell):
                        yield cell._replace(threads=count)

    cells = list(itertools.islice(varied(), LARGEST_PLAN + 1))
    if len(cells) > LARGEST_PLAN:
        raise UsageError(
            f"{suite.name} has more than {LARGEST_PLAN} cells, which is out of range. Narrow "
            "it (--networks, --frameworks, --threads, --batch-sizes)."
        )
    if not cells:
        raise _no_cells(plain)
    return list(dict.fromkeys(cells))  # what was named twice is measured once


def _plain_values(
    suite: Suite, choices: SuiteOverrides, capacity: Capacity
) -> dict[str, tuple[Any, ...]]:
    """Return the values of each axis of `PLAIN`; raises UsageError where two contradict."""
    plain: dict[str, tuple[Any, ...]] = {}
    for option in PLAIN:
        words = choices[option.key] or suite.axes[option.key]
        plain[option.axis] = values.parse_plain(option, words, capacity)
    all_cpus = capacity.mask or capacity.cpus
    plain["cpu_quota"] = _limit("cpu_quota", plain["cpu_quota"], all_cpus, choices)
    workers = _limit("loader_workers", plain["loader_workers"], capacity.cpus, choices)
    plain["loader_workers"] = workers
    for key in ("loader_workers", "storage"):
        needs_loader = choices[key] and set(plain[key]) - {0, STORAGES[0]}
        if needs_loader and LOADER not in plain["placement"]:
            raise UsageError(
                f"{option_of(key)} is for mini-batches that a framework loads from a file. Add "
                f"--placements {LOADER}."
            )
    rarer = [word for word in plain["sync"] if word != EVERY_STEP]
    if rarer and max(plain["world_size"]) == 1:
        raise UsageError(
            f"--sync {rarer[0]} is for several workers, and there is one. Give --world-sizes 2, or "
            f"--sync {EVERY_STEP}."
        )
    return plain


def _bases(
    chosen_networks: Mapping[str, Network],
    rows: Iterable[Row],
    used: Iterable[str],
    tasks: Sequence[str],
) -> list[_Base]:
    """Return the bases of all cells; raises UsageError if there are none."""
    bases: list[_Base] = []
    for (name, network), row, device in itertools.product(chosen_networks.items(), rows, used):
        framework = row.build.framework
        family = network.family.name
        does_its_work = framework.work in ("", name)  # only a user's step does the step's work
        if not (row.fits(device, family) and does_its_work):
            continue
        cell = BLANK._replace(
            network=name,
            specification=specification_of_cells(network),
            device=device,
            framework=row.build.name,
            adapter=framework.folder,
            mode=row.mode,
        )
        for task in tasks:
            names = framework.tunable(row.mode, device, family, task)
            bases.append((cell._replace(task=task), framework, names))
    if not bases:
        raise UsageError(
            "None of the selected rows has a mode for these networks on these devices. Name "
            "others (--networks, --devices)."
        )
    return bases


def _suite_sizes(
    suite: Suite, network: Network, cell: Cell, framework: Framework
) -> tuple[int | None, ...]:
    """Return the mini-batch sizes that the suite has for a cell, else that of its network."""
    if cell.on_cpu and cell.network in suite.cpu_batch_sizes:
        return suite.cpu_batch_sizes[cell.network]
    if cell.network in suite.batch_sizes:
        return suite.batch_sizes[cell.network]
    if framework.file is None:
        return (network.batch_size,)
    return (framework.batch_size,)


def _is_meaningful(cell: Cell, leading: Collection[str]) -> bool:
    """Tell whether the values of a cell's axes go together."""
    if cell.on_cpu and cell.placement in COPIED:
        return False  # nothing is copied to a CPU
    if cell.instances > 1 and not cell.on_cpu:
        return False
    if cell.world_size == 1:
        return cell.sync == EVERY_STEP  # one worker exchanges with none
    return cell.device in leading


def _no_cells(plain: Mapping[str, tuple[Any, ...]]) -> UsageError:
    """Return the error for axes whose values never go together."""
    if BOUND in plain["affinity"] and not set(plain["placement"]) <= set(COPIED):
        return UsageError(
            "Binding threads to CPUs needs a thread count. Give --threads, or --affinity "
            f"{OVERSUBSCRIBED}."
        )
    return UsageError(
        f"Placements {' and '.join(COPIED)} are copies to a GPU. Name a GPU with --devices, or "
        "another placement. Several instances are for the CPU, and need a thread count."
    )


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
    allowed = tuple(count for count in counts if count <= limit)
    if not allowed:
        raise UsageError(
            f"No thread count of {list(counts)} is within the limit of {limit}. Raise "
            "--threads-limit."
        )
    return allowed


def _limit(key: str, counts: Sequence[Any], most: int, choices: SuiteOverrides) -> tuple[Any, ...]:
    """Return the values that this machine has CPUs for.

    Raises UsageError where one that was typed is larger.
    """
    possible = tuple(count for count in counts if count <= most)
    if len(possible) < len(counts) and (choices[key] or not possible):
        raise UsageError(
            f"{option_of(key)} {max(counts):g} is more than the {most} CPUs that dlbench may "
            f"use. Give at most {most}."
        )
    return possible


def _check_tuning(
    words: tuple[str, ...], rows: Iterable[Row], bases: Sequence[_Base], typed: bool
) -> None:
    """Raise UsageError for settings that no row or, where they were typed, no cell has."""
    settings_of_cells: list[set[str]] = []
    for cell, framework, names in bases:
        settings_of_cells.append({*names, *framework.launchable(cell.mode, cell.device)})
    if typed:
        _check_settings(words, rows, settings_of_cells)
    else:
        _check_settings(words, rows, None)
    if words == (tuning.EACH,) and not any(names for _, _, names in bases):
        raise UsageError(
            "None of the selected rows has such settings. `dlbench list --settings` lists those "
            "of each row."
        )
    if words != (tuning.LAUNCH,):
        return
    if any(_possible_launch_settings(cell, framework) for cell, framework, _ in bases):
        return
    missing: set[str] = set()
    for cell, framework, _ in bases:
        missing.update(framework.launchable(cell.mode, cell.device))
    raise UsageError(
        "No launch setting can be tried on this machine: "
        f"{not_possible(missing) or 'none suits these rows'}."
    )


def _check_settings(
    words: Iterable[str], rows: Iterable[Row], settings_of_cells: Collection[set[str]] | None
) -> None:
    """Raise UsageError for a setting that no row has or, given those of cells, that no cell has."""
    settings: dict[str, list[str]] = {}
    for row in rows:
        framework = row.build.framework
        settings[framework.name] = [*framework.tuning, *framework.alternatives]
    settings["for any launch"] = list(known_launch_settings())
    all_settings = set(itertools.chain.from_iterable(settings.values()))
    for word in words:
        names = () if word in tuning.SWEEPS else tuning.named(word)
        for name in names:
            if name not in all_settings:
                listed = [f"{owner}: {', '.join(own)}" for owner, own in settings.items() if own]
                raise UsageError(f"No row has a setting {name!r}. There are {'; '.join(listed)}.")
        possible = settings_of_cells is None or any(
            cell_settings.issuperset(names) for cell_settings in settings_of_cells
        )
        if not possible:
            several = f"setting {names[0]}"
            if len(names) > 1:
                several = f"settings {' and '.join(names)} together"
            raise UsageError(
                f"No selected cell has the {several} (--tuning {word}). `dlbench list --settings` "
                "shows where each setting applies."
            )
        check_launch_settings(names)


def _possible_launch_settings(cell: Cell, framework: Framework) -> list[str]:
    """Return the launch settings to try in turn; none for a framework that computes nothing."""
    if not framework.computes:
        return []
    return [name for name in framework.launchable(cell.mode, cell.device) if not lacking(name)]


def _tunings(
    words: Iterable[str], cell: Cell, framework: Framework, names: Sequence[str]
) -> Iterator[str]:
    """Yield the words for the settings in force, each choice once.

    ``names`` are the settings of the row. A setting that the row lacks is no choice.
    """
    available = {*names, *framework.launchable(cell.mode, cell.device)}
    for word in words:
        if word == tuning.EACH:
            yield from tuning.sweep_words(names)
        elif word == tuning.LAUNCH:
            yield TUNED
            for name in _possible_launch_settings(cell, framework):
                yield tuning.written({*names, name}, names)
        elif set(tuning.named(word)) <= available:
            yield tuning.written(tuning.in_force(word, names), names)


def _launches(suite: Suite, choices: SuiteOverrides) -> tuple[int, int, float | None]:
    """Return (fewest, most, interval) of a cell's launches.

    An interval alone makes a fixed number a range. A range without an interval is that of a contest
    (`Plan.decides`).
    """
    words = choices["launches"] or str(suite.protocol.launches)
    fewest, most = values.launch_range(words, "--launches")
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
    interval = USUAL_INTERVAL
    if text:
        interval = values.share(text, "--interval", FASTEST)
    return fewest, most, interval


def _rows(suite: Suite, choices: SuiteOverrides) -> tuple[Row, ...]:
    builds = list(choices.builds)
    if len({build.name for build in builds}) < len(builds):
        raise UsageError(
            "Two --python options give the same row name. Give them different names, as in "
            "torch-a:torch=/path."
        )
    # A build with another name is an additional row; one with a framework's name replaces that row.
    joining = []
    if choices["frameworks"]:
        wanted = values.words(choices["frameworks"])
        for build in builds:
            if build.name != build.framework.name:
                joining.append(build.name)
    else:
        wanted = list(suite.frameworks)
        joining += [build.name for build in builds]
        joining += choices.joining
    named = {word.partition(":")[0] for word in wanted}
    wanted += [name for name in dict.fromkeys(joining) if name not in named]
    return values.rows(wanted, builds)


def _rows_that_fit(
    rows: Sequence[Row], used: Iterable[str], chosen_networks: Iterable[Network]
) -> tuple[Row, ...]:
    """Return the rows for one of these devices and for the family of one of these networks.

    Raises UsageError where there is none.
    """
    families = list(dict.fromkeys(network.family.name for network in chosen_networks))
    for_devices = []
    fitting = []
    for row in rows:
        if not any(row.fits(device, "") for device in used):
            continue
        for_devices.append(row)
        if any(row.fits("", family) for family in families):
            fitting.append(row)
    if not for_devices:
        raise UsageError(
            f"{_listed(rows)}: not a mode of {', '.join(used)}. Name another device with "
            "--devices, or another mode."
        )
    if not fitting:
        raise UsageError(
            f"{_listed(for_devices)}: not a mode for networks of the family "
            f"{', '.join(families)}. Name another mode, or other networks."
        )
    return tuple(fitting)


def _listed(rows: Iterable[Row]) -> str:
    return ", ".join(dict.fromkeys(f"{row.build.name} {row.mode}" for row in rows))


_STARTUP = 3.0
"""Seconds in which a launch starts, imports its framework and checks its mathematics, roughly."""
_RATE = 5e10
"""FLOP/s of an unknown machine."""
_TRAINING_STEP = 0.05
"""Seconds of a step of training on a text."""


class LaunchDurations:
    """The expected wall seconds of a plan's launches, which improve with each launch added."""

    def __init__(self, plan: Plan, earlier: Mapping[Cell, float] | None = None) -> None:
        self._plan = plan
        self._seconds: defaultdict[Hashable, list[float]] = defaultdict(list)
        frameworks = catalogue().values()
        self._idle = {framework.folder for framework in frameworks if not framework.computes}
        self._measured = 0.0
        self._expected = 0.0
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
        """Return the expected seconds of a launch: the mean of the most alike, else a rough guess.

        The rough guess is scaled by the ratio of earlier launches' times to theirs.
        """
        mean = self.by_launches(cell)
        if mean is not None:
            return mean
        pace = 1.0
        if self._expected:
            pace = self._measured / self._expected
        return self._rough(cell) * pace

    def by_launches(self, cell: Cell) -> float | None:
        """Return the mean of launches of this cell, else of its row, else of its network."""
        for key in self._keys(cell):
            if key in self._seconds:
                return fmean(self._seconds[key])
        return None

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
    step = 0.0  # a user's own step may do anything
    if cell.batch_size is not None:
        step = network.family.flops(cell.batch_size, cell.infers) / _RATE
    sample = step * cell.sample_steps
    timed = max(protocol.seconds, protocol.minimum_steps * sample)
    if step:
        timed = min(protocol.steps * max(sample, protocol.sample_seconds), timed)
    untimed = (max(protocol.warmup_steps, cell.sample_steps) + protocol.loss_steps) * step
    return _STARTUP + untimed + timed + _TRAINING_STEP * protocol.curve_steps


MOST_CELLS = 10_000
"""A larger plan needs --yes: it is usually a mistyped list."""


def check_count(plan: Plan, confirmed: bool) -> None:
    """Raise UsageError for an unconfirmed plan of very many cells."""
    if len(plan.cells) > MOST_CELLS and not confirmed:
        raise UsageError(
            f"{plan.suite} has {len(plan.cells)} cells on this machine, more than {MOST_CELLS}. "
            "Narrow it (--networks, --frameworks, --threads), or give --yes to measure them all."
        )


def too_large(plan: Plan, cell: Cell, machine: Machine) -> str:
    """Return why a cell cannot fit into the memory of this machine or its GPU; empty if it may."""
    if not plan.row_of(cell).build.framework.computes:
        return ""
    family = plan.network_of(cell).family
    batch_size = cell.batch_size
    if batch_size is None:
        return ""
    memory = machine.memory
    available = min(memory.total_bytes, memory.limit_bytes or memory.total_bytes)
    needed = family.least_bytes(batch_size, cell.world_size, cell.infers) * cell.instances
    where = "this machine"
    if needed <= available and not cell.on_cpu:
        share = max(1, batch_size // cell.world_size)
        needed = family.least_bytes(share, 1, cell.infers) // 2  # half where of 16 bits
        available = needed
        for device in devices.present(machine.gpus):
            if device.name == cell.device:
                available = device.memory_bytes or needed
        where = cell.device
    if needed <= available:
        return ""
    sizes = f"{needed / 1e9:,.1f} GB, and {where} has {available / 1e9:,.1f} GB"
    content = "weights, gradients and mini-batch" if family.trains else "weights and chains"
    return f"{content} need at least {sizes}"


def memory_line(plan: Plan, machine: Machine) -> str:
    """Return a sentence about the cells that cannot fit into memory; empty where all may."""
    example = ""
    count = 0
    for cell in plan.cells:
        reason = too_large(plan, cell, machine)
        if reason:
            count += 1
            example = example or f"{cell.network}, mini-batch {cell.batch_size}: {reason}"
    if not count:
        return ""
    cells = "1 cell does" if count == 1 else f"{count} cells do"
    return f"{cells} not fit into memory and will not be launched; {example}."


def heap_line(plan: Plan) -> str:
    """Return a sentence about the freed memory of the user's own steps, if there are any.

    It says that they keep it, or why they cannot.
    """
    own_cells: list[Cell] = []
    for cell in plan.cells:
        if cell.on_cpu and plan.row_of(cell).build.framework.file is not None:
            own_cells.append(cell)
    if not own_cells:
        return ""
    why = lacking(KEEP_HEAP)
    if why:
        return (
            f"The setting {KEEP_HEAP} is not possible: {why}. Launches may differ by page faults."
        )
    for cell in own_cells:
        if KEEP_HEAP in tuning.in_force(cell.tuning, plan.tunable(cell)):
            return (
                f"Freed memory stays with the process ({KEEP_HEAP}), so that launches are alike; "
                "--tuning installed: as is."
            )
    return ""
