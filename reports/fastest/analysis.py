"""Who is fastest of each column, who cannot be told from it, and how far behind the next one is.

Pure functions. Who takes part, and what noise may explain, is as for the stars of a matrix (`matrix.analysis`,
`evidence.contrasts`), so that the two never contradict one another. One thing differs: the fastest row tuned otherwise,
which has a star where noise cannot tell it, is no rival here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dlbench.reports.cells import CellResult, Column, Group, Matrix, in_the_running
from dlbench.reports.statistics import Ratio, Summary, clearly_slower, judge, ratio


@dataclass(frozen=True)
class Leader:
    """The fastest cell of a column within its group, beside those that come next."""

    group: Group
    column: Column
    first: CellResult
    """The least median of those that were fair."""
    ties: tuple[CellResult, ...]
    """Others that noise cannot tell from it, the fastest first; the same row tuned otherwise is none of them."""
    next: CellResult | None
    """The fastest that is clearly slower, else the second; None where it is alone."""
    ratio: Ratio | None
    """Seconds of the next over its own."""
    certain: bool
    """Whether nothing ties with it, and the interval of the ratio to another of its run lies above 1."""

    @property
    def compared(self) -> tuple[CellResult, ...]:
        """The cells that the sentence about it rests on."""
        return tuple(each for each in (self.first, *self.ties[:1], self.next) if each is not None)


@dataclass(frozen=True)
class Fastest:
    """All leaders of a matrix, in its order: machines, groups, columns."""

    matrix: Matrix
    leaders: tuple[Leader, ...]


def fastest(matrix: Matrix) -> Fastest:
    """Return who is fastest in each column of a matrix."""
    return Fastest(matrix, tuple(leaders(matrix)))


def leaders(matrix: Matrix) -> list[Leader]:
    """Return the leader of each column within each group, where any cell has a time that counts."""
    found = []
    for machine in matrix.machines:
        for group, rows in matrix.rows.items():
            for column in matrix.columns_of(machine):
                places = ((group, row, column) for row in rows)
                pool = in_the_running(matrix.cells[place] for place in places if place in matrix.cells)
                if pool:
                    found.append(_leader(group, column, sorted(pool, key=lambda pair: pair[1].median)))
    return found


def _leader(group: Group, column: Column, ordered: Sequence[tuple[CellResult, Summary]]) -> Leader:
    (first, least), *others = ordered
    # The same row tuned otherwise is no rival.
    others = [pair for pair in others if pair[0].row._replace(tuning="") != first.row._replace(tuning="")]
    ties = tuple(cell for cell, seconds in others if not clearly_slower(seconds, least))
    behind = [pair for pair in others if clearly_slower(pair[1], least)] or others
    if not behind:
        return Leader(group, column, first, ties, None, None, certain=False)
    following, seconds = behind[0]
    slower = ratio(seconds, least)
    # Between runs a machine shifts by more than its launches in one run vary by.
    certain = first.run == following.run and not ties and judge(slower) == "worse" and slower.low is not None
    return Leader(group, column, first, ties, following, slower, certain)
