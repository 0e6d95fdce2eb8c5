"""Time against mini-batch size, for every exporter (``reports/SCHEMA.md`` describes every key)."""

from collections.abc import Sequence
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.figure1.analysis import PAYS, Figure1, Line, Point
from dlbench.reports.figure1.words import place_names, sentence
from dlbench.reports.flags import FlagKind
from dlbench.reports.formats import csv, json, layout
from dlbench.reports.matrix.data import of_cell, of_place
from dlbench.reports.naming import WORKERS_LEGEND, row_name

NOTHING = "Nothing was measured yet."
QUANTITIES = {"seconds": "seconds per mini-batch", "items": "items per second"}
"""What the table and the picture may show, and what it is called."""
KNEE = "k"
"""Marks the knee in a table."""

_COLUMNS = (
    "machine",
    "machine_name",
    *(name for name in axes.NAMES if name != "batch_size"),
    "batch_size",
    "status",
    "reason",
    *csv.parts("seconds_per_minibatch", *csv.MEDIAN),
    "items_per_second",
    "takes_part",
    *csv.parts("growth_per_doubling", *csv.VALUE),
    "best_batch_size",
    *csv.parts("knee", "batch_size", "earliest", "latest"),
    "memory_ends_at",
    "flags",
)


def figure1_page(found: Figure1, quantity: str = "seconds") -> layout.Page:
    """Return the figure as words and tables: of each network one for each place, mini-batches down, rows across."""
    if not found.panels:
        return layout.Page((NOTHING,), ())
    names = place_names(found)
    common = layout.common_flags(p.cell for panel in found.panels for line in panel.lines for p in line.timed)
    tables = []
    for panel in found.panels:
        for place in dict.fromkeys(line.place for line in panel.lines):
            lines = [line for line in panel.lines if line.place == place]
            tables.append(_table(f"{panel.network}, on {names[place]}", lines, quantity, common))
    title = f"{QUANTITIES[quantity].capitalize()} against mini-batch size"
    return layout.Page((f"{title}.",), tuple(tables), tuple(_legend(found, common, quantity)))


def figure1_data(found: Figure1) -> dict[str, Any]:
    """Return a JSON object: the panels, each a list of lines with their points."""
    return {
        "pays": PAYS,
        "panels": [
            {"network": panel.network, "lines": [_line(found, line) for line in panel.lines]} for panel in found.panels
        ],
        "left_out": [_where(found, line) for line in found.left_out],
        "notes": list(found.notes),
    }


def figure1_rows(found: Figure1) -> csv.Rows:
    """Return a line for each point, holes included."""
    content = [_line(found, line) for panel in found.panels for line in panel.lines]
    return csv.Rows(_COLUMNS, [{**line, **point} for line in content for point in line["points"]])


def shown_value(point: Point, quantity: str) -> tuple[float, float | None, float | None] | None:
    """Return what a point shows, with the ends of its interval; None for a hole."""
    seconds = point.cell.seconds
    if seconds is None or not point.cell.shown:
        return None
    if quantity == "seconds":
        return seconds.median, seconds.low, seconds.high
    low, high = (None if end is None else point.batch_size / end for end in (seconds.high, seconds.low))
    return point.batch_size / seconds.median, low, high


def _table(title: str, lines: Sequence[Line], quantity: str, common: set[FlagKind]) -> layout.Table:
    """Return the table of one network at one place; a row without any number has words beneath, and no column."""
    columns = [line for line in lines if any(shown_value(point, quantity) for point in line.points)]
    by_size = [{point.batch_size: point for point in line.points} for line in columns]
    sizes = sorted({size for points in by_size for size in points})
    rows = tuple(
        (
            layout.Entry(str(size)),
            *(_entry(points.get(size), line, quantity, common) for line, points in zip(columns, by_size, strict=True)),
        )
        for size in sizes
    )
    notes = [f"{row_name(line.row)}: {sentence(line)}." for line in columns]
    holes = [
        (layout.why_hole(cell), row_name(line.row), str(cell.group.batch_size))
        for line in lines
        for cell in (point.cell for point in line.points)
        if not cell.shown
    ]
    head = ("mini-batch", *(row_name(line.row) for line in columns)) if columns else ()
    return layout.Table(title, head, rows, (*notes, *layout.reasons(holes)))


def _entry(point: Point | None, line: Line, quantity: str, common: set[FlagKind]) -> layout.Entry:
    if point is None:
        return layout.Entry(layout.MISSING)
    value = shown_value(point, quantity)
    if value is None:
        return layout.Entry(layout.HOLES[point.cell.status], hole=True)
    marks = "".join(flag.kind.symbol for flag in point.cell.flags if flag.kind not in common)
    knee = KNEE if line.knee is not None and line.knee.batch_size == point.batch_size else ""
    return layout.Entry(layout.number(value[0]), layout.deviation(*value), marks + knee, point.batch_size == line.best)


def _legend(found: Figure1, common: set[FlagKind], quantity: str) -> list[str]:
    lines = [line for panel in found.panels for line in panel.lines]
    points = [point for line in lines for point in line.points]
    told = []
    if any(line.knee is not None for line in lines):
        told.append(
            f"{layout.BEST} the best mini-batch: the smallest whose throughput cannot be told from the highest; {KNEE} "
            f"the knee: from it on no larger one raises throughput by {PAYS:.0%} or more for each doubling, in "
            "brackets where the intervals leave room for another."
        )
    if any(value is not None and value[1] is not None for value in (shown_value(p, quantity) for p in points)):
        told.append("± half-width of the 95 % interval (the wider side)")
    if any(point.seconds is not None and not point.takes_part for point in points):
        told.append(
            "Sizes of an older environment, without a parity check, or disturbed by other programs or a slowed GPU, do "
            "not count for best and knee."
        )
    told += layout.flag_lines((point.cell for point in points), common)
    told += [WORKERS_LEGEND] if any(place.world_size > 1 for place in found.places) else []
    if found.left_out:
        networks = ", ".join(dict.fromkeys(line.network for line in found.left_out))
        count = len(found.left_out)
        told.append(
            f"Not shown: {count} row{'s' if count != 1 else ''} measured at one mini-batch size only ({networks})."
        )
    return [*told, *found.notes]


def _where(found: Figure1, line: Line) -> dict[str, Any]:
    return of_place(found.hosts, line.place._replace(cell=line.points[0].cell.cell), "batch_size")


def _line(found: Figure1, line: Line) -> dict[str, Any]:
    return {
        **_where(found, line),
        "best_batch_size": line.best,
        "as_fast": list(line.as_fast),
        "knee": json.plain(line.knee),
        "memory_ends_at": line.memory_ends,
        "summary": sentence(line),
        "points": [_point(point) for point in line.points],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "batch_size": point.batch_size,
        **of_cell(point.cell, "status", "reason", "seconds", "items_per_second"),
        "takes_part": point.takes_part,
        "growth_per_doubling": json.plain(point.growth),
        **of_cell(point.cell, "flags"),
    }
