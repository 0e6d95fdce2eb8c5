"""What Shi et al. 2016 claim of CPUs, and which test belongs to which of their claims."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

from dlbench.adapters.protocol import Status
from dlbench.reports.claims import shi2016_gpus as gpus
from dlbench.reports.claims.cells import CNNS, FCNS, NETWORKS, RNNS, Cells
from dlbench.reports.claims.claim import Test
from dlbench.reports.claims.questions import (
    LESS,
    MORE,
    Claimed,
    Question,
    of_fact,
    of_times,
    of_value,
    usable,
    why_missing,
)
from dlbench.reports.published import SHI2016, study

DESKTOP = study(SHI2016).hosts["desktop_i7_3820"].fingerprint
FAILED = (Status.CRASHED, Status.TIMED_OUT, Status.OUT_OF_MEMORY)
"""What a cell is that cannot be run."""
PRINTED = Claimed(least=0.95, most=1.05)
"""A figure that the text rounds, over the table's."""


@functools.cache
def of_table4(machine: str = "") -> Cells:
    """Return the cells of Table 4, or of one of its machines."""
    return Cells(study(SHI2016).matrix(), lambda cell: cell.row.framework, [machine] if machine else None)


def scaling(cells: Cells) -> Iterator[Question]:
    """A1: 16 cores are only slightly better than 4."""
    for spot, _, _ in cells.hosts(16):
        for tool in cells.tools(spot):
            for network in NETWORKS:
                four, sixteen = (cells.at(spot, network, tool, threads) for threads in (4, 16))
                if four or sixteen:
                    yield of_times(f"{tool} {network}, 4 threads / 16", four, sixteen, Claimed(most=1.4))


def cntk_on_rnns(cells: Cells) -> Iterator[Question]:
    """A5: on CPUs CNTK takes less than half the time, whatever the threads."""
    for spot in cells.cpus():
        for tool in ("torch", "tensorflow"):
            for network in RNNS:
                for p in cells.counts(spot):
                    over, under = cells.at(spot, network, tool, p), cells.at(spot, network, "cntk", p)
                    yield of_times(f"{network} at {p}, {tool} / cntk", over, under, Claimed(least=2.0))


def torch_on_rnns(cells: Cells) -> Iterator[Question]:
    """A6: TensorFlow takes nearly 12 times as long as Torch."""
    for spot, _, _ in cells.hosts(4):
        for network in RNNS:
            over, under = (cells.at(spot, network, tool, 4) for tool in ("tensorflow", "torch"))
            yield of_times(f"{network} at 4, tensorflow / torch", over, under, Claimed(least=1.0, size=12.0))


def cannot_run(cells: Cells) -> Iterator[Question]:
    """A8: Caffe and Torch do not run FCNs with more threads than cores."""
    for spot, _, cores in cells.hosts():
        for tool in ("caffe", "torch"):
            for network in FCNS:
                cell = cells.at(spot, network, tool, 2 * cores)
                told = cell is not None and (usable(cell) is not None or cell.status in FAILED)
                so = cell is not None and cell.status in FAILED if told else None
                yield of_fact(f"{tool} {network} fails at {2 * cores} threads", so, why_missing(cell))


def gains_beyond(cells: Cells) -> Iterator[Question]:
    """A9: TensorFlow gains where there are twice as many threads as cores."""
    for spot, _, cores in cells.hosts():
        for network in NETWORKS:
            over, under = (cells.at(spot, network, "tensorflow", p) for p in (2 * cores, cores))
            yield of_times(f"tensorflow {network}, {2 * cores} threads / {cores}", over, under, LESS)


def suffers_beyond(cells: Cells) -> Iterator[Question]:
    """A10: Caffe, CNTK and Torch lose where there are twice as many threads as cores."""
    for spot, _, cores in cells.hosts():
        for tool in ("caffe", "cntk", "torch"):
            for network in NETWORKS:
                beyond = cells.at(spot, network, tool, 2 * cores)
                within = cells.best(spot, network, tool, cores)
                if beyond or within:
                    yield of_times(f"{tool} {network}, {2 * cores} threads / best up to {cores}", beyond, within, MORE)


