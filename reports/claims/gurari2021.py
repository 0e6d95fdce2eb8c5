"""What Gurari's lecture of 2021 claims: of losses (Karpathy and others, 2016), and of transfer."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from dlbench.reports.against.read_tables import lines_of
from dlbench.reports.cells import CellResult
from dlbench.reports.claims.cells import Cells
from dlbench.reports.claims.claim import Test
from dlbench.reports.claims.questions import MORE, Claimed, Question, of_times, of_value
from dlbench.reports.recurrent_cells.settings import Losses, Setting


def losses() -> Losses:
    """Return the test losses of character language models; there is none of the largest plain networks."""
    return {
        Setting(line["dataset"], line["cell"], int(line["layers"]), int(line["size"])): float(line["loss"])
        for line in lines_of("karpathy2016_losses.csv")
        if line["loss"]
    }


PUBLISHED = "of published losses"
ONE_TRAINING = "of one training each, no interval"


def _compare(found: Losses, other: Callable[[Setting], Setting | None], names: str, method: str) -> Iterator[Question]:
    """Ask for each network whether the other one, if there is one, has the higher loss."""
    for setting, loss in found.items():
        against = other(setting)
        if against is not None and against in found:
            what = f"{setting.text}, {setting.cell} {setting.layers} x {setting.size}: {names}"
            yield of_value(what, found[against] / loss, MORE, method)


def gated(found: Losses, method: str = PUBLISHED) -> Iterator[Question]:
    """G1: LSTM and GRU have a lower loss than the plain network of the same size and layers."""
    other = "loss of rnn / its own"
    yield from _compare(found, lambda it: None if it.cell == "rnn" else it._replace(cell="rnn"), other, method)


def deeper(found: Losses, method: str = PUBLISHED) -> Iterator[Question]:
    """G2: one layer more lowers the loss."""
    yield from _compare(found, lambda it: it._replace(layers=it.layers - 1), "loss with a layer less / its own", method)


def larger(found: Losses, method: str = PUBLISHED) -> Iterator[Question]:
    """G3: twice the size lowers the loss."""
    yield from _compare(found, lambda it: it._replace(size=it.size // 2), "loss of half the size / its own", method)


def transfer(cells: Cells) -> Iterator[Question]:
    """G4: a mini-batch that is copied from pageable memory in each step takes longer than one on the device."""
    found: dict[object, dict[str, CellResult]] = {}
    for cell in cells.matrix.cells.values():
        if not cell.cell.on_cpu:
            where = cell.column, cell.row, cell.group._replace(placement="")
            found.setdefault(where, {})[cell.group.placement] = cell
    for of_place in found.values():
        over, under = of_place.get("pageable"), of_place.get("resident")
        if over is not None and under is not None:
            what = f"{over.row.framework} {over.group.network}, pageable / resident"
            yield of_times(what, over, under, Claimed(least=1.05))


TESTS: Mapping[str, Test] = {
    "G1": lambda cells: gated(cells.losses, ONE_TRAINING),
    "G2": lambda cells: deeper(cells.losses, ONE_TRAINING),
    "G3": lambda cells: larger(cells.losses, ONE_TRAINING),
    "G4": transfer,
}
ON_PAPER: Mapping[str, Callable[[], Iterable[Question]]] = {
    "G1": lambda: gated(losses()),
    "G2": lambda: deeper(losses()),
    "G3": lambda: larger(losses()),
}
