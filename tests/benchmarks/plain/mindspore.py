"""The benchmark networks in MindSpore.

Its variables are the same as the adapter's. MindSpore has no thread setting that works: bind the
script to as many CPUs as threads, by `taskset -c 0` for one.
"""

import mindspore
import numpy as np
from mindspore import nn, ops

MODES = ("graph",)


def fully_connected(arguments):
    layers = [layer for a, b in arguments.layers for layer in (nn.Dense(a, b), nn.Sigmoid())]
    return nn.SequentialCell(*layers[:-1])


class LanguageModel(nn.Cell):
    def __init__(self, arguments):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2)
        self.head = nn.Dense(256, 10000)

    def construct(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.head(y.reshape((-1, 256)))


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
            done = ops.depend(
                done, self.descend(self.parameters[index], self.rate, gradients[index])
            )
        return done


class Loss(nn.Cell):
    def __init__(self, model):
        super().__init__()
        self.model, self.criterion = model, nn.CrossEntropyLoss()

    def construct(self, x, y):
        return self.criterion(self.model(x), y)


class Train(nn.Cell):
    def __init__(self, model):
        super().__init__()
        self.update = Descent(model.trainable_params())
        self.gradients_of = mindspore.value_and_grad(Loss(model), None, self.update.parameters)

    def construct(self, x, y):
        loss, gradients = self.gradients_of(x, y)
        return ops.depend(loss, self.update(gradients))  # ready when the update is done


def train(arguments, x, y):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_device("CPU")
    model = arguments.build(LanguageModel, fully_connected)
    model.set_train()
    x, y = (mindspore.Tensor(a.astype(np.int32) if a.dtype == np.int64 else a) for a in (x, y))
    # One of MindSpore's two biases per LSTM gate stays as it is.
    for parameter in model.trainable_params():
        parameter.requires_grad = "bias_hh" not in parameter.name
    update = Train(model)
    losses = []

    def step():
        losses[:] = [update(x, y)]

    return step, lambda: losses[0].asnumpy()
