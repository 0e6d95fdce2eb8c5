"""`dlbench report frameworks`."""

from collections.abc import Collection

from dlbench.adapters import axes
from dlbench.adapters.protocol import Cell
from dlbench.reports.cells import differ
from dlbench.reports.frameworks.analysis import frameworks
from dlbench.reports.frameworks.data import frameworks_data, frameworks_rows
from dlbench.reports.frameworks.words import draw_frameworks, frameworks_page, headline
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report


def _tells(cells: Collection[Cell]) -> bool:
    several = len({axes.project(each, [axis.name for axis in axes.of_role(axes.GROUP)]) for each in cells}) > 1
    return several and differ(cells, *(axis.name for axis in axes.of_role(axes.ROW)))


REPORT = Report(
    name="frameworks",
    summary="How many times as long each framework takes as one of them, over the networks that both have.",
    examples=("dlbench report frameworks", "dlbench report frameworks --threads 1,2 --plot frameworks.png"),
    analyse=lambda source: frameworks(source.matrix()),
    page=lambda found, options: frameworks_page(found),
    data=frameworks_data,
    rows=frameworks_rows,
    draw=lambda found, path, options: draw_frameworks(found, path),
    drawable=lambda found: bool(found.machines),
    suggestion="framework against framework, over all networks",
    applies=_tells,
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Framework against framework",
    place=15,
    headline=headline,
    has_section=lambda found: bool(found.machines),
)
