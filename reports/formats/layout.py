"""Entries, tables and pages of reports, and the words for missing numbers.

A `Table` holds entries with their meaning (best, hole, marks) rather than finished text, so that
each exporter can show them in its own way.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.adapters.protocol import Status
from dlbench.reports.results.flag_kinds import KINDS, FlagKind
from dlbench.reports.results.number_text import amount, deviation, number
from dlbench.reports.results.quantities import Quantity
from dlbench.reports.results.safe_text import spelled, table_field, visible
from dlbench.reports.results.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Estimate

if TYPE_CHECKING:  # it imports the store, and every command that prints text imports this module
    from dlbench.reports.results.cells import CellResult

HOLES = {
    Status.UNSUPPORTED: "n/a",
    Status.OUT_OF_MEMORY: "oom",
    Status.TIMED_OUT: "timeout",
    Status.CRASHED: "crash",
    Status.PARITY_FAILED: "parity!",
    Status.IMPLAUSIBLE: "implaus!",
    Status.SKIPPED: "skip",
    Status.OK: "empty",
}
"""The text of a cell without a number."""
MISSING = "-"
NOTHING = "Nothing was measured yet."
HALF_WIDTH = "± half-width of the 95 % interval (the wider side)"
WIDENED = (
    f"With fewer than {ENOUGH_LAUNCHES} launches on a side, a ratio has the interval of their "
    "steps, widened by the deviation between launches that other cells of the machine show "
    f"({LAUNCH_DEVIATION:.0%} if too few show it)."
)
BEST = "\ue000"
"""Placeholder in a note for the mark of the best; each format has its own."""


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
        text = f"{self.text}{self.interval}{self.marks}"
        return f"*{text}" if self.best else text


def entries(*texts: str) -> tuple[Entry, ...]:
    """Return a row of these texts."""
    return tuple(map(Entry, texts))


class Table(NamedTuple):
    """A table with its heading and the lines beneath it.

    A row of a single entry is a heading over the rows below it.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    words: bool = False
    keys: int = 1
    """Leading columns that identify a row: repeated where the others are shown in several parts."""
    spans: tuple[tuple[str, int], ...] = ()
    """Names with the number of neighbouring columns below them, after the leading ones.

    The columns of a machine stay together."""
    key: str = ""
    """The list of its rows in the report's JSON; empty: JSON does not have them."""
    columns: tuple[Any, ...] = ()
    """Its declaration (`reports.columns`)."""
    objects: tuple[Any, ...] = ()
    """The objects of its rows."""


class Page(NamedTuple):
    """A report as lines and tables."""

    before: tuple[str, ...]
    tables: tuple[Table, ...]
    after: tuple[str, ...] = ()

    def inert(self, best: str, encoding: str = "utf-8") -> "Page":
        """Return the page with every text as `results.safe_text` shows it.

        ``best`` replaces the mark of the best. A table without rows and notes is left out, since a
        title alone says nothing.
        """

        def field(text: str) -> str:
            return spelled(table_field(text), encoding)

        def inert_entry(entry: Entry) -> Entry:
            return entry._replace(
                text=field(entry.text), interval=spelled(entry.interval, encoding)
            )

        def line(text: str) -> str:
            return spelled(visible(text.replace(BEST, best)).rstrip(), encoding)

        tables = []
        for table in self.tables:
            if not table.rows and not table.notes:
                continue
            rows = [tuple(map(inert_entry, row)) for row in table.rows]
            spans = [(field(name), count) for name, count in table.spans]
            inert_table = table._replace(
                title=field(table.title),
                head=tuple(map(field, table.head)),
                rows=tuple(rows),
                notes=tuple(map(line, table.notes)),
                spans=tuple(spans),
            )
            tables.append(inert_table)
        return Page(tuple(map(line, self.before)), tuple(tables), tuple(map(line, self.after)))


def multiple(ratio: Estimate, marks: str = "", best: bool = False) -> Entry:
    """Return the entry of a ratio, with the deviation of its interval."""
    spread = deviation(ratio.value, ratio.low, ratio.high)
    return Entry(f"{number(ratio.value)}x", spread, marks, best)


def entry(cell: "CellResult | None", quantity: Quantity, without: Collection[FlagKind]) -> Entry:
    """Return the entry of a cell."""
    if cell is None:
        return Entry(MISSING)
    if not cell.shown or cell.seconds is None:
        return Entry(HOLES[cell.status], hole=True)
    numbers = quantity.value(cell)
    if numbers is None:
        return Entry(MISSING)
    marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in without)
    return Entry(amount(numbers[0]), deviation(*numbers), marks, cell.best and quantity.of_time)


def why_hole(cell: "CellResult") -> str:
    """Return the word for a cell without a number, and the reason."""
    if cell.shown:
        # It has a number, of another computation.
        word = HOLES[Status.PARITY_FAILED]
        return f"{word}, {cell.reason or 'it computed something other than the reference'}"
    return f"{HOLES[cell.status]}, {cell.reason or 'no reason was given'}"


def common_flags(cells: "Iterable[CellResult]") -> set[FlagKind]:
    """Return the flags that all of several numbers have: legends name them once."""
    cells = list(cells)
    if len(cells) <= 1:
        return set()
    common = set()
    for kind in KINDS:
        if all(cell.has(kind) for cell in cells):
            common.add(kind)
    return common


def flag_lines(
    cells: "Iterable[CellResult]", common: Collection[FlagKind] = (), every: str = "every number:"
) -> list[str]:
    """Return the legend of the marks of these cells; ``every`` replaces a mark that all have."""
    raised = set()
    for cell in cells:
        for flag in cell.flags:
            raised.add(flag.kind)
    lines = []
    for kind in KINDS:
        if kind in raised:
            mark = every if kind in common else kind.symbol
            lines.append(f"{mark} {kind.legend}")
    return lines


def reasons(holes: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each reason of these holes (reason, row, thread count)."""
    rows_by_reason: dict[str, dict[str, dict[str, None]]] = {}
    for reason, row, count in holes:
        rows_by_reason.setdefault(reason, {}).setdefault(row, {})[count] = None
    lines = []
    for reason, counts_by_row in rows_by_reason.items():
        rows = [f"{row} at {', '.join(counts)}" for row, counts in counts_by_row.items()]
        lines.append(f"{'; '.join(rows)}: {reason}")
    return lines
