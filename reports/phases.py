"""`dlbench report phases`: where the time of a launch goes, phase by phase.

A guest announces its phases, and a record keeps when each began; see `protocol.Answer.phases`.
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
from dlbench.reports.results.keys import Place, grouped, work_of
from dlbench.reports.results.naming import head_of, row_name, work_name
from dlbench.reports.results.networks import in_order
from dlbench.reports.results.record import Record
from dlbench.reports.results.results import Results

_SHOWN = ("start", "import", "build", "first step", "warm-up", "timed", "check")
_OLDER = "None of these launches has the times of its phases; `dlbench run` keeps them."
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
    """By phase, the median over launches. "rest" is the sum of the phases without a column."""
    beside: float
    """Seconds of a launch without its timed steps."""


def seconds_of_phases(record: Record) -> dict[str, float]:
    """Return the seconds of each phase of a launch, in order; empty if the record has none."""
    phases = sorted(record.outcome.phases.items(), key=lambda phase: phase[1])
    if not phases:
        return {}
    _, first_start = phases[0]
    last_phase, last_start = phases[-1]
    end = first_start + record.wall_seconds
    ends = [start for _, start in phases[1:]] + [end]
    seconds = {
        name: max(0.0, phase_end - start)
        for (name, start), phase_end in zip(phases, ends, strict=True)
    }
    outcome = record.outcome
    # The wall seconds already leave out the wait for CPUs before the first step, and between turns.
    others_ran = seconds.pop("waiting", 0.0)
    if outcome.turns and outcome.outside is not None and "timed" in seconds:
        between_turns = max(0.0, seconds["timed"] - outcome.outside.timed_seconds)
        seconds["timed"] -= between_turns
        others_ran += between_turns
    if last_phase in seconds:
        seconds[last_phase] = max(0.0, end + others_ran - last_start)
    return seconds


def phases_of_cells(records: Iterable[Record]) -> list[Phases]:
    """Return the phases of each cell that was timed, those of one machine and network together."""
    timed = [record for record in records if record.outcome.phases and record.outcome.samples_ns]
    records_by_place = grouped(timed, lambda record: Place(record.machine, record.cell))
    rows = []
    for place, launches in records_by_place.items():
        by_launch = []
        rests = []
        besides = []
        for record in launches:
            phases = seconds_of_phases(record)
            by_launch.append(phases)
            rests.append(sum(phases[name] for name in phases if name not in _SHOWN))
            besides.append(record.wall_seconds - sum(record.outcome.samples_ns) * 1e-9)
        seconds = {}
        for name in _SHOWN:
            seconds[name] = median(phases.get(name, 0.0) for phases in by_launch)
        seconds["rest"] = median(rests)
        rows.append(Phases(place.machine, place.cell, len(launches), seconds, median(besides)))
    return sorted(rows, key=_matrix_order)


def _matrix_order(row: Phases) -> tuple[Any, ...]:
    work = work_of(row.cell)
    return row.machine, in_order(work.network), axes.sort_key(work), axes.sort_key(row.cell)


def _seconds_column(key: str, heading: str, value: Callable[[Phases], float]) -> Column[Phases]:
    return Column(key, heading, value, lambda row: f"{value(row):.2f}")


def _phase_column(name: str) -> Column[Phases]:
    key = name.replace(" ", "_").replace("-", "_") + "_seconds"
    return _seconds_column(key, name.removesuffix(" step"), lambda row: row.seconds[name])


_COLUMNS: tuple[Column[Phases], ...] = (
    Column("", "", lambda row: row_name(row.cell)),
    Column("", "p", lambda row: head_of(row.cell)),
    Column("machine", None, lambda row: row.machine),
    *axis_columns(lambda row: row.cell),
    Column("launches", None, lambda row: row.launches),
    *map(_phase_column, (*_SHOWN, "rest")),
    _seconds_column("beside_seconds", "beside", lambda row: row.beside),
)


def _page(results: Results) -> Page:
    rows = phases_of_cells(results.records)
    title = "Where a launch's time goes"
    if not rows:
        return Page((_OLDER,), (table(_COLUMNS, rows, title, "cells"),))
    tables = []
    for machine, rows_of_machine in groupby(rows, lambda row: row.machine):
        tables.append(
            table(
                _COLUMNS,
                rows_of_machine,
                f"{title}, on {results.hosts[machine].name}",
                "cells",
                lambda row: work_name(row.cell),
                keys=2,
            )
        )
    return Page((), tuple(tables), (*_LEGEND, *axes.legends(row.cell for row in rows)))


REPORT = Report(
    name="phases",
    summary="Where a launch spends its time, from imports to parity check.",
    examples=(
        "dlbench report phases",
        "dlbench report phases --run latest --networks fcn5 --threads 1",
    ),
    analyse=lambda source: source.results(),
    page=lambda results, options: _page(results),
    options=frozenset({ALL_RUNS}),
)
