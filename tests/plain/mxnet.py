"""Plain MXNet training scripts of the benchmark's networks: the yardstick for the adapter's overhead.

python mxnet.py NETWORK BATCH THREADS MODE STEPS OUT.json; threads are set by the environment variables.
"""

import json
import sys
import time
from pathlib import Path

# This file's own folder would hide the framework of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import mxnet as mx  # noqa: E402
import numpy as np  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon import nn, rnn  # noqa: E402

CLASSES = 1000


def fully_connected(hidden_layers):
    net = nn.HybridSequential()
    net.add(nn.Dense(2048, activation="sigmoid", in_units=26752))
    for _ in range(hidden_layers - 1):
        net.add(nn.Dense(2048, activation="sigmoid", in_units=2048))
    net.add(nn.Dense(26752, in_units=2048))
    return net


def alexnet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(96, 11, 4, 2, activation="relu"),
        nn.MaxPool2D(3, 2),
        nn.Conv2D(256, 5, padding=2, activation="relu"),
        nn.MaxPool2D(3, 2),
        nn.Conv2D(384, 3, padding=1, activation="relu"),
        nn.Conv2D(384, 3, padding=1, activation="relu"),
        nn.Conv2D(256, 3, padding=1, activation="relu"),
        nn.MaxPool2D(3, 2),
        nn.Dense(4096, activation="relu"),
        nn.Dense(4096, activation="relu"),
        nn.Dense(CLASSES),
    )
    return net


class Bottleneck(gluon.HybridBlock):
    def __init__(self, width, stride, downsample):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(
            nn.Conv2D(width, 1, stride, use_bias=False),
            nn.BatchNormReLU(),
            nn.Conv2D(width, 3, padding=1, use_bias=False),
            nn.BatchNormReLU(),
            nn.Conv2D(4 * width, 1, use_bias=False),
            nn.BatchNorm(gamma_initializer=mx.init.Constant(0.2)),
        )
        self.downsample = None
        if downsample:
            self.downsample = nn.HybridSequential()
            self.downsample.add(nn.Conv2D(4 * width, 1, stride, use_bias=False), nn.BatchNorm())

    def hybrid_forward(self, F, x):  # noqa: N803
        residual = x if self.downsample is None else self.downsample(x)
        return F.Activation(self.body(x) + residual, act_type="relu")


def resnet50():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(64, 7, 2, 3, use_bias=False), nn.BatchNormReLU(), nn.MaxPool2D(3, 2, 1))
    for stage, (count, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for index in range(count):
            net.add(Bottleneck(width, 2 if index == 0 and stage > 0 else 1, index == 0))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(CLASSES))
    return net


class LanguageModel(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = rnn.LSTM(256, 2, input_size=256)
        for layer in range(2):
            getattr(self.lstm, f"l{layer}_h2h_bias").grad_req = "null"
        self.decoder = nn.Dense(10000, flatten=False, in_units=256)

    def hybrid_forward(self, F, tokens):  # noqa: N803
        return self.decoder(F.reshape(self.lstm(self.embedding(tokens)), shape=(-1, 256)))


class WithLoss(gluon.HybridBlock):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def hybrid_forward(self, F, x, y):  # noqa: N803
        return F.mean(-F.pick(F.log_softmax(self.net(x)), y))


def main():
    name, batch, _threads, mode, steps, out = sys.argv[1:]
    batch = int(batch)
    assert mode == "hybrid"
    random = np.random.RandomState(1)
    if name.startswith("lstm"):
        net, length = LanguageModel(), int(name[4:])
        x = random.randint(0, 10000, (length, batch)).astype("float32")
        y = random.randint(0, 10000, length * batch).astype("float32")
    elif name.startswith("fcn"):
        net = fully_connected(int(name[3:]) - 2)
        x = random.uniform(-1, 1, (batch, 26752)).astype("float32")
        y = random.randint(0, 26752, batch).astype("float32")
    else:
        net = {"alexnet": alexnet, "resnet50": resnet50}[name]()
        scale = 0.1 if name == "alexnet" else 1.0
        x = (scale * random.uniform(-1, 1, (batch, 3, 224, 224))).astype("float32")
        y = random.randint(0, CLASSES, batch).astype("float32")
    model = WithLoss(net)
    model.initialize(mx.init.Xavier())
    model.hybridize(static_alloc=True, static_shape=True)
    x, y = mx.nd.array(x), mx.nd.array(y)
    model(x, y)  # deferred shapes
    trained = [p for p in model.collect_params().values() if p.grad_req != "null"]
    pairs = [(p.data(), p.grad()) for p in trained]

    def step():
        with autograd.record():
            loss = model(x, y)
        loss.backward()
        for weight, gradient in pairs:
            mx.nd.sgd_update(weight, gradient, out=weight, lr=0.01)

    for _ in range(3):
        step()
        mx.nd.waitall()
    samples = []
    for _ in range(int(steps)):
        start = time.perf_counter_ns()
        step()
        mx.nd.waitall()
        samples.append(time.perf_counter_ns() - start)
    Path(out).write_text(json.dumps({"samples_ns": samples}))


if __name__ == "__main__":
    main()
