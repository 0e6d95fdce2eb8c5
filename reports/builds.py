"""Builds: which version of a framework each cell was measured with, and when that version was
released.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.record import BASELINE, RELEASED, Record
from dlbench.reports.results.results import untunable

_NIGHTLY = re.compile(r"\bdev(20\d{2})(\d{2})(\d{2})\b")


class Build(NamedTuple):
    """One version of a framework."""

    adapter: str
    """The folder in adapters/ that drives it; empty where no record names it."""
    version: str
    """As the framework says; empty where it never came to say so."""
    released: date | None
    """None: unknown."""


_UNKNOWN = Build("", "", None)


class Builds:
    """The builds of records, by machine, row and environment."""

    def __init__(self, records: Iterable[Record], releases: Mapping[tuple[str, str], date]) -> None:
        """Take records, and the dates of releases by adapter (folder) and version."""
        self._known: dict[tuple[str, str, str], Build] = {}
        self._newest: dict[tuple[str, str], Build] = {}
        records = list(records)
        self._untunable = untunable(records)
        for record in sorted(records, key=lambda record: record.started):
            if record.side == BASELINE:
                continue  # another build under the row's name, which no cell of a matrix is made of
            cell = record.cell
            version = str(record.outcome.software.get("version") or "")
            # A launch that crashed before it could say its version takes nothing from one that
            # could.
            newest = self._newest.get((record.machine, cell.framework), _UNKNOWN)
            build = newest._replace(adapter=cell.adapter)
            if version:
                uploaded = record.outcome.software.get(RELEASED)
                when = (
                    date.fromisoformat(str(uploaded))
                    if uploaded
                    else released(cell.adapter, version, releases)
                )
                build = Build(cell.adapter, version, when)
                self._known[record.machine, cell.framework, record.environment] = build
            self._newest[record.machine, cell.framework] = build

    def of(self, cell: CellResult) -> Build:
        """Return the build that a cell was measured with; of one that never ran, that of the rest
        of its row.
        """
        machine, framework = cell.column.machine, cell.row.framework
        newest = self._newest.get((machine, framework), _UNKNOWN)
        return self._known.get((machine, framework, cell.environment), newest)

    def is_as_installed_too(self, cell: CellResult) -> bool:
        """Tell whether a cell's row has no setting there, so that the one cell is both."""
        return (cell.column.machine, cell.cell) in self._untunable


def released(adapter: str, version: str, releases: Mapping[tuple[str, str], date]) -> date | None:
    """Return when a version was released; None where that is not known.

    A local label ("2.13.0+cpu") and trailing zeros make no other release; a nightly build has its
    date in its version ("2.14.0.dev20261010").
    """
    if (adapter, version) in releases:
        return releases[adapter, version]
    wanted = _public(version)
    for (folder, known), when in releases.items():
        if folder == adapter and wanted is not None and _public(known) == wanted:
            return when
    nightly = _NIGHTLY.search(version)
    try:
        return date(*map(int, nightly.groups())) if nightly else None
    except ValueError:
        return None


def _public(version: str) -> Version | None:
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return None
