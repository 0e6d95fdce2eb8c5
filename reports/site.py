"""A site of many nights: its contents, its file names, the feed of confirmed regressions, its index
and histories.

A site remembers its contents from call to call, so that only a new night is read.
"""

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup
from pydantic import AwareDatetime

from dlbench.adapters.protocol import Cell
from dlbench.reports.compare.report import GRAVE, sentence_of
from dlbench.reports.formats.markup import page_to_html, rendered
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import ChangePoint, Drift, History, Series
from dlbench.reports.history.report import (
    CLOSE,
    REPORT,
    changes_page,
    drift_words,
    significance,
    size,
    what_else,
)
from dlbench.reports.page.render import asset, policy
from dlbench.reports.page.sections import pictures
from dlbench.reports.report import ReportOptions
from dlbench.reports.results.comparison import CellComparison, Comparison
from dlbench.reports.results.judged import TIME
from dlbench.reports.results.naming import name_of, slug
from dlbench.reports.results.safe_text import one_line
from dlbench.reports.results.verdict import Verdict

_MOST_OF_A_NAME = 80
MOST_ENTRIES = 100
"""Of the feed, the newest."""
MOST_NOTICES = 20
"""On the index."""


def run_file(run: str) -> str:
    """Return the file of a run's page, within the site: an id of dlbench's own stays as it is."""
    return f"runs/{run if re.fullmatch(r'[0-9]{8}T[0-9]{6}-[0-9a-f]+', run) else _safe(run)}.html"


def history_file(machine: str, suite: str) -> str:
    """Return the file of the history of a suite on a machine, within the site."""
    return f"history/{_safe(suite, machine)}.html"


def key_of(machine: str, cell: Cell) -> str:
    """Return a short name that no other cell of any machine has."""
    return _digest(machine, slug(cell))


def _safe(*words: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", "-".join(words))[:_MOST_OF_A_NAME].strip("-")
    return f"{readable}-{_digest(*words)}".lstrip("-")


def _digest(*words: str) -> str:
    text = "\0".join(words)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Slower:
    """A cell that a gate has found slower than its baseline, or broken."""

    cell: str
    finding: str
    """Name of a `Verdict`."""
    sentence: str
    baseline: str
    """Digest of the baseline's environment."""


@dataclass(frozen=True)
class Night:
    """A run and its page."""

    id: str
    suite: str
    machine: str
    started: AwareDatetime
    purpose: str
    launches: int
    summary: str
    digest: str
    """Of everything that the page was made of."""
    slower: dict[str, Slower] = field(default_factory=dict)
    """Of a gate, by key of the cell."""
    cleared: tuple[str, ...] = ()
    """Keys of the cells that it has shown not to be slower."""

    @property
    def file(self) -> str:
        """Its page, within the site."""
        return run_file(self.id)


@dataclass(frozen=True)
class Shift:
    """A confirmed change point after which a cell is slower, or a drift along which it became
    slower.
    """

    key: str
    cell: str
    run: str
    """The first slower night, of a drift its last one, as first published: later nights may move it
    a little."""
    started: AwareDatetime
    sentence: str
    near: tuple[str, ...]
    """Runs of the nights around it, or along it: a gate that found the cell slower in one of them
    found the same."""


@dataclass(frozen=True)
class HistoryPage:
    """The page of the history of a suite on a machine."""

    machine: str
    suite: str
    nights: int
    last: AwareDatetime
    changes: int
    """Confirmed change points and drifts, in either direction."""
    digest: str
    shifts: tuple[Shift, ...] = ()

    @property
    def file(self) -> str:
        """The page, within the site."""
        return history_file(self.machine, self.suite)


@dataclass
class Contents:
    """Everything that a site holds."""

    nights: dict[str, Night] = field(default_factory=dict)
    histories: dict[str, HistoryPage] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)

    def newest_first(self) -> list[Night]:
        """Return the nights in the order of the index."""
        return sorted(self.nights.values(), key=lambda each: (each.started, each.id), reverse=True)

    def machine_name(self, fingerprint: str) -> str:
        """Return a machine's name, with the start of its fingerprint where another has the same
        name.
        """
        name = self.machines.get(fingerprint, fingerprint[:12])
        same = sum(each == name for each in self.machines.values())
        return f"{name} [{fingerprint[:6]}]" if same > 1 else name


