"""`dlbench report progress`."""

from dlbench.reports.cells import differ
from dlbench.reports.progress.analysis import progress
from dlbench.reports.progress.plot import progress_to_picture
from dlbench.reports.progress.words import progress_data, progress_page, progress_rows
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report

REPORT = Report(
    name="progress",
    summary="The frameworks from oldest to newest, by release date: what became faster on one machine.",
    examples=("dlbench report progress", "dlbench report progress --all-modes --plot progress.png"),
    analyse=lambda source: progress(source.matrix(), source.builds(), source.options.all_modes),
    page=lambda found, options: progress_page(found),
    data=progress_data,
    rows=progress_rows,
    draw=lambda found, path, options: progress_to_picture(found, path),
    drawable=lambda found: bool(found.rankings),
    suggestion="the frameworks from oldest to newest",
    applies=lambda cells: differ(cells, "framework", "mode") and len({each.framework for each in cells}) > 1,
    options=frozenset({ALL_MODES, ALL_RUNS}),
    heading="From the oldest framework to the newest",
    place=60,
    has_section=lambda found: bool(found.rankings),
)
