"""`dlbench report matrix`: networks and frameworks down, threads, devices and machines across."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from dlbench.adapters import axes
from dlbench.reports.columns import Column, attributes, axis_columns, csv_rows, objects
from dlbench.reports.formats import layout
from dlbench.reports.formats.csv import MEDIAN, Rows
from dlbench.reports.formats.json import plain
from dlbench.reports.formats.layout import Entry, Page, Table
from dlbench.reports.formats.pictures import DotPanel, Dots, dots_to_picture
from dlbench.reports.report import AGAINST, ALL_MODES, ALL_RUNS, QUANTITY, REFERENCE, Report
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flag_kinds import FEW_LAUNCHES, PARITY_UNCHECKED, FlagKind
from dlbench.reports.results.hosts import name_among
from dlbench.reports.results.keys import Place, grouped
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.naming import (
    head_of,
    place_heading,
    row_name,
    variables_in_a_field,
    work_name,
)
from dlbench.reports.results.quantities import OF_LAUNCHES, QUANTITIES, legend, reasons, title_of

_DETAILS = 12
"""Lines on single cells beneath a matrix."""


def matrix_page(matrix: Matrix, quantity: str = "seconds") -> Page:
    """Return the matrix as one table, with its machines above and its notes beneath."""
    if not matrix.cells:
        title = QUANTITIES[quantity].title
        return Page((), (Table(title, (), (), (layout.NOTHING, *matrix.notes)),))
    spans = []
    for machine, columns in groupby(matrix.columns, lambda column: column.machine):
        spans.append((matrix.hosts[machine].name, len(list(columns))))
    table = _table(matrix, quantity)._replace(spans=tuple(spans))
    return Page(tuple(_machine_lines(matrix)), (table,), tuple(matrix_notes(matrix, quantity)))


def _table(matrix: Matrix, quantity: str) -> Table:
    shown = QUANTITIES[quantity]
    common = layout.common_flags(cell for cell in matrix.cells.values() if cell.shown)
    lines: list[tuple[Entry, ...]] = []
    for work, rows in matrix.rows.items():
        lines.append((Entry(work_name(work)),))
        for row in rows:
            line = [Entry(row_name(row))]
            for column in matrix.columns:
                cell = matrix.at(work, row, column)
                line.append(layout.entry(cell, shown, common))
            lines.append(tuple(line))
    title = title_of(quantity, matrix.cells.values())
    column_names = [column_name(matrix, column) for column in matrix.columns]
    return Table(title, ("threads", *column_names), tuple(lines))


def column_name(matrix: Matrix, column: Place) -> str:
    """Return the heading of a column: threads or device, and workers.

    With several machines it begins with the letter of its machine.
    """
    thread_counts = set()
    for peer in matrix.columns_of(column.machine):
        if peer.device == column.device:
            thread_counts.add(peer.threads)
    name = head_of(column.cell) if len(thread_counts) > 1 else place_heading(column.cell)
    if len(matrix.machines) > 1:
        return f"{_letter(matrix, column.machine)}:{name}"
    return name


def _letter(matrix: Matrix, machine: str) -> str:
    """Return a short name for a machine of a matrix: A, B, ..., Z, AA, ..."""
    remaining = matrix.machines.index(machine) + 1
    name = ""
    while remaining:
        remaining, letter = divmod(remaining - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def _machine_lines(matrix: Matrix) -> list[str]:
    """Return a line for each machine, with the GPU of each of its devices."""
    names = machine_names(matrix)
    if len(names) == 1:
        return [f"On {names[0]}."]
    lines = []
    for machine, name in zip(matrix.machines, names, strict=True):
        lines.append(f"{_letter(matrix, machine)}: {name}")
    return lines


def machine_names(matrix: Matrix) -> list[str]:
    """Return the name of each machine, with the GPU of each of its devices."""
    return [matrix.hosts[machine].name + _gpus(matrix, machine) for machine in matrix.machines]


def _gpus(matrix: Matrix, machine: str) -> str:
    names_by_device: dict[str, dict[str, None]] = {}
    for cell in matrix.cells.values():
        evidence = cell.device_observed
        if cell.machine == machine and evidence is not None and evidence.name:
            names_by_device.setdefault(cell.column.device, {})[evidence.name] = None
    words = ""
    devices = [column.device for column in matrix.columns_of(machine)]
    for device in dict.fromkeys(devices):
        if device in names_by_device:
            gpu_names = " or ".join(names_by_device[device])
            words += f", {device} {gpu_names}"
    return words


def matrix_notes(matrix: Matrix, quantity: str = "seconds") -> list[str]:
    """Return the legend of the marks, the reasons of missing numbers, and the flags' findings."""
    shown = [cell for cell in matrix.cells.values() if cell.shown]
    common = layout.common_flags(shown)
    return [
        *_legend_lines(matrix, quantity, common),
        *_missing_lines(matrix, quantity),
        *_flag_lines(matrix, common),
        *matrix.notes,
    ]


