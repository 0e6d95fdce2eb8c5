"""`dlbench report latency`: the time within which calls end, and its curve for each row.

A launch of inference times single calls. The percentiles of a cell are geometric means of its
launches' percentiles. Nothing is trimmed, since the tail is the answer. MLPerf's scenario
SingleStream is this percentile at a mini-batch of 1, its scenario Offline the throughput at the
best mini-batch.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, axis_columns, host_columns, table
from dlbench.reports.curve import pictures
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN
from dlbench.reports.formats.layout import MISSING, Entry, Page
from dlbench.reports.left_out import left_out
from dlbench.reports.report import ALL_RUNS, Report, ReportOptions, ReportSource
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import counted, place_name, row_name, work_name
from dlbench.reports.results.number_text import deviation, number
from dlbench.reports.results.quantities import FEWEST_BEYOND, LATENCIES, QUANTITIES, calls_of
from dlbench.reports.results.record import last_attempts
from dlbench.reports.results.statistics import Summary, clearly_slower

NOTHING = (
    "No cell of inference was measured yet: `dlbench run inference-quick`, or --task inference."
)
_SHARES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)
"""Of calls, in the picture."""
_PERCENTILES = (
    "Of single calls: p50 is the time within which half of them end, p90 nine in ten, p99 99 in "
    "100. The first of several calls after a pause between turns does not count."
)
_MARKS = (
    f"{layout.BEST} the least in its column, or not clearly more. ± is the wider side of the 95 % "
    "interval over launches, from 3 of them on."
)
_LEGEND = (_PERCENTILES, _MARKS)


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


def latencies(source: ReportSource) -> Latencies:
    """Return the latencies of the cells of inference that have a number."""
    matrix = source.matrix()
    calls: dict[Place, list[float]] = {}
    for record in last_attempts(source.results().records):
        outcome = record.outcome
        if record.cell.infers and outcome.gives_a_number():
            calls.setdefault(record.place, []).extend(calls_of(outcome))
    rows = []
    timed = [cell for cell in matrix.cells.values() if cell.cell.infers and cell.timed is not None]
    for rivals in grouped(timed, _machine_work_and_column).values():
        for cell in rivals:
            seconds = calls.get(cell.place, [])
            rows.append(Latency(cell, len(seconds), _curve(seconds), _best(cell, rivals)))
    return Latencies(matrix, tuple(rows))


def _machine_work_and_column(cell: CellResult) -> tuple[str, Cell, Place]:
    return cell.machine, cell.work, cell.column


def _curve(seconds: Sequence[float]) -> tuple[tuple[float, float], ...]:
    points = []
    for share in _SHARES:
        beyond = round(len(seconds) * (1 - share), 6)
        if beyond >= FEWEST_BEYOND:
            points.append((share, float(np.quantile(seconds, share))))
    return tuple(points)


def _best(cell: CellResult, rivals: Sequence[CellResult]) -> frozenset[str]:
    """Return the percentiles for which none of the rivals at its place takes clearly less."""
    if len(rivals) < 2:
        return frozenset()
    best = set()
    for name in LATENCIES.keys() & cell.measured.keys():
        summaries = [rival.measured[name] for rival in rivals if name in rival.measured]
        least = min(summaries, key=lambda summary: summary.median)
        if not clearly_slower(cell.measured[name], least):
            best.add(name)
    return frozenset(best)


def _threads(latency: Latency) -> str:
    """Return its place below the heading "threads": "2", "2 under a CPU quota of 1"."""
    return re.sub(" threads?", "", place_name(latency.cell.cell))


def _percentile(name: str) -> Column[Latency]:
    """Return the column of a percentile."""

    def value(latency: Latency) -> Summary | None:
        return latency.cell.measured.get(name)

    def text(latency: Latency) -> Entry:
        summary = value(latency)
        if summary is None:
            return Entry(MISSING)
        half = deviation(summary.median, summary.low, summary.high)
        return Entry(number(summary.median), half, best=name in latency.best)

    return Column(name, QUANTITIES[name].unit, value, text, MEDIAN)


def _row(latency: Latency) -> str:
    return row_name(latency.cell.row)


def _rate(latency: Latency) -> str:
    rate = latency.cell.items_per_second
    return number(rate) if rate else MISSING


_COLUMNS = (
    Column[Latency]("", "", _row),
    Column[Latency]("", "threads", _threads),
    *map(_percentile, LATENCIES),
    Column[Latency](
        "items_per_second", "examples/s", lambda latency: latency.cell.items_per_second, _rate
    ),
    Column[Latency]("calls", None, lambda latency: latency.calls),
)


def _page(content: Latencies) -> Page:
    """Return for each machine a table of its rows, by network and place."""
    hosts = content.matrix.hosts

    def host(latency: Latency) -> Host:
        return hosts[latency.cell.machine]

    columns = (*host_columns(host), *axis_columns(lambda latency: latency.cell.cell), *_COLUMNS)
    if not content.rows:
        return Page((NOTHING, *content.matrix.notes), (table(columns, (), key="rows"),))
    tables = []
    for machine, rows in grouped(content.rows, lambda latency: latency.cell.machine).items():
        title = f"How long calls take, on {hosts[machine].name}"
        tables.append(table(columns, rows, title, "rows", _group, _LEGEND))
    return Page((), tuple(tables), tuple(_notes(content)))


def _group(latency: Latency) -> str:
    return work_name(latency.cell.cell)


def _notes(content: Latencies) -> Iterator[str]:
    cells = [latency.cell for latency in content.rows]
    yield from layout.flag_lines(cells, layout.common_flags(cells))
    cells_by_reason: dict[str, list[CellResult]] = {}
    for cell in cells:
        reason = cell.unmeasured.get("p99")
        if reason:
            cells_by_reason.setdefault(reason, []).append(cell)
    for reason, unmeasured in cells_by_reason.items():
        yield (
            f"No p99 of {counted(len(unmeasured), 'cell')}: {reason}. Give launches more "
            "`seconds` in the suite's [protocol]."
        )
    untimed = []
    for cell in content.matrix.cells.values():
        if cell.cell.infers and cell.timed is None:
            untimed.append(cell)
    yield from left_out(untimed)
    yield from content.matrix.notes


def _draw(content: Latencies, path: Path, options: ReportOptions) -> list[Path]:
    """Draw the seconds by the share of calls that take longer.

    Each network and place has a panel.
    """
    styles = {}
    legend = []
    for place, row in enumerate(sorted({latency.cell.row for latency in content.rows})):
        styles[row] = pictures.style(place, place, 0)
        legend.append((row_name(row), styles[row]))
    panels = []
    for (work, column), latencies_of_panel in grouped(content.rows, _work_and_column).items():
        lines = []
        for latency in latencies_of_panel:
            points = [(1 / (1 - share), (seconds, None, None)) for share, seconds in latency.curve]
            lines.append(pictures.Line(points, styles[latency.cell.row]))
        title = ", ".join(filter(None, (work_name(work), place_name(column.cell))))
        panels.append(pictures.CurvePanel(title, lines, (2, 10, 100, 1000)))
    across = "one call in so many takes longer"
    picture = pictures.Picture("Latency by quantile", panels, legend, across, "a call", "s")
    return pictures.draw([picture], path)


def _work_and_column(latency: Latency) -> tuple[Cell, Place]:
    return latency.cell.work, latency.cell.column


def _headline(content: Latencies) -> list[str]:
    lines = []
    for machine, rows in grouped(content.rows, lambda latency: latency.cell.machine).items():
        tails = []
        for latency in rows:
            measured = latency.cell.measured
            if "p99" in measured:
                tails.append(measured["p99"].median / measured["p50"].median)
        if tails:
            name = content.matrix.hosts[machine].name
            lines.append(
                f"{name}: the slowest call in a hundred takes {np.median(tails):.2f} times as long "
                f"as the usual one (median of {counted(len(tails), 'cell')})."
            )
    return lines


def _is_drawable(content: Latencies) -> bool:
    return any(latency.curve for latency in content.rows)


def _applies(cells: Iterable[Cell]) -> bool:
    return any(cell.infers for cell in cells)


REPORT = Report(
    name="latency",
    summary="""Percentiles of single inference calls, and examples per second.

The tail is shown, not trimmed. The picture has the whole curve of each row.""",
    examples=(
        "dlbench report latency",
        "dlbench report latency --networks resnet50 --plot latency.png",
        "dlbench report latency --json",
    ),
    analyse=latencies,
    page=lambda content, options: _page(content),
    draw=_draw,
    drawable=_is_drawable,
    suggestion="how long calls take, the slowest in a hundred included",
    applies=_applies,
    options=frozenset({ALL_RUNS}),
    heading="Latency of inference",
    place=25,
    headline=_headline,
    has_section=lambda content: bool(content.rows),
)
