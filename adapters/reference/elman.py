"""A simple recurrent layer and dense outputs at every step: back-propagation through time by hand."""

from typing import Dict, Iterator, List, Tuple

import numpy as np

from ..families import Elman
from . import arithmetic

Gradients = Iterator[Tuple[str, np.ndarray]]


class ElmanModel:
    """The family ``Elman``; ``weights`` are read at every pass and never changed here."""

    def __init__(self, family: Elman, weights: Dict[str, np.ndarray]) -> None:
        self.family = family
        self.weights = weights

    def first_state(self, batch: int) -> np.ndarray:
        """Return the state before the first step, (batch, hidden)."""
        return np.zeros((batch, self.family.hidden), self.weights["rnn.bias"].dtype)

    def recur(self, share: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Return phi of one step's sums, from the inputs' share of them and the state before."""
        return arithmetic.activate(share + state @ self.weights["rnn.hidden_weight"].T, self.family.activation)

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Return the mean loss over batch, steps and outputs and keep what ``backward`` needs."""
        self.inputs = inputs.transpose(1, 0, 2)
        alpha = self.family.alpha
        shares = self.inputs @ self.weights["rnn.input_weight"].T + self.weights["rnn.bias"]
        states: List[np.ndarray] = [self.first_state(len(inputs))]
        activated = []
        for share in shares:
            activated.append(self.recur(share, states[-1]))
            states.append((1.0 - alpha) * states[-1] + alpha * activated[-1])
        self.states, self.activated = np.stack(states), np.stack(activated)
        outputs = self.states[1:] @ self.weights["out.weight"].T + self.weights["out.bias"]
        self.errors = outputs - labels.transpose(1, 0, 2)
        return float(np.mean(self.errors * self.errors))

    def by_outputs(self) -> np.ndarray:
        """Return the gradient by the outputs, (steps, batch, outputs)."""
        return self.errors * (2.0 / self.errors.size)

    def backward(self) -> Gradients:
        """Yield every parameter's gradient, last layer first; the caller may update each at once."""
        by_outputs = self.by_outputs()
        by_states = by_outputs @ self.weights["out.weight"]
        by_sums = self._through_time(by_states)
        yield "out.weight", _summed(by_outputs, self.states[1:])
        yield "out.bias", by_outputs.sum(axis=(0, 1))
        yield "rnn.input_weight", _summed(by_sums, self.inputs)
        yield "rnn.hidden_weight", _summed(by_sums, self.states[:-1])
        yield "rnn.bias", by_sums.sum(axis=(0, 1))

    def _through_time(self, by_states: np.ndarray) -> np.ndarray:
        """Return the gradient by the sums that phi is taken of, (steps, batch, hidden)."""
        alpha, weight = self.family.alpha, self.weights["rnn.hidden_weight"]
        by_sums = np.empty_like(by_states)
        later = np.zeros_like(by_states[0])
        for step in reversed(range(len(by_states))):
            by_state = by_states[step] + later
            by_sums[step] = arithmetic.activation_backward(
                alpha * by_state, self.activated[step], self.family.activation
            )
            later = (1.0 - alpha) * by_state + by_sums[step] @ weight
        return by_sums


def _summed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the sum of outer products over steps and batch."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])
