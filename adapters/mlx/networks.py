"""Builds the networks' specifications in MLX: arrays by name, and the loss as a pure function.

Images are held as (batch, height, width, channels) and convolution weights as (outputs, height, width, inputs), the
only layout of MLX's convolutions. Everything else is held in canonical layout, but mini-batches of recurrent networks,
which are turned to time-major.
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import mlx.core as mx
import numpy as np
from mlx import nn

from ..base import Unsupported
from ..families import Attention, Chain, Convolution, Dense, Elman, Family, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch, laid_out

_ACTIVATIONS = {"sigmoid": mx.sigmoid, "relu": nn.relu, "tanh": mx.tanh, "none": lambda values: values}


def dense(w: Dict[str, Any], name: str, values: Any) -> Any:
    """Return the dense layer of this name, over any leading axes, as MLX's own ``Linear`` computes it."""
    return mx.addmm(w[name + ".bias"], values, w[name + ".weight"].T)


def activated(values: Any, activation: str) -> Any:
    """Return the values through this activation."""
    return _ACTIVATIONS[activation](values)


Arrays = Dict[str, Any]
State = Tuple[Any, ...]  # the layer's output first, each (batch, hidden)
#: (state, a step's share of the inputs, the hidden weight, its bias or None) -> the state after that step
Turn = Callable[[State, Any, Any, Any], State]


def _lstm(state: State, share: Any, weight: Any, bias: Any) -> State:
    """Gates input, forget, cell, output."""
    given, forget, candidate, shown = mx.split(mx.addmm(share, state[0], weight), 4, axis=-1)
    memory = mx.sigmoid(forget) * state[1] + mx.sigmoid(given) * mx.tanh(candidate)
    return mx.sigmoid(shown) * mx.tanh(memory), memory


def _gru(state: State, share: Any, weight: Any, bias: Any) -> State:
    """Gates reset, update, new; MLX's own has a second bias for the new state only."""
    ours, theirs = mx.split(share, 3, axis=-1), mx.split(mx.addmm(bias, state[0], weight), 3, axis=-1)
    reset, update = [mx.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = mx.tanh(ours[2] + reset * theirs[2])
    return ((1.0 - update) * new + update * state[0],)


def _rnn(state: State, share: Any, weight: Any, bias: Any) -> State:
    return (mx.tanh(mx.addmm(share, state[0], weight)),)


_TURNS: Dict[str, Turn] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def _shares(w: Arrays, name: str, values: Any) -> Iterator[Any]:
    """Yield the inputs' products of each step: split, since each slice's gradient is an array of all steps."""
    shares = mx.addmm(w[name + ".bias"], values, w[name + ".input_weight"].T)
    for share in mx.split(shares, len(shares)):
        yield mx.squeeze(share, 0)


def _recurrent_layer(cell: str, w: Arrays, name: str, values: Any) -> Any:
    """Run a layer from a zero state: (steps, batch, inputs) to (steps, batch, hidden)."""
    weight, bias = w[name + ".hidden_weight"].T, w.get(name + ".hidden_bias")
    state: State = (mx.zeros((values.shape[1], weight.shape[0])),) * (2 if cell == "lstm" else 1)
    elman_outputs = []
    for share in _shares(w, name, values):
        state = _TURNS[cell](state, share, weight, bias)
        elman_outputs.append(state[0])
    return mx.stack(elman_outputs)


def recurrent_logits(family: Recurrent, w: Arrays, inputs: Any) -> Any:
    """Return the logits of all steps, (steps * batch, vocabulary), of time-major tokens or one-hot symbols."""
    values = w["embedding.weight"][inputs] if family.embedding else inputs
    for name in family.layer_names():
        values = _recurrent_layer(family.cell, w, name, values)
    return dense(w, "fc", values.reshape(-1, family.hidden))


def elman_outputs(family: Elman, w: Arrays, values: Any) -> Any:
    """Return the outputs of all steps, (steps * batch, outputs), of inputs (steps, batch, inputs)."""
    weight, state = w["rnn.hidden_weight"].T, mx.zeros((values.shape[1], family.hidden))
    states = []
    for share in _shares(w, "rnn", values):
        found = activated(mx.addmm(share, state, weight), family.activation)
        state = found if family.alpha == 1.0 else (1.0 - family.alpha) * state + family.alpha * found
        states.append(state)
    return dense(w, "out", mx.stack(states).reshape(-1, family.hidden))


def attention_logits(family: Attention, w: Dict[str, Any], tokens: Any) -> Any:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps)."""
    batch, steps = tokens.shape
    scale = (family.width // family.heads) ** -0.5

    def norm(name: str, values: Any) -> Any:
        return mx.fast.layer_norm(values, w[name + ".gamma"], w[name + ".beta"], family.epsilon)

    values = w["embedding.weight"][tokens] + w["position.weight"]
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = mx.split(dense(w, name + "qkv", norm(name + "norm1", values)), 3, axis=-1)
        query, key, value = [each.reshape(batch, steps, family.heads, -1).transpose(0, 2, 1, 3) for each in parts]
        mixed = mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask="causal")
        values = values + dense(w, name + "project", mixed.transpose(0, 2, 1, 3).reshape(batch, steps, family.width))
        raised = nn.gelu_approx(dense(w, name + "upper", norm(name + "norm2", values)))
        values = values + dense(w, name + "lower", raised)
    return dense(w, "fc", norm("norm", values).reshape(batch * steps, family.width))


HELD = (0, 2, 3, 1)  # canonical axes of images and convolution weights in the order they are held
CANONICAL = (0, 3, 1, 2)  # and back


def held(value: np.ndarray) -> Any:
    """Return an array of MLX's own that holds a copy, images and convolution weights turned."""
    return mx.array(np.ascontiguousarray(value.transpose(HELD)) if value.ndim == 4 else value)


