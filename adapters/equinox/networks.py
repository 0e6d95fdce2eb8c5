"""Builds the specifications of ``adapters/networks.py`` of Equinox's own layers.

A layer of Equinox's works on one example and is mapped over the mini-batch. Layers are made while JAX traces the loss,
from parameters that stand in a dictionary by canonical name, so that the adapter of JAX can hold and update them.
Equinox's layouts are the canonical ones. Sequences are time-major.
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from equinox import nn
from jax import lax

from ..base import Unsupported
from ..families import Attention, Chain, Convolution, Dense, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..jax.networks import Arrays, Builders, Loss, mean_loss_by
from ..networks import Network

ACTIVATIONS = {"sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "tanh": jnp.tanh, "none": lambda values: values}
BATCH = "batch"  # the axis that batch normalisations work over


PROJECTIONS = ("query", "key", "value")


def held(name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
    """Return what is held of a parameter: of the projections for attention, which are one here, each by itself."""
    before, projections, after = name.partition("qkv.")
    if not projections:
        return {name: value}
    return dict(zip(("%s%s.%s" % (before, which, after) for which in PROJECTIONS), np.split(value, 3)))


def canonical(parameters: Arrays) -> Iterator[Tuple[str, np.ndarray]]:
    """Yield the parameters in canonical layout, the projections for attention as one."""
    for name, value in parameters.items():
        before, query, after = name.rpartition("query.")
        if query:
            parts = [parameters["%s%s.%s" % (before, which, after)] for which in PROJECTIONS]
            yield before + "qkv." + after, np.concatenate([np.asarray(part) for part in parts])
        elif not any(which + "." in name for which in PROJECTIONS):
            yield name, np.asarray(value)


def _with(make: Callable[[Any], Any], **values: Any) -> Any:
    """Return the layer with these parameters, by its names for them."""
    layer = eqx.filter_eval_shape(make, jax.random.key(0))
    return eqx.tree_at(lambda made: [getattr(made, name) for name in values], layer, list(values.values()))


def _linear(p: Arrays, name: str) -> Any:
    weight, bias = p[name + ".weight"], p[name + ".bias"]
    return _with(lambda key: nn.Linear(weight.shape[1], weight.shape[0], key=key), weight=weight, bias=bias)


def _dense(p: Arrays, name: str, values: Any) -> Any:
    """Map a dense layer over any leading axes."""
    layer = _linear(p, name)
    for _ in range(values.ndim - 1):
        layer = jax.vmap(layer)
    return layer(values)


def _convolved(p: Arrays, name: str, stride: int, padding: int, values: Any) -> Any:
    weight, given = p[name + ".weight"], {}
    if name + ".bias" in p:
        given["bias"] = p[name + ".bias"].reshape(-1, 1, 1)
    sizes = weight.shape[1], weight.shape[0], weight.shape[2], stride, padding
    layer = _with(lambda key: nn.Conv2d(*sizes, use_bias=bool(given), key=key), weight=weight, **given)
    return jax.vmap(layer)(values)


def _chain(family: Chain, p: Arrays, values: Any) -> Any:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = ACTIVATIONS[layer.activation](_dense(p, layer.name, values))
        elif isinstance(layer, Convolution):
            values = ACTIVATIONS[layer.activation](_convolved(p, layer.name, layer.stride, layer.padding, values))
        elif isinstance(layer, MaxPool):
            values = jax.vmap(nn.MaxPool2d(layer.kernel, layer.stride, layer.padding))(values)
        elif isinstance(layer, Flatten):
            values = values.reshape(values.shape[0], -1)
        else:
            raise Unsupported("Equinox: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _residual(family: Residual, p: Arrays, values: Any) -> Any:
    def unit(spec: NormalisedConvolution, values: Any) -> Any:
        made, state = nn.make_with_state(nn.BatchNorm)(spec.outputs, BATCH, eps=family.epsilon, mode="batch")
        norm = eqx.tree_at(
            lambda each: (each.weight, each.bias), made, (p[spec.norm + ".gamma"], p[spec.norm + ".beta"])
        )
        # Running statistics are not kept, so that XLA leaves their update out.
        of_batch = jax.vmap(norm, axis_name=BATCH, in_axes=(0, None), out_axes=(0, None))
        return of_batch(_convolved(p, spec.name, spec.stride, spec.padding, values), state)[0]

    values = jax.vmap(nn.MaxPool2d(3, 2, 1))(jax.nn.relu(unit(family.stem, values)))
    for block in family.bottlenecks:
        first, second, third = block.body
        inner = unit(third, jax.nn.relu(unit(second, jax.nn.relu(unit(first, values)))))
        if block.shortcut is not None:
            values = unit(block.shortcut, values)
        values = jax.nn.relu(inner + values)
    return _dense(p, "fc", jnp.mean(values, axis=(2, 3)))


def _states(p: Arrays, name: str, values: Any) -> Any:
    """Run an LSTM on one example from a zero state: (steps, inputs) to (steps, hidden)."""
    into, onto = p[name + ".input_weight"], p[name + ".hidden_weight"]
    hidden = onto.shape[1]
    cell = _with(
        lambda key: nn.LSTMCell(into.shape[1], hidden, key=key), weight_ih=into, weight_hh=onto, bias=p[name + ".bias"]
    )

    def turn(state: Any, value: Any) -> Any:
        state = cell(value, state)
        return state, state[0]

    zero = jnp.zeros(hidden)
    return lax.scan(turn, (zero, zero), values)[1]


def _embedded(p: Arrays, name: str, tokens: Any) -> Any:
    table = p[name + ".weight"]
    look_up = _with(lambda key: nn.Embedding(*table.shape, key=key), weight=table)
    for _ in range(tokens.ndim):
        look_up = jax.vmap(look_up)
    return look_up(tokens)


def _in_rows(values: Any) -> Any:
    return values.reshape(-1, values.shape[-1])


def _recurrent(rows: bool, family: Recurrent, p: Arrays, inputs: Any) -> Any:
    def of_one(symbols: Any) -> Any:
        values = _embedded(p, "embedding", symbols) if family.embedding else symbols
        for name in family.layer_names():
            values = _states(p, name, values)
        return values if rows else _dense(p, "fc", values)

    found = jax.vmap(of_one, in_axes=1, out_axes=1)(inputs)
    return _dense(p, "fc", _in_rows(found)) if rows else _in_rows(found)


def _attention(rows: bool, family: Attention, p: Arrays, tokens: Any) -> Any:
    steps, width = tokens.shape[1], family.width
    earlier = jnp.tril(jnp.ones((steps, steps), bool))

    def norm(name: str, values: Any) -> Any:
        layer = _with(
            lambda key: nn.LayerNorm(width, eps=family.epsilon), weight=p[name + ".gamma"], bias=p[name + ".beta"]
        )
        return jax.vmap(jax.vmap(layer))(values)

    def attend(name: str, values: Any) -> Any:
        projections = {which + "_proj": _linear(p, name + which) for which in PROJECTIONS}
        projections["output_proj"] = _linear(p, name + "project")
        biases = {"use_%s_bias" % which: True for which in ("query", "key", "value", "output")}
        layer = _with(lambda key: nn.MultiheadAttention(family.heads, width, key=key, **biases), **projections)
        return jax.vmap(lambda each: layer(each, each, each, mask=earlier))(values)

    values = _embedded(p, "embedding", tokens) + _embedded(p, "position", jnp.arange(steps))
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        values = values + attend(name, norm(name + "norm1", values))
        raised = jax.nn.gelu(_dense(p, name + "upper", norm(name + "norm2", values)), approximate=True)
        values = values + _dense(p, name + "lower", raised)
    values = norm("norm", values)
    return _dense(p, "fc", _in_rows(values)) if rows else _in_rows(_dense(p, "fc", values))


def mean_loss(network: Network, rows: bool) -> Loss:
    """Return the family's mean loss of a mini-batch as a function of parameters, inputs and labels.

    ``rows``: the logits of all steps of all examples are one product (see the setting ``rows_in_one_product``).
    """
    builders: Builders = (
        (Chain, _chain),
        (Residual, _residual),
        (Recurrent, partial(_recurrent, rows)),
        (Attention, partial(_attention, rows)),
    )
    return mean_loss_by(builders, "Equinox", network)
