"""The fully connected networks and LSTMs trained by hand with Flax NNX; MODE jit.

See `yardstick.py` for how it is called.
"""

import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("jit")
jax.config.update("jax_default_matmul_precision", "highest")
rngs = nnx.Rngs(1)


class FullyConnected(nnx.Module):
    def __init__(self, hidden):
        sizes = [26752] + [2048] * hidden + [26752]
        self.layers = nnx.List([nnx.Linear(a, b, rngs=rngs) for a, b in pairwise(sizes)])

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = nnx.sigmoid(layer(x))
        return self.layers[-1](x)


class Lstm(nnx.Module):
    def __init__(self):
        self.embed = nnx.Embed(10000, 256, rngs=rngs)
        self.first, self.second = (nnx.RNN(nnx.OptimizedLSTMCell(256, 256, rngs=rngs), time_major=True) for _ in "12")
        self.head = nnx.Linear(256, 10000, rngs=rngs)

    def __call__(self, tokens):
        zero = jnp.zeros((given.batch, 256))
        x = self.first(self.embed(tokens), initial_carry=(zero, zero))
        x = self.second(x, initial_carry=(zero, zero))
        return self.head(x.reshape(-1, 256))


graph, params, rest = nnx.split(given.build(lambda length: Lstm(), FullyConnected), nnx.Param, ...)
x, y = mini_batch(given)
x, y = jnp.asarray(x if given.length == 0 else x.astype(np.int32)), jnp.asarray(y, jnp.int32)


@partial(jax.jit, donate_argnums=0)
def train(params, x, y):
    def loss(params):
        logits = nnx.merge(graph, params, rest)(x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), value


state = params, None


def step():
    global state
    state = train(state[0], x, y)


measure(given, step, lambda: jax.block_until_ready(state))
