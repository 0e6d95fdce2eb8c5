"""The benchmark networks in PaddlePaddle."""

import os
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - the field's habit

MODES = ("dygraph",)
# 7: AVX-512, 5: AVX2. MKL reads it at its first product.
os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in Path("/proc/cpuinfo").read_text() else "5"


def fully_connected(arguments):
    layers = [layer for a, b in arguments.layers for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers[:-1])


class LanguageModel(nn.Layer):
    def __init__(self, arguments):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2, time_major=True)
        self.head = nn.Linear(256, 10000)

    def forward(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.head(y.reshape([-1, 256]))


def train(arguments, x, y):
    paddle.device.set_device("cpu")
    model = arguments.build(LanguageModel, fully_connected)
    x, y = paddle.to_tensor(x), paddle.to_tensor(y)
    # One of PaddlePaddle's two biases per LSTM gate stays as it is.
    trained = [p for name, p in model.named_parameters() if "bias_hh" not in name]
    optimizer = paddle.optimizer.SGD(0.01, parameters=trained)

    def step():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        model.clear_gradients(set_to_zero=False)

    return step, None