class Notice(NamedTuple):
    """A confirmed regression: an entry of the feed."""

    id: str
    """A URN, the same from call to call."""
    when: datetime
    title: str
    sentence: str
    file: str
    """The page that shows it, within the site."""


def notices(contents: Contents) -> list[Notice]:
    """Return every confirmed regression once, the newest first.

    A cell that gates find slower night after night is announced once for each baseline, and again
    only after a gate has shown it not to be slower. A change point of the history is announced if
    no gate has announced it.
    """
    found, announced = [], set()
    for key, night, slower in _first_nights(contents):
        announced.add((key, night.id))
        what = _FOUND[slower.finding]
        where = f"Gate of {night.suite} on {contents.machine_name(night.machine)}, run {night.id}."
        words = f"{slower.cell}: {what}", f"{slower.sentence}. {where}"
        found.append(Notice(_urn("gate", key, night.id), night.started, *words, night.file))
    for page in contents.histories.values():
        for shift in page.shifts:
            if any((shift.key, run) in announced for run in shift.near):
                continue
            where = (
                f"History of {page.suite} on {contents.machine_name(page.machine)}, run "
                f"{shift.run}."
            )
            words = f"{shift.cell}: slower", f"{shift.sentence}. {where}"
            found.append(
                Notice(_urn("history", shift.key, shift.run), shift.started, *words, page.file)
            )
    return sorted(found, key=lambda each: (each.when, each.id), reverse=True)


def _urn(*words: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(("dlbench", *words))).urn


def _first_nights(contents: Contents) -> Iterator[tuple[str, Night, Slower]]:
    """Yield the cell's key and the first night of each regression found by gates."""
    lasting: dict[str, tuple[str, str]] = {}
    for night in reversed(contents.newest_first()):
        for key in night.cleared:
            lasting.pop(key, None)
        for key, slower in night.slower.items():
            if lasting.get(key) != (slower.finding, slower.baseline):
                yield key, night, slower
            lasting[key] = slower.finding, slower.baseline


_FOUND = {
    Verdict.REGRESSION.name: "slower",
    Verdict.BROKEN.name: "broken",
    Verdict.DIFFERENT.name: "computes something else",
}
_CLEARED = (Verdict.NO_REGRESSION, Verdict.IMPROVEMENT)


def findings_of(comparison: Comparison) -> dict[str, Any]:
    """Return `Night.slower` and `Night.cleared` of a gate; for any other comparison both are
    empty.
    """
    if comparison.purpose != "gate":
        return {}
    cells = {
        _key_of_judged(comparison.hosts[0].fingerprint, cell): cell for cell in comparison.cells
    }
    slower = {
        key: Slower(
            one_line(cell.name),
            cell.verdict.name,
            one_line(sentence_of(cell)),
            cell.baseline.environment,
        )
        for key, cell in cells.items()
        if cell.verdict in GRAVE
    }
    return {
        "slower": slower,
        "cleared": tuple(sorted(key for key, cell in cells.items() if cell.verdict in _CLEARED)),
    }


def _key_of_judged(machine: str, cell: CellComparison) -> str:
    key = key_of(machine, cell.cell)
    return key if cell.quantity == TIME else f"{key}-{cell.quantity}"


def shifts_of(history: History, before: Iterable[Shift]) -> tuple[Shift, ...]:
    """Return the confirmed slowdowns, the oldest first, and then the drifts.

    ``before`` are those that the site already has. They stay as published, even if further nights
    change their size or move them by a few nights, so that nothing is announced twice.
    """
    known = {(each.key, each.run): each for each in before}
    changes = (
        (cell, change)
        for cell, change in reversed(history.changes)
        if change.slower and not change.pending
    )
    drifts = ((cell, drift) for cell, drift in history.drifts if drift.slower)
    return (
        *(_shift(cell, change, known) for cell, change in changes),
        *(_shift_of_drift(cell, drift, known) for cell, drift in drifts),
    )


