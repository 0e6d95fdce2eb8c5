"""`dlbench report page` and `dlbench report site`: one HTML file, or a folder for many nights."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pydantic.dataclasses

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.compare.report import gate_outcome, headline
from dlbench.reports.formats.markup import escaped
from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.history.nights import NIGHTLY, Series, add_differences, build_history
from dlbench.reports.page.document import Document
from dlbench.reports.page.render import asset, page_to_file_text, policy
from dlbench.reports.report import ReportOptions, ReportSource
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import Run
from dlbench.reports.results.results import Narrowing, Results
from dlbench.reports.results.storage.store import Store
from dlbench.reports.site import (
    Contents,
    HistoryPage,
    SiteNight,
    feed,
    findings_of,
    history_file,
    history_page,
    index_page,
    shifts_of,
)

from ..display.screen import say
from ..environments.folders import write_whole
from ..errors import UsageError
from ..planning.framework import counterparts_of_2016, release_dates
from ..planning.suite import rerun_by_name
from ..run import preparation
from ..run.sides import report_of
from . import options
from .options import option, takes
from .report import ALL_RUNS, SourceOptions, source_of, stores_of


@dataclass(frozen=True, kw_only=True)
class PageOptions(SourceOptions):
    """The options of `dlbench report page`."""

    out: Annotated[Path, option("--out", "The HTML file to write.", metavar="FILE")] = Path(
        "report.html"
    )
    title: Annotated[str, option("--title", "Heading of the page.")] = ""
    note: Annotated[
        Path | None,
        option("--note", "Your note for the top of the page, in Markdown.", metavar="FILE"),
    ] = None
    all_runs: Annotated[bool, ALL_RUNS] = False


@takes(PageOptions)
def page_command(given: PageOptions) -> None:
    """Write a report page: one HTML file with every number and its launches.

    The page needs no network and no other file: filters, plots and raw samples are inside. Without
    JavaScript its tables and plots are still there. For a PDF, print it from any browser.

    Examples:

    - `dlbench report page`
    - `dlbench report page --run latest --note what-we-changed.md`
    """
    if reason := why_unwritable(given.out):
        raise UsageError(f"The page {given.out} cannot be written: {reason}.")
    note = ""
    if given.note is not None:
        try:
            note = given.note.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"The note {given.note} cannot be read: {reason}.") from error
    text = page_text(given, note)
    options.write_file(given.out, text, "The page")
    say(f"Written: {given.out} ({len(text.encode()) / 1e6:.2f} MB).")


def page_text(given: PageOptions, note: str) -> str:
    """Return the HTML of the page, with this note in Markdown. Raises UsageError and StoreError."""
    targets = stores_of(given)
    source = source_of(targets, given, ReportOptions(all_runs=given.all_runs), trainings=True)
    document = Document(
        given.title or "Deep-learning frameworks, measured",
        source,
        datetime.now(UTC),
        preparation.version(),
        note,
        rerun_by_name,
        _histories(targets, source.narrowing),
    )
    return page_to_file_text(document)


def _histories(targets: list[str], narrowing: Narrowing) -> dict[tuple[str, Cell], list[Series]]:
    """Return the series of each machine and cell with several nights.

    Each is from the store with the most nights.
    """
    longest: dict[tuple[str, Cell, str], Series] = {}
    for target in targets:
        with Store.open(target, create=False) as store:
            nights = store.nights(
                suite=narrowing.suite or None, machine=narrowing.machine or None, purpose=NIGHTLY
            )
            history = build_history(nights, store.cells())
        for series in history.cells:
            key = (*_machine_and_cell(series), series.kind)
            known_nights = len(longest[key]) if key in longest else 0
            if len(series) > max(1, known_nights):
                longest[key] = series
    return grouped(longest.values(), _machine_and_cell)


def _machine_and_cell(series: Series) -> tuple[str, Cell]:
    return series.machine, axes.without(series.cell)


MARKER = "site.json"
FORM = 1  # increased whenever a reader of the old form would misread the new one
_EXPLAINED = 100  # changes whose records are read


@pydantic.dataclasses.dataclass(frozen=True)
class _Marker:
    """The content of a site's marker file."""

    dlbench_site: int
    contents: Contents


