"""Small recurrent networks as Brandfonbrener 2017 studied them: their times, and how these go with steps and units.

Pure functions of a matrix. Five tables: the times; their lines over the time steps; their growth over the units, and
from how many units on more threads pay; the crossings of devices, machines and thread counts; rows compared.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import CellResult, Matrix
from dlbench.reports.naming import row_name
from dlbench.reports.rnn.compared import Compared, compare
from dlbench.reports.rnn.crossing import Crossing, crossing
from dlbench.reports.rnn.fits import Fit, fits
from dlbench.reports.rnn.growth import ThreadsPay, UnitsGrowth, growth, threads_pay
from dlbench.reports.rnn.lines import Line, Series, Size, Times, by_units, lines, times
from dlbench.reports.statistics import Summary, adjust
from dlbench.reports.storage.hosts import Host, name_among
from dlbench.reports.storage.networks import Networks


@dataclass(frozen=True)
class StudiedLine:
    """One row at one place."""

    line: Line
    cells: Mapping[Size, CellResult]
    """Those without a number too."""
    fits: tuple[Fit, ...]
    growth: tuple[UnitsGrowth, ...]


@dataclass(frozen=True)
class Side:
    """One side of a crossing: a device with the fastest mode and thread count of each size, or one thread count."""

    name: str
    line: Line
    """One that it is of."""
    times: Times


@dataclass(frozen=True)
class Crossed:
    """From how many units on one side is faster than another."""

    first: Side
    second: Side
    """The one that gains with the units: a GPU, the larger thread count, else what is relatively better at the end."""
    what: str
    """Whose times these are, in words: a row, or a framework at its best."""
    series: Series
    at: Crossing


@dataclass(frozen=True)
class Study:
    """The report."""

    hosts: Mapping[str, Host]
    lines: tuple[StudiedLine, ...]
    threads: tuple[tuple[Line, ThreadsPay], ...]
    """Of each row with one thread and with as many as cores: the line with more."""
    crossings: tuple[Crossed, ...]
    compared: tuple[Compared, ...]
    """By machine and work, there the fastest first."""
    notes: tuple[str, ...]
    beside: "Study | None" = None
    """A published study to be shown beside."""


def study(matrix: Matrix, networks: Networks) -> Study:
    """Return what the matrix has of these networks."""
    found = lines(matrix, networks)
    usable = {line: times(cells) for line, cells in found.items()}
    studied = tuple(_studied(line, cells, usable[line]) for line, cells in found.items())
    pays = _threads(usable, matrix.hosts)
    crossed = (*_crossings_of_threads(usable, pays, matrix.hosts), *_crossings_of_places(usable, matrix.hosts))
    return Study(matrix.hosts, studied, pays, crossed, tuple(_compared(usable)), matrix.notes if found else ())


def _studied(line: Line, cells: Mapping[Size, CellResult], usable: Times) -> StudiedLine:
    grown = (growth(series, of) for series, of in by_units(usable).items() if len(of) > 1)
    return StudiedLine(line, cells, tuple(fits(usable)), tuple(grown))


def work_of(line: Line) -> Cell:
    """Return what lines share that do the same work: mini-batch, precision, placement."""
    return axes.project(line.cell, ("batch_size", "precision", "placement"))


def _threads(usable: Mapping[Line, Times], hosts: Mapping[str, Host]) -> tuple[tuple[Line, ThreadsPay], ...]:
    """Compare each row's time with a thread for each core, or the most below, with that of one."""
    found: list[tuple[Line, ThreadsPay]] = []
    for one in (line for line in usable if line.threads == 1):
        cores = hosts[one.machine].own_cores or math.inf
        more = [line for line in usable if line.cell._replace(threads=1) == one.cell and line.machine == one.machine]
        more = [line for line in more if line.threads is not None and 1 < line.threads <= cores]
        if more:
            most = max(more, key=lambda line: line.threads or 0)
            both = by_units(usable[one]), by_units(usable[most])
            shared = [series for series in both[1] if series in both[0]]
            found += [(most, threads_pay(each, most.cell.threads, both[0][each], both[1][each])) for each in shared]
    # What is said of all rows is one family of comparisons.
    adjusted = iter(adjust([contrast for _, each in found for _, contrast in each.sizes]))
    return tuple(
        (line, replace(each, sizes=tuple((hidden, next(adjusted)) for hidden, _ in each.sizes)))
        for line, each in found
        if each.sizes
    )


