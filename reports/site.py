"""A site of many nights: contents, file names, feed of confirmed regressions, index, histories.

A site remembers its contents from call to call, so that only a new night is read.
"""

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup
from pydantic import AwareDatetime

from dlbench.adapters.protocol import Cell
from dlbench.reports.compare.report import GRAVE, sentence_of
from dlbench.reports.formats.markup import page_to_html, rendered
from dlbench.reports.history.change_points import ENOUGH_NIGHTS
from dlbench.reports.history.nights import ChangePoint, Drift, History, Night, Series
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
"""The most entries of the feed, the newest ones."""
MOST_NOTICES = 20
"""The most on the index."""


def run_file(run: str) -> str:
    """Return the file of a run's page, within the site: an id of dlbench's own stays as it is."""
    is_own_id = re.fullmatch(r"[0-9]{8}T[0-9]{6}-[0-9a-f]+", run)
    name = run if is_own_id else _safe_name(run)
    return f"runs/{name}.html"


def history_file(machine: str, suite: str) -> str:
    """Return the file of the history of a suite on a machine, within the site."""
    return f"history/{_safe_name(suite, machine)}.html"


def key_of(machine: str, cell: Cell) -> str:
    """Return a short name that no other cell of any machine has."""
    return _digest(machine, slug(cell))


def _safe_name(*words: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", "-".join(words))[:_MOST_OF_A_NAME].strip("-")
    return f"{readable}-{_digest(*words)}".lstrip("-")


def _digest(*words: str) -> str:
    text = "\0".join(words)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Slower:
    """A cell that a gate found slower than its baseline, or broken."""

    cell: str
    finding: str
    """Name of a `Verdict`."""
    sentence: str
    baseline: str
    """Digest of the baseline's environment."""


@dataclass(frozen=True)
class SiteNight:
    """A run and its page."""

    id: str
    suite: str
    machine: str
    started: AwareDatetime
    purpose: str
    launches: int
    summary: str
    digest: str
    """Digest of the whole input of the page."""
    slower: dict[str, Slower] = field(default_factory=dict)
    """The findings of a gate, by key of the cell."""
    cleared: tuple[str, ...] = ()
    """Keys of the cells that a gate showed not to be slower."""

    @property
    def file(self) -> str:
        """Its page, within the site."""
        return run_file(self.id)


@dataclass(frozen=True)
class Shift:
    """A confirmed change point after which a cell is slower, or a drift in which it became so."""

    key: str
    cell: str
    run: str
    """The first slower night, or the last one of a drift, as first published.

    Later nights may move it a little."""
    started: AwareDatetime
    sentence: str
    near: tuple[str, ...]
    """Runs of the nights around or along it.

    A gate that found the cell slower in one of them found the same regression."""


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

    nights: dict[str, SiteNight] = field(default_factory=dict)
    histories: dict[str, HistoryPage] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)

    def newest_first(self) -> list[SiteNight]:
        """Return the nights in the order of the index."""
        nights = self.nights.values()
        return sorted(nights, key=lambda night: (night.started, night.id), reverse=True)

    def machine_name(self, fingerprint: str) -> str:
        """Return a machine's name, with the start of its fingerprint if the name is not unique."""
        name = self.machines.get(fingerprint, fingerprint[:12])
        count = list(self.machines.values()).count(name)
        if count > 1:
            return f"{name} [{fingerprint[:6]}]"
        return name


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
    all_notices = []
    announced = set()
    for key, night, slower in _first_nights(contents):
        announced.add((key, night.id))
        where = f"Gate of {night.suite} on {contents.machine_name(night.machine)}, run {night.id}."
        all_notices.append(
            Notice(
                id=_urn("gate", key, night.id),
                when=night.started,
                title=f"{slower.cell}: {_FINDINGS[slower.finding]}",
                sentence=f"{slower.sentence}. {where}",
                file=night.file,
            )
        )
    for page in contents.histories.values():
        machine = contents.machine_name(page.machine)
        for shift in page.shifts:
            if any((shift.key, run) in announced for run in shift.near):
                continue
            where = f"History of {page.suite} on {machine}, run {shift.run}."
            all_notices.append(
                Notice(
                    id=_urn("history", shift.key, shift.run),
                    when=shift.started,
                    title=f"{shift.cell}: slower",
                    sentence=f"{shift.sentence}. {where}",
                    file=page.file,
                )
            )
    return sorted(all_notices, key=lambda notice: (notice.when, notice.id), reverse=True)


def _urn(*words: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(("dlbench", *words))).urn


def _first_nights(contents: Contents) -> Iterator[tuple[str, SiteNight, Slower]]:
    """Yield the cell's key and the first night of each regression found by gates."""
    lasting: dict[str, tuple[str, str]] = {}
    for night in reversed(contents.newest_first()):
        for key in night.cleared:
            lasting.pop(key, None)
        for key, slower in night.slower.items():
            if lasting.get(key) != (slower.finding, slower.baseline):
                yield key, night, slower
            lasting[key] = (slower.finding, slower.baseline)


_FINDINGS = {
    Verdict.REGRESSION.name: "slower",
    Verdict.BROKEN.name: "broken",
    Verdict.DIFFERENT.name: "computes something else",
}
_CLEARED = (Verdict.NO_REGRESSION, Verdict.IMPROVEMENT)


