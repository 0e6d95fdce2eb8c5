"""What networks learnt of a text, held against one another.

The target of a text is the point at a share of the way from the loss of a network that knows nothing, the logarithm of
the number of symbols, down to the floor: the entropy of a generated text, of another the lowest loss of any network
here. The share is the largest of `SHARES` that any network reached.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlbench.adapters.families import ALPHABET
from dlbench.reports.recurrent_cells.curves import Net, TextOf, Trained, curves_of, trained
from dlbench.reports.storage.record import Record

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
"""Of the way down to the floor."""
KNOWS_NOTHING = math.log(ALPHABET)


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
        """Steps that every network was trained for whose training did not end early: there losses are compared."""
        return min((each.curve.last for each in self.nets.values() if not each.curve.ended), default=0)

    def loss(self, net: Net) -> float | None:
        """Return the loss of a network at the common steps, of the last block up to there; None: it came less far."""
        found = self.nets.get(net)
        if found is None or not 0 < self.common_steps <= found.curve.last:
            return None
        blocks = zip(found.curve.steps, found.curve.losses, strict=True)
        return [loss for step, loss in blocks if step <= self.common_steps or step == found.curve.steps[0]][-1]


def words(net: Net) -> str:
    """Return a network in words: "gru 2 x 128"."""
    return f"{net.cell} {net.layers} x {net.size}"


def learnt_of(records: Iterable[Record]) -> tuple[Learnt, ...]:
    """Return what these records tell of each text."""
    return tuple(_learnt(text, nets) for text, nets in trained(curves_of(records)).items())


def _learnt(text: TextOf, nets: Mapping[Net, Trained]) -> Learnt:
    reached = [loss for each in nets.values() for loss in each.curve.losses]
    floor = text.floor if text.floor is not None else min(reached, default=0.0)
    way = KNOWS_NOTHING - floor
    lowest = min(reached, default=KNOWS_NOTHING)
    share = next((each for each in SHARES if lowest <= KNOWS_NOTHING - each * way), SHARES[0])
    return Learnt(text, nets, floor, share)
