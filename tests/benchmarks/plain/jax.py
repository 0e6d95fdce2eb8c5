"""The benchmark networks in JAX."""

import jax
import jax.numpy as jnp
import numpy as np

MODES = "jit", "products"
random = np.random.default_rng(1)


def uniform(*shape, scale=0.02):
    return jnp.asarray((random.random(shape, dtype=np.float32) * 2 - 1) * np.float32(scale))


def dense_weights(inputs, outputs):
    return {
        "w": uniform(outputs, inputs, scale=(6 / (inputs + outputs)) ** 0.5),
        "b": uniform(outputs),
    }


def dense(p, x):
    return jnp.einsum("...i,oi->...o", x, p["w"]) + p["b"]


def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, 1) - picked)


def fully_connected(arguments):
    def model(p, x):
        for layer in p[:-1]:
            x = jax.nn.sigmoid(dense(layer, x))
        return dense(p[-1], x)

    return [dense_weights(a, b) for a, b in arguments.layers], model


def lstm(arguments):
    p = {
        "embedding": uniform(10000, 256),
        "layers": [
            {"w": uniform(1024, 256), "u": uniform(1024, 256), "b": uniform(1024)} for _ in range(2)
        ],
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

            zero = jnp.zeros((arguments.batch, 256))
            _, x = jax.lax.scan(cell, (zero, zero), x @ layer["w"].T + layer["b"])
        return dense(p["head"], x.reshape(-1, 256))

    return p, model


def boltzmann(arguments, u, x):
    """Return a sweep over the chains of a machine with random weights, and what waits for its
    end."""
    d, half, bound = arguments.units, arguments.units // 2, (3 / arguments.units) ** 0.5
    b = uniform(d, 1, scale=0.1)
    if arguments.network.endswith("bipartite"):
        w = uniform(half, d - half, scale=bound)

        def sweep(w, b, u, x):
            p = jax.nn.sigmoid(w @ x[half:] + b[:half])
            first = (u[:half] < p).astype(jnp.float32)
            q = jax.nn.sigmoid(w.T @ first + b[half:])
            second = (u[half:] < q).astype(jnp.float32)
            return (jnp.concatenate([first, second]),), jnp.concatenate([p, q])

        state = (jnp.asarray(x),)
    else:
        w = jnp.tril(uniform(d, d, scale=bound), -1)
        w = w + w.T

        def sweep(w, b, u, x, z):
            def unit(z, row):
                k, w_k, u_k, x_k = row
                p_k = jax.nn.sigmoid(z[k])
                new = (u_k < p_k).astype(jnp.float32)
                return z + jnp.outer(w_k, new - x_k), (new, p_k)

            z, (x, p) = jax.lax.scan(unit, z, (jnp.arange(d), w, u, x))
            return (x, z), p

        state = jnp.asarray(x), w @ x + b

    def counted(state, activity, w, b, u):
        state, p = sweep(w, b, u, *state)
        mean = p.mean(1)
        return state, activity + mean, mean.mean()

    compiled = jax.jit(counted, donate_argnums=(0, 1))
    u, result = jnp.asarray(u), (state, jnp.zeros(d), None)

    def step():
        nonlocal result
        result = compiled(result[0], result[1], w, b, u)

    return step, lambda: jax.block_until_ready(result)


def train(arguments, x, y):
    jax.config.update("jax_default_matmul_precision", "highest")
    if arguments.units:
        return boltzmann(arguments, x, y)
    params, model = arguments.build(lstm, fully_connected)
    x = x.astype(np.int32) if arguments.length else x
    x, y = jnp.asarray(x), jnp.asarray(y, jnp.int32)

    def updated(params, x, y):
        loss, gradients = jax.value_and_grad(lambda p: cross_entropy(model(p, x), y))(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), loss

    compiled = jax.jit(updated, donate_argnums=0)
    state = params, None

    def step():
        nonlocal state
        state = compiled(state[0], x, y)

    return step, lambda: jax.block_until_ready(state)
