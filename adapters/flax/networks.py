"""Builds the specifications of ``adapters/networks.py`` of Flax NNX's own layers.

Layers are made while JAX traces the loss, from parameters that stand in a dictionary by canonical name, so that the
adapter of JAX can hold and update them. They lie as Flax has them: dense kernels (inputs, outputs), convolution
kernels (height, width, inputs, outputs), images (batch, height, width, channels). Sequences are time-major.
"""

from functools import partial
from typing import Any, Callable, Dict, Tuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..base import Unsupported
from ..families import Attention, Chain, Convolution, Dense, Elman, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..jax.networks import Arrays, Builders, mean_loss_by

ACTIVATIONS = {"sigmoid": nnx.sigmoid, "relu": nnx.relu, "tanh": nnx.tanh, "none": lambda values: values}
HELD = (2, 3, 1, 0)  # canonical axes of a convolution's weight in the order they are held
LOOKED_UP = ("embedding.weight", "position.weight")  # rows of a table, which lie as they are


def held(name: str, value: np.ndarray) -> np.ndarray:
    """Turn a parameter in canonical layout into Flax's."""
    if value.ndim == 4:
        value = value.transpose(HELD)
    elif value.ndim == 2 and name not in LOOKED_UP:
        value = value.T
    return np.ascontiguousarray(value)


def canonical(name: str, value: Any) -> np.ndarray:
    """Return a parameter of Flax's as NumPy array in canonical layout."""
    array = np.asarray(value)
    if array.ndim == 4:
        return array.transpose(3, 2, 0, 1)
    return array.T if array.ndim == 2 and name not in LOOKED_UP else array


def _with(make: Callable[[Any], Any], values: Dict[Tuple[str, ...], Any]) -> Any:
    """Return the layer with these parameters, by their paths in it.

    Running statistics are not kept, so that XLA leaves their update out.
    """
    graph, state = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    flat = dict(nnx.to_flat_state(state))
    for path, variable in flat.items():
        is_parameter = isinstance(variable, nnx.Param)
        flat[path] = variable.replace(values[path] if is_parameter else jnp.zeros(variable.shape, variable.dtype))
    return nnx.merge(graph, nnx.from_flat_state(flat))


def _linear(p: Arrays, name: str) -> Any:
    kernel = p[name + ".weight"]
    return _with(
        lambda rngs: nnx.Linear(kernel.shape[0], kernel.shape[1], rngs=rngs),
        {("kernel",): kernel, ("bias",): p[name + ".bias"]},
    )


def _convolution(p: Arrays, name: str, kernel: int, stride: int, padding: int) -> Any:
    weight, bias = p[name + ".weight"], p.get(name + ".bias")
    around = ((padding, padding), (padding, padding))
    sizes = weight.shape[2], weight.shape[3], (kernel, kernel)
    return _with(
        lambda rngs: nnx.Conv(*sizes, strides=stride, padding=around, use_bias=bias is not None, rngs=rngs),
        {("kernel",): weight, ("bias",): bias},
    )


def _pooled(values: Any, kernel: int, stride: int, padding: int) -> Any:
    around = ((padding, padding), (padding, padding))
    return nnx.max_pool(values, (kernel, kernel), (stride, stride), around)


