"""What a site holds: its nights, its histories, and the regressions that are confirmed.

A site remembers it from call to call, so that a new night is read and no other.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pydantic import AwareDatetime

from dlbench.reports.compare.report import Finding
from dlbench.reports.site.names import history_file, run_file


@dataclass(frozen=True)
class Slower:
    """A cell that a gate has found slower than its baseline, or broken."""

    cell: str
    """Its name."""
    finding: str
    """Name of a `Finding`."""
    sentence: str
    baseline: str
    """Digest of the baseline's environment."""


@dataclass(frozen=True)
class Night:
    """A run with a page of its own."""

    id: str
    suite: str
    machine: str
    started: AwareDatetime
    purpose: str
    launches: int
    summary: str
    """What came of it, in a line."""
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
    """A confirmed change point from which on a cell is slower."""

    key: str
    """Of the cell."""
    cell: str
    run: str
    """The night from which on, as first published: later nights may move it a little."""
    started: AwareDatetime
    sentence: str
    near: tuple[str, ...]
    """Runs of the nights around it: a gate that found the cell slower in one of them found the same."""


@dataclass(frozen=True)
class HistoryPage:
    """The history of a suite on a machine, on a page of its own."""

    machine: str
    suite: str
    nights: int
    last: AwareDatetime
    """When the newest of them began."""
    changes: int
    """Confirmed, in either direction."""
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
    """By id of the run."""
    histories: dict[str, HistoryPage] = field(default_factory=dict)
    """By file."""
    machines: dict[str, str] = field(default_factory=dict)
    """Name for people by fingerprint."""

    def newest_first(self) -> list[Night]:
        """Return the nights in the order of the index."""
        return sorted(self.nights.values(), key=lambda each: (each.started, each.id), reverse=True)

    def machine_name(self, fingerprint: str) -> str:
        """Return what to call a machine, told apart from others of its name."""
        name = self.machines.get(fingerprint, fingerprint[:12])
        same = sum(each == name for each in self.machines.values())
        return f"{name} [{fingerprint[:6]}]" if same > 1 else name


class Notice(NamedTuple):
    """A confirmed regression: an entry of the feed."""

    id: str
    """A URN that stays the same from call to call."""
    when: datetime
    title: str
    sentence: str
    file: str
    """The page that shows it, within the site."""


def notices(contents: Contents) -> list[Notice]:
    """Return every confirmed regression once, the newest first.

    A cell that gates find slower night after night is told once for each baseline; again only after a gate has shown
    it not to be slower. A change point of the history is told where no gate has told it.
    """
    found, told = [], set()
    for key, night, slower in _first_nights(contents):
        told.add((key, night.id))
        what = "slower" if slower.finding == Finding.REGRESSION.name else "broken"
        sentence = (
            f"{slower.sentence}. Gate of {night.suite} on {contents.machine_name(night.machine)}, run {night.id}."
        )
        urn = _urn("gate", key, night.id)
        found.append(Notice(urn, night.started, f"{slower.cell}: {what}", sentence, night.file))
    for page in contents.histories.values():
        for shift in page.shifts:
            if any((shift.key, run) in told for run in shift.near):
                continue
            where = f"History of {page.suite} on {contents.machine_name(page.machine)}, from run {shift.run} on."
            urn = _urn("history", shift.key, shift.run)
            title = f"{shift.cell}: slower"
            found.append(Notice(urn, shift.started, title, f"{shift.sentence}. {where}", page.file))
    return sorted(found, key=lambda each: (each.when, each.id), reverse=True)


def _urn(*words: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, "\n".join(("dlbench", *words))).urn


def _first_nights(contents: Contents) -> Iterator[tuple[str, Night, Slower]]:
    """Give for each regression that gates found the cell's key and the first night that found it."""
    lasting: dict[str, tuple[str, str]] = {}
    for night in reversed(contents.newest_first()):
        for key in night.cleared:
            lasting.pop(key, None)
        for key, slower in night.slower.items():
            if lasting.get(key) != (slower.finding, slower.baseline):
                yield key, night, slower
            lasting[key] = slower.finding, slower.baseline