def canonical(value: Any) -> np.ndarray:
    """Return a held parameter as NumPy array in canonical layout."""
    array = np.array(value)
    return array.transpose(CANONICAL) if array.ndim == 4 else array


def _chain(family: Chain, w: Arrays, values: Any) -> Any:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = activated(dense(w, layer.name, values), layer.activation)
        elif isinstance(layer, Convolution):
            values = mx.conv2d(values, w[layer.name + ".weight"], layer.stride, layer.padding)
            values = activated(values + w[layer.name + ".bias"], layer.activation)
        elif isinstance(layer, MaxPool):
            values = nn.MaxPool2d(layer.kernel, layer.stride, layer.padding)(values)
        elif isinstance(layer, Flatten):
            values = values.transpose(CANONICAL).reshape(values.shape[0], -1)
        else:
            raise Unsupported("MLX: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _residual(family: Residual, w: Arrays, values: Any) -> Any:
    def unit(spec: NormalisedConvolution, values: Any) -> Any:
        """Return the convolution without bias and its batch normalisation, by the batch's own biased statistics."""
        values = mx.conv2d(values, w[spec.name + ".weight"], spec.stride, spec.padding)
        layer = nn.BatchNorm(values.shape[-1], family.epsilon, track_running_stats=False)
        layer.weight, layer.bias = w[spec.norm + ".gamma"], w[spec.norm + ".beta"]
        return layer(values)

    values = nn.MaxPool2d(3, 2, 1)(nn.relu(unit(family.stem, values)))
    for block in family.bottlenecks:
        first, second, third = block.body
        inner = unit(third, nn.relu(unit(second, nn.relu(unit(first, values)))))
        if block.shortcut is not None:
            values = unit(block.shortcut, values)
        values = nn.relu(inner + values)
    return dense(w, "fc", mx.mean(values, axis=(1, 2)))


_BUILDERS: Tuple[Tuple[type, Callable[..., Any]], ...] = (
    (Chain, _chain),
    (Residual, _residual),
    (Recurrent, recurrent_logits),
    (Elman, elman_outputs),
    (Attention, attention_logits),
)


def mean_loss(family: Family) -> Callable[[Arrays, Any, Any], Any]:
    """Return the family's mean loss of a mini-batch as a function of parameters, inputs and labels."""
    builder = next((each for kind, each in _BUILDERS if isinstance(family, kind)), None)
    if builder is None:
        raise Unsupported("MLX: no way to build a network of type %s" % type(family).__name__)
    scores = partial(builder, family)
    compared = nn.losses.mse_loss if family.loss == "squares" else nn.losses.cross_entropy
    return lambda w, inputs, labels: compared(scores(w, inputs), labels, reduction="mean")


def place(family: Family, batch: Batch) -> Tuple[Any, Any]:
    """Return a copy of the mini-batch as the losses read it: labels in rows, time-major where the family is so."""
    inputs, labels = laid_out(family, batch)
    return held(inputs), held(labels)
