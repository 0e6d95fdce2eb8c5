"""What launches of a step of the user's own are held against: the losses of the run's first one."""

from collections.abc import Iterable
from typing import Self

from dlbench.adapters.families import Family
from dlbench.adapters.networks import family_of
from dlbench.adapters.protocol import Cell, Outcome, Status
from dlbench.reports.storage.record import Record


class FirstLosses:
    """The losses of the first steps, by what launches share of whom they are the same.

    A file is told by its name, which is what its launches call their framework: each of several files has its own.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._told: dict[tuple[object, ...], tuple[float, ...]] = {}

    @classmethod
    def of(cls, records: Iterable[Record]) -> Self:
        """Return those of a run's records so far."""
        found = cls()
        for record in records:
            if record.network is not None:
                found.note(record.cell, record.outcome, family_of(record.network))
        return found

    def told_of(self, file: str, cell: Cell) -> tuple[float, ...] | None:
        """Return those that a launch of this file's cell must agree with; None where it is the first."""
        return self._told.get(_shared(file, cell))

    def note(self, cell: Cell, outcome: Outcome, family: Family) -> None:
        """Keep those of a launch, where its mathematics is its author's and it is the first."""
        losses = outcome.parity.losses if outcome.parity is not None else []
        if not family.specified and outcome.status is Status.OK and losses:
            file = str(outcome.software.get("framework", ""))
            self._told.setdefault(_shared(file, cell), tuple(losses))


def _shared(file: str, cell: Cell) -> tuple[object, ...]:
    """Return what launches share whose first losses are the same: not threads, launch or build."""
    return file, cell.network, cell.device, cell.batch_size, cell.precision
