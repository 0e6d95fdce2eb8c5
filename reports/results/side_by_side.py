"""Times of cells whose launches took turns, known relative to one another.

The logarithm of a launch's seconds is the level of its cell, plus an effect that all launches of
its group share (how fast the machine was then), plus its own deviation. The levels follow by least
squares, in a two-way layout that need not be complete (Searle, Linear Models, 1971, chapter 7).
Only differences of levels are known, and those between cells that shared groups, directly or
through others.

Cells deviate differently. The variance of a cell is estimated from its residuals, with as many
degrees of freedom as its observations have left over: the sum of one less their leverages (Hinkley
1977, Technometrics 19, 285-292). The variance of a difference takes each observation with the
variance of its cell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]

LEAST_VARIANCE = 1e-8
"""Of the logarithm of a launch's seconds: smaller ones are rounding."""
_LEAST_FREEDOM = 0.25
"""A cell with fewer degrees of freedom says nothing about its own deviation."""


@dataclass(frozen=True, eq=False)
class SideBySide:
    """The levels of cells that were measured in groups, for their differences."""

    levels: Floats
    """Logarithms of seconds, by cell, up to a constant that they have in common."""
    operator: Floats
    """By cell and observation: how a level follows from the observations."""
    cell_of: Integers
    """The cell of each observation."""
    parts: Integers
    """By cell: cells of one part shared groups, and between parts nothing is known."""
    variances: Floats
    """Of a launch's own deviation, by cell."""
    freedoms: Floats
    """Degrees of freedom of those."""

    def known(self, one: int, other: int) -> bool:
        """Tell whether the difference of two cells is known."""
        return one != other and bool(self.parts[one] == self.parts[other])

    def difference(self, one: int, other: int) -> float:
        """Return the logarithm of the ratio of two cells' seconds."""
        return float(self.levels[one] - self.levels[other])

    def variance(self, one: int, other: int) -> tuple[float, float]:
        """Return the variance of the difference of two cells, and its degrees of freedom.

        They are Satterthwaite's (1946).
        """
        coefficients = self.operator[one] - self.operator[other]
        squares = np.bincount(self.cell_of, coefficients**2, minlength=len(self.levels))
        parts = squares * self.variances
        variance = float(parts.sum())
        return variance, float(variance**2 / (parts**2 / self.freedoms).sum())

    def variance_in_a_group(self, one: int, other: int) -> float:
        """Return the variance of the difference of two launches in one group."""
        return float(self.variances[one] + self.variances[other])

    def with_variances(self, variances: Sequence[float], freedoms: Sequence[float]) -> "SideBySide":
        """Return it with other variances of the cells' deviations."""
        return replace(self, variances=np.asarray(variances), freedoms=np.asarray(freedoms))


def side_by_side(groups: Sequence[Mapping[int, float]], cells: int) -> SideBySide | None:
    """Return the levels of so many cells; a group has the seconds of a step by cell.

    None where the groups show no deviation, since no two cells shared two of them.
    """
    shared = [group for group in groups if len(group) > 1]
    logs_of_groups = []
    cell_of: list[int] = []
    group_of: list[int] = []
    for number, group in enumerate(shared):
        for cell, seconds in group.items():
            logs_of_groups.append(np.log(seconds))
            cell_of.append(cell)
            group_of.append(number)
    if not logs_of_groups:
        return None
    logs = np.asarray(logs_of_groups)
    in_cell = np.eye(cells)[cell_of]
    in_group = np.eye(len(shared))[group_of]
    # The rest of each observation without its group's mean: of the observations, and of the design.
    averaging = in_group @ (in_group.T / in_group.sum(axis=0)[:, np.newaxis])
    design = in_cell - averaging @ in_cell
    operator = np.linalg.pinv(design)
    levels = operator @ logs
    residuals = logs - averaging @ logs - design @ levels
    leverages = np.diag(averaging) + np.einsum("ij,ji->i", design, operator)
    squares = np.bincount(cell_of, residuals**2, minlength=cells)
    freedoms = np.bincount(cell_of, np.maximum(0.0, 1 - leverages), minlength=cells)
    if freedoms.sum() < 1 - 1e-9:
        return None
    telling = freedoms >= _LEAST_FREEDOM
    common = squares.sum() / freedoms.sum()
    # A cell that says nothing about its deviation is taken to deviate as the others do.
    variances = np.where(telling, squares / np.where(telling, freedoms, 1.0), common)
    freedoms = np.where(telling, freedoms, freedoms.sum())
    return SideBySide(
        levels=levels,
        operator=operator,
        cell_of=np.asarray(cell_of, dtype=np.intp),
        parts=_parts(cells, shared),
        variances=np.maximum(variances, LEAST_VARIANCE),
        freedoms=np.asarray(freedoms, dtype=np.float64),
    )


def _parts(count: int, groups: Sequence[Mapping[int, float]]) -> Integers:
    """Return for each cell the least cell that it is connected with through groups."""
    parts = np.arange(count, dtype=np.intp)
    for _ in range(count):
        before = parts.copy()
        for group in groups:
            members = list(group)
            parts[members] = parts[members].min()
        if (parts == before).all():
            break
    return parts