def findings_of(comparison: Comparison) -> dict[str, Any]:
    """Return a gate's `SiteNight.slower` and `SiteNight.cleared`; empty for other comparisons."""
    if comparison.purpose != "gate":
        return {}
    machine = comparison.hosts[0].fingerprint
    cells = {_judged_key(machine, cell): cell for cell in comparison.cells}
    slower = {}
    cleared = []
    for key, cell in cells.items():
        if cell.verdict in GRAVE:
            slower[key] = Slower(
                one_line(cell.name),
                cell.verdict.name,
                one_line(sentence_of(cell)),
                cell.baseline.environment,
            )
        if cell.verdict in _CLEARED:
            cleared.append(key)
    return {"slower": slower, "cleared": tuple(sorted(cleared))}


def _judged_key(machine: str, cell: CellComparison) -> str:
    key = key_of(machine, cell.cell)
    if cell.quantity == TIME:
        return key
    return f"{key}-{cell.quantity}"


def shifts_of(history: History, before: Iterable[Shift]) -> tuple[Shift, ...]:
    """Return the confirmed slowdowns, the oldest first, and then the drifts.

    ``before`` are those that the site already has. They stay as published, even if further nights
    change their size or move them by a few nights, so that nothing is announced twice.
    """
    published = {(shift.key, shift.run): shift for shift in before}
    shifts = []
    for series, change in reversed(history.changes):
        if change.slower and not change.pending:
            shifts.append(_shift_of_change(series, change, published))
    for series, drift in history.drifts:
        if drift.slower:
            shifts.append(_shift_of_drift(series, drift, published))
    return tuple(shifts)


def _shift_of_change(
    series: Series, change: ChangePoint, published: Mapping[tuple[str, str], Shift]
) -> Shift:
    key = key_of(series.machine, series.cell)
    runs = [str(run) for run in series.runs]
    first = max(0, change.place - CLOSE)
    # Up to the night that confirmed it in the history: a gate may have needed some of them.
    near = tuple(runs[first : change.place + ENOUGH_NIGHTS + 1])
    for run in runs[first : change.place + CLOSE + 1]:
        if (key, run) in published:
            return replace(published[key, run], near=near)
    _, low, high = change.percent
    sentence = (
        f"{size(series, change)} ({low:+.1f} to {high:+.1f} %), {significance(change)}; that "
        f"night: {what_else(series, change)}"
    )
    return _new_shift(series, change.night, sentence, near)


def _shift_of_drift(
    series: Series, drift: Drift, published: Mapping[tuple[str, str], Shift]
) -> Shift:
    key = key_of(series.machine, series.cell)
    along = tuple(str(run) for run in series.runs[drift.first : drift.last + ENOUGH_NIGHTS + 1])
    # A drift grows from night to night, and may have been published as a change point.
    for run in along:
        if (key, run) in published:
            return replace(published[key, run], near=along)
    first_day = drift.first_night.started[:10]
    last_day = drift.last_night.started[:10]
    sentence = f"{drift_words(series, drift)}, from {first_day} to {last_day}"
    return _new_shift(series, drift.last_night, sentence, along)


def _new_shift(series: Series, night: Night, sentence: str, near: tuple[str, ...]) -> Shift:
    return Shift(
        key=key_of(series.machine, series.cell),
        cell=one_line(name_of(series.cell)),
        run=night.run,
        started=datetime.fromisoformat(night.started),
        sentence=one_line(sentence),
        near=near,
    )


def feed(contents: Contents, title: str, address: str = "") -> str:
    """Return the feed as an XML document.

    ``address``, with a slash at its end, is put before every link.
    """
    newest = notices(contents)[:MOST_ENTRIES]
    nights = contents.newest_first()
    # The time is never that of this call: without a new entry the file stays as it is.
    updated = datetime.fromtimestamp(0, UTC)
    if newest:
        updated = newest[0].when
    elif nights:
        updated = nights[-1].started
    return rendered(
        "feed.xml.j2",
        one_line,
        id=uuid.uuid5(uuid.NAMESPACE_URL, address or f"dlbench\n{title}").urn,
        title=title,
        updated=updated.isoformat(timespec="seconds"),
        address=address,
        notices=newest,
    )


def index_page(contents: Contents, title: str, version: str) -> str:
    """Return the index: regressions, machines with their suites, and nights, the newest first."""
    all_notices = notices(contents)

    def history_order(page: HistoryPage) -> tuple[str, str]:
        return (contents.machine_name(page.machine), page.suite)

    histories = sorted(contents.histories.values(), key=history_order)
    return _page(
        title,
        version,
        contents=contents,
        notices=all_notices[:MOST_NOTICES],
        more=max(0, len(all_notices) - MOST_NOTICES),
        histories=histories,
        nights=contents.newest_first(),
    )


def history_page(history: History, suite: str, where: str, version: str) -> str:
    """Return the page of a history: its picture, its changes, and all series."""
    nights = dict.fromkeys(change.night for _, change in history.changes)
    for _, drift in history.drifts:
        nights |= dict.fromkeys((drift.first_night, drift.last_night))
    addresses = {night.run: (night.started, f"../{run_file(night.run)}") for night in nights}
    return _page(
        f"History of {suite} on {where}",
        version,
        contents=None,
        # With very many series the picture shows those with changes. The tables have all.
        pictures=pictures(REPORT, replace(history, everything=False), ReportOptions()),
        tables=page_to_html(changes_page(replace(history, everything=True)), level=2),
        nights=addresses,
    )


def _page(title: str, version: str, **given: Any) -> str:
    style = asset("style.css")
    return rendered(
        "site.html.j2",
        one_line,
        title=title,
        version=version,
        policy=policy(style),
        style=Markup(style),  # our own file
        **given,
    )
