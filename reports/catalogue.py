"""The reports there are: every folder of this package that holds a module ``report`` with a `Report`."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dlbench.reports
from dlbench.adapters.protocol import Status
from dlbench.reports.report import Report
from dlbench.reports.storage.networks import family_of_record
from dlbench.reports.storage.record import Record


def reports() -> dict[str, Report[Any]]:
    """Return every report by its name, in the order of names."""
    folders = {path.parent.name for room in dlbench.reports.__path__ for path in Path(room).glob("*/report.py")}
    found = [importlib.import_module(f"dlbench.reports.{folder}.report").REPORT for folder in sorted(folders)]
    return {report.name: report for report in sorted(found, key=lambda report: report.name)}


def suggested(records: Iterable[Record]) -> list[Report[Any]]:
    """Return the reports that have something to show of these records, in the order of names."""
    timed = [each for each in records if each.outcome.status is Status.OK and each.outcome.samples_ns]
    families = {family.name for each in timed if (family := family_of_record(each)) is not None}
    cells = {each.cell for each in timed}
    invited = [report for report in reports().values() if report.invitation and report.tells(cells)]
    return [report for report in invited if not report.families or report.families & families]
