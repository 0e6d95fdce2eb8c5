"""The benchmark networks trained by hand in PaddlePaddle; MODE dygraph.

See `shared/yardstick.py` for how it is called.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - the field's habit

sys.path.append(str(Path(__file__).with_name("shared")))
from yardstick import BOTTLENECKS, arguments, measure, mini_batch

given = arguments("dygraph")
# 7: AVX-512, 5: AVX2. MKL reads it at its first product.
os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in Path("/proc/cpuinfo").read_text() else "5"
paddle.device.set_device("cpu")


def fully_connected(hidden):
    sizes = [26752] + [2048] * hidden
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers, nn.Linear(2048, 26752))


def alexnet():
    return nn.Sequential(
        nn.Conv2D(3, 96, 11, 4, 2), nn.ReLU(), nn.MaxPool2D(3, 2),
        nn.Conv2D(96, 256, 5, 1, 2), nn.ReLU(), nn.MaxPool2D(3, 2),
        nn.Conv2D(256, 384, 3, 1, 1), nn.ReLU(),
        nn.Conv2D(384, 384, 3, 1, 1), nn.ReLU(),
        nn.Conv2D(384, 256, 3, 1, 1), nn.ReLU(), nn.MaxPool2D(3, 2),
        nn.Flatten(),
        nn.Linear(9216, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000),
    )  # fmt: skip


def conv_norm(inputs, outputs, kernel, stride=1, padding=0):
    return nn.Sequential(
        nn.Conv2D(inputs, outputs, kernel, stride, padding, bias_attr=False), nn.BatchNorm2D(outputs, epsilon=1e-5)
    )


class Bottleneck(nn.Layer):
    def __init__(self, inputs, width, stride, first):
        super().__init__()
        self.reduce = conv_norm(inputs, width, 1, stride)
        self.middle = conv_norm(width, width, 3, 1, 1)
        self.expand = conv_norm(width, 4 * width, 1)
        self.project = conv_norm(inputs, 4 * width, 1, stride) if first else None

    def forward(self, x):
        y = self.expand(F.relu(self.middle(F.relu(self.reduce(x)))))
        return F.relu(y + (x if self.project is None else self.project(x)))


def resnet50():
    layers = [conv_norm(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2D(3, 2, 1)]
    layers += [Bottleneck(*numbers) for numbers in BOTTLENECKS]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(2048, 1000))


class LanguageModel(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2, time_major=True)
        self.head = nn.Linear(256, 10000)

    def forward(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.head(y.reshape([-1, 256]))


model = given.build(lambda length: LanguageModel(), fully_connected, alexnet, resnet50)
x, y = map(paddle.to_tensor, mini_batch(given))
# One of PaddlePaddle's two biases per LSTM gate stays as it is.
trained = [p for name, p in model.named_parameters() if "bias_hh" not in name]
optimizer = paddle.optimizer.SGD(0.01, parameters=trained)


def train():
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    model.clear_gradients(set_to_zero=False)


measure(given, train)
