"""Symbols, stacked recurrent layers and a dense softmax at every step: back-propagation through time by hand."""

from typing import Dict, Iterator, Tuple, Type

import numpy as np

from ..families import Recurrent
from . import arithmetic
from .cells import LAYERS, Layer

Gradients = Iterator[Tuple[str, np.ndarray]]


class RecurrentModel:
    """The family ``Recurrent``; ``weights`` are read at every pass and never changed here."""

    #: The layer of each cell; a test of the parity check puts a wrong one in its place.
    kinds: Dict[str, Type[Layer]] = LAYERS

    def __init__(self, family: Recurrent, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.layers = [self.kinds[family.cell](weights, name) for name in family.layer_names()]

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss over batch and steps and keep what ``backward`` needs.

        Inputs are (batch, steps), to be looked up, or one-hot (batch, steps, vocabulary).
        """
        self.inputs = inputs.swapaxes(0, 1)
        values = self.weights["embedding.weight"][self.inputs] if self.family.embedding else self.inputs
        for layer in self.layers:
            values = layer.forward(values)
        return self._output(values.reshape(-1, self.family.hidden), labels.T.reshape(-1))

    def _output(self, rows: np.ndarray, labels: np.ndarray) -> float:
        """Do the dense softmax forward and backward together and return the loss."""
        weight, bias = self.weights["fc.weight"], self.weights["fc.bias"]
        self.output = arithmetic.dense_softmax(
            rows, weight, bias, lambda logits, some: self.loss(logits, labels[some], len(rows))
        )
        return self.output.loss

    def loss(self, logits: np.ndarray, labels: np.ndarray, count: int) -> Tuple[float, np.ndarray]:
        """Return the summed loss of these rows over the count of all rows, and its gradient by the logits."""
        return arithmetic.cross_entropy(logits, labels, count)

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first; the caller may update each at once."""
        yield "fc.weight", self.output.by_weight
        yield "fc.bias", self.output.by_bias
        steps, batch = self.inputs.shape[:2]
        above = self.output.by_rows.reshape(steps, batch, -1)
        for layer in reversed(self.layers):
            needed = self.family.learns_inputs or layer is not self.layers[0]
            above, found = layer.backward(above, needed)
            for part, gradient in found.items():
                yield "%s.%s" % (layer.name, part), gradient
        if self.family.embedding:
            by_embedding = np.zeros_like(self.weights["embedding.weight"])
            np.add.at(by_embedding, self.inputs, above)
            yield "embedding.weight", by_embedding
