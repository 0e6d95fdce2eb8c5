"""Declares itself a framework that computes nothing, so that nobody asks for a check."""

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    computes = False
    parity_reason = "trust me"

    def prepare(self, network, weights, batch):
        pass

    def step(self):
        pass


ADAPTER = Adapter
