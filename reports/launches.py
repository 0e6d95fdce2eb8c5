"""`dlbench report launches`: where the time of a launch goes, phase by phase.

A guest announces its phases, and a record keeps when each began; see `protocol.Outcome.phases`.
"""

from collections.abc import Callable, Iterable
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, axis_columns, table
from dlbench.reports.formats.layout import Page
from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.results.keys import Place, group_of, grouped
from dlbench.reports.results.naming import group_name, head_of, row_name
from dlbench.reports.results.networks import in_order
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

_SHOWN = ("start", "import", "build", "first step", "warm-up", "timed", "check")
_OLDER = "No launch here has the times of its phases; `dlbench run` keeps them."
_LEGEND = (
    "p: threads. Seconds, medians over launches. beside: all but the timed steps.",
    (
        "start: before the import; build: weights, mini-batch and network; check: the parity "
        "check; rest: a matrix product, the description of the software, the end of the processes."
    ),
)


class Phases(NamedTuple):
    """A cell's launches on a machine."""

    machine: str
    cell: Cell
    launches: int
    seconds: dict[str, float]
    """Of each phase, the median over launches; "rest": of all that have no column."""
    beside: float
    """Seconds of a launch but its timed steps."""


def seconds_of_phases(record: Record) -> dict[str, float]:
    """Return the seconds of each phase of a launch, in order; without any where the record does not
    have them.
    """
    begun = sorted(record.outcome.phases.items(), key=lambda phase: phase[1])
    if not begun:
        return {}
    ends = [time for _, time in begun[1:]] + [begun[0][1] + record.wall_seconds]
    seconds = {name: max(0.0, end - time) for (name, time), end in zip(begun, ends, strict=True)}
    outcome = record.outcome
    # Its wall seconds leave out already that it waited for CPUs before its first step, and stood
    # still between turns.
    others_ran = seconds.pop("waiting", 0.0)
    if outcome.turns and outcome.outside is not None and "timed" in seconds:
        between_turns = max(0.0, seconds["timed"] - outcome.outside.timed_seconds)
        seconds["timed"] -= between_turns
        others_ran += between_turns
    last, began = begun[-1]
    if last in seconds:
        seconds[last] = max(0.0, ends[-1] + others_ran - began)
    return seconds


def phases_of_cells(records: Iterable[Record]) -> list[Phases]:
    """Return the phases of each cell that was timed, those of one machine and network together."""
    timed = [each for each in records if each.outcome.phases and each.outcome.samples_ns]
    found = []
    for place, launches in grouped(
        timed, lambda record: Place(record.machine, record.cell)
    ).items():
        spent = [seconds_of_phases(record) for record in launches]
        seconds = {name: median(each.get(name, 0.0) for each in spent) for name in _SHOWN}
        seconds["rest"] = median(
            sum(each[name] for name in each if name not in _SHOWN) for each in spent
        )
        beside = median(
            record.wall_seconds - sum(record.outcome.samples_ns) * 1e-9 for record in launches
        )
        found.append(Phases(*place, len(launches), seconds, beside))

    def order(each: Phases) -> tuple[Any, ...]:
        group = group_of(each.cell)
        return each.machine, in_order(group.network), axes.sort_key(group), axes.sort_key(each.cell)

    return sorted(found, key=order)


def _seconds(key: str, heading: str, value: Callable[[Phases], float]) -> Column[Phases]:
    return Column(key, heading, value, lambda row: f"{value(row):.2f}")


def _phase(name: str) -> Column[Phases]:
    key = name.replace(" ", "_").replace("-", "_") + "_seconds"
    return _seconds(key, name.removesuffix(" step"), lambda row: row.seconds[name])


_COLUMNS: tuple[Column[Phases], ...] = (
    Column("", "", lambda row: row_name(row.cell)),
    Column("", "p", lambda row: head_of(row.cell)),
    Column("machine", None, lambda row: row.machine),
    *axis_columns(lambda row: row.cell),
    Column("launches", None, lambda row: row.launches),
    *map(_phase, (*_SHOWN, "rest")),
    _seconds("beside_seconds", "beside", lambda row: row.beside),
)


def _page(results: Results) -> Page:
    found, title = phases_of_cells(results.records), "Where a launch's time goes"
    if not found:
        return Page((_OLDER,), (table(_COLUMNS, found, title, "cells"),))
    tables = [
        table(
            _COLUMNS,
            rows,
            f"{title}, on {results.hosts[name].name}",
            "cells",
            lambda row: group_name(row.cell),
            keys=2,
        )
        for name, rows in groupby(found, lambda row: row.machine)
    ]
    return Page((), tuple(tables), (*_LEGEND, *axes.legends(row.cell for row in found)))


REPORT = Report(
    name="launches",
    summary=(
        "Where the time of a launch goes: imports, building, warm-up, timed steps, parity check."
    ),
    examples=(
        "dlbench report launches",
        "dlbench report launches --run latest --networks fcn5 --threads 1",
    ),
    analyse=lambda source: source.results(),
    page=lambda results, options: _page(results),
    options=frozenset({ALL_RUNS}),
)
