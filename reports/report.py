"""A report: an object that all commands and formats use in the same way (``write-a-report.md``)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dlbench.adapters.protocol import Cell
from dlbench.reports.columns import csv_rows, objects
from dlbench.reports.formats.csv import Rows
from dlbench.reports.formats.layout import Page
from dlbench.reports.results.conclusion import Conclusion, conclusion_data
from dlbench.reports.results.errors import ReportError
from dlbench.reports.results.matrix import Matrix, build_matrix
from dlbench.reports.results.record import Run
from dlbench.reports.results.results import Narrowing, Results

if TYPE_CHECKING:
    from dlbench.reports.builds import MeasuredBuilds
    from dlbench.reports.claims.claims import Claim
    from dlbench.reports.results.published import Counterpart

Content = TypeVar("Content")

# Options that a report may take. Every report takes stores, a run, a suite, a machine and the axes.
QUANTITY = "quantity"
REFERENCE = "reference"
AGAINST = "against"
ALL_RUNS = "all_runs"
ALL_MODES = "all_modes"
PAPER = "paper"
CLAIMS = "claims"
FAIL_ON = "fail_on"
FLEET = "fleet"
TOP = "top"
WITHIN = "within"


@dataclass(frozen=True)
class ReportOptions:
    """Values of the options that reports take; a report ignores those that it does not take."""

    quantity: str = "seconds"
    reference: str = ""
    """A published table instead of stores."""
    against: str = ""
    all_runs: bool = False
    all_modes: bool = False
    top: int = 12
    """Lines to show of a long list."""
    paper: str = ""
    claims: "tuple[Claim, ...]" = ()
    """The reader's own claims."""
    fail_on: str = ""
    """A verdict that makes the command fail."""
    fleet: str = ""
    within: str = ""
    """The longest time of the slowest call in a hundred, as in "20ms"."""


@dataclass(frozen=True)
class ReportSource:
    """The input of a report; each part is read when it is first used."""

    results: Callable[[], Results]
    runs: Callable[[], list[tuple[Run, int]]] = list
    """Every run with the number of its records."""
    options: ReportOptions = field(default_factory=ReportOptions)
    releases: Callable[[], Mapping[tuple[str, str], date]] = dict
    """Release dates of frameworks, by adapter and version."""
    counterparts: "Callable[[], Mapping[str, Counterpart]]" = dict
    """Today's counterpart of each framework of a published table."""
    of_run: Callable[[str], Results] = lambda run: Results()
    """Returns the results of one run, of both sides where it has two."""
    sentinels: Callable[[str], list[tuple[int, str, dict[str, Any]]]] = lambda run: []
    """Returns the sentinel's readings of one run: block, "before" or "after", content."""
    narrowing: Narrowing = field(default_factory=Narrowing)
    """The filter of the command line; `results` are narrowed to it, `runs` and `of_run` are not."""

    def matrix(self) -> Matrix:
        """Return the matrix of the results, or of the published table that replaces them."""
        return self._matrix

    @cached_property
    def _matrix(self) -> Matrix:
        if self.options.reference:
            from dlbench.reports.results.published import study
            from dlbench.reports.results.published_matrix import published_matrix

            return published_matrix(study(self.options.reference))
        return build_matrix(self.results())

    def builds(self) -> "MeasuredBuilds":
        """Return the builds of the results."""
        from dlbench.reports.builds import MeasuredBuilds

        return MeasuredBuilds(self.results().records, self.releases())


def _refuse(source: ReportSource) -> Any:
    raise NotImplementedError("this report is made by a command of its own")


@dataclass(frozen=True)
class Report(Generic[Content]):
    """One report, in a module that begins with ``REPORT = Report(name="NAME"``."""

    name: str
    """Of the command: `dlbench report NAME`, if it is made of stored results."""
    summary: str
    """For --help: a sentence, and paragraphs behind it."""
    examples: tuple[str, ...]
    page: Callable[[Content, ReportOptions], Page]
    """Returns its text and tables, declared by columns (`reports.columns`)."""
    analyse: Callable[[ReportSource], Content] = _refuse
    conclusion: Callable[[Content], Conclusion] | None = None
    """Its verdict, at the head of its JSON; None: it shows and judges nothing."""
    data: Callable[[Content], Any] | None = None
    """Its JSON; by default the rows of the page's tables by their keys, and its lines as notes."""
    rows: Callable[[Content], Rows] | None = None
    """Its CSV; by default the first of the page's tables that have a key."""
    own_formats: Mapping[str, Callable[[Content], str]] = field(default_factory=dict)
    """Formats that it alone has, or that differ from its page."""
    draw: Callable[[Content, Path, ReportOptions], list[Path]] | None = None
    """Draws it to this path, and returns the files written; None: it has no picture."""
    drawable: Callable[[Content], bool] = bool
    suggestion: str = ""
    """What it shows, in a line after a run; empty: it is not suggested."""
    applies: Callable[[Collection[Cell]], bool] = bool
    """Whether it has something to show where these cells have numbers."""
    heading: str = ""
    """Of its section of the report page; empty: the page has no section of it."""
    place: int = 50
    section_quantity: str = ""
    """The quantity of its section; empty: the first of its quantities."""
    headline: Callable[[Content], list[str]] = lambda content: []
    """Findings for the head of a page: differences that noise does not explain."""
    has_section: Callable[[Content], bool] = bool
    """Whether the page has a section of this content."""
    options: frozenset[str] = frozenset()
    published: tuple[str, ...] = ()
    """Published tables that it shows next to the results (`--against`).

    For others the report `against` does."""
    families: frozenset[str] = frozenset()
    """Families of networks that it covers; empty: all."""
    quantities: tuple[str, ...] = ()
    """Quantities that its cells can show, the usual one first."""
    trainings: bool = False
    """Whether it needs trainings on a text, of older runs too."""
    validate: Callable[[ReportOptions], None] = lambda options: None
    """Raises ReportError for unknown option values."""
    exit_code: Callable[[Content, ReportOptions], int] = lambda content, options: 0

    @property
    def of_stores(self) -> bool:
        """Whether it is made of stored results alone, rather than by a command of its own."""
        return self.analyse is not _refuse

    def check(self, options: ReportOptions) -> None:
        """Raise ReportError for a quantity that it does not have, and other unknown values."""
        self.validate(options)
        if self.quantities and options.quantity not in self.quantities:
            choices = ", ".join(self.quantities)
            raise ReportError(
                f"There is no quantity {options.quantity!r} to show; choose one of {choices}."
            )

    def as_data(self, content: Content) -> Any:
        """Return its content as plain JSON types, with its verdict first where it has one."""
        content_data = self._data_of(content)
        if self.conclusion is None:
            return content_data
        return conclusion_data(self.name, self.conclusion(content), content_data)

    def _data_of(self, content: Content) -> Any:
        if self.data is not None:
            return self.data(content)
        page = self.page(content, ReportOptions())
        data: dict[str, Any] = {}
        for table in page.tables:
            if table.key:
                data.setdefault(table.key, []).extend(objects(table.columns, table.objects))
        data["notes"] = [line for line in (*page.before, *page.after) if line]
        return data

    def as_rows(self, content: Content) -> Rows:
        """Return its content as lines of one table."""
        if self.rows is not None:
            return self.rows(content)
        tables = [table for table in self.page(content, ReportOptions()).tables if table.key]
        if not tables:
            return Rows((), ())
        first = tables[0]
        rows: list[Any] = []
        for table in tables:
            if table.key == first.key:
                rows += table.objects
        return csv_rows(first.columns, rows)
