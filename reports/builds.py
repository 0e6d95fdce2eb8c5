"""Builds: the version of the framework of each cell, and the date of its release."""

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from dlbench.reports.results.cells import CellResult
from dlbench.reports.results.record import BASELINE, Record
from dlbench.reports.results.results import untunable

_NIGHTLY = re.compile(r"\bdev(20\d{2})(\d{2})(\d{2})\b")


class MeasuredBuild(NamedTuple):
    """One version of a framework."""

    adapter: str
    """The folder in adapters/ that drives it; empty where no record names it."""
    version: str
    """As the framework reports it; empty if it never did."""
    released: date | None
    """None: unknown."""


_UNKNOWN = MeasuredBuild("", "", None)


class MeasuredBuilds:
    """The builds of records, by machine, row and environment."""

    def __init__(self, records: Iterable[Record], releases: Mapping[tuple[str, str], date]) -> None:
        """Take records, and the dates of releases by adapter (folder) and version."""
        self._measured: dict[tuple[str, str, str], MeasuredBuild] = {}
        self._newest: dict[tuple[str, str], MeasuredBuild] = {}
        records = list(records)
        self._untunable = untunable(records)
        for record in sorted(records, key=lambda record: record.started):
            if record.side == BASELINE:
                # It is another build under the row's name, and in no cell of a matrix.
                continue
            cell = record.cell
            version = str(record.outcome.software.get("version") or "")
            # A launch that crashed before it reported its version does not hide an earlier one.
            newest = self._newest.get((record.machine, cell.framework), _UNKNOWN)
            build = newest._replace(adapter=cell.adapter)
            if version:
                uploaded = record.outcome.facts.released
                day: date | None
                if uploaded:
                    day = date.fromisoformat(str(uploaded))
                else:
                    day = released(cell.adapter, version, releases)
                build = MeasuredBuild(cell.adapter, version, day)
                self._measured[record.machine, cell.framework, record.environment] = build
            self._newest[record.machine, cell.framework] = build

    def of(self, cell: CellResult) -> MeasuredBuild:
        """Return the build of a cell; if it never ran, that of the rest of its row."""
        machine = cell.column.machine
        framework = cell.row.framework
        newest = self._newest.get((machine, framework), _UNKNOWN)
        return self._measured.get((machine, framework, cell.environment), newest)

    def is_as_installed_too(self, cell: CellResult) -> bool:
        """Tell whether a row has no setting on the cell's machine, so that one cell is both."""
        return (cell.column.machine, cell.cell) in self._untunable


def released(adapter: str, version: str, releases: Mapping[tuple[str, str], date]) -> date | None:
    """Return the date of a version's release; None if it is unknown.

    A local label ("2.13.0+cpu") and trailing zeros make no other release. A nightly build has its
    date in its version ("2.14.0.dev20261010").
    """
    if (adapter, version) in releases:
        return releases[adapter, version]
    public_version = _public_version(version)
    if public_version is not None:
        for (release_adapter, release), day in releases.items():
            if release_adapter == adapter and _public_version(release) == public_version:
                return day
    nightly = _NIGHTLY.search(version)
    if nightly is None:
        return None
    year, month, day_of_month = map(int, nightly.groups())
    try:
        return date(year, month, day_of_month)
    except ValueError:
        return None


def _public_version(version: str) -> Version | None:
    try:
        return Version(Version(version).public)
    except InvalidVersion:
        return None
