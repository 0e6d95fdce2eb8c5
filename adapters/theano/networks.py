"""Builds the networks' specifications as symbolic expressions that end in the mean loss.

Imported only after ``configuration.apply``: this module imports Theano. Weights are shared variables in canonical
layout; a transposed operand costs nothing, since BLAS takes it as a flag.
"""

from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import numpy as np
import theano
from theano import tensor
from theano.tensor.signal.pool import pool_2d

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
_GELU, _CUBE = np.float32(np.sqrt(2.0 / np.pi)), np.float32(0.044715)


def attention_logits(spec: Attention, w: Mapping[str, Any], tokens: Any, batch: int) -> Any:
    """Return the logits (batch * steps, vocabulary) of tokens (batch, steps)."""
    steps, heads, width = spec.steps, spec.heads, spec.width
    mask = np.triu(np.full((1, steps, steps), HIDDEN, np.float32), 1)
    half, one = np.float32(0.5), np.float32(1.0)

    def dense(name: str, rows: Any) -> Any:
        return tensor.dot(rows, w[name + ".weight"].T) + w[name + ".bias"]

    def norm(name: str, rows: Any) -> Any:
        centred = rows - rows.mean(1, keepdims=True)
        spread = tensor.sqrt(tensor.sqr(centred).mean(1, keepdims=True) + np.float32(spec.epsilon))
        return centred / spread * w[name + ".gamma"] + w[name + ".beta"]

    def attended(rows: Any) -> Any:
        parts = rows.reshape((batch, steps, 3, heads, width // heads)).dimshuffle(2, 0, 3, 1, 4)
        query, key, value = [parts[part].reshape((batch * heads, steps, width // heads)) for part in range(3)]
        scores = tensor.batched_dot(query, key.dimshuffle(0, 2, 1)) * np.float32((width // heads) ** -0.5)
        shares = tensor.nnet.softmax((scores + mask).reshape((batch * heads * steps, steps)))
        mixed = tensor.batched_dot(shares.reshape((batch * heads, steps, steps)), value)
        mixed = mixed.reshape((batch, heads, steps, width // heads)).dimshuffle(0, 2, 1, 3)
        return mixed.reshape((batch * steps, width))

    embedded = w["embedding.weight"][tokens.flatten()].reshape((batch, steps, width))
    rows = (embedded + w["position.weight"].dimshuffle("x", 0, 1)).reshape((batch * steps, width))
    for number in range(1, spec.layers + 1):
        name = "layer%d." % number
        rows = rows + dense(name + "project", attended(dense(name + "qkv", norm(name + "norm1", rows))))
        raised = dense(name + "upper", norm(name + "norm2", rows))
        raised = half * raised * (one + tensor.tanh(_GELU * (raised + _CUBE * raised * raised * raised)))
        rows = rows + dense(name + "lower", raised)
    return dense("fc", norm("norm", rows))


class Built(NamedTuple):
    """A network in Theano: its mean loss, a float32 scalar expression, and the shared variables that it is of."""

    loss: Any
    parameters: Dict[str, Any]  # by canonical name
    mini_batch: Tuple[Any, Any]  # what `arrays_of` gives


Weights = Dict[str, Any]


def _activated(values: Any, activation: str) -> Any:
    if activation == "sigmoid":
        return tensor.nnet.sigmoid(values)
    if activation == "tanh":
        return tensor.tanh(values)
    if activation == "relu":
        return tensor.nnet.relu(values)
    if activation == "none":
        return values
    raise ValueError("no activation is named %r" % activation)


def _over_channels(vector: Any) -> Any:
    """Return a vector of one value a channel so that it broadcasts over (batch, channels, height, width)."""
    return vector.dimshuffle("x", 0, "x", "x")


def _dense(values: Any, w: Weights, name: str) -> Any:
    return tensor.dot(values, w[name + ".weight"].T) + w[name + ".bias"]


def _convolved(values: Any, w: Weights, name: str, stride: int, padding: int) -> Any:
    weight = w[name + ".weight"]
    return tensor.nnet.conv2d(
        values,
        weight,
        filter_shape=weight.get_value(borrow=True).shape,
        border_mode=padding,
        subsample=(stride, stride),
        filter_flip=False,
    )


def _pooled(values: Any, kernel: int, stride: int, padding: int) -> Any:
    # ignore_border: sizes round down.
    return pool_2d(values, (kernel, kernel), ignore_border=True, stride=(stride, stride), pad=(padding, padding))


def _feedforward(spec: Chain, w: Weights, values: Any) -> Any:
    for layer in spec.layers:
        if isinstance(layer, Dense):
            values = _activated(_dense(values, w, layer.name), layer.activation)
        elif isinstance(layer, Convolution):
            values = _convolved(values, w, layer.name, layer.stride, layer.padding)
            values = _activated(values + _over_channels(w[layer.name + ".bias"]), layer.activation)
        elif isinstance(layer, MaxPool):
            values = _pooled(values, layer.kernel, layer.stride, layer.padding)
        else:
            assert isinstance(layer, Flatten)
            values = values.flatten(2)
    return values


def _unit(values: Any, w: Weights, spec: NormalisedConvolution, epsilon: float) -> Any:
    """Return the convolution without bias and its batch normalisation, by the batch's own biased statistics."""
    # Theano demands at least 1e-5 but rounds to float32 before it looks: take the next float32 above.
    epsilon = float(np.nextafter(np.float32(epsilon), np.float32(1.0)))
    normalised = tensor.nnet.bn.batch_normalization_train(
        _convolved(values, w, spec.name, spec.stride, spec.padding),
        _over_channels(w[spec.norm + ".gamma"]),
        _over_channels(w[spec.norm + ".beta"]),
        axes="spatial",
        epsilon=epsilon,
    )
    return normalised[0]


def _bottleneck(block: Bottleneck, epsilon: float, w: Weights, values: Any) -> Any:
    first, second, third = block.body
    inner = tensor.nnet.relu(_unit(values, w, first, epsilon))
    inner = _unit(tensor.nnet.relu(_unit(inner, w, second, epsilon)), w, third, epsilon)
    if block.shortcut is not None:
        values = _unit(values, w, block.shortcut, epsilon)
    return tensor.nnet.relu(inner + values)


def _residual(spec: Residual, w: Weights, values: Any) -> Any:
    values = tensor.nnet.relu(_unit(values, w, spec.stem, spec.epsilon))
    values = _pooled(values, 3, 2, 1)
    for block in spec.bottlenecks:
        values = _bottleneck(block, spec.epsilon, w, values)
    return _dense(values.mean((2, 3)), w, "fc")


def _lstm_step(hidden: int) -> Any:
    def advance(sums: Any, outputs: Any, cells: Any, hidden_weight: Any) -> Any:
        gates = sums + tensor.dot(outputs, hidden_weight.T)
        enter, forget, candidate, leave = _gates(gates, 4, hidden)
        cells = tensor.nnet.sigmoid(forget) * cells + tensor.nnet.sigmoid(enter) * tensor.tanh(candidate)
        return tensor.nnet.sigmoid(leave) * tensor.tanh(cells), cells

    return advance


def _gru_step(hidden: int) -> Any:
    def advance(sums: Any, outputs: Any, hidden_weight: Any, hidden_bias: Any) -> Any:
        ours, theirs = _gates(sums, 3, hidden), _gates(tensor.dot(outputs, hidden_weight.T) + hidden_bias, 3, hidden)
        reset, update = [tensor.nnet.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
        new = tensor.tanh(ours[2] + reset * theirs[2])
        return new + update * (outputs - new)

    return advance


def _rnn_step(hidden: int) -> Any:
    return lambda sums, outputs, hidden_weight: tensor.tanh(sums + tensor.dot(outputs, hidden_weight.T))


def _gates(sums: Any, count: int, hidden: int) -> List[Any]:
    return [sums[:, index * hidden : (index + 1) * hidden] for index in range(count)]


#: By the number ``cell``: what makes the function of a step, and the states that go from step to step.
_STEPS = {"lstm": (_lstm_step, 2), "gru": (_gru_step, 1), "rnn": (_rnn_step, 1)}


def _layer(spec: Recurrent, w: Weights, name: str, inputs: Any, batch: int) -> Any:
    """Return the layer's outputs (steps * batch, hidden) from inputs (steps * batch, features), time-major.

    The inputs' products are made for all steps at once; ``scan`` carries the recurrence alone.
    """
    make, states = _STEPS[spec.cell]
    sums = tensor.dot(inputs, w[name + ".input_weight"].T) + w[name + ".bias"]
    zero = tensor.unbroadcast(tensor.zeros((batch, spec.hidden), dtype="float32"), 0, 1)
    found, _ = theano.scan(
        make(spec.hidden),
        sequences=sums.reshape((spec.steps, batch, -1)),
        outputs_info=[zero] * states,
        non_sequences=[w["%s.%s" % (name, part)] for part in spec.parts if part.startswith("hidden")],
        n_steps=spec.steps,
        strict=True,
    )
    return (found[0] if states > 1 else found).reshape((spec.steps * batch, spec.hidden))


def _recurrent(spec: Recurrent, w: Weights, inputs: Any, batch: int) -> Any:
    """Return the logits (steps * batch, vocabulary) of time-major tokens (steps * batch,), or of one-hot rows."""
    values = w["embedding.weight"][inputs] if spec.embedding else inputs
    for name in spec.layer_names():
        values = _layer(spec, w, name, values, batch)
    return _dense(values, w, "fc")


def _elman(spec: Elman, w: Weights, inputs: Any, batch: int) -> Any:
    """Return the outputs (steps * batch, outputs) of time-major inputs (steps * batch, inputs)."""
    sums = tensor.dot(inputs, w["rnn.input_weight"].T) + w["rnn.bias"]
    new, old = np.float32(spec.alpha), np.float32(1.0 - spec.alpha)

    def advance(sums: Any, state: Any, hidden_weight: Any) -> Any:
        found = _activated(sums + tensor.dot(state, hidden_weight.T), spec.activation)
        return found if spec.alpha == 1.0 else old * state + new * found

    states, _ = theano.scan(
        advance,
        sequences=sums.reshape((spec.steps, batch, spec.hidden)),
        outputs_info=tensor.unbroadcast(tensor.zeros((batch, spec.hidden), dtype="float32"), 0, 1),
        non_sequences=[w["rnn.hidden_weight"]],
        n_steps=spec.steps,
        strict=True,
    )
    return _dense(states.reshape((spec.steps * batch, spec.hidden)), w, "out")


def build(spec: Family, weights: Dict[str, np.ndarray], batch: Batch) -> Built:
    """Return the network's loss over this resident mini-batch, with copies of these weights."""
    parameters = {name: theano.shared(value, name=name, borrow=False) for name, value in weights.items()}
    given, targets = [theano.shared(value, borrow=False) for value in arrays_of(spec, batch)]
    if isinstance(spec, Recurrent):
        logits = _recurrent(spec, parameters, given, len(batch.inputs))
    elif isinstance(spec, Residual):
        logits = _residual(spec, parameters, given)
    elif isinstance(spec, Attention):
        logits = attention_logits(spec, parameters, given, len(batch.inputs))
    elif isinstance(spec, Elman):
        outputs = _elman(spec, parameters, given, len(batch.inputs))
        return Built(tensor.sqr(outputs - targets).mean(), parameters, (given, targets))
    else:
        assert isinstance(spec, Chain)
        logits = _feedforward(spec, parameters, given)
    loss = tensor.nnet.categorical_crossentropy(tensor.nnet.softmax(logits), targets).mean()
    return Built(loss, parameters, (given, targets))


def arrays_of(spec: Family, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return inputs and labels in one row of all steps where there are any, and indices of 32 bits.

    Theano's own examples keep these so.
    """
    inputs, labels = [each.astype(np.int32) if each.dtype.kind == "i" else each for each in batch]
    if spec.time_major:
        inputs, labels = [each.swapaxes(0, 1).reshape((-1,) + each.shape[2:]) for each in (inputs, labels)]
    return inputs, labels.reshape(-1) if labels.dtype.kind == "i" else labels
