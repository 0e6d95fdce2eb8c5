"""Seeded weights and mini-batches: the same bits in every interpreter.

Only ``RandomState.bytes`` is drawn from: the Mersenne Twister's byte stream is the same in every
NumPy since 1.11, and scaling 16-bit integers is four times as fast as drawing float64 numbers (fcn5
has 118 million weights).
"""

import os
import zlib
from typing import Any, Dict, Iterable, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from ..families import Drawn, Family
from ..families.family import Parameter
from ..networks import Network
from ..protocol import Launch
from ..reference.sampling import settled

SEED = 2016
#: Purposes of data: the parity check, for which there is a reference, and warm-up and timing.
CHECKED = ""
TIMED = "timed "
#: A larger parameter repeats this many drawn values: drawing all of them would take a second for
#: fcn5. The number divides no layer size, so that no two rows are alike.
_DRAWN = 4194319


class Batch(NamedTuple):
    """One mini-batch in canonical layout.

    ``inputs`` float32 (batch, features) or (batch, channels, height, width), or int64 tokens
    (batch, steps); ``labels`` int64 (batch,), or (batch, steps) for recurrent networks. One-hot
    inputs of these are float32 (batch, steps, vocabulary). Of the family ``elman`` both are
    float32, (batch, steps, features). Of sampling machines an example is a chain: float32 random
    numbers between 0 and 1, and int64 states to start from.
    """

    inputs: np.ndarray
    labels: np.ndarray


def seeded(*names: object) -> np.random.RandomState:
    """Return a random stream seeded by these names."""
    key = ":".join(str(name) for name in names)
    return np.random.RandomState((zlib.crc32(key.encode("utf-8")) + SEED) % 2**32)


def _uniform(stream: np.random.RandomState, shape: Tuple[int, ...], bound: float) -> np.ndarray:
    steps = np.frombuffer(stream.bytes(2 * int(np.prod(shape))), dtype="<i2")
    values = steps.astype(np.float32)
    values *= np.float32(bound / 32768.0)
    return values.reshape(shape)


def _repeated(stream: np.random.RandomState, shape: Tuple[int, ...], bound: float) -> np.ndarray:
    size = int(np.prod(shape))
    if size <= _DRAWN:
        return _uniform(stream, shape, bound)
    drawn = _uniform(stream, (_DRAWN,), bound)
    values = np.empty(size, dtype=np.float32)
    whole = size - size % _DRAWN
    values[:whole].reshape(-1, _DRAWN)[...] = drawn
    values[whole:] = drawn[: size - whole]
    return values.reshape(shape)


def integers(stream: np.random.RandomState, shape: Tuple[int, ...], below: int) -> np.ndarray:
    """Return whole numbers from 0 to less than ``below``."""
    drawn = np.frombuffer(stream.bytes(4 * int(np.prod(shape))), dtype="<u4")
    return (drawn.astype(np.int64) % below).reshape(shape)


def weight(
    network: Network, parameter: Parameter, purpose: str = CHECKED, folder: Optional[str] = None
) -> np.ndarray:
    """Return the float32 starting value of a parameter, for the caller to change or drop.

    It is in canonical layout. A large one is mapped from its file where ``folder`` has it.
    """
    if parameter.constant is not None:
        return np.full(parameter.shape, parameter.constant, dtype=np.float32)
    if folder is not None and in_file(parameter):
        try:
            path = weight_file(folder, parameter, purpose)
            return np.asarray(np.memmap(path, "<f4", "c", shape=parameter.shape))
        except (OSError, ValueError):
            pass  # removed or cut since the run began
    stream = seeded(purpose + "weight", network.name, parameter.name)
    drawn = _repeated(stream, parameter.shape, parameter.bound)
    if parameter.centre:
        drawn = drawn + np.float32(parameter.centre)
    if not parameter.symmetric:
        return drawn
    lower = np.tril(drawn, -1)
    return lower + lower.T


def in_file(parameter: Parameter) -> bool:
    """Return whether the host keeps a file of a parameter.

    Drawing a hundred million numbers takes up to a second.
    """
    return parameter.constant is None and int(np.prod(parameter.shape)) >= 2**20


def weight_file(folder: str, parameter: Parameter, purpose: str) -> str:
    """Return the path of a parameter's file.

    It holds the starting value as little-endian float32 numbers.
    """
    return os.path.join(folder, "%s%s.f4" % (purpose, parameter.name))


def initial_weights(
    network: Network, purpose: str = CHECKED, folder: Optional[str] = None
) -> Dict[str, np.ndarray]:
    """Return the float32 starting value of every parameter, in forward order.

    They are in canonical layout.
    """
    return {
        parameter.name: weight(network, parameter, purpose, folder)
        for parameter in network.family.parameters()
    }


def statistics(network: Network) -> Dict[str, np.ndarray]:
    """Return the running means and variances of batch normalisations, for inference."""
    return {statistic.name: weight(network, statistic) for statistic in network.family.statistics()}


#: Examples whose outputs the reference of inference holds. The outputs of an example do not depend
#: on the others, so a mini-batch of any size can consist of these.
CHECKED_EXAMPLES = 16


