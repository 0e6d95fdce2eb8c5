"""`dlbench explain`: where the time of a step goes, by a launch's profile, and its rates from the
network's FLOPs.

On the CPU the operators are those that ran there; on a GPU they are the device's kernels and
copies, without the CPU's work to launch them. The rest of a step is `IDLE`: on the CPU the
framework's own work between its operators, and waiting; on a GPU the time when the device has no
work.
"""

import re
from collections.abc import Iterable
from statistics import median
from typing import Any, NamedTuple

from dlbench.adapters.families import Family
from dlbench.adapters.libraries.profiles import CONVOLUTION, MATRIX, PYTHON_PROFILER, RECURRENT
from dlbench.adapters.protocol import Cell, Outcome
from dlbench.reports.columns import Column, csv_rows, table
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.flags import starting_words
from dlbench.reports.results.naming import name_of
from dlbench.reports.results.number_text import number
from dlbench.reports.results.safe_text import one_line

SCHEMA = "dlbench-explained-1"
IDLE = "idle"
PRODUCTS = (MATRIX, CONVOLUTION, RECURRENT)
"""The kinds of operators that do a network's counted FLOPs."""
SLOWER = 1.5
"""A profiled step that takes this many times as long as others says little about them."""
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
    """Of ``whole_seconds``: a profiled step, or all its operators where they ran side by side for
    longer."""
    calls: float | None
    """None of `IDLE`."""


def explain(cell: Cell, outcome: Outcome, family: Family | None = None) -> dict[str, Any]:
    """Return the content of the launch's profile as ``reports/SCHEMA.md`` describes it, a cell and
    `Share`s in it.

    Raises ReportError where there is no profile, or nothing in it.
    """
    profile = outcome.profile
    if profile is None:
        raise ReportError("This launch has no profile.")
    shown = [
        each for each in profile.operators if each.on_device is not cell.on_cpu and each.calls > 0
    ]
    busy = sum(each.seconds for each in shown)
    whole = max(profile.step_seconds, busy)
    if not shown or whole <= 0:
        where = "the CPU" if cell.on_cpu else cell.device
        raise ReportError(f"{profile.profiler} reported no operator on {where}.")
    operators = [
        Share(each.name, each.kind, each.seconds, each.seconds / whole, each.calls)
        for each in sorted(shown, key=lambda each: (-each.seconds, each.name))
    ]
    steps, software = outcome.step_seconds(), outcome.software
    seconds = median(steps) if steps else None
    flops = (
        None
        if family is None or cell.batch_size is None
        else family.flops(cell.batch_size, cell.infers)
    )
    products = sum(each.seconds for each in operators if each.kind in PRODUCTS)
    return {
        "cell": cell,
        "software": " ".join(
            str(software[key]) for key in ("framework", "version") if software.get(key)
        ),
        "profiler": profile.profiler,
        "steps": profile.steps,
        "on_device": not cell.on_cpu,
        "seconds": seconds,
        "profiled_seconds": profile.step_seconds,
        "whole_seconds": whole,
        "kinds": _kinds(operators, whole, busy),
        "operators": operators,
        "flops": flops,
        "product_seconds": products,
        "own_rate": outcome.gemm_flops_per_second,
        "starting": "" if cell.on_cpu else starting_words(outcome),
        "slowdown": None if seconds is None else profile.step_seconds / seconds,
        "busy_seconds": busy,
        "calls": sum(each.calls for each in shown),
        "product_rate": flops / products if flops and products > 0 else None,
        "step_rate": flops / seconds if flops and seconds else None,
    }


def _kinds(operators: Iterable[Share], whole: float, busy: float) -> list[Share]:
    found: dict[str, tuple[float, float]] = {}
    for each in operators:
        seconds, calls = found.get(each.kind, (0.0, 0.0))
        found[each.kind] = seconds + each.seconds, calls + (each.calls or 0.0)
    kinds = [
        Share(kind, kind, seconds, seconds / whole, calls)
        for kind, (seconds, calls) in found.items()
    ]
    idle = max(0.0, whole - busy)
    return [
        *sorted(kinds, key=lambda each: -each.seconds),
        Share(IDLE, IDLE, idle, idle / whole, None),
    ]


def _count(value: float | None) -> str:
    return (
        ""
        if value is None
        else f"{value:.0f}"
        if abs(value - round(value)) < 0.05
        else f"{value:.1f}"
    )


def _milliseconds(seconds: float) -> str:
    return f"{number(seconds * 1e3)} ms"


_NUMBERS: tuple[Column[Share], ...] = (
    Column("seconds", "ms", lambda each: each.seconds, lambda each: number(each.seconds * 1e3)),
    Column("share", "%", lambda each: each.share, lambda each: f"{100 * each.share:.1f}"),
    Column("calls", "calls", lambda each: each.calls, lambda each: _count(each.calls)),
)
_OPERATORS: tuple[Column[Share], ...] = (
    Column(
        "name",
        "operator",
        lambda each: each.name,
        lambda each: one_line(_NOISE.sub("", each.name), _NAME_WIDTH),
    ),
    Column("kind", "kind", lambda each: each.kind),
    *_NUMBERS,
)

