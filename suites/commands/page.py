"""`dlbench report page` and `dlbench report site`: one HTML file of a store, a folder of files for
many nights.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from dlbench.adapters.protocol import Cell
from dlbench.reports import report as of_reports
from dlbench.reports.compare.report import gate_outcome, headline
from dlbench.reports.formats.markup import escaped
from dlbench.reports.formats.outputs import why_unwritable
from dlbench.reports.history.nights import NIGHTLY, Series, build_history, explained
from dlbench.reports.page.document import Document
from dlbench.reports.page.render import asset, page_to_file_text, policy
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.results.hosts import read_host
from dlbench.reports.results.keys import grouped
from dlbench.reports.results.naming import counted
from dlbench.reports.results.record import Run
from dlbench.reports.results.results import Narrowing, Results
from dlbench.reports.results.storage.store import Store
from dlbench.reports.site import (
    Contents,
    HistoryPage,
    Night,
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
from .options import Given, option, takes
from .report import ALL_RUNS, SOURCES, source_of, stores_of


@takes(
    {
        "out": option(
            "--out", "The HTML file to write.", Path, Path("report.html"), metavar="FILE"
        ),
        "title": option("--title", "Heading of the page.", str, ""),
        "note": option(
            "--note", "Your note for the top of the page, in Markdown.", Path | None, metavar="FILE"
        ),
        of_reports.ALL_RUNS: ALL_RUNS,
        **SOURCES,
    }
)
def page_command(given: Given) -> None:
    """Write a report page: one file, with every number, its launches, and the command that repeats
    it.

    The page needs no network and no other file: filters, plots and raw samples are inside. Without
    JavaScript its tables and plots are still there. For a PDF, print it from any browser.

    Examples:

    - `dlbench report page`
    - `dlbench report page --store here.sqlite --store there.sqlite --out machines.html --title "Two
      machines"`
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
    text = page_to_file_text(document)
    options.write_file(given.out, text, "The page")
    say(f"Written: {given.out} ({len(text.encode()) / 1e6:.2f} MB).")


def _histories(targets: list[str], asked: Narrowing) -> dict[tuple[str, Cell], list[Series]]:
    """Return the series of each machine and cell with several nights, from the store with the
    most.
    """
    found: dict[tuple[str, Cell, str], Series] = {}
    for target in targets:
        with Store.open(target, create=False) as store:
            nights = store.nights(
                suite=asked.suite or None, machine=asked.machine or None, purpose=NIGHTLY
            )
            history = build_history(nights, store.cells())
        for each in history.cells:
            key = each.machine, each.cell._replace(adapter=""), each.kind
            if len(each) > max(1, len(found[key]) if key in found else 0):
                found[key] = each
    return grouped(found.values(), lambda each: (each.machine, each.cell._replace(adapter="")))


MARKER = "site.json"
FORM = 1  # increased whenever a reader of the old form would misread the new one
_EXPLAINED = 100  # changes whose records are read


@dataclass(frozen=True)
class _Kept:
    dlbench_site: int
    contents: Contents


_KEPT = TypeAdapter(_Kept)


