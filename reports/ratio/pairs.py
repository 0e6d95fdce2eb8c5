"""Pairs of cells that differ along one axis: ratios, verdicts, geometric means and pictures."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import Column, Row
from dlbench.reports.formats.csv import MEDIAN
from dlbench.reports.formats.layout import Entry, entry
from dlbench.reports.formats.pictures import DotPanel, Dots, dots_to_picture
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.flag_kinds import FlagKind
from dlbench.reports.results.keys import RowKey, grouped
from dlbench.reports.results.matrix import Compared
from dlbench.reports.results.naming import counted
from dlbench.reports.results.quantities import QUANTITIES, SECONDS
from dlbench.reports.results.statistics import (
    Estimate,
    RatioVerdict,
    Summary,
    holm,
    judge_ratio,
    mean_of_pairs,
    p_of_interval,
    ratio,
    welch,
)


@dataclass(frozen=True)
class Pair:
    """A cell and the one that it is compared with."""

    cell: CellResult
    other: CellResult
    ratio: Estimate
    """Seconds of the cell over those of the other one."""
    p_value: float | None = None
    """Of Welch's t; None from too few launches."""
    verdict: RatioVerdict | None = None
    """On the cell; None where none was asked for."""

    @property
    def times(self) -> tuple[Summary, Summary]:
        """The seconds of both."""
        assert self.cell.timed is not None
        assert self.other.timed is not None
        return self.cell.timed, self.other.timed


@dataclass(frozen=True)
class Mean:
    """The geometric mean of the ratios of several pairs."""

    ratio: Estimate
    pairs: tuple[Pair, ...]

    @property
    def row(self) -> RowKey:
        """The row of its first cell."""
        return self.pairs[0].cell.row

    @property
    def other_row(self) -> RowKey:
        """The row that this is compared with."""
        return self.pairs[0].other.row

    @property
    def works(self) -> tuple[Cell, ...]:
        """The networks, each mini-batch by itself."""
        return tuple(dict.fromkeys(pair.cell.work for pair in self.pairs))

    def count(self, verdict: RatioVerdict) -> int:
        """Return the number of ratios with this verdict."""
        return sum(judge_ratio(pair.ratio) is verdict for pair in self.pairs)


def pair_of(cell: CellResult | None, other: CellResult | None) -> Pair | None:
    """Return the pair of two cells; None where one of them has no time that counts."""
    if cell is None or other is None or cell.timed is None or other.timed is None:
        return None
    return Pair(cell, other, ratio(cell.timed, other.timed))


def mean_of(pairs: Sequence[Pair]) -> Mean:
    """Return the geometric mean of one pair or more."""
    return Mean(mean_of_pairs([pair.times for pair in pairs]), tuple(pairs))


def with_verdicts(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with verdicts, and with adjusted p-values where launches are enough."""
    tested = [(pair.ratio, welch(*pair.times)) for pair in pairs]
    judged = []
    for pair, (_, p_value), adjusted in zip(pairs, tested, adjust(tested), strict=True):
        p_adjusted = None if p_value is None else adjusted
        verdict = judge_ratio(pair.ratio, adjusted)
        judged.append(replace(pair, p_value=p_adjusted, verdict=verdict))
    return judged


def adjust(tested: Sequence[tuple[Estimate, float | None]]) -> list[float | None]:
    """Return p-values adjusted for their number (Holm).

    A ratio without a p-value has that of its interval, if it has an interval. So fewer launches
    give no more verdicts.
    """
    p_values: dict[int, float] = {}
    for index, (multiple, p_value) in enumerate(tested):
        if p_value is None:
            p_value = p_of_interval(multiple)
        if p_value is not None:
            p_values[index] = p_value
    adjusted: list[float | None] = [None] * len(tested)
    for index, p_value in zip(p_values, holm(list(p_values.values())), strict=True):
        adjusted[index] = p_value
    return adjusted


def costs(
    analysis: Compared[Row],
    pairs: Iterable[tuple[Row, Pair]],
    claim: str,
    describe: Callable[[Row, Pair], str],
) -> list[str]:
    """Return for each machine how often something costs time.

    For example "CLAIM time in 2 of 3 cells, most on DESCRIPTION.".
    """
    lines = []
    by_machine = grouped(pairs, lambda row: row[1].cell.machine)
    for machine, rows in by_machine.items():
        slower = [(row, pair) for row, pair in rows if pair.verdict is RatioVerdict.SLOWER]
        line = f"{analysis.name(machine)}: {claim}"
        cells = counted(len(rows), "cell")
        if slower:
            row, pair = max(slower, key=lambda row: row[1].ratio.value)
            lines.append(f"{line} time in {len(slower)} of {cells}, most on {describe(row, pair)}.")
        else:
            lines.append(f"{line} no significant time in {cells}.")
    return lines


def seconds_column(
    cell_of: Callable[[Row], CellResult | None],
    common: Collection[FlagKind] = (),
    key: str = "seconds_per_minibatch",
    heading: str = "s/step",
) -> Column[Row]:
    """Return the column of the seconds of a row's cell.

    They are marked with the cell's flags, but not with those in ``common``, nor with a star.
    """

    def seconds(row: Row) -> Summary | None:
        cell = cell_of(row)
        return None if cell is None else cell.seconds

    def text(row: Row) -> Entry:
        return entry(cell_of(row), QUANTITIES[SECONDS], common)._replace(best=False)

    return Column(key, heading, seconds, text, MEDIAN)


RatioPoint = tuple[str, str, str, Estimate]
"""For a picture: the panel, the row, the series, and the ratio."""


def draw(
    pages: Iterable[tuple[str, str, Sequence[RatioPoint]]],
    path: Path,
    columns: int = 2,
    series: str = "threads",
) -> list[Path]:
    """Draw pages with ratios across, and return the files.

    A page is its title, the meaning of the values, and its points. Raises ReportError.
    """
    drawn = []
    for title, across, points in pages:
        points_by_panel = grouped(points, lambda point: point[0])
        panels = []
        for name, points_of_panel in points_by_panel.items():
            panels.append(_panel(name, points_of_panel))
        drawn.append(Dots(title, across, tuple(panels), series, same=1.0))
    return dots_to_picture(drawn, path, columns)


def _panel(title: str, points: Sequence[RatioPoint]) -> DotPanel:
    places = {}
    names: dict[str, None] = {}
    for _, name, series, multiple in points:
        places[name, series] = (multiple.value, multiple.low, multiple.high)
        names[name] = None
    return DotPanel(title, tuple(names), places)
