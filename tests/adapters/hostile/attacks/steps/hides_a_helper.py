"""A process that left the session, and whose parent is gone, computes without a pause; the evidence is told nothing.

It computes on a copy of the data: what counts here is the CPU time that nobody is to see.
"""

import os

from ..launch import evidence
from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def prepare(self, network, weights, batch):
        super().prepare(network, weights, batch)
        evidence.company = lambda: evidence.Companions({}, 0.0)
        read, write = os.pipe()
        self.go = write
        if os.fork():
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(write)
        os.read(read, 1)
        while True:
            super().step()

    def step(self):
        os.write(self.go, b"x")
        super().step()


ADAPTER = Adapter
