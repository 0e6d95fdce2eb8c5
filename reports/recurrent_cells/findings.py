"""What the study says of the lecture's claims, and what cells and layers cost; verdicts are those of `claims`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dlbench.adapters.families import ALPHABET, Recurrent
from dlbench.reports.claims.claims import Evidence, answers, evidence, of_losses
from dlbench.reports.claims.figures import ONE_TRAINING, Claimed, Question, of_times, of_value
from dlbench.reports.naming import place_name, row_name
from dlbench.reports.recurrent_cells.analysis import CellStudy, Line
from dlbench.reports.recurrent_cells.curves import Net
from dlbench.reports.recurrent_cells.learnt import words
from dlbench.reports.recurrent_cells.settings import losses_of


@dataclass(frozen=True)
class Finding:
    """A sentence, and what the figures say of it."""

    name: str
    said: str
    evidence: Evidence


def findings(found: CellStudy) -> tuple[Finding, ...]:
    """Return the findings that there is any figure for."""
    asked = [(name, said, tuple(ask(found))) for name, said, ask in _FINDINGS]
    told = iter(answers([question for *_, questions in asked for question in questions]))
    made = [
        Finding(name, said, evidence([(question, next(told)) for question in questions]))
        for name, said, questions in asked
    ]
    return tuple(each for each in made if each.evidence.figures)


def _gated_at_equal_time(found: CellStudy) -> Iterator[Question]:
    """Ask for each row whether a gated network has the lower loss after the time that the plain one took."""
    ways = {(way.line.row, way.line.place, way.learnt.text, way.net): way for way in found.ways}
    for (row, place, text, net), way in ways.items():
        plain = ways.get((row, place, text, net._replace(cell="rnn")))
        if net.cell == "rnn" or plain is None:
            continue
        seconds = plain.seconds.median * way.learnt.common_steps
        steps = seconds / way.seconds.median
        loss = way.learnt.nets[net].curve.loss_at(min(steps, way.learnt.common_steps))
        if loss is not None:
            what = f"{line_name(way.line)}, {words(net)} after {steps:.0f} steps: loss of rnn / its own"
            yield of_value(what, plain.loss / loss, Claimed(least=1.0), ONE_TRAINING)


def _costs(found: CellStudy, other: Callable[[Net], Net | None]) -> Iterator[Question]:
    """Ask how many times as long an update takes as that of the other network, whose work is known too."""
    for line in found.lines:
        for net, cell in line.cells.items():
            against = other(net)
            if against is not None and against in line.cells:
                size = flops(net) / flops(against)
                what = f"{line_name(line)}, {words(net)} / {words(against)}"
                yield of_times(what, cell, line.cells[against], Claimed(least=1.0, size=size))


def flops(net: Net) -> int:
    """Return the operations of a step, as the matrix counts them."""
    family = Recurrent(ALPHABET, net.embedding, net.size, net.layers, net.steps, net.cell)
    return family.training_flops(net.batch_size)


def line_name(line: Line) -> str:
    """Return a row at its place in words."""
    return f"{row_name(line.row)}, {place_name(line.place.cell)}"


def cell_instead(cell: str) -> Callable[[Net], Net | None]:
    """Return what gives for a network of this cell the plain one."""
    return lambda net: net._replace(cell="rnn") if net.cell == cell else None


def one_layer(net: Net) -> Net | None:
    """Return for a network of three layers that of one."""
    return net._replace(layers=1) if net.layers == 3 else None


_FINDINGS: tuple[tuple[str, str, Callable[[CellStudy], Iterable[Question]]], ...] = (
    ("G1", "LSTM and GRU have a lower loss than rnn of equal size", lambda it: of_losses("G1", losses_of(it.learnt))),
    ("G1t", "and after equal time", _gated_at_equal_time),
    ("G2", "A layer more lowers the loss", lambda it: of_losses("G2", losses_of(it.learnt))),
    ("G3", "Twice the size lowers the loss", lambda it: of_losses("G3", losses_of(it.learnt))),
    ("gru", "A GRU takes longer than rnn, by its FLOPs", lambda it: _costs(it, cell_instead("gru"))),
    ("lstm", "An LSTM takes longer than rnn, by its FLOPs", lambda it: _costs(it, cell_instead("lstm"))),
    ("layers", "3 layers take longer than 1, by their FLOPs", lambda it: _costs(it, one_layer)),
)
