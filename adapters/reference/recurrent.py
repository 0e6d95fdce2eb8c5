"""Recurrent networks by hand: back-propagation through time."""

from typing import Any, Dict, List, Sequence, Tuple, Type

import numpy as np

from . import arithmetic
from .networks import Model

State = Tuple[np.ndarray, ...]  # the layer's output first, each (batch, hidden)


class RecurrentLayer:
    """A recurrent layer: products, sums over the steps, and the way back through them.

    ``advance(share, product, state)`` of a cell returns the state after a step, from the inputs'
    share of the sums and the product of the last output, and the values that ``retreat`` needs.
    ``retreat(kept, by_state)`` returns the gradients by the share, by the product, and directly by
    the state before, from those by the state after.
    """

    gates = 1
    states = 1  # arrays that go from step to step

    def __init__(self, weights: Dict[str, np.ndarray], name: str) -> None:
        self.weights = weights
        self.name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def weight(self, part: str) -> np.ndarray:
        return self.weights["%s.%s" % (self.name, part)]

    def split(self, sums: np.ndarray) -> List[np.ndarray]:
        """Return the gates' parts of (..., gates * hidden) in canonical order."""
        return np.split(sums, self.gates, axis=-1)

    def join(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts, axis=-1)

    def start(self, batch: int) -> State:
        weight = self.weight("hidden_weight")
        return (np.zeros((batch, weight.shape[1]), weight.dtype),) * self.states

    def product(self, output: np.ndarray) -> np.ndarray:
        return output @ self.weight("hidden_weight").T

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs of all steps (steps, batch, hidden).

        The values that ``backward`` needs are kept.
        """
        self.inputs = inputs
        shares = inputs @ self.weight("input_weight").T + self.weight("bias")
        state = self.start(inputs.shape[1])
        self.outputs = [state[0]]
        self.kept = []
        for share in shares:
            state, kept = self.advance(share, self.product(state[0]), state)
            self.outputs.append(state[0])
            self.kept.append(kept)
        self.last = state
        return np.stack(self.outputs[1:])

    def backward(self, above: np.ndarray, learns_inputs: bool) -> Tuple[Any, Dict[str, np.ndarray]]:
        """Return the gradient by the inputs, and those by the layer's parameters, by part.

        The former only where it is needed.
        """
        weight = self.weight("hidden_weight")
        by_shares = []
        by_products = []
        by_state: List[Any] = [0.0] * self.states
        for step in reversed(range(len(above))):
            by_state[0] = by_state[0] + above[step]
            by_share, by_product, before = self.retreat(self.kept[step], by_state)
            by_state = [before[0] + by_product @ weight, *before[1:]]
            by_shares.append(by_share)
            by_products.append(by_product)
        share = _rows(by_shares[::-1])
        product = _rows(by_products[::-1])
        gradients = {
            "input_weight": share.T @ _rows(self.inputs),
            "hidden_weight": product.T @ _rows(self.outputs[:-1]),
            "bias": share.sum(axis=0),
            "hidden_bias": product.sum(axis=0),
        }
        if not learns_inputs:
            return None, gradients
        by_inputs = share @ self.weight("input_weight")
        return by_inputs.reshape(self.inputs.shape), gradients


def _rows(steps: Any) -> np.ndarray:
    stacked = np.asarray(steps)
    return stacked.reshape((-1,) + stacked.shape[2:])


class Lstm(RecurrentLayer):
    """Hochreiter and Schmidhuber's cell with the forget gate of Gers et al. 2000.

    The gates are input, forget, cell, output.
    """

    gates = 4
    states = 2

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        parts = self.split(share + product)
        enter = arithmetic.sigmoid(parts[0])
        forget = arithmetic.sigmoid(parts[1])
        leave = arithmetic.sigmoid(parts[3])
        candidate = np.tanh(parts[2])
        memory = forget * state[1] + enter * candidate
        squashed = np.tanh(memory)
        return (leave * squashed, memory), (enter, forget, candidate, leave, squashed, state[1])

    def retreat(self, kept: Any, by_state: List[Any]) -> Any:
        enter, forget, candidate, leave, squashed, before = kept
        by_output, by_memory = by_state
        by_memory = by_memory + by_output * leave * (1.0 - squashed * squashed)
        by_enter = by_memory * candidate * enter * (1.0 - enter)
        by_forget = by_memory * before * forget * (1.0 - forget)
        by_candidate = by_memory * enter * (1.0 - candidate * candidate)
        by_leave = by_output * squashed * leave * (1.0 - leave)
        by_sums = self.join((by_enter, by_forget, by_candidate, by_leave))
        return by_sums, by_sums, (0.0, by_memory * forget)


class Gru(RecurrentLayer):
    """The cell of Cho et al. 2014, with the gates reset, update, new.

    The reset gate weighs the product, its bias included, as in cuDNN.
    """

    gates = 3

    def product(self, output: np.ndarray) -> np.ndarray:
        return super().product(output) + self.weight("hidden_bias")

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        ours = self.split(share)
        theirs = self.split(product)
        reset = arithmetic.sigmoid(ours[0] + theirs[0])
        update = arithmetic.sigmoid(ours[1] + theirs[1])
        new = np.tanh(ours[2] + reset * theirs[2])
        output = (1.0 - update) * new + update * state[0]
        return (output,), (reset, update, new, theirs[2], state[0])

    def retreat(self, kept: Any, by_state: List[Any]) -> Any:
        reset, update, new, theirs, before = kept
        by_output = by_state[0]
        by_new = by_output * (1.0 - update) * (1.0 - new * new)
        by_update = by_output * (before - new) * update * (1.0 - update)
        by_reset = by_new * theirs * reset * (1.0 - reset)
        by_product = self.join((by_reset, by_update, by_new * reset))
        return self.join((by_reset, by_update, by_new)), by_product, (by_output * update,)


class Simple(RecurrentLayer):
    """The recurrence h' = (1 - alpha) h + alpha phi(sums), without gates."""

    activation = "tanh"
    alpha = 1.0

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        activated = arithmetic.ACTIVATIONS[self.activation][0](share + product)
        return ((1.0 - self.alpha) * state[0] + self.alpha * activated,), activated

    def retreat(self, kept: Any, by_state: List[Any]) -> Any:
        by_sums = arithmetic.ACTIVATIONS[self.activation][1](self.alpha * by_state[0], kept)
        return by_sums, by_sums, ((1.0 - self.alpha) * by_state[0],)


