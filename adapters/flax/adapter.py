"""Flax NNX: its layers in JAX's one jitted step.

Layers are made while JAX traces the loss, from parameters that stand in a dictionary by canonical
name, so that the adapter of JAX can hold and update them. They lie as Flax has them: dense kernels
(inputs, outputs), convolution kernels (height, width, inputs, outputs), images (batch, height,
width, channels). Sequences are time-major.
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

import flax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from ..base import Adapter
from ..families import Elman, Layer
from ..jax.adapter import JaxAdapter
from ..jax.networks import HELD
from ..libraries.walks import Functions
from ..networks import Network

LOOKED_UP = ("embedding.weight", "position.weight")  # tables, which lie as they are
#: Of a cell of the family ``recurrent``: Flax's, and the one of its two layers that has the bias.
CELLS = {"lstm": (nnx.OptimizedLSTMCell, "dense_h"), "rnn": (nnx.SimpleCell, "dense_i")}


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


def _with(make: Callable[[Any], Any], values: Mapping[Any, Any]) -> Any:
    """Return the layer with these parameters, by their paths in it.

    Running statistics are kept only where they are given, so that XLA leaves their update out in
    training.
    """
    graph, state = nnx.split(nnx.eval_shape(lambda: make(nnx.Rngs(0))))
    flat = dict(nnx.to_flat_state(state))
    for path, variable in flat.items():
        given = isinstance(variable, nnx.Param) or path in values
        flat[path] = variable.replace(
            values[path] if given else jnp.zeros(variable.shape, variable.dtype)
        )
    return nnx.merge(graph, nnx.from_flat_state(flat))


class FlaxFunctions(Functions):
    """Networks of Flax's layers."""

    activations = {"sigmoid": nnx.sigmoid, "relu": nnx.relu, "tanh": nnx.tanh}
    gelu = staticmethod(partial(nnx.gelu, approximate=True))

    def _normalising(self, name: str, make: Callable[[Any], Any]) -> Any:
        given = {("scale",): self.w[name + ".gamma"], ("bias",): self.w[name + ".beta"]}
        if self.statistics:
            given.update(
                {
                    ("mean",): self.statistics[name + ".mean"],
                    ("var",): self.statistics[name + ".variance"],
                }
            )
        return _with(make, given)

    def dense(self, name: str, values: Any) -> Any:
        kernel = self.w[name + ".weight"]
        given = {("kernel",): kernel, ("bias",): self.w[name + ".bias"]}
        return _with(lambda rngs: nnx.Linear(kernel.shape[0], kernel.shape[1], rngs=rngs), given)(
            values
        )

    def convolution(self, spec: Layer, values: Any) -> Any:
        weight, added = self.w[spec.name + ".weight"], self.w.get(spec.name + ".bias")
        sizes = weight.shape[2], weight.shape[3], (spec.kernel, spec.kernel)
        options: Dict[str, Any] = {
            "strides": spec.stride,
            "padding": ((spec.padding, spec.padding),) * 2,
        }
        options["use_bias"] = not spec.norm
        given = {("kernel",): weight, ("bias",): added}
        return _with(lambda rngs: nnx.Conv(*sizes, rngs=rngs, **options), given)(values)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return nnx.max_pool(
            values, (kernel, kernel), (stride, stride), ((padding, padding), (padding, padding))
        )

    def flatten(self, values: Any) -> Any:
        return values.transpose(0, 3, 1, 2).reshape(values.shape[0], -1)

    def norm(self, name: str, values: Any) -> Any:
        # The mean square less the squared mean, Flax's default, loses digits.
        options = {
            "use_running_average": bool(self.statistics),
            "epsilon": self.family.epsilon,
            "use_fast_variance": False,
        }
        return self._normalising(
            name, lambda rngs: nnx.BatchNorm(values.shape[-1], rngs=rngs, **options)
        )(values)

    def pixel_mean(self, values: Any) -> Any:
        return jnp.mean(values, axis=(1, 2))

    def embedded(self, name: str, symbols: Any) -> Any:
        table = self.w[name + ".weight"]
        return _with(lambda rngs: nnx.Embed(*table.shape, rngs=rngs), {("embedding",): table})(
            symbols
        )

    def _states(self, name: str, cell: Callable[..., Any], bias_at: str, values: Any) -> Any:
        """Run a layer from a zero state: (steps, batch, inputs) to (steps, batch, hidden)."""
        into, onto = self.w[name + ".input_weight"], self.w[name + ".hidden_weight"]
        layer = _with(
            lambda rngs: nnx.RNN(cell(into.shape[0], onto.shape[0], rngs=rngs), time_major=True),
            {
                ("cell", "dense_i", "kernel"): into,
                ("cell", "dense_h", "kernel"): onto,
                ("cell", bias_at, "bias"): self.w[name + ".bias"],
            },
        )
        zero = jnp.zeros((values.shape[1], onto.shape[0]))
        return layer(values, initial_carry=(zero, zero) if cell is nnx.OptimizedLSTMCell else zero)

    def recurrent_layer(self, name: str, values: Any) -> Any:
        return self._states(name, *CELLS[self.family.cell], values)

    def elman_layer(self, values: Any) -> Any:
        cell = partial(nnx.SimpleCell, activation_fn=self.activations[self.family.activation])
        return self._states("rnn", cell, "dense_i", values)

    def positioned(self, tokens: Any) -> Any:
        return self.embedded("embedding", tokens) + self.embedded(
            "position", jnp.arange(tokens.shape[1])
        )

    def layer_norm(self, name: str, values: Any) -> Any:
        options = {"epsilon": self.family.epsilon, "use_fast_variance": False}
        return self._normalising(
            name, lambda rngs: nnx.LayerNorm(self.family.width, rngs=rngs, **options)
        )(values)

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.dense(name + "qkv", values).reshape(batch, steps, 3, self.family.heads, -1)
        mixed = nnx.dot_product_attention(
            parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True
        )
        return mixed.reshape(batch, steps, width)


class FlaxAdapter(JaxAdapter):
    """Trains as `JaxAdapter` does, with networks of Flax's layers.

    Settings: ``donate`` and ``keep_programs`` of `JaxAdapter`.
    """

    families = (*Adapter.families, "elman", "attention")
    cells = tuple(CELLS)
    data_parallel = ""
    refuses_training = Adapter.refuses_training
    train_on_text = Adapter.train_on_text

    def refuses(self, network: Network) -> str:
        if isinstance(network.family, Elman) and network.family.alpha != 1.0:
            return "alpha %g: Flax's SimpleCell has no leaky units" % network.family.alpha
        return super().refuses(network)

    def _functions(self) -> Callable[..., Functions]:
        return FlaxFunctions

    def _held(self, name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
        return {name: held(name, value)}

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        for name, value in self._parameters.items():
            yield name, canonical(name, value)

    def describe(self) -> Dict[str, Any]:
        described = super().describe()
        del described["pointwise_convolutions"]
        described.update(
            framework="flax",
            version=flax.__version__,
            jax=described["version"],
            recurrence="nnx.RNN, a scan",
        )
        return described


ADAPTER = FlaxAdapter
