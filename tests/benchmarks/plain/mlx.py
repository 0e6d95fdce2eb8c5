"""fcn5, fcn8, lstm32 and lstm64 in MLX; products by the preloaded BLAS."""

from functools import partial

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers

MODES = ("compiled",)


class FullyConnected(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.layers = [nn.Linear(a, b) for a, b in arguments.layers]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = mx.sigmoid(layer(x))
        return self.layers[-1](x)


class LanguageModel(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.embed = nn.Embedding(10000, 256)
        self.lstms = [nn.LSTM(256, 256) for _ in range(2)]
        self.decoder = nn.Linear(256, 10000)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for lstm in self.lstms:
            x, _ = lstm(x)
        return self.decoder(x)


def mean_loss(model, x, y):
    return nn.losses.cross_entropy(model(x), y, reduction="mean")


def train(arguments, x, y):
    mx.set_default_device(mx.cpu)
    model = arguments.build(LanguageModel, FullyConnected)
    if arguments.length:  # MLX's layers take the batch first
        x, y = x.T.astype(np.int32), y.reshape(arguments.length, arguments.batch).T
    x, y = mx.array(x), mx.array(y.astype(np.int32))
    optimizer = optimizers.SGD(learning_rate=0.01)
    state = [model.state, optimizer.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def compiled(x, y):
        loss, gradients = nn.value_and_grad(model, mean_loss)(model, x, y)
        optimizer.update(model, gradients)
        return loss

    return lambda: mx.eval(compiled(x, y), state), None
