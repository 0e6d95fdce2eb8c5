"""`dlbench report against`."""

from dlbench.reports.against import shi2016
from dlbench.reports.against.analysis import Against, against
from dlbench.reports.against.words import against_data, against_page, against_rows
from dlbench.reports.cells import Builds, build_matrix
from dlbench.reports.report import ALL_MODES, ALL_RUNS, Report, Source


def _analyse(source: Source) -> Against:
    results = source.results()
    builds = Builds(results.records, source.releases())
    mine = build_matrix(results)
    return against(mine, shi2016.publication(), source.stands(), builds, source.options.all_modes)


REPORT = Report(
    name="against",
    summary="""One's own results beside the 2016 paper's Table 4, with speed-ups.

For each framework of the paper, on as many threads: the seconds of 2016, the speed-up since (hardware and software
together), and how much is left when both are divided by the cores' peak rates.""",
    examples=("dlbench report against", "dlbench report against --all-modes --format markdown"),
    analyse=_analyse,
    page=lambda found, options: against_page(found),
    data=against_data,
    rows=against_rows,
    options=frozenset({ALL_MODES, ALL_RUNS}),
    has_section=lambda found: bool(found.matches),
    heading="Beside the paper of 2016",
    place=74,
)
