"""Stacked recurrent layers, and the logits of all steps.

The inputs' share of all steps' sums is one product; a scan over the steps adds the state's.
"""

from typing import Any, Callable, Dict, Tuple

import jax
import jax.numpy as jnp
from jax import lax

from ..families import Recurrent
from .products import dense, plus, product

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


def layer(cell: str, parameters: Dict[str, Any], name: str, values: Any) -> Any:
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


def logits(family: Recurrent, parameters: Dict[str, Any], inputs: Any) -> Any:
    """Return the logits of all steps, (steps * batch, vocabulary), of time-major tokens or one-hot symbols."""
    values = parameters["embedding.weight"][inputs] if family.embedding else inputs
    for name in family.layer_names():
        values = layer(family.cell, parameters, name, values)
    return dense(parameters, "fc", values.reshape(-1, family.hidden))
