"""What a report is: an object that every command and format asks in the same way (``reports/README.md``)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from dlbench.adapters.protocol import Cell
from dlbench.reports.against.analysis import Stand
from dlbench.reports.against.published_tables import TABLES
from dlbench.reports.cells import Builds, Matrix, build_matrix
from dlbench.reports.claims.claim import Claim
from dlbench.reports.errors import ReportError
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import Page
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.results import Narrowing, Results

Found = TypeVar("Found")

QUANTITY, REFERENCE, AGAINST, ALL_RUNS, ALL_MODES = "quantity", "reference", "against", "all_runs", "all_modes"
PAPER, CLAIMS, FAIL_ON, FLEET, TOP = "paper", "claims", "fail_on", "fleet", "top"
"""The choices that a report may offer; stores, a run, a suite and a machine can be chosen for every one."""


@dataclass(frozen=True)
class Choices:
    """What a reader chose; a report passes over what it does not offer."""

    quantity: str = "seconds"
    reference: str = ""
    """A published table instead of stores."""
    against: str = ""
    """A published table beside one's own results."""
    all_runs: bool = False
    all_modes: bool = False
    top: int = 12
    """Of a long list, how many lines are shown."""
    paper: str = ""
    """Claims of this paper only."""
    claims: tuple[Claim, ...] = ()
    """Claims of the reader's own."""
    fail_on: str = ""
    """A verdict that makes the command fail."""
    fleet: str = ""
    """This fleet only: its id, or the beginning of it."""


@dataclass(frozen=True)
class Source:
    """Where a report gets what it is made of; nothing is read before it is asked for."""

    results: Callable[[], Results]
    runs: Callable[[], list[tuple[Run, int]]] = list
    """Every run with the number of its records."""
    choices: Choices = field(default_factory=Choices)
    releases: Mapping[tuple[str, str], date] = field(default_factory=dict)
    """When versions of frameworks were released, by adapter and version."""
    stands: Mapping[str, Stand] = field(default_factory=dict)
    """Which framework of now stands for each of a published table."""
    of_run: Callable[[str], Results] = lambda run: Results()
    """Returns the results of one run, of both sides where it has two."""
    sentinels: Callable[[str], list[tuple[int, str, dict[str, Any]]]] = lambda run: []
    """Returns the sentinel's readings of one run: block, "before" or "after", content."""
    narrowing: Narrowing = field(default_factory=Narrowing)
    """What was asked for; `results` are narrowed to it, `runs` and `of_run` are not."""

    def matrix(self) -> Matrix:
        """Return the matrix of the results, or the published one that was chosen instead."""
        return self._matrix

    @cached_property
    def _matrix(self) -> Matrix:
        if self.choices.reference:
            return TABLES[self.choices.reference]()
        return build_matrix(self.results(), self.choices.all_runs)

    def builds(self) -> Builds:
        """Return the builds of the results."""
        return Builds(self.results().records, self.releases)


def _by_its_own_command(source: Source) -> Any:
    raise NotImplementedError("this report is made by a command of its own")


@dataclass(frozen=True)
class Report(Generic[Found]):
    """One report. Its folder holds what these names stand for."""

    name: str
    """Of the command: `dlbench report NAME`, or `dlbench NAME` where it has one of its own."""
    summary: str
    """For --help: a sentence, and paragraphs behind it."""
    examples: tuple[str, ...]
    """Commands."""
    page: Callable[[Found, Choices], Page]
    """As words and tables."""
    data: Callable[[Found], Any]
    """As plain JSON types."""
    rows: Callable[[Found], Rows]
    """As lines of one table."""
    analyse: Callable[[Source], Found] = _by_its_own_command
    """Makes of stored results what the others show."""
    own_formats: Mapping[str, Callable[[Found], str]] = field(default_factory=dict)
    """Formats that it alone has, or in which it looks otherwise than its page."""
    draw: Callable[[Found, Path, Choices], list[Path]] | None = None
    """Draws it to this path, and returns the files written; None where it has no picture."""
    drawable: Callable[[Found], bool] = bool
    """Whether there is anything to draw."""
    invitation: str = ""
    """What it shows, for somebody who has just measured something; empty: it is not suggested."""
    tells: Callable[[Collection[Cell]], bool] = bool
    """Whether it has something to show where these cells have numbers."""
    heading: str = ""
    """What stands over its section of the report page; empty: the page has no section of it."""
    place: int = 50
    """Where its section stands among the others."""
    section_quantity: str = ""
    """What its section shows in its cells; empty: the first of its quantities."""
    headline: Callable[[Found], list[str]] = lambda found: []
    """Sentences for the head of a page: what it found that noise does not explain."""
    worth_a_section: Callable[[Found], bool] = lambda found: True
    """Whether the page has a section of what it found."""
    offers: frozenset[str] = frozenset()
    """Which of the choices above it has a use for."""
    beside: tuple[str, ...] = ()
    """Published tables that it shows itself beside the results (`--against`); without any the report `against` does."""
    families: frozenset[str] = frozenset()
    """Of which families of networks it tells; empty: of all."""
    quantities: tuple[str, ...] = ()
    """What may be shown in its cells, the usual one first."""
    trainings: bool = False
    """Whether it needs what trained on a text, of older runs too."""
    check_further: Callable[[Choices], None] = lambda choices: None
    """Raises ReportError for choices of its own that cannot be."""
    code: Callable[[Found, Choices], int] = lambda found, choices: 0
    """The exit code of its command."""

    @property
    def of_stores(self) -> bool:
        """Whether it is made of stored results alone, rather than by a command of its own."""
        return self.analyse is not _by_its_own_command

    def check(self, choices: Choices) -> None:
        """Raise ReportError for a quantity that it does not have, and for other choices that cannot be."""
        self.check_further(choices)
        if self.quantities and choices.quantity not in self.quantities:
            known = ", ".join(self.quantities)
            raise ReportError(f"There is no quantity {choices.quantity!r} to show here; choose one of {known}.")
