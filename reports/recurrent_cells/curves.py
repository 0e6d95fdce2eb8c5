"""Losses of networks trained on a text, out of records: which curve counts, what confirms it, what it says at a step.

Pure functions. Of each network and text the longest curve counts, of equally long ones the newest. A curve of another
framework confirms it where the means of all blocks that both have, up to `CHECKED` steps, differ by less than `ALIKE`;
where one differs by more, the curve is not confirmed.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dlbench.adapters.families import ALPHABET, Recurrent
from dlbench.adapters.protocol import Status
from dlbench.reports.cells import Row, row_of
from dlbench.reports.storage.networks import family_of_record
from dlbench.reports.storage.record import Record

ALIKE = 0.01
"""Relative difference of the means of blocks below which two frameworks train alike."""
CHECKED = 500
"""Steps up to which they are compared: rounding errors grow with every step."""


class Net(NamedTuple):
    """What tells one of these networks from another, with its mini-batch."""

    cell: str
    layers: int
    size: int
    steps: int
    embedding: int
    batch_size: int


class TextOf(NamedTuple):
    """What a record says of the text that its network was trained on."""

    name: str
    digest: str
    symbols: int
    floor: float | None


@dataclass(frozen=True)
class Curve:
    """A training: its losses by blocks."""

    net: Net
    text: TextOf
    row: Row
    adapter: str
    machine: str
    run: str
    steps: tuple[int, ...]
    """At the end of each block."""
    losses: tuple[float, ...]
    """Means over the blocks, of the losses before each update."""
    test_loss: float | None = None
    """Of the part of the text that was kept, after the last step."""
    ended: str = ""
    """Why it ended early."""

    @property
    def last(self) -> int:
        """How many steps it has."""
        return self.steps[-1] if self.steps else 0

    @property
    def middles(self) -> tuple[float, ...]:
        """The step in the middle of each block, which its mean stands for."""
        return tuple((first + last + 1) / 2 for first, last in zip((0, *self.steps), self.steps, strict=False))

    def loss_at(self, step: float) -> float | None:
        """Return the loss at a step, linear between the middles of blocks; None beyond the curve."""
        if not self.steps or not self.middles[0] <= step <= self.last:
            return None
        return float(np.interp(step, self.middles, self.losses))

    def steps_to(self, loss: float) -> float | None:
        """Return after how many steps the loss is first this low, linear between blocks; None: never."""
        below = next((place for place, each in enumerate(self.losses) if each <= loss), None)
        if below is None:
            return None
        if below == 0:
            return self.middles[0]
        (x, y), (u, v) = ((self.middles[place], self.losses[place]) for place in (below - 1, below))
        return x + (u - x) * (y - loss) / (y - v)


@dataclass(frozen=True)
class Check:
    """How far another framework's curve is from one."""

    by: Curve
    difference: float
    """The largest relative one of a block's means."""
    steps: int
    """Up to which both were compared."""

    @property
    def confirms(self) -> bool:
        """Whether both train alike."""
        return self.difference < ALIKE


@dataclass(frozen=True)
class Trained:
    """A network on a text: the curve that counts, and what other frameworks say of it."""

    curve: Curve
    checks: tuple[Check, ...]

    @property
    def confirmed(self) -> bool | None:
        """Whether every other framework trains alike; None where there is none."""
        return all(each.confirms for each in self.checks) if self.checks else None


def net_of(record: Record) -> Net | None:
    """Return what a record's network is; None where it is none of recurrent cells that takes a text."""
    family = family_of_record(record)
    if not isinstance(family, Recurrent) or family.alphabet != ALPHABET:
        return None
    return Net(family.cell, family.layers, family.hidden, family.steps, family.embedding, record.cell.batch_size)


def curve_of(record: Record) -> Curve | None:
    """Return the curve of a record; None where it trained nothing, or says nothing that could be read."""
    net, text, outcome = net_of(record), _text_of(record.outcome.software.get("text")), record.outcome
    if net is None or text is None or outcome.status is not Status.OK or record.side:
        return None
    points = [
        (int(each[0]), float(each[1])) for each in outcome.curve if len(each) == 2 and all(map(math.isfinite, each))
    ]
    if len(points) < len(outcome.curve) or any(b[0] <= a[0] for a, b in zip([(0, 0.0), *points], points, strict=False)):
        return None
    if not points and not outcome.curve_ended:
        return None
    steps, losses = zip(*points, strict=True) if points else ((), ())
    return Curve(
        net,
        text,
        row_of(record.cell),
        record.cell.adapter,
        record.machine,
        record.run,
        tuple(steps),
        tuple(losses),
        outcome.test_loss,
        outcome.curve_ended,
    )


def _text_of(told: Any) -> TextOf | None:
    if not isinstance(told, Mapping):
        return None
    name, digest, symbols, floor = (told.get(key) for key in TextOf._fields)
    known = isinstance(floor, float) and math.isfinite(floor)
    if not (isinstance(name, str) and isinstance(digest, str) and isinstance(symbols, int)):
        return None
    return TextOf(name, digest, symbols, floor if known else None)


def curves_of(records: Iterable[Record]) -> list[Curve]:
    """Return the curves of these records, the newest last."""
    ordered = sorted(records, key=lambda record: record.started)
    return [curve for record in ordered if (curve := curve_of(record)) is not None]


def trained(curves: Iterable[Curve]) -> dict[TextOf, dict[Net, Trained]]:
    """Return by text and network what counts of these curves, the newest of which is the last."""
    found: dict[TextOf, dict[Net, list[Curve]]] = {}
    for curve in curves:
        found.setdefault(curve.text, {}).setdefault(curve.net, []).append(curve)
    return {
        text: {net: _trained(of_net) for net, of_net in sorted(nets.items(), key=lambda pair: in_order(pair[0]))}
        for text, nets in found.items()
    }


def in_order(net: Net) -> tuple[object, ...]:
    """Return a key that puts networks of one kind of work together: by size, cell and layers."""
    return (*net[3:], net.size, cell_order(net.cell), net.layers)


def cell_order(cell: str) -> tuple[int, str]:
    """Return a key that puts cells in the order of their cost."""
    known = ("rnn", "gru", "lstm")
    return (known.index(cell) if cell in known else len(known), cell)


def _trained(curves: list[Curve]) -> Trained:
    main = max(enumerate(curves), key=lambda pair: (pair[1].last, pair[0]))[1]
    others = {curve.adapter: curve for curve in curves if curve.adapter != main.adapter and curve.steps}
    return Trained(main, tuple(check for other in others.values() if (check := _check(main, other)) is not None))


def _check(main: Curve, other: Curve) -> Check | None:
    theirs = dict(zip(other.steps, other.losses, strict=True))
    both = {
        step: loss for step, loss in zip(main.steps, main.losses, strict=True) if step in theirs and step <= CHECKED
    }
    if not both:
        return None
    return Check(other, max(abs(theirs[step] / loss - 1) for step, loss in both.items()), max(both))
