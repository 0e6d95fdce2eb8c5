"""Equinox: its layers, mapped over the mini-batch, in JAX's one jitted step.

A layer of Equinox's works on one example and is mapped over the mini-batch. Layers are made while
JAX traces the loss, from parameters that stand in a dictionary by canonical name, so that the
adapter of JAX can hold and update them. Equinox's layouts are the canonical ones. Sequences are
time-major.
"""

from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from equinox import nn
from jax import lax

from ..base import Adapter
from ..families import Family, Layer
from ..jax.adapter import JaxAdapter
from ..jax.networks import Arrays
from ..launch.batches import Batch, laid_out
from ..libraries.walks import Functions

BATCH = "batch"  # the axis that batch normalisations work over
PROJECTIONS = ("query", "key", "value")


def held(name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
    """Return the arrays held of a parameter.

    The projections for attention, which are one in dlbench, have an array each.
    """
    before, projections, after = name.partition("qkv.")
    if not projections:
        return {name: value}
    return dict(
        zip(("%s%s.%s" % (before, which, after) for which in PROJECTIONS), np.split(value, 3))
    )


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
    layer = eqx.filter_eval_shape(make, jax.random.key(0))
    return eqx.tree_at(
        lambda made: [getattr(made, name) for name in values], layer, list(values.values())
    )


class EquinoxFunctions(Functions):
    """Networks of Equinox's layers.

    ``in_rows``: the logits of all steps of all examples are one product.
    """

    activations = {"sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "tanh": jnp.tanh}
    gelu = staticmethod(partial(jax.nn.gelu, approximate=True))

    def __init__(self, family: Family, weights: Arrays, in_rows: bool = False) -> None:
        super().__init__(family, weights)
        self.in_rows = in_rows

    def _linear(self, name: str) -> Any:
        weight, bias = self.w[name + ".weight"], self.w[name + ".bias"]
        return _with(
            lambda key: nn.Linear(weight.shape[1], weight.shape[0], key=key),
            weight=weight,
            bias=bias,
        )

    def dense(self, name: str, values: Any) -> Any:
        layer = self._linear(name)
        for _ in range(values.ndim - 1):
            layer = jax.vmap(layer)
        return layer(values)

    def convolution(self, spec: Layer, values: Any) -> Any:
        weight = self.w[spec.name + ".weight"]
        given = {} if spec.norm else {"bias": self.w[spec.name + ".bias"].reshape(-1, 1, 1)}
        sizes = weight.shape[1], weight.shape[0], weight.shape[2], spec.stride, spec.padding
        layer = _with(
            lambda key: nn.Conv2d(*sizes, use_bias=not spec.norm, key=key), weight=weight, **given
        )
        return jax.vmap(layer)(values)

    def pool(self, values: Any, kernel: int, stride: int, padding: int) -> Any:
        return jax.vmap(nn.MaxPool2d(kernel, stride, padding))(values)

    def flatten(self, values: Any) -> Any:
        return values.reshape(values.shape[0], -1)

    def norm(self, name: str, values: Any) -> Any:
        options = {"eps": self.family.epsilon, "mode": "ema" if self.statistics else "batch"}
        made, state = nn.make_with_state(nn.BatchNorm)(values.shape[1], BATCH, **options)
        given = (self.w[name + ".gamma"], self.w[name + ".beta"])
        layer = eqx.tree_at(lambda norm: (norm.weight, norm.bias), made, given)
        if self.statistics:
            running = self.statistics[name + ".mean"], self.statistics[name + ".variance"]
            layer, state = eqx.nn.inference_mode(layer), state.set(layer.ema_state_index, running)
        # Running statistics are not kept, so that XLA leaves their update out.
        return jax.vmap(layer, axis_name=BATCH, in_axes=(0, None), out_axes=(0, None))(
            values, state
        )[0]

    def pixel_mean(self, values: Any) -> Any:
        return jnp.mean(values, axis=(2, 3))

    def embedded(self, name: str, symbols: Any) -> Any:
        table = self.w[name + ".weight"]
        look_up = _with(lambda key: nn.Embedding(*table.shape, key=key), weight=table)
        for _ in range(symbols.ndim):
            look_up = jax.vmap(look_up)
        return look_up(symbols)

    def recurrent_layer(self, name: str, values: Any) -> Any:
        """Return the states of one example, (steps, hidden), of (steps, inputs)."""
        into, onto = self.w[name + ".input_weight"], self.w[name + ".hidden_weight"]
        given = {"weight_ih": into, "weight_hh": onto, "bias": self.w[name + ".bias"]}
        cell = _with(lambda key: nn.LSTMCell(into.shape[1], onto.shape[1], key=key), **given)

        def turn(state: Any, value: Any) -> Any:
            state = cell(value, state)
            return state, state[0]

        zero = jnp.zeros(onto.shape[1])
        return lax.scan(turn, (zero, zero), values)[1]

    def recurrent(self, inputs: Any) -> Any:
        """Map one example's layers over the mini-batch."""

        def of_one(symbols: Any) -> Any:
            values = self.embedded("embedding", symbols) if self.family.embedding else symbols
            for name in self.family.layer_names():
                values = self.recurrent_layer(name, values)
            return values if self.in_rows else self.dense("fc", values)

        outputs = jax.vmap(of_one, in_axes=1, out_axes=1)(inputs)
        return self.dense("fc", self.rows(outputs)) if self.in_rows else self.rows(outputs)

    def layer_norm(self, name: str, values: Any) -> Any:
        given = {"weight": self.w[name + ".gamma"], "bias": self.w[name + ".beta"]}
        layer = _with(lambda key: nn.LayerNorm(self.family.width, eps=self.family.epsilon), **given)
        return jax.vmap(jax.vmap(layer))(values)

    def attended(self, name: str, values: Any) -> Any:
        """Return causal self-attention by Equinox's layer, which has the last product in it."""
        earlier = jnp.tril(jnp.ones((values.shape[1],) * 2, bool))
        projections = {which + "_proj": self._linear(name + which) for which in PROJECTIONS}
        projections["output_proj"] = self._linear(name + "project")
        biases = {"use_%s_bias" % which: True for which in ("query", "key", "value", "output")}
        sizes = self.family.heads, self.family.width
        layer = _with(lambda key: nn.MultiheadAttention(*sizes, key=key, **biases), **projections)
        return jax.vmap(lambda example: layer(example, example, example, mask=earlier))(values)

    def positioned(self, tokens: Any) -> Any:
        return self.embedded("embedding", tokens) + self.embedded(
            "position", jnp.arange(tokens.shape[1])
        )

    def dense_of_steps(self, name: str, values: Any) -> Any:
        return values if name.endswith("project") else self.dense(name, values)

    def logits_of_steps(self, values: Any) -> Any:
        return (
            super().logits_of_steps(values) if self.in_rows else self.rows(self.dense("fc", values))
        )


class EquinoxAdapter(JaxAdapter):
    """Trains as `JaxAdapter` does, with networks of Equinox's layers.

    Settings: ``donate`` and ``keep_programs`` of `JaxAdapter`; ``rows`` (default false) makes the
    logits of all steps of all examples by one product, outside what is mapped over the mini-batch.
    """

    families = (*Adapter.families, "attention")
    cells = ("lstm",)
    further_axes = ("sync", "task")
    data_parallel = ""
    refuses_training = Adapter.refuses_training
    train_on_text = Adapter.train_on_text

    def _functions(self) -> Callable[..., Functions]:
        return partial(EquinoxFunctions, in_rows=bool(self.settings.get("rows", False)))

    def _held(self, name: str, value: np.ndarray) -> Dict[str, np.ndarray]:
        return held(name, value)

    def parameters(self) -> Iterator[Tuple[str, np.ndarray]]:
        return canonical(self._parameters)

    def _read(self, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
        return laid_out(self._family, batch)

    def describe(self) -> Dict[str, Any]:
        described = super().describe()
        del described["pointwise_convolutions"]
        described.update(framework="equinox", version=eqx.__version__, jax=described["version"])
        described.update(recurrence="a scan of each example, mapped", image_layout="NCHW")
        described["logits"] = "one product" if self.settings.get("rows", False) else "mapped"
        return described


ADAPTER = EquinoxAdapter