@takes(
    {
        "out": option(
            "--out",
            "The folder to write: a new one, an empty one, or the site itself.",
            Path,
            Path("site"),
            metavar="FOLDER",
        ),
        "store": options.STORE,
        "title": option("--title", "Heading of the index.", str, "Nightly benchmarks"),
        "url": option(
            "--url",
            "Address of the published site, for the links in its feed: "
            "https://example.org/nights/.",
            str,
            "",
        ),
    }
)
def site_command(given: Given) -> None:
    """Write a site of a store's nights: an index, a page for each run, histories, and a feed of
    confirmed regressions.

    Plain files for any web server or artifact store; pages load nothing. The next call writes only
    what is new: pages of runs without new records stay as they are, and so do those of runs that
    left the store. Stores of several machines may share a site, one call for each. Remove the
    folder to start over.

    Examples:

    - `dlbench report site`
    - `dlbench report site --store nightly.sqlite --out /var/www/nights --url
      https://example.org/nights/`
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
    pages, files = counted(len(contents.nights), "run"), counted(site.written, "file")
    say(f"Written: {site.path / 'index.html'} ({pages}; {files} new or changed).")


class _Site:
    """A folder with a dlbench site and nothing else, and the store that it is built from."""

    def __init__(self, path: Path, store: Store) -> None:
        """Open the folder, or make it; raises UsageError if it holds anything but a dlbench
        site.
        """
        self.path, self.store, self.version = path, store, preparation.version()
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
            with suppress(ValidationError):
                kept = _KEPT.validate_json(marker.read_bytes())
                if kept.dlbench_site == FORM:
                    return kept.contents
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
        """Write a file of the site whole, unless it has this text already; raises UsageError."""
        path = self.path / file
        try:
            if path.is_file() and path.read_bytes() == text.encode():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise self._refused(error) from error
        self.written += file != MARKER

    def save(self) -> None:
        """Remember what the site holds; raises UsageError."""
        self.write(MARKER, _KEPT.dump_json(_Kept(FORM, self.contents), indent=1).decode() + "\n")

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(
            f"The site {self.path} cannot be written ({error.strerror or error}); name another "
            "folder with --out."
        )

    def _digest(self, *parts: Any) -> str:
        """Return a digest of a page's inputs, including dlbench's version, style and script."""
        look = policy(asset("style.css"), asset("page.js"))
        return hashlib.sha256(
            json.dumps([self.version, look, *parts], default=str).encode()
        ).hexdigest()

    def _has(self, known: Night | HistoryPage | None, digest: str) -> bool:
        return known is not None and known.digest == digest and (self.path / known.file).is_file()

    def add(self, runs: Sequence[tuple[Run, int]]) -> None:
        """Write what is new: a page for each run, and the histories of those that are nights."""
        described = self.store.machines()
        for machine in sorted({run.machine for run, _ in runs}):
            self.contents.machines[machine] = read_host(machine, described.get(machine)).name
        for run, count in runs:
            self._add_night(run, count)
        nights = (run for run, _ in runs if run.purpose in NIGHTLY)
        for of_suite in grouped(nights, lambda run: (run.machine, run.suite)).values():
            self._add_history(of_suite)

    def _add_night(self, run: Run, count: int) -> None:
        """Write the page of a run, and remember it, unless the site has it."""
        # Only a run's end and its number of records can change. The machine's description is left
        # out: a page keeps that of its night.
        digest = self._digest(run.id, run.machine, run.started, run.finished, count)
        if self._has(self.contents.nights.get(run.id), digest):
            return
        results = Results.newest([self.store], run.id)
        source = Source(
            lambda: results,
            lambda: [(run, count)],
            releases=release_dates,
            counterparts=counterparts_of_2016,
            of_run=lambda each: Results.of([self.store], each),
        )
        title = (
            f"{run.suite}, {run.started:%Y-%m-%d %H:%M} UTC, "
            f"{self.contents.machine_name(run.machine)}"
        )
        made = run.finished or run.started
        document = Document(title, source, made, self.version, _note(run), rerun_by_name)
        cells = document.matrix.cells.values()
        summary = (
            f"{sum(each.shown for each in cells)} of {counted(len(cells), 'cell')} with a number"
        )
        night = Night(
            run.id, run.suite, run.machine, run.started, run.purpose, count, summary, digest
        )
        if run.sides:
            compared = report_of(self.store, run)
            words = gate_outcome(compared).line if run.purpose == "gate" else headline(compared)
            night = replace(night, summary=words, **findings_of(compared))
        self.write(night.file, page_to_file_text(document))
        self.contents.nights[run.id] = night

    def _add_history(self, nights: Sequence[Run]) -> None:
        """Write the history of a suite on a machine, whose nights these are, unless the site has
        it.
        """
        machine, suite = nights[0].machine, nights[0].suite
        where = self.contents.machine_name(machine)
        known = self.contents.histories.get(history_file(machine, suite))
        digest = self._digest(where, [self.contents.nights[run.id].digest for run in nights])
        if self._has(known, digest):
            return
        frame = self.store.nights(suite=suite, machine=machine, purpose=NIGHTLY)
        history = build_history(frame, self.store.cells(), machines={machine: where})
        history = explained(history, self.store.example, _EXPLAINED)
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
        self.write(page.file, history_page(history, suite, where, self.version))
        self.contents.histories[page.file] = page


def _note(run: Run) -> str:
    """Return the links of a run's page to the site's others, as Markdown."""
    history = f" · [History of {escaped(run.suite)}](../{history_file(run.machine, run.suite)})"
    return "[All nights](../index.html)" + (history if run.purpose in NIGHTLY else "")
