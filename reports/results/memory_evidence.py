"""Evidence of memory that does not stay: the pages that a step gets from the kernel anew.

An allocator that returns freed memory to the kernel gets it back at the next step, page by page,
each by a minor page fault. Whether it does so depends on the layout of its heap, which differs
between launches and changes within one, so launches of identical code take different times. The
seconds that faults cost are an estimate: their number times the cost of one, which the launch
measured itself. Threads that fault at once lose less wall time than that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from dlbench.reports.results.outcome import Outcome

KEEP_HEAP = "keep_heap"
"""The launch setting that lets freed memory stay with the process."""
NOTICEABLE = 0.02
"""States differ where their faults account for more than this share of a step."""
_LOW, _HIGH = 0.1, 0.9
"""Quantiles of a launch's samples: a state that fewer samples are in does not count."""


@dataclass(frozen=True)
class MemoryObserved:
    """Minor page faults of a cell's launches, those of the measuring process."""

    faults: float
    """A step's: the median of the launches' means."""
    fewest: float
    most: float
    """Of the means of single launches."""
    share: float | None
    """Of a step's seconds that the faults account for, at most; None where the cost of one is not
    known."""


def faults_per_step(outcome: Outcome) -> float | None:
    """Return the mean minor page faults of a timed step; None where they were not read."""
    if outcome.sample_counts is None or not outcome.sample_counts.minor_faults:
        return None
    return sum(outcome.sample_counts.minor_faults) / outcome.timed_steps()


def share_of_step(outcome: Outcome, faults: float) -> float | None:
    """Return the share of a launch's median step that so many faults take; None where unknown."""
    seconds = outcome.median_seconds()
    if outcome.fault_seconds is None or not seconds:
        return None
    return faults * outcome.fault_seconds / seconds


def observe_memory(outcomes: Sequence[Outcome]) -> MemoryObserved | None:
    """Return the page faults of a cell's launches; None where no launch read them."""
    means = []
    shares = []
    for outcome in outcomes:
        faults = faults_per_step(outcome)
        if faults is not None:
            means.append(faults)
            shares.append(share_of_step(outcome, faults))
    if not means:
        return None
    return MemoryObserved(median(means), min(means), max(means), _median(shares))


def _median(shares: Sequence[float | None]) -> float | None:
    """Return the median of the shares that are known; None where none is."""
    measured = [share for share in shares if share is not None]
    return median(measured) if measured else None


def states_within(outcome: Outcome, kept: bool = False) -> str:
    """Return in words how the samples of a launch differ in their page faults.

    Empty where it does not matter. ``kept``: freed memory stays with the process already, so that
    there is nothing to advise.
    """
    import numpy as np  # not at the top: to plan a run takes a constant of this module alone

    counts = outcome.sample_counts
    if counts is None or len(counts.minor_faults) < 2:
        return ""
    faults = np.asarray(counts.minor_faults) / outcome.steps_per_sample
    fewest, most = (float(value) for value in np.quantile(faults, (_LOW, _HIGH)))
    share = share_of_step(outcome, most - fewest)
    return _describe("the steps of a launch", fewest, most, share, kept)


def states_between(outcomes: Sequence[Outcome], kept: bool = False) -> str:
    """Return in words how launches of a cell differ in their page faults, as `states_within`."""
    observed = observe_memory(outcomes)
    if observed is None:
        return ""
    share = _median(
        [share_of_step(outcome, observed.most - observed.fewest) for outcome in outcomes]
    )
    return _describe("launches", observed.fewest, observed.most, share, kept)


def _describe(subject: str, fewest: float, most: float, share: float | None, kept: bool) -> str:
    if share is None or share < NOTICEABLE:
        return ""
    sentence = (
        f"{subject} fault in {fewest:,.0f} to {most:,.0f} pages a step, about {share:.0%} of its "
        "time"
    )
    if kept:
        return sentence
    return f"{sentence}; the setting {KEEP_HEAP} (--tuning) lets the memory stay"