def checked_places(network: Network, batch_size: int, number: int) -> np.ndarray:
    """Return which of the checked examples stand in the mini-batch of this number, (batch,).

    They stand in no order, so that outputs of one half do not fit the other, and no two numbers
    have them alike.
    """
    drawn = integers(seeded("places", network.name, batch_size), (batch_size,), CHECKED_EXAMPLES)
    places: np.ndarray = (drawn + number) % CHECKED_EXAMPLES
    return places


def check_number(check: int, turn: int) -> int:
    """Return the number of the mini-batch that a turn of a check shows, both from 0.

    It is never that of the turn before.
    """
    return 5 * check + turn


def checked_examples(network: Network) -> Batch:
    """Return the examples whose outputs the reference of inference holds."""
    return mini_batch(network, CHECKED_EXAMPLES)


def by_example(family: Family, rows: np.ndarray, batch_size: int) -> np.ndarray:
    """Return rows of outputs, as frameworks compute them, by example.

    The result has the shape (batch, rows of an example, outputs).
    """
    per_example = len(rows) // batch_size
    if family.time_major:
        return rows.reshape(per_example, batch_size, -1).swapaxes(0, 1)
    return rows.reshape(batch_size, per_example, -1)


def mini_batch(
    network: Network,
    batch_size: int,
    repeated: Optional[int] = None,
    label_sets: int = 1,
    purpose: str = CHECKED,
) -> Batch:
    """Return the synthetic mini-batch of this network at this size.

    With ``repeated`` it holds the examples of the mini-batch of that size, each equally often. Mean
    loss, its gradients and the batch statistics (means, biased variances) are then those of the
    small mini-batch, so that its reference serves the large one too. Where the network normalises
    over the mini-batch, the small one is repeated as a whole, so that equal parts have the same
    statistics; otherwise each example is repeated in a row, so that parts differ and workers that
    do not average fail parity. For the same purpose a normalised one has ``label_sets`` sets of
    labels, one in each equal part: the statistics depend on inputs only. Its reference is that of
    `with_label_sets`. Raises ValueError where the one size is not a multiple of the other.
    """
    if repeated is not None:
        if repeated < 1 or batch_size % (repeated * label_sets):
            raise ValueError(
                "a mini-batch of %d cannot consist of repetitions of one of %d"
                % (batch_size, repeated)
            )
        times = batch_size // repeated
        if network.family.normalises:
            several = with_label_sets(network, repeated, label_sets, purpose)
            inputs = np.concatenate([several.inputs] * times)
            labels = [np.tile(label_set, times // label_sets) for label_set in several.labels]
            return Batch(inputs, np.concatenate(labels))
        part = mini_batch(network, repeated, purpose=purpose)
        return Batch(np.repeat(part.inputs, times, axis=0), np.repeat(part.labels, times, axis=0))
    family = network.family
    stream = seeded(purpose + "batch", network.name, batch_size)
    inputs = draw(stream, batch_size, family.drawn_inputs())
    states = draw(stream, batch_size, family.drawn_labels())
    if not family.trains and purpose == CHECKED:
        weights = initial_weights(network)
        inputs = settled(family, weights, inputs, states, steps=network.parity.steps)
    return Batch(inputs, states)


def one_hot(symbols: np.ndarray, count: int) -> np.ndarray:
    """Return each of these whole numbers as a one-hot float32 vector of this length."""
    return np.eye(count, dtype=np.float32)[symbols]


def draw(stream: np.random.RandomState, batch_size: int, drawn: Drawn) -> np.ndarray:
    """Return this part of the examples of a mini-batch, drawn from a random stream."""
    shape = (batch_size,) + drawn.shape
    if drawn.one_hot and drawn.below is not None:
        return one_hot(integers(stream, shape[:-1], drawn.below), drawn.below)
    if drawn.probabilities:  # (k + 1/2) / 65536, which float32 has exactly
        return _uniform(stream, shape, 0.5) + np.float32(0.5 + 2.0**-17)
    if drawn.below is None:
        return _uniform(stream, shape, drawn.scale)
    return integers(stream, shape, drawn.below)


def with_label_sets(
    network: Network, batch_size: int, label_sets: int, purpose: str = CHECKED
) -> Batch:
    """Return the mini-batch with several labels for each example: labels (sets, batch).

    The first set is its own. A loss that takes the mean over the sets has the loss and the
    gradients of all of them together, one after another with the same inputs: both are linear in
    the labels' distributions, and only inputs decide batch statistics.
    """
    batch = mini_batch(network, batch_size, purpose=purpose)
    sets = [batch.labels]
    for number in range(1, label_sets):
        stream = seeded(purpose + "labels", network.name, batch_size, number)
        sets.append(draw(stream, batch_size, network.family.drawn_labels()))
    return Batch(batch.inputs, np.stack(sets))


def launch_batch(network: Network, launch: Launch, purpose: str = CHECKED) -> Batch:
    """Return the mini-batch of a launch.

    For a launch that makes a reference it has all sets of labels.
    """
    # A user's own step makes its own mini-batch: nothing is drawn for it, whatever its size.
    size = launch.cell.known_batch_size if network.family.specified else 1
    if launch.save_reference is not None and launch.label_sets > 1:
        return with_label_sets(network, size, launch.label_sets)
    return mini_batch(network, size, launch.repeated_batch, launch.label_sets, purpose)


def laid_out(
    family: Family, batch: Batch, whole: Any = np.int32, copied: bool = True
) -> Tuple[np.ndarray, np.ndarray]:
    """Return copies of inputs and labels as most frameworks read them, whole numbers as this type.

    Not ``copied``: an array that already lies so may be the mini-batch's own memory.
    """
    make: Any = np.array if copied else np.asarray
    arrays = []
    for array in batch:
        turned = array.swapaxes(0, 1) if family.time_major else array
        arrays.append(make(turned, whole if array.dtype.kind == "i" else np.float32, order="C"))
    inputs, labels = arrays
    if labels.ndim > 1:
        labels = labels.reshape((-1,) + labels.shape[2:])
    return inputs, labels


def in_rows(family: Family, batch: Batch, whole: Any = np.int32) -> Tuple[np.ndarray, np.ndarray]:
    """Return the arrays of `laid_out`, with the inputs of all steps in rows too."""
    inputs, labels = laid_out(family, batch, whole)
    if family.time_major:
        inputs = inputs.reshape((-1,) + inputs.shape[2:])
    return inputs, labels


def sampled_entries(name: str, size: int, count: int = 64) -> np.ndarray:
    """Return the flat indices at which the parity check reads this parameter.

    They are those of the canonical layout.
    """
    if size <= count:
        return np.arange(size)
    return integers(seeded("entries", name), (count,), size)


# Training on a text: its update and its mini-batches, the same in every framework.
#
# The text is a file with one byte per symbol, made by the host. Each example of a mini-batch is a
# stretch of it from a different place. The labels are the inputs shifted by one symbol. Places are
# drawn anew for every step, so the loss before an update is that of stretches hardly ever seen
# before. The last tenth is kept for testing.

#: Steps whose losses are read together; the curve has their mean.
BLOCK = 50
#: Mini-batches of the part that is kept.
TESTED = 10


class RmsProp(NamedTuple):
    """The update: v = decay v + (1 - decay) g^2, w = w - rate g / (sqrt(v) + epsilon).

    At first v is 0. Gradients are scaled down before, so that the norm of all together is at most
    ``clip``.
    """

    rate: float = 2e-3
    decay: float = 0.95
    epsilon: float = 1e-8
    clip: float = 5.0


class Block(NamedTuple):
    """Steps whose losses are read together."""

    batches: Iterable[Batch]  # made one by one
    length: int
    rate: float  # 0: the weights stay as they are


def read_text(path: str) -> Tuple[np.ndarray, np.ndarray]:
    """Return the parts of a text's file: the one to train on, and the last tenth, which is kept."""
    symbols = np.fromfile(path, dtype=np.uint8)
    cut = len(symbols) * 9 // 10
    return symbols[:cut], symbols[cut:]


def text_refusal(training: np.ndarray, kept: np.ndarray, network: Network) -> str:
    """Return why the network cannot be trained on the text; empty where it can."""
    family = network.family
    steps = family.drawn_labels().shape[0]
    largest = int(max(training.max(), kept.max())) if len(kept) else 0
    if largest >= family.alphabet:
        return "the text has %d symbols, the network %d" % (largest + 1, family.alphabet)
    if len(kept) <= steps:
        return "a tenth of the text has %d symbols, too few for %d steps" % (len(kept), steps)
    return ""


def text_blocks(
    training: np.ndarray, kept: np.ndarray, network: Network, batch_size: int, steps: int
) -> Iterator[Block]:
    """Yield the blocks of this many steps, and a last one at rate 0.

    The last one has the mini-batches that were kept.
    """

    def drawn(symbols: np.ndarray, name: str, numbers: Iterable[int]) -> Iterator[Batch]:
        for number in numbers:
            yield text_mini_batch(symbols, network, seeded("text", name, number), batch_size)

    for start in range(0, steps, BLOCK):
        numbers = range(start, min(start + BLOCK, steps))
        yield Block(drawn(training, "step", numbers), len(numbers), RmsProp().rate)
    yield Block(drawn(kept, "test", range(TESTED)), TESTED, 0.0)


def text_mini_batch(
    symbols: np.ndarray, network: Network, numbers: np.random.RandomState, batch_size: int
) -> Batch:
    """Return a mini-batch of stretches whose places are drawn from these random numbers."""
    family = network.family
    steps = family.drawn_labels().shape[0]
    places = integers(numbers, (batch_size, 1), len(symbols) - steps)
    stretches = symbols[places + np.arange(steps + 1)].astype(np.int64)
    tokens = stretches[:, :-1]
    labels = np.ascontiguousarray(stretches[:, 1:])
    if family.drawn_inputs().one_hot:
        return Batch(one_hot(tokens, family.alphabet), labels)
    return Batch(np.ascontiguousarray(tokens), labels)
