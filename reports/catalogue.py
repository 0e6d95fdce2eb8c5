"""All reports: every module of this package that defines ``REPORT``, imported when it is used."""

import importlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import dlbench.reports
from dlbench.adapters.protocol import Status
from dlbench.reports.report import Report
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.record import Record

_DECLARATION = re.compile(r'^REPORT(?:: [^=]*)? = Report\(\s*name="(\w+)"', re.MULTILINE)


def modules() -> dict[str, str]:
    """Return the module of each report by the report's name, sorted, without importing any."""
    return _modules(tuple(dlbench.reports.__path__))


@cache
def _modules(rooms: tuple[str, ...]) -> dict[str, str]:
    module_by_report = {}
    for room in map(Path, rooms):
        for path in [*room.glob("*.py"), *room.glob("*/*.py")]:
            declaration = _DECLARATION.search(path.read_text(encoding="utf-8"))
            if declaration:
                parts = path.relative_to(room).with_suffix("").parts
                module_by_report[declaration[1]] = ".".join(("dlbench.reports", *parts))
    return dict(sorted(module_by_report.items()))


def report(name: str) -> Report[Any]:
    """Return the report of this name."""
    declared: Report[Any] = importlib.import_module(modules()[name]).REPORT
    return declared


def reports() -> dict[str, Report[Any]]:
    """Return every report by its name, in the order of names."""
    return {name: report(name) for name in modules()}


def suggested(records: Iterable[Record]) -> list[Report[Any]]:
    """Return the reports that have something to show of these records, in the order of names."""
    cells = set()
    family_names = set()
    for record in records:
        if record.outcome.status is not Status.OK or not record.outcome.was_timed():
            continue
        cells.add(record.cell)
        family = family_of_record(record)
        if family is not None:
            family_names.add(family.name)
    fitting = []
    for report in reports().values():
        has_family = not report.families or bool(report.families & family_names)
        if report.suggestion and has_family and report.applies(cells):
            fitting.append(report)
    return fitting
