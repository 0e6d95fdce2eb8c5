"""Builds the specifications of ``adapters/networks.py`` in JAX: arrays by name, and the loss as a pure function.

Images are held as (batch, height, width, channels), convolution weights as (height, width, inputs, outputs): the layout
that XLA's convolutions on the CPU work in. Everything else is held in canonical layout, but tokens and their labels,
which are turned to time-major so that each turn of the scan reads one contiguous slice.
"""

from functools import partial
from typing import Any, Callable, Dict, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..base import Unsupported
from ..families import Attention, Chain, Convolution, Dense, Elman, Family, Flatten, MaxPool, Recurrent, Residual
from ..families.residual import NormalisedConvolution
from ..launch.batches import Batch, laid_out
from ..networks import Network


def product(values: Any, weight: Any) -> Any:
    """Return ``values @ weight.T``: a dense product with a weight in canonical layout, over any leading axes."""
    return lax.dot_general(values, weight, (((values.ndim - 1,), (1,)), ((), ())))


def plus(values: Any, bias: Any) -> Any:
    """Add a bias in the bias's type, and return the sum in the values' type."""
    return values + bias if values.dtype == bias.dtype else (values.astype(bias.dtype) + bias).astype(values.dtype)


def dense(parameters: Dict[str, Any], name: str, values: Any) -> Any:
    """Return the dense layer of this name."""
    return plus(product(values, parameters[name + ".weight"]), parameters[name + ".bias"])


# Stacked recurrent layers, and the logits of all steps.
#
# The inputs' share of all steps' sums is one product; a scan over the steps adds the state's.

State = Tuple[Any, ...]  # the layer's output first, each (batch, hidden)
#: (state, a step's share of the inputs, function from an output to its product) -> the state after that step
Turn = Callable[[State, Any, Callable[[Any], Any]], State]


def _lstm(state: State, share: Any, from_output: Callable[[Any], Any]) -> State:
    """Gates input, forget, cell, output."""
    output, memory = state
    input_gate, forget_gate, candidate, output_gate = jnp.split(share + from_output(output), 4, axis=-1)
    memory = jax.nn.sigmoid(forget_gate) * memory + jax.nn.sigmoid(input_gate) * jnp.tanh(candidate)
    return jax.nn.sigmoid(output_gate) * jnp.tanh(memory), memory


def _gru(state: State, share: Any, from_output: Callable[[Any], Any]) -> State:
    """Gates reset, update, new; the reset gate weighs the state's product."""
    (output,) = state
    ours, theirs = jnp.split(share, 3, axis=-1), jnp.split(from_output(output), 3, axis=-1)
    reset, update = [jax.nn.sigmoid(ours[gate] + theirs[gate]) for gate in (0, 1)]
    new = jnp.tanh(ours[2] + reset * theirs[2])
    return ((1.0 - update) * new + update * output,)


def _rnn(state: State, share: Any, from_output: Callable[[Any], Any]) -> State:
    return (jnp.tanh(share + from_output(state[0])),)


TURNS: Dict[str, Turn] = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}


def recurrent_layer(cell: str, parameters: Dict[str, Any], name: str, values: Any) -> Any:
    """Run a layer from a zero state: (steps, batch, inputs) to (steps, batch, hidden)."""
    shares = plus(product(values, parameters[name + ".input_weight"]), parameters[name + ".bias"])
    weight, bias = parameters[name + ".hidden_weight"], parameters.get(name + ".hidden_bias")

    def from_output(output: Any) -> Any:
        found = product(output, weight)
        return found if bias is None else plus(found, bias)

    def turn(state: State, share: Any) -> Tuple[State, Any]:
        state = TURNS[cell](state, share, from_output)
        return state, state[0]

    zero = jnp.zeros((values.shape[1], weight.shape[1]), values.dtype)
    _, outputs = lax.scan(turn, (zero,) * (2 if cell == "lstm" else 1), shares)
    return outputs


def recurrent_logits(family: Recurrent, parameters: Dict[str, Any], inputs: Any) -> Any:
    """Return the logits of all steps, (steps * batch, vocabulary), of time-major tokens or one-hot symbols."""
    values = parameters["embedding.weight"][inputs] if family.embedding else inputs
    for name in family.layer_names():
        values = recurrent_layer(family.cell, parameters, name, values)
    return dense(parameters, "fc", values.reshape(-1, family.hidden))


PHI = {"tanh": jnp.tanh, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}


def elman_outputs(family: Elman, parameters: Dict[str, Any], values: Any) -> Any:
    """Return the outputs of all steps, (steps * batch, outputs), of inputs (steps, batch, inputs)."""
    phi, alpha = PHI[family.activation], family.alpha
    weight = parameters["rnn.hidden_weight"]
    shares = values @ parameters["rnn.input_weight"].T + parameters["rnn.bias"]

    def turn(state: Any, share: Any) -> Any:
        # Turned here, not before the scan: at a mini-batch of 1 that is faster.
        found = phi(share + state @ weight.T)
        state = found if alpha == 1.0 else (1.0 - alpha) * state + alpha * found
        return state, state

    _, states = lax.scan(turn, jnp.zeros(shares.shape[1:], shares.dtype), shares)
    return states.reshape(-1, family.hidden) @ parameters["out.weight"].T + parameters["out.bias"]


