"""Machine against machine: the same cell on two of them, and the mean of each row.

Pure functions. Every machine is held against the one that has the most times. Whether one is slower than it should be
can be asked of machines of the same kind only: between others the ratio is what the hardware differs by, and has no
verdict. What noise may explain is said by `evidence.contrasts` alone, adjusted for the number of cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import CellResult, Matrix, Row, fair
from dlbench.reports.statistics import WORSE, Ratio, Summary, holm, judge, mean_of_pairs, ratio, welch
from dlbench.reports.storage.hosts import unlike

SLOWER, FASTER, SAME, UNKNOWN = "slower", "faster", "same", "cannot be told"


@dataclass(frozen=True)
class Pair:
    """One cell on both machines."""

    one: CellResult
    other: CellResult
    ratio: Ratio
    """Seconds on the other machine over those on the one."""
    p_value: float | None
    """Welch's t, adjusted after Holm; None from too few launches."""
    verdict: str
    """Of the other machine; empty where the two are of different kinds."""

    @property
    def other_environment(self) -> bool:
        """Whether the frameworks are not the same build, so that the ratio is of software too."""
        return self.one.environment != self.other.environment


@dataclass(frozen=True)
class Mean:
    """One row on both machines."""

    row: Row
    ratio: Ratio
    """Geometric mean over the cells."""
    cells: int
    verdict: str


@dataclass(frozen=True)
class Against:
    """One machine held against another one."""

    one: str
    other: str
    unlike: tuple[str, ...]
    """Why they are not of the same kind; empty where they are."""
    pairs: tuple[Pair, ...]
    """In the order of the matrix."""
    means: tuple[Mean, ...]
    overall: Ratio | None
    """Geometric mean over all cells; None where they have none in common."""


@dataclass(frozen=True)
class Machines:
    """All machines of a matrix."""

    matrix: Matrix
    against: tuple[Against, ...]


def machines(matrix: Matrix) -> Machines:
    """Return each machine of a matrix beside the one with the most times; nothing where there is one alone."""
    cells: dict[str, dict[Cell, CellResult]] = {machine: {} for machine in matrix.machines}
    for cell in fair(matrix.cells.values()):
        cells[cell.column.machine][cell.cell] = cell
    if len(cells) < 2:
        return Machines(matrix, ())
    one = max(cells, key=lambda machine: len(cells[machine]))
    return Machines(matrix, tuple(_against(matrix, one, other, cells) for other in cells if other != one))


def _against(matrix: Matrix, one: str, other: str, cells: Mapping[str, Mapping[Cell, CellResult]]) -> Against:
    why = tuple(unlike(matrix.hosts[one], matrix.hosts[other]))
    common = [(cells[one][cell], cells[other][cell]) for cell in cells[one] if cell in cells[other]]
    pairs = _adjusted([pair for both in common if (pair := _pair(*both)) is not None], named=not why)
    by_row: dict[Row, list[Pair]] = {}
    for pair in pairs:
        by_row.setdefault(pair.one.row, []).append(pair)
    means = []
    for row, of_row in by_row.items():
        found = _mean(of_row)
        named = all(pair.verdict for pair in of_row)
        means.append(Mean(row, found, len(of_row), _verdict(found) if named else ""))
    ordered = sorted(means, key=lambda mean: mean.ratio.value)
    return Against(one, other, why, tuple(pairs), tuple(ordered), _mean(pairs) if pairs else None)


def _pair(one: CellResult, other: CellResult) -> Pair | None:
    if one.timed is None or other.timed is None:
        return None
    return Pair(one, other, ratio(other.timed, one.timed), welch(other.timed, one.timed), "")


def _adjusted(pairs: Sequence[Pair], named: bool) -> list[Pair]:
    """Return the pairs with p-values adjusted for their number, and where machines are of one kind with verdicts."""
    values = iter(holm([pair.p_value for pair in pairs if pair.p_value is not None]))
    found = []
    for pair in pairs:
        p_value = None if pair.p_value is None else next(values)
        gpus = {each.device_observed.name for each in (pair.one, pair.other) if each.device_observed is not None}
        verdict = _verdict(pair.ratio, p_value) if named and len(gpus) < 2 else ""
        found.append(replace(pair, p_value=p_value, verdict=verdict))
    return found


def _verdict(found: Ratio, p_value: float | None = None) -> str:
    """Return what can be said: the same is what lies within `WORSE` of 1 with its whole interval."""
    word = {"worse": SLOWER, "better": FASTER}.get(judge(found, p_value))
    if word:
        return word
    known = found.low is not None and found.high is not None and found.low >= 1 / WORSE and found.high <= WORSE
    return SAME if known else UNKNOWN


def _mean(pairs: Sequence[Pair]) -> Ratio:
    both: list[tuple[Summary, Summary]] = [
        (pair.other.timed, pair.one.timed) for pair in pairs if pair.other.timed and pair.one.timed
    ]
    return mean_of_pairs(both)
