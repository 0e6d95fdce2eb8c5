"""`dlbench report launches`: where the time of a launch goes, phase by phase.

A guest announces its phases, and a record keeps when each began; see `protocol.Outcome.phases`.
"""

from collections.abc import Callable, Iterable
from statistics import median
from typing import NamedTuple

from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import grouped
from dlbench.reports.columns import Column, axis_columns, table
from dlbench.reports.formats.layout import Page
from dlbench.reports.naming import group_name, rest_of
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.storage.networks import in_order
from dlbench.reports.storage.record import Record

_SHOWN = ("start", "import", "build", "first step", "warm-up", "timed", "check")
_OLDER = "No launch here has the times of its phases; `dlbench run` keeps them."
_LEGEND = (
    "Seconds, medians over launches. beside: all but the timed steps.",
    "start: before the import; build: weights, mini-batch and network; check: the parity check; rest: "
    "a matrix product, the description of the software, the end of the processes.",
)


class Phases(NamedTuple):
    """A cell's launches."""

    cell: Cell
    launches: int
    seconds: dict[str, float]
    """Of each phase, the median over launches; "rest": of all that have no column."""
    beside: float
    """Seconds of a launch but its timed steps."""


def seconds_of_phases(record: Record) -> dict[str, float]:
    """Return the seconds of each phase of a launch, in order; without any where the record does not have them."""
    begun = sorted(record.outcome.phases.items(), key=lambda phase: phase[1])
    if not begun:
        return {}
    ends = [time for _, time in begun[1:]] + [begun[0][1] + record.wall_seconds]
    return {name: max(0.0, end - time) for (name, time), end in zip(begun, ends, strict=True)}


def phases_of_cells(records: Iterable[Record]) -> list[Phases]:
    """Return the phases of each cell that was timed, in the order of the records."""
    timed = [each for each in records if each.outcome.phases and each.outcome.samples_ns]
    found = []
    for cell, launches in grouped(timed, lambda record: record.cell).items():
        spent = [seconds_of_phases(record) for record in launches]
        seconds = {name: median(each.get(name, 0.0) for each in spent) for name in _SHOWN}
        seconds["rest"] = median(sum(each[name] for name in each if name not in _SHOWN) for each in spent)
        beside = median(record.wall_seconds - sum(record.outcome.samples_ns) * 1e-9 for record in launches)
        found.append(Phases(cell, len(launches), seconds, beside))
    return sorted(found, key=lambda each: (in_order(each.cell.network), each.cell))


def _seconds(key: str, heading: str, value: Callable[[Phases], float]) -> Column[Phases]:
    return Column(key, heading, value, lambda row: f"{value(row):.2f}")


def _phase(name: str) -> Column[Phases]:
    key = name.replace(" ", "_").replace("-", "_") + "_seconds"
    return _seconds(key, name.removesuffix(" step"), lambda row: row.seconds[name])


_COLUMNS: tuple[Column[Phases], ...] = (
    Column("", "", lambda row: rest_of(row.cell)),
    *axis_columns(lambda row: row.cell),
    Column("launches", None, lambda row: row.launches),
    *map(_phase, (*_SHOWN, "rest")),
    _seconds("beside_seconds", "beside", lambda row: row.beside),
)


def _page(found: list[Phases]) -> Page:
    title, by_work = "Where a launch's time goes", lambda row: group_name(row.cell)
    rows = table(_COLUMNS, found, title, "cells", by_work, _LEGEND if found else ())
    return Page(() if found else (_OLDER,), (rows,))


REPORT = Report(
    name="launches",
    summary="Where the time of a launch goes: imports, building, warm-up, timed steps, parity check.",
    examples=("dlbench report launches", "dlbench report launches --run latest --networks fcn5 --threads 1"),
    analyse=lambda source: phases_of_cells(source.results().records),
    page=lambda found, options: _page(found),
    options=frozenset({ALL_RUNS}),
)
