"""No public report: a training step of a small residual network takes longer since JAX 0.6.0."""

import jax
from jax import numpy as jnp

BATCH_SIZE = 32
state = {}


def convolve(images, weights):
    kernel, scale, shift = weights
    layout = ("NHWC", "HWIO", "NHWC")
    images = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=layout)
    mean = images.mean((0, 1, 2))
    variance = jnp.mean(jnp.square(images - mean), axis=(0, 1, 2))
    return (images - mean) * (scale * jax.lax.rsqrt(variance + 1e-5)) + shift


def prepare(cell):
    keys = jax.random.split(jax.random.PRNGKey(0), 9)
    images = jax.random.normal(keys[0], (BATCH_SIZE, 16, 16, 128))
    kernels = [jax.random.normal(key, (3, 3, 128, 32)) * 0.1 for key in keys[1:]]
    network = [(jnp.tile(kernel, 4), jnp.ones(128), jnp.zeros(128)) for kernel in kernels]

    @jax.jit
    def update(network):
        def loss(network):
            outputs = images
            for first, second in zip(network[::2], network[1::2], strict=True):
                inner = convolve(jax.nn.relu(convolve(outputs, first)), second)
                outputs = jax.nn.relu(outputs + inner)
            return jnp.mean(outputs**2)

        value, slopes = jax.value_and_grad(loss)(network)
        return value, jax.tree.map(lambda weight, slope: weight - 0.01 * slope, network, slopes)

    def step():
        state["loss"] = jax.block_until_ready(update(network))

    return step, lambda: float(state["loss"][0])
