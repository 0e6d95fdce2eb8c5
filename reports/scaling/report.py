"""`dlbench report scaling`."""

from dlbench.reports.report import ALL_RUNS, Report
from dlbench.reports.scaling.analysis import workers
from dlbench.reports.scaling.data import workers_data, workers_rows
from dlbench.reports.scaling.plot import workers_to_picture
from dlbench.reports.scaling.words import workers_page

REPORT = Report(
    name="scaling",
    summary="""What several workers (GPUs, or processes on the CPU) that share a mini-batch gain over one.

Strong scaling compares them with one worker on the same mini-batch, weak scaling with one on a mini-batch as large
as each worker's part: measure both sizes for it. On the CPU they are also compared with one process with as many
threads as they have together, where that was measured.""",
    examples=(
        "dlbench run quick --frameworks torch --threads 1,2 --world-sizes 1,2 --batch-sizes 32,64",
        "dlbench report scaling",
        "dlbench report scaling --plot scaling.png --format markdown",
    ),
    analyse=lambda source: workers(source.matrix()),
    page=lambda found, options: workers_page(found),
    data=workers_data,
    rows=workers_rows,
    draw=lambda found, path, options: workers_to_picture(found, path),
    drawable=lambda found: bool(found.lines),
    suggestion="what several workers gain over one",
    applies=lambda cells: any(each.world_size > 1 for each in cells),
    options=frozenset({ALL_RUNS}),
    heading="Several workers",
    place=45,
    has_section=lambda found: bool(found.lines),
)
