"""The command that measures a cell again, written from the table of axes."""

import shlex
from functools import cache
from pathlib import Path

from dlbench.adapters.protocol import Cell
from dlbench.reports.pytest_benchmark.imported import FRAMEWORK
from dlbench.reports.storage.networks import specification_of_cells

from ..errors import UsageError
from . import own, values
from .axes import AXIS_OPTIONS, AxisOption, option_of
from .framework import catalogue
from .suite import load, shipped

_WITH_ALL_ROWS = "table4"


def rerun_command(cell: Cell, suite: str, step: Path | None = None, **given: object) -> str:
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


def rerun_by_name(cell: Cell, suite: str, launches: int) -> str:
    """Return the command for a cell of whose run only names are known.

    A suite that does not come with dlbench, and a user's own step, are files of their names. A cell that its suite
    gathered from others (`claims`) is measured by one that has its network. The path of a row's own interpreter or
    adapter is left to the reader. "" for a benchmark of others, which no suite measures.
    """
    if cell.framework == FRAMEWORK:
        return ""
    step = Path(f"{cell.framework}.py") if cell.network == own.NETWORK else None
    found = suite if step and suite in shipped() else _with_network(suite, cell.network, cell.specification)
    return " ".join(
        [rerun_command(cell, found, step, launches=max(1, launches)), *([] if step else _option_of_row(cell))]
    )


def _option_of_row(cell: Cell) -> list[str]:
    """Return the option that adds a row which does not come with dlbench."""
    known = {framework.folder: name for name, framework in catalogue().items()}
    if cell.framework in known.values():
        return []
    base = known.get(cell.adapter)
    return [f"--python {cell.framework}:{base}=PATH" if base else f"--adapter {cell.framework}=PATH"]


@cache
def _with_network(suite: str, network: str, specification: str) -> str:
    """Return this suite, or another that comes with dlbench and has the network; else the file of this name."""
    known = shipped()
    for name in (suite, _WITH_ALL_ROWS, *known):
        its = known[name].known.get(network) if name in known else None
        if its is not None and specification_of_cells(its) == specification:
            return name
    return f"{suite}.toml"


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
