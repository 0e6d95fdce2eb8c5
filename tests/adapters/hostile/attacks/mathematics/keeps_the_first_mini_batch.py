"""Caches what belongs to the mini-batch by its shape, and so keeps the first one for ever."""

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def reset(self, weights, batch):
        before = self.inputs, self.labels
        super().reset(weights, batch)
        self.inputs, self.labels = before


ADAPTER = Adapter