def _chain(family: Chain, p: Arrays, values: Any) -> Any:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = ACTIVATIONS[layer.activation](_linear(p, layer.name)(values))
        elif isinstance(layer, Convolution):
            made = _convolution(p, layer.name, layer.kernel, layer.stride, layer.padding)
            values = ACTIVATIONS[layer.activation](made(values))
        elif isinstance(layer, MaxPool):
            values = _pooled(values, layer.kernel, layer.stride, layer.padding)
        elif isinstance(layer, Flatten):
            values = values.transpose(0, 3, 1, 2).reshape(values.shape[0], -1)
        else:
            raise Unsupported("Flax: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _residual(family: Residual, p: Arrays, values: Any) -> Any:
    def unit(spec: NormalisedConvolution, values: Any) -> Any:
        norm = _with(
            # The mean square less the squared mean, Flax's default, loses digits.
            lambda rngs: nnx.BatchNorm(
                spec.outputs, use_running_average=False, epsilon=family.epsilon, use_fast_variance=False, rngs=rngs
            ),
            {("scale",): p[spec.norm + ".gamma"], ("bias",): p[spec.norm + ".beta"]},
        )
        return norm(_convolution(p, spec.name, spec.kernel, spec.stride, spec.padding)(values))

    values = _pooled(nnx.relu(unit(family.stem, values)), 3, 2, 1)
    for block in family.bottlenecks:
        first, second, third = block.body
        inner = unit(third, nnx.relu(unit(second, nnx.relu(unit(first, values)))))
        if block.shortcut is not None:
            values = unit(block.shortcut, values)
        values = nnx.relu(inner + values)
    return _linear(p, "fc")(jnp.mean(values, axis=(1, 2)))


def _states(p: Arrays, name: str, cell: Callable[..., Any], bias_at: str, values: Any) -> Any:
    """Run a layer from a zero state: (steps, batch, inputs) to (steps, batch, hidden)."""
    into, onto = p[name + ".input_weight"], p[name + ".hidden_weight"]
    layer = _with(
        lambda rngs: nnx.RNN(cell(into.shape[0], onto.shape[0], rngs=rngs), time_major=True),
        {
            ("cell", "dense_i", "kernel"): into,
            ("cell", "dense_h", "kernel"): onto,
            ("cell", bias_at, "bias"): p[name + ".bias"],
        },
    )
    zero = jnp.zeros((values.shape[1], onto.shape[0]))
    return layer(values, initial_carry=(zero, zero) if cell is nnx.OptimizedLSTMCell else zero)


#: Of a cell of the family ``recurrent``: Flax's, and the one of its two layers that has the bias.
CELLS = {"lstm": (nnx.OptimizedLSTMCell, "dense_h"), "rnn": (nnx.SimpleCell, "dense_i")}


def _embedded(p: Arrays, name: str, tokens: Any) -> Any:
    table = p[name + ".weight"]
    return _with(lambda rngs: nnx.Embed(*table.shape, rngs=rngs), {("embedding",): table})(tokens)


def _recurrent(family: Recurrent, p: Arrays, inputs: Any) -> Any:
    values = _embedded(p, "embedding", inputs) if family.embedding else inputs
    for name in family.layer_names():
        values = _states(p, name, *CELLS[family.cell], values)
    return _linear(p, "fc")(values.reshape(-1, family.hidden))


def _elman(family: Elman, p: Arrays, inputs: Any) -> Any:
    cell = partial(nnx.SimpleCell, activation_fn=ACTIVATIONS[family.activation])
    return _linear(p, "out")(_states(p, "rnn", cell, "dense_i", inputs).reshape(-1, family.hidden))


def _attention(family: Attention, p: Arrays, tokens: Any) -> Any:
    batch, steps = tokens.shape

    def norm(name: str, values: Any) -> Any:
        layer = _with(
            lambda rngs: nnx.LayerNorm(family.width, epsilon=family.epsilon, use_fast_variance=False, rngs=rngs),
            {("scale",): p[name + ".gamma"], ("bias",): p[name + ".beta"]},
        )
        return layer(values)

    values = _embedded(p, "embedding", tokens) + _embedded(p, "position", jnp.arange(steps))
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = _linear(p, name + "qkv")(norm(name + "norm1", values)).reshape(batch, steps, 3, family.heads, -1)
        mixed = nnx.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True)
        values = values + _linear(p, name + "project")(mixed.reshape(batch, steps, family.width))
        raised = nnx.gelu(_linear(p, name + "upper")(norm(name + "norm2", values)), approximate=True)
        values = values + _linear(p, name + "lower")(raised)
    return _linear(p, "fc")(norm("norm", values).reshape(-1, family.width))


BUILDERS: Builders = (
    (Chain, _chain),
    (Residual, _residual),
    (Recurrent, _recurrent),
    (Elman, _elman),
    (Attention, _attention),
)


mean_loss = partial(mean_loss_by, BUILDERS, "Flax")
