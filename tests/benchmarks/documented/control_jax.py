"""A control: a large product of float32, which no thread calls slower."""

import jax
from jax import numpy as jnp

BATCH_SIZE = 1
state = {}


def prepare(cell):
    matrix = jax.random.normal(jax.random.PRNGKey(0), (512, 512), dtype=jnp.float32)
    multiply = jax.jit(lambda matrix: matrix @ matrix)

    def step():
        state["product"] = multiply(matrix).block_until_ready()

    return step, lambda: float(jnp.abs(state["product"]).mean())
