"""`dlbench report page`: one HTML file of a store, or of several machines' beside each other."""

from datetime import UTC, datetime
from pathlib import Path

from dlbench.adapters.protocol import Cell
from dlbench.reports import report as of_reports
from dlbench.reports.formats.outputs import why_not
from dlbench.reports.history.nights import NIGHTLY, CellHistory, build_history
from dlbench.reports.page.document import Document
from dlbench.reports.page.render import page_to_file_text
from dlbench.reports.report import ReportOptions
from dlbench.reports.storage.results import Narrowing
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..environments.folders import write_whole
from ..errors import UsageError
from ..planning.suite import rerun_by_name
from ..run import preparation
from . import options
from .options import Given, option, takes
from .report import ALL_RUNS, SOURCES, source_of, stores_of

PAGE_OPTIONS: options.Options = {
    "out": option("--out", "The HTML file to write.", Path, Path("report.html"), metavar="FILE"),
    "title": option("--title", "Heading of the page.", str, ""),
    "note": option("--note", "A note of yours at the top of the page: Markdown.", Path | None, metavar="FILE"),
    of_reports.ALL_RUNS: ALL_RUNS,
    **SOURCES,
}


@takes(PAGE_OPTIONS)
def page_command(given: Given) -> None:
    """Write a report page: one file, with every number, its launches, and the command that repeats it.

    It needs no network and no other file: filters, plots and raw samples are inside. Without JavaScript its tables and
    plots are still there. For a PDF, print it from any browser.

    Examples:

    - `dlbench report page`
    - `dlbench report page --store here.sqlite --store there.sqlite --out machines.html --title "Two machines"`
    - `dlbench report page --run latest --note what-we-changed.md`
    """
    if reason := why_not(given.out):
        raise UsageError(f"The page {given.out} cannot be written: {reason}.")
    text = page_to_file_text(document_of(given, datetime.now(UTC)))
    try:
        write_whole(given.out, text)
    except OSError as error:
        raise UsageError(f"The page {given.out} cannot be written: {error.strerror or error}.") from error
    say(f"Written: {given.out} ({len(text.encode()) / 1e6:.2f} MB).")


def document_of(given: Given, made: datetime) -> Document:
    """Return what a page is made of; raises UsageError, StoreError and ReportError."""
    targets = stores_of(given)
    source = source_of(targets, given, ReportOptions(all_runs=given.all_runs), trainings=True)
    return Document(
        given.title or "Deep-learning frameworks, measured",
        source,
        made,
        preparation.version(),
        _note(given.note),
        rerun_by_name,
        histories(targets, source.narrowing),
    )


def histories(targets: list[str], asked: Narrowing) -> dict[tuple[str, Cell], list[CellHistory]]:
    """Return by machine and cell what its nights found, if there are several; of several stores the one with most."""
    found: dict[tuple[str, Cell, str], CellHistory] = {}
    for target in targets:
        with Store.open(target, create=False) as store:
            nights = store.nights(suite=asked.suite or None, machine=asked.machine or None, purpose=NIGHTLY)
            history = build_history(nights, store.cells())
        for each in history.cells:
            key = each.series.machine, each.series.cell._replace(adapter=""), each.series.kind
            if len(each.series) > max(1, len(found[key].series) if key in found else 0):
                found[key] = each
    by_cell: dict[tuple[str, Cell], list[CellHistory]] = {}
    for (machine, cell, _), each in found.items():
        by_cell.setdefault((machine, cell), []).append(each)
    return by_cell


def _note(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"The note {file} cannot be read: {reason}.") from error
