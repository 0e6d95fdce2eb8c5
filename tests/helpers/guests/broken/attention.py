"""Mistakes made in porting a Transformer; see ``mistakes.py``."""

import numpy as np

from dlbench.adapters.reference.networks import AttentionModel


class NoMask(AttentionModel):
    """Every step sees the later ones too."""

    def hidden(self):
        return np.zeros_like(super().hidden())


class MaskWithoutItself(AttentionModel):
    """A step, but for the first, sees only the earlier ones."""

    def hidden(self):
        hidden = np.triu(np.ones_like(super().hidden()))
        hidden[0, 0] = False
        return hidden


class ScaledByWidth(AttentionModel):
    """Scores divided by the root of the whole width, not of a head's."""

    def __init__(self, family, weights):
        super().__init__(family, weights)
        self.scale = family.width**-0.5


class LayerNormEpsilon(AttentionModel):
    """Keras's default, 1e-3."""

    def standardised(self, rows):
        centred = rows - rows.mean(axis=1, keepdims=True)
        inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + 1e-3)
        return centred * inverse, inverse


class UnbiasedVariance(AttentionModel):
    """A variance divided by one less than the width."""

    def standardised(self, rows):
        centred = rows - rows.mean(axis=1, keepdims=True)
        inverse = 1.0 / np.sqrt(np.var(rows, axis=1, ddof=1, keepdims=True) + self.family.epsilon)
        return centred * inverse, inverse
