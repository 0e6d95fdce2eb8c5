"""Small recurrent networks as Brandfonbrener 2017 studied them: their times by time steps and units.

A line is a row of the matrix at a place, over the sizes of networks of the family elman. Leaky units and unusual limits
of gradients take no part, nor do networks whose outputs are not as many as their inputs: no study has them.

Five questions: the times; their straight lines over the time steps, T = c + s n_steps; their growth over the units, and
from how many units on more threads pay; the crossings of devices, machines and thread counts; rows compared.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import OVERSUBSCRIBED, TUNED, Cell
from dlbench.reports.cells import NO_THREADS, CellResult, Matrix, row_of
from dlbench.reports.curve.curve import Knee, find_knee, usable_times
from dlbench.reports.curve.fits import Crossing, LineFit, crossing, fit_line
from dlbench.reports.naming import extra_of_place, place_name, row_name
from dlbench.reports.statistics import Contrast, Ratio, Summary, adjust, contrast, geometric_mean, ratio
from dlbench.reports.storage.hosts import Host, name_among
from dlbench.reports.storage.networks import Networks

FAMILY = "elman"
FLAT = 1.1
"""Up to this many times the time of the smallest network, growth does not count."""


class Size(NamedTuple):
    """The numbers of one of these networks."""

    hidden: int
    steps: int
    inputs: int = 2
    """As many as outputs."""
    activation: str = "relu"


class Series(NamedTuple):
    """The numbers that networks share which differ in their units only."""

    steps: int
    inputs: int = 2
    activation: str = "relu"


class Line(NamedTuple):
    """A row of the matrix at a place: all that a cell has but its network."""

    machine: str
    cell: Cell

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.cell.on_cpu

    @property
    def threads(self) -> int | None:
        """Threads on the CPU; None where they are unknown."""
        return self.cell.threads if self.on_cpu and self.cell.threads != NO_THREADS else None

    @property
    def one_example(self) -> bool:
        """Whether it is as in the study: one example an update, on the device, in single precision, tuned."""
        own = self.cell
        usual = (own.batch_size, own.world_size, own.precision, own.placement, own.affinity, own.tuning)
        return usual == (1, 1, "float32", "resident", OVERSUBSCRIBED, TUNED)

    @property
    def row(self) -> Cell:
        """The framework, its mode, and how its threads are bound."""
        return row_of(self.cell)

    @property
    def place(self) -> str:
        """Its threads or its device in words: "2 threads", "cuda:0"."""
        on_device = self.cell.device + extra_of_place(self.cell)
        return (place_name(self.cell) if self.on_cpu else "") or on_device

    @property
    def name(self) -> str:
        """In words: "torch eager, 2 threads"."""
        return f"{row_name(self.row)}, {self.place}"

    @property
    def work(self) -> Cell:
        """The axes of lines that do the same work: mini-batch, precision, placement."""
        return axes.project(self.cell, ("batch_size", "precision", "placement"))


Lines = Mapping[Line, Mapping[Size, CellResult]]
Times = Mapping[Size, Summary]
ByUnits = Mapping[int, Summary]


class Growth(NamedTuple):
    """The time of one number of units."""

    hidden: int
    ratio: Ratio
    """T / T of the smallest network."""
    exponent: Ratio | None
    """From the next smaller one on T grows as the units to this power; None for the smallest."""


class UnitsGrowth(NamedTuple):
    """One series of a line, by rising units."""

    series: Series
    sizes: tuple[Growth, ...]
    knee: Knee
    """The smallest number of units that takes over `FLAT` times as long as the smallest network."""


class StudiedLine(NamedTuple):
    """One row at one place."""

    line: Line
    cells: Mapping[Size, CellResult]
    """Those without a number too."""
    fits: Mapping[Size, LineFit]
    """Straight lines over the time steps, by networks of zero steps."""
    growth: tuple[UnitsGrowth, ...]


@dataclass(frozen=True)
class ThreadsPay:
    """One series of a row with one thread and with more, by rising units."""

    line: Line
    """The one with more threads."""
    series: Series
    sizes: tuple[tuple[int, Contrast], ...]
    """T with more threads / T with one, for each number of units."""

    @property
    def from_units(self) -> int | None:
        """The smallest number of units from which more threads are clearly faster at each; None: not at the largest."""
        first = None
        for hidden, each in reversed(self.sizes):
            if each.verdict != "better":
                break
            first = hidden
        return first


class Side(NamedTuple):
    """One side of a crossing: a device with the fastest mode and thread count of each size, or one thread count."""

    name: str
    line: Line
    """One of its lines."""
    times: Times


class Crossed(NamedTuple):
    """From how many units on one side is faster than another."""

    first: Side
    second: Side
    """The one that gains with the units: a GPU, the larger thread count, or the one relatively better at the end."""
    what: str
    """A row, or a framework at its best, in words."""
    series: Series
    at: Crossing


class Compared(NamedTuple):
    """One line among those of its machine, mini-batch and activation."""

    line: Line
    mean: Ratio
    """The geometric mean of T / T of the fastest line."""
    sizes: int
    """Over so many networks, ..."""
    of: int
    """... of as many as are compared."""
    wins: tuple[Size, ...]
    """The networks that it is the fastest at, by the medians."""


@dataclass(frozen=True)
class Study:
    """The report."""

    hosts: Mapping[str, Host]
    lines: tuple[StudiedLine, ...]
    threads: tuple[ThreadsPay, ...]
    """Of each row with one thread and with as many as cores."""
    crossings: tuple[Crossed, ...]
    compared: tuple[Compared, ...]
    """By machine and work, there the fastest first."""
    notes: tuple[str, ...]
    beside: "Study | None" = None
    """A published study to be shown beside."""


def study(matrix: Matrix, networks: Networks) -> Study:
    """Return the study of these networks in the matrix."""
    found = lines(matrix, networks)
    usable = {line: usable_times(dict(sorted(cells.items()))) for line, cells in found.items()}
    studied = tuple(_studied(line, cells, usable[line]) for line, cells in found.items())
    pays = _threads(usable, matrix.hosts)
    crossed = (*_crossings_of_threads(usable, pays, matrix.hosts), *_crossings_of_places(usable, matrix.hosts))
    return Study(matrix.hosts, studied, pays, crossed, tuple(_compared(usable)), matrix.notes if found else ())


def lines(matrix: Matrix, networks: Networks) -> Lines:
    """Return the cells of these networks; ``networks`` has the numbers of each, by its name and digest."""
    found: dict[Line, dict[Size, CellResult]] = {}
    for cell in matrix.cells.values():
        network = networks.get((cell.group.network, cell.group.specification), {})
        numbers = network.get("numbers", {})
        plain = network.get("family") == FAMILY and set(numbers) == {*Size._fields, "outputs"}
        if plain and numbers["inputs"] == numbers["outputs"]:
            line = Line(cell.column.machine, axes.without(cell.cell, "network", "specification"))
            found.setdefault(line, {})[Size(*(numbers[name] for name in Size._fields))] = cell
    return found


def by_units(found: Times) -> dict[Series, dict[int, Summary]]:
    """Return the times of each series by the number of units, rising."""
    series: dict[Series, dict[int, Summary]] = {}
    for size in sorted(found):
        series.setdefault(Series(*size[1:]), {})[size.hidden] = found[size]
    return dict(sorted(series.items(), key=lambda each: (each[0].activation, each[0].inputs, each[0].steps)))


def _studied(line: Line, cells: Mapping[Size, CellResult], usable: Times) -> StudiedLine:
    by_steps: dict[Size, dict[int, Summary]] = {}
    for size, seconds in usable.items():
        by_steps.setdefault(size._replace(steps=0), {})[size.steps] = seconds
    in_order = sorted(by_steps, key=lambda size: (size.activation, size.inputs, size.hidden))
    fits = {size: fit_line(dict(sorted(by_steps[size].items()))) for size in in_order if len(by_steps[size]) > 1}
    grown = (growth(series, of) for series, of in by_units(usable).items() if len(of) > 1)
    return StudiedLine(line, cells, fits, tuple(grown))


def growth(series: Series, times: ByUnits) -> UnitsGrowth:
    """Return how these seconds go with their rising units, two at least."""
    units = list(times)
    ratios = {each: ratio(times[each], times[units[0]]) for each in units}
    ratios[units[0]] = Ratio(1.0, 1.0, 1.0, "the smallest itself")
    exponents: dict[int, Ratio] = {}
    for few, many in pairwise(units):
        exponents[many] = _exponent(few, many, times)
    knee = find_knee(
        ratios,
        lambda found: found.value > FLAT,
        lambda found: (found.value if found.high is None else found.high) > FLAT,
        lambda found: (found.value if found.low is None else found.low) > FLAT,
    )
    return UnitsGrowth(series, tuple(Growth(each, ratios[each], exponents.get(each)) for each in units), knee)


def _exponent(few: int, many: int, times: ByUnits) -> Ratio:
    return ratio(times[many], times[few]).changed(lambda value: math.log(value) / math.log(many / few))


def threads_pay(line: Line, series: Series, one: ByUnits, more: ByUnits) -> ThreadsPay:
    """Compare the times of one thread and of more, by the units that both have."""
    shared = [hidden for hidden in one if hidden in more]
    sizes = tuple((hidden, contrast(line.cell.threads, 1, more[hidden], one[hidden])) for hidden in shared)
    return ThreadsPay(line, series, sizes)


def _threads(usable: Mapping[Line, Times], hosts: Mapping[str, Host]) -> tuple[ThreadsPay, ...]:
    """Compare each row's time with a thread for each core, or the most below, with that of one."""
    found: list[ThreadsPay] = []
    for one in (line for line in usable if line.threads == 1):
        cores = hosts[one.machine].own_cores or math.inf
        more = [line for line in usable if line.cell._replace(threads=1) == one.cell and line.machine == one.machine]
        more = [line for line in more if line.threads is not None and 1 < line.threads <= cores]
        if more:
            most = max(more, key=lambda line: line.threads or 0)
            both = by_units(usable[one]), by_units(usable[most])
            found += [threads_pay(most, each, both[0][each], both[1][each]) for each in both[1] if each in both[0]]
    # All rows are one family of comparisons.
    adjusted = iter(adjust([each for pays in found for _, each in pays.sizes]))
    return tuple(
        replace(pays, sizes=tuple((hidden, next(adjusted)) for hidden, _ in pays.sizes)) for pays in found if pays.sizes
    )


