"""Pairs of cells that differ along one axis: their ratios, who is clearly slower, geometric means,
and pictures.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column
from dlbench.reports.formats.csv import MEDIAN
from dlbench.reports.formats.layout import Entry, entry
from dlbench.reports.formats.pictures import Dots, Panel, dots_to_picture
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flags import FlagKind
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.matrix import Compared
from dlbench.reports.results.naming import counted
from dlbench.reports.results.quantities import QUANTITIES, SECONDS
from dlbench.reports.results.statistics import (
    WORSE,
    Ratio,
    Summary,
    holm,
    judge,
    mean_of_pairs,
    p_of_interval,
    ratio,
    welch,
)

SLOWER, FASTER, SAME, UNKNOWN = "slower", "faster", "same", "inconclusive"
Row = TypeVar("Row")


@dataclass(frozen=True)
class Pair:
    """A cell and the one that it is compared with."""

    cell: CellResult
    other: CellResult
    ratio: Ratio
    """Seconds of the cell over those of the other one."""
    p_value: float | None = None
    """Of Welch's t; None from too few launches."""
    verdict: str = ""
    """On the cell; empty for none."""

    @property
    def times(self) -> tuple[Summary, Summary]:
        """The seconds of both."""
        assert self.cell.timed is not None
        assert self.other.timed is not None
        return self.cell.timed, self.other.timed


@dataclass(frozen=True)
class Mean:
    """The geometric mean of the ratios of several pairs."""

    ratio: Ratio
    pairs: tuple[Pair, ...]

    @property
    def row(self) -> Cell:
        """The row of its first cell."""
        return self.pairs[0].cell.row

    @property
    def other_row(self) -> Cell:
        """The row that this is compared with."""
        return self.pairs[0].other.row

    @property
    def groups(self) -> tuple[Cell, ...]:
        """The networks, each mini-batch by itself."""
        return tuple(dict.fromkeys(each.cell.group for each in self.pairs))

    def count(self, verdict: str) -> int:
        """Return how many ratios noise does not explain: "better" (the cell is faster) or
        "worse".
        """
        return sum(judge(each.ratio) == verdict for each in self.pairs)


def pair_of(cell: CellResult | None, other: CellResult | None) -> Pair | None:
    """Return the pair of two cells; None where one of them has no time that counts."""
    if cell is None or other is None or cell.timed is None or other.timed is None:
        return None
    return Pair(cell, other, ratio(cell.timed, other.timed))


def mean_of(pairs: Sequence[Pair]) -> Mean:
    """Return the geometric mean of one pair or more."""
    return Mean(mean_of_pairs([each.times for each in pairs]), tuple(pairs))


def with_verdicts(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with verdicts, and with p-values adjusted for their number where launches
    are enough.
    """
    tested = [welch(*each.times) for each in pairs]
    adjusted = adjust([(each.ratio, p) for each, p in zip(pairs, tested, strict=True)])
    return [
        replace(each, p_value=None if p is None else q, verdict=verdict(each.ratio, q))
        for each, p, q in zip(pairs, tested, adjusted, strict=True)
    ]


def adjust(tested: Sequence[tuple[Ratio, float | None]]) -> list[float | None]:
    """Return p-values adjusted for their number (Holm); a ratio without one has that of its
    interval, if it has one.

    So fewer launches give no more verdicts.
    """
    p_values = [p_of_interval(found) if p is None else p for found, p in tested]
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(adjusted) for p in p_values]


def verdict(found: Ratio, p_adjusted: float | None = None) -> str:
    """Return slower, faster, same (its whole interval lies within `WORSE` of 1) or inconclusive."""
    word = {"worse": SLOWER, "better": FASTER}.get(judge(found, p_adjusted))
    same = (
        found.low is not None
        and found.high is not None
        and found.low >= 1 / WORSE
        and found.high <= WORSE
    )
    return word or (SAME if same else UNKNOWN)


def costs(
    found: Compared[Row],
    pairs: Iterable[tuple[Row, Pair]],
    what: str,
    where: Callable[[Row, Pair], str],
) -> list[str]:
    """Return for each machine how often something costs time ("WHAT time in 2 of 3 cells, most on
    WHERE.").
    """
    lines = []
    for machine, here in grouped(pairs, lambda each: each[1].cell.machine).items():
        slower = [each for each in here if each[1].verdict == SLOWER]
        line, cells = f"{found.name(machine)}: {what}", counted(len(here), "cell")
        if slower:
            most = max(slower, key=lambda each: each[1].ratio.value)
            lines.append(f"{line} time in {len(slower)} of {cells}, most on {where(*most)}.")
        else:
            lines.append(f"{line} no significant time in {cells}.")
    return lines


def seconds_column(
    of: Callable[[Row], CellResult | None],
    common: Collection[FlagKind] = (),
    key: str = "seconds_per_minibatch",
    heading: str = "s/step",
) -> Column[Row]:
    """Return the seconds of a row's cell, marked with its flags but those that all have, and not
    with a star.
    """

    def text(row: Row) -> Entry:
        return entry(of(row), QUANTITIES[SECONDS], common)._replace(best=False)

    return Column(key, heading, lambda row: getattr(of(row), "seconds", None), text, MEDIAN)


Point = tuple[str, str, str, Ratio]
"""For a picture: the panel, the row, the series, and the ratio."""


def draw(
    pages: Iterable[tuple[str, str, Sequence[Point]]],
    path: Path,
    columns: int = 2,
    series: str = "threads",
) -> list[Path]:
    """Draw pages (title, what the values are, points) with ratios across, and return the files;
    raises ReportError.
    """

    def panel(title: str, points: Sequence[Point]) -> Panel:
        places = {
            (name, series): (found.value, found.low, found.high)
            for _, name, series, found in points
        }
        return Panel(title, tuple(dict.fromkeys(each[1] for each in points)), places)

    dots = [
        Dots(
            title,
            across,
            tuple(panel(*each) for each in grouped(points, lambda p: p[0]).items()),
            series,
            same=1.0,
        )
        for title, across, points in pages
    ]
    return dots_to_picture(dots, path, columns)
