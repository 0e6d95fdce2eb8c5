"""Builds the networks' specifications on Chainer's functions.

Weights are Chainer parameters in canonical layout, but for the LSTM's: ``chainer.functions.lstm`` takes the gates of
one cell side by side, in the order candidate, input, forget, output.
"""

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Tuple

import chainer
import chainer.functions as F  # noqa: N812 - Chainer's own convention
import numpy as np

from ..families import (
    Attention,
    Bottleneck,
    Chain,
    Convolution,
    Dense,
    Elman,
    Family,
    Flatten,
    MaxPool,
    Recurrent,
    Residual,
)
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch

HIDDEN = -1e9  # added to the scores that are masked, as is usual; exponentials of it are zero
_GELU, _CUBE = float(np.sqrt(2.0 / np.pi)), 0.044715


def attention_logits(spec: Attention, w: Mapping[str, Any], tokens: Any) -> Any:
    """Return the logits (batch * steps, vocabulary) of tokens (batch, steps)."""
    batch, steps = tokens.shape
    mask = np.triu(np.full((steps, steps), HIDDEN, np.float32), 1)

    def dense(name: str, rows: Any) -> Any:
        return F.linear(rows, w[name + ".weight"], w[name + ".bias"])

    def norm(name: str, rows: Any) -> Any:
        return F.layer_normalization(rows, w[name + ".gamma"], w[name + ".beta"], spec.epsilon)

    def attended(rows: Any) -> Any:
        parts = F.transpose(F.reshape(rows, (batch, steps, 3, spec.heads, -1)), (2, 0, 3, 1, 4))
        query, key, value = parts[0], parts[1], parts[2]
        scores = F.matmul(query, key, transb=True) * (spec.width // spec.heads) ** -0.5
        shares = F.softmax(scores + np.broadcast_to(mask, scores.shape), axis=3)
        return F.reshape(F.transpose(F.matmul(shares, value), (0, 2, 1, 3)), (batch * steps, spec.width))

    positions = F.broadcast_to(w["position.weight"], (batch, steps, spec.width))
    rows = F.reshape(F.embed_id(tokens, w["embedding.weight"]) + positions, (batch * steps, spec.width))
    for number in range(1, spec.layers + 1):
        name = "layer%d." % number
        rows = rows + dense(name + "project", attended(dense(name + "qkv", norm(name + "norm1", rows))))
        raised = dense(name + "upper", norm(name + "norm2", rows))
        raised = 0.5 * raised * (1.0 + F.tanh(_GELU * (raised + _CUBE * raised * raised * raised)))
        rows = rows + dense(name + "lower", raised)
    return dense("fc", norm("norm", rows))


# Positions of the canonical gates (input, forget, cell, output) in Chainer's order, and the other way round.
_TO_CHAINER = [2, 0, 1, 3]
_FROM_CHAINER = [1, 2, 0, 3]

Weights = Dict[str, chainer.Parameter]


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
        self.by_name: Weights = {}
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


class Built(NamedTuple):
    """A network in Chainer."""

    model: Model
    forward: Callable[[Any], Any]  # inputs to logits


def _dense(values: Any, w: Weights, name: str) -> Any:
    return F.linear(values, w[name + ".weight"], w[name + ".bias"])


def _activated(values: Any, activation: str) -> Any:
    return {"relu": F.relu, "sigmoid": F.sigmoid, "tanh": F.tanh, "none": lambda same: same}[activation](values)


def _feedforward(spec: Chain, w: Weights, values: Any) -> Any:
    for layer in spec.layers:
        if isinstance(layer, Dense):
            values = _activated(_dense(values, w, layer.name), layer.activation)
        elif isinstance(layer, Convolution):
            weight, bias = w[layer.name + ".weight"], w[layer.name + ".bias"]
            values = F.convolution_2d(values, weight, bias, layer.stride, layer.padding)
            values = _activated(values, layer.activation)
        elif isinstance(layer, MaxPool):
            values = F.max_pooling_2d(values, layer.kernel, layer.stride, layer.padding, cover_all=False)
        else:
            assert isinstance(layer, Flatten)
            values = F.reshape(values, (len(values), -1))
    return values


def _unit(values: Any, w: Weights, spec: NormalisedConvolution, epsilon: float) -> Any:
    """Return the convolution without bias and its batch normalisation, by the batch's own biased statistics."""
    values = F.convolution_2d(values, w[spec.name + ".weight"], None, spec.stride, spec.padding)
    return F.batch_normalization(values, w[spec.norm + ".gamma"], w[spec.norm + ".beta"], eps=epsilon)


def _bottleneck(block: Bottleneck, epsilon: float, w: Weights, values: Any) -> Any:
    first, second, third = block.body
    inner = F.relu(_unit(values, w, first, epsilon))
    inner = _unit(F.relu(_unit(inner, w, second, epsilon)), w, third, epsilon)
    if block.shortcut is not None:
        values = _unit(values, w, block.shortcut, epsilon)
    return F.relu(inner + values)


def _residual(spec: Residual, w: Weights, values: Any) -> Any:
    values = F.relu(_unit(values, w, spec.stem, spec.epsilon))
    values = F.max_pooling_2d(values, 3, 2, 1, cover_all=False)
    for block in spec.bottlenecks:
        values = _bottleneck(block, spec.epsilon, w, values)
    values = F.average_pooling_2d(values, values.shape[2:])
    return _dense(F.reshape(values, values.shape[:2]), w, "fc")


def _lstm(state: List[Any], sums: Any, product: Any) -> List[Any]:
    memory, output = F.lstm(state[1], sums if product is None else sums + product)
    return [output, memory]


def _gru(state: List[Any], sums: Any, product: Any) -> List[Any]:
    """Gates reset, update, new, the reset after the product. Chainer's links and ``n_step_gru`` have other biases."""
    ours, theirs = F.split_axis(sums, 3, 1), F.split_axis(product, 3, 1)
    reset, update = [F.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = F.tanh(ours[2] + reset * theirs[2])
    return [F.linear_interpolate(update, state[0], new)]


def _rnn(state: List[Any], sums: Any, product: Any) -> List[Any]:
    return [F.tanh(sums if product is None else sums + product)]


#: By the number ``cell``: what a step does, and the states that go from step to step.
_STEPS: Dict[str, Tuple[Callable[..., List[Any]], int]] = {"lstm": (_lstm, 2), "gru": (_gru, 1), "rnn": (_rnn, 1)}


def _recurrent(spec: Recurrent, w: Weights, inputs: Any) -> Any:
    """Return the logits (steps * batch, vocabulary) of time-major tokens (steps * batch,), or of rows that are one-hot.

    Chainer's ``n_step_lstm`` has two trainable biases a gate; this is its link ``LSTM``, one bias, with the inputs'
    products of all steps made at once.
    """
    values = F.embed_id(inputs, w["embedding.weight"]) if spec.embedding else inputs
    batch = len(inputs) // spec.steps
    advance, states = _STEPS[spec.cell]
    for name in spec.layer_names():
        weight, bias = w[name + ".hidden_weight"], w.get(name + ".hidden_bias")
        state: List[Any] = [np.zeros((batch, spec.hidden), np.float32)] * states
        outputs: List[Any] = []
        for sums in F.split_axis(F.linear(values, w[name + ".input_weight"], w[name + ".bias"]), spec.steps, 0):
            # From a zero state nothing comes at the first step, but for a bias of its own.
            product = F.linear(state[0], weight, bias) if outputs or bias is not None else None
            state = advance(state, sums, product)
            outputs.append(state[0])
        values = F.concat(outputs, 0)
    return _dense(values, w, "fc")


def _elman(spec: Elman, w: Weights, inputs: Any) -> Any:
    """Return the outputs (steps * batch, outputs) of time-major inputs (steps * batch, inputs).

    Chainer's ``n_step_rnn_tanh`` has two trainable biases; this has one, and the inputs' products of all steps at once.
    """
    shares = F.linear(inputs, w["rnn.input_weight"], w["rnn.bias"])
    states: List[Any] = []
    for sums in F.split_axis(shares, spec.steps, 0):
        if states:
            sums = sums + F.linear(states[-1], w["rnn.hidden_weight"])
        state = _activated(sums, spec.activation)
        if spec.alpha != 1.0:
            state = spec.alpha * state
            state = state + (1.0 - spec.alpha) * states[-1] if states else state
        states.append(state)
    return _dense(F.concat(states, 0), w, "out")


def build(spec: Family, weights: Dict[str, np.ndarray]) -> Built:
    """Return the network with copies of these weights."""
    model = Model(weights)
    if isinstance(spec, Recurrent):
        return Built(model, lambda tokens: _recurrent(spec, model.by_name, tokens))
    if isinstance(spec, Residual):
        return Built(model, lambda images: _residual(spec, model.by_name, images))
    if isinstance(spec, Attention):
        return Built(model, lambda tokens: attention_logits(spec, model.by_name, tokens))
    if isinstance(spec, Elman):
        return Built(model, lambda inputs: _elman(spec, model.by_name, inputs))
    assert isinstance(spec, Chain)
    return Built(model, lambda values: _feedforward(spec, model.by_name, values))


def arrays_of(spec: Family, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return copies of inputs and labels, time-major where there are steps; Chainer wants whole numbers in 32 bits."""
    inputs, labels = [each.astype(np.int32) if each.dtype.kind == "i" else each.copy() for each in batch]
    if spec.time_major:
        return _in_rows(inputs), _in_rows(labels)
    return inputs, labels.reshape(-1)


def _in_rows(values: np.ndarray) -> np.ndarray:
    """Return (batch, steps, ...) as (steps * batch, ...)."""
    return np.ascontiguousarray(values.swapaxes(0, 1)).reshape((-1,) + values.shape[2:])
