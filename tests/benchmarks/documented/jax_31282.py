"""jax#31282: the linearised scan that writes into its carry takes 30 times as long since 0.7.1."""

import jax
from jax import lax
from jax import numpy as jnp

BATCH_SIZE = 2
state = {}


def prepare(cell):
    def pattern(first, numbers):
        def loop(numbers):
            def body(place, found):
                return place + 1, found.at[place].set(2 * jnp.tanh(found[place // 2]))

            return lax.scan(
                lambda carry, _: (body(*carry), None), (first, numbers), None, length=5000
            )[0][1]

        return jax.linearize(loop, numbers)[1](jnp.ones_like(numbers))

    mapped = jax.jit(jax.vmap(pattern))

    def step():
        state["found"] = mapped(
            jnp.zeros(BATCH_SIZE, jnp.int32), jnp.zeros((BATCH_SIZE, 5000))
        ).block_until_ready()

    return step, lambda: float(jnp.abs(state["found"]).mean()) + 1.0
