"""Networks in JAX: arrays by name, and the loss as a pure function.

Images are held as (batch, height, width, channels), convolution weights as (height, width, inputs,
outputs): the layout of XLA's convolutions on the CPU. Everything else is held in canonical layout,
but tokens and their labels, which are turned to time-major so that each turn of a scan reads one
contiguous slice. The inputs' share of all steps' sums is one product, and the scan adds the
state's.
"""

from functools import partial
from typing import Any, Callable, Dict, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..families import Family, Layer
from ..launch.batches import Batch, laid_out
from ..libraries.walks import Functions, State, Turn, spike_slope
from ..networks import Network

IMAGES = ("NHWC", "HWIO", "NHWC")  # of inputs, weight and outputs
HELD = (2, 3, 1, 0)  # canonical axes (outputs, inputs, height, width) in the order they are held
CANONICAL = (3, 2, 0, 1)  # and back

Arrays = Dict[str, Any]  # float32 arrays by canonical name
Loss = Callable[[Arrays, Any, Any], Any]  # (parameters, inputs, labels) -> mean loss, a scalar
Convolve = Callable[[Any, Any, int, int], Any]  # (images, weight, stride, padding) -> images


def held(canonical: np.ndarray) -> np.ndarray:
    """Turn a parameter in canonical layout into the layout it is held in."""
    return np.ascontiguousarray(canonical.transpose(HELD)) if canonical.ndim == 4 else canonical


def canonical(value: Any) -> np.ndarray:
    """Return a held parameter as NumPy array in canonical layout."""
    array = np.asarray(value)
    return array.transpose(CANONICAL) if array.ndim == 4 else array


