"""`dlbench explain`: where the time of a step goes, by a launch's profile, and its rates by FLOPs.

On the CPU the operators are those that ran there. On a GPU they are the device's kernels and
copies, without the CPU's work to launch them. The rest of a step is `IDLE`: on the CPU the
framework's own work between its operators, and waiting, on a GPU the time when the device has no
work.
"""

import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from dlbench.adapters.families import Family
from dlbench.adapters.libraries.profiles import CONVOLUTION, MATRIX, PYTHON_PROFILER, RECURRENT
from dlbench.adapters.protocol import Cell, Operator
from dlbench.reports.columns import Column, csv_rows, table
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import Report
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.flags import starting_words
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import name_of
from dlbench.reports.results.number_text import number
from dlbench.reports.results.outcome import Outcome
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
    """Of ``whole_seconds``: a profiled step, or the sum of its operators where that is longer."""
    calls: float | None
    """None for `IDLE`."""


def explain(cell: Cell, outcome: Outcome, family: Family | None = None) -> dict[str, Any]:
    """Return the content of the launch's profile as ``json-keys.toml`` describes it.

    It holds a cell and `Share`s. Raises ReportError where there is no profile, or nothing in it.
    """
    profile = outcome.profile
    if profile is None:
        raise ReportError("This launch has no profile.")
    shown = []
    for operator in profile.operators:
        if operator.on_device is not cell.on_cpu and operator.calls > 0:
            shown.append(operator)
    busy = sum(operator.seconds for operator in shown)
    whole = max(profile.step_seconds, busy)
    if not shown or whole <= 0:
        where = "the CPU" if cell.on_cpu else cell.device
        raise ReportError(f"{profile.profiler} reported no operator on {where}.")
    operators = _shares(shown, whole)
    steps = outcome.step_seconds()
    seconds = median(steps) if steps else None
    flops = None
    if family is not None and cell.batch_size is not None:
        flops = family.flops(cell.batch_size, cell.infers)
    products = sum(operator.seconds for operator in operators if operator.kind in PRODUCTS)
    software = []
    for key in ("framework", "version"):
        if outcome.software.get(key):
            software.append(str(outcome.software[key]))
    starting = "" if cell.on_cpu else starting_words(outcome)
    slowdown = step_rate = product_rate = None
    if seconds is not None:
        slowdown = profile.step_seconds / seconds
    if flops and seconds:
        step_rate = flops / seconds
    if flops and products > 0:
        product_rate = flops / products
    return {
        "cell": cell,
        "software": " ".join(software),
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
        "starting": starting,
        "slowdown": slowdown,
        "busy_seconds": busy,
        "calls": sum(operator.calls for operator in shown),
        "product_rate": product_rate,
        "step_rate": step_rate,
    }


def _shares(operators: Sequence[Operator], whole: float) -> list[Share]:
    """Return the share of each operator in ``whole`` seconds, the longest first."""
    shares = []
    for operator in operators:
        share = operator.seconds / whole
        shares.append(Share(operator.name, operator.kind, operator.seconds, share, operator.calls))
    shares.sort(key=lambda share: (-share.seconds, share.name))
    return shares


def _kinds(operators: Iterable[Share], whole: float, busy: float) -> list[Share]:
    """Return the share of each kind, the longest first, and of `IDLE`."""
    kinds = []
    for kind, operators_of_kind in grouped(operators, lambda operator: operator.kind).items():
        seconds = sum((operator.seconds for operator in operators_of_kind), start=0.0)
        calls = sum(operator.calls or 0.0 for operator in operators_of_kind)
        kinds.append(Share(kind, kind, seconds, seconds / whole, calls))
    kinds.sort(key=lambda kind: -kind.seconds)
    idle = max(0.0, whole - busy)
    return [*kinds, Share(IDLE, IDLE, idle, idle / whole, None)]


def _count(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value - round(value)) < 0.05:
        return f"{value:.0f}"
    return f"{value:.1f}"


def _milliseconds(seconds: float) -> str:
    return f"{number(seconds * 1e3)} ms"


_NUMBERS: tuple[Column[Share], ...] = (
    Column("seconds", "ms", lambda share: share.seconds, lambda share: number(share.seconds * 1e3)),
    Column("share", "%", lambda share: share.share, lambda share: f"{100 * share.share:.1f}"),
    Column("calls", "calls", lambda share: share.calls, lambda share: _count(share.calls)),
)


def _operator_name(operator: Share) -> str:
    return one_line(_NOISE.sub("", operator.name), _NAME_WIDTH)


_OPERATORS: tuple[Column[Share], ...] = (
    Column("name", "operator", lambda operator: operator.name, _operator_name),
    Column("kind", "kind", lambda operator: operator.kind),
    *_NUMBERS,
)

_FUNCTIONS: tuple[Column[Share], ...] = (
    Column("", "function", lambda function: one_line(function.name, _NAME_WIDTH)),
    *_NUMBERS,
)


def _is_of_python(explained: dict[str, Any]) -> bool:
    """Return whether the profile has Python functions.

    It has them if no framework's profiler explains the step.
    """
    return str(explained["profiler"]).startswith(PYTHON_PROFILER)


