"""What every exporter of tables shares: entries, tables, and the words for numbers and holes.

A `Table` holds entries with their meaning (best, hole, marks) rather than finished text, so that each exporter can
show them in its own way.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dlbench.adapters.protocol import Status
from dlbench.reports.errors import ReportError
from dlbench.reports.evidence import raised_flags
from dlbench.reports.evidence.statistics import Ratio, Summary
from dlbench.reports.matrix.analysis import Matrix, MatrixCell
from dlbench.reports.matrix.places import Column
from dlbench.reports.naming import WORKERS_LEGEND, group_name, row_name, short_extra

HOLES = {
    Status.UNSUPPORTED: "n/a",
    Status.OUT_OF_MEMORY: "oom",
    Status.TIMED_OUT: "timeout",
    Status.CRASHED: "crash",
    Status.PARITY_FAILED: "parity!",
    Status.SKIPPED: "skip",
    Status.OK: "empty",
}
"""What stands in a cell without a number."""
MISSING = "-"
BEST = "*"
"""Marks the best in plain text, and in the notes, where an exporter puts its own word for it."""


class Entry(NamedTuple):
    """One field of a table."""

    text: str
    interval: str = ""
    marks: str = ""
    best: bool = False
    hole: bool = False

    @property
    def plain(self) -> str:
        """The entry without colour."""
        return f"{'*' if self.best else ''}{self.text}{self.interval}{self.marks}"


class Table(NamedTuple):
    """A table with its heading and the lines beneath; a row of a single entry is a heading over those below it."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    """Least widths in a terminal, so that tables beneath one another line up; empty: as the content asks."""
    words: bool = False
    """Whether it holds words, to be aligned to the left."""
    keys: int = 1
    """Leading columns that say what a row is of: repeated where the others are shown in two parts."""


class Page(NamedTuple):
    """A report as words and tables."""

    before: tuple[str, ...]
    tables: tuple[Table, ...]
    after: tuple[str, ...] = ()


class Quantity(NamedTuple):
    """What a matrix shows in its cells."""

    title: str
    value: Callable[[MatrixCell], float | None]


QUANTITIES = {
    "seconds": Quantity("Seconds per mini-batch", lambda cell: cell.seconds.median if cell.seconds else None),
    "items": Quantity("Items per second", lambda cell: cell.items_per_second),
    "gflops": Quantity("GFLOP/s", lambda cell: cell.gflops),
    "ceiling": Quantity(
        "Per cent of the measured ceiling",
        lambda cell: None if cell.ceiling_fraction is None else 100 * cell.ceiling_fraction,
    ),
    "joules": Quantity(
        "Joules per mini-batch, of the GPU",
        lambda cell: None if cell.device_observed is None else cell.device_observed.joules_per_minibatch,
    ),
    "busy": Quantity("Per cent of a step in which the GPU worked", lambda cell: _busy(cell)),
}


def _busy(cell: MatrixCell) -> float | None:
    share = None if cell.device_observed is None else cell.device_observed.busy_share
    return None if share is None else 100 * share


def quantity_named(name: str) -> Quantity:
    """Return what this name asks for; raises ReportError with the names there are."""
    if name not in QUANTITIES:
        raise ReportError(f"There is no quantity {name!r} to show; choose one of {', '.join(QUANTITIES)}.")
    return QUANTITIES[name]


def number(value: float) -> str:
    """Return a number with three significant digits and without an exponent where that stays short."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-5 <= abs(value) < 1e7:
        return f"{value:.2e}"
    digits = 2 - math.floor(math.log10(float(f"{abs(value):.2e}")))
    return f"{value:.{max(0, digits)}f}"


def interval(summary: Summary) -> str:
    """Return the interval of a median, see `deviation`."""
    return deviation(summary.median, summary.low, summary.high)


def deviation(value: float, low: float | None, high: float | None) -> str:
    """Return an interval as the larger deviation in per cent, rounded up; empty where there is none."""
    if low is None or high is None:
        return ""
    larger = 100 * max(high / value - 1, 1 - low / value)
    return f"±{max(1, math.ceil(larger - 1e-9))}%" if larger < 999 else "±>999%"


def times(found: Ratio | None) -> str:
    """Return a ratio and its interval, e.g. "1.62x 1.55-1.70"."""
    if found is None:
        return ""
    ends = "" if found.low is None or found.high is None else f" {number(found.low)}-{number(found.high)}"
    return f"{number(found.value)}x{ends}"


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