def _crossings_of_threads(
    usable: Mapping[Line, Times], pays: Iterable[ThreadsPay], hosts: Mapping[str, Host]
) -> Iterator[Crossed]:
    """Yield from how many units on a row is faster with more threads."""
    for line in dict.fromkeys(each.line for each in pays):
        one = line._replace(cell=line.cell._replace(threads=1))
        of_machine = _of_machine(usable, hosts, line.machine)
        first, second = (Side(each.place + of_machine, each, usable[each]) for each in (one, line))
        yield from _crossed(first, second, row_name(line.row))


def _crossings_of_places(usable: Mapping[Line, Times], hosts: Mapping[str, Host]) -> Iterator[Crossed]:
    """Yield from how many units on a framework is faster on another device, or another machine, each at its best."""
    found: dict[Cell, dict[tuple[str, str], list[Line]]] = {}
    for line in usable:
        shared = axes.project(line.cell, ("framework", "batch_size", "precision", "placement", "tuning"))
        found.setdefault(shared, {}).setdefault((line.machine, line.cell.device), []).append(line)
    for shared, places in found.items():
        sides = []
        for (machine, device), of in places.items():
            best: dict[Size, Summary] = {}
            for size, seconds in (each for line in of for each in usable[line].items()):
                if size not in best or seconds.median < best[size].median:
                    best[size] = seconds
            sides.append(Side(device + _of_machine(usable, hosts, machine), of[0], best))
        for first, second in combinations(sides, 2):
            if first.line.on_cpu is second.line.on_cpu:
                yield from _crossed(first, second, row_name(shared), gains=_gains)
            else:
                ordered = (first, second) if first.line.on_cpu else (second, first)
                yield from _crossed(*ordered, row_name(shared))


