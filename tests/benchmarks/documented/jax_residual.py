"""No public report: a training step of a small residual network takes longer since JAX 0.6.0."""

import jax
from jax import numpy as jnp

state, BATCH_SIZE, WIDTH, SIDE = {}, 32, 32, 64


def convolve(images, kernel):
    layout = ("NCHW", "OIHW", "NCHW")
    images = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=layout)
    mean = images.mean((0, 2, 3), keepdims=True)
    variance = ((images - mean) ** 2).mean((0, 2, 3), keepdims=True)
    return (images - mean) * jax.lax.rsqrt(variance + 1e-5)


def prepare(cell):
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    images = jax.random.normal(keys[0], (BATCH_SIZE, WIDTH, SIDE, SIDE))
    kernels = [jax.random.normal(key, (WIDTH, WIDTH, 3, 3)) * 0.1 for key in keys[1:]]

    def loss(kernels):
        outputs = jax.nn.relu(convolve(images, kernels[0]))
        inner = jax.nn.relu(convolve(outputs, kernels[1]))
        return jnp.mean(jax.nn.relu(outputs + convolve(inner, kernels[2])) ** 2)

    update = jax.jit(jax.value_and_grad(loss))

    def step():
        state["loss"] = jax.block_until_ready(update(kernels))

    return step, lambda: float(state["loss"][0])