def common_flags(matrix: Matrix) -> set[raised_flags.FlagKind]:
    """Return the flags that every number carries: said once beneath the table instead of in each cell."""
    timed = [cell for cell in matrix.cells.values() if cell.seconds is not None and cell.status is Status.OK]
    if len(timed) < 2:
        return set()
    return {kind for kind in raised_flags.KINDS if all(cell.has(kind) for cell in timed)}


def entry(cell: MatrixCell | None, quantity: Quantity, without: set[raised_flags.FlagKind]) -> Entry:
    """Return how a cell is shown."""
    if cell is None:
        return Entry(MISSING)
    value = quantity.value(cell)
    if cell.status is not Status.OK or cell.seconds is None:
        return Entry(HOLES[cell.status], hole=True)
    if value is None:
        return Entry(MISSING)
    marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in without)
    spread = interval(cell.seconds) if quantity is QUANTITIES["seconds"] else ""
    return Entry(number(value), spread, marks, cell.best)


def matrix_table(matrix: Matrix, columns: Sequence[Column], quantity: str = "seconds") -> Table:
    """Return these columns of a matrix as one table, without the rows that have nothing in them."""
    shown = quantity_named(quantity)
    without = common_flags(matrix)
    rows: list[tuple[Entry, ...]] = []
    for group, names in matrix.rows.items():
        inside = [
            (
                Entry(row_name(row)),
                *(entry(matrix.cells.get((group, row, c)), shown, without) for c in columns),
            )
            for row in names
            if any((group, row, column) in matrix.cells for column in columns)
        ]
        if inside:
            rows += [(Entry(group_name(group)),), *inside]
    head = ("threads", *(column_name(matrix, column) for column in columns))
    return Table(shown.title, head, tuple(rows))


def matrix_notes(matrix: Matrix, quantity: str = "seconds", details: int | None = 12, best: str = BEST) -> list[str]:
    """Return the lines beneath a matrix: marks used, why each hole is one, what the flags found, at most so many.

    ``best`` is how the exporter marks the best.
    """
    cells = list(matrix.cells.values())
    shown = [cell for cell in cells if cell.status is Status.OK and cell.seconds is not None]
    lines = []
    if any(cell.best for cell in cells):
        lines.append(f"{best} the fastest of its column, and what noise cannot tell from it")
    if quantity == "seconds" and any(cell.seconds and cell.seconds.low is not None for cell in shown):
        lines.append("± half-width of the 95 % interval (the wider side)" + _lesser_coverage(shown))
    if any(column.world_size > 1 for column in matrix.columns):
        lines.append(WORKERS_LEGEND)
    common = common_flags(matrix)
    for kind in raised_flags.KINDS:
        if kind in common:
            lines.append(f"every number: {kind.legend}")
        elif any(cell.has(kind) for cell in shown):
            lines.append(f"{kind.symbol} {kind.legend}")
    if any((g, r, c) not in matrix.cells for g, rows in matrix.rows.items() for r in rows for c in matrix.columns):
        lines.append(f"{MISSING} not measured")
    holes = [(HOLES[cell.status], cell.reason or "no reason was given", cell) for cell in cells if cell not in shown]
    lines += _grouped(matrix, holes)
    facts = [
        (flag.kind.symbol, flag.sentence, cell)
        for cell in shown
        for flag in cell.flags
        if flag.kind not in common and flag.kind not in (raised_flags.FEW_LAUNCHES, raised_flags.PARITY_UNCHECKED)
    ]
    found = _grouped(matrix, facts)
    if details is not None and len(found) > details:
        found = [*found[:details], f"... and {len(found) - details} more; --json has them all"]
    return lines + found + list(matrix.notes)


def _lesser_coverage(cells: Iterable[MatrixCell]) -> str:
    """Return what the intervals from few steps cover instead, e.g. "; from 5 steps 94 %"."""
    lesser = {
        cell.seconds.samples: cell.seconds.coverage
        for cell in cells
        if cell.seconds is not None and cell.seconds.coverage is not None and cell.seconds.coverage < 0.945
    }
    return "".join(f"; from {samples} steps {coverage:.0%}" for samples, coverage in sorted(lesser.items()))


def _grouped(matrix: Matrix, facts: Iterable[tuple[str, str, MatrixCell]]) -> list[str]:
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


def reasons(holes: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each reason of these (reason, row, thread count), with its rows and their thread counts."""
    found: dict[str, dict[str, list[str]]] = {}
    for why, row, count in holes:
        counts = found.setdefault(why, {}).setdefault(row, [])
        if count not in counts:
            counts.append(count)
    return [
        "; ".join(f"{row} at {', '.join(counts)}" for row, counts in rows.items()) + f": {why}"
        for why, rows in found.items()
    ]