def place(family: Family, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return a copy of the mini-batch as the losses read it.

    Labels are in rows, time-major where the family is so.
    """
    if batch.inputs.ndim == 4:
        batch = batch._replace(inputs=batch.inputs.transpose(0, 2, 3, 1))
    return laid_out(family, batch)


def mean_loss(
    network: Network, functions: Callable[[Family, Arrays], Functions], narrow: Any = None
) -> Loss:
    """Return the family's mean loss of a mini-batch as a function of parameters, inputs and labels.

    ``narrow`` is a data type of 16 bits to compute in, with float32 parameters, batch statistics
    and loss, or None.
    """
    family = network.family

    def loss(parameters: Arrays, inputs: Any, labels: Any) -> Any:
        if narrow is not None:
            parameters, inputs = _narrowed(parameters, inputs, narrow)
        scores = functions(family, parameters).scores(inputs)
        if narrow is not None:
            scores = scores.astype(jnp.float32)
        if family.loss == "squares":
            return jnp.mean(jnp.square(scores - labels))
        chosen = jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - chosen)

    return loss


def forward_pass(
    network: Network, functions: Callable[[Family, Arrays], Functions], narrow: Any = None
) -> Any:
    """Return the forward pass, to rows of float32 outputs.

    It is a function of parameters, statistics and inputs. ``narrow`` is as in `mean_loss`.
    """

    def outputs(parameters: Arrays, statistics: Arrays, inputs: Any) -> Any:
        if narrow is not None:
            parameters, inputs = _narrowed(parameters, inputs, narrow)
        made = functions(network.family, parameters)
        made.statistics = statistics
        scores = made.scores(inputs)
        return scores if narrow is None else scores.astype(jnp.float32)

    return outputs


def _narrowed(parameters: Arrays, inputs: Any, narrow: Any) -> Tuple[Arrays, Any]:
    """Return weights and inputs in another floating-point type.

    Biases, normalisations and tokens keep theirs. The gradient of a bias is a sum over the
    mini-batch, and must not be summed up in 16 bits.
    """
    kept = (".bias", ".hidden_bias", ".gamma", ".beta")
    cast = {
        name: value if name.endswith(kept) else value.astype(narrow)
        for name, value in parameters.items()
    }
    if jnp.issubdtype(inputs.dtype, jnp.floating):
        inputs = inputs.astype(narrow)
    return cast, inputs


def convolve(values: Any, weight: Any, stride: int, padding: int) -> Any:
    """Convolve (batch, height, width, channels) with symmetric zero padding."""
    around = ((padding, padding), (padding, padding))
    return lax.conv_general_dilated(
        values, weight, (stride, stride), around, dimension_numbers=IMAGES
    )


def convolve_by_products(values: Any, weight: Any, stride: int, padding: int) -> Any:
    """Convolve, where the kernel is 1x1 by one matrix product over the pixels that it keeps."""
    if weight.shape[:2] != (1, 1) or padding:
        return convolve(values, weight, stride, padding)
    kept = values[:, ::stride, ::stride, :]
    products = kept.reshape(-1, kept.shape[-1]) @ weight[0, 0]
    return products.reshape(kept.shape[:-1] + (weight.shape[-1],))


CONVOLUTIONS: Dict[str, Convolve] = {"convolution": convolve, "product": convolve_by_products}


def max_pool(values: Any, kernel: int, stride: int, padding: int) -> Any:
    """Pool (batch, height, width, channels); sizes round down."""
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(
        values, -jnp.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), around
    )


def product(values: Any, weight: Any) -> Any:
    """Return ``values @ weight.T``, over any leading axes.

    It is a dense product with a weight in canonical layout.
    """
    return lax.dot_general(values, weight, (((values.ndim - 1,), (1,)), ((), ())))


def plus(values: Any, bias: Any) -> Any:
    """Add a bias in the bias's type, and return the sum in the values' type."""
    if values.dtype == bias.dtype:
        return values + bias
    return (values.astype(bias.dtype) + bias).astype(values.dtype)


@jax.custom_jvp  # type: ignore[untyped-decorator]
def spikes(potential: Any) -> Any:
    """Return 1 where a unit fires, and 0 elsewhere."""
    return (potential > 1.0).astype(potential.dtype)


@spikes.defjvp  # type: ignore[untyped-decorator]
def _spikes_forward(potentials: Any, changes: Any) -> Tuple[Any, Any]:
    return spikes(potentials[0]), spike_slope(potentials[0]) * changes[0]


class JaxFunctions(Functions):
    """Networks by jax.numpy, jax.nn and lax."""

    activations = {"sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "tanh": jnp.tanh}
    pool = staticmethod(max_pool)
    gelu = staticmethod(partial(jax.nn.gelu, approximate=True))
    spikes = staticmethod(spikes)
    as_constant = staticmethod(lax.stop_gradient)
    mean_of_steps = staticmethod(partial(jnp.mean, axis=0))

    def __init__(self, family: Family, weights: Arrays, convolve: Convolve = convolve) -> None:
        super().__init__(family, weights)
        self.convolve = convolve

    def dense(self, name: str, values: Any) -> Any:
        return plus(product(values, self.w[name + ".weight"]), self.w[name + ".bias"])

    def convolution(self, spec: Layer, values: Any) -> Any:
        values = self.convolve(values, self.w[spec.name + ".weight"], spec.stride, spec.padding)
        return values if spec.norm else plus(values, self.w[spec.name + ".bias"])

    def flatten(self, values: Any) -> Any:
        # Few values by then: turning them is easier to read than a permuted dense weight.
        return values.transpose(0, 3, 1, 2).reshape(values.shape[0], -1)

    def norm(self, name: str, values: Any) -> Any:
        given = values.dtype
        if given != jnp.float32:
            values = values.astype(jnp.float32)
        if self.statistics:
            mean = self.statistics[name + ".mean"]
            variance = self.statistics[name + ".variance"]
        else:
            mean = jnp.mean(values, axis=(0, 1, 2))
            variance = jnp.mean(jnp.square(values - mean), axis=(0, 1, 2))
        scale = self.w[name + ".gamma"] * lax.rsqrt(variance + self.family.epsilon)
        normalised = (values - mean) * scale + self.w[name + ".beta"]
        return normalised if given == jnp.float32 else normalised.astype(given)

    def pixel_mean(self, values: Any) -> Any:
        return jnp.mean(values, axis=(1, 2))

    def split(self, values: Any, count: int) -> Any:
        return jnp.split(values, count, axis=-1)

    def product(self, name: str, output: Any) -> Any:
        sums = product(output, self.w[name + ".hidden_weight"])
        bias = self.w.get(name + ".hidden_bias")
        return sums if bias is None else plus(sums, bias)

    def over_steps(self, name: str, values: Any, turn: Turn, states: int) -> Any:
        shares = plus(product(values, self.w[name + ".input_weight"]), self.w[name + ".bias"])

        def scanned(state: State, share: Any) -> Tuple[State, Any]:
            state = turn(state, share)
            return state, state[0]

        zero = jnp.zeros((values.shape[1], self.family.hidden), values.dtype)
        return lax.scan(scanned, (zero,) * states, shares)[1]

    def elman_layer(self, values: Any) -> Any:
        weight = self.w["rnn.hidden_weight"]
        shares = values @ self.w["rnn.input_weight"].T + self.w["rnn.bias"]

        def turn(state: Any, share: Any) -> Any:
            # Turned within the scan: at a mini-batch of 1 that is faster.
            state = self.leaky(state, share + state @ weight.T)
            return state, state

        return lax.scan(turn, jnp.zeros(shares.shape[1:], shares.dtype), shares)[1]

    def dense_of_steps(self, name: str, values: Any) -> Any:
        return values @ self.w[name + ".weight"].T + self.w[name + ".bias"].astype(values.dtype)

    def layer_norm(self, name: str, values: Any) -> Any:
        wide = values.astype(jnp.float32)
        mean = jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(wide - mean), axis=-1, keepdims=True)
        standard = (wide - mean) * lax.rsqrt(variance + self.family.epsilon)
        return (standard * self.w[name + ".gamma"] + self.w[name + ".beta"]).astype(values.dtype)

    def attended(self, name: str, values: Any) -> Any:
        batch, steps, width = values.shape
        parts = self.dense_of_steps(name + "qkv", values).reshape(
            batch, steps, 3, self.family.heads, -1
        )
        mixed = jax.nn.dot_product_attention(
            parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True
        )
        return mixed.reshape(batch, steps, width)
