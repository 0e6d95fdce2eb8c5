"""`dlbench report site`: a folder of plain files for a store of many nights, of which a new night changes few."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from dlbench.adapters.protocol import Cell
from dlbench.reports.comparison import layout
from dlbench.reports.comparison.outcome import gate_outcome
from dlbench.reports.formats.markdown import escaped
from dlbench.reports.history.analysis import build_history
from dlbench.reports.history.what_changed import explained
from dlbench.reports.page.document import Document
from dlbench.reports.page.policy import own_script, own_style, policy
from dlbench.reports.page.render import page_to_file_text
from dlbench.reports.site.contents import HistoryPage, Night
from dlbench.reports.site.feed import feed
from dlbench.reports.site.judged import cleared_of, comparison_note, shifts_of, slower_of
from dlbench.reports.site.names import history_file, run_file
from dlbench.reports.site.pages import history_page, index_page
from dlbench.reports.storage.hosts import read_host
from dlbench.reports.storage.record import Run
from dlbench.reports.storage.results import Results
from dlbench.reports.storage.store import Store

from ..commands import options
from ..display.screen import counted, say
from ..errors import UsageError
from ..measuring import preparation
from ..measuring.comparison import report_of
from ..planning.lineage import release_dates, stands_for_2016
from .page import commands_of_cells
from .site_folder import SiteFolder

_NIGHTLY = ("suite", "gate")
"""Purposes of the runs that a history is made of: a comparison by hand is no night."""
_EXPLAINED = 100
"""Changes whose records are read."""

_OUT = typer.Option("--out", metavar="FOLDER", help="The folder to write: a new one, an empty one, or the site itself.")
_TITLE = typer.Option("--title", help="Heading of the index.")
_URL = typer.Option("--url", help="Where the site will stand, for the links of its feed: https://example.org/nights/.")

SITE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "out": (Annotated[Path, _OUT], Path("site")),
    "store": (options.StoreFile, options.DEFAULT_STORE),
    "title": (Annotated[str, _TITLE], "Nightly benchmarks"),
    "url": (Annotated[str, _URL], ""),
}


class _Site(NamedTuple):
    """What a site is made of, and where."""

    folder: SiteFolder
    store: Store
    again: Callable[[Cell, str, int], str]
    """The command that measures a cell again."""
    version: str

    def digest(self, *parts: Any) -> str:
        """Return a digest of what a page is made of, this dlbench and its style and script included."""
        look = policy(own_style(), own_script())
        told = json.dumps([self.version, look, *parts], default=str)
        return hashlib.sha256(told.encode()).hexdigest()


def site_command(**given: Any) -> None:
    """Write a site of a store's nights: an index, a page for each run, histories, and a feed of confirmed regressions.

    Plain files for any web server or artifact store; none of them asks another for anything. The next call writes only
    what is new: pages of runs without new records stay as they are, also those of runs that are no longer in the
    store. Stores of several machines may share a site, one call for each. Remove the folder to begin anew.

    Examples:

    - `dlbench report site`
    - `dlbench report site --store nightly.sqlite --out /var/www/nights --url https://example.org/nights/`
    """
    address = _address(given["url"])
    with Store.open(given["store"], create=False) as store:
        counts = store.record_counts()
        runs = [(run, counts[run.id]) for run in store.runs() if counts.get(run.id)]
        if not runs:
            raise UsageError(f"{store.name} holds no measured run yet. Fill it night by night: dlbench run SUITE.")
        site = _Site(SiteFolder(given["out"]), store, commands_of_cells(), preparation.version())
        folder, contents = site.folder, site.folder.contents
        described = store.machines()
        machines = {run.machine for run, _ in runs}
        contents.machines |= {each: read_host(each, described.get(each)).name for each in sorted(machines)}
        try:
            for run, count in runs:
                _night(site, run, count)
            for machine, suite in sorted({(run.machine, run.suite) for run, _ in runs if run.purpose in _NIGHTLY}):
                _history(
                    site,
                    machine,
                    suite,
                    [each for each in runs if (each[0].machine, each[0].suite) == (machine, suite)],
                )
        finally:
            folder.save()
    folder.write("index.html", index_page(contents, given["title"], site.version))
    folder.write("feed.xml", feed(contents, given["title"], address))
    pages = counted(len(contents.nights), "run")
    say(f"Written: {folder.path}/index.html ({pages}; {counted(folder.written, 'file')} new or changed).")


def _address(url: str) -> str:
    if url and not url.startswith(("https://", "http://")):
        raise UsageError(f"--url {url[:80]!r} is no address of a site. Write it as https://example.org/nights/.")
    return url if not url or url.endswith("/") else url + "/"


def _night(site: _Site, run: Run, count: int) -> None:
    """Write the page of a run unless the site has it: records never change, so their number tells."""
    contents = site.folder.contents
    # Not the machine's description: a page keeps the one of its night.
    digest = site.digest(run.to_dict(), count)
    if (known := contents.nights.get(run.id)) and known.digest == digest and site.folder.has(known.file):
        return
    host = contents.machine_name(run.machine)
    night = Night(run.id, run.suite, run.machine, run.started, run.purpose, count, "", digest)
    note = ["[All nights](../index.html)"]
    if run.purpose in _NIGHTLY:
        note.append(f"[History of {escaped(run.suite)}](../{history_file(run.machine, run.suite)})")
    note = [" · ".join(note)]
    document = Document(
        title=f"{run.suite}, {run.started:%Y-%m-%d %H:%M} UTC, {host}",
        results=Results.newest([site.store], run.id),
        made=run.finished or run.started,
        version=site.version,
        runs=((run, count),),
        again=site.again,
        releases=release_dates(),
        stands=stands_for_2016(),
    )
    if run.sides:
        compared = report_of(site.store, run)
        words = gate_outcome(compared).line if run.purpose == "gate" else layout.headline(compared)
        night = replace(night, summary=words, slower=slower_of(compared), cleared=cleared_of(compared))
        note.append(comparison_note(compared))
    else:
        cells = document.matrix.cells.values()
        night = replace(
            night, summary=f"{sum(each.shown for each in cells)} of {counted(len(cells), 'cell')} with a number"
        )
    site.folder.write(run_file(run.id), page_to_file_text(replace(document, note="\n\n".join(note))))
    contents.nights[run.id] = night


def _history(site: _Site, machine: str, suite: str, runs: list[tuple[Run, int]]) -> None:
    """Write the history of a suite on a machine unless its runs are as they were."""
    contents, file = site.folder.contents, history_file(machine, suite)
    where = contents.machine_name(machine)
    nights = [each for each in runs if each[0].purpose in _NIGHTLY]
    digest = site.digest(where, [(run.to_dict(), count) for run, count in nights])
    known = contents.histories.get(file)
    if known and known.digest == digest and site.folder.has(file):
        return
    frame = site.store.nights(suite=suite, machine=machine, purpose=_NIGHTLY)
    history = build_history(frame, site.store.cells(), machines={machine: where})
    history = explained(history, site.store.example, _EXPLAINED)
    site.folder.write(file, history_page(history, suite, where, site.version))
    confirmed = sum(not change.pending for _, change in history.changes)
    last = max(run.started for run, _ in nights)
    shifts = shifts_of(history, known.shifts if known else ())
    contents.histories[file] = HistoryPage(machine, suite, len(nights), last, confirmed, digest, shifts)
