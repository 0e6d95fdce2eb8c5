"""fcn5, fcn8, lstm32 and lstm64 trained by hand in MLX; MODE compiled; products by the preloaded BLAS.

See `yardstick.py` for how it is called.
"""

import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch


class FullyConnected(nn.Module):
    def __init__(self, hidden_layers):
        super().__init__()
        sizes = [26752] + [2048] * hidden_layers + [26752]
        self.layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = mx.sigmoid(layer(x))
        return self.layers[-1](x)


class LanguageModel(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.embed = nn.Embedding(10000, 256)
        self.lstms = [nn.LSTM(256, 256) for _ in range(2)]
        self.decoder = nn.Linear(256, 10000)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for lstm in self.lstms:
            x, _ = lstm(x)
        return self.decoder(x)


given = arguments("compiled")
mx.set_default_device(mx.cpu)
model = given.build(LanguageModel, FullyConnected)
x, y = [each.astype(np.int32) if each.dtype.kind == "i" else each for each in mini_batch(given)]
if given.length:  # MLX's layers take the batch first
    x, y = x.T, y.reshape(given.length, given.batch).T
x, y = mx.array(x), mx.array(y)
optimizer = optimizers.SGD(learning_rate=0.01)


def mean_loss(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


state = [model.state, optimizer.state]


@partial(mx.compile, inputs=state, outputs=state)
def train(x, y):
    loss, gradients = nn.value_and_grad(model, mean_loss)(model, x, y)
    optimizer.update(model, gradients)
    return loss


def step():
    mx.eval(train(x, y), state)


measure(given, step)
