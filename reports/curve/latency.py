"""`dlbench report latency`: within which time calls end, and the curve of it for each row.

A launch of inference times single calls. The percentiles of a cell are geometric means of its
launches' percentiles; nothing is trimmed, since the tail is what is asked for. MLPerf's scenario
SingleStream is this percentile at a mini-batch of 1, its scenario Offline the throughput at the
best mini-batch.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dlbench.adapters import axes
from dlbench.reports.columns import Column, axis_columns, host_columns, table
from dlbench.reports.curve import pictures
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.left_out import left_out
from dlbench.reports.report import ALL_RUNS, Report, Source
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, group_name, place_name, row_name
from dlbench.reports.results.number_text import deviation, number
from dlbench.reports.results.quantities import FEWEST_BEYOND, LATENCIES, QUANTITIES, calls_of
from dlbench.reports.results.record import last_attempts
from dlbench.reports.results.statistics import clearly_slower

NOTHING = (
    "No cell here is of inference. Measure some: `dlbench run inference-quick`, or --task "
    "inference."
)
_SHARES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
"""Of calls, in the picture."""
_LEGEND = (
    (
        "Of single calls: p50 is the time within which half of them end, p90 nine in ten, p99 99 "
        "in 100. The first of several calls after a pause between turns does not count."
    ),
    (
        f"{layout.BEST} the least in its column, or not clearly more. ± is the wider side of the "
        "95 % interval over launches, from 3 of them on."
    ),
)


class Latency(NamedTuple):
    """The calls of a cell of inference."""

    cell: CellResult
    calls: int
    """Of all its launches."""
    curve: tuple[tuple[float, float], ...]
    """Shares of calls, and the seconds within which they end, over the calls of all launches."""
    best: frozenset[str]
    """Percentiles for which no other row at its place takes clearly less."""


class Latencies(NamedTuple):
    """The latencies of a matrix, in its order."""

    matrix: Matrix
    rows: tuple[Latency, ...]


def latencies(source: Source) -> Latencies:
    """Return the latencies of the cells of inference that have a number."""
    matrix = source.matrix()
    calls: dict[tuple[str, object], list[float]] = {}
    for record in last_attempts(source.results().records):
        outcome = record.outcome
        if record.cell.infers and outcome.gives_a_number():
            calls.setdefault((record.machine, axes.without(record.cell)), []).extend(
                calls_of(outcome)
            )
    found = []
    timed = [cell for cell in matrix.cells.values() if cell.cell.infers and cell.timed is not None]
    for rivals in grouped(timed, lambda cell: (cell.machine, cell.group, cell.column)).values():
        for cell in rivals:
            seconds = calls.get((cell.machine, axes.without(cell.cell)), [])
            found.append(Latency(cell, len(seconds), _curve(seconds), _best(cell, rivals)))
    return Latencies(matrix, tuple(found))


def _curve(seconds: Sequence[float]) -> tuple[tuple[float, float], ...]:
    shares = [share for share in _SHARES if round(len(seconds) * (1 - share), 6) >= FEWEST_BEYOND]
    return tuple((share, float(np.quantile(seconds, share))) for share in shares)


def _best(cell: CellResult, rivals: Sequence[CellResult]) -> frozenset[str]:
    """Return the percentiles for which none of the rivals at its place takes clearly less."""
    found = set()
    for name in LATENCIES.keys() & cell.measured.keys():
        known = [each.measured[name] for each in rivals if name in each.measured]
        least = min(known, key=lambda of: of.median)
        if len(rivals) > 1 and not clearly_slower(cell.measured[name], least):
            found.add(name)
    return frozenset(found)


def _threads(cell: CellResult) -> str:
    """Return the place of a cell below the heading "threads": "2", "2 under a CPU quota of 1"."""
    return re.sub(" threads?", "", place_name(cell.cell))


def _percentile(name: str) -> Column[Latency]:
    def text(latency: Latency) -> Entry:
        summary = latency.cell.measured.get(name)
        if summary is None:
            return Entry(MISSING)
        numbers = (summary.median, summary.low, summary.high)
        return Entry(number(summary.median), deviation(*numbers), best=name in latency.best)

    return Column(
        name, QUANTITIES[name].unit, lambda latency: latency.cell.measured.get(name), text, MEDIAN
    )


_COLUMNS = (
    Column[Latency]("", "", lambda latency: row_name(latency.cell.row)),
    Column[Latency]("", "threads", lambda latency: _threads(latency.cell)),
    *map(_percentile, LATENCIES),
    Column[Latency](
        "items_per_second",
        "examples/s",
        lambda latency: latency.cell.items_per_second,
        lambda latency: (
            number(latency.cell.items_per_second) if latency.cell.items_per_second else MISSING
        ),
    ),
    Column[Latency]("calls", None, lambda latency: latency.calls),
)


def _page(found: Latencies) -> Page:
    """Return for each machine a table of its rows, by network and place."""
    columns = (
        *host_columns(lambda latency: found.matrix.hosts[latency.cell.machine]),
        *axis_columns(lambda latency: latency.cell.cell),
        *_COLUMNS,
    )
    if not found.rows:
        return Page((NOTHING, *found.matrix.notes), (table(columns, (), key="rows"),))
    tables = []
    for machine, rows in grouped(found.rows, lambda latency: latency.cell.machine).items():
        title = f"How long calls take, on {found.matrix.hosts[machine].name}"
        tables.append(
            table(
                columns, rows, title, "rows", lambda latency: group_name(latency.cell.cell), _LEGEND
            )
        )
    return Page((), tuple(tables), tuple(_notes(found)))


def _notes(found: Latencies) -> Iterator[str]:
    cells = [latency.cell for latency in found.rows]
    yield from layout.flag_lines(cells, layout.common_flags(cells))
    for why, of in grouped(cells, lambda cell: cell.unmeasured.get("p99", "")).items():
        if why:
            cells_of = counted(len(of), "cell")
            yield (
                f"No p99 of {cells_of}: {why}. Give launches more `seconds` in the suite's "
                "[protocol]."
            )
    yield from left_out(
        [cell for cell in found.matrix.cells.values() if cell.cell.infers and cell.timed is None]
    )
    yield from found.matrix.notes


def _draw(found: Latencies, path: Path) -> list[Path]:
    """Draw the seconds by the share of calls that take longer, a panel for each network and
    place.
    """
    rows = sorted({latency.cell.row for latency in found.rows})
    styles = {row: pictures.style(number, number, 0) for number, row in enumerate(rows)}
    panels = []
    for (group, column), here in grouped(
        found.rows, lambda each: (each.cell.group, each.cell.column)
    ).items():
        lines = []
        for latency in here:
            points = [(1 / (1 - share), (seconds, None, None)) for share, seconds in latency.curve]
            lines.append(pictures.Line(points, styles[latency.cell.row]))
        title = ", ".join(filter(None, (group_name(group), place_name(column.cell))))
        panels.append(pictures.Panel(title, lines, (2, 10, 100, 1000)))
    legend = [(row_name(row), styles[row]) for row in rows]
    across = "one call in so many takes longer"
    return pictures.draw(
        [pictures.Picture("Latency by quantile", panels, legend, across, "a call", "s")], path
    )


def _headline(found: Latencies) -> list[str]:
    lines = []
    for machine, rows in grouped(found.rows, lambda latency: latency.cell.machine).items():
        tails = [
            each.cell.measured["p99"].median / each.cell.measured["p50"].median
            for each in rows
            if "p99" in each.cell.measured
        ]
        if tails:
            words = (
                f"the slowest call in a hundred takes {np.median(tails):.2f} times as long as the "
                "usual one"
            )
            lines.append(
                f"{found.matrix.hosts[machine].name}: {words} (median of "
                f"{counted(len(tails), 'cell')})."
            )
    return lines


REPORT = Report(
    name="latency",
    summary="""How long single calls of inference take: percentiles 50, 90 and 99, and examples per
second.

The tail is shown, not trimmed. The picture has the whole curve of each row.""",
    examples=(
        "dlbench report latency",
        "dlbench report latency --networks resnet50 --plot latency.png",
        "dlbench report latency --json",
    ),
    analyse=latencies,
    page=lambda found, options: _page(found),
    draw=lambda found, path, options: _draw(found, path),
    drawable=lambda found: any(latency.curve for latency in found.rows),
    suggestion="how long calls take, the slowest in a hundred included",
    applies=lambda cells: any(cell.infers for cell in cells),
    options=frozenset({ALL_RUNS}),
    heading="Latency of inference",
    place=25,
    headline=_headline,
    has_section=lambda found: bool(found.rows),
)
