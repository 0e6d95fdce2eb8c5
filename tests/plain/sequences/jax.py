"""Networks over sequences trained by hand in JAX, MODE jit: see `networks.py` for which."""

import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "shared"))
sys.path.append(str(Path(__file__).parent))
from networks import ELMAN, GPT, GRU, data
from yardstick import arguments, measure

given = arguments("jit")
jax.config.update("jax_default_matmul_precision", "highest")
random = np.random.default_rng(1)


def weights(*shape):
    return jnp.asarray(random.uniform(-0.05, 0.05, shape).astype(np.float32))


def linear(inputs, outputs):
    return {"w": weights(outputs, inputs), "b": weights(outputs)}


def apply(p, x):
    return x @ p["w"].T + p["b"]


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(logits, labels.reshape(-1, 1), 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, 1) - picked)


def elman():
    p = {"in": linear(2, ELMAN.hidden), "rec": weights(ELMAN.hidden, ELMAN.hidden), "out": linear(ELMAN.hidden, 2)}

    def loss(p, x, y):
        def turn(h, z):
            h = jax.nn.relu(z + h @ p["rec"].T)
            return h, h

        _, hs = jax.lax.scan(turn, jnp.zeros((given.batch, ELMAN.hidden)), apply(p["in"], x))
        return jnp.mean((apply(p["out"], hs) - y) ** 2)

    return p, loss


def gru():
    n = GRU.hidden
    p = {"in": linear(GRU.inputs, 3 * n), "rec": linear(n, 3 * n), "out": linear(n, GRU.outputs)}

    def loss(p, x, y):
        def turn(h, z):
            zr, zz, zn = jnp.split(z, 3, 1)
            ur, uz, un = jnp.split(apply(p["rec"], h), 3, 1)
            update = jax.nn.sigmoid(zz + uz)
            h = (1 - update) * jnp.tanh(zn + jax.nn.sigmoid(zr + ur) * un) + update * h
            return h, h

        _, hs = jax.lax.scan(turn, jnp.zeros((given.batch, n)), apply(p["in"], x))
        return cross_entropy(apply(p["out"], hs).reshape(-1, GRU.outputs), y)

    return p, loss


def norm(p, x):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5) * p["w"] + p["b"]


def gpt():
    n = GPT.hidden

    def gains():
        return {"w": jnp.ones(n), "b": jnp.zeros(n)}

    blocks = [
        {
            "norm1": gains(),
            "qkv": linear(n, 3 * n),
            "out": linear(n, n),
            "norm2": gains(),
            "up": linear(n, 4 * n),
            "down": linear(4 * n, n),
        }
        for _ in range(2)
    ]
    p = {
        "words": weights(GPT.inputs, n),
        "places": weights(GPT.steps, n),
        "blocks": blocks,
        "norm": gains(),
        "head": linear(n, GPT.outputs),
    }

    def loss(p, x, y):
        h = p["words"][x] + p["places"]
        for b in p["blocks"]:
            q, k, v = jnp.split(apply(b["qkv"], norm(b["norm1"], h)).reshape(*h.shape[:2], 3 * GPT.heads, -1), 3, 2)
            h = h + apply(b["out"], jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(h.shape))
            h = h + apply(b["down"], jax.nn.gelu(apply(b["up"], norm(b["norm2"], h))))
        return cross_entropy(apply(p["head"], norm(p["norm"], h)).reshape(-1, GPT.outputs), y)

    return p, loss


params, loss = {ELMAN.name: elman, GRU.name: gru, GPT.name: gpt}[given.network]()
x, y = (jnp.asarray(each.astype(np.int32) if each.dtype.kind == "i" else each) for each in data(given))


@partial(jax.jit, donate_argnums=0)
def train(p, x, y):
    value, g = jax.value_and_grad(loss)(p, x, y)
    if given.network == ELMAN.name:
        size = jnp.sqrt(sum(jnp.sum(each**2) for each in jax.tree.leaves(g)))
        g = jax.tree.map(lambda each: each * jnp.minimum(1.0, 1.0 / size), g)
    return jax.tree.map(lambda w, d: w - 0.01 * d, p, g), value


state = params, None


def step():
    global state
    state = train(state[0], x, y)


measure(given, step, lambda: jax.block_until_ready(state))
