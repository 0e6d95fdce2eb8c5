"""`dlbench explain`: where the time of a step goes, by a launch's profile, and its rates from the network's FLOPs.

On the CPU the operators are those that ran there; on a GPU they are the device's kernels and copies, without the CPU's
work to start them. The rest of a step is `IDLE`: on the CPU the framework's own work between its operators, and
waiting; on a GPU a device without work.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from dlbench.adapters.families import Family
from dlbench.adapters.libraries.profiles import CONVOLUTION, MATRIX, RECURRENT
from dlbench.adapters.protocol import Cell, Outcome
from dlbench.reports.columns import Column, csv_rows
from dlbench.reports.errors import ReportError
from dlbench.reports.flags import starting_words
from dlbench.reports.formats.inert import one_line
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.naming import name_of
from dlbench.reports.report import Report

SCHEMA = "dlbench-explained-1"
IDLE = "idle"
PRODUCTS = (MATRIX, CONVOLUTION, RECURRENT)
"""The kinds of operators that do a network's counted FLOPs."""
SLOWER = 1.5
"""A profiled step this many times as long as others says little about them."""
_NAME_WIDTH = 38
# Noise in the names of PyTorch's CUDA kernels.
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|<unnamed>::")
_REMARKABLE_IDLE = 0.1


class Share(NamedTuple):
    """The share of one kind, or one operator, in a step."""

    name: str
    kind: str
    seconds: float
    share: float
    """Of `Explained.whole_seconds`."""
    calls: float | None
    """None of `IDLE`."""


@dataclass(frozen=True)
class Explained:
    """A step of one cell, explained."""

    cell: Cell
    software: str
    """Framework and version; empty where they are unknown."""
    profiler: str
    steps: int
    """Profiled ones."""
    on_device: bool
    """Whether the operators are those of a GPU."""
    seconds: float | None
    """Median of the timed steps, without the profiler."""
    profiled_seconds: float
    whole_seconds: float
    """The whole of the shares: a profiled step, or all its operators where they ran side by side for longer."""
    kinds: tuple[Share, ...]
    """The longest first, `IDLE` last; their shares add up to 1."""
    operators: tuple[Share, ...]
    """The longest first."""
    flops: int | None
    """Of matrix products and convolutions, a step's; None for an unknown network."""
    product_seconds: float
    """Seconds of the kinds in `PRODUCTS` in a step."""
    own_rate: float | None
    """FLOP/s of the framework's own large matrix product, timed in the same launch."""
    starting: str = ""
    """On a GPU, the share of starting the operators in a step without the profiler; empty where it is unknown."""

    @property
    def slowdown(self) -> float | None:
        """How many times as long a step takes under the profiler."""
        return None if self.seconds is None else self.profiled_seconds / self.seconds

    @property
    def busy_seconds(self) -> float:
        """Seconds of all operators in a step; those that ran side by side count in full."""
        return sum(each.seconds for each in self.operators)

    @property
    def side_by_side(self) -> bool:
        """Whether operators must have run side by side: together they take longer than the step."""
        return self.busy_seconds > self.profiled_seconds

    @property
    def calls(self) -> float:
        """Operators a step."""
        return sum(each.calls or 0.0 for each in self.operators)

    @property
    def product_rate(self) -> float | None:
        """FLOP/s within the operators of `PRODUCTS`; None where none took any time."""
        return self.flops / self.product_seconds if self.flops and self.product_seconds > 0 else None

    @property
    def step_rate(self) -> float | None:
        """FLOP/s over a step without the profiler."""
        return self.flops / self.seconds if self.flops and self.seconds else None


def explain(cell: Cell, outcome: Outcome, family: Family | None = None) -> Explained:
    """Return the content of the launch's profile; raises ReportError where there is none, or nothing in it."""
    profile = outcome.profile
    if profile is None:
        raise ReportError("This launch has no profile.")
    shown = [each for each in profile.operators if each.on_device is not cell.on_cpu and each.calls > 0]
    busy = sum(each.seconds for each in shown)
    whole = max(profile.step_seconds, busy)
    if not shown or whole <= 0:
        where = "the CPU" if cell.on_cpu else cell.device
        raise ReportError(f"{profile.profiler} reported no operator on {where}.")
    operators = tuple(
        Share(each.name, each.kind, each.seconds, each.seconds / whole, each.calls)
        for each in sorted(shown, key=lambda each: (-each.seconds, each.name))
    )
    seconds = outcome.step_seconds()
    software = outcome.software
    return Explained(
        cell=cell,
        software=" ".join(str(software[key]) for key in ("framework", "version") if software.get(key)),
        profiler=profile.profiler,
        steps=profile.steps,
        on_device=not cell.on_cpu,
        seconds=median(seconds) if seconds else None,
        profiled_seconds=profile.step_seconds,
        whole_seconds=whole,
        kinds=_kinds(operators, whole, busy),
        operators=operators,
        flops=None if family is None else family.training_flops(cell.batch_size),
        product_seconds=sum(each.seconds for each in operators if each.kind in PRODUCTS),
        own_rate=outcome.gemm_flops_per_second,
        starting="" if cell.on_cpu else starting_words(outcome),
    )


