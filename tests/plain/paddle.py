"""The benchmark networks trained by hand in PaddlePaddle: the yardstick for the adapter, sharing no code with it.

    python -I paddle.py NETWORK BATCH THREADS MODE STEPS OUT.json

NETWORK fcn5, fcn8, alexnet, resnet50, lstm32 or lstm64; MODE a mode of the adapter. Threads are set by the environment
variables; -I keeps this file from being taken for the framework. After 3 warm-up steps each of STEPS steps is timed;
OUT.json receives {"samples_ns": [...]}.
"""

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - the field's habit

network, batch, _threads, mode, steps, out = sys.argv[1:]
batch, steps = int(batch), int(steps)
assert mode in ("dynamic", "widest")
if mode == "widest":
    # 7: AVX-512, 5: AVX2. MKL reads it at its first product.
    os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in Path("/proc/cpuinfo").read_text() else "5"
paddle.device.set_device("cpu")
random = np.random.default_rng(1)


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
    inputs = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(Bottleneck(inputs, width, stride if index == 0 else 1, index == 0))
            inputs = 4 * width
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


if network.startswith("lstm"):
    model = LanguageModel()
    length = int(network[4:])
    x = paddle.to_tensor(random.integers(10000, size=(length, batch)))
    y = paddle.to_tensor(random.integers(10000, size=length * batch))
elif network.startswith("fcn"):
    model = fully_connected(int(network[3:]) - 2)
    x = paddle.to_tensor(random.random((batch, 26752), dtype=np.float32) * 2 - 1)
    y = paddle.to_tensor(random.integers(26752, size=batch))
else:
    model = alexnet() if network == "alexnet" else resnet50()
    scale = np.float32(0.1 if network == "alexnet" else 1.0)
    x = paddle.to_tensor((random.random((batch, 3, 224, 224), dtype=np.float32) * 2 - 1) * scale)
    y = paddle.to_tensor(random.integers(1000, size=batch))

# One of PaddlePaddle's two biases per LSTM gate stays as it is.
trained = [p for name, p in model.named_parameters() if "bias_hh" not in name]
optimizer = paddle.optimizer.SGD(0.01, parameters=trained)


def train():
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    model.clear_gradients(set_to_zero=False)


for _ in range(3):
    train()
samples = []
for _ in range(steps):
    start = time.perf_counter_ns()
    train()
    samples.append(time.perf_counter_ns() - start)
Path(out).write_text(json.dumps({"samples_ns": samples}))
