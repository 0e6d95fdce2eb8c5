"""Losses of recurrent networks trained on a text, from records: the curve that counts, its
confirmation, the target.

For each network and text the longest curve counts, and the newest of equally long ones. A curve of
another framework confirms it if the means of all blocks that both have, up to `CHECKED` steps,
differ by less than `ALIKE`; if one differs by more, the curve is not confirmed.

The target of a text is a share of the way from the loss of uniform guessing, the logarithm of the
number of symbols, down to the floor: the entropy of a generated text, or else the lowest loss of
any network here. The share is the largest of `SHARES` that any network reached.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dlbench.adapters.families import ALPHABET, Recurrent
from dlbench.adapters.protocol import Status
from dlbench.reports.results.networks import family_of_record
from dlbench.reports.results.published import lines_of
from dlbench.reports.results.record import Record

ALIKE = 0.01
"""Relative difference of the means of blocks below which two frameworks train alike."""
CHECKED = 500
"""Steps up to which they are compared: rounding errors grow with every step."""
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Of the way down to the floor."""
KNOWS_NOTHING = math.log(ALPHABET)
TEXT = ("name", "digest", "symbols", "floor")
"""A record's description of a text; the floor is None where it is unknown."""
Text = tuple[str, str, int, float | None]
SETTING = ("cell", "layers", "size")
Losses = Mapping[str, Mapping[tuple[str, int, int], float]]
"""Losses by the name of a text and the parts of `SETTING` of a network."""
_CELLS = ("rnn", "gru", "lstm")


def steps_to(loss: float, steps: Sequence[float], losses: Sequence[float]) -> float | None:
    """Return after how many steps the loss is first this low, linear between the known ones; None:
    never.
    """
    below = next((place for place, each in enumerate(losses) if each <= loss), None)
    if below is None:
        return None
    before = max(0, below - 1)
    return float(np.interp(-loss, [-losses[before], -losses[below]], [steps[before], steps[below]]))


class Net(NamedTuple):
    """The numbers of one of these networks, with its mini-batch."""

    cell: str
    layers: int
    size: int
    steps: int
    embedding: int
    batch_size: int

    @property
    def name(self) -> str:
        """In words: "gru 2 x 128"."""
        return f"{self.cell} {self.layers} x {self.size}"

    @property
    def work(self) -> tuple[int, int, int]:
        """The numbers that the networks of one table share: of sequences, and the mini-batch."""
        return self.steps, self.embedding, self.batch_size

    @property
    def work_name(self) -> str:
        """The same in words."""
        embedded = f", embedding {self.embedding}" if self.embedding else ""
        return f"sequences of {self.steps}, mini-batch {self.batch_size}{embedded}"

    @property
    def order(self) -> tuple[object, ...]:
        """A sort key that puts networks of one kind of work together: by size, cell and layers."""
        return (*self.work, self.size, cell_order(self.cell), self.layers)


class Training(NamedTuple):
    """A training: its losses by blocks."""

    net: Net
    text: Text
    record: Record
    steps: tuple[int, ...]
    """At the end of each block."""
    losses: tuple[float, ...]
    """Means over the blocks, of the losses before each update."""
    checks: tuple[dict[str, Any], ...] = ()
    """The distance of every other framework's curve: the largest relative ``difference`` of a
    block's means, and the ``steps`` up to which both were compared."""

    @property
    def last(self) -> int:
        """Its number of steps."""
        return self.steps[-1] if self.steps else 0

    @property
    def confirmed(self) -> bool | None:
        """Whether every other framework trains alike; None where there is none."""
        return all(check["difference"] < ALIKE for check in self.checks) if self.checks else None

    @property
    def middles(self) -> tuple[float, ...]:
        """The step in the middle of each block, which its mean stands for."""
        return tuple(
            (first + last + 1) / 2
            for first, last in zip((0, *self.steps), self.steps, strict=False)
        )

    def loss_at(self, step: float) -> float | None:
        """Return the loss at a step, linear between the middles of blocks; None beyond the
        curve.
        """
        if not self.steps or not self.middles[0] <= step <= self.last:
            return None
        return float(np.interp(step, self.middles, self.losses))

    def steps_to(self, loss: float) -> float | None:
        """Return after how many steps the loss is first this low, see `steps_to`."""
        return steps_to(loss, self.middles, self.losses)


