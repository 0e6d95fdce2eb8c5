"""What a comparison is: two sides, cell by cell, each with its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell, Status
from dlbench.reports.cells import group_of, row_of
from dlbench.reports.comparison.verdict import Judgement, Rule, Verdict
from dlbench.reports.flags import Flag
from dlbench.reports.statistics import Ratio
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.networks import in_order as network_order
from dlbench.reports.storage.record import SCREEN as SCREEN

BASELINE, CANDIDATE = "baseline", "candidate"
CONFIRM = "confirm"

Pairs = tuple[tuple[float, ...], tuple[float, ...]]
"""(baseline, candidate): median seconds per step of launches made side by side."""


@dataclass(frozen=True)
class SideOfCell:
    """One side of a cell: what its launches gave."""

    status: Status
    reason: str
    seconds: tuple[float, ...]
    """Median seconds per step of each undisturbed launch with a number."""
    contended: int
    """Launches left out since others were in the way."""
    environment: str
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class CellComparison:
    """One cell on both sides, and the verdict."""

    cell: Cell
    baseline: SideOfCell
    candidate: SideOfCell
    judgement: Judgement
    stage: str = ""
    """Of a gate: the stage that the verdict rests on."""
    pairs: Mapping[str, Pairs] = field(default_factory=dict)
    """By stage, those of launches measured side by side; empty where nothing was."""

    @property
    def broken(self) -> bool:
        """Whether the candidate fails where the baseline does not."""
        return self.baseline.status is Status.OK and self.candidate.status not in (Status.OK, Status.SKIPPED)

    @property
    def measured(self) -> bool:
        """Whether both sides gave a number."""
        return bool(self.baseline.seconds) and bool(self.candidate.seconds)


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline over all cells that either side measured, in a settled order."""

    baseline: str
    """What it is, in words."""
    candidate: str
    hosts: tuple[Host, ...]
    """One, or of a comparison of machines two."""
    purpose: str
    """"gate" or "compare"."""
    same_session: bool
    cells: tuple[CellComparison, ...]
    geometric_mean: Ratio | None
    """Over all cells with an interval."""
    rule: Rule
    notes: tuple[str, ...] = ()
    unmeasured: int = 0
    """Cells that were planned and have no launch yet."""

    def having(self, verdict: Verdict) -> tuple[CellComparison, ...]:
        """Return the cells with this verdict."""
        return tuple(cell for cell in self.cells if cell.judgement.verdict is verdict)

    @property
    def regressions(self) -> tuple[CellComparison, ...]:
        """The cells that fail a build."""
        return self.having(Verdict.REGRESSION)

    @property
    def broken(self) -> tuple[CellComparison, ...]:
        """The cells of which the candidate gave no number though the baseline did."""
        return tuple(cell for cell in self.cells if cell.broken)


def in_order(cell: Cell) -> tuple[object, ...]:
    """Return a sort key: networks as listed, then everything else by name, devices, workers and threads last."""
    group = *network_order(cell.network), cell.batch_size, axes.sort_key(group_of(cell))
    return (*group, row_of(cell), not cell.on_cpu, cell.device, axes.sort_key(axes.without(cell, "threads")), cell)
