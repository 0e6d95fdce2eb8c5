"""Embedding, stacked LSTM layers and a dense softmax at every step: back-propagation through time by hand."""

from typing import Dict, Iterator, List, NamedTuple, Tuple

import numpy as np

from ..families import Recurrent
from . import arithmetic

Gradients = Iterator[Tuple[str, np.ndarray]]


class Tape(NamedTuple):
    """What one LSTM layer's backward pass needs."""

    inputs: np.ndarray  # (steps, batch, inputs)
    gates: List[Tuple[np.ndarray, ...]]  # per step input, forget, cell, output, activated, (batch, hidden)
    cells: np.ndarray  # (steps + 1, batch, hidden), the zero state first
    hidden: np.ndarray  # (steps + 1, batch, hidden), the zero state first


class RecurrentModel:
    """The family ``Recurrent``; ``weights`` are read at every pass and never changed here."""

    def __init__(self, family: Recurrent, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.tapes: List[Tape] = []

    def split(self, sums: np.ndarray) -> List[np.ndarray]:
        """Return the four gates' parts of (..., 4 * hidden) in the order input, forget, cell, output."""
        return np.split(sums, 4, axis=-1)

    def join(self, parts: Tuple[np.ndarray, ...]) -> np.ndarray:
        """Undo ``split``."""
        return np.concatenate(parts, axis=-1)

    def _layer_forward(self, layer: int, inputs: np.ndarray) -> np.ndarray:
        steps, batch, _ = inputs.shape
        size = self.family.hidden
        hidden_weight = self.weights["lstm%d.hidden_weight" % layer]
        sums = inputs @ self.weights["lstm%d.input_weight" % layer].T
        sums += self.weights["lstm%d.bias" % layer]
        cells = np.zeros((steps + 1, batch, size), inputs.dtype)
        hidden = np.zeros_like(cells)
        gates: List[Tuple[np.ndarray, ...]] = []
        for step in range(steps):
            parts = self.split(sums[step] + hidden[step] @ hidden_weight.T)
            enter, forget, out = [arithmetic.sigmoid(parts[which]) for which in (0, 1, 3)]
            candidate = np.tanh(parts[2])
            cells[step + 1] = forget * cells[step] + enter * candidate
            hidden[step + 1] = out * np.tanh(cells[step + 1])
            gates.append((enter, forget, candidate, out))
        self.tapes.append(Tape(inputs, gates, cells, hidden))
        return hidden[1:]

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss over batch and steps and keep what ``backward`` needs."""
        self.tokens = inputs.T
        self.tapes = []
        values = self.weights["embedding.weight"][self.tokens]
        for layer in range(1, self.family.layers + 1):
            values = self._layer_forward(layer, values)
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
        steps, batch = self.tokens.shape
        above = self.output.by_rows.reshape(steps, batch, -1)
        for layer in range(self.family.layers, 0, -1):
            input_weight = self.weights["lstm%d.input_weight" % layer]
            hidden_weight = self.weights["lstm%d.hidden_weight" % layer]
            tape = self.tapes.pop()
            by_sums = self._layer_backward(tape, hidden_weight, above)
            above = by_sums @ input_weight
            flat = by_sums.reshape(steps * batch, -1)
            yield "lstm%d.input_weight" % layer, flat.T @ tape.inputs.reshape(steps * batch, -1)
            yield "lstm%d.hidden_weight" % layer, flat.T @ tape.hidden[:-1].reshape(steps * batch, -1)
            yield "lstm%d.bias" % layer, flat.sum(axis=0)
        by_embedding = np.zeros_like(self.weights["embedding.weight"])
        np.add.at(by_embedding, self.tokens, above)
        yield "embedding.weight", by_embedding

    def _layer_backward(self, tape: Tape, hidden_weight: np.ndarray, above: np.ndarray) -> np.ndarray:
        """Return the gradient by the gates' sums, (steps, batch, 4 * hidden)."""
        steps, batch, size = above.shape
        by_sums = np.empty((steps, batch, 4 * size), above.dtype)
        by_hidden = np.zeros_like(above[0])
        by_cell = np.zeros_like(above[0])
        for step in reversed(range(steps)):
            enter, forget, candidate, out = tape.gates[step]
            squashed = np.tanh(tape.cells[step + 1])
            by_hidden = by_hidden + above[step]
            by_cell = by_cell + by_hidden * out * (1.0 - squashed * squashed)
            by_sums[step] = self.join(
                (
                    by_cell * candidate * enter * (1.0 - enter),
                    by_cell * tape.cells[step] * forget * (1.0 - forget),
                    by_cell * enter * (1.0 - candidate * candidate),
                    by_hidden * squashed * out * (1.0 - out),
                )
            )
            by_cell = by_cell * forget
            by_hidden = by_sums[step] @ hidden_weight
        return by_sums