def attention_logits(family: Attention, parameters: Dict[str, Any], tokens: Any) -> Any:
    """Return the logits of all steps, (batch * steps, vocabulary), of tokens (batch, steps)."""
    batch, steps = tokens.shape

    def dense(name: str, values: Any) -> Any:
        return values @ parameters[name + ".weight"].T + parameters[name + ".bias"].astype(values.dtype)

    def norm(name: str, values: Any) -> Any:
        wide = values.astype(jnp.float32)
        mean = jnp.mean(wide, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(wide - mean), axis=-1, keepdims=True)
        standard = (wide - mean) * lax.rsqrt(variance + family.epsilon)
        return (standard * parameters[name + ".gamma"] + parameters[name + ".beta"]).astype(values.dtype)

    values = parameters["embedding.weight"][tokens] + parameters["position.weight"]
    for layer in range(1, family.layers + 1):
        name = "layer%d." % layer
        parts = dense(name + "qkv", norm(name + "norm1", values)).reshape(batch, steps, 3, family.heads, -1)
        mixed = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True)
        values = values + dense(name + "project", mixed.reshape(batch, steps, family.width))
        raised = jax.nn.gelu(dense(name + "upper", norm(name + "norm2", values)), approximate=True)
        values = values + dense(name + "lower", raised)
    return dense("fc", norm("norm", values).reshape(-1, family.width))


ACTIVATIONS = {"sigmoid": jax.nn.sigmoid, "relu": jax.nn.relu, "tanh": jnp.tanh, "none": lambda values: values}
IMAGES = ("NHWC", "HWIO", "NHWC")  # of inputs, weight and outputs
HELD = (2, 3, 1, 0)  # canonical axes (outputs, inputs, height, width) in the order they are held
CANONICAL = (3, 2, 0, 1)  # and back

Arrays = Dict[str, Any]  # float32 arrays by canonical name
Loss = Callable[[Arrays, Any, Any], Any]  # (parameters, inputs, labels) -> mean loss, a scalar
#: By type of family: (family, parameters, inputs) -> scores
Builders = Tuple[Tuple[type, Callable[[Any, Arrays, Any], Any]], ...]
Convolve = Callable[[Any, Any, int, int], Any]  # (images, weight, stride, padding) -> images


def held(canonical: np.ndarray) -> np.ndarray:
    """Turn a parameter in canonical layout into the layout it is held in."""
    return np.ascontiguousarray(canonical.transpose(HELD)) if canonical.ndim == 4 else canonical


def canonical(value: Any) -> np.ndarray:
    """Return a held parameter as NumPy array in canonical layout."""
    array = np.asarray(value)
    return array.transpose(CANONICAL) if array.ndim == 4 else array


def place(family: Family, batch: Batch) -> Tuple[np.ndarray, np.ndarray]:
    """Return a copy of the mini-batch as the losses read it: labels in rows, time-major where the family is so."""
    inputs, labels = laid_out(family, batch)
    if inputs.ndim == 4:
        inputs = np.ascontiguousarray(inputs.transpose(0, 2, 3, 1))
    return inputs, labels


def mean_loss(network: Network, convolve: Convolve, narrow: Any = None) -> Loss:
    """Return the family's mean loss of a mini-batch as a function of parameters, inputs and labels.

    ``convolve`` is one of `CONVOLUTIONS`; ``narrow`` a data type of 16 bits to compute in, with float32 parameters,
    batch statistics and loss, or None.
    """
    family = network.family
    logits: Any = None
    if isinstance(family, Chain):
        logits = partial(_feedforward, family, convolve)
    elif isinstance(family, Residual):
        logits = partial(_residual, family, convolve)
    elif isinstance(family, Recurrent):
        logits = partial(recurrent_logits, family)
    elif isinstance(family, Elman):
        logits = partial(elman_outputs, family)
    elif isinstance(family, Attention):
        logits = partial(attention_logits, family)
    else:
        raise Unsupported("JAX: no way to build a network of type %s" % type(family).__name__)

    def loss(parameters: Arrays, inputs: Any, labels: Any) -> Any:
        if narrow is not None:
            parameters, inputs = _narrowed(parameters, inputs, narrow)
        scores = logits(parameters, inputs)
        if narrow is not None:
            scores = scores.astype(jnp.float32)
        return mean_of(family.loss, scores, labels)

    return loss