def _kinds(operators: Iterable[Share], whole: float, busy: float) -> tuple[Share, ...]:
    found: dict[str, tuple[float, float]] = {}
    for each in operators:
        seconds, calls = found.get(each.kind, (0.0, 0.0))
        found[each.kind] = seconds + each.seconds, calls + (each.calls or 0.0)
    kinds = [Share(kind, kind, seconds, seconds / whole, calls) for kind, (seconds, calls) in found.items()]
    idle = max(0.0, whole - busy)
    return (*sorted(kinds, key=lambda each: -each.seconds), Share(IDLE, IDLE, idle, idle / whole, None))


def explained_page(found: Explained, top: int) -> Page:
    """Return the kinds and the ``top`` longest operators as tables, with conclusions."""
    software = f" ({found.software})" if found.software else ""
    idle = "idle" if found.on_device else "outside operators"
    kinds = Table(
        "Where a step's time goes" + (", on the device" if found.on_device else ""),
        ("kind", "ms", "%", "calls"),
        tuple((Entry(idle if each.name == IDLE else each.name), *_numbers(each)) for each in found.kinds),
    )
    shown = found.operators[:top]
    operators = Table(
        f"Operators, the {len(shown)} longest of {len(found.operators)}" if len(shown) > 1 else "Operators",
        ("operator", "kind", "ms", "%", "calls"),
        tuple(
            (Entry(one_line(_NOISE.sub("", each.name), _NAME_WIDTH)), Entry(each.kind), *_numbers(each))
            for each in shown
        ),
    )
    before = (f"{name_of(found.cell)}{software}.", _cost_of_the_profiler(found))
    return Page(before, (kinds, operators), tuple(_notes(found)))


def _numbers(each: Share) -> tuple[Entry, ...]:
    calls = "" if each.calls is None else _count(each.calls)
    return Entry(number(each.seconds * 1e3)), Entry(f"{100 * each.share:.1f}"), Entry(calls)


def _count(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def _milliseconds(seconds: float) -> str:
    return f"{number(seconds * 1e3)} ms"


def _cost_of_the_profiler(found: Explained) -> str:
    profiled = f"{_milliseconds(found.profiled_seconds)} under {found.profiler} (mean of {found.steps})"
    if found.seconds is None or found.slowdown is None:
        return f"A step takes {profiled}."
    against = "not slower" if found.slowdown < 1 else f"{100 * (found.slowdown - 1):.0f} % longer"
    if found.slowdown >= 2:
        against = f"{found.slowdown:.1f} times as long"
    return f"A step takes {_milliseconds(found.seconds)} (median), and {profiled}: {against}."


def _notes(found: Explained) -> list[str]:
    lines = []
    if found.slowdown is not None and found.slowdown > SLOWER:
        hence = "many short operators weigh more here than they do without it."
        if found.on_device:
            hence = "times of kernels hold, but the device is idle less often than it seems here."
        lines.append(f"The profiler makes a step {found.slowdown:.1f} times as long: {hence}")
    if found.flops is not None and found.product_rate is not None and found.step_rate is not None:
        own = f" Its own large matrix product: {_rate(found.own_rate)}." if found.own_rate else ""
        lines.append(
            f"The network's {number(found.flops * 1e-9)} GFLOP a step take {_milliseconds(found.product_seconds)} in "
            f"products, convolutions and recurrent operators: {_rate(found.product_rate)} there, "
            f"{_rate(found.step_rate)} over the step.{own}"
        )
    if found.on_device and found.seconds:
        busy = min(1.0, found.busy_seconds / found.seconds)
        rest = ": the rest is waiting for the CPU" if busy < 1 - _REMARKABLE_IDLE else ""
        lines.append(f"Of a step without the profiler the device's work is {100 * busy:.0f} %{rest}.")
    what = "kernels and copies" if found.on_device else "operators"
    mean = found.busy_seconds / found.calls
    each = f"{number(mean * 1e6)} us" if mean < 1e-3 else _milliseconds(mean)
    lines.append(f"A step starts {_count(found.calls)} {what}, on average of {each}.")
    if found.starting:
        lines.append(f"{found.starting[0].upper()}{found.starting[1:]}.")
    if found.side_by_side:
        lines.append("Some operators overlapped: shares are of the sum of operator times, not of the step.")
    lines.append("Operators are classified by name; a recurrent operator includes its matrix products.")
    return lines


def _rate(flops_per_second: float) -> str:
    unit, name = (1e12, "TFLOP/s") if flops_per_second >= 1e12 else (1e9, "GFLOP/s")
    return f"{number(flops_per_second / unit)} {name}"


def explained_data(found: Explained) -> dict[str, Any]:
    """Return all operators with their full names and all rates, times in seconds."""
    derived = ("slowdown", "busy_seconds", "calls", "product_rate", "step_rate")
    return {"schema": SCHEMA, **plain(found), **{name: getattr(found, name) for name in derived}}


_COLUMNS: tuple[Column[Share], ...] = (
    Column("name", None, lambda each: each.name),
    Column("kind", None, lambda each: each.kind),
    Column("seconds", None, lambda each: each.seconds),
    Column("share", None, lambda each: each.share),
    Column("calls", None, lambda each: each.calls),
)
REPORT = Report(
    name="explain",
    summary="Where the time of one cell's step goes, by kinds of operators.",
    examples=("dlbench explain torch/resnet50",),
    page=lambda found, options: explained_page(found, options.top),
    data=explained_data,
    rows=lambda found: csv_rows(_COLUMNS, found.operators),
)
