"""`dlbench report machines`."""

from dlbench.reports.machines.analysis import machines
from dlbench.reports.machines.data import machines_data, machines_rows
from dlbench.reports.machines.words import draw_machines, headline, machines_page
from dlbench.reports.report import ALL_RUNS, REFERENCE, Report

REPORT = Report(
    name="machines",
    summary="""The same cells on several machines: ratios with intervals, and the mean of each row.

Machines of the same kind (CPU, cores, memory) get a verdict, others their ratio alone.""",
    examples=(
        "dlbench report machines --store here.sqlite --store there.sqlite",
        "dlbench report machines --store here.sqlite --store there.sqlite --plot machines.png",
    ),
    analyse=lambda source: machines(source.matrix()),
    page=lambda found, options: machines_page(found),
    data=machines_data,
    rows=machines_rows,
    draw=lambda found, path, options: draw_machines(found, path),
    drawable=lambda found: any(each.pairs for each in found.against),
    options=frozenset({REFERENCE, ALL_RUNS}),
    heading="Machine against machine",
    place=20,
    headline=headline,
    has_section=lambda found: any(each.pairs for each in found.against),
)
