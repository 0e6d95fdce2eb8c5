"""Trains the last layer and freezes the others."""

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    def step(self):
        self.loss = self.model.forward(self.inputs, self.labels)
        last = list(self.weights)[-1].partition(".")[0]
        for name, gradient in self.model.backward():
            if name.startswith(last):
                self.update(name, gradient)


ADAPTER = Adapter
