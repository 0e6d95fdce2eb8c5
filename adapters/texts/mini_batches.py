"""Training on a text: how it is done, and its mini-batches, the same in every framework.

The text is a file of one byte a symbol, made by the host. A mini-batch holds as many stretches of it as examples, each
from a place of its own; the labels are the inputs a symbol later. Places are drawn anew for every step, so the loss
before an update is that of stretches hardly ever seen before. The last tenth is kept to test with.
"""

from typing import Iterable, Iterator, NamedTuple

import numpy as np

from ..launch.batches import Batch, integers, one_hot, seeded
from ..networks import Network

#: Steps whose losses are read together, and of which the curve has the mean.
BLOCK = 50
#: Mini-batches of the part that is kept.
TESTED = 10
#: Of the text the share that is trained on, in tenths.
_TRAINED = 9


class RmsProp(NamedTuple):
    """The update: v = decay v + (1 - decay) g^2, w = w - rate g / (sqrt(v) + epsilon), v = 0 at first.

    Gradients are scaled down before, so that the norm of all together is at most ``clip``.
    """

    rate: float = 2e-3
    decay: float = 0.95
    epsilon: float = 1e-8
    clip: float = 5.0


class Block(NamedTuple):
    """Steps whose losses are read together."""

    batches: Iterable[Batch]  # made one by one as they are asked for
    length: int
    rate: float  # 0: the weights stay as they are


class Parts(NamedTuple):
    """A text cut into what is trained on and what is kept."""

    training: np.ndarray
    kept: np.ndarray


def read(path: str) -> Parts:
    """Return the parts of a text's file."""
    symbols = np.fromfile(path, dtype=np.uint8)
    cut = len(symbols) * _TRAINED // 10
    return Parts(symbols[:cut], symbols[cut:])


def refusal(parts: Parts, network: Network) -> str:
    """Return why the network cannot be trained on the text; empty where it can."""
    family = network.family
    steps = family.drawn_labels().shape[0]
    largest = int(max(parts.training.max(), parts.kept.max())) if len(parts.kept) else 0
    if largest >= family.alphabet:
        return "the text has %d symbols, the network %d" % (largest + 1, family.alphabet)
    if len(parts.kept) <= steps:
        return "a tenth of the text has %d symbols, too few for %d steps" % (len(parts.kept), steps)
    return ""


def blocks(parts: Parts, network: Network, batch_size: int, steps: int) -> Iterator[Block]:
    """Yield the blocks of so many steps, and last one of mini-batches that were kept, at rate 0."""
    for start in range(0, steps, BLOCK):
        count = min(BLOCK, steps - start)
        yield Block(_drawn(parts.training, "step", start, count, network, batch_size), count, RmsProp().rate)
    yield Block(_drawn(parts.kept, "test", 0, TESTED, network, batch_size), TESTED, 0.0)


def _drawn(
    symbols: np.ndarray, name: str, first: int, count: int, network: Network, batch_size: int
) -> Iterator[Batch]:
    for number in range(first, first + count):
        yield mini_batch(symbols, network, seeded("text", name, number), batch_size)


def mini_batch(symbols: np.ndarray, network: Network, numbers: np.random.RandomState, batch_size: int) -> Batch:
    """Return a mini-batch of stretches that begin at places drawn from these random numbers."""
    family = network.family
    steps = family.drawn_labels().shape[0]
    places = integers(numbers, (batch_size, 1), len(symbols) - steps)
    stretches = symbols[places + np.arange(steps + 1)].astype(np.int64)
    tokens, labels = stretches[:, :-1], np.ascontiguousarray(stretches[:, 1:])
    if family.drawn_inputs().one_hot:
        return Batch(one_hot(tokens, family.alphabet), labels)
    return Batch(np.ascontiguousarray(tokens), labels)
