"""Networks on Chainer's functions.

Weights are Chainer parameters in canonical layout, but for the LSTM's: ``chainer.functions.lstm`` takes the gates of
one cell side by side, in the order candidate, input, forget, output. Chainer's ``n_step_lstm``, ``n_step_gru`` and
``n_step_rnn_tanh`` have other biases; here the inputs' products of all steps are made at once.
"""

from typing import Any, Dict, Mapping, Tuple

import chainer
import chainer.functions as F  # noqa: N812 - Chainer's own convention
import numpy as np

from ..families import Family, Layer
from ..launch.batches import Batch, laid_out
from ..libraries.walks import HIDDEN, Functions, State, Turn, gelu_by_tanh

# Positions of the canonical gates (input, forget, cell, output) in Chainer's order, and the other way round.
_TO_CHAINER = [2, 0, 1, 3]
_FROM_CHAINER = [1, 2, 0, 3]


def has_gates(name: str) -> bool:
    """Tell whether the parameter of this name has a row for each gate of an LSTM."""
    return name.startswith("lstm")


def to_chainer(value: np.ndarray) -> np.ndarray:
    """Turn a gates' weight or bias from (4, hidden, ...) gate after gate to the gates of each cell side by side."""
    gates = value.reshape((4, -1) + value.shape[1:])[_TO_CHAINER]
    return np.ascontiguousarray(gates.swapaxes(0, 1)).reshape(value.shape)


def from_chainer(value: np.ndarray) -> np.ndarray:
    """Undo ``to_chainer``."""
    gates = value.reshape((-1, 4) + value.shape[1:]).swapaxes(0, 1)[_FROM_CHAINER]
    return np.ascontiguousarray(gates).reshape(value.shape)


class Model(chainer.Chain):
    """All parameters of a network, for Chainer's optimiser."""

    def __init__(self, weights: Dict[str, np.ndarray]) -> None:
        super().__init__()
        self.by_name: Dict[str, chainer.Parameter] = {}
        with self.init_scope():
            for name, value in weights.items():
                parameter = chainer.Parameter(to_chainer(value) if has_gates(name) else value.copy())
                setattr(self, name.replace(".", "_"), parameter)
                self.by_name[name] = parameter

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Copy the weights into the parameters' arrays, NumPy's or iDeep's."""
        for name, parameter in self.by_name.items():
            value = weights[name]
            parameter.array[...] = to_chainer(value) if has_gates(name) else value


class ChainerFunctions(Functions):
    """Networks by chainer.functions; values of steps are rows."""

    activations = {"relu": F.relu, "sigmoid": F.sigmoid, "tanh": F.tanh}

    def dense(self, name: str, values: Any) -> Any:
        return F.linear(values, self.w[name + ".weight"], self.w[name + ".bias"])

    def convolution(self, spec: Layer, values: Any) -> Any:
        given = self.w[spec.name + ".weight"], self.w.get(spec.name + ".bias")
        return F.convolution_2d(values, *given, spec.stride, spec.padding)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return F.max_pooling_2d(values, kernel, stride, padding, cover_all=False)

    def flatten(self, values: Any) -> Any:
        return F.reshape(values, (len(values), -1))

    def norm(self, name: str, values: Any) -> Any:
        return F.batch_normalization(values, self.w[name + ".gamma"], self.w[name + ".beta"], eps=self.family.epsilon)

    def pixel_mean(self, values: Any) -> Any:
        return F.reshape(F.average_pooling_2d(values, values.shape[2:]), values.shape[:2])

    def rows(self, values: Any) -> Any:
        return values

    def embedded(self, name: str, symbols: Any) -> Any:
        return F.embed_id(symbols, self.w[name + ".weight"])

    def product(self, name: str, output: Any) -> Any:
        return F.linear(output, self.w[name + ".hidden_weight"], self.w.get(name + ".hidden_bias"))

    def sums(self, name: str, share: Any, output: Any) -> Any:
        # The product of a zero state is nothing.
        return share if output is self.zero else share + self.product(name, output)

    def lstm(self, memory: Any, sums: Any) -> State:
        memory, output = F.lstm(memory, sums)
        return output, memory

    def gru(self, output: Any, share: Any, product: Any) -> Any:
        ours, theirs = F.split_axis(share, 3, 1), F.split_axis(product, 3, 1)
        reset, update = [F.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
        return F.linear_interpolate(update, output, F.tanh(ours[2] + reset * theirs[2]))

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        self.zero = np.zeros((len(values) // self.family.steps, self.family.hidden), np.float32)
        shares = F.linear(values, self.w[name + ".input_weight"], self.w[name + ".bias"])
        return F.concat(self.step_by_step(turn, (self.zero,) * states, F.split_axis(shares, self.family.steps, 0)), 0)

    def positioned(self, tokens: Any) -> Any:
        shape = tokens.shape + (self.family.width,)
        values = self.embedded("embedding", tokens) + F.broadcast_to(self.w["position.weight"], shape)
        return F.reshape(values, (-1, self.family.width))

    def layer_norm(self, name: str, values: Any) -> Any:
        return F.layer_normalization(values, self.w[name + ".gamma"], self.w[name + ".beta"], self.family.epsilon)

    def attended(self, name: str, values: Any) -> Any:
        steps, heads, width = self.family.steps, self.family.heads, self.family.width
        parts = F.reshape(self.dense(name + "qkv", values), (-1, steps, 3, heads, width // heads))
        parts = F.transpose(parts, (2, 0, 3, 1, 4))
        query, key, value = parts[0], parts[1], parts[2]
        scores = F.matmul(query, key, transb=True) * (width // heads) ** -0.5
        mask = np.triu(np.full((steps, steps), HIDDEN, np.float32), 1)
        shares = F.softmax(scores + np.broadcast_to(mask, scores.shape), axis=3)
        return F.reshape(F.transpose(F.matmul(shares, value), (0, 2, 1, 3)), (-1, width))

    def gelu(self, values: Any) -> Any:
        return gelu_by_tanh(values, F.tanh)


def arrays_of(spec: Family, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return copies of inputs and labels, time-major and in rows where there are steps."""
    inputs, labels = laid_out(spec, batch)
    return inputs.reshape((-1,) + inputs.shape[2:]) if spec.time_major else inputs, labels
