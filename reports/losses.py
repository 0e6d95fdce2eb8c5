"""Whether two sides compute the same, by the losses of the first steps of a user's own step.

A network of dlbench is checked against its float64 reference. Only its author knows the mathematics of a user's own
step, so its launches are compared with one another: within a side when they are measured, between sides on reading.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlbench.adapters.protocol import Status
from dlbench.reports.storage.networks import family_of_record
from dlbench.reports.storage.record import Record


class FirstLosses(NamedTuple):
    """The first losses of one side of a cell, each the median over its launches."""

    values: tuple[float, ...]
    """One for each step, before its update; empty where the step reports none."""
    tolerance: float
    """Largest relative difference between two launches that compute the same (`--loss-tolerance`)."""


class LossDifference(NamedTuple):
    """A step after which two sides have computed different things."""

    step: int
    """From 1: the step whose losses are furthest apart."""
    baseline: float
    candidate: float
    error: float
    """Relative to the baseline's loss."""
    tolerance: float

    @property
    def words(self) -> str:
        """The difference as the end of a sentence."""
        return (
            f"loss of step {self.step} {self.candidate:.6g} instead of {self.baseline:.6g}, off by {self.error:.1e} "
            f"(tolerance {self.tolerance:.0e})"
        )


def relative_error(loss: float, reference: float) -> float:
    """Return how far a loss is from another one, relative to the other one."""
    return abs(loss - reference) / max(abs(reference), 1e-30)


def first_losses(records: Iterable[Record]) -> FirstLosses | None:
    """Return the first losses of a user's own step by launches of one cell; None for any other network.

    Launches that failed do not count. Medians keep one launch at the edge of the tolerance from deciding.
    """
    launches: list[Sequence[float]] = []
    tolerances: list[float] = []
    for record in records:
        family = family_of_record(record)
        parity = record.outcome.parity
        if family is None or family.specified or parity is None or record.outcome.status is not Status.OK:
            continue
        launches.append(parity.losses)
        tolerances.append(parity.loss_tolerance)
    if not launches:
        return None
    steps = min(len(losses) for losses in launches)
    values = tuple(statistics.median(losses[step] for losses in launches) for step in range(steps))
    return FirstLosses(values, max(tolerances))


def loss_difference(baseline: FirstLosses | None, candidate: FirstLosses | None) -> LossDifference | None:
    """Return by how much the losses of two sides differ; None where they agree, or where a side has none."""
    if baseline is None or candidate is None:
        return None
    pairs = list(zip(baseline.values, candidate.values, strict=False))
    if not pairs:
        return None
    errors = [relative_error(after, before) for before, after in pairs]
    place = errors.index(max(errors))
    tolerance = max(baseline.tolerance, candidate.tolerance)
    if errors[place] <= tolerance:
        return None
    return LossDifference(place + 1, *pairs[place], errors[place], tolerance)


def without_losses(baseline: FirstLosses | None, candidate: FirstLosses | None) -> bool:
    """Tell whether two sides of a user's own step were not compared because one of them reports no loss."""
    if baseline is None or candidate is None:
        return False
    return not baseline.values or not candidate.values
