"""Shares its CPU in its first check, as on a busy machine: each step takes four times as long there."""

import time

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    readings = 0

    def parameters(self):
        self.readings += 1
        return super().parameters()

    def step(self):
        start = time.perf_counter()
        super().step()
        if self.readings == 1:
            end = time.perf_counter() + 3 * (time.perf_counter() - start)
            while time.perf_counter() < end:
                pass


ADAPTER = Adapter