def _crossings_of_threads(
    usable: Mapping[Line, Times], pays: Iterable[tuple[Line, ThreadsPay]], hosts: Mapping[str, Host]
) -> Iterator[Crossed]:
    """Yield from how many units on a row is faster with more threads."""
    for line in dict.fromkeys(line for line, _ in pays):
        one = line._replace(cell=line.cell._replace(threads=1))
        of_machine = _of_machine(usable, hosts, line.machine)
        sides = [Side(each.place + of_machine, each, usable[each]) for each in (one, line)]
        yield from _crossed(sides[0], sides[1], row_name(line.row))


def _crossings_of_places(usable: Mapping[Line, Times], hosts: Mapping[str, Host]) -> Iterator[Crossed]:
    """Yield from how many units on a framework is faster on another device, or another machine, each at its best."""
    found: dict[Cell, dict[tuple[str, str], list[Line]]] = {}
    for line in usable:
        found.setdefault(_shared(line), {}).setdefault((line.machine, line.cell.device), []).append(line)
    for shared, places in found.items():
        sides = []
        for (machine, device), of in places.items():
            name = device + _of_machine(usable, hosts, machine)
            sides.append(Side(name, of[0], _best(usable[line] for line in of)))
        for first, second in combinations(sides, 2):
            if first.line.on_cpu is second.line.on_cpu:
                yield from _crossed(first, second, row_name(shared), turn=_gains)
            else:
                ordered = (first, second) if first.line.on_cpu else (second, first)
                yield from _crossed(*ordered, row_name(shared))


def _of_machine(usable: Iterable[Line], hosts: Mapping[str, Host], machine: str) -> str:
    """Return what names a machine where there are several."""
    return f" of {name_among(hosts, machine)}" if len({line.machine for line in usable}) > 1 else ""


def _shared(line: Line) -> Cell:
    return axes.project(line.cell, ("framework", "batch_size", "precision", "placement", "tuning"))


def _best(of: Iterable[Times]) -> dict[Size, Summary]:
    """Return the fastest time of each size, whatever mode and thread count it is of."""
    found: dict[Size, Summary] = {}
    for each in of:
        for size, seconds in each.items():
            if size not in found or seconds.median < found[size].median:
                found[size] = seconds
    return found


def _gains(first: Mapping[int, Summary], second: Mapping[int, Summary]) -> bool:
    """Tell whether the second is relatively better at the end than at the beginning."""
    shared = [units for units in first if units in second]
    gain = [first[units].median / second[units].median for units in (shared[0], shared[-1])] if shared else [1.0, 1.0]
    return gain[1] >= gain[0]


def _crossed(
    first: Side,
    second: Side,
    what: str,
    turn: Callable[[Mapping[int, Summary], Mapping[int, Summary]], bool] = lambda first, second: True,
) -> Iterator[Crossed]:
    """Yield the crossing of each series of two sides; they change places where the second does not gain."""
    both = by_units(first.times), by_units(second.times)
    for series in (series for series in both[0] if series in both[1]):
        sides = (first, second) if turn(both[0][series], both[1][series]) else (second, first)
        of = [by_units(side.times)[series] for side in sides]
        at = crossing(of[0], of[1])
        if at is not None:
            yield Crossed(sides[0], sides[1], what, series, at)


def _compared(usable: Mapping[Line, Times]) -> Iterator[Compared]:
    """Compare the lines of each machine and work, over the networks of the study's usual inputs and activation."""
    found: dict[tuple[str, Cell], dict[Line, Times]] = {}
    for line, of in usable.items():
        usual = {size: seconds for size, seconds in of.items() if size == Size(size.hidden, size.steps)}
        if usual:
            found.setdefault((line.machine, work_of(line)), {})[line] = usual
    for together in found.values():
        yield from compare(together)
