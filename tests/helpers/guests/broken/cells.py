"""Mistakes made in porting recurrent layers; see ``mistakes.py``."""

import numpy as np

from dlbench.adapters.reference import arithmetic
from dlbench.adapters.reference.recurrent import LAYERS, Gru, Lstm, RecurrentModel, Simple


def model_of(**kinds):
    """Return a model whose layers of these cells are of other classes."""
    return type("BrokenModel", (RecurrentModel,), {"kinds": {**LAYERS, **kinds}})


def in_order(kind, order):
    """Return a layer that reads and writes its gates in another order."""

    class Permuted(kind):
        def split(self, sums):
            parts = super().split(sums)
            return [parts[place] for place in order]

        def join(self, parts):
            joined = [None] * len(order)
            for part, place in zip(parts, order, strict=True):
                joined[place] = part
            return super().join(joined)

    return Permuted


class ForgetBiasOne(Lstm):
    """TensorFlow 1's BasicLSTMCell and Keras' unit_forget_bias."""

    def split(self, sums):
        enter, forget, candidate, leave = super().split(sums)
        return [enter, forget + 1.0, candidate, leave]


def carried(kind):
    """Return a layer whose last state starts the next mini-batch."""

    class Carried(kind):
        def start(self, batch):
            return getattr(self, "last", None) or super().start(batch)

    return Carried


class ResetFirst(Gru):
    """The reset gate weighs the state before its product: Cho et al.'s own form, Keras's without reset_after."""

    def advance(self, share, product, state):
        weight, bias = np.split(self.weight("hidden_weight"), 3)[2], np.split(self.weight("hidden_bias"), 3)[2]
        ours, theirs = self.split(share), self.split(product)
        reset, update = [arithmetic.sigmoid(ours[which] + theirs[which]) for which in (0, 1)]
        new = np.tanh(ours[2] + (reset * state[0]) @ weight.T + bias)
        return ((1.0 - update) * new + update * state[0],), (reset, update, new, theirs[2], state[0])


class ExchangedUpdate(Gru):
    """The update gate weighs the new state, and what is left the old one."""

    def advance(self, share, product, state):
        (output,), kept = super().advance(share, product, state)
        return (kept[2] + state[0] - output,), kept

    def retreat(self, kept, by_state):
        reset, update, new, theirs, before = kept
        share, product, _ = super().retreat((reset, 1.0 - update, new, theirs, before), by_state)
        parts, products = self.split(share), self.split(product)
        return (
            self.join((parts[0], -parts[1], parts[2])),
            self.join((products[0], -products[1], products[2])),
            (by_state[0] * (1.0 - update),),
        )


class NoBiasWithinReset(Gru):
    """The hidden bias of the new state is left out, as where only one bias is known."""

    def product(self, output):
        size = output.shape[1]
        return super().product(output) - np.concatenate((np.zeros(2 * size), self.weight("hidden_bias")[2 * size :]))

    def by_biases(self, share, product):
        found = super().by_biases(share, product)
        found["hidden_bias"][-share.shape[1] // 3 :] = 0.0
        return found


CARRIED = model_of(lstm=carried(Lstm), gru=carried(Gru), rnn=carried(Simple))
