"""`dlbench report comparisons`."""

from dlbench.reports.comparisons.analysis import compared
from dlbench.reports.comparisons.words import comparisons_data, comparisons_page, newest
from dlbench.reports.formats.csv import Rows
from dlbench.reports.report import Report

_COLUMNS = ("run", "started", "purpose", "baseline", "candidate", "outcome")

REPORT = Report(
    name="comparisons",
    summary="Every comparison and gate that a store holds, with its outcome; the newest cell by cell.",
    examples=("dlbench report comparisons", "dlbench report comparisons --run 20261122"),
    analyse=compared,
    page=lambda found, options: comparisons_page(found),
    data=comparisons_data,
    rows=lambda found: Rows(_COLUMNS, comparisons_data(found)),
    applies=lambda cells: True,
    heading="Comparisons and gates",
    place=20,
    headline=newest,
    has_section=bool,
)
