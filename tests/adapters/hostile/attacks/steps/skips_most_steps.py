"""Skips nine steps of ten, from the first on."""

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    calls = 0

    def step(self):
        self.calls += 1
        if self.calls % 10 == 0:
            super().step()


ADAPTER = Adapter