def mean_loss_by(builders: Builders, title: str, network: Network) -> Loss:
    """Return the mean loss of a network whose scores one of these builders gives; for libraries of layers over JAX."""
    family = network.family
    builder = next((each for kind, each in builders if isinstance(family, kind)), None)
    if builder is None:
        raise Unsupported("%s: no way to build a network of type %s" % (title, type(family).__name__))

    def loss(parameters: Arrays, inputs: Any, labels: Any) -> Any:
        return mean_of(family.loss, builder(family, parameters, inputs), labels)

    return loss


def mean_of(loss: str, scores: Any, labels: Any) -> Any:
    """Return the mean loss of this kind: of squared errors, or of cross-entropies over rows of logits."""
    if loss == "squares":
        return jnp.mean(jnp.square(scores - labels))
    chosen = jnp.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - chosen)


def _narrowed(parameters: Arrays, inputs: Any, narrow: Any) -> Tuple[Arrays, Any]:
    """Return weights and inputs in another floating-point type; not what is added or normalises, and not tokens.

    The gradient of what is added is a sum over the mini-batch, and must not be summed up in 16 bits.
    """
    kept = (".bias", ".hidden_bias", ".gamma", ".beta")
    cast = {name: value if name.endswith(kept) else value.astype(narrow) for name, value in parameters.items()}
    return cast, inputs.astype(narrow) if jnp.issubdtype(inputs.dtype, jnp.floating) else inputs


def convolve(values: Any, weight: Any, stride: int, padding: int) -> Any:
    """Convolve (batch, height, width, channels) with symmetric zero padding."""
    around = ((padding, padding), (padding, padding))
    return lax.conv_general_dilated(values, weight, (stride, stride), around, dimension_numbers=IMAGES)


def convolve_by_products(values: Any, weight: Any, stride: int, padding: int) -> Any:
    """Convolve as `convolve` does, but where the kernel is 1x1, by one matrix product over the pixels that it keeps."""
    if weight.shape[:2] != (1, 1) or padding:
        return convolve(values, weight, stride, padding)
    kept = values[:, ::stride, ::stride, :]
    return (kept.reshape(-1, kept.shape[-1]) @ weight[0, 0]).reshape(kept.shape[:-1] + (weight.shape[-1],))


CONVOLUTIONS: Dict[str, Convolve] = {"convolution": convolve, "product": convolve_by_products}


def max_pool(values: Any, kernel: int, stride: int, padding: int) -> Any:
    """Pool (batch, height, width, channels); sizes round down."""
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    return lax.reduce_window(values, -jnp.inf, lax.max, (1, kernel, kernel, 1), (1, stride, stride, 1), around)


def normalise(values: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Normalise each channel of (batch, height, width, channels) by its mean and biased variance, in float32."""
    given = values.dtype
    if given != jnp.float32:
        values = values.astype(jnp.float32)
    mean = jnp.mean(values, axis=(0, 1, 2))
    variance = jnp.mean(jnp.square(values - mean), axis=(0, 1, 2))
    normalised = (values - mean) * (gamma * lax.rsqrt(variance + epsilon)) + beta
    return normalised if given == jnp.float32 else normalised.astype(given)


def _feedforward(family: Chain, convolve: Convolve, parameters: Arrays, values: Any) -> Any:
    for layer in family.layers:
        if isinstance(layer, Dense):
            values = ACTIVATIONS[layer.activation](dense(parameters, layer.name, values))
        elif isinstance(layer, Convolution):
            values = convolve(values, parameters[layer.name + ".weight"], layer.stride, layer.padding)
            values = ACTIVATIONS[layer.activation](plus(values, parameters[layer.name + ".bias"]))
        elif isinstance(layer, MaxPool):
            values = max_pool(values, layer.kernel, layer.stride, layer.padding)
        elif isinstance(layer, Flatten):
            # Few values by then: turning them is cheaper to read than a permuted dense weight.
            values = values.transpose(0, 3, 1, 2).reshape(values.shape[0], -1)
        else:
            raise Unsupported("JAX: no way to build a layer of type %s" % type(layer).__name__)
    return values


def _residual(family: Residual, convolve: Convolve, parameters: Arrays, values: Any) -> Any:
    def unit(spec: NormalisedConvolution, values: Any) -> Any:
        values = convolve(values, parameters[spec.name + ".weight"], spec.stride, spec.padding)
        return normalise(values, parameters[spec.norm + ".gamma"], parameters[spec.norm + ".beta"], family.epsilon)

    values = max_pool(jax.nn.relu(unit(family.stem, values)), 3, 2, 1)
    for block in family.bottlenecks:
        first, second, third = block.body
        branch = unit(third, jax.nn.relu(unit(second, jax.nn.relu(unit(first, values)))))
        if block.shortcut is not None:
            values = unit(block.shortcut, values)
        values = jax.nn.relu(branch + values)
    return dense(parameters, "fc", jnp.mean(values, axis=(1, 2)))
