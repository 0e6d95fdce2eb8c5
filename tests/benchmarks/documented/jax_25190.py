"""jax#25190: a while_loop of small operations takes about 20 times as long since 0.4.33 (0.4.32 was
withdrawn)."""

import jax
from jax import lax
from jax import numpy as jnp

BATCH_SIZE = 1
STEPS = 2**14
state = {}


def prepare(cell):
    numbers = jnp.arange(STEPS)

    @jax.jit
    def count(stop):
        def body(carry):
            return jnp.maximum(carry[0], numbers[carry[1]]), carry[1] + 1

        return lax.while_loop(lambda carry: carry[0] < stop, body, (0, 0))[1]

    def step():
        state["count"] = count(STEPS - 1).block_until_ready()

    return step, lambda: float(state["count"])
