"""`dlbench report matrix`: networks and frameworks down, threads and devices across, machines side
by side.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.columns import Column, attributes, axis_columns, csv_rows, objects
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN, Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.formats.pictures import Dots, Panel, dots_to_picture
from dlbench.reports.report import AGAINST, ALL_MODES, ALL_RUNS, QUANTITY, REFERENCE, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flags import FEW_LAUNCHES, PARITY_UNCHECKED
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import (
    group_name,
    head_of,
    place_heading,
    row_name,
    variables_in_a_field,
)
from dlbench.reports.results.quantities import OF_LAUNCHES, QUANTITIES, legend, reasons, title_of

_DETAILS = 12
"""Lines on single cells beneath a matrix."""


def matrix_page(matrix: Matrix, quantity: str = "seconds") -> Page:
    """Return the matrix as one table, with its machines above and its notes beneath."""
    if not matrix.cells:
        return Page(
            (), (Table(QUANTITIES[quantity].title, (), (), (layout.NOTHING, *matrix.notes)),)
        )
    spans = tuple(
        (matrix.hosts[name].name, len(list(of)))
        for name, of in groupby(c.machine for c in matrix.columns)
    )
    table = _table(matrix, quantity)._replace(spans=spans)
    return Page(tuple(_machine_lines(matrix)), (table,), tuple(matrix_notes(matrix, quantity)))


def _table(matrix: Matrix, quantity: str) -> Table:
    shown = QUANTITIES[quantity]
    common = layout.common_flags(cell for cell in matrix.cells.values() if cell.shown)
    rows: list[tuple[Entry, ...]] = []
    for group, names in matrix.rows.items():
        rows.append((Entry(group_name(group)),))
        for row in names:
            cells = (matrix.at(group, row, column) for column in matrix.columns)
            rows.append(
                (Entry(row_name(row)), *(layout.entry(cell, shown, common) for cell in cells))
            )
    title = title_of(quantity, matrix.cells.values())
    return Table(
        title, ("threads", *(column_name(matrix, column) for column in matrix.columns)), tuple(rows)
    )


def column_name(matrix: Matrix, column: Place) -> str:
    """Return the heading of a column: threads or device, and workers, behind the letter of one of
    many machines.
    """
    peers = {
        peer.threads for peer in matrix.columns_of(column.machine) if peer.device == column.device
    }
    name = head_of(column.cell) if len(peers) > 1 else place_heading(column.cell)
    return f"{_letter(matrix, column.machine)}:{name}" if len(matrix.machines) > 1 else name


def _letter(matrix: Matrix, machine: str) -> str:
    """Return a short name for a machine of a matrix: A, B, ..., Z, AA, ..."""
    place, name = matrix.machines.index(machine) + 1, ""
    while place:
        place, rest = divmod(place - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _machine_lines(matrix: Matrix) -> list[str]:
    """Return a line for each machine, with the GPU of each of its devices."""
    names = machine_names(matrix)
    if len(names) == 1:
        return [f"On {name}." for name in names]
    return [
        f"{_letter(matrix, machine)}: {name}"
        for machine, name in zip(matrix.machines, names, strict=True)
    ]


def machine_names(matrix: Matrix) -> list[str]:
    """Return the name of each machine, with the GPU of each of its devices."""
    return [matrix.hosts[machine].name + _gpus(matrix, machine) for machine in matrix.machines]


def _gpus(matrix: Matrix, machine: str) -> str:
    found: dict[str, dict[str, None]] = {}
    for cell in matrix.cells.values():
        seen = cell.device_observed
        if cell.machine == machine and seen is not None and seen.name:
            found.setdefault(cell.column.device, {})[seen.name] = None
    in_order = dict.fromkeys(column.device for column in matrix.columns_of(machine))
    return "".join(
        f", {device} {' or '.join(found[device])}" for device in in_order if device in found
    )


def matrix_notes(matrix: Matrix, quantity: str = "seconds") -> list[str]:
    """Return the legend of the marks used, the reasons of missing numbers, and what the flags
    found.
    """
    cells = list(matrix.cells.values())
    shown = [cell for cell in cells if cell.shown]
    lines = []
    if QUANTITIES[quantity].of_time and any(cell.best for cell in cells):
        lines.append(f"{layout.BEST} fastest in its column, or not distinguishable from it")
    if meant := legend(quantity):
        lines.append(f"{QUANTITIES[quantity].title}: {meant}")
    why = reasons(cells, quantity)
    values = [value for cell in shown if (value := QUANTITIES[quantity].value(cell)) is not None]
    if any(low is not None for _, low, _ in values):
        coverage = _lesser_coverage(shown) if QUANTITIES[quantity].of_time else ""
        lines.append(layout.HALF_WIDTH + coverage)
    lines += axes.legends(column.cell for column in matrix.columns)
    common = layout.common_flags(shown)
    lines += layout.flag_lines(shown, common)
    empty = any(
        matrix.at(g, r, c) is None
        for g, rows in matrix.rows.items()
        for r in rows
        for c in matrix.columns
    )
    if empty or (len(values) < len(shown) and not why and quantity != "break_even"):
        lines.append(f"{layout.MISSING} not measured")
    missing = [
        (layout.HOLES[c.status], c.reason or "no reason was given", c) for c in cells if not c.shown
    ]
    facts = [
        (flag.kind.symbol, flag.sentence, cell)
        for cell in shown
        for flag in cell.flags
        if flag.kind not in common and flag.kind not in (FEW_LAUNCHES, PARITY_UNCHECKED)
    ]
    unknown = _merged(
        matrix,
        ((layout.MISSING, f"not measured: {words}", c) for words, of in why.items() for c in of),
    )
    found = _merged(matrix, facts)
    if len(found) > _DETAILS:
        found = [*found[:_DETAILS], f"... and {len(found) - _DETAILS} more; --json shows all"]
    return [*lines, *_merged(matrix, missing), *unknown, *found, *matrix.notes]


def _lesser_coverage(cells: Iterable[CellResult]) -> str:
    """Return the coverage of intervals from few steps, e.g. "; from 5 steps 94 %"."""
    lesser = {
        cell.seconds.samples: cell.seconds.coverage
        for cell in cells
        if cell.seconds is not None
        and cell.seconds.coverage is not None
        and cell.seconds.coverage < 0.945
    }
    return "".join(
        f"; from {samples} steps {coverage:.0%}" for samples, coverage in sorted(lesser.items())
    )


def _merged(matrix: Matrix, facts: Iterable[tuple[str, str, CellResult]]) -> list[str]:
    """Return the facts (mark, text, cell) in few lines: same text together, with all its columns
    and rows.
    """
    counts = Counter(group.network for group in matrix.rows)
    columns: dict[tuple[str, str, str, str], list[str]] = {}
    for mark, text, cell in facts:
        group = cell.group
        several = counts[group.network] > 1 and group.batch_size is not None
        network = f"{group.network} b{group.batch_size}" if several else group.network
        key = mark, " ".join(text.split()), network, row_name(cell.row)
        columns.setdefault(key, []).append(column_name(matrix, cell.column))
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for (mark, text, network, row), names in columns.items():
        rows.setdefault((mark, text, network, ", ".join(dict.fromkeys(names))), []).append(row)
    return [
        f"{mark} {network} at {where}, {', '.join(names)}: {text}"
        for (mark, text, network, where), names in rows.items()
    ]


# JSON and CSV.


def _columns(matrix: Matrix) -> tuple[Column[CellResult], ...]:
    evidence = ("framework_says", "wanting_threads", "cpu_per_wall", "waiting_per_wall")
    of_device = ("name", "event_per_wall", "busy_share", "joules_per_minibatch")
    medians = tuple(f"{name}.median" for name in ("sm_mhz", "temperature", "watts"))
    numbers, json_only = (
        ("items_per_second", "gflops", "ceiling_fraction"),
        ("first_step_seconds", "peak_memory_bytes"),
    )

    def itself(cell: CellResult) -> CellResult:
        return cell

    return (
        Column("machine", None, lambda cell: cell.machine),
        Column("machine_name", None, lambda cell: matrix.hosts[cell.machine].name),
        *axis_columns(lambda cell: cell.cell),
        *attributes(itself, "status", "reason"),
        Column(
            "seconds_per_minibatch",
            None,
            lambda cell: cell.seconds,
            fields=(*MEDIAN, "samples", "launches", "method"),
        ),
        *attributes(itself, *numbers, "best", "parity", "flags", parity=("verdict",)),
        Column("threads_evidence", None, lambda cell: cell.observed, fields=evidence),
        Column(
            "device_evidence",
            None,
            lambda cell: cell.device_observed,
            fields=(*of_device, *medians, "peak_memory_bytes"),
        ),
        Column(
            "memory_evidence",
            None,
            lambda cell: cell.memory_observed,
            fields=("faults", "fewest", "most", "share"),
        ),
        *attributes(
            itself, "environment", "interpreter", "run", *json_only, **dict.fromkeys(json_only)
        ),
        Column("variables", None, lambda cell: dict(cell.variables), csv=_variables),
        Column(
            "costs",
            None,
            _costs,
            fields=tuple(f"{name}.{part}" for name in OF_LAUNCHES for part in MEDIAN),
        ),
        *attributes(
            itself, "break_even", "unmeasured", break_even=("steps", "low", "high"), unmeasured=None
        ),
    )


def _variables(cell: CellResult) -> str:
    return variables_in_a_field(cell.variables)


def _costs(cell: CellResult) -> dict[str, dict[str, float | None] | None]:
    """Return the quantities that are measured once in a launch, by name; None where they are not
    known.
    """
    found = {name: QUANTITIES[name].value(cell) for name in OF_LAUNCHES}
    return {
        name: None if each is None else dict(zip(MEDIAN, each, strict=True))
        for name, each in found.items()
    }


def matrix_cells(matrix: Matrix) -> list[dict[str, Any]]:
    """Return the cells as plain JSON types, in the order of the table: groups, rows, columns."""
    return objects(_columns(matrix), matrix.cells.values())


def matrix_rows(matrix: Matrix) -> Rows:
    """Return a line for each cell, those without a number included."""
    return csv_rows(_columns(matrix), matrix.cells.values())


def of_cell(cell: CellResult, *names: str) -> dict[str, Any]:
    """Return these attributes of a cell as plain JSON types, by the names that every report has for
    them.
    """
    return {
        "seconds_per_minibatch" if name == "seconds" else name: plain(getattr(cell, name))
        for name in names
    }


# The picture.


def drawn_cells(matrix: Matrix) -> list[CellResult]:
    """Return the cells with a time that counts and a share of the ceiling."""
    return [
        each
        for each in matrix.cells.values()
        if each.timed is not None and each.ceiling_fraction is not None
    ]


def _draw(matrix: Matrix, path: Path) -> list[Path]:
    """Draw the share of the measured ceiling: a page for each machine, a panel for each network,
    rows down.
    """
    across = (
        "per cent of the ceiling at no more than this many threads; bars: the 95 % interval of the "
        "time"
    )
    pages = []
    for machine, cells in grouped(drawn_cells(matrix), lambda cell: cell.machine).items():
        panels = tuple(map(_panel, grouped(cells, lambda cell: cell.group).values()))
        pages.append(
            Dots(
                f"Share of the measured ceiling, on {name_among(matrix.hosts, machine)}",
                across,
                panels,
            )
        )
    return dots_to_picture(pages, path)


def _panel(cells: list[CellResult]) -> Panel:
    share = QUANTITIES["ceiling"].value
    points = {
        (row_name(c.row), place_heading(c.cell)): found
        for c in cells
        if (found := share(c)) is not None
    }
    return Panel(group_name(cells[0].group), tuple(dict.fromkeys(row for row, _ in points)), points)


REPORT = Report(
    name="matrix",
    summary="""Networks and frameworks down, threads and devices across, machines side by side.

`--plot` draws the share of the measured ceiling. With `--against shi2016` it is `dlbench report
against`.""",
    examples=(
        "dlbench report matrix",
        "dlbench report matrix --format latex --quantity items",
        "dlbench report matrix --store here.sqlite --store there.sqlite",
        "dlbench report matrix --against shi2016",
        "dlbench report matrix --plot ceiling.png",
    ),
    analyse=lambda source: source.matrix(),
    page=lambda matrix, options: matrix_page(matrix, options.quantity),
    data=matrix_cells,
    rows=matrix_rows,
    draw=lambda matrix, path, options: _draw(matrix, path),
    drawable=lambda matrix: bool(drawn_cells(matrix)),
    options=frozenset({QUANTITY, REFERENCE, AGAINST, ALL_MODES, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    heading="Share of the measured ceiling",
    place=25,
    section_quantity="ceiling",
    has_section=lambda matrix: bool(drawn_cells(matrix)),
)
