"""The claims about small recurrent networks on one's own results: networks of the family elman, one example an update.

A line is one row at one place (`reports/curve/rnn.py`). It is compared over the numbers of units (n_rec), of steps and
of inputs (as many as outputs), and over the activation.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from dlbench.reports.cells import CellResult
from dlbench.reports.claims.cells import Cells
from dlbench.reports.claims.claim import Test
from dlbench.reports.claims.questions import LESS, MORE, Claimed, Question, of_times, usable
from dlbench.reports.curve.rnn import Line, Lines, Size, lines


def _lines(cells: Cells, on_cpu: bool) -> Lines:
    """Return the cells as in the study, on CPUs or on GPUs."""
    found = lines(cells.matrix, cells.networks).items()
    return {line: sizes for line, sizes in found if line.one_example and line.on_cpu is on_cpu}


def _pairs(found: Lines, one: Mapping[str, Any], other: Mapping[str, Any], claimed: Claimed) -> Iterator[Question]:
    """Ask for the ratio of two networks of each line that differ in these numbers, whatever the others are."""
    for line, sizes in found.items():
        for size in (size for size in sizes if all(getattr(size, name) == value for name, value in one.items())):
            against = sizes.get(size._replace(**other))
            told = ", ".join(f"{name} {value} / {other[name]}" for name, value in one.items())
            rest = ", ".join(f"{name} {value}" for name, value in size._asdict().items() if name not in one)
            if against is not None:
                yield of_times(f"{line.name}, {rest}: {told}", sizes[size], against, claimed)


def linear_in_steps(cells: Cells) -> Iterator[Question]:
    """B2: from 20 to 100 steps time grows by 5 to the power of a little under 1."""
    for on_cpu in (True, False):
        claimed = Claimed(least=5**0.8, most=5.0)
        yield from _pairs(_lines(cells, on_cpu), {"steps": 100}, {"steps": 20}, claimed)


def units_hardly_matter(cells: Cells) -> Iterator[Question]:
    """B3."""
    yield from _pairs(_lines(cells, on_cpu=False), {"hidden": 200}, {"hidden": 20}, Claimed(most=1.25))


def many_cores_poor(cells: Cells) -> Iterator[Question]:
    """B4: with a thread for each core many units take much longer."""
    cores = {spot.machine: count for spot, _, count in cells.all_hosts()}
    on_cpu = _lines(cells, on_cpu=True).items()
    found = {line: sizes for line, sizes in on_cpu if line.threads == cores.get(line.machine)}
    for hidden in (100, 200):
        yield from _pairs(found, {"hidden": hidden}, {"hidden": 20}, Claimed(least=2.0))


def _cpu_over_gpu(cells: Cells) -> Iterator[tuple[Line, Size, CellResult, CellResult]]:
    """Yield each network that a framework has on a GPU and a CPU: there its fastest cell."""
    on_cpu = _lines(cells, on_cpu=True)
    for line, sizes in _lines(cells, on_cpu=False).items():
        for size, gpu in sizes.items():
            rivals = [
                each[size]
                for other, each in on_cpu.items()
                if size in each and other.row.framework == line.row.framework
            ]
            if best := _fastest(rivals):
                yield line, size, best, gpu


def _fastest(cells: Iterable[CellResult]) -> CellResult | None:
    timed = {time.median: cell for cell in cells if (time := usable(cell)) is not None}
    return timed[min(timed)] if timed else None


def crossing(cells: Cells) -> Iterator[Question]:
    """B5: the GPU is faster from 1000 units on, and slower below."""
    for line, size, cpu, gpu in _cpu_over_gpu(cells):
        claimed = MORE if size.hidden >= 1000 else LESS
        yield of_times(f"{line.name}, n_rec {size.hidden}, n_steps {size.steps}: CPU / GPU", cpu, gpu, claimed)


def gain_at_5000(cells: Cells) -> Iterator[Question]:
    """B6: by nearly 8 times with 5000."""
    for line, size, cpu, gpu in _cpu_over_gpu(cells):
        if size.hidden == 5000:
            yield of_times(f"{line.name}, n_rec 5000: CPU / GPU", cpu, gpu, Claimed(least=1.0, size=8.0))


def growth_on_gpus(cells: Cells) -> Iterator[Question]:
    """B7: about linear in the units, below quadratic."""
    for few, many in pairwise((500, 1000, 2000, 5000)):
        growth = many / few
        claimed = Claimed(most=growth**2, size=growth)
        yield from _pairs(_lines(cells, on_cpu=False), {"hidden": many}, {"hidden": few}, claimed)


def inputs_do_not_matter(cells: Cells) -> Iterator[Question]:
    """B8: the most inputs take hardly longer than the fewest."""
    for on_cpu in (True, False):
        yield from _pairs(_lines(cells, on_cpu), {"inputs": 100}, {"inputs": 2}, Claimed(least=1 / 1.1, most=1.1))


def sigmoid_faster(cells: Cells) -> Iterator[Question]:
    """B9: ReLU takes about 1.1 times as long."""
    for on_cpu in (True, False):
        claimed = Claimed(least=1.0, size=1.1)
        yield from _pairs(_lines(cells, on_cpu), {"activation": "relu"}, {"activation": "sigmoid"}, claimed)


def cpu_on_small(cells: Cells) -> Iterator[Question]:
    """B12: up to 50 units the CPU is faster, by up to 3 times."""
    for line, size, cpu, gpu in _cpu_over_gpu(cells):
        if size.hidden <= 50:
            what = f"{line.name}, n_rec {size.hidden}, n_steps {size.steps}: GPU / CPU"
            yield of_times(what, gpu, cpu, Claimed(least=1.0, size=3.0))


def slows(cells: Cells) -> Iterator[Question]:
    """B14: from 1000 units to 2000 a CPU's time more than doubles."""
    yield from _pairs(_lines(cells, on_cpu=True), {"hidden": 2000}, {"hidden": 1000}, Claimed(least=2.0))


TESTS: Mapping[str, Test] = {
    "B2": linear_in_steps,
    "B3": units_hardly_matter,
    "B4": many_cores_poor,
    "B5": crossing,
    "B6": gain_at_5000,
    "B7": growth_on_gpus,
    "B8": inputs_do_not_matter,
    "B9": sigmoid_faster,
    "B12": cpu_on_small,
    "B14": slows,
}
