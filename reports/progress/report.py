"""`dlbench report progress`."""

from pathlib import Path

from dlbench.reports.progress.analysis import Progress, progress
from dlbench.reports.progress.words import progress_data, progress_page, progress_rows
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Choices, Report


def _draw(found: Progress, path: Path, choices: Choices) -> list[Path]:
    from dlbench.reports.progress.plot import progress_to_picture

    return progress_to_picture(found, path)


REPORT = Report(
    name="progress",
    summary="The frameworks from oldest to newest, by release date: what became faster on one machine.",
    examples=("dlbench report progress", "dlbench report progress --all-modes --plot progress.png"),
    analyse=lambda source: progress(source.matrix(), source.builds(), source.choices.all_modes),
    page=lambda found, choices: progress_page(found),
    data=progress_data,
    rows=progress_rows,
    draw=_draw,
    drawable=lambda found: bool(found.rankings),
    offers=frozenset({ALL_MODES, ALL_RUNS}),
)
