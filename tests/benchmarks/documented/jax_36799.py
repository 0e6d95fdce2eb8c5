"""jax#36799: a scan whose carry is a 3 x 3 matrix of float64 takes about ten times as long since
0.4.33."""

import jax
from jax import lax
from jax import numpy as jnp

jax.config.update("jax_enable_x64", True)
BATCH_SIZE = 1
STEPS = 2000
state = {}


def prepare(cell):
    turn = jnp.array([[0.8, -0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.0, 1.0]], dtype=jnp.float64)
    angles = jnp.linspace(0.0, 1e-3, STEPS)

    @jax.jit
    def rotate(start):
        return lax.scan(lambda carry, angle: (carry @ turn + angle, carry[0, 0]), start, angles)

    def step():
        state["found"] = jax.block_until_ready(rotate(jnp.eye(3, dtype=jnp.float64)))

    return step, lambda: float(abs(state["found"][1]).mean())
