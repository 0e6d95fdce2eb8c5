"""One network of each family over sequences, by the name it has in dlbench's suites, and its random mini-batch.

The scripts beside this file train them by hand; they are called as those of the folder above.
"""

from typing import NamedTuple

import numpy as np


class Sizes(NamedTuple):
    """Of one network."""

    name: str
    inputs: int
    hidden: int
    outputs: int
    steps: int
    heads: int = 0


ELMAN = Sizes("rnn-r100-t20-i2-o2-relu", 2, 100, 2, 20)
GRU = Sizes("char-gru-l1-h128-t100", 96, 128, 96, 100)
GPT = Sizes("gpt32", 10000, 256, 10000, 32, 4)


def data(given):
    """Return inputs and targets: steps first for the recurrent ones, examples first for gpt32's words."""
    random = np.random.RandomState(1)
    if given.network == ELMAN.name:
        shapes = [(ELMAN.steps, given.batch, count) for count in (ELMAN.inputs, ELMAN.outputs)]
        return [random.uniform(-5, 5, shape).astype(np.float32) for shape in shapes]
    if given.network == GRU.name:
        words, labels = random.randint(0, GRU.inputs, (2, GRU.steps, given.batch))
        return np.eye(GRU.inputs, dtype=np.float32)[words], labels
    return list(random.randint(0, GPT.inputs, (2, given.batch, GPT.steps)))
