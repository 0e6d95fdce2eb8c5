"""Symbols, stacked recurrent layers and a dense softmax at every step: back-propagation through time by hand."""

from typing import Any, Dict, Iterator, List, Sequence, Tuple, Type

import numpy as np

from ..families import Elman, Recurrent
from . import arithmetic

State = Tuple[np.ndarray, ...]  # the layer's output first, each (batch, hidden)
#: Gradients by a step's share of the inputs, by the product of the state before, and by that state by other ways.
Back = Tuple[np.ndarray, np.ndarray, Sequence[Any]]


class Layer:
    """What the cells share: products, sums over the steps, and the way back through them."""

    gates = 1
    states = 1  # arrays that go from step to step

    def __init__(self, weights: Dict[str, np.ndarray], name: str) -> None:
        self.weights = weights
        self.name = name

    def weight(self, part: str) -> np.ndarray:
        """Return one of the layer's parameters as it is now."""
        return self.weights["%s.%s" % (self.name, part)]

    def split(self, sums: np.ndarray) -> List[np.ndarray]:
        """Return the gates' parts of (..., gates * hidden) in canonical order."""
        return np.split(sums, self.gates, axis=-1)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Undo ``split``."""
        return np.concatenate(parts, axis=-1)

    def start(self, batch: int) -> State:
        """Return the state before the first step."""
        weight = self.weight("hidden_weight")
        return (np.zeros((batch, weight.shape[1]), weight.dtype),) * self.states

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs of all steps (steps, batch, hidden) and keep what ``backward`` needs."""
        self.inputs = inputs
        shares = inputs @ self.weight("input_weight").T + self.weight("bias")
        state = self.start(inputs.shape[1])
        self.outputs, self.kept = [state[0]], []
        for share in shares:
            state, kept = self.advance(share, self.product(state[0]), state)
            self.outputs.append(state[0])
            self.kept.append(kept)
        self.last = state
        return np.stack(self.outputs[1:])

    def product(self, output: np.ndarray) -> np.ndarray:
        """Return what the output of the step before gives to the sums."""
        return output @ self.weight("hidden_weight").T

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        """Return the state after a step, and what ``retreat`` needs of it."""
        raise NotImplementedError

    def retreat(self, kept: Any, by_state: List[Any]) -> Back:
        """Return the gradients of a step from those by the state after it."""
        raise NotImplementedError

    def backward(self, above: np.ndarray, learns_inputs: bool) -> Tuple[Any, Dict[str, np.ndarray]]:
        """Return the gradient by the inputs, where it is asked for, and those by the layer's parameters, by part."""
        weight = self.weight("hidden_weight")
        by_shares, by_products = [], []
        by_state: List[Any] = [0.0] * self.states
        for step in reversed(range(len(above))):
            by_state[0] = by_state[0] + above[step]
            by_share, by_product, before = self.retreat(self.kept[step], by_state)
            by_state = [before[0] + by_product @ weight, *before[1:]]
            by_shares.append(by_share)
            by_products.append(by_product)
        share, product = _rows(by_shares[::-1]), _rows(by_products[::-1])
        found = {"input_weight": share.T @ _rows(self.inputs), "hidden_weight": product.T @ _rows(self.outputs[:-1])}
        found.update(self.by_biases(share, product))
        if not learns_inputs:
            return None, found
        return (share @ self.weight("input_weight")).reshape(self.inputs.shape), found

    def by_biases(self, share: np.ndarray, product: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the gradients by the biases."""
        return {"bias": share.sum(axis=0)}


def _rows(steps: Any) -> np.ndarray:
    stacked = np.asarray(steps)
    return stacked.reshape((-1,) + stacked.shape[2:])


class Lstm(Layer):
    """Gates input, forget, cell, output."""

    gates = 4
    states = 2

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        """Hochreiter and Schmidhuber's cell with the forget gate of Gers et al. 2000."""
        parts = self.split(share + product)
        enter, forget, leave = [arithmetic.sigmoid(parts[which]) for which in (0, 1, 3)]
        candidate = np.tanh(parts[2])
        memory = forget * state[1] + enter * candidate
        squashed = np.tanh(memory)
        return (leave * squashed, memory), (enter, forget, candidate, leave, squashed, state[1])

    def retreat(self, kept: Any, by_state: List[Any]) -> Back:
        """Split the gradients between the gates and the memory before."""
        enter, forget, candidate, leave, squashed, before = kept
        by_output, by_memory = by_state
        by_memory = by_memory + by_output * leave * (1.0 - squashed * squashed)
        by_sums = self.join(
            (
                by_memory * candidate * enter * (1.0 - enter),
                by_memory * before * forget * (1.0 - forget),
                by_memory * enter * (1.0 - candidate * candidate),
                by_output * squashed * leave * (1.0 - leave),
            )
        )
        return by_sums, by_sums, (0.0, by_memory * forget)


class Gru(Layer):
    """Gates reset, update, new; the reset gate weighs the product of the state, its bias included."""

    gates = 3

    def product(self, output: np.ndarray) -> np.ndarray:
        """Return the product with a bias of its own."""
        return super().product(output) + self.weight("hidden_bias")

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        """Cho et al. 2014, the reset after the product as in cuDNN."""
        ours, theirs = self.split(share), self.split(product)
        reset, update = [arithmetic.sigmoid(ours[which] + theirs[which]) for which in (0, 1)]
        new = np.tanh(ours[2] + reset * theirs[2])
        return ((1.0 - update) * new + update * state[0],), (reset, update, new, theirs[2], state[0])

    def retreat(self, kept: Any, by_state: List[Any]) -> Back:
        """Split the gradient between the gates and the state before."""
        reset, update, new, theirs, before = kept
        by_output = by_state[0]
        by_new = by_output * (1.0 - update) * (1.0 - new * new)
        by_update = by_output * (before - new) * update * (1.0 - update)
        by_reset = by_new * theirs * reset * (1.0 - reset)
        by_share = self.join((by_reset, by_update, by_new))
        return by_share, self.join((by_reset, by_update, by_new * reset)), (by_output * update,)

    def by_biases(self, share: np.ndarray, product: np.ndarray) -> Dict[str, np.ndarray]:
        """Return the gradients by both biases."""
        return {"bias": share.sum(axis=0), "hidden_bias": product.sum(axis=0)}


class Simple(Layer):
    """Hyperbolic tangents, no gates."""

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        """Return the tangent of the sum."""
        output = np.tanh(share + product)
        return (output,), output

    def retreat(self, kept: Any, by_state: List[Any]) -> Back:
        """Return the gradient by the sum."""
        by_sums = by_state[0] * (1.0 - kept * kept)
        return by_sums, by_sums, (0.0,)


#: By the number ``cell`` of the family ``Recurrent``.
LAYERS: Dict[str, Type[Layer]] = {"lstm": Lstm, "gru": Gru, "rnn": Simple}


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
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])