_MARKER = pydantic.TypeAdapter(_Marker)


@dataclass(frozen=True, kw_only=True)
class SiteOptions:
    """The options of `dlbench report site`."""

    out: Annotated[
        Path,
        option(
            "--out",
            "The folder to write: a new one, an empty one, or the site itself.",
            metavar="FOLDER",
        ),
    ] = Path("site")
    store: Annotated[str, options.STORE] = options.DEFAULT_STORE
    title: Annotated[str, option("--title", "Heading of the index.")] = "Nightly benchmarks"
    url: Annotated[
        str,
        option(
            "--url",
            "Address of the published site, for the links in its feed: "
            "https://example.org/nights/.",
        ),
    ] = ""


@takes(SiteOptions)
def site_command(given: SiteOptions) -> None:
    """Write a site of all nights: an index, a page for each run, and histories.

    Its feed has the confirmed regressions. The site consists of plain files for any web server or
    artifact store, and its pages load nothing. The next call writes only what is new: pages of runs
    without new records stay as they are, and so do those of runs that left the store. Stores of
    several machines may share a site, one call for each. Remove the folder to start over.

    Examples:

    - `dlbench report site`
    - `dlbench report site --store nightly.sqlite --out /var/www/nights`
    """
    address = given.url
    if address and not address.startswith(("https://", "http://")):
        raise UsageError(
            f"--url {address[:80]!r} is not a site address. Write it as "
            "https://example.org/nights/."
        )
    if address and not address.endswith("/"):
        address += "/"
    with Store.open(given.store, create=False) as store:
        counts = store.record_counts()
        runs = [(run, counts[run.id]) for run in store.runs() if counts.get(run.id)]
        if not runs:
            raise UsageError(
                f"{store.name} holds no measured run yet. Fill it night by night: dlbench run "
                "SUITE."
            )
        site = _Site(given.out, store)
        try:
            site.add(runs)
        finally:
            site.save()
    contents = site.contents
    site.write("index.html", index_page(contents, given.title, site.version))
    site.write("feed.xml", feed(contents, given.title, address))
    pages = counted(len(contents.nights), "run")
    files = counted(site.written, "file")
    say(f"Written: {site.path / 'index.html'} ({pages}; {files} new or changed).")


