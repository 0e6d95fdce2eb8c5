"""Plain Chainer training scripts of the benchmark's networks: the yardstick for the adapter's overhead.

python chainer.py NETWORK BATCH THREADS MODE STEPS OUT.json; threads are set by the environment variables.
"""

import json
import sys
import time
from pathlib import Path

# This file's own folder would hide the framework of the same name.
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402, N812
import chainer.links as L  # noqa: E402, N812
import numpy as np  # noqa: E402


def pool(x, padding=0):
    return F.max_pooling_2d(x, 3, 2, padding, cover_all=False)


class FullyConnected(chainer.Chain):
    def __init__(self, hidden_layers):
        super().__init__()
        sizes = [26752] + [2048] * hidden_layers + [26752]
        with self.init_scope():
            self.layers = chainer.ChainList(*(L.Linear(a, b) for a, b in zip(sizes, sizes[1:])))  # noqa: B905, RUF007 - Python 3.7

    def forward(self, x):
        for layer in list(self.layers)[:-1]:
            x = F.sigmoid(layer(x))
        return self.layers[-1](x)


class AlexNet(chainer.Chain):
    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(3, 96, 11, 4, 2)
            self.conv2 = L.Convolution2D(96, 256, 5, pad=2)
            self.conv3 = L.Convolution2D(256, 384, 3, pad=1)
            self.conv4 = L.Convolution2D(384, 384, 3, pad=1)
            self.conv5 = L.Convolution2D(384, 256, 3, pad=1)
            self.fc6 = L.Linear(9216, 4096)
            self.fc7 = L.Linear(4096, 4096)
            self.fc8 = L.Linear(4096, 1000)

    def forward(self, x):
        x = pool(F.relu(self.conv1(x)))
        x = pool(F.relu(self.conv2(x)))
        x = F.relu(self.conv4(F.relu(self.conv3(x))))
        x = pool(F.relu(self.conv5(x)))
        return self.fc8(F.relu(self.fc7(F.relu(self.fc6(x)))))


class Bottleneck(chainer.Chain):
    def __init__(self, channels, width, stride, project):
        super().__init__()
        with self.init_scope():
            self.conv1 = L.Convolution2D(channels, width, 1, stride, nobias=True)
            self.bn1 = L.BatchNormalization(width, eps=1e-5)
            self.conv2 = L.Convolution2D(width, width, 3, 1, 1, nobias=True)
            self.bn2 = L.BatchNormalization(width, eps=1e-5)
            self.conv3 = L.Convolution2D(width, 4 * width, 1, nobias=True)
            self.bn3 = L.BatchNormalization(4 * width, eps=1e-5, initial_gamma=0.2)
            if project:
                self.conv4 = L.Convolution2D(channels, 4 * width, 1, stride, nobias=True)
                self.bn4 = L.BatchNormalization(4 * width, eps=1e-5)
        self.project = project

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (self.bn4(self.conv4(x)) if self.project else x))


class ResNet50(chainer.Chain):
    def __init__(self):
        super().__init__()
        blocks, channels = [], 64
        for stage, (count, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
            for index in range(count):
                blocks.append(Bottleneck(channels, width, 2 if index == 0 and stage > 0 else 1, index == 0))
                channels = 4 * width
        with self.init_scope():
            self.conv = L.Convolution2D(3, 64, 7, 2, 3, nobias=True)
            self.bn = L.BatchNormalization(64, eps=1e-5)
            self.blocks = chainer.Sequential(*blocks)
            self.fc = L.Linear(2048, 1000)

    def forward(self, x):
        x = self.blocks(pool(F.relu(self.bn(self.conv(x))), 1))
        return self.fc(F.average_pooling_2d(x, 7))


class LanguageModel(chainer.Chain):
    def __init__(self, length):
        super().__init__()
        self.length = length
        with self.init_scope():
            self.embed = L.EmbedID(10000, 256)
            self.lstm1 = L.StatelessLSTM(256, 256)
            self.lstm2 = L.StatelessLSTM(256, 256)
            self.decoder = L.Linear(256, 10000)

    def layer(self, cell, x):
        # The link computes upward(x) at each step; all steps' at once is the same product, only larger.
        upward, outputs, c = F.split_axis(cell.upward(x), self.length, 0), [], None
        for step in upward:
            if outputs:
                step = step + cell.lateral(outputs[-1])
            else:
                c = np.zeros((len(step), 256), "float32")
            c, h = F.lstm(c, step)
            outputs.append(h)
        return F.concat(outputs, 0)

    def forward(self, x):
        return self.decoder(self.layer(self.lstm2, self.layer(self.lstm1, self.embed(x))))


def main():
    name, batch, _threads, mode, steps, out = sys.argv[1:]
    batch = int(batch)
    random = np.random.RandomState(1)
    if name.startswith("lstm"):
        net, length = LanguageModel(int(name[4:])), int(name[4:])
        x = random.randint(0, 10000, length * batch).astype("int32")
        y = random.randint(0, 10000, length * batch).astype("int32")
    elif name.startswith("fcn"):
        net = FullyConnected(int(name[3:]) - 2)
        x = random.uniform(-1, 1, (batch, 26752)).astype("float32")
        y = random.randint(0, 26752, batch).astype("int32")
    else:
        net = {"alexnet": AlexNet, "resnet50": ResNet50}[name]()
        scale = 0.1 if name == "alexnet" else 1.0
        x = (scale * random.uniform(-1, 1, (batch, 3, 224, 224))).astype("float32")
        y = random.randint(0, 1000, batch).astype("int32")
    if mode == "ideep":
        chainer.config.use_ideep = "auto"
        net.to_intel64()
    optimizer = chainer.optimizers.SGD(0.01).setup(net)

    def step():
        loss = F.softmax_cross_entropy(net(x), y)
        net.cleargrads()
        loss.backward()
        optimizer.update()

    for _ in range(3):
        step()
    samples = []
    for _ in range(int(steps)):
        start = time.perf_counter_ns()
        step()
        samples.append(time.perf_counter_ns() - start)
    Path(out).write_text(json.dumps({"samples_ns": samples}))


if __name__ == "__main__":
    main()
