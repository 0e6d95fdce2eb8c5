"""The benchmark networks trained by hand in PaddlePaddle; MODE dygraph.

See `yardstick.py` for how it is called.
"""

import os
import sys
from itertools import pairwise
from pathlib import Path

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812 - the field's habit

sys.path.append(str(Path(__file__).parent))
from yardstick import arguments, measure, mini_batch

given = arguments("dygraph")
# 7: AVX-512, 5: AVX2. MKL reads it at its first product.
os.environ["MKL_DEBUG_CPU_TYPE"] = "7" if "avx512vl" in Path("/proc/cpuinfo").read_text() else "5"
paddle.device.set_device("cpu")


def fully_connected(hidden):
    sizes = [26752] + [2048] * hidden
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers, nn.Linear(2048, 26752))


class LanguageModel(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 256, 2, time_major=True)
        self.head = nn.Linear(256, 10000)

    def forward(self, tokens):
        y, _ = self.lstm(self.embedding(tokens))
        return self.head(y.reshape([-1, 256]))


model = given.build(lambda length: LanguageModel(), fully_connected)
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
