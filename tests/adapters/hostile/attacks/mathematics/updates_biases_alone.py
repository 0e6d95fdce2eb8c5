"""Updates the biases and leaves the weights."""

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def update(self, name, gradient):
        if name.endswith(".bias"):
            super().update(name, gradient)


ADAPTER = Adapter
