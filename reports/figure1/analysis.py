"""Figure 1 of the 2016 paper: time against mini-batch size, the best size, and where larger ones stop paying.

Pure functions. A line is one row of the matrix at one place (machine, device, threads, precision, placement, workers)
over the mini-batch sizes of a network; where several workers share a mini-batch the size is the whole one's. Throughput
X(b) is b / T(b): examples a second, for the recurrent networks sequences.

The best mini-batch is the smallest whose throughput cannot be told from the highest (`contrasts.clearly_slower`):
the same speed for less memory.

The knee is the smallest mini-batch from which no larger one pays: throughput grows to none of them by `PAYS` or more
for each doubling, X(c) / X(b) < (1 + PAYS) ** log2(c / b) for every c > b. So one slow size in the middle makes no
knee. The largest size has nothing beyond it and is none. The medians say where the knee is. The intervals of those
ratios (of one comparison each, not of all together) say how early and how late it may be: the smallest size from which
none is shown to pay, and the smallest from which all are shown not to.

A size whose cell failed parity, or used more threads than asked, takes no part; nor does one of another environment
than its row's newest, without a proof of its mathematics, where others were in the way, or whose GPU was throttled, had
memory errors or told another time than the wall clock, unless that is so of all.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.cells import CellResult, Matrix, Place, Row, column_of
from dlbench.reports.flags import (
    CONTENDED,
    DEVICE_THROTTLED,
    DEVICE_TIME,
    ECC_ERRORS,
    OTHER_ENVIRONMENT,
    PARITY_UNCHECKED,
    THREADS_EXCEEDED,
)
from dlbench.reports.statistics import Ratio, Summary, clearly_slower, ratio
from dlbench.reports.storage.hosts import Host

PAYS = 0.10
"""A larger mini-batch pays where throughput grows by this share for each doubling."""
_DOUBTS = (OTHER_ENVIRONMENT, PARITY_UNCHECKED, ECC_ERRORS, CONTENDED, DEVICE_THROTTLED, DEVICE_TIME)
"""A size with one of these takes no part as long as another is without it."""
_NOT_OF_A_PLACE = ("network", "batch_size", *(axis.name for axis in axes.of_role(axes.ROW)))


@dataclass(frozen=True)
class Point:
    """One mini-batch size of a line; a hole has a cell with a status and no seconds."""

    batch_size: int
    cell: CellResult
    seconds: Summary | None
    """Per mini-batch; None for a hole, and for a number that cannot be used."""
    takes_part: bool
    """Whether it is among those that the best and the knee are chosen from."""
    growth: Ratio | None
    """Throughput here over that of the next smaller size that takes part, for each doubling; 1.1 is 10 % more."""


@dataclass(frozen=True)
class Knee:
    """From where on a larger mini-batch no longer pays."""

    batch_size: int | None
    """By the medians; None where the largest size still pays."""
    earliest: int | None
    """The smallest size from which no larger one is shown to pay; None: the largest is shown to."""
    latest: int | None
    """The smallest size from which every larger one is shown not to pay; None: that is shown of no size."""


@dataclass(frozen=True)
class Line:
    """One row of the matrix at one place, over its mini-batch sizes."""

    network: str
    row: Row
    place: Place
    points: tuple[Point, ...]
    """By rising mini-batch size."""
    best: int | None
    """The mini-batch to use; None where nothing was timed."""
    as_fast: tuple[int, ...]
    """Larger ones that cannot be told from the fastest either."""
    knee: Knee | None
    """None where fewer than two sizes take part."""

    @property
    def timed(self) -> tuple[Point, ...]:
        """The points with a number that can be used."""
        return tuple(point for point in self.points if point.seconds is not None)

    @property
    def memory_ends(self) -> int | None:
        """The smallest size that memory did not suffice for, where no larger one has a number; else None."""
        largest = max((point.batch_size for point in self.points if point.cell.seconds is not None), default=0)
        ended = (p.batch_size for p in self.points if p.cell.status is Status.OUT_OF_MEMORY and p.batch_size > largest)
        return min(ended, default=None)


@dataclass(frozen=True)
class Panel:
    """One network."""

    network: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Figure1:
    """All lines of a matrix, by network."""

    hosts: dict[str, Host]
    panels: tuple[Panel, ...]
    left_out: tuple[Line, ...]
    """Lines of a single size beside others of several: no curve, but of another suite in the same store."""
    notes: tuple[str, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """All places, in the order of the matrix's columns; the same device in another precision beside it."""
        return tuple(dict.fromkeys(line.place for panel in self.panels for line in panel.lines))


