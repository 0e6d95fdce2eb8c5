"""The reports there are: every folder of this package that holds a module ``report`` with a `Report`."""

import importlib
from pathlib import Path
from typing import Any

import dlbench.reports
from dlbench.reports.report import Report


def reports() -> dict[str, Report[Any]]:
    """Return every report by its name, in the order of names."""
    folders = {path.parent.name for room in dlbench.reports.__path__ for path in Path(room).glob("*/report.py")}
    found = [importlib.import_module(f"dlbench.reports.{folder}.report").REPORT for folder in sorted(folders)]
    return {report.name: report for report in sorted(found, key=lambda report: report.name)}
