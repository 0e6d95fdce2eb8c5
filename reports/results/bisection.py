"""The result of a bisection: the first slower candidate, or why none can be named.

A search for the first faster one (`--faster`) goes backwards in time from the good end, which is
then the later one: the point where it gets slower is the same, and the candidate on its good side
is the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from dlbench.adapters.protocol import Cell
from dlbench.reports.results.comparison import CellComparison
from dlbench.reports.results.hosts import Host
from dlbench.reports.results.naming import counted
from dlbench.reports.results.operators import StepDifference
from dlbench.reports.results.posterior import Assessment
from dlbench.reports.results.statistics import Estimate
from dlbench.reports.results.verdict import Rule, Verdict, estimate_pairs


class BisectionOutcome(StrEnum):
    """How a bisection ends."""

    FOUND = "found"
    """One candidate, or neighbours that cannot be separated, is the first slower one."""
    NO_SLOWDOWN = "no slowdown"
    """The bad end is not slower than the good one, or faster."""
    SEVERAL = "several changes"
    DIFFERENT = "different"
    """The bad end computes something else than the good one."""
    NO_NUMBER = "no number"
    """An end of the series gives none."""
    UNDECIDED = "undecided"


_OUTCOMES_OF_ENDS = {
    Verdict.NO_REGRESSION: BisectionOutcome.NO_SLOWDOWN,
    Verdict.IMPROVEMENT: BisectionOutcome.NO_SLOWDOWN,
    Verdict.DIFFERENT: BisectionOutcome.DIFFERENT,
    Verdict.BROKEN: BisectionOutcome.NO_NUMBER,
    Verdict.HOLE: BisectionOutcome.NO_NUMBER,
}


@dataclass(frozen=True)
class TriedCandidate:
    """One candidate that was tried."""

    name: str
    about: str
    """A commit's subject, or empty."""
    pairs: int
    """Undisturbed ones."""
    ratio: Estimate | None
    """Its time over the good one's, in pairs; without an interval if there are too few."""
    slower: float | None
    """The probability that it has the slowdown; None if unknown."""
    problem: str
    """Why it cannot be tested; empty where it can."""


@dataclass(frozen=True)
class Bisection:
    """What a bisection has found so far."""

    kind: str
    """What a candidate is: "release", "commit" or "build"."""
    good: str
    names: tuple[str, ...]
    """Of all candidates, in order; the last one is the bad one."""
    cell: Cell
    """The cell that is measured, under the framework's own name."""
    host: Host
    ends: CellComparison
    """The bad one against the good one, by the looks of a gate."""
    assessment: Assessment | None
    """None before the ends are known to differ."""
    tried: tuple[TriedCandidate, ...]
    """In order."""
    confidence: float
    rule: Rule
    pairs: int
    """Pairs begun."""
    disturbed: int
    """Pairs that do not count."""
    command: str
    """Measures it again."""
    faster: bool = False
    """Whether it goes backwards in time, to the first faster one."""
    operators: StepDifference | None = None
    """Operators that account for the difference between the last fast and the first slow one."""

    @property
    def bad(self) -> str:
        """The name of the bad one."""
        return self.names[-1]

    @property
    def outcome(self) -> BisectionOutcome:
        """How it ended, by the pairs so far."""
        assessment = self.assessment
        if assessment is None:
            return _OUTCOMES_OF_ENDS.get(self.ends.verdict, BisectionOutcome.UNDECIDED)
        if not assessment.decided(self.confidence):
            return BisectionOutcome.UNDECIDED
        if assessment.several >= self.confidence:
            return BisectionOutcome.SEVERAL
        if max(assessment.places) >= self.confidence:
            return BisectionOutcome.FOUND
        return BisectionOutcome.UNDECIDED

    @property
    def _span(self) -> tuple[int, int]:
        """The smallest probable range of testable candidates: its first and last index."""
        if self.assessment is None:
            return 0, -1
        return self.assessment.range(self.confidence)

    @property
    def _edge(self) -> tuple[int, int]:
        """The places of the last fast one that was tested and of the first slow one.

        They count from the good one on.
        """
        if self.assessment is None:
            return 0, 0
        first, last = self._span
        places = (0, *self.assessment.candidates)
        return places[first], places[last + 1]

    @property
    def suspects(self) -> tuple[str, ...]:
        """The possible answers in order of time, including untestable ones in between.

        Empty before the ends are known to differ.
        """
        if self.assessment is None:
            return ()
        fast, slow = self._edge
        names = (self.good, *self.names)
        if self.faster:
            return names[fast:slow][::-1]
        return names[fast + 1 : slow + 1]

    @property
    def beside(self) -> tuple[str, str]:
        """The last fast one that was tested, and the first slow one."""
        fast, slow = self._edge
        names = (self.good, *self.names)
        return names[fast], names[slow]

    @property
    def probability(self) -> float:
        """The probability that the first slower one is among these."""
        if self.assessment is None:
            return 0.0
        first, last = self._span
        return sum(self.assessment.places[first : last + 1])

    @property
    def before(self) -> str:
        """The last one before the answer that can be tested."""
        fast, slow = self.beside
        return slow if self.faster else fast

    @property
    def between(self) -> str | None:
        """The candidate that best shows that there are several changes."""
        if self.assessment is None or self.assessment.between is None:
            return None
        return self.names[self.assessment.between - 1]


def candidate(
    name: str, about: str, logs: Sequence[float], slower: float | None, problem: str
) -> TriedCandidate:
    """Return a candidate by the logarithms of its pairs' ratios."""
    ratio = None
    if logs:
        estimate = estimate_pairs([1.0] * len(logs), np.exp(logs).tolist())
        method = f"Hodges-Lehmann estimate over {counted(len(logs), 'pair')}"
        ratio = Estimate(estimate.value, estimate.low, estimate.high, method)
    return TriedCandidate(name, about, len(logs), ratio, slower, problem)
