"""Losses of recurrent networks trained on a text: the curve that counts, its checks, the target.

For each network and text the longest curve counts, and the newest of equally long ones. A curve of
another framework confirms it if the means of all blocks that both have, up to `CHECKED` steps,
differ by less than `ALIKE`; if one differs by more, the curve is not confirmed.

The target of a text is a share of the way from the loss of uniform guessing, the logarithm of the
number of symbols, down to the floor: the entropy of a generated text, or else the lowest loss of
any of these networks. The share is the largest of `SHARES` that any network reached.
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
SETTING = ("cell", "layers", "size")
Setting = tuple[str, int, int]
"""The values of `SETTING` of a network."""
Losses = Mapping[str, Mapping[Setting, float]]
"""Losses by the name of a text and the setting of a network."""
_CELLS = ("rnn", "gru", "lstm")


class TextDescription(NamedTuple):
    """A record's description of a text."""

    name: str
    digest: str
    symbols: int
    floor: float | None
    """Its entropy; None where it is unknown."""


def steps_to(loss: float, steps: Sequence[float], losses: Sequence[float]) -> float | None:
    """Return the steps after which the loss is first this low, or None if it never is.

    The loss is interpolated linearly between the steps where it is known.
    """
    below = next((place for place, reached in enumerate(losses) if reached <= loss), None)
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
        name = f"sequences of {self.steps}, mini-batch {self.batch_size}"
        if self.embedding:
            name += f", embedding {self.embedding}"
        return name

    @property
    def order(self) -> tuple[object, ...]:
        """A sort key that puts networks of one kind of work together: by size, cell and layers."""
        return (*self.work, self.size, cell_order(self.cell), self.layers)


class Check(NamedTuple):
    """The distance of another framework's curve from a training's."""

    framework: str
    difference: float
    """The largest relative difference of a block's means."""
    steps: int
    """The steps up to which both were compared."""


class TrainingLosses(NamedTuple):
    """A training: its losses by blocks."""

    net: Net
    text: TextDescription
    record: Record
    steps: tuple[int, ...]
    """At the end of each block."""
    losses: tuple[float, ...]
    """Means over the blocks, of the losses before each update."""
    checks: tuple[Check, ...] = ()
    """One for every other framework."""

    @property
    def last(self) -> int:
        """Its number of steps."""
        return self.steps[-1] if self.steps else 0

    @property
    def confirmed(self) -> bool | None:
        """Whether every other framework trains alike, or None without any."""
        if not self.checks:
            return None
        return all(check.difference < ALIKE for check in self.checks)

    @property
    def middles(self) -> tuple[float, ...]:
        """The step in the middle of each block, which its mean stands for."""
        blocks = zip((0, *self.steps), self.steps, strict=False)
        return tuple((first + last + 1) / 2 for first, last in blocks)

    def loss_at(self, step: float) -> float | None:
        """Return the loss at a step, linear between blocks' middles, or None beyond the curve."""
        if not self.steps or not self.middles[0] <= step <= self.last:
            return None
        return float(np.interp(step, self.middles, self.losses))

    def steps_to(self, loss: float) -> float | None:
        """Return the steps after which the loss is first this low, see `steps_to`."""
        return steps_to(loss, self.middles, self.losses)


class Learnt(NamedTuple):
    """A text, and the trainings of networks on it."""

    text: TextDescription
    nets: Mapping[Net, TrainingLosses]

    @property
    def title(self) -> str:
        """The text in words."""
        return f"{self.text.name} text {self.text.digest[:6]}"

    @property
    def _reached(self) -> list[float]:
        losses: list[float] = []
        for training in self.nets.values():
            losses += training.losses
        return losses

    @property
    def floor(self) -> float:
        """The text's, where it is known, else the lowest loss of any network."""
        if self.text.floor is not None:
            return self.text.floor
        return min(self._reached, default=0.0)

    @property
    def share(self) -> float:
        """The target's share of the way down to the floor."""
        lowest = min(self._reached, default=KNOWS_NOTHING)
        way = KNOWS_NOTHING - self.floor
        for share in SHARES:
            if lowest <= KNOWS_NOTHING - share * way:
                return share
        return SHARES[0]

    @property
    def target(self) -> float:
        """The loss whose time is reported."""
        return KNOWS_NOTHING - self.share * (KNOWS_NOTHING - self.floor)

    @property
    def common_steps(self) -> int:
        """Steps of every network whose training did not end early: losses are compared there."""
        steps = []
        for training in self.nets.values():
            if not training.record.outcome.curve_ended:
                steps.append(training.last)
        return min(steps, default=0)

    def loss(self, net: Net) -> float | None:
        """Return the loss of a network at the common steps, or None if it ended before.

        It is that of the last block up to there.
        """
        training = self.nets.get(net)
        if training is None or not 0 < self.common_steps <= training.last:
            return None
        reached = training.losses[0]
        for step, loss in zip(training.steps, training.losses, strict=True):
            if step <= self.common_steps:
                reached = loss
        return reached


