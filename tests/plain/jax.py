"""The benchmark networks trained by hand in JAX; MODE jit or products.

See `shared/yardstick.py` for how it is called.
"""

import sys
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).with_name("shared")))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch

given = arguments("jit", "products")
batch = given.batch
jax.config.update("jax_default_matmul_precision", "highest")
random = np.random.default_rng(1)


def uniform(*shape, scale=0.02):
    return jnp.asarray((random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(scale))


def dense_weights(inputs, outputs):
    return {"w": uniform(outputs, inputs, scale=(6 / (inputs + outputs)) ** 0.5), "b": uniform(outputs)}


def dense(p, x):
    return jnp.einsum("...i,oi->...o", x, p["w"]) + p["b"]


def conv_weights(inputs, outputs, kernel):
    return uniform(kernel, kernel, inputs, outputs, scale=(6 / (inputs * kernel * kernel)) ** 0.5)


def conv(w, x, stride=1, padding=0):
    if given.mode == "products" and w.shape[0] == 1:
        return jnp.einsum("nhwi,io->nhwo", x[:, ::stride, ::stride], w[0, 0])
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def pool(x, padding=0):
    return jax.lax.reduce_window(
        x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (padding, padding), (padding, padding), (0, 0)]
    )


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, 1) - picked)


def fully_connected(hidden):
    sizes = [26752] + [2048] * hidden + [26752]
    p = [dense_weights(a, b) for a, b in pairwise(sizes)]

    def model(p, x):
        for layer in p[:-1]:
            x = jax.nn.sigmoid(dense(layer, x))
        return dense(p[-1], x)

    return p, model


def alexnet():
    shapes = [(3, 96, 11), (96, 256, 5), (256, 384, 3), (384, 384, 3), (384, 256, 3)]
    p = {
        "conv": [{"w": conv_weights(*shape), "b": uniform(shape[1])} for shape in shapes],
        "dense": [dense_weights(9216, 4096), dense_weights(4096, 4096), dense_weights(4096, 1000)],
    }

    def model(p, x):
        for index, (layer, stride, padding) in enumerate(zip(p["conv"], (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), strict=True)):
            x = jax.nn.relu(conv(layer["w"], x, stride, padding) + layer["b"])
            if index in (0, 1, 4):
                x = pool(x)
        x = x.reshape(batch, 9216)
        x = jax.nn.relu(dense(p["dense"][0], x))
        x = jax.nn.relu(dense(p["dense"][1], x))
        return dense(p["dense"][2], x)

    return p, model


def conv_norm_weights(inputs, outputs, kernel, gamma=1.0):
    w = conv_weights(inputs, outputs, kernel)
    return {"w": w, "gamma": jnp.full(outputs, np.float32(gamma)), "beta": jnp.zeros(outputs)}


def conv_norm(p, x, stride=1, padding=0):
    x = conv(p["w"], x, stride, padding)
    mean = jnp.mean(x, (0, 1, 2))
    variance = jnp.mean((x - mean) ** 2, (0, 1, 2))
    return (x - mean) * (p["gamma"] * jax.lax.rsqrt(variance + 1e-5)) + p["beta"]


def resnet50():
    p = {"stem": conv_norm_weights(3, 64, 7), "head": dense_weights(2048, 1000), "blocks": []}
    for inputs, width, _stride, first in BOTTLENECKS:
        block = {
            "reduce": conv_norm_weights(inputs, width, 1),
            "middle": conv_norm_weights(width, width, 3),
            "expand": conv_norm_weights(width, 4 * width, 1, 0.2),
        }
        if first:
            block["project"] = conv_norm_weights(inputs, 4 * width, 1)
        p["blocks"].append(block)

    def model(p, x):
        x = pool(jax.nn.relu(conv_norm(p["stem"], x, 2, 3)), 1)
        for block, (_, _, stride, _) in zip(p["blocks"], BOTTLENECKS, strict=True):
            y = jax.nn.relu(conv_norm(block["reduce"], x, stride))
            y = jax.nn.relu(conv_norm(block["middle"], y, 1, 1))
            y = conv_norm(block["expand"], y)
            x = jax.nn.relu(y + (conv_norm(block["project"], x, stride) if "project" in block else x))
        return dense(p["head"], jnp.mean(x, (1, 2)))

    return p, model


def lstm():
    p = {
        "embedding": uniform(10000, 256),
        "layers": [{"w": uniform(1024, 256), "u": uniform(1024, 256), "b": uniform(1024)} for _ in range(2)],
        "head": dense_weights(256, 10000),
    }

    def model(p, tokens):
        x = p["embedding"][tokens]
        for layer in p["layers"]:

            def cell(state, z, u=layer["u"]):
                h, c = state
                i, f, g, o = jnp.split(z + h @ u.T, 4, 1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            zero = jnp.zeros((batch, 256))
            _, x = jax.lax.scan(cell, (zero, zero), x @ layer["w"].T + layer["b"])
        return dense(p["head"], x.reshape(-1, 256))

    return p, model


params, model = given.build(lambda length: lstm(), fully_connected, alexnet, resnet50)
x, y = mini_batch(given, channels_last=True)
x, y = jnp.asarray(x if given.length == 0 else x.astype(np.int32)), jnp.asarray(y, jnp.int32)


def train(params, x, y):
    loss, gradients = jax.value_and_grad(lambda p: cross_entropy(model(p, x), y))(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), loss


train = jax.jit(train, donate_argnums=0)
state = params, None


def step():
    global state
    state = train(state[0], x, y)


measure(given, step, lambda: jax.block_until_ready(state))