class LeakyIntegrateAndFire(RecurrentLayer):
    """Units that fire at a potential above 1 and are reset; spikes first, then potentials."""

    states = 2
    beta = 0.9

    def slope(self, potential: np.ndarray) -> np.ndarray:
        """Return the slope that stands for that of a spike."""
        return 1.0 / np.square(1.0 + 10.0 * np.abs(potential - 1.0))

    def staying(self, state: State) -> Any:
        """Return the share of each potential that stays."""
        return self.beta * (1.0 - state[0])

    def advance(self, share: np.ndarray, product: np.ndarray, state: State) -> Tuple[State, Any]:
        stays = self.staying(state)
        potential = stays * state[1] + share + product
        return ((potential > 1.0).astype(potential.dtype), potential), (potential, stays)

    def retreat(self, kept: Any, by_state: List[Any]) -> Any:
        potential, stays = kept
        by_potential = by_state[1] + by_state[0] * self.slope(potential)
        return by_potential, by_potential, (0.0, by_potential * stays)


#: By the number ``cell`` of the family ``Recurrent``.
LAYERS: Dict[str, Type[RecurrentLayer]] = {"lstm": Lstm, "gru": Gru, "rnn": Simple}


class RecurrentModel(Model):
    """The family ``Recurrent``.

    Inputs are tokens (batch, steps), or one-hot (batch, steps, vocabulary).
    """

    #: The layer of each cell. A test of the parity check puts a wrong one in its place.
    kinds: Dict[str, Type[RecurrentLayer]] = LAYERS

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        self.layers = [self.kinds[self.cell](weights, name) for name in family.layer_names()]

    @property
    def cell(self) -> str:
        return str(self.family.cell)

    def label_rows(self, labels: np.ndarray) -> np.ndarray:
        return labels.swapaxes(0, 1).reshape((-1,) + labels.shape[2:])

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        values = inputs.swapaxes(0, 1)
        if "embedding.weight" in self.weights:
            values = self.embedded("embedding", values)
        for layer in self.layers:
            values = self.recurrent(layer, values)
        return self.reshaped(values, -1, self.family.hidden)

    def recurrent(self, layer: RecurrentLayer, values: np.ndarray) -> np.ndarray:
        def back(above: np.ndarray) -> Any:
            by_inputs, gradients = layer.backward(above, bool(self.tape))
            for part in self.family.parts:
                self.gradients["%s.%s" % (layer.name, part)] = gradients[part]
            return by_inputs

        self.tape.append(back)
        return layer.forward(values)


class ElmanModel(RecurrentModel):
    """The family ``Elman``; the loss is the mean of squares over batch, steps and outputs."""

    cell = "rnn"
    last = "out"

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        layer: Any = self.layers[0]
        layer.activation = family.activation
        layer.alpha = family.alpha

    def forward(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        self.tape = []
        errors = self.dense("out", self.rows(inputs)) - self.label_rows(labels)
        self.gradient = self.by_outputs(errors)
        return float(np.mean(errors * errors))

    def by_outputs(self, errors: np.ndarray) -> np.ndarray:
        """Return the gradient by the outputs."""
        return errors * (2.0 / errors.size)


class SpikingModel(RecurrentModel):
    """The family ``Spiking``; labels are (batch, 1)."""

    cell = "lif"
    last = "out"
    kinds: Dict[str, Type[RecurrentLayer]] = {"lif": LeakyIntegrateAndFire}

    def __init__(self, family: Any, weights: Dict[str, np.ndarray]) -> None:
        super().__init__(family, weights)
        layer: Any = self.layers[0]
        layer.beta = family.beta

    def rows(self, inputs: np.ndarray) -> np.ndarray:
        spikes = self.recurrent(self.layers[0], inputs.swapaxes(0, 1))

        def back(gradient: np.ndarray) -> np.ndarray:
            return np.broadcast_to(gradient / len(spikes), spikes.shape)

        self.tape.append(back)
        return spikes.mean(axis=0)
