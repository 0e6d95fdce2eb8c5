"""Framework against framework: how many times as long as one of them each takes, over the networks that both have.

Pure functions. A row (framework, mode, settings) is held against the row of its machine that has the most cells. Who
takes part is as for the stars of a matrix. What noise may explain is said by `evidence.contrasts` alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlbench.reports.cells import CellResult, Column, Group, Matrix, Row, in_the_running
from dlbench.reports.naming import row_name
from dlbench.reports.statistics import Ratio, Summary, judge, mean_of_pairs, ratio

Times = Mapping[tuple[Column, Group], Summary]
"""Of one row: its times that count."""


@dataclass(frozen=True)
class Mean:
    """One row over another, on the networks that both have a time for."""

    ratio: Ratio
    """Geometric mean of the seconds of the one over those of the other."""
    networks: tuple[Group, ...]
    """Over these, each once; the mean holds it once for each place."""
    pairs: int
    """Of a network and a place."""
    wins: int
    """Where noise does not explain that it is faster, ..."""
    losses: int
    """... and that it is slower."""


@dataclass(frozen=True)
class Standing:
    """A row beside the reference."""

    row: Row
    means: Mapping[Column, Mean]
    """By the columns in which both have a network in common."""
    overall: Mean
    """Over all columns."""
    few_launches: bool
    """Whether some of its times, or of those it is held against, are of too few launches to cover what they vary by."""


@dataclass(frozen=True)
class Compared:
    """The rows of one machine."""

    machine: str
    reference: Row
    columns: tuple[Column, ...]
    """Those in which anything is compared."""
    standings: tuple[Standing, ...]
    """The reference among them; the fastest first."""
    apart: tuple[Row, ...]
    """Rows that have nothing in common with the reference."""


@dataclass(frozen=True)
class Frameworks:
    """All machines of a matrix on which there are two rows to compare."""

    matrix: Matrix
    machines: tuple[Compared, ...]


def frameworks(matrix: Matrix) -> Frameworks:
    """Return the rows of each machine of a matrix beside one another."""
    found = (_compared(matrix, machine) for machine in matrix.machines)
    return Frameworks(matrix, tuple(each for each in found if each is not None))


def times_of(matrix: Matrix, machine: str) -> dict[Row, dict[tuple[Column, Group], Summary]]:
    """Return the times that count of each row of a machine."""
    by_place: dict[tuple[Column, Group], list[CellResult]] = {}
    for (group, _, column), cell in matrix.cells.items():
        if column.machine == machine:
            by_place.setdefault((column, group), []).append(cell)
    found: dict[Row, dict[tuple[Column, Group], Summary]] = {}
    for place, cells in by_place.items():
        for cell, seconds in in_the_running(cells):
            found.setdefault(cell.row, {})[place] = seconds
    return found


def mean_over(one: Times, other: Times, columns: Sequence[Column]) -> Mean | None:
    """Return the one row over the other in these columns; None where they have no network in common there."""
    common = [place for place in one if place in other and place[0] in columns]
    if not common:
        return None
    verdicts = Counter(judge(ratio(one[place], other[place])) for place in common)
    mean = mean_of_pairs([(one[place], other[place]) for place in common])
    networks = tuple(dict.fromkeys(group for _, group in common))
    return Mean(mean, networks, len(common), verdicts["better"], verdicts["worse"])


def _compared(matrix: Matrix, machine: str) -> Compared | None:
    found = times_of(matrix, machine)
    if len(found) < 2:
        return None
    reference = min(found, key=lambda row: (-len(found[row]), row_name(row)))
    columns = matrix.columns_of(machine)
    standings = [_standing(row, times, found[reference], row == reference, columns) for row, times in found.items()]
    shown = sorted((each for each in standings if each is not None), key=lambda each: each.overall.ratio.value)
    if len(shown) < 2:
        return None
    used = {column for each in shown if each.row != reference for column in each.means}
    apart = tuple(row for row in found if row not in {each.row for each in shown})
    return Compared(machine, reference, tuple(c for c in columns if c in used), tuple(shown), apart)


def _standing(row: Row, times: Times, reference: Times, itself: bool, columns: Sequence[Column]) -> Standing | None:
    overall = mean_over(times, reference, columns)
    if overall is None:
        return None
    means = {column: mean for column in columns if (mean := mean_over(times, reference, [column])) is not None}
    if itself:
        means = {column: _of_itself(mean) for column, mean in means.items()}
        overall = _of_itself(overall)
    few = any(not side[place].covers_launches for place in times if place in reference for side in (times, reference))
    return Standing(row, means, overall, few)


def _of_itself(mean: Mean) -> Mean:
    return Mean(Ratio(1.0, 1.0, 1.0, "the reference itself"), mean.networks, mean.pairs, 0, 0)
