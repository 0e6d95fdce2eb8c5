"""Computes all of a step at the timed rate but its update."""

from ..families import LEARNING_RATE
from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def update(self, name, gradient):
        if self.rate != LEARNING_RATE:
            super().update(name, gradient)


ADAPTER = Adapter