class _Site:
    """A folder with a dlbench site and nothing else, and the store that it is built from."""

    def __init__(self, path: Path, store: Store) -> None:
        """Open the folder, or make it. Raises UsageError for a folder with other files."""
        self.path = path
        self.store = store
        self.version = preparation.version()
        self.written = 0
        """New or changed files that were written."""
        try:
            self.contents = self._read()
            self.save()
        except OSError as error:
            raise self._refused(error) from error

    def _read(self) -> Contents:
        marker = self.path / MARKER
        if marker.is_file():
            with suppress(pydantic.ValidationError):
                content = _MARKER.validate_json(marker.read_bytes())
                if content.dlbench_site == FORM:
                    return content.contents
            raise UsageError(
                f"{marker} is not from a site that this dlbench can read; name another folder with "
                "--out, or remove this one to rebuild the site."
            )
        if self.path.is_dir() and any(self.path.iterdir()):
            raise UsageError(
                f"{self.path} holds files but is not a site of dlbench; name a new or an empty "
                "folder with --out."
            )
        return Contents()

    def write(self, file: str, text: str) -> None:
        """Write a file of the site whole, unless it has this text already. Raises UsageError."""
        path = self.path / file
        try:
            if path.is_file() and path.read_bytes() == text.encode():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise self._refused(error) from error
        if file != MARKER:
            self.written += 1

    def save(self) -> None:
        """Write the contents of the site into its marker file. Raises UsageError."""
        text = _MARKER.dump_json(_Marker(FORM, self.contents), indent=1).decode()
        self.write(MARKER, f"{text}\n")

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(
            f"The site {self.path} cannot be written ({error.strerror or error}); name another "
            "folder with --out."
        )

    def _digest(self, *parts: Any) -> str:
        """Return a digest of a page's inputs, including dlbench's version, style and script."""
        look = policy(asset("style.css"), asset("page.js"))
        text = json.dumps([self.version, look, *parts], default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _has(self, known: SiteNight | HistoryPage | None, digest: str) -> bool:
        return known is not None and known.digest == digest and (self.path / known.file).is_file()

    def add(self, runs: Sequence[tuple[Run, int]]) -> None:
        """Write what is new: a page for each run, and the histories of those that are nights."""
        described = self.store.machines()
        for machine in sorted({run.machine for run, _ in runs}):
            self.contents.machines[machine] = read_host(machine, described.get(machine)).name
        for run, count in runs:
            self._add_night(run, count)
        nights = [run for run, _ in runs if run.purpose in NIGHTLY]
        for nights_of_suite in grouped(nights, lambda run: (run.machine, run.suite)).values():
            self._add_history(nights_of_suite)

    def _add_night(self, run: Run, count: int) -> None:
        """Write the page of a run, and remember it, unless the site has it."""
        # Only a run's end and its number of records can change. The machine's description is left
        # out: a page keeps that of its night.
        digest = self._digest(run.id, run.machine, run.started, run.finished, count)
        if self._has(self.contents.nights.get(run.id), digest):
            return
        results = Results.newest([self.store], run.id)
        source = ReportSource(
            lambda: results,
            lambda: [(run, count)],
            releases=release_dates,
            counterparts=counterparts_of_2016,
            of_run=lambda identifier: Results.of([self.store], identifier),
        )
        title = (
            f"{run.suite}, {run.started:%Y-%m-%d %H:%M} UTC, "
            f"{self.contents.machine_name(run.machine)}"
        )
        made = run.finished or run.started
        document = Document(title, source, made, self.version, _note(run), rerun_by_name)
        cells = document.matrix.cells.values()
        with_number = sum(cell.shown for cell in cells)
        summary = f"{with_number} of {counted(len(cells), 'cell')} with a number"
        night = SiteNight(
            run.id, run.suite, run.machine, run.started, run.purpose, count, summary, digest
        )
        if run.sides:
            comparison = report_of(self.store, run)
            if run.purpose == "gate":
                summary = gate_outcome(comparison).line
            else:
                summary = headline(comparison)
            night = replace(night, summary=summary, **findings_of(comparison))
        self.write(night.file, page_to_file_text(document))
        self.contents.nights[run.id] = night

    def _add_history(self, nights: Sequence[Run]) -> None:
        """Write the history of these nights of a suite on a machine, unless the site has it."""
        machine = nights[0].machine
        suite = nights[0].suite
        machine_name = self.contents.machine_name(machine)
        known = self.contents.histories.get(history_file(machine, suite))
        digest = self._digest(machine_name, [self.contents.nights[run.id].digest for run in nights])
        if self._has(known, digest):
            return
        frame = self.store.nights(suite=suite, machine=machine, purpose=NIGHTLY)
        history = build_history(frame, self.store.cells(), machines={machine: machine_name})
        history = add_differences(history, self.store.example, _EXPLAINED)
        confirmed = sum(not change.pending for _, change in history.changes) + len(history.drifts)
        shifts = shifts_of(history, known.shifts if known else ())
        page = HistoryPage(
            machine,
            suite,
            len(nights),
            max(run.started for run in nights),
            confirmed,
            digest,
            shifts,
        )
        self.write(page.file, history_page(history, suite, machine_name, self.version))
        self.contents.histories[page.file] = page


def _note(run: Run) -> str:
    """Return the links of a run's page to the site's others, as Markdown."""
    links = "[All nights](../index.html)"
    if run.purpose in NIGHTLY:
        file = history_file(run.machine, run.suite)
        links += f" · [History of {escaped(run.suite)}](../{file})"
    return links
