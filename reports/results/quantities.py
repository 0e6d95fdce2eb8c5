"""Quantities of a cell: what a matrix, a ratio, a curve and the page can show. A new one is a line
of `QUANTITIES`.

Those of `OF_LAUNCHES` are measured once in every launch; a cell's value is the geometric mean over
its launches, with Student's interval from three on (`statistics.of_launches`). Ratios compare these
and the seconds of a step.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from statistics import mean, quantiles
from typing import TYPE_CHECKING, NamedTuple

from dlbench.adapters.protocol import Outcome
from dlbench.reports.results.record import IMPORTED, SAMPLES_OF_INSTANCES
from dlbench.reports.results.statistics import Summary, of_launches

if TYPE_CHECKING:
    from dlbench.reports.results.cells import CellResult
    from dlbench.reports.results.matrix import Matrix

Numbers = tuple[float, float | None, float | None]
"""A value and the ends of its interval, None without one."""
OfLaunch = Callable[[Outcome], float | None]


class Quantity(NamedTuple):
    """A quantity that a cell can have."""

    title: str
    value: "Callable[[CellResult], Numbers | None]"
    unit: str = ""
    """Over a column of it."""
    of_time: bool = False
    """Whether the fastest cell has the best value."""


def follows_time(
    value: "Callable[[CellResult], float | None]",
) -> "Callable[[CellResult], Numbers | None]":
    """Return the numbers of what grows as the step gets shorter: its interval is that of the
    time.
    """

    def numbers(cell: "CellResult") -> Numbers | None:
        found, seconds = value(cell), cell.seconds
        if found is None or seconds is None:
            return None
        low, high = (end and found * seconds.median / end for end in (seconds.high, seconds.low))
        return found, low, high

    return numbers


def _of_device(name: str, factor: float = 1.0) -> "Callable[[CellResult], Numbers | None]":
    def numbers(cell: "CellResult") -> Numbers | None:
        found = None if cell.device_observed is None else getattr(cell.device_observed, name)
        return None if found is None else (factor * found, None, None)

    return numbers


def _faults(cell: "CellResult") -> Numbers | None:
    found = cell.memory_observed
    return None if found is None else (found.faults, None, None)


def _of_summary(found: Summary | None) -> Numbers | None:
    return None if found is None else (found.median, found.low, found.high)


def _break_even(cell: "CellResult") -> Numbers | None:
    found = cell.break_even
    if found is None:
        return None
    return (math.inf, None, None) if found.steps is None else (found.steps, found.low, found.high)


def _ceiling(cell: "CellResult") -> float | None:
    return None if cell.ceiling_fraction is None else 100 * cell.ceiling_fraction


def start_seconds(outcome: Outcome) -> float | None:
    """Return the seconds to the end of the first step, without dlbench's own preparation of weights
    and mini-batch.
    """
    parts = (outcome.import_seconds, outcome.prepare_seconds, outcome.first_step_seconds)
    known = [each for each in parts if each is not None]
    return sum(known) if len(known) == len(parts) else None


def cpu_joules(outcome: Outcome) -> float | None:
    """Return the joules of the CPU packages in the time of a step: their power while steps were
    timed, times a step.
    """
    outside, steps = outcome.outside, outcome.step_seconds()
    if outside is None or outside.energy is None or not outside.energy.joules or not steps:
        return None
    watts = sum(outside.energy.joules.values()) / max(outside.timed_seconds, 1e-9)
    return watts * mean(steps) or None


def why_no_joules(outcome: Outcome) -> str:
    """Return why the energy of a launch's CPU packages is not known; empty where it is."""
    if outcome.outside is None or outcome.outside.energy is None:
        return "recorded before dlbench read energy counters"
    return outcome.outside.energy.reason


FEWEST_BEYOND = 2
"""Calls of a launch that must be slower than a percentile: fewer would make it the slowest call."""


MANY_CALLS = 5
"""Of a turn: they are so short that the pause before it shows in the first one."""


def calls_of(outcome: Outcome) -> list[float]:
    """Return the seconds of a launch's single calls; none of samples of several steps.

    The first of several short calls of a turn is left out: it follows a pause of dlbench's own, and
    a call of 3 ms takes 1.2 to 1.3 times as long there. Calls that others disturbed stay, since
    percentiles are about the tail.
    """
    if outcome.calls_ns:
        return [nanoseconds * 1e-9 for nanoseconds in outcome.calls_ns]
    if outcome.steps_per_sample > 1:
        return []
    of_instances = outcome.software.get(SAMPLES_OF_INSTANCES)
    if of_instances:
        return [nanoseconds * 1e-9 for each in of_instances for nanoseconds in each]
    calls, found = outcome.step_seconds(), []
    starts = accumulate((0, *outcome.turns))
    for start, count in zip(starts, outcome.turns or [len(calls)], strict=False):
        first = start + (bool(outcome.turns) and count >= MANY_CALLS)
        found += calls[first : start + count]
    return found


def latency(share: float) -> OfLaunch:
    """Return the quantile of a launch's single calls, in seconds; None of samples of several steps,
    or of too few.
    """

    def of_launch(outcome: Outcome) -> float | None:
        calls = calls_of(outcome)
        if round(len(calls) * (1 - share), 6) < FEWEST_BEYOND:
            return None
        return float(quantiles(calls, n=100, method="inclusive")[round(100 * share) - 1])

    return of_launch


def why_no_latency(outcome: Outcome) -> str:
    """Return why a launch has no 99th percentile of single calls; empty where it has."""
    if not calls_of(outcome):
        return "its samples are of several calls each"
    if latency(0.99)(outcome) is None:
        return "its calls are too few for the slowest in a hundred"
    return ""


def _mebibytes(size: int | None) -> float | None:
    return size / 2**20 if size else None


