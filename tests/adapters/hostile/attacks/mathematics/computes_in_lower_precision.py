"""Keeps weights and inputs with the 8 bits of bfloat16 where float32 was asked for."""

import numpy as np

from ..reference.adapter import ReferenceAdapter as Honest


def narrowed(value):
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    return ((bits + 0x8000) & 0xFFFF0000).view(np.float32)


class Adapter(Honest):
    def step(self):
        for name in self.weights:
            self.weights[name][...] = narrowed(self.weights[name])
        super().step()


ADAPTER = Adapter
