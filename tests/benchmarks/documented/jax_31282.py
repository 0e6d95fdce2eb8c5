"""jax#31282: the linearised scan that writes into its carry takes 30 times as long since 0.7.1."""

import jax
from jax import numpy as jnp

state, BATCH_SIZE = {}, 2


def prepare(cell):
    def write(carry, _):
        place, numbers = carry
        return (place + 1, numbers.at[place].set(2 * jnp.tanh(numbers[place // 2]))), None

    def pattern(first, numbers):
        def loop(numbers):
            return jax.lax.scan(write, (first, numbers), None, length=5000)[0][1]

        return jax.linearize(loop, numbers)[1](jnp.ones_like(numbers))

    mapped = jax.jit(jax.vmap(pattern))

    def step():
        firsts, numbers = jnp.zeros(BATCH_SIZE, jnp.int32), jnp.zeros((BATCH_SIZE, 5000))
        state["slopes"] = mapped(firsts, numbers).block_until_ready()

    return step, lambda: float(jnp.abs(state["slopes"]).mean()) + 1.0
