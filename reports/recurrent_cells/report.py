"""`dlbench report cells`."""

from typing import NamedTuple

from dlbench.reports.recurrent_cells.analysis import CellStudy, study
from dlbench.reports.recurrent_cells.data import cells_data, cells_rows
from dlbench.reports.recurrent_cells.findings import Finding, findings
from dlbench.reports.recurrent_cells.losses import KARPATHY
from dlbench.reports.recurrent_cells.plot import curves_to_picture
from dlbench.reports.recurrent_cells.words import QUANTITIES, cells_page
from dlbench.reports.report import ALL_RUNS, QUANTITY, Report, Source


class Found(NamedTuple):
    """The study, and what it says."""

    study: CellStudy
    findings: tuple[Finding, ...]


def _analyse(source: Source) -> Found:
    found = study(source.matrix(), source.results().records)
    return Found(found, findings(found))


REPORT = Report(
    name="cells",
    summary="""Recurrent cells (rnn, GRU, LSTM) by layers and size: speed, loss, and the time to a loss.

Speeds are of whatever suite timed such a network (cells, cells-quick, char); losses of those that trained it on a
text (char). With `--against karpathy2016` the published losses stand beside one's own.""",
    examples=(
        "dlbench report cells",
        "dlbench report cells --quantity characters --suite cells",
        "dlbench report cells --quantity loss --against karpathy2016",
        "dlbench report cells --plot curves.png",
    ),
    analyse=_analyse,
    page=lambda found, options: cells_page(*found, options.quantity, options.against),
    data=lambda found: cells_data(*found),
    rows=lambda found: cells_rows(found.study),
    draw=lambda found, path, options: curves_to_picture(found.study, path),
    drawable=lambda found: any(each.curve.steps for of in found.study.learnt for each in of.nets.values()),
    suggestion="recurrent cells: speed, loss, and time to a loss",
    applies=lambda cells: any(each.network.startswith("char-") for each in cells),
    options=frozenset({QUANTITY, ALL_RUNS}),
    quantities=tuple(QUANTITIES),
    published=(KARPATHY,),
    trainings=True,
    heading="Recurrent cells",
    place=71,
)
