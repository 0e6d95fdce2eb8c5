"""The first losses or outputs of a user's own step, which show whether two sides compute the same.

A network of dlbench is checked against its float64 reference. Only its author knows the mathematics
of a user's own step, so its launches are compared with one another: within a side when they are
measured, between sides on reading.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlbench.adapters.protocol import Parity, Status
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.record import Record

Numbers = tuple[float, ...]
"""Of a step: its loss alone, or in inference some of its outputs."""


class FirstLosses(NamedTuple):
    """The first losses of one side of a cell, or its first outputs: medians over its launches."""

    values: tuple[Numbers, ...]
    """For each step, a loss before its update; empty where the step reports none."""
    tolerance: float
    """Largest relative difference between two launches that compute the same
    (`--loss-tolerance`)."""


class LossDifference(NamedTuple):
    """A step after which two sides have computed different things."""

    step: int
    """From 1: the step whose losses, or outputs, are furthest apart."""
    baseline: float | None
    """Its loss; None of outputs."""
    candidate: float | None
    error: float
    """Relative to the baseline's loss, or to the size of its outputs."""
    tolerance: float

    @property
    def words(self) -> str:
        """The difference as the end of a sentence."""
        if self.baseline is None or self.candidate is None:
            return (
                f"outputs of call {self.step} off by {self.error:.1e} (tolerance "
                f"{self.tolerance:.0e})"
            )
        return (
            f"loss of step {self.step} {self.candidate:.6g} instead of {self.baseline:.6g}, off by "
            f"{self.error:.1e} (tolerance {self.tolerance:.0e})"
        )


def relative_error(numbers: Numbers, reference: Numbers) -> float:
    """Return how far a loss or outputs are from others, relative to the size of those.

    Infinite for another count of numbers.
    """
    if len(numbers) != len(reference):
        return math.inf
    return math.dist(numbers, reference) / max(math.hypot(*reference), 1e-30)


def first_numbers(parity: Parity) -> list[Numbers]:
    """Return the losses, or outputs, that a launch of a user's own step reports at first."""
    if parity.outputs:
        return [tuple(outputs) for outputs in parity.outputs]
    return [(loss,) for loss in parity.losses]


def first_losses(records: Iterable[Record]) -> FirstLosses | None:
    """Return the first losses of a user's own step by launches of one cell; None for other cells.

    Launches that failed do not count. Medians keep one launch at the edge of the tolerance from
    deciding.
    """
    launches: list[Sequence[Numbers]] = []
    tolerances: list[float] = []
    for record in records:
        family = family_of_record(record)
        parity = record.outcome.parity
        if family is None or family.specified:
            continue
        if parity is not None and record.outcome.status is Status.OK:
            launches.append(first_numbers(parity))
            tolerances.append(parity.loss_tolerance)
    if not launches:
        return None
    medians = []
    for step in zip(*launches, strict=False):
        columns = zip(*step, strict=False)  # as many as the shortest has
        medians.append(tuple(map(statistics.median, columns)))
    return FirstLosses(tuple(medians), max(tolerances))


def loss_difference(
    baseline: FirstLosses | None, candidate: FirstLosses | None
) -> LossDifference | None:
    """Return the difference of two sides' losses; None where they agree, or a side has none."""
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
    before, after = pairs[place]
    if len(before) == len(after) == 1:
        return LossDifference(place + 1, before[0], after[0], errors[place], tolerance)
    return LossDifference(place + 1, None, None, errors[place], tolerance)


def without_losses(baseline: FirstLosses | None, candidate: FirstLosses | None) -> bool:
    """Tell whether two sides of a user's own step were not compared for lack of losses."""
    if baseline is None or candidate is None:
        return False
    return not baseline.values or not candidate.values