def _of_machine(usable: Iterable[Line], hosts: Mapping[str, Host], machine: str) -> str:
    """Return the suffix that names a machine where there are several."""
    return f" of {name_among(hosts, machine)}" if len({line.machine for line in usable}) > 1 else ""


def _gains(first: ByUnits, second: ByUnits) -> bool:
    """Return whether the second is relatively better at the end than at the beginning."""
    shared = [units for units in first if units in second]
    start, end = (first[units].median / second[units].median for units in (shared[0], shared[-1])) if shared else (1, 1)
    return end >= start


def _crossed(
    first: Side, second: Side, what: str, gains: Callable[[ByUnits, ByUnits], bool] = lambda first, second: True
) -> Iterator[Crossed]:
    """Yield the crossing of each series of two sides; they change places where the second does not gain."""
    both = by_units(first.times), by_units(second.times)
    for series in (series for series in both[0] if series in both[1]):
        sides, times = (first, second), (both[0][series], both[1][series])
        if not gains(*times):
            sides, times = (second, first), (times[1], times[0])
        if (at := crossing(*times)) is not None:
            yield Crossed(*sides, what, series, at)


def _compared(usable: Mapping[Line, Times]) -> Iterator[Compared]:
    """Compare the lines of each machine and work, over the networks of the study's usual inputs and activation."""
    found: dict[tuple[str, Cell], dict[Line, Times]] = {}
    for line, of in usable.items():
        usual = {size: seconds for size, seconds in of.items() if size == Size(size.hidden, size.steps)}
        if usual:
            found.setdefault((line.machine, line.work), {})[line] = usual
    for together in found.values():
        yield from _compare(together)


def _compare(found: Mapping[Line, Times]) -> Sequence[Compared]:
    """Compare these lines, the fastest first; none where there is one alone.

    Compared are the networks that at least half as many lines have as the one that most have: being the fastest of few
    is no merit.
    """
    count = Counter(size for times in found.values() for size in times)
    sizes = sorted(size for size, lines in count.items() if 2 * lines >= max(count.values()))
    fastest = {
        size: min((line for line in found if size in found[line]), key=lambda line: found[line][size].median)
        for size in sizes
    }
    compared = []
    for line, times in found.items():
        ratios = [
            Ratio(1.0, 1.0, 1.0, "the fastest itself")
            if fastest[size] == line
            else ratio(seconds, found[fastest[size]][size])
            for size, seconds in times.items()
            if size in fastest
        ]
        if ratios and len(found) > 1:
            wins = tuple(size for size in sizes if fastest[size] == line)
            compared.append(Compared(line, geometric_mean(ratios), len(ratios), len(sizes), wins))
    return sorted(compared, key=lambda each: each.mean.value)
