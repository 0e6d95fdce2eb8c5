"""The reports there are: every module of this package that defines ``REPORT``; each is imported
when it is used.
"""

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
    """Return the module of each report by the report's name, in the order of names, without
    importing any.
    """
    return _modules(tuple(dlbench.reports.__path__))


@cache
def _modules(rooms: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for room in map(Path, rooms):
        for path in [*room.glob("*.py"), *room.glob("*/*.py")]:
            text = path.read_text(encoding="utf-8")
            if declared := _DECLARATION.search(text):
                found[declared[1]] = ".".join(
                    ("dlbench.reports", *path.relative_to(room).with_suffix("").parts)
                )
    return dict(sorted(found.items()))


def report(name: str) -> Report[Any]:
    """Return the report of this name."""
    found: Report[Any] = importlib.import_module(modules()[name]).REPORT
    return found


def reports() -> dict[str, Report[Any]]:
    """Return every report by its name, in the order of names."""
    return {name: report(name) for name in modules()}


def suggested(records: Iterable[Record]) -> list[Report[Any]]:
    """Return the reports that have something to show of these records, in the order of names."""
    timed = [
        each for each in records if each.outcome.status is Status.OK and each.outcome.was_timed()
    ]
    families = {family.name for each in timed if (family := family_of_record(each)) is not None}
    cells = {each.cell for each in timed}
    fitting = [each for each in reports().values() if each.suggestion and each.applies(cells)]
    return [each for each in fitting if not each.families or each.families & families]
