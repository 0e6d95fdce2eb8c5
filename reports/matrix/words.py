"""The matrix as words and a table: frameworks under their networks down, thread counts and devices across."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from dlbench.reports.cells import CellResult, Column, Matrix
from dlbench.reports.flags import FEW_LAUNCHES, PARITY_UNCHECKED, FlagKind
from dlbench.reports.formats import layout
from dlbench.reports.naming import WORKERS_LEGEND, group_name, row_name, short_extra

NOTHING = "Nothing was measured yet."


def matrix_page(matrix: Matrix, quantity: str = "seconds") -> layout.Page:
    """Return the matrix as one table, with its machines above and its notes beneath."""
    if not matrix.cells:
        return layout.Page((), (layout.Table(layout.QUANTITIES[quantity].title, (), (), (NOTHING, *matrix.notes)),))
    table = matrix_table(matrix, matrix.columns, quantity)
    spans = tuple((matrix.hosts[name].name, len(list(of))) for name, of in groupby(c.machine for c in matrix.columns))
    notes = tuple(matrix_notes(matrix, quantity))
    return layout.Page(tuple(machine_lines(matrix)), (table._replace(spans=spans),), notes)


def column_name(matrix: Matrix, column: Column) -> str:
    """Return what stands over a column: threads or device, and workers, behind the letter of one of many machines."""
    peers = [c for c in matrix.columns_of(column.machine) if c.device == column.device]
    name = str(column.threads) if column.device == "cpu" and column.threads else column.device
    if column.device != "cpu" and column.threads and len({peer.threads for peer in peers}) > 1:
        name += f"/{column.threads}"
    name = short_extra(name, column.cell)
    return f"{letter(matrix, column.machine)}:{name}" if len(matrix.machines) > 1 else name


def letter(matrix: Matrix, machine: str) -> str:
    """Return a short name for a machine of a matrix: A, B, ..., Z, AA, ..."""
    place, name = matrix.machines.index(machine) + 1, ""
    while place:
        place, rest = divmod(place - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def machine_lines(matrix: Matrix) -> list[str]:
    """Return a line for each machine that says what it is, and which GPU each of its devices was."""
    names = {machine: matrix.hosts[machine].name + _gpus(matrix, machine) for machine in matrix.machines}
    if len(names) == 1:
        return [f"On {name}." for name in names.values()]
    return [f"{letter(matrix, machine)}: {name}" for machine, name in names.items()]


def _gpus(matrix: Matrix, machine: str) -> str:
    """Return what the GPUs of a machine are called, as far as anything ran there; empty without any."""
    found: dict[str, dict[str, None]] = {}
    for (_, _, column), cell in matrix.cells.items():
        seen = cell.device_observed
        if column.machine == machine and seen is not None and seen.name:
            found.setdefault(column.device, {})[seen.name] = None
    in_order = dict.fromkeys(column.device for column in matrix.columns_of(machine))
    return "".join(f", {device} {' or '.join(found[device])}" for device in in_order if device in found)


def _common(matrix: Matrix) -> set[FlagKind]:
    return layout.common_flags(cell for cell in matrix.cells.values() if cell.shown)


def matrix_table(matrix: Matrix, columns: Sequence[Column], quantity: str = "seconds") -> layout.Table:
    """Return these columns of a matrix as one table, without the rows that have nothing in them."""
    shown = layout.QUANTITIES[quantity]
    without = _common(matrix)
    rows: list[tuple[layout.Entry, ...]] = []
    for group, names in matrix.rows.items():
        inside = [
            (
                layout.Entry(row_name(row)),
                *(layout.entry(matrix.cells.get((group, row, c)), shown, without) for c in columns),
            )
            for row in names
            if any((group, row, column) in matrix.cells for column in columns)
        ]
        if inside:
            rows += [(layout.Entry(group_name(group)),), *inside]
    head = ("threads", *(column_name(matrix, column) for column in columns))
    return layout.Table(shown.title, head, tuple(rows))


def matrix_notes(matrix: Matrix, quantity: str = "seconds", details: int | None = 12) -> list[str]:
    """Return the lines beneath a matrix: marks used, why each hole is one, what the flags found, at most so many."""
    cells = list(matrix.cells.values())
    shown = [cell for cell in cells if cell.shown]
    lines = []
    if any(cell.best for cell in cells):
        lines.append(f"{layout.BEST} the fastest of its column, and what noise cannot tell from it")
    if quantity == "seconds" and any(cell.seconds and cell.seconds.low is not None for cell in shown):
        lines.append("± half-width of the 95 % interval (the wider side)" + _lesser_coverage(shown))
    if any(column.world_size > 1 for column in matrix.columns):
        lines.append(WORKERS_LEGEND)
    common = _common(matrix)
    lines += layout.flag_lines(shown, common)
    if any((g, r, c) not in matrix.cells for g, rows in matrix.rows.items() for r in rows for c in matrix.columns):
        lines.append(f"{layout.MISSING} not measured")
    holes = [
        (layout.HOLES[cell.status], cell.reason or "no reason was given", cell) for cell in cells if not cell.shown
    ]
    lines += _grouped(matrix, holes)
    facts = [
        (flag.kind.symbol, flag.sentence, cell)
        for cell in shown
        for flag in cell.flags
        if flag.kind not in common and flag.kind not in (FEW_LAUNCHES, PARITY_UNCHECKED)
    ]
    found = _grouped(matrix, facts)
    if details is not None and len(found) > details:
        found = [*found[:details], f"... and {len(found) - details} more; --json shows all"]
    return lines + found + list(matrix.notes)


def _lesser_coverage(cells: Iterable[CellResult]) -> str:
    """Return what the intervals from few steps cover instead, e.g. "; from 5 steps 94 %"."""
    lesser = {
        cell.seconds.samples: cell.seconds.coverage
        for cell in cells
        if cell.seconds is not None and cell.seconds.coverage is not None and cell.seconds.coverage < 0.945
    }
    return "".join(f"; from {samples} steps {coverage:.0%}" for samples, coverage in sorted(lesser.items()))


def _grouped(matrix: Matrix, facts: Iterable[tuple[str, str, CellResult]]) -> list[str]:
    """Return the facts (mark, text, cell) in few lines: same text together, with all its columns and rows."""
    counts = Counter(group.network for group in matrix.rows)
    columns: dict[tuple[str, str, str, str], list[str]] = {}
    for mark, text, cell in facts:
        group = cell.group
        network = f"{group.network} b{group.batch_size}" if counts[group.network] > 1 else group.network
        key = mark, " ".join(text.split()), network, row_name(cell.row)
        columns.setdefault(key, []).append(column_name(matrix, cell.column))
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for (mark, text, network, row), names in columns.items():
        rows.setdefault((mark, text, network, ", ".join(dict.fromkeys(names))), []).append(row)
    return [
        f"{mark} {network} at {where}, {', '.join(names)}: {text}"
        for (mark, text, network, where), names in rows.items()
    ]
