"""The content of a page before it is HTML: the input of its reports, and facts of the command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from dlbench.adapters.protocol import Cell
from dlbench.reports.history.nights import Series
from dlbench.reports.report import ReportSource
from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.disturbance import disturbed
from dlbench.reports.results.keys import Place
from dlbench.reports.results.matrix import Matrix
from dlbench.reports.results.record import BASELINE, Record, last_attempts
from dlbench.reports.results.results import Results


class ShownLaunch(NamedTuple):
    """One launch of a cell."""

    record: Record
    counts: bool
    """Whether the cell's number rests on it. One attempt of a repeated launch counts."""
    disturbed: bool


@dataclass(frozen=True)
class Document:
    """Everything that a page shows."""

    title: str
    source: ReportSource
    made: datetime
    version: str
    note: str = ""
    """The publisher's note, as Markdown."""
    rerun_command: Callable[[Cell, str, int], str] = lambda cell, suite, launches: ""
    """Returns the command that measures a cell of a suite again, in this many launches."""
    histories: Mapping[tuple[str, Cell], Sequence[Series]] = field(default_factory=dict)
    """Nights in the stores by machine and cell, where there are several."""

    @property
    def matrix(self) -> Matrix:
        """The cells, each with its number or the reason why there is none."""
        return self.source.matrix()

    @cached_property
    def results(self) -> Results:
        """The records behind the matrix."""
        return self.source.results()

    def launches_of(self, cell: CellResult) -> list[ShownLaunch]:
        """Return the launches behind a cell's number, the repeated ones too, the oldest first."""
        return self.launches.get(cell.place, [])

    @cached_property
    def launches(self) -> dict[Place, list[ShownLaunch]]:
        """The launches of each cell by machine and cell."""
        counting = {id(record) for record in last_attempts(self.results.records)}
        launches: dict[Place, list[ShownLaunch]] = {}
        for record in sorted(self.results.records, key=lambda record: record.started):
            cell = self.matrix.cells.get(record.place)
            if cell is None or record.side == BASELINE:
                continue
            if cell.environment not in ("", record.environment):
                continue
            if self.source.options.all_runs or record.run == cell.run:
                was_disturbed = disturbed(record, self.results.hosts.get(record.machine))
                launch = ShownLaunch(record, id(record) in counting, was_disturbed)
                launches.setdefault(record.place, []).append(launch)
        return launches

    def all_launches(self) -> list[ShownLaunch]:
        """Return the launches of all cells."""
        all_launches: list[ShownLaunch] = []
        for launches in self.launches.values():
            all_launches += launches
        return all_launches
