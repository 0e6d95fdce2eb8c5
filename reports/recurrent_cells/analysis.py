"""Recurrent cells: how fast they are in each framework, what they learn of a text, and how long it takes to a loss.

Pure functions. A line is one row of the matrix at one place; its cells are networks of one mini-batch and number of
steps. Speeds are of the newest run that timed a cell; losses are those of `curves`, whatever framework trained: parity
has shown that all compute the same.

Hours to the target of a text are a network's steps times a row's seconds, with the interval of the seconds; what blocks
of 50 steps blur is not in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlbench.reports.cells import CellResult, Matrix, Place, Row
from dlbench.reports.recurrent_cells.curves import Curve, Net, in_order, net_of
from dlbench.reports.recurrent_cells.learnt import Learnt, learnt_of, words
from dlbench.reports.statistics import Summary, clearly_slower
from dlbench.reports.storage.hosts import Host
from dlbench.reports.storage.record import Record


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
    cells: Mapping[Net, CellResult]

    def seconds(self, net: Net) -> Summary | None:
        """Return the seconds of an update; None where there is no number of the right mathematics."""
        cell = self.cells.get(net)
        return None if cell is None else cell.timed


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
    learnt = learnt_of(records)
    notes = [f"{words(each.net)}: training in {each.row.framework} ended: {each.ended}" for each in _cut_short(learnt)]
    return CellStudy(matrix.hosts, lines, learnt, _ways(lines, learnt), (*notes, *matrix.notes))


def _lines(matrix: Matrix, records: Iterable[Record]) -> tuple[Line, ...]:
    nets = {(each.cell.network, each.cell.specification, each.cell.batch_size): net_of(each) for each in records}
    found: dict[tuple[Work, Place, Row], dict[Net, CellResult]] = {}
    for cell in matrix.cells.values():
        net = nets.get((cell.group.network, cell.group.specification, cell.group.batch_size))
        usual = (cell.group.precision, cell.group.placement) == ("float32", "resident")
        if net is not None and usual:
            found.setdefault((Work(*net[3:]), cell.column, cell.row), {})[net] = cell
    columns = {column: number for number, column in enumerate(matrix.columns)}
    keys = sorted(found, key=lambda key: (key[0], columns[key[1]], key[2]))
    return tuple(
        Line(row, place, work, dict(sorted(found[work, place, row].items(), key=lambda pair: in_order(pair[0]))))
        for work, place, row in keys
    )


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
