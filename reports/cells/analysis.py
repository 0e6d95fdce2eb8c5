"""Recurrent cells: how fast they are in each framework, what they learn of a text, and how long it takes to a loss.

Pure functions. A line is one row of the matrix at one place; its cells are networks of one mini-batch and number of
steps. Speeds are of the newest run that timed a cell; losses are those of `curves`, whatever framework trained: parity
has shown that all compute the same.

The target of a text is the point at a share of the way from the loss of a network that knows nothing, the logarithm of
the number of symbols, down to the floor: the entropy of a generated text, of another the lowest loss of any network
here. The share is the largest of `SHARES` that any network reached. Hours to it are a network's steps times a row's
seconds, with the interval of the seconds; what blocks of 50 steps blur is not in it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.adapters.launch.texts import ALPHABET
from dlbench.reports.cells.curves import Curve, Net, TextOf, Trained, curves_of, net_of, trained
from dlbench.reports.evidence.contrasts import clearly_slower
from dlbench.reports.evidence.statistics import Summary
from dlbench.reports.matrix.analysis import Matrix, MatrixCell
from dlbench.reports.matrix.places import Place, Row
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Of the way down to the floor."""
KNOWS_NOTHING = math.log(ALPHABET)


class Work(NamedTuple):
    """What the networks of one table have in common."""

    steps: int
    embedding: int
    batch_size: int


@dataclass(frozen=True)
class Line:
    """One row of the matrix at one place."""

    row: Row
    place: Place
    work: Work
    cells: Mapping[Net, MatrixCell]

    def seconds(self, net: Net) -> Summary | None:
        """Return the seconds of an update; None where there is no number of the right mathematics."""
        cell = self.cells.get(net)
        return None if cell is None else cell.timed


@dataclass(frozen=True)
class Learnt:
    """A text, and what networks learnt of it."""

    text: TextOf
    nets: Mapping[Net, Trained]
    floor: float
    """Of the text, where it is known; else the lowest loss of any network."""
    share: float
    """Of the way down that the target is at."""

    @property
    def target(self) -> float:
        """The loss whose time is told."""
        return KNOWS_NOTHING - self.share * (KNOWS_NOTHING - self.floor)

    @property
    def common_steps(self) -> int:
        """Steps that every network was trained for, at which losses are compared."""
        return min((each.curve.last for each in self.nets.values() if each.curve.steps), default=0)

    def loss(self, net: Net) -> float | None:
        """Return the loss of a network at the common steps: of the block that ends there, or about there."""
        found = self.nets.get(net)
        if found is None or not found.curve.steps:
            return None
        blocks = zip(found.curve.steps, found.curve.losses, strict=True)
        return [loss for step, loss in blocks if step <= self.common_steps or step == found.curve.steps[0]][-1]


@dataclass(frozen=True)
class Way:
    """A network trained in a row: how long it takes to the target."""

    line: Line
    learnt: Learnt
    net: Net
    seconds: Summary
    """Of an update."""
    steps: float | None
    """To the target; None: it was never reached."""
    loss: float
    """At the common steps."""
    best: bool = False
    """No other network in any row of this machine is both clearly faster and lower."""

    @property
    def hours(self) -> tuple[float, float | None, float | None] | None:
        """To the target, and the ends of the interval; None where it was never reached."""
        if self.steps is None:
            return None
        one = self.steps / 3600
        low, high = (None if end is None else one * end for end in (self.seconds.low, self.seconds.high))
        return one * self.seconds.median, low, high


@dataclass(frozen=True)
class CellStudy:
    """All of it."""

    hosts: Mapping[str, Host]
    lines: tuple[Line, ...]
    learnt: tuple[Learnt, ...]
    ways: tuple[Way, ...]
    notes: tuple[str, ...]


def study(matrix: Matrix, records: Sequence[Record]) -> CellStudy:
    """Return the study of a matrix's cells and of the curves of these records."""
    lines = _lines(matrix, records)
    learnt = tuple(_learnt(text, nets) for text, nets in trained(curves_of(records)).items())
    notes = [f"{words(each.net)}: training in {each.row.framework} ended: {each.ended}" for each in _cut_short(learnt)]
    return CellStudy(matrix.hosts, lines, learnt, _ways(lines, learnt), (*notes, *matrix.notes))


def words(net: Net) -> str:
    """Return a network in words: "gru 2 x 128"."""
    return f"{net.cell} {net.layers} x {net.size}"


def _lines(matrix: Matrix, records: Iterable[Record]) -> tuple[Line, ...]:
    nets = {(each.cell.network, each.cell.specification, each.cell.batch_size): net_of(each) for each in records}
    found: dict[tuple[Work, Place, Row], dict[Net, MatrixCell]] = {}
    for cell in matrix.cells.values():
        net = nets.get((cell.group.network, cell.group.specification, cell.group.batch_size))
        usual = (cell.group.precision, cell.group.placement) == ("float32", "resident")
        if net is not None and usual:
            found.setdefault((Work(*net[3:]), cell.column, cell.row), {})[net] = cell
    columns = {column: number for number, column in enumerate(matrix.columns)}
    keys = sorted(found, key=lambda key: (key[0], columns[key[1]], key[2]))
    return tuple(Line(row, place, work, found[work, place, row]) for work, place, row in keys)


def _learnt(text: TextOf, nets: Mapping[Net, Trained]) -> Learnt:
    reached = [loss for each in nets.values() for loss in each.curve.losses]
    floor = text.floor if text.floor is not None else min(reached, default=0.0)
    way = KNOWS_NOTHING - floor
    lowest = min(reached, default=KNOWS_NOTHING)
    share = next((each for each in SHARES if lowest <= KNOWS_NOTHING - each * way), SHARES[0])
    return Learnt(text, nets, floor, share)


def _cut_short(learnt: Iterable[Learnt]) -> list[Curve]:
    return [each.curve for of_text in learnt for each in of_text.nets.values() if each.curve.ended]


def _ways(lines: Sequence[Line], learnt: Sequence[Learnt]) -> tuple[Way, ...]:
    found = []
    for of_text in learnt:
        ways = [
            Way(line, of_text, net, seconds, of_text.nets[net].curve.steps_to(of_text.target), loss)
            for line in lines
            for net in line.cells
            if (loss := of_text.loss(net)) is not None and (seconds := line.seconds(net)) is not None
        ]
        found += [_marked(way, ways) for way in ways]
    return tuple(found)


def _marked(way: Way, ways: Iterable[Way]) -> Way:
    rivals = (each for each in ways if each.line.place.machine == way.line.place.machine and each.loss < way.loss)
    beaten = any(clearly_slower(way.seconds, each.seconds) for each in rivals)
    return Way(way.line, way.learnt, way.net, way.seconds, way.steps, way.loss, not beaten)
