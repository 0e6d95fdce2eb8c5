"""One row of a matrix over its thread counts: the points of a curve, and what follows from them."""

from dataclasses import dataclass

from dlbench.adapters import axes
from dlbench.adapters.families.own import Own
from dlbench.adapters.protocol import BOUND, Cell
from dlbench.reports.cells import CellResult, Group, Row
from dlbench.reports.naming import row_name
from dlbench.reports.statistics import Contrast, Summary
from dlbench.reports.storage.hosts import Host
from dlbench.reports.threads.fits import Fits


@dataclass(frozen=True)
class Point:
    """One thread count of a curve; a hole has a cell with a status and no seconds."""

    threads: int
    cell: CellResult
    seconds: Summary | None
    """None for a hole, and for a number that cannot be used."""
    calm: bool
    """Whether it takes part in best, comparisons, findings and fits: nobody was in the way, or all over."""
    speedup: float | None
    """T(1) / T(p)."""
    efficiency: float | None
    """Speed-up / p."""
    serial_fraction: float | None
    """Karp and Flatt's, of this speed-up; for p from 2 to the effective CPUs."""
    penalty: Contrast | None
    """T(p) / T(best)."""
    past_cores: Contrast | None
    """For p beyond the physical cores, CPUs not bound: T(p) / the fastest within them."""
    past_cpus: Contrast | None
    """For p beyond the effective CPUs: T(p) / the fastest within them."""


@dataclass(frozen=True)
class Curve:
    """How one row of the matrix goes with the number of threads on one machine."""

    host: Host
    group: Group
    row: Row
    points: tuple[Point, ...]
    best: int | None
    """The thread count to use; None where nothing was timed."""
    default: int | None
    """The framework's own thread count where nobody sets one; None where it is not known."""
    fits: Fits | None
    """Scaling laws; None where the same row bound to its CPUs has them, or nothing was timed."""
    mechanism: str
    """Why the slowest point past the best is slower, as far as the evidence tells; may be empty."""
    advice: str
    """One plain sentence."""

    @property
    def name(self) -> str:
        """The row in words."""
        return row_name(self.row._replace(mode="") if self.row.mode == "2016" else self.row)

    @property
    def cell(self) -> Cell:
        """What the points have in common: all but their threads."""
        return axes.without(self.points[0].cell.cell, "threads")

    @property
    def bound(self) -> bool:
        """Whether p threads had p CPUs to themselves, rather than all there are."""
        return self.row.affinity == BOUND

    @property
    def computes(self) -> bool:
        """Whether anything was computed: a framework that only waits has the scaling that somebody wrote for it."""
        return not any(computes_nothing(point.cell) for point in self.points)


def computes_nothing(cell: CellResult) -> bool:
    """Tell whether a timed cell is of a framework without mathematics: no parameters, hence no rate, nor any parity.

    A published cell has no parity either, but does not say "unchecked". Of a user's own step only its author knows it.
    """
    if cell.group.network == Own.name:
        return False
    unchecked = cell.parity is not None and cell.parity.verdict == "unchecked"
    return cell.seconds is not None and unchecked and cell.gflops is None