def _measured(title: str, unit: str, name: str) -> Quantity:
    return Quantity(title, lambda cell: _of_summary(cell.measured.get(name)), unit)


SECONDS = "seconds"
OF_LAUNCHES: dict[str, tuple[str, str, OfLaunch]] = {
    "start": ("Seconds to the end of the first step", "start s", start_seconds),
    "import": (
        "Seconds to import the framework",
        "import s",
        lambda outcome: outcome.import_seconds,
    ),
    "prepare": ("Seconds to build the network", "build s", lambda outcome: outcome.prepare_seconds),
    "first_step": (
        "Seconds of the first step",
        "first s",
        lambda outcome: outcome.first_step_seconds,
    ),
    "memory": ("Peak memory, MiB", "MiB", lambda outcome: _mebibytes(outcome.peak_memory_bytes)),
    "gpu_memory": (
        "Peak memory on the GPU, MiB",
        "GPU MiB",
        lambda outcome: (
            None if outcome.device is None else _mebibytes(outcome.device.peak_memory_bytes)
        ),
    ),
    "cpu_joules": ("Joules per step, of the CPU packages", "CPU J", cpu_joules),
}
"""Title, unit and value of what is measured once in a launch."""
LATENCIES: dict[str, tuple[str, str, OfLaunch]] = {
    "p50": ("Seconds within which half of the calls end", "p50 s", latency(0.5)),
    "p90": ("Seconds within which nine calls in ten end", "p90 s", latency(0.9)),
    "p99": ("Seconds within which 99 calls in 100 end", "p99 s", latency(0.99)),
}
"""The same of percentiles of single calls."""
QUANTITIES = {
    SECONDS: Quantity(
        "Seconds per mini-batch",
        lambda cell: _of_summary(cell.seconds),
        unit="s/step",
        of_time=True,
    ),
    "items": Quantity(
        "Items per second", follows_time(lambda cell: cell.items_per_second), of_time=True
    ),
    "gflops": Quantity("GFLOP/s", follows_time(lambda cell: cell.gflops), of_time=True),
    "ceiling": Quantity("Per cent of the measured ceiling", follows_time(_ceiling), of_time=True),
    **{
        name: _measured(title, unit, name)
        for name, (title, unit, _) in (OF_LAUNCHES | LATENCIES).items()
    },
    "faults": Quantity("Minor page faults per step", _faults, "faults"),
    "break_even": Quantity(
        "Steps until a mode has made up for its start", _break_even, unit="even at"
    ),
    "joules": Quantity("Joules per step, of the GPU", _of_device("joules_per_minibatch")),
    "busy": Quantity("Per cent of a step in which the GPU worked", _of_device("busy_share", 100)),
}
COMPARED = (SECONDS, *OF_LAUNCHES, *LATENCIES)
"""The quantities that ratios compare: the less the better."""
_LEGENDS = {
    "start": (
        "import + building the network + first step, compilation included where no cache has its "
        "result; without the start of the interpreter and dlbench's own preparation of weights and "
        "mini-batch"
    ),
    "first_step": "compilation included where no cache has its result",
    "memory": "resident memory of all processes of a launch, from the end of the first step on",
    "gpu_memory": "of the framework's allocator, while steps were timed",
    "cpu_joules": (
        "by the RAPL counters of whole packages, which include other programs and idle power"
    ),
    "faults": (
        "pages that a step got from the kernel anew, of the measuring process; the median of the "
        "launches"
    ),
    "break_even": (
        "against the mode of the same framework whose first step ends first there (-: that mode "
        "itself, or the only one), assuming that further steps last as long as the timed ones; "
        "never: its step is not clearly faster"
    ),
}


def measure(outcomes: Iterable[Outcome]) -> dict[str, Summary]:
    """Return what the timed launches of a cell give of each quantity that is measured once in a
    launch.
    """
    launches = list(outcomes)
    found: dict[str, Summary] = {}
    for name, (_, _, of_launch) in (OF_LAUNCHES | LATENCIES).items():
        values = [value for each in launches if (value := of_launch(each)) is not None]
        if (summary := of_launches(values)) is not None:
            found[name] = summary
    return found


def _unit_of_work(cell: "CellResult") -> str:
    if cell.cell.mode == IMPORTED:
        return "call"
    return "step" if cell.cell.batch_size is None else "mini-batch"


def title_of(name: str, cells: "Iterable[CellResult]") -> str:
    """Return the title of a quantity of these cells: imported benchmarks have calls, a step of
    one's own has steps.
    """
    if name != SECONDS:
        return QUANTITIES[name].title
    units = {_unit_of_work(cell): None for cell in cells}
    return f"Seconds per {', '.join(units) or 'mini-batch'}"


def legend(name: str) -> str:
    """Return how a quantity is meant; empty where its title says it."""
    return _LEGENDS.get(name, "")


def in_quantity(matrix: "Matrix", name: str) -> "Matrix":
    """Return the matrix with another quantity in the place of each cell's seconds, so that ratios
    compare that.
    """
    if name == SECONDS:
        return matrix
    cells = {
        at: replace(cell, seconds=cell.measured.get(name)) for at, cell in matrix.cells.items()
    }
    return replace(matrix, cells=cells, quantity=name)


def reasons(cells: "Iterable[CellResult]", name: str) -> Mapping[str, "list[CellResult]"]:
    """Return why cells with a time lack a quantity, each reason with its cells."""
    found: dict[str, list[CellResult]] = {}
    for cell in cells:
        why = cell.unmeasured.get(name)
        if name == "items" and cell.cell.batch_size is None:
            why = "the mini-batch size is not known"
        if cell.shown and why:
            found.setdefault(why, []).append(cell)
    return found
