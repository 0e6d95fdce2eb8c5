"""`dlbench report page`: one HTML file of a store, or of several machines' beside each other."""

import os
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dlbench.adapters.protocol import Cell
from dlbench.reports import report as of_reports
from dlbench.reports.formats.outputs import why_not
from dlbench.reports.history.nights import NIGHTLY, Series, build_history
from dlbench.reports.page.document import Document
from dlbench.reports.page.render import page_to_file_text
from dlbench.reports.report import ReportOptions, Source
from dlbench.reports.storage.results import Narrowing, Results
from dlbench.reports.storage.store import Store

from ..display.screen import say
from ..environments.folders import write_whole
from ..errors import UsageError
from ..planning.framework import counterparts_of_2016, release_dates
from ..planning.suite import rerun_by_name
from ..run import preparation
from . import options
from .report import ALL_RUNS, NARROWING, SOURCES, narrowing_of, results_of, runs_of, sentinels_of

_OUT = typer.Option("--out", metavar="FILE", help="The HTML file to write.")
_TITLE = typer.Option("--title", help="Heading of the page.")
_NOTE = typer.Option("--note", metavar="FILE", help="A note of yours at the top of the page: Markdown.")

PAGE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "out": (Annotated[Path, _OUT], Path("report.html")),
    "title": (Annotated[str, _TITLE], ""),
    "note": (Annotated[Path | None, _NOTE], None),
    of_reports.ALL_RUNS: (Annotated[bool, ALL_RUNS], False),
    **SOURCES,
    **NARROWING,
}


def page_command(**given: Any) -> None:
    """Write a report page: one file, with every number, its launches, and the command that repeats it.

    It needs no network and no other file: filters, plots and raw samples are inside. Without JavaScript its tables and
    plots are still there. For a PDF, print it from any browser.

    Examples:

    - `dlbench report page`
    - `dlbench report page --store here.sqlite --store there.sqlite --out machines.html --title "Two machines"`
    - `dlbench report page --run latest --note what-we-changed.md`
    """
    if reason := why_not(given["out"]):
        raise UsageError(f"The page {given['out']} cannot be written: {reason}.")
    document = document_of(given, datetime.now(UTC))
    text = page_to_file_text(document)
    try:
        write_whole(given["out"], text)
    except OSError as error:
        raise UsageError(f"The page {given['out']} cannot be written: {error.strerror or error}.") from error
    say(f"Written: {given['out']} ({len(text.encode()) / 1e6:.2f} MB).")


def document_of(given: dict[str, Any], made: datetime) -> Document:
    """Return what a page is made of; raises UsageError, StoreError and ReportError."""
    targets = given["store"] or [os.environ.get("DLBENCH_STORE") or options.DEFAULT_STORE]
    results = results_of(targets, given, trainings=True)
    narrowing = narrowing_of(targets, given)
    source = Source(
        lambda: results,
        cache(partial(runs_of, targets)),
        ReportOptions(all_runs=given[of_reports.ALL_RUNS]),
        release_dates,
        counterparts_of_2016,
        partial(Results.read, targets),
        partial(sentinels_of, targets),
        narrowing,
    )
    return Document(
        given["title"] or "Deep-learning frameworks, measured",
        source,
        made,
        preparation.version(),
        _note(given["note"]),
        rerun_by_name,
        histories(targets, narrowing),
    )


def histories(targets: list[str], asked: Narrowing) -> dict[tuple[str, Cell], list[Series]]:
    """Return by machine and cell what its nights found, if there are several; of several stores the one with most."""
    found: dict[tuple[str, Cell, str], Series] = {}
    for target in targets:
        with Store.open(target, create=False) as store:
            nights = store.nights(suite=asked.suite or None, machine=asked.machine or None, purpose=NIGHTLY)
            history = build_history(nights, store.cells())
        for each in history.cells:
            key = each.machine, each.cell._replace(adapter=""), each.kind
            if len(each) > max(1, len(found[key]) if key in found else 0):
                found[key] = each
    by_cell: dict[tuple[str, Cell], list[Series]] = {}
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
