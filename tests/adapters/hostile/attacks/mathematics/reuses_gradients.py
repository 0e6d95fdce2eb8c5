"""Computes the gradients once and applies them over and over; new data do not change them."""

from ..reference.adapter import ReferenceAdapter as Honest


class Adapter(Honest):
    gradients = None

    def step(self):
        if self.gradients is None:
            self.loss = self.model.forward(self.inputs, self.labels)
            self.gradients = {name: gradient.copy() for name, gradient in self.model.backward()}
        for name, gradient in self.gradients.items():
            self.weights[name] -= self.dtype.type(self.rate) * gradient


ADAPTER = Adapter
