"""The content of a page before it is HTML: results, their matrix, and what only the command knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import Matrix, build_matrix
from dlbench.reports.flags import disturbed
from dlbench.reports.history.nights import CellHistory
from dlbench.reports.published import Counterpart
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.storage.record import BASELINE, Record, Run, last_attempts
from dlbench.reports.storage.results import Narrowing, Results


@dataclass(frozen=True)
class Launch:
    """One launch of a cell, and whether it counts."""

    record: Record
    counts: bool
    """Whether the cell's number rests on it: of a repeated launch one attempt counts."""
    disturbed: bool
    """Whether other programs used its CPUs."""


@dataclass(frozen=True)
class Document:
    """Everything that a page shows."""

    title: str
    results: Results
    made: datetime
    version: str
    """Of the dlbench that makes the page."""
    runs: tuple[tuple[Run, int], ...] = ()
    """The runs of the stores, each with the number of its records."""
    of_run: Callable[[str], Results] = lambda run: Results()
    """Returns the results of one run, of both sides where it has two."""
    sentinels: Callable[[str], list[tuple[int, str, dict[str, Any]]]] = lambda run: []
    """Returns the sentinel's readings of one run."""
    narrowing: Narrowing = field(default_factory=Narrowing)
    note: str = ""
    """The publisher's note, as Markdown."""
    rerun_command: Callable[[Cell, str, int], str] = lambda cell, suite, launches: ""
    """Returns the command that measures a cell of a suite again, in so many launches."""
    all_runs: bool = False
    """Whether a cell's number rests on its launches of all runs, not only of its newest."""
    releases: Callable[[], Mapping[tuple[str, str], date]] = dict
    counterparts: Callable[[], Mapping[str, Counterpart]] = dict
    histories: Mapping[tuple[str, Cell], Sequence[CellHistory]] = field(default_factory=dict)
    """By machine and cell its nights in the stores, where there are several."""

    @cached_property
    def matrix(self) -> Matrix:
        """The cells, each with its number or the reason why there is none."""
        return build_matrix(self.results)

    @cached_property
    def launches(self) -> dict[tuple[str, Cell], list[Launch]]:
        """By machine and cell the launches behind its number, the repeated ones too, the oldest first."""
        shown = {(cell.column.machine, cell.cell): cell for cell in self.matrix.cells.values()}
        found: dict[tuple[str, Cell], list[Record]] = {}
        for record in sorted(self.results.records, key=lambda each: each.started):
            cell = shown.get(key := (record.machine, record.cell._replace(adapter="")))
            if cell is None or record.side == BASELINE or (cell.environment not in ("", record.environment)):
                continue
            if self.all_runs or record.run == cell.run:
                found.setdefault(key, []).append(record)
        return {key: self._judged(key[0], records) for key, records in found.items()}

    def _judged(self, machine: str, records: list[Record]) -> list[Launch]:
        host = self.results.hosts.get(machine)
        counting = {id(record) for record in last_attempts(records)}
        return [Launch(each, id(each) in counting, disturbed(each, host)) for each in records]

    def source(self) -> Source:
        """Return the input of this page's reports."""
        return Source(
            lambda: self.results,
            lambda: list(self.runs),
            ReportOptions(all_runs=self.all_runs),
            self.releases,
            self.counterparts,
            self.of_run,
            self.sentinels,
            self.narrowing,
        )
