"""`dlbench report fleet`."""

from dlbench.reports.fleet.analysis import nodes_of_fleets
from dlbench.reports.fleet.data import fleet_data, fleet_rows
from dlbench.reports.fleet.headline import headline
from dlbench.reports.fleet.words import draw_fleet, fleet_page
from dlbench.reports.report import FLEET, TOP, Report

REPORT = Report(
    name="fleet",
    summary="""Node against node: which of many machines of one kind is slow, by how much, and on what.

Compared are the cells that several nodes have, and the machine's own speeds (matrix products and memory on one
thread) as they were read between launches. Beside that stands how much nodes differ, and how much launches do.""",
    examples=(
        "dlbench report fleet --store postgresql+psycopg://me@host/results",
        "dlbench report fleet --fleet 20261122 --plot nodes.png",
        "dlbench report fleet --networks fcn5 --json",
    ),
    analyse=nodes_of_fleets,
    page=fleet_page,
    data=fleet_data,
    rows=fleet_rows,
    draw=draw_fleet,
    drawable=lambda found: bool(found.compared),
    options=frozenset({FLEET, TOP}),
    heading="Node against node",
    place=18,
    headline=headline,
    has_section=lambda found: bool(found.compared),
)
