"""Simple recurrent networks: lax.scan over the steps, the inputs' products made before it for all of them."""

from typing import Any, Dict

import jax
import jax.numpy as jnp
from jax import lax

from ..families import Elman

PHI = {"tanh": jnp.tanh, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}


def outputs(family: Elman, parameters: Dict[str, Any], values: Any) -> Any:
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
