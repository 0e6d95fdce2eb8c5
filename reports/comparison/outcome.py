"""What a gate comes to as a whole: passed, failed, or undecided, and why in one line.

It passed where every cell that both sides can measure is shown not to be slower, and there is at least one. It failed
where a regression is confirmed, or where the candidate gives no number though the baseline does. Everything else is
undecided: a cell that stayed inconclusive, one that lost its pairs to other programs or has no number, a budget that
ended too early, nothing measured at all. A cell beyond both sides (unsupported, out of memory) counts for nothing.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from dlbench.adapters.protocol import Status
from dlbench.reports.comparison.compared import Comparison
from dlbench.reports.comparison.layout import Finding, by_finding, finding


class Outcome(StrEnum):
    """What a gate comes to."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


class GateOutcome(NamedTuple):
    """The outcome and the reason for it."""

    outcome: Outcome
    why: str

    @property
    def line(self) -> str:
        """The line a gate ends with."""
        return f"gate {self.outcome}: {self.why}"


_SAID = {
    Finding.REGRESSION: "slower than the baseline",
    Finding.BROKEN: "without a number though the baseline has one",
    Finding.INCONCLUSIVE: "inconclusive",
    Finding.CONTENDED: "disturbed by other programs in at least half of the pairs",
    Finding.HOLE: "without a number on a side or not measured",
}
_BEYOND = (Status.UNSUPPORTED, Status.OUT_OF_MEMORY)
_FAILING = (Finding.REGRESSION, Finding.BROKEN)
_OPEN = (Finding.INCONCLUSIVE, Finding.CONTENDED, Finding.HOLE)


def gate_outcome(comparison: Comparison) -> GateOutcome:
    """Return what a gate comes to."""
    counts = {found: len(cells) for found, cells in by_finding(comparison).items()}
    holes = [cell for cell in comparison.cells if finding(cell) is Finding.HOLE]
    beyond = sum(cell.baseline.status in _BEYOND and cell.candidate.status in _BEYOND for cell in holes)
    counts[Finding.HOLE] = len(holes) - beyond + comparison.unmeasured
    return outcome_of(counts, "cell")


def outcome_of(counts: Mapping[Finding, int], noun: str) -> GateOutcome:
    """Return what so many cells (or whatever ``noun`` names) of each finding come to."""
    judged = sum(counts.values())
    measured = judged - counts.get(Finding.HOLE, 0)
    plural = noun if judged == 1 else f"{noun}s"
    if failing := _said(counts, _FAILING):
        return GateOutcome(Outcome.FAILED, f"of {judged} {plural} {failing}")
    if measured == 0:
        return GateOutcome(Outcome.UNDECIDED, f"no {noun} was measured on both sides")
    if open_ones := _said(counts, _OPEN):
        return GateOutcome(Outcome.UNDECIDED, f"of {judged} {plural} {open_ones}")
    return GateOutcome(Outcome.PASSED, f"no slowdown in {judged} {plural}")


def _said(counts: Mapping[Finding, int], of: Sequence[Finding]) -> str:
    return ", ".join(f"{counts[each]} {_SAID[each]}" for each in of if counts.get(each))
