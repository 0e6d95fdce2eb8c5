"""The fully connected networks and LSTMs trained by hand with Equinox; MODE jit.

See `yardstick.py` for how it is called.
"""

import sys
from itertools import pairwise
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("jit")
jax.config.update("jax_default_matmul_precision", "highest")
keys = iter(jax.random.split(jax.random.key(1), 20))


class FullyConnected(eqx.Module):
    layers: list

    def __init__(self, hidden):
        sizes = [26752] + [2048] * hidden + [26752]
        self.layers = [eqx.nn.Linear(a, b, key=next(keys)) for a, b in pairwise(sizes)]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = jax.nn.sigmoid(layer(x))
        return self.layers[-1](x)


class Lstm(eqx.Module):
    embed: eqx.nn.Embedding
    cells: list
    head: eqx.nn.Linear

    def __init__(self):
        self.embed = eqx.nn.Embedding(10000, 256, key=next(keys))
        self.cells = [eqx.nn.LSTMCell(256, 256, key=next(keys)) for _ in range(2)]
        self.head = eqx.nn.Linear(256, 10000, key=next(keys))

    def __call__(self, tokens):
        x = jax.vmap(self.embed)(tokens)
        for cell in self.cells:

            def turn(state, value, cell=cell):
                state = cell(value, state)
                return state, state[0]

            _, x = jax.lax.scan(turn, (jnp.zeros(256), jnp.zeros(256)), x)
        return jax.vmap(self.head)(x)


model = given.build(lambda length: Lstm(), FullyConnected)
x, y = mini_batch(given)
x, y = jnp.asarray(x if given.length == 0 else x.astype(np.int32)), jnp.asarray(y, jnp.int32)
over = 1 if given.length else 0  # the axis of examples: tokens and scores are (steps, batch)


@eqx.filter_jit(donate="all-except-first")
def train(data, model):
    x, y = data

    def loss(model):
        scores = jax.vmap(model, in_axes=over, out_axes=over)(x)
        scores = scores.reshape(-1, scores.shape[-1])
        picked = jnp.take_along_axis(scores, y[:, None], 1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, 1) - picked)

    value, gradients = eqx.filter_value_and_grad(loss)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.01 * g, gradients)), value


state = model, None


def step():
    global state
    state = train((x, y), state[0])


measure(given, step, lambda: jax.block_until_ready([each for each in jax.tree.leaves(state) if eqx.is_array(each)]))