def _page(explained: dict[str, Any], top: int) -> Page:
    """Return the kinds and the ``top`` longest operators as tables, with conclusions."""
    shown = explained["operators"][:top]
    count = len(explained["operators"])
    is_of_python = _is_of_python(explained)
    longest = "Functions" if is_of_python else "Operators"
    if len(shown) > 1:
        longest += f", the {len(shown)} longest of {count}"
    heading = name_of(explained["cell"])
    if explained["software"]:
        heading += f" ({explained['software']})"
    before = (f"{heading}.", _profiler_cost(explained))
    notes = tuple(_notes(explained))
    if is_of_python:
        # Kinds are those of operators, and no function has the name of one.
        return Page(before, (table(_FUNCTIONS, shown, longest),), notes)

    title = "Where a step's time goes"
    idle = "outside operators"
    if explained["on_device"]:
        title += ", on the device"
        idle = "idle"

    def kind_name(kind: Share) -> str:
        if kind.name == IDLE:
            return idle
        return kind.name

    kind_columns = (Column("", "kind", kind_name), *_NUMBERS)
    tables = (table(kind_columns, explained["kinds"], title), table(_OPERATORS, shown, longest))
    return Page(before, tables, notes)


def _profiler_cost(explained: dict[str, Any]) -> str:
    seconds = explained["seconds"]
    slowdown = explained["slowdown"]
    profiled = (
        f"{_milliseconds(explained['profiled_seconds'])} under {explained['profiler']} (mean of "
        f"{explained['steps']})"
    )
    if seconds is None:
        return f"A step takes {profiled}."
    if slowdown < 1:
        comparison = "not slower"
    elif slowdown < 2:
        comparison = f"{100 * (slowdown - 1):.0f} % longer"
    else:
        comparison = f"{slowdown:.1f} times as long"
    return f"A step takes {_milliseconds(seconds)} (median), and {profiled}: {comparison}."


def _notes(explained: dict[str, Any]) -> list[str]:
    lines = []
    slowdown = explained["slowdown"]
    if slowdown is not None and slowdown > SLOWER:
        lines.append(_slowdown_note(explained))
    if explained["product_rate"] is not None and explained["step_rate"] is not None:
        lines.append(_rate_note(explained))
    seconds = explained["seconds"]
    busy = explained["busy_seconds"]
    if explained["on_device"] and seconds:
        share = min(1.0, busy / seconds)
        rest = ""
        if share < 1 - _REMARKABLE_IDLE:
            rest = ", and waits for the CPU for the rest"
        lines.append(
            f"Without the profiler, the device works for {100 * share:.0f} % of a step{rest}."
        )
    calls = _count(explained["calls"])
    mean = busy / explained["calls"]
    mean_text = _milliseconds(mean)
    if mean < 1e-3:
        mean_text = f"{number(mean * 1e6)} us"
    if _is_of_python(explained):
        lines.append(f"A step makes {calls} calls of functions, which take {mean_text} on average.")
        lines.append(
            "Each is without the functions that it calls. Operators are not shown: the file "
            "imports no framework whose profiler explains the step."
        )
        return lines
    operators = "kernels and copies" if explained["on_device"] else "operators"
    lines.append(f"A step launches {calls} {operators}, which take {mean_text} on average.")
    starting = explained["starting"]
    if starting:
        lines.append(f"{starting[0].upper()}{starting[1:]}.")
    if busy > explained["profiled_seconds"]:
        lines.append(
            "Some operators overlapped: shares are of the sum of operator times, not of the step."
        )
    lines.append(
        "Operators are classified by name; a recurrent operator includes its matrix products."
    )
    return lines


def _slowdown_note(explained: dict[str, Any]) -> str:
    if explained["on_device"]:
        consequence = (
            "kernel times hold, but without it the device is idle less often than it seems."
        )
    else:
        operators = "functions" if _is_of_python(explained) else "operators"
        consequence = f"many short {operators} weigh more than they do without it."
    return f"The profiler makes a step {explained['slowdown']:.1f} times as long: {consequence}"


def _rate_note(explained: dict[str, Any]) -> str:
    note = (
        f"The network's {number(explained['flops'] * 1e-9)} GFLOP a step take "
        f"{_milliseconds(explained['product_seconds'])} in products, convolutions and recurrent "
        f"operators: {_rate(explained['product_rate'])} there, {_rate(explained['step_rate'])} "
        "over the step."
    )
    if explained["own_rate"]:
        note += f" Its own large matrix product: {_rate(explained['own_rate'])}."
    return note


def _rate(flops_per_second: float) -> str:
    if flops_per_second >= 1e12:
        return f"{number(flops_per_second / 1e12)} TFLOP/s"
    return f"{number(flops_per_second / 1e9)} GFLOP/s"


REPORT: Report[dict[str, Any]] = Report(
    name="explain",
    summary="Where the time of one cell's step goes, by kinds of operators.",
    examples=("dlbench explain torch/resnet50",),
    page=lambda explained, options: _page(explained, options.top),
    data=lambda explained: {"schema": SCHEMA, **plain(explained)},
    rows=lambda explained: csv_rows(_OPERATORS, explained["operators"]),
)
