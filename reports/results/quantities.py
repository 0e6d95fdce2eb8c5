"""Quantities of a cell that a matrix, a ratio, a curve and the page can show.

A new one is a line of `QUANTITIES`.

Those of `OF_LAUNCHES` are measured once in every launch; a cell's value is the geometric mean over
its launches, with Student's interval from three on (`statistics.summarise_launches`). Ratios
compare these and the seconds of a step.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from statistics import mean, quantiles
from typing import TYPE_CHECKING, NamedTuple

from dlbench.reports.results.outcome import Outcome
from dlbench.reports.results.record import IMPORTED
from dlbench.reports.results.statistics import Summary, summarise_launches

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
    """Return the numbers of a rate that grows as the step gets shorter.

    Its interval is that of the time.
    """

    def numbers(cell: "CellResult") -> Numbers | None:
        rate = value(cell)
        seconds = cell.seconds
        if rate is None or seconds is None:
            return None
        low = high = None
        if seconds.high is not None:
            low = rate * seconds.median / seconds.high
        if seconds.low is not None:
            high = rate * seconds.median / seconds.low
        return rate, low, high

    return numbers


def _device_value(name: str, factor: float = 1.0) -> "Callable[[CellResult], Numbers | None]":
    def numbers(cell: "CellResult") -> Numbers | None:
        if cell.device_observed is None:
            return None
        value = getattr(cell.device_observed, name)
        return None if value is None else (factor * value, None, None)

    return numbers


def _faults(cell: "CellResult") -> Numbers | None:
    memory = cell.memory_observed
    return None if memory is None else (memory.faults, None, None)


def _summary_numbers(summary: Summary | None) -> Numbers | None:
    return None if summary is None else (summary.median, summary.low, summary.high)


def _break_even(cell: "CellResult") -> Numbers | None:
    even = cell.break_even
    if even is None:
        return None
    if even.steps is None:
        return math.inf, None, None
    return even.steps, even.low, even.high


def _ceiling(cell: "CellResult") -> float | None:
    return None if cell.ceiling_fraction is None else 100 * cell.ceiling_fraction


def start_seconds(outcome: Outcome) -> float | None:
    """Return the seconds to the end of the first step.

    They are without dlbench's own preparation of weights and mini-batch.
    """
    parts = (outcome.import_seconds, outcome.prepare_seconds, outcome.first_step_seconds)
    measured = [seconds for seconds in parts if seconds is not None]
    return sum(measured) if len(measured) == len(parts) else None


def cpu_joules(outcome: Outcome) -> float | None:
    """Return the joules of the CPU packages in a step: their power while timing, times a step."""
    outside = outcome.outside
    steps = outcome.step_seconds()
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
    samples_of_instances = outcome.facts.samples_ns_of_instances
    if samples_of_instances:
        together = chain.from_iterable(samples_of_instances)
        return [nanoseconds * 1e-9 for nanoseconds in together]
    seconds = outcome.step_seconds()
    if not outcome.turns:
        return seconds
    calls = []
    start = 0
    for count in outcome.turns:
        calls_of_turn = seconds[start : start + count]
        if count >= MANY_CALLS:
            calls_of_turn = calls_of_turn[1:]
        calls += calls_of_turn
        start += count
    return calls


def latency(share: float) -> OfLaunch:
    """Return a function of a launch: the quantile of its single calls, in seconds.

    It is None of samples of several steps, or of too few.
    """

    def quantile(outcome: Outcome) -> float | None:
        calls = calls_of(outcome)
        if round(len(calls) * (1 - share), 6) < FEWEST_BEYOND:
            return None
        return float(quantiles(calls, n=100, method="inclusive")[round(100 * share) - 1])

    return quantile


def why_no_latency(outcome: Outcome) -> str:
    """Return why a launch has no 99th percentile of single calls; empty where it has."""
    if not calls_of(outcome):
        return "its samples are of several calls each"
    if latency(0.99)(outcome) is None:
        return f"too few calls for the slowest in a hundred (a launch needs {FEWEST_BEYOND * 100})"
    return ""


def _mebibytes(size: int | None) -> float | None:
    return size / 2**20 if size else None


def _peak_memory(outcome: Outcome) -> float | None:
    return _mebibytes(outcome.peak_memory_bytes)


def _peak_gpu_memory(outcome: Outcome) -> float | None:
    return None if outcome.device is None else _mebibytes(outcome.device.peak_memory_bytes)


def _measured(title: str, unit: str, name: str) -> Quantity:
    return Quantity(title, lambda cell: _summary_numbers(cell.measured.get(name)), unit)


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
    "memory": ("Peak memory, MiB", "MiB", _peak_memory),
    "gpu_memory": ("Peak memory on the GPU, MiB", "GPU MiB", _peak_gpu_memory),
    "cpu_joules": ("Joules per step, of the CPU packages", "CPU J", cpu_joules),
}
"""Title, unit and value of the quantities that are measured once in a launch."""
LATENCIES: dict[str, tuple[str, str, OfLaunch]] = {
    "p50": ("Seconds within which half of the calls end", "p50 s", latency(0.5)),
    "p90": ("Seconds within which nine calls in ten end", "p90 s", latency(0.9)),
    "p99": ("Seconds within which 99 calls in 100 end", "p99 s", latency(0.99)),
}
"""The same of percentiles of single calls."""
QUANTITIES = {
    SECONDS: Quantity(
        "Seconds per mini-batch",
        lambda cell: _summary_numbers(cell.seconds),
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
    "joules": Quantity("Joules per step, of the GPU", _device_value("joules_per_minibatch")),
    "busy": Quantity(
        "Per cent of a step in which the GPU worked", _device_value("busy_share", 100)
    ),
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
    """Return the quantities that the timed launches of a cell measured once each, by name.

    A percentile of calls is there only if each launch has it. Percentiles of different launches
    are not in order.
    """
    launches = list(outcomes)
    summaries: dict[str, Summary] = {}
    for name, (_, _, of_launch) in (OF_LAUNCHES | LATENCIES).items():
        values = [value for value in map(of_launch, launches) if value is not None]
        if name in LATENCIES and len(values) < len(launches):
            continue
        summary = summarise_launches(values)
        if summary is not None:
            summaries[name] = summary
    return summaries


def _unit_of_work(cell: "CellResult") -> str:
    if cell.cell.mode == IMPORTED:
        return "call"
    return "step" if cell.cell.batch_size is None else "mini-batch"


def title_of(name: str, cells: "Iterable[CellResult]") -> str:
    """Return the title of a quantity of these cells.

    Imported benchmarks have calls, and a user's own step has steps.
    """
    if name != SECONDS:
        return QUANTITIES[name].title
    units = dict.fromkeys(_unit_of_work(cell) for cell in cells)
    return f"Seconds per {', '.join(units) or 'mini-batch'}"


def legend(name: str) -> str:
    """Return how a quantity is meant; empty where its title says it."""
    return _LEGENDS.get(name, "")


def in_quantity(matrix: "Matrix", name: str) -> "Matrix":
    """Return the matrix with another quantity as each cell's seconds, so that ratios compare it."""
    if name == SECONDS:
        return matrix
    cells = {}
    for place, cell in matrix.cells.items():
        cells[place] = replace(cell, seconds=cell.measured.get(name))
    return replace(matrix, cells=cells, quantity=name)


def reasons(cells: "Iterable[CellResult]", name: str) -> Mapping[str, "list[CellResult]"]:
    """Return why cells with a time lack a quantity, each reason with its cells."""
    by_reason: dict[str, list[CellResult]] = {}
    for cell in cells:
        reason = cell.unmeasured.get(name)
        if name == "items" and cell.cell.batch_size is None:
            reason = "the mini-batch size is not known"
        if cell.shown and reason:
            by_reason.setdefault(reason, []).append(cell)
    return by_reason
