"""A step explained, for a terminal and for scripts."""

import re
from typing import Any

from dlbench.reports.explained.analysis import IDLE, SLOWER, Explained, Share
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.inert import one_line
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table, number
from dlbench.reports.naming import name_of

SCHEMA = "dlbench-explained-1"
_NAME_WIDTH = 38
# What the names of PyTorch's CUDA kernels begin with, and need not.
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|<unnamed>::")
_REMARKABLE_IDLE = 0.1


def explained_page(found: Explained, top: int) -> Page:
    """Return the kinds and the ``top`` longest operators as tables, with what follows from them."""
    software = f" ({found.software})" if found.software else ""
    before = (f"{name_of(found.cell)}{software}.", _cost_of_the_profiler(found))
    kinds = Table(
        "Where a step's time goes" + (", on the device" if found.on_device else ""),
        ("kind", "ms", "%", "calls"),
        tuple((Entry(_kind(found, each.name)), *_numbers(each)) for each in found.kinds),
    )
    shown = found.operators[:top]
    operators = Table(
        f"Operators, the {len(shown)} longest of {len(found.operators)}" if len(shown) > 1 else "Operators",
        ("operator", "kind", "ms", "%", "calls"),
        tuple((Entry(_short(each.name)), Entry(each.kind), *_numbers(each)) for each in shown),
    )
    return Page(before, (kinds, operators), tuple(_notes(found)))


def explained_data(found: Explained) -> dict[str, Any]:
    """Return everything that was found, all operators with their full names, times in seconds."""
    followed = ("slowdown", "busy_seconds", "calls", "product_rate", "step_rate")
    return {"schema": SCHEMA, **plain(found), **{name: getattr(found, name) for name in followed}}


def explained_rows(found: Explained) -> Rows:
    """Return a line for each operator, the longest first."""
    return Rows(("name", "kind", "seconds", "share", "calls"), plain(found.operators))


def _numbers(each: Share) -> tuple[Entry, ...]:
    calls = "" if each.calls is None else _count(each.calls)
    return Entry(number(each.seconds * 1e3)), Entry(f"{100 * each.share:.1f}"), Entry(calls)


def _count(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def _kind(found: Explained, name: str) -> str:
    if name != IDLE:
        return name
    return "idle" if found.on_device else "outside operators"


def _short(name: str) -> str:
    return one_line(_NOISE.sub("", name), _NAME_WIDTH)


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
    if rates := _rates(found):
        lines.append(rates)
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
        lines.append("Some of them ran side by side: they are shown as shares of their sum.")
    lines.append("Kinds go by the operators' names; a recurrent operator holds matrix products, a fused one several.")
    return lines


def _rates(found: Explained) -> str:
    """Return in a sentence how fast the counted FLOPs are done, within the operators that do them and over the step."""
    if found.flops is None or found.product_rate is None or found.step_rate is None:
        return ""
    own = f" Its own large matrix product: {_rate(found.own_rate)}." if found.own_rate else ""
    return (
        f"The network's {number(found.flops * 1e-9)} GFLOP a step take {_milliseconds(found.product_seconds)} in "
        f"products, convolutions and recurrent operators: {_rate(found.product_rate)} there, {_rate(found.step_rate)} "
        f"over the step.{own}"
    )


def _rate(flops_per_second: float) -> str:
    if flops_per_second >= 1e12:
        return f"{number(flops_per_second * 1e-12)} TFLOP/s"
    return f"{number(flops_per_second * 1e-9)} GFLOP/s"