def learnt_of(records: Iterable[Record]) -> tuple[Learnt, ...]:
    """Return the trainings of these records, by text and network."""
    trainings: dict[TextDescription, dict[Net, list[TrainingLosses]]] = {}
    for record in sorted(records, key=lambda record: record.started):
        training = training_of(record)
        if training is not None:
            nets = trainings.setdefault(training.text, {})
            nets.setdefault(training.net, []).append(training)
    texts = []
    for text, nets in trainings.items():
        in_order = sorted(nets, key=lambda net: net.order)
        texts.append(Learnt(text, {net: _check(nets[net]) for net in in_order}))
    return tuple(texts)


def losses_of(texts: Iterable[Learnt]) -> Losses:
    """Return the losses of networks on texts, by the name of the text.

    Networks that differ in more than a `Setting` have different names of texts.
    """
    losses: dict[str, dict[Setting, float]] = {}
    for learnt in texts:
        for net in learnt.nets:
            loss = learnt.loss(net)
            if loss is not None:
                name = f"{learnt.text.name} {learnt.text.digest[:6]}, {net.work_name}"
                losses.setdefault(name, {})[net.cell, net.layers, net.size] = loss
    return losses


def published_losses() -> Losses:
    """Return the test losses of Karpathy and others 2016. The largest plain networks have none."""
    losses: dict[str, dict[Setting, float]] = {}
    for line in lines_of("karpathy2016_losses.csv"):
        if line["loss"]:
            setting = line["cell"], int(line["layers"]), int(line["size"])
            losses.setdefault(line["dataset"], {})[setting] = float(line["loss"])
    return losses


def cell_order(cell: str) -> tuple[int, str]:
    """Return a sort key that puts cells in the order of their cost."""
    if cell not in _CELLS:
        return len(_CELLS), cell
    return _CELLS.index(cell), cell


def net_of(record: Record) -> Net | None:
    """Return a record's network, or None where it has no recurrent cells on a text."""
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


def training_of(record: Record) -> TrainingLosses | None:
    """Return the training of a record, or None where it has none that can be read."""
    outcome = record.outcome
    net = net_of(record)
    text = _text(outcome.facts.text)
    if net is None or text is None or outcome.status is not Status.OK or record.side:
        return None
    steps: list[int] = []
    losses = []
    last_step = 0
    for block in outcome.curve:
        if len(block) != 2 or not all(map(math.isfinite, block)):
            return None
        step = int(block[0])
        if step <= last_step:
            return None
        steps.append(step)
        losses.append(float(block[1]))
        last_step = step
    if not steps and not outcome.curve_ended:
        return None
    return TrainingLosses(net, text, record, tuple(steps), tuple(losses))


def _text(description: Any) -> TextDescription | None:
    """Return a record's description of a text, or None where it cannot be read."""
    if not isinstance(description, Mapping):
        return None
    name, digest, symbols, floor = (description.get(key) for key in TextDescription._fields)
    if not (isinstance(name, str) and isinstance(digest, str) and isinstance(symbols, int)):
        return None
    if not isinstance(floor, float) or not math.isfinite(floor):
        floor = None
    return TextDescription(name, digest, symbols, floor)


def _check(trainings: list[TrainingLosses]) -> TrainingLosses:
    """Return the training that counts of these (the newest last) with its checks."""
    main = max(reversed(trainings), key=lambda training: training.last)
    losses = dict(zip(main.steps, main.losses, strict=True))
    by_adapter = {training.record.cell.adapter: training for training in trainings}
    checks = []
    for adapter, other in by_adapter.items():
        if adapter == main.record.cell.adapter:
            continue
        differences = []
        compared = 0
        for step, loss in zip(other.steps, other.losses, strict=True):
            if step in losses and step <= CHECKED:
                differences.append(abs(loss / losses[step] - 1))
                compared = step
        if differences:
            framework = other.record.cell.framework
            checks.append(Check(framework, max(differences), compared))
    counting: TrainingLosses = main._replace(checks=tuple(checks))
    return counting
