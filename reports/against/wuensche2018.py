"""Table I of Wuensche's survey, in the form that our reports take.

Wuensche 2018, a survey of what makes training fast: the desktop of Shi et al. once more, with figures of a later
version of their paper. Which of the two fully connected networks it is, the table does not say.
"""

from dlbench.adapters import axes
from dlbench.adapters.protocol import Status
from dlbench.reports.against.read_tables import lines_of
from dlbench.reports.against.shi2016 import HOSTS
from dlbench.reports.cells import CellResult, Matrix, assemble
from dlbench.reports.statistics import published

NAME = "wuensche2018"
NETWORK = "fully connected"
SOURCE = "Wuensche 2018 (a survey of what makes training fast), Table I, after Shi and others"
CAVEAT = "It does not say which fully connected network it is, nor what the - is."


def table1() -> Matrix:
    """Return Table I as a matrix."""
    cells = [_cell(line) for line in lines_of("wuensche2018_table1.csv")]
    host = HOSTS["desktop_i7_3820"]
    return assemble(cells, {host.fingerprint: host}, [f"Source: {SOURCE}. {CAVEAT}"])


def _cell(line: dict[str, str]) -> CellResult:
    batch, told = int(line["mini_batch"]), line["seconds_per_minibatch"]
    seconds = published(float(told)) if told else None
    return CellResult(
        machine=HOSTS["desktop_i7_3820"].fingerprint,
        cell=axes.BLANK._replace(
            network=NETWORK,
            batch_size=batch,
            framework=line["framework"],
            mode="2018",
            device="cpu",
            threads=int(line["threads"]),
        ),
        status=Status.OK if seconds else Status.UNSUPPORTED,
        reason="" if seconds else "a - in the paper, without a reason",
        seconds=seconds,
        items_per_second=batch / seconds.median if seconds else None,
        run=NAME,
    )
