"""Entries, tables and pages of reports, and the words for missing numbers.

A `Table` holds entries with their meaning (best, hole, marks) rather than finished text, so that
each exporter can show them in its own way.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from dlbench.adapters.protocol import Status
from dlbench.reports.results.flags import KINDS, FlagKind
from dlbench.reports.results.number_text import amount, deviation, number
from dlbench.reports.results.quantities import Quantity
from dlbench.reports.results.safe_text import spelled, table_field, visible
from dlbench.reports.results.statistics import ENOUGH_LAUNCHES, LAUNCH_DEVIATION, Ratio

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
        return f"{'*' if self.best else ''}{self.text}{self.interval}{self.marks}"


def entries(*texts: str) -> tuple[Entry, ...]:
    """Return a row of these texts."""
    return tuple(map(Entry, texts))


class Table(NamedTuple):
    """A table with its heading and the lines beneath; a row of a single entry is a heading over
    those below it.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()
    words: bool = False
    keys: int = 1
    """Leading columns that identify a row: repeated where the others are shown in several parts."""
    spans: tuple[tuple[str, int], ...] = ()
    """Names over this many neighbouring columns each, behind the leading ones: a machine's stay
    together."""
    key: str = ""
    """The list of its rows in the report's JSON; empty: JSON does not have them."""
    columns: tuple[Any, ...] = ()
    """How it was declared (`reports.columns`), ..."""
    objects: tuple[Any, ...] = ()
    """... and what its rows are."""


class Page(NamedTuple):
    """A report as lines and tables."""

    before: tuple[str, ...]
    tables: tuple[Table, ...]
    after: tuple[str, ...] = ()

    def inert(self, best: str, encoding: str = "utf-8") -> "Page":
        """Return the page with every text as `results.safe_text` shows it, and with the word for
        the mark of the best.

        A table without rows and notes is left out: a title alone says nothing.
        """

        def field(text: str) -> str:
            return spelled(table_field(text), encoding)

        def entry(each: Entry) -> Entry:
            return each._replace(text=field(each.text), interval=spelled(each.interval, encoding))

        def lines(of: Iterable[str]) -> tuple[str, ...]:
            return tuple(
                spelled(visible(line.replace(BEST, best)).rstrip(), encoding) for line in of
            )

        def table(each: Table) -> Table:
            return each._replace(
                title=field(each.title),
                head=tuple(map(field, each.head)),
                rows=tuple(tuple(map(entry, row)) for row in each.rows),
                notes=lines(each.notes),
                spans=tuple((field(name), count) for name, count in each.spans),
            )

        shown = (each for each in self.tables if each.rows or each.notes)
        return Page(lines(self.before), tuple(map(table, shown)), lines(self.after))


def multiple(found: Ratio, marks: str = "", best: bool = False) -> Entry:
    """Return the entry of a ratio, with the deviation of its interval."""
    return Entry(
        f"{number(found.value)}x", deviation(found.value, found.low, found.high), marks, best
    )


def entry(cell: "CellResult | None", quantity: Quantity, without: Collection[FlagKind]) -> Entry:
    """Return the entry of a cell."""
    if cell is None:
        return Entry(MISSING)
    found = quantity.value(cell)
    if not cell.shown or cell.seconds is None:
        return Entry(HOLES[cell.status], hole=True)
    if found is None:
        return Entry(MISSING)
    marks = "".join(flag.kind.symbol for flag in cell.flags if flag.kind not in without)
    return Entry(amount(found[0]), deviation(*found), marks, cell.best and quantity.of_time)


def why_hole(cell: "CellResult") -> str:
    """Return the word for a cell without a number, and the reason."""
    wrong = cell.shown
    reason = cell.reason or (
        "it computed something other than the reference" if wrong else "no reason was given"
    )
    return f"{HOLES[Status.PARITY_FAILED if wrong else cell.status]}, {reason}"


def common_flags(cells: "Iterable[CellResult]") -> set[FlagKind]:
    """Return the flags that all of several numbers have: legends name them once."""
    numbers = list(cells)
    return {kind for kind in KINDS if len(numbers) > 1 and all(cell.has(kind) for cell in numbers)}


def flag_lines(
    cells: "Iterable[CellResult]", common: Collection[FlagKind] = (), every: str = "every number:"
) -> list[str]:
    """Return the legend of the marks of these cells; behind ``every`` the flags that all have."""
    raised = {flag.kind for cell in cells for flag in cell.flags}
    return [
        f"{every if kind in common else kind.symbol} {kind.legend}"
        for kind in KINDS
        if kind in raised
    ]


def reasons(holes: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return a line for each reason of these (reason, row, thread count), with its rows and their
    thread counts.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}
    for why, row, count in holes:
        found.setdefault(why, {}).setdefault(row, {})[count] = None
    return [
        "; ".join(f"{row} at {', '.join(counts)}" for row, counts in rows.items()) + f": {why}"
        for why, rows in found.items()
    ]
