"""The benchmark networks trained by hand in MindSpore; MODE graph.

See `yardstick.py` for how it is called; its variables are the same as the adapter's. MindSpore has no
thread setting that works: bind the script to as many CPUs as threads, by `taskset -c 0` for one.
"""

import sys
from itertools import pairwise
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn, ops

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("graph")
mindspore.set_context(mode=mindspore.GRAPH_MODE)
mindspore.set_device("CPU")


def fully_connected(hidden):
    sizes = [26752] + [2048] * hidden
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Dense(a, b), nn.Sigmoid())]
    return nn.SequentialCell(*layers, nn.Dense(2048, 26752))


class LanguageModel(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2)
        self.head = nn.Dense(256, 10000)

    def construct(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.head(y.reshape((-1, 256)))


model = given.build(lambda length: LanguageModel(), fully_connected)
model.set_train()
x, y = (mindspore.Tensor(a.astype(np.int32) if a.dtype == np.int64 else a) for a in mini_batch(given))
# One of MindSpore's two biases per LSTM gate stays as it is.
for parameter in model.trainable_params():
    parameter.requires_grad = "bias_hh" not in parameter.name
criterion = nn.CrossEntropyLoss()


class Descent(nn.Cell):
    """Plain SGD in place: nn.SGD keeps two more arrays for each weight, for a momentum of zero."""

    def __init__(self, parameters):
        super().__init__()
        self.parameters = mindspore.ParameterTuple(parameters)
        self.descend = ops.ApplyGradientDescent()
        self.rate = mindspore.Tensor(0.01, mindspore.float32)

    def construct(self, gradients):
        done = True
        for index in range(len(self.parameters)):
            done = ops.depend(done, self.descend(self.parameters[index], self.rate, gradients[index]))
        return done


update = Descent(model.trainable_params())


class Loss(nn.Cell):
    def __init__(self):
        super().__init__()
        self.model, self.criterion = model, criterion

    def construct(self, x, y):
        return self.criterion(self.model(x), y)


class Train(nn.Cell):
    def __init__(self):
        super().__init__()
        self.gradients_of, self.update = mindspore.value_and_grad(Loss(), None, update.parameters), update

    def construct(self, x, y):
        loss, gradients = self.gradients_of(x, y)
        return ops.depend(loss, self.update(gradients))  # ready when the update is done


train = Train()
losses = []


def step():
    losses[:] = [train(x, y)]


measure(given, step, lambda: losses[0].asnumpy())