class Learnt(NamedTuple):
    """A text, and the trainings of networks on it."""

    text: Text
    nets: Mapping[Net, Training]

    @property
    def title(self) -> str:
        """The text in words."""
        return f"{self.text[0]} text {self.text[1][:6]}"

    @property
    def _reached(self) -> list[float]:
        return [loss for each in self.nets.values() for loss in each.losses]

    @property
    def floor(self) -> float:
        """The text's, where it is known; else the lowest loss of any network."""
        return self.text[3] if self.text[3] is not None else min(self._reached, default=0.0)

    @property
    def share(self) -> float:
        """The target's share of the way down to the floor."""
        lowest, way = min(self._reached, default=KNOWS_NOTHING), KNOWS_NOTHING - self.floor
        return next((each for each in SHARES if lowest <= KNOWS_NOTHING - each * way), SHARES[0])

    @property
    def target(self) -> float:
        """The loss whose time is reported."""
        return KNOWS_NOTHING - self.share * (KNOWS_NOTHING - self.floor)

    @property
    def common_steps(self) -> int:
        """Steps of every network whose training did not end early: losses are compared there."""
        return min(
            (each.last for each in self.nets.values() if not each.record.outcome.curve_ended),
            default=0,
        )

    def loss(self, net: Net) -> float | None:
        """Return the loss of a network at the common steps, of the last block up to there; None: it
        ended before.
        """
        found = self.nets.get(net)
        if found is None or not 0 < self.common_steps <= found.last:
            return None
        blocks = zip(found.steps, found.losses, strict=True)
        return [
            loss for step, loss in blocks if step <= self.common_steps or step == found.steps[0]
        ][-1]


def learnt_of(records: Iterable[Record]) -> tuple[Learnt, ...]:
    """Return the trainings of these records, by text and network."""
    found: dict[Text, dict[Net, list[Training]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        if (training := training_of(record)) is not None:
            found.setdefault(training.text, {}).setdefault(training.net, []).append(training)
    return tuple(
        Learnt(text, {net: _checked(nets[net]) for net in sorted(nets, key=lambda net: net.order)})
        for text, nets in found.items()
    )


def losses_of(learnt: Iterable[Learnt]) -> Losses:
    """Return the losses of networks on texts; those that differ in anything else have different
    names of texts.
    """
    found: dict[str, dict[tuple[str, int, int], float]] = {}
    for each in learnt:
        for net in each.nets:
            if (loss := each.loss(net)) is not None:
                name = f"{each.text[0]} {each.text[1][:6]}, {net.work_name}"
                found.setdefault(name, {})[net.cell, net.layers, net.size] = loss
    return found


def published_losses() -> Losses:
    """Return the test losses of Karpathy and others 2016; the largest plain networks have none."""
    found: dict[str, dict[tuple[str, int, int], float]] = {}
    for line in lines_of("karpathy2016_losses.csv"):
        if line["loss"]:
            network = line["cell"], int(line["layers"]), int(line["size"])
            found.setdefault(line["dataset"], {})[network] = float(line["loss"])
    return found


def cell_order(cell: str) -> tuple[int, str]:
    """Return a sort key that puts cells in the order of their cost."""
    return (_CELLS.index(cell) if cell in _CELLS else len(_CELLS), cell)


def net_of(record: Record) -> Net | None:
    """Return a record's network; None for networks that are not of recurrent cells on a text."""
    family = family_of_record(record)
    if not isinstance(family, Recurrent) or family.alphabet != ALPHABET:
        return None
    return Net(
        family.cell,
        family.layers,
        family.hidden,
        family.steps,
        family.embedding,
        record.cell.known_batch_size,
    )


def training_of(record: Record) -> Training | None:
    """Return the training of a record; None without one, or where it cannot be read."""
    net, text, outcome = (
        net_of(record),
        _text_of(record.outcome.software.get("text")),
        record.outcome,
    )
    if net is None or text is None or outcome.status is not Status.OK or record.side:
        return None
    points = [
        (int(each[0]), float(each[1]))
        for each in outcome.curve
        if len(each) == 2 and all(map(math.isfinite, each))
    ]
    steps, losses = tuple(step for step, _ in points), tuple(loss for _, loss in points)
    if len(points) < len(outcome.curve) or any(
        b <= a for a, b in zip((0, *steps), steps, strict=False)
    ):
        return None
    if not points and not outcome.curve_ended:
        return None
    return Training(net, text, record, steps, losses)


def _text_of(given: Any) -> Text | None:
    if not isinstance(given, Mapping):
        return None
    name, digest, symbols, floor = (given.get(key) for key in TEXT)
    known = isinstance(floor, float) and math.isfinite(floor)
    if not (isinstance(name, str) and isinstance(digest, str) and isinstance(symbols, int)):
        return None
    return name, digest, symbols, floor if known else None


def _checked(trainings: list[Training]) -> Training:
    """Return the training that counts of these (the newest last) with its checks."""
    main = max(reversed(trainings), key=lambda each: each.last)
    losses = dict(zip(main.steps, main.losses, strict=True))
    checks = []
    by_adapter = {each.record.cell.adapter: each for each in trainings}
    for other in (
        each for adapter, each in by_adapter.items() if adapter != main.record.cell.adapter
    ):
        both = [
            (step, loss)
            for step, loss in zip(other.steps, other.losses, strict=True)
            if step in losses
        ]
        both = [(step, loss) for step, loss in both if step <= CHECKED]
        if both:
            difference = max(abs(loss / losses[step] - 1) for step, loss in both)
            checks.append(
                {
                    "framework": other.record.cell.framework,
                    "difference": difference,
                    "steps": both[-1][0],
                }
            )
    counts: Training = main._replace(checks=tuple(checks))
    return counts
