"""No public report: a training step of a small residual network takes 1.40 times as long since JAX
0.6.0."""

import jax
from jax import numpy as jnp

BATCH_SIZE = 16
state = {}


def prepare(cell):
    keys = jax.random.split(jax.random.PRNGKey(0), 6)
    kernels = [
        jax.random.normal(key, (3, 3, 3 if place == 0 else 32, 32)) * 0.1
        for place, key in enumerate(keys[:5])
    ]
    images = jax.random.normal(keys[5], (BATCH_SIZE, 32, 32, 3))

    def convolve(found, kernel):
        found = jax.lax.conv_general_dilated(
            found, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return (found - found.mean((0, 1, 2))) * jax.lax.rsqrt(found.var((0, 1, 2)) + 1e-5)

    def loss(kernels):
        found = jax.nn.relu(convolve(images, kernels[0]))
        for first, second in ((kernels[1], kernels[2]), (kernels[3], kernels[4])):
            found = jax.nn.relu(found + convolve(jax.nn.relu(convolve(found, first)), second))
        return jnp.mean(found**2)

    update = jax.jit(jax.value_and_grad(loss))

    def step():
        state["found"] = jax.block_until_ready(update(kernels))

    return step, lambda: float(state["found"][0])