def figure1(matrix: Matrix) -> Figure1:
    """Return the lines of a matrix over the mini-batch sizes, network by network."""
    found: dict[tuple[str, Place, Row], list[CellResult]] = {}
    for (group, row, column), cell in matrix.cells.items():
        place = Place(column.machine, axes.without(cell.cell, *_NOT_OF_A_PLACE))
        found.setdefault((group.network, place, row), []).append(cell)
    columns = {column: n for n, column in enumerate(matrix.columns)}
    networks = list(dict.fromkeys(group.network for group in matrix.rows))

    def order(key: tuple[str, Place, Row]) -> tuple[object, ...]:
        network, place, row = key
        # The precision that parity is proved at comes first.
        return networks.index(network), columns[column_of(*place)], axes.sort_key(place.cell), row

    lines = [_line(*key, found[key]) for key in sorted(found, key=order)]
    curves = [line for line in lines if len(line.points) > 1]
    shown = curves or lines
    panels = tuple(
        Panel(network, tuple(line for line in shown if line.network == network))
        for network in networks
        if any(line.network == network for line in shown)
    )
    left_out = tuple(line for line in lines if line not in shown)
    return Figure1(dict(matrix.hosts), panels, left_out, matrix.notes)


def per_item(batch_size: int, seconds: Summary) -> Summary:
    """Return the seconds of one example of a mini-batch."""
    return replace(
        seconds,
        median=seconds.median / batch_size,
        low=None if seconds.low is None else seconds.low / batch_size,
        high=None if seconds.high is None else seconds.high / batch_size,
        launch_medians=tuple(each / batch_size for each in seconds.launch_medians),
    )


def fastest_sizes(times: Mapping[int, Summary]) -> tuple[int, ...]:
    """Return the mini-batch sizes, rising, whose throughput cannot be told from the highest.

    ``times`` are seconds per mini-batch by its size; without any there is none.
    """
    each = {size: per_item(size, seconds) for size, seconds in times.items()}
    if not each:
        return ()
    fastest = min(each.values(), key=lambda summary: summary.median)
    return tuple(sorted(size for size, summary in each.items() if not clearly_slower(summary, fastest)))


def find_knee(times: Mapping[int, Summary]) -> Knee | None:
    """Return the knee of these seconds per mini-batch, by its size; None of fewer than two sizes."""
    sizes = sorted(times)
    if len(sizes) < 2:
        return None
    growths = {size: [growth(size, c, times) for c in sizes if c > size] for size in sizes[:-1]}

    def first(no_larger_pays: Callable[[Ratio], bool]) -> int | None:
        return next((size for size in sizes[:-1] if all(map(no_larger_pays, growths[size]))), None)

    limit = 1 + PAYS
    return Knee(
        first(lambda found: found.value < limit),
        first(lambda found: found.low is None or found.low < limit),
        first(lambda found: found.high is not None and found.high < limit),
    )


def growth(size: int, larger: int, times: Mapping[int, Summary]) -> Ratio:
    """Return throughput at the larger size over that at the smaller, for each doubling between them."""
    found = ratio(per_item(size, times[size]), per_item(larger, times[larger]))
    power = 1 / math.log2(larger / size)
    return found.changed(lambda value: value**power, f"{found.method}, for each doubling")


def _line(network: str, place: Place, row: Row, cells: Sequence[CellResult]) -> Line:
    by_size = {cell.group.batch_size: cell for cell in sorted(cells, key=lambda cell: cell.group.batch_size)}
    usable = {
        size: timed
        for size, cell in by_size.items()
        if (timed := cell.timed) is not None and not cell.has(THREADS_EXCEEDED)
    }
    kept = _undoubted(usable, by_size)
    times = {size: usable[size] for size in kept}
    fastest = fastest_sizes(times)
    before = dict(zip(kept[1:], kept, strict=False))
    grown = {size: growth(smaller, size, times) for size, smaller in before.items()}
    points = tuple(
        Point(size, cell, usable.get(size), size in times, grown.get(size)) for size, cell in by_size.items()
    )
    return Line(network, row, place, points, fastest[0] if fastest else None, fastest[1:], find_knee(times))


def _undoubted(sizes: Iterable[int], cells: Mapping[int, CellResult]) -> list[int]:
    """Return the sizes without a doubt that is not shared by all."""
    kept = list(sizes)
    for doubt in _DOUBTS:
        kept = [size for size in kept if not cells[size].has(doubt)] or kept
    return kept
