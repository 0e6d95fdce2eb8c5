"""Causal self-attention layers and a dense softmax at every step: forward and backward by hand."""

from typing import Dict, Iterator, List, Tuple

import numpy as np

from ..families import Attention
from . import arithmetic

Gradients = Iterator[Tuple[str, np.ndarray]]
Normalised = Tuple[np.ndarray, np.ndarray]  # values of mean 0 and variance 1, and 1 / standard deviation


class AttentionModel:
    """The family ``Attention``; ``weights`` are read at every pass and never changed here.

    Values are rows (batch * steps, width).
    """

    def __init__(self, family: Attention, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights
        self.scale = float((family.width // family.heads) ** -0.5)

    def hidden(self) -> np.ndarray:
        """Return which scores are masked, (steps, steps): those of later steps."""
        return np.triu(np.ones((self.family.steps,) * 2, bool), 1)

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss over batch and steps and keep what ``backward`` needs."""
        self.tokens = inputs
        self.tape: List[Tuple[np.ndarray, ...]] = []
        rows = self.weights["embedding.weight"][inputs] + self.weights["position.weight"][: inputs.shape[1]]
        rows = rows.reshape(-1, self.family.width)
        for layer in range(1, self.family.layers + 1):
            name = "layer%d." % layer
            rows = rows + self._attend(name, self._norm(name + "norm1", rows))
            rows = rows + self._feedforward(name, self._norm(name + "norm2", rows))
        weight, bias, right = self.weights["fc.weight"], self.weights["fc.bias"], labels.reshape(-1)
        self.output = arithmetic.dense_softmax(
            self._norm("norm", rows),
            weight,
            bias,
            lambda logits, some: arithmetic.cross_entropy(logits, right[some], len(right)),
        )
        return self.output.loss

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first; the caller may update each at once."""
        found: Dict[str, np.ndarray] = {"fc.weight": self.output.by_weight, "fc.bias": self.output.by_bias}
        by_rows = self._norm_back("norm", self.output.by_rows, found)
        for layer in range(self.family.layers, 0, -1):
            name = "layer%d." % layer
            by_rows = by_rows + self._norm_back(name + "norm2", self._feedforward_back(name, by_rows, found), found)
            by_rows = by_rows + self._norm_back(name + "norm1", self._attend_back(name, by_rows, found), found)
        by_rows = by_rows.reshape(self.tokens.shape + (-1,))
        found["position.weight"] = by_rows.sum(axis=0)
        found["embedding.weight"] = np.zeros_like(self.weights["embedding.weight"])
        np.add.at(found["embedding.weight"], self.tokens, by_rows)
        yield from found.items()

    def _dense(self, name: str, rows: np.ndarray) -> np.ndarray:
        self.tape.append((rows,))
        return rows @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _dense_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        (rows,) = self.tape.pop()
        found[name + ".weight"] = gradient.T @ rows
        found[name + ".bias"] = gradient.sum(axis=0)
        return gradient @ self.weights[name + ".weight"]

    def standardised(self, rows: np.ndarray) -> Normalised:
        """Return each row with mean 0 and variance 1, and what it was multiplied by; the variance is the biased one."""
        centred = rows - rows.mean(axis=1, keepdims=True)
        inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + rows.dtype.type(self.family.epsilon))
        return centred * inverse, inverse

    def _norm(self, name: str, rows: np.ndarray) -> np.ndarray:
        self.tape.append(self.standardised(rows))
        return self.tape[-1][0] * self.weights[name + ".gamma"] + self.weights[name + ".beta"]

    def _norm_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        standard, inverse = self.tape.pop()
        found[name + ".gamma"] = (gradient * standard).sum(axis=0)
        found[name + ".beta"] = gradient.sum(axis=0)
        scaled = gradient * self.weights[name + ".gamma"]
        overlap = (scaled * standard).mean(axis=1, keepdims=True)
        return inverse * (scaled - scaled.mean(axis=1, keepdims=True) - standard * overlap)

    def _attend(self, name: str, rows: np.ndarray) -> np.ndarray:
        batch, steps = self.tokens.shape
        parts = self._dense(name + "qkv", rows).reshape(batch, steps, 3, self.family.heads, -1)
        query, key, value = parts.transpose(2, 0, 3, 1, 4)
        scores = np.where(self.hidden(), -np.inf, (query @ key.swapaxes(2, 3)) * self.scale)
        shares = np.exp(scores - scores.max(axis=3, keepdims=True))
        shares /= shares.sum(axis=3, keepdims=True)
        self.tape.append((query, key, value, shares))
        return self._dense(name + "project", (shares @ value).swapaxes(1, 2).reshape(rows.shape))

    def _attend_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        by_mixed = self._dense_back(name + "project", gradient, found)
        query, key, value, shares = self.tape.pop()
        batch, heads, steps, width = query.shape
        by_mixed = by_mixed.reshape(batch, steps, heads, width).swapaxes(1, 2)
        by_shares = by_mixed @ value.swapaxes(2, 3)
        by_scores = shares * (by_shares - (by_shares * shares).sum(axis=3, keepdims=True)) * self.scale
        parts = np.stack([by_scores @ key, by_scores.swapaxes(2, 3) @ query, shares.swapaxes(2, 3) @ by_mixed])
        return self._dense_back(name + "qkv", parts.transpose(1, 3, 0, 2, 4).reshape(batch * steps, -1), found)

    def _feedforward(self, name: str, rows: np.ndarray) -> np.ndarray:
        rows = self._dense(name + "upper", rows)
        squashed = np.tanh(_GELU * (rows + _CUBE * rows**3))
        self.tape.append((rows, squashed))
        return self._dense(name + "lower", 0.5 * rows * (1.0 + squashed))

    def _feedforward_back(self, name: str, gradient: np.ndarray, found: Dict[str, np.ndarray]) -> np.ndarray:
        gradient = self._dense_back(name + "lower", gradient, found)
        rows, squashed = self.tape.pop()
        slope = (1.0 - squashed**2) * (_GELU * (1.0 + 3.0 * _CUBE * rows**2))
        return self._dense_back(name + "upper", gradient * 0.5 * (1.0 + squashed + rows * slope), found)


#: Of gelu by tanh (Hendrycks and Gimpel 2016, arXiv 1606.08415). Plain numbers, which leave float32 arrays float32.
_GELU, _CUBE = float(np.sqrt(2.0 / np.pi)), 0.044715