_FUNCTIONS: tuple[Column[Share], ...] = (
    Column("", "function", lambda each: one_line(each.name, _NAME_WIDTH)),
    *_NUMBERS,
)


def _of_python(found: dict[str, Any]) -> bool:
    """Return whether the profile has functions of Python, because no framework's profiler explains
    the step.
    """
    return str(found["profiler"]).startswith(PYTHON_PROFILER)


def _page(found: dict[str, Any], top: int) -> Page:
    """Return the kinds and the ``top`` longest operators as tables, with conclusions."""
    idle = "idle" if found["on_device"] else "outside operators"
    kind: Column[Share] = Column("", "kind", lambda each: idle if each.name == IDLE else each.name)
    title = "Where a step's time goes" + (", on the device" if found["on_device"] else "")
    shown, count = found["operators"][:top], len(found["operators"])
    of_python = _of_python(found)
    name = "Functions" if of_python else "Operators"
    longest = f"{name}, the {len(shown)} longest of {count}" if len(shown) > 1 else name
    software = f" ({found['software']})" if found["software"] else ""
    before = (f"{name_of(found['cell'])}{software}.", _cost_of_the_profiler(found))
    if of_python:
        # Kinds are those of operators: by its name a function is of none.
        return Page(before, (table(_FUNCTIONS, shown, longest),), tuple(_notes(found)))
    tables = table((kind, *_NUMBERS), found["kinds"], title), table(_OPERATORS, shown, longest)
    return Page(before, tables, tuple(_notes(found)))


def _cost_of_the_profiler(found: dict[str, Any]) -> str:
    seconds, slowdown = found["seconds"], found["slowdown"]
    profiled = (
        f"{_milliseconds(found['profiled_seconds'])} under {found['profiler']} (mean of "
        f"{found['steps']})"
    )
    if seconds is None:
        return f"A step takes {profiled}."
    against = "not slower" if slowdown < 1 else f"{100 * (slowdown - 1):.0f} % longer"
    if slowdown >= 2:
        against = f"{slowdown:.1f} times as long"
    return f"A step takes {_milliseconds(seconds)} (median), and {profiled}: {against}."


def _notes(found: dict[str, Any]) -> list[str]:
    lines = []
    seconds, slowdown, busy = found["seconds"], found["slowdown"], found["busy_seconds"]
    if slowdown is not None and slowdown > SLOWER:
        hence = (
            f"many short {'functions' if _of_python(found) else 'operators'} weigh more than they "
            "do without it."
        )
        if found["on_device"]:
            hence = (
                "kernel times hold, but without it the device is idle less often than it seems "
                "here."
            )
        lines.append(f"The profiler makes a step {slowdown:.1f} times as long: {hence}")
    if found["product_rate"] is not None and found["step_rate"] is not None:
        own = (
            f" Its own large matrix product: {_rate(found['own_rate'])}."
            if found["own_rate"]
            else ""
        )
        lines.append(
            f"The network's {number(found['flops'] * 1e-9)} GFLOP a step take "
            f"{_milliseconds(found['product_seconds'])} in products, convolutions and recurrent "
            f"operators: {_rate(found['product_rate'])} there, {_rate(found['step_rate'])} over "
            f"the step.{own}"
        )
    if found["on_device"] and seconds:
        share = min(1.0, busy / seconds)
        rest = ", and waits for the CPU for the rest" if share < 1 - _REMARKABLE_IDLE else ""
        lines.append(
            f"Without the profiler, the device works for {100 * share:.0f} % of a step{rest}."
        )
    what = "kernels and copies" if found["on_device"] else "operators"
    mean = busy / found["calls"]
    each = f"{number(mean * 1e6)} us" if mean < 1e-3 else _milliseconds(mean)
    if _of_python(found):
        lines.append(
            f"A step makes {_count(found['calls'])} calls of functions, which take {each} on "
            "average."
        )
        lines.append(
            "Each is without the functions that it calls. Operators are not shown: the file "
            "imports no framework whose profiler explains the step."
        )
        return lines
    lines.append(f"A step launches {_count(found['calls'])} {what}, which take {each} on average.")
    if starting := found["starting"]:
        lines.append(f"{starting[0].upper()}{starting[1:]}.")
    if busy > found["profiled_seconds"]:
        lines.append(
            "Some operators overlapped: shares are of the sum of operator times, not of the step."
        )
    lines.append(
        "Operators are classified by name; a recurrent operator includes its matrix products."
    )
    return lines


def _rate(flops_per_second: float) -> str:
    unit, name = (1e12, "TFLOP/s") if flops_per_second >= 1e12 else (1e9, "GFLOP/s")
    return f"{number(flops_per_second / unit)} {name}"


REPORT: Report[dict[str, Any]] = Report(
    name="explain",
    summary="Where the time of one cell's step goes, by kinds of operators.",
    examples=("dlbench explain torch/resnet50",),
    page=lambda found, options: _page(found, options.top),
    data=lambda found: {"schema": SCHEMA, **plain(found)},
    rows=lambda found: csv_rows(_OPERATORS, found["operators"]),
)