def _shift(series: Series, change: ChangePoint, known: dict[tuple[str, str], Shift]) -> Shift:
    place = change.place
    key = key_of(series.machine, series.cell)
    runs = [str(run) for run in series.runs]
    close = runs[max(0, place - CLOSE) : place + CLOSE + 1]
    # Up to the night that confirmed it here: a gate may have needed some of them.
    near = tuple(runs[max(0, place - CLOSE) : place + ENOUGH_NIGHTS + 1])
    if moved := next((known[key, run] for run in close if (key, run) in known), None):
        return replace(moved, near=near)
    _, low, high = change.percent
    words = (
        f"{size(change)} ({low:+.1f} to {high:+.1f} %), {significance(change)}; that night: "
        f"{what_else(series, change)}"
    )
    started = datetime.fromisoformat(change.night.started)
    return Shift(
        key, one_line(name_of(series.cell)), change.night.run, started, one_line(words), near
    )


def _shift_of_drift(series: Series, drift: Drift, known: dict[tuple[str, str], Shift]) -> Shift:
    key = key_of(series.machine, series.cell)
    along = tuple(str(run) for run in series.runs[drift.first : drift.last + ENOUGH_NIGHTS + 1])
    # A drift grows from night to night, and may have been published as a change point.
    published = [known[key, run] for run in along if (key, run) in known]
    if published:
        return replace(published[0], near=along)
    night = drift.last_night
    words = one_line(
        f"{drift_words(series, drift)}, from {drift.first_night.started[:10]} to "
        f"{night.started[:10]}"
    )
    return Shift(
        key,
        one_line(name_of(series.cell)),
        night.run,
        datetime.fromisoformat(night.started),
        words,
        along,
    )


def feed(contents: Contents, title: str, address: str = "") -> str:
    """Return the feed as an XML document; ``address``, with a slash at its end, goes before every
    link.
    """
    found = notices(contents)[:MOST_ENTRIES]
    nights = contents.newest_first()
    # Never the moment of making it: without a new entry the file stays as it is.
    updated = (
        found[0].when if found else nights[-1].started if nights else datetime.fromtimestamp(0, UTC)
    )
    return rendered(
        "feed.xml.j2",
        one_line,
        id=uuid.uuid5(uuid.NAMESPACE_URL, address or f"dlbench\n{title}").urn,
        title=title,
        updated=updated.isoformat(timespec="seconds"),
        address=address,
        notices=found,
    )


def index_page(contents: Contents, title: str, version: str) -> str:
    """Return the index: confirmed regressions, machines with their suites, and every night, the
    newest first.
    """
    found = notices(contents)
    histories = sorted(
        contents.histories.values(),
        key=lambda each: (contents.machine_name(each.machine), each.suite),
    )
    return _page(
        title,
        version,
        contents=contents,
        notices=found[:MOST_NOTICES],
        more=max(0, len(found) - MOST_NOTICES),
        histories=histories,
        nights=contents.newest_first(),
    )


def history_page(history: History, suite: str, where: str, version: str) -> str:
    """Return the page of a history: its picture, its change points with what changed that night,
    and all series.
    """
    ends = [night for _, drift in history.drifts for night in (drift.first_night, drift.last_night)]
    nights = dict.fromkeys([*(change.night for _, change in history.changes), *ends])
    return _page(
        f"History of {suite} on {where}",
        version,
        contents=None,
        # Of very many series the picture shows those with changes; the tables have all.
        pictures=pictures(REPORT, replace(history, everything=False), ReportOptions()),
        tables=page_to_html(changes_page(replace(history, everything=True)), level=2),
        nights={night.run: (night.started, "../" + run_file(night.run)) for night in nights},
    )


def _page(title: str, version: str, **given: Any) -> str:
    style = asset("style.css")
    look = {"policy": policy(style), "style": Markup(style)}  # our own file
    return rendered("site.html.j2", one_line, title=title, version=version, **look, **given)
