"""What Shi et al. 2016 claim of GPUs."""

from collections.abc import Iterator, Sequence

from dlbench.adapters.protocol import Status
from dlbench.reports.claims.cells import CNNS, FCNS, NETWORKS, RNNS, Cells
from dlbench.reports.claims.claim import Test
from dlbench.reports.claims.questions import MORE, Claimed, Question, of_fact, of_times, usable, why_missing

TOOLS = ("caffe", "cntk", "tensorflow", "torch")


def fastest(tool: str, networks: Sequence[str]) -> Test:
    """A2, A3: a tool is the fastest of the four."""

    def test(cells: Cells) -> Iterator[Question]:
        others = [each for each in TOOLS if each != tool]
        for gpu in cells.gpus():
            for network in networks:
                best, own = cells.fastest(gpu, network, others), cells.at(gpu, network, tool)
                yield of_times(f"{network} on {cells.name(gpu)}, fastest other / {tool}", best, own, MORE)

    return test


def cntk_on_rnns(cells: Cells) -> Iterator[Question]:
    """A4: CNTK takes more than twice as long."""
    for gpu in cells.gpus():
        for tool in ("torch", "tensorflow"):
            for network in RNNS:
                over, under = cells.at(gpu, network, "cntk"), cells.at(gpu, network, tool)
                yield of_times(f"{network} on {cells.name(gpu)}, cntk / {tool}", over, under, Claimed(least=2.0))


def _two_gpus(cells: Cells, older: str, newer: str, networks: Sequence[str], claimed: Claimed) -> Iterator[Question]:
    for old in cells.gpus(older):
        for new in cells.gpus(newer):
            for tool in cells.tools(new):
                for network in networks:
                    over, under = cells.at(old, network, tool), cells.at(new, network, tool)
                    if over or under:
                        yield of_times(f"{tool} {network}, {older} / {newer}", over, under, claimed)


def newest_fastest(cells: Cells) -> Iterator[Question]:
    """A7: the GTX 1080 is always faster."""
    for older in ("GTX 980", "Tesla K80"):
        yield from _two_gpus(cells, older, "GTX 1080", NETWORKS, MORE)


def generations(cells: Cells) -> Iterator[Question]:
    """A16: a GTX 1080 is 1.5 times as fast as a GTX 980, and that twice as fast as a K80, on CNNs."""
    yield from _two_gpus(cells, "GTX 980", "GTX 1080", CNNS, Claimed(1.0, size=1.5))
    yield from _two_gpus(cells, "Tesla K80", "GTX 980", CNNS, Claimed(1.0, size=2.0))


def over_cores(model: str = "") -> Test:
    """A15: a GPU is 112 times as fast as 4 cores, and 100 times as 16, with TensorFlow's AlexNet."""

    def test(cells: Cells) -> Iterator[Question]:
        for gpu in cells.gpus(model):
            for spot, _, cores in cells.hosts(4):
                p, size = (16, 100.0) if cores >= 16 else (4, 112.0)
                over, under = cells.at(spot, "alexnet", "tensorflow", p), cells.at(gpu, "alexnet", "tensorflow")
                what = f"tensorflow alexnet, {p} threads / {cells.name(gpu)}"
                yield of_times(what, over, under, Claimed(1.0, size=size))

    return test


def fastest_below_256(cells: Cells) -> Iterator[Question]:
    """A17: Caffe is the fastest of the four at every mini-batch below 256."""
    others = [each for each in TOOLS if each != "caffe"]
    for gpu in cells.gpus():
        for network in FCNS:
            for size in (size for size in cells.sizes(gpu, network) if size < 256):
                best = cells.fastest(gpu, network, others, batch_size=size)
                own = cells.at(gpu, network, "caffe", batch_size=size)
                yield of_times(f"{network} b{size} on {cells.name(gpu)}, fastest other / caffe", best, own, MORE)


def memory_ends(cells: Cells) -> Iterator[Question]:
    """A18: where ResNet-50 no longer fits."""
    for gpu in cells.gpus():
        for tool, size in (("caffe", 16), ("cntk", 32), ("torch", 64)):
            cell = cells.at(gpu, "resnet50", tool, batch_size=size)
            ended = cell is not None and cell.status is Status.OUT_OF_MEMORY
            so = ended if ended or usable(cell) is not None else None
            yield of_fact(f"{tool} resnet50 b{size} is out of memory on {cells.name(gpu)}", so, why_missing(cell))
        sizes = cells.sizes(gpu, "resnet50")
        found = [cell for size in sizes if (cell := cells.at(gpu, "resnet50", "tensorflow", batch_size=size))]
        never = all(cell.status is not Status.OUT_OF_MEMORY for cell in found) if any(map(usable, found)) else None
        yield of_fact(f"tensorflow resnet50 is never out of memory on {cells.name(gpu)}", never)


def grows(cells: Cells) -> Iterator[Question]:
    """A19: twice the mini-batch takes longer, but for Torch's LSTM-64 from 256 to 512."""
    for gpu in cells.gpus():
        for tool in cells.tools(gpu):
            for network in NETWORKS:
                for size in cells.sizes(gpu, network):
                    over = cells.at(gpu, network, tool, batch_size=2 * size)
                    under = cells.at(gpu, network, tool, batch_size=size)
                    flat = (tool, network, size) == ("torch", "lstm64", 256)
                    if over is not None and under is not None:
                        claimed = Claimed(most=1.1) if flat else MORE
                        yield of_times(f"{tool} {network}, b{2 * size} / b{size}", over, under, claimed)
