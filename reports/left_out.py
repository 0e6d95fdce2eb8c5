"""Sentences about the cells that a report leaves out, with the reason of each."""

from collections.abc import Iterable

from dlbench.reports.formats.layout import why_hole
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flag_kinds import (
    NEAR_PEAK,
    PARITY_UNCHECKED,
    THREADS_EXCEEDED,
    FlagKind,
)
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted, name_of

_DOUBTS: tuple[tuple[FlagKind, str], ...] = (
    (THREADS_EXCEEDED, "more threads worked than were asked for"),
    (NEAR_PEAK, "the rate is above 90 % of the GPU's theoretical peak"),
    (PARITY_UNCHECKED, "the results were not checked, and those of others were"),
)
_NAMED = 3
"""Cells that a sentence names; it counts the others."""


def why_left_out(cell: CellResult) -> str:
    """Return why a time is not compared with others, or the word for a cell without one."""
    if cell.timed is None:
        word = why_hole(cell).partition(",")[0]
        return f"{word} (`dlbench report matrix` has the reasons)"
    for kind, reason in _DOUBTS:
        if cell.has(kind):
            return f"{reason} ({kind.symbol})"
    return "it has no number of this kind"


def left_out(cells: Iterable[CellResult]) -> list[str]:
    """Return a sentence for each reason, with the number of cells and the first of their names."""
    lines = []
    for reason, cells_left_out in grouped(cells, why_left_out).items():
        count = len(cells_left_out)
        names = [name_of(cell.cell) for cell in cells_left_out[:_NAMED]]
        if count > _NAMED:
            names.append(f"and {count - _NAMED} more")
        lines.append(
            f"Left out: {counted(count, 'cell')} ({'; '.join(names)}): {reason.rstrip('.')}."
        )
    return lines