def torch_resnet(cells: Cells) -> Iterator[Question]:
    """A11: Torch's ResNet-50 takes 56 times as long from 4 threads on as with 2."""
    for spot, _, cores in cells.hosts(4):
        for p in (cores, 2 * cores):
            over, under = (cells.at(spot, "resnet50", "torch", threads) for threads in (p, 2))
            yield of_times(f"torch resnet50, {p} threads / 2", over, under, Claimed(least=1.0, size=56.0))


def best_of_fcn8(cells: Cells) -> Iterator[Question]:
    """A12: TensorFlow's best FCN-8 takes 1.9 / 0.48 times as long as Caffe's."""
    for spot in cells.cpus():
        over, under = (cells.best(spot, "fcn8", tool) for tool in ("tensorflow", "caffe"))
        yield of_times(
            f"best fcn8 on {cells.name(spot)}, tensorflow / caffe", over, under, Claimed(1.0, size=1.9 / 0.48)
        )


def best_seconds() -> Iterator[Question]:
    """A12 on the paper: the seconds that its text prints, against its table."""
    cells = of_table4(DESKTOP)
    for spot in cells.cpus():
        for tool, printed in (("tensorflow", 1.9), ("caffe", 0.48)):
            cell = cells.best(spot, "fcn8", tool)
            if cell is not None and cell.timed is not None:
                yield of_value(f"best fcn8 of {tool}, table / text", cell.timed.median / printed, PRINTED)


def one_core(cells: Cells) -> Iterator[Question]:
    """A13: on one core TensorFlow's ResNet-50 takes up to 3 times as long as Caffe's."""
    for spot in cells.cpus():
        over, under = (cells.at(spot, "resnet50", tool, 1) for tool in ("tensorflow", "caffe"))
        yield of_times(f"resnet50 at 1 on {cells.name(spot)}, tensorflow / caffe", over, under, Claimed(1.0, size=3.0))


def gain_on_rnns(cells: Cells) -> Iterator[Question]:
    """A14: on RNNs Torch and CNTK hardly gain from 4 threads, TensorFlow nearly 4 times."""
    for spot, _, _ in cells.hosts(4):
        for tool, claimed in (("torch", Claimed(most=1.5)), ("cntk", Claimed(most=1.5)), ("tensorflow", Claimed(3.0))):
            for network in RNNS:
                over, under = (cells.at(spot, network, tool, p) for p in (1, 4))
                yield of_times(f"{tool} {network}, 1 thread / 4", over, under, claimed)


TESTS: Mapping[str, Test] = {
    "A1": scaling,
    "A2": gpus.fastest("caffe", FCNS),
    "A3": gpus.fastest("tensorflow", CNNS),
    "A4": gpus.cntk_on_rnns,
    "A5": cntk_on_rnns,
    "A6": torch_on_rnns,
    "A7": gpus.newest_fastest,
    "A8": cannot_run,
    "A9": gains_beyond,
    "A10": suffers_beyond,
    "A11": torch_resnet,
    "A12": best_of_fcn8,
    "A13": one_core,
    "A14": gain_on_rnns,
    "A15": gpus.over_cores(),
    "A16": gpus.generations,
    "A17": gpus.fastest_below_256,
    "A18": gpus.memory_ends,
    "A19": gpus.grows,
}
OF_DESKTOP = ("A6", "A8", "A9", "A10", "A14")
"""Claims of one machine of the paper's."""
NOT_IN_TABLE = ("A11", "A17", "A18", "A19")
"""Claims that Table 4 does not tell about."""


def _of_paper(name: str, test: Test) -> Callable[[], Iterable[Question]]:
    return lambda: test(of_table4(DESKTOP if name in OF_DESKTOP else ""))


ON_PAPER: Mapping[str, Callable[[], Iterable[Question]]] = {
    **{name: _of_paper(name, test) for name, test in TESTS.items() if name not in NOT_IN_TABLE},
    "A12": best_seconds,
    "A15": lambda: gpus.over_cores("GTX 1080")(of_table4()),
}