def _legend_lines(matrix: Matrix, quantity: str, common: Collection[FlagKind]) -> list[str]:
    cells = list(matrix.cells.values())
    shown_quantity = QUANTITIES[quantity]
    shown = []
    values_count = 0
    has_interval = False
    for cell in cells:
        if not cell.shown:
            continue
        shown.append(cell)
        numbers = shown_quantity.value(cell)
        if numbers is not None:
            values_count += 1
            has_interval = has_interval or numbers[1] is not None
    lines = []
    if shown_quantity.of_time and any(cell.best for cell in cells):
        lines.append(f"{layout.BEST} fastest in its column, or not distinguishable from it")
    meaning = legend(quantity)
    if meaning:
        lines.append(f"{shown_quantity.title}: {meaning}")
    if has_interval:
        coverage = _lesser_coverage(shown) if shown_quantity.of_time else ""
        lines.append(layout.HALF_WIDTH + coverage)
    lines += axes.legends(column.cell for column in matrix.columns)
    lines += layout.flag_lines(shown, common)
    lacks_values = values_count < len(shown) and quantity != "break_even"
    if _has_empty_fields(matrix) or (lacks_values and not reasons(cells, quantity)):
        lines.append(f"{layout.MISSING} not measured")
    return lines


def _has_empty_fields(matrix: Matrix) -> bool:
    for work, rows in matrix.rows.items():
        for row in rows:
            if any(matrix.at(work, row, column) is None for column in matrix.columns):
                return True
    return False


def _missing_lines(matrix: Matrix, quantity: str) -> list[str]:
    """Return the reasons of cells without a time, and of those without this quantity."""
    cells = list(matrix.cells.values())
    without_time = []
    for cell in cells:
        if not cell.shown:
            reason = cell.reason or "no reason was given"
            without_time.append((layout.HOLES[cell.status], reason, cell))
    without_quantity = []
    for reason, cells_without in reasons(cells, quantity).items():
        text = f"not measured: {reason}"
        for cell in cells_without:
            without_quantity.append((layout.MISSING, text, cell))
    return [*_merge(matrix, without_time), *_merge(matrix, without_quantity)]


def _flag_lines(matrix: Matrix, common: Collection[FlagKind]) -> list[str]:
    """Return the sentences of the flags of single cells, up to `_DETAILS`."""
    left_out = {*common, FEW_LAUNCHES, PARITY_UNCHECKED}
    facts = []
    for cell in matrix.cells.values():
        if cell.shown:
            for flag in cell.flags:
                if flag.kind not in left_out:
                    facts.append((flag.kind.symbol, flag.sentence, cell))
    lines = _merge(matrix, facts)
    if len(lines) > _DETAILS:
        lines = [*lines[:_DETAILS], f"... and {len(lines) - _DETAILS} more; --json shows all"]
    return lines


def _lesser_coverage(cells: Iterable[CellResult]) -> str:
    """Return the coverage of intervals from few steps.

    For example "; that of cells with 4 to 10 steps covers 75 to 94 %".
    """
    coverage_by_samples: dict[int, float] = {}
    for cell in cells:
        seconds = cell.seconds
        if seconds is None or seconds.coverage is None:
            continue
        if seconds.coverage < 0.945:
            coverage_by_samples[seconds.samples] = seconds.coverage
    if not coverage_by_samples:
        return ""
    steps = _span(list(map(str, sorted(coverage_by_samples))))
    shares = [f"{100 * coverage:.0f}" for coverage in sorted(coverage_by_samples.values())]
    return f"; that of cells with {steps} steps covers {_span(shares)} %"


def _span(ordered: Sequence[str]) -> str:
    """Return the first and the last of ordered numbers, once if they are equal."""
    first, last = ordered[0], ordered[-1]
    return first if first == last else f"{first} to {last}"


def _merge(matrix: Matrix, facts: Iterable[tuple[str, str, CellResult]]) -> list[str]:
    """Return the facts (mark, text, cell) in few lines, one for all columns and rows of a text."""
    work_counts = Counter(work.network for work in matrix.rows)
    columns: dict[tuple[str, str, str, str], list[str]] = {}
    for mark, text, cell in facts:
        network = cell.work.network
        if work_counts[network] > 1 and cell.work.batch_size is not None:
            network = f"{network} b{cell.work.batch_size}"
        key = (mark, " ".join(text.split()), network, row_name(cell.row))
        columns.setdefault(key, []).append(column_name(matrix, cell.column))
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for (mark, text, network, row), column_names in columns.items():
        where = ", ".join(dict.fromkeys(column_names))
        rows.setdefault((mark, text, network, where), []).append(row)
    lines = []
    for (mark, text, network, where), row_names in rows.items():
        lines.append(f"{mark} {network} at {where}, {', '.join(row_names)}: {text}")
    return lines


