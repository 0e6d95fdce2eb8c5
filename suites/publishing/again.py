"""The command that measures a cell again, written by the table of axes."""

import shlex
from functools import cache
from pathlib import Path

from dlbench.adapters.protocol import Cell

from ..errors import UsageError
from ..planning import values
from ..planning.axes import AXIS_OPTIONS, AxisOption, option_of
from ..planning.suite import load


def again(cell: Cell, suite: str, step: Path | None = None, **given: object) -> str:
    """Return `dlbench run SUITE ...` for one cell, and ``given`` as further options; a user's own step by its file."""
    words = ["dlbench run", shlex.quote(suite)]
    words += [f"--step {shlex.quote(str(step))}"] if step else [f"--networks {shlex.quote(cell.network)}"]
    words += [] if step else [f"--frameworks {shlex.quote(f'{cell.framework}:{cell.mode}')}"]
    words.append(f"{option_of('threads' if cell.on_cpu else 'device_threads')} {cell.threads}")
    for option in AXIS_OPTIONS:
        if option.axis in ("network", "framework", "threads", *given):
            continue
        value = str(getattr(cell, option.axis))
        if {value} != {_usual(option), *_of_suite(suite, option)}:
            words.append(f"{option.option} {shlex.quote(value)}")
    words += [f"{option_of(name)} {shlex.quote(str(value))}" for name, value in given.items()]
    return " ".join(words)


def _usual(option: AxisOption) -> str:
    return "cpu" if option.axis == "device" else option.usual


@cache
def _of_suite(suite: str, option: AxisOption) -> tuple[str, ...]:
    """Return the words that a suite has for an axis; none where the suite is not here."""
    try:
        found = load(suite)
    except UsageError:
        return ()
    if option.axis == "device":
        return tuple(found.devices)
    return tuple(values.words(found.axes[option.key])) if option.key in found.axes else ()