# JSON and CSV.


_THREADS_EVIDENCE = ("framework_says", "wanting_threads", "cpu_per_wall", "waiting_per_wall")
_DEVICE_EVIDENCE = (
    "name",
    "event_per_wall",
    "busy_share",
    "joules_per_minibatch",
    "sm_mhz.median",
    "temperature.median",
    "watts.median",
    "peak_memory_bytes",
)
_MEMORY_EVIDENCE = ("faults", "fewest", "most", "share")


def _data_columns(matrix: Matrix) -> tuple[Column[CellResult], ...]:
    def itself(cell: CellResult) -> CellResult:
        return cell

    cost_fields = []
    for name in OF_LAUNCHES:
        for part in MEDIAN:
            cost_fields.append(f"{name}.{part}")
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
        *attributes(itself, "items_per_second", "gflops", "ceiling_fraction", "best"),
        *attributes(itself, "parity", "flags", parity=("verdict",)),
        Column("threads_evidence", None, lambda cell: cell.observed, fields=_THREADS_EVIDENCE),
        Column("device_evidence", None, lambda cell: cell.device_observed, fields=_DEVICE_EVIDENCE),
        Column("memory_evidence", None, lambda cell: cell.memory_observed, fields=_MEMORY_EVIDENCE),
        *attributes(itself, "environment", "interpreter", "run"),
        *attributes(
            itself,
            "first_step_seconds",
            "peak_memory_bytes",
            first_step_seconds=None,
            peak_memory_bytes=None,
        ),
        Column(
            "variables",
            None,
            lambda cell: dict(cell.variables),
            csv=lambda cell: variables_in_a_field(cell.variables),
        ),
        Column("costs", None, _costs, fields=tuple(cost_fields)),
        *attributes(
            itself, "break_even", "unmeasured", break_even=("steps", "low", "high"), unmeasured=None
        ),
    )


def _costs(cell: CellResult) -> dict[str, dict[str, float | None] | None]:
    """Return the quantities that a launch has once, by name; None where they are not known."""
    costs: dict[str, dict[str, float | None] | None] = {}
    for name in OF_LAUNCHES:
        costs[name] = None
        numbers = QUANTITIES[name].value(cell)
        if numbers is not None:
            costs[name] = dict(zip(MEDIAN, numbers, strict=True))
    return costs


def matrix_cells(matrix: Matrix) -> list[dict[str, Any]]:
    """Return the cells as plain JSON types, in the order of the table: works, rows, columns."""
    return objects(_data_columns(matrix), matrix.cells.values())


def matrix_rows(matrix: Matrix) -> Rows:
    """Return a line for each cell, those without a number included."""
    return csv_rows(_data_columns(matrix), matrix.cells.values())


def cell_attributes(cell: CellResult, *names: str) -> dict[str, Any]:
    """Return these attributes of a cell as plain JSON types, by the keys of all reports."""
    attributes = {}
    for name in names:
        key = "seconds_per_minibatch" if name == "seconds" else name
        attributes[key] = plain(getattr(cell, name))
    return attributes


# The picture.


def drawn_cells(matrix: Matrix) -> list[CellResult]:
    """Return the cells with a time that counts and a share of the ceiling."""
    drawn = []
    for cell in matrix.cells.values():
        if cell.timed is not None and cell.ceiling_fraction is not None:
            drawn.append(cell)
    return drawn


def _draw(matrix: Matrix, path: Path) -> list[Path]:
    """Draw the share of the measured ceiling, a page for each machine with a panel a network."""
    across = (
        "per cent of the ceiling at no more than this many threads; bars: the 95 % interval of the "
        "time"
    )
    pages = []
    for machine, cells in grouped(drawn_cells(matrix), lambda cell: cell.machine).items():
        title = f"Share of the measured ceiling, on {name_among(matrix.hosts, machine)}"
        cells_by_network = grouped(cells, lambda cell: cell.work)
        panels = [_panel(cells_of_network) for cells_of_network in cells_by_network.values()]
        pages.append(Dots(title, across, tuple(panels)))
    return dots_to_picture(pages, path)


def _panel(cells: list[CellResult]) -> DotPanel:
    points = {}
    rows: dict[str, None] = {}
    for cell in cells:
        share = QUANTITIES["ceiling"].value(cell)
        if share is not None:
            row = row_name(cell.row)
            rows[row] = None
            points[row, place_heading(cell.cell)] = share
    return DotPanel(work_name(cells[0].work), tuple(rows), points)


REPORT = Report(
    name="matrix",
    summary="""Networks and frameworks down, threads and devices across.

`--plot` draws the share of the measured ceiling. With `--against shi2016` it is `dlbench report
against`.""",
    examples=(
        "dlbench report matrix",
        "dlbench report matrix --format latex --quantity items",
        "dlbench report matrix --against shi2016",
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
